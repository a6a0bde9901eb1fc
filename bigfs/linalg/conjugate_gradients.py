"""Preconditioned conjugate gradients on many right-hand sides at a time.

Columns with one operator share a Krylov space (`block_cg`), and each learns from the others. Where
each column has an operator of its own, they share the calls (`column_cg`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigfs.linalg.prox import column_dots
from bigfs.result import Result, Status
from bigfs.types import FloatArray, IntArray

STRIP = 4096  # rows of a d × r array that are changed at a time
DIVERGED = 1e3  # growth of the residual at which the iterations end
RANK_TOL = 1e-12  # search directions with a smaller share of the block's energy are dropped


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
    true one before the loop ends, which continues while that is too large and still halves.
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


def column_cg(
    operator: Callable[[FloatArray, IntArray], FloatArray],
    precondition: Callable[[FloatArray, IntArray], FloatArray],
    advance: Callable[[FloatArray, FloatArray, IntArray], None],
    R: FloatArray,
    enough: FloatArray | float,
    max_iter: int,
) -> int:
    """Solve a system per column, each in a Krylov space of its own. Return the iterations.

    `R` has the residuals of the start, and is changed. A column rests once ‖R‖² is at most
    `enough`. The functions get the columns `on` that do not: `operator(P, on)` returns their
    products, and `advance(step, P, on)` adds step · P to the solution.
    """
    P, energy = np.zeros_like(R), np.zeros(R.shape[1])
    for iteration in range(max_iter):
        on = np.flatnonzero(column_dots(R, R) > enough)
        if not len(on):
            return iteration
        Y = precondition(R[:, on], on)
        before, energy[on] = energy[on], column_dots(R[:, on], Y)
        P[:, on] = Y + (energy[on] / before if iteration else 0.0) * P[:, on]
        AP = operator(P[:, on], on)
        step = energy[on] / column_dots(P[:, on], AP)
        advance(step, P[:, on], on)
        R[:, on] -= step * AP
    return max_iter


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
