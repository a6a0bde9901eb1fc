"""Scores of one feature at a time from a few labels and the kNN graph: LSDF and sSelect.

LSDF [Zhao, Lu, He 2008]. Between classes, samples of different classes are joined with weight 1.
Within, samples of one class are joined with weight γ, and neighbors of which one is unlabeled with
weight 1. With the Laplacians L_b and L_w of both graphs, and f the column of a feature:

    score = fᵀL_b f / fᵀL_w f

    fᵀL_b f = n_l Σ_i f_i² − (Σ_i f_i)² − Σ_c s_c,   s_c = n_c Σ_{i∈c} f_i² − (Σ_{i∈c} f_i)²
    fᵀL_w f = γ Σ_c s_c + fᵀ(D_u − A_u)f             i: labeled, A_u: edges with an unlabeled end

sSelect [Zhao, Liu 2007]. With A, D and L of the kNN graph and g = f − (fᵀD1/1ᵀD1)1:

    score = λ gᵀAg / gᵀDg + (1 − λ) NMI(sign(g), y)

which is 1 − s of the printed s = λ gᵀLg/gᵀDg + (1 − λ)(1 − NMI), so larger is better.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval

from bigfs.graph.affinities import Weights
from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import class_indicator, column_blocks, near_sums, weighted_sums
from bigfs.result import Result, Status
from bigfs.rounding import unless_rounding
from bigfs.selectors.base.estimator import Cost, map_all_columns
from bigfs.selectors.base.labels import Labels, at_least_two
from bigfs.selectors.base.parameters import Allowed
from bigfs.selectors.scores.graph import GraphSelector, graph_forms
from bigfs.selectors.scores.sums import ratio
from bigfs.types import AnyArray, FloatArray


class LSDF(GraphSelector):
    """Score each feature by its spread between classes over that within classes and neighborhoods.

    Locality sensitive discriminant features [1]_ is semi-supervised: labels say what to tell apart,
    and neighbors without labels should agree. An unlabeled sample has the class −1.

    Parameters
    ----------
    graph : sparse matrix of shape (n_samples, n_samples), Neighbors or None, default=None
        Affinity (symmetric, no negative weight), or neighbors, to use instead of a new kNN graph.
        Its edges count as 1.
    gamma : float, default=100.0
        Weight γ of a pair of one class, where a pair of neighbors has weight 1.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Score of each feature. Larger is better. It is infinite for a feature that differs between
        classes only.
    %(closed_form)s

    See Also
    --------
    SSelect : Agreement with the labels and smoothness over the same graph.
    Fisher : The classes alone.
    SRLSR : Choose features together from few labels.

    Notes
    -----
    With the Laplacians L_b of the pairs of different classes and L_w of the pairs of one class
    (weight γ) and of the neighbors of which at least one is unlabeled (weight 1)::

        fᵀL_b f / fᵀL_w f

    The pairs of classes come from sums per class, so no n × n matrix but the kNN graph is made.
    After the graph, one pass over X is made, and one for the classes.

    References
    ----------
    .. [1] Zhao, Lu and He, "Locality sensitive semi-supervised feature selection", Neurocomputing
       71, 2008.

    Examples
    --------
    >>> import numpy as np
    %(iris)s
    >>> from bigfs import LSDF
    >>> few = np.where(np.arange(150) % 10, -1, y)
    >>> LSDF(n_features_to_select=2, metric="euclidean").fit(X, few).selected_
    array([2, 3])
    """

    gamma: float = 100.0

    _cost = Cost("graph + 1", "n k + d c")
    _semi_supervised = True

    def _fit(self, X: Matrix, y: Labels) -> None:
        classes, codes = at_least_two(y)
        Y = class_indicator(codes, len(classes))
        sizes = np.asarray(Y.sum(axis=0)).ravel()
        parts = [
            _pair_sums(near_sums(block, Y, Y, slice(None))[0], sizes)
            for block in column_blocks(X, 2 * len(classes))
        ]
        between, within = (np.concatenate(part) for part in zip(*parts, strict=True))
        neighbors = np.zeros(X.shape[1])
        status, stats = Status.EXACT, {}
        if not y.all_labeled:
            graph = self._graph(X, "binary")
            status, stats = graph.status, graph.stats
            A = _edges_with_an_unlabeled_end(graph.A, y)
            neighbors = graph_forms(X, A, label="LSDF").fLf
        self.scores_ = ratio(between, self.gamma * within + neighbors)
        self.result_ = Result(self.scores_, status, stats=stats)


class SSelect(GraphSelector):
    """Score each feature by its smoothness over the kNN graph and its agreement with the labels.

    sSelect [1]_ is semi-supervised. It takes the sign of the centered feature as a clustering of
    the samples. An unlabeled sample has the class −1.

    Parameters
    ----------
    lam : float, default=0.5
        Weight λ of the smoothness, between 0 and 1. The agreement has the weight 1 − λ.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        1 − s of each feature, with s the score of [1]_. Larger is better. The smoothness of a
        feature that is constant over the graph is −1.
    %(closed_form)s

    See Also
    --------
    LSDF : Differences between and within classes and neighborhoods.
    LaplacianScore : The smoothness alone.

    Notes
    -----
    With the affinity A of the graph, its degrees D, and g the feature's column centered with the
    weights D::

        λ gᵀAg / gᵀDg + (1 − λ) NMI(sign(g), y)

    NMI is the mutual information of the sign and the class over the labeled samples, divided by the
    geometric mean of their entropies. A sample with g = 0 has the negative sign. After the graph,
    two passes over X are made.

    References
    ----------
    .. [1] Zhao and Liu, "Semi-supervised feature selection via spectral analysis", SDM 2007.

    Examples
    --------
    >>> import numpy as np
    %(iris)s
    >>> from bigfs import SSelect
    >>> few = np.where(np.arange(150) % 10, -1, y)
    >>> SSelect(n_features_to_select=2, metric="euclidean").fit(X, few).selected_
    array([2, 3])
    """

    lam: float = 0.5
    weights: Weights = "heat"

    _cost = Cost("graph + 2", "n k + d")
    _parameter_constraints: ClassVar[Allowed] = {"lam": [Interval(Real, 0, 1, closed="both")]}
    _semi_supervised = True

    def _fit(self, X: Matrix, y: Labels) -> None:
        classes, codes = at_least_two(y)
        Y = class_indicator(codes, len(classes))
        graph = self._graph(X, self.weights)
        forms = graph_forms(X, graph.A, label="sSelect")
        mu = forms.fD1 / forms.volume if forms.volume else np.zeros_like(forms.fD1)
        sizes, of_blocks, first = np.asarray(Y.sum(axis=0)).ravel(), list[FloatArray](), 0
        for block in column_blocks(X, 2 * len(classes)):
            means = mu[first : (first := first + block.shape[1])]
            counts = np.concatenate(
                map_all_columns(block, _counts_above, Y, means, label="sSelect")
            )
            of_blocks.append(normalized_information(np.stack([counts, sizes - counts], axis=1)))
        agreement = np.concatenate(of_blocks)
        self.scores_ = self.lam * forms.smoothness() + (1 - self.lam) * agreement
        self.result_ = Result(self.scores_, graph.status, stats=graph.stats)


def _edges_with_an_unlabeled_end(A: sp.csr_array, y: Labels) -> sp.csr_array:
    """Return the edges of a graph with weight 1, without those between labeled samples."""
    edges = sp.coo_array(A)
    i, j = edges.coords
    kept = (edges.data != 0) & ~(y.is_labeled[i] & y.is_labeled[j])
    return sp.csr_array((np.ones(int(kept.sum())), (i[kept], j[kept])), shape=A.shape)


def _pair_sums(class_sums: FloatArray, sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return Σ (x_i − x_k)² over the pairs of different classes, and over pairs of one class."""
    sums, squares = np.split(class_sums, 2, axis=1)
    within = unless_rounding(sizes * squares - sums**2, sizes * squares)
    everything = sizes.sum() * squares.sum(axis=1)
    pairs = everything - sums.sum(axis=1) ** 2
    total = within.sum(axis=1)
    return unless_rounding(pairs - total, everything), total


