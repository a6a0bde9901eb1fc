"""Where tasks run: near the tiles that a worker has cached, and the blocks that it holds."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import dask
import numpy as np
from dask._task_spec import convert_legacy_graph
from dask.base import unpack_collections

from bigfs.engine.clusters import addresses, client, translate_cluster_errors


def preferred_workers(tiles: Sequence[Any]) -> list[list[str]]:
    """Return the workers that each task prefers.

    A tile prefers the same worker in every pass, because that worker may have it cached. A lazy
    block prefers the workers that hold it, or hold what it is computed from. An array, such as the
    index of some columns, is in no cache and prefers none.
    """
    if all(isinstance(tile, np.ndarray) for tile in tiles):
        return [[] for _ in tiles]
    workers, held = addresses(), _held_keys(tiles)
    if not workers:  # all of them died at once, and their nannies start new ones
        return [[] for _ in tiles]
    if not any(held):
        return [[workers[i * len(workers) // len(tiles)]] for i in range(len(tiles))]
    with translate_cluster_errors():
        holders = client().sync(
            client().scheduler.who_has, keys=list({key for keys in held for key in keys})
        )
    return [sorted({worker for key in keys for worker in holders.get(key, ())}) for keys in held]


def _held_keys(tiles: Sequence[Any]) -> list[set[Any]]:
    """Return the keys on the cluster that the lazy blocks of each tile are computed from.

    They are the keys that a graph refers to and does not hold.
    """
    graphs: dict[int, dict[Any, Any]] = {}  # tiles of one array share a graph
    held: list[set[Any]] = []
    for tile in tiles:
        held.append(set())
        lazy_parts, _ = unpack_collections(tile)
        for part in lazy_parts:
            graph = part.__dask_graph__()
            tasks = graphs.setdefault(id(graph), {})
            if not tasks:
                tasks |= convert_legacy_graph(graph)
            waiting, seen = list(part.__dask_keys__()), set()
            while waiting:
                key = waiting.pop()
                if key in seen:
                    continue
                seen.add(key)
                if key in tasks:
                    waiting += tasks[key].dependencies
                else:
                    held[-1].add(key)
    return held


def prefer(workers: list[str]) -> contextlib.AbstractContextManager[Any]:
    """Let the tasks made in the block prefer some workers. Others may take them."""
    if not workers:
        return contextlib.nullcontext()
    return dask.annotate(workers=workers, allow_other_workers=True)
