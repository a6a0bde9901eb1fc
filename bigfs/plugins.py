"""What other packages add to bigfs, by their entry points."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Any


def plugins(group: str, taken: Iterable[str]) -> dict[str, Any]:
    """Return what installed packages add to a group, by name.

    What cannot be loaded, or has a taken name, is left out with a warning: a broken package must
    not end every command.
    """
    found: dict[str, Any] = {}
    for point in entry_points(group=group):
        package = point.dist.name if point.dist is not None else point.value
        if point.name in {*taken, *found}:
            warnings.warn(f"{package} adds {point.name!r} to {group}, a taken name", stacklevel=2)
            continue
        try:
            found[point.name] = point.load()
        except (ImportError, AttributeError) as error:
            warnings.warn(
                f"{package} adds {point.name!r} to {group}, which cannot be loaded: {error}",
                stacklevel=2,
            )
    return found
