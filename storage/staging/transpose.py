"""From blocks on scratch to Zarr chunks, by rows and by columns: the out-of-core transpose.

The entries of an array are cut into ranges of whole chunks. A task writes a range, or the ranges of
a shard one after the other. Two tasks never write the same document, and a task holds only a range,
whatever the size of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np

from bigfs import engine
from bigfs.settings import Setting
from bigfs.storage.format import manifest
from bigfs.storage.format.manifest import COLUMN_CHUNK, ROW_CHUNK
from bigfs.storage.format.writer import ArrayWriter, Target, Writer, open_unpublished
from bigfs.storage.staging import kernels
from bigfs.storage.staging.scratch import (
    RowBlock,
    lengths_of,
    map_columns,
    open_array,
    read_entries,
)
from bigfs.storage.staging.tables import running_indptr
from bigfs.types import AnyArray

NO_LIMIT = 1 << 62
MAX_COLUMNS_HELD = Setting(1 << 21)  # columns, occurring or not, that are held at a time


@dataclass(frozen=True)
class EntryRange:
    """Entries [start, stop) of an array, in whole chunks."""

    start: int
    stop: int


class BlockColumns(NamedTuple):
    """The file of one block by columns, and the block's first row in its segment."""

    path: str
    present: int
    nnz: int
    first_row: int


