"""The problem of JHLSR: its step, its certificate, and the working set of features.

The certificate, at (S, w) with V = AᵀΦ − (AᵀA + μL_H(w))XS, is the violation of stationarity: the
larger of that of S, and of what the linear model in w promises as a share of the objective:

    Σ_j ‖s_j‖ ‖2x_jᵀV − λ s_j/√(‖s_j‖² + ε)‖ / λ Σ‖s_j‖
    Σ_k (w_k max(g_k, 0) + (w_k + b_k/100) max(−g_k, 0)) / objective,      g = ∇_w − ⟨∇_w, w⟩

The second lets each weight shrink to zero, or double and grow by a hundredth of b_k, the least
degree of its samples, at most 1. The gradient tells no more, because the smoothness is not convex
in w. It is zero where w stays or, with incidence degrees, is the minimum.

With an intercept, P = XS + 1bᵀ takes the place of XS. The best b for S and w leaves a problem of S
with M − M11ᵀM/1ᵀM1 in the place of M = AᵀA + μL_H(w), and T − M1(1ᵀT)/1ᵀM1 in that of T = AᵀΦ. With
x̄ = XᵀM1/1ᵀM1 and t̄ = Tᵀ1/1ᵀM1 it is b = t̄ − Sᵀx̄. The b of a round is the best for the w before, and
the violation is also what b may still gain, as a share of the objective.

A feature becomes inactive when ‖s_j‖ falls below √ε/2, and returns if 2‖x_jᵀV‖ > λ, with the norm
that it would have if it alone returned.

Accelerated rounds have momentum, and let features leave early. With all else fixed, s_j = 0 lowers
the objective the most if

    ‖2x_jᵀV + 2 x_jᵀ diag(AᵀA + μ) x_j s_j‖ ≤ λ

where diag(AᵀA + μ) is at least AᵀA + μL_H. The plain rounds shrink such a row by a factor, so most
rows take many rounds to vanish. Here the features for which it held at the end of the last round
leave at once, if their rows have shrunk. A round that raises the objective by it takes it back. The
check of all features at the end lets those return that left too early, and they do not leave early
again. Many that return together may overshoot: a round that raises the objective by them starts
again from a tenth of their θ.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.graph.hypergraph.smoothness import Smoothness, WeightStep, choose_weights
from bigfs.linalg.conjugate_gradients import STRIP, subtract_product
from bigfs.linalg.prox import row_norms
from bigfs.linalg.ridge import weighted_squares
from bigfs.linalg.ridge.operator import SampleOperator
from bigfs.matrix import Matrix
from bigfs.matrix.panels import ColumnStrips, strip_width
from bigfs.result import Record
from bigfs.selectors.row_sparse.jhlsr_operator import HypergraphOperator
from bigfs.selectors.row_sparse.rows import (
    RETREAT,
    RowSparseProblem,
    inactive_scores,
    norm_alone,
    ridge_weights,
)
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray

EPSILON = 1e-14  # ε: √ε = 1e−7 is where a row counts as zero
RETREATS = 8  # of features that return, at most, in one round


class JHLSRState(NamedTuple):
    """The solution after some rounds, with its certificate."""

    theta: AnyArray  # (d,): λ/2u, 0 where a feature is inactive
    S: AnyArray  # d × r
    product: AnyArray  # d × r: Xᵀ(AᵀA + μL_H(w))XS, of the active features
    w: AnyArray  # (e,)
    objective: float
    violation: float  # of stationarity, on the working set
    gap: float  # of stationarity, on all features; infinite until the inactive ones were checked
    residual: float  # of the ridge solve, relative
    means: AnyArray = np.empty(0)  # (d,): x̄, of the active features. Empty without an intercept
    target_means: AnyArray = np.empty(0)  # (r,): t̄
    # only of accelerated rounds
    theta_before: AnyArray = np.empty(0)  # (d,): θ of the round before
    returned: AnyArray = np.empty(0)  # (d,): which features have returned
    age: float = 1.0  # of the momentum

    @property
    def intercept(self) -> FloatArray:
        """The best intercept for S and w (r,)."""
        b: FloatArray = self.target_means - self.means @ self.S
        return b


class JHLSRProblem(RowSparseProblem):
    """The data, the step and the certificate."""

    weight_arrays = 13

    def __init__(
        self,
        X: Matrix,
        T: Any,
        labeled: AnyArray,
        smoothness: Smoothness,
        weights: tuple[float, float, float],
        *,
        learn_w: bool,
        fit_intercept: bool,
        accelerate: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(X, T.shape[1], **options)
        self.accelerate = accelerate
        self.T, self.labeled, self.smoothness = T, labeled, smoothness
        height = max(T.shape[0], len(smoothness.hypergraph.members.sizes))
        self.width = strip_width(height, T.shape[1])
        # d × r, by strips of columns of the same width
        self.XtT = ColumnStrips.of(np.asarray(X.T @ T, dtype=np.float64), self.width)
        self.mu, self.lam, self.gamma = weights
        self.learn_w, self.fit_intercept = learn_w, fit_intercept
        self.T_sums = np.asarray(T.sum(axis=0)).ravel()  # (r,)
        self.fixed_operator: HypergraphOperator | None = None
        if not learn_w:
            self.fixed_operator = self.sample_operator(smoothness.hypergraph.w)

    def __enter__(self) -> Self:
        """Return the problem. Its temporary file is deleted when the block ends."""
        return self

    def __exit__(self, *error: object) -> None:
        self.XtT.__exit__(*error)

    def sample_operator(self, w: AnyArray) -> HypergraphOperator:
        """Return AᵀA + μL_H(w). Where w stays it is always the same object."""
        return self.fixed_operator or HypergraphOperator.of(
            self.smoothness, self.labeled, self.mu, w
        )

    def start(self) -> JHLSRState:
        """Return the state at u = λ and the hypergraph's own weights."""
        theta = np.where(self.candidates, 0.5, 0.0)
        # the caller keeps them during all rounds
        S, product = (engine.lazy_zeros((len(theta), self.T.shape[1])) for _ in range(2))
        w = self.smoothness.hypergraph.w
        state = JHLSRState(theta, S, product, w, np.inf, np.inf, np.inf, 0.0)
        if self.accelerate:
            state = state._replace(theta_before=theta, returned=theta < 0)
        if not self.fit_intercept:
            return state
        M1 = self.sample_operator(w).ones
        return self.with_intercept(state, M1, self.X.T @ M1 / M1.sum(), self.T_sums)

    def with_intercept(
        self, state: JHLSRState, M1: FloatArray, means: FloatArray, V_sums: FloatArray
    ) -> JHLSRState:
        """Return the state with x̄ and t̄, and with the product of the centered M."""
        subtract_product(state.product, means[:, None], (self.T_sums - V_sums)[None])
        return state._replace(means=means, target_means=self.T_sums / M1.sum())

    def add_intercept(self, state: JHLSRState, P: ColumnStrips) -> None:
        b = state.intercept
        P.replace(lambda columns, P_s: np.add(P_s, b[columns], out=P_s))

    def cross_product(
        self, state: JHLSRState, start: int, stop: int, rows: Any = slice(None)
    ) -> FloatArray:
        """Return rows of XᵀT, or of what takes its place with an intercept, in [start, stop)."""
        XtT: FloatArray = self.XtT.rows(start, stop)[rows]
        if not self.fit_intercept:
            return XtT
        return XtT - np.outer(state.means[start:stop][rows], self.T_sums)

    def step(self, state: JHLSRState) -> JHLSRState:
        """Run one round, with momentum if it is accelerated."""
        if not self.accelerate:
            return self.complete(state, *self.solve(state))
        end = self.go_beyond(state)
        returned = state.returned | (state.theta == 0) & (end.theta > 0)
        return end._replace(returned=returned)

    def round(self, state: JHLSRState) -> JHLSRState:
        """Run one accelerated round, of which a change that raises the objective is taken back.

        Features that leave early stay then, and those that have just returned start nearer to zero.
        """
        S, residual = self.solve(state)
        leaving = self.leaving(state, S)
        S[leaving] = 0
        end = self.complete(state, S, residual)
        del S  # with `end`, two arrays of d × r less while a solve runs
        if leaving.any() and end.objective > state.objective:
            del end
            end = self.complete(state, *self.solve(state))
        new = (state.theta > 0) & ~state.S.any(axis=1)
        for _ in range(RETREATS):
            if not (end.objective > state.objective and new.any()):
                break
            del end
            state = state._replace(theta=np.where(new, RETREAT * state.theta, state.theta))
            end = self.complete(state, *self.solve(state))
        return end

    def leaving(self, state: JHLSRState, S: FloatArray) -> BoolArray:
        """Return the mask of the features that leave: those that were best at zero and shrank."""
        leaving = np.zeros(len(S), dtype=bool)
        if not np.isfinite(state.objective):  # the first round, before which there is no V
            return leaving
        for first in range(0, len(S), STRIP):
            rows = slice(first, min(first + STRIP, len(S)))
            squares = self.squares[rows]
            XtV = self.cross_product(state, rows.start, rows.stop) - state.product[rows]
            pulls = row_norms(XtV + squares[:, None] * state.S[rows])
            shrank = row_norms(S[rows]) < row_norms(state.S[rows])
            leaving[rows] = (norm_alone(pulls, squares, self.lam) == 0) & shrank
        return leaving & (state.theta > 0) & ~state.returned

    def solve(self, state: JHLSRState) -> tuple[AnyArray, float]:
        """Return the next S and the relative residual of its ridge system."""
        M = self.sample_operator(state.w)
        solution = self.working_set.solve_rhs(
            M.centered if self.fit_intercept else M,
            ridge_weights(self.lam, state.theta),
            lambda rows: self.cross_product(state, 0, len(state.S), rows),
            state.S,
            state.product,
        )
        return solution.W, solution.residual

    def complete(self, state: JHLSRState, S: AnyArray, residual: float) -> JHLSRState:
        """Return the state that follows with the new S."""
        if self.width < self.T.shape[1]:
            engine.trim_memory()  # what the solve has left
        with self.working_set.times_by_strips(S, self.width) as P:
            return self.complete_round(state, S, P)._replace(residual=residual)

    def complete_round(self, state: JHLSRState, S: AnyArray, P: ColumnStrips) -> JHLSRState:
        """Choose w and θ for the new S, with P = XS, and measure the violation."""
        norms = row_norms(S)
        self.require_weight(norms)
        if self.fit_intercept:
            self.add_intercept(state._replace(S=S), P)
        smooth_norms = np.sqrt(norms**2 + EPSILON)
        loss = sum(self.loss(columns, P_s) for columns, P_s in P)
        penalty = self.lam * smooth_norms.sum()
        w, smoothness, promise = self.weight_step(P, state.w, float(loss + penalty))
        objective = float(loss + self.mu * smoothness + penalty)
        if self.learn_w:  # else γ‖w‖² is a constant, which the other terms may vanish against
            objective += self.gamma * float(w @ w)
        M = self.sample_operator(w)
        if not P.whole:
            engine.trim_memory()  # what the steps of w have left
        P.replace(lambda columns, P_s: self.residual(columns, M, P_s))
        V = P  # V = T − M P at the new w, which takes the place of P
        XtV = self.working_set.transposed_times(V)
        means = state.means
        if self.fit_intercept:
            M1, V_sums = M.ones, np.concatenate([V_s.sum(axis=0) for _, V_s in V])
            promise = max(promise, float(V_sums @ V_sums / M1.sum()))  # what b may gain
            if self.learn_w:
                means = self.working_set.transposed_times(M1[:, None])[:, 0] / M1.sum()
        violation = max(self.violation(S, norms, smooth_norms, XtV), promise / objective)
        active = (state.theta > 0) & (norms >= np.sqrt(EPSILON) / 2)
        theta = np.where(active, smooth_norms, 0.0)
        gap, known = np.inf, self.working_set.index
        if violation <= self.tol:
            known = None
            if np.any(~active & self.candidates):
                XtV = np.asarray(self.X.T @ V)
            if self.fit_intercept and self.learn_w:
                means = self.X.T @ M1 / M1.sum()
            violators = ~active & (2 * self.pulls(XtV) > (1 + self.tol) * self.lam)
            pulls = row_norms(XtV[violators])
            theta[violators] = norm_alone(pulls, self.squares[violators], self.lam)
            gap = np.inf if violators.any() else violation
        if not theta.any():
            raise ValueError(
                f"lam={self.lam:g} leaves every row of weights below {EPSILON**0.5:.0e}: choose a "
                f"smaller one, or scale X to values near 1"
            )
        state = JHLSRState(theta, S, self.product(XtV, known), w, objective, violation, gap, 0.0)
        return self.with_intercept(state, M1, means, V_sums) if self.fit_intercept else state

    def product(self, XtV: AnyArray, known: IntArray | None) -> AnyArray:
        """Return XᵀMXS in the memory of XᵀV, of whose rows some are known, or all."""
        is_known = np.full(len(XtV), known is None)
        if known is not None:
            is_known[known] = True
        for first in range(0, len(XtV), STRIP):
            rows = first + np.flatnonzero(is_known[first : first + STRIP])
            XtT = self.XtT.rows(first, min(first + STRIP, len(XtV)))
            XtV[rows] = XtT[rows - first] - XtV[rows]
        return XtV

    def target(self, columns: slice) -> FloatArray:
        """Return columns of T (n × width), as an array of their own."""
        T = self.T[:, columns]
        return np.asarray(T.toarray() if sp.issparse(T) else T.copy())

    def loss(self, columns: slice, P_s: FloatArray) -> float:
        """Return the part of ‖AP − Φ‖² in some columns."""
        difference = self.target(columns)
        difference -= P_s
        return float(self.labeled @ np.einsum("vr,vr->v", difference, difference))

    def residual(self, columns: slice, M: SampleOperator, P_s: FloatArray) -> FloatArray:
        """Return columns of V = T − M P (n × width), in the memory of P's columns."""
        MP = M.apply(P_s, overwrite=True)
        return np.subtract(self.target(columns), MP, out=MP)

    def weight_step(self, P: ColumnStrips, w: AnyArray, rest: float) -> WeightStep:
        """Return the next w, where the other terms of the objective are `rest`."""
        if not self.learn_w:
            return WeightStep(w, self.smoothness.trace(P, w).value, 0.0)
        return choose_weights(self.smoothness, P, w, self.mu, self.gamma, self.tol * rest / 2)

    def violation(
        self, S: AnyArray, norms: AnyArray, smooth_norms: AnyArray, XtV: AnyArray
    ) -> float:
        """Return the violation of stationarity, relative to the penalty's slope."""
        scale, total = self.lam * norms.sum(), 0.0
        for first in range(0, len(S), STRIP):
            rows = slice(first, first + STRIP)
            residual = 2 * XtV[rows] - self.lam * S[rows] / smooth_norms[rows, None]
            total += float(norms[rows] @ row_norms(residual))
        return float(total / scale) if scale > 0 else 0.0

    @cached_property
    def squares(self) -> FloatArray:
        """The diagonal of Xᵀ(AᵀA + μI)X (d,), at least that of Xᵀ(AᵀA + μL_H)X. One pass."""
        return weighted_squares(self.X, self.labeled + self.mu)

    def measure(self, state: Any) -> Record:
        return super().measure(state) | {"hyperedges": float(np.count_nonzero(state.w))}

    def scores(self, state: JHLSRState) -> FloatArray:
        """Return the score of each feature.

        The product of a converged run has all rows. Otherwise it takes a round's passes over X.
        """
        if np.isfinite(state.gap):
            XtV = self.cross_product(state, 0, len(state.S)) - state.product
        else:
            M = self.sample_operator(state.w)
            with self.working_set.times_by_strips(state.S, self.width) as P:
                if self.fit_intercept:
                    self.add_intercept(state, P)
                P.replace(lambda columns, P_s: self.residual(columns, M, P_s))
                XtV = np.asarray(self.X.T @ P)
        norms = np.where(state.theta > 0, row_norms(state.S), 0.0)
        return inactive_scores(norms, self.pulls(XtV))
