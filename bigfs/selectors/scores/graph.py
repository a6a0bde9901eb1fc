"""Scores on the samples' kNN graph: the Laplacian score and the spectrum of the graph.

    L_j = f̃ᵀ(D − A)f̃ / f̃ᵀDf̃,      f̃ = f − (fᵀD1 / 1ᵀD1) 1          [He, Cai, Niyogi 2005, eq. 4, 5]

f is the column of feature j, A the affinity, and D its degrees. A small L_j is good. `scores_` is
1 − L_j = f̃ᵀAf̃ / f̃ᵀDf̃. With μ = fᵀD1 / 1ᵀD1 and v = 1ᵀD1, f̃ = f − μ1 has f̃ᵀDf̃ = fᵀDf − μ²v and
f̃ᵀAf̃ = fᵀAf − μ²v, so that no column is centered but those that are far from zero.

Spectral feature selection [Zhao, Liu 2007], with 𝓛 = I − D^-½ A D^-½, its eigenvalues λ_l and
eigenvectors ξ_l (ξ_0 = D^½1/‖D^½1‖, λ_0 = 0), and f̂ = D^½f/‖D^½f‖:

    φ1 = f̂ᵀ𝓛f̂                                small is good
    φ2 = f̂ᵀ𝓛f̂ / (1 − (f̂ᵀξ_0)²)               small is good
    φ3 = Σ_{l=1..k} (2 − λ_l)(f̂ᵀξ_l)²        large is good

f̂ᵀ𝓛f̂ = 1 − fᵀAf/fᵀDf needs no D^½, and φ2 is the Laplacian score.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.graph import Metric, Weights
from bigfs.matrix import Matrix
from bigfs.result import Result, Status
from bigfs.rounding import unless_rounding
from bigfs.selectors.base.estimator import Cost, Selector, map_all_columns
from bigfs.selectors.base.sample_graph import SampleGraph, sample_graph
from bigfs.types import FloatArray

# columns whose sums over neighbors are held at once, and their non-zeros, at the most
STRIP_COLUMNS, STRIP_ENTRIES = 512, 1 << 21


class GraphSelector(Selector):
    """Base of the methods on a kNN graph, which is computed or given."""

    _needs_one_scale = True

    n_neighbors: int = 5
    metric: Metric = "cosine"
    graph: Any = None

    def _graph(self, X: Matrix, weights: Weights) -> SampleGraph:
        """Return the graph of the samples, the given one or a new one."""
        return sample_graph(self._allowed(X), self.graph, self.n_neighbors, self.metric, weights)


class LaplacianScore(GraphSelector):
    """Score each feature by how well it agrees between neighbors, relative to its spread.

    The Laplacian score [1]_ is unsupervised and looks at one feature at a time.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        1 − L of each feature, in [−1, 1]. Larger is better. A feature that is constant over the
        graph scores −1.
    %(closed_form)s

    See Also
    --------
    SparGE : With `embedding="lpp"`, choose features of the same graph together.
    Fisher : Score features by the classes.

    Notes
    -----
    With the affinity A of the graph, its degrees D, and f̃ the feature's column centered with the
    weights D (eq. 4 and 5 of [1]_)::

        L = f̃ᵀ(D − A)f̃ / f̃ᵀDf̃

    A small L is good, and `scores_` holds 1 − L. The columns are never centered in place. The graph
    is built once, by `bigfs.graph.knn` with `method="auto"`: it is approximate where the exact one
    is predicted to take more than ten minutes of one core. After it, one pass over X is made.

    References
    ----------
    .. [1] X. He, D. Cai and P. Niyogi, "Laplacian score for feature selection", NIPS 2005.

    Examples
    --------
    %(iris)s
    >>> from bigfs import LaplacianScore
    >>> selector = LaplacianScore(n_features_to_select=2, metric="euclidean").fit(X)
    >>> selector.selected_
    array([2, 3])
    >>> selector.scores_.round(3)
    array([0.973, 0.9  , 0.995, 0.98 ])
    """

    weights: Weights = "heat"

    _cost = Cost("graph + 1", "n k + d")
    _ignores_y = True

    def _fit(self, X: Matrix, y: Any) -> None:
        graph = self._graph(X, self.weights)
        self.scores_ = graph_forms(X, graph.A, label="Laplacian score").smoothness()
        self.result_ = Result(self.scores_, graph.status, stats=graph.stats)


class SPEC(GraphSelector):
    """Score each feature by how well the spectrum of the kNN graph describes it.

    Spectral feature selection [1]_ is unsupervised and looks at one feature at a time. It has three
    ranking functions.

    Parameters
    ----------
    ranking : {"phi1", "phi2", "phi3"}, default="phi3"
        Ranking function. "phi1" asks how smooth a feature is over the graph, so a constant feature
        is best. "phi2" leaves the constant part out, and is the Laplacian score. "phi3" keeps only
        the smoothest eigenvectors of the graph, and is less sensitive to noise.
    n_components : int, default=10
        Number of eigenvectors of "phi3". A smaller graph takes as many as it has.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        1 − φ1, 1 − φ2 or φ3 of each feature. Larger is better. A feature that is zero over the
        graph scores −1, and so does a constant one with "phi2".
    result_ : bigfs.result.Result
        Status, and the number of eigenvectors in `stats`, with what the graph and its embedding
        are. The status is EXACT if both are exact.

    See Also
    --------
    LaplacianScore : The scores of "phi2".
    SparGE : With `embedding="lpp"`, choose features for the same eigenvectors together.

    Notes
    -----
    With the normalized Laplacian 𝓛 of the graph, its degrees D, eigenvalues λ_l and eigenvectors
    ξ_l, and f̂ = D^½f/‖D^½f‖ (the ranking functions of [1]_, with the spectrum as it is)::

        φ1 = f̂ᵀ𝓛f̂
        φ2 = φ1 / (1 − (f̂ᵀξ_0)²)
        φ3 = Σ_l (2 − λ_l) (f̂ᵀξ_l)²

    A new kNN graph is joined where it falls apart: the nearest samples of its components get an
    edge. The components of a given affinity stay apart, and "phi3" takes the vectors that separate
    them first. After the graph, one pass over X is made, and one more for "phi3".

    References
    ----------
    .. [1] Zhao and Liu, "Spectral feature selection for supervised and unsupervised learning",
       ICML 2007.

    Examples
    --------
    %(iris)s
    >>> from bigfs import SPEC
    >>> selector = SPEC(n_features_to_select=2, metric="euclidean").fit(X)
    >>> selector.selected_
    array([3, 2])
    """

    ranking: Literal["phi1", "phi2", "phi3"] = "phi3"
    n_components: int = 10
    weights: Weights = "heat"

    _cost = Cost("graph + 2", "n k + d")
    _ignores_y = True

    def _fit(self, X: Matrix, y: Any) -> None:
        graph = self._graph(X, self.weights)
        A, status = graph.A, graph.status
        forms = graph_forms(X, A, label="SPEC")
        there, lowest = forms.fDf > 0, np.full_like(forms.fDf, -1.0)
        if self.ranking == "phi2":
            self.scores_ = forms.smoothness()
        elif self.ranking == "phi1":
            self.scores_ = np.divide(forms.fAf, forms.fDf, out=lowest, where=there)
        else:
            r = max(min(self.n_components, A.shape[0] - graph.parts.n_set_aside - 1), 0)
            powers = np.zeros_like(forms.fDf)
            if r > 0:
                embedding = graph.embedding(r, positive=False)
                if embedding.status is not Status.CONVERGED:
                    status = embedding.status
                vectors, values = embedding.value  # values: 1 − λ
                root = np.sqrt(np.asarray(A.sum(axis=1)).ravel())
                powers = (X.T @ (root[:, None] * vectors)) ** 2 @ (1 + values)
            self.scores_ = np.divide(powers, forms.fDf, out=lowest, where=there)
            self.scores_[there] = unless_rounding(self.scores_[there], 1)
            graph.stats["eigenvectors"] = r
        self.result_ = Result(self.scores_, status, stats=graph.stats)


class Forms(NamedTuple):
    """The sums of every column, each of shape (d,)."""

    fAf: FloatArray
    fDf: FloatArray
    fD1: FloatArray
    fLf: FloatArray  # f̃ᵀ(D − A)f̃, and 0 if it is only rounding
    likeness: FloatArray  # f̃ᵀAf̃
    spread: FloatArray  # f̃ᵀDf̃, and 0 for a column that is constant over the graph
    volume: float  # v = 1ᵀD1

    def smoothness(self) -> FloatArray:
        """Return f̃ᵀAf̃ / f̃ᵀDf̃ of each column, in [−1, 1], and −1 for a constant one."""
        out, varies = np.full_like(self.fDf, -1.0), self.spread > 0
        return np.divide(self.likeness, self.spread, out=out, where=varies)


def graph_forms(X: Matrix, A: sp.csr_array, *, label: str) -> Forms:
    """Return the sums of all columns in one pass.

    They are of g = f − s with s near the mean of f where this is far from zero.
    """
    degree = np.asarray(A.sum(axis=1)).ravel()
    volume, s = float(degree.sum()), X.near_numbers
    parts = map_all_columns(X.near_zero(), _forms, A, degree, label=label)
    gAg, gDg, gD1 = np.concatenate(parts, axis=1)
    shift = gD1**2 / volume if degree.any() else np.zeros_like(gD1)
    spread = unless_rounding(gDg - shift, gDg)
    moved = 2 * s * gD1 + s**2 * volume  # of fᵀAf and of fᵀDf, because A1 = D1
    fAf, fDf, fD1 = gAg + moved, gDg + moved, gD1 + s * volume
    fLf = unless_rounding(gDg - gAg, gDg)
    return Forms(fAf, fDf, fD1, fLf, gAg - shift, spread, volume)


def _forms(block: Any, start: int, stop: int, A: sp.csr_array, degree: FloatArray) -> FloatArray:
    """Return gᵀAg, gᵀDg and gᵀD1 of a tile of columns (3 × width)."""
    parts, one, n = [], np.ones(len(degree)), len(degree)
    of_column = n if not sp.issparse(block) else block.nnz / (stop - start) * A.nnz / n
    width = min(max(int(STRIP_ENTRIES / max(min(of_column, n), 1)), 1), STRIP_COLUMNS)
    for first in range(0, stop - start, width):
        F = block[:, first : first + width]
        F = sp.csc_array(F, dtype=np.float64) if sp.issparse(F) else np.asarray(F, dtype=np.float64)
        products = [(F * (A @ F), one), (F * F, degree), (F, degree)]
        parts.append(np.stack([np.asarray(Z.T @ weights) for Z, weights in products]))
    return np.concatenate(parts, axis=1)
