"""The samples of hyperedges, and sums over them. Equal hyperedges are computed once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.graph.kernels import hyperedges as kernels
from bigfs.types import AnyArray, FloatArray, IntArray

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
