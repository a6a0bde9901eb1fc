"""Kernels between the samples by their factors: Φ with ΦΦᵀ the kernel, or close to it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix import Block, Matrix
from bigfs.types import FloatArray, IntArray

NEGLIGIBLE = 1e-10  # of the largest eigenvalue of the kernel between the landmarks


def same_class_factor(codes: IntArray, c: int) -> sp.csc_array:
    """Return Φ (n × c) with ΦΦᵀ = 1/n_c between labeled samples of class c, else 0."""
    labeled = np.flatnonzero(codes >= 0)
    of_labeled = codes[labeled]
    sizes = np.bincount(of_labeled, minlength=c)
    if sizes.min(initial=1) == 0:
        raise ValueError(f"class number {int(sizes.argmin())} has no sample: every class needs one")
    values = 1 / np.sqrt(sizes[of_labeled])
    return sp.csc_array((values, (labeled, of_labeled)), shape=(len(codes), c))


def gaussian_factor(X: Matrix, r: int, *, sigma: float | None = None, seed: int = 0) -> FloatArray:
    """Return Φ with ΦΦᵀ ≈ exp(−‖x_i − x_j‖²/2σ²), by Nyström's method on r random landmarks.

    Φ = K_nr U Λ^-½ from the kernel K_rr = UΛUᵀ between the landmarks, so that the kernel is exact
    among them [Williams and Seeger, NIPS 2000]. It is exact everywhere if r = n. Without a width σ
    it is the mean distance between two landmarks. Φ has at most r columns. X is read twice.
    """
    n, d = X.shape
    r = min(r, n)
    _ = X.stats  # refuses values whose squares overflow
    engine.require_memory(8 * r * (2 * d + 4 * n + 4 * r), f"{r} landmarks of a Gaussian kernel")
    rows = np.sort(np.random.default_rng(seed).choice(n, r, replace=False))
    landmarks = X.take_rows(rows).columns(np.arange(d)).toarray().astype(np.float64)
    row_norms2 = np.concatenate(X.map(_row_norms2, 0))
    products = X @ np.ascontiguousarray(landmarks.T)
    distances2 = np.maximum(row_norms2[:, None] + np.sum(landmarks**2, axis=1) - 2 * products, 0)
    distances2[rows, np.arange(r)] = 0
    if sigma is None:
        between = np.sqrt(distances2[rows])[~np.eye(r, dtype=bool)]
        sigma = float(between.mean()) if len(between) and between.any() else 1.0
    K = np.exp(-distances2 / (2 * sigma**2))
    values, vectors = np.linalg.eigh(K[rows])
    kept = values > NEGLIGIBLE * values[-1]
    return np.asarray(K @ (vectors[:, kept] / np.sqrt(values[kept])))


def _row_norms2(block: Block, start: int, stop: int) -> FloatArray:
    """Return the squared norm of each row of a tile."""
    if sp.issparse(block):
        squares = block.astype(np.float64).power(2)
    else:
        squares = np.asarray(block, dtype=np.float64) ** 2
    return np.asarray(squares.sum(axis=1)).ravel()
