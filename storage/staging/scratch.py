"""Blocks of rows on scratch disk, each stored twice: by row (.npy files) and by column (one file).

The worker that reads a block writes it. `bigfs.storage.staging.transpose` then reads slices of many
blocks. The file by column lists only the columns that occur, because d may be 16 million and a
block a few MB.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.settings import Setting
from bigfs.storage.format import disk
from bigfs.storage.format.manifest import Segment
from bigfs.storage.sources import checks, samples
from bigfs.storage.sources.samples import LabelKind, Place, kind_of
from bigfs.storage.sources.scratch_matrix import bounds
from bigfs.types import AnyArray, IntArray

BY_ROW = "data.npy", "indices.npy"  # the files of the entries of a block by row
DONE = "done"  # the file that describes the blocks of a piece that was read
SAMPLES = "samples.arrow"  # the file with the facts of the samples of a block
TILE_NNZ = Setting(1 << 21)  # non-zeros per tile: half a second to a second of work


class SampleFacts(NamedTuple):
    """The facts of the samples of a block. Their columns lie next to it."""

    has_labels: bool = False  # whether there is a column of labels
    labels: LabelKind | None = None  # None where no sample has a label
    named: bool = False  # whether a sample has a name
    first: object = None  # the place of the first sample, for messages


class RowBlock(NamedTuple):
    """One block of rows of one split on scratch."""

    path: str  # how the names of its files begin
    split: str | None
    rows: int
    nnz: int
    width: int
    present: int  # columns that occur
    told: SampleFacts = SampleFacts()
    rounded: tuple[tuple[int, float], ...] = ()  # columns whose whole numbers lost digits, with one


# --- pieces that a killed process has read --------------------------------------------------------


def read_once(path: str, read: Callable[[], list[RowBlock]]) -> list[RowBlock]:
    """Return the blocks of a piece: read now, or by a process that was killed."""
    done = Path(f"{path}.{DONE}")
    if done.exists():
        return [_block(*fields) for fields in json.loads(done.read_text())]
    blocks = read()
    written = done.with_suffix(".part")
    written.write_text(json.dumps(blocks, default=_plain))
    written.rename(done)
    return blocks


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def _block(*fields: Any) -> RowBlock:
    block = RowBlock(*fields)
    told = SampleFacts(*block.told)
    labels = None if told.labels is None else LabelKind(*told.labels)
    return block._replace(told=told._replace(labels=labels))


def forget(scratch: Path) -> None:
    """Forget which pieces were read, before what was read is deleted."""
    for done in scratch.glob(f"*.{DONE}"):
        done.unlink()


# --- blocks ---------------------------------------------------------------------------------------


def save(path: str, **arrays: AnyArray) -> None:
    """Write arrays as .npy files named `path`.NAME.npy."""
    for name, values in arrays.items():
        disk.save(f"{path}.{name}.npy", values)


def save_samples(
    path: str, columns: Mapping[str, Any], rows: IntArray, place: Place, typed: bool
) -> SampleFacts:
    """Write the columns of the samples in these rows of a piece, and return what they tell."""
    first = place(int(rows[0])) if len(rows) else None
    if not columns:
        return SampleFacts(first=first)
    columns = samples.take(columns, rows)
    samples.write(f"{path}.{SAMPLES}", columns)
    labels, names = columns.get("label"), columns.get("name")
    return SampleFacts(
        labels is not None,
        None if labels is None else kind_of(labels, lambda i: place(int(rows[i])), typed),
        names is not None and names.null_count < len(names),
        first,
    )


def open_samples(path: str, role: str) -> Any:
    """Map a column of the samples of a block."""
    return samples.open_columns(f"{path}.{SAMPLES}")[role]


def open_array(path: str, name: str) -> AnyArray:
    """Map an array that `save` wrote."""
    return disk.map_file(f"{path}.{name}.npy")


def write_block(
    path: str,
    X: sp.csr_array,
    split: str | None,
    told: SampleFacts = SampleFacts(),  # noqa: B008, it does not change
) -> RowBlock:
    """Write a block by row and by column, without explicit zeros."""
    if X.nnz and not X.data.all():
        X = X.copy()
        X.eliminate_zeros()
    data, indices = X.data.astype(np.float32, copy=False), X.indices.astype(np.int32, copy=False)
    rounded = checks.rounded(X.data, data, indices)
    width = int(indices.max()) + 1 if len(indices) else 0
    save(path, data=data, indices=indices, lengths=np.diff(X.indptr).astype(np.int32))
    columns, starts, rows, values = sort_by_column(
        sp.csr_array((data, indices, X.indptr), shape=(X.shape[0], width))
    )
    with open(f"{path}.columns", "wb") as out:
        for part in (starts, columns, rows, values):
            out.write(np.ascontiguousarray(part).data)
    return RowBlock(path, split, X.shape[0], len(data), width, len(columns), told, rounded)


def delete(blocks: Iterable[Any], *files: str) -> None:
    """Delete files of blocks that no task needs any more, so that the disk has room."""
    for block, file in itertools.product(blocks, files):
        os.remove(f"{block.path}.{file}")


def read_block(block: RowBlock, d: int) -> sp.csr_array:
    """Read a block into memory, with d columns."""
    data, indices, lengths = (
        np.array(open_array(block.path, name)) for name in ("data", "indices", "lengths")
    )
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return sp.csr_array((data, indices, indptr), shape=(block.rows, d))


def lengths_of(blocks: Sequence[RowBlock]) -> Iterator[AnyArray]:
    """Yield the non-zeros per row, block after block."""
    return (open_array(s.path, "lengths") for s in blocks if s.rows)


def map_columns(path: str, present: int) -> tuple[AnyArray, AnyArray]:
    """Map the columns of a block that occur, and where the entries of each start.

    No page is read ahead of those that are looked at. Else looking up some columns would read
    megabytes, again and again where scratch is larger than memory.
    """
    size = 8 * (present + 1)
    with open(f"{path}.columns", "rb") as file:
        raw = mmap.mmap(file.fileno(), size + 4 * present, access=mmap.ACCESS_READ)
    raw.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(raw, np.int32, present, size), np.frombuffer(raw, np.int64, present + 1)


def read_entries(
    path: str, present: int, nnz: int, start: int, stop: int
) -> tuple[AnyArray, AnyArray]:
    """Read the rows and the values of the entries [start, stop) of a block, column by column."""
    first = 8 * (present + 1) + 4 * present + 4 * start
    rows = np.fromfile(f"{path}.columns", np.int32, stop - start, offset=first)
    values = np.fromfile(f"{path}.columns", np.float32, stop - start, offset=first + 4 * nnz)
    return rows, values


def sort_by_column(X: sp.csr_array) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Return the columns that occur, the start of each, and the rows and values of all entries."""
    # much wider than it has entries: sorting them is cheaper than counting per column
    if X.shape[1] > 8 * X.nnz + (1 << 16):
        keys = (X.indices.astype(np.int64) << 32) | np.arange(X.nnz)
        keys.sort()
        order = keys & 0xFFFFFFFF
        columns, first = np.unique(keys >> 32, return_index=True)
        rows = np.repeat(np.arange(X.shape[0], dtype=np.int32), np.diff(X.indptr))[order]
        return (
            columns.astype(np.int32),
            np.append(first, X.nnz).astype(np.int64),
            rows,
            X.data[order],
        )
    C = X.tocsc()
    columns = np.flatnonzero(np.diff(C.indptr))
    starts = np.append(C.indptr[columns], C.nnz).astype(np.int64)
    return columns.astype(np.int32), starts, C.indices.astype(np.int32, copy=False), C.data


# --- segments and tiles ---------------------------------------------------------------------------


def by_segment(
    segments: Sequence[Segment], blocks: Sequence[RowBlock]
) -> Iterator[tuple[Segment, list[RowBlock]]]:
    """Yield each segment with its blocks."""
    rest = list(blocks)
    for segment in segments:
        inside: list[RowBlock] = []
        rows = segment.rows
        while rows > 0:
            inside.append(rest.pop(0))
            rows -= inside[-1].rows
        yield segment, inside


def row_bounds(
    segments: Sequence[Segment], blocks: Sequence[RowBlock], tile_rows: int | None
) -> tuple[int, ...]:
    """Return where row tiles begin and end. None crosses a segment."""
    cuts: list[int] = [segments[0].start]
    for s, inside in by_segment(segments, blocks):
        if tile_rows:
            cuts += [*range(s.start + tile_rows, s.stop, tile_rows), s.stop]
        else:
            cuts += [s.start + cut for cut in bounds(lengths_of(inside), TILE_NNZ.value)[1:]]
    return tuple(cuts)
