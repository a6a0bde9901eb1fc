"""The kernels of approximate kNN: all pairs of rows of two blocks in eight bits.

A row i of block A meets a strip of block B, whose rows are stored by term. The columns are of two
kinds. Screened columns are multiplied for every pair. The other columns are multiplied only for the
pairs that pass.

                    screened columns               other columns
              ┌──────────────────────────────┬──────────────────────────┐
    row i     │ values x of its terms        │ packed values            │
    of A      └──────────────────────────────┴──────────────────────────┘
                    │                              │
                    │ every pair (i, j)            │ passing pairs only
                    ▼                              ▼
              ┌──────────────────────────────┬──────────────────────────┐
    strip     │ rare terms: posting lists    │ packed values of row j,  │
    of B      │ frequent terms: dense lines  │ read once for all its    │
    (rows j)  │                              │ waiting pairs            │
              └──────────────────────────────┴──────────────────────────┘
                    │                              │
                    ▼                              ▼
     sums[j] = products + residual estimate ──▶ score ──▶ the lists of i and j
                    │ compared with
                    ▼
     min(threshold of i, threshold of j): most pairs end here
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from bigfs.graph.kernels.exact import NO_NEIGHBOR, InvertedStrip, find_marked
from bigfs.types import AnyArray

LEVELS = 181  # by Cauchy and Schwarz a product of two rows is at most 181², less than 2¹⁵
MAX_WAITING = 1 << 17  # passing pairs that wait to be completed together
UNREACHABLE_SUM = LEVELS * LEVELS + 1  # larger than every sum of a pair
MAX_ROW_ID = NO_NEIGHBOR  # larger than every row number

Int = int | np.integer[Any]

_jit = numba.njit(nogil=True, cache=True)


class Sketch(NamedTuple):
    """Rows in eight bits, in quanta of ‖x‖/181."""

    indptr: AnyArray  # (rows + 1,) int64
    indices: AnyArray  # column numbers, uint16 if they fit, else int32
    data: AnyArray  # int8
    other_indptr: AnyArray  # (rows + 1,) int64: bounds of each row in `packed`
    packed: AnyArray  # uint32
    n_columns: int  # of the whole matrix
    n_unscreened: int  # other columns
    # (rows,) int8: residual_estimate[i] · residual_estimate[j] estimates the product of the rows
    # i and j over the other columns
    residual_estimate: AnyArray
    first: int  # number of the first row in the whole matrix
    unit: AnyArray  # (rows,) float32: the quantum of each row
    half: AnyArray  # (rows,) float32: ‖x‖²/2

    def rows_between(self, low: int, high: int) -> Sketch:
        start, stop = self.indptr[[low, high]]
        other_start, other_stop = self.other_indptr[[low, high]]
        return self._replace(
            indptr=self.indptr[low : high + 1] - start,
            indices=self.indices[start:stop],
            data=self.data[start:stop],
            other_indptr=self.other_indptr[low : high + 1] - other_start,
            packed=self.packed[other_start:other_stop],
            residual_estimate=self.residual_estimate[low:high],
            first=self.first + low,
            unit=self.unit[low:high],
            half=self.half[low:high],
        )


class CandidateLists(NamedTuple):
    """The best candidates of each row of a block, and the scores that pairs must reach."""

    # (rows, q) int64, decreasing: the score in the upper half, the other row in the lower half
    codes: AnyArray
    thresholds: AnyArray  # (rows,) int32

    def rows_between(self, low: int, high: int) -> CandidateLists:
        """Return the lists of the rows [low, high), as views."""
        return CandidateLists(self.codes[low:high], self.thresholds[low:high])


@_jit
def quantize(
    indptr: AnyArray,
    indices: AnyArray,
    data: AnyArray,
    unit: AnyArray,
    unscreened: AnyArray,
    column_buffer: AnyArray,
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray, AnyArray, AnyArray]:
    """Divide the rows of a csr matrix by their quanta and split them by kind of column."""
    n_rows = len(unit)
    starts = np.zeros(len(indptr), np.int64)
    values = np.empty(len(indices), np.int8)
    n_values = 0
    other_starts = np.zeros(len(indptr), np.int64)
    packed = np.empty(len(indices), np.uint32)
    n_packed = 0
    other_squares = np.zeros(n_rows)
    for i in range(n_rows):
        for p in range(indptr[i], indptr[i + 1]):
            if abs(data[p]) >= unit[i] > 0:
                value = np.int8(min(max(np.float64(data[p]) / unit[i], -127.0), 127.0))
                number = unscreened[indices[p]]
                if number < 0:
                    column_buffer[n_values] = indices[p]
                    values[n_values] = value
                    n_values += 1
                else:
                    packed[n_packed] = (np.uint32(number) << np.uint32(8)) | np.uint8(value)
                    other_squares[i] += np.float64(value) * np.float64(value)
                    n_packed += 1
        starts[i + 1] = n_values
        other_starts[i + 1] = n_packed
    return (
        starts,
        column_buffer[:n_values].copy(),
        values[:n_values].copy(),
        other_starts,
        packed[:n_packed].copy(),
        other_squares,
    )


@_jit
def compare_with_strip(
    A: Sketch,
    B: Sketch,
    strip: InvertedStrip,
    lists_a: CandidateLists,
    lists_b: CandidateLists,
    cosine: bool,
    same: bool,
) -> None:
    """Compare every row of A with the strip B, or each pair i < j once if they are `same`.

    Passing pairs wait and are completed together.
    """
    width = len(B.unit)
    last = len(A.unit) - 1
    first = 0
    sums, distances, terms = _buffers(A, B)
    begin = strip.start.copy()
    thresholds = lists_b.thresholds
    sum_thresholds = lists_b.thresholds.astype(np.int16)
    may_pass = np.zeros(-(-width // 64) * 64, np.uint8)
    marked_eights = np.empty(len(may_pass) // 8, np.int64)
    hits = np.empty(len(may_pass), np.int64)
    waiting = np.empty((MAX_WAITING + width, 3), np.int32)
    n_waiting = 0
    for i in range(len(A.unit)):
        if same:
            first = i + 1
            sums[i] = 0
        _add_products(sums, A, i, B, strip, begin, terms, first, same)
        if cosine:
            _mark(may_pass, sums, np.int16(lists_a.thresholds[i]), sum_thresholds)
        else:
            _distances(distances, sums, A.unit[i], A.half[i], B.unit, B.half)
            _mark(may_pass, distances, lists_a.thresholds[i], thresholds)
        for j in hits[: find_marked(may_pass, marked_eights, hits)]:
            waiting[n_waiting, 0] = j
            waiting[n_waiting, 1] = i
            waiting[n_waiting, 2] = sums[j]
            n_waiting += j >= first
        if n_waiting >= MAX_WAITING or i == last:
            _complete(waiting[:n_waiting], A, B, lists_a.codes, lists_b.codes, cosine)
            n_waiting = 0


@_jit
def _complete(
    waiting: AnyArray, A: Sketch, B: Sketch, codes_a: AnyArray, codes_b: AnyArray, cosine: bool
) -> None:
    """Add the other columns of the waiting pairs and offer the pairs to both lists."""
    start, pairs = _group_by_row(waiting, len(B.unit))
    row = np.zeros(A.n_unscreened, np.int32)  # the current row of B, dense
    other_indptr, packed = A.other_indptr, A.packed
    for j in range(len(B.unit)):
        if start[j] < start[j + 1]:
            for p in range(B.other_indptr[j], B.other_indptr[j + 1]):
                row[B.packed[p] >> np.uint32(8)] = np.int8(B.packed[p])
            for w in range(start[j], start[j + 1]):
                i = pairs[w, 0]
                total = pairs[w, 1] - np.int32(A.residual_estimate[i]) * np.int32(
                    B.residual_estimate[j]
                )
                for p in range(other_indptr[i], other_indptr[i + 1]):
                    total += row[packed[p] >> np.uint32(8)] * np.int8(packed[p])
                score = (
                    total
                    if cosine
                    else _distance(total, A.unit[i], A.half[i], B.unit[j], B.half[j])
                )
                if score > 0 or not cosine:
                    _insert(codes_a, i, _code(score, B.first + j))
                    _insert(codes_b, j, _code(score, A.first + i))
            for p in range(B.other_indptr[j], B.other_indptr[j + 1]):
                row[B.packed[p] >> np.uint32(8)] = 0


@_jit
def _group_by_row(waiting: AnyArray, n_rows: int) -> tuple[AnyArray, AnyArray]:
    """Return where the pairs of each row of B start, and the pairs in the order of these rows."""
    start = np.zeros(n_rows + 2, np.int64)
    pairs = np.empty((len(waiting), 2), np.int32)
    for w in range(len(waiting)):
        start[waiting[w, 0] + 2] += 1
    start = np.cumsum(start)
    for w in range(len(waiting)):
        position = start[waiting[w, 0] + 1]
        pairs[position, 0] = waiting[w, 1]
        pairs[position, 1] = waiting[w, 2]
        start[waiting[w, 0] + 1] += 1
    return start, pairs


@_jit
def _buffers(
    A: Sketch, B: Sketch
) -> tuple[AnyArray, AnyArray, tuple[AnyArray, AnyArray, AnyArray, AnyArray]]:
    """Return the buffers of a comparison: sums and distances of a strip, and a row's terms."""
    width = len(B.unit)
    longest = 0
    for i in range(len(A.unit)):
        longest = max(longest, A.indptr[i + 1] - A.indptr[i])
    list_bounds = np.empty((longest, 2), np.uint32)
    list_factors = np.empty(longest, np.int8)
    line_numbers = np.empty(longest, np.int32)
    line_factors = np.empty(longest, np.int8)
    return (
        np.zeros(width, np.int16),
        np.zeros(width, np.int32),
        (list_bounds, list_factors, line_numbers, line_factors),
    )


