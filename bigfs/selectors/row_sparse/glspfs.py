"""GLSPFS: global and local structure preservation for feature selection, unsupervised.

[Liu, Wang, Zhang, Yin, Liu, IEEE Transactions on Neural Networks and Learning Systems 2014]

    min  ‖XW − Φ‖² + μ/2 tr(WᵀXᵀLXW) + λ Σ_j ‖w_j‖

ΦΦᵀ is a Gaussian kernel of the samples, and L the normalized Laplacian of their kNN graph. It is
`jhlsr` without labels and with one hyperedge of two samples for each edge of the graph, which stay.
"""

from __future__ import annotations

from typing import Any, ClassVar

from bigfs.graph.hypergraph.smoothness import Degrees
from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.row_sparse.jhlsr import JHLSR


class GLSPFS(JHLSR):
    """Choose features that preserve the samples' similarity and are smooth over their graph.

    Global and local structure preservation [1]_ is unsupervised.

    Parameters
    ----------
    mu : float, default=0.1
        Weight μ of the smoothness over the graph.
    lam : float, default=0.1
        Weight λ of the row sparsity.
    n_components : int, default=100
        Number of landmarks of the Gaussian kernel's factor.
    random_state : int, default=0
        Seed of the landmarks.
    %(hypergraph_ridge)s
    %(tol_stationarity)s

    Attributes
    ----------
    %(row_scores)s
    coef_ : ndarray of shape (n_features, rank)
        Weights W.
    intercept_ : ndarray of shape (rank,)
        The best intercept for these weights. Zeros without `fit_intercept`.
    %(n_rounds)s
    result_ : bigfs.result.Result
        Status and history. The stats have the plans of the ridge solves, the passes over X, and
        `n_without_hyperedge`, the number of samples without neighbors.

    See Also
    --------
    JHLSR : The same with a hypergraph that is learned, and with labels.
    SPFS : With `fit_intercept`, the same without the graph.

    Notes
    -----
    With a factor Φ of the Gaussian kernel, as for `SPFS`, and the normalized Laplacian L of the
    graph, whose edges have weight 1::

        min ‖XW − Φ‖² + μ/2 tr(WᵀXᵀLXW) + λ Σ_j ‖w_j‖

    There is no intercept in print. With `fit_intercept`, XW + 1bᵀ takes the place of XW, and b is
    free. The problem is convex.

    References
    ----------
    .. [1] X. Liu, L. Wang, J. Zhang, J. Yin and H. Liu, "Global and local structure preservation
       for feature selection", IEEE Transactions on Neural Networks and Learning Systems, 2014.

    Examples
    --------
    %(iris)s
    >>> from bigfs import GLSPFS
    >>> selector = GLSPFS(n_features_to_select=2, metric="euclidean").fit(X)
    >>> selector.selected_
    array([3, 1])
    """

    # the parameters of JHLSR that are fixed here
    gamma: ClassVar[float] = 0.0  # type: ignore[misc]
    mode: ClassVar[Any] = "unsupervised"  # type: ignore[misc]
    variant: ClassVar[Any] = "graph"  # type: ignore[misc]
    hyperedges: ClassVar[str] = "knn"  # type: ignore[misc]
    degrees: ClassVar[Degrees] = "weighted"  # type: ignore[misc]
    accelerate: ClassVar[bool] = False  # type: ignore[misc]
    n_neighbors: int = 5

    _cost = Cost("pairs + 2 per CG step", "n k + (n + d) r + columns")
    _semi_supervised = False

    def _fit(self, X: Matrix, y: Any) -> None:
        super()._fit(X, y)
        del self.mode_, self.hypergraph_, self.hyperedge_weights_  # the graph and its weights stay
