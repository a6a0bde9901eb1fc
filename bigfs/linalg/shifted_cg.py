"""Many shifted sparse systems at once: (σ_i I + αL) t_i = e_i, i = 1 … m, by conjugate gradients.

The systems differ only in their shift, so the systems of a group share the product L @ T. An
iteration costs one product of a sparse and a dense matrix per group, not one per system. Each
column has its own step lengths, so it sees plain CG with a Jacobi preconditioner. Groups have a
fixed width and are the tiles that go to the cluster.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.linalg.prox import column_dots
from bigfs.types import FloatArray

GROUP_WIDTH = 32  # systems per task; a constant, because the rounding of the products depends on it


class ShiftedSolution(NamedTuple):
    """Solution of m shifted systems."""

    T: FloatArray  # n × m
    iterations: int  # the largest number that a group took
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
) -> ShiftedSolution:
    """Solve T diag(σ) + αLT = E for T (n × m)."""
    norm = float(np.linalg.norm(E))
    if norm == 0:
        return ShiftedSolution(np.zeros_like(E), 0, 0.0)
    m = E.shape[1]
    bounds = [slice(a, min(a + GROUP_WIDTH, m)) for a in range(0, m, GROUP_WIDTH)]
    each = [
        [np.ascontiguousarray(V[:, b]) for b in bounds]
        for V in (E, np.zeros_like(E) if start is None else start)
    ]
    parts = engine.map_tiles(
        _solve_group,
        bounds,
        L,
        alpha,
        tol * norm / np.sqrt(m),
        max_iter,
        each=[[sigmas[b] for b in bounds], *each],
    )
    T, iterations, squares = zip(*parts, strict=True)
    return ShiftedSolution(
        np.concatenate(T, axis=1), max(iterations), float(np.sqrt(sum(squares))) / norm
    )


def _solve_group(
    bounds: Any,
    sigmas: FloatArray,
    E: FloatArray,
    start: FloatArray,
    L: sp.csr_array,
    alpha: float,
    target: float,
    max_iter: int,
) -> tuple[FloatArray, int, float]:
    """Run CG on one group. The residual is computed from its definition at the end, not taken from
    the recurrence."""
    diagonal = sigmas + alpha * L.diagonal()[:, None]
    T = start.copy()
    R = E - _product(L, alpha, sigmas, T)
    Z = R / diagonal
    P, rz = Z.copy(), column_dots(R, Z)
    iterations = 0
    while iterations < max_iter and np.sqrt(column_dots(R, R).max()) > target:
        Q = _product(L, alpha, sigmas, P)
        curvature = column_dots(P, Q)
        # the curvature is zero once a column is exact
        step = np.divide(rz, curvature, out=np.zeros_like(rz), where=curvature > 0)
        T += step * P
        R -= step * Q
        np.divide(R, diagonal, out=Z)
        last_rz = rz
        rz = column_dots(R, Z)
        P *= np.divide(rz, last_rz, out=np.zeros_like(rz), where=last_rz > 0)
        P += Z
        iterations += 1
    R = E - _product(L, alpha, sigmas, T)
    return T, iterations, float(np.vdot(R, R))


def _product(L: sp.csr_array, alpha: float, sigmas: FloatArray, T: FloatArray) -> FloatArray:
    """Return T diag(σ) + αLT."""
    out = L @ T
    out *= alpha
    out += sigmas * T
    return np.asarray(out)
