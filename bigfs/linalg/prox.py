"""Projections, proximal steps and row-sparse penalties, as pure functions of dense arrays."""

from __future__ import annotations

import numpy as np

from bigfs.types import FloatArray


def project_simplex(V: FloatArray) -> FloatArray:
    """Project a vector, or each row of a matrix, onto the probability simplex."""
    V = np.asarray(V, dtype=np.float64)
    rows = np.atleast_2d(V)
    # the projection stays the same, and 1 does not vanish next to large values
    rows = rows - rows.max(axis=1, keepdims=True)
    u = -np.sort(-rows, axis=1)
    excess = (np.cumsum(u, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    rho = np.count_nonzero(u > excess, axis=1) - 1
    threshold = excess[np.arange(len(rows)), rho][:, None]
    return np.maximum(rows - threshold, 0).reshape(V.shape)


def shrink_squared_sum(u: FloatArray, s: float) -> FloatArray:
    """Return the factors in [0, 1] by which the prox of (s/2)(Σ_t ‖Ωᵗ‖)² shrinks its blocks.

    SparGE, Alg. 3, corrected: with the norms u of the blocks sorted descending,
    ρ = max{t : u_(t) − s/(1+ts) Σ_{i≤t} u_(i) > 0} and ς = s/(1+ρs) Σ_{i≤ρ} u_(i). Block t shrinks
    by (1 − ς/u_t)₊.
    """
    descending = -np.sort(-u)
    sums = np.cumsum(descending)
    counts = np.arange(1, len(u) + 1)
    positive = descending - s / (1 + counts * s) * sums > 0
    if not positive.any():
        return np.zeros_like(u)
    rho = np.flatnonzero(positive)[-1]
    threshold = s / (1 + (rho + 1) * s) * sums[rho]
    return np.maximum(1 - threshold / np.where(u > 0, u, np.inf), 0) * (u > 0)


def row_norms(W: FloatArray) -> FloatArray:
    """Return ‖w_j‖₂ for each row of a d × r matrix."""
    return np.sqrt(np.einsum("jr,jr->j", W, W))


def norm_2p(W: FloatArray, p: float = 1.0) -> float:
    """Return ‖W‖₂,ₚ = (Σ_j ‖w_j‖₂ᵖ)^(1/p). p = 1 is the ℓ2,1 norm."""
    return float(np.sum(row_norms(W) ** p) ** (1 / p))


def column_dots(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return the dot product of each pair of columns."""
    dots: FloatArray = np.einsum("ij,ij->j", A, B)
    return dots


def inverse_root(degrees: FloatArray) -> FloatArray:
    """Return degrees^-½, and 0 for a degree of zero."""
    roots = np.zeros_like(degrees)
    return np.divide(1.0, np.sqrt(degrees), out=roots, where=degrees > 0)
