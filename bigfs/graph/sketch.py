"""The hot spot of approximate kNN: every pair of rows of two blocks in eight bits, and the q best of each row.

A sketch is a block of rows in quanta of ‖x‖/181, so that the sum of a pair of rows fits in sixteen bits: a quarter of
the memory and of the work of `kernel.py`, whose posting lists and dense lines it shares. A row's best are kept as one
integer each, the score above and the other row below, in decreasing order: of equal scores the lower row first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from bigfs.graph.kernel import NONE, Side, invert, marked
from bigfs.matrix import Array

LEVELS = 181  # the product of two rows is at most 181² < 2¹⁵, by Cauchy and Schwarz
STRIP = 24576  # rows whose sums gather together: a short posting list costs more to find than to add (measured)
DENSE = 0.04  # a term in this share of a strip's rows is cheaper as a dense line (measured)
START = 4096  # rows that find their first lists among themselves
WAITING = 1 << 18  # scores that wait for the lists of the second block
MOST = LEVELS * LEVELS + 1  # a sum that no pair has
LAST = NONE  # above all numbers of rows
NOBODY = np.iinfo(np.int64).min

_jit = numba.njit(nogil=True, cache=True)


class Sketch(NamedTuple):
    """Rows as csr of int8, with column numbers in 16 bits where they fit; the first row is number `first` of the whole matrix."""

    indptr: Array
    indices: Array
    data: Array
    first: int
    unit: Array  # float32: a row's quantum
    half: Array  # float32: ‖x‖²/2

    def cut(self, low: int, high: int) -> Sketch:
        start, stop = self.indptr[[low, high]]
        indptr, indices, data = self.indptr[low : high + 1] - start, self.indices[start:stop], self.data[start:stop]
        return Sketch(indptr, indices, data, self.first + low, self.unit[low:high], self.half[low:high])


def sketch(block: Side, kept: Array) -> Sketch:
    """The block in eight bits, rounded towards zero, and only its columns `kept` (mask)."""
    unit = np.sqrt(block.squares) / LEVELS
    small = np.uint16 if len(kept) <= 1 << 16 else np.int32
    room = np.empty(block.rows.nnz, small)
    indptr, indices, data = _quantized(block.rows.indptr, block.rows.indices, block.rows.data, unit, kept, room)
    return Sketch(indptr, indices, data, block.first, unit.astype(np.float32), (block.squares / 2).astype(np.float32))


def joined(parts: list[Sketch]) -> Sketch:
    """Sketches of rows that follow each other, as one."""
    sizes = np.cumsum([0, *(len(part.data) for part in parts)])
    indptr = np.concatenate([[0], *(part.indptr[1:] + size for part, size in zip(parts, sizes[:-1], strict=True))])
    indices, data, unit, half = (np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "data", "unit", "half"))
    return Sketch(indptr, indices, data, parts[0].first, unit, half)


def found(codes: Array) -> Array:
    """The numbers of the rows in such lists, int32; `LAST` where there is none."""
    return np.where(codes == NOBODY, LAST, LAST - (codes & LAST)).astype(np.int32)


def inside(A: Sketch, q: int, columns: int, cosine: bool) -> Array:
    """The q best of each row within its own block: of two halves, which then meet."""
    n = len(A.unit)
    if n <= START:
        lists = np.full((n, q), NOBODY)
        search([A], A, [lists], columns, cosine)
        return lists
    low, high = A.cut(0, n // 2), A.cut(n // 2, n)
    return np.vstack(meet(low, high, inside(low, q, columns, cosine), inside(high, q, columns, cosine), columns, cosine))


def meet(A: Sketch, B: Sketch, of_a: Array, of_b: Array, columns: int, cosine: bool) -> tuple[Array, Array]:
    """The lists of both blocks, as they are when each has met the other."""
    mine, theirs = of_a.copy(), of_b.copy()
    for low in range(0, len(B.unit), STRIP):
        strip = B.cut(low, min(low + STRIP, len(B.unit)))
        _meet(A, strip, _turned(strip, columns), mine, theirs[low : low + STRIP], cosine)
    return mine, theirs


def search(asking: list[Sketch], B: Sketch, lists: list[Array], columns: int, cosine: bool) -> None:
    """Offer all of B to the lists of several sketches; no row to its own."""
    for low in range(0, len(B.unit), STRIP):
        strip = B.cut(low, min(low + STRIP, len(B.unit)))
        turned, theirs = _turned(strip, columns), np.full((len(strip.unit), 1), np.iinfo(np.int64).max)
        for A, codes in zip(asking, lists, strict=True):
            _meet(A, strip, turned, codes, theirs, cosine)


def _turned(strip: Sketch, columns: int) -> Any:
    rows = len(strip.unit)
    return invert(strip.indptr, strip.indices, strip.data, 0, rows, columns, DENSE * rows)


@_jit
def _quantized(indptr, indices, data, unit, kept, columns):
    """csr of int8, what becomes zero left out; `columns`: room for its column numbers."""
    starts, values, q = np.zeros(len(indptr), np.int64), np.empty(len(indices), np.int8), 0
    for i in range(len(unit)):
        for p in range(indptr[i], indptr[i + 1]):
            if kept[indices[p]] and abs(data[p]) >= unit[i]:
                columns[q], values[q] = indices[p], min(max(np.float64(data[p]) / unit[i], -127.0), 127.0)
                q += 1
        starts[i + 1] = q
    return starts, columns[:q].copy(), values[:q].copy()


@_jit
def _meet(A, B, turned, codes, theirs, cosine):
    """Every row of A with a strip of B, for the lists of both; what B's lists get waits until it is handed over list by list.

    A row whose list is not full begins with the score that enough of the strip's rows reach.
    """
    width, last = len(B.unit), len(A.unit) - 1
    sums, scores, may, hits, lines, weights = _room(width, len(turned[1]))
    waiting, receiver, count = np.empty(WAITING + width, np.int64), np.empty(WAITING + width, np.int32), 0
    least_sums, least_scores = _leasts(theirs, cosine)
    q, guess = codes.shape[1], np.int64(1)
    for i in range(len(A.unit)):
        _add(sums, A, i, turned, lines, weights)
        itself, mine = A.first + i - B.first, _least(codes[i, -1], cosine)
        if cosine:
            if 0 <= itself < width:
                sums[itself] = 0
            if codes[i, -1] == NOBODY:
                mine = guess = _reached(sums, q, 1, MOST, guess)
            _mark(may, sums, np.int16(min(mine, MOST)), least_sums)
        else:
            _distances(scores, sums, A.unit[i], A.half[i], B.unit, B.half)
            if 0 <= itself < width:
                scores[itself] = -LAST
            if codes[i, -1] == NOBODY:
                mine = guess = _reached(scores, q, 1 - LAST, LAST, guess)
            _mark(may, scores, np.int32(mine), least_scores)
        for h in range(_hits(may, hits)):
            j = hits[h]
            score = np.int64(sums[j]) if cosine else np.int64(scores[j])
            if score >= mine:
                _insert(codes, i, _code(score, B.first + j))
                mine = max(mine, _least(codes[i, -1], cosine))
            waiting[count], receiver[count] = _code(score, A.first + i), j
            count += score >= least_scores[j]
        if count >= WAITING or i == last:
            _hand_over(waiting[:count], receiver[:count], theirs)
            least_sums, least_scores = _leasts(theirs, cosine)
            count = 0
        sums[:] = 0


@_jit
def _hand_over(waiting, receiver, codes):
    """In the order of the receivers, so that a list at a time is in the cache."""
    start, ordered = np.zeros(len(codes) + 2, np.int64), np.empty(len(waiting), np.int64)
    for j in receiver:
        start[j + 2] += 1
    start = np.cumsum(start)
    for w in range(len(waiting)):
        ordered[start[receiver[w] + 1]] = waiting[w]
        start[receiver[w] + 1] += 1
    for j in range(len(codes)):
        for w in range(start[j], start[j + 1]):
            _insert(codes, j, ordered[w])


@_jit
def _leasts(codes, cosine):
    """`_least` of each list, as 16 bits for sums and 32 for distances."""
    least = np.empty(len(codes), np.int32)
    for j in range(len(codes)):
        least[j] = _least(codes[j, -1], cosine)
    return np.minimum(least, MOST).astype(np.int16), least


@_jit
def _least(code, cosine):
    """The score that may follow a list's last: by cosine a row that shares nothing is no neighbour."""
    return max(code >> 32, 1 if cosine else 1 - LAST)


