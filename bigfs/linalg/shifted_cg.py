"""Many shifted sparse systems at once: (σ_i I + αL) t_i = e_i, i = 1 … m, by conjugate gradients.

The systems differ in their shift alone, so all of a group share the product L @ T: one sparse ×
dense product an iteration instead of one a system. Each column keeps its own step lengths, so it is
plain (Jacobi-preconditioned) CG to it. Groups have a fixed width and are the tiles that go to the
cluster.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.types import FloatArray

WIDTH = 32  # systems a task; with it the rounding of a group's products is fixed


class Solved(NamedTuple):
    T: FloatArray  # n × m
    iterations: int  # the most that any group took
    residual: float  # ‖TΣ + αLT − E‖_F / ‖E‖_F


def solve_shifted(
    L: sp.csr_array,
    alpha: float,
    sigmas: FloatArray,
    E: FloatArray,
    start: FloatArray | None = None,
    *,
    tol: float = 1e-9,
    max_iter: int = 1000,
) -> Solved:
    """T (n × m) with T diag(σ) + αLT = E, for L symmetric positive semi-definite and every σ_i > 0.

    Parameters
    ----------
    start : n × m to start from; None is zero.
    tol : on ‖TΣ + αLT − E‖_F / ‖E‖_F. A column stops at its share, tol‖E‖_F/√m, so that small
        right-hand sides cost little.
    max_iter : iterations at most; `residual` says what was reached.
    """
    norm = float(np.linalg.norm(E))
    if norm == 0:
        return Solved(np.zeros_like(E), 0, 0.0)
    m = E.shape[1]
    bounds = [slice(a, min(a + WIDTH, m)) for a in range(0, m, WIDTH)]
    each = [
        [np.ascontiguousarray(V[:, b]) for b in bounds]
        for V in (E, np.zeros_like(E) if start is None else start)
    ]
    parts = engine.map_tiles(
        _group,
        bounds,
        L,
        alpha,
        tol * norm / np.sqrt(m),
        max_iter,
        each=[[sigmas[b] for b in bounds], *each],
    )
    T, iterations, squares = zip(*parts, strict=True)
    return Solved(np.concatenate(T, axis=1), max(iterations), float(np.sqrt(sum(squares))) / norm)


def _group(
    bounds: Any,
    sigmas: FloatArray,
    E: FloatArray,
    start: FloatArray,
    L: sp.csr_array,
    alpha: float,
    target: float,
    max_iter: int,
) -> tuple[FloatArray, int, float]:
    """CG on one group; the residual is computed afresh at the end, not taken from the
    recurrence.
    """
    diagonal = sigmas + alpha * L.diagonal()[:, None]
    T = start.copy()
    R = E - _product(L, alpha, sigmas, T)
    Z = R / diagonal
    P, rz = Z.copy(), _dots(R, Z)
    iterations = 0
    while iterations < max_iter and np.sqrt(_dots(R, R).max()) > target:
        Q = _product(L, alpha, sigmas, P)
        curvature = _dots(P, Q)
        # zero once a column is exact
        step = np.divide(rz, curvature, out=np.zeros_like(rz), where=curvature > 0)
        T += step * P
        R -= step * Q
        np.divide(R, diagonal, out=Z)
        before, rz = rz, _dots(R, Z)
        P *= np.divide(rz, before, out=np.zeros_like(rz), where=before > 0)
        P += Z
        iterations += 1
    left = E - _product(L, alpha, sigmas, T)
    return T, iterations, float(np.vdot(left, left))


def _product(L: sp.csr_array, alpha: float, sigmas: FloatArray, T: FloatArray) -> FloatArray:
    out = L @ T
    out *= alpha
    out += sigmas * T
    return np.asarray(out)


def _dots(A: FloatArray, B: FloatArray) -> FloatArray:
    """The inner product of each pair of columns."""
    return np.asarray(np.einsum("ij,ij->j", A, B))
