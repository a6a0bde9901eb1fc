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
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import chdtrc, fdtrc

from bigfs.linalg.rounding import unless_rounding
from bigfs.matrix import Matrix
from bigfs.result import Result, Status
from bigfs.selectors.base.estimator import Cost, Labels, at_least_two, is_minus_one
from bigfs.selectors.scores.pvalues import SignificanceSelector
from bigfs.selectors.scores.sums import (
    WeightedSelector,
    class_indicator,
    class_sums,
    column_sums,
    shift_far_columns,
)
from bigfs.types import AnyArray, FloatArray
from bigfs.validation import require_magnitude

LABELS_PER_PASS = 64  # of several labels per sample
NEGATIVE = "Negative values in data: chi2 needs non-negative features, use anova or fisher"


class ClassTotals(NamedTuple):
    """The sums per class."""

    classes: AnyArray  # (c,), sorted
    sums: FloatArray  # (d, c): Σ (x − s)
    squares: FloatArray  # (d, c), or (d, 1) over all classes: Σ (x − s)²
    sizes: FloatArray  # (c,)
    shift: FloatArray  # (d,): s, the mean of a column far from zero, and 0 of another
    by_class: bool  # whether the squares are

    @property
    def has_scores(self) -> bool:
        """Whether there are two classes."""
        return len(self.classes) > 1

    def plus(self, other: ClassTotals) -> ClassTotals:
        """Return the sums of these samples and others."""
        classes = np.union1d(self.classes, other.classes)
        shift = np.where(self.shift == 0, other.shift, self.shift)
        width = len(classes) if self.by_class else 1
        sums, squares = np.zeros((len(self.sums), len(classes))), np.zeros((len(self.sums), width))
        sizes = np.zeros(len(classes))
        for part in (self.moved(shift), other.moved(shift)):
            index = np.searchsorted(classes, part.classes)
            sums[:, index] += part.sums
            squares[:, index if self.by_class else [0]] += part.squares
            sizes[index] += part.sizes
        return ClassTotals(classes, sums, squares, sizes, shift, self.by_class)

    def moved(self, shift: FloatArray) -> ClassTotals:
        """Return the sums with another shift."""
        by = (self.shift - shift)[:, None]  # x − s' = (x − s) + (s − s')
        if not by.any():
            return self
        more = 2 * by * self.sums + self.sizes * by**2
        more = more if self.by_class else more.sum(axis=1, keepdims=True)
        sums = self.sums + self.sizes * by
        return self._replace(sums=sums, squares=self.squares + more, shift=shift)


class ClassSumsSelector(WeightedSelector):
    """Scores each column by its class sums. Unlabeled samples are left out."""

    _non_negative = False  # whether negative values are refused
    _squares_by_class = False  # whether `_score` gets Σ x² per class

    def _fit(self, X: Matrix, y: Labels, weights: FloatArray | None = None) -> None:
        passes_before = X.passes
        self._score_totals(self._sum(X, self._require_classes(y), weights))
        self.result_: Result[FloatArray] = Result(
            self.scores_, Status.EXACT, stats={"passes": X.passes - passes_before}
        )

    def _sum(self, X: Matrix, y: Labels, weights: FloatArray | None) -> ClassTotals:
        if not isinstance(y, Labels):
            raise ValueError("partial_fit takes one class per sample: use fit for several labels")
        classes, codes = y
        Y = class_indicator(codes, len(classes), weights)
        stored = None  # the sums of a store weigh each sample by 1
        if weights is None and not is_minus_one(classes).any():
            stored = X.class_stats(np.where(codes >= 0, classes[codes], codes))
        sums_of = class_sums
        if self._non_negative:
            sums_of = _non_negative_class_sums
            minima = None if stored is None else stored.minima
            if minima is None:
                stored = None  # a sum does not tell whether a value is negative
            elif minima.min(initial=0) < 0:
                raise ValueError(NEGATIVE)
        if stored is not None:
            squares = stored.sums_of_squares[:, classes]
            sums = np.column_stack([stored.sums[:, classes], self._squares(squares)])
        else:
            sums = column_sums(X, Y, self._squares(Y), sums_of)
        c, sizes = len(classes), np.asarray(Y.sum(axis=0)).ravel()
        require_magnitude(sums[:, c:].sum(axis=1), sums.any(axis=1))
        shift = np.zeros(len(sums))
        if not self._non_negative:  # χ² needs no squares
            total, S = sums[:, :c].sum(axis=1), self._squares(Y)
            shift = shift_far_columns(X, Y, S, sums, total, sizes.sum())
        sums, squares = sums[:, :c], sums[:, c:]
        return ClassTotals(y.classes, sums, squares, sizes, shift, self._squares_by_class)

    def _score_totals(self, totals: ClassTotals) -> None:
        self._require_classes(Labels(totals.classes, np.empty(0, dtype=np.int64)))
        squares = totals.squares if self._squares_by_class else totals.squares.sum(axis=1)
        self.scores_ = self._score(totals.sums, squares, totals.sizes)

    def _require_classes(self, y: Labels) -> Labels:
        return at_least_two(y)

    def _squares(self, by_class: Any) -> Any:
        """Return the columns of which sums of squares are needed: all of them, or their sum."""
        return by_class if self._squares_by_class else np.asarray(by_class.sum(axis=1))[:, None]

    @abstractmethod
    def _score(self, sums: FloatArray, squares: FloatArray, sizes: FloatArray) -> FloatArray:
        """Return the scores from Σ_{i∈c} x_ij (d × c), Σ_i x_ij² (d,) and n_c (c,)."""