@_jit
def _room(width, columns):
    sums, scores, may = np.zeros(width, np.int16), np.zeros(width, np.int32), np.zeros(-(-width // 8) * 8, np.uint8)
    return sums, scores, may, np.empty(width + 8, np.int64), np.empty(columns, np.int32), np.empty(columns, np.int8)


@_jit
def _add(sums, A, i, turned, lines, weights):
    """A row's products with a strip: sums of integers don't depend on their order, so dense lines come last, four at a time."""
    indices, data = A.indices, A.data
    start, line, dense, rows, values = turned
    frequent = 0
    for p in range(A.indptr[i], A.indptr[i + 1]):
        t, x = indices[p], data[p]
        if line[t] >= 0:
            lines[frequent], weights[frequent] = line[t], x
            frequent += 1
        else:
            for q in range(start[t], start[t + 1]):
                sums[rows[q]] += x * values[q]
    f = 0
    while f + 4 <= frequent:
        a, b, c, d = dense[lines[f]], dense[lines[f + 1]], dense[lines[f + 2]], dense[lines[f + 3]]
        w, x, y, z = weights[f], weights[f + 1], weights[f + 2], weights[f + 3]
        for j in range(len(sums)):
            sums[j] += w * a[j] + x * b[j] + y * c[j] + z * d[j]
        f += 4
    for g in range(f, frequent):
        w, a = weights[g], dense[lines[g]]
        for j in range(len(sums)):
            sums[j] += w * a[j]


@_jit
def _distances(scores, sums, unit, half, units, halves):
    """x·y − ‖x‖²/2 − ‖y‖²/2, as integers in the order of these floats."""
    for j in range(len(sums)):
        bits = np.float32(np.float32(sums[j]) * (unit * units[j]) - (half + halves[j])).view(np.int32)
        scores[j] = bits ^ ((bits >> 31) & LAST)


@_jit
def _reached(scores, q, low, high, guess):
    """A score that q of them reach, and fewer than 2q where it can be told; `low` where fewer than q do."""
    while high - low > 1:
        middle = min(max(guess, low + 1), high - 1)
        count = _count(scores, scores.dtype.type(middle))
        if q <= count < 2 * q:
            return middle
        if count >= q:
            low = middle
        else:
            high = middle
        guess = (low + high) // 2
    return low


@_jit
def _count(scores, least):
    count = np.int32(0)
    for j in range(len(scores)):
        count += scores[j] >= least
    return count


@_jit
def _mark(may, scores, mine, least):
    for j in range(len(scores)):
        may[j] = scores[j] >= min(mine, least[j])


@_jit
def _hits(may, hits):
    """Where `may` is set: how many, the first of `hits`."""
    eights, count = may.view(np.uint64), 0
    eight = marked(eights, 0)
    while eight < len(eights):
        for j in range(8 * eight, 8 * eight + 8):
            hits[count] = j
            count += may[j]
        eight = marked(eights, eight + 1)
    return count


@_jit
def _code(score, number):
    return (score << 32) + (LAST - number)


@_jit
def _insert(codes, i, new):
    m = codes.shape[1] - 1
    if new > codes[i, m]:
        while m > 0 and codes[i, m - 1] < new:
            codes[i, m] = codes[i, m - 1]
            m -= 1
        codes[i, m] = new
