"""The compiled kernels of `bigfs.graph.sketch`."""

from __future__ import annotations

import numba
import numpy as np

from bigfs.graph.kernels.exact import NONE

LEVELS = 181  # the product of two rows is at most 181² < 2¹⁵, by Cauchy and Schwarz


WAITING = 1 << 17  # pairs that wait to be completed


MOST = LEVELS * LEVELS + 1  # a sum that no pair has


LAST = NONE  # above all numbers of rows


_jit = numba.njit(nogil=True, cache=True)


@_jit
def _quantized(indptr, indices, data, unit, place, room):
    """csr of int8 of the screen (`room`: for its column numbers), and the other columns packed;
    what becomes zero left out.
    """
    starts, values, q = np.zeros(len(indptr), np.int64), np.empty(len(indices), np.int8), 0
    others, packed, r = np.zeros(len(indptr), np.int64), np.empty(len(indices), np.uint32), 0
    squares = np.zeros(len(unit))  # of the other columns, in quanta
    for i in range(len(unit)):
        for p in range(indptr[i], indptr[i + 1]):
            if abs(data[p]) >= unit[i] > 0:
                value, number = (
                    np.int8(min(max(np.float64(data[p]) / unit[i], -127.0), 127.0)),
                    place[indices[p]],
                )
                if number < 0:
                    room[q], values[q] = indices[p], value
                    q += 1
                else:
                    packed[r] = (np.uint32(number) << np.uint32(8)) | np.uint8(value)
                    squares[i] += np.float64(value) * np.float64(value)
                    r += 1
        starts[i + 1], others[i + 1] = q, r
    return starts, room[:q].copy(), values[:q].copy(), others, packed[:r].copy(), squares


