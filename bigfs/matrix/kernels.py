"""Products of a block of rows with few dense columns, by strips of rows that stay in the cache.

They make XᵀXP and sums like it in one pass, where XP (n × r) never exists as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit

from bigfs import engine
from bigfs.settings import Setting
from bigfs.types import FloatArray, IntArray

# Bytes of all sums that tasks return in one pass. It sets how many tiles a task adds up.
SUMS_BYTES = 160 << 20
MIN_SUMS = 4  # even if they take more
HELD_SUMS = 3  # that a worker holds at a time: its own, one that comes, and the sum of both
STRIP_ROWS = Setting(4096)  # rows of the dense columns made at a time (measured)
SMALL_SUM = Setting(1 << 20)  # bytes of a d × r that stays in the cache, where SciPy is as fast


def n_sums(size: int) -> int:
    """Return how many sums of `size` bytes a pass may hold, for `Matrix.sum`."""
    return max(MIN_SUMS, SUMS_BYTES // max(size, 1))


def most_at_once(n: int, size: int) -> int:
    """Return how many of n parts of `size` bytes a sum may have, or refuse a single one.

    A worker holds `HELD_SUMS` such sums, its libraries and a tile. These leave them a tenth
    of the limit at least: a small one is no reason to refuse small sums.
    """
    if engine.client() is None:
        return n
    most = int(engine.SHARES.value.most * engine.memory_limit())
    fixed = engine.IDLE + engine.TILE_TASK
    room = max(most - fixed, most // 10)
    what = f"adding up sums of {engine.format_bytes(size)} each"
    engine.require_memory(most - room + HELD_SUMS * size, what, most)
    return min(n, room // max(HELD_SUMS * size, 1))


def begin_sum(n_rows: int, n_columns: int) -> FloatArray:
    """Return zeros for a sum that `n_sums` counts, after making room for it in a worker."""
    engine.make_room(HELD_SUMS * 8 * n_rows * n_columns)
    return np.zeros((n_rows, n_columns))


def strips(block: Any) -> Iterator[tuple[slice, Any]]:
    """Cut a block of rows into strips, by columns if it is sparse, each with its range of rows."""
    n = block.shape[0]
    for first in range(0, n, STRIP_ROWS.value):
        rows = slice(first, min(first + STRIP_ROWS.value, n))
        Z = block if n <= STRIP_ROWS.value else block[rows]
        yield rows, sp.csc_array(Z) if sp.issparse(Z) else Z


def times(Z: Any, P: FloatArray) -> FloatArray:
    """Return ZP for a strip of rows Z."""
    if not sp.issparse(Z) or P.nbytes <= SMALL_SUM.value:
        return np.asarray(Z @ P, dtype=np.float64)
    product = np.zeros((Z.shape[0], P.shape[1]))
    _times_by_columns(Z.indptr, Z.indices, Z.data, P, product)
    return product


def add_products(Z: Any, V: FloatArray, total: FloatArray) -> None:
    """Add ZᵀV (d × r) to `total` for a strip of rows Z."""
    if not sp.issparse(Z) or total.nbytes <= SMALL_SUM.value:
        total += Z.T @ V
        return
    add_by_columns(Z.indptr, Z.indices, Z.data, V, total)


@njit(nogil=True, cache=True)
def _times_by_columns(
    indptr: IntArray, rows: IntArray, data: FloatArray, P: FloatArray, product: FloatArray
) -> None:
    """Add ZP by columns of Z: `product` stays in the cache, and P is read once."""
    for j in range(len(indptr) - 1):
        p_j = P[j]
        for p in range(indptr[j], indptr[j + 1]):
            z, x = product[rows[p]], np.float64(data[p])
            for c in range(len(p_j)):
                z[c] += x * p_j[c]


@njit(nogil=True, cache=True)
def add_by_columns(
    indptr: IntArray, rows: IntArray, data: FloatArray, V: FloatArray, total: FloatArray
) -> None:
    """Add ZᵀV by columns of Z: V stays in the cache, and `total` is touched once per column."""
    product = np.empty(V.shape[1])
    for j in range(len(indptr) - 1):
        if indptr[j] == indptr[j + 1]:
            continue
        product[:] = 0
        for p in range(indptr[j], indptr[j + 1]):
            v, x = V[rows[p]], np.float64(data[p])
            for c in range(len(product)):
                product[c] += x * v[c]
        for c in range(len(product)):
            total[j, c] += product[c]


def gram_times(X: Any, P: FloatArray) -> FloatArray:
    """Return XᵀXP (d × r) in one pass over the tiles of rows, where XP is never formed as a whole.

    A matrix that has only the layout by columns forms XP, and is read twice.
    """
    if not X.row_tiles:
        return np.asarray(X.T @ (X @ P))
    P = np.asarray(P, dtype=np.float64)
    most_at_once(1, P.nbytes)
    return np.asarray(X.sum(_gram_times, 0, P, max_parts=n_sums(P.nbytes)))


def _gram_times(
    block: Any, start: int, stop: int, P: FloatArray, total: FloatArray | None
) -> FloatArray:
    """Add blockᵀ(block P) to the total, for a P of d × r."""
    total = begin_sum(*P.shape) if total is None else total
    for _, Z in strips(block):
        add_products(Z, times(Z, P), total)
    return total
