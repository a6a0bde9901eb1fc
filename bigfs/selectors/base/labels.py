"""The target y: classes, of which −1 may be none, or real numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import type_of_target

from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import class_sizes
from bigfs.selectors.registry import who_takes
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray

UNLABELED = -1


class Labels(NamedTuple):
    """The classes, and the class number of each sample."""

    classes: AnyArray  # (c,), sorted
    codes: IntArray  # (n,): −1 where a sample is unlabeled

    @property
    def shape(self) -> tuple[int]:
        """The shape of y, (n,)."""
        return (len(self.codes),)

    @property
    def is_labeled(self) -> BoolArray:
        """The mask of the labeled samples."""
        return self.codes >= 0

    @property
    def all_labeled(self) -> bool:
        """Whether every sample has a label. It takes no mask."""
        return int(self.codes.min(initial=0)) >= 0

    def take(self, rows: AnyArray) -> Labels:
        """Return the labels of some samples, and the classes that these have."""
        codes = self.codes[rows]
        sizes = class_sizes(codes[codes >= 0], len(self.classes))
        if sizes.all():
            return Labels(self.classes, codes)
        present = np.flatnonzero(sizes)
        number = np.full(len(self.classes) + 1, UNLABELED)  # the last one is for −1
        number[present] = np.arange(len(present))
        return Labels(self.classes[present], number[codes])


def require_no_missing(y: Any, has_unlabeled: bool) -> None:
    """Refuse a target with missing values, and say what to do with such samples."""
    if y is None or hasattr(y, "toarray"):
        return
    values = np.asarray(y)
    if values.dtype.kind == "f":
        is_missing = bool(np.isnan(values).any())
    elif values.dtype.kind == "O":
        from pandas import isna  # loaded only where such a y can come from it

        is_missing = bool(np.any(isna(values)))
    else:
        return
    if is_missing:
        mark = f'mark these samples by {UNLABELED} ("{UNLABELED}" among texts), or '
        raise ValueError(
            f"y holds missing values (NaN): {mark if has_unlabeled else ''}leave these samples out"
        )


def labels_of(y: AnyArray, has_unlabeled: bool = False) -> Labels:
    """Return the classes of y. −1, or "-1" among strings, is unlabeled where `has_unlabeled`.

    Even so, −1 and 1 are the two classes of LIBSVM's files where y holds nothing else.
    """
    if y.dtype in (np.int32, np.int64) and y.flags.carray and _are_codes(y):
        return Labels(np.arange(int(y.max()) + 1), y)
    is_labeled = ~is_minus_one(y) if has_unlabeled else np.full(len(y), True)
    if not is_labeled.all():
        values = set(np.unique(y if y.dtype.kind in "iufb" else y.astype(str)).tolist())
        if values in ({-1, 1}, {"-1", "1"}, {"-1", "+1"}):
            is_labeled[:] = True
    return _coded(y, is_labeled)


def with_minus_one(labels: Labels, is_class: bool) -> Labels:
    """Return the labels of a part of the samples, where the whole decides whether −1 is a class."""
    classes = labels.classes
    is_text = classes.dtype.kind == "U" or (len(classes) > 0 and isinstance(classes[0], str))
    y = np.append(classes, str(UNLABELED) if is_text else UNLABELED)[labels.codes]
    return _coded(y, np.full(len(y), True) if is_class else ~is_minus_one(y))


def is_minus_one(y: AnyArray) -> BoolArray:
    """Return the mask of −1, or of "-1" among strings."""
    is_number = y.dtype.kind in "iufb"
    return np.asarray(y == UNLABELED if is_number else y.astype(str) == str(UNLABELED), dtype=bool)


def at_least_two(labels: Labels) -> Labels:
    """Return the labels, or refuse them if they hold fewer than two classes."""
    if len(labels.classes) < 2:
        advice = "" if labels.all_labeled else " in addition to -1, which means unlabeled"
        found = "1 class" if len(labels.classes) else "0 classes"
        raise ValueError(f"y must hold at least two classes; got {found}{advice}")
    return labels


def labeled_part(X: Matrix, y: Labels) -> tuple[Matrix, AnyArray, IntArray]:
    """Return the labeled samples, the classes, of which two are needed, and the class numbers.

    Passes over these samples count as passes over X.
    """
    classes, codes = at_least_two(y)
    if y.all_labeled:
        return X, classes, codes
    part = X.take_rows(y.is_labeled)
    part._passes = X._passes
    return part, classes, codes[y.is_labeled]


def is_real(y: AnyArray, target: str) -> bool:
    """Return whether y is a real target. "auto" goes by whether it holds a fraction."""
    if target != "auto":
        return target == "real"
    return y.dtype.kind == "f" and bool(np.any(y != np.round(y)))


def any_target(y: Any, target: str, has_unlabeled: bool) -> Any:
    """Return `Labels`, real targets (n,) or (n, c), or label sets (csr, n × c)."""
    if is_several(y):
        is_sets = sp.issparse(y) or np.isin(y, (0, 1)).all()
        return label_sets(y) if is_sets else np.asarray(y, dtype=np.float64)
    y = column_or_1d(y.toarray() if sp.issparse(y) else y, warn=True)
    return y.astype(np.float64) if is_real(y, target) else labels_of(y, has_unlabeled)


def is_several(y: Any) -> bool:
    """Return whether y has several targets per sample."""
    return bool(np.ndim(y) == 2 and y.shape[1] > 1)


def require_one_column(y: Any) -> None:
    """Refuse several targets per sample, and say who takes them."""
    if is_several(y):
        is_sets = type_of_target(y) == "multilabel-indicator"
        raise ValueError(
            f"y should be a 1d array, got an array of shape {y.shape} instead: "
            f"{who_takes('multilabel' if is_sets else 'multioutput')}"
        )


def label_sets(y: Any) -> sp.csr_array:
    """Return the indicator of several labels per sample (csr, n × q), or refuse other numbers."""
    Y = sp.csr_array(y)
    if not np.isin(Y.data, (0, 1)).all():
        raise ValueError(
            "y must hold one target per sample, or 0 and 1 for several labels per sample; got "
            f"several real targets: {who_takes('multioutput')}"
        )
    return sp.csr_array(Y, dtype=np.int8)


def matrix_target(y: Any, target: str, has_unlabeled: bool) -> Labels | FloatArray:
    """Return `Labels`, or real targets and indicators as they are (n × q)."""
    y = y.toarray() if sp.issparse(y) else np.asarray(y)
    y = y if is_several(y) else y.ravel()
    if y.ndim == 2 or is_real(y, target):
        return np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    return at_least_two(labels_of(y, has_unlabeled))


def real_target(y: Any) -> FloatArray:
    """Return y as one real number per sample, or refuse it."""
    y = y.toarray() if sp.issparse(y) else np.asarray(y)
    require_one_column(y)
    if y.dtype.kind not in "biuf":
        try:
            y = y.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"y must hold real numbers, not texts: {who_takes('class')}") from None
    target: FloatArray = column_or_1d(y, dtype=np.float64, warn=True)
    return target


def _coded(y: AnyArray, is_labeled: BoolArray) -> Labels:
    labeled = y[is_labeled]
    classes = np.unique(labeled)
    codes: AnyArray = np.full(len(y), UNLABELED, dtype=np.int32)
    codes[is_labeled] = np.searchsorted(classes, labeled)
    return Labels(classes, codes)


def _are_codes(y: IntArray) -> bool:
    """Return whether y holds every number from 0 to its largest, so that nothing is to be coded."""
    largest = int(y.max(initial=0))
    if y.min(initial=0) < 0 or largest >= len(y):
        return False
    return bool(class_sizes(y, largest + 1).all())
