"""The operator AᵀA + μL_H(w) of JHLSR, by the samples of the hyperedges."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from bigfs.graph.kernels import hyperedges as kernels
from bigfs.graph.members import Members
from bigfs.graph.smoothness import Smoothness
from bigfs.linalg.ridge import SampleOperator
from bigfs.types import AnyArray, FloatArray

LARGE = 1 << 22  # multiply-adds from which two threads are faster than one (measured)


@dataclass(frozen=True)
class HypergraphOperator(SampleOperator):
    """The operator diag(m) − D_v^-½ H diag(c) Hᵀ D_v^-½, without the incidence as a matrix."""

    members: Members = field(kw_only=True)
    root_degrees: FloatArray = field(kw_only=True)  # (n,) the diagonal of D_v^-½
    c: FloatArray = field(kw_only=True)  # (e',) of the distinct hyperedges

    @classmethod
    def of(
        cls, smoothness: Smoothness, a: FloatArray, mu: float, w: FloatArray
    ) -> HypergraphOperator:
        """Make diag(a) + μL_H(w)."""
        hypergraph = smoothness.hypergraph
        c = mu * hypergraph.members.total_weights(w / hypergraph.edge_degrees)
        root = smoothness.root(w)
        return cls(a + mu, members=hypergraph.members, root_degrees=root, c=c)

    @property
    def entries(self) -> int:
        """Number of non-zeros of F."""
        return int(self.members.sizes[self.c > 0].sum())

    def factor(self) -> sp.csr_array:
        """Return F = D_v^-½ H diag(c)^½ (n × e'), without the hyperedges of weight zero."""
        active = np.flatnonzero(self.c)
        H = self.members.matrix()[:, active]
        scaled = sp.diags_array(self.root_degrees) @ H @ sp.diags_array(np.sqrt(self.c[active]))
        return sp.csr_array(scaled)

    def apply(self, V: AnyArray) -> AnyArray:
        """Return M V, dense n × r.

        It is summed over two halves of the hyperedges, whose sums are added in the end. Two threads
        take one half each where that pays.
        """
        V = np.ascontiguousarray(V)
        assert self.m is not None
        MV, second = self.m[:, None] * V, np.zeros_like(V)
        middle = int(np.searchsorted(self.members.starts, len(self.members.samples) / 2))
        halves = (slice(0, middle), V, MV), (slice(middle, len(self.c)), V, second)
        if V.shape[1] * len(self.members.samples) < LARGE:
            for half in halves:
                self._subtract(*half)
        else:
            with ThreadPoolExecutor(len(halves)) as pool:
                list(pool.map(lambda half: self._subtract(*half), halves))
        MV += second
        return MV

    def _subtract(self, edges: slice, V: FloatArray, result: FloatArray) -> None:
        """Subtract what some hyperedges add to D_v^-½ H diag(c) Hᵀ D_v^-½ V."""
        starts = self.members.starts[edges.start : edges.stop + 1]
        kernels.subtract_similarity(
            starts, self.members.samples, self.root_degrees, self.c[edges], V, result
        )
