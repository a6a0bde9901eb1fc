"""Blocks of rows: cut anew from a matrix's tiles, sized from the memory limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import blocks
from bigfs.graph.cost import Cost
from bigfs.matrix import Matrix

GRAIN = 4096  # blocks start at multiples of it, so that a chunk of a stored graph has one writer
SHARE = 0.03  # of a process's memory for one block: two of them, their lists and what merges
ALONE = 0.08  # of it for one that all others pass by: the fewer of them, the fewer times the corpus is read
PAIRS_PER_WORKER, ROWS_PER_WORKER = 16, 8  # tasks, at least, so that the last to end leave little idle


@dataclass(frozen=True)
class Rows:
    """Rows [start, stop), cut from the tiles that hold them: (tile, first, last) in the tile's own rows."""

    start: int
    stop: int
    parts: tuple[tuple[Any, int, int], ...]

    def load(self) -> sp.csr_array:
        """Canonical csr in float32 or float64, with 32-bit column numbers."""
        loaded = [canonical(blocks.load(tile)[low:high]) for tile, low, high in self.parts]
        return loaded[0] if len(loaded) == 1 else sp.csr_array(sp.vstack(loaded, format="csr"))


@dataclass(frozen=True)
class Pair:
    """Two blocks of rows, or the same one twice."""

    a: Rows
    b: Rows


def cut(X: Matrix, size: int) -> list[Rows]:
    """X's rows in blocks of `size`."""
    if not X.row_tiles:
        raise ValueError("neighbours need rows and the matrix has only the layout by columns; stage it with the layout by rows")
    bounds = [t.start for t in X.row_tiles] + [X.shape[0]]
    made = []
    for start in range(0, X.shape[0], size):
        stop = min(start + size, X.shape[0])
        first, last = np.searchsorted(bounds, [start, stop - 1], side="right") - 1
        inside = X.row_tiles[first : last + 1]
        made.append(Rows(start, stop, tuple((t, max(start - t.start, 0), min(stop, t.stop) - t.start) for t in inside)))
    return made


def of_pairs(n: int, k: int, cost: Cost) -> int:
    """Rows of a block, where every pair of blocks is a task; b blocks make b²/2 of them."""
    return _fitting(n, k, cost, SHARE, np.sqrt(2 * PAIRS_PER_WORKER * blocks.n_workers()))


def of_one(n: int, k: int, cost: Cost) -> int:
    """Rows of a block that is a task by itself and meets all the others in turn."""
    return _fitting(n, k, cost, ALONE, ROWS_PER_WORKER * blocks.n_workers())


def _fitting(n: int, k: int, cost: Cost, share: float, wanted: float) -> int:
    """Rows for `wanted` blocks, or more where these do not fit in the share of a process's memory."""
    row = cost.row_bytes + 24 * k
    blocks.require_memory(int(GRAIN * row / share), f"neighbours of {GRAIN} rows at a time")
    most = n if blocks.client() is None else n / wanted
    return max(int(min(share * blocks.memory_limit() / row, most)) // GRAIN, 1) * GRAIN


def canonical(block: Any) -> sp.csr_array:
    block = sp.csr_array(block)
    if block.dtype not in (np.float32, np.float64):
        block = block.astype(np.float64)
    if not block.has_canonical_format:
        block = block.copy()
        block.sum_duplicates()
    return sp.csr_array((block.data, block.indices.astype(np.int32, copy=False), block.indptr.astype(np.int64, copy=False)), block.shape)
