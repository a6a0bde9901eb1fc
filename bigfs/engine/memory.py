"""Memory as a promise: what a process may use, and what it has used."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar

from dask.utils import format_bytes, parse_bytes

from bigfs.engine.clusters import client, lost


class NotEnoughMemory(MemoryError):
    """A step's projected memory passes what it was given; raised before the step runs."""


_limit: ContextVar[int | None] = ContextVar("limit", default=None)


@contextlib.contextmanager
def limited(limit: int) -> Iterator[None]:
    """Hold what this process projects inside the block to a limit.

    Parameters
    ----------
    limit : int
        Bytes, as `memory_limit` then says.
    """
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)


def memory_limit() -> int:
    """Bytes that one process may use: what `limited` says, a worker's limit on Dask, else the
    machine's free memory.
    """
    if (limit := _limit.get()) is not None:
        return limit
    if client() is not None:
        limits = [
            w["memory_limit"] for w in client().scheduler_info(n_workers=-1)["workers"].values()
        ]
        if limits and min(limits) > 0:
            return int(min(limits))
    import psutil

    return int(psutil.virtual_memory().available)


def require_memory(projected: int, what: str, limit: int | str | None = None) -> None:
    """Raise `NotEnoughMemory`, with both numbers, if `projected` bytes do not fit in `limit`."""
    given = memory_limit() if limit is None else parse_bytes(limit)
    if projected > given:
        raise NotEnoughMemory(
            f"{what} needs {format_bytes(int(projected))} in one process and "
            f"{format_bytes(int(given))} is allowed: "
            "raise --memory-limit, use smaller tiles, or choose smaller parameters"
        )


def peak_memory() -> dict[str, int]:
    """Peak resident bytes so far of this process ("driver") and of each worker ("worker 0", …)."""
    peaks = {"driver": _peak_resident()}
    if client() is not None:
        with lost():
            found = client().run(_peak_resident)
        peaks |= {f"worker {i}": found[address] for i, address in enumerate(sorted(found))}
    return peaks


def _peak_resident() -> int:
    if sys.platform == "linux":  # getrusage would count what the parent held when it forked
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
