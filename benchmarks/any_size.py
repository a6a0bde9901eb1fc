"""Evaluate all features of a corpus that does not fit in the workers' memory.

    python benchmarks/any_size.py FOLDER [ROWS] [LIMIT]

A generated rcv1.binary of ROWS rows is staged, and a run of ANOVA is evaluated, with workers of
LIMIT bytes: the linear SVM on all features would take four times as much. The same SVM is compared
with scikit-learn's LinearSVC in memory on the first tenth of the rows. What is there already is
not made again.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.svm import LinearSVC

import storage
from bigfs import engine
from bigfs.evaluation import large_model
from bigfs.evaluation.linear_model import projected_memory
from bigfs.evaluation.splits import held_out_split
from flows import stages
from storage.runs.runs import Run


def main(folder: Path, rows: int, limit: int) -> None:
    """Print the figures as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    with engine.cluster(workers=2, memory_limit="1GB"):
        began = time.perf_counter()
        store = storage.stage(f"synthetic:rcv1.binary?rows={rows}", folder / "large.zarr")
        staged = time.perf_counter() - began
    with engine.cluster(workers=2, memory_limit=limit):
        X, y = storage.open(store).X, storage.open(store).y
        run = stages.select(store, folder / "run", method="anova", features=100)
        began = time.perf_counter()
        stages.evaluate(run, baselines=[], test_size=0.05)
        evaluated, peaks = time.perf_counter() - began, engine.peak_memory()
        record = Run.open(stages.finish(run)).metadata
        small = held_out_split(X.take_rows(slice(0, rows // 10)), y[: rows // 10], 0.2)
        exact = large_model.fit(small.X_train, small.y_train, large_model.SVM)
        by_tiles = exact.answer(large_model.decide(small.X_test, exact))
        descended = large_model.fit(small.X_train, small.y_train, large_model.SGD)
        by_sgd = descended.answer(large_model.decide(small.X_test, descended))
    Z, T = (part.rows(np.arange(len(part))) for part in (small.X_train, small.X_test))
    inside = LinearSVC(random_state=0, max_iter=10_000).fit(Z, small.y_train)
    figures = {
        "shape": X.shape,
        "non-zeros": X.nnz,
        "a fit in memory, bytes": projected_memory(X, y),
        "limit, bytes": limit,
        "peaks, bytes": peaks,
        "staging, seconds": round(staged, 1),
        "evaluation, seconds": round(evaluated, 1),
        "measured": record["measured"],
        "curves": record["curves"],
        "stages": record["stages"],
        "tenth: LinearSVC in memory": inside.score(T, small.y_test),
        "tenth: svm": float(np.mean(by_tiles == small.y_test)),
        "tenth: sgd": float(np.mean(by_sgd == small.y_test)),
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    place, rows, limit = (*sys.argv[1:], *("", "1400000", "1000000000")[len(sys.argv) - 1 :])
    main(Path(place), int(rows), int(limit))
