"""The products of a function of the samples P (n × r), as the smoothness over a hypergraph uses it.

With a_v = d_v^-½ it needs, at each w, the sums over the samples of the hyperedges

    ‖r_e‖² = Σ_{u, v ∈ e} a_u a_v ⟨P_u, P_v⟩
    g_v = a_v Σ_{e ∋ v} (w_e/δ_e) Σ_{u ∈ e} a_u ⟨P_u, P_v⟩

`StripSums` takes them from the rows of P, in 2r multiply-adds per sample of a hyperedge. `PairSums`
takes them from the products ⟨P_u, P_v⟩, which do not depend on w, in two multiply-adds per pair of
samples, and r per pair once.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import NamedTuple, Self

import numpy as np

from bigfs import engine
from bigfs.engine import ScratchFile
from bigfs.graph.hypergraph.hypergraph import Hypergraph
from bigfs.graph.hypergraph.members import Members
from bigfs.graph.kernels import hyperedges as kernels
from bigfs.matrix.panels import ColumnStrips
from bigfs.types import FloatArray, IntArray

EVALUATIONS = 5  # expected per step of w


class Sums(NamedTuple):
    """Sums over the hyperedges, and over those of a sample."""

    norm2: float  # ‖P‖²
    squares: FloatArray  # (e',) ‖r_e‖²
    g: FloatArray  # (n,)


class StripSums:
    """P by strips of its columns."""

    def __init__(self, hypergraph: Hypergraph, P: ColumnStrips) -> None:
        self.hypergraph, self.P = hypergraph, P

    def __enter__(self) -> Self:
        """Return the sums."""
        return self

    def __exit__(self, *error: object) -> None:
        """End their use. The strips belong to the caller."""

    def at(self, root: FloatArray, weights: FloatArray) -> Sums:
        """Return the sums for D_v^-½ (n) and the weights w/δ of the distinct hyperedges (e')."""
        norm2, squares, g = 0.0, np.zeros(len(weights)), np.zeros(len(root))
        ones = np.ones(len(weights))
        for _, strip in self.P:
            P = np.ascontiguousarray(strip)
            norm2 += float(np.vdot(P, P))
            R = self.hypergraph.edge_rows(root, ones, P)
            squares += np.einsum("er,er->e", R, R)
            R *= weights[:, None]
            g += self.hypergraph.edge_row_products(root, R, P)
        return Sums(norm2, squares, g)


class PairSums:
    """The products of P for each two samples of a hyperedge."""

    def __init__(self, members: Members, P: ColumnStrips) -> None:
        self.members = members
        # where the pairs of each distinct hyperedge begin
        self.firsts: IntArray = np.concatenate([[0], np.cumsum(pair_counts(members))])
        self.parts = _parts(self.firsts)  # of the hyperedges
        self.file: ScratchFile | None = None
        if len(self.parts) > 1:
            self.file = ScratchFile.new()
        self.products = np.empty(0)  # of one part: ⟨P_u, P_v⟩ of the pairs of each hyperedge
        self.norms2 = np.zeros(members.n)  # ‖P_v‖²
        with ExitStack() as until_filled:  # a file that cannot be written is deleted
            until_filled.enter_context(self)
            for part in self.parts:
                self._multiply(part, P)
            until_filled.pop_all()

    def __enter__(self) -> Self:
        """Return the sums. Their file is deleted when the block ends."""
        return self

    def __exit__(self, *error: object) -> None:
        if self.file is not None:
            self.file.remove()

    def at(self, root: FloatArray, weights: FloatArray) -> Sums:
        """Return the sums for D_v^-½ (n) and the weights w/δ of the distinct hyperedges (e')."""
        members, squares = self.members, np.empty(len(weights))
        of_sample = np.column_stack([root, root * self.norms2, np.zeros(members.n)])
        for part in self.parts:
            starts = members.starts[part.start : part.stop + 1]
            kernels.add_pair_sums(
                *(starts, members.samples, weights[part], self._products(part)),
                squares[part],
                of_sample,
            )
        if self.file is not None:
            engine.trim_memory()  # what a step of w has left
        return Sums(float(self.norms2.sum()), squares, of_sample[:, 2].copy())

    def _multiply(self, part: slice, P: ColumnStrips) -> None:
        """Make the products of some hyperedges, and ‖P_v‖² beside the first of them."""
        starts = self.members.starts[part.start : part.stop + 1]
        firsts = self.firsts[part.start : part.stop + 1] - self.firsts[part.start]
        products = np.zeros(firsts[-1])
        for _, strip in P:
            rows = np.ascontiguousarray(strip)
            if part.start == 0:
                self.norms2 += np.einsum("vr,vr->v", rows, rows)
            kernels.add_pair_products(starts, self.members.samples, rows, products)
        if self.file is None:
            self.products = products
        else:
            self.file.write(int(self.firsts[part.start]), products)

    def _products(self, part: slice) -> FloatArray:
        if self.file is None:
            return self.products
        first, last = self.firsts[part.start], self.firsts[part.stop]
        return self.file.read(int(first), (int(last - first),))


def pair_counts(members: Members) -> IntArray:
    """Return the number of pairs of samples of each distinct hyperedge (e')."""
    sizes = members.sizes
    return sizes * (sizes - 1) // 2


def _parts(firsts: IntArray) -> list[slice]:
    """Cut the hyperedges into parts whose pairs fit in memory, or that have one hyperedge."""
    most = engine.SHARES.pair_products * engine.planned_memory() / 8
    parts, start = [], 0
    while start < len(firsts) - 1:
        stop = int(np.searchsorted(firsts, firsts[start] + most, side="right")) - 1
        parts.append(slice(start, max(stop, start + 1)))
        start = parts[-1].stop
    return parts


def hyperedge_sums(hypergraph: Hypergraph, P: ColumnStrips) -> StripSums | PairSums:
    """Return the cheaper form for several steps of w."""
    members, r = hypergraph.members, P.shape[1]
    pairs = int(pair_counts(members).sum())
    by_strips = 2 * EVALUATIONS * len(members.samples) * r
    by_pairs = (2 * EVALUATIONS + r) * pairs
    return PairSums(members, P) if by_pairs < by_strips else StripSums(hypergraph, P)
