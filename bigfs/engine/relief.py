"""How a worker whose memory is nearly full gives back what is freed, then what is cached."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
from typing import Any

import numpy as np

from bigfs.engine import cache

# of its limit: what a task may leave behind; at 0.8 Dask pauses a worker, for ever if nothing gives
# way
RELIEF_ABOVE = 0.75


def relieve() -> None:
    """After a task: where this worker's memory is nearly full, give back what is freed, then what
    is kept.
    """
    limit = cache.worker_limit()
    if limit is None:
        return
    for give_way in (_trim, cache.forget, gc.collect, _trim):
        if _resident() <= RELIEF_ABOVE * limit:
            return
        give_way()


def relief() -> Any:
    """A plugin for workers: what is freed is given back also between tasks, since a paused worker
    has none.

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
    """Whether a worker should log it: an error of our tasks is not, because the driver gets it and
    says it in one line.
    """
    return not (str(record.msg).startswith("Compute Failed") and "bigfs" in str(record.args))


def _trim() -> None:
    """glibc keeps what is freed for the next task; other allocators decide for themselves."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def _resident() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)
