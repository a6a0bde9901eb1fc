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
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import chdtrc, fdtrc
from sklearn.utils.validation import _check_sample_weight

from bigfs.embedding.responses import one_hot
from bigfs.matrix import Matrix
from bigfs.result import Result, Status
from bigfs.selectors.base import MANY, UNLABELED, Cost, Labels, Selector, at_least_two
from bigfs.selectors.significance import SignificanceSelector
from bigfs.types import FloatArray
from bigfs.validation import require_magnitude

NEGATIVE = "Negative values in data: chi2 needs non-negative features, use anova or fisher"


class ClassSumsSelector(Selector):
    """Scores each column by its class sums. Unlabeled samples of a store are left out."""

    _largest_tried = MANY
    _non_negative = False  # whether negative values are refused
    _squares_by_class = False  # whether `_score` gets Σ x² per class

    def __init__(
        self,
        *,
        n_features_to_select: int | float | None = None,
        keep: Any = None,
        forbid: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.keep = keep
        self.forbid = forbid

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Score the features of X and keep the best.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples, also as a data frame of pandas or Dask. The matrix of a store is
            `storage.open(uri).X`. X is never changed.
        y : array-like of shape (n_samples,), default=None
            Class labels, which are required. With a `Matrix` they are class numbers, and −1 is
            unlabeled.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples. A sample of weight w counts as w equal samples, and one of
            weight 0 as none. None weighs each by 1.

        Returns
        -------
        Self
            The fitted selector.

        Raises
        ------
        ValueError
            X holds NaN or infinity, X and y have different lengths, y has fewer than two classes,
            more features are asked for than X has, or a weight is negative.
        NotEnoughMemory
            The projected memory of the run is above the limit.
        """
        if sample_weight is None:
            return super().fit(X, y)
        self._validate_params()
        matrix, labels = self._as_matrix(X, y)
        self._count(matrix.shape[1])
        weights = _check_sample_weight(
            sample_weight, labels.codes, dtype=np.float64, ensure_non_negative=True
        )
        self._fit(matrix, _with_weight(labels, weights), weights)
        return self._choose()

    def _fit(self, X: Matrix, y: Labels, weights: FloatArray | None = None) -> None:
        classes, codes = self._require_classes(y)
        Y, passes_before = one_hot(codes, len(classes)), X.passes
        if weights is not None:
            Y = Y * weights[:, None]
            stored = None  # the sums of a store weigh each sample by 1
        else:
            stored = X.class_stats(np.where(codes >= 0, classes[codes], codes))
        sums_of = _non_negative_class_sums if self._non_negative else _class_sums
        if stored is not None:
            squares = stored.sums_of_squares[:, classes]
            sums = np.column_stack([stored.sums[:, classes], self._squares(squares)])
        else:
            S = self._squares(Y)
            if X.column_tiles:
                sums = np.concatenate(X.map_columns(sums_of, Y, S))
            else:
                rows = [slice(tile.start, tile.stop) for tile in X.row_tiles]
                sums = X.reduce_rows(sums_of, each=[[Y[r] for r in rows], [S[r] for r in rows]])
        sums, squares = sums[:, : len(classes)], sums[:, len(classes) :]
        require_magnitude(squares.sum(axis=1), squares.any(axis=1) | sums.any(axis=1))
        if not self._squares_by_class:
            squares = squares[:, 0]
        self.scores_ = self._score(sums, squares, Y.sum(axis=0))
        self.result_: Result[FloatArray] = Result(
            self.scores_, Status.EXACT, stats={"passes": X.passes - passes_before}
        )

    def _require_classes(self, y: Labels) -> Labels:
        return at_least_two(y)

    def _squares(self, by_class: FloatArray) -> FloatArray:
        """Return the columns of which sums of squares are needed: all of them, or their sum."""
        return by_class if self._squares_by_class else by_class.sum(axis=1, keepdims=True)

    @abstractmethod
    def _score(self, sums: FloatArray, squares: FloatArray, sizes: FloatArray) -> FloatArray:
        """Return the scores from Σ_{i∈c} x_ij (d × c), Σ_i x_ij² (d,) and n_c (c,)."""


class Fisher(ClassSumsSelector):
    """Score each feature by its variance between classes over that within classes.

    The score is infinite for a feature that is constant within each class and differs between
    classes. It ranks features as `ANOVA` does. Unlabeled samples of a store are left out.

    Parameters
    ----------
    n_features_to_select : int, float or None, default=None
        Number of features to keep. A float in (0, 1] is a share of the features, and None keeps
        half of them.
    keep : array-like of int or str, default=None
        Features that must be chosen, as indices or names.
    forbid : array-like of int or str, default=None
        Features that must not be chosen, as indices or names.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Fisher score of each feature. Larger is better.
    selected_ : ndarray of shape (n_selected,)
        Indices of the chosen features, best first. Equal scores are ordered by index.
    support_ : ndarray of shape (n_features,)
        Mask of the chosen features.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X is a data frame whose column names are strings.
    result_ : bigfs.result.Result
        Status, and the number of passes over X in `stats`.

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
    each class and differs between classes scores infinity. Unlabeled samples of a store are left
    out.

    Parameters
    ----------
    n_features_to_select : int, float or None, default=None
        Number of features to keep. A float in (0, 1] is a share of the features, and None keeps
        half of them.
    keep : array-like of int or str, default=None
        Features that must be chosen, as indices or names.
    forbid : array-like of int or str, default=None
        Features that must not be chosen, as indices or names.
    mode : {"k_best", "percentile", "fpr", "fdr", "fwe"}, default="k_best"
        How features are chosen. "k_best" keeps `n_features_to_select`. The others choose the number
        by themselves: "percentile" keeps the best percents, "fpr" bounds the false positive rate,
        "fdr" the false discovery rate (Benjamini and Hochberg) and "fwe" the family-wise error.
    param : float or None, default=None
        The percents, or the level of the error. None takes 10 percent, or the level 0.05.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        F statistic of each feature. Larger is better.
    pvalues_ : ndarray of shape (n_features,)
        P-value of each feature, of the F distribution.
    selected_ : ndarray of shape (n_selected,)
        Indices of the chosen features, best first. Equal scores are ordered by index.
    support_ : ndarray of shape (n_features,)
        Mask of the chosen features.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X is a data frame whose column names are strings.
    result_ : bigfs.result.Result
        Status, and the number of passes over X in `stats`.

    See Also
    --------
    Fisher : The same ranking, without the degrees of freedom.
    Chi2 : The χ² statistic of non-negative features.
    SparGE : Choose features together instead of one at a time.

    Notes
    -----
    With n samples in c classes, F is (n − c)/(c − 1) times the Fisher score. It needs one pass over
    X, or none over a store, which holds the sums per class.

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

    def _score(self, sums: FloatArray, squares: FloatArray, sizes: FloatArray) -> FloatArray:
        between, within = between_and_within(sums, squares, sizes)
        n, c = sizes.sum(), len(sizes)
        self._degrees = c - 1, max(n - c, 1)
        return ratio(between / (c - 1), within / max(n - c, 1))

    def _p_values(self) -> FloatArray:
        return np.asarray(fdtrc(*self._degrees, self.scores_))


class Chi2(SignificanceSelector, ClassSumsSelector):
    """Score each non-negative feature by its χ² statistic with the class.

    The scores are those of `sklearn.feature_selection.chi2`. Negative values are refused. Unlabeled
    samples of a store are left out.

    Parameters
    ----------
    n_features_to_select : int, float or None, default=None
        Number of features to keep. A float in (0, 1] is a share of the features, and None keeps
        half of them.
    keep : array-like of int or str, default=None
        Features that must be chosen, as indices or names.
    forbid : array-like of int or str, default=None
        Features that must not be chosen, as indices or names.
    mode : {"k_best", "percentile", "fpr", "fdr", "fwe"}, default="k_best"
        How features are chosen. "k_best" keeps `n_features_to_select`. The others choose the number
        by themselves: "percentile" keeps the best percents, "fpr" bounds the false positive rate,
        "fdr" the false discovery rate (Benjamini and Hochberg) and "fwe" the family-wise error.
    param : float or None, default=None
        The percents, or the level of the error. None takes 10 percent, or the level 0.05.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        The χ² statistic of each feature. Larger is better.
    pvalues_ : ndarray of shape (n_features,)
        P-value of each feature, of the χ² distribution.
    selected_ : ndarray of shape (n_selected,)
        Indices of the chosen features, best first. Equal scores are ordered by index.
    support_ : ndarray of shape (n_features,)
        Mask of the chosen features.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X is a data frame whose column names are strings.
    result_ : bigfs.result.Result
        Status, and the number of passes over X in `stats`.

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

    It needs one pass over X, or none over a store, which holds the sums per class.

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

    _cost = Cost("0", "d c")
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


def _with_weight(labels: Labels, weights: FloatArray) -> Labels:
    """Return the labels of the samples that have a weight, with the classes among them."""
    is_used = labels.is_labeled & (weights > 0)
    present, numbers = np.unique(labels.codes[is_used], return_inverse=True)
    codes = np.full(len(weights), UNLABELED, dtype=np.int64)
    codes[is_used] = numbers
    return Labels(labels.classes[present], codes)


def _class_sums(block: Any, start: int, stop: int, Y: FloatArray, S: FloatArray) -> FloatArray:
    """Return the sums of each column weighted by Y, and of its squares weighted by S.

    Unlabeled rows are zero in Y and S and do not count.
    """
    block = block.astype(np.float64)
    # `require_magnitude` refuses values that are too large
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squared = block.multiply(block) if sp.issparse(block) else block * block
        squares = np.nan_to_num(squared.T @ S, nan=np.inf, posinf=np.inf)  # 0 · ∞ is too large
        return np.column_stack([block.T @ Y, squares])


def _non_negative_class_sums(
    block: Any, start: int, stop: int, Y: FloatArray, S: FloatArray
) -> FloatArray:
    if (block.data if sp.issparse(block) else block).min(initial=0) < 0:
        raise ValueError(NEGATIVE)
    return _class_sums(block, start, stop, Y, S)


def between_and_within(
    sums: FloatArray, squares: FloatArray, sizes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return SSB and SSW, with 0 for what is only rounding."""
    explained = (sums**2 / sizes).sum(axis=1)
    between = explained - sums.sum(axis=1) ** 2 / sizes.sum()
    within = squares - explained
    rounding = 1e-12 * squares
    return np.where(between > rounding, between, 0), np.where(within > rounding, within, 0)


def ratio(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a/b, with 0/0 = 0 and a/0 = ∞."""
    return np.divide(a, b, out=np.where(a > 0, np.inf, 0.0), where=b > 0)
