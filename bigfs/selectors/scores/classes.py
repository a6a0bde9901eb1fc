"""Scores of one feature at a time from its sums per class: Fisher, ANOVA, χ² and t.

    SSB_j = Σ_c n_c (x̄_cj − x̄_j)²      between classes
    SSW_j = Σ_i x_ij² − Σ_c n_c x̄_cj²   within classes

    Fisher score = SSB / SSW
    ANOVA F      = (SSB/(c−1)) / (SSW/(n−c))
    χ²           = Σ_c (O_c − E_c)² / E_c
    t            = |x̄_1j − x̄_2j| / √(s²_1j/n_1 + s²_2j/n_2)      two classes

The scores of Fisher and ANOVA differ by a constant factor, so they rank alike. All scores take one
pass over X, or none where the store has the sums.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import field
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import chdtrc, stdtr
from sklearn.utils import ClassifierTags

from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import NEGATIVE, column_blocks, column_sums, near_sums
from bigfs.rounding import unless_rounding
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.labels import Labels, at_least_two
from bigfs.selectors.scores.pvalues import SignificanceSelector, f_p_values
from bigfs.selectors.scores.sums import (
    Totals,
    WeightedSelector,
    between_and_within,
    class_totals,
    ratio,
)
from bigfs.settings import Setting
from bigfs.types import FloatArray

LABELS_PER_PASS = Setting(64)  # of several labels per sample
NO_LABEL = "y must hold a label that some samples have and others do not"


class ClassSumsSelector(WeightedSelector):
    """Scores each column by its class sums. Unlabeled samples are left out."""

    _squares_by_class = False  # whether `_score` gets Σ x² per class
    _degrees: Any = field(init=False, default=None)  # of freedom, of all columns or of each

    def _score_samples(self, X: Matrix, y: Any, weights: FloatArray | None) -> None:
        y, scores, degrees = self._require_classes(y), [], []
        for block in column_blocks(X, len(y.classes)):
            super()._score_samples(block, y, weights)
            scores.append(self.scores_)
            degrees.append(self._degrees)
        self.scores_, self._degrees = np.concatenate(scores), degrees[0]
        if isinstance(self._degrees, np.ndarray):  # of each column
            self._degrees = np.concatenate(degrees)

    def _sum(self, X: Matrix, y: Any, weights: FloatArray | None) -> Totals:
        if not isinstance(y, Labels):
            raise ValueError("partial_fit takes one class per sample: use fit for several labels")
        kinds = {"by_class": self._squares_by_class, "non_negative": self._non_negative}
        return class_totals(X, y, weights, **kinds)

    def _has_scores(self, totals: Totals) -> bool:
        return len(totals.classes) > 1

    def _score_totals(self, totals: Totals) -> None:
        self._require_classes(Labels(totals.classes, np.empty(0, dtype=np.int64)))
        squares = totals.squares if self._squares_by_class else totals.squares.sum(axis=1)
        self.scores_ = self._score(totals.sums, squares, totals.sizes)

    def _require_classes(self, y: Labels) -> Labels:
        return at_least_two(y)

    @abstractmethod
    def _score(self, sums: FloatArray, squares: FloatArray, sizes: FloatArray) -> FloatArray:
        """Return the scores from Σ_{i∈c} x_ij (d × c), Σ_i x_ij² (d,) and n_c (c,)."""


class Fisher(ClassSumsSelector):
    """Score each feature by its variance between classes over that within classes.

    The score is infinite for a feature that is constant within each class and differs between
    classes. It ranks features as `ANOVA` does. Unlabeled samples are left out.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Fisher score of each feature. Larger is better.
    %(passes)s

    See Also
    --------
    ANOVA : The same ranking, as F statistics.
    Chi2 : The χ² statistic of non-negative features.
    SparGE : Choose features together instead of one at a time.

    Notes
    -----
    With n_c samples of mean x̄_c in class c, the score of a feature is::

        Σ_c n_c (x̄_c − x̄)² / (Σ_i x_i² − Σ_c n_c x̄_c²)

    It needs one pass over X, or none over a store, which holds the sums per class.

    Examples
    --------
    %(iris)s
    >>> from bigfs import Fisher
    >>> selector = Fisher(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 3])
    >>> selector.transform(X).shape
    (150, 2)
    """

    _cost = Cost("0", "d c")

    def _score(self, sums: FloatArray, squares: FloatArray, sizes: FloatArray) -> FloatArray:
        between, within = between_and_within(sums, squares, sizes)
        return ratio(between, within)


class LabelSetsSelector(SignificanceSelector, ClassSumsSelector):
    """Scores each column by its class sums, or by their mean over several labels per sample."""

    _takes_sets = True

    def _score_samples(self, X: Matrix, y: Any, weights: FloatArray | None) -> None:
        self._label_p_values = None
        if isinstance(y, Labels):
            super()._score_samples(X, y, weights)
        else:
            self._score_label_sets(X, y, np.ones(X.shape[0]) if weights is None else weights)

    def _score_totals(self, totals: Totals) -> None:
        self._label_p_values = None
        super()._score_totals(totals)

    def _score_label_sets(self, X: Matrix, Y: sp.csr_array, w: FloatArray) -> None:
        """Set the mean of the scores of the labels, each against the rest, and the least of their
        p-values times their number."""
        counts = Y.T @ w
        labels = np.flatnonzero((counts > 0) & (counts < w.sum()))
        if not len(labels):
            raise ValueError(NO_LABEL)
        parts = [
            self._score_labels(block, Y[:, labels], w, counts[labels])
            for block in column_blocks(X, min(len(labels), LABELS_PER_PASS.value))
        ]
        scores, least = (np.concatenate(part) for part in zip(*parts, strict=True))
        self.scores_ = scores / len(labels)
        self._label_p_values = np.minimum(least * len(labels), 1)

    def _score_labels(
        self, X: Matrix, Y: sp.csr_array, w: FloatArray, counts: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the sum over the labels of the scores, and the least of their p-values."""
        n, total, least = w.sum(), np.zeros(X.shape[1]), np.ones(X.shape[1])
        for first in range(0, Y.shape[1], LABELS_PER_PASS.value):
            part = slice(first, first + LABELS_PER_PASS.value)
            dense = np.column_stack([Y[:, part].toarray() * w[:, None], w])
            if self._non_negative:
                sums = column_sums(X, dense, w[:, None], non_negative=True)
            else:
                sums, _ = near_sums(X, dense, w[:, None], slice(-1, None))
            for k, size in enumerate(counts[part]):
                two = np.column_stack([sums[:, k], sums[:, -2] - sums[:, k]])
                self.scores_ = self._score(two, sums[:, -1], np.array([size, n - size]))
                total += self.scores_
                least = np.minimum(least, self._p_values())
        return total, least


