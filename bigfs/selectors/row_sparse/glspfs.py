"""GLSPFS: global and local structure preservation for feature selection, unsupervised.

[Liu, Wang, Zhang, Yin, Liu, IEEE Transactions on Neural Networks and Learning Systems 2014]

    min  ‖XW − Φ‖² + μ/2 tr(WᵀXᵀLXW) + λ Σ_j ‖w_j‖

ΦΦᵀ is a Gaussian kernel of the samples, and L the normalized Laplacian of their kNN graph. It is
`jhlsr` without labels and with one hyperedge of two samples for each edge of the graph, which stay.
"""

from __future__ import annotations

from typing import Any

from bigfs.graph import Metric
from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.row_sparse.jhlsr import JHLSR

# parameters that JHLSR alone has


class GLSPFS(JHLSR):
    """Choose features that preserve the samples' similarity and are smooth over their graph.

    Global and local structure preservation [1]_ is unsupervised.

    Parameters
    ----------
    %(select)s
    mu : float, default=0.1
        Weight μ of the smoothness over the graph.
    lam : float, default=0.1
        Weight λ of the row sparsity.
    %(n_neighbors)s
    %(metric)s
    n_components : int, default=100
        Number of landmarks of the Gaussian kernel's factor.
    random_state : int, default=0
        Seed of the landmarks.
    fit_intercept : bool, default=False
        Whether the regression has an intercept, which both terms see. Without one, as in print, a
        constant that is added to X changes which features are chosen.
    %(solver)s
    solver_tol : float, default=1e-6
        Relative residual at which the solver "cg" stops in each round. It also stops once the
        residual has fallen to √`tol` of what it was when the round began.
    %(solver_max_iter)s
    %(tol_stationarity)s
    %(rounds)s

    Attributes
    ----------
    %(row_scores)s
    %(selected)s
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
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import GLSPFS
    >>> X, _ = load_iris(return_X_y=True)
    >>> selector = GLSPFS(n_features_to_select=2, metric="euclidean").fit(X)
    >>> selector.selected_
    array([3, 1])
    >>> selector.result_.status.name
    'CONVERGED'
    """

    _cost = Cost("pairs + 2 per CG step", "n k + (n + d) r + columns")
    _semi_supervised = False
    gamma, mode, variant, hyperedges, degrees = 0.0, "unsupervised", "graph", "knn", "weighted"
    accelerate = False

    def __init__(
        self,
        *,
        n_features_to_select: int | float | None = None,
        keep: Any = None,
        forbid: Any = None,
        mu: float = 0.1,
        lam: float = 0.1,
        n_neighbors: int = 5,
        metric: Metric = "cosine",
        n_components: int = 100,
        random_state: int = 0,
        fit_intercept: bool = False,
        solver: str = "auto",
        solver_tol: float = 1e-6,
        solver_max_iter: int = 100,
        tol: float = 1e-2,
        max_iter: int = 200,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.keep = keep
        self.forbid = forbid
        self.mu = mu
        self.lam = lam
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.n_components = n_components
        self.random_state = random_state
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.solver_tol = solver_tol
        self.solver_max_iter = solver_max_iter
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, X: Matrix, y: Any) -> None:
        super()._fit(X, y)
        del self.mode_, self.hypergraph_, self.hyperedge_weights_  # the graph and its weights stay
