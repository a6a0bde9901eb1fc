"""Many shifted sparse systems at once: (σ_i I + αL) t_i = e_i, i = 1 … m, by conjugate gradients.

The systems differ only in their shift, so the systems of a group share the product L @ T. Each sees
plain CG with a Jacobi preconditioner. Groups have a fixed width and are the tiles of a cluster.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.linalg.conjugate_gradients import column_cg
from bigfs.types import FloatArray, IntArray

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
    """Run CG on one group. The residual is computed from its definition at the end."""
    diagonal = sigmas + alpha * L.diagonal()[:, None]
    T = start.copy()

    def product(P: FloatArray, on: Any = slice(None)) -> FloatArray:
        """Return P diag(σ) + αLP."""
        return np.asarray(alpha * (L @ P) + sigmas[on] * P)

    def advance(step: FloatArray, P: FloatArray, on: IntArray) -> None:
        T[:, on] += step * P

    R = E - product(T)
    iterations = column_cg(
        product, lambda R, on: R / diagonal[:, on], advance, R, target**2, max_iter
    )
    R = E - product(T)
    return T, iterations, float(np.vdot(R, R))
