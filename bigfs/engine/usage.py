"""What the processes have used: processor time, and the peak memory of one part of the work."""

from __future__ import annotations

import time
from pathlib import Path

from bigfs.engine.clusters import client, translate_cluster_errors

RESET = Path("/proc/self/clear_refs")  # Linux: writing 5 sets VmHWM to the current resident size


def processor_time() -> dict[str, float]:
    """Return the processor seconds of this process ("driver") and each worker, by its address. All
    threads count. A worker that was started again counts from its new start."""
    return {"driver": time.process_time()} | _on_workers(time.process_time)


def processor_time_since(before: dict[str, float]) -> float:
    """Return the processor seconds of all processes since an earlier `processor_time`."""
    return sum(now - before.get(name, 0.0) for name, now in processor_time().items())


def reset_peak_memory() -> bool:
    """Let `peak_memory` start again, in this process and each worker."""
    return all([_reset_peak(), *_on_workers(_reset_peak).values()])


def _reset_peak() -> bool:
    try:
        RESET.write_text("5")
    except OSError:
        return False
    return True


def _on_workers(fn: object) -> dict[str, float]:
    if client() is None:
        return {}
    with translate_cluster_errors():
        return dict(client().run(fn))
