"""A spectral embedding and a row-sparse regression on it, jointly: what JELSR and NDFS share.

    min  tr(YᵀLY) + e(Y) + η(‖XW + 1bᵀ − Y‖² + ρ Σ_j ‖w_j‖)

L = I − D^-½AD^-½ is the normalized Laplacian of the samples' kNN graph. A method says which Y
(n × r) are allowed, and has a term e(Y) of its own. A round, with P = XW + 1bᵀ, and P = Y at first:

    Y = a few steps that do not raise the objective at P
    W = (XcᵀXc + ρ diag(1/2θ))⁻¹ XcᵀY,    b = mean(Y − XW),    θ_j = ‖w_j‖

The objective falls in every round after the first. The problem is not convex, so a run ends at a
stationary point. The certificate is the violation of stationarity, in Y and in W, which a product
with the last W gives:

    Σ_j ‖w_j‖ ‖2x_jᵀ(Y − P) − ρ w_j/‖w_j‖‖ / ρ Σ ‖w_j‖

A feature whose θ is negligible leaves the working set, and returns if 2‖x_jᵀ(Y − P)‖ > ρ.

JELSR [Hou, Nie, Li, Yi, Wu, IEEE Transactions on Cybernetics 2014; Hou, Nie, Yi, Wu, IJCAI 2011]
has YᵀY = I and no term of its own. A step of Y is the orthonormal factor of (2I − L)Y + ηP, which
does not raise the objective, because L ≤ 2I. Y stays orthogonal to the trivial eigenvector of the
graph, and zero at the samples that are set aside.

NDFS [Li, Yang, Liu, Zhou, Lu, AAAI 2012] has Y ≥ 0 and e(Y) = γ/2 ‖YᵀY − I‖². The gradient in Y is
2(U − V) with non-negative

    U = Y + ηY + ηP⁻ + γYYᵀY,    V = D^-½AD^-½Y + ηP⁺ + γY       P = P⁺ − P⁻

A step is Y ⊙ (V/U)^⅓. It does not raise the objective, whose terms in Y are of degree 1 to 4 [Yang
and Oja, IEEE Transactions on Neural Networks 2011].
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from bigfs.embedding import targets
from bigfs.graph import Metric, laplacian
from bigfs.linalg.prox import row_norms
from bigfs.linalg.ridge.operator import centering
from bigfs.matrix import Matrix
from bigfs.rounding import unless_rounding
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.parameters import POSITIVE, SHARE, Allowed
from bigfs.selectors.base.sample_graph import SampleGraph, sample_graph
from bigfs.selectors.row_sparse.rows import (
    RowSparseProblem,
    RowSparseSelector,
    inactive_scores,
    ridge_weights,
    without_negligible,
)
from bigfs.types import FloatArray

FLOOR = 0.2  # constant added to the indicators of the first clusters of NDFS
INNER_STEPS = 10  # of Y per round
EMPTY = 1e-9  # share of ‖Y‖ below which its regression counts as zero


# --- problem and step -----------------------------------------------------------------------------


class JointState(NamedTuple):
    """The solution after some rounds, with its certificate."""

    theta: FloatArray  # (d,): 0 where a feature is inactive
    W: FloatArray  # d × r
    b: FloatArray  # (r,)
    Y: FloatArray  # n × r
    P: FloatArray  # n × r: XW + 1bᵀ
    objective: float
    violation: float  # of stationarity, on the working set
    gap: float  # of stationarity, on all features; infinite until the inactive ones were checked
    residual: float  # of the ridge solve, relative


class JointProblem(RowSparseProblem):
    """The data, the graph, and the step."""

    def __init__(
        self,
        X: Matrix,
        graph: SampleGraph,
        T: FloatArray,
        r: int,
        *,
        share: float,
        weight: float,
        **options: Any,
    ) -> None:
        super().__init__(X, r, target="the graph's embedding", **options)
        self.share, self.weight, self.graph = share, weight, graph
        self.T, self.r = T, r  # the graph's embedding, and the number of columns of Y
        self.L = laplacian(graph.A, "normalized")
        self.centering = centering(X.shape[0])
        self.penalty = np.inf  # ρ, until the first Y is known

    @abstractmethod
    def first_embedding(self) -> FloatArray:
        """Return the first Y (n × r)."""

    @abstractmethod
    def embed(self, Y: FloatArray, P: FloatArray) -> FloatArray:
        """Return the Y of the next step, whose objective at P is not higher."""

    @abstractmethod
    def extra(self, Y: FloatArray) -> float:
        """Return the terms of the objective in Y alone, without tr(YᵀLY)."""

    @abstractmethod
    def embedding_violation(self, Y: FloatArray, P: FloatArray) -> float:
        """Return how far Y is from stationary, relative."""

    def start(self) -> JointState:
        """Return the state at the first Y and W = 0, and set the penalty. Reads X once."""
        d, r = self.X.shape[1], self.r
        Y = self.first_embedding()
        correlations = self.pulls(self.X.T @ (Y - Y.mean(axis=0)))
        sizes = np.sqrt(self.X.stats.sums_of_squares) * np.linalg.norm(Y)
        correlations = unless_rounding(correlations, sizes)
        self.require_weight(correlations)
        self.penalty = 2 * self.share * float(correlations.max())
        theta = np.where(correlations > 0, 1.0, 0.0)
        return JointState(theta, np.zeros((d, r)), np.zeros(r), Y, Y, np.inf, np.inf, np.inf, 0.0)

    def step(self, state: JointState) -> JointState:
        Y = state.Y
        for _ in range(INNER_STEPS):
            Y = self.embed(Y, state.P)
        u = ridge_weights(self.penalty, state.theta)
        solution = self.working_set.solve(self.centering, u, Y - Y.mean(axis=0), state.W)
        W = solution.W
        XW = self.working_set.times(W)
        b = (Y - XW).mean(axis=0)
        P = XW + b
        theta = row_norms(W)
        if np.linalg.norm(XW - XW.mean(axis=0)) <= EMPTY * np.linalg.norm(Y):
            raise ValueError("the penalty leaves no feature a weight: choose a smaller one")
        loss = float(np.sum((Y - P) ** 2)) + self.penalty * float(theta.sum())
        objective = float(np.vdot(Y, self.L @ Y)) + self.weight * loss + self.extra(Y)
        violation = max(self.violation(W, theta, Y - P), self.embedding_violation(Y, P))
        theta, gap = self.with_violators(
            without_negligible(theta),
            violation,
            lambda: 2 * self.pulls(self.X.T @ (Y - P)) / self.penalty - 1,
        )
        return JointState(theta, W, b, Y, P, objective, violation, gap, solution.residual)

    def violation(self, W: FloatArray, theta: FloatArray, V: FloatArray) -> float:
        """Return how far W is from stationary over the working set, relative, at V = Y − P."""
        sizes = np.maximum(theta, np.finfo(float).tiny)[:, None]
        slope = 2 * self.working_set.transposed_times(V) - self.penalty * W / sizes
        return float(theta @ row_norms(slope) / (self.penalty * theta.sum()))

    def scores(self, state: JointState) -> FloatArray:
        return inactive_scores(state.theta, self.pulls(self.X.T @ (state.Y - state.P)))


# --- the base of the estimators -------------------------------------------------------------------


class JointEmbedding(RowSparseSelector):
    """Base of the regressions on an embedding that they learn."""

    n_components: int | None = None
    n_neighbors: int = 5
    metric: Metric = "cosine"
    graph: Any = None
    solver: str = "auto"
    solver_tol: float = 1e-6
    solver_max_iter: int = 100
    tol: float = 1e-2
    max_iter: int = 200

    _needs_one_scale = True
    _cost = Cost("graph + 2 per CG step", "(n + d) r + columns")
    _ignores_y = True
    _columns_are_vectors = True  # the first Y is the graph's embedding

    @abstractmethod
    def _problem(self, *data: Any, **options: Any) -> JointProblem:
        """Return the problem of X, a graph, its embedding and r."""

    def _fit(self, X: Matrix, y: Any) -> None:
        allowed = self._allowed(X)
        graph = sample_graph(allowed, self.graph, self.n_neighbors, self.metric)
        T = graph.targets(self.n_components, allowed.shape[1], self._columns_are_vectors)
        r = T.shape[1] if self._columns_are_vectors else self.n_components or T.shape[1]
        problem = self._problem(X.near_zero(), graph, T, r, **self._options())
        state = self._solve(problem, problem.start())
        self.coef_, self.embedding_ = state.W, state.Y
        self.intercept_ = state.b - X.near_numbers @ state.W
        self.result_.stats.update(penalty=float(problem.penalty), **graph.stats)


# --- JELSR ----------------------------------------------------------------------------------------


class JELSRProblem(JointProblem):
    """Y has orthonormal columns, which are orthogonal to the trivial vector of the graph."""

    def first_embedding(self) -> FloatArray:
        """Return the leading non-trivial eigenvectors of the graph."""
        self.trivial = self.graph.parts.trivial()
        return self.T

    def off_trivial(self, V: FloatArray) -> FloatArray:
        """Return V without its part along the trivial vectors."""
        return np.asarray(V - self.trivial @ (self.trivial.T @ V))

    def embed(self, Y: FloatArray, P: FloatArray) -> FloatArray:
        G = self.off_trivial(2 * Y - self.L @ Y + self.weight * P)
        U, _, Vt = np.linalg.svd(G, full_matrices=False)
        return np.asarray(U @ Vt)

    def extra(self, Y: FloatArray) -> float:
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
    n_components : int or None, default=None
        Number of columns of the embedding. None takes 10, or fewer where X has few samples.
    %(weighted_metric)s
    %(tol_stationarity)s
    alpha : float, default=0.1
        Weight α of the penalty, as a share of the one at which no feature explains the first
        embedding. A larger share leaves fewer features with a weight.
    beta : float, default=1.0
        Weight β of the regression against the smoothness over the graph.

    Attributes
    ----------
    %(row_scores)s
    %(component_coef)s
    intercept_ : ndarray of shape (n_components,)
        Intercept b.
    embedding_ : ndarray of shape (n_samples, n_components)
        The embedding Y of the samples.
    %(n_rounds)s
    %(rounds_result)s

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
    %(iris)s
    >>> from bigfs import JELSR
    >>> selector = JELSR(n_features_to_select=2, n_components=2, metric="euclidean").fit(X)
    >>> selector.selected_
    array([1, 0])
    """

    alpha: float = 0.1
    beta: float = 1.0

    _parameter_constraints: ClassVar[Allowed] = {"alpha": SHARE}

    def _problem(self, *data: Any, **options: Any) -> JointProblem:
        return JELSRProblem(*data, share=self.alpha, weight=self.beta, **options)


