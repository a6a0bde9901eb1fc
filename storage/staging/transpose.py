"""From spilled blocks to Zarr chunks, both layouts: the out-of-core transpose.

The entries of an array are cut in ranges of whole chunks, one task a range: no two tasks ever write
one chunk, and a task holds only its range, whatever the size of the input.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigfs import engine
from bigfs.types import AnyArray
from storage.format import manifest
from storage.format.manifest import PER_COLUMN, PER_ROW
from storage.format.writer import Writer, fill, unpublished
from storage.staging import kernels
from storage.staging.scratch import Spill, lengths_of, open_array, open_columns
from storage.staging.tables import running

ALL = 1 << 62
WIDE = 1 << 21  # columns, occurring or not, that are held at a time


@dataclass(frozen=True)
class Range:
    """Entries [start, stop) of an array: whole chunks."""

    start: int
    stop: int


def ranges(length: int, chunk: int, chunks: int, before: int = 0) -> list[Range]:
    """Entries [before, length) by whole chunks; only the first range may begin inside one."""
    starts = range(before // chunk * chunk, length, chunk * chunks)
    return [Range(max(a, before), min(a + chunk * chunks, length)) for a in starts]


def _collect(writer: Writer, written: list[dict[str, str]]) -> None:
    for checksums in written:
        writer.checksums.update(checksums)


# --- rows -----------------------------------------------------------------------------------------


def write_rows(
    writer: Writer, spills: Sequence[Spill], shape: tuple[int, int], chunks: int
) -> None:
    """X in CSR, from blocks in row order."""
    nnz = sum(s.nnz for s in spills)
    writer.group("X", "csr_matrix", shape=list(shape))
    writer.create("X/data", nnz, np.float32)
    writer.create("X/indices", nnz, np.int32)
    fill_rows(writer, spills, 0, chunks)
    writer.stream("X/indptr", shape[0] + 1, np.int64, running(lengths_of(spills)), PER_ROW)


def fill_rows(writer: Writer, spills: Sequence[Spill], before: int, chunks: int) -> None:
    """The entries of the blocks, after `before` entries that are there."""
    ends = before + np.cumsum([s.nnz for s in spills])
    tasks = ranges(int(ends[-1]), writer.chunk, chunks, before)
    parts = [_overlap(spills, ends, task) for task in tasks]
    _collect(
        writer, engine.map_tiles(_write_rows, tasks, writer.uri, each=[parts], label="write rows")
    )


def _overlap(spills: Sequence[Spill], ends: AnyArray, task: Range) -> list[tuple[str, int, int]]:
    """(path, from, to): the part of each block that falls in the range."""
    first = int(np.searchsorted(ends, task.start, side="right"))
    last = int(np.searchsorted(ends, task.stop, side="left"))
    parts = []
    for s, end in zip(spills[first : last + 1], ends[first : last + 1], strict=True):
        start = int(end) - s.nnz
        a, b = max(task.start - start, 0), min(task.stop - start, s.nnz)
        if b > a:
            parts.append((s.path, a, b))
    return parts


def _write_rows(task: Range, parts: list[tuple[str, int, int]], uri: str) -> dict[str, str]:
    checksums: dict[str, str] = {}
    for name in ("data", "indices"):
        values = np.concatenate([open_array(path, name)[a:b] for path, a, b in parts])
        checksums |= fill(uri, f"X/{name}", task.start, values)
    return checksums


# --- columns --------------------------------------------------------------------------------------


def write_columns(
    writer: Writer,
    name: str,
    spills: Sequence[Spill],
    shape: tuple[int, int],
    chunks: int,
    scratch: Path,
) -> None:
    """One segment in CSC, from its blocks in row order."""
    firsts = np.cumsum([0, *(s.rows for s in spills)])
    listed = [
        (s.path, s.present, s.nnz, int(first))
        for s, first in zip(spills, firsts, strict=False)
        if s.nnz
    ]
    (scratch / f"{name}.json").write_text(json.dumps(listed))
    path, nnz = f"uns/columns/{name}", sum(entries for _, _, entries, _ in listed)
    writer.group(path, "csc_matrix", shape=list(shape))
    writer.create(f"{path}/data", nnz, np.float32)
    writer.create(f"{path}/indices", nnz, np.int32)
    tasks = ranges(nnz, writer.chunk, chunks)
    # first and last entries
    edges = np.array([(task.start, task.stop - 1) for task in tasks], dtype=np.int64).reshape(-1)
    columns, starts = np.zeros_like(edges), np.zeros_like(edges)
    writer.stream(
        f"{path}/indptr",
        shape[1] + 1,
        np.int64,
        _indptr(listed, shape[1], edges, columns, starts),
        PER_COLUMN,
    )
    cuts = [
        Cut(int(first), int(last) + 1, task.start - int(a), task.stop - int(b))
        for task, (first, last), (a, b) in zip(
            tasks, columns.reshape(-1, 2), starts.reshape(-1, 2), strict=True
        )
    ]
    written = engine.map_tiles(
        _write_columns,
        tasks,
        writer.uri,
        path,
        str(scratch / f"{name}.json"),
        each=[cuts],
        label="write columns",
    )
    _collect(writer, written)


def _indptr(
    listed: Sequence[tuple[str, int, int, int]],
    d: int,
    edges: AnyArray,
    columns: AnyArray,
    starts: AnyArray,
) -> Iterator[AnyArray]:
    """indptr of all blocks together, in parts; notes the column of each entry in `edges`
    (increasing), and where the column starts.

    Holds WIDE columns, however many there are: one entry far to the right makes d large.
    """
    yield np.zeros(1, dtype=np.int64)
    total = 0
    for a in range(0, d, WIDE):
        counts = np.zeros(min(WIDE, d - a), dtype=np.int64)
        for block, present, nnz, _ in listed:
            there, begins, _, _ = open_columns(block, present, nnz)
            low, high = np.searchsorted(there, [a, a + len(counts)])
            counts[there[low:high] - a] += np.diff(begins[low : high + 1])
        ends = total + np.cumsum(counts)
        here = slice(*np.searchsorted(edges, [total, ends[-1]]))
        inside = np.searchsorted(ends, edges[here], side="right")
        columns[here], starts[here] = a + inside, ends[inside] - counts[inside]
        total = int(ends[-1])
        yield ends


def counts_of(writer: Writer, segments: Sequence[manifest.Segment], d: int) -> Iterator[AnyArray]:
    """The non-zeros of each column, some chunks of columns after the other."""
    indptrs = [unpublished(writer.uri, f"uns/columns/{s.name}/indptr") for s in segments]
    for a in range(0, d, 8 * PER_COLUMN):
        yield sum(np.diff(indptr[a : min(a + 8 * PER_COLUMN, d) + 1]) for indptr in indptrs)  # type: ignore[misc]  # sum's start is a 0


@dataclass(frozen=True)
class Cut:
    """The columns [start, stop) behind a range of entries: how many entries of the first one come
    before it, and how many of the last one belong to it."""

    start: int
    stop: int
    skip: int
    take: int


def _write_columns(task: Range, cut: Cut, uri: str, path: str, listed: str) -> dict[str, str]:
    present, cursor = _occurring(unpublished(uri, f"{path}/indptr"), cut)
    cursor -= task.start
    cursor[0] = 0  # where the range begins, inside its first column
    rows, values = (
        np.empty(task.stop - task.start, np.int32),
        np.empty(task.stop - task.start, np.float32),
    )
    for here, counts, its_rows, its_values, first in _parts(
        cut, json.loads(Path(listed).read_text())
    ):
        kernels.scatter(
            np.searchsorted(present, here).astype(np.int32),
            counts,
            its_rows,
            its_values,
            first,
            cursor,
            rows,
            values,
        )
    return fill(uri, f"{path}/data", task.start, values) | fill(
        uri, f"{path}/indices", task.start, rows
    )


def _occurring(indptr: Any, cut: Cut) -> tuple[AnyArray, AnyArray]:
    """The columns of a cut that have entries, counted from its first, and where each starts; holds
    WIDE others.
    """
    present, starts = [], []
    for a in range(cut.start, cut.stop, WIDE):
        part = np.asarray(indptr[a : min(a + WIDE, cut.stop) + 1])
        here = np.flatnonzero(np.diff(part))
        present.append((here + (a - cut.start)).astype(np.int32))
        starts.append(part[here])
    return np.concatenate(present), np.concatenate(starts)


def _parts(
    cut: Cut, listed: list[tuple[str, int, int, int]]
) -> Iterator[tuple[AnyArray, AnyArray, AnyArray, AnyArray, int]]:
    """Of each block: the columns it has in the range, counted from the first, how many entries of
    each, their rows and values, and the block's first row."""
    skip, take = cut.skip, cut.take
    if cut.stop - cut.start == 1:
        take -= skip  # the first column is the last one too
    for path, present, nnz, first in listed:
        columns, starts, rows, values = open_columns(path, present, nnz)
        a, b = np.searchsorted(columns, [cut.start, cut.stop])
        if a == b:
            continue
        here, edges = np.array(columns[a:b]) - cut.start, np.array(starts[a : b + 1])
        if here[0] == 0 and skip:
            skipped = min(skip, int(edges[1] - edges[0]))
            edges[0] += skipped
            skip -= skipped
        if here[-1] == cut.stop - 1 - cut.start:
            taken = min(take, int(edges[-1] - edges[-2]))
            edges[-1] = edges[-2] + taken
            take -= taken
        entries = slice(edges[0], edges[-1])
        yield here, np.diff(edges), rows[entries], values[entries], first


