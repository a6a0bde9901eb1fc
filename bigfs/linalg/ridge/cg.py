"""The CG solver: preconditioned block conjugate gradients, which need products with X only.

Nothing has n × n or d × d entries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigfs import engine
from bigfs.linalg.conjugate_gradients import block_cg, subtract_product
from bigfs.matrix.kernels import gram_times
from bigfs.matrix.panels import times_by_strips
from bigfs.result import Status
from bigfs.types import FloatArray
from bigfs.validation import explain_singular

if TYPE_CHECKING:
    from bigfs.linalg.ridge import Ridge


class Solution(NamedTuple):
    """Solution of a ridge system."""

    W: FloatArray  # d × r
    # (r,) ‖rhs − (XᵀMX + diag u)W‖ / ‖rhs‖ of each right-hand side, both scaled by u^-½
    residuals: FloatArray
    iterations: int
    product: FloatArray  # d × r: XᵀMX W, as far as the solver knows it without another pass
    status: Status  # EXACT for a direct solver whose residual is rounding

    @property
    def residual(self) -> float:
        """The largest of the residuals."""
        return float(self.residuals.max(initial=0.0))


class CG:
    """Solve (XᵀMX + diag u) W = rhs for Z = u^½ W.

    In this variable the matrix is I plus a part whose eigenvalues decay fast.
    """

    def __init__(self, ridge: Ridge, u: FloatArray) -> None:
        self.ridge, self.X, self.M = ridge, ridge.X, ridge.M
        self.s = u[:, None] ** -0.5  # d × 1, zero where u = inf

    @cached_property
    def jacobi(self) -> FloatArray:
        """Return the preconditioner (d × 1). A direct solver needs none, and no squares."""
        return 1 / (1 + self.ridge.squares[:, None] * self.s**2)

    def gram_times(self, W: FloatArray) -> FloatArray:
        """Return XᵀMX W. Reads X once for the identity and the centering, and twice for others."""
        if self.M.m is not None:
            return self._gram_times_by_strips(W)
        product = np.asarray(gram_times(self.X, W))
        if self.M.projection:
            means = self.X.means[:, None]
            subtract_product(product, means, self.X.shape[0] * (means.T @ W))
        return product

    def operator(self, Z: FloatArray) -> FloatArray:
        """Return u^-½ XᵀMX u^-½ Z + Z."""
        if self.M.m is not None:
            product = self._gram_times_by_strips(Z, self.s)
        else:
            product = self.gram_times(self.s * Z)
        product *= self.s
        product += Z
        return product

    def _gram_times_by_strips(self, Z: FloatArray, s: float | FloatArray = 1.0) -> FloatArray:
        """Return XᵀMX (s Z), where no more than a strip of X s Z is in memory."""
        with times_by_strips(self.X, s * Z, self.ridge.width or Z.shape[1]) as product:
            product.replace(lambda _, strip: self.M.apply(strip, overwrite=True))
            return np.asarray(self.X.T @ product)

    def solve(
        self,
        rhs: FloatArray | Callable[[], FloatArray],
        start: FloatArray | None = None,
        start_product: FloatArray | None = None,
        overwrite: bool = False,
    ) -> Solution:
        """Solve for rhs of shape (d, r), from `start` of the same shape or from zero."""
        active, given = self.s > 0, rhs
        rhs = given() if callable(given) else given
        size = np.linalg.norm(self.s * rhs, axis=0)
        if start is None:
            Z = np.zeros(rhs.shape)
        else:
            Z = start if overwrite else np.zeros(rhs.shape)
            np.divide(start, self.s, out=Z, where=active)
        # R is the residual of Z
        if start_product is not None:
            R = np.subtract(rhs, start_product, out=start_product if overwrite else None)
            R *= self.s
            R -= Z
        else:
            R = self.s * rhs
            if np.any(Z):
                R -= self.operator(Z)
        del rhs

        def set_residual(Z: FloatArray, R: FloatArray) -> None:
            np.subtract(given() if callable(given) else given, self.gram_times(self.s * Z), out=R)
            np.multiply(R, self.s, out=R)
            np.subtract(R, Z, out=R)

        with engine.one_blas_thread(), explain_singular("the ridge system"):
            result = block_cg(
                self.operator,
                R,
                Z,
                size,
                lambda Y: np.multiply(Y, self.jacobi, out=Y),
                self.ridge.tol,
                self.ridge.max_iter,
                self.ridge.reduction,
                # a loop that asks to come nearer measures its own residual in the end
                None if self.ridge.reduction else set_residual,
            )
        # XᵀMX W = rhs − u W, where the residual is what W lacks
        R += Z
        np.divide(R, self.s, out=R, where=active)
        np.subtract(given() if callable(given) else given, R, out=R)
        R[~active[:, 0]] = 0
        Z *= self.s
        return Solution(Z, result.value, result.stats["iterations"], R, result.status)
