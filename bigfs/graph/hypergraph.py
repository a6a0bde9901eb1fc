"""Hypergraphs of the samples: incidence H, weights w, and products with the Laplacian L_H(w).

    L_H(w) = I − D_v^-½ H diag(w) D_e⁻¹ Hᵀ D_v^-½          JHLSR eq. 14, corrected
        (docs/methods/jhlsr.md)

H is n × e with H[i, e] = 1 if sample i is in hyperedge e. Here D_v and D_e are the **unweighted**
row and column sums of H. So L_H is linear in w, and positive semi-definite for 0 ≤ w ≤ 1.
`bigfs.graph.smoothness` has the degrees weighted by w as well.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import lars_path_gram
from threadpoolctl import threadpool_limits

from bigfs import engine
from bigfs.graph import Neighbors
from bigfs.graph.cost import predict
from bigfs.graph.kernels import hyperedges as kernels
from bigfs.graph.members import Members
from bigfs.graph.row_blocks import RowBlock, block_size, row_blocks
from bigfs.matrix import Matrix
from bigfs.types import AnyArray

# Lasso penalties, as shares of the smallest penalty that empties the model (JHLSR, section 3.2).
PENALTIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
ZERO = 1e-10  # share of the largest coefficient of a path, below which one is zero
DENSE_SHARE = 0.5  # of non-zeros, above which rows are multiplied as a dense array
MEMORY_SHARE = 0.1  # share of a process's memory for the rows that one task's regressions need


@dataclass(frozen=True)
class Hypergraph:
    """The incidence H and the weights w of a hypergraph. `Hypergraph.of` checks them."""

    H: sp.csr_array  # n × e, zeros and ones, in int8
    w: AnyArray  # (e,)

    @classmethod
    def of(cls, H: Any, w: Any = None) -> Hypergraph:
        """Make a hypergraph from a sparse or dense incidence.

        Parameters
        ----------
        H : array-like or sparse matrix of shape (n, e)
            Incidence. A non-zero is a membership.
        w : array-like of shape (e,) or None, default=None
            Weights of the hyperedges. None is all ones.

        Returns
        -------
        Hypergraph
            The hypergraph.

        Raises
        ------
        ValueError
            A hyperedge has no samples, or the weights have another length, are negative or are not
            finite.
        """
        H = sp.csr_array(H)
        if not H.data.all():
            H = H.copy()
            H.eliminate_zeros()
        H = sp.csr_array((np.ones(H.nnz, np.int8), H.indices, H.indptr), shape=H.shape)
        w = np.ones(H.shape[1]) if w is None else np.asarray(w, dtype=np.float64)
        if w.shape != (H.shape[1],) or not np.all(np.isfinite(w)) or np.any(w < 0):
            raise ValueError(
                f"w must hold {H.shape[1]} finite weights ≥ 0, one per hyperedge; got shape "
                f"{w.shape} with minimum {w.min(initial=0)}"
            )
        if H.shape[1] == 0 or not kernels.edge_sizes(H.indices, H.shape[1]).all():
            raise ValueError(
                "H needs a hyperedge, and every hyperedge a sample: drop the empty columns of H"
            )
        return cls(H, w)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of samples and hyperedges."""
        return self.H.shape

    @cached_property
    def vertex_degrees(self) -> AnyArray:
        """The diagonal of D_v (n): the number of hyperedges of each sample."""
        return np.diff(self.H.indptr).astype(np.float64)

    @cached_property
    def edge_degrees(self) -> AnyArray:
        """The diagonal δ of D_e (e): the number of samples of each hyperedge."""
        return kernels.edge_sizes(self.H.indices, self.H.shape[1]).astype(np.float64)

    @cached_property
    def root(self) -> AnyArray:
        """The diagonal of D_v^-½ (n), 0 for a sample in no hyperedge."""
        degree = self.vertex_degrees
        return np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)

    @cached_property
    def members(self) -> Members:
        """The samples of the distinct hyperedges.

        Neighboring penalties often give a sample the same hyperedge.
        """
        return Members.of(self.H)

    @cached_property
    def _float(self) -> sp.csr_array:
        return self.H.astype(np.float64)

    @cached_property
    def _transposed(self) -> sp.csr_array:
        return sp.csr_array(self._float.T)

    def similarity(self, w: AnyArray | None = None) -> LinearOperator:
        """Return D_v^-½ H diag(w) D_e⁻¹ Hᵀ D_v^-½ = I − L_H(w) as an operator."""
        weights = (self.w if w is None else w) / self.edge_degrees

        def times(V: AnyArray) -> AnyArray:
            columns = V.reshape(V.shape[0], -1)
            inner = weights[:, None] * (self._transposed @ (self.root[:, None] * columns))
            return np.asarray(self.root[:, None] * (self._float @ inner)).reshape(V.shape)

        n = self.H.shape[0]
        return LinearOperator(
            (n, n), dtype=np.float64, matvec=times, matmat=times, rmatvec=times, rmatmat=times
        )

    def laplacian(self, w: AnyArray | None = None) -> LinearOperator:
        """Return L_H(w) (n × n) as an operator. It is never formed."""
        similarity = self.similarity(w)

        def times(V: AnyArray) -> AnyArray:
            return np.asarray(V - similarity @ V)

        return LinearOperator(
            similarity.shape,
            dtype=np.float64,
            matvec=times,
            matmat=times,
            rmatvec=times,
            rmatmat=times,
        )

    def sparse_laplacian(self, w: AnyArray | None = None) -> sp.csr_array:
        """Form L_H(w). Every two samples of a hyperedge are a non-zero.

        For small data and tests.
        """
        G = sp.diags_array(self.root) @ self.H
        weights = (self.w if w is None else w) / self.edge_degrees
        return sp.csr_array(sp.eye_array(self.H.shape[0]) - G @ sp.diags_array(weights) @ G.T)

    def edge_energies(self, P: AnyArray) -> AnyArray:
        """Return q (e) for P (n × r): q_e = ‖(Pᵀ D_v^-½ H)_e‖² / δ_e.

        Then tr(Pᵀ L_H(w) P) = ‖P‖² − wᵀq.
        """
        inner = self._transposed @ (self.root[:, None] * P.reshape(P.shape[0], -1))
        return np.asarray((inner**2).sum(axis=1) / self.edge_degrees)


