"""The evaluation of a run that trains a model on all features by tiles.

python benchmarks/evaluation.py any-size FOLDER [ROWS] [LIMIT]
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import typer
from shared import row, timed
from sklearn.svm import LinearSVC

from bigfs import engine, storage
from bigfs.evaluation import large_model
from bigfs.evaluation.linear_model import projected_memory
from bigfs.evaluation.splits import held_out_split
from bigfs.flows import steps
from bigfs.flows.job import Job
from bigfs.flows.plan import Plan

app = typer.Typer(add_completion=False, callback=lambda: None)  # so that `any-size` stays a word


@app.command()
def any_size(folder: Path, rows: int = 1_400_000, limit: int = 10**9) -> None:
    """A linear SVM on all features that do not fit in memory, and on a tenth of the rows."""
    folder.mkdir(parents=True, exist_ok=True)
    source = f"synthetic:rcv1.binary?rows={rows}"
    with engine.cluster(workers=2, memory_limit="1GB"):
        store = storage.stage(source, folder / "large.zarr")
    with engine.cluster(workers=2, memory_limit=limit):
        X, y = storage.open(store).X, storage.open(store).y
        out = str(folder / "run")
        job = Job(source=store, store=store, out=out, method="anova", features=100)
        plan = Plan.of(job)
        run = steps.select(plan)
        spent = timed(lambda: steps.score(run, {"baselines": [], "test_size": 0.05}))
        peaks = ", ".join(f"{k} {v / 1e6:.0f} MB" for k, v in engine.peak_memory().items())
        curves = steps.report(plan, run).metadata["curves"]
        small = held_out_split(X.take_rows(slice(0, rows // 10)), y[: rows // 10], 0.2)
        found = {}
        for solver in (large_model.SVM, large_model.SGD):
            model = large_model.fit(small.X_train, small.y_train, solver)
            answer = model.answer(large_model.decide(small.X_test, model))
            found[solver] = float(np.mean(answer == small.y_test))
    Z, T = (part.rows(np.arange(len(part))) for part in (small.X_train, small.X_test))
    inside = LinearSVC(random_state=0, max_iter=10_000).fit(Z, small.y_train)
    needs = f"a fit in memory {projected_memory(X, y) / 1e9:.2f} GB, limit {limit / 1e9:g} GB"
    figure = f"{spent.seconds:.0f} s; {peaks}; {curves}"
    row("evaluation of all features by tiles", f"{X.nnz:,} non-zeros", figure, needs)
    own = ", ".join(f"{name} {accuracy:.4f}" for name, accuracy in found.items())
    peer = f"LinearSVC in memory {inside.score(T, small.y_test):.4f}"
    row("the same on a tenth of the rows", f"{rows // 10:,} rows", own, peer)


if __name__ == "__main__":
    app()
