"""Laplacian score [He, Cai, Niyogi, NIPS 2005]: smooth features over the samples' kNN graph.

    L_j = f̃ᵀ(D − A)f̃ / f̃ᵀDf̃,      f̃ = f − (fᵀD1 / 1ᵀD1) 1                   [eq. 4 and 5]

f is the column of feature j, A the affinity, and D its degrees.
A small L_j is good. `scores_` is 1 − L_j = f̃ᵀAf̃ / f̃ᵀDf̃.
"""

from __future__ import annotations

from typing import Any

from bigfs.graph.affinities import Weights
from bigfs.matrix import Matrix
from bigfs.result import Result
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.scores.graph_forms import GraphSelector, graph_forms


class LaplacianScore(GraphSelector):
    """Score each feature by how well it agrees between neighbors, relative to its spread.

    The Laplacian score [1]_ is unsupervised and looks at one feature at a time.

    Parameters
    ----------
    %(select)s
    %(n_neighbors)s
    %(metric)s
    %(graph)s
    %(weights)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        1 − L of each feature, in [−1, 1]. Larger is better. A feature that is constant over the
        graph scores −1.
    %(selected)s
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
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import LaplacianScore
    >>> X, _ = load_iris(return_X_y=True)
    >>> selector = LaplacianScore(n_features_to_select=2, metric="euclidean").fit(X)
    >>> selector.selected_
    array([2, 3])
    >>> selector.scores_.round(3)
    array([0.973, 0.9  , 0.995, 0.98 ])
    """

    weights: Weights = "heat"

    _cost = Cost("graph + 1", "n k + d")
    _supervised = False
    _ignores_y = True

    def _fit(self, X: Matrix, y: Any) -> None:
        graph = self._graph(X, self.weights)
        self.scores_ = graph_forms(X, graph.A, label="Laplacian score").smoothness()
        self.result_ = Result(self.scores_, graph.status, stats=graph.stats)
