"""Scores of one feature at a time from the classes of the samples behind each of its values: one
pass over the columns.

    I(x_j; y) = Σ_bc p(b, c) log( p(b, c) / (p(b) p(c)) )      b: a bin of x_j's values, c: a class
    Gini gain = i(S) − min_v [ |L_v|/n i(L_v) + |R_v|/n i(R_v) ],      i = 1 − Σ_c p_c²,
                L_v = {x_j ≤ v}, R_v = {x_j > v}
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numba import njit
from sklearn.utils._param_validation import StrOptions

from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import MANY, Cost, Selector, map_all_columns
from bigfs.selectors.base.labels import Labels, at_least_two
from bigfs.selectors.base.parameters import COUNT
from bigfs.types import FloatArray, IntArray

DENSE_BINS = 10  # of "auto" for a matrix of which at least half of the values are stored


class _ByColumn(Selector):
    """Base of the scores from a column's values and the classes of its samples."""

    _largest_tried = MANY

    def _fit(self, X: Matrix, y: Labels) -> None:
        classes, codes = at_least_two(y)
        parameters = (codes, len(classes), *self._parameters(X))
        self.scores_ = np.concatenate(
            map_all_columns(X, self._score_block, *parameters, label="scores")
        )

    def _parameters(self, X: Matrix) -> tuple[Any, ...]:
        """Return the further arguments of `_score_block`."""
        return ()

    @staticmethod
    @abstractmethod
    def _score_block(
        block: Any, start: int, stop: int, codes: IntArray, n_classes: int, *parameters: Any
    ) -> FloatArray:
        """Return the scores of the block's columns."""


class MutualInformation(_ByColumn):
    """Score each feature by its mutual information with the class, after binning its values.

    Zero is a bin of its own. The other values of a feature are cut into `n_bins` bins of equal
    width between the least and the greatest of them. With one bin a feature is either absent or
    present, which text classification calls information gain. Unlabeled samples are
    left out.

    Parameters
    ----------
    %(select)s
    %(n_bins)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Mutual information of each feature with the class, in nats. Larger is better.
    %(selected)s
    %(passes)s

    See Also
    --------
    Gini : The best split at a threshold, in place of bins.
    Chi2 : The χ² statistic of the sums per class.

    Notes
    -----
    The scores are those of `sklearn.feature_selection.mutual_info_classif` on the binned values as
    discrete features. It needs one pass over X, and one for the column statistics where X does not
    bring them. A matrix by rows alone is gathered in batches of columns, with a pass for each.

    References
    ----------
    .. [1] Yang and Pedersen, "A comparative study on feature selection in text categorization",
       ICML 1997, eq. 1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import MutualInformation
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = MutualInformation(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([3, 2])
    >>> selector.scores_.round(2)
    array([0.5 , 0.3 , 0.94, 0.98])
    """

    n_bins: int | str = "auto"

    _cost = Cost("1", "d")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_bins": [*COUNT, StrOptions({"auto"})],
    }

    def _parameters(self, X: Matrix) -> tuple[Any, ...]:
        return (count_bins(self._allowed(X), self.n_bins),)

    @staticmethod
    def _score_block(
        block: Any, start: int, stop: int, codes: IntArray, n_classes: int, *parameters: Any
    ) -> FloatArray:
        Z = labeled_columns(block, codes)
        scores = np.empty(Z.shape[1])
        (n_bins,) = parameters
        _mutual_information(
            Z.indptr, Z.indices, Z.data, codes, _class_sizes(codes, n_classes), n_bins, scores
        )
        return scores


class Gini(_ByColumn):
    """Score each feature by the decrease of Gini impurity at its best threshold.

    A sample goes left if its value is at most the threshold, and right if it is greater. Unlabeled
    samples of a store are left out.

    Parameters
    ----------
    %(select)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Decrease of impurity, between 0 and 1. Larger is better.
    %(selected)s
    %(passes)s

    See Also
    --------
    MutualInformation : Binned values in place of one threshold.
    ANOVA : The F statistic of the class means.

    Notes
    -----
    The score is the decrease at the first split of a decision tree that sees one feature alone.
    scikit-feature's `gini_index` is the impurity after that split, of which smaller is better. It
    needs one pass over X. A matrix by rows alone is gathered in batches of columns, with a pass for
    each.

    References
    ----------
    .. [1] Breiman, Friedman, Olshen and Stone, "Classification and regression trees", 1984,
       section 4.3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import Gini
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = Gini(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 3])
    >>> selector.scores_.round(2)
    array([0.23, 0.13, 0.33, 0.33])
    """

    _cost = Cost("1", "d")

    @staticmethod
    def _score_block(
        block: Any, start: int, stop: int, codes: IntArray, n_classes: int, *parameters: Any
    ) -> FloatArray:
        Z = labeled_columns(block, codes)
        scores = np.empty(Z.shape[1])
        _gini_decrease(Z.indptr, Z.indices, Z.data, codes, _class_sizes(codes, n_classes), scores)
        return scores


