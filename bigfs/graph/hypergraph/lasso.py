"""ℓ1 hyperedges: a sample with those that a lasso regresses it on [JHLSR, section 3.2]."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.graph.edges import Neighbors
from bigfs.graph.hypergraph.hypergraph import Hypergraph
from bigfs.graph.row_blocks import RowBlock, gather_rows, neighborhood_blocks
from bigfs.linalg.descent import descend
from bigfs.matrix import Matrix
from bigfs.settings import Setting
from bigfs.types import AnyArray, FloatArray

# Lasso penalties, as shares of the smallest penalty that empties the model (JHLSR, section 3.2).
PENALTIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
GAP = 1e-12  # of a lasso, relative to its optimum
MAX_SWEEPS = 10_000  # of coordinate descent, at each penalty
DENSE_SHARE = Setting(0.5)  # of non-zeros, above which rows are multiplied as a dense array


def lasso_hyperedges(
    X: Matrix, candidates: Neighbors, penalties: tuple[float, ...] = PENALTIES
) -> Hypergraph:
    """Make ℓ1 hyperedges: regress each sample on its candidates, once per penalty (JHLSR eq. 13).

        min_β ½‖x_i − Σ_j β_j x_j‖² + ρ λ_i ‖β‖₁,   λ_i = max_j |x_jᵀx_i|, which empties the model

    Coordinate descent at a penalty ρ begins at the coefficients of the one before. A hyperedge is
    the sample and the candidates with non-zero coefficients, and weighs Σ_{j∈e} exp(−‖x_i −
    x_j‖²/σ²), where σ is the mean distance to a member. The weights are scaled to sum to 1.
    """
    n, k = candidates.index.shape
    blocks, all_blocks = neighborhood_blocks(X, k)
    index = [candidates.index[b.start : b.stop] for b in blocks]
    parts = engine.map_tiles(
        _hyperedges,
        blocks,
        all_blocks,
        sorted(penalties, reverse=True),
        each=[index],
        local=X.local,
        label="hyperedges",
    )
    X.passes += len(blocks)
    columns = list(zip(*parts, strict=True))
    del parts  # of each column, the parts and the whole exist at once, and no more
    squares, members, sizes = (np.concatenate(columns.pop()) for _ in range(3))
    if not len(sizes):
        raise ValueError("no two samples share a feature, so there are no hyperedges: check X")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    w = _first_weights(sp.csr_array((squares, members, starts), shape=(len(sizes), n)))
    del squares
    return Hypergraph.of_samples(n, starts, members, w / w.sum())


def _first_weights(by_edge: sp.csr_array) -> FloatArray:
    """Return w_e (e) from ‖x_i − x_j‖² of the members (e × n), −1 for x_i. They are overwritten."""
    squares = by_edge.data
    distances = squares[squares >= 0]
    sigma = np.sqrt(distances, out=distances).mean()
    del distances
    heat = np.maximum(squares, 0, out=squares)
    if sigma > 0:
        heat /= -(sigma**2)
    np.exp(heat, out=heat)
    return np.asarray(by_edge @ np.ones(by_edge.shape[1]))


# --- tasks --------------------------------------------------------------------------------------


def _hyperedges(
    block: RowBlock, index: AnyArray, all_blocks: list[RowBlock], penalties: list[float]
) -> tuple[AnyArray, AnyArray, AnyArray]:
    numbers = np.arange(block.start, block.stop)
    needed = np.unique(np.concatenate([numbers, index[index >= 0]]))
    C = gather_rows(all_blocks, needed)
    sizes = [0]
    members = [np.empty(0, dtype=np.int32)]
    squares = [np.empty(0)]
    for i, row in zip(numbers, index, strict=True):
        others = np.sort(row[row >= 0])
        K = _gram(C[np.searchsorted(needed, np.append(others, i))])  # the sample last
        distances = np.maximum(K.diagonal() + K[-1, -1] - 2 * K[-1], 0)
        for support in lasso_supports(K, penalties):
            sizes.append(len(support) + 1)
            members.append(np.append(others[support], i).astype(np.int32))
            squares.append(np.append(distances[support], -1.0))
    return np.array(sizes[1:], dtype=np.int64), np.concatenate(members), np.concatenate(squares)


def _gram(rows: sp.csr_array) -> AnyArray:
    """Return the Gram matrix of some rows. BLAS is faster where few of the numbers are zero."""
    if rows.nnz <= DENSE_SHARE.value * rows.shape[0] * rows.shape[1]:
        return (rows @ rows.T).toarray()
    dense = rows.toarray()
    return np.asarray(dense @ dense.T)


def lasso_supports(K: AnyArray, penalties: list[float]) -> list[AnyArray]:
    """Return the support of the lasso at each relative penalty (decreasing).

    K is the Gram matrix of the candidates and of the sample, which is last.
    """
    largest = np.abs(K[:-1, -1]).max(initial=0.0)
    if largest == 0:
        return []
    K = K / largest  # the supports do not depend on the scale
    G, b = np.ascontiguousarray(K[:-1, :-1]), K[:-1, -1:].copy()
    supports, beta = [], np.zeros_like(b)
    for rho in penalties:
        beta = descend(G, b, beta, K[-1, -1], rho, GAP, MAX_SWEEPS)
        supports.append(np.flatnonzero(beta))
    return supports
