"""The hot spot of kNN: every pair of rows of two blocks, and the k best of each row.

The second block is cut into strips of a few thousand rows. A strip is held by term: a posting list
of its rows for a rare term, a dense line for a frequent one. A row's products with the whole strip
gather in one short array of float64 that stays in the first-level cache; then one vectorized
comparison marks the few that can enter a list, the row's own or the other's: a pair is multiplied
once.

A pair's terms are added in increasing order whatever the blocks and the strips, so its distance has
the same bits wherever it is computed, and from either side.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import scipy.sparse as sp

from bigfs.types import AnyArray

STRIP = 4096  # rows; their sums stay in a first-level cache
DENSE = 0.12  # a term in this share of a strip's rows is cheaper as a dense line (measured)
NONE = np.iinfo(np.int32).max  # no neighbour: loses every tie
TINY = np.finfo(np.float64).tiny
# a squared norm, or a product of two, below which double precision has too few digits
EMPTY = 1e-290
SLACK = 1e-12  # of a cosine: the quick comparison rounds differently from the distance itself

_jit = numba.njit(nogil=True, cache=True)


class Lists(NamedTuple):
    """The k nearest of each row so far, nearest first; equal distances by lower index.

    `key` (rows × k, float64): 1 − cosine, or the squared Euclidean distance; inf where there is
    none. `found` (rows × k, int32): row numbers of the whole matrix; `NONE` where there is none.
    """

    key: AnyArray
    found: AnyArray


def empty(rows: int, k: int) -> Lists:
    return Lists(np.full((rows, k), np.inf), np.full((rows, k), NONE, dtype=np.int32))


class Side(NamedTuple):
    """A block of rows for the kernel; `first` is the number of its first row in the whole
    matrix.
    """

    rows: sp.csr_array
    first: int
    squares: AnyArray  # ‖x‖²


def side(rows: sp.csr_array, first: int) -> Side:
    return Side(rows, first, _squares(rows.indptr, rows.data))


def inside(A: Side, k: int, cosine: bool) -> Lists:
    """The k nearest of each row within its own block."""
    state = opened(A, empty(A.rows.shape[0], k), cosine)
    scan(A, A, state, state, cosine)
    return state.lists


def between(A: Side, B: Side, of_a: Lists, of_b: Lists, cosine: bool) -> tuple[Lists, Lists]:
    """The lists of both blocks, as they are when each has met the other.

    A's rows are the lower ones.
    """
    a, b = opened(A, of_a, cosine), opened(B, of_b, cosine)
    scan(A, B, a, b, cosine)
    return a.lists, b.lists


def scan(A: Side, B: Side, of_a: State, of_b: State, cosine: bool) -> None:
    """All pairs of A and B offered to the lists of both."""
    rows, other = A.rows, B.rows
    for low in range(0, other.shape[0], STRIP):
        high = min(low + STRIP, other.shape[0])
        strip = invert(
            other.indptr, other.indices, other.data, low, high, other.shape[1], DENSE * (high - low)
        )
        _scan(rows.indptr, rows.indices, rows.data, low, high, strip, of_a, of_b, cosine, B is A)


def rerank(A: Side, found: AnyArray, B: Side, lists: Lists, cosine: bool) -> None:
    """Offer to each row of A its candidates `found` (rows × c, increasing numbers of the whole
    matrix) that lie in B.
    """
    a, b = A.rows, B.rows
    _rerank(
        a.indptr,
        a.indices,
        a.data,
        A.squares,
        found,
        b.indptr,
        b.indices,
        b.data,
        B.squares,
        B.first,
        a.shape[1],
        lists,
        cosine,
    )


def merge(parts: list[Lists], k: int) -> Lists:
    """The k nearest of several lists of the same rows."""
    merged = empty(parts[0].key.shape[0], k)
    for part in parts:
        _merge(part.key, part.found, merged.key, merged.found)
    return merged


class State(NamedTuple):
    """What `scan` knows of a block's rows: their lists, what turns sums into distances, what may
    still enter.
    """

    first: int
    lists: Lists
    squares: AnyArray
    scale: AnyArray  # 1/‖x‖ for cosines, 0 for an empty row; else 1
    shift: AnyArray  # 0 for cosines; else ‖x‖²/2
    cut: AnyArray  # a product that reaches it, scaled and shifted, may enter the row's list


def opened(block: Side, known: Lists, cosine: bool) -> State:
    """A copy of the lists `known`, for `scan` to go on with."""
    norm = np.sqrt(block.squares)
    scale = (
        np.divide(1.0, norm, out=np.zeros_like(norm), where=block.squares > EMPTY)
        if cosine
        else np.ones_like(norm)
    )
    shift = np.zeros_like(norm) if cosine else block.squares / 2
    cut = _cuts(known.key[:, -1], cosine)
    lists = Lists(known.key.copy(), known.found.copy())
    return State(block.first, lists, block.squares, scale, shift, cut)


def closed(block: Side, cosine: bool) -> State:
    """Lists that nothing enters: for a `scan` that only one side asks for."""
    state = opened(block, empty(len(block.squares), 1), cosine)
    state.lists.key[:], state.cut[:] = -np.inf, np.inf
    return state


@_jit
def _squares(indptr, data):
    squares = np.zeros(len(indptr) - 1)
    for i in range(len(squares)):
        for p in range(indptr[i], indptr[i + 1]):
            squares[i] += np.float64(data[p]) * np.float64(data[p])
    return squares


@_jit
def invert(indptr, indices, data, low, high, d, frequent):
    """Rows [low, high) by term: (start of each posting list, line of each frequent term or −1,
    lines, rows, values).
    """
    count = np.zeros(d, np.int64)
    for p in range(indptr[low], indptr[high]):
        count[indices[p]] += 1
    # unsigned: no test for negative indices
    line, start, lines = np.full(d, -1, np.int32), np.zeros(d + 1, np.uint32), 0
    for t in range(d):
        start[t + 1] = start[t]
        if count[t] > frequent:
            line[t] = lines
            lines += 1
        else:
            start[t + 1] += count[t]
    dense = np.zeros((lines, high - low), data.dtype)
    rows, values = np.empty(start[d], np.uint16), np.empty(start[d], data.dtype)
    free = start.copy()
    for j in range(low, high):
        for p in range(indptr[j], indptr[j + 1]):
            t = indices[p]
            if line[t] >= 0:
                dense[line[t], j - low] = data[p]
            else:
                rows[free[t]] = j - low
                values[free[t]] = data[p]
                free[t] += 1
    return start, line, dense, rows, values


@_jit
def _scan(indptr, indices, data, low, high, strip, a, b, cosine, same):
    """Every row of `a` with the strip [low, high) of `b`; inside one block, each pair once (i <
    j).
    """
    start, line, dense, rows, values = strip
    width = high - low
    sums, may = np.zeros(width), _marks(width)
    scales, shifts, cuts = b.scale[low:high], b.shift[low:high], b.cut[low:high]
    for i in range(min(len(indptr) - 1, high - 1) if same else len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            t, x = indices[p], np.float64(data[p])
            if line[t] >= 0:
                frequent = dense[line[t]]
                for j in range(width):
                    sums[j] += x * frequent[j]
            else:
                for q in range(start[t], start[t + 1]):
                    sums[rows[q]] += x * values[q]
        _mark(may, sums, a.scale[i], a.shift[i], a.cut[i], scales, shifts, cuts)
        _offer(sums, may, max(i + 1 - low, 0) if same else 0, low, i, a, b, cosine)
        sums[:] = 0


@_jit
def _marks(width):
    return np.zeros(-(-width // 8) * 8, np.uint8)


@_jit
def _mark(may, sums, scale, shift, mine, scales, shifts, cuts):
    """Which sums may enter a list: all are compared at once."""
    for j in range(len(sums)):
        may[j] = sums[j] * scale * scales[j] - (shift + shifts[j]) >= min(mine, cuts[j])


@_jit
def _offer(sums, may, first, low, i, a, b, cosine):
    """Row i's marked sums, from `first` on, to both lists."""
    square, number, other = a.squares[i], a.first + i, b.first + low
    # arrays as locals: a tuple's fields cost in the loop
    near, near_found, cut = a.lists.key, a.lists.found, a.cut
    far, far_found, cuts, squares = (
        b.lists.key[low:],
        b.lists.found[low:],
        b.cut[low:],
        b.squares[low:],
    )
    eights = may.view(np.uint64)
    eight = marked(eights, 0)
    while eight < len(eights):
        for j in range(max(8 * eight, first), min(8 * eight + 8, len(sums))):
            if may[j]:
                key = _key(sums[j], square, squares[j], cosine)
                if _push(near, near_found, i, key, other + j):
                    cut[i] = max(cut[i], _cut(near[i, -1], cosine))
                if _push(far, far_found, j, key, number):
                    cuts[j] = max(cuts[j], _cut(far[j, -1], cosine))
        eight = marked(eights, eight + 1)


