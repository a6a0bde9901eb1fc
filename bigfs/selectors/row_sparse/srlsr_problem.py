"""The problem of SRLSR and RLSR: its step, its certificate, and the working set of features.

The certificate for p < 1, at (W, b, Y) with the centered residual V = Y − XW − 1bᵀ, is how far the
rows of active features are from stationary, relative to the penalty:

    Σ_j ‖w_j‖ ‖x_jᵀV − γ w_j/φ_j‖ / γ‖W‖²₂,ₚ

A row at zero is stationary, because the slope of the penalty is infinite there. A run that this
certificate would end computes it once more, from a product of X with W.

For p = 1 the problem is convex, and a duality gap replaces it. Any V with 1ᵀV = 0 bounds the
optimum from below by a²/4q with

    a = 2 Σ_labeled ⟨v_i, y_i⟩ + 2 Σ_unlabeled min_k v_ik,    q = ‖V‖² + max_j ‖x_jᵀV‖² / γ

V is the residual whose mean is taken from its labeled rows alone, so that min_k v_ik of the others
is known in the pass that makes V. The maximum is over all features, also those that left the
working set. A feature that left and whose ‖x_jᵀV‖ is too large returns.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bigfs import engine
from bigfs.constraints import NO_CONSTRAINTS
from bigfs.linalg.prox import norm_2p, row_norms
from bigfs.linalg.ridge import Solution, centering
from bigfs.linalg.ridge.cg import STRIP, subtract_product
from bigfs.linalg.ridge.working_set import WorkingSet
from bigfs.matrix import Matrix
from bigfs.matrix.kernels import gram_times
from bigfs.result import Record
from bigfs.selectors.row_sparse.label_sums import LabelSums, sum_samples
from bigfs.selectors.row_sparse.rows import RowSparseProblem, inactive_scores, without_negligible
from bigfs.types import FloatArray, IntArray

NEGLIGIBLE = 1e-10  # a feature whose θ is below this share of the largest leaves the working set
RETURN_SHARE = 1e-3  # of θ's mass: what the features that return to the working set get


class SRLSRState(NamedTuple):
    """The solution after some rounds, with its certificate. Y is a function of (W, b)."""

    theta: FloatArray  # (d,): on the simplex after the first round; 0 where a feature is inactive
    W: FloatArray  # d × c
    b: FloatArray  # (c,)
    XtXW: FloatArray  # d × c: XcᵀXcW
    XtY: FloatArray  # d × c: XᵀY
    mean_Y: FloatArray  # (c,)
    objective: float
    violation: float  # the certificate over the working set
    gap: float  # the certificate over all features; infinite until the inactive ones were checked
    residual: float  # of the ridge solve, relative
    # Only of accelerated rounds. (d,): θ with which a feature left early, −1 if it returned, else 0
    left: FloatArray | None = None
    # 2 × (u + 1) × c: where the last round without extrapolation ended, (W, b) and (XcᵀXcW, 0) of
    # the u active features
    ended: FloatArray | None = None


class Point(NamedTuple):
    """Where a round ends, before its labels are completed."""

    W: FloatArray  # d × c
    b: FloatArray  # (c,)
    XtXW: FloatArray  # d × c
    residual: float


class SRLSRProblem(RowSparseProblem):
    """The data, the step, the certificate, and the working set of features."""

    def __init__(
        self,
        X: Matrix,
        codes: IntArray,
        c: int,
        p: float,
        gamma: float,
        tol: float,
        ridge: dict[str, Any],
        forbidden: IntArray = NO_CONSTRAINTS.forbidden,
    ) -> None:
        super().__init__(X, forbidden)
        self.codes, self.c, self.p, self.gamma, self.tol = codes, c, p, gamma, tol
        self.class_sizes = np.bincount(codes[codes >= 0], minlength=c)  # of the labeled samples
        self.n_labeled = int(self.class_sizes.sum())
        self.centering = centering(X.shape[0])
        self.working_set = WorkingSet(X, targets=c, **ridge)

    def start(self, theta: FloatArray | None) -> SRLSRState:
        """Return the state at the given θ, or 1, with W = 0: the unlabeled rows of Y are at 1/c."""
        n, d = self.X.shape
        theta = np.where(self.candidates, 1.0 if theta is None else theta, 0.0)
        W, XtXW, b = np.zeros((d, self.c)), np.zeros((d, self.c)), np.zeros(self.c)
        sums = sum_samples(self.X, self.codes, W, b)
        return SRLSRState(theta, W, b, XtXW, sums.product, sums.Y / n, np.inf, np.inf, np.inf, 0.0)

    def step(self, state: SRLSRState) -> SRLSRState:
        """Run one round."""
        next_state, sums = self.complete(self.solve(state))
        return self.check_inactive(next_state, sums)

    def solve(self, state: SRLSRState) -> Point:
        """Return the W and b that are best for the θ and the labels of the state."""
        return self.end(state, self.solve_from(state, state.W, state.XtXW))

    def solve_from(
        self, state: SRLSRState, start: FloatArray, start_product: FloatArray | None
    ) -> Solution:
        """Solve for W, from a start and its XcᵀXcW."""
        return self.working_set.solve_rhs(
            self.centering,
            self.penalties(state.theta),
            lambda rows: self.centered(state.XtY, state.mean_Y, rows),
            start,
            start_product,
        )

    def end(self, state: SRLSRState, solution: Solution) -> Point:
        """Return the solution with its b = mean(Y − XW)."""
        b = state.mean_Y - self.X.means @ solution.W
        return Point(solution.W, b, solution.product, solution.residual)

    def complete(self, point: Point) -> tuple[SRLSRState, LabelSums]:
        """Return the state at a point, with the sums over the samples, whose labels it completes.

        It takes one pass over the matrix of the working set.
        """
        sums = self.sums(point.W, point.b)
        state = SRLSRState(
            self.theta(point.W),
            point.W,
            point.b,
            point.XtXW,
            sums.product,
            sums.Y / self.X.shape[0],
            sums.V_norm2 + self.gamma * norm_2p(point.W, self.p) ** 2,
            np.inf,
            np.inf,
            point.residual,
        )
        state = state._replace(violation=self.violation(state, sums))
        if self.p < 1 and state.violation <= self.tol:  # so far by the product the solver claims
            state = state._replace(XtXW=self.gram_times(point.W))
            state = state._replace(violation=self.violation(state, sums))
        return state, sums

    def gram_times(self, W: FloatArray) -> FloatArray:
        """Return XcᵀXcW, in a pass over the matrix of the working set."""
        X, index = self.working_set.X, self.working_set.index
        rows = slice(None) if index is None else index
        product, means = engine.lazy_zeros(W.shape), X.means[:, None]
        active = np.asarray(gram_times(X, W[rows]))
        subtract_product(active, means, X.shape[0] * (means.T @ W[rows]))
        product[rows] = active
        return product

    def sums(self, W: FloatArray, b: FloatArray) -> LabelSums:
        """Return the sums over the samples with XᵀY, whose rows of inactive features may be zero.

        Y has the projections at (W, b) in its unlabeled rows.
        """
        index = self.working_set.index
        if index is None:
            return sum_samples(self.X, self.codes, W, b)
        sums = sum_samples(self.working_set.X, self.codes, W[index], b)
        product = engine.lazy_zeros(W.shape)
        product[index] = sums.product
        return sums._replace(product=product)

    def centered(self, XtY: FloatArray, mean_Y: FloatArray, rows: Any = ...) -> FloatArray:
        """Return rows of XcᵀY = XᵀY − n μ mean(Y)ᵀ."""
        centered = np.array(XtY[rows])
        sums = self.X.shape[0] * self.X.means[rows]
        subtract_product(centered, sums[:, None], mean_Y[None])
        return centered

    def penalties(self, theta: FloatArray) -> FloatArray:
        """Return γ/φ with φ = θ^(2/p − 1). It is infinite where a feature is inactive."""
        with np.errstate(divide="ignore"):
            return self.gamma / theta ** (2 / self.p - 1)

    def theta(self, W: FloatArray) -> FloatArray:
        """Return ‖w_j‖ᵖ / Σ‖w‖ᵖ, and 0 for the features that became negligible."""
        weights = row_norms(W) ** self.p
        self.require_weight(weights)
        weights = without_negligible(weights, NEGLIGIBLE)
        return weights / weights.sum()

    def violation(self, state: SRLSRState, sums: LabelSums) -> float:
        """Return the violation of stationarity (p < 1) or the duality gap (p = 1).

        Only the features of the working set count.
        """
        active, penalties = np.flatnonzero(state.theta), self.penalties(state.theta)[:, None]

        def residual(rows: IntArray) -> FloatArray:
            XtV = self.centered(state.XtY, state.mean_Y, rows) - state.XtXW[rows]
            if self.p == 1:
                return self.correlations(XtV, sums, rows)
            return XtV - penalties[rows] * state.W[rows]

        strips = [active[first : first + STRIP] for first in range(0, len(active), STRIP)]
        residuals = np.concatenate([row_norms(residual(rows)) for rows in strips])
        if self.p == 1:
            return self.duality_gap(residuals.max(), sums, state.objective)
        norms = row_norms(state.W)[active]
        return float(norms @ residuals / (self.gamma * norm_2p(norms[:, None], self.p) ** 2))

    def correlations(self, XtV: FloatArray, sums: LabelSums, rows: Any = ...) -> FloatArray:
        """Return rows of XᵀV of the V that bounds the optimum, from those of XcᵀV.

        The mean of this V is taken from its labeled rows alone, so that it is zero and min_k v_ik
        stays as it is in the others.
        """
        shift = sums.V / self.n_labeled
        return XtV + np.outer(self.X.means[rows], sums.V) - np.outer(self.labeled_X[rows], shift)

    @cached_property
    def labeled_X(self) -> FloatArray:
        """The sum of the labeled samples (d). Reads X once."""
        return np.asarray(self.X.T @ (self.codes >= 0).astype(np.float64))

    def duality_gap(self, largest_correlation: float, sums: LabelSums, objective: float) -> float:
        """Return the relative gap to the bound that V gives, from max_j ‖x_jᵀV‖."""
        shift = sums.V / self.n_labeled
        a = 2 * (sums.labeled_VY - shift @ self.class_sizes) + 2 * sums.least_V
        V_norm2 = sums.V_norm2 - 2 * shift @ sums.labeled_V + self.n_labeled * shift @ shift
        q = float(V_norm2) + largest_correlation**2 / self.gamma
        lower = max(float(a), 0.0) ** 2 / (4 * q) if q > 0 else 0.0  # V = 0 bounds it by 0
        return float((objective - lower) / objective) if objective > 0 else 0.0

    def check_inactive(self, state: SRLSRState, sums: LabelSums) -> SRLSRState:
        """Return the state with its gap over all features, once the working set is solved.

        Inactive features that violate optimality return to θ. It takes one pass over X, for p = 1
        only: with p < 1 a feature at zero is stationary.
        """
        if self.p < 1:
            return state._replace(gap=state.violation)
        if state.violation > self.tol:
            return state
        XtV = self.centered_residuals(state)
        correlations = self.pulls(self.correlations(XtV, sums))
        gap = self.duality_gap(correlations.max(), sums, state.objective)
        active = state.theta > 0
        violators = ~active & (correlations > correlations[active].max())
        if gap <= self.tol or not violators.any():
            return state._replace(gap=gap)
        theta = (1 - RETURN_SHARE) * state.theta + RETURN_SHARE * violators / violators.sum()
        return self.with_returned(state._replace(theta=theta, gap=gap), XtV)

    def with_returned(self, state: SRLSRState, XtV: FloatArray) -> SRLSRState:
        """Return the state with all rows of its products, from XcᵀV (d × c). Reads X once."""
        XtY = sum_samples(self.X, self.codes, state.W, state.b).product
        return state._replace(XtY=XtY, XtXW=self.centered(XtY, state.mean_Y) - XtV)

    def consistent(self, state: SRLSRState) -> SRLSRState:
        """Return the state whose θ has the features of its W. Here it is the state itself."""
        return state

    def centered_residuals(self, state: SRLSRState) -> FloatArray:
        """Return XcᵀV of all features. Reads X once."""
        sums = sum_samples(self.X, self.codes, state.W, state.b, "V")
        subtract_product(sums.product, self.X.means[:, None], sums.V[None])
        return sums.product

    def scores(self, state: SRLSRState) -> FloatArray:
        """Return the score of each feature."""
        return inactive_scores(state.theta, self.pulls(self.centered_residuals(state)))


def measure(state: SRLSRState) -> Record:
    """Return the record of a state in the history."""
    return {
        "objective": state.objective,
        "features": float(np.count_nonzero(state.theta)),
        "violation": state.violation,
        "gap": state.gap,
        "residual": state.residual,
    }
