"""Hypergraphs of the samples: incidence H, weights w, and L_H(w) through H.

    L_H(w) = I − D_v^-½ H diag(w) D_e⁻¹ Hᵀ D_v^-½          JHLSR eq. 14, corrected
        (docs/methods/jhlsr.md)

H is n × e with H[i, e] = 1 where sample i is in hyperedge e. D_v and D_e are the **unweighted** row
and column sums of H, so that L_H is positive semi-definite for every w with 0 ≤ w ≤ 1, and linear
in w.
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

from bigfs import engine
from bigfs.graph import Neighbours
from bigfs.graph.cost import predict
from bigfs.graph.row_blocks import Rows, block_size, cut
from bigfs.matrix import Matrix
from bigfs.types import AnyArray

# of the one that empties the model; JHLSR, section 3.2
PENALTIES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SHARE = 0.1  # of a process's memory, for the rows that one task's regressions need


@dataclass(frozen=True)
class Hypergraph:
    """H (n × e csr of zeros and ones) and w (e), the hyperedges' weights: ones unless they are
    given.
    """

    H: sp.csr_array
    w: AnyArray

    @classmethod
    def of(cls, H: Any, w: Any = None) -> Hypergraph:
        """From any sparse or dense incidence; a non-zero is a membership.

        Raises
        ------
        ValueError : for a hyperedge without samples, or weights of another length, negative or not
            finite.
        """
        H = sp.csr_array(H, dtype=np.float64)
        H.eliminate_zeros()
        H.data[:] = 1.0
        w = np.ones(H.shape[1]) if w is None else np.asarray(w, dtype=np.float64)
        if w.shape != (H.shape[1],) or not np.all(np.isfinite(w)) or np.any(w < 0):
            raise ValueError(
                f"w must hold {H.shape[1]} finite weights ≥ 0, one per hyperedge; got shape "
                f"{w.shape} with minimum {w.min(initial=0)}"
            )
        if H.shape[1] == 0 or np.any(H.sum(axis=0) == 0):
            raise ValueError(
                "H needs a hyperedge, and every hyperedge a sample: drop the empty columns of H"
            )
        return cls(H, w)

    @property
    def shape(self) -> tuple[int, int]:
        """(samples, hyperedges)."""
        return self.H.shape

    @cached_property
    def vertex_degrees(self) -> AnyArray:
        """The diagonal of D_v (n): in how many hyperedges a sample is."""
        return np.asarray(self.H.sum(axis=1))

    @cached_property
    def edge_degrees(self) -> AnyArray:
        """The diagonal of D_e (e), δ: how many samples a hyperedge has."""
        return np.asarray(self.H.sum(axis=0))

    @cached_property
    def root(self) -> AnyArray:
        """The diagonal of D_v^-½ (n); 0 for a sample in no hyperedge."""
        degree = self.vertex_degrees
        return np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)

    @cached_property
    def _transposed(self) -> sp.csr_array:
        return sp.csr_array(self.H.T)

    def similarity(self, w: AnyArray | None = None) -> LinearOperator:
        """D_v^-½ H diag(w) D_e⁻¹ Hᵀ D_v^-½ = I − L_H(w), through H."""
        share = (self.w if w is None else w) / self.edge_degrees

        def times(V: AnyArray) -> AnyArray:
            tall = V.reshape(V.shape[0], -1)
            inner = share[:, None] * (self._transposed @ (self.root[:, None] * tall))
            return np.asarray(self.root[:, None] * (self.H @ inner)).reshape(V.shape)

        n = self.H.shape[0]
        return LinearOperator(
            (n, n), dtype=np.float64, matvec=times, matmat=times, rmatvec=times, rmatmat=times
        )

    def laplacian(self, w: AnyArray | None = None) -> LinearOperator:
        """L_H(w) (n × n) through H; never formed."""
        near = self.similarity(w)

        def times(V: AnyArray) -> AnyArray:
            return np.asarray(V - near @ V)

        return LinearOperator(
            near.shape, dtype=np.float64, matvec=times, matmat=times, rmatvec=times, rmatmat=times
        )

    def sparse_laplacian(self, w: AnyArray | None = None) -> sp.csr_array:
        """L_H(w) formed: every two samples of a hyperedge are a non-zero.

        For small data and tests.
        """
        G = sp.diags_array(self.root) @ self.H
        share = (self.w if w is None else w) / self.edge_degrees
        return sp.csr_array(sp.eye_array(self.H.shape[0]) - G @ sp.diags_array(share) @ G.T)

    def gathered(self, P: AnyArray) -> AnyArray:
        """q (e) of P (n × r): q_e = ‖(Pᵀ D_v^-½ H)_e‖² / δ_e, so that tr(Pᵀ L_H(w) P) = ‖P‖² −
        wᵀq.
        """
        inner = self._transposed @ (self.root[:, None] * P.reshape(P.shape[0], -1))
        return np.asarray((inner**2).sum(axis=1) / self.edge_degrees)


# --- hyperedges ---------------------------------------------------------------------------------


def label_hyperedges(codes: AnyArray) -> Hypergraph:
    """One hyperedge per class number: its samples. −1 is unlabelled, in no hyperedge."""
    codes = np.asarray(codes)
    known = np.flatnonzero(codes >= 0)
    classes, column = np.unique(codes[known], return_inverse=True)
    return Hypergraph.of(
        sp.csr_array((np.ones(len(known)), (known, column)), shape=(len(codes), len(classes)))
    )


def neighbour_hyperedges(neighbours: Neighbours) -> Hypergraph:
    """One hyperedge a sample: itself and its k nearest; none for a sample without neighbours."""
    n = len(neighbours.index)
    i, m = np.nonzero(neighbours.index >= 0)
    heads, edge = np.unique(i, return_inverse=True)
    rows = np.concatenate([heads, neighbours.index[i, m]])
    columns = np.concatenate([np.arange(len(heads)), edge])
    return Hypergraph.of(sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, len(heads))))


def lasso_hyperedges(
    X: Matrix, candidates: Neighbours | None, penalties: tuple[float, ...] = PENALTIES
) -> Hypergraph:
    """ℓ1 hyperedges (JHLSR eq.

    13): each sample regressed on its candidates, one hyperedge a penalty.

        min_β ½‖x_i − Σ_j β_j x_j‖² + ρ λ_i ‖β‖₁      λ_i = max_j |x_jᵀx_i|, which empties the model

    One LARS path a sample gives all penalties ρ. The non-zero coefficients and the sample itself
    are the hyperedge; its first weight is w_e = Σ_{j∈e} exp(−‖x_i − x_j‖²/σ²), σ the mean distance
    to a member, scaled to sum 1. A sample orthogonal to all its candidates (an empty row) makes no
    hyperedge.

    Parameters
    ----------
    X : n × d, with its layout by rows; as it is, neither centred nor scaled.
    candidates : the neighbours to choose from (`knn(X, 50)`): screening by correlation. A member of
        the
        full model that is not among them is lost. None: all n − 1 others, n × n in memory.
    penalties : ρ, each in (0, 1).

    Raises
    ------
    ValueError : for penalties outside (0, 1), candidates of another number of samples, or when no
        sample makes a hyperedge.
    NotEnoughMemory : without candidates, if n × n does not fit.
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
    own, everyone = _portions(X, k)
    index = [None if candidates is None else candidates.index[r.start : r.stop] for r in own]
    parts = engine.map_tiles(
        _hyperedges,
        own,
        everyone,
        sorted(penalties, reverse=True),
        each=[index],
        local=X.local,
        label="hyperedges",
    )
    X.passes += len(own)
    sizes, members, squares = (np.concatenate(part) for part in zip(*parts, strict=True))
    if not len(sizes):
        raise ValueError("no two samples share a feature, so there are no hyperedges: check X")
    column = np.repeat(np.arange(len(sizes)), sizes)
    H = sp.csr_array((np.ones(len(members)), (members, column)), shape=(n, len(sizes)))
    sigma = np.sqrt(squares[squares >= 0]).mean()
    near = np.exp(-np.maximum(squares, 0) / sigma**2) if sigma > 0 else np.ones(len(squares))
    w = np.bincount(column, weights=near)
    return Hypergraph.of(H, w / w.sum())


