"""The memory that this process has: the limit that was given, or that of its control group.

It is the same for the whole life of a process, so that no plan depends on the free memory of the
minute.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar

import numpy as np

_limit: ContextVar[int | None] = ContextVar("limit", default=None)


@contextlib.contextmanager
def limit_memory(limit: int) -> Iterator[None]:
    """Set the memory limit of this process inside a block."""
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)


def given_limit() -> int | None:
    """Return the limit that `limit_memory` has set, or None."""
    return _limit.get()


def worker_limit() -> float | None:
    """Return the memory limit of this Dask worker in bytes, infinity if it has none. None if this
    process is not a worker but the driver."""
    if "distributed" in sys.modules:
        from distributed import get_worker

        with contextlib.suppress(ValueError):  # "no worker found"
            return get_worker().memory_manager.memory_limit or np.inf
    return None


def process_memory() -> int:
    """Return the number of bytes that a task of this process may use, if no limit was given."""
    from distributed import get_worker, system

    limit = worker_limit()
    if limit is None or limit == np.inf:
        return int(system.MEMORY_LIMIT)
    return int(limit / get_worker().state.nthreads)
