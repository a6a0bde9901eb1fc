"""The hot spot of approximate kNN: every pair of rows of two blocks in eight bits, and the q best
of each row.

A sketch is a block of rows in quanta of ‖x‖/181, so that the sum of a pair of rows fits in sixteen
bits. Its columns are of two kinds. Those of the screen are multiplied for all pairs, by posting
lists and dense lines as in `kernel.py`. A pair whose sum over the screen reaches what either row
asks is completed by the other columns, which are few and frequent, and offered to the lists of
both.

What a row asks is the sum that a fixed sample of rows says few will reach: it is known beforehand,
so most pairs cost one comparison, and which are completed depends neither on the blocks nor on
their order. A row's best are kept as one integer each, the score above and the other row below, in
decreasing order: of equal scores the lower row first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigfs.graph.kernels.exact import Side, invert
from bigfs.graph.kernels.sketch import (
    LAST,
    LEVELS,
    MOST,
    _asked,
    _meet,
    _quantized,
    _scores,
    _split,
)
from bigfs.types import AnyArray

# rows whose sums gather together: a short posting list costs more to find than to add (measured)
STRIP = 24576
DENSE = 0.04  # a term in this share of a strip's rows is cheaper as a dense line (measured)
NARROW = 1 << 16  # columns whose numbers fit in sixteen bits
LEFT_OUT = 1 << 24  # columns beside the screen, at most: a number and a value share 32 bits
NOBODY = np.iinfo(np.int64).min
CLOSED = np.iinfo(np.int64).max


class Sketch(NamedTuple):
    """Rows in eight bits; the first is number `first` of the whole matrix.

    `indptr`, `indices` (16 bits where they fit), `data` (int8): csr of the screen; `columns`: of
    the whole matrix. `others`, `packed`: starts and entries of the `beside` other columns, 256 ·
    column's number among them + value (as uint8). `expected` (int8): the product of two rows' is
    what their other columns are expected to add. `unit`, `half` (float32): a row's quantum, and
    ‖x‖²/2.
    """

    indptr: AnyArray
    indices: AnyArray
    data: AnyArray
    others: AnyArray
    packed: AnyArray
    columns: int
    beside: int
    expected: AnyArray
    first: int
    unit: AnyArray
    half: AnyArray

    def cut(self, low: int, high: int) -> Sketch:
        (start, stop), (after, end) = self.indptr[[low, high]], self.others[[low, high]]
        indptr, others = self.indptr[low : high + 1] - start, self.others[low : high + 1] - after
        screen = indptr, self.indices[start:stop], self.data[start:stop]
        expected, unit, half = (rows[low:high] for rows in (self.expected, self.unit, self.half))
        return Sketch(
            *screen,
            others,
            self.packed[after:end],
            self.columns,
            self.beside,
            expected,
            self.first + low,
            unit,
            half,
        )


class Best(NamedTuple):
    """The lists of a block's rows: `codes` (rows × q int64), and `asked` (rows, int32): the score
    that a pair must reach.
    """

    codes: AnyArray
    asked: AnyArray

    def part(self, low: int, high: int) -> Best:
        return Best(self.codes[low:high], self.asked[low:high])


def beside(screen: AnyArray) -> AnyArray:
    """For a screen (mask of columns): (d,) int32, the numbers of the other columns, −1 for its own
    (and for those beyond `LEFT_OUT`).
    """
    screen = screen | (np.cumsum(~screen) > LEFT_OUT)
    return np.where(screen, -1, np.cumsum(~screen) - 1).astype(np.int32)


def sketch(block: Side, place: AnyArray, alike: float) -> Sketch:
    """The block in eight bits, rounded towards zero.

    `place`: which columns are of the screen, see `beside`; `alike`: the cosine that two rows' other
    columns are expected to have.
    """
    unit = np.sqrt(block.squares) / LEVELS
    small = np.uint16 if len(place) <= NARROW else np.int32
    room = np.empty(block.rows.nnz, small)
    indptr, indices, data, others, packed, squares = _quantized(
        block.rows.indptr, block.rows.indices, block.rows.data, unit, place, room
    )
    sizes = len(place), int(place.max(initial=-1)) + 1
    expected, half = _expected(squares, alike), (block.squares / 2).astype(np.float32)
    return Sketch(
        indptr,
        indices,
        data,
        others,
        packed,
        *sizes,
        expected,
        block.first,
        unit.astype(np.float32),
        half,
    )


def _expected(squares: AnyArray, alike: float) -> AnyArray:
    return np.minimum(np.sqrt(alike * squares), 127).astype(np.int8)


def joined(parts: list[Sketch]) -> Sketch:
    """Sketches of rows that follow each other, as one."""
    indices, data, packed, expected, unit, half = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("indices", "data", "packed", "expected", "unit", "half")
    )
    indptr, others = (
        _continued([getattr(part, name) for part in parts]) for name in ("indptr", "others")
    )
    return Sketch(
        indptr,
        indices,
        data,
        others,
        packed,
        parts[0].columns,
        parts[0].beside,
        expected,
        parts[0].first,
        unit,
        half,
    )


def _continued(starts: list[AnyArray]) -> AnyArray:
    sizes = np.cumsum([0, *(part[-1] for part in starts)])
    return np.concatenate(
        [[0], *(part[1:] + size for part, size in zip(starts, sizes[:-1], strict=True))]
    )


def found(codes: AnyArray) -> AnyArray:
    """The numbers of the rows in such lists, int32; `LAST` where there is none."""
    return np.where(codes == NOBODY, LAST, LAST - (codes & LAST)).astype(np.int32)


def asked(
    A: Sketch, numbers: AnyArray, sample: Sketch, sampled: AnyArray, ranks: list[int], cosine: bool
) -> tuple[AnyArray, AnyArray]:
    """(rows, ranks) int32: the highest score over the screen that so many rows of a sample reach,
    and how many do.

    `numbers`: of A's rows in the whole matrix; `sampled`: of the sample's, increasing. A row does
    not count itself.
    """
    itself = np.searchsorted(sampled, numbers)
    itself = np.where(sampled[np.minimum(itself, len(sampled) - 1)] == numbers, itself, -1)
    return _asked(A, itself, sample, _turned(sample), np.array(ranks), cosine)


def inside(A: Sketch, asked: AnyArray, q: int, cosine: bool) -> Best:
    """The q best of each row within its own block."""
    n = len(A.unit)
    best = Best(np.full((n, q), NOBODY), asked)
    for low in range(0, n, STRIP):
        high = min(low + STRIP, n)
        strip, theirs = A.cut(low, high), best.part(low, high)
        turned = _turned(strip)
        _meet(strip, strip, turned, theirs, theirs, cosine, True)
        _meet(A.cut(high, n), strip, turned, best.part(high, n), theirs, cosine, False)
    return best


def meet(A: Sketch, B: Sketch, of_a: Best, of_b: Best, cosine: bool) -> tuple[Best, Best]:
    """The lists of both blocks, as they are when each has met the other."""
    mine, theirs = (Best(best.codes.copy(), best.asked) for best in (of_a, of_b))
    _search(A, B, mine, theirs, cosine)
    return mine, theirs


def search(A: Sketch, B: Sketch, of_a: Best, cosine: bool) -> None:
    """Offer all of B to A's lists, and nothing to B's."""
    n = len(B.unit)
    _search(
        A,
        B,
        of_a,
        Best(np.full((n, 1), CLOSED), np.full(n, MOST if cosine else LAST, np.int32)),
        cosine,
    )


def _search(A: Sketch, B: Sketch, mine: Best, theirs: Best, cosine: bool) -> None:
    for low in range(0, len(B.unit), STRIP):
        high = min(low + STRIP, len(B.unit))
        strip = B.cut(low, high)
        _meet(A, strip, _turned(strip), mine, theirs.part(low, high), cosine, False)


def _turned(strip: Sketch) -> Any:
    rows = len(strip.unit)
    return invert(strip.indptr, strip.indices, strip.data, 0, rows, strip.columns, DENSE * rows)


def split(A: Sketch, B: Sketch, screen: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Each row of A with the same row of B: products over a screen (mask), over the other columns,
    and both rows' squares over these.

    A and B have all their columns as a screen.
    """
    return _split(A.indptr, A.indices, A.data, B.indptr, B.indices, B.data, screen)


def scores(
    within: AnyArray,
    squares: AnyArray,
    other_squares: AnyArray,
    alike: float,
    A: Sketch,
    B: Sketch,
    cosine: bool,
) -> AnyArray:
    """What such pairs (see `split`) score over the screen."""
    ours, theirs = (_expected(part, alike).astype(np.int32) for part in (squares, other_squares))
    return (
        within + ours * theirs
        if cosine
        else _scores(within + ours * theirs, A.unit, A.half, B.unit, B.half)
    )


# --- compiled -----------------------------------------------------------------------------------
