"""Where tiles begin and end, and which blocks belong to a segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bigfs.types import AnyArray
from storage.format.manifest import Segment
from storage.staging.scratch import RowBlock, lengths_of

TILE_NNZ = 1 << 21  # non-zeros per tile: half a second to a second of work


def by_segment(
    segments: Sequence[Segment], spills: Sequence[RowBlock]
) -> Iterator[tuple[Segment, list[RowBlock]]]:
    """Yield each segment with its blocks."""
    rest = list(spills)
    for segment in segments:
        blocks: list[RowBlock] = []
        rows = 0
        while rows < segment.stop - segment.start:
            blocks.append(rest.pop(0))
            rows += blocks[-1].rows
        yield segment, blocks


def row_bounds(
    segments: Sequence[Segment], spills: Sequence[RowBlock], tile_rows: int | None
) -> tuple[int, ...]:
    """Return where row tiles begin and end. None crosses a segment."""
    cuts: list[int] = [segments[0].start]
    for s, blocks in by_segment(segments, spills):
        if tile_rows:
            cuts += [*range(s.start + tile_rows, s.stop, tile_rows), s.stop]
        else:
            cuts += [s.start + cut for cut in bounds(lengths_of(blocks), TILE_NNZ)[1:]]
    return tuple(cuts)


def bounds(counts: Iterable[AnyArray], tile: int) -> tuple[int, ...]:
    """Cut rows (or columns) into runs of about `tile` non-zeros."""
    cuts, row, total = [0], 0, 0
    for part in counts:
        ends = total + np.cumsum(part, dtype=np.int64)
        cuts += (row + 1 + np.flatnonzero(np.diff(ends // tile, prepend=total // tile))).tolist()
        row, total = row + len(part), int(ends[-1])
    return tuple(int(cut) for cut in np.unique([*cuts, row]))
