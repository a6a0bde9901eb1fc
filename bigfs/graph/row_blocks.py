"""Blocks of rows: cut anew from a matrix's tiles, sized from the memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.graph.cost import Cost
from bigfs.matrix import Matrix
from bigfs.validation import canonical

GRAIN = 4096  # blocks start at multiples of it, so that a chunk of a stored graph has one writer
SHARE = 0.04  # of a process's memory for one block with its lists: a task has two, and their copies
BLOCKS_PER_WORKER = 4  # at least: half as many pairs of blocks are worked on at a time


@dataclass(frozen=True)
class Rows:
    """Rows [start, stop), cut from the tiles that hold them: (tile, first, last) in the tile's own
    rows.
    """

    start: int
    stop: int
    parts: tuple[tuple[Any, int, int], ...]

    def load(self) -> sp.csr_array:
        """Canonical csr in float32 or float64, with 32-bit column numbers."""
        loaded = [rows for _, rows in self.pieces()]
        return loaded[0] if len(loaded) == 1 else stacked(loaded)

    def pieces(self, keep: bool = True) -> Iterator[tuple[int, sp.csr_array]]:
        """(number of the first row, rows) of each tile's share, for what need not have all of them
        at once.

        `keep`: in this process, while there is room (`engine.load`); for what is read again.
        """
        start = self.start
        for tile, first, last in self.parts:
            yield start, narrow(_load(tile, first, last, keep))
            start += last - first


def cut(X: Matrix, size: int) -> list[Rows]:
    """X's rows in blocks of `size`."""
    if not X.row_tiles:
        raise ValueError(
            "neighbours need rows, but the matrix has only the layout by columns: "
            "stage it with the layout by rows"
        )
    bounds = [t.start for t in X.row_tiles] + [X.shape[0]]
    made = []
    for start in range(0, X.shape[0], size):
        stop = min(start + size, X.shape[0])
        first, last = np.searchsorted(bounds, [start, stop - 1], side="right") - 1
        inside = X.row_tiles[first : last + 1]
        made.append(
            Rows(
                start,
                stop,
                tuple((t, max(start - t.start, 0), min(stop, t.stop) - t.start) for t in inside),
            )
        )
    return made


def block_size(n: int, listed: int, cost: Cost) -> int:
    """Rows of a block: so many that a pair of them, with lists of `listed` bytes a row, fits in
    memory, and that all workers have some.
    """
    row = cost.row_bytes + listed
    engine.require_memory(int(GRAIN * row / SHARE), f"neighbours of {GRAIN} rows at a time")
    most = n if engine.client() is None else n / (BLOCKS_PER_WORKER * engine.n_workers())
    return max(int(min(SHARE * engine.memory_limit() / row, most)) // GRAIN, 1) * GRAIN


def _load(tile: Any, low: int, high: int, keep: bool) -> Any:
    if not hasattr(tile, "cut"):
        return engine.load(tile)[low:high]
    part = tile.cut(low, high)
    return engine.load(part) if keep else part.load()


def narrow(block: Any) -> sp.csr_array:
    """Canonical csr with 32-bit indices, as the kernels take it."""
    block = canonical(sp.csr_array(block))
    if block.dtype not in (np.float32, np.float64):
        block = block.astype(np.float64)
    if block.indices.dtype == block.indptr.dtype == np.int32:
        return block
    return sp.csr_array(
        (block.data, block.indices.astype(np.int32), block.indptr.astype(np.int32)), block.shape
    )


def stacked(parts: list[sp.csr_array]) -> sp.csr_array:
    """As scipy's vstack, which would make the numbers 64 bits wide."""
    starts = np.cumsum([0, *(part.nnz for part in parts)], dtype=np.int32)
    indptr = np.concatenate(
        [
            starts[:1],
            *(part.indptr[1:] + start for part, start in zip(parts, starts[:-1], strict=True)),
        ]
    )
    data, indices = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("data", "indices")
    )
    return sp.csr_array((data, indices, indptr), (len(indptr) - 1, parts[0].shape[1]))