# --- hyperedges ---------------------------------------------------------------------------------


def label_hyperedges(codes: AnyArray) -> Hypergraph:
    """Make one hyperedge per class, of its samples. A sample of code −1 is in no hyperedge."""
    codes = np.asarray(codes)
    labeled = np.flatnonzero(codes >= 0)
    classes, column = np.unique(codes[labeled], return_inverse=True)
    return Hypergraph.of(
        sp.csr_array((np.ones(len(labeled)), (labeled, column)), shape=(len(codes), len(classes)))
    )


def neighbor_hyperedges(neighbors: Neighbors) -> Hypergraph:
    """Make one hyperedge per sample with neighbors, of itself and its k nearest."""
    n, k = neighbors.index.shape
    heads = np.flatnonzero(np.any(neighbors.index >= 0, axis=1))
    rows = np.empty((len(heads), k + 1), dtype=np.int32)
    rows[:, 0], rows[:, 1:] = heads, neighbors.index[heads]
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(rows >= 0, axis=1))])
    rows = rows[rows >= 0]
    H = sp.csc_array((np.ones(len(rows), np.int8), rows, starts), shape=(n, len(heads)))
    return Hypergraph.of(H)


def edge_hyperedges(neighbors: Neighbors) -> Hypergraph:
    """Make one hyperedge of two samples per edge of the kNN graph, symmetrized by OR."""
    i, rank = np.nonzero(neighbors.index >= 0)
    edges = np.unique(np.sort(np.column_stack([i, neighbors.index[i, rank]]), axis=1), axis=0)
    if not len(edges):
        raise ValueError("no two samples share a feature, so the graph has no edges: check X")
    numbers = np.arange(len(edges))
    H = sp.csr_array(
        (np.ones(2 * len(edges)), (edges.T.ravel(), np.tile(numbers, 2))),
        shape=(len(neighbors.index), len(edges)),
    )
    return Hypergraph.of(H)