@_jit
def _meet(A, B, turned, of_a, of_b, cosine, same):
    """Every row of A with a strip of B; one strip with itself (`same`): each pair once.

    Pairs that pass wait to be completed together.
    """
    width, last, first = len(B.unit), len(A.unit) - 1, 0
    sums, far, terms = _room(A, B)
    begin, asked, sums_asked = turned[0].copy(), of_b.asked, of_b.asked.astype(np.int16)
    may = np.zeros(-(-width // 64) * 64, np.uint8)
    some, hits = np.empty(len(may) // 8, np.int64), np.empty(len(may), np.int64)
    passed, count = np.empty((WAITING + width, 3), np.int32), 0
    for i in range(len(A.unit)):
        if same:
            first, sums[i] = i + 1, 0
        _add(sums, A, i, B, turned, begin, terms, first, same)
        if cosine:
            _mark(may, sums, np.int16(of_a.asked[i]), sums_asked)
        else:
            _distances(far, sums, A.unit[i], A.half[i], B.unit, B.half)
            _mark(may, far, of_a.asked[i], asked)
        for j in hits[: _hits(may, some, hits)]:
            passed[count, 0], passed[count, 1], passed[count, 2] = j, i, sums[j]
            count += j >= first
        if count >= WAITING or i == last:
            _complete(passed[:count], A, B, of_a.codes, of_b.codes, cosine)
            count = 0


@_jit
def _complete(passed, A, B, mine, theirs, cosine):
    """Pairs (row of B, row of A, sum over the screen and what is expected) completed by the other
    columns, and offered to both lists.

    In the order of B's rows: each is read once, and A's are few enough for the cache.
    """
    start, pairs = _by_first(passed, len(B.unit))
    row, others, packed = np.zeros(A.beside, np.int32), A.others, A.packed
    for j in range(len(B.unit)):
        if start[j] < start[j + 1]:
            for p in range(B.others[j], B.others[j + 1]):
                row[B.packed[p] >> np.uint32(8)] = np.int8(B.packed[p])
            for w in range(start[j], start[j + 1]):
                i = pairs[w, 0]
                total = pairs[w, 1] - np.int32(A.expected[i]) * np.int32(B.expected[j])
                for p in range(others[i], others[i + 1]):
                    total += row[packed[p] >> np.uint32(8)] * np.int8(packed[p])
                score = (
                    total
                    if cosine
                    else _distance(total, A.unit[i], A.half[i], B.unit[j], B.half[j])
                )
                if score > 0 or not cosine:
                    _insert(mine, i, _code(score, B.first + j))
                    _insert(theirs, j, _code(score, A.first + i))
            for p in range(B.others[j], B.others[j + 1]):
                row[B.packed[p] >> np.uint32(8)] = 0


@_jit
def _by_first(passed, rows):
    """(where each row's pairs start, the pairs in the order of these rows)"""
    start, pairs = np.zeros(rows + 2, np.int64), np.empty((len(passed), 2), np.int32)
    for w in range(len(passed)):
        start[passed[w, 0] + 2] += 1
    start = np.cumsum(start)
    for w in range(len(passed)):
        to = start[passed[w, 0] + 1]
        pairs[to, 0], pairs[to, 1] = passed[w, 1], passed[w, 2]
        start[passed[w, 0] + 1] += 1
    return start, pairs


@_jit
def _room(A, B):
    """(sums, scores, and of one row: the posting lists' bounds and factors, the dense lines and
    theirs)
    """
    width, longest = len(B.unit), 0
    for i in range(len(A.unit)):
        longest = max(longest, A.indptr[i + 1] - A.indptr[i])
    lists, lines = np.empty((longest, 2), np.uint32), np.empty(longest, np.int32)
    return (
        np.zeros(width, np.int16),
        np.zeros(width, np.int32),
        (lists, np.empty(longest, np.int8), lines, np.empty(longest, np.int8)),
    )


@_jit
def _add(sums, A, i, B, turned, begin, terms, first, same):
    """A row's products with a strip, from its row `first` on, over the screen, and what is expected
    of the other columns.

    Sums of integers don't depend on their order: posting lists come first, then dense lines, four
    at a time. In a strip with itself (`same`) row i is the first that is left of its posting lists
    (`begin`).
    """
    start, line, dense, rows, values = turned
    lists, factors, lines, weights = terms
    rare, frequent, expected, later, theirs = 0, 0, A.expected[i], sums[first:], B.expected[first:]
    for j in range(len(later)):
        later[j] = expected * theirs[j]
    for p in range(A.indptr[i], A.indptr[i + 1]):
        t, x = A.indices[p], A.data[p]
        if line[t] >= 0:
            lines[frequent], weights[frequent] = line[t], x
            frequent += 1
        else:
            begin[t] += np.uint32(same)
            lists[rare, 0], lists[rare, 1], factors[rare] = begin[t], start[t + 1], x
            rare += 1
    for r in range(rare):
        x = factors[r]
        for q in range(lists[r, 0], lists[r, 1]):
            sums[rows[q]] += x * values[q]
    f = 0
    while f + 4 <= frequent:
        a, b, c, d = (
            dense[lines[f], first:],
            dense[lines[f + 1], first:],
            dense[lines[f + 2], first:],
            dense[lines[f + 3], first:],
        )
        w, x, y, z = weights[f], weights[f + 1], weights[f + 2], weights[f + 3]
        for j in range(len(later)):
            later[j] += w * a[j] + x * b[j] + y * c[j] + z * d[j]
        f += 4
    for g in range(f, frequent):
        w, a = weights[g], dense[lines[g], first:]
        for j in range(len(later)):
            later[j] += w * a[j]


@_jit
def _mark(may, scores, mine, asked):
    for j in range(len(scores)):
        may[j] = scores[j] >= min(mine, asked[j])


@_jit
def _hits(may, some, hits):
    """Where `may` is set: how many, the first of `hits`.

    In steps without a branch that can't be foretold: by 64, by 8, then each.
    """
    eights, groups = may.view(np.uint64), len(may) // 64
    a, b, c, d, e, f, g, h = [eights[k * groups : (k + 1) * groups] for k in range(8)]
    count = 0
    for k in range(groups):
        hits[count] = k
        count += (a[k] | b[k] | c[k] | d[k] | e[k] | f[k] | g[k] | h[k]) != 0
    marked = 0
    for k in hits[:count]:
        for eight in range(k, 8 * groups, groups):
            some[marked] = eight
            marked += eights[eight] != 0
    count = 0
    for eight in some[:marked]:
        for j in range(8 * eight, 8 * eight + 8):
            hits[count] = j
            count += may[j]
    return count


@_jit
def _code(score, number):
    return (np.int64(score) << 32) + (LAST - number)


@_jit
def _insert(codes, i, new):
    m = codes.shape[1] - 1
    if new > codes[i, m]:
        while m > 0 and codes[i, m - 1] < new:
            codes[i, m] = codes[i, m - 1]
            m -= 1
        codes[i, m] = new


@_jit
def _distances(far, sums, unit, half, units, halves):
    for j in range(len(sums)):
        far[j] = _distance(sums[j], unit, half, units[j], halves[j])


@_jit
def _distance(total, unit, half, other_unit, other_half):
    """x·y − ‖x‖²/2 − ‖y‖²/2, as an integer in the order of these floats."""
    bits = np.float32(np.float32(total) * (unit * other_unit) - (half + other_half)).view(np.int32)
    return bits ^ ((bits >> 31) & LAST)


@_jit
def _scores(sums, units, halves, other_units, other_halves):
    made = np.empty(len(sums), np.int32)
    for i in range(len(sums)):
        made[i] = _distance(sums[i], units[i], halves[i], other_units[i], other_halves[i])
    return made


@_jit
def _asked(A, itself, sample, turned, ranks, cosine):
    low, high = (1, MOST) if cosine else (1 - LAST, LAST)
    made, reached, guess = (
        np.empty((len(A.unit), len(ranks)), np.int32),
        np.empty((len(A.unit), len(ranks)), np.int32),
        np.int64(low),
    )
    sums, far, terms = _room(A, sample)
    for i in range(len(A.unit)):
        _add(sums, A, i, sample, turned, turned[0], terms, 0, False)
        if cosine:
            if itself[i] >= 0:
                sums[itself[i]] = 0
            for r in range(len(ranks)):
                made[i, r] = guess = _reached(sums, ranks[r], low, high, guess)
                reached[i, r] = _count(sums, np.int16(guess))
        else:
            _distances(far, sums, A.unit[i], A.half[i], sample.unit, sample.half)
            if itself[i] >= 0:
                far[itself[i]] = -LAST
            for r in range(len(ranks)):
                made[i, r] = guess = _reached(far, ranks[r], low, high, guess)
                reached[i, r] = _count(far, np.int32(guess))
    return made, reached


@_jit
def _reached(scores, rank, low, high, guess):
    """The highest that `rank` of them reach; `low` where fewer do.

    Found from a guess in steps that double, then by halves.
    """
    step, middle = 16, min(max(guess, low + 1), high - 1)
    while high - low > 1:
        if _count(scores, scores.dtype.type(middle)) >= rank:
            low, middle = middle, middle + step
        else:
            high, middle = middle, middle - step
        step *= 2
        if not low < middle < high:
            middle = (low + high) // 2
    return low


@_jit
def _count(scores, least):
    count = np.int16(0)  # a strip's rows fit
    for j in range(len(scores)):
        count = np.int16(count + np.int16(scores[j] >= least))
    return count


@_jit
def _split(ap, ai, ax, bp, bi, bx, screen):
    n = len(ap) - 1
    made, of_a, of_b, row = (
        np.zeros((2, n), np.int32),
        np.zeros(n),
        np.zeros(n),
        np.zeros(len(screen), np.int32),
    )
    for i in range(n):
        for p in range(ap[i], ap[i + 1]):
            row[ai[p]] = ax[p]
            of_a[i] += 0 if screen[ai[p]] else np.float64(ax[p]) ** 2
        for q in range(bp[i], bp[i + 1]):
            made[0 if screen[bi[q]] else 1, i] += row[bi[q]] * bx[q]
            of_b[i] += 0 if screen[bi[q]] else np.float64(bx[q]) ** 2
        for p in range(ap[i], ap[i + 1]):
            row[ai[p]] = 0
    return made[0], made[1], of_a, of_b
