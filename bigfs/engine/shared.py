"""Values that many tasks need, such as the rows of a fold. They travel once, and each tile without
them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary


@dataclass(frozen=True, eq=False)
class Shared:
    """A value of several tiles or maps, which travels to a cluster once, by a repeatable task."""

    value: Any
    futures: WeakKeyDictionary[Any, Any] = field(default_factory=WeakKeyDictionary, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Shared, (self.value,)

    def at(self, client: Any) -> Any:
        """Return the future of the value on a cluster."""
        future = self.futures.get(client)
        if future is None or future.status in ("cancelled", "lost"):
            future = self.futures[client] = client.submit(itself, self.value, pure=False)
        return future


def itself(value: Any) -> Any:
    """Return a value that is sent by a task, so that Dask makes it again where it is lost."""
    return value


def unshare(value: Any) -> Any:
    """Return the value itself, whether it is shared or not."""
    return value.value if isinstance(value, Shared) else value


@dataclass(frozen=True)
class Reference:
    """The stand-in for a shared value in a tile that travels."""

    number: int


def replace_held(tile: Any, kind: type, by: Callable[[Any], Any]) -> Any:
    """Return a tile, or tiles, where a function replaces what they hold of some kind."""
    if isinstance(tile, kind):
        return by(tile)
    if type(tile) in (list, tuple):
        new = [replace_held(one, kind, by) for one in tile]
        is_new = any(a is not b for a, b in zip(new, tile, strict=True))
        return type(tile)(new) if is_new else tile
    # a tile of part of another one has `tile`, and a block of several `parts`
    if not is_dataclass(tile) or not (hasattr(tile, "tile") or hasattr(tile, "parts")):
        return tile
    held = {part.name: getattr(tile, part.name) for part in fields(tile)}
    changed = {name: replace_held(value, kind, by) for name, value in held.items()}
    changed = {name: value for name, value in changed.items() if value is not held[name]}
    return replace(tile, **changed) if changed else tile  # type: ignore[type-var]
