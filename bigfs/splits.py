"""Targets, and the rows that a method learns from and those that it is tested on.

A target is class codes (integers, −1 unlabelled), real values (floats, NaN unlabelled) or label
sets (an n × c indicator).
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold

from bigfs.matrix import Matrix
from bigfs.types import BoolArray, IntArray

Index = IntArray


class Split(NamedTuple):
    """Training and test rows as matrices (keys, so that they travel) with their targets.

    Unlabelled training rows are there for semi-supervised methods. The model that is scored ignores
    them.
    """

    X_train: Matrix
    y_train: Any
    X_test: Matrix
    y_test: Any


def target_kind(y: Any) -> str:
    """Return the kind of a target.

    Parameters
    ----------
    y : ndarray or sparse array
        Class codes (integers), real values (floats), or an (n, c) indicator of label sets.

    Returns
    -------
    str
        "class", "real" or "multilabel".
    """
    if y.ndim == 2:
        return "multilabel"
    return "real" if np.issubdtype(y.dtype, np.floating) else "class"


def labelled_rows(y: Any) -> BoolArray:
    """Return the mask of rows with a target; a row of label sets always has one, which may be the
    empty set.
    """
    kind = target_kind(y)
    if kind == "multilabel":
        return np.ones(y.shape[0], dtype=bool)
    return np.asarray(~np.isnan(y) if kind == "real" else y >= 0)


def testable_rows(y: Any) -> Index:
    """Return the rows that folds can test: those with a target, without classes of a single
    sample.
    """
    rows = np.flatnonzero(labelled_rows(y))
    if target_kind(y) != "class":
        return rows
    return rows[np.bincount(y[rows])[y[rows]] >= 2] if len(rows) else rows


def varies(y: Any, rows: Index) -> bool:
    """Return whether these rows have two targets to tell apart."""
    if target_kind(y) == "multilabel":
        sizes = np.asarray(y[rows].sum(axis=0)).ravel()
        return bool(np.any((sizes > 0) & (sizes < len(rows))))
    return len(np.unique(y[rows])) >= 2


def stratified_folds(X: Matrix, y: Any, n_splits: int = 5, seed: int = 0) -> list[Split]:
    """Make folds where a corpus has no test half.

    Classes come in equal shares. A class with fewer samples than folds is tested in as many folds
    as it has samples. Unlabelled samples, and a class's only sample, stay in every fold's training
    rows and are never tested. Label sets and real values are dealt at random.

    Parameters
    ----------
    X : Matrix
        The samples; no row is read.
    y : ndarray or sparse array
        Their targets.
    n_splits : int, default=5
        Number of folds; fewer where there are fewer samples.
    seed : int, default=0
        Of the shuffling.

    Returns
    -------
    list of Split

    Raises
    ------
    ValueError
        Nothing can be predicted: fewer than two classes of two samples, or a constant target.
    """
    rows = testable_rows(y)
    if not varies(y, rows):
        raise ValueError(
            "folds need at least two classes with two samples each: give test "
            "samples, or more labelled samples"
        )
    if target_kind(y) == "class":
        folds: Any = StratifiedKFold(
            min(n_splits, int(np.bincount(y[rows]).max())), shuffle=True, random_state=seed
        )
    else:
        folds = KFold(min(n_splits, len(rows)), shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # documented above
        warnings.filterwarnings(
            "ignore", "The (least populated class|number of unique classes)", UserWarning
        )
        tests = [
            rows[test]
            for _, test in folds.split(rows, y[rows] if target_kind(y) == "class" else None)
        ]
    splits = []
    for test in tests:
        train = np.ones(X.shape[0], dtype=bool)
        train[test] = False
        splits.append(Split(X.take_rows(train), y[train], X.take_rows(test), y[test]))
    return splits
