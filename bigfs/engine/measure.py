"""The usage of the processes: processor time and peak memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bigfs.engine.clusters import asking_cluster
from bigfs.engine.executor import client
from bigfs.settings import Setting

T = TypeVar("T")

# Linux: writing 5 sets VmHWM to the current resident size
RESET = Setting(Path("/proc/self/clear_refs"))


def processor_time() -> dict[str, float]:
    """Return the processor seconds of this process ("driver") and each worker, by its address.

    All threads count. A worker that was started again counts from its new start.
    """
    return {"driver": time.process_time()} | on_workers(time.process_time)


def processor_time_since(before: dict[str, float]) -> float:
    """Return the processor seconds of all processes since an earlier `processor_time`."""
    return sum(now - before.get(name, 0.0) for name, now in processor_time().items())


def peak_memory() -> dict[str, int]:
    """Return the peak resident bytes of this process ("driver") and each worker ("worker 0", …)."""
    peaks = {"driver": _peak_resident()}
    by_address = on_workers(_peak_resident)
    return peaks | {f"worker {i}": by_address[a] for i, a in enumerate(sorted(by_address))}


def _peak_resident() -> int:
    if sys.platform == "linux":  # getrusage would count the memory of the parent at the fork
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def reset_peak_memory() -> bool:
    """Let `peak_memory` start again, in this process and each worker."""
    return all([_reset_peak(), *on_workers(_reset_peak).values()])


def _reset_peak() -> bool:
    try:
        RESET.value.write_text("5")
    except OSError:
        return False
    return True


def on_workers(fn: Callable[..., T], *operands: Any) -> dict[str, T]:
    """Return what a function returns in each worker, by its address."""
    if client() is None:
        return {}
    with asking_cluster():
        return dict(client().run(fn, *operands))
