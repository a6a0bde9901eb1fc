"""What the benchmarks share: one way to time and to count memory, tables, and the rows of
RESULTS.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from bigfs import engine

ROOT = Path(__file__).parents[1]
ROW = "row: "  # begins a printed row of RESULTS.md
STORES = Path("/tmp/bigfs-benchmarks")  # where stores are kept between runs


# --- time and memory ------------------------------------------------------------------------------


class Timed(NamedTuple):
    value: Any
    seconds: float
    processor: float  # seconds of this process and the workers


def timed(call: Callable[..., Any], *arguments: Any, repeat: int = 1) -> Timed:
    """Call so often, and return the fastest time with its result."""
    runs = []
    for _ in range(repeat):
        began, used = time.perf_counter(), engine.processor_time()
        value = call(*arguments)
        seconds = time.perf_counter() - began
        runs.append(Timed(value, seconds, engine.processor_time_since(used)))
    return min(runs, key=lambda run: run.seconds)


def by_turns(calls: Mapping[str, Callable[[], Any]], turns: int = 3) -> dict[str, list[Timed]]:
    """Time the calls one after the other, and so again, so that all see the same machine."""
    found: dict[str, list[Timed]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            found[name].append(timed(call))
    return found


def show_turns(title: str, found: Mapping[str, Sequence[Timed]]) -> None:
    """Print the best of the turns, all of them, and the processor seconds."""
    rows = [
        [
            name,
            f"{min(run.seconds for run in runs):.2f}",
            ", ".join(f"{run.seconds:.2f}" for run in runs),
            ", ".join(f"{run.processor:.1f}" for run in runs),
        ]
        for name, runs in found.items()
    ]
    table(f"{title}; {load()}", ["", "best (s)", "all (s)", "processor (s)"], rows)


def load() -> str:
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def peaks() -> str:
    """Peak resident memory of the driving process and of each worker."""
    return ", ".join(f"{name} {size >> 20} MiB" for name, size in engine.peak_memory().items())


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a command that has its own Prefect and Dask settings, and no other's."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "DASK_"))}
    own = {"PYTHONPATH": str(ROOT), "PREFECT_HOME": str(home / "prefect")}
    return clean | own | {"PREFECT_SERVER_ANALYTICS_ENABLED": "false"} | more


# --- output ---------------------------------------------------------------------------------------


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    shown = Table(title=title, title_justify="left", box=box.MARKDOWN)
    for i, name in enumerate(head):
        shown.add_column(name, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*map(str, row))
    Console(width=240).print(shown)


def row(what: str, on_what: str, figure: str, limit: str = "–") -> None:
    """Print a row that `python -m benchmarks run` writes into RESULTS.md."""
    print(f"{ROW}{what} | {on_what} | {figure} | {limit}", flush=True)


def mean_error(values: Any, digits: int = 3) -> str:
    """Mean ± standard error."""
    values = np.asarray(values)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{values.mean():.{digits}f} ± {error:.{digits}f}"
