"""The kernel of exact kNN: all pairs of rows of two blocks, and the k nearest rows of each row.

The second block is cut into strips of a few thousand rows. A strip is stored by term. A rare term
has a posting list of the strip's rows. A frequent term has a dense line with one value per row. The
products of one row with the whole strip accumulate in a short float64 array that stays in the
first-level cache. One vectorized comparison then marks the few that can enter a list, either the
list of this row or of the other row. So each pair is multiplied once.

The terms of a pair are added in increasing order whatever the blocks and strips are. So a distance
has the same bits wherever it is computed, and from either side.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import scipy.sparse as sp

from bigfs.settings import Setting
from bigfs.types import AnyArray

STRIP_ROWS = Setting(4096)  # rows of a strip; their sums stay in a first-level cache
# A term in more than this share of a strip's rows is cheaper as a dense line (measured).
DENSE_SHARE = Setting(0.12)
COLUMN_BYTES = 20  # per column of the tables of `invert`, without the entries
NO_NEIGHBOR = np.iinfo(np.int32).max  # row number of a missing neighbor, which loses every tie
TINY = np.finfo(np.float64).tiny
# Squared norms, and products of two of them, have too few digits below this value.
MIN_SQUARED_NORM = 1e-290
# The quick comparison of cosines rounds differently from the distance itself. It allows for this.
COSINE_SLACK = 1e-12
NO_GROUPS = np.empty(0, np.int64), np.empty(0, np.int64)

_jit = numba.njit(nogil=True, cache=True)


class NeighborLists(NamedTuple):
    """The k nearest rows of each row so far, nearest first, equal distances by lower row number."""

    # (rows, k) float64: 1 − cosine, or the squared Euclidean distance; inf for a missing neighbor
    key: AnyArray
    # (rows, k) int32: row numbers in the whole matrix; NO_NEIGHBOR for a missing neighbor
    neighbor: AnyArray


class KernelBlock(NamedTuple):
    """A block of rows as the arrays of a csr matrix, with their squared norms."""

    indptr: AnyArray
    indices: AnyArray
    data: AnyArray
    n_columns: int
    first: int  # number of the first row in the whole matrix
    squares: AnyArray  # (rows,) ‖x‖²


class InvertedStrip(NamedTuple):
    """A strip of rows, stored by term."""

    start: AnyArray  # (n_columns + 1,) where the posting list of each term starts
    line: AnyArray  # (n_columns,) number of a frequent term's dense line, −1 for a rare term
    lines: AnyArray  # (dense lines, strip rows) values of the frequent terms
    rows: AnyArray  # row of each posting, counted from the strip's first row
    values: AnyArray  # value of each posting


class SearchState(NamedTuple):
    """The lists of a block and what `scan` needs to update them."""

    first: int
    lists: NeighborLists
    squares: AnyArray
    scale: AnyArray  # 1/‖x‖ for cosines, 0 for an empty row; 1 for Euclidean distances
    shift: AnyArray  # 0 for cosines; ‖x‖²/2 for Euclidean distances
    threshold: AnyArray  # a scaled and shifted product may enter the row's list if it reaches this


def empty_lists(rows: int, k: int) -> NeighborLists:
    return NeighborLists(
        np.full((rows, k), np.inf), np.full((rows, k), NO_NEIGHBOR, dtype=np.int32)
    )


def kernel_block(rows: sp.csr_array, first: int) -> KernelBlock:
    """Return rows as the kernels take them. `first` is their first number in the whole matrix."""
    squares = _squared_norms(rows.indptr, rows.data)
    return KernelBlock(rows.indptr, rows.indices, rows.data, rows.shape[1], first, squares)


def within_block(A: KernelBlock, k: int, cosine: bool) -> NeighborLists:
    """Return the k nearest rows of each row within its own block."""
    state = search_state(A, empty_lists(len(A.squares), k), cosine)
    scan(A, A, state, state, cosine)
    return state.lists


def between_blocks(
    A: KernelBlock, B: KernelBlock, lists_a: NeighborLists, lists_b: NeighborLists, cosine: bool
) -> tuple[NeighborLists, NeighborLists]:
    """Return the lists of both blocks after all pairs of A and B. A has the lower row numbers."""
    a, b = search_state(A, lists_a, cosine), search_state(B, lists_b, cosine)
    scan(A, B, a, b, cosine)
    return a.lists, b.lists


def scan(
    A: KernelBlock,
    B: KernelBlock,
    a: SearchState,
    b: SearchState,
    cosine: bool,
    groups: tuple[AnyArray, AnyArray] = NO_GROUPS,
) -> None:
    """Offer all pairs of A and B to the lists of both, but no pair of one group."""
    rows = len(B.squares)
    for low in range(0, rows, STRIP_ROWS.value):
        high = min(low + STRIP_ROWS.value, rows)
        max_postings = DENSE_SHARE.value * (high - low)
        strip = invert(B.indptr, B.indices, B.data, low, high, B.n_columns, max_postings)
        _scan_strip(A, low, high, strip, a, b, groups, cosine, B is A)


def merge(parts: list[NeighborLists], k: int) -> NeighborLists:
    """Return the k nearest of several lists of the same rows."""
    merged = empty_lists(parts[0].key.shape[0], k)
    for part in parts:
        _merge(part, merged)
    return merged


def search_state(block: KernelBlock, lists: NeighborLists, cosine: bool) -> SearchState:
    """Return a state that starts from a copy of `lists`."""
    norm = np.sqrt(block.squares)
    if cosine:
        nonempty = block.squares > MIN_SQUARED_NORM
        scale = np.divide(1.0, norm, out=np.zeros_like(norm), where=nonempty)
        shift = np.zeros_like(norm)
    else:
        scale = np.ones_like(norm)
        shift = block.squares / 2
    threshold = _thresholds(lists.key[:, -1], cosine)
    copies = NeighborLists(lists.key.copy(), lists.neighbor.copy())
    return SearchState(block.first, copies, block.squares, scale, shift, threshold)


def rejecting_state(block: KernelBlock, cosine: bool) -> SearchState:
    """Return a state whose lists reject every candidate, for a one-sided `scan`."""
    state = search_state(block, empty_lists(len(block.squares), 1), cosine)
    state.lists.key[:] = -np.inf
    state.threshold[:] = np.inf
    return state


# --- compiled ---------------------------------------------------------------------------------


@_jit
def _squared_norms(indptr: AnyArray, data: AnyArray) -> AnyArray:
    squares = np.zeros(len(indptr) - 1)
    for i in range(len(squares)):
        for p in range(indptr[i], indptr[i + 1]):
            squares[i] += np.float64(data[p]) * np.float64(data[p])
    return squares


@_jit
def invert(
    indptr: AnyArray,
    indices: AnyArray,
    data: AnyArray,
    low: int,
    high: int,
    n_columns: int,
    max_postings: float,
) -> InvertedStrip:
    """Store the rows [low, high) of a csr matrix by term.

    A term with more than `max_postings` entries gets a dense line.
    """
    count = np.zeros(n_columns, np.int64)
    for p in range(indptr[low], indptr[high]):
        count[indices[p]] += 1
    line = np.full(n_columns, -1, np.int32)
    start = np.zeros(n_columns + 1, np.uint32)  # unsigned: no test for negative indices
    n_lines = 0
    for t in range(n_columns):
        start[t + 1] = start[t]
        if count[t] > max_postings:
            line[t] = n_lines
            n_lines += 1
        else:
            start[t + 1] += count[t]
    lines = np.zeros((n_lines, high - low), data.dtype)
    rows = np.empty(start[n_columns], np.uint16)
    values = np.empty(start[n_columns], data.dtype)
    free = start.copy()
    for j in range(low, high):
        for p in range(indptr[j], indptr[j + 1]):
            t = indices[p]
            if line[t] >= 0:
                lines[line[t], j - low] = data[p]
            else:
                rows[free[t]] = j - low
                values[free[t]] = data[p]
                free[t] += 1
    return InvertedStrip(start, line, lines, rows, values)


@_jit
def _scan_strip(
    A: KernelBlock,
    low: int,
    high: int,
    strip: InvertedStrip,
    a: SearchState,
    b: SearchState,
    groups: tuple[AnyArray, AnyArray],
    cosine: bool,
    same: bool,
) -> None:
    """Compare every row of A with the strip [low, high) of B. If A and B are the same block, each
    pair i < j is offered once."""
    indptr, indices, data = A.indptr, A.indices, A.data
    start, line, lines, rows, values = strip
    width = high - low
    sums = np.zeros(width)
    may_enter = np.zeros(-(-width // 64) * 64, np.uint8)
    marked_eights = np.empty(len(may_enter) // 8, np.int64)
    hits = np.empty(len(may_enter), np.int64)
    scales, shifts, thresholds = b.scale[low:high], b.shift[low:high], b.threshold[low:high]
    n_rows = min(len(indptr) - 1, high - 1) if same else len(indptr) - 1
    for i in range(n_rows):
        for p in range(indptr[i], indptr[i + 1]):
            t, x = indices[p], np.float64(data[p])
            if line[t] >= 0:
                dense = lines[line[t]]
                for j in range(width):
                    sums[j] += x * dense[j]
            else:
                for q in range(start[t], start[t + 1]):
                    sums[rows[q]] += x * values[q]
        _mark(may_enter, sums, a.scale[i], a.shift[i], a.threshold[i], scales, shifts, thresholds)
        n_hits = find_marked(may_enter, marked_eights, hits)
        _offer(
            sums, hits[:n_hits], max(i + 1 - low, 0) if same else 0, low, i, a, b, groups, cosine
        )
        sums[:] = 0


@_jit
def _mark(
    may_enter: AnyArray,
    sums: AnyArray,
    scale: float,
    shift: float,
    threshold: float,
    scales: AnyArray,
    shifts: AnyArray,
    thresholds: AnyArray,
) -> None:
    """Mark the sums that may enter a list. All are compared at once, without a branch."""
    for j in range(len(sums)):
        may_enter[j] = sums[j] * scale * scales[j] - (shift + shifts[j]) >= min(
            threshold, thresholds[j]
        )


@_jit
def _offer(
    sums: AnyArray,
    hits: AnyArray,
    first: int,
    low: int,
    i: int,
    a: SearchState,
    b: SearchState,
    groups: tuple[AnyArray, AnyArray],
    cosine: bool,
) -> None:
    """Offer the marked sums of row i, from position `first` on, to both lists."""
    square, number, strip_number = a.squares[i], a.first + i, b.first + low
    # arrays as locals: in the loop, the fields of a tuple cost time
    key_a, neighbor_a, threshold_a = a.lists.key, a.lists.neighbor, a.threshold
    key_b, neighbor_b, threshold_b = b.lists.key[low:], b.lists.neighbor[low:], b.threshold[low:]
    squares_b, groups_b = b.squares[low:], groups[1][low:]
    grouped = len(groups_b) > 0
    group = groups[0][i] if grouped else 0
    for j in hits:
        if j >= first and not (grouped and groups_b[j] == group):
            key = _key(sums[j], square, squares_b[j], cosine)
            if _insert(key_a, neighbor_a, i, key, strip_number + j):
                threshold_a[i] = max(threshold_a[i], _threshold(key_a[i, -1], cosine))
            if _insert(key_b, neighbor_b, j, key, number):
                threshold_b[j] = max(threshold_b[j], _threshold(key_b[j, -1], cosine))


@_jit
def find_marked(may_pass: AnyArray, marked_eights: AnyArray, hits: AnyArray) -> int:
    """Write the positions where `may_pass` is non-zero to `hits`, and return their number.

    It scans 64, then 8, then 1 byte at a time, without unpredictable branches.
    """
    eights = may_pass.view(np.uint64)
    groups = len(may_pass) // 64
    part0, part1, part2, part3, part4, part5, part6, part7 = [
        eights[k * groups : (k + 1) * groups] for k in range(8)
    ]
    n_groups = 0
    for k in range(groups):
        hits[n_groups] = k
        n_groups += (
            part0[k] | part1[k] | part2[k] | part3[k] | part4[k] | part5[k] | part6[k] | part7[k]
        ) != 0
    n_eights = 0
    for k in hits[:n_groups]:
        for eight in range(k, 8 * groups, groups):
            marked_eights[n_eights] = eight
            n_eights += eights[eight] != 0
    n_hits = 0
    for eight in marked_eights[:n_eights]:
        for j in range(8 * eight, 8 * eight + 8):
            hits[n_hits] = j
            n_hits += may_pass[j]
    return n_hits


@_jit
def _key(product: float, square_a: float, square_b: float, cosine: bool) -> float:
    """Return 1 − cosine, or the squared Euclidean distance, of two rows. The root of the product of
    the squares, not the product of their roots, puts a duplicate at exactly 0."""
    if cosine:
        both = square_a * square_b
        norms = np.sqrt(both) if both > MIN_SQUARED_NORM else np.sqrt(square_a) * np.sqrt(square_b)
        return max(0.0, 1.0 - product / norms)
    return max(0.0, square_a + square_b - 2.0 * product)


@_jit
def _threshold(worst_key: float, cosine: bool) -> float:
    """Return the smallest scaled and shifted product that may enter a list with this last key."""
    return max(TINY, 1.0 - worst_key - COSINE_SLACK) if cosine else -worst_key / 2.0


@_jit
def _thresholds(worst_keys: AnyArray, cosine: bool) -> AnyArray:
    return np.array([_threshold(key, cosine) for key in worst_keys])


@_jit
def _insert(keys: AnyArray, ids: AnyArray, i: int, new_key: float, number: int) -> bool:
    """Insert a neighbor into the sorted list of row i. Return whether it entered."""
    # Numba orders variables by their names. With `neighbors` in place of `ids` this function is not
    # inlined, and the kernel takes three times as long while the lists fill.
    m = keys.shape[1] - 1
    if new_key > keys[i, m] or (new_key == keys[i, m] and number >= ids[i, m]):
        return False
    while m > 0 and (
        keys[i, m - 1] > new_key or (keys[i, m - 1] == new_key and ids[i, m - 1] > number)
    ):
        keys[i, m] = keys[i, m - 1]
        ids[i, m] = ids[i, m - 1]
        m -= 1
    keys[i, m] = new_key
    ids[i, m] = number
    return True


@_jit
def _merge(part: NeighborLists, merged: NeighborLists) -> None:
    for i in range(part.key.shape[0]):
        for m in range(part.key.shape[1]):
            if not _insert(merged.key, merged.neighbor, i, part.key[i, m], part.neighbor[i, m]):
                break


@_jit
def rerank(
    A: KernelBlock, candidates: AnyArray, B: KernelBlock, lists: NeighborLists, cosine: bool
) -> None:
    """Offer to each row of A its candidates that lie in B.

    `candidates` (rows × c) has increasing row numbers of the whole matrix.
    """
    row = np.zeros(A.n_columns, A.data.dtype)  # the current row of A, dense
    bounds = np.array([B.first, B.first + len(B.squares)])
    for i in range(candidates.shape[0]):
        for p in range(A.indptr[i], A.indptr[i + 1]):
            row[A.indices[p]] = A.data[p]
        low, high = np.searchsorted(candidates[i], bounds)
        for j in candidates[i, low:high] - B.first:
            product = 0.0
            for q in range(B.indptr[j], B.indptr[j + 1]):
                product += np.float64(row[B.indices[q]]) * np.float64(B.data[q])
            if not cosine or (product > 0 and min(A.squares[i], B.squares[j]) > MIN_SQUARED_NORM):
                key = _key(product, A.squares[i], B.squares[j], cosine)
                _insert(lists.key, lists.neighbor, i, key, B.first + j)
        for p in range(A.indptr[i], A.indptr[i + 1]):
            row[A.indices[p]] = 0
