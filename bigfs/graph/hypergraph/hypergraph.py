"""Hypergraphs of the samples: incidence H, weights w, and products with the Laplacian L_H(w).

    L_H(w) = I − D_v^-½ H diag(w) D_e⁻¹ Hᵀ D_v^-½          JHLSR eq. 14, corrected
        (docs/methods/jhlsr.md)

H is n × e with H[i, e] = 1 if sample i is in hyperedge e. Here D_v and D_e are the **unweighted**
row and column sums of H. So L_H is linear in w, and positive semi-definite for 0 ≤ w ≤ 1.
`bigfs.graph.hypergraph.smoothness` has the degrees weighted by w as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.cards import brief
from bigfs.graph.edges import Neighbors
from bigfs.graph.kernels import hyperedges as kernels
from bigfs.linalg.prox import inverse_root
from bigfs.types import AnyArray, FloatArray, IntArray

SAMPLES_AT_ONCE = 8192  # whose rows of a strip stay in the cache
FEW_REPEATED = 0.9  # of hyperedges that are distinct: the others save less than a copy costs


class Members(NamedTuple):
    """The e' distinct hyperedges, or all, of a hypergraph of n samples and e hyperedges."""

    n: int
    starts: IntArray  # (e' + 1,) where the samples of each hyperedge begin
    samples: AnyArray  # int32: the samples of all hyperedges, increasing in each one
    number: IntArray  # (e,) the number among the e' of each of the e hyperedges

    @classmethod
    def of(cls, H: sp.csr_array) -> Members:
        """Take the distinct columns of an incidence H (n × e), in the order of their first ones.
        Where few of them repeat another, all are taken, because H then has them by sample too."""
        n, e = H.shape
        starts, samples = kernels.transpose(H.indptr, H.indices, e)
        keys = np.random.default_rng(0).integers(0, 2**64, n, dtype=np.uint64)
        order = np.argsort(kernels.edge_sums(starts, samples, keys), kind="stable")
        is_first = ~kernels.equal_to_previous(starts, samples, order)
        if np.count_nonzero(is_first) > FEW_REPEATED * e:
            return cls(n, starts, samples, np.arange(e))
        firsts = order[is_first]
        number = np.empty(e, dtype=np.int64)
        number[order] = np.argsort(np.argsort(firsts))[np.cumsum(is_first) - 1]
        if len(firsts) < e:
            sizes, is_kept = np.diff(starts), np.zeros(e, dtype=bool)
            is_kept[firsts] = True
            samples = samples[np.repeat(is_kept, sizes)]
            starts = np.concatenate([[0], np.cumsum(sizes[is_kept])])
        return cls(n, starts, samples, number)

    @property
    def sizes(self) -> IntArray:
        """Number of samples of each hyperedge (e')."""
        return np.diff(self.starts)

    def total_weights(self, w: FloatArray) -> FloatArray:
        """Return the sum of the weights of equal hyperedges (e')."""
        totals = np.bincount(self.number, weights=w, minlength=len(self.starts) - 1)
        return totals.astype(np.float64, copy=False)

    def vertex_sums(self, x: FloatArray) -> FloatArray:
        """Return the sum of x (e') over the hyperedges of each sample (n)."""
        return kernels.vertex_sums(self.starts, self.samples, x, self.n)

    def edge_sums(self, y: FloatArray) -> FloatArray:
        """Return the sum of y (n) over the samples of each of the e hyperedges."""
        sums: FloatArray = kernels.edge_sums(self.starts, self.samples, y)[self.number]
        return sums

    def edge_maxima(self, y: FloatArray) -> FloatArray:
        """Return the largest y ≥ 0 (n) of the samples of each of the e hyperedges."""
        return kernels.edge_maxima(self.starts, self.samples, y)[self.number]

    def matrix(self) -> sp.csc_array:
        """Return the incidence of the distinct hyperedges (n × e')."""
        ones = np.ones(len(self.samples))
        return sp.csc_array((ones, self.samples, self.starts), shape=(self.n, len(self.sizes)))


