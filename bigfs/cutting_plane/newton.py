"""Projected Newton for the restricted master, on its reduced function J(η).

The paper's solver is accelerated proximal gradient on Ω itself [SparGE, Alg. 3]. It is slow where
the sets overlap, and the tests check newton against it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfs.cutting_plane.restricted_master import (
    MASTER_TOL,
    Factor,
    RestrictedMaster,
    hessian,
    ridge_at,
)
from bigfs.types import FloatArray

ARMIJO = 1e-4  # share of the predicted decrease that newton's line search asks for
MIN_STEP = 1e-10  # at which the line search gives up
ON_BOUND = 1e-15  # a coordinate of the simplex below it is zero
MAX_CHANGES = 50  # of the active set, for each coordinate


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


def newton(
    master: RestrictedMaster,
    eta: FloatArray,
    tol: float = MASTER_TOL,
    factor: Factor | None = None,
    W: FloatArray | None = None,
    max_iter: int = 100,
) -> MasterSolution:
    """Minimize the master from `eta` until its own relative duality gap is `tol`.

    Each step minimizes the quadratic model on the simplex, then backtracks. A new set enters at
    weight zero, where W and `factor` of the solution before still hold and save a factorization.
    """
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
