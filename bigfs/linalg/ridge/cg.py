"""Preconditioned block conjugate gradients: products with X only, nothing of size n × n or d ×
d.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from bigfs.linalg.ridge.operator import Middle
from bigfs.matrix import Matrix
from bigfs.types import FloatArray
from bigfs.validation import factorized

RANK = 1e-12  # directions whose share of the block's energy is below this are dropped


class Solution(NamedTuple):
    """W (d × r); per right-hand side ‖rhs − (XᵀMX + diag u)W‖/‖rhs‖, both scaled by u^-½; and how
    many iterations.
    """

    W: FloatArray
    residuals: FloatArray
    iterations: int

    @property
    def residual(self) -> float:
        """The largest of the residuals."""
        return float(self.residuals.max(initial=0.0))


class CG:
    """(XᵀMX + diag u) W = rhs in the variable Z = u^½ W, where the matrix is I plus something of
    fast decay.
    """

    def __init__(
        self,
        X: Matrix,
        middle: Middle,
        squares: FloatArray,
        u: FloatArray,
        *,
        tol: float,
        max_iter: int,
    ) -> None:
        self.X, self.middle, self.tol, self.max_iter = X, middle, tol, max_iter
        self.s = u[:, None] ** -0.5  # d × 1; 0 where u = inf
        self.jacobi = 1 / (1 + squares[:, None] * self.s**2)

    def operator(self, Z: FloatArray) -> FloatArray:
        """u^-½ XᵀMX u^-½ Z + Z. Two passes."""
        return self.s * (self.X.T @ self.middle.apply(self.X @ (self.s * Z))) + Z

    def solve(self, rhs: FloatArray, start: FloatArray | None = None) -> Solution:
        on = self.s > 0
        Z = (
            np.zeros(rhs.shape)
            if start is None
            else np.divide(start, self.s, out=np.zeros(rhs.shape), where=on)
        )
        # d × r by r × r: a second thread only waits, and does so spinning
        with threadpool_limits(1, user_api="blas"), factorized("the ridge system"):
            Z, residuals, iterations = block_cg(
                self.operator, self.s * rhs, Z, lambda R: self.jacobi * R, self.tol, self.max_iter
            )
        return Solution(self.s * Z, residuals, iterations)


def block_cg(
    operator: Callable[[FloatArray], FloatArray],
    B: FloatArray,
    Z: FloatArray,
    precondition: Callable[[FloatArray], FloatArray],
    tol: float,
    max_iter: int,
) -> tuple[FloatArray, FloatArray, int]:
    """Solve operator(Z) = B (d × r) for all columns in one shared Krylov space, from the start Z.

    Each step lowers ½⟨Z, AZ⟩ − ⟨Z, B⟩, so stopping early still improves on the start. Search
    directions are made orthonormal, and dependent ones dropped, so columns that coincide or have
    converged do no harm (breakdown-free block CG: Ji and Li, BIT 57, 2017). The loop stands alone,
    outside `result.iterate`, because it is one solve inside a step: its caller judges the
    residuals.

    Returns Z, the relative residual of each column, and the number of iterations.
    """
    size = np.linalg.norm(B, axis=0)
    size = np.where(size > 0, size, 1.0)
    R = B - operator(Z) if np.any(Z) else B.copy()
    residuals = np.linalg.norm(R, axis=0) / size
    P: Any = None
    AP: Any = None
    for done in range(max_iter):
        todo = residuals > tol
        if not todo.any():
            return Z, residuals, done
        Y = precondition(R[:, todo] / (size * residuals)[todo])
        if P is not None:
            Y -= P @ np.linalg.solve(P.T @ AP, AP.T @ Y)
        P = _orthonormal(Y)
        AP = operator(P)
        step = np.linalg.solve(P.T @ AP, P.T @ R)
        Z = Z + P @ step
        R -= AP @ step
        residuals = np.linalg.norm(R, axis=0) / size
    return Z, residuals, max_iter


def _orthonormal(Y: FloatArray) -> FloatArray:
    """A basis of Y's column space, d × k, through the r × r Gram matrix; twice, for accuracy."""
    for share in (RANK, 0.0):
        values, vectors = np.linalg.eigh(Y.T @ Y)
        kept = values > share * values[-1]
        Y = Y @ (vectors[:, kept] / np.sqrt(values[kept]))
    return Y
