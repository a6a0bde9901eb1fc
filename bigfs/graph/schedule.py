"""The order in which all pairs of row blocks are compared. Each block has one list of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bigfs import engine
from bigfs.graph.row_blocks import RowBlock
from bigfs.matrix import Matrix


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
