"""How good a selection is, measured apart from the method that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC

from bigfs import blocks
from bigfs.matrix import Centred, Matrix, gram

Index = NDArray[np.int64]
BYTES_A_VALUE = 40  # liblinear's float64 copy, its nodes, and ours


class Point(NamedTuple):
    """Accuracy with the best `n_features` of a method (all of them for `method` "all features")."""

    method: str
    n_features: int
    accuracy: float


class Split(NamedTuple):
    """Train and test halves as matrices (keys, so that they travel) with their labels."""

    X_train: Matrix
    y_train: Index
    X_test: Matrix
    y_test: Index


def stratified_folds(X: Matrix, y: Index, n_splits: int = 5, seed: int = 0) -> list[Split]:
    """Splits where the corpus has none of its own; classes in equal shares.

    Unlabelled samples are left out, and so are classes with a single sample, which no fold can both learn and test.
    """
    sizes = np.bincount(y[y >= 0])
    known = np.flatnonzero((y >= 0) & (sizes[y] >= 2))
    if len(np.unique(y[known])) < 2:
        raise ValueError("folds need two classes of two samples or more: give a test half, or more labelled samples")
    smallest = int(sizes[sizes >= 2].min())
    folds = StratifiedKFold(min(n_splits, smallest), shuffle=True, random_state=seed).split(known, y[known])
    return [Split(X.take_rows(known[a]), y[known[a]], X.take_rows(known[b]), y[known[b]]) for a, b in folds]


def accuracy_curves(
    split: Split, rankings: Mapping[str, Mapping[int, Index]], *, with_all: bool = True, label: str | None = None
) -> list[Point]:
    """Test accuracy of a linear SVM on each method's features, one task a set.

    Parameters
    ----------
    rankings : method → {m: the indices of its m features}.
    with_all : also fit on every feature, where that fits in one process.

    Sets that occur twice are fitted once.
    """
    wanted = [(name, m, np.sort(index)) for name, sets in rankings.items() for m, index in sets.items()]
    if with_all and fits_in_memory(split.X_train):
        wanted.append(("all features", split.X_train.shape[1], np.arange(split.X_train.shape[1])))
    distinct = {index.tobytes(): index for *_, index in wanted}
    largest_first = dict(sorted(distinct.items(), key=lambda item: -len(item[1])))
    scores = blocks.map_tiles(_accuracy, list(largest_first.values()), split, local=split.X_train.local, label=label)
    by_set = dict(zip(largest_first, scores, strict=True))
    return [Point(name, len(index), by_set[index.tobytes()]) for name, m, index in wanted]


def fits_in_memory(X: Matrix) -> bool:
    """Whether a linear model on every feature fits in half of one process's memory."""
    return X.nnz * BYTES_A_VALUE + X.shape[1] * 64 < blocks.memory_limit() / 2


def _accuracy(index: Index, split: Split) -> float:
    train, test = split.X_train.columns(index).tocsr(), split.X_test.columns(index).tocsr()
    model = LinearSVC(random_state=0, max_iter=10_000).fit(train, split.y_train)
    return float(model.score(test, split.y_test))


def mean_curves(folds: Sequence[Sequence[Point]]) -> list[Point]:
    """The mean over folds of curves with the same points."""
    return [
        Point(points[0].method, points[0].n_features, float(np.mean([p.accuracy for p in points]))) for points in zip(*folds, strict=True)
    ]


def class_profile(X: Matrix, y: Index, index: Index, n_classes: int) -> NDArray[Any]:
    """len(index) × n_classes: how far each class's mean of a feature lies from the mean of all, in
    units of the feature's standard deviation. What a selected feature speaks for."""
    Z = X.columns(index).tocsc().astype(np.float64)
    known = y >= 0
    Z, y = Z[known], y[known]
    sizes = np.maximum(np.bincount(y, minlength=n_classes), 1)
    indicator = np.eye(n_classes)[y]
    means = (Z.T @ indicator) / sizes
    overall = Z.sum(axis=0) / Z.shape[0]
    variance = Z.power(2).sum(axis=0) / Z.shape[0] - overall**2
    return (means - overall[:, None]) / np.sqrt(np.where(variance > 0, variance, 1))[:, None]


def explained_variance(X: Any, index: Index) -> float:
    """Share of the variance that the chosen features explain, all of them together: 1 − ‖Xc − Xc[:, index] W‖² / ‖Xc‖².

    W is the least-squares regression of every feature on the chosen ones.

    Parameters
    ----------
    X : (n, d) array, scipy.sparse matrix or `Matrix`.
    index : the m chosen features. What is dense is m × m, and the n × m columns' orthonormal basis.

    Returns
    -------
    Between 0, for no feature or constant ones, and 1; 1 where X does not vary at all.
    """
    X = X if isinstance(X, Matrix) else Matrix.from_array(X)
    total = float(X.stats.squares.sum() - X.shape[0] * np.sum(X.means**2))
    if total <= 0:
        return 1.0
    blocks.require_memory(24 * X.shape[0] * len(index) + 8 * X.shape[1] * len(index), f"the variance that {len(index)} features explain")
    Z = X.columns(index).toarray().astype(np.float64) - X.means[index]
    U, s, _ = np.linalg.svd(Z, full_matrices=False)
    U = U[:, s > 1e-10 * s.max(initial=0)]
    return float(np.sum((Centred(X, X.means).rmatmul(U)) ** 2)) / total


def redundancy_rate(Z: Any) -> float:
    """Mean absolute correlation of the pairs of columns of Z (n × m), dense or sparse; 0 is no redundancy, 1 all the same.

    Constant columns correlate with nothing. [Zhao, Wang, Liu, AAAI 2010, without the sign.] m × m is formed.
    """
    Z = sp.csc_array(Z, dtype=np.float64) if sp.issparse(Z) else np.asarray(Z, dtype=np.float64)
    n, m = Z.shape
    if m < 2:
        return 0.0
    blocks.require_memory(2 * 8 * m * m, f"the {m} × {m} correlations")
    C = gram(Z, np.asarray(Z.mean(axis=0)).ravel())
    deviation = np.sqrt(np.maximum(np.diag(C), 0))
    deviation[deviation <= 1e-8 * np.sqrt(n) * np.abs(Z).max()] = np.inf
    correlation = np.abs(C / deviation[:, None] / deviation)
    return float((correlation.sum() - np.trace(correlation)) / (m * (m - 1)))
