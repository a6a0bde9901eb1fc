"""Every method at the scale of News20, RCV1 and Real-Sim: time and memory for 500 features on two
workers of 1 GB, or why it does not choose them.

python -m benchmarks.peers_scale run --corpora news20,rcv1.binary,real-sim   # resumes when cut off
python -m benchmarks.peers_scale table

The neighbor graph is made beforehand and counts in no method's time. A method has its defaults. The
limit is in processor seconds of all processes together, so that other work does not count.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from benchmarks.peers import KEPT, MEASURED, all_methods, measure_missing, read_measured
from benchmarks.shared import STORES, table, timed
from bigfs import engine, storage
from bigfs.flows.evaluation import selection
from bigfs.result import NotConvergedWarning

app = typer.Typer(add_completion=False)
CORPORA = "news20,rcv1.binary,real-sim"
FEATURES = 500
START = 60  # processor seconds more for the imports, the workers and the graph
LOOK = 2.0  # seconds between two looks at the processor time
REFUSALS = (ValueError, MemoryError, engine.ClusterLostError)


@app.command()
def one(store: str, method: str) -> None:
    """Choose by one method and print its figures as JSON."""
    warnings.simplefilter("ignore", NotConvergedWarning)
    corpus, began = storage.open(store), time.perf_counter()
    figures: dict[str, Any] = {}
    with engine.cluster(workers=2, memory_limit="1GB"):
        try:
            selector = selection.selector_for(corpus, method, FEATURES, {})
            if selection.get_method(method).graph:
                graph = storage.graph(corpus, selector.n_neighbors, metric=selector.metric)
                selector.set_params(graph=graph.neighbors())
            X, y = selection.usable(selector, method, corpus.X, corpus.y)
            engine.reset_peak_memory()
            began = time.perf_counter()
            run = timed(selector.fit, X, y)
            figures = {"seconds": run.seconds, "processor_seconds": run.processor}
            figures["status"] = "" if selector.result_.converged else str(selector.result_.status)
        except REFUSALS as error:
            figures["error"] = " ".join(str(error).split())
            figures["seconds"] = time.perf_counter() - began
        peaks = engine.peak_memory()
    figures["driver_bytes"] = peaks.pop("driver")
    figures["worker_bytes"] = max(peaks.values(), default=0)
    print(json.dumps(figures))


def measure(store: Path, method: str, limit: float) -> dict[str, Any]:
    """Run `one` in a process of its own, and kill it with its workers when it worked too long."""
    command = [sys.executable, "-m", "benchmarks.peers_scale", "one", str(store), method]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, start_new_session=True, **pipes)
    while True:
        try:
            out, err = process.communicate(timeout=LOOK)
            break
        except subprocess.TimeoutExpired:
            first = psutil.Process(process.pid)
            tree = [first, *first.children(recursive=True)]
            used = sum(sum(each.cpu_times()[:2]) for each in tree)
            if used > limit + START:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                error = f"longer than {limit:g} processor seconds"
                return {"error": error, "seconds": limit, "processor_seconds": used}
    if process.returncode:
        return {"error": f"it ended with {err.strip().splitlines()[-1:]}", "seconds": 0.0}
    return dict(json.loads(out.splitlines()[-1]))


@app.command()
def run(
    stores: Path = STORES,
    results: Annotated[Path, MEASURED] = KEPT / "scale",
    corpora: Annotated[str, typer.Option(help="separated by commas")] = CORPORA,
    methods: Annotated[str, typer.Option(help="separated by commas (default: all)")] = "",
    limit: Annotated[float, typer.Option(help="processor seconds a method may take")] = 300,
) -> None:
    """Measure what has no result yet."""
    for corpus in corpora.split(","):
        store = stores / f"{corpus}.zarr"
        storage.stage(f"synthetic:{corpus}", store)
        for method in all_methods(methods):
            with measure_missing(results, corpus, method) as figures:
                if figures is not None:
                    figures |= measure(store, method, limit)


@app.command(name="table")
def print_table(results: Annotated[Path, MEASURED] = KEPT / "scale") -> None:
    """Print a table per corpus."""
    for corpus, rows in read_measured(results).items():
        shown = []
        for f in sorted(rows, key=lambda f: ("error" in f, f["seconds"])):
            if "error" in f:
                shown.append((f"`{f['method']}`", *(["–"] * 4), f["error"]))
                continue
            times = (f"{f[key]:.1f}" for key in ("seconds", "processor_seconds"))
            sizes = (f"{f[key] / 1e6:,.0f}" for key in ("driver_bytes", "worker_bytes"))
            shown.append((f"`{f['method']}`", *times, *sizes, f["status"]))
        head = ("method", "seconds", "processor (s)", "driver (MB)", "worker (MB)", "")
        table(f"synthetic:{corpus}, {FEATURES} features", head, shown)


if __name__ == "__main__":
    app()
