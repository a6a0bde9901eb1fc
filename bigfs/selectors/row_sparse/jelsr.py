"""JELSR: joint embedding learning and sparse regression, unsupervised.

[Hou, Nie, Li, Yi, Wu, IEEE Transactions on Cybernetics 2014; Hou, Nie, Yi, Wu, IJCAI 2011]

    min  tr(YᵀLY) + β(‖XW + 1bᵀ − Y‖² + α Σ_j ‖w_j‖),    YᵀY = I

`joint_embedding` has the round. A step of Y at P = XW + 1bᵀ is the orthonormal factor of
(2I − L)Y + βP, which does not raise the objective, because L ≤ 2I. Y stays orthogonal to the
trivial eigenvector of the graph, and zero at the samples that are set aside.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from bigfs.graph import Metric
from bigfs.selectors.base.parameters import POSITIVE, SHARE
from bigfs.selectors.row_sparse.joint_embedding import JointEmbedding, JointProblem
from bigfs.types import FloatArray


class JELSRProblem(JointProblem):
    """Y has orthonormal columns, which are orthogonal to the trivial vector of the graph."""

    def first_embedding(self) -> FloatArray:
        """Return the leading non-trivial eigenvectors of the graph."""
        self.trivial = self.graph.parts.trivial()
        return np.asarray(self.graph.embedding(self.r).value.vectors)

    def off_trivial(self, V: FloatArray) -> FloatArray:
        """Return V without its part along the trivial vectors."""
        return np.asarray(V - self.trivial @ (self.trivial.T @ V))

    def embed(self, Y: FloatArray, P: FloatArray) -> FloatArray:
        """Return the Y of the next step, whose objective at P is not higher."""
        G = self.off_trivial(2 * Y - self.L @ Y + self.weight * P)
        U, _, Vt = np.linalg.svd(G, full_matrices=False)
        return np.asarray(U @ Vt)

    def extra(self, Y: FloatArray) -> float:
        """Return 0."""
        return 0.0

    def embedding_violation(self, Y: FloatArray, P: FloatArray) -> float:
        """Return the norm of the gradient along the orthonormal matrices, over its largest."""
        G = self.off_trivial(self.L @ Y + self.weight * (Y - P))
        YtG = Y.T @ G
        size = (2 + self.weight) * np.sqrt(self.r)
        return float(np.linalg.norm(G - Y @ (YtG + YtG.T) / 2) / size)


class JELSR(JointEmbedding):
    """Choose features by a sparse regression on an embedding that is learned along with it.

    Joint embedding learning and sparse regression [1]_ is unsupervised. The embedding is smooth
    over the kNN graph of the samples, and close to a linear function of few features.

    Parameters
    ----------
    %(select)s
    alpha : float, default=0.1
        Weight α of the penalty, as a share of the one at which no feature explains the first
        embedding. A larger share leaves fewer features with a weight.
    beta : float, default=1.0
        Weight β of the regression against the smoothness over the graph.
    n_components : int or None, default=None
        Number of columns of the embedding. None takes 10, or fewer where X has few samples.
    %(n_neighbors)s
    %(weighted_metric)s
    %(graph)s
    %(ridge)s
    %(tol_stationarity)s
    %(rounds)s

    Attributes
    ----------
    %(row_scores)s
    %(selected)s
    %(component_coef)s
    intercept_ : ndarray of shape (n_components,)
        Intercept b.
    embedding_ : ndarray of shape (n_samples, n_components)
        The embedding Y of the samples.
    %(n_rounds)s
    %(embedding_result)s

    See Also
    --------
    NDFS : A non-negative embedding, whose columns are clusters.
    MRSF : The same regression on the eigenvectors of the graph, which stay.

    Notes
    -----
    With the normalized Laplacian L of the graph, and α in the units of the problem::

        min tr(YᵀLY) + β(‖XW + 1bᵀ − Y‖² + α Σ_j ‖w_j‖),    YᵀY = I

    The first Y holds the leading non-trivial eigenvectors of the graph. The graph has kNN weights
    where [1]_ also has locally linear ones.

    References
    ----------
    .. [1] C. Hou, F. Nie, X. Li, D. Yi and Y. Wu, "Joint embedding learning and sparse regression:
       a framework for unsupervised feature selection", IEEE Transactions on Cybernetics, 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import JELSR
    >>> X, _ = load_iris(return_X_y=True)
    >>> selector = JELSR(n_features_to_select=2, n_components=2, metric="euclidean").fit(X)
    >>> selector.selected_
    array([1, 0])
    >>> selector.result_.status.name
    'CONVERGED'
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": SHARE,
        "beta": POSITIVE,
    }

    def __init__(
        self,
        *,
        n_features_to_select: int | float | None = None,
        keep: Any = None,
        forbid: Any = None,
        alpha: float = 0.1,
        beta: float = 1.0,
        n_components: int | None = None,
        n_neighbors: int = 5,
        metric: Metric = "cosine",
        graph: Any = None,
        solver: str = "auto",
        solver_tol: float = 1e-6,
        solver_max_iter: int = 100,
        tol: float = 1e-2,
        max_iter: int = 200,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.keep = keep
        self.forbid = forbid
        self.alpha = alpha
        self.beta = beta
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.graph = graph
        self.solver = solver
        self.solver_tol = solver_tol
        self.solver_max_iter = solver_max_iter
        self.tol = tol
        self.max_iter = max_iter

    def _problem(self, *problem: Any) -> JointProblem:
        return JELSRProblem(*problem, share=self.alpha, weight=self.beta)
