"""What a process keeps between tasks, and how a worker whose memory is nearly full gives way."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from bigfs.validation import checked

LIBRARIES = 210 << 20  # bytes of a worker that has loaded its libraries and its kernels (measured)
CACHE_SHARE = 0.25  # of what these leave it, for what is read once and kept
RELIEF_ABOVE = 0.75  # of its limit: what a task may leave behind; at 0.8 Dask pauses a worker, for ever if nothing gives way

_kept: dict[tuple[Any, ...], tuple[Any, int]] = {}


def load(tile: Any) -> Any:
    """`tile.load()`, kept in this process while there is room; a corpus that fits is read once.

    What does not fit is streamed: kept tiles stay, because a cyclic scan would evict each one
    just before it is wanted again. A tile that is not `verified`, as those of a store are, is checked as it comes.
    """
    if not hasattr(tile, "load"):
        return tile  # the array itself
    key = getattr(tile, "key", None)
    return _loaded(tile) if key is None else keep(key, lambda: _loaded(tile))


def _loaded(tile: Any) -> Any:
    return tile.load() if getattr(tile, "verified", False) else checked(tile.load())


def keep(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """`make()`, kept in this process under `key` while there is room; what has another first part of its key gives way."""
    if (found := _kept.get(key)) is not None:
        return found[0]
    value = make()
    size = nbytes(value)
    for stale in [k for k in list(_kept) if k[0] != key[0]]:  # copies: another thread's task may forget them meanwhile
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


def relieve() -> None:
    """After a task: where this worker's memory is nearly full, give back what is freed, then what is kept."""
    limit = _worker_limit()
    if limit is None:
        return
    for give_way in (_trim, forget, gc.collect, _trim):
        if _resident() <= RELIEF_ABOVE * limit:
            return
        give_way()


def relief() -> Any:
    """A plugin for workers: what is freed is given back also between tasks, since a paused worker has none.

    It also keeps errors of our tasks out of the worker's log.
    """
    from distributed import WorkerPlugin
    from tornado.ioloop import PeriodicCallback

    class Relief(WorkerPlugin):
        name = "bigfs-relief"

        def setup(self, worker: Any) -> None:
            def give_back() -> None:
                if _resident() > RELIEF_ABOVE * (worker.memory_manager.memory_limit or np.inf):
                    _trim()

            worker.periodic_callbacks[self.name] = PeriodicCallback(give_back, 1000)
            worker.periodic_callbacks[self.name].start()
            logging.getLogger("distributed.worker").addFilter(_is_news)

        def teardown(self, worker: Any) -> None:
            worker.periodic_callbacks.pop(self.name).stop()
            logging.getLogger("distributed.worker").removeFilter(_is_news)

    return Relief()


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a worker should log it: an error of our tasks is not, because the driver gets it and says it in one line."""
    return not (str(record.msg).startswith("Compute Failed") and "bigfs" in str(record.args))


def _trim() -> None:
    """glibc keeps what is freed for the next task; other allocators decide for themselves."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def _resident() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def _room() -> float:
    import psutil

    limit = _worker_limit()
    return CACHE_SHARE * (psutil.virtual_memory().available if limit is None else limit - LIBRARIES)


def _worker_limit() -> float | None:
    """Bytes of this process's Dask worker (inf without a limit); None where it is not one: the driver."""
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
