"""The hot spot of kNN: every pair of rows of two blocks, and the k best of each row.

The second block is cut into strips of a few thousand rows. A strip is held by term: a posting list
of its rows for a rare term, a dense line for a frequent one. A row's products with the whole strip
gather in one short array of float64 that stays in the first-level cache; then one vectorized
comparison finds the few that can enter a list, the row's own or the other's: a pair is multiplied once.

A pair's terms are added in increasing order whatever the blocks and the strips, so its distance has
the same bits wherever it is computed, and from either side.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import scipy.sparse as sp

from bigfs.matrix import Array

STRIP = 4096  # rows; 32 KiB of sums, the size of a first-level cache
DENSE = 0.12  # a term in this share of a strip's rows is cheaper as a dense line (measured)
GROUP = 16  # sums compared at once
NONE = np.iinfo(np.int32).max  # no neighbour: loses every tie
TINY = np.finfo(np.float64).tiny
SLACK = 1e-12  # of a cosine: the quick comparison rounds differently from the distance itself

_jit = numba.njit(nogil=True, cache=True)


class Lists(NamedTuple):
    """The k nearest of each row so far, nearest first; equal distances by lower index.

    `key` (rows × k, float64): 1 − cosine, or the squared Euclidean distance; inf where there is none.
    `found` (rows × k, int32): row numbers of the whole matrix; `NONE` where there is none.
    """

    key: Array
    found: Array


def empty(rows: int, k: int) -> Lists:
    return Lists(np.full((rows, k), np.inf), np.full((rows, k), NONE, dtype=np.int32))


class Side(NamedTuple):
    """A block of rows for the kernel; `first` is the number of its first row in the whole matrix."""

    rows: sp.csr_array
    first: int
    squares: Array  # ‖x‖², of the whole rows even where `rows` holds only some terms


def side(rows: sp.csr_array, first: int) -> Side:
    return Side(rows, first, _squares(rows.indptr, rows.data))


def inside(A: Side, k: int, cosine: bool) -> Lists:
    """The k nearest of each row within its own block."""
    state = opened(A, k, cosine)
    scan(A, A, state, state, cosine)
    return state.lists


def between(A: Side, B: Side, of_a: Lists, of_b: Lists, cosine: bool) -> tuple[Lists, Lists]:
    """Those in B that may be among the k nearest of a row of A, whose k nearest so far are `of_a`; and the same from B."""
    a, b = (opened(block, lists.key.shape[1], cosine, lists) for block, lists in ((A, of_a), (B, of_b)))
    scan(A, B, a, b, cosine)
    return a.lists, b.lists


def scan(A: Side, B: Side, of_a: State, of_b: State, cosine: bool) -> None:
    """All pairs of A and B offered to the lists of both."""
    rows, other = A.rows, B.rows
    for low in range(0, other.shape[0], STRIP):
        high = min(low + STRIP, other.shape[0])
        strip = _invert(other.indptr, other.indices, other.data, low, high, other.shape[1], DENSE * (high - low))
        _scan(rows.indptr, rows.indices, rows.data, low, high, strip, of_a, of_b, cosine, B is A)


def rerank(A: Side, found: Array, B: Side, lists: Lists, cosine: bool) -> None:
    """Offer to each row of A its candidates `found` (rows × c, numbers of the whole matrix) that lie in B."""
    a, b = A.rows, B.rows
    _rerank(a.indptr, a.indices, a.data, A.squares, found, b.indptr, b.indices, b.data, B.squares, B.first, a.shape[1], lists, cosine)


def merge(parts: list[Lists], k: int) -> Lists:
    """The k nearest of several lists of the same rows."""
    merged = empty(parts[0].key.shape[0], k)
    for part in parts:
        _merge(part.key, part.found, merged.key, merged.found)
    return merged


class State(NamedTuple):
    """What `scan` knows of a block's rows: their lists, what turns sums into distances, what may still enter."""

    first: int
    lists: Lists
    squares: Array
    scale: Array  # 1/‖x‖ for cosines, 0 for an empty row; else 1
    shift: Array  # 0 for cosines; else ‖x‖²/2
    cut: Array  # a product that reaches it, scaled and shifted, may enter the row's list


