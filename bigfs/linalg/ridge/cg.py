"""The CG solver: preconditioned block conjugate gradients, which need products with X only.

Nothing has n × n or d × d entries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bigfs import engine
from bigfs.linalg.ridge.operator import SampleOperator
from bigfs.matrix import Matrix
from bigfs.matrix.kernels import gram_times
from bigfs.matrix.panels import times_by_strips
from bigfs.result import Result, Status
from bigfs.types import FloatArray
from bigfs.validation import explain_singular

STRIP = 4096  # rows of a d × r array that are changed at a time
DIVERGED = 1e3  # growth of the residual at which the iterations end
RANK_TOL = 1e-12  # search directions with a smaller share of the block's energy are dropped


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
    """Solve (XᵀMX + diag u) W = rhs for Z = u^½ W. In this variable the matrix is I plus a part
    whose eigenvalues decay fast."""

    def __init__(
        self,
        X: Matrix,
        M: SampleOperator,
        squares: Callable[[], FloatArray],
        u: FloatArray,
        *,
        tol: float,
        max_iter: int,
        reduction: float = 0.0,
        width: int | None = None,
    ) -> None:
        self.X, self.M, self.tol, self.max_iter = X, M, tol, max_iter
        self.width = width  # columns of W whose XW (n × width) is formed at a time; None is all
        self.reduction = reduction
        self.s = u[:, None] ** -0.5  # d × 1, zero where u = inf
        self.squares = squares

    @cached_property
    def jacobi(self) -> FloatArray:
        """Return the preconditioner (d × 1). A direct solver needs none, and no squares."""
        return 1 / (1 + self.squares()[:, None] * self.s**2)

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
        with times_by_strips(self.X, s * Z, self.width or Z.shape[1]) as product:
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
                self.tol,
                self.max_iter,
                self.reduction,
                # a loop that asks to come nearer measures its own residual in the end
                None if self.reduction else set_residual,
            )
        # XᵀMX W = rhs − u W, where the residual is what W lacks
        R += Z
        np.divide(R, self.s, out=R, where=active)
        np.subtract(given() if callable(given) else given, R, out=R)
        R[~active[:, 0]] = 0
        Z *= self.s
        return Solution(Z, result.value, result.stats["iterations"], R, result.status)


def block_cg(
    operator: Callable[[FloatArray], FloatArray],
    R: FloatArray,
    Z: FloatArray,
    size: FloatArray,
    precondition: Callable[[FloatArray], FloatArray],
    tol: float,
    max_iter: int,
    reduction: float = 0.0,
    set_residual: Callable[[FloatArray, FloatArray], None] | None = None,
) -> Result[FloatArray]:
    """Solve operator(Z) = B (d × r) for all columns in one shared Krylov space, in place.

    `Z` has the start and `R` its residual B − operator(Z). A column is solved at a residual of
    `tol` relative to B, whose norms are `size`, or of `reduction` relative to its first residual.
    The search directions are made orthonormal and dependent ones are dropped, so columns that
    coincide or have converged do no harm. The updated R drifts: `set_residual(Z, R)` writes the
    true one before the loop ends, which goes on while that is too large and still halves.
    """
    size = np.where(size > 0, size, 1.0)
    residuals = np.linalg.norm(R, axis=0) / size
    enough = np.maximum(tol, reduction * residuals)
    most = DIVERGED * max(residuals.max(initial=0.0), 1.0)
    P: Any = None
    AP: Any = None
    PtAP: Any = None
    iterations = checked = 0  # R is the true residual after `checked` iterations
    largest = np.inf  # of the true residuals, when they were last computed
    while True:
        unsolved = ~(residuals <= enough)  # NaN is not solved
        finite = bool(np.isfinite(residuals).all())
        diverged = finite and residuals.max(initial=0.0) > most
        if not finite or diverged or not unsolved.any() or iterations >= max_iter:
            if set_residual is None or checked == iterations or not finite:
                break
            P, AP, checked = None, None, iterations
            set_residual(Z, R)
            residuals = np.linalg.norm(R, axis=0) / size
            if residuals.max() > largest / 2:
                break
            largest = residuals.max()
            continue
        Y = R[:, unsolved]
        Y /= (size * residuals)[unsolved]
        Y = precondition(Y)
        if P is not None:
            subtract_product(Y, P, np.linalg.solve(PtAP, AP.T @ Y))
        P, AP = None, None  # two of the d × r blocks less while the operator runs
        P = _orthonormal(Y)
        del Y
        AP = operator(P)
        PtAP = P.T @ AP
        step = np.linalg.solve(PtAP, P.T @ R)
        subtract_product(Z, P, -step)
        subtract_product(R, AP, step)
        residuals = np.linalg.norm(R, axis=0) / size
        iterations += 1
    status = Status.CONVERGED
    if not finite or not np.isfinite(residuals).all():
        status = Status.NOT_FINITE
    elif (residuals > enough).any():
        at_limit = iterations >= max_iter and not diverged
        status = Status.MAX_ITER if at_limit else Status.STALLED
    return Result(residuals, status, stats={"iterations": iterations})


def _orthonormal(Y: FloatArray) -> FloatArray:
    """Return an orthonormal basis (d × k) of the column space of Y, whose memory it takes. It comes
    from the r × r Gram matrix. The second round adds accuracy."""
    for share in (RANK_TOL, 0.0):
        values, vectors = np.linalg.eigh(Y.T @ Y)
        large = values > share * values[-1]
        change = vectors[:, large] / np.sqrt(values[large])
        for first in range(0, len(Y), STRIP):
            Y[first : first + STRIP, : change.shape[1]] = Y[first : first + STRIP] @ change
        if change.shape[1] < Y.shape[1]:
            Y = Y[:, : change.shape[1]].copy()
    return Y


def subtract_product(A: FloatArray, P: FloatArray, M: FloatArray) -> None:
    """Subtract PM from A, in strips of rows, so that no array of the size of A is made."""
    for first in range(0, len(A), STRIP):
        A[first : first + STRIP] -= P[first : first + STRIP] @ M
