"""Sums of columns over the samples of each class, in one pass and with all their digits."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs.linalg.rounding import far_from_zero, variance_or_zero
from bigfs.matrix.matrix import Matrix
from bigfs.types import FloatArray, IntArray
from bigfs.validation import require_magnitude

NEGATIVE = "Negative values in data: chi2 needs non-negative features, use anova or fisher"


def class_indicator(codes: IntArray, c: int, weights: FloatArray | None = None) -> sp.csr_array:
    """Return the weight of each sample at its class (n × c), without those of code −1.

    It is sparse, because n × c numbers do not fit where there are many samples and classes.
    """
    has_class = codes >= 0
    indptr = np.concatenate([[0], np.cumsum(has_class)])
    values = np.ones(indptr[-1]) if weights is None else weights[has_class]
    return sp.csr_array((values, codes[has_class], indptr), shape=(len(codes), c))


def column_sums(
    X: Matrix, Y: Any, S: Any, shift: FloatArray | None = None, *, non_negative: bool = False
) -> FloatArray:
    """Return the `class_sums` of all columns, in one pass. Y and S are dense, or csr arrays."""
    if X.column_tiles:
        return np.concatenate(X.map(class_sums, 1, Y, S, shift, non_negative))
    return np.asarray(X.sum(class_sums, 0, shift, non_negative, split=[Y, S]))


def near_sums(
    X: Matrix, Y: Any, S: Any, everyone: slice, sums: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the `column_sums` of x − s and s (d,): the mean of a column far from zero, or 0.

    `everyone` are the columns of Y that together weigh each sample. The columns far from zero are
    read once more, and the sums of a constant one become zero. Sums that are known are changed.
    """
    sums = column_sums(X, Y, S) if sums is None else sums
    width = Y.shape[1]
    require_magnitude(sums[:, width:].sum(axis=1), sums.any(axis=1))
    total, weight = sums[:, :width][:, everyone].sum(axis=1), Y[:, everyone].sum()
    shift = np.zeros(len(sums))
    far = np.flatnonzero(far_from_zero(total, sums[:, width:].sum(axis=1), weight))
    if len(far):
        shift[far] = total[far] / weight
        taken = copy(X.take_columns(far))  # some columns are not counted as a pass
        near = column_sums(taken, Y, S, shift[far])
        squares = near[:, width:].sum(axis=1)  # x − s has a mean of zero but for rounding
        near[variance_or_zero(squares / weight, shift[far], X.shape[0]) == 0] = 0
        sums[far] = near
    return sums, shift


def class_sums(
    block: Any,
    start: int,
    stop: int,
    Y: Any,
    S: Any,
    shift: FloatArray | None = None,
    non_negative: bool = False,
) -> FloatArray:
    """Return the sums of each column weighted by Y, and of its squares weighted by S.

    A shift is subtracted from the columns first. Unlabeled rows are zero in Y and S and do not
    count.
    """
    if non_negative and (block.data if sp.issparse(block) else block).min(initial=0) < 0:
        raise ValueError(NEGATIVE)
    block = block.astype(np.float64)
    if shift is not None:  # the columns are far from zero, so a sparse block is all but dense
        own = shift if len(shift) == block.shape[1] else shift[start:stop]
        block = (block.toarray() if sp.issparse(block) else block) - own
    # `require_magnitude` refuses values that are too large
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squared = block * block if not sp.issparse(block) else _squared(block)
        squares = np.nan_to_num(weighted_sums(squared, S), nan=np.inf, posinf=np.inf)  # 0 · ∞
        return np.column_stack([weighted_sums(block, Y), squares])


def _squared(block: Any) -> Any:
    """Return the squares of a sparse block, with its indices."""
    return type(block)((block.data**2, block.indices, block.indptr), shape=block.shape)


def weighted_sums(block: Any, Y: Any) -> FloatArray:
    """Return blockᵀY, dense."""
    if sp.issparse(Y) and not sp.issparse(block):
        Y = Y.toarray()
    product = block.T @ Y
    return np.asarray(product.toarray() if sp.issparse(product) else product)
