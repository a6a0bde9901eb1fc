"""Codes of JGSC and RJGSC: joint graph sparse coding [Zhu, Li, Zhang, Ju, Wu, IEEE TNNLS 2016].

    JGSC    min_S ‖Xᵀ − BS‖²    + α tr(S L Sᵀ) + λ‖S‖₂,₁     [eq. 6; Table I has the losses swapped]
    RJGSC   min_S ‖Xᵀ − BS‖₂,₁ + α tr(S L Sᵀ) + λ‖S‖₂,₁                       [eq. 7]

B (d × m) are bases learned from X (`dictionary`), S (m × n) the codes, and L the Laplacian of the
samples' kNN graph. The ℓ2,1 norms are smoothed, Σ √(‖·‖² + ε), and majorized with the weights

    c_i = 1/(2√(‖s_i‖² + ε)),    d_j = 1/(2√(‖(Xᵀ − BS)_j‖² + ε')),  or d_j = 1 for JGSC

Each step solves one Sylvester equation and never raises the objective:

    (BᵀDB + λC) S + S (αL) = BᵀDXᵀ

With BᵀDB + λC = UΣUᵀ (m × m), the rows of UᵀS solve m sparse systems (σ_i I + αL) t = e_i. The
norms of the residuals need products only: ‖x_j‖² − 2 b_j S x_j + b_j SSᵀ b_jᵀ.

The code keeps the codes as n × m: its `S` is the paper's Sᵀ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bigfs.linalg.shifted_cg import solve_shifted
from bigfs.matrix import Matrix
from bigfs.result import Record
from bigfs.types import FloatArray

SMOOTHING = 1e-4  # √ε over the norm of a typical row of codes, √ε' over a typical column's of X
SYLVESTER_TOL = 1e-9  # relative residual of each solve


class LossTerms(NamedTuple):
    """The terms of the loss at some codes, majorized with the weights d that belong to them."""

    H: FloatArray  # m × m: BᵀDB
    R: FloatArray  # n × m: XDB
    d: FloatArray  # (d,)
    value: float  # of the loss


class SquaredLoss:
    """‖Xᵀ − BS‖², with its terms at S. None stands for S = 0. It reads the data once in all."""

    def __init__(self, X: Matrix, B: FloatArray) -> None:
        self.total = float(X.stats.sums_of_squares.sum())
        self.at_zero = LossTerms(B.T @ B, np.asarray(X @ B), np.ones(len(B)), self.total)

    def terms(self, S: FloatArray | None) -> LossTerms:
        if S is None:
            return self.at_zero
        value = self.total - 2 * np.vdot(S, self.at_zero.R) + np.vdot(S @ self.at_zero.H, S)
        return self.at_zero._replace(value=float(value))


class L21Loss:
    """‖Xᵀ − BS‖₂,₁, one norm per feature. It reads the data twice per step."""

    def __init__(self, X: Matrix, B: FloatArray) -> None:
        self.X, self.B, self.squares = X, B, X.stats.sums_of_squares
        self.epsilon = max(SMOOTHING**2 * float(np.mean(self.squares)), np.finfo(float).tiny)

    def terms(self, S: FloatArray | None) -> LossTerms:
        squares = self.squares
        if S is not None:
            squares = (
                squares - 2 * row_dots(self.B, self.X.T @ S) + row_dots(self.B @ (S.T @ S), self.B)
            )
        norms = np.sqrt(np.maximum(squares, 0) + self.epsilon)
        d = 0.5 / norms
        DB = d[:, None] * self.B
        return LossTerms(self.B.T @ DB, np.asarray(self.X @ DB), d, float(norms.sum()))


def row_dots(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return the scalar product of each row of A with the same row of B."""
    return np.asarray(np.einsum("jm,jm->j", A, B))


class CodingState(NamedTuple):
    """Codes, and the terms of the loss and the weights that belong to them."""

    S: FloatArray  # n × m
    c: FloatArray  # (m,)
    H: FloatArray
    R: FloatArray
    d: FloatArray
    objective: float
    violation: float  # ‖gradient‖ / ‖gradient's data part‖ of the smoothed objective
    sylvester: float  # ‖S(H + λC) + αLS − R‖ / ‖R‖ of the last solve, at the weights it was given


def solve_sylvester(
    H: FloatArray, L: sp.csr_array, alpha: float, R: FloatArray, start: FloatArray
) -> tuple[FloatArray, float]:
    """Return S (n × m) with SH + αLS = R for a positive definite H, and its relative residual."""
    sigmas, U = scipy.linalg.eigh(H)
    # rounding may leave a tiny negative one
    sigmas = np.maximum(sigmas, np.finfo(float).eps * sigmas[-1])
    S = solve_shifted(L, alpha, sigmas, R @ U, start @ U, tol=SYLVESTER_TOL).T @ U.T
    return S, float(np.linalg.norm(S @ H + alpha * (L @ S) - R) / np.linalg.norm(R))


class JointCoding:
    """The problem and the step, from c = 1 and the terms of the loss at S = 0."""

    def __init__(
        self, loss: SquaredLoss | L21Loss, L: sp.csr_array, alpha: float, lam: float
    ) -> None:
        self.loss, self.L, self.alpha, self.lam = loss, L, alpha, lam
        H, self.R, d, _ = loss.terms(None)
        n, m = self.R.shape
        typical_H = max(np.trace(H) / m, np.finfo(float).tiny)
        typical_row = float(np.linalg.norm(self.R) / np.sqrt(m) / typical_H)
        self.epsilon = (SMOOTHING * typical_row) ** 2
        self.start = CodingState(np.zeros((n, m)), np.ones(m), H, self.R, d, np.inf, np.inf, np.inf)

    def step(self, state: CodingState) -> CodingState:
        """Solve one Sylvester equation, then take the weights that belong to its solution."""
        weighted_H = state.H + np.diag(self.lam * state.c)
        S, residual = solve_sylvester(weighted_H, self.L, self.alpha, state.R, state.S)
        terms, LS = self.loss.terms(S), self.L @ S
        norms = np.sqrt(np.einsum("nm,nm->m", S, S) + self.epsilon)  # √(‖s_i‖² + ε)
        c = 0.5 / norms
        smoothness = self.alpha * float(np.vdot(S, LS))
        objective = terms.value + smoothness + self.lam * float(norms.sum())
        gradient = S @ terms.H + self.alpha * LS + self.lam * c * S - terms.R
        violation = float(np.linalg.norm(gradient) / np.linalg.norm(terms.R))
        return CodingState(S, c, terms.H, terms.R, terms.d, objective, violation, residual)

    def measure(self, state: CodingState) -> Record:
        return {
            "objective": state.objective,
            "violation": state.violation,
            "sylvester": state.sylvester,
        }
