"""The published implementations and those of bigfs: what they choose, time and memory, or how
they fail.

python -m venv PEERS && PEERS/bin/pip install -r benchmarks/published_requirements.txt
python -m benchmarks.peers_published run PEERS/bin/python FOLDER   # resumes when cut off
python -m benchmarks.peers_published table

They are scikit-feature (as skfeature-chappers), mrmr-selection for `mrmr-f` and scikit-rebate for
`relieff`, each with its defaults, on dense arrays and in one process. The three methods on mutual
information take values above the mean of a feature as 1 and others as 0, because scikit-feature
takes discrete values. The limit of an implementation is in processor seconds and does not count its
imports.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import peers
from benchmarks.data import load
from benchmarks.shared import timed
from bigfs import engine
from bigfs.evaluation.significance import jaccard
from bigfs.flows.comparison.time_limit import time_limit
from bigfs.flows.evaluation import selection
from bigfs.flows.report.summary import markdown_table
from bigfs.result import NotConvergedWarning
from bigfs.selectors.registry import METHODS

app = typer.Typer(add_completion=False)
HERE = Path(__file__).parent
PUBLISHED = peers.KEPT / "published"
SETS = ("colon", "ORL", "TOX-171", "COIL20", "PCMAC")
SCORES = ("fisher", "anova", "chi2", "gini", "t-score", "trace-ratio", "relieff", "spec")
NAMES = (*SCORES, "laplacian", "mrmr-f", "mrmr", "jmi", "cmim", "mcfs", "ndfs", "udfs", "rfs")
DISCRETE = ("mrmr", "jmi", "cmim")
FEATURES = 50


@contextlib.contextmanager
def measure_missing(folder: Path, name: str, method: str) -> Iterator[dict[str, Any] | None]:
    """Give the record that the block fills and that is then kept, or None if it is there."""
    file = folder / f"{name}-{method}.json"
    if file.exists():
        yield None
        return
    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"set": name, "method": method, "date": date.today().isoformat()}
    figures["load"] = os.getloadavg()[0]
    yield figures
    file.write_text(json.dumps(figures) + "\n")
    print(name, method, figures.get("error", "done"), flush=True)


def read_measured(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The figures of each set, in the order of the methods."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(folder.glob("*.json")):
        figures = json.loads(file.read_text())
        found.setdefault(figures["set"], []).append(figures)
    return {name: sorted(rows, key=lambda f: f["method"]) for name, rows in found.items()}


def matrix(folder: Path, name: str, method: str) -> tuple[np.ndarray, np.ndarray]:
    """The values and the class codes of a set."""
    X, y = load(folder, name)
    if method in DISCRETE:
        X = np.greater(X, X.mean(axis=0)).astype(np.float64)
    return X, y


def published(python: Path, method: str, file: Path, m: int, limit: float) -> dict[str, Any]:
    """The figures of the published implementation, or its error in one line."""
    command = [str(python), str(HERE / "published_one.py"), method, str(file), str(m), str(limit)]
    environment = os.environ | {"PYTHONPATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
        return {"error": last[0]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def ours(method: str, X: np.ndarray, y: np.ndarray, m: int, limit: float) -> dict[str, Any]:
    """The figures of bigfs, in this process."""
    selector = selection.make_selector(method, m, {})
    target = y if METHODS[method].targets else None
    engine.reset_peak_memory()
    try:
        with warnings.catch_warnings(), time_limit(limit, signal.ITIMER_PROF):
            warnings.simplefilter("ignore", NotConvergedWarning)
            run = timed(selector.fit, X, target)
    except TimeoutError:
        return {"error": f"longer than {limit:g} s"}
    except (ValueError, MemoryError) as error:
        return {"error": " ".join(str(error).split())}
    return {
        "seconds": run.seconds,
        "processor_seconds": run.processor,
        "bytes": engine.peak_memory()["driver"],
        "chosen": selection.ranking(selector, method, m).tolist(),
    }


@app.command()
def run(
    python: Path,
    folder: Path,
    kept: Path = PUBLISHED,
    sets: str = ",".join(SETS),
    methods: str = ",".join(NAMES),
    limit: float = 300,
) -> None:
    """Measure what has no figures yet."""
    for name in sets.split(","):
        for method in methods.split(","):
            with measure_missing(kept, name, method) as figures:
                if figures is None:
                    continue
                X, y = matrix(folder, name, method)
                with tempfile.TemporaryDirectory() as scratch:
                    arrays = Path(scratch) / "arrays.npz"
                    np.savez(arrays, X=X, y=y)
                    theirs = published(python.absolute(), method, arrays, FEATURES, limit)
                figures |= {"published": theirs, "bigfs": ours(method, X, y, FEATURES, limit)}


@app.command()
def table(
    kept: Annotated[Path, typer.Option(help="where a file per set and method is kept")] = PUBLISHED,
) -> None:
    """Print a table per set, as in the documentation."""
    for name, found in read_measured(kept).items():
        rows = [["method", "theirs", "ours", "their memory", "ours", f"common of {FEATURES}"]]
        for row in found:
            theirs, own = row["published"], row["bigfs"]
            common = "–"
            if "chosen" in theirs and "chosen" in own:
                overlap = jaccard(theirs["chosen"], own["chosen"])
                common = str(round(2 * FEATURES * overlap / (1 + overlap)))
            cells = [theirs.get("error") or f"{theirs['seconds']:.1f} s"]
            cells += [own.get("error") or f"{own['seconds']:.1f} s"]
            cells += [f"{f['bytes'] / 1e6:,.0f} MB" if "bytes" in f else "–" for f in (theirs, own)]
            rows.append([f"`{row['method']}`", *cells, common])
        print(f"\n### {name}\n")
        print("\n".join(markdown_table(rows)))


if __name__ == "__main__":
    app()
