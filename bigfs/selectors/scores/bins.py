"""Scores of one feature at a time from the classes of the samples behind each of its values: one
pass over the columns.

    I(x_j; y) = Σ_bc p(b, c) log( p(b, c) / (p(b) p(c)) )      b: a bin of x_j's values, c: a class
    I(x_j; v | u) = Σ_buv p(b, u, v) log( p(b, u, v) p(u) / (p(b, u) p(u, v)) )
    Gini gain = i(S) − min_v [ |L_v|/n i(L_v) + |R_v|/n i(R_v) ],      i = 1 − Σ_c p_c²,
                L_v = {x_j ≤ v}, R_v = {x_j > v}

Only the non-zero entries of x_j are visited.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numba import njit

from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import class_sizes
from bigfs.selectors.base.estimator import MANY, Cost, Selector, map_all_columns
from bigfs.selectors.base.labels import Labels, at_least_two
from bigfs.types import AnyArray, FloatArray, IntArray

DENSE_BINS = 10  # of "auto" for a matrix of which at least half of the values are stored


class MutualInformation(Selector):
    """Score each feature by its mutual information with the class, after binning its values.

    Zero is a bin of its own. The other values of a feature are cut into `n_bins` bins of equal
    width between the least and the greatest of them. With one bin a feature is either absent or
    present, which text classification calls information gain. Unlabeled samples are left out. With
    several labels per sample, the score is the mean over the labels [1]_.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Mutual information of each feature with the class, in nats. Larger is better.
    %(passes)s

    See Also
    --------
    Gini : The best split at a threshold, in place of bins.
    Chi2 : The χ² statistic of the sums per class.

    Notes
    -----
    The scores equal `sklearn.feature_selection.mutual_info_classif` on the binned values as
    discrete features. It needs one pass over X, and one for the column statistics where X does not
    bring them. A matrix by rows alone is gathered in batches of columns, with a pass for each.
    Several labels per sample are an indicator of shape (n_samples, n_labels).

    References
    ----------
    .. [1] Yang and Pedersen, "A comparative study on feature selection in text categorization",
       ICML 1997, eq. 1.

    Examples
    --------
    %(iris)s
    >>> from bigfs import MutualInformation
    >>> selector = MutualInformation(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([3, 2])
    >>> selector.scores_.round(2)
    array([0.5 , 0.3 , 0.94, 0.98])
    """

    n_bins: int | str = "auto"

    _largest_tried = MANY
    _scores_alone = True
    _cost = Cost("1", "d", by_rows="1, then 1 per batch of columns")
    _takes_sets = True

    def _fit(self, X: Matrix, y: Any) -> None:
        is_sets = not isinstance(y, Labels)
        codes = np.zeros(X.shape[0], dtype=np.int64) if is_sets else at_least_two(y).codes
        n_bins = count_bins(self._allowed(X), self.n_bins)
        information = Information(codes, 2 if is_sets else len(y.classes), n_bins)
        fn, label_sets = (_with_labels, [sp.csc_array(y)]) if is_sets else (_with_class, [])
        parts = map_all_columns(X, fn, information, *label_sets, label="scores")
        self.scores_ = np.concatenate(parts)


class Gini(Selector):
    """Score each feature by the decrease of Gini impurity at its best threshold.

    A sample goes left if its value is at most the threshold, and right if it is greater. Unlabeled
    samples are left out.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Decrease of impurity, between 0 and 1. Larger is better.
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
    %(iris)s
    >>> from bigfs import Gini
    >>> selector = Gini(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 3])
    >>> selector.scores_.round(2)
    array([0.23, 0.13, 0.33, 0.33])
    """

    _largest_tried = MANY
    _scores_alone = True
    _cost = Cost("1", "d", by_rows="1, then 1 per batch of columns")

    def _fit(self, X: Matrix, y: Labels) -> None:
        classes, codes = at_least_two(y)
        sizes = class_sizes(codes, len(classes))
        self.scores_ = np.concatenate(map_all_columns(X, _gini, codes, sizes, label="scores"))


def _with_class(block: Any, start: int, stop: int, information: Information) -> FloatArray:
    return information.with_class(information.prepare(block))


def _with_labels(
    block: Any, start: int, stop: int, information: Information, Y: sp.csc_array
) -> FloatArray:
    Z = information.prepare(block)
    total, codes = np.zeros(Z.shape[1]), np.zeros(Y.shape[0], dtype=np.int64)
    for k in range(Y.shape[1]):
        rows = Y.indices[Y.indptr[k] : Y.indptr[k + 1]]
        codes[rows] = 1
        total += replace(information, codes=codes).with_class(Z)
        codes[rows] = 0
    return total / Y.shape[1]


def _gini(block: Any, start: int, stop: int, codes: IntArray, sizes: IntArray) -> FloatArray:
    Z = labeled_columns(block, codes)
    scores = np.empty(Z.shape[1])
    _gini_decrease(Z.indptr, Z.indices, Z.data, codes, sizes, scores)
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


@dataclass(frozen=True)
class Information:
    """Terms I(x_j; x_i), or I(x_j; y | x_i) if `conditional`, in nats. Zero is the bin `n_bins`."""

    codes: IntArray  # (n,) the classes y, −1 for an excluded sample
    n_classes: int
    n_bins: int  # of the non-zero values
    conditional: bool = False
    line_bytes: ClassVar[int] = 4

    @property
    def shape(self) -> tuple[int, int]:
        """How many values the condition u and the variable v have."""
        bins = self.n_bins + 1
        return (bins, self.n_classes) if self.conditional else (1, bins)

    def prepare(self, block: Any) -> sp.csc_array:
        """Return the columns of a block with the number of the bin in place of each value."""
        Z = labeled_columns(block, self.codes)
        bins = np.zeros(Z.nnz, dtype=np.min_scalar_type(self.n_bins))
        _fill_bins(Z.indptr, Z.data, self.n_bins, bins)
        return sp.csc_array((bins, Z.indices, Z.indptr), shape=Z.shape)

    def lines(self, Z: sp.csc_array) -> IntArray:
        """Return the number of (u, v) of each sample, −1 for an excluded one, then their counts."""
        (n, width), bins = Z.shape, self.n_bins + 1
        c = self.n_classes if self.conditional else 1
        is_included = self.codes >= 0
        y = np.where(is_included, self.codes, 0) if self.conditional else np.zeros(n, np.int64)
        columns = np.repeat(np.arange(width), np.diff(Z.indptr))
        uv = Z.data * np.int64(c) + y[Z.indices]
        counts = np.bincount(columns * bins * c + uv, minlength=width * bins * c)
        counts = counts.reshape(width, bins, c)
        # an included sample without an entry has a zero
        counts[:, self.n_bins] = np.bincount(y[is_included], minlength=c) - counts.sum(axis=1)
        lines = np.empty((width, n + bins * c), dtype=np.int32)
        lines[:, :n] = np.where(is_included, self.n_bins * c + y, -1)
        lines[columns, Z.indices] = uv
        lines[:, n:] = counts.reshape(width, bins * c)
        return lines

    def terms(self, Z: sp.csc_array, lines: IntArray, skipped: IntArray) -> FloatArray:
        return self._fill(Z, lines, skipped, self.shape)

    def with_class(self, Z: sp.csc_array) -> FloatArray:
        """Return I(x_j; y) of prepared columns."""
        sizes = class_sizes(self.codes, self.n_classes)
        y = np.append(self.codes, sizes)[None].astype(np.int32)
        no_skip = np.zeros(Z.shape[1], dtype=np.int64)
        return self._fill(Z, y, no_skip, (1, self.n_classes))[:, 0]

    def entropy(self, Z: sp.csc_array) -> FloatArray:
        """Return the entropy H(x_j) of prepared columns."""
        counts = np.zeros((Z.shape[1], self.n_bins + 1))
        columns = np.repeat(np.arange(Z.shape[1]), np.diff(Z.indptr))
        np.add.at(counts, (columns, Z.data), 1)
        n = np.count_nonzero(self.codes >= 0)
        counts[:, self.n_bins] = n - np.diff(Z.indptr)
        share = counts / n
        logs = np.log(share, out=np.zeros_like(share), where=share > 0)
        return -(share * logs).sum(axis=1)

    def _fill(
        self, Z: sp.csc_array, lines: AnyArray, skipped: IntArray, shape: tuple[int, int]
    ) -> FloatArray:
        out = np.zeros((Z.shape[1], len(lines)))
        _fill_information(Z.indptr, Z.indices, Z.data, self.n_bins, lines, *shape, skipped, out)
        return out


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
def _fill_bins(indptr: IntArray, values: FloatArray, n_bins: int, bins: IntArray) -> None:
    """Fill in the bin of each value among the bins of its column."""
    for j in range(len(indptr) - 1):
        first, last = indptr[j], indptr[j + 1]
        if first < last:
            low = np.float64(values[first:last].min())
            width = (np.float64(values[first:last].max()) - low) / n_bins
            for p in range(first, last):
                bins[p] = _bin_of(np.float64(values[p]), low, width, n_bins)


@njit(nogil=True, cache=True)
def _fill_information(
    indptr: IntArray,
    rows: IntArray,
    bins: IntArray,
    n_bins: int,
    lines: IntArray,
    n_u: int,
    n_v: int,
    skipped: IntArray,
    out: FloatArray,
) -> None:
    """Fill in I(x_j; v | u), where a line holds u · n_v + v of each sample, then their counts."""
    first = lines.shape[1] - n_u * n_v
    margins = np.zeros(n_u * n_v)
    counts = np.zeros((n_bins + 1, n_u * n_v))
    for j in range(len(indptr) - 1):
        for i in range(skipped[j], len(lines)):
            margins[:] = lines[i, first:]
            counts[:] = 0
            counts[n_bins] = margins
            for p in range(indptr[j], indptr[j + 1]):
                uv = lines[i, rows[p]]
                counts[bins[p], uv] += 1
                counts[n_bins, uv] -= 1
            information = 0.0
            for u in range(n_u):
                in_u = margins[u * n_v : (u + 1) * n_v].sum()
                for b in range(n_bins + 1):
                    in_bin = counts[b, u * n_v : (u + 1) * n_v].sum()
                    for uv in range(u * n_v, (u + 1) * n_v):
                        if counts[b, uv] > 0:
                            information += counts[b, uv] * np.log(
                                counts[b, uv] * in_u / (in_bin * margins[uv])
                            )
            out[j, i] = max(information / margins.sum(), 0.0)


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