def count_bins(X: Matrix, n_bins: int | str) -> int:
    """Return the number of bins of non-zero values, which "auto" takes from the share of them."""
    sparse = 2 * X.nnz < X.shape[0] * X.shape[1]  # `nnz` also checks the magnitudes
    if n_bins == "auto":
        return 1 if sparse else DENSE_BINS
    return int(n_bins)


def labeled_columns(block: Any, codes: IntArray) -> sp.csc_array:
    """Return the block by columns, without the entries that are zero or of unlabeled samples."""
    Z = sp.coo_array(block)
    kept = (Z.data != 0) & (codes[Z.coords[0]] >= 0)
    rows, columns = Z.coords[0][kept], Z.coords[1][kept]
    return sp.csc_array((Z.data[kept].astype(np.float64), (rows, columns)), shape=Z.shape)


def _class_sizes(codes: IntArray, n_classes: int) -> IntArray:
    sizes: IntArray = np.bincount(codes[codes >= 0], minlength=n_classes)
    return sizes


@njit(nogil=True, cache=True)
def _bin_of(x: float, low: float, width: float, n_bins: int) -> int:
    """Return which of `n_bins` bins of equal width from `low` on holds x."""
    b = 0 if width == 0 else min(int((x - low) / width), n_bins - 1)
    while b > 0 and x < low + b * width:  # the division may round across an edge
        b -= 1
    while b < n_bins - 1 and x >= low + (b + 1) * width:
        b += 1
    return b


@njit(nogil=True, cache=True)
def fill_bins(indptr: IntArray, values: FloatArray, n_bins: int, bins: IntArray) -> None:
    """Fill in the bin of each value among those of its column."""
    for j in range(len(indptr) - 1):
        first, last = indptr[j], indptr[j + 1]
        if first < last:
            low = np.float64(values[first:last].min())
            width = (np.float64(values[first:last].max()) - low) / n_bins
            for p in range(first, last):
                bins[p] = _bin_of(np.float64(values[p]), low, width, n_bins)


@njit(nogil=True, cache=True)
def _mutual_information(
    indptr: IntArray,
    rows: IntArray,
    values: FloatArray,
    codes: IntArray,
    sizes: IntArray,
    n_bins: int,
    scores: FloatArray,
) -> None:
    n = sizes.sum()
    for j in range(len(indptr) - 1):
        first, last = indptr[j], indptr[j + 1]
        low, width = 0.0, 0.0
        if first < last:
            low = np.float64(values[first:last].min())
            width = (np.float64(values[first:last].max()) - low) / n_bins
        counts = np.zeros((n_bins + 1, len(sizes)))  # bins × classes; the last bin is zero
        counts[n_bins] = sizes
        for p in range(first, last):
            b = _bin_of(np.float64(values[p]), low, width, n_bins)
            counts[b, codes[rows[p]]] += 1
            counts[n_bins, codes[rows[p]]] -= 1
        information = 0.0
        for b in range(n_bins + 1):
            in_bin = counts[b].sum()
            for c in range(len(sizes)):
                if counts[b, c] > 0:
                    information += counts[b, c] * np.log(counts[b, c] * n / (in_bin * sizes[c]))
        scores[j] = max(information / n, 0.0)


@njit(nogil=True, cache=True)
def _gini_decrease(
    indptr: IntArray,
    rows: IntArray,
    values: FloatArray,
    codes: IntArray,
    sizes: IntArray,
    scores: FloatArray,
) -> None:
    n = sizes.sum()
    impurity = 1 - ((sizes / n) ** 2).sum()
    for j in range(len(indptr) - 1):
        first, last = indptr[j], indptr[j + 1]
        zeros = sizes.copy()  # samples of each class whose value is zero
        for p in range(first, last):
            zeros[codes[rows[p]]] -= 1
        n_zeros = zeros.sum()
        left = np.zeros(len(sizes), dtype=np.int64)
        best = impurity
        zeros_taken = n_zeros == 0
        order = np.argsort(values[first:last]) + first
        k = 0
        while k < len(order) or not zeros_taken:
            if not zeros_taken and (k == len(order) or values[order[k]] > 0):
                left += zeros
                zeros_taken = True
            else:
                value = values[order[k]]
                while k < len(order) and values[order[k]] == value:
                    left[codes[rows[order[k]]]] += 1
                    k += 1
            n_left = left.sum()
            n_right = n - n_left
            if n_right > 0:
                squares_left, squares_right = 0.0, 0.0
                for c in range(len(sizes)):
                    squares_left += left[c] ** 2
                    squares_right += (sizes[c] - left[c]) ** 2
                after = 1 - (squares_left / n_left + squares_right / n_right) / n
                best = min(best, after)
        scores[j] = impurity - best
