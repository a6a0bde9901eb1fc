"""What a process keeps between tasks, and how a worker whose memory is nearly full gives way."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from bigfs.validation import checked

LIBRARIES = 210 << 20  # bytes of a worker that has loaded its libraries and its kernels (measured)
CACHE_SHARE = 0.25  # of what these leave it, for what is read once and kept

_kept: dict[tuple[Any, ...], tuple[Any, int]] = {}


def load(tile: Any) -> Any:
    """`tile.load()`, kept in this process while there is room; a corpus that fits is read once.

    What does not fit is streamed: kept tiles stay, because a cyclic scan would evict each one just
    before it is wanted again. A tile that is not `verified`, as those of a store are, is checked as
    it comes.
    """
    if not hasattr(tile, "load"):
        return tile  # the array itself
    key = getattr(tile, "key", None)
    return _loaded(tile) if key is None else keep(key, lambda: _loaded(tile))


def _loaded(tile: Any) -> Any:
    return tile.load() if getattr(tile, "verified", False) else checked(tile.load())


def keep(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """`make()`, kept in this process under `key` while there is room; what has another first part
    of its key gives way.
    """
    if (found := _kept.get(key)) is not None:
        return found[0]
    value = make()
    size = nbytes(value)
    # copies: another thread's task may forget them meanwhile
    for stale in [k for k in list(_kept) if k[0] != key[0]]:
        if _fits(size):
            break
        _kept.pop(stale, None)
    if _fits(size):
        _kept[key] = (value, size)
    return value


def _fits(size: int) -> bool:
    return sum(kept for _, kept in list(_kept.values())) + size <= _room()


def kept(tile: Any) -> bool:
    """Whether this process has the tile in memory."""
    return getattr(tile, "key", None) in _kept


def forget() -> None:
    """Drop this process's kept tiles."""
    _kept.clear()


def _room() -> float:
    import psutil

    limit = worker_limit()
    return CACHE_SHARE * (psutil.virtual_memory().available if limit is None else limit - LIBRARIES)


def worker_limit() -> float | None:
    """Bytes of this process's Dask worker (inf without a limit); None where it is not one: the
    driver.
    """
    if "distributed" in sys.modules:
        from distributed import get_worker

        with contextlib.suppress(ValueError):  # "no worker found"
            return get_worker().memory_manager.memory_limit or np.inf
    return None


def nbytes(value: Any) -> int:
    """Of an array, a sparse one, or a tuple with some."""
    if isinstance(value, tuple):
        return sum(nbytes(part) for part in value)
    if hasattr(value, "indptr"):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    return int(getattr(value, "nbytes", 0))
