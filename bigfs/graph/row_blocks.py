"""Blocks of rows, cut from the tiles of a matrix and sized from the memory limit, and the order in
which all pairs of them are compared. Each block has one list of results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.graph.approximate.cost import GraphCost, predict
from bigfs.graph.kernels.exact import KernelBlock, kernel_block
from bigfs.settings import Setting
from bigfs.types import AnyArray
from bigfs.validation import canonical

if TYPE_CHECKING:
    from bigfs.matrix import Matrix

# Blocks start at multiples of this, so that each chunk of a stored graph has one writer.
ROW_ALIGNMENT = Setting(4096)
ALIGNED_BYTES = 16 << 20  # where that many rows take more than this, the multiple is halved
# Blocks per worker, if memory allows as few. Half as many pairs are compared at a time.
BLOCKS_PER_WORKER = 4
ROUNDS_AHEAD = 2  # of pairs that are under way while the next one is submitted
# Values of an average block, and bytes of each in the cost of a row. A block of long rows may have
# twice as many, and the kernels number them with 32 bits.
MOST_VALUES, VALUE_BYTES = 1 << 30, 8
MAX_INT32 = np.iinfo(np.int32).max
GRAM_BYTES = 32  # per pair of a sample's candidates: their Gram matrix and what a lasso makes of it


@dataclass(frozen=True)
class RowBlock:
    """The rows [start, stop) of a matrix, as `parts` (tile, first, last) in rows of each tile."""

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
    blocks = []
    for start, stop in pairwise([*range(0, X.shape[0], size), X.shape[0]]):
        first, last = np.searchsorted(bounds, [start, stop - 1], side="right") - 1
        parts = tuple(
            (t, max(start - t.start, 0), min(stop, t.stop) - t.start)
            for t in X.row_tiles[first : last + 1]
        )
        blocks.append(RowBlock(start, stop, parts))
    return blocks


def row_alignment(cost: GraphCost) -> int:
    """Return the number of rows whose multiples blocks start at. It depends on the data alone."""
    rows = ROW_ALIGNMENT.value
    while rows > 1 and rows * cost.row_bytes > ALIGNED_BYTES:
        rows //= 2
    return rows


def block_size(n: int, list_bytes: int, cost: GraphCost) -> int:
    """Return the number of rows per block."""
    row_bytes, aligned = cost.row_bytes + list_bytes, row_alignment(cost)
    least = min(aligned, n)
    engine.require_memory(
        int(least * row_bytes / engine.SHARES.value.row_block + cost.column_bytes),
        f"neighbors of {least} rows at a time",
    )
    memory = engine.SHARES.value.row_block * engine.memory_limit() / row_bytes
    fitting = int(min(memory, MOST_VALUES * VALUE_BYTES / cost.row_bytes, n))
    n_workers = engine.n_workers()
    # rounded up, because the pairs are as the square of the blocks
    shared = n if n_workers == 1 else -(-n // (BLOCKS_PER_WORKER * n_workers * aligned)) * aligned
    return min(max(fitting // aligned, 1) * aligned, shared)


def require_whole(X: Matrix, what: str) -> None:
    """Raise `MemoryLimitError` where a task that needs many rows waits for all of X, too large."""
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
        int(min(one, n * cost.row_bytes) / engine.SHARES.value.discriminant_block)
        + GRAM_BYTES * k * k,
        f"one sample with {k} neighbors",
    )
    rows = max(int(engine.SHARES.value.discriminant_block * engine.memory_limit() / one), 1)
    rows = min(rows, -(-n // (4 * engine.n_workers())))
    return row_blocks(X, rows), row_blocks(X, block_size(n, 0, cost))


def gather_rows(blocks: list[RowBlock], needed: AnyArray) -> sp.csr_array:
    """Gather the rows of increasing numbers, in float64."""
    parts = []
    for block in blocks:
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
    """Raise `ValueError` where 32 bits do not number the values of a block."""
    if nnz > MAX_INT32:
        raise ValueError(
            f"a block of rows may hold {MAX_INT32:,} values; got {nnz:,}: give a lower memory limit"
        )


def stack_rows(parts: list[sp.csr_array]) -> sp.csr_array:
    """Stack csr arrays, whose numbers stay of 32 bits."""
    require_int32(sum(part.nnz for part in parts))
    return sp.csr_array(sp.vstack(parts, format="csr"))


# --- all pairs of blocks --------------------------------------------------------------------------


class Step(NamedTuple):
    """A function of a block, or of a pair of blocks, and of their lists, with its operands."""

    fn: Callable[..., Any]
    operands: tuple[Any, ...]

    def shared(self) -> list[Any]:
        """Return the operands, of which the large ones travel once and not with every round."""
        return [
            engine.Shared(o) if isinstance(o, np.ndarray | list) or sp.issparse(o) else o
            for o in self.operands
        ]


def compare_pairs(
    X: Matrix, blocks: Sequence[Any], within: Step, compare: Step, finish: Step, label: str
) -> list[Any]:
    """Make the list of each block, compare all pairs of blocks, and finish the lists.

    The steps are called as ``within(block, *operands)``, ``compare((a, b), list_a, list_b,
    *operands)`` and ``finish(block, list, *operands)``. Few rounds of pairs are under way at a
    time, so neither this process nor the scheduler has more than their tasks. Return what `finish`
    returned for each block.
    """
    b, runs, done = len(blocks), engine.current_executor(X.local), 0
    started = deque[Sequence[Any]]()  # handles of the rounds that are under way

    def wait(n_left: int) -> None:
        nonlocal done
        while len(started) > n_left:
            handles = started.popleft()
            runs.wait(handles)
            done += len(handles)
            engine.show_progress(label, done, b * (b + 3) // 2)

    with engine.held_inputs(blocks, local=X.local):
        started.append(runs.submit(within.fn, blocks, within.shared(), ()))
        # the handle that has the list of each block, and which of a pair's lists it is
        lists: list[tuple[Any, int | None]] = [(handle, None) for handle in started[0]]
        of_pair, operands = OfLists(compare.fn, 2), compare.shared()
        for pairs in round_robin(b):
            sides = [[lists[pair[side]] for pair in pairs] for side in (0, 1)]
            each = [[part[i] for part in side] for side in sides for i in (0, 1)]
            tiles = [(blocks[i], blocks[j]) for i, j in pairs]
            both = runs.submit(of_pair, tiles, operands, each)
            for (i, j), handle in zip(pairs, both, strict=True):
                if isinstance(handle, tuple):  # the lists themselves
                    lists[i], lists[j] = (handle[0], None), (handle[1], None)
                else:
                    lists[i], lists[j] = (handle, 0), (handle, 1)
            started.append(both)
            wait(ROUNDS_AHEAD)
        each = [[part[i] for part in lists] for i in (0, 1)]
        finished = runs.submit(OfLists(finish.fn, 1), blocks, finish.shared(), each)
        wait(0)
        results = runs.gather(finished)
    engine.show_progress(label, b * (b + 3) // 2, b * (b + 3) // 2)
    X.passes += b  # each of b blocks is loaded for b comparisons
    return results


class OfLists:
    """Turn a function of a block, or of a pair, and of its lists into one of what other tasks
    returned: for each list, itself and None, or both of a pair and the side."""

    def __init__(self, fn: Callable[..., Any], n_lists: int) -> None:
        self.fn, self.__name__, self.stop = fn, fn.__name__, 2 * n_lists

    def __call__(self, tile: Any, *returned: Any) -> Any:
        parts = zip(returned[: self.stop : 2], returned[1 : self.stop : 2], strict=True)
        lists = [whole if side is None else whole[side] for whole, side in parts]
        return self.fn(tile, *lists, *returned[self.stop :])


def round_robin(b: int) -> list[list[tuple[int, int]]]:
    """Return the b(b−1)/2 pairs i < j in rounds, in each of which every number is once at most."""
    ring = list(range(b + b % 2))
    half = len(ring) // 2
    rounds = []
    for _ in range(len(ring) - 1):
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        rounds.append([(min(pair), max(pair)) for pair in pairs if max(pair) < b])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds
