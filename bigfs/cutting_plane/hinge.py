"""The squared hinge loss, one class against the rest, by moving targets.

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

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy.linalg import cho_factor, cho_solve

from bigfs import engine
from bigfs.cutting_plane.columns import GatheredColumns, Residual
from bigfs.cutting_plane.elimination import Elimination, Solve, eliminate
from bigfs.cutting_plane.newton import MasterSolution, newton
from bigfs.cutting_plane.relaxation import Loss
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


class SquaredHinge(Loss):
    """½ Σ_ik ω_i² max(0, 1 − y_ik f_ik)², for samples whose target is diag(ω)Y."""

    data: GatheredColumns

    def __init__(self, data: GatheredColumns) -> None:
        super().__init__(data)
        # zero for a sample of weight zero, which has no loss
        self.Y = np.ascontiguousarray(np.sign(data.T))
        engine.require_memory(
            8 * ARRAYS_OF_SAMPLES * self.Y.size,
            f"the squared hinge loss of {len(self.Y)} samples and {self.Y.shape[1]} classifiers",
        )

    def slack(self, F: FloatArray, b: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return V = diag(ω)(Y ⊙ max(0, 1 − Y⊙(F + 1bᵀ))) at the best b, for F = XW, and that b.

        The search for b starts from the one given.
        """
        b = np.zeros(F.shape[1]) if b is None else b
        return best_slack(np.ascontiguousarray(F), self.Y, self.data.omega, b)

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

    @property
    def at_zero(self) -> float:
        V, _ = self.slack(np.zeros(self.Y.shape))
        return float(np.vdot(V, V)) / 2

    def residual(self, W: FloatArray, features: IntArray) -> Residual:
        F = self.columns(features) @ W if len(W) else np.zeros(self.Y.shape)
        V, _ = self.slack(F)
        return Residual(self.data.center(V), self.explained(V), float(np.vdot(V, V)))

    def products(
        self, W: FloatArray, features: IntArray, gathered: IntArray
    ) -> tuple[FloatArray, Residual]:
        residual = self.residual(W, features)
        return self.columns(gathered).T @ residual.V, residual

    def solve_master(
        self,
        features: IntArray,
        sets: tuple[IntArray, ...],
        gamma: float,
        eta: FloatArray,
        W: FloatArray,
        tol: float,
        factor: Factor | None,
    ) -> MasterSolution:
        G, _ = self.data.gram(features)
        share = DESCENT_SHARE * tol
        Z = self.columns(features)
        fit = self.fit(Z, W)
        for n_iter in range(1, MAX_ROUNDS + 1):  # noqa: B007  (its last value is reported)
            # with the targets fixed, C and W give all that the squared loss needs of them
            GW = G @ fit.W
            T_norm2 = fit.norm2 + float(np.vdot(fit.W, 2 * fit.C + GW))
            master = RestrictedMaster(G, fit.C + GW, T_norm2, gamma, sets)
            solution = newton(master, eta, share, factor, fit.W)
            eta = solution.eta
            ridge = ridge_at(master, eta, tol, solution.factor, solution.W)
            factor = ridge.factor
            d = coverage(sets, eta, len(W))
            fit, value = self.descend(Z, solution.W, d, gamma, _solver(ridge.factor), share)
            b = fit.norm2 + float(set_sums(sets, fit.C).max()) / gamma
            lower = fit.a**2 / (2 * b) if b > 0 else 0.0
            if value - lower <= tol * value:
                break
        return MasterSolution(eta, fit.W, value, lower, n_iter, ridge.factor)

    def descend(
        self,
        Z: Any,
        W: FloatArray,
        d: FloatArray,
        gamma: float,
        solve: Solve,
        tol: float,
        max_iter: int = MAX_DESCENT,
    ) -> tuple[Fit, float]:
        """Descend over W with η fixed, to the relative gap `tol`, and return the value as well.

        `solve` applies P⁻¹ to the active rows, those with d > 0.
        """
        active = np.flatnonzero(d > 0)
        d = d[active]
        penalty = gamma / d[:, None]
        fit = best = self.fit(Z, W)
        least = np.inf
        point = previous = W
        age = np.ones(W.shape[1])  # momentum of each classifier, which restarts by itself
        for n_iter in range(max_iter + 1):
            if n_iter:
                fit = self.fit(Z, point, fit.b)
            C, W = fit.C[active], fit.W[active]
            squares = np.einsum("jr,jr->j", W, W)
            value = 0.5 * fit.norm2 + 0.5 * gamma * float(np.sum(squares / d))
            if value < least:
                best, least = fit, value
            b = fit.norm2 + float(np.sum(d * np.einsum("jr,jr->j", C, C))) / gamma
            if b <= 0 or value - fit.a**2 / (2 * b) <= tol * value or n_iter == max_iter:
                break
            following = point.copy()
            following[active] += solve(C - penalty * W)
            uphill = np.einsum("jr,jr->r", point - following, following - previous) > 0
            age = np.where(uphill, 1.0, age)
            next_age = (1 + np.sqrt(1 + 4 * age**2)) / 2
            point = following + np.where(uphill, 0, (age - 1) / next_age) * (following - previous)
            previous, age = following, next_age
        return best, least

    def refit(self, features: IntArray, gamma: float) -> tuple[FloatArray, FloatArray]:
        """Return W and b of the classifiers on gathered features alone, with this penalty."""
        G, B = self.data.gram(features)
        factor = cho_factor(G + gamma * np.eye(len(G)))
        fit, _ = self.descend(
            self.columns(features),
            np.zeros(B.shape),
            np.ones(len(B)),
            gamma,
            lambda R: np.asarray(cho_solve(factor, R)),
            FINAL_TOL,
            MAX_FINAL_DESCENT,
        )
        return fit.W, fit.b

    def eliminate(
        self, features: IntArray, W: FloatArray, gamma: float, m: int, kept: IntArray
    ) -> Elimination:
        """Return the order of elimination. The targets follow the features left, exactly at m."""
        Z, (G, _) = self.columns(features), self.data.gram(features)

        def follow(
            remaining: IntArray, times_inverse: Solve, W: FloatArray
        ) -> tuple[FloatArray, float]:
            is_final, d = len(remaining) == m, np.ones(len(remaining))
            tol = FINAL_TOL if is_final else FOLLOW_TOL
            steps = MAX_FINAL_DESCENT if is_final else FOLLOW_STEPS
            fit, value = self.descend(Z[:, remaining], W, d, gamma, times_inverse, tol, steps)
            return fit.W, value

        B = self.fit(Z, W).C + G @ W
        return eliminate(G, B, 0.0, gamma, pauses=(m,), follow=follow, removed_last=kept)

    def exchange(
        self, features: IntArray, elimination: Elimination, gamma: float, m: int, kept: IntArray
    ) -> Elimination:
        """Return the order as it is: the targets would follow every exchange."""
        return elimination


def _solver(factor: Factor) -> Solve:
    """Return P⁻¹ = R K⁻¹ R as a function of the right-hand side, from a factor of K = I + RGR."""

    def solve(rhs: FloatArray) -> FloatArray:
        scaled = (factor.root * rhs).astype(factor.upper.dtype)
        return factor.root * np.asarray(
            cho_solve((factor.upper, False), scaled, check_finite=False)
        )

    return solve


@njit(nogil=True, cache=True)
def best_slack(
    F: FloatArray, Y: FloatArray, omega: FloatArray, b: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return V = diag(ω)(Y ⊙ max(0, 1 − Y⊙(F + 1bᵀ))) at the best b, and that b.

    The derivative by b falls with b and is linear between the points where a sample's loss sets in.
    Newton's method finds its root inside a bracket. A pass takes the samples of all classifiers.
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