@_jit
def marked(eights, e):
    """The next that is not zero, from e on."""
    while e + 8 <= len(eights) and not (
        eights[e]
        | eights[e + 1]
        | eights[e + 2]
        | eights[e + 3]
        | eights[e + 4]
        | eights[e + 5]
        | eights[e + 6]
        | eights[e + 7]
    ):
        e += 8
    while e < len(eights) and not eights[e]:
        e += 1
    return e


@_jit
def _key(total, square, other, cosine):
    # the square root of the product, not the product of the roots: a duplicate is at 0 exactly
    if cosine:
        both = square * other
        return max(
            0.0, 1.0 - total / (np.sqrt(both) if both > EMPTY else np.sqrt(square) * np.sqrt(other))
        )
    return max(0.0, square + other - 2.0 * total)


@_jit
def _cut(worst, cosine):
    return max(TINY, 1.0 - worst - SLACK) if cosine else -worst / 2.0


@_jit
def _cuts(worst, cosine):
    return np.array([_cut(key, cosine) for key in worst])


@_jit
def _push(key, found, i, new, number):
    """Insert into row i's sorted list; whether it entered."""
    m = key.shape[1] - 1
    if new > key[i, m] or (new == key[i, m] and number >= found[i, m]):
        return False
    while m > 0 and (key[i, m - 1] > new or (key[i, m - 1] == new and found[i, m - 1] > number)):
        key[i, m], found[i, m] = key[i, m - 1], found[i, m - 1]
        m -= 1
    key[i, m], found[i, m] = new, number
    return True


@_jit
def _merge(key, found, into_key, into_found):
    for i in range(key.shape[0]):
        for m in range(key.shape[1]):
            if not _push(into_key, into_found, i, key[i, m], found[i, m]):
                break


@_jit
def _rerank(ap, ai, ax, squares, found, bp, bi, bx, others, first, d, lists, cosine):
    row = np.zeros(d, ax.dtype)
    for i in range(found.shape[0]):
        for p in range(ap[i], ap[i + 1]):
            row[ai[p]] = ax[p]
        low, high = np.searchsorted(found[i], np.array([first, first + len(others)]))
        for j in found[i, low:high] - first:
            total = 0.0
            for q in range(bp[j], bp[j + 1]):
                total += np.float64(row[bi[q]]) * np.float64(bx[q])
            if not cosine or (total > 0 and min(squares[i], others[j]) > EMPTY):
                _push(
                    lists.key, lists.found, i, _key(total, squares[i], others[j], cosine), first + j
                )
        for p in range(ap[i], ap[i + 1]):
            row[ai[p]] = 0