@_jit
def _add_products(
    sums: AnyArray,
    A: Sketch,
    i: Int,
    B: Sketch,
    strip: InvertedStrip,
    begin: AnyArray,
    terms: tuple[AnyArray, AnyArray, AnyArray, AnyArray],
    first: Int,
    same: bool,
) -> None:
    """Set the sums of row i with a strip, from the strip's row `first` on."""
    start, line, lines, rows, values = strip
    list_bounds, list_factors, line_numbers, line_factors = terms
    n_lists = 0
    n_lines = 0
    estimate = A.residual_estimate[i]
    later = sums[first:]
    estimates = B.residual_estimate[first:]
    for j in range(len(later)):
        later[j] = estimate * estimates[j]
    for p in range(A.indptr[i], A.indptr[i + 1]):
        t, x = A.indices[p], A.data[p]
        if line[t] >= 0:
            line_numbers[n_lines] = line[t]
            line_factors[n_lines] = x
            n_lines += 1
        else:
            begin[t] += np.uint32(same)
            list_bounds[n_lists, 0] = begin[t]
            list_bounds[n_lists, 1] = start[t + 1]
            list_factors[n_lists] = x
            n_lists += 1
    for r in range(n_lists):
        x = list_factors[r]
        for q in range(list_bounds[r, 0], list_bounds[r, 1]):
            sums[rows[q]] += x * values[q]
    f = 0
    while f + 4 <= n_lines:
        line0 = lines[line_numbers[f], first:]
        line1 = lines[line_numbers[f + 1], first:]
        line2 = lines[line_numbers[f + 2], first:]
        line3 = lines[line_numbers[f + 3], first:]
        x0, x1, x2, x3 = (
            line_factors[f],
            line_factors[f + 1],
            line_factors[f + 2],
            line_factors[f + 3],
        )
        for j in range(len(later)):
            later[j] += x0 * line0[j] + x1 * line1[j] + x2 * line2[j] + x3 * line3[j]
        f += 4
    for g in range(f, n_lines):
        x0 = line_factors[g]
        line0 = lines[line_numbers[g], first:]
        for j in range(len(later)):
            later[j] += x0 * line0[j]


