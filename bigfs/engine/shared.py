"""Values that many tiles hold, such as the rows of a fold. A map sends them once, and each tile
without them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Shared:
    """A value that a tile holds in common with others."""

    value: Any


def unshared(value: Any) -> Any:
    """Return the value itself, whether it is shared or not."""
    return value.value if isinstance(value, Shared) else value


@dataclass(frozen=True)
class Reference:
    """What a tile that travels holds in place of a shared value."""

    number: int


def detach(tile: Any, sent: dict[int, Any]) -> Any:
    """Return a tile without its shared values, which become operands in `sent` by their numbers."""

    def refer(shared: Shared) -> Reference:
        if id(shared) not in sent:
            sent[id(shared)] = shared.value
        return Reference(id(shared))

    return _replace(tile, Shared, refer)


def attach(tile: Any, values: dict[int, Any]) -> Any:
    """Return a tile with its shared values."""
    return _replace(tile, Reference, lambda reference: Shared(values[reference.number]))


def _replace(tile: Any, kind: type, by: Callable[[Any], Any]) -> Any:
    """Return a tile, or tiles, where a function replaces what is of some kind."""
    if isinstance(tile, list):
        return [_replace(one, kind, by) for one in tile]
    # a tile of part of another one has `tile`
    if not is_dataclass(tile) or not hasattr(tile, "tile"):
        return tile
    new = {}
    for field in fields(tile):
        value = getattr(tile, field.name)
        if isinstance(value, kind):
            new[field.name] = by(value)
        elif field.name == "tile" and (inner := _replace(value, kind, by)) is not value:
            new[field.name] = inner
    return replace(tile, **new) if new else tile  # type: ignore[type-var]
