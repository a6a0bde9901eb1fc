"""Every method at the scale of News20, RCV1 and Real-Sim: time and memory for 500 features on two
workers of 1 GB, or why it does not choose them.

python benchmarks/peers_scale.py run --corpora news20,rcv1.binary,real-sim   # resumes when cut off
python benchmarks/peers_scale.py table                                       # as in RESULTS.md

The neighbor graph is made beforehand and counts in no method's time. A method has its defaults. The
limit is in processor seconds of all processes together, so that it does not depend on what else
runs. On a quiet machine a method takes less than that by the clock.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from shared import table

import storage
from bigfs import engine
from bigfs.result import NotConverged
from bigfs.selectors.registry import METHODS
from flows.evaluation import selection

app = typer.Typer(add_completion=False)
CORPORA = "news20,rcv1.binary,real-sim"
FEATURES = 500
LIMIT = 300  # processor seconds that a method may take
START = 60  # processor seconds more for the imports, the workers and the graph
LOOK = 2.0  # seconds between two looks at the processor time
# a real target, a dictionary of its own, images, and what ranks as another method does
LEFT_OUT = ("f-regression", "jgsc", "rjgsc", "smr", "fisher")
STORES = typer.Option(help="where the stores are kept between runs")
RESULTS = typer.Option(help="where a file per corpus and method is kept")
HERE = Path(__file__).parent
REFUSALS = (ValueError, MemoryError, engine.ClusterLost)


@app.command()
def one(store: str, method: str, features: int) -> None:
    """Choose by one method and print its figures as JSON."""
    warnings.simplefilter("ignore", NotConverged)
    corpus = storage.open(store)
    figures: dict[str, Any] = {}
    with engine.cluster(workers=2, memory_limit="1GB"):
        try:
            selector = selection.selector_for(corpus, method, features, {})
            if selection.get_method(method).graph:
                graph = storage.graph(corpus, selector.n_neighbors, metric=selector.metric)
                selector.set_params(graph=graph.neighbors())
            X, y = selection.usable(selector, method, corpus.X, corpus.y)
            engine.reset_peak_memory()
            began, used = time.perf_counter(), engine.processor_time()
            print("began", flush=True)
            selector.fit(X, y)
            figures = {
                "seconds": time.perf_counter() - began,
                "processor_seconds": engine.processor_time_since(used),
                "status": "" if selector.result_.converged else str(selector.result_.status),
            }
        except REFUSALS as error:
            figures["error"] = " ".join(str(error).split())
            figures["seconds"] = time.perf_counter() - began if "began" in locals() else 0.0
        peaks = engine.peak_memory()
    figures["driver_bytes"] = peaks.pop("driver")
    figures["worker_bytes"] = max(peaks.values(), default=0)
    print(json.dumps(figures))


def measure(store: str, method: str, features: int, limit: float) -> dict[str, Any]:
    """Run `one` in a process of its own, and kill it with its workers when it worked too long."""
    command = [sys.executable, __file__, "one", store, method, str(features)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while True:
        try:
            out, err = process.communicate(timeout=LOOK)
            break
        except subprocess.TimeoutExpired:
            used = processor_time_of(process.pid)
            if used > limit + START:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                error = f"longer than {limit:g} processor seconds"
                return {"error": error, "seconds": limit, "processor_seconds": used}
    if process.returncode:
        return {"error": f"it ended with {err.strip().splitlines()[-1:]}", "seconds": 0.0}
    return dict(json.loads(out.splitlines()[-1]))


def processor_time_of(pid: int) -> float:
    """The processor seconds of a process and those it started."""
    first = psutil.Process(pid)
    times = [process.cpu_times() for process in (first, *first.children(recursive=True))]
    return sum(used.user + used.system for used in times)


@app.command()
def run(
    stores: Annotated[Path, STORES] = Path("/tmp/bigfs-benchmarks"),
    results: Annotated[Path, RESULTS] = HERE / "peers" / "scale",
    corpora: Annotated[str, typer.Option(help="separated by commas")] = CORPORA,
    methods: Annotated[str, typer.Option(help="separated by commas (default: all)")] = "",
    limit: Annotated[float, typer.Option(help="processor seconds a method may take")] = LIMIT,
) -> None:
    """Measure what has no result yet."""
    results.mkdir(parents=True, exist_ok=True)
    names = methods.split(",") if methods else [name for name in METHODS if name not in LEFT_OUT]
    for corpus in corpora.split(","):
        store = stores / f"{corpus}.zarr"
        storage.stage(f"synthetic:{corpus}", store)
        for method in names:
            file = results / f"{corpus}-{method}.json"
            if file.exists():
                continue
            figures = {"corpus": corpus, "method": method, "features": FEATURES}
            figures |= {"date": date.today().isoformat(), "load": os.getloadavg()[0]}
            figures |= measure(str(store), method, FEATURES, limit)
            file.write_text(json.dumps(figures, indent=1) + "\n")
            print(corpus, method, figures.get("error", f"{figures['seconds']:.1f} s"), flush=True)


@app.command(name="table")
def print_table(results: Annotated[Path, RESULTS] = HERE / "peers" / "scale") -> None:
    """Print a table per corpus."""
    found = [json.loads(file.read_text()) for file in sorted(results.glob("*.json"))]
    for corpus in dict.fromkeys(row["corpus"] for row in found):
        own = sorted(
            (row for row in found if row["corpus"] == corpus),
            key=lambda row: ("error" in row, row["seconds"]),
        )
        head = ("method", "seconds", "processor (s)", "driver (MB)", "worker (MB)", "")
        rows = [
            (f"`{row['method']}`", *(["–"] * 4), row["error"])
            if "error" in row
            else (
                f"`{row['method']}`",
                f"{row['seconds']:.1f}",
                f"{row['processor_seconds']:.1f}",
                f"{row['driver_bytes'] / 1e6:,.0f}",
                f"{row['worker_bytes'] / 1e6:,.0f}",
                row["status"],
            )
            for row in own
        ]
        table(f"synthetic:{corpus}, {own[0]['features']} features", head, rows)


if __name__ == "__main__":
    app()
