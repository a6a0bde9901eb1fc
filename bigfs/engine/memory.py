"""Memory limits: what one process may use, and the refusal of a step that needs more."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
from dask.utils import format_bytes, parse_bytes

from bigfs.engine.budget import (
    IDLE,
    SHARES,
    MemoryLimitError,
    current_session,
    given_limit,
    in_task,
    of_thread,
    process_memory,
)
from bigfs.engine.executor import client, held_memory, known_workers
from bigfs.engine.workers import cached_bytes, clear_cache
from bigfs.types import AnyArray


def memory_limit() -> int:
    """Return the number of bytes that one process may use."""
    if (limit := given_limit()) is not None:
        return limit
    if client() is not None:
        limits = [
            of_thread(worker["memory_limit"], worker["nthreads"])
            for worker in known_workers().values()
        ]
        if limits and min(limits) > 0:
            return int(min(limits))
    return process_memory()


def planned_memory() -> int:
    """Return the number of bytes by which to choose between two ways of computing the same."""
    return min(memory_limit(), current_session().planned)


def task_memory() -> float:
    """Return the number of bytes that one large task may take, or as much work of the driver."""
    limit = memory_limit()
    if given_limit() is None and client() is not None:
        return max(min(limit / 2, SHARES.value.most * limit - IDLE), 0)
    return limit / 2


def spare_memory() -> int:
    """Return the bytes of this process that an idle one does not take, by which the choice among
    ways is bounded. It does not depend on what the process holds."""
    return memory_limit() if current_session().baseline == 0 else max(memory_limit() - IDLE, 0)


def require_memory(projected: int, what: str, limit: int | str | None = None) -> None:
    """Raise `MemoryLimitError` if a step of `projected` bytes does not fit in `limit`, or in this
    process without the baseline, after the cached tiles are dropped."""
    allowed, held = memory_limit() if limit is None else parse_bytes(limit), 0
    if limit is None:
        held = held_memory()
        if held and projected + held + cached_bytes() > allowed and not in_task():
            clear_cache()
    if projected + held > allowed:
        beside = f" in addition to the {format_bytes(held)} that it holds" if held else ""
        raise MemoryLimitError(
            f"{what} needs {format_bytes(int(projected))} in one process{beside} and "
            f"{format_bytes(int(allowed))} is allowed: "
            "raise --memory-limit, use smaller tiles, or choose smaller parameters"
        )


def lazy_zeros(shape: tuple[int, ...], dtype: Any = np.float64) -> AnyArray:
    """Return zeros of which only the rows that are written take memory. `numpy.zeros` asks Linux
    for pages of 2 MiB. A row of a few kilobytes that is written then takes many others with it."""
    if not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.zeros(shape, dtype)
    size = max(math.prod(shape) * np.dtype(dtype).itemsize, 1)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.ndarray(shape, dtype, buffer=pages)
