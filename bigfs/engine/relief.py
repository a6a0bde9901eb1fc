"""How a worker whose memory is nearly full releases freed memory, and then its cache."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
from typing import Any

import numpy as np

from bigfs.engine import cache
from bigfs.engine.budget import worker_limit

# Share of a worker's memory limit above which it releases memory. At 0.8 Dask pauses a worker, and
# without a release it would stay paused.
RELIEF_ABOVE = 0.75


def release_memory() -> None:
    """Release memory if this worker is near its limit. Runs after each task. Freed memory goes back
    to the system first. If that does not suffice, the cache is cleared."""
    limit = worker_limit()
    if limit is None:
        return
    for release in (trim_memory, cache.clear_cache, gc.collect, trim_memory):
        if _resident() <= RELIEF_ABOVE * limit:
            return
        release()


def make_room(size: int) -> None:
    """Clear the cache of this worker if a task that takes `size` bytes does not fit beside it."""
    limit = worker_limit()
    if limit is not None and _resident() + size > RELIEF_ABOVE * limit:
        cache.clear_cache()
        trim_memory()


def memory_relief_plugin() -> Any:
    """Return a worker plugin that returns freed memory to the system every second."""
    from distributed import WorkerPlugin
    from tornado.ioloop import PeriodicCallback

    class MemoryReliefPlugin(WorkerPlugin):
        name = "bigfs-relief"

        def setup(self, worker: Any) -> None:
            def trim_if_nearly_full() -> None:
                if _resident() > RELIEF_ABOVE * (worker.memory_manager.memory_limit or np.inf):
                    trim_memory()

            worker.periodic_callbacks[self.name] = PeriodicCallback(trim_if_nearly_full, 1000)
            worker.periodic_callbacks[self.name].start()
            logging.getLogger("distributed.worker").addFilter(_should_log)

        def teardown(self, worker: Any) -> None:
            worker.periodic_callbacks.pop(self.name).stop()
            logging.getLogger("distributed.worker").removeFilter(_should_log)

    return MemoryReliefPlugin()


def _should_log(record: logging.LogRecord) -> bool:
    """Return whether a worker should log a record. An error of a bigfs task is left out, because
    the driver receives it and reports it in one line."""
    return not (str(record.msg).startswith("Compute Failed") and "bigfs" in str(record.args))


def trim_memory() -> None:
    """Return freed memory to the system. glibc holds freed memory for later. Other allocators
    decide for themselves."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def _resident() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)
