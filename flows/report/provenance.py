"""When, where and by which command a result is made, in how much time and memory."""

from __future__ import annotations

import contextlib
import logging
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from bigfs import engine
from bigfs.storage.errors import redact

log = logging.getLogger("bigfs.flows")
LIBRARIES = ("bigfs", "dask", "numpy", "scipy", "scikit-learn", "zarr")


def provenance() -> dict[str, Any]:
    """Return when, where and by which command a result is made, and the versions behind it."""
    return {
        "made": datetime.now().astimezone().isoformat(timespec="seconds"),
        "host": platform.node(),
        "command": command(),
        "versions": {name: version(name) for name in LIBRARIES},
    }


def command() -> str:
    """Return the command of this process, without secrets of URLs."""
    name = Path(sys.argv[0]).name
    start = ["python", "-m", "bigfs"] if name == "__main__.py" else [name]
    return redact(shlex.join([*start, *sys.argv[1:]]))


@contextlib.contextmanager
def time_step(step: str) -> Iterator[dict[str, Any]]:
    """Record the time of the block and the peak memory of each process."""
    record: dict[str, Any] = {"stage": step}
    began = time.perf_counter()
    yield record
    record |= {"seconds": time.perf_counter() - began, "peak_memory": engine.peak_memory()}
    log.info("%s: %.1f s", step, record["seconds"])


def start_up(loaded: str) -> dict[str, Any]:
    """Return the record of all that happened before the first step."""
    return {
        "stage": f"start-up ({loaded})",
        "seconds": process_age(),
        "peak_memory": engine.peak_memory(),
    }


def process_age() -> float:
    """Return the seconds since this process began.

    psutil adds its start to the time of the boot, which Linux rounds and keeps where later
    corrections of the clock moved it.
    """
    process = psutil.Process()
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return time.time() - process.create_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - (process.create_time() - psutil.boot_time())
