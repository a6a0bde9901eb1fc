"""The entry points by which other packages add to bigfs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import Any


def plugins(group: str, taken: Iterable[str], is_valid: Callable[[Any], bool]) -> dict[str, Any]:
    """Return what installed packages add to a group, by name.

    An entry that cannot be loaded, is not valid, or has a taken name is left out with a warning: a
    broken package must not end every command.
    """
    found: dict[str, Any] = {}
    for point in entry_points(group=group):
        package = point.dist.name if point.dist is not None else point.value
        if point.name in {*taken, *found}:
            warnings.warn(f"{package} adds {point.name!r} to {group}, a taken name", stacklevel=2)
            continue
        try:
            loaded = point.load()
        except Exception as error:  # whatever the code of a package raises where it is imported
            warnings.warn(
                f"{package} adds {point.name!r} to {group}, which cannot be loaded: "
                f"{type(error).__name__}: {error}",
                stacklevel=2,
            )
            continue
        if is_valid(loaded):
            found[point.name] = loaded
        else:
            warnings.warn(
                f"{package} adds {point.name!r} to {group}, which is of the wrong kind: {loaded!r}",
                stacklevel=2,
            )
    return found
