"""NDFS: nonnegative discriminative feature selection, unsupervised.

[Li, Yang, Liu, Zhou, Lu, AAAI 2012]

    min  tr(FᵀLF) + α(‖XW + 1bᵀ − F‖² + β Σ_j ‖w_j‖) + γ/2 ‖FᵀF − I‖²,    F ≥ 0

`joint_embedding` has the round, with Y = F. The gradient in F at P = XW + 1bᵀ is 2(U − V) with

    U = F + αF + αP⁻ + γFFᵀF,    V = D^-½AD^-½F + αP⁺ + γF       P = P⁺ − P⁻

both non-negative. A step is F ⊙ (V/U)^⅓. It does not raise the objective, whose terms in F are of
degree 1 to 4 [Yang and Oja, IEEE Transactions on Neural Networks 2011].
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from bigfs.embedding import responses
from bigfs.graph import Metric
from bigfs.selectors.base.parameters import POSITIVE, SEED, SHARE
from bigfs.selectors.row_sparse.joint_embedding import JointEmbedding, JointProblem
from bigfs.types import FloatArray

FLOOR = 0.2  # what the first F adds to the indicators of the clusters


class NDFSProblem(JointProblem):
    """Y is non-negative, with columns that are about orthonormal."""

    def __init__(self, *problem: Any, share: float, weight: float, gamma: float, seed: int) -> None:
        super().__init__(*problem, share=share, weight=weight)
        self.gamma, self.seed = gamma, seed
        self.has_edges = (self.L.diagonal() > 0).astype(np.float64)[:, None]

    def first_embedding(self) -> FloatArray:
        """Return the indicators of the clusters that k-means finds in the graph's embedding."""
        T = self.graph.embedding(self.r).value.vectors
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer clusters than asked for
            k = max(self.r, 2)  # a single cluster of all samples would tell nothing
            clusters = KMeans(k, n_init=10, random_state=self.seed).fit_predict(T)
        Y = responses.one_hot(clusters, k)[:, : self.r] + FLOOR
        return np.asarray(Y / np.linalg.norm(Y, axis=0))

    def gradient(self, Y: FloatArray, P: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return U, V ≥ 0 with the gradient 2(U − V)."""
        LY = self.L @ Y
        U = self.has_edges * Y + self.weight * (Y + np.maximum(-P, 0)) + self.gamma * Y @ (Y.T @ Y)
        V = self.has_edges * Y - LY + self.weight * np.maximum(P, 0) + self.gamma * Y
        return U, np.maximum(V, 0)  # rounding

    def embed(self, Y: FloatArray, P: FloatArray) -> FloatArray:
        """Return the Y of the next step, whose objective at P is not higher."""
        U, V = self.gradient(Y, P)
        return np.asarray(Y * np.cbrt(np.divide(V, U, out=np.zeros_like(Y), where=U > 0)))

    def extra(self, Y: FloatArray) -> float:
        """Return γ/2 ‖YᵀY − I‖²."""
        return self.gamma / 2 * float(np.sum((Y.T @ Y - np.eye(self.r)) ** 2))

    def embedding_violation(self, Y: FloatArray, P: FloatArray) -> float:
        """Return the gradient along Y relative to its positive part, zero at a stationary Y ≥ 0."""
        U, V = self.gradient(Y, P)
        return float(np.sum(Y * np.abs(U - V)) / np.sum(Y * U))


class NDFS(JointEmbedding):
    """Choose features by a sparse regression on soft clusters that are learned along with it.

    Nonnegative discriminative feature selection [1]_ is unsupervised. The clusters are smooth over
    the kNN graph of the samples, and close to a linear function of few features.

    Parameters
    ----------
    %(select)s
    alpha : float, default=1.0
        Weight α of the regression against the smoothness over the graph.
    beta : float, default=0.1
        Weight β of the penalty, as a share of the one at which no feature explains the first
        clusters. A larger share leaves fewer features with a weight.
    gamma : float, default=10.0
        Weight γ of the orthogonality of the clusters.
    n_components : int or None, default=None
        Number of clusters. None takes 10, or fewer where X has few samples.
    %(n_neighbors)s
    %(weighted_metric)s
    %(graph)s
    random_state : int, default=0
        Seed of the k-means clustering that F starts from.
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
        The clusters F: the larger an entry, the more the sample belongs to the cluster.
    %(n_rounds)s
    %(embedding_result)s

    See Also
    --------
    JELSR : An orthonormal embedding of any sign.
    MCFS : A lasso for each eigenvector of the graph, which stays.

    Notes
    -----
    With the normalized Laplacian L of the graph, and β in the units of the problem::

        min tr(FᵀLF) + α(‖XW + 1bᵀ − F‖² + β Σ_j ‖w_j‖) + γ/2 ‖FᵀF − I‖²,    F ≥ 0

    The first F holds the clusters of k-means on the eigenvectors of the graph. [1]_ takes γ = 1e8,
    at which the steps hardly see the other terms.

    References
    ----------
    .. [1] Z. Li, Y. Yang, J. Liu, X. Zhou and H. Lu, "Unsupervised feature selection using
       nonnegative spectral analysis", AAAI 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import NDFS
    >>> X, _ = load_iris(return_X_y=True)
    >>> selector = NDFS(n_features_to_select=2, n_components=3, metric="euclidean").fit(X)
    >>> selector.selected_
    array([1, 2])
    >>> selector.result_.status.name
    'CONVERGED'
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": POSITIVE,
        "beta": SHARE,
        "gamma": POSITIVE,
        "random_state": SEED,
    }

    def __init__(
        self,
        *,
        n_features_to_select: int | float | None = None,
        keep: Any = None,
        forbid: Any = None,
        alpha: float = 1.0,
        beta: float = 0.1,
        gamma: float = 10.0,
        n_components: int | None = None,
        n_neighbors: int = 5,
        metric: Metric = "cosine",
        graph: Any = None,
        random_state: int = 0,
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
        self.gamma = gamma
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.graph = graph
        self.random_state = random_state
        self.solver = solver
        self.solver_tol = solver_tol
        self.solver_max_iter = solver_max_iter
        self.tol = tol
        self.max_iter = max_iter

    def _problem(self, *problem: Any) -> JointProblem:
        return NDFSProblem(
            *problem,
            share=self.beta,
            weight=self.alpha,
            gamma=self.gamma,
            seed=self.random_state,
        )
