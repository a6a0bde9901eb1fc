"""The k nearest rows of each class, for every labeled row.

The rows are taken class by class and cut into blocks. All pairs of blocks are compared, as for one
graph (`bigfs.graph.neighbors`), but a row has a list for each class, and a pair of blocks serves
the list of the other's class only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigfs import engine
from bigfs.graph.approximate.cost import predict
from bigfs.graph.kernels import exact
from bigfs.graph.kernels.exact import NeighborLists
from bigfs.graph.row_blocks import RowBlock, all_pairs, block_size, row_blocks
from bigfs.matrix import Matrix
from bigfs.types import IntArray


@dataclass(frozen=True)
class ClassBlock(RowBlock):
    """A block of rows of one class. The rows are counted class by class."""

    code: int


def neighbors_by_class(X: Matrix, codes: IntArray, k: int, metric: str) -> IntArray:
    """Find the k nearest rows of each class, for every labeled row."""
    n, c = X.shape[0], int(codes.max()) + 1
    engine.require_memory(
        n * c * k * 40, f"a graph of {n} × {k} neighbors in each of {c} classes in memory"
    )
    order = np.argsort(codes, kind="stable")[np.count_nonzero(codes < 0) :]  # class by class
    size = block_size(n, 24 * k * c, predict(X.shape[0], X.stats.nnz))
    blocks: list[ClassBlock] = []
    for code in range(c):
        members = X.take_rows(codes == code)
        first = int(np.searchsorted(codes[order], code))
        blocks += [
            ClassBlock(block.start + first, block.stop + first, block.parts, code)
            for block in row_blocks(members, size)
        ]
    operands = k, metric == "cosine"
    start = engine.lazy_tiles(_within_block, blocks, *operands, c, local=X.local)
    lists, tasks = all_pairs(X, blocks, start, _compare, *operands)
    parts = engine.map_tiles(
        _finish, blocks, each=[lists], local=X.local, label="neighbors", progress_tasks=tasks
    )
    found = np.concatenate(parts)  # in the order of `order`
    index = np.full((n, c, k), -1, dtype=np.int64)
    index[order] = np.where(found >= 0, order[found], -1)
    return index


def _within_block(block: ClassBlock, k: int, cosine: bool, c: int) -> list[NeighborLists]:
    lists = [exact.empty_lists(block.stop - block.start, k) for _ in range(c)]
    lists[block.code] = exact.within_block(block.load_kernel(), k, cosine)
    return lists


def _compare(
    pair: tuple[ClassBlock, ClassBlock],
    lists_a: list[NeighborLists],
    lists_b: list[NeighborLists],
    _: int,
    cosine: bool,
) -> tuple[list[NeighborLists], list[NeighborLists]]:
    a, b = pair
    of_a, of_b = exact.between_blocks(
        a.load_kernel(), b.load_kernel(), lists_a[b.code], lists_b[a.code], cosine
    )
    changed_a, changed_b = list(lists_a), list(lists_b)
    changed_a[b.code], changed_b[a.code] = of_a, of_b
    return changed_a, changed_b


def _finish(block: ClassBlock, lists: list[NeighborLists]) -> IntArray:
    """Return the row numbers (rows × c × k), and −1 for a missing one."""
    found = np.stack([part.neighbor for part in lists], axis=1).astype(np.int64)
    return np.where(found == exact.NO_NEIGHBOR, -1, found)
