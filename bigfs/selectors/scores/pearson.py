"""The variances of analytic Pearson residuals (Lause, Berens and Kobak 2021).

    μ_ig = s_i p_g,   r_ig = (x_ig − μ_ig) / √(μ_ig + μ_ig²/θ), at most √n in size

with s_i the sum of a cell, and p_g the share of a gene in all sums. The residual of x = 0 depends
on s_i and p_g alone, so that the zeros of a gene are summed over the distinct sums of cells, and
only the other entries are looked at one by one. A cell or a gene without counts has residuals of 0.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bigfs.matrix import Matrix
from bigfs.types import AnyArray, FloatArray, IntArray

BLOCK = 1 << 20  # residuals of zeros that are held at a time


def residual_variances(
    X: Matrix, codes: IntArray, sizes: FloatArray, sums: FloatArray, theta: float
) -> FloatArray:
    """Return the variance of the residuals of each gene in each batch (d × b), by two passes."""
    cells = np.asarray(X @ np.ones(X.shape[1]), dtype=np.float64)
    totals = np.maximum(sums.sum(axis=0), np.finfo(float).tiny)
    settings = sums / totals, np.sqrt(sizes), theta
    if X.column_tiles:
        parts = X.map(_residual_sums, 1, codes, cells, *settings, label="sum residuals")
        found = np.concatenate(parts)
    else:
        split = [codes, cells]
        found = X.sum(_residual_sums, 0, *settings, split=split, label="sum residuals")
    means, squares = found[:, : len(sizes)] / sizes, found[:, len(sizes) :] / sizes
    return np.asarray(np.maximum(squares - means**2, 0.0))


def _residual_sums(
    block: AnyArray,
    start: int,
    stop: int,
    codes: IntArray,
    cells: FloatArray,
    shares: FloatArray,
    clip: FloatArray,
    theta: float,
) -> FloatArray:
    """Return Σr and Σr² of the genes of a tile over each batch, side by side."""
    width, b = block.shape[1], len(clip)
    shares = shares if len(shares) == width else shares[start:stop]
    sums = np.zeros((2, width, b))
    for k in range(b):
        distinct, counts = np.unique(cells[codes == k], return_counts=True)
        step = max(1, BLOCK // max(len(distinct), 1))
        for first in range(0, width, step):
            genes = slice(first, first + step)
            r = _residuals(0.0, shares[genes, k, None] * distinct, clip[k], theta)
            sums[0, genes, k], sums[1, genes, k] = r @ counts, (r**2) @ counts
    entries = sp.coo_array(block)
    gene, batch = entries.col.astype(np.int64), codes[entries.row]
    means = shares[gene, batch] * cells[entries.row]
    values = entries.data.astype(np.float64)
    r, zero = (_residuals(x, means, clip[batch], theta) for x in (values, 0.0))
    for total, change in zip(sums, (r - zero, r**2 - zero**2), strict=True):
        total += np.bincount(gene * b + batch, change, width * b).reshape(width, b)
    return np.hstack([*sums])


def _residuals(
    x: FloatArray | float, means: FloatArray, clip: FloatArray | float, theta: float
) -> FloatArray:
    spread = np.sqrt(means + means**2 / theta)
    r = np.divide(x - means, spread, out=np.zeros_like(means), where=spread > 0)
    return np.asarray(np.clip(r, -clip, clip))
