"""How good a selection is, measured apart from the method that made it, on samples that the method
never saw.

A linear model is trained on the chosen columns of the training rows and predicts the test rows.
What it gets right is counted per split and added up over the splits (a `tally`), so folds are
pooled and a killed evaluation goes on:

    classes       accuracy = right / n                                     linear SVM
    label sets    F1 = 2 TP / (2 TP + FP + FN), over all labels together   one linear SVM per label
                  (micro) or as the mean of the labels' own (macro)
    real values   R² = 1 − Σ (y − ŷ)² / Σ (y − mean of the training y)²    ridge regression
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bigfs import engine
from bigfs.matrix import Block, Centered, Matrix, gram
from bigfs.result import Checkpoint, NotConverged
from bigfs.splits import Split, labeled_rows, target_kind
from bigfs.types import FloatArray, IntArray

Index = IntArray
Rankings = Mapping[str, Mapping[int, Index]]
BYTES_A_VALUE = 40  # liblinear's float64 copy, its nodes, and ours
ALL = "all features"
METRICS = {"class": ("accuracy",), "multilabel": ("micro_f1", "macro_f1"), "real": ("r2",)}
METRIC_NAMES = {"accuracy": "accuracy", "micro_f1": "micro F1", "macro_f1": "macro F1", "r2": "R²"}


class Point(NamedTuple):
    """The scores, by metric, with the best `n_features` of a method (all of them for `method` "all
    features").
    """

    method: str
    n_features: int
    scores: dict[str, float]


class FoldTally(NamedTuple):
    """What one split counted, one entry per point of the curves; plain fields, so that a checkpoint
    can keep it.
    """

    methods: tuple[str, ...]
    counts: tuple[int, ...]
    tallies: tuple[FloatArray, ...]
    not_converged: int  # selections that ended before their tolerance


class Measured(NamedTuple):
    """The points of the curves, and how many of the selections behind them ended before their
    tolerance.
    """

    points: list[Point]
    not_converged: int


# --- measuring ------------------------------------------------------------------------------------


def measure(
    splits: Sequence[Split],
    rank: Callable[[int, Split], Rankings],
    *,
    with_all: bool = True,
    checkpoint: Checkpoint | None = None,
) -> Measured:
    """Score the features that `rank` chooses from each split's training rows on the split's test
    rows.

    Parameters
    ----------
    splits : sequence of Split
        Folds, or one split with a test half.
    rank : callable
        ``rank(number, split)`` returns, for each method, the indices of its best m features for
        several m. It must look at the split's training rows only.
    with_all : bool, default=True
        Also score all features.
    checkpoint : Checkpoint, optional
        Keeps the tally of each finished split. A split that is there already is not measured again.

    Returns
    -------
    Measured
        The splits pooled: right answers are added up before they become a score.
    """
    tallies = []
    for number, split in enumerate(splits, 1):
        name = f"evaluate fold {number} of {len(splits)}"
        saved = checkpoint.load(name) if checkpoint is not None else None
        tally = (
            FoldTally(*saved[0]) if saved is not None else _counted(number, split, rank, with_all)
        )
        if checkpoint is not None and saved is None:
            checkpoint.save(name, tally, [])
        tallies.append(tally)
        if len(splits) > 1:
            engine.show_progress("evaluation folds", number, len(splits))
    return Measured(
        pooled(tallies, target_kind(splits[0].y_test)),
        sum(tally.not_converged for tally in tallies),
    )


def _counted(
    number: int, split: Split, rank: Callable[[int, Split], Rankings], with_all: bool
) -> FoldTally:
    """The tally of one split, with the number of warnings that a selection gave up."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NotConverged)
        rankings = rank(number, split)
    for other in (w for w in caught if not issubclass(w.category, NotConverged)):
        warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    return tally_of(split, rankings, with_all=with_all)._replace(
        not_converged=sum(issubclass(w.category, NotConverged) for w in caught)
    )


def tally_of(split: Split, rankings: Rankings, *, with_all: bool = True) -> FoldTally:
    """Count what a linear model gets right on each method's features, one task per set of features.

    Parameters
    ----------
    split : Split
        Where to train and to test.
    rankings : mapping
        For each method, for several m, the indices of its m features. Sets that occur twice are
        fitted once.
    with_all : bool, default=True
        Also fit on all features.

    Returns
    -------
    FoldTally
    """
    wanted = [
        (name, len(index), np.sort(index))
        for name, sets in rankings.items()
        for index in sets.values()
    ]
    if with_all:
        wanted.append((ALL, split.X_train.shape[1], np.arange(split.X_train.shape[1])))
    distinct = {index.tobytes(): index for *_, index in wanted}
    largest_first = dict(sorted(distinct.items(), key=lambda item: -len(item[1])))
    counted = engine.map_tiles(
        _tally, list(largest_first.values()), split, local=split.X_train.local, label="evaluate"
    )
    by_set = dict(zip(largest_first, counted, strict=True))
    names, sizes, sets = zip(*wanted, strict=True)
    return FoldTally(names, sizes, tuple(by_set[index.tobytes()] for index in sets), 0)


def pooled(tallies: Sequence[FoldTally], kind: str) -> list[Point]:
    """Return the curves' points from the sums of the splits' tallies."""
    first = tallies[0]
    totals = [
        np.sum([tally.tallies[i] for tally in tallies], axis=0) for i in range(len(first.methods))
    ]
    return [
        Point(name, int(m), _scores(total, kind))
        for name, m, total in zip(first.methods, first.counts, totals, strict=True)
    ]


def fits_in_memory(X: Matrix) -> bool:
    """Return whether a linear model on every feature fits in half of one process's memory."""
    return X.nnz * BYTES_A_VALUE + X.shape[1] * 64 < engine.memory_limit() / 2


def is_non_negative(X: Matrix) -> bool:
    """Return whether no value is below zero; one pass at most."""
    if X.stats.sums.min(initial=0) < 0:
        return False
    return all(X.map_columns(_non_negative) if X.column_tiles else X.map_rows(_non_negative))


def _non_negative(block: Block, start: int, stop: int) -> bool:
    return bool((block.data if sp.issparse(block) else block).min(initial=0) >= 0)


def _tally(index: Index, split: Split) -> FloatArray:
    """What a model on these columns gets right, as counts or sums that add up over splits."""
    known, tested = labeled_rows(split.y_train), labeled_rows(split.y_test)
    Z, Z_test = split.X_train.columns(index).tocsr(), split.X_test.columns(index).tocsr()
    Z, y = (Z, split.y_train) if known.all() else (Z[known], split.y_train[known])
    Z_test, y_test = (
        (Z_test, split.y_test) if tested.all() else (Z_test[tested], split.y_test[tested])
    )
    kind = target_kind(y)
    if kind == "multilabel":
        return _right_labels(Z, y, Z_test, y_test)
    return (
        _residuals(Z, y, Z_test, y_test) if kind == "real" else _right_classes(Z, y, Z_test, y_test)
    )


def _svm() -> LinearSVC:
    return LinearSVC(random_state=0, max_iter=10_000)


def _right_classes(Z: Any, y: Index, Z_test: Any, y_test: Index) -> FloatArray:
    """(2,): right answers, answers."""
    return np.array(
        [np.count_nonzero(_svm().fit(Z, y).predict(Z_test) == y_test), len(y_test)],
        dtype=np.float64,
    )


def _right_labels(Z: Any, Y: Any, Z_test: Any, Y_test: Any) -> FloatArray:
    """3 × c: true positives, false positives and false negatives of each label.

    A label that all training rows agree on needs no model.
    """
    Y, Y_test, n = sp.csc_array(Y), sp.csc_array(Y_test), Y.shape[0]
    counts = np.zeros((3, Y.shape[1]))
    for j in range(Y.shape[1]):
        y, truth = Y[:, [j]].toarray().ravel() > 0, Y_test[:, [j]].toarray().ravel() > 0
        answer = (
            _svm().fit(Z, y).predict(Z_test)
            if 0 < np.count_nonzero(y) < n
            else np.full(len(truth), y.all())
        )
        counts[:, j] = [
            np.count_nonzero(part) for part in (answer & truth, answer & ~truth, ~answer & truth)
        ]
    return counts


def _residuals(Z: Any, y: FloatArray, Z_test: Any, y_test: FloatArray) -> FloatArray:
    """(2,): Σ (y − ŷ)² and Σ (y − mean of the training y)².

    Columns are scaled to unit variance, so that the penalty suits them all.
    """
    model = make_pipeline(StandardScaler(with_mean=False), Ridge()).fit(Z.astype(np.float64), y)
    return np.array(
        [
            np.sum((y_test - model.predict(Z_test.astype(np.float64))) ** 2),
            np.sum((y_test - y.mean()) ** 2),
        ]
    )


def _scores(total: FloatArray, kind: str) -> dict[str, float]:
    if kind == "class":
        return {"accuracy": float(total[0] / total[1])}
    if kind == "real":
        return {"r2": float(1 - total[0] / total[1]) if total[1] > 0 else 0.0}
    there = total[0] + total[2] > 0  # labels that some test sample has
    return {
        "micro_f1": float(_f1(total.sum(axis=1))),
        "macro_f1": float(np.mean(_f1(total[:, there]))) if there.any() else 0.0,
    }


def _f1(counts: FloatArray) -> FloatArray:
    """F1 of true positives, false positives and false negatives; 0 where there is nothing to find
    and nothing was found.
    """
    right, errors = 2 * counts[0], counts[1] + counts[2]
    return np.asarray(right / np.maximum(right + errors, 1))


# --- what a selection is like ---------------------------------------------------------------------


def class_profile(X: Matrix, y: Any, index: Index, n_classes: int) -> FloatArray:
    """Return how far each class's (or label's) mean of a feature lies from the mean of all.

    Parameters
    ----------
    X : Matrix
        The samples.
    y : ndarray or sparse array
        Class codes, −1 for unlabelled, or an (n, c) indicator of label sets.
    index : ndarray
        The features.
    n_classes : int
        Number of classes or labels, c.

    Returns
    -------
    ndarray of shape (len(index), c)
        In units of the feature's standard deviation: what a selected feature speaks for.
    """
    Z = X.columns(index).tocsc().astype(np.float64)
    known = labeled_rows(y)
    Z, y = Z[known], y[known]
    Y = (
        sp.csr_array(y, dtype=np.float64)
        if y.ndim == 2
        else sp.csr_array((np.ones(len(y)), (np.arange(len(y)), y)), (len(y), n_classes))
    )
    sizes = np.maximum(np.asarray(Y.sum(axis=0)).ravel(), 1)
    means = (Z.T @ Y).toarray() / sizes
    overall = Z.sum(axis=0) / Z.shape[0]
    variance = Z.power(2).sum(axis=0) / Z.shape[0] - overall**2
    return np.asarray(
        (means - overall[:, None]) / np.sqrt(np.where(variance > 0, variance, 1))[:, None]
    )


def explained_variance(X: Any, index: Index) -> float:
    """Share of the variance that the chosen features explain, all of them together: 1 − ‖Xc − Xc[:,
    index] W‖² / ‖Xc‖².

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
    total = float(X.stats.sums_of_squares.sum() - X.shape[0] * np.sum(X.means**2))
    if total <= 0:
        return 1.0
    engine.require_memory(
        24 * X.shape[0] * len(index) + 8 * X.shape[1] * len(index),
        f"the variance that {len(index)} features explain",
    )
    Z = X.columns(index).toarray().astype(np.float64) - X.means[index]
    U, s, _ = np.linalg.svd(Z, full_matrices=False)
    U = U[:, s > 1e-10 * s.max(initial=0)]
    return float(np.sum((Centered(X, X.means).rmatmul(U)) ** 2)) / total


def redundancy_rate(Z: Any) -> float:
    """Mean absolute correlation of the pairs of columns of Z (n × m), dense or sparse; 0 is no
    redundancy, 1 all the same.

    Constant columns correlate with nothing. [Zhao, Wang, Liu, AAAI 2010, without the sign.] m × m
    is formed.
    """
    Z = sp.csc_array(Z, dtype=np.float64) if sp.issparse(Z) else np.asarray(Z, dtype=np.float64)
    n, m = Z.shape
    if m < 2:
        return 0.0
    engine.require_memory(2 * 8 * m * m, f"the {m} × {m} correlations")
    C = gram(Z, np.asarray(Z.mean(axis=0)).ravel())
    deviation = np.sqrt(np.maximum(np.diag(C), 0))
    deviation[deviation <= 1e-8 * np.sqrt(n) * np.abs(Z).max()] = np.inf
    correlation = np.abs(C / deviation[:, None] / deviation)
    return float((correlation.sum() - np.trace(correlation)) / (m * (m - 1)))