@_jit
def _mark(may_pass: AnyArray, scores: AnyArray, threshold: Int, thresholds: AnyArray) -> None:
    """Mark the scores that reach the threshold of either row, without a branch."""
    for j in range(len(scores)):
        may_pass[j] = scores[j] >= min(threshold, thresholds[j])


@_jit
def _code(score: Int, number: Int) -> Int:
    """Return one integer that orders by score, then by lower row number."""
    return (np.int64(score) << 32) + (MAX_ROW_ID - number)


@_jit
def _insert(codes: AnyArray, i: Int, code: Int) -> None:
    """Insert a code into the decreasing list of row i, if it is large enough."""
    m = codes.shape[1] - 1
    if code > codes[i, m]:
        while m > 0 and codes[i, m - 1] < code:
            codes[i, m] = codes[i, m - 1]
            m -= 1
        codes[i, m] = code


@_jit
def _distances(
    distances: AnyArray,
    sums: AnyArray,
    unit: float,
    half: float,
    units: AnyArray,
    halves: AnyArray,
) -> None:
    """Set the scores of one row with a strip for the Euclidean metric."""
    for j in range(len(sums)):
        distances[j] = _distance(sums[j], unit, half, units[j], halves[j])


@_jit
def _distance(product: Int, unit_a: float, half_a: float, unit_b: float, half_b: float) -> Int:
    """Return x·y − ‖x‖²/2 − ‖y‖²/2 as an integer that orders as this float does."""
    bits = np.float32(np.float32(product) * (unit_a * unit_b) - (half_a + half_b)).view(np.int32)
    return bits ^ ((bits >> 31) & MAX_ROW_ID)


