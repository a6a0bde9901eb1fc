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