def opened(block: Side, k: int, cosine: bool, known: Lists | None = None) -> State:
    """Empty lists of k, for `scan` to fill with what is not farther than all that is `known`."""
    norm = np.sqrt(block.squares)
    scale = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0) if cosine else np.ones_like(norm)
    shift = np.zeros_like(norm) if cosine else block.squares / 2
    worst = np.full(len(norm), np.inf) if known is None else known.key[:, -1]
    return State(block.first, empty(len(norm), k), block.squares, scale, shift, _cuts(worst, cosine))


def closed(block: Side, cosine: bool) -> State:
    """Lists that nothing enters: for a `scan` that only one side asks for."""
    state = opened(block, 1, cosine)
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
def _invert(indptr, indices, data, low, high, d, frequent):
    """Rows [low, high) by term: (start of each posting list, line of each frequent term or −1, lines, rows, values)."""
    count = np.zeros(d, np.int64)
    for p in range(indptr[low], indptr[high]):
        count[indices[p]] += 1
    line, start, lines = np.full(d, -1, np.int32), np.zeros(d + 1, np.int64), 0
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
    """Every row of `a` with the strip [low, high) of `b`; inside one block, each pair once (i < j)."""
    start, line, dense, rows, values = strip
    width = high - low
    sums = np.zeros(width)
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
        first = max(i + 1 - low, 0) if same else 0
        _offer_all(sums, first, low, high, i, a, b, cosine)
        sums[:] = 0


@_jit
def _offer_all(sums, first, low, high, i, a, b, cosine):
    """Row i's sums to both lists; a group at once is compared with what may still enter."""
    scale, shift, square, number = a.scale[i], a.shift[i], a.squares[i], a.first + i
    near, near_found, cut = a.lists.key, a.lists.found, a.cut  # arrays as locals: a tuple's fields cost in the loop
    far, far_found, cuts = b.lists.key, b.lists.found, b.cut[low:high]
    scales, shifts, squares = b.scale[low:high], b.shift[low:high], b.squares[low:high]
    for g in range(first // GROUP * GROUP, len(sums), GROUP):
        end, mine = min(g + GROUP, len(sums)), cut[i]
        if end - g == GROUP:
            hits = 0
            for j in range(g, g + GROUP):
                hits |= sums[j] * scale * scales[j] - (shift + shifts[j]) >= min(mine, cuts[j])
            if hits == 0:
                continue
        for j in range(max(g, first), end):
            if sums[j] * scale * scales[j] - (shift + shifts[j]) >= min(cut[i], cuts[j]):
                key = _key(sums[j], square, squares[j], cosine)
                if _push(near, near_found, i, key, b.first + low + j):
                    cut[i] = max(cut[i], _cut(near[i, -1], cosine))
                if _push(far, far_found, low + j, key, number):
                    cuts[j] = max(cuts[j], _cut(far[low + j, -1], cosine))


@_jit
def _key(total, square, other, cosine):
    if cosine:  # the square root of the product, not the product of the roots: a duplicate is at 0 exactly
        return max(0.0, 1.0 - total / np.sqrt(square * other))
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
    row = np.zeros(d)
    for i in range(found.shape[0]):
        for p in range(ap[i], ap[i + 1]):
            row[ai[p]] = ax[p]
        for j in found[i] - first:
            if 0 <= j < len(others):
                total = 0.0
                for q in range(bp[j], bp[j + 1]):
                    total += row[bi[q]] * np.float64(bx[q])
                if total > 0 or not cosine:
                    _push(lists.key, lists.found, i, _key(total, squares[i], others[j], cosine), first + j)
        for p in range(ap[i], ap[i + 1]):
            row[ai[p]] = 0.0
