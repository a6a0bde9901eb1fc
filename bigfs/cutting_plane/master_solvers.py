"""Three solvers of the restricted master, checked against one another.

newton    projected Newton on J(η)
simplex   the fixed point η_t ∝ ‖Ωᵗ‖
apg       accelerated proximal gradient on Ω itself, the paper's

The first two work on the reduced function J of `restricted_master`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfs.cutting_plane.restricted_master import (
    MASTER_TOL,
    Factor,
    RestrictedMaster,
    coverage,
    hessian,
    ridge_at,
    set_sums,
    times,
)
from bigfs.linalg.prox import shrink_squared_sum
from bigfs.types import FloatArray, IntArray

ARMIJO = 1e-4  # share of the predicted decrease that newton's line search asks for
MIN_STEP = 1e-10  # at which the line search gives up
ON_BOUND = 1e-15  # a coordinate of the simplex below it is zero
MAX_CHANGES = 50  # of the active set, for each coordinate
CHECK_EVERY = 20  # iterations of apg between two certificates
EIGENVALUE_MARGIN = 1.05  # over the power iteration's estimate, which is from below


class MasterSolution(NamedTuple):
    """A solution of the master, with its certificate."""

    eta: FloatArray  # κ: weights of the sets
    W: FloatArray  # u × r: Σ_t Ωᵗ
    value: float
    lower: float  # a lower bound of the optimum
    n_iter: int
    factor: Factor  # the last one, which may be released

    @property
    def gap(self) -> float:
        """The relative duality gap."""
        return (self.value - self.lower) / max(abs(self.value), np.finfo(float).tiny)


def solve(
    master: RestrictedMaster,
    eta: FloatArray,
    solver: str = "auto",
    tol: float = MASTER_TOL,
    factor: Factor | None = None,
    W: FloatArray | None = None,
) -> MasterSolution:
    """Minimize the master from `eta` until its own relative duality gap is `tol`.

    "newton" needs a handful of Cholesky factorizations of u columns. "simplex" converges linearly
    and needs the same factorizations. "apg" needs products only and is slow where sets overlap.
    "auto" is newton, the fastest of the three wherever it was measured. A new set enters newton at
    weight zero, where W and `factor` of the solution before still hold and save one factorization.
    """
    if solver in ("auto", "newton"):
        return newton(master, eta, tol, factor, W)
    return {"simplex": simplex, "apg": apg}[solver](master, eta, tol)


# --- on η -----------------------------------------------------------------------------------------


def newton(
    master: RestrictedMaster,
    eta: FloatArray,
    tol: float = MASTER_TOL,
    factor: Factor | None = None,
    W: FloatArray | None = None,
    max_iter: int = 100,
) -> MasterSolution:
    """Projected Newton: each step minimizes the quadratic model on the simplex, then backtracks."""
    current = ridge_at(master, eta, tol, factor, W)
    for n_iter in range(max_iter):
        gap = _simplex_gap(current.gradient, eta)
        if gap <= tol * current.value or n_iter == max_iter - 1:
            break
        model_minimum = _quadratic_on_simplex(hessian(master, current), current.gradient, eta)
        current.factor.release()  # the next one is as large
        direction = model_minimum - eta
        slope, length = current.gradient @ direction, 1.0
        while length > MIN_STEP:
            trial_eta = np.maximum(eta + length * direction, 0)
            trial_eta = trial_eta / trial_eta.sum()
            trial = ridge_at(master, trial_eta, tol)
            if trial.value <= current.value + ARMIJO * length * slope:
                break
            length /= 2
            if length > MIN_STEP:
                trial.factor.release()
        if trial.value >= current.value:  # nothing left to gain in floating point
            break
        eta, current = trial_eta, trial
    lower = current.value - _simplex_gap(current.gradient, eta)
    return MasterSolution(eta, current.W, current.value, lower, n_iter, current.factor)


def simplex(
    master: RestrictedMaster, eta: FloatArray, tol: float = MASTER_TOL, max_iter: int = 2000
) -> MasterSolution:
    """Iterate to the fixed point η_t ∝ ‖Ωᵗ‖ with Ωᵗ_j = (η_t/d_j) w_j.

    A weight of zero stays zero, so the start is moved inside the simplex.
    """
    eta = np.maximum(eta, 1e-3 / len(eta))
    eta = eta / eta.sum()
    for n_iter in range(max_iter):  # noqa: B007  (its last value is reported)
        current = ridge_at(master, eta)
        if _simplex_gap(current.gradient, eta) <= tol * current.value:
            break
        # ‖Ωᵗ‖ = (η_t/γ) ‖C_t‖, because γ w_j / d_j = x_jᵀV
        norms = eta * np.sqrt(set_sums(master.sets, current.C))
        eta = norms / norms.sum()
    lower = current.value - _simplex_gap(current.gradient, eta)
    return MasterSolution(eta, current.W, current.value, lower, n_iter, current.factor)


def _simplex_gap(gradient: FloatArray, eta: FloatArray) -> float:
    """Return ⟨∇J, η⟩ − min_t ∇J_t, which bounds J(η) − min J because J is convex."""
    return float(gradient @ eta - gradient.min())


def _quadratic_on_simplex(H: FloatArray, g: FloatArray, eta: FloatArray) -> FloatArray:
    """Return argmin over the simplex of gᵀz + ½ zᵀHz, z = x − η, by an active-set method."""
    k = len(g)
    H = H + np.eye(k) * (1e-12 * np.trace(H) / k + np.finfo(float).tiny)
    linear = g - H @ eta
    is_free = eta > 0
    x = np.where(is_free, eta, 0)
    for _ in range(MAX_CHANGES * k):
        free = np.flatnonzero(is_free)
        kkt = np.block(
            [
                [H[np.ix_(free, free)], np.ones((len(free), 1))],
                [np.ones((1, len(free))), np.zeros((1, 1))],
            ]
        )
        solution = np.linalg.solve(kkt, np.append(-linear[free], 1.0))
        new, multiplier = solution[:-1], -solution[-1]
        if new.min() < 0:  # go as far as the simplex allows and fix what hits zero
            leaving = (new < x[free]) & (new < 0)
            length = np.min(x[free][leaving] / (x[free] - new)[leaving])
            x[free] = np.maximum(x[free] + length * (new - x[free]), 0)
            is_free[free[(new < 0) & (x[free] <= ON_BOUND)]] = False
            continue
        x[:] = 0
        x[free] = new
        slack = linear + H @ x - multiplier
        slack[is_free] = 0
        if slack.min() >= -1e-12 * (1 + abs(multiplier)):
            break
        is_free[np.argmin(slack)] = True
    return x / x.sum()


# --- on the blocks Ωᵗ, the paper's ----------------------------------------------------------------


def apg(
    master: RestrictedMaster, eta: FloatArray, tol: float = MASTER_TOL, max_iter: int = 20000
) -> MasterSolution:
    """SparGE, Alg. 3: momentum with restart, step from the largest eigenvalue of the sets' Gram."""
    G, B, _, gamma, sets = master
    u = len(B)
    members = np.concatenate(sets)
    set_of_row = np.repeat(np.arange(len(sets)), [len(s) for s in sets])
    tau = _largest_eigenvalue(G, np.bincount(members, minlength=u).astype(float))
    inside = np.maximum(eta, 1e-6)
    first = ridge_at(master, inside / inside.sum())
    Omega = _split(first.W, coverage(sets, eta, u), sets, eta)
    extrapolated, momentum = Omega, 1.0
    upper, lower = np.inf, -np.inf

    def proximal_step(point: FloatArray) -> FloatArray:
        moved = point - (times(G, _join(point, members, u)) - B)[members] / tau
        shrinkage = shrink_squared_sum(_block_norms(moved, set_of_row), gamma / tau)
        return moved * shrinkage[set_of_row][:, None]

    for n_iter in range(max_iter):
        if n_iter % CHECK_EVERY == 0:
            upper, lower = _bounds(master, Omega, _join(Omega, members, u), set_of_row)
            if upper - lower <= tol * upper:
                break
        new = proximal_step(extrapolated)
        if np.vdot(extrapolated - new, new - Omega) > 0:  # the momentum points uphill: restart it
            momentum, new = 1.0, proximal_step(Omega)
        next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        extrapolated = new + (momentum - 1) / next_momentum * (new - Omega)
        Omega, momentum = new, next_momentum
    norms = _block_norms(Omega, set_of_row)
    eta = norms / norms.sum() if norms.any() else np.full(len(sets), 1 / len(sets))
    return MasterSolution(eta, _join(Omega, members, u), upper, lower, n_iter, first.factor)


