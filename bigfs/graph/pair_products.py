"""The products of a function of the samples P (n × r), as the smoothness over a hypergraph uses it.

With a_v = d_v^-½ it needs, at each w, the sums over the samples of the hyperedges

    ‖r_e‖² = Σ_{u, v ∈ e} a_u a_v ⟨P_u, P_v⟩
    g_v = a_v Σ_{e ∋ v} (w_e/δ_e) Σ_{u ∈ e} a_u ⟨P_u, P_v⟩

`StripSums` takes them from the rows of P, in 2r multiply-adds per sample of a hyperedge. `PairSums`
takes them from the products ⟨P_u, P_v⟩, which do not depend on w, in two multiply-adds per pair of
samples, and r per pair once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfs import engine
from bigfs.graph.kernels import hyperedges as kernels
from bigfs.graph.members import Members
from bigfs.matrix.column_strips import ColumnStrips
from bigfs.types import FloatArray

EVALUATIONS = 5  # expected per step of w
PAIRS_SHARE = 0.2  # of the memory limit: what the products of pairs may take


class Sums(NamedTuple):
    """Sums over the hyperedges, and over those of a sample."""

    norm2: float  # ‖P‖²
    squares: FloatArray  # (e',) ‖r_e‖²
    g: FloatArray  # (n,)


class StripSums(NamedTuple):
    """P by strips of its columns."""

    members: Members
    P: ColumnStrips

    def at(self, root: FloatArray, weights: FloatArray) -> Sums:
        """Return the sums for D_v^-½ (n) and the weights w/δ of the distinct hyperedges (e')."""
        members, norm2 = self.members, 0.0
        squares, g = np.zeros(len(weights)), np.zeros(members.n)
        for _, strip in self.P:
            P = np.ascontiguousarray(strip)
            norm2 += float(np.vdot(P, P))
            kernels.add_strip_sums(members.starts, members.samples, root, weights, P, squares, g)
        return Sums(norm2, squares, g)


class PairSums(NamedTuple):
    """The products of P for each two samples of a hyperedge."""

    members: Members
    products: FloatArray  # ⟨P_u, P_v⟩ of the pairs of each distinct hyperedge
    norms2: FloatArray  # (n,) ‖P_v‖²

    @classmethod
    def of(cls, members: Members, P: ColumnStrips) -> PairSums:
        """Make the products. It takes each strip of P once."""
        products, norms2 = np.zeros(n_pairs(members)), np.zeros(members.n)
        for _, strip in P:
            rows = np.ascontiguousarray(strip)
            norms2 += np.einsum("vr,vr->v", rows, rows)
            kernels.add_pair_products(members.starts, members.samples, rows, products)
        return cls(members, products, norms2)

    def at(self, root: FloatArray, weights: FloatArray) -> Sums:
        """Return the sums for D_v^-½ (n) and the weights w/δ of the distinct hyperedges (e')."""
        members = self.members
        squares, g = kernels.pair_sums(
            members.starts, members.samples, root, weights, self.products, self.norms2
        )
        return Sums(float(self.norms2.sum()), squares, g)


def n_pairs(members: Members) -> int:
    """Return the number of pairs of samples of all distinct hyperedges."""
    sizes = members.sizes
    return int((sizes * (sizes - 1) // 2).sum())


def hyperedge_sums(members: Members, P: ColumnStrips) -> StripSums | PairSums:
    """Return the cheaper form for a step of w, if the products of pairs fit in memory.

    Each evaluation makes several strips again, which costs more than its multiply-adds.
    """
    pairs, r = n_pairs(members), P.slices[-1].stop
    by_strips = 2 * EVALUATIONS * len(members.samples) * r
    by_pairs = (2 * EVALUATIONS + r) * pairs
    if 8 * pairs <= PAIRS_SHARE * engine.memory_limit() and (by_pairs < by_strips or not P.whole):
        return PairSums.of(members, P)
    return StripSums(members, P)
