"""Blocks of rows, cut from the tiles of a matrix and sized from the memory limit, and the order in
which all pairs of them are compared. Each block has one list of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.graph.approximate.cost import GraphCost, predict
from bigfs.graph.kernels.exact import KernelBlock, kernel_block
from bigfs.types import AnyArray
from bigfs.validation import canonical

if TYPE_CHECKING:
    from bigfs.matrix import Matrix

# Blocks start at multiples of this, so that each chunk of a stored graph has one writer.
ROW_ALIGNMENT = 4096
ALIGNED_BYTES = 16 << 20  # where that many rows take more than this, the multiple is halved
# Minimum number of blocks per worker. Half as many pairs of blocks are compared at a time.
BLOCKS_PER_WORKER = 4
# Values of an average block, and bytes of each in the cost of a row. A block of long rows may have
# twice as many, and the kernels number them with 32 bits.
MOST_VALUES, VALUE_BYTES = 1 << 30, 8
MAX_INT32 = np.iinfo(np.int32).max
GRAM_BYTES = 32  # per pair of a sample's candidates: their Gram matrix and what a lasso makes of it


@dataclass(frozen=True)
class RowBlock:
    """The rows [start, stop) of a matrix. `parts` holds (tile, first, last) for each tile with some
    of them, in rows of the tile."""

    start: int
    stop: int
    parts: tuple[tuple[Any, int, int], ...]

    def load(self) -> sp.csr_array:
        """Load the rows as a canonical csr array of float32 or float64 with 32-bit indices."""
        loaded = [rows for _, rows in self.pieces()]
        return loaded[0] if len(loaded) == 1 else stack_rows(loaded)

    def load_kernel(self) -> KernelBlock:
        """Load the rows as the exact kernels take them."""
        return kernel_block(self.load(), self.start)

    def pieces(self, cache: bool = True) -> Iterator[tuple[int, sp.csr_array]]:
        """Yield the number of the first row and the rows of each tile's part."""
        start = self.start
        for tile, first, last in self.parts:
            yield start, as_kernel_csr(_load(tile, first, last, cache))
            start += last - first


def row_blocks(X: Matrix, size: int) -> list[RowBlock]:
    """Cut the rows of X into blocks of `size` rows."""
    if not X.row_tiles:
        raise ValueError(
            "neighbors need rows, but the matrix has only the layout by columns: "
            "stage it with the layout by rows, or give a Dask array in chunks of rows"
        )
    bounds = [t.start for t in X.row_tiles] + [X.shape[0]]
    cuts = {*range(0, X.shape[0], size), X.shape[0]}
    if engine.lazy_inputs(X.row_tiles):
        cuts |= set(bounds)
    blocks = []
    for start, stop in pairwise(sorted(cuts)):
        first, last = np.searchsorted(bounds, [start, stop - 1], side="right") - 1
        parts = tuple(
            (t, max(start - t.start, 0), min(stop, t.stop) - t.start)
            for t in X.row_tiles[first : last + 1]
        )
        blocks.append(RowBlock(start, stop, parts))
    return blocks


def row_alignment(cost: GraphCost) -> int:
    """Return the number of rows whose multiples blocks start at. It depends on the data alone."""
    rows = ROW_ALIGNMENT
    while rows > 1 and rows * cost.row_bytes > ALIGNED_BYTES:
        rows //= 2
    return rows