def lasso_hyperedges(
    X: Matrix, candidates: Neighbors | None, penalties: tuple[float, ...] = PENALTIES
) -> Hypergraph:
    """Make ℓ1 hyperedges: regress each sample on its candidates, once per penalty (JHLSR eq. 13).

        min_β ½‖x_i − Σ_j β_j x_j‖² + ρ λ_i ‖β‖₁      λ_i = max_j |x_jᵀx_i|, which empties the model

    One LARS path per sample gives all penalties ρ. A hyperedge consists of the sample and the
    candidates with non-zero coefficients. Its weight is w_e = Σ_{j∈e} exp(−‖x_i − x_j‖²/σ²), where
    σ is the mean distance to a member. The weights are scaled to sum to 1. A sample that is
    orthogonal to all its candidates, such as an empty row, has no hyperedge.

    Parameters
    ----------
    X : Matrix of shape (n, d)
        The samples, with the layout by rows. They are neither centered nor scaled.
    candidates : Neighbors or None
        Candidates of each sample, such as `knn(X, 50)`. A member of the full model that is not
        among them is missed. None takes all n − 1 other samples, with n × n in memory.
    penalties : tuple of float, default=(0.1, …, 0.9)
        Penalties ρ, each in (0, 1).

    Returns
    -------
    Hypergraph
        The hyperedges with their weights.

    Raises
    ------
    ValueError
        A penalty is outside (0, 1), the candidates are for another number of samples, or no sample
        has a hyperedge.
    NotEnoughMemory
        There are no candidates, and n × n does not fit.
    """
    n = X.shape[0]
    if not penalties or not all(0 < rho < 1 for rho in penalties):
        raise ValueError(
            f"penalties must lie strictly between 0 and 1, as shares of the penalty that "
            f"empties the model; got {penalties}"
        )
    if candidates is not None and len(candidates.index) != n:
        raise ValueError(
            f"X has {n} samples, but the candidates were computed for "
            f"{len(candidates.index)}: compute them on the same data"
        )
    k = n - 1 if candidates is None else candidates.index.shape[1]
    blocks, all_blocks = neighborhood_blocks(X, k)
    index = [None if candidates is None else candidates.index[b.start : b.stop] for b in blocks]
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
    sizes, members, squares = (np.concatenate(part) for part in zip(*parts, strict=True))
    if not len(sizes):
        raise ValueError("no two samples share a feature, so there are no hyperedges: check X")
    column = np.repeat(np.arange(len(sizes)), sizes)
    H = sp.csr_array((np.ones(len(members)), (members, column)), shape=(n, len(sizes)))
    sigma = np.sqrt(squares[squares >= 0]).mean()
    heat = np.exp(-np.maximum(squares, 0) / sigma**2) if sigma > 0 else np.ones(len(squares))
    w = np.bincount(column, weights=heat)
    return Hypergraph.of(H, w / w.sum())


