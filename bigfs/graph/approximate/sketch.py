"""Sketches of rows in eight bits, and the q best candidates of each row by them.

A sketch holds a block of rows in quanta of ‖x‖/181, so the sum of a pair of rows fits in sixteen
bits. The screened columns are multiplied for every pair, by posting lists and dense lines as in
`kernels.exact`. A pair passes if its sum over them reaches the threshold of either row. For passing
pairs the other columns, which are few and frequent, are added. The pair is then offered to the
lists of both rows.

A row's threshold is fixed beforehand from a sample, so most pairs are rejected by one comparison,
and the set of passing pairs does not depend on the blocks or their order. A candidate is stored as
one integer, with the score in the upper half and the other row in the lower half. The lists
decrease, and of equal scores the lower row comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bigfs.graph.kernels import sketch as kernels
from bigfs.graph.kernels.exact import InvertedStrip, KernelBlock, invert
from bigfs.graph.kernels.sketch import (
    LEVELS,
    MAX_ROW_ID,
    UNREACHABLE_SUM,
    CandidateLists,
    Sketch,
)
from bigfs.settings import Setting
from bigfs.types import AnyArray

# Rows of a strip: a short posting list costs more to find than to add (measured).
STRIP_ROWS = Setting(24576)
# A term in more than this share of a strip's rows is cheaper as a dense line (measured).
DENSE_SHARE = Setting(0.04)
MAX_NARROW_COLUMNS = 1 << 16  # up to this many columns, their numbers fit in sixteen bits
MAX_UNSCREENED = 1 << 24  # other columns at most: a number and a value share 32 bits
EMPTY_CODE = np.iinfo(np.int64).min  # code of a missing candidate
REJECT_ALL_CODE = np.iinfo(np.int64).max  # a list of this code rejects every candidate


def unscreened_index(screen: AnyArray) -> AnyArray:
    """Number the columns outside a screen."""
    screen = screen | (np.cumsum(~screen) > MAX_UNSCREENED)
    return np.where(screen, -1, np.cumsum(~screen) - 1).astype(np.int32)


def sketch_rows(block: KernelBlock, unscreened: AnyArray, residual_cosine: float) -> Sketch:
    """Return a block in eight bits, rounded towards zero."""
    unit = np.sqrt(block.squares) / LEVELS
    column_type = np.uint16 if len(unscreened) <= MAX_NARROW_COLUMNS else np.int32
    column_buffer = np.empty(len(block.indices), column_type)
    indptr, indices, data, other_indptr, packed, other_squares = kernels.quantize(
        block.indptr, block.indices, block.data, unit, unscreened, column_buffer
    )
    return Sketch(
        indptr=indptr,
        indices=indices,
        data=data,
        other_indptr=other_indptr,
        packed=packed,
        n_columns=len(unscreened),
        n_unscreened=int(unscreened.max(initial=-1)) + 1,
        residual_estimate=_residual_estimate(other_squares, residual_cosine),
        first=block.first,
        unit=unit.astype(np.float32),
        half=(block.squares / 2).astype(np.float32),
    )


def _residual_estimate(other_squares: AnyArray, residual_cosine: float) -> AnyArray:
    """Return per row the factor whose products estimate what the other columns add to a pair."""
    return np.minimum(np.sqrt(residual_cosine * other_squares), 127).astype(np.int8)


def concatenate(parts: list[Sketch]) -> Sketch:
    """Join the sketches of consecutive rows."""
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("indices", "data", "packed", "residual_estimate", "unit", "half")
    }
    bounds: dict[str, Any] = {
        name: _join_bounds([getattr(part, name) for part in parts])
        for name in ("indptr", "other_indptr")
    }
    return parts[0]._replace(**joined, **bounds)


def _join_bounds(parts: list[AnyArray]) -> AnyArray:
    offsets = np.cumsum([0, *(part[-1] for part in parts)])
    return np.concatenate(
        [[0], *(part[1:] + offset for part, offset in zip(parts, offsets[:-1], strict=True))]
    )


def candidate_rows(codes: AnyArray) -> AnyArray:
    """Return the row numbers of candidate codes (int32), `MAX_ROW_ID` for a missing candidate."""
    return np.where(codes == EMPTY_CODE, MAX_ROW_ID, MAX_ROW_ID - (codes & MAX_ROW_ID)).astype(
        np.int32
    )


def sample_thresholds(
    A: Sketch,
    numbers: AnyArray,
    sample: Sketch,
    sample_numbers: AnyArray,
    ranks: list[int],
    cosine: bool,
) -> tuple[AnyArray, AnyArray]:
    """Return each row's threshold per rank, and how many sampled rows reach it."""
    position = np.searchsorted(sample_numbers, numbers)
    is_sampled = sample_numbers[np.minimum(position, len(sample_numbers) - 1)] == numbers
    itself = np.where(is_sampled, position, -1)
    return kernels.sample_thresholds(A, itself, sample, _invert(sample), np.array(ranks), cosine)


