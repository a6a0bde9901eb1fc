"""Sums of columns over the samples of each class, in one pass and with all their digits."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix.matrix import Matrix
from bigfs.rounding import far_from_zero, variance_or_zero
from bigfs.settings import Setting
from bigfs.types import AnyArray, FloatArray, IntArray
from bigfs.validation import require_magnitude

NEGATIVE = "Negative values in data: chi2 needs non-negative features, use anova or fisher"
SUMS_AT_A_TIME = 6  # arrays of columns × classes: the sums, their parts, and the terms of a score
DENSE_INDICATOR = 32 << 20  # bytes of weights by class that are made dense for a dense block
COUNTED_ROWS = Setting(1 << 20)  # at a time: NumPy takes nine bytes of each


def class_indicator(codes: IntArray, c: int, weights: FloatArray | None = None) -> sp.csr_array:
    """Return the weight of each sample at its class (n × c), without samples of code −1.

    It is sparse, because n × c numbers do not fit where there are many samples and classes.
    """
    has_class = codes >= 0
    indptr = np.concatenate([[0], np.cumsum(has_class)])
    values = np.ones(indptr[-1]) if weights is None else weights[has_class]
    return sp.csr_array((values, codes[has_class], indptr), shape=(len(codes), c))


def class_sizes(codes: IntArray, c: int, weights: FloatArray | None = None) -> AnyArray:
    """Return the number or weight of the samples of each class (c,), without those of code −1."""
    sizes = np.zeros(c, dtype=np.int64 if weights is None else np.float64)
    for first in range(0, len(codes), COUNTED_ROWS.value):
        part = codes[first : first + COUNTED_ROWS.value]
        has_class = part >= 0
        of_part = None if weights is None else weights[first : first + len(part)][has_class]
        sizes += np.bincount(part[has_class], of_part, minlength=c)
    return sizes


class ClassWeights:
    """The `class_indicator` of the samples, as a code each, of which a task makes its part.

    A code takes a byte where there are few classes, and an entry of the indicator takes 16.
    """

    def __init__(
        self, codes: IntArray, c: int, weights: FloatArray | None = None, *, by_class: bool = False
    ) -> None:
        self.codes = codes.astype(np.min_scalar_type(-max(c, 1)), copy=False)
        self.shape, self.weights, self.by_class = (len(codes), c), weights, by_class

    def __getitem__(self, rows: slice) -> ClassWeights:
        weights = None if self.weights is None else self.weights[rows]
        return ClassWeights(self.codes[rows], self.shape[1], weights, by_class=self.by_class)

    @property
    def sizes(self) -> FloatArray:
        """The sum of the weights of each class (c,)."""
        return class_sizes(self.codes, self.shape[1], self.weights).astype(np.float64)

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self.sizes.sum())

    def factors(self) -> tuple[Any, Any]:
        """Return the weights of the values by class, and of their squares by class or of all."""
        Y = class_indicator(self.codes, self.shape[1], self.weights)
        return Y, Y if self.by_class else np.asarray(Y.sum(axis=1))[:, None]


def column_blocks(X: Matrix, c: int) -> Iterator[Matrix]:
    """Yield X by blocks of columns whose sums over c classes take their share of the memory.

    One block is X itself. All blocks together read tiles of columns once.
    """
    d, room = X.shape[1], engine.SHARES.value.column_block * engine.planned_memory()
    size = max(int(room / (8 * SUMS_AT_A_TIME * c)), 1)
    if d <= size:
        yield X
        return
    before = X.passes
    for first in range(0, d, size):
        stop = min(first + size, d)
        block = copy(X.take_columns(slice(first, stop)))
        block.class_stats = partial(X.class_stats, start=first, stop=stop)
        block.passes = 0
        yield block
        X.passes = max(before + block.passes, X.passes + (0 if X.column_tiles else block.passes))


def column_sums(
    X: Matrix,
    Y: Any,
    S: Any = None,
    shift: FloatArray | None = None,
    *,
    non_negative: bool = False,
) -> FloatArray:
    """Return the `class_sums` of all columns, in one pass, for dense, csr or `ClassWeights` Y."""
    is_coded = isinstance(Y, ClassWeights)
    fn, factors = (sums_of_codes, [Y]) if is_coded else (class_sums, [Y, S])
    if X.column_tiles:
        return np.concatenate(X.map(fn, 1, *factors, shift, non_negative))
    return np.asarray(X.sum(fn, 0, shift, non_negative, split=factors))


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
    total = sums[:, :width][:, everyone].sum(axis=1)
    weight = Y.total if isinstance(Y, ClassWeights) else Y[:, everyone].sum()
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


def sums_of_codes(
    block: Any, start: int, stop: int, Y: ClassWeights, shift: Any, non_negative: bool
) -> FloatArray:
    return class_sums(block, start, stop, *Y.factors(), shift, non_negative)


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
        if 8 * Y.shape[0] * Y.shape[1] > DENSE_INDICATOR:
            return np.asarray((Y.T @ block).T)
        Y = Y.toarray()
    product = block.T @ Y
    return np.asarray(product.toarray() if sp.issparse(product) else product)