def block_size(n: int, list_bytes: int, cost: GraphCost) -> int:
    """Return the number of rows per block."""
    row_bytes, aligned = cost.row_bytes + list_bytes, row_alignment(cost)
    least = min(aligned, n)
    engine.require_memory(
        int(least * row_bytes / engine.SHARES.row_block + cost.column_bytes),
        f"neighbors of {least} rows at a time",
    )
    most = n if engine.client() is None else n / (BLOCKS_PER_WORKER * engine.n_workers())
    most = min(most, MOST_VALUES * VALUE_BYTES / cost.row_bytes)
    rows = int(min(engine.SHARES.row_block * engine.memory_limit() / row_bytes, most))
    return max(rows // aligned, 1) * aligned


def require_whole(X: Matrix, what: str) -> None:
    """Raise `NotEnoughMemory` where a task that needs many rows waits for all of X, too large."""
    if engine.lazy_inputs(X.row_tiles):
        (n, d), is_sparse = X.shape, sp.issparse(X.meta)
        engine.require_memory(
            12 * X.nnz if is_sparse else X.meta.itemsize * n * d,
            f"{what} of a Dask array whose blocks a cluster holds or that depend on each other "
            f"(stage it first, and a task reads a tile at a time)",
        )


def neighborhood_blocks(X: Matrix, k: int) -> tuple[list[RowBlock], list[RowBlock]]:
    """Return a block of samples per task, and all rows in blocks, which hold their neighbors."""
    n = X.shape[0]
    cost = predict(n, X.stats.nnz)
    require_whole(X, "the neighborhoods")
    one = (k + 1) * cost.row_bytes  # bytes of one sample with its candidates
    engine.require_memory(
        int(min(one, n * cost.row_bytes) / engine.SHARES.discriminant_block) + GRAM_BYTES * k * k,
        f"one sample with {k} neighbors",
    )
    rows = max(int(engine.SHARES.discriminant_block * engine.memory_limit() / one), 1)
    rows = min(rows, -(-n // (4 * engine.n_workers())))
    return row_blocks(X, rows), row_blocks(X, block_size(n, 0, cost))


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


def _load(tile: Any, low: int, high: int, cache: bool) -> Any:
    if not hasattr(tile, "cut"):
        return engine.load(tile)[low:high]
    part = tile.cut(low, high)
    return engine.load(part) if cache else part.load()


def as_kernel_csr(block: Any) -> sp.csr_array:
    """Return rows as a canonical csr array of float32 or float64 with 32-bit indices."""
    block = canonical(sp.csr_array(block))
    if block.dtype not in (np.float32, np.float64):
        block = block.astype(np.float64)
    if block.indices.dtype == block.indptr.dtype == np.int32:
        return block
    require_int32(block.nnz)
    return sp.csr_array(
        (block.data, block.indices.astype(np.int32), block.indptr.astype(np.int32)), block.shape
    )


def require_int32(nnz: int) -> None:
    """Raise `ValueError` where 32 bits do not number so many values of a block."""
    if nnz > MAX_INT32:
        raise ValueError(
            f"a block of rows may hold {MAX_INT32:,} values; got {nnz:,}: give a lower memory limit"
        )


def stack_rows(parts: list[sp.csr_array]) -> sp.csr_array:
    """Stack csr arrays as `scipy.sparse.vstack` does, but with 32-bit indices."""
    require_int32(sum(part.nnz for part in parts))
    starts = np.cumsum([0, *(part.nnz for part in parts)], dtype=np.int32)
    indptr = np.concatenate(
        [
            starts[:1],
            *(part.indptr[1:] + start for part, start in zip(parts, starts[:-1], strict=True)),
        ]
    )
    data = np.concatenate([part.data for part in parts])
    indices = np.concatenate([part.indices for part in parts])
    return sp.csr_array((data, indices, indptr), (len(indptr) - 1, parts[0].shape[1]))


# --- all pairs of blocks --------------------------------------------------------------------------


def all_pairs(
    X: Matrix,
    blocks: Sequence[RowBlock],
    lists: list[Any],
    compare: Callable[..., Any],
    *operands: Any,
) -> tuple[list[Any], list[Any]]:
    """Return the tasks that compare all pairs of blocks, without running them."""
    lists, tasks = list(lists), list(lists)
    for pairs in round_robin(len(blocks)):
        block_pairs = [(blocks[i], blocks[j]) for i, j in pairs]
        list_pairs = [[lists[i] for i, _ in pairs], [lists[j] for _, j in pairs]]
        compared: list[Any] = engine.lazy_tiles(
            compare, block_pairs, *operands, each=list_pairs, local=X.local
        )
        tasks += compared
        for (i, j), both in zip(pairs, compared, strict=True):
            lists[i], lists[j] = both[0], both[1]
    X.passes += len(blocks)  # each of b blocks is loaded for b comparisons
    return lists, tasks


def round_robin(b: int) -> list[list[tuple[int, int]]]:
    """Return the b(b−1)/2 pairs i < j in rounds, as a round-robin tournament does. In each round
    every number is in one pair. If b is odd, one number is in none."""
    ring = list(range(b + b % 2))
    half = len(ring) // 2
    rounds = []
    for _ in range(len(ring) - 1):
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        rounds.append([(min(pair), max(pair)) for pair in pairs if max(pair) < b])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds
