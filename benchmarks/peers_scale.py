"""Every method at the scale of News20, RCV1 and Real-Sim: time and memory for 500 features on two
workers of 1 GB, or why it does not choose them.

python -m benchmarks.peers_scale run --corpora news20,rcv1.binary,real-sim   # resumes when cut off
python -m benchmarks.peers_scale page       # docs/measured/scale.md from benchmarks/peers/scale.tsv

The neighbor graph is made beforehand and counts in no method's time. A method has its defaults. The
limit is in processor seconds of all processes together, so that other work does not count.
"""

from __future__ import annotations

import csv
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

from benchmarks.peers import KEPT, PAGE, all_methods
from benchmarks.shared import STORES, timed
from bigfs import engine, storage
from bigfs.flows.evaluation import selection
from bigfs.flows.report.summary import markdown_table
from bigfs.result import NotConvergedWarning

app = typer.Typer(add_completion=False)
CORPORA = {"news20": "News20", "rcv1.binary": "RCV1.binary", "real-sim": "Real-Sim"}
ORDER = "rcv1.binary"  # the corpus whose times order the page
CELLS = KEPT / "scale.tsv"
HEAD = ["corpus", "method", "processor_seconds", "driver_mb", "worker_mb", "note", "date"]
SCALE_PAGE = PAGE.with_name("scale.md")
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


def read_cells(file: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Return what was measured by corpus and method."""
    if not file.exists():
        return {}
    with file.open() as lines:
        rows = csv.DictReader(lines, delimiter="\t")
        return {(row["corpus"], row["method"]): row for row in rows}


@app.command()
def run(
    stores: Path = STORES,
    cells: Path = CELLS,
    corpora: Annotated[str, typer.Option(help="separated by commas")] = ",".join(CORPORA),
    methods: Annotated[str, typer.Option(help="separated by commas (default: all)")] = "",
    limit: Annotated[float, typer.Option(help="processor seconds a method may take")] = 300,
) -> None:
    """Measure what has no cell yet."""
    if not cells.exists():
        cells.write_text("\t".join(HEAD) + "\n")
    for corpus in corpora.split(","):
        store = stores / f"{corpus}.zarr"
        storage.stage(f"synthetic:{corpus}", store)
        for method in all_methods(methods):
            if (corpus, method) in read_cells(cells):
                continue
            f = measure(store, method, limit)
            words = ["", "", "", "refused"] if "error" in f else [
                f"{f['processor_seconds']:.1f}", f"{f['driver_bytes'] / 1e6:.0f}",
                f"{f['worker_bytes'] / 1e6:.0f}", "limit" if f["status"] else "",
            ]  # fmt: skip
            line = "\t".join([corpus, method, *words, date.today().isoformat()])
            with cells.open("a") as file:
                file.write(line + "\n")
            print(line, f.get("error", ""), flush=True)


@app.command()
def page(cells: Path = CELLS, page: Path = SCALE_PAGE) -> None:
    """Write the page from the cells, the methods by their time at RCV1.binary's scale."""
    measured, larger = read_cells(cells), []
    rows = [["method"]]
    for name in CORPORA.values():
        rows[0] += [f"{name}: processor s", "driver MB", "worker MB"]
    of_rcv1 = {m: cell["processor_seconds"] for (c, m), cell in measured.items() if c == ORDER}
    for method in sorted(of_rcv1, key=lambda method: float(of_rcv1[method] or "inf")):
        rows.append([f"`{method}`"])
        for corpus in CORPORA:
            cell = measured[corpus, method]
            sizes = [cell["driver_mb"], cell["worker_mb"]]
            note = cell["note"].replace("limit", "†")
            rows[-1] += [f"{cell['processor_seconds']} {note}".strip(), *sizes]
            larger += [f"`{method}`"] * any(int(size or 0) >= 1000 for size in sizes)
    text = ", ".join(dict.fromkeys(larger))
    text = f"\nAll but {text} stay below 1 GB in every process.\n" if text else ""
    days = sorted({cell["date"] for cell in measured.values()})
    made = f"\nMeasured {' to '.join(dict.fromkeys([days[0], days[-1]]))}.\n\n"
    introduction = (KEPT / "scale.md").read_text()
    page.write_text(introduction + text + made + "\n".join(markdown_table(rows)))


if __name__ == "__main__":
    app()
