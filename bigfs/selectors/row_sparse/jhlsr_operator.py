"""The operator AᵀA + μL_H(w) of JHLSR, by the samples of the hyperedges."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from bigfs.graph.hypergraph.hypergraph import Hypergraph
from bigfs.graph.hypergraph.smoothness import Smoothness
from bigfs.linalg.ridge.operator import SampleOperator
from bigfs.types import AnyArray, FloatArray


@dataclass(frozen=True)
class HypergraphOperator(SampleOperator):
    """The operator M = diag(m) − D_v^-½ H diag(c) Hᵀ D_v^-½, without the incidence as a matrix.

    With a free intercept it is M − ggᵀ, where g = M1/√(1ᵀM1).
    """

    hypergraph: Hypergraph = field(kw_only=True)
    root_degrees: FloatArray = field(kw_only=True)  # (n,) the diagonal of D_v^-½
    c: FloatArray = field(kw_only=True)  # (e',) of the distinct hyperedges
    g: FloatArray | None = field(kw_only=True, default=None)  # (n,)

    @classmethod
    def of(
        cls, smoothness: Smoothness, a: FloatArray, mu: float, w: FloatArray
    ) -> HypergraphOperator:
        """Make diag(a) + μL_H(w)."""
        hypergraph = smoothness.hypergraph
        c = mu * hypergraph.members.total_weights(w / hypergraph.edge_degrees)
        return cls(a + mu, hypergraph=hypergraph, root_degrees=smoothness.root(w), c=c)

    @cached_property
    def ones(self) -> FloatArray:
        """M1 (n,)."""
        return np.asarray(self.apply(np.ones((len(self.root_degrees), 1)), overwrite=True)[:, 0])

    @cached_property
    def centered(self) -> HypergraphOperator:
        """The operator with a free intercept."""
        return replace(self, g=self.ones / np.sqrt(self.ones.sum()))

    @property
    def entries(self) -> int:
        own = 0 if self.g is None else len(self.g)
        return own + int(self.hypergraph.members.sizes[self.c > 0].sum())

    def height(self, n: int) -> int:
        """Return the rows of the largest array of `apply`: one per sample, or per hyperedge."""
        return max(n, len(self.c))

    def factor(self) -> sp.csr_array:
        """Return F = D_v^-½ H diag(c)^½ (n × e'), without the hyperedges of weight zero."""
        active = np.flatnonzero(self.c)
        H = self.hypergraph.members.matrix()[:, active]
        scaled = sp.diags_array(self.root_degrees) @ H @ sp.diags_array(np.sqrt(self.c[active]))
        return sp.csr_array(scaled if self.g is None else sp.hstack([scaled, self.g[:, None]]))

    def apply(self, V: AnyArray, overwrite: bool = False) -> AnyArray:
        """Return M V, dense n × r, in the memory of V with `overwrite`.

        First come the rows of the hyperedges, then each sample subtracts the rows of its
        hyperedges. So a step reads rows anywhere, and writes one row after the other.
        """
        assert self.m is not None
        V = np.ascontiguousarray(V) if overwrite else np.array(V, order="C")
        common = None if self.g is None else np.outer(self.g, self.g @ V)
        Z = self.hypergraph.edge_rows(self.root_degrees, self.c, V)
        self.hypergraph.subtract_edge_rows(self.root_degrees, self.m, Z, V)
        if common is not None:
            V -= common
        return V
