"""Momentum of reweighted rounds. They multiply their weights, so the logarithms have momentum."""

from __future__ import annotations

import numpy as np

from bigfs.types import FloatArray

MAX_MOMENTUM = 0.95
MAX_GROWTH = 100.0  # factor by which a step goes beyond the end of a round


def next_momentum(age: float) -> tuple[float, float]:
    """Return Nesterov's momentum β of a round, and the age of the next one. The first age is 1."""
    following = (1 + np.sqrt(1 + 4 * age**2)) / 2
    return min((age - 1) / following, MAX_MOMENTUM), float(following)


def extrapolate(weights: FloatArray, before: FloatArray, momentum: float) -> FloatArray:
    """Return w (w / w_before)^β, and w where one of the two is zero."""
    both = (weights > 0) & (before > 0)
    growth = np.divide(weights, before, out=np.ones_like(weights), where=both) ** momentum
    return np.asarray(weights * np.minimum(growth, MAX_GROWTH))