class ANOVA(LabelSetsSelector):
    """Score each feature by the F statistic of a one-way analysis of variance.

    The scores equal `sklearn.feature_selection.f_classif`. A feature that is constant within
    each class and differs between classes scores infinity. Unlabeled samples are left
    out. With several labels per sample, the score is the mean of the F statistics of the labels
    [1]_.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        F statistic of each feature. Larger is better.
    pvalues_ : ndarray of shape (n_features,)
        P-value of each feature, of the F distribution. With several labels per sample it is the
        least one of the labels times their number (Bonferroni), and at most 1. NaN where there are
        not more samples than classes.
    %(passes)s

    See Also
    --------
    Fisher : The same ranking, without the degrees of freedom.
    Chi2 : The χ² statistic of non-negative features.
    SparGE : Choose features together instead of one at a time.

    Notes
    -----
    With n samples in c classes, F is (n − c)/(c − 1) times the Fisher score. It needs one pass over
    X, or none over a store, which holds the sums per class. For several labels per sample, y is an
    indicator of shape (n_samples, n_labels). A label that all samples have, or none, does not
    count, and 64 labels take a pass.

    References
    ----------
    .. [1] N. Spolaôr, E. A. Cherman, M. C. Monard and H. D. Lee, "A comparison of multi-label
       feature selection methods using the problem transformation approach", Electronic Notes in
       Theoretical Computer Science, 2013.

    Examples
    --------
    %(iris)s
    >>> from bigfs import ANOVA
    >>> selector = ANOVA(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 3])
    >>> selector.scores_.round(1)
    array([ 119.3,   49.2, 1180.2,  960. ])
    """

    _cost = Cost("0", "d c")

    def _score(self, sums: FloatArray, squares: FloatArray, sizes: FloatArray) -> FloatArray:
        between, within = between_and_within(sums, squares, sizes)
        n, c = sizes.sum(), len(sizes)
        self._degrees = c - 1, n - c
        return ratio(between / (c - 1), within / max(n - c, 1))

    def _p_values(self) -> FloatArray:
        between, within = self._degrees
        return f_p_values(between, within, self.scores_)


class Chi2(LabelSetsSelector):
    """Score each non-negative feature by its χ² statistic with the class.

    The scores equal `sklearn.feature_selection.chi2`. Negative values are refused. Unlabeled
    samples are left out. With several labels per sample, the score is the mean of the statistics of
    the labels [1]_.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        The χ² statistic of each feature. Larger is better.
    pvalues_ : ndarray of shape (n_features,)
        P-value of each feature, of the χ² distribution. With several labels per sample it is the
        least one of the labels times their number (Bonferroni), and at most 1.
    %(passes)s

    See Also
    --------
    ANOVA : The F statistic, which takes negative values too.
    Fisher : The variance between classes over that within classes.
    SparGE : Choose features together instead of one at a time.

    Notes
    -----
    With O_c the sum of the feature in class c, and E_c its total times the share of class c among
    the samples, the score is::

        Σ_c (O_c − E_c)² / E_c

    It needs one pass over X, which looks for negative values, or none over a store that knows its
    smallest values. Several labels per sample are an indicator of shape (n_samples, n_labels), as
    for `ANOVA`.

    References
    ----------
    .. [1] Y. Yang and J. O. Pedersen, "A comparative study on feature selection in text
       categorization", ICML 1997.

    Examples
    --------
    %(iris)s
    >>> from bigfs import Chi2
    >>> selector = Chi2(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 3])
    >>> selector.scores_.round(1)
    array([ 10.8,   3.7, 116.3,  67. ])
    """

    _cost = Cost("1", "d c")  # for the least value of each column
    _non_negative = True

    def _score(self, sums: FloatArray, squares: FloatArray, sizes: FloatArray) -> FloatArray:
        if sums.min() < 0:
            raise ValueError(NEGATIVE)
        self._degrees = len(sizes) - 1
        expected = np.outer(sums.sum(axis=1), sizes / sizes.sum())
        return np.sum((sums - expected) ** 2 / np.where(expected > 0, expected, 1), axis=1)

    def _p_values(self) -> FloatArray:
        return np.asarray(chdtrc(self._degrees, self.scores_))


class TScore(SignificanceSelector, ClassSumsSelector):
    """Score each feature by Welch's t statistic between two classes.

    The score is the absolute value of t. It is infinite for a feature that is constant within each
    class and differs between the classes. Unlabeled samples are left out.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Absolute value of t of each feature. Larger is better.
    pvalues_ : ndarray of shape (n_features,)
        P-value of each feature, of the two-sided test.
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
    %(iris)s
    >>> from bigfs import TScore
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
