"""The k nearest rows of each class, for every labeled row.

The rows are taken class by class and cut into blocks, in which each class has a part. All pairs of
blocks are compared, as for one graph (`bigfs.graph.neighbors`), but a row has a list for each
class, and a pair of parts serves the list of the other's class only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigfs import engine
from bigfs.graph.approximate.cost import predict
from bigfs.graph.kernels import exact
from bigfs.graph.kernels.exact import KernelBlock, NeighborLists
from bigfs.graph.row_blocks import RowBlock, Step, block_size, compare_pairs, row_blocks
from bigfs.matrix import Matrix
from bigfs.types import IntArray


@dataclass(frozen=True)
class OfClass(RowBlock):
    """A block of rows of one class. The rows are counted class by class."""

    code: int


@dataclass(frozen=True)
class ClassBlock:
    """The rows [start, stop) of one task, in a part for each class that they have."""

    start: int
    stop: int
    parts: tuple[OfClass, ...]

    def load(self) -> list[tuple[int, KernelBlock]]:
        """Load the parts as the kernels take them, each with its class."""
        return [(part.code, part.load_kernel()) for part in self.parts]


Lists = list[list[NeighborLists]]  # of each part of a block, for each class


def neighbors_by_class(X: Matrix, codes: IntArray, k: int, metric: str) -> IntArray:
    """Find the k nearest rows of each class, for every labeled row."""
    n, c = X.shape[0], int(codes.max()) + 1
    engine.require_memory(
        n * c * k * 40, f"a graph of {n} × {k} neighbors in each of {c} classes in memory"
    )
    order = np.argsort(codes, kind="stable")[np.count_nonzero(codes < 0) :]  # class by class
    size = block_size(n, 24 * k * c, predict(X.shape[0], X.stats.nnz))
    parts: list[OfClass] = []
    for code in range(c):
        members = X.take_rows(codes == code)
        first = int(np.searchsorted(codes[order], code))
        parts += [
            OfClass(block.start + first, block.stop + first, block.parts, code)
            for block in row_blocks(members, size)
        ]
    operands = k, metric == "cosine"
    found = np.concatenate(  # in the order of `order`
        compare_pairs(
            *(X, _class_blocks(parts, size), Step(_within_block, (*operands, c))),
            *(Step(_compare, operands), Step(_finish, ()), "neighbors"),
        )
    )
    index = np.full((n, c, k), -1, dtype=np.int64)
    index[order] = np.where(found >= 0, order[found], -1)
    return index


def _class_blocks(parts: list[OfClass], size: int) -> list[ClassBlock]:
    """Put consecutive parts together into blocks of at most `size` rows."""
    blocks, held = list[ClassBlock](), list[OfClass]()
    for part in parts:
        if held and part.stop - held[0].start > size:
            blocks.append(ClassBlock(held[0].start, held[-1].stop, tuple(held)))
            held = []
        held.append(part)
    return [*blocks, ClassBlock(held[0].start, held[-1].stop, tuple(held))]


def _within_block(block: ClassBlock, k: int, cosine: bool, c: int) -> Lists:
    loaded = block.load()
    lists = [
        [exact.empty_lists(part.stop - part.start, k) for _ in range(c)] for part in block.parts
    ]
    for i, (code, A) in enumerate(loaded):
        lists[i][code] = exact.within_block(A, k, cosine)
        for j, (other, B) in enumerate(loaded[:i]):
            lists[j][code], lists[i][other] = exact.between_blocks(
                B, A, lists[j][code], lists[i][other], cosine
            )
    return lists


def _compare(
    pair: tuple[ClassBlock, ClassBlock], lists_a: Lists, lists_b: Lists, _: int, cosine: bool
) -> tuple[Lists, Lists]:
    a, b = (block.load() for block in pair)
    changed_a, changed_b = [list(of) for of in lists_a], [list(of) for of in lists_b]
    for of_a, (code_a, A) in zip(changed_a, a, strict=True):
        for of_b, (code_b, B) in zip(changed_b, b, strict=True):
            of_a[code_b], of_b[code_a] = exact.between_blocks(
                A, B, of_a[code_b], of_b[code_a], cosine
            )
    return changed_a, changed_b


def _finish(block: ClassBlock, lists: Lists) -> IntArray:
    """Return the row numbers (rows × c × k), and −1 for a missing one."""
    found = np.concatenate(
        [np.stack([part.neighbor for part in of_part], axis=1) for of_part in lists]
    ).astype(np.int64)
    return np.where(found == exact.NO_NEIGHBOR, -1, found)