# --- NDFS -----------------------------------------------------------------------------------------


class NDFSProblem(JointProblem):
    """Y is non-negative, with columns that are about orthonormal."""

    def __init__(self, *data: Any, gamma: float, seed: int, **options: Any) -> None:
        super().__init__(*data, **options)
        self.gamma, self.seed = gamma, seed
        self.has_edges = (self.L.diagonal() > 0).astype(np.float64)[:, None]

    def first_embedding(self) -> FloatArray:
        """Return the indicators of the clusters that k-means finds in the graph's embedding."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer clusters than asked for
            k = max(self.r, 2)  # a single cluster of all samples would tell nothing
            clusters = KMeans(k, n_init=10, random_state=self.seed).fit_predict(self.T)
        Y = targets.one_hot(clusters, k)[:, : self.r] + FLOOR
        return np.asarray(Y / np.linalg.norm(Y, axis=0))

    def gradient(self, Y: FloatArray, P: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return U, V ≥ 0 with the gradient 2(U − V)."""
        LY = self.L @ Y
        U = self.has_edges * Y + self.weight * (Y + np.maximum(-P, 0)) + self.gamma * Y @ (Y.T @ Y)
        V = self.has_edges * Y - LY + self.weight * np.maximum(P, 0) + self.gamma * Y
        return U, np.maximum(V, 0)  # rounding

    def embed(self, Y: FloatArray, P: FloatArray) -> FloatArray:
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
    n_components : int or None, default=None
        Number of clusters. None takes 10, or fewer where X has few samples.
    %(weighted_metric)s
    %(tol_stationarity)s
    alpha : float, default=1.0
        Weight α of the regression against the smoothness over the graph.
    beta : float, default=0.1
        Weight β of the penalty, as a share of the one at which no feature explains the first
        clusters. A larger share leaves fewer features with a weight.
    gamma : float, default=10.0
        Weight γ of the orthogonality of the clusters.
    random_state : int, default=0
        Seed of the k-means clustering that F starts from.

    Attributes
    ----------
    %(row_scores)s
    %(component_coef)s
    intercept_ : ndarray of shape (n_components,)
        Intercept b.
    embedding_ : ndarray of shape (n_samples, n_components)
        The clusters F: the larger an entry, the more the sample belongs to the cluster.
    %(n_rounds)s
    %(rounds_result)s

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
    %(iris)s
    >>> from bigfs import NDFS
    >>> selector = NDFS(n_features_to_select=2, n_components=3, metric="euclidean").fit(X)
    >>> selector.selected_
    array([1, 2])
    """

    alpha: float = 1.0
    beta: float = 0.1
    gamma: float = 10.0
    random_state: int = 0

    _parameter_constraints: ClassVar[Allowed] = {"alpha": POSITIVE, "beta": SHARE}

    _columns_are_vectors = False  # but its clusters

    def _problem(self, *data: Any, **options: Any) -> JointProblem:
        options |= {"gamma": self.gamma, "seed": self.random_state}
        return NDFSProblem(*data, share=self.beta, weight=self.alpha, **options)
