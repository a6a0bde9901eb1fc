"""Zero but for rounding: one rule for the whole package.

A column of n samples with mean μ and variance σ² is constant where σ² ≤ nεσ² + (nμε)², with ε the
spacing of double precision at 1 [scikit-learn, `_is_constant_feature`].

Σ(x − x̄)² = Σx² − (Σx)²/n has lost 2k digits where the mean is 10ᵏ standard deviations. From 100 on
a column is *far from zero*, and its sums are made again from x − s, with s near its mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigfs.types import BoolArray, FloatArray

EPSILON = float(np.finfo(np.float64).eps)
ROUNDING = 1e-12  # share of its terms below which a difference is rounding
FAR = 1e-4  # a column is far from zero if Σ(x − x̄)² is below this share of Σx²


def unless_rounding(value: Any, terms: Any) -> FloatArray:
    """Return the values, with 0 where a value is only rounding of a difference of such terms."""
    return np.where(value > ROUNDING * terms, value, 0)


def variance_or_zero(variances: Any, means: Any, n: int) -> FloatArray:
    """Return the variances of columns of n samples, with 0 for a constant column."""
    varies = variances > n * EPSILON * variances + (n * means * EPSILON) ** 2
    return np.where(varies, variances, 0)


def far_from_zero(sums: Any, squares: Any, n: float) -> BoolArray:
    """Return the mask of the columns whose Σx and Σx² have lost digits of the variance."""
    return np.asarray((squares - sums**2 / max(n, EPSILON) <= FAR * squares) & (squares > 0))