def _bounds(
    master: RestrictedMaster, Omega: FloatArray, W: FloatArray, set_of_row: IntArray
) -> tuple[float, float]:
    """Return the master's value at Ω, and the bound a²/(2b) that the residual V gives."""
    G, B, T_norm2, gamma, sets = master
    GW, BW = times(G, W), np.vdot(B, W)
    V_norm2, a = T_norm2 - 2 * BW + np.vdot(W, GW), T_norm2 - BW
    norms = _block_norms(Omega, set_of_row)
    b = V_norm2 + set_sums(sets, B - GW).max() / gamma
    return 0.5 * V_norm2 + 0.5 * gamma * norms.sum() ** 2, a**2 / (2 * b)


def _largest_eigenvalue(G: FloatArray, copies: FloatArray) -> float:
    """Bound λ_max of the Gram of all sets side by side, column j of X in `copies[j]` of them.

    It is that of diag(copies)^½ G diag(copies)^½.
    """
    root = np.sqrt(copies)
    v = root / np.linalg.norm(root)
    for _ in range(100):
        w = root * times(G, root * v)
        size = np.linalg.norm(w)
        if size == 0:
            return 1.0
        v = w / size
    return float(EIGENVALUE_MARGIN * size)


def _block_norms(Omega: FloatArray, set_of_row: IntArray) -> FloatArray:
    """Return ‖Ωᵗ‖_F of each block."""
    return np.sqrt(np.bincount(set_of_row, weights=np.einsum("jr,jr->j", Omega, Omega)))


def _join(Omega: FloatArray, members: IntArray, u: int) -> FloatArray:
    """Return W = Σ_t Ωᵗ (u × r)."""
    W = np.zeros((u, Omega.shape[1]))
    np.add.at(W, members, Omega)
    return W


def _split(W: FloatArray, d: FloatArray, sets: tuple[IntArray, ...], eta: FloatArray) -> FloatArray:
    """Return the blocks Ωᵗ_j = (η_t/d_j) w_j, one below the other."""
    d = np.where(d > 0, d, 1)
    return np.concatenate([eta[t] / d[s][:, None] * W[s] for t, s in enumerate(sets)])