def tasks_of(
    length: int, chunk: int, chunks: int, size: int, before: int = 0
) -> list[list[EntryRange]]:
    """Cut the entries [before, length) into ranges of up to `chunks` chunks, one or more per task.

    With shards of `size` chunks a task has the ranges of one shard.
    """
    if size > 1:
        chunks = min(size, 1 << (chunks.bit_length() - 1))  # no range lies in two shards
    step = chunk * chunks
    ranges = [
        EntryRange(max(a, before), min(a + step, length))
        for a in range(before // step * step, length, step)
    ]
    per_task = max(chunk * size, step)
    return [list(task) for _, task in groupby(ranges, lambda r: r.start // per_task)]


def write_in_tasks(
    writer: Writer,
    write: Callable[..., dict[str, str]],
    tasks: Sequence[list[EntryRange]],
    *shared: Any,
    each: Sequence[Any] = (),
    label: str,
) -> None:
    """Write the documents of each task, and keep their checksums."""
    for checksums in engine.map_tiles(write, tasks, *shared, each=each, label=label):
        writer.checksums.update(checksums)


# --- rows -----------------------------------------------------------------------------------------


def write_rows(
    writer: Writer,
    row_blocks: Sequence[RowBlock],
    shape: tuple[int, int],
    chunks: int,
    before: tuple[int, int] = (0, 0),
) -> None:
    """Write X in CSR from blocks in row order, after the rows and entries that are there before."""
    rows, entries = before
    ends = entries + np.cumsum([s.nnz for s in row_blocks])
    lengths = {"data": int(ends[-1]), "indices": int(ends[-1]), "indptr": shape[0] + 1}
    if rows:
        writer.attribute("X", shape=list(shape))
        for name, length in lengths.items():
            writer.extend(f"X/{name}", length)
    else:
        writer.group("X", "csr_matrix", shape=list(shape))
        writer.create("X/data", lengths["data"], np.float32)
        writer.create("X/indices", lengths["indices"], np.int32)
        writer.create("X/indptr", lengths["indptr"], np.int64, ROW_CHUNK)
    size = writer.shards.get("X/data", 1)
    tasks = tasks_of(int(ends[-1]), writer.chunk, chunks, size, entries)
    slices = [[_overlapping_slices(row_blocks, ends, r) for r in task] for task in tasks]
    target = writer.target("X/data", "X/indices")
    write_in_tasks(writer, _write_rows, tasks, target, each=[slices], label="write rows")
    indptr = running_indptr(lengths_of(row_blocks), entries)
    writer.append("X/indptr", rows + 1 if rows else 0, indptr)


def _overlapping_slices(
    row_blocks: Sequence[RowBlock], ends: AnyArray, part: EntryRange
) -> list[tuple[str, int, int]]:
    """Return (path, start, stop) of the entries of each block that lie in the range."""
    first = int(np.searchsorted(ends, part.start, side="right"))
    last = int(np.searchsorted(ends, part.stop, side="left"))
    slices = []
    for s, end in zip(row_blocks[first : last + 1], ends[first : last + 1], strict=True):
        begin = int(end) - s.nnz
        start, stop = max(part.start - begin, 0), min(part.stop - begin, s.nnz)
        if stop > start:
            slices.append((s.path, start, stop))
    return slices


def _write_rows(
    task: list[EntryRange], slices: list[list[tuple[str, int, int]]], target: Target
) -> dict[str, str]:
    checksums: dict[str, str] = {}
    for name in ("data", "indices"):
        with ArrayWriter(target, f"X/{name}", task[0].start) as out:
            for some in slices:
                out.add(
                    np.concatenate(
                        [open_array(path, name)[start:stop] for path, start, stop in some]
                    )
                )
        checksums |= out.checksums
    return checksums


# --- columns --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnSpan:
    """The columns [start, stop) that hold the entries of a range."""

    start: int
    stop: int
    skip: int  # entries of the first column that come before the range
    take: int  # entries of the last column, from its beginning to the end of the range


def write_segment(
    writer: Writer,
    segment: manifest.Segment,
    row_blocks: Sequence[RowBlock],
    d: int,
    classes: int,
    chunks: int,
) -> None:
    """Write one segment by columns, from its blocks in row order, and its statistics."""
    first_rows = np.cumsum([0, *(s.rows for s in row_blocks)])
    blocks = [
        BlockColumns(s.path, s.present, s.nnz, int(first_row))
        for s, first_row in zip(row_blocks, first_rows, strict=False)
        if s.nnz
    ]
    shared = engine.Shared(blocks)
    _write_csc(writer, segment, blocks, shared, d, chunks)
    _write_statistics(writer, segment, shared, d, classes)


def _write_csc(
    writer: Writer,
    segment: manifest.Segment,
    blocks: Sequence[BlockColumns],
    shared: Any,
    d: int,
    chunks: int,
) -> None:
    path, nnz = f"uns/columns/{segment.name}", sum(block.nnz for block in blocks)
    writer.group(path, "csc_matrix", shape=[segment.rows, d])
    writer.create(f"{path}/data", nnz, np.float32)
    writer.create(f"{path}/indices", nnz, np.int32)
    tasks = tasks_of(nnz, writer.chunk, chunks, writer.shards.get(f"{path}/data", 1))
    ranges = [r for task in tasks for r in task]
    # the first and the last entry of each range, then the column of each and where that starts
    edges = np.array([(r.start, r.stop - 1) for r in ranges], dtype=np.int64).reshape(-1)
    columns, starts = np.zeros_like(edges), np.zeros_like(edges)
    counts = _running_counts(blocks, d, edges, columns, starts)
    writer.stream(f"{path}/indptr", d + 1, np.int64, counts, COLUMN_CHUNK)
    of_range = (
        ColumnSpan(int(first), int(last) + 1, r.start - int(head), r.stop - int(tail))
        for r, (first, last), (head, tail) in zip(
            ranges, columns.reshape(-1, 2), starts.reshape(-1, 2), strict=True
        )
    )
    spans = [list(islice(of_range, len(task))) for task in tasks]
    target = writer.target(*(f"{path}/{name}" for name in ("data", "indices", "indptr")))
    where = target, path, shared
    write_in_tasks(writer, _write_columns, tasks, *where, each=[spans], label="write columns")


def _running_counts(
    blocks: Sequence[BlockColumns], d: int, edges: AnyArray, columns: AnyArray, starts: AnyArray
) -> Iterator[AnyArray]:
    """Yield the indptr of all blocks together, in parts."""
    yield np.zeros(1, dtype=np.int64)
    total = 0
    for first in range(0, d, MAX_COLUMNS_HELD.value):
        counts = np.zeros(min(MAX_COLUMNS_HELD.value, d - first), dtype=np.int64)
        for block in blocks:
            present, begins = map_columns(block.path, block.present)
            low, high = np.searchsorted(present, [first, first + len(counts)])
            counts[present[low:high] - first] += np.diff(begins[low : high + 1])
        ends = total + np.cumsum(counts)
        here = slice(*np.searchsorted(edges, [total, ends[-1]]))
        inside = np.searchsorted(ends, edges[here], side="right")
        columns[here], starts[here] = first + inside, ends[inside] - counts[inside]
        total = int(ends[-1])
        yield ends


def counts_of(writer: Writer, segments: Sequence[manifest.Segment], d: int) -> Iterator[AnyArray]:
    """Yield the non-zeros per column of all segments, some chunks of columns at a time."""
    paths = [f"uns/columns/{s.name}/indptr" for s in segments]
    indptrs = [open_unpublished(writer.target(path), path) for path in paths]
    for first in range(0, d, 8 * COLUMN_CHUNK):
        last = min(first + 8 * COLUMN_CHUNK, d)
        yield sum(np.diff(indptr[first : last + 1]) for indptr in indptrs)  # type: ignore[misc]  # sum's start is a 0


def _write_columns(
    task: list[EntryRange],
    spans: list[ColumnSpan],
    target: Target,
    path: str,
    blocks: list[BlockColumns],
) -> dict[str, str]:
    indptr, start = open_unpublished(target, f"{path}/indptr"), task[0].start
    with (
        ArrayWriter(target, f"{path}/data", start) as data,
        ArrayWriter(target, f"{path}/indices", start) as indices,
    ):
        for part, span in zip(task, spans, strict=True):
            present, cursor = _occupied_columns(indptr, span)
            cursor -= part.start
            cursor[0] = 0  # the range may begin inside its first column
            rows, values = gather_columns(span, blocks, present, cursor, part.stop - part.start)
            data.add(values)
            indices.add(rows)
    return data.checksums | indices.checksums


def gather_columns(
    span: ColumnSpan, blocks: Sequence[BlockColumns], present: AnyArray, cursor: AnyArray, size: int
) -> tuple[AnyArray, AnyArray]:
    """Return the rows and values of the `size` entries in a span, sorted by column."""
    rows, values = np.empty(size, np.int32), np.empty(size, np.float32)
    for columns, counts, block_rows, block_values, first_row in clipped_blocks(span, blocks):
        kernels.scatter(
            np.searchsorted(present, columns).astype(np.int32),
            counts,
            block_rows,
            block_values,
            first_row,
            cursor,
            rows,
            values,
        )
    return rows, values


def _occupied_columns(indptr: Any, span: ColumnSpan) -> tuple[AnyArray, AnyArray]:
    """Return the columns of a span with entries, relative to its start, and where each starts."""
    present, starts = [], []
    for first in range(span.start, span.stop, MAX_COLUMNS_HELD.value):
        part = np.asarray(indptr[first : min(first + MAX_COLUMNS_HELD.value, span.stop) + 1])
        occupied = np.flatnonzero(np.diff(part))
        present.append((occupied + (first - span.start)).astype(np.int32))
        starts.append(part[occupied])
    return np.concatenate(present), np.concatenate(starts)


def clipped_blocks(
    span: ColumnSpan, blocks: Sequence[BlockColumns]
) -> Iterator[tuple[AnyArray, AnyArray, AnyArray, AnyArray, int]]:
    """Yield the entries of each block that lie in a span."""
    skip, take = span.skip, span.take
    last = span.stop - span.start - 1
    if last == 0:
        take -= skip  # the first column is also the last one
    for block in blocks:
        present, starts = map_columns(block.path, block.present)
        # of the type of the columns, or all of them would be converted
        low, high = np.searchsorted(present, np.array([span.start, span.stop], present.dtype))
        if low == high:
            continue
        columns = np.array(present[low:high]) - span.start
        edges = np.array(starts[low : high + 1])
        if columns[0] == 0 and skip:
            skipped = min(skip, int(edges[1] - edges[0]))
            edges[0] += skipped
            skip -= skipped
        if columns[-1] == last:
            kept = min(take, int(edges[-1] - edges[-2]))
            edges[-1] = edges[-2] + kept
            take -= kept
        rows, values = read_entries(block.path, block.present, block.nnz, edges[0], edges[-1])
        yield columns, np.diff(edges), rows, values, block.first_row


# --- statistics -----------------------------------------------------------------------------------


def _write_statistics(
    writer: Writer, segment: manifest.Segment, shared: Any, d: int, classes: int
) -> None:
    """Write Σ x and Σ x² of each column of a segment whose columns are written."""
    path, width = f"uns/statistics/{segment.name}", statistics_width(d, classes)
    writer.group(path, "dict")
    for name in ("sums", "squares"):
        writer.create(f"{path}/{name}", d, np.float64, width)
    if classes:
        writer.group(f"{path}/classes", "dict")
        for name in ("sums", "squares", "counts"):
            dtype = np.int32 if name == "counts" else np.float64
            writer.create(
                f"{path}/classes/{name}", d * classes, dtype, width * classes, sparse=True
            )
    tasks = tasks_of(d, width, 1, writer.shards.get(f"{path}/sums", 1))
    names = ("sums", "squares", "classes/sums", "classes/squares", "classes/counts")
    target = writer.target("obs/label/codes", *(f"{path}/{name}" for name in names))
    where = target, segment, classes, shared
    write_in_tasks(writer, _write_sums, tasks, *where, label="add up columns")


def statistics_width(d: int, classes: int) -> int:
    """Return the columns per chunk: tens of chunks for all workers, each of bounded size."""
    return min(COLUMN_CHUNK, max(1 << 13, d // 32), max(1, (1 << 21) // max(classes, 1)))


def _write_sums(
    task: list[EntryRange],
    target: Target,
    segment: manifest.Segment,
    classes: int,
    blocks: list[BlockColumns],
) -> dict[str, str]:
    path, codes = f"uns/statistics/{segment.name}", np.zeros(0, np.int8)
    widths = {"sums": 1, "squares": 1}
    if classes:
        stored = open_unpublished(target, "obs/label/codes")
        codes = np.asarray(stored[segment.start : segment.stop])
        widths |= dict.fromkeys(("classes/sums", "classes/squares", "classes/counts"), classes)
    # of the type of the codes, for which the kernel is compiled
    one_class = engine.lazy_zeros((segment.rows,), codes.dtype)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(ArrayWriter(target, f"{path}/{name}", task[0].start * width))
            for name, width in widths.items()
        ]
        for part in task:
            span = ColumnSpan(part.start, part.stop, 0, NO_LIMIT)
            whole = sum_columns(span, blocks, one_class, 1)[:2]
            by_class = sum_columns(span, blocks, codes, classes) if classes else ()
            for out, table in zip(writers, (*whole, *by_class), strict=True):
                out.add(table.reshape(-1))
    return dict(pair for out in writers for pair in out.checksums.items())


def sum_columns(
    span: ColumnSpan, blocks: Sequence[BlockColumns], codes: AnyArray, classes: int
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return Σ x, Σ x² and the number of entries of each column of a span by class."""
    shape = span.stop - span.start, classes
    tables = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int32)
    for columns, counts, rows, values, first_row in clipped_blocks(span, blocks):
        kernels.add_up(columns, counts, rows, values, codes[first_row:], *tables)
    return tables
