"""Scores of one feature at a time from its moments: variance and the F of a regression.

    variance_j   = Σ_i (x_ij − x̄_j)² / n
    F_j          = r_j² / (1 − r_j²) · (n − 2),      r_j = x_jᵀ(y − ȳ) / (‖x_j − x̄_j‖ ‖y − ȳ‖)

The sums are of x − s, with s near the mean where that is far from zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigfs.matrix import Centered, Matrix
from bigfs.matrix.class_sums import near_sums
from bigfs.rounding import unless_rounding, variance_or_zero
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.labels import real_target
from bigfs.selectors.scores.pvalues import SignificanceSelector, f_p_values
from bigfs.selectors.scores.sums import Totals, WeightedSelector, ratio
from bigfs.types import FloatArray

EVERYONE = np.zeros(1, dtype=np.int64)  # the class of all samples
CONSTANT_TARGET = "y is constant: a regression needs a target that varies"


class RegressionTotals(NamedTuple):
    """The sums of a regression on y."""

    x: Totals
    y: Totals  # of y, as one column
    xy: FloatArray  # (d,): Σ w (x − s)(y − t), with the shifts s and t

    def crossed(self, x_shift: FloatArray, y_shift: FloatArray) -> FloatArray:
        """Return `xy` for other shifts."""
        by_x, by_y = self.x.shift - x_shift, self.y.shift - y_shift
        return self.xy + by_x * self.y.sums[:, 0] + by_y * self.x.moved(x_shift).sums[:, 0]

    def plus(self, other: RegressionTotals) -> RegressionTotals:
        """Return the sums of these samples and others."""
        x, y = self.x.plus(other.x), self.y.plus(other.y)
        one, two = (part.crossed(x.shift, y.shift) for part in (self, other))
        return RegressionTotals(x, y, one + two)


class Variance(WeightedSelector):
    """Score each feature by its variance.

    It is unsupervised, and depends on the scale of a feature.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Variance of each feature. Larger is better.
    %(passes)s

    See Also
    --------
    LaplacianScore : Agreement between neighbors, relative to the variance.

    Notes
    -----
    The scores are the variances of `sklearn.feature_selection.VarianceThreshold`. They need one
    pass over X, or none over a store, which holds the column statistics.

    Examples
    --------
    %(iris)s
    >>> from bigfs import Variance
    >>> selector = Variance(n_features_to_select=2).fit(X)
    >>> selector.selected_
    array([2, 0])
    >>> selector.scores_.round(2)
    array([0.68, 0.19, 3.1 , 0.58])
    """

    _cost = Cost("0", "d")
    _ignores_y = True

    def _score_samples(self, X: Matrix, y: Any, weights: FloatArray | None) -> None:
        if weights is None:
            self.scores_ = X.deviations / X.shape[0]
        else:
            super()._score_samples(X, y, weights)

    def _sum(self, X: Matrix, y: Any, weights: FloatArray | None) -> Totals:
        w = np.ones(X.shape[0]) if weights is None else weights
        sums, shift = near_sums(X, w[:, None], w[:, None], slice(None))
        return Totals(EVERYONE, sums[:, :1], sums[:, 1:], w.sum(keepdims=True), shift)

    def _score_totals(self, totals: Totals) -> None:
        self.scores_ = totals.deviations / totals.sizes.sum()


class FRegression(SignificanceSelector, WeightedSelector):
    """Score each feature by the F statistic of its linear regression on a real target.

    The scores equal `sklearn.feature_selection.f_regression`, and rank features as the
    absolute value of Pearson's correlation with the target does. The score is infinite for a
    feature that explains the target completely, and zero for a constant one.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        F statistic of each feature. Larger is better.
    pvalues_ : ndarray of shape (n_features,)
        P-value of each feature, of the F distribution.
    %(passes)s

    See Also
    --------
    ANOVA : The F statistic of classes.
    SparGE : With `embedding="cca"`, choose features for real targets together.

    Notes
    -----
    With r the correlation of a feature and the target over n samples, the score is::

        r² / (1 − r²) · (n − 2)

    It needs one pass over X, and one for the column statistics where X does not bring them.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from bigfs import FRegression
    >>> X, y = load_diabetes(return_X_y=True)
    >>> selector = FRegression(n_features_to_select=3).fit(X, y)
    >>> selector.selected_
    array([2, 8, 3])
    >>> selector.scores_[selector.selected_].round(1)
    array([230.7, 207.3, 106.5])
    """

    _cost = Cost("1", "d", by_rows="2")

    def _check_y(self, y: Any, has_unlabeled: bool) -> FloatArray:
        return real_target(y)

    def _score_samples(self, X: Matrix, y: FloatArray, weights: FloatArray | None) -> None:
        if weights is None:
            self.scores_ = regression_f(X, y)
            self._degrees = X.shape[0] - 2.0
            return
        totals = self._sum(X, y, weights)
        if not self._has_scores(totals):
            raise ValueError(CONSTANT_TARGET)
        self._score_totals(totals)

    def _sum(self, X: Matrix, y: FloatArray, weights: FloatArray | None) -> RegressionTotals:
        w = np.ones(len(y)) if weights is None else weights
        n, mean = w.sum(keepdims=True), np.average(y, weights=w, keepdims=True)
        r = y - mean
        sums, shift = near_sums(X, np.column_stack([w * r, w]), w[:, None], slice(1, None))
        of_y = Totals(EVERYONE, np.array([[w @ r]]), np.array([[w @ r**2]]), n, mean)
        return RegressionTotals(
            Totals(EVERYONE, sums[:, 1:2], sums[:, 2:], n, shift), of_y, sums[:, 0]
        )

    def _has_scores(self, totals: RegressionTotals) -> bool:
        return bool(totals.y.deviations[0] > 0)

    def _score_totals(self, totals: RegressionTotals) -> None:
        x, y, n = totals.x, totals.y, float(totals.x.sizes.sum())
        xy = (totals.xy - x.sums[:, 0] * y.sums[:, 0] / n) / np.sqrt(y.deviations)
        self.scores_ = f_of_sums(x.deviations, xy, n)
        self._degrees = n - 2

    def _p_values(self) -> FloatArray:
        return f_p_values(1, self._degrees, self.scores_)


def regression_f(X: Matrix, y: FloatArray) -> FloatArray:
    """Return the F statistic of each column's regression on y (n,)."""
    n, mean = len(y), float(y.mean())
    residual = y - mean
    yy = float(residual @ residual)
    if not variance_or_zero(yy / n, mean, n):
        raise ValueError(CONSTANT_TARGET)
    return f_of_sums(X.deviations, Centered(X).rmatmul(residual / np.sqrt(yy)), n)


def f_of_sums(xx: FloatArray, xy: FloatArray, n: float) -> FloatArray:
    """Return F from Σ (x − x̄)² and Σ (x − x̄)(y − ȳ) / ‖y − ȳ‖ of each column."""
    explained = ratio(xy**2, xx)  # r², ∞ only where xx is zero
    explained = np.where(xx > 0, np.minimum(explained, 1), 0)
    return ratio(explained * max(n - 2, 1), unless_rounding(1 - explained, 1))
