"""The relaxation with the squared hinge loss, one class against the rest, by moving targets.

    ½ Σ_ik ω_i² max(0, 1 − y_ik f_ik)²  =  min_{M ≥ 0} ½‖diag(ω)(Y + Y⊙M − f)‖²,    y_ik ∈ {−1, 1}

with f = XW + 1bᵀ: least squares whose targets move along with the samples beyond the margin. It is
jointly convex in W, b and M, so the cutting plane of `bigfs.cutting_plane.relaxation` carries over.
[Tan, Tsang, Wang, JMLR 2014; Xiang et al., IEEE TNNLS 2012]

At the best b and M, the residual V = diag(ω) (Y ⊙ max(0, 1 − Y⊙f)) has ωᵀV = 0 and Y⊙V ≥ 0. Any
such V gives the lower bound a²/(2b), with a = tr(Vᵀ diag(ω) Y) and b as for the squared loss.

The master alternates two descents on its value ½‖V‖² + γ/2 Σ_j ‖w_j‖²/d_j, d_j = Σ_{t∋j} η_t:

* over η and W with the targets fixed, where it is the master of the squared loss;
* over W and the targets with η fixed: with C = XcᵀV and the factor of P = G + γ diag(1/d) at hand,

      W ← W + P⁻¹(C − γ diag(1/d) W)      the least squares solution for the new targets

  It is a gradient step in a metric that majorizes, so Nesterov's momentum speeds it up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy.linalg import cho_factor, cho_solve

from bigfs import engine
from bigfs.constraints import NO_CONSTRAINTS, Constraints
from bigfs.cutting_plane import master_solvers
from bigfs.cutting_plane.columns import GatheredColumns, Residual
from bigfs.cutting_plane.elimination import Elimination, eliminate
from bigfs.cutting_plane.master_solvers import MasterSolution
from bigfs.cutting_plane.relaxation import CuttingPlaneState, Relaxation
from bigfs.cutting_plane.restricted_master import (
    Factor,
    RestrictedMaster,
    coverage,
    ridge_at,
    set_sums,
)
from bigfs.types import FloatArray, IntArray

MAX_ROUNDS = 50  # of the master
MAX_DESCENT = 30  # steps with η fixed, per round
DESCENT_SHARE = 0.25  # of the master's tolerance, to which either descent goes
MAX_FINAL_DESCENT = 500  # steps for the set of m features, or for a fixed set
FINAL_TOL = 1e-6  # its relative gap
FOLLOW_TOL, FOLLOW_STEPS = 1e-3, 2  # of the descents between two removals
INTERCEPT_STEPS, INTERCEPT_TOL = 60, 1e-14  # of Newton's method for b, which ends earlier
# Share of stored entries from which the gathered columns are multiplied as a dense array.
DENSE_SHARE = 0.2
ARRAYS_OF_SAMPLES = 8  # n × r, that a step holds at once


class Fit(NamedTuple):
    """Weights W of some columns Z, with their residual."""

    W: FloatArray  # u × r
    b: FloatArray  # (r,): the intercepts
    C: FloatArray  # u × r: XcᵀV
    a: float  # tr(Vᵀ diag(ω) Y)
    norm2: float  # ‖V‖²


class HingeRelaxation(Relaxation):
    """The convex relaxation for m features and penalty γ, with the squared hinge loss.

    Parameters
    ----------
    data : GatheredColumns
        The samples, whose response is diag(ω)Y.
    m : int
        Number of features.
    gamma : float
        Penalty γ (unscaled).
    constraints : Constraints, default=NO_CONSTRAINTS
        Features that every set holds, and features that none holds.
    """

    data: GatheredColumns

    def __init__(
        self,
        data: GatheredColumns,
        m: int,
        gamma: float,
        constraints: Constraints = NO_CONSTRAINTS,
    ) -> None:
        super().__init__(data, m, gamma, constraints)
        # zero for a sample of weight zero, which has no loss
        self.Y = np.ascontiguousarray(np.sign(data.T))
        engine.require_memory(
            8 * ARRAYS_OF_SAMPLES * self.Y.size,
            f"the squared hinge loss of {len(self.Y)} samples and {self.Y.shape[1]} machines",
        )

    # --- the loss ---

    def intercept(self, F: FloatArray, b: FloatArray | None = None) -> FloatArray:
        """Return the best b for F = XW: the root of Σ_i ω_i² y_ik max(0, 1 − y_ik(f_ik + b_k))."""
        return self.slack(F, b)[1]

    def slack(self, F: FloatArray, b: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return V = diag(ω)(Y ⊙ max(0, 1 − Y⊙(F + 1bᵀ))) at the best b, for F = XW, and that b.

        The search for b starts from the one given.
        """
        b = np.zeros(F.shape[1]) if b is None else b
        return _best_slack(np.ascontiguousarray(F), self.Y, self.data.omega, b)

    def fit(self, Z: Any, W: FloatArray, b: FloatArray | None = None) -> Fit:
        """Return the weights W of the columns Z (n × u) with their residual."""
        V, b = self.slack(Z @ W, b)
        return Fit(W, b, Z.T @ self.data.center(V), self.explained(V), float(np.vdot(V, V)))

    def explained(self, V: FloatArray) -> float:
        """Return a = tr(Vᵀ diag(ω) Y)."""
        return float(np.vdot(V, self.data.omega[:, None] * self.Y))

    def columns(self, features: IntArray) -> Any:
        """Return gathered columns, dense where that is faster to multiply."""
        Z = self.data.Z[:, self.data.positions(features)].tocsc().astype(np.float64)
        Z.data[self.data.constant[self.data.positions(features)].repeat(np.diff(Z.indptr))] = 0
        return Z.toarray() if Z.nnz > DENSE_SHARE * Z.shape[0] * Z.shape[1] else Z

    # --- what the cutting plane asks of it ---

    def start(self) -> CuttingPlaneState:
        """Return the state at W = 0, without any set."""
        V, _ = self.slack(np.zeros(self.Y.shape))
        return super().start()._replace(upper=float(np.vdot(V, V)) / 2)

    def residual(self, state: CuttingPlaneState) -> Residual:
        """Return the residual of the state's weights."""
        F = self.columns(state.features) @ state.W if len(state.W) else np.zeros(self.Y.shape)
        V, _ = self.slack(F)
        return Residual(self.data.center(V), self.explained(V), float(np.vdot(V, V)))

    def inner_certificate(self, state: CuttingPlaneState) -> tuple[IntArray, float]:
        """Return the next set among the gathered features, and a bound of that relaxation."""
        residual = self.residual(state)
        C = self.columns(state.gathered).T @ residual.V
        s = np.einsum("jr,jr->j", C, C)
        best = self.constraints.within(state.gathered).order(s)[: self.m]
        return state.gathered[best], self.lower_bound(residual, s[best])

    def solve_master(
        self,
        features: IntArray,
        sets: tuple[IntArray, ...],
        eta: FloatArray,
        W: FloatArray,
        solver: str,
        tol: float,
    ) -> MasterSolution:
        """Solve the master over sets of positions among `features`, from `eta` and W."""
        G, _ = self.data.gram(features)
        share = DESCENT_SHARE * tol
        Z, kept_factor = self.columns(features), self.factor_for(features)
        fit = self.fit(Z, W)
        for n_iter in range(1, MAX_ROUNDS + 1):  # noqa: B007  (its last value is reported)
            # with the targets fixed, C and W give all that the squared loss needs of them
            GW = G @ fit.W
            T_norm2 = fit.norm2 + float(np.vdot(fit.W, 2 * fit.C + GW))
            master = RestrictedMaster(G, fit.C + GW, T_norm2, self.gamma, sets)
            solution = master_solvers.solve(master, eta, solver, share, kept_factor, fit.W)
            eta = solution.eta
            kept_factor = factor = ridge_at(master, eta, tol, solution.factor, solution.W).factor
            d = coverage(sets, eta, len(W))
            fit = self.descend(Z, solution.W, d, _solver(factor), share)
            value = self.value(fit, d)
            b = fit.norm2 + float(set_sums(sets, fit.C).max()) / self.gamma
            lower = fit.a**2 / (2 * b) if b > 0 else 0.0
            if value - lower <= tol * value:
                break
        return MasterSolution(eta, fit.W, value, lower, n_iter, factor)

    def value(self, fit: Fit, d: FloatArray) -> float:
        """Return ½‖V‖² + γ/2 Σ‖w_j‖²/d_j."""
        active = d > 0
        squares = np.einsum("jr,jr->j", fit.W[active], fit.W[active])
        return 0.5 * fit.norm2 + 0.5 * self.gamma * float(np.sum(squares / d[active]))

    def descend(
        self,
        Z: Any,
        W: FloatArray,
        d: FloatArray,
        solve: Callable[[FloatArray], FloatArray],
        tol: float,
        max_iter: int = MAX_DESCENT,
    ) -> Fit:
        """Descend over W with η fixed, to the relative gap `tol` of that problem.

        `solve` applies P⁻¹ to the active rows, those with d > 0.
        """
        active = np.flatnonzero(d > 0)
        penalty = self.gamma / d[active][:, None]
        fit = best = self.fit(Z, W)
        least = np.inf
        point = previous = W
        age = np.ones(W.shape[1])  # momentum of each machine, which restarts by itself
        for n_iter in range(max_iter + 1):
            if n_iter:
                fit = self.fit(Z, point, fit.b)
            value = self.value(fit, d)
            if value < least:
                best, least = fit, value
            C = fit.C[active]
            b = fit.norm2 + float(np.sum(d[active] * np.einsum("jr,jr->j", C, C))) / self.gamma
            if b <= 0 or value - fit.a**2 / (2 * b) <= tol * value or n_iter == max_iter:
                break
            following = point.copy()
            following[active] += solve(C - penalty * point[active])
            uphill = np.einsum("jr,jr->r", point - following, following - previous) > 0
            age = np.where(uphill, 1.0, age)
            next_age = (1 + np.sqrt(1 + 4 * age**2)) / 2
            point = following + np.where(uphill, 0, (age - 1) / next_age) * (following - previous)
            previous, age = following, next_age
        return best

    def refit(self, features: IntArray, gamma: float) -> tuple[FloatArray, FloatArray]:
        """Return W and b of the machines on gathered features alone, with this penalty."""
        G, B = self.data.gram(features)
        problem = HingeRelaxation(self.data, len(features), gamma)
        factor = cho_factor(G + gamma * np.eye(len(G)))
        Z = self.columns(features)
        fit = problem.descend(
            Z,
            np.zeros(B.shape),
            np.ones(len(B)),
            lambda R: np.asarray(cho_solve(factor, R)),
            FINAL_TOL,
            MAX_FINAL_DESCENT,
        )
        return fit.W, fit.b

    def eliminate_to_m(self, state: CuttingPlaneState) -> tuple[IntArray, Elimination]:
        """Return the features of largest weight in the union, and their order of elimination.

        The targets follow what is left. At m features they are exact, so that the objective is.
        """
        features = self.candidates(state)
        G, _ = self.data.gram(features)
        Z = self.columns(features)
        W = state.W[np.searchsorted(state.features, features)]

        def follow(
            remaining: IntArray, times_inverse: Callable[[FloatArray], FloatArray], W: FloatArray
        ) -> tuple[FloatArray, float]:
            is_final = len(remaining) == self.m
            fit = self.descend(
                Z[:, remaining],
                W,
                np.ones(len(remaining)),
                times_inverse,
                FINAL_TOL if is_final else FOLLOW_TOL,
                MAX_FINAL_DESCENT if is_final else FOLLOW_STEPS,
            )
            return fit.W, self.value(fit, np.ones(len(remaining)))

        fit = self.fit(Z, W)
        B = fit.C + G @ W
        kept = self.constraints.within(features).kept
        return features, eliminate(
            G, B, 0.0, self.gamma, pauses=(self.m,), follow=follow, removed_last=kept
        )