def neighborhood_blocks(X: Matrix, k: int) -> tuple[list[RowBlock], list[RowBlock]]:
    """Return a block of samples per task, and all rows in blocks, which hold their neighbors."""
    cost, n = predict(X), X.shape[0]
    one = (k + 1) * cost.row_bytes  # bytes of one sample with its candidates
    engine.require_memory(
        int(min(one, n * cost.row_bytes) / MEMORY_SHARE) + 8 * k * k,
        f"one sample with {k} neighbors",
    )
    rows = max(int(MEMORY_SHARE * engine.memory_limit() / one), 1)
    rows = min(rows, -(-n // (4 * engine.n_workers())))
    return row_blocks(X, rows), row_blocks(X, block_size(n, 0, cost))


# --- tasks --------------------------------------------------------------------------------------


def _hyperedges(
    block: RowBlock, index: AnyArray | None, all_blocks: list[RowBlock], penalties: list[float]
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return the hyperedges of the samples of a block.

    Returns
    -------
    sizes : ndarray of int64
        Number of members of each hyperedge.
    members : ndarray of int64
        The members of all hyperedges, one after the other.
    squares : ndarray of float64
        ‖x_i − x_j‖² of each member j, −1 for the sample i itself.
    """
    numbers = np.arange(block.start, block.stop)
    if index is None:
        problems = _problems_with_all(numbers, all_blocks)
    else:
        problems = _problems(index, numbers, all_blocks)
    sizes = [0]
    members = [np.empty(0, dtype=np.int64)]
    squares = [np.empty(0)]
    with threadpool_limits(1, user_api="blas"):  # it rounds by its number of threads
        for i, others, K in problems:
            G, b, norm = K[:-1, :-1], K[:-1, -1], K[-1, -1]
            for support in lasso_supports(G, b, penalties):
                sizes.append(len(support) + 1)
                members.append(np.append(others[support], i))
                squares.append(
                    np.append(np.maximum(G[support, support] + norm - 2 * b[support], 0), -1.0)
                )
    return np.array(sizes[1:], dtype=np.int64), np.concatenate(members), np.concatenate(squares)


# A sample, its candidates in increasing order, and the Gram matrix of both, the sample last.
LassoProblem = tuple[int, AnyArray, AnyArray]


def _problems(
    index: AnyArray, numbers: AnyArray, all_blocks: list[RowBlock]
) -> Iterator[LassoProblem]:
    """Yield the regression of each sample on its candidates."""
    needed = np.unique(np.concatenate([numbers, index[index >= 0]]))
    C = gather_rows(all_blocks, needed)
    for i, row in zip(numbers, index, strict=True):
        others = np.sort(row[row >= 0])
        yield i, others, _gram(C[np.searchsorted(needed, np.append(others, i))])


def _gram(rows: sp.csr_array) -> AnyArray:
    """Return the Gram matrix of some rows. BLAS is faster where few of the numbers are zero."""
    if rows.nnz <= DENSE_SHARE * rows.shape[0] * rows.shape[1]:
        return (rows @ rows.T).toarray()
    dense = rows.toarray()
    return np.asarray(dense @ dense.T)


def _problems_with_all(numbers: AnyArray, all_blocks: list[RowBlock]) -> Iterator[LassoProblem]:
    """Yield the regression of each sample on all others, from one n × n Gram matrix."""
    C = gather_rows(all_blocks, None)
    K = (C @ C.T).toarray()
    for i in numbers:
        others = np.delete(np.arange(len(K)), i)
        samples = np.append(others, i)
        yield i, others, K[np.ix_(samples, samples)]


def gather_rows(blocks: list[RowBlock], needed: AnyArray | None) -> sp.csr_array:
    """Gather the rows of increasing numbers, or all rows, in float64."""
    parts = []
    for block in blocks:
        if needed is None:
            parts.append(block.load())
        else:
            low, high = np.searchsorted(needed, [block.start, block.stop])
            if high > low:
                parts.append(block.load()[needed[low:high] - block.start])
    return sp.csr_array(sp.vstack(parts, format="csr"), dtype=np.float64)


def lasso_supports(G: AnyArray, b: AnyArray, penalties: list[float]) -> list[AnyArray]:
    """Return the support of the lasso at each relative penalty (decreasing), from one LARS path."""
    largest = np.abs(b).max(initial=0.0)
    if largest == 0:
        return []
    # LARS compares with absolute numbers, and the supports do not depend on the scale
    unit = 2.0 ** -np.round(np.log2(largest))
    G, b, largest = G * unit, b * unit, largest * unit
    with warnings.catch_warnings():
        # LARS keeps one of several equal candidates and warns. That still solves the lasso.
        warnings.simplefilter("ignore", ConvergenceWarning)
        knots, _, path = lars_path_gram(
            Xy=b, Gram=G, n_samples=1, method="lasso", alpha_min=penalties[-1] * largest
        )
    # LARS leaves a rounding error in place of the zero of some coefficients that it drops
    is_in = np.abs(path) > ZERO * np.abs(path).max()
    supports = []
    for rho in penalties:
        # the first knot at or below the penalty
        knot = min(np.searchsorted(-knots, -rho * largest), len(knots) - 1)
        # between two knots the coefficients are linear, so their support is that of either end
        crossed = is_in[:, knot] | is_in[:, knot - 1]
        supports.append(np.flatnonzero(crossed if knots[knot] < rho * largest else is_in[:, knot]))
    return supports