# --- statistics -----------------------------------------------------------------------------------


def write_statistics(
    writer: Writer, segment: manifest.Segment, d: int, classes: int, scratch: Path
) -> None:
    """Σ x and Σ x² of the columns of a segment whose columns are written; with `classes`, those of
    each class too, and its non-zeros. Each column is added up in row order, so the tiling can't
    matter.
    """
    path, width = f"uns/statistics/{segment.name}", statistics_width(d, classes)
    writer.group(path, "dict")
    for what in ("sums", "squares"):
        writer.create(f"{path}/{what}", d, np.float64, width)
    if classes:
        writer.group(f"{path}/classes", "dict")
        for what in ("sums", "squares", "counts"):
            writer.create(
                f"{path}/classes/{what}",
                d * classes,
                np.int32 if what == "counts" else np.float64,
                width * classes,
            )
    listed = str(scratch / f"{segment.name}.json")
    written = engine.map_tiles(
        _write_sums,
        ranges(d, width, 1),
        writer.uri,
        segment,
        classes,
        listed,
        label="add up columns",
    )
    _collect(writer, written)


def statistics_width(d: int, classes: int) -> int:
    """Columns a chunk: some tens of chunks, so that all workers add up, of bounded size."""
    return min(PER_COLUMN, max(1 << 13, d // 32), max(1, (1 << 21) // max(classes, 1)))


def _write_sums(
    task: Range, uri: str, segment: manifest.Segment, classes: int, listed: str
) -> dict[str, str]:
    width = task.stop - task.start
    sums, squares = np.zeros(width), np.zeros(width)
    by_class: tuple[AnyArray, ...] = (
        np.zeros((width, classes)),
        np.zeros((width, classes)),
        np.zeros((width, classes), dtype=np.int32),
    )
    code = (
        np.asarray(unpublished(uri, "obs/label/codes")[segment.start : segment.stop])
        if classes
        else sums
    )
    for columns, counts, rows, values, first in _parts(
        Cut(task.start, task.stop, 0, ALL), json.loads(Path(listed).read_text())
    ):
        kernels.add_up(columns, counts, values, sums, squares)
        if classes:
            kernels.add_up_classes(columns, counts, rows, values, code[first:], *by_class)
    path = f"uns/statistics/{segment.name}"
    checksums = fill(uri, f"{path}/sums", task.start, sums) | fill(
        uri, f"{path}/squares", task.start, squares
    )
    if classes:
        for what, table in zip(("sums", "squares", "counts"), by_class, strict=True):
            checksums |= fill(
                uri, f"{path}/classes/{what}", task.start * classes, table.reshape(-1)
            )
    return checksums
