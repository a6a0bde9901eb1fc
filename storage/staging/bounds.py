"""Where tiles begin and end, and which blocks make a segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bigfs.types import AnyArray
from storage.format.manifest import Segment
from storage.staging.scratch import Spill, lengths_of

TILE = 1 << 21  # non-zeros a tile: half a second to a second of work


def by_segment(
    segments: Sequence[Segment], spills: Sequence[Spill]
) -> Iterator[tuple[Segment, list[Spill]]]:
    """Each segment with its blocks."""
    rest = list(spills)
    for segment in segments:
        mine, rows = [], 0
        while rows < segment.stop - segment.start:
            mine.append(rest.pop(0))
            rows += mine[-1].rows
        yield segment, mine


def row_bounds(
    segments: Sequence[Segment], spills: Sequence[Spill], tile_rows: int | None
) -> tuple[int, ...]:
    """Where row tiles begin and end; none crosses a segment."""
    cuts: list[int] = [segments[0].start]
    for s, mine in by_segment(segments, spills):
        if tile_rows:
            cuts += [*range(s.start + tile_rows, s.stop, tile_rows), s.stop]
        else:
            cuts += [s.start + cut for cut in bounds(lengths_of(mine), TILE)[1:]]
    return tuple(cuts)


def bounds(counts: Iterable[AnyArray], tile: int) -> tuple[int, ...]:
    """Cut rows (columns) of these counts, which come in parts, in runs of about `tile`
    non-zeros.
    """
    cuts, row, total = [0], 0, 0
    for part in counts:
        ends = total + np.cumsum(part, dtype=np.int64)
        cuts += (row + 1 + np.flatnonzero(np.diff(ends // tile, prepend=total // tile))).tolist()
        row, total = row + len(part), int(ends[-1])
    return tuple(int(cut) for cut in np.unique([*cuts, row]))
