"""Kinds of targets, and splits into training and test rows.

A target holds class codes (integers, −1 if unlabeled), real values (floats, NaN if unlabeled),
label sets (an n × c indicator) or several real values (n × c floats). No split has samples of one
group in both parts, or training samples that are as late as a test sample.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
)

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.settings import Setting
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray

Index = IntArray
# Training rows times classes. Of more rows a sample trains a model: 500 features of 50,000 rows
# and 100 classes take half a minute.
MOST_TRAINING = Setting(5_000_000)
# groups whose folds are stratified, which takes 0.3 ms per group
MOST_STRATIFIED = Setting(20_000)


class Samples(NamedTuple):
    """Facts of samples besides their targets: arrays of a value per sample, or None."""

    groups: IntArray | None = None  # codes; no group has samples in both parts of a split
    times: AnyArray | None = None  # numbers or dates; training samples come before test samples
    weights: FloatArray | None = None

    def take(self, rows: AnyArray) -> Samples:
        """Return the facts of some of the samples."""
        taken: list[Any] = [None if values is None else values[rows] for values in self]
        return Samples(*taken)


NOTHING_KNOWN = Samples()


class Split(NamedTuple):
    """Training and test rows as matrices with their targets."""

    X_train: Matrix
    y_train: Any
    X_test: Matrix
    y_test: Any
    samples: Samples = NOTHING_KNOWN  # the facts of the training rows
    n_classes: int = 0  # of the whole target, of which a split may miss some
    train: Any = slice(None)  # the training rows, among all rows
    test: Any = slice(None)


def target_kind(y: Any) -> str:
    if y.ndim == 2:
        is_real = isinstance(y, np.ndarray) and np.issubdtype(y.dtype, np.floating)
        return "multioutput" if is_real else "multilabel"
    return "real" if np.issubdtype(y.dtype, np.floating) else "class"


def group_codes(groups: Any, n: int) -> IntArray | None:
    """Return the codes of the groups of n samples, or refuse another length or missing values."""
    if groups is None:
        return None
    values = np.asarray(groups)
    if values.shape != (n,):
        raise ValueError(f"groups must hold a group for each of {n} samples; got {values.shape}")
    if any(value is None or value != value for value in values.tolist()):
        raise ValueError("groups must hold a group for every sample; got a missing one")
    return np.unique(values, return_inverse=True)[1]


def samples_of(n: int, groups: Any = None, times: Any = None) -> Samples:
    """Return what a user says of n samples, or refuse facts that some of them lack."""
    if times is not None and np.shape(times) != (n,):
        raise ValueError(f"times must hold a time for each of {n} samples; got {np.shape(times)}")
    return Samples(group_codes(groups, n), None if times is None else np.asarray(times))


def labeled_rows(y: Any) -> BoolArray:
    """Return the mask of rows with a target.

    A row of label sets always has a target, which may be the empty set.
    """
    kind = target_kind(y)
    if kind == "multilabel":
        return np.ones(y.shape[0], dtype=bool)
    if kind == "class":
        return np.asarray(y >= 0)
    return np.asarray(~np.isnan(y) if kind == "real" else ~np.isnan(y).any(axis=1))


def testable_rows(y: Any, groups: IntArray | None) -> Index:
    """Return the rows that folds can test. They have a target, and their class has at least two
    samples, or samples in two groups."""
    rows = np.flatnonzero(labeled_rows(y))
    if target_kind(y) != "class" or not len(rows):
        return rows
    codes = y[rows]
    if groups is not None:
        width = int(groups.max()) + 1
        pairs = codes.astype(np.int64) * width + groups[rows]
        codes = np.unique(pairs) // width  # one per class and group
    return rows[np.bincount(codes, minlength=int(y[rows].max()) + 1)[y[rows]] >= 2]


def varies(y: Any, rows: Index) -> bool:
    """Return whether these rows have at least two different targets."""
    if target_kind(y) == "multilabel":
        sizes = np.asarray(y[rows].sum(axis=0)).ravel()
        return bool(np.any((sizes > 0) & (sizes < len(rows))))
    if y.ndim == 2:
        return bool((y[rows] != y[rows[:1]]).any())
    return len(np.unique(y[rows])) >= 2


def most_folds(y: Any, samples: Samples = NOTHING_KNOWN) -> int:
    """Return the largest number of folds of which each has test samples.

    It is the number of samples of the largest class, or of all with a target if there are no
    classes, or of groups, or of times but the first.
    """
    rows = _require_testable(y, samples.groups)
    if samples.times is not None:
        return len(np.unique(samples.times[rows])) - 1
    most = int(np.bincount(y[rows]).max()) if target_kind(y) == "class" else len(rows)
    return most if samples.groups is None else min(most, len(np.unique(samples.groups[rows])))


def stratified_folds(
    X: Matrix, y: Any, n_splits: int = 5, seed: int = 0, samples: Samples = NOTHING_KNOWN
) -> list[Split]:
    """Make folds for a corpus without test rows.

    With groups, each is tested as a whole. With times, the rows in their order are cut in
    n_splits + 1 parts, and each part but the first is predicted from those before it. A fold whose
    training rows have one class only is left out then.
    """
    return [split_at(X, y, *fold, samples) for fold in fold_rows(y, n_splits, seed, samples)]


def fold_rows(
    y: Any, n_splits: int, seed: int = 0, samples: Samples = NOTHING_KNOWN
) -> list[tuple[Index, Index]]:
    """Return the rows that train and test each of the `stratified_folds`."""
    tests = _tests(y, n_splits, seed, samples)
    folds = [(_train_rows(y.shape[0], test, samples), test) for test in tests]
    if samples.times is None and samples.groups is None:
        return folds
    return _require_two_classes(y, folds, "folds")


def folds_to_score(
    X: Matrix, y: Any, n_splits: int, samples: Samples, with_auc: bool
) -> tuple[list[Split], list[str]]:
    """Return the `stratified_folds` that can be scored, and why each other fold is left out."""
    folds = stratified_folds(X, y, n_splits, samples=samples)
    left_out = len(_tests(y, n_splits, 0, samples)) - len(folds)
    reasons = ["its training samples have one class only, or none"] * left_out
    if not with_auc or target_kind(y) != "class":
        return folds, reasons
    scored = [fold for fold in folds if varies(y, fold.test)]
    if not scored:
        raise ValueError(
            "no fold could be scored, as the test samples of each have one class, and no AUC: "
            "choose another metric, or give more samples"
        )
    reasons += ["its test samples have one class, and no AUC"] * (len(folds) - len(scored))
    return scored, reasons


def _tests(y: Any, n_splits: int, seed: int, samples: Samples) -> list[Index]:
    """Return the test rows of each fold."""
    rows = _require_testable(y, samples.groups)
    n_splits = max(min(n_splits, most_folds(y, samples)), 1)
    if samples.times is not None:
        tests = _forward(samples.times[rows], n_splits)
    else:
        codes = y[rows] if target_kind(y) == "class" else None
        groups = None if samples.groups is None else samples.groups[rows]
        tests = [test for _, test in split_rows(n_splits, len(rows), codes, groups, seed)]
    return [rows[test] for test in tests]


def split_rows(
    n_splits: int, n: int, codes: IntArray | None, groups: IntArray | None, seed: int = 0
) -> list[tuple[Index, Index]]:
    """Return the numbers of the rows that train and test each fold of n rows. A class with fewer
    rows than there are folds is in some of the tests only."""
    folds = _splitter(n_splits, codes, groups, seed)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "The (least populated class|number of unique classes)", UserWarning
        )
        return list(folds.split(np.zeros(n), codes, groups))


def _splitter(n_splits: int, codes: IntArray | None, groups: IntArray | None, seed: int) -> Any:
    """Return the splitter of scikit-learn for classes or other targets, with groups or without."""
    if groups is None:
        plain = KFold if codes is None else StratifiedKFold
        return plain(n_splits, shuffle=True, random_state=seed)
    n_groups = len(np.unique(groups))
    if n_groups < n_splits:
        raise ValueError(
            f"{n_splits} folds by group need as many groups; got {n_groups}: ask for fewer folds, "
            f"or give more groups"
        )
    if codes is None or n_groups > MOST_STRATIFIED.value:  # then shares of classes are near
        return GroupKFold(n_splits)
    n_counts = n_groups * (int(codes.max()) + 1)
    engine.require_memory(24 * n_counts, f"folds by {n_groups:,} groups of samples")
    return StratifiedGroupKFold(n_splits, shuffle=True, random_state=seed)


def held_out_split(
    X: Matrix, y: Any, test_size: float, seed: int = 0, samples: Samples = NOTHING_KNOWN
) -> Split:
    """Hold out a share of the samples of a corpus without test rows.

    Classes are stratified. Unlabeled samples, and the only sample of a class, stay in the training
    rows. With groups, a share of these is drawn. With times, the latest samples are held out.
    """
    rows = _require_testable(y, samples.groups)
    n_test = int(np.ceil(test_size * len(rows)))
    if samples.times is not None:
        times = samples.times[rows]
        test = np.flatnonzero(times >= np.sort(times)[-n_test])
    elif samples.groups is not None:
        by_group = GroupShuffleSplit(1, test_size=test_size, random_state=seed)
        ((_, test),) = by_group.split(rows, None, samples.groups[rows])
    else:
        is_class = target_kind(y) == "class"
        splitter = StratifiedShuffleSplit if is_class else ShuffleSplit
        n_parts = len(np.unique(y[rows])) if is_class else 1
        if min(n_test, len(rows) - n_test) < n_parts:
            raise ValueError(
                f"a share of {test_size:g} leaves {n_test} of {len(rows)} samples for the test: "
                f"both parts must hold {n_parts} or more, one per class"
            )
        draw = splitter(1, test_size=n_test, random_state=seed)
        ((_, test),) = draw.split(rows, y[rows] if is_class else None)
        test = np.sort(test)
    train = _train_rows(X.shape[0], rows[test], samples)
    _require_two_classes(y, [(train, rows[test])], "held-out share")
    return split_at(X, y, train, rows[test], samples)


def training_sample(X: Matrix, y: Any) -> tuple[Matrix, Any]:
    """Return the rows that train a model: all, or a sample where rows times classes are too many.
    Each class gives its share, and one row at least."""
    kind, rows = target_kind(y), np.flatnonzero(labeled_rows(y))
    groups = y[rows] if kind == "class" else np.zeros(len(rows), dtype=np.int64)
    n_models = y.shape[1] if y.ndim == 2 else len(np.unique(groups))
    share = MOST_TRAINING.value / max(len(rows) * n_models, 1)
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


def draw_halves(groups: AnyArray, n_pairs: int, seed: int) -> Iterator[IntArray]:
    """Draw pairs of halves without a row in common, with half of each group in each. Of an odd
    group one row is in neither half, and the only one of a group is in both."""
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    for _ in range(n_pairs):
        drawn = [rng.permutation(rows) for rows in members]
        for part in range(2):
            halves = [rows[part::2][: max(len(rows) // 2, 1)] for rows in drawn]
            halves = [half if len(half) else rows for half, rows in zip(halves, drawn, strict=True)]
            yield np.sort(np.concatenate(halves))


def _require_testable(y: Any, groups: IntArray | None) -> Index:
    """Return the rows that can be tested, or refuse a target without two of each of two classes."""
    rows = testable_rows(y, groups)
    if not varies(y, rows):
        required = {
            "class": "at least two classes with two samples each",
            "real": "a target that varies",
            "multioutput": "a target that varies",
            "multilabel": "a label that some samples have and others do not",
        }[target_kind(y)]
        if groups is not None and target_kind(y) == "class":
            required = "at least two classes with samples in two groups each"
        raise ValueError(f"folds need {required}: give test samples, or more labeled samples")
    return rows


def _forward(times: AnyArray, n_splits: int) -> list[Index]:
    """Cut the rows by time in n_splits + 1 parts, no time in two, and return all but the first."""
    ordered = np.sort(times)
    firsts = ordered[[len(times) * k // (n_splits + 1) for k in range(1, n_splits + 1)]]
    firsts = np.unique(firsts[firsts > ordered[0]])
    part = np.searchsorted(firsts, times, side="right")
    return [np.flatnonzero(part == k) for k in range(1, len(firsts) + 1)]


def split_at(
    X: Matrix, y: Any, train: Index, test: Index, samples: Samples = NOTHING_KNOWN
) -> Split:
    n_classes = 1 + int(y.max(initial=-1)) if target_kind(y) == "class" else 0
    parts = X.take_rows(train), y[train], X.take_rows(test), y[test]
    return Split(*parts, samples.take(train), n_classes, train, test)


def _train_rows(n: int, test: Index, samples: Samples) -> Index:
    """Return the training rows for these test rows.

    Others of the groups of these are in neither part, and with times the training rows are those
    before.
    """
    train = np.ones(n, dtype=bool)
    train[test] = False
    if samples.groups is not None:
        train &= ~np.isin(samples.groups, samples.groups[test])
    if samples.times is not None:
        train &= samples.times < samples.times[test].min()
    return np.flatnonzero(train)


def _require_two_classes(
    y: Any, folds: list[tuple[Index, Index]], what: str
) -> list[tuple[Index, Index]]:
    """Return the folds whose training targets vary, or refuse if no fold has."""
    is_labeled = labeled_rows(y)
    kept = [(train, test) for train, test in folds if varies(y, train[is_labeled[train]])]
    if not kept:
        raise ValueError(
            f"by these groups or times no {what} can be made: the other samples have one class "
            f"only, or none; give more groups or times, or another number of folds"
        )
    return kept