def _counts_above(block: Any, start: int, stop: int, Y: sp.csr_array, mu: FloatArray) -> FloatArray:
    """Return how many samples of each class have a value above the column's mean (width × c)."""
    Z = sp.csc_array(sp.coo_array(block), dtype=np.float64)
    Z.sum_duplicates()
    means = mu[start:stop]
    above = Z.data > np.repeat(means, np.diff(Z.indptr))
    indicator = sp.csc_array((above.astype(np.float64), Z.indices, Z.indptr), shape=Z.shape)
    counts = weighted_sums(indicator, Y)
    there = sp.csc_array((np.ones(Z.nnz), Z.indices, Z.indptr), shape=Z.shape)
    zeros = np.asarray(Y.sum(axis=0)).ravel() - weighted_sums(there, Y)
    return np.where(means[:, None] < 0, counts + zeros, counts)


def normalized_information(counts: AnyArray) -> FloatArray:
    """Return I(a; b)/√(H(a)H(b)) of tables of counts (tables × a × b), and 0 without entropy."""
    p = counts / counts.sum(axis=(1, 2), keepdims=True)
    rows, columns = p.sum(axis=2), p.sum(axis=1)
    independent = rows[:, :, None] * columns[:, None, :]
    ratios = np.divide(p, independent, out=np.ones_like(p), where=p > 0)
    information = np.maximum((p * np.log(ratios)).sum(axis=(1, 2)), 0)
    root = np.sqrt(_entropy(rows) * _entropy(columns))
    return np.divide(information, root, out=np.zeros_like(root), where=root > 0)


def _entropy(p: FloatArray) -> FloatArray:
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    return np.maximum(-(p * logs).sum(axis=1), 0)
