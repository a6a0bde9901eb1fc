"""Scores of one feature at a time from its moments: variance, Welch's t and the F of a regression.

    variance_j   = Σ_i (x_ij − x̄_j)² / n
    t_j          = |x̄_1j − x̄_2j| / √(s²_1j/n_1 + s²_2j/n_2)      s²_c: unbiased variance in class c
    F_j          = r_j² / (1 − r_j²) · (n − 2),      r_j = x_jᵀ(y − ȳ) / (‖x_j − x̄_j‖ ‖y − ȳ‖)

The sums are those of x − s, with s near the mean where that is far from zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr
from sklearn.utils import ClassifierTags, column_or_1d

from bigfs.linalg.rounding import unless_rounding, variance_or_zero
from bigfs.matrix import Centered, Matrix
from bigfs.result import Result, Status
from bigfs.selectors.base.estimator import Cost, Labels, at_least_two
from bigfs.selectors.scores.classes import ClassSumsSelector, f_p_values, ratio
from bigfs.selectors.scores.pvalues import SignificanceSelector
from bigfs.selectors.scores.sums import WeightedSelector, column_sums, shift_far_columns
from bigfs.types import FloatArray
from bigfs.validation import require_magnitude

CONSTANT_TARGET = "y is constant: a regression needs a target that varies"


class Moments(NamedTuple):
    """The sums of a variance."""

    n: float  # Σ w
    sums: FloatArray  # (d,): Σ w (x − s)
    squares: FloatArray  # (d,): Σ w (x − s)²
    shift: FloatArray  # (d,): s, the mean of a column far from zero, and 0 of another
    n_samples: int

    @property
    def has_scores(self) -> bool:
        """Whether there are scores: always."""
        return True

    @property
    def deviations(self) -> FloatArray:
        """Σ w (x − x̄)² of each column, and 0 of a constant one."""
        deviations, means = self.squares - self.sums**2 / self.n, self.shift + self.sums / self.n
        varies = variance_or_zero(deviations / self.n, means, self.n_samples) > 0
        return np.where(varies, deviations, 0)

    def moved(self, shift: FloatArray) -> Moments:
        """Return the sums with another shift."""
        by = self.shift - shift  # x − s' = (x − s) + (s − s')
        squares = self.squares + 2 * by * self.sums + by**2 * self.n
        return self._replace(sums=self.sums + by * self.n, squares=squares, shift=shift)

    def plus(self, other: Moments) -> Moments:
        """Return the sums of these samples and others."""
        shift = np.where(self.shift == 0, other.shift, self.shift)
        one, two = self.moved(shift), other.moved(shift)
        return Moments(
            one.n + two.n,
            one.sums + two.sums,
            one.squares + two.squares,
            shift,
            one.n_samples + two.n_samples,
        )


class RegressionTotals(NamedTuple):
    """The sums of a regression on y, which is shifted so that its sums are small."""

    y_shift: float
    y: float  # Σ w (y − y_shift)
    yy: float  # Σ w (y − y_shift)²
    xy: FloatArray  # (d,): Σ w (x − s)(y − y_shift)
    x: Moments

    @property
    def has_scores(self) -> bool:
        """Whether y varies."""
        return bool(unless_rounding(self.yy - self.y**2 / self.x.n, self.yy) > 0)

    def moved(self, y_shift: float, shift: FloatArray) -> RegressionTotals:
        """Return the sums for other shifts."""
        by, x = self.y_shift - y_shift, self.x.moved(shift)
        y = self.y + by * x.n
        yy = self.yy + 2 * by * self.y + by**2 * x.n
        xy = self.xy + (self.x.shift - shift) * self.y + by * x.sums
        return RegressionTotals(y_shift, y, yy, xy, x)

    def plus(self, other: RegressionTotals) -> RegressionTotals:
        """Return the sums of these samples and others."""
        x = self.x.plus(other.x)
        one, two = (part.moved(self.y_shift, x.shift) for part in (self, other))
        return RegressionTotals(self.y_shift, one.y + two.y, one.yy + two.yy, one.xy + two.xy, x)


class Variance(WeightedSelector):
    """Score each feature by its variance.

    It is unsupervised, and depends on the scale of a feature.

    Parameters
    ----------
    %(select)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Variance of each feature. Larger is better.
    %(selected)s
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
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import Variance
    >>> X, _ = load_iris(return_X_y=True)
    >>> selector = Variance(n_features_to_select=2).fit(X)
    >>> selector.selected_
    array([2, 0])
    >>> selector.scores_.round(2)
    array([0.68, 0.19, 3.1 , 0.58])
    """

    _cost = Cost("0", "d")
    _supervised = False
    _ignores_y = True

    def _fit(self, X: Matrix, y: Any, weights: FloatArray | None = None) -> None:
        before = X.passes
        if weights is None:
            self.scores_ = X.deviations / X.shape[0]
        else:
            self._score_totals(self._sum(X, y, weights))
        self.result_ = Result(self.scores_, Status.EXACT, stats={"passes": X.passes - before})

    def _sum(self, X: Matrix, y: Any, weights: FloatArray | None) -> Moments:
        w = np.ones(X.shape[0]) if weights is None else weights
        return weighted_moments(X, w[:, None])[1]

    def _score_totals(self, totals: Moments) -> None:
        self.scores_ = totals.deviations / totals.n


class TScore(SignificanceSelector, ClassSumsSelector):
    """Score each feature by Welch's t statistic between two classes.

    The score is the absolute value of t. It is infinite for a feature that is constant within each
    class and differs between the classes. Unlabeled samples are left out.

    Parameters
    ----------
    %(select)s
    %(significance)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Absolute value of t of each feature. Larger is better.
    pvalues_ : ndarray of shape (n_features,)
        P-value of each feature, of the two-sided test.
    %(selected)s
    %(passes)s

    See Also
    --------
    ANOVA : The F statistic, for any number of classes.

    Notes
    -----
    With n_c samples of mean x̄_c and unbiased variance s²_c in class c, the score of a feature is::

        |x̄_1 − x̄_2| / √(s²_1/n_1 + s²_2/n_2)

    It is the statistic of `scipy.stats.ttest_ind` with ``equal_var=False``. A class of one sample
    counts as one without variance. The score needs one pass over X, or none over a store, which
    holds the sums per class.

    References
    ----------
    .. [1] Welch, "The generalization of 'Student's' problem when several different population
       variances are involved", Biometrika 34, 1947.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import TScore
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = TScore(n_features_to_select=2).fit(X[50:], y[50:])
    >>> selector.selected_
    array([3, 2])
    >>> selector.scores_.round(1)
    array([ 5.6,  3.2, 12.6, 14.6])
    """

    _cost = Cost("0", "d")
    _squares_by_class = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags(multi_class=False)
        return tags

    def _require_classes(self, y: Labels) -> Labels:
        if len(at_least_two(y).classes) > 2:
            raise ValueError(
                f"the t score compares two classes, but y holds {len(y.classes)}: "
                f"use ANOVA (anova) for more than two"
            )
        return y

    def _score(self, sums: FloatArray, squares: FloatArray, sizes: FloatArray) -> FloatArray:
        means = sums / sizes
        within = unless_rounding(squares - sums * means, squares)
        errors = within / (sizes * np.maximum(sizes - 1, 1))  # s²_c / n_c
        variance = errors.sum(axis=1)
        welch = (errors**2 / np.maximum(sizes - 1, 1)).sum(axis=1)
        one = np.full(len(welch), 1.0 if sizes.max() > 1 else np.nan)
        self._degrees = np.divide(variance**2, welch, out=one, where=welch > 0)
        difference = np.abs(means[:, 0] - means[:, 1])
        difference = unless_rounding(difference, np.abs(means).max(axis=1))
        return ratio(difference, np.sqrt(variance))

    def _p_values(self) -> FloatArray:
        return np.asarray(2 * stdtr(self._degrees, -self.scores_))


class FRegression(SignificanceSelector, WeightedSelector):
    """Score each feature by the F statistic of its linear regression on a real target.

    The scores are those of `sklearn.feature_selection.f_regression`, and rank features as the
    absolute value of Pearson's correlation with the target does. The score is infinite for a
    feature that explains the target completely, and zero for a constant one.

    Parameters
    ----------
    %(select)s
    %(significance)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        F statistic of each feature. Larger is better.
    pvalues_ : ndarray of shape (n_features,)
        P-value of each feature, of the F distribution.
    %(selected)s
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

    _cost = Cost("1", "d")

    def _check_y(self, y: Any) -> FloatArray:
        """Return the target, one number per sample."""
        return real_target(y)

    def _fit(self, X: Matrix, y: FloatArray, weights: FloatArray | None = None) -> None:
        before = X.passes
        if weights is None:
            self.scores_ = regression_f(X, y)
            self._degrees = X.shape[0] - 2.0
        else:
            totals = self._sum(X, y, weights)
            if not totals.has_scores:
                raise ValueError(CONSTANT_TARGET)
            self._score_totals(totals)
        self.result_ = Result(self.scores_, Status.EXACT, stats={"passes": X.passes - before})

    def _sum(self, X: Matrix, y: FloatArray, weights: FloatArray | None) -> RegressionTotals:
        w = np.ones(len(y)) if weights is None else weights
        y_shift = float(w @ y) / float(w.sum())
        residual = y - y_shift
        xy, x = weighted_moments(X, np.column_stack([w * residual, w]))
        return RegressionTotals(y_shift, float(w @ residual), float(w @ residual**2), xy[:, 0], x)

    def _score_totals(self, totals: RegressionTotals) -> None:
        x, y, n = totals.x, totals.y, totals.x.n
        xy = (totals.xy - x.sums * y / n) / np.sqrt(totals.yy - y**2 / n)
        self.scores_ = f_of_sums(x.deviations, xy, n)
        self._degrees = n - 2

    def _p_values(self) -> FloatArray:
        return f_p_values(1, self._degrees, self.scores_)