def _solver(factor: Factor) -> Callable[[FloatArray], FloatArray]:
    """Return P⁻¹ = R K⁻¹ R as a function of the right-hand side, from a factor of K = I + RGR."""

    def solve(rhs: FloatArray) -> FloatArray:
        scaled = (factor.root * rhs).astype(factor.upper.dtype)
        return factor.root * np.asarray(
            cho_solve((factor.upper, False), scaled, check_finite=False)
        )

    return solve


@njit(nogil=True, cache=True)
def _best_slack(
    F: FloatArray, Y: FloatArray, omega: FloatArray, b: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return V = diag(ω)(Y ⊙ max(0, 1 − Y⊙(F + 1bᵀ))) at the best b, and that b.

    The derivative by b falls with b and is linear between the points where a sample's loss sets in.
    Newton's method finds its root inside a bracket. A pass takes the samples of all machines.
    """
    n, r = F.shape
    low, high = np.full(r, -np.inf), np.full(r, np.inf)
    b = b.copy()
    for _ in range(INTERCEPT_STEPS):
        value, total = np.zeros(r), np.zeros(r)
        for i in range(n):
            weight = omega[i] * omega[i]
            for k in range(r):
                distance = 1 - Y[i, k] * (F[i, k] + b[k])
                value[k] += weight * Y[i, k] * max(distance, 0.0)
                total[k] += weight * (distance > 0)
        ended = True
        for k in range(r):
            low[k] = b[k] if value[k] >= 0 else low[k]
            high[k] = b[k] if value[k] <= 0 else high[k]
            following = b[k] + value[k] / total[k] if total[k] > 0 else b[k]
            if not low[k] <= following <= high[k]:
                following = (low[k] + high[k]) / 2
            ended &= abs(following - b[k]) <= INTERCEPT_TOL * (1 + abs(b[k]))
            b[k] = following
        if ended:
            break
    V = np.empty((n, r))
    for i in range(n):
        for k in range(r):
            V[i, k] = omega[i] * Y[i, k] * max(1 - Y[i, k] * (F[i, k] + b[k]), 0.0)
    return V, b