def within_block(A: Sketch, thresholds: AnyArray, q: int, cosine: bool) -> CandidateLists:
    """Return the q best candidates of each row within its own block."""
    rows = len(A.unit)
    lists = CandidateLists(np.full((rows, q), EMPTY_CODE), thresholds)
    for low, high in _strips(rows):
        strip, strip_lists = A.rows_between(low, high), lists.rows_between(low, high)
        inverted = _invert(strip)
        kernels.compare_with_strip(strip, strip, inverted, strip_lists, strip_lists, cosine, True)
        kernels.compare_with_strip(
            A.rows_between(high, rows),
            strip,
            inverted,
            lists.rows_between(high, rows),
            strip_lists,
            cosine,
            False,
        )
    return lists


def between_blocks(
    A: Sketch, B: Sketch, lists_a: CandidateLists, lists_b: CandidateLists, cosine: bool
) -> tuple[CandidateLists, CandidateLists]:
    """Return the lists of both blocks after all pairs of A and B."""
    new_a = lists_a._replace(codes=lists_a.codes.copy())
    new_b = lists_b._replace(codes=lists_b.codes.copy())
    _compare(A, B, new_a, new_b, cosine)
    return new_a, new_b


def search(A: Sketch, B: Sketch, lists: CandidateLists, cosine: bool) -> None:
    """Offer all rows of B to the lists of A, in place, and nothing to B."""
    rows = len(B.unit)
    unreachable = np.full(rows, UNREACHABLE_SUM if cosine else MAX_ROW_ID, np.int32)
    rejecting = CandidateLists(np.full((rows, 1), REJECT_ALL_CODE), unreachable)
    _compare(A, B, lists, rejecting, cosine)


def _compare(
    A: Sketch, B: Sketch, lists_a: CandidateLists, lists_b: CandidateLists, cosine: bool
) -> None:
    for low, high in _strips(len(B.unit)):
        strip = B.rows_between(low, high)
        kernels.compare_with_strip(
            A, strip, _invert(strip), lists_a, lists_b.rows_between(low, high), cosine, False
        )


def _strips(rows: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the strips of a block."""
    for low in range(0, rows, STRIP_ROWS.value):
        yield low, min(low + STRIP_ROWS.value, rows)


def _invert(strip: Sketch) -> InvertedStrip:
    """Store the screened columns of a strip by term."""
    rows = len(strip.unit)
    inverted: InvertedStrip = invert(
        strip.indptr, strip.indices, strip.data, 0, rows, strip.n_columns, DENSE_SHARE.value * rows
    )
    return inverted


def screened_scores(
    products: AnyArray,
    other_squares_a: AnyArray,
    other_squares_b: AnyArray,
    residual_cosine: float,
    A: Sketch,
    B: Sketch,
    cosine: bool,
) -> AnyArray:
    """Return the scores over a screen of the pairs of `kernels.split_products`."""
    estimate_a, estimate_b = (
        _residual_estimate(squares, residual_cosine).astype(np.int32)
        for squares in (other_squares_a, other_squares_b)
    )
    sums = products + estimate_a * estimate_b
    if cosine:
        return sums
    return np.asarray(kernels.distances_of_pairs(sums, A.unit, A.half, B.unit, B.half))
