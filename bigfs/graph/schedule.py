"""Blocks of rows that all meet each other, a pair at a time, each with one list that is handed
on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bigfs import engine
from bigfs.graph.row_blocks import Rows
from bigfs.matrix import Matrix


def tournament(
    X: Matrix, rows: list[Rows], lists: list[Any], meet: Callable[..., Any], *operands: Any
) -> tuple[list[Any], list[Any]]:
    """(the blocks' lists when each has met all others, and every task on the way), not run.

    `lists`: what each block starts with, lazy; two meet by ``meet(pair, of_a, of_b, *operands)``,
    which returns both lists. Operands travel once a round, unless they are `engine.shared_operand`.
    """
    lists, steps = list(lists), list(lists)
    for meetings in rounds(len(rows)):
        pairs = [(rows[i], rows[j]) for i, j in meetings]
        known = [[lists[i] for i, _ in meetings], [lists[j] for _, j in meetings]]
        met: list[Any] = engine.lazy_tiles(meet, pairs, *operands, each=known, local=X.local)
        steps += met
        for (i, j), both in zip(meetings, met, strict=True):
            lists[i], lists[j] = both[0], both[1]
    X.passes += len(rows)  # b blocks, each loaded for b meetings
    return lists, steps


def rounds(b: int) -> list[list[tuple[int, int]]]:
    """The b(b−1)/2 pairs i < j in rounds, in each of which everyone meets one other (with b odd,
    one rests).
    """
    ring = list(range(b + b % 2))
    half, made = len(ring) // 2, []
    for _ in range(len(ring) - 1):
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        made.append([(min(pair), max(pair)) for pair in pairs if max(pair) < b])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return made
