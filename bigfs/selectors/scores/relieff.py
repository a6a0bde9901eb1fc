"""ReliefF [Kononenko 1994]: features that differ between near samples of different classes only.

    W_j = (1/n) Σ_i [ Σ_{c≠y_i} P(c)/(1 − P(y_i)) mean_{m∈M_ic} diff_j(i, m)
                      − mean_{h∈H_i} diff_j(i, h) ]
    diff_j(i, l) = |x_ij − x_lj| / (max_j − min_j)

H_i holds the k nearest samples of the class of i, and M_ic the k nearest ones of class c. So W_j is
a weighted sum of absolute differences over the edges of one graph, with negative weights for hits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit

from bigfs.graph.class_neighbors import neighbors_by_class
from bigfs.graph.edges import Metric
from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import class_sizes
from bigfs.result import Result, Status
from bigfs.selectors.base.estimator import Cost, Selector, map_all_columns
from bigfs.selectors.base.labels import Labels, at_least_two
from bigfs.selectors.scores.bins import labeled_columns
from bigfs.types import FloatArray, IntArray


class ReliefF(Selector):
    """Score each feature by its differences between near samples of other classes and of the same.

    ReliefF [1]_ sees features that help only together with others, because the neighbors are those
    in all features. Unlabeled samples are left out.

    Parameters
    ----------
    n_neighbors : int, default=10
        Number of nearest samples of each class for every sample.
    %(neighbor_metric)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Weight W of each feature, in [−1, 1]. Larger is better. A constant feature has 0.
    result_ : bigfs.result.Result
        Status, and the number of pairs of neighbors in `stats`.

    See Also
    --------
    LSDF : Differences between classes and within neighborhoods, for few labels.
    Gini : One feature at a time.

    Notes
    -----
    With the k nearest samples H_i of the same class (hits) and M_ic of each other class c (misses)
    of sample i, and the shares P of the classes::

        diff(i, l) = |x_ij − x_lj| / (max_j − min_j)
        W_j = 1/n Σ_i [ Σ_c P(c)/(1 − P(y_i)) mean_{m∈M_ic} diff(i, m) − mean_{h∈H_i} diff(i, h) ]

    Every sample counts, where the paper draws some. The neighbors are by the cosine or the
    Euclidean distance in X, where the paper has the sum of `diff`. A sample with fewer than k
    neighbors in a class takes the mean of those it has. A graph next to a store has no neighbors by
    class, so it is not used. After the neighbors, which compare all pairs of samples, one pass over
    X is made.

    References
    ----------
    .. [1] Kononenko, "Estimating attributes: analysis and extensions of RELIEF", ECML 1994.
    .. [2] Robnik-Šikonja and Kononenko, "Theoretical and empirical analysis of ReliefF and
       RReliefF", Machine Learning 53, 2003.

    Examples
    --------
    %(iris)s
    >>> from bigfs import ReliefF
    >>> selector = ReliefF(n_features_to_select=2, metric="euclidean").fit(X, y)
    >>> selector.selected_
    array([3, 2])
    """

    n_neighbors: int = 10
    metric: Metric = "cosine"

    _cost = Cost("pairs + 1", "n c k + d")

    def _fit(self, X: Matrix, y: Labels) -> None:
        classes, codes = at_least_two(y)
        k = min(self.n_neighbors, int(class_sizes(codes, len(classes)).max()))
        W = edge_weights(neighbors_by_class(self._allowed(X), codes, k, self.metric), codes)
        self.scores_ = np.concatenate(map_all_columns(X, _scores, W, codes, label="ReliefF"))
        self.result_ = Result(self.scores_, Status.EXACT, stats={"pairs": W.nnz // 2})


def edge_weights(index: IntArray, codes: IntArray) -> sp.csr_array:
    """Return the weight of each pair of samples (n × n, symmetric), both directions added up.

    `index` (n × c × k) has the neighbors of each class, and −1 for a missing one.
    """
    n, c, _ = index.shape
    sizes = class_sizes(codes, c)
    share = sizes / sizes.sum()
    found = (index >= 0).sum(axis=2)  # n × c
    weight = share / (1 - share[codes])[:, None]  # unlabeled rows have no neighbors
    labeled = np.flatnonzero(codes >= 0)
    weight[labeled, codes[labeled]] = -1
    weight = weight / np.maximum(found, 1) / sizes.sum()
    i, code, place = np.nonzero(index >= 0)
    W = sp.csr_array((weight[i, code], (i, index[i, code, place])), shape=(n, n))
    return sp.csr_array(W + W.T).sorted_indices()


def _scores(block: Any, start: int, stop: int, W: sp.csr_array, codes: IntArray) -> FloatArray:
    """Return the weights of the columns of a tile, NaN for a constant one."""
    Z = labeled_columns(block, codes)
    Z.sort_indices()
    scores, n_labeled = np.full(Z.shape[1], np.nan), int(np.count_nonzero(codes >= 0))
    columns, edges = (Z.indptr, Z.indices, Z.data), (W.indptr, W.indices, W.data)
    _add_differences(*columns, n_labeled, *edges, scores)
    return scores


@njit(nogil=True, cache=True)
def _add_differences(
    indptr: IntArray,
    rows: IntArray,
    values: FloatArray,
    n_labeled: int,
    edge_indptr: IntArray,
    edge_ends: IntArray,
    edge_weights: FloatArray,
    scores: FloatArray,
) -> None:
    """Fill in Σ w_il |x_i − x_l| / (max − min) of each column, from its non-zero entries."""
    column = np.zeros(len(edge_indptr) - 1)
    for j in range(len(indptr) - 1):
        first, last = indptr[j], indptr[j + 1]
        if first == last:
            continue
        low, high = values[first:last].min(), values[first:last].max()
        if last - first < n_labeled:
            low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            continue
        for p in range(first, last):
            column[rows[p]] = values[p]
        total = 0.0
        for p in range(first, last):
            i, x = rows[p], values[p]
            for q in range(edge_indptr[i], edge_indptr[i + 1]):
                other = column[edge_ends[q]]
                if other == 0:
                    total += edge_weights[q] * abs(x)
                elif i < edge_ends[q]:
                    total += edge_weights[q] * abs(x - other)
        scores[j] = total / (high - low)
        for p in range(first, last):
            column[rows[p]] = 0
