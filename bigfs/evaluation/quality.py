"""Properties of a selection: the classes of its features, their variance and their redundancy."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.evaluation.splits import labeled_rows
from bigfs.linalg.rounding import unless_rounding
from bigfs.matrix import Centered, Matrix, gram
from bigfs.matrix.class_sums import ClassWeights, near_sums
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
    """Return Student's t of a class against the rest, over √(n − 2), from its `class_profile` and
    its share of the n samples.
    """
    r = profile * np.sqrt(share / (1 - share))  # correlation with the indicator of the class
    return r / np.sqrt(np.maximum(1 - r**2, np.finfo(float).eps))


def class_strength(scores: FloatArray, profile: FloatArray) -> FloatArray:
    """Return how typical features are of each class: score × distance above the mean."""
    is_finite = np.isfinite(scores)
    largest = scores[is_finite].max(initial=1.0)
    return np.where(is_finite, scores, largest)[:, None] * np.maximum(profile, 0)


def explained_variance(X: Any, index: IntArray) -> float:
    """Return 1 − ‖Xc − Xc[:, index] W‖² / ‖Xc‖², W the regression of X on the chosen features."""
    X = X if isinstance(X, Matrix) else Matrix.from_array(X)
    total = float(X.deviations.sum())
    if total <= 0:
        return 1.0
    (n, d), m = X.shape, len(index)
    engine.require_memory(
        8 * (5 * n * m + 5 * m * m + d * m),  # Z, its SVD with what LAPACK takes, and UᵀX
        f"the variance that {len(index)} features explain",
    )
    Z = X.columns(index).toarray().astype(np.float64) - X.means[index]
    U, s, _ = np.linalg.svd(Z, full_matrices=False)
    U = U[:, s > 1e-10 * s.max(initial=0)]
    return float(np.sum((Centered(X, X.means).rmatmul(U)) ** 2)) / total


def redundancy_rate(Z: Any) -> float:
    """Return the mean |correlation| of pairs of columns of Z (Zhao, Wang and Liu, AAAI 2010)."""
    Z = sp.csc_array(Z, dtype=np.float64) if sp.issparse(Z) else np.asarray(Z, dtype=np.float64)
    m = Z.shape[1]
    if m < 2:
        return 0.0
    engine.require_memory(4 * 8 * m * m, f"the {m} × {m} correlations")
    C = gram(Z, np.asarray(Z.mean(axis=0)).ravel())
    deviation = np.sqrt(np.maximum(np.diag(C), 0))
    deviation[deviation == 0] = np.inf  # a constant column
    correlation = np.abs(C / deviation[:, None] / deviation)
    return float((correlation.sum() - np.trace(correlation)) / (m * (m - 1)))
