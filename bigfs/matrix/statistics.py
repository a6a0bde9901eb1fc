"""The statistics of the columns of a matrix, of all samples and per class."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.matrix import tiles
from bigfs.matrix.view import Shift
from bigfs.rounding import far_from_zero, variance_or_zero
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray

FAR_SCALE = 10.0  # times the deviation of the median column: its unit decides
SHOWN = 5  # names in a hint
UNEQUAL_SCALES = "columns differ in scale"  # how the hint begins


class Stats(NamedTuple):
    """Σ x, Σ x² (float64) and number of non-zeros (int64) of each column, each of shape (d,)."""

    sums: AnyArray
    sums_of_squares: AnyArray
    nnz: AnyArray


class ClassStats(NamedTuple):
    """Σ x, Σ x² and number of non-zeros of each column in each class, each of shape (d, c).
    `minima` (d,) are the smallest values of the columns, or None where they are not known."""

    sums: AnyArray
    sums_of_squares: AnyArray
    nnz: AnyArray
    minima: AnyArray | None = None


def compute_stats(X: Any) -> Stats:
    """Return the statistics of the columns. One pass."""
    if X.column_tiles:
        parts = X.map(tiles.column_stats, 1)
        sums, squares, nnz = (np.concatenate(part) for part in zip(*parts, strict=True))
    else:
        sums, squares, nnz = X.sum(tiles.column_stats, 0)
    return Stats(sums, squares, nnz.astype(np.int64))


class FarColumns(NamedTuple):
    """The columns far from zero, whose sums have lost digits of the variance, with their means and
    the sums of the columns less these."""

    columns: IntArray
    means: FloatArray
    sums: FloatArray  # Σ(x − s)
    sums_of_squares: FloatArray  # Σ(x − s)²

    @classmethod
    def none(cls) -> FarColumns:
        """Return no columns."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0), np.empty(0))

    @classmethod
    def of(cls, X: Any) -> FarColumns:
        """Find them by the statistics of X, and read them once."""
        stats, n = X.stats, X.shape[0]
        index = np.flatnonzero(far_from_zero(stats.sums, stats.sums_of_squares, n))
        if not len(index):
            return cls.none()
        means = stats.sums[index] / n
        return cls(index, means, *shifted_sums(X.take_columns(index), means))

    def shift(self, deviations: FloatArray) -> Shift:
        """Return the shift that is subtracted from them, where a constant column becomes zero."""
        return Shift(self.columns, np.where(deviations[self.columns] > 0, self.means, np.nan))

    def stats(self, stats: Stats, deviations: FloatArray, n: int) -> Stats:
        """Return the statistics of the matrix less the shift, from its own."""
        sums, squares, nnz = (of_column.copy() for of_column in stats)
        varies = deviations[self.columns] > 0
        sums[self.columns] = np.where(varies, self.sums, 0)
        squares[self.columns] = np.where(varies, self.sums_of_squares, 0)
        nnz[self.columns] = np.where(varies, n, 0)
        return Stats(sums, squares, nnz)


def compute_deviations(stats: Stats, n: int, far: FarColumns) -> FloatArray:
    """Return Σ(x − x̄)² of each column, and 0 for a constant one."""
    means = stats.sums / n
    deviations = stats.sums_of_squares - stats.sums**2 / n
    deviations[far.columns] = far.sums_of_squares - far.sums**2 / n
    deviations[variance_or_zero(deviations / n, means, n) == 0] = 0
    return deviations


def shifted_sums(X: Any, shift: FloatArray) -> FloatArray:
    """Return Σ(x − s) and Σ(x − s)² of each column (2 × d). One pass."""
    if X.column_tiles:
        return np.concatenate(X.map(tiles.shifted_sums, 1, split=[shift]), axis=1)
    return np.asarray(X.sum(tiles.shifted_sums, 0, shift))


def scale_ratios(stats: Stats, deviations: FloatArray, n: int) -> FloatArray:
    """Return the standard deviation of each measured column over the median one, 0 for the others.

    A column is measured if some value is neither 0 nor 1 and most samples have a value there. The
    rest are words, counts of rare things and categories, which have no unit to choose. In a table
    (`is_table`) the mostly empty columns of numbers are measured too, such as the gain of a sale.
    """
    measured = _numbers(stats, deviations)
    if not is_table(stats, deviations, n):
        measured &= 2 * stats.nnz > n
    ratios = np.zeros(len(deviations))
    if measured.any():
        scales = np.sqrt(deviations[measured])
        ratios[measured] = scales / np.sort(scales)[(len(scales) - 1) // 2]
    return ratios


def is_table(stats: Stats, deviations: FloatArray, n: int) -> bool:
    """Return whether most samples have a value in most columns of numbers other than 0 and 1."""
    numbers = _numbers(stats, deviations)
    return bool(2 * np.sum(2 * stats.nnz[numbers] > n) > numbers.sum())


def _numbers(stats: Stats, deviations: FloatArray) -> BoolArray:
    """Return the mask of the columns that vary and have a value other than 0 and 1."""
    is_zero_or_one = (stats.sums == stats.nnz) & (stats.sums_of_squares == stats.nnz)
    return np.asarray(~is_zero_or_one & (deviations > 0))


def scale_hint(X: Any) -> str | None:
    """Return a sentence on the columns whose scale is far above the others', None without any."""
    ratios, names = scale_ratios(X.stats, X.deviations, X.shape[0]), X.feature_names
    far = np.flatnonzero(ratios > FAR_SCALE)
    if not len(far):
        return None
    far = far[np.argsort(-ratios[far], kind="stable")]
    shown = far[:SHOWN]
    labels = [f"x{j}" for j in shown] if names is None else [str(name) for name in names[shown]]
    more = f" and {len(far) - SHOWN:,} more" if len(far) > SHOWN else ""
    return (
        f"{UNEQUAL_SCALES}: the deviation of {', '.join(labels)}{more} is up to "
        f"{ratios[far[0]]:,.0f} times the median one, and most methods follow the largest: "
        "standardize the columns (StandardScaler, or --scale standard)"
    )


def standardize(X: Any) -> Any:
    """Return a table in several units with its measured columns divided by their deviations.

    It is None where X is no table, or its largest deviation is at most ten times the median one.
    """
    n, ratios = X.shape[0], scale_ratios(X.stats, X.deviations, X.shape[0])
    if not (ratios > FAR_SCALE).any() or not is_table(X.stats, X.deviations, n):
        return None
    factors = np.where(ratios > 0, np.sqrt(X.deviations / n), 1)
    if X.local:
        return X.from_array(_divided(X.rows(np.arange(n)), factors), feature_names=X.feature_names)
    rows = X.to_dask().map_blocks(_divided, factors, dtype=np.float64, meta=X.meta)
    matrix = X.from_dask(rows)
    matrix.feature_names = X.feature_names
    return matrix


def _divided(block: Any, factors: FloatArray) -> Any:
    if sp.issparse(block):
        return sp.csr_array(block.multiply(1 / factors))
    return block / factors
