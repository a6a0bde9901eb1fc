"""Spectral feature selection [Zhao, Liu, ICML 2007]: features that are smooth over the kNN graph.

With 𝓛 = I − D^-½ A D^-½, its eigenvalues λ_l and eigenvectors ξ_l (ξ_0 = D^½1/‖D^½1‖, λ_0 = 0), and
f̂ = D^½f/‖D^½f‖ the column of a feature:

    φ1 = f̂ᵀ𝓛f̂                                small is good
    φ2 = f̂ᵀ𝓛f̂ / (1 − (f̂ᵀξ_0)²)               small is good
    φ3 = Σ_{l=1..k} (2 − λ_l)(f̂ᵀξ_l)²        large is good

f̂ᵀ𝓛f̂ = 1 − fᵀAf/fᵀDf needs no D^½, and φ2 is the Laplacian score.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import StrOptions

from bigfs.graph.affinities import Weights
from bigfs.linalg.rounding import unless_rounding
from bigfs.matrix import Matrix
from bigfs.result import Result, Status
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.parameters import COUNT
from bigfs.selectors.scores.graph_forms import GraphSelector, graph_forms


class SPEC(GraphSelector):
    """Score each feature by how well the spectrum of the kNN graph describes it.

    Spectral feature selection [1]_ is unsupervised and looks at one feature at a time. It has three
    ranking functions.

    Parameters
    ----------
    %(select)s
    %(n_neighbors)s
    %(metric)s
    %(graph)s
    ranking : {"phi1", "phi2", "phi3"}, default="phi3"
        Ranking function. "phi1" asks how smooth a feature is over the graph, so a constant feature
        is best. "phi2" leaves the constant part out, and is the Laplacian score. "phi3" keeps only
        the smoothest eigenvectors of the graph, and is less sensitive to noise.
    n_components : int, default=10
        Number of eigenvectors of "phi3". A smaller graph takes as many as it has.
    %(weights)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        1 − φ1, 1 − φ2 or φ3 of each feature. Larger is better. A feature that is zero over the
        graph scores −1, and so does a constant one with "phi2".
    %(selected)s
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
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import SPEC
    >>> X, _ = load_iris(return_X_y=True)
    >>> selector = SPEC(n_features_to_select=2, metric="euclidean").fit(X)
    >>> selector.selected_
    array([3, 2])
    """

    ranking: Literal["phi1", "phi2", "phi3"] = "phi3"
    n_components: int = 10
    weights: Weights = "heat"

    _cost = Cost("graph + 2", "n k + d")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "ranking": [StrOptions({"phi1", "phi2", "phi3"})],
        "n_components": COUNT,
    }
    _supervised = False
    _ignores_y = True

    def _fit(self, X: Matrix, y: Any) -> None:
        graph = self._graph(X, self.weights)
        A, status = graph.A, graph.status
        forms = graph_forms(X, A, label="SPEC")
        there = forms.fDf > 0
        if self.ranking == "phi2":
            self.scores_ = forms.smoothness()
        elif self.ranking == "phi1":
            out = np.full_like(forms.fDf, -1.0)
            self.scores_ = np.divide(forms.fAf, forms.fDf, out=out, where=there)
        else:
            r = min(self.n_components, A.shape[0] - graph.parts.n_set_aside - 1)
            powers = np.zeros_like(forms.fDf)
            if r > 0:
                embedding = graph.embedding(r)
                if embedding.status is not Status.CONVERGED:
                    status = embedding.status
                vectors, values = embedding.value  # values: 1 − λ
                root = np.sqrt(np.asarray(A.sum(axis=1)).ravel())
                powers = (X.T @ (root[:, None] * vectors)) ** 2 @ (1 + values)
            out = np.full_like(forms.fDf, -1.0)
            self.scores_ = np.divide(powers, forms.fDf, out=out, where=there)
            self.scores_[there] = unless_rounding(self.scores_[there], 1)
            graph.stats["eigenvectors"] = max(r, 0)
        self.result_ = Result(self.scores_, status, stats=graph.stats)
