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
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval

from bigfs.embedding import responses
from bigfs.graph import Metric
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
    n_features_to_select : int, float or None, default=None
        Number of features to keep. A float in (0, 1] is a share of the features, and None keeps
        half of them.
    keep : array-like of int or str, default=None
        Features that must be chosen, as indices or names.
    forbid : array-like of int or str, default=None
        Features that must not be chosen, as indices or names.
    alpha : float, default=1.0
        Weight α of the regression against the smoothness over the graph.
    beta : float, default=0.1
        Weight β of the penalty, as a share of the one at which no feature explains the first
        clusters. A larger share leaves fewer features with a weight.
    gamma : float, default=10.0
        Weight γ of the orthogonality of the clusters.
    n_components : int or None, default=None
        Number of clusters. None takes 10, or fewer where X has few samples.
    n_neighbors : int, default=5
        Number of neighbors of each sample in the kNN graph.
    metric : {"cosine", "euclidean"}, default="cosine"
        Distance of the kNN graph. The edges have cosine weights for "cosine" and heat weights for
        "euclidean".
    graph : sparse matrix of shape (n_samples, n_samples), Neighbors or None, default=None
        Affinity (symmetric, no negative weight), or neighbors, to use instead of a new kNN graph.
    random_state : int, default=0
        Seed of the k-means clustering that F starts from.
    solver : {"auto", "woodbury", "primal", "cg"}, default="auto"
        Solver of the ridge problem of each round. "auto" takes the one of least projected time
        among those that fit in memory.
    solver_tol : float, default=1e-6
        Relative residual at which the solver "cg" stops in each round.
    solver_max_iter : int, default=100
        Maximum number of iterations of "cg" in each round. A round that stops there still lowers
        the objective, and the history holds its residual.
    tol : float, default=1e-2
        Relative violation of stationarity at which to stop.
    max_iter : int, default=200
        Maximum number of rounds.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Norm of each feature's weights, where it is positive. A feature of zero weight has a score
        in [−1, 0], by how strongly the residual correlates with it.
    selected_ : ndarray of shape (n_selected,)
        Indices of the chosen features, best first. Equal scores are ordered by index.
    support_ : ndarray of shape (n_features,)
        Mask of the chosen features.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X is a data frame whose column names are strings.
    coef_ : ndarray of shape (n_features, n_components)
        Weights W.
    intercept_ : ndarray of shape (n_components,)
        Intercept b.
    embedding_ : ndarray of shape (n_samples, n_components)
        The clusters F: the larger an entry, the more the sample belongs to the cluster.
    n_iter_ : int
        Number of rounds.
    result_ : bigfs.result.Result
        Status and history. Each record of the history has the objective, the number of features,
        the violation and the residual of the ridge solve. The stats have the penalty, the plans of
        the ridge solves and the passes over X.

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
        **JointEmbedding._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "beta": [Interval(Real, 0, 1, closed="neither")],
        "gamma": [Interval(Real, 0, None, closed="neither")],
        "random_state": [Interval(Integral, 0, None, closed="left")],
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
