"""Where tasks run: on the worker of their tile, which may have it in its cache, and near the blocks
that a worker holds."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import dask
import numpy as np
from dask.delayed import Delayed

from bigfs.engine.clusters import asking_cluster, client, worker_threads
from bigfs.engine.lazy_blocks import lazy_inputs
from bigfs.types import IntArray

SLOTS = 1 << 16  # equal parts of a matrix, each of which has a worker


class Homes:
    """The worker of each part of a matrix.

    At first every worker has the parts of one stretch. A worker that comes takes over its share
    from the others, and the parts of one that goes are shared among them. All other parts stay.
    """

    def __init__(self) -> None:
        self._threads: dict[str, int] = {}
        self._owners: IntArray = np.full(SLOTS, -1)  # by their numbers in `_threads`
        self._lock = threading.Lock()

    def at(self, places: Sequence[float], threads: dict[str, int]) -> list[str]:
        """Return the worker at each place from 0 to 1, of workers with so many threads each."""
        with self._lock:
            if threads != self._threads:
                self._owners = _with_workers(self._owners, list(self._threads), threads)
                self._threads = threads
            names, owners = list(threads), self._owners
        return [names[owners[int(place * SLOTS)]] for place in places]


def _with_workers(owners: IntArray, before: list[str], threads: dict[str, int]) -> IntArray:
    """Return the owners after workers have come and gone, in shares by their threads."""
    number = {name: i for i, name in enumerate(threads)}
    # a part that nobody has is the last of these
    owners = np.array([number.get(name, -1) for name in before] + [-1])[owners]
    ends = np.cumsum(list(threads.values())) * SLOTS // sum(threads.values())
    shares = np.diff(ends, prepend=0)
    for i, share in enumerate(shares):
        owners[np.flatnonzero(owners == i)[share:]] = -1
    missing = shares - np.bincount(owners[owners >= 0], minlength=len(shares))
    owners[owners < 0] = np.repeat(np.arange(len(shares)), missing)
    return owners


_homes: WeakKeyDictionary[Any, Homes] = WeakKeyDictionary()  # of each client


def homes_at(places: Sequence[float]) -> list[str]:
    """Return the worker at each place of a matrix. Empty if there is none at the moment."""
    threads = worker_threads()
    if not threads:  # all of them died at once, and their nannies start new ones
        return []
    return _homes.setdefault(client(), Homes()).at(places, threads)


def preferred_workers(tiles: Sequence[Any]) -> list[list[str]]:
    """Return the workers that each task prefers."""
    if all(isinstance(tile, np.ndarray) for tile in tiles):
        return [[] for _ in tiles]
    held = _held_keys(tiles)
    if not any(held):
        homes = homes_at([_place(tile, (i + 0.5) / len(tiles)) for i, tile in enumerate(tiles)])
        return [[home] for home in homes] or [[] for _ in tiles]
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