@_jit
def distances_of_pairs(
    sums: AnyArray, units_a: AnyArray, halves_a: AnyArray, units_b: AnyArray, halves_b: AnyArray
) -> AnyArray:
    """Return the Euclidean scores of pairs, one per element of the arrays."""
    scores = np.empty(len(sums), np.int32)
    for i in range(len(sums)):
        scores[i] = _distance(sums[i], units_a[i], halves_a[i], units_b[i], halves_b[i])
    return scores


@_jit
def sample_thresholds(
    A: Sketch, itself: AnyArray, sample: Sketch, strip: InvertedStrip, ranks: AnyArray, cosine: bool
) -> tuple[AnyArray, AnyArray]:
    """Return each row's threshold per rank, and how many sampled rows reach it."""
    if cosine:
        low, high = 1, UNREACHABLE_SUM
    else:
        low, high = 1 - MAX_ROW_ID, MAX_ROW_ID
    thresholds = np.empty((len(A.unit), len(ranks)), np.int32)
    n_reaching = np.empty((len(A.unit), len(ranks)), np.int32)
    guess: Int = np.int64(low)
    sums, distances, terms = _buffers(A, sample)
    for i in range(len(A.unit)):
        _add_products(sums, A, i, sample, strip, strip.start, terms, 0, False)
        if cosine:
            if itself[i] >= 0:
                sums[itself[i]] = 0
            for r in range(len(ranks)):
                guess = _rank_score(sums, ranks[r], low, high, guess)
                thresholds[i, r] = guess
                n_reaching[i, r] = _count_reaching(sums, np.int16(guess))
        else:
            _distances(distances, sums, A.unit[i], A.half[i], sample.unit, sample.half)
            if itself[i] >= 0:
                distances[itself[i]] = -MAX_ROW_ID
            for r in range(len(ranks)):
                guess = _rank_score(distances, ranks[r], low, high, guess)
                thresholds[i, r] = guess
                n_reaching[i, r] = _count_reaching(distances, np.int32(guess))
    return thresholds, n_reaching


@_jit
def _rank_score(scores: AnyArray, rank: Int, low: Int, high: Int, guess: Int) -> Int:
    """Return the largest value that `rank` of the scores reach, or `low` if fewer reach it.

    The search starts at a guess. Its steps double until they enclose the value, then halve.
    """
    step = 16
    middle = min(max(guess, low + 1), high - 1)
    while high - low > 1:
        if _count_reaching(scores, scores.dtype.type(middle)) >= rank:
            low = middle
            middle += step
        else:
            high = middle
            middle -= step
        step *= 2
        if not low < middle < high:
            middle = (low + high) // 2
    return low


@_jit
def _count_reaching(scores: AnyArray, threshold: Int) -> Int:
    count = np.int16(0)  # the rows of a strip fit
    for j in range(len(scores)):
        count = np.int16(count + np.int16(scores[j] >= threshold))
    return count


@_jit
def split_products(
    A: Sketch, B: Sketch, screen: AnyArray
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Return the products of each row of A with the same row of B, split by a mask of columns.

    A and B must have all their columns screened.
    """
    n_rows = len(A.unit)
    products = np.zeros((2, n_rows), np.int32)
    other_squares_a = np.zeros(n_rows)
    other_squares_b = np.zeros(n_rows)
    row = np.zeros(len(screen), np.int32)  # the current row of A, dense
    for i in range(n_rows):
        for p in range(A.indptr[i], A.indptr[i + 1]):
            t, x = A.indices[p], A.data[p]
            row[t] = x
            other_squares_a[i] += 0 if screen[t] else np.float64(x) ** 2
        for q in range(B.indptr[i], B.indptr[i + 1]):
            t, x = B.indices[q], B.data[q]
            products[0 if screen[t] else 1, i] += row[t] * x
            other_squares_b[i] += 0 if screen[t] else np.float64(x) ** 2
        for p in range(A.indptr[i], A.indptr[i + 1]):
            row[A.indices[p]] = 0
    return products[0], products[1], other_squares_a, other_squares_b
