"""Properties of a selection: the classes of its features and their redundancy."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.evaluation.splits import labeled_rows
from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import ClassWeights, near_sums
from bigfs.matrix.kernels import begin_sum, n_sums, strips
from bigfs.rounding import unless_rounding
from bigfs.types import FloatArray, IntArray


def class_profile(X: Matrix, y: Any, index: IntArray, n_classes: int) -> FloatArray:
    """Return the distance of each class's (or label's) mean of a feature from the mean of all."""
    Y: Any
    if y.ndim == 2:  # a sample counts once among all, and in each of its labels
        ones, everyone = labeled_rows(y)[:, None].astype(np.float64), slice(-1, None)
        Y = sp.csr_array(sp.hstack([y.astype(np.float64), ones]))
        sizes, n = np.asarray(Y.sum(axis=0)).ravel()[:-1], float(ones.sum())
    else:
        ones, everyone, Y = None, slice(None), ClassWeights(y, n_classes)
        sizes, n = Y.sizes, Y.total
    order = np.unique(index)
    taken = copy(X.take_columns(order))  # some columns are not counted as a pass
    sums, _ = near_sums(taken, Y, ones, everyone)
    sums = sums[np.searchsorted(order, index)]
    n = max(n, 1.0)
    means = sums[:, :n_classes] / np.maximum(sizes, 1)
    overall, squares = sums[:, :-1][:, everyone].sum(axis=1) / n, sums[:, -1] / n
    variance = unless_rounding(squares - overall**2, squares)
    return np.asarray(
        (means - overall[:, None]) / np.sqrt(np.where(variance > 0, variance, 1))[:, None]
    )


def class_t(profile: FloatArray, share: float) -> FloatArray:
    """Return Student's t of a class against the rest, over √(n − 2), from its profile and share."""
    r = profile * np.sqrt(share / (1 - share))  # correlation with the indicator of the class
    return r / np.sqrt(np.maximum(1 - r**2, np.finfo(float).eps))


def class_strength(scores: FloatArray, profile: FloatArray) -> FloatArray:
    """Return how typical features are of each class: score × distance above the mean."""
    is_finite = np.isfinite(scores)
    largest = scores[is_finite].max(initial=1.0)
    return np.where(is_finite, scores, largest)[:, None] * np.maximum(profile, 0)


def redundancy_rate(X: Any, index: IntArray | None = None) -> float:
    """Return the mean |correlation| of pairs of columns [Zhao, Wang and Liu, AAAI 2010]."""
    return mean_of_pairs(absolute_correlations(X, index))


def mean_of_pairs(C: FloatArray) -> float:
    """Return the mean of a symmetric C over the pairs of two of its rows, 0 without a pair."""
    m = len(C)
    return float((C.sum() - np.trace(C)) / (m * (m - 1))) if m > 1 else 0.0


def absolute_correlations(X: Any, index: IntArray | None = None) -> FloatArray:
    """Return the |correlations| of columns (m × m), 0 for a constant one, in a pass over the rows.
    The columns of a matrix without tiles of rows are gathered."""
    X = X if isinstance(X, Matrix) else Matrix.from_array(X)
    index = np.arange(X.shape[1]) if index is None else index
    n, m = X.shape[0], len(index)
    engine.require_memory(4 * 8 * m * m, f"the {m} × {m} correlations")
    chosen = X.take_columns(index) if X.row_tiles else Matrix.from_array(X.columns(index))
    near = chosen.near_zero()
    C = near.sum(_gram_of_rows, 0, max_parts=n_sums(8 * m**2))
    C -= n * np.outer(near.means, near.means)
    scale = np.sqrt(np.where(near.deviations > 0, near.deviations, np.inf))
    correlations: FloatArray = np.abs(C / scale[:, None] / scale)
    return correlations


def _gram_of_rows(block: Any, start: int, stop: int, total: FloatArray | None) -> FloatArray:
    """Add ZᵀZ of a block of rows to the total (m × m)."""
    m = block.shape[1]
    total = begin_sum(m, m) if total is None else total
    for _, Z in strips(block):
        Z = Z.astype(np.float64)
        G = Z.T @ Z
        total += G.toarray() if sp.issparse(G) else G
    return total
