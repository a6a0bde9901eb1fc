"""What a run reports on pure noise: two random classes that the features know nothing of, so 0.5 is
the truth, also where the number of features is chosen by itself.

python benchmarks/noise.py --draws 50 --processes 2
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import scipy.io
import typer
from shared import table
from sklearn.model_selection import cross_val_score
from sklearn.svm import LinearSVC

import storage
from flows import stages
from flows.evaluation.selection import AUTO

METHODS = ("anova", "chi2", "sparge-lda")


def draw(folder: Path, seed: int, n: int, d: int) -> str:
    """A store of |N(0, 1)| values with balanced random classes."""
    rng = np.random.default_rng(seed)
    X, y = np.abs(rng.normal(size=(n, d))), rng.permutation(np.arange(n) % 2)
    scipy.io.savemat(folder / "noise.mat", {"X": X, "Y": y[:, None].astype(float)})
    return str(stages.stage(str(folder / "noise.mat"), str(folder / "noise.zarr"))["store"])


def reported(store: str, folder: Path, method: str, features: int | str) -> tuple[float, float]:
    """The accuracy that a run reports, and the one of features chosen on all samples."""
    run = stages.select(store, folder / f"{method}-{features}", method=method, features=features)
    points = {
        (p.method, p.n_features): p.scores["accuracy"]
        for p in stages.evaluate(run, baselines=(), sizes=[len(run.selected)], folds=5)
    }
    corpus = storage.open(store)
    leaky = cross_val_score(
        LinearSVC(random_state=0), corpus.X.columns(np.sort(run.selected)).tocsr(), corpus.y
    )
    return points[method, len(run.selected)], float(leaky.mean())


def one_draw(
    n: int, d: int, requests: Sequence[tuple[str, int | str]], seed: int
) -> list[tuple[float, float]]:
    """The accuracies of every request on one draw."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        store = draw(Path(folder), seed, n, d)
        return [reported(store, Path(folder), *request) for request in requests]


def main(
    draws: Annotated[int, typer.Option(help="of the noise")] = 50,
    n: Annotated[int, typer.Option(help="samples")] = 200,
    d: Annotated[int, typer.Option(help="features")] = 20_000,
    features: Annotated[int, typer.Option(help="to select, beside auto")] = 50,
    methods: Annotated[str, typer.Option(help="separated by commas")] = ",".join(METHODS),
    bound: Annotated[float, typer.Option(help="how far from 0.5 a mean may be")] = 0.02,
    processes: Annotated[int, typer.Option(help="draws at the same time")] = 1,
) -> None:
    """Mean and standard error of the reported accuracy per method, with a given number of features
    and with one chosen by itself; fails if a mean is further than `bound` from 0.5.
    """
    requests = [(method, m) for m in (features, AUTO) for method in methods.split(",")]
    with ProcessPoolExecutor(processes) as pool:
        reached = np.array(list(pool.map(partial(one_draw, n, d, requests), range(draws))))
    means = reached.mean(axis=0)
    errors = reached[:, :, 0].std(axis=0, ddof=1) / np.sqrt(draws)
    rows = [
        (f"{method}, {m}", f"{mean[0]:.3f}", f"{error:.3f}", f"{mean[1]:.3f}")
        for (method, m), mean, error in zip(requests, means, errors, strict=True)
    ]
    table(
        f"Accuracy on noise, {draws} draws of {n} × {d:,}",
        ["method, features", "reported", "standard error", "features chosen on all samples"],
        rows,
    )
    wrong = [row[0] for row, mean in zip(rows, means, strict=True) if abs(mean[0] - 0.5) > bound]
    if wrong:
        raise SystemExit(f"not 0.5 ± {bound}: {'; '.join(wrong)}")


if __name__ == "__main__":
    typer.run(main)
