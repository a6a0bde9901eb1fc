"""SMR on faces: accuracy and redundancy against single-pixel scores, covered eyes, time at PIE's
size.

python benchmarks/smr.py orl --data FOLDER
python benchmarks/smr.py pictures --data FOLDER --out docs/pictures
python benchmarks/smr.py time
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy.io
import typer
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

import bigfs
from bigfs.evaluation.quality import redundancy_rate
from bigfs.result import NotConverged
from storage import sources

SIZE = (32, 32)
EYES = (slice(8, 14), slice(4, 28))  # rows and columns that are covered
PIXELS = (50, 100, 200, 300, 400, 500, 600)
ALPHAS = (0.1, 1.0, 10.0)
Data = Annotated[Path, typer.Option(help="folder with ORL.mat")]
app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)


def orl(data: Path) -> tuple[Any, Any]:
    """400 × 1024, 0 … 1, pixels in MATLAB's column-major order (order="F"), and 40 classes of
    ten.
    """
    file = scipy.io.loadmat(data / "ORL.mat")
    return file["X"].astype(np.float64) / 255, file["Y"].ravel()


def covered(X: Any, seed: int = 0) -> Any:
    """The eyes of every image behind a block of uniform noise."""
    images = X.reshape(-1, *SIZE).transpose(0, 2, 1).copy()
    images[(slice(None), *EYES)] = np.random.default_rng(seed).random((len(X), 6, 24))
    return images.transpose(0, 2, 1).reshape(len(X), -1)


def smr(k: int, alpha: float, y: Any, rounds: int) -> Any:
    """α as for the 200 training images of a split."""
    return bigfs.SMR(sample_shape=SIZE, order="F", k=k, alpha=alpha * len(y) / 200, max_iter=rounds)


def best_alpha(k: int, X: Any, y: Any) -> float:
    """By 1-NN over all numbers of pixels after 10 rounds, each of the training images of a class
    left out in turn.
    """
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))

    def score(alpha: float) -> float:
        return float(
            np.mean(
                [
                    accuracies(ranking(smr(k, alpha, y[a], 10), X[a], y[a]), X[a], y[a], X[b], y[b])
                    for a, b in folds
                ]
            )
        )

    return max(ALPHAS, key=score)


def ranking(model: Any, X: Any, y: Any) -> Any:
    return model.fit(X, y).scores_.argsort(kind="stable")[::-1]


def accuracies(order: Any, X: Any, y: Any, X_test: Any, y_test: Any) -> list[float]:
    return [
        KNeighborsClassifier(1).fit(X[:, order[:m]], y).score(X_test[:, order[:m]], y_test)
        for m in PIXELS
    ]


def split(y: Any, seed: int) -> tuple[Any, Any]:
    """Five training images a class, the other five for the test."""
    rng = np.random.default_rng(seed)
    train = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:5] for c in np.unique(y)])
    return np.sort(train), np.setdiff1d(np.arange(len(y)), train)


@app.command(name="orl")
def orl_command(data: Data, repeats: int = 5, rounds: int = 30, eyes: bool = False) -> None:
    """1-NN accuracy with 50 … 600 pixels and the redundancy rate of the chosen ones, over random
    splits.
    """
    X, y = orl(data)
    X = covered(X) if eyes else X
    accuracy, redundancy = {}, {}
    for seed in range(repeats):
        a, b = split(y, seed)
        alphas = {k: best_alpha(k, X[a], y[a]) for k in (1, 4)}
        print(f"split {seed}: α of k = 1, 4: {alphas}", flush=True)
        models = {
            "GBR": smr(1, alphas[1], y[a], rounds),
            "SMR k=4": smr(4, alphas[4], y[a], rounds),
            "Fisher score": bigfs.Fisher(),
            "ANOVA": bigfs.ANOVA(),
        }
        orders = {name: ranking(model, X[a], y[a]) for name, model in models.items()}
        for name, order in orders.items():
            accuracy[name, seed] = accuracies(order, X[a], y[a], X[b], y[b])
            redundancy[name, seed] = [redundancy_rate(X[a][:, order[:m]]) for m in PIXELS]
        accuracy["all pixels", seed] = [
            KNeighborsClassifier(1).fit(X[a], y[a]).score(X[b], y[b])
        ] * len(PIXELS)
        redundancy["all pixels", seed] = [redundancy_rate(X[a])] * len(PIXELS)
        accuracy["SMR k=4 − Fisher", seed] = list(
            np.subtract(accuracy["SMR k=4", seed], accuracy["Fisher score", seed])
        )
    for title, table in (("accuracy of 1-NN", accuracy), ("redundancy rate", redundancy)):
        print(
            f"\nORL{', eyes covered' if eyes else ''}: {title}, mean ± sd of {repeats} "
            f"splits, 5 training images a class"
        )
        over = pd.DataFrame.from_dict(table, orient="index", columns=PIXELS).groupby(
            lambda key: key[0], sort=False
        )
        mean, sd = (part.map("{:.3f}".format) for part in (over.mean(), over.std()))
        print((mean + " ± " + sd).to_string())


@app.command()
def pictures(data: Data, out: Path = Path("docs/pictures")) -> None:
    """A covered face, SMR's score map, and the chosen pixels over the mean image, with and without
    the cover.
    """
    X, y = orl(data)
    fig, axes = plt.subplots(2, 4, figsize=(9.2, 4.8), layout="constrained")
    for row, (name, Z) in zip(
        axes, {"as they are": X, "eyes covered": covered(X)}.items(), strict=True
    ):
        model = bigfs.SMR(
            sample_shape=SIZE, order="F", alpha=1.0, k=4, n_features_to_select=200, max_iter=100
        ).fit(Z, y)
        fisher = bigfs.Fisher(n_features_to_select=200).fit(Z, y)
        mean = Z.mean(axis=0).reshape(SIZE, order="F")
        masks = [
            np.where(m.get_support().reshape(SIZE, order="F"), 1.0, np.nan) for m in (model, fisher)
        ]
        pictures = [Z[0].reshape(SIZE, order="F"), model.score_map_, mean, mean]
        for i, (axis, picture) in enumerate(zip(row, pictures, strict=True)):
            axis.imshow(picture, cmap="viridis" if i == 1 else "gray")
            axis.set(xticks=[], yticks=[])
        for axis, mask in zip(row[2:], masks, strict=True):
            axis.imshow(mask, cmap="autumn", alpha=0.6)
        row[0].set_ylabel(name)
        inside = [int(np.nansum(m[EYES])) for m in masks]
        print(
            f"{name}: chosen pixels inside the block of {6 * 24}: SMR "
            f"{inside[0]}, Fisher {inside[1]}, of 200"
        )
    for axis, title in zip(
        axes[0], ("an image", "SMR scores", "SMR, 200 pixels", "Fisher, 200 pixels"), strict=True
    ):
        axis.set_title(title, fontsize=10)
    fig.savefig(out / "covered-eyes.png", dpi=90)


@app.command(name="time")
def time_command(k: int = 4) -> None:
    """The generated images corpus at PIE's size: 11,554 × 32 × 32, 68 classes, k = 4."""
    rows = sources.find("synthetic:images").read((0, 11_554))
    for gram, rounds in (("covariance", 30), ("samples", 2)):
        X, begin, cpu = (
            bigfs.Matrix.from_array(rows.X, tile_rows=2048),
            time.perf_counter(),
            time.process_time(),
        )
        model = bigfs.SMR(sample_shape=SIZE, k=k, gram=gram, max_iter=rounds).fit(X, rows.y)
        seconds = (
            f"{time.perf_counter() - begin:.1f} s "
            f"({time.process_time() - cpu:.1f} s of processor time)"
        )
        print(
            f"{gram:10s} {X.shape} {len(model.classes_)} classes: {seconds}, {model.n_iter_} "
            f"rounds, {model.result_.history[-1]}"
        )


if __name__ == "__main__":
    warnings.simplefilter("ignore", NotConverged)
    app()