def _portions(X: Matrix, k: int) -> tuple[list[Rows], list[Rows]]:
    """Rows that one task regresses, and all rows in blocks, where it finds their candidates."""
    cost, n = predict(X), X.shape[0]
    one = (k + 1) * cost.row_bytes
    engine.require_memory(
        int(min(one, n * cost.row_bytes) / SHARE) + 8 * k * k,
        f"one sample's regression on {k} candidates",
    )
    rows = max(int(SHARE * engine.memory_limit() / one), 1)
    return cut(X, min(rows, -(-n // (4 * engine.n_workers())))), cut(X, block_size(n, 0, cost))


# --- tasks --------------------------------------------------------------------------------------


def _hyperedges(
    own: Rows, index: AnyArray | None, everyone: list[Rows], penalties: list[float]
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """(size of each hyperedge, its members, their ‖x_i − x_j‖²; −1 for the sample i itself)."""
    numbers = np.arange(own.start, own.stop)
    problems = _among_all(numbers, everyone) if index is None else _among(index, numbers, everyone)
    sizes, members, squares = [0], [np.empty(0, dtype=np.int64)], [np.empty(0)]
    for i, others, K in problems:
        G, b, norm = K[:-1, :-1], K[:-1, -1], K[-1, -1]
        for support in lasso_supports(G, b, penalties):
            sizes.append(len(support) + 1)
            members.append(np.append(others[support], i))
            squares.append(
                np.append(np.maximum(G[support, support] + norm - 2 * b[support], 0), -1.0)
            )
    return np.array(sizes[1:], dtype=np.int64), np.concatenate(members), np.concatenate(squares)


# a sample, its candidates in increasing order, the Gram matrix of both, the sample last
Problem = tuple[int, AnyArray, AnyArray]


def _among(index: AnyArray, numbers: AnyArray, everyone: list[Rows]) -> Iterator[Problem]:
    """Each sample with its candidates."""
    needed = np.unique(np.concatenate([numbers, index[index >= 0]]))
    C = _gather(everyone, needed)
    for i, row in zip(numbers, index, strict=True):
        others = np.sort(row[row >= 0])
        rows = C[np.searchsorted(needed, np.append(others, i))]
        yield i, others, (rows @ rows.T).toarray()


def _among_all(numbers: AnyArray, everyone: list[Rows]) -> Iterator[Problem]:
    """Each sample with all others, from one n × n Gram matrix."""
    C = _gather(everyone, None)
    K = (C @ C.T).toarray()
    for i in numbers:
        others = np.delete(np.arange(len(K)), i)
        at = np.append(others, i)
        yield i, others, K[np.ix_(at, at)]


def _gather(everyone: list[Rows], needed: AnyArray | None) -> sp.csr_array:
    """The rows `needed` (sorted), or all, in float64."""
    parts = []
    for rows in everyone:
        if needed is None:
            parts.append(rows.load())
        else:
            low, high = np.searchsorted(needed, [rows.start, rows.stop])
            if high > low:
                parts.append(rows.load()[needed[low:high] - rows.start])
    return sp.csr_array(sp.vstack(parts, format="csr"), dtype=np.float64)


def lasso_supports(G: AnyArray, b: AnyArray, penalties: list[float]) -> list[AnyArray]:
    """The non-zeros of the lasso at each relative penalty (decreasing), from one LARS path."""
    largest = np.abs(b).max(initial=0.0)
    if largest == 0:
        return []
    # the supports do not depend on it; LARS compares with absolute numbers
    unit = 2.0 ** -np.round(np.log2(largest))
    G, b, largest = G * unit, b * unit, largest * unit
    with warnings.catch_warnings():
        # Of candidates that are equal LARS keeps one and warns: still a solution of the lasso
        warnings.simplefilter("ignore", ConvergenceWarning)
        knots, _, path = lars_path_gram(
            Xy=b, Gram=G, n_samples=1, method="lasso", alpha_min=penalties[-1] * largest
        )
    supports = []
    for rho in penalties:
        # first knot at or below the penalty
        after = min(np.searchsorted(-knots, -rho * largest), len(knots) - 1)
        # between two knots the coefficients are linear, so a support is that of either end
        crossed = (path[:, after] != 0) | (path[:, after - 1] != 0)
        supports.append(
            np.flatnonzero(crossed if knots[after] < rho * largest else path[:, after] != 0)
        )
    return supports
