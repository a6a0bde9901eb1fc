"""What is zero but for rounding: one rule for the whole package.

A column of n samples with mean μ and variance σ² is constant where σ² ≤ nεσ² + (nμε)², with ε the
spacing of double precision at 1 [scikit-learn, `_is_constant_feature`].

Σ(x − x̄)² = Σx² − (Σx)²/n has lost 2k digits where the mean is 10ᵏ standard deviations. From 100 on
a column is *far from zero*, and its sums are made again from x − s, with s near its mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs.types import BoolArray, FloatArray, IntArray

EPSILON = float(np.finfo(np.float64).eps)
ROUNDING = 1e-12  # share of its terms below which a difference is rounding
FAR = 1e-4  # a column is far from zero if Σ(x − x̄)² is below this share of Σx²


def unless_rounding(value: Any, terms: Any) -> FloatArray:
    """Return the values, with 0 for what is only rounding of a difference of such terms."""
    return np.where(value > ROUNDING * terms, value, 0)


def variance_or_zero(variances: Any, means: Any, n: int) -> FloatArray:
    """Return the variances of columns of n samples, with 0 for a constant column."""
    varies = variances > n * EPSILON * variances + (n * means * EPSILON) ** 2
    return np.where(varies, variances, 0)


def far_from_zero(sums: Any, squares: Any, n: float) -> BoolArray:
    """Return the mask of the columns whose Σx and Σx² have lost digits of the variance."""
    return np.asarray((squares - sums**2 / max(n, EPSILON) <= FAR * squares) & (squares > 0))


def near_zero(block: Any, included: BoolArray | None = None) -> tuple[Any, IntArray, FloatArray]:
    """Subtract their mean from the columns that are far from zero. A constant one becomes zero."""
    n = block.shape[0] if included is None else int(included.sum())
    Z = sp.csc_array(block) if sp.issparse(block) else block
    sums, squares = _sums(Z)
    far = np.flatnonzero(far_from_zero(sums, squares, n))
    means = sums[far] / max(n, 1)
    if not len(far):
        return block, far, means
    part = Z[:, far].toarray() if sp.issparse(Z) else Z[:, far]  # a sparse one is all but dense
    part = part.astype(np.float64) - means
    if included is not None:
        part[~included] = 0
    sums, squares = _sums(part)
    part[:, variance_or_zero((squares - sums**2 / n) / n, means, n) == 0] = 0
    if not sp.issparse(Z):
        near = Z.astype(np.float64)
        near[:, far] = part
        return near, far, means
    others = np.setdiff1d(np.arange(Z.shape[1]), far)
    near = sp.csc_array(sp.hstack([Z[:, others], sp.csc_array(part)], format="csc"))
    return near[:, np.argsort(np.append(others, far))], far, means


def _sums(Z: Any) -> tuple[FloatArray, FloatArray]:
    """Return Σx and Σx² of each column."""
    if not sp.issparse(Z):
        Z = np.asarray(Z, dtype=np.float64)
        return Z.sum(axis=0), np.einsum("ij,ij->j", Z, Z)
    values, column = Z.data.astype(np.float64), np.repeat(np.arange(Z.shape[1]), np.diff(Z.indptr))
    sums: FloatArray = np.bincount(column, values, Z.shape[1]).astype(np.float64)
    squares: FloatArray = np.bincount(column, values**2, Z.shape[1]).astype(np.float64)
    return sums, squares
