"""Kinds of targets, and splits into training and test rows.

A target holds class codes (integers, −1 if unlabeled), real values (floats, NaN if unlabeled) or
label sets (an n × c indicator).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import (
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
)

from bigfs.matrix import Matrix
from bigfs.types import AnyArray, BoolArray, IntArray

Index = IntArray
# Training rows times classes. Of more rows a sample trains a model: 500 features of 50,000 rows
# and 100 classes take half a minute.
MOST_TRAINING = 5_000_000


class Split(NamedTuple):
    """Training and test rows as matrices with their targets."""

    X_train: Matrix
    y_train: Any
    X_test: Matrix
    y_test: Any


def target_kind(y: Any) -> str:
    """Return the kind of a target."""
    if y.ndim == 2:
        return "multilabel"
    return "real" if np.issubdtype(y.dtype, np.floating) else "class"


def labeled_rows(y: Any) -> BoolArray:
    """Return the mask of rows with a target. A row of label sets always has a target, which may be
    the empty set."""
    kind = target_kind(y)
    if kind == "multilabel":
        return np.ones(y.shape[0], dtype=bool)
    return np.asarray(~np.isnan(y) if kind == "real" else y >= 0)


def testable_rows(y: Any) -> Index:
    """Return the rows that folds can test. They have a target, and their class has at least two
    samples."""
    rows = np.flatnonzero(labeled_rows(y))
    if target_kind(y) != "class":
        return rows
    return rows[np.bincount(y[rows])[y[rows]] >= 2] if len(rows) else rows


def varies(y: Any, rows: Index) -> bool:
    """Return whether these rows have at least two different targets."""
    if target_kind(y) == "multilabel":
        sizes = np.asarray(y[rows].sum(axis=0)).ravel()
        return bool(np.any((sizes > 0) & (sizes < len(rows))))
    return len(np.unique(y[rows])) >= 2


def most_folds(y: Any) -> int:
    """Return the number of samples of the largest class, or of all with a target if there are no
    classes: more folds would leave some without test samples.
    """
    rows = _require_testable(y)
    return int(np.bincount(y[rows]).max()) if target_kind(y) == "class" else len(rows)


def stratified_folds(X: Matrix, y: Any, n_splits: int = 5, seed: int = 0) -> list[Split]:
    """Make folds for a corpus without test rows."""
    rows = _require_testable(y)
    if target_kind(y) == "class":
        folds: Any = StratifiedKFold(min(n_splits, most_folds(y)), shuffle=True, random_state=seed)
    else:
        folds = KFold(min(n_splits, most_folds(y)), shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # the docstring says what happens to small classes
        warnings.filterwarnings(
            "ignore", "The (least populated class|number of unique classes)", UserWarning
        )
        tests = [
            rows[test]
            for _, test in folds.split(rows, y[rows] if target_kind(y) == "class" else None)
        ]
    return [_split_at(X, y, test) for test in tests]


def held_out_split(X: Matrix, y: Any, test_size: float, seed: int = 0) -> Split:
    """Hold out a share of the samples of a corpus without test rows. Classes are stratified.
    Unlabeled samples, and the only sample of a class, stay in the training rows."""
    rows = _require_testable(y)
    is_class = target_kind(y) == "class"
    splitter = StratifiedShuffleSplit if is_class else ShuffleSplit
    n_parts = len(np.unique(y[rows])) if is_class else 1
    n_test = int(np.ceil(test_size * len(rows)))
    if min(n_test, len(rows) - n_test) < n_parts:
        raise ValueError(
            f"a share of {test_size:g} leaves {n_test} of {len(rows)} samples for the test: both "
            f"parts must hold {n_parts} or more, one per class"
        )
    draw = splitter(1, test_size=n_test, random_state=seed)
    ((_, test),) = draw.split(rows, y[rows] if is_class else None)
    return _split_at(X, y, np.sort(rows[test]))


def training_sample(X: Matrix, y: Any) -> tuple[Matrix, Any]:
    """Return the rows that train a model: all, or a sample where rows times classes are too many.
    Each class gives its share, and one row at least."""
    kind, rows = target_kind(y), np.flatnonzero(labeled_rows(y))
    groups = y[rows] if kind == "class" else np.zeros(len(rows), dtype=np.int64)
    n_models = y.shape[1] if kind == "multilabel" else len(np.unique(groups))
    share = MOST_TRAINING / max(len(rows) * n_models, 1)
    if share >= 1:
        return X, y
    sample = rows[next(draw_subsamples(groups, 1, share, 0))]
    return X.take_rows(sample), y[sample]


def draw_subsamples(
    groups: AnyArray, n_subsamples: int, train_size: float, seed: int
) -> Iterator[IntArray]:
    """Draw rows without replacement, with a share of each group."""
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    for _ in range(n_subsamples):
        drawn = [
            rng.choice(rows, max(round(train_size * len(rows)), 1), replace=False)
            for rows in members
        ]
        yield np.sort(np.concatenate(drawn))


def _require_testable(y: Any) -> Index:
    """Return the rows that can be tested, or refuse a target without two of each of two classes."""
    rows = testable_rows(y)
    if not varies(y, rows):
        required = {
            "class": "at least two classes with two samples each",
            "real": "a target that varies",
            "multilabel": "a label that some samples have and others do not",
        }[target_kind(y)]
        raise ValueError(f"folds need {required}: give test samples, or more labeled samples")
    return rows


def _split_at(X: Matrix, y: Any, test: Index) -> Split:
    """Return the split with these test rows."""
    train = np.ones(X.shape[0], dtype=bool)
    train[test] = False
    return Split(X.take_rows(train), y[train], X.take_rows(test), y[test])
