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
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from bigfs.graph import Metric, laplacian
from bigfs.linalg.prox import row_norms
from bigfs.linalg.ridge import centering
from bigfs.linalg.ridge.working_set import WorkingSet
from bigfs.linalg.rounding import unless_rounding
from bigfs.matrix import Matrix
from bigfs.result import iterate
from bigfs.selectors.base.estimator import Cost, Selector
from bigfs.selectors.base.parameters import COUNT, NOT_NEGATIVE
from bigfs.selectors.base.sample_graph import SampleGraph, sample_graph
from bigfs.selectors.row_sparse.rows import (
    RowSparseProblem,
    inactive_scores,
    measure,
    return_violators,
    ridge_options,
    without_negligible,
)
from bigfs.types import FloatArray, IntArray

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
    violation: float
    residual: float  # of the ridge solve, relative


class JointProblem(RowSparseProblem):
    """The data, the graph, the step, and the working set of features."""

    def __init__(
        self,
        X: Matrix,
        graph: SampleGraph,
        tol: float,
        r: int,
        ridge: dict[str, Any],
        forbidden: IntArray,
        *,
        share: float,
        weight: float,
    ) -> None:
        super().__init__(X, forbidden, "the graph's embedding")
        self.share, self.weight, self.tol = share, weight, tol
        self.graph, self.r = graph, r
        self.L = laplacian(graph.A, "normalized")
        self.centering = centering(X.shape[0])
        self.working_set = WorkingSet(X, targets=r, **ridge)
        self.penalty = np.inf  # ρ, until the first Y is known

    @abstractmethod
    def first_embedding(self) -> FloatArray:
        """Return the first Y (n × r)."""

    @abstractmethod
    def embed(self, Y: FloatArray, P: FloatArray) -> FloatArray:
        """Return the Y of the next step, whose objective at P is not higher."""

    @abstractmethod
    def extra(self, Y: FloatArray) -> float:
        """Return the terms of the objective in Y alone, beside tr(YᵀLY)."""

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
        return JointState(theta, np.zeros((d, r)), np.zeros(r), Y, Y, np.inf, np.inf, 0.0)

    def step(self, state: JointState) -> JointState:
        """Run one round."""
        Y = state.Y
        for _ in range(INNER_STEPS):
            Y = self.embed(Y, state.P)
        with np.errstate(divide="ignore"):
            u = self.penalty / (2 * state.theta)
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
        theta = without_negligible(theta)
        if violation <= self.tol:
            excess = 2 * self.pulls(self.X.T @ (Y - P)) / self.penalty - 1
            theta, violation = return_violators(theta, violation, excess, self.tol)
        return JointState(theta, W, b, Y, P, objective, violation, solution.residual)

    def violation(self, W: FloatArray, theta: FloatArray, V: FloatArray) -> float:
        """Return how far W is from stationary over the working set, relative, at V = Y − P."""
        sizes = np.maximum(theta, np.finfo(float).tiny)[:, None]
        slope = 2 * self.working_set.transposed_times(V) - self.penalty * W / sizes
        return float(theta @ row_norms(slope) / (self.penalty * theta.sum()))

    def scores(self, state: JointState) -> FloatArray:
        """Return the score of each feature."""
        return inactive_scores(state.theta, self.pulls(self.X.T @ (state.Y - state.P)))


# --- the base of the estimators -------------------------------------------------------------------


class JointEmbedding(Selector):
    """Base of the regressions on an embedding that they learn."""

    alpha: float
    beta: float
    n_components: int | None
    n_neighbors: int
    metric: Metric
    graph: Any
    solver: str
    solver_tol: float
    solver_max_iter: int
    tol: float
    max_iter: int

    _cost = Cost("graph + 2 per CG step", "(n + d) r + columns")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [*COUNT, None],
        "tol": NOT_NEGATIVE,
    }
    _supervised = False
    _ignores_y = True

    @abstractmethod
    def _problem(self, *problem: Any) -> JointProblem:
        """Return the problem on X.

        Its arguments are a graph, a tolerance, r, the ridge's options and the forbidden features.
        """

    def _fit(self, X: Matrix, y: Any) -> None:
        before, allowed = X.passes, self._allowed(X)
        graph = sample_graph(allowed, self.graph, self.n_neighbors, self.metric)
        r = self.n_components or graph.default_width(allowed.shape[1])
        # BLAS rounds by its number of threads; the answer must not
        with threadpool_limits(1, user_api="blas"):
            forbidden = self._constraints.forbidden
            problem = self._problem(X, graph, self.tol, r, ridge_options(self), forbidden)
            self.result_ = iterate(
                problem.step,
                problem.start(),
                measure=measure,
                stop="violation",
                tol=self.tol,
                max_iter=self.max_iter,
                name=type(self).__name__,
            )
        state = self.result_.value
        self.n_iter_ = len(self.result_.history)
        self.scores_ = problem.scores(state)
        self.coef_, self.intercept_, self.embedding_ = state.W, state.b, state.Y
        self.result_.stats.update(
            plans=problem.working_set.plans,
            passes=X.passes - before,
            penalty=float(problem.penalty),
            **graph.stats,
        )
