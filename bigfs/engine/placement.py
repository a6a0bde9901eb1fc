"""Where tasks run: near the tiles that a worker has cached, and the blocks that it holds."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import dask
import numpy as np
from dask.delayed import Delayed

from bigfs.engine.clusters import addresses, asking_cluster, client
from bigfs.engine.lazy_blocks import lazy_inputs


def preferred_workers(tiles: Sequence[Any]) -> list[list[str]]:
    """Return the workers that each task prefers."""
    if all(isinstance(tile, np.ndarray) for tile in tiles):
        return [[] for _ in tiles]
    workers, held = addresses(), _held_keys(tiles)
    if not workers:  # all of them died at once, and their nannies start new ones
        return [[] for _ in tiles]
    if not any(held):
        places = [_place(tile, (i + 0.5) / len(tiles)) for i, tile in enumerate(tiles)]
        return [[workers[int(place * len(workers))]] for place in places]
    with asking_cluster():
        holders = client().sync(
            client().scheduler.who_has, keys=list({key for keys in held for key in keys})
        )
    return [sorted({worker for key in keys for worker in holders.get(key, ())}) for keys in held]


def _place(tile: Any, default: float) -> float:
    """Return where a tile lies in its matrix, from 0 to 1, or the default."""
    if isinstance(tile, Delayed):  # it has any attribute
        return default
    while (inner := getattr(tile, "tile", None)) is not None:  # of which it has some rows
        tile = inner
    place = getattr(tile, "place", None)
    return default if place is None else float(place)


def _held_keys(tiles: Sequence[Any]) -> list[set[Any]]:
    """Return the keys of the values on the cluster that each tile is computed from."""
    return [{part.key for part in lazy_inputs(tile) if part.key not in part.dask} for tile in tiles]


def prefer(workers: list[str]) -> contextlib.AbstractContextManager[Any]:
    """Let the tasks made in the block prefer some workers. Others may take them."""
    if not workers:
        return contextlib.nullcontext()
    return dask.annotate(workers=workers, allow_other_workers=True)