@dataclass(frozen=True)
class Hypergraph:
    """The incidence H and the weights w of a hypergraph. `Hypergraph.of` checks them."""

    __repr__ = brief

    H: sp.csr_array  # n × e, zeros and ones, in int8
    w: AnyArray  # (e,)

    @classmethod
    def of(cls, H: Any, w: Any = None) -> Hypergraph:
        """Make a hypergraph from a sparse or dense incidence."""
        H = sp.csr_array(H)
        if not H.data.all():
            H = H.copy()
            H.eliminate_zeros()
        narrow = np.int32 if max(H.nnz, *H.shape) < 2**31 else np.int64
        indices, indptr = (a.astype(narrow, copy=False) for a in (H.indices, H.indptr))
        H = sp.csr_array((np.ones(H.nnz, np.int8), indices, indptr), shape=H.shape)
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

    @classmethod
    def of_samples(cls, n: int, starts: AnyArray, samples: AnyArray, w: Any = None) -> Hypergraph:
        """Make a hypergraph of n samples from those of all hyperedges, which begin at `starts`."""
        own, edges = kernels.transpose(starts, samples, n)
        ones = np.ones(len(edges), np.int8)
        return cls.of(sp.csr_array((ones, edges, own), shape=(n, len(starts) - 1)), w)

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
        return inverse_root(self.vertex_degrees)

    @cached_property
    def members(self) -> Members:
        """The samples of the distinct hyperedges.

        Neighboring penalties often give a sample the same hyperedge.
        """
        return Members.of(self.H)

    @cached_property
    def memberships(self) -> tuple[AnyArray, AnyArray]:
        """The distinct hyperedges of each sample: where they begin (n + 1,), and their numbers."""
        members = self.members
        if len(members.sizes) == self.shape[1]:  # they are in the order of the columns of H
            starts, edges = self.H.indptr, self.H.indices
            return starts.astype(np.int64), edges.astype(np.int32, copy=False)
        return kernels.transpose(members.starts, members.samples, self.shape[0])

    def edge_rows(self, root: AnyArray, weights: AnyArray, V: AnyArray) -> AnyArray:
        """Return diag(weights) Hᵀ diag(root) V (e' × r) of the distinct hyperedges.

        V (n × r) is in C order.
        """
        Z = np.empty((len(weights), V.shape[1]))
        kernels.edge_rows(self.members.starts, self.members.samples, root, weights, V, Z)
        return Z

    def subtract_edge_rows(self, root: AnyArray, m: AnyArray, Z: AnyArray, V: AnyArray) -> None:
        """Replace V (n × r) by diag(m)V − diag(root) H Z, for Z (e' × r). V is in C order."""
        starts, edges = self.memberships
        kernels.subtract_edge_rows(starts, edges, root, m, Z, V)

    def edge_row_products(self, root: AnyArray, Z: AnyArray, V: AnyArray) -> AnyArray:
        """Return the products (n,) of the rows of V and of diag(root) H Z, for Z (e' × r)."""
        starts, edges = self.memberships
        products = np.empty(len(V))
        for first in range(0, len(V), SAMPLES_AT_ONCE):
            rows = slice(first, min(first + SAMPLES_AT_ONCE, len(V)))
            zeros = np.zeros(rows.stop - rows.start)
            HZ = np.zeros((len(zeros), V.shape[1]))
            kernels.subtract_edge_rows(
                starts[rows.start : rows.stop + 1], edges, -root[rows], zeros, Z, HZ
            )
            products[rows] = np.einsum("vr,vr->v", V[rows], HZ)
        return products


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
    """Make one hyperedge per sample with neighbors, of itself and its k nearest, and per bridge."""
    n, k = neighbors.index.shape
    heads = np.flatnonzero(np.any(neighbors.index >= 0, axis=1))
    rows = np.empty((len(heads), k + 1), dtype=np.int32)
    rows[:, 0], rows[:, 1:] = heads, neighbors.index[heads]
    sizes = np.count_nonzero(rows >= 0, axis=1)
    samples = rows[rows >= 0]
    if neighbors.bridges is not None:
        sizes = np.append(sizes, np.full(len(neighbors.bridges.samples), 2))
        samples = np.append(samples, neighbors.bridges.samples)
    return Hypergraph.of_samples(n, np.concatenate([[0], np.cumsum(sizes)]), samples)


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