def real_target(y: Any) -> FloatArray:
    """Return y as one real number per sample, or refuse it."""
    y = y.toarray() if hasattr(y, "toarray") else y
    target: FloatArray = column_or_1d(y, dtype=np.float64, warn=True)
    return target


def weighted_moments(X: Matrix, Y: FloatArray) -> tuple[FloatArray, Moments]:
    """Return the sums of X weighted by Y, and its moments, weighted by the last column of Y."""
    weights = Y[:, -1:]
    n = float(weights.sum())
    sums = column_sums(X, Y, weights)
    require_magnitude(sums[:, -1], sums[:, -1] > 0)
    shift = shift_far_columns(X, Y, weights, sums, sums[:, -2], n)
    return sums, Moments(n, sums[:, -2], sums[:, -1], shift, X.shape[0])


def regression_f(X: Matrix, y: FloatArray) -> FloatArray:
    """Return the F statistic of each column's regression on y (n,)."""
    n, mean = len(y), float(y.mean())
    residual = y - mean
    yy = float(residual @ residual)
    if not variance_or_zero(yy / n, mean, n):
        raise ValueError(CONSTANT_TARGET)
    return f_of_sums(X.deviations, Centered(X, X.means).rmatmul(residual / np.sqrt(yy)), n)


def f_of_sums(xx: FloatArray, xy: FloatArray, n: float) -> FloatArray:
    """Return F from Σ (x − x̄)² and Σ (x − x̄)(y − ȳ) / ‖y − ȳ‖ of each column."""
    explained = ratio(xy**2, xx)  # r², ∞ only where xx is zero
    explained = np.where(xx > 0, np.minimum(explained, 1), 0)
    return ratio(explained * max(n - 2, 1), unless_rounding(1 - explained, 1))
