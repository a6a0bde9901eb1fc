"""The peak of the process of each method under memory limits, or the refusal with both numbers.

Each fit runs in a process of its own, on a store, with no workers.

python benchmarks/peaks.py                                   # every method: hours
python benchmarks/peaks.py --methods chi2,anova,srlsr --problems classes --limits 400MB,1GB
"""

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from dask.utils import parse_bytes
from shared import table

import bigfs
from bigfs import storage
from bigfs.engine import MemoryLimitError, peak_memory
from bigfs.selectors.registry import METHODS

LIMITS = "400MB,650MB,1GB"
# samples, columns, non-zeros per sample, classes; the hashed one is of `--hashing 16777216`
PROBLEMS = {
    "tall": (50_000, 500, 25, 2),
    "wide": (500, 100_000, 500, 2),
    "classes": (9_232, 20_000, 60, 4_616),
    "hashed": (2_000, 1 << 24, 100, 2),
}


def write(path: Path, problem: str) -> None:
    """Write a problem as svmlight, whose classes differ in a few of the columns."""
    n, d, per_sample, c = PROBLEMS[problem]
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for i in range(n):
            columns = np.unique(rng.integers(6, d, per_sample))
            values = rng.integers(1, 5, len(columns))
            told = [f"{1 + j}:{1 + (i * (j + 1)) % c % 7}" for j in range(5)]
            others = [f"{j}:{v}" for j, v in zip(columns, values, strict=True)]
            file.write(f"{i % c} {' '.join(told + others)} {d}:1\n")


def fit(method: str, uri: str, limit: str) -> None:
    """Fit a method, and print what came of it and the peak of this process."""
    corpus, said = storage.open(uri), "fitted"
    selector = METHODS[method].make()
    selector.n_features_to_select = 5
    warnings.simplefilter("ignore")
    try:
        with bigfs.cluster(workers=0, memory_limit=limit):
            selector.fit(corpus.X, corpus.y)
    except MemoryLimitError as error:
        said = f"refused: {error}"
    except (ValueError, MemoryError, np.linalg.LinAlgError) as error:
        said = f"{type(error).__name__}: {error}"
    print(json.dumps({"peak": peak_memory()["driver"], "said": said}))


def run(method: str, uri: str, limit: str, seconds: float) -> tuple[str, str]:
    """Return the peak in MB and what came of a fit in a process of its own."""
    command = [sys.executable, __file__, "--fit", method, uri, limit]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return "", f"not done in {seconds:g} s"
    if done.returncode:
        return "", f"ended with {done.returncode}: {done.stderr.strip()[-100:]}"
    reply = json.loads(done.stdout.splitlines()[-1])
    over = reply["peak"] > parse_bytes(limit)
    return f"{reply['peak'] / 1e6:.0f}{' OVER' if over else ''}", reply["said"][:100]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--limits", default=LIMITS)
    parser.add_argument("--seconds", type=float, default=300, help="for each fit")
    parser.add_argument("--fit", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        fit(*options.fit)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for problem in options.problems.split(","):
            source = Path(folder, f"{problem}.svm")
            write(source, problem)
            uri = storage.stage(source, Path(folder, f"{problem}.zarr"))
            for method in options.methods.split(","):
                for limit in options.limits.split(","):
                    rows.append((problem, method, limit, *run(method, uri, limit, options.seconds)))
                    print(*rows[-1], file=sys.stderr, flush=True)
    table("Peaks of the process", ("problem", "method", "limit", "peak, MB", "result"), rows)


if __name__ == "__main__":
    main()
