"""The local discriminant of neighborhoods, which UDFS sums.

With K_i the Gram matrix of sample i and its k neighbors, H the centering of k + 1 samples, and S_i
their rows in the identity, a neighborhood adds (Yang and others, IJCAI 2011, eq. 6)

    S_i H (H K_i H + λI)⁻¹ H S_iᵀ = 1/λ · S_i (H − V diag(σ / (σ + λ)) Vᵀ) S_iᵀ,   H K_i H = V σ Vᵀ

So λ times the sum is diag(m) − FFᵀ, where m counts the neighborhoods of each sample.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.graph.edges import Neighbors
from bigfs.graph.row_blocks import RowBlock, gather_rows, neighborhood_blocks
from bigfs.matrix import Matrix
from bigfs.types import AnyArray, FloatArray

ENTRY_BYTES = 72  # per entry of an eigenvector: itself, its factor, and F while it is put together


class LocalDiscriminant(NamedTuple):
    """The matrix diag(m) − FFᵀ (n × n), positive semi-definite, with 1 in its null space."""

    m: FloatArray  # (n,)
    F: sp.csr_array  # n × n(k + 1), sparse
    lam: float  # λ


def local_discriminant(X: Matrix, neighbors: Neighbors, reg: float) -> LocalDiscriminant:
    """Return λ times the sum of the neighborhoods' discriminants."""
    n, k = neighbors.index.shape
    blocks, all_blocks = neighborhood_blocks(X, k)
    engine.require_memory(
        ENTRY_BYTES * n * (k + 1) ** 2, f"the neighborhoods of {n} samples with {k} neighbors each"
    )
    index = [neighbors.index[b.start : b.stop] for b in blocks]
    parts = engine.map_tiles(_spectra, blocks, all_blocks, each=[index], local=X.local)
    X.passes += len(blocks)
    members, values, vectors = (np.concatenate(part) for part in zip(*parts, strict=True))
    sizes = (members >= 0).sum(axis=1)
    centered = values[:, :-1]  # the last one belongs to 1
    total = float(sizes.sum() - n)
    mean = float(centered.sum()) / total if total else 0.0
    lam = reg * mean if mean > 0 else 1.0
    roots = np.concatenate([np.sqrt(centered / (centered + lam)), np.ones((n, 1))], axis=1)
    factors = vectors * roots[:, None, :]
    edge = np.broadcast_to(np.arange(n * (k + 1)).reshape(n, 1, k + 1), factors.shape)
    row = np.broadcast_to(members[:, :, None], factors.shape)
    on = (row >= 0) & (factors != 0)
    F = sp.csr_array((factors[on], (row[on], edge[on])), shape=(n, n * (k + 1)))
    counts = np.bincount(members[members >= 0], minlength=n)
    return LocalDiscriminant(counts.astype(np.float64), F, lam)


def _spectra(
    block: RowBlock, index: AnyArray, all_blocks: list[RowBlock]
) -> tuple[AnyArray, FloatArray, FloatArray]:
    """Return the members of each neighborhood, and the eigenvalues and vectors of H K_i H. The last
    vector is 1 at unit length. A missing member is −1 and has zeros."""
    n, k = index.shape
    numbers = np.arange(block.start, block.stop)
    needed = np.unique(np.concatenate([numbers, index[index >= 0]]))
    C = gather_rows(all_blocks, needed)
    members = np.full((n, k + 1), -1)
    values, vectors = np.zeros((n, k + 1)), np.zeros((n, k + 1, k + 1))
    for place, (i, row) in enumerate(zip(numbers, index, strict=True)):
        group = np.sort(np.append(row[row >= 0], i))
        rows = C[np.searchsorted(needed, group)]
        K = (rows @ rows.T).toarray()
        K -= K.mean(axis=0)
        K -= K.mean(axis=1)[:, None]
        size = len(group)
        # 1 gets the largest eigenvalue, so that it comes last
        sigma, V = np.linalg.eigh(K + (np.trace(K) + 1) / size)
        members[place, :size] = group
        values[place, k + 1 - size :] = np.maximum(sigma, 0)
        vectors[place, :size, k + 1 - size :] = V
    return members, values, vectors
