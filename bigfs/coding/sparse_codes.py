"""Codes of GSC: graph sparse coding [Zheng and others, IEEE T. Image Processing 2011, eq. 10].

    min_S  ‖Xᵀ − BSᵀ‖² + α tr(SᵀLS) + λ Σ_ik |s_ik|

S (n × m) holds the codes of the samples on the atoms B (d × m), and L is the Laplacian of their
graph. With H = BᵀB and R = XB the gradient of the smooth part is 2(SH + αLS − R): X is read once.
The step is the accelerated proximal gradient method, which starts anew from the last codes where
the objective would rise [O'Donoghue and Candès, Foundations of Computational Mathematics 2015].

The problem is convex. The certificate is the violation of optimality, with the step length 1/ℓ:

    ℓ ‖S − soft(S − gradient/ℓ, λ/ℓ)‖ / 2‖R‖
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.result import Record, Status, warn_early_end
from bigfs.types import FloatArray

INNER_STEPS = 10  # proximal steps per step of the loop


class SparseCodingState(NamedTuple):
    """Codes, the point that the next step starts from, and the certificate."""

    S: FloatArray  # n × m
    Z: FloatArray  # n × m: extrapolated from the last two codes
    momentum: float
    objective: float
    violation: float


class SparseCoding:
    """The problem and the step, from BᵀB (m × m), XB (n × m), ‖X‖², the Laplacian, α and λ."""

    def __init__(
        self,
        H: FloatArray,
        R: FloatArray,
        total: float,
        L: sp.csr_array,
        alpha: float,
        lam: float,
    ) -> None:
        self.H, self.R, self.total, self.L, self.alpha, self.lam = H, R, total, L, alpha, lam
        largest = 2 * float(L.diagonal().max(initial=0.0))  # Gershgorin
        self.ell = 2 * (float(np.linalg.eigvalsh(H)[-1]) + alpha * largest)
        self.size = 2 * max(float(np.linalg.norm(R)), np.finfo(float).tiny)
        zeros = np.zeros_like(R)
        self.start = SparseCodingState(zeros, zeros, 1.0, total, np.inf)

    def half_gradient(self, S: FloatArray) -> FloatArray:
        """Return SH + αLS − R."""
        return np.asarray(S @ self.H + self.alpha * (self.L @ S) - self.R)

    def objective(self, S: FloatArray, half_gradient: FloatArray) -> float:
        """Return the objective at S, from half of the gradient there."""
        smooth = self.total + float(np.vdot(S, half_gradient - self.R))
        return smooth + self.lam * float(np.abs(S).sum())

    def proximal_step(self, S: FloatArray, half_gradient: FloatArray) -> FloatArray:
        """Return soft(S − gradient/ℓ, λ/ℓ)."""
        V = S - 2 / self.ell * half_gradient
        return np.sign(V) * np.maximum(np.abs(V) - self.lam / self.ell, 0)

    def step(self, state: SparseCodingState) -> SparseCodingState:
        """Run some proximal steps, each of which does not raise the objective."""
        S, Z, momentum, objective, _ = state
        for _ in range(INNER_STEPS):
            new = self.proximal_step(Z, self.half_gradient(Z))
            G = self.half_gradient(new)
            value = self.objective(new, G)
            if value > objective:  # a plain step from the last codes does not raise it
                new = self.proximal_step(S, self.half_gradient(S))
                G = self.half_gradient(new)
                value, momentum = self.objective(new, G), 1.0
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            Z = new + (momentum - 1) / following * (new - S)
            S, momentum, objective = new, float(following), value
        residual = np.linalg.norm(S - self.proximal_step(S, G))
        return SparseCodingState(S, Z, momentum, objective, self.ell * float(residual) / self.size)

    def measure(self, state: SparseCodingState) -> Record:
        return {
            "objective": state.objective,
            "violation": state.violation,
            "codes": float(np.count_nonzero(state.S)),
        }


def lasso_codes(H: FloatArray, R: FloatArray, lam: float, tol: float, max_iter: int) -> FloatArray:
    """Return the codes (n × m) of samples without a graph, from BᵀB and XB, by coordinate descent.

    A sample is done when a sweep changes no code by more than `tol` of its largest possible one. So
    its code does not depend on the other samples. A run that ends after `max_iter` sweeps warns.
    """
    S, squares = np.zeros_like(R), H.diagonal()
    open_rows = np.flatnonzero(R.any(axis=1))
    for _ in range(max_iter):
        if not len(open_rows):
            return S
        Z, T = S[open_rows], R[open_rows]
        largest = np.zeros(len(open_rows))
        for k in np.flatnonzero(squares > 0):
            old = Z[:, k].copy()
            slope = T[:, k] - Z @ H[:, k] + squares[k] * old
            Z[:, k] = np.sign(slope) * np.maximum(np.abs(slope) - lam / 2, 0) / squares[k]
            np.maximum(largest, np.abs(Z[:, k] - old) * squares[k], out=largest)
        S[open_rows] = Z
        open_rows = open_rows[largest > tol * np.abs(T).max(axis=1)]
    if len(open_rows):
        warn_early_end(f"the codes of {len(open_rows)} samples {Status.MAX_ITER}", 3)
    return S
