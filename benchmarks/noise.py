"""What a run reports on pure noise: two random classes that the features know nothing of, so 0.5 is
the truth.

python benchmarks/noise.py --draws 20
"""

from __future__ import annotations

import contextlib
import tempfile
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

METHODS = ("anova", "chi2", "fisher", "sparge-lda")


def draw(folder: Path, seed: int, n: int, d: int) -> str:
    """A store of |N(0, 1)| values with balanced random classes."""
    rng = np.random.default_rng(seed)
    X, y = np.abs(rng.normal(size=(n, d))), rng.permutation(np.arange(n) % 2)
    scipy.io.savemat(folder / "noise.mat", {"X": X, "Y": y[:, None].astype(float)})
    return str(stages.stage(str(folder / "noise.mat"), str(folder / "noise.zarr"))["store"])


def reported(store: str, folder: Path, method: str, features: int) -> tuple[float, float]:
    """The accuracy that a run reports, and the one of features chosen on all samples."""
    run = stages.select(store, folder / method, method=method, features=features)
    points = {
        (p.method, p.n_features): p.scores["accuracy"] for p in stages.evaluate(run, baselines=())
    }
    corpus = storage.open(store)
    leaky = cross_val_score(
        LinearSVC(random_state=0), corpus.X.columns(np.sort(run.selected)).tocsr(), corpus.y
    )
    return points[method, features], float(leaky.mean())


def main(
    draws: Annotated[int, typer.Option(help="of the noise")] = 20,
    n: Annotated[int, typer.Option(help="samples")] = 200,
    d: Annotated[int, typer.Option(help="features")] = 5000,
    features: Annotated[int, typer.Option(help="to select")] = 50,
    bound: Annotated[float, typer.Option(help="how far from 0.5 a mean may be")] = 0.03,
) -> None:
    """Mean and standard error of the reported accuracy per method; fails if a mean is further than
    `bound` from 0.5.
    """
    reached: dict[str, list[tuple[float, float]]] = {method: [] for method in METHODS}
    for seed in range(draws):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            store = draw(Path(folder), seed, n, d)
            for method in METHODS:
                reached[method].append(reported(store, Path(folder), method, features))
    means = {method: np.mean(values, axis=0) for method, values in reached.items()}
    errors = {
        method: np.std(values, axis=0, ddof=1)[0] / np.sqrt(draws)
        for method, values in reached.items()
    }
    rows = [
        (name, f"{mean[0]:.3f}", f"{errors[name]:.3f}", f"{mean[1]:.3f}")
        for name, mean in means.items()
    ]
    table(
        f"Accuracy on noise, {draws} draws",
        ["method", "reported", "standard error", "features chosen on all samples"],
        rows,
    )
    wrong = [name for name, mean in means.items() if abs(mean[0] - 0.5) > bound]
    if wrong:
        raise SystemExit(f"not 0.5 ± {bound}: {', '.join(wrong)}")


if __name__ == "__main__":
    typer.run(main)
