"""What standardizing a table in several units is worth, and that it costs no set of one unit.

python -m benchmarks.units tables           # 40 drawn tables, whose columns have four units
python -m benchmarks.units sets FOLDER      # real sets: where the rule holds, accuracy with it

A set has five times three folds, and at most 600 samples. The scorer is a linear SVM on
standardized columns, so that the choice alone differs. An error is that of the mean difference, by
the variance of Nadeau and Bengio.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from sklearn import datasets
from sklearn.model_selection import RepeatedStratifiedKFold, train_test_split

from benchmarks.choosing import DENSE, WORDS
from benchmarks.data import load
from benchmarks.shared import table
from bigfs import AutoSelector, Matrix, SparGE, SparGECV, engine
from bigfs.evaluation import linear_model
from bigfs.matrix.statistics import scale_ratios, standardize

app = typer.Typer(add_completion=False)
FOLDS, REPEATS = 3, 5
MOST = 600  # samples of a set
SIZES = (5, 10, 20, 50)
UNITS = (1e-3, 1.0, 1e3, 1e6)
SHIPPED = ("iris", "wine", "breast_cancer", "digits")  # with scikit-learn


def by_rule(X: np.ndarray) -> np.ndarray | None:
    """Return the samples as they are staged by default, None where they stay."""
    found = standardize(Matrix.from_array(X))
    return None if found is None else np.asarray(found.rows(np.arange(len(X))))


def accuracy(X: np.ndarray, y: np.ndarray, chosen: Any, train: Any, test: Any) -> float:
    """Return that of a linear SVM on the chosen columns, standardized."""
    Z = X[:, np.sort(chosen)]
    Z = (Z - Z[train].mean(axis=0)) / np.maximum(Z[train].std(axis=0), 1e-12)
    model = linear_model.fit(Z[train], y[train])
    return float(np.mean(model.predict(Z[test]) == y[test]))


def mixed(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw 800 samples of 40 columns, of which eight tell the classes, two in each unit."""
    random, d, informative = np.random.default_rng(seed), 40, 8
    y = random.integers(0, 2, 800)
    X = random.normal(size=(800, d))
    X[:, :informative] += 0.5 * y[:, None]
    return X * np.r_[np.repeat(UNITS, 2), random.choice(UNITS, d - informative)], y


@app.command()
def tables(number: int = 40) -> None:
    """Compare the default, SparGECV and `auto` on drawn tables with the same standardized."""
    warnings.simplefilter("ignore")
    makers: list[Callable[..., Any]] = [SparGE, SparGECV, AutoSelector]
    train, test = np.arange(400), np.arange(400, 800)
    found: dict[str, list[list[float]]] = {make.__name__: [] for make in makers}
    for seed in range(number):
        X, y = mixed(seed)
        staged = by_rule(X[train])
        forms = (X[train] / X[train].std(axis=0), X[train] if staged is None else staged, X[train])
        for make in makers:
            chosen = [make(n_features_to_select=8).fit(form, y[train]).selected_ for form in forms]
            found[make.__name__].append([accuracy(X, y, one, train, test) for one in chosen])
    rows = []
    for name, scores in found.items():
        all_standard, ruled, plain = np.transpose(scores)
        largest = np.abs(all_standard - ruled).max()
        means = (f"{part.mean():.4f}" for part in (all_standard, ruled, plain))
        rows.append([name, *means, f"{largest:.4f}"])
    head = ["", "standardized", "by the rule", "as it is", "largest difference of the first two"]
    table(f"{number} tables of four units", head, rows)


def read(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return at most `MOST` samples of a set, drawn from each class by its share."""
    if name in SHIPPED:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    else:
        X, y = load(folder, name)
    X = np.asarray(X, dtype=np.float64)
    if len(y) > MOST:
        X, _, y, _ = train_test_split(X, y, train_size=MOST, stratify=y, random_state=0)
    return X, y


def accuracies(X: np.ndarray, y: np.ndarray, m: int) -> np.ndarray:
    """Return SparGE's scores by the rule and from the values (2 × folds)."""
    found = []
    folds = RepeatedStratifiedKFold(n_splits=FOLDS, n_repeats=REPEATS, random_state=0)
    for train, test in folds.split(X, y):
        staged = by_rule(X[train])
        chosen = [
            SparGE(n_features_to_select=m).fit(form, y[train]).selected_
            for form in (X[train] if staged is None else staged, X[train])
        ]
        found.append([accuracy(X, y, one, train, test) for one in chosen])
    return np.transpose(found)


@app.command()
def sets(
    folder: Path, names: Annotated[str, typer.Option(help="With commas; none: all.")] = ""
) -> None:
    """Show on which real sets the rule holds, and what it is worth there."""
    warnings.simplefilter("ignore")
    rows = []
    for name in names.split(",") if names else (*SHIPPED, *DENSE, *WORDS):
        try:
            X, y = read(folder, name)
        except FileNotFoundError:
            continue
        matrix = Matrix.from_array(X)
        ratios = scale_ratios(matrix.stats, matrix.deviations, len(y))
        row = [name, f"{X.shape[0]} × {X.shape[1]:,}", f"{ratios.max():.1f}"]
        if standardize(matrix) is None:
            rows.append([*row, "as it is", "", "", ""])
            print(rows[-1], flush=True)
            continue
        for m in (m for m in SIZES if m <= X.shape[1] / 2):
            ruled, plain = accuracies(X, y, m)
            d = ruled - plain
            error = np.sqrt((1 / len(d) + 1 / (FOLDS - 1)) * d.var(ddof=1))
            figures = [f"{ruled.mean():.3f}", f"{plain.mean():.3f}"]
            rows.append([*row, str(m), *figures, f"{d.mean():+.3f} ± {error:.3f}"])
            print(rows[-1], flush=True)
    head = ["set", "shape", "largest / median", "m", "by the rule", "as it is", "difference"]
    table("SparGE's default, accuracy in 5 × 3 folds", head, rows)


if __name__ == "__main__":
    with engine.one_blas_thread():
        app()