class Fisher(ClassSumsSelector):
    """Score each feature by its variance between classes over that within classes.

    The score is infinite for a feature that is constant within each class and differs between
    classes. It ranks features as `ANOVA` does. Unlabeled samples are left out.

    Parameters
    ----------
    %(select)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Fisher score of each feature. Larger is better.
    %(selected)s
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
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import Fisher
    >>> X, y = load_iris(return_X_y=True)
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


class ANOVA(SignificanceSelector, ClassSumsSelector):
    """Score each feature by the F statistic of a one-way analysis of variance.

    The scores are those of `sklearn.feature_selection.f_classif`. A feature that is constant within
    each class and differs between classes scores infinity. Unlabeled samples are left
    out. With several labels per sample, the score is the mean of the F statistics of the labels
    [1]_.

    Parameters
    ----------
    %(select)s
    %(significance)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        F statistic of each feature. Larger is better.
    pvalues_ : ndarray of shape (n_features,)
        P-value of each feature, of the F distribution. With several labels per sample it is the
        least one of the labels times their number (Bonferroni), and at most 1. NaN where there are
        not more samples than classes.
    %(selected)s
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
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import ANOVA
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = ANOVA(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 3])
    >>> selector.scores_.round(1)
    array([ 119.3,   49.2, 1180.2,  960. ])
    """

    _cost = Cost("0", "d c")
    _label_p_values: FloatArray | None = field(
        init=False, default=None
    )  # of several labels per sample

    def _check_y(self, y: Any) -> Any:
        """Return `Labels`, or an indicator of several labels per sample (csr, n × q)."""
        if y.ndim < 2 or y.shape[1] == 1:
            return super()._check_y(y)
        return indicator(y)

    def _fit(self, X: Matrix, y: Any, weights: FloatArray | None = None) -> None:
        if isinstance(y, Labels):
            return super()._fit(X, y, weights)
        before = X.passes
        self.scores_, self._label_p_values = mean_f(X, y, weights)
        self.result_ = Result(self.scores_, Status.EXACT, stats={"passes": X.passes - before})
        return None

    def _score(self, sums: FloatArray, squares: FloatArray, sizes: FloatArray) -> FloatArray:
        between, within = between_and_within(sums, squares, sizes)
        n, c = sizes.sum(), len(sizes)
        self._label_p_values = None
        self._degrees = c - 1, n - c
        return ratio(between / (c - 1), within / max(n - c, 1))

    def _p_values(self) -> FloatArray:
        if self._label_p_values is not None:
            return self._label_p_values
        return f_p_values(*self._degrees, self.scores_)


class Chi2(SignificanceSelector, ClassSumsSelector):
    """Score each non-negative feature by its χ² statistic with the class.

    The scores are those of `sklearn.feature_selection.chi2`. Negative values are refused. Unlabeled
    samples of a store are left out.

    Parameters
    ----------
    %(select)s
    %(significance)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        The χ² statistic of each feature. Larger is better.
    pvalues_ : ndarray of shape (n_features,)
        P-value of each feature, of the χ² distribution.
    %(selected)s
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
    smallest values.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import Chi2
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = Chi2(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 3])
    >>> selector.scores_.round(1)
    array([ 10.8,   3.7, 116.3,  67. ])
    """

    _cost = Cost("1", "d c")  # for the least value of each column
    _non_negative = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    def _score(self, sums: FloatArray, squares: FloatArray, sizes: FloatArray) -> FloatArray:
        if sums.min() < 0:
            raise ValueError(NEGATIVE)
        self._degrees = len(sizes) - 1
        expected = np.outer(sums.sum(axis=1), sizes / sizes.sum())
        return np.sum((sums - expected) ** 2 / np.where(expected > 0, expected, 1), axis=1)

    def _p_values(self) -> FloatArray:
        return np.asarray(chdtrc(self._degrees, self.scores_))


def indicator(y: Any) -> sp.csr_array:
    """Return y as an indicator of label sets, or refuse it."""
    Y = sp.csr_array(y)
    if not np.isin(Y.data, (0, 1)).all():
        raise ValueError(
            "y must hold one class per sample, or 0 and 1 for several labels per sample; got "
            "other numbers in several columns"
        )
    return sp.csr_array(Y, dtype=np.float64)


def mean_f(X: Matrix, Y: sp.csr_array, weights: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Return the mean over the labels of F, and the least of their p-values times their number."""
    w = np.ones(X.shape[0]) if weights is None else weights
    n, counts = w.sum(), Y.T @ w
    labels = np.flatnonzero((counts > 0) & (counts < n))
    if not len(labels):
        raise ValueError("y must hold a label that some samples have and others do not")
    total, least = np.zeros(X.shape[1]), np.ones(X.shape[1])
    for first in range(0, len(labels), LABELS_PER_PASS):
        part = labels[first : first + LABELS_PER_PASS]
        dense = np.column_stack([Y[:, part].toarray() * w[:, None], w])
        sums = column_sums(X, dense, w[:, None])
        require_magnitude(sums[:, -1], sums[:, -1] > 0)
        shift_far_columns(X, dense, w[:, None], sums, sums[:, -2], n)
        squares, every = sums[:, -1], sums[:, -2]
        for k, label in enumerate(part):
            sizes = np.array([counts[label], n - counts[label]])
            two = np.column_stack([sums[:, k], every - sums[:, k]])
            between, within = between_and_within(two, squares, sizes)
            F = ratio(between, within / max(n - 2, 1))
            total += F
            least = np.minimum(least, f_p_values(1, n - 2, F))
    return total / len(labels), np.minimum(least * len(labels), 1)


def _non_negative_class_sums(
    block: Any, start: int, stop: int, Y: Any, S: Any, shift: FloatArray | None = None
) -> FloatArray:
    if (block.data if sp.issparse(block) else block).min(initial=0) < 0:
        raise ValueError(NEGATIVE)
    return class_sums(block, start, stop, Y, S)


def between_and_within(
    sums: FloatArray, squares: FloatArray, sizes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return SSB and SSW, with 0 for what is only rounding."""
    explained = (sums**2 / sizes).sum(axis=1)
    between = explained - sums.sum(axis=1) ** 2 / sizes.sum()
    return unless_rounding(between, squares), unless_rounding(squares - explained, squares)


def f_p_values(between: float, within: float, F: FloatArray) -> FloatArray:
    """Return the p-values of F statistics, NaN if no degree of freedom is left within."""
    return np.asarray(fdtrc(between, within, F) if within > 0 else np.full(len(F), np.nan))


def ratio(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a/b, with 0/0 = 0 and a/0 = ∞."""
    return np.divide(a, b, out=np.where(a > 0, np.inf, 0.0), where=b > 0)
