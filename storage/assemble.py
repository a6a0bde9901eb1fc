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
from numpy.typing import NDArray

from bigfs import blocks
from storage import kernels, layout
from storage.spill import Spill, open_array, open_columns

Array = NDArray[Any]
PER_COLUMN = 1 << 16  # values a chunk of what there is one of per column
PER_ROW = 1 << 18


@dataclass(frozen=True)
class Range:
    """Entries [start, stop) of an array: whole chunks."""

    start: int
    stop: int


def ranges(length: int, chunk: int, chunks: int, before: int = 0) -> list[Range]:
    """Entries [before, length) by whole chunks; only the first range may begin inside one."""
    starts = range(before // chunk * chunk, length, chunk * chunks)
    return [Range(max(a, before), min(a + chunk * chunks, length)) for a in starts]


def _collect(writer: layout.Writer, written: list[dict[str, str]]) -> None:
    for checksums in written:
        writer.checksums.update(checksums)


# --- rows -----------------------------------------------------------------------------------------


def write_rows(writer: layout.Writer, spills: Sequence[Spill], shape: tuple[int, int], chunks: int) -> Array:
    """X in CSR, from blocks in row order. Returns its indptr (n + 1)."""
    nnz = sum(s.nnz for s in spills)
    writer.group("X", "csr_matrix", shape=list(shape))
    writer.create("X/data", nnz, np.float32)
    writer.create("X/indices", nnz, np.int32)
    fill_rows(writer, spills, 0, chunks)
    indptr = indptr_of(spills)
    writer.write("X/indptr", indptr, PER_ROW)
    return indptr


def fill_rows(writer: layout.Writer, spills: Sequence[Spill], before: int, chunks: int) -> None:
    """The entries of the blocks, after `before` entries that are there."""
    ends = before + np.cumsum([s.nnz for s in spills])
    tasks = ranges(int(ends[-1]), writer.chunk, chunks, before)
    parts = [_overlap(spills, ends, task) for task in tasks]
    _collect(writer, blocks.map_tiles(_write_rows, tasks, writer.uri, each=[parts], label="write rows"))


def indptr_of(spills: Sequence[Spill]) -> Array:
    indptr = np.zeros(sum(s.rows for s in spills) + 1, dtype=np.int64)
    row = 0
    for s in spills:
        indptr[row + 1 : row + 1 + s.rows] = open_array(s.path, "lengths") if s.rows else 0
        row += s.rows
    return np.cumsum(indptr, out=indptr)


def _overlap(spills: Sequence[Spill], ends: Array, task: Range) -> list[tuple[str, int, int]]:
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
        checksums |= layout.fill(uri, f"X/{name}", task.start, values)
    return checksums


# --- columns --------------------------------------------------------------------------------------


def write_columns(writer: layout.Writer, name: str, spills: Sequence[Spill], shape: tuple[int, int], chunks: int, scratch: Path) -> Array:
    """One segment in CSC, from its blocks in row order, and its statistics. Returns the column counts (d)."""
    spills = [*spills]
    firsts = np.cumsum([0, *(s.rows for s in spills)])
    listed = [(s.path, s.present, s.nnz, int(first)) for s, first in zip(spills, firsts, strict=False) if s.nnz]
    (scratch / f"{name}.json").write_text(json.dumps(listed))
    path, indptr = f"uns/columns/{name}", np.zeros(shape[1] + 1, dtype=np.int64)
    for block, present, nnz, _ in listed:
        columns, starts, _, _ = open_columns(block, present, nnz)
        indptr[columns + 1] += np.diff(starts)
    counts = indptr[1:].copy()
    np.cumsum(indptr, out=indptr)
    writer.group(path, "csc_matrix", shape=list(shape))
    writer.create(f"{path}/data", int(indptr[-1]), np.float32)
    writer.create(f"{path}/indices", int(indptr[-1]), np.int32)
    writer.write(f"{path}/indptr", indptr, PER_COLUMN)
    tasks = ranges(int(indptr[-1]), writer.chunk, chunks)
    cuts = [_columns_in(task, indptr) for task in tasks]
    written = blocks.map_tiles(_write_columns, tasks, writer.uri, path, str(scratch / f"{name}.json"), each=[cuts], label="write columns")
    _collect(writer, written)
    _write_statistics(writer, name, indptr, chunks)
    return counts


@dataclass(frozen=True)
class Cut:
    """The columns [start, stop) behind a range of entries: how many entries of the first one come
    before it, and how many of the last one belong to it."""

    start: int
    stop: int
    skip: int
    take: int


def _columns_in(task: Range, indptr: Array) -> Cut:
    start = int(np.searchsorted(indptr, task.start, side="right")) - 1
    stop = int(np.searchsorted(indptr, task.stop, side="left"))
    return Cut(start, stop, task.start - int(indptr[start]), task.stop - int(indptr[stop - 1]))


def _write_columns(task: Range, cut: Cut, uri: str, path: str, listed: str) -> dict[str, str]:
    cursor = np.array(layout.unpublished(uri, f"{path}/indptr")[cut.start : cut.stop]) - task.start
    cursor[0] = 0  # where the range begins, inside its first column
    rows, values = np.empty(task.stop - task.start, np.int32), np.empty(task.stop - task.start, np.float32)
    for part in _parts(cut, json.loads(Path(listed).read_text())):
        kernels.scatter(*part, cursor, rows, values)
    return layout.fill(uri, f"{path}/data", task.start, values) | layout.fill(uri, f"{path}/indices", task.start, rows)


def _parts(cut: Cut, listed: list[tuple[str, int, int, int]]) -> Iterator[tuple[Array, Array, Array, Array, int]]:
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


def _write_statistics(writer: layout.Writer, name: str, indptr: Array, chunks: int) -> None:
    """Σ x and Σ x² of the columns: each column is added up in row order, so the tiling can't matter."""
    d, path = len(indptr) - 1, f"uns/statistics/{name}"
    writer.group(path, "dict")
    for what in ("sums", "squares"):
        writer.create(f"{path}/{what}", d, np.float64, PER_COLUMN)
    tasks = ranges(d, PER_COLUMN, 1)
    parts = [indptr[t.start : t.stop + 1] for t in tasks]
    written = blocks.map_tiles(_write_sums, tasks, writer.uri, name, writer.chunk * chunks, each=[parts], label="add up columns")
    _collect(writer, written)


def _write_sums(task: Range, indptr: Array, uri: str, name: str, most: int) -> dict[str, str]:
    data = layout.unpublished(uri, f"uns/columns/{name}/data")
    sums, squares = np.zeros(task.stop - task.start), np.zeros(task.stop - task.start)
    first = 0
    while first < len(sums):
        last = max(first + 1, int(np.searchsorted(indptr, indptr[first] + most, side="right")) - 1)
        values = np.asarray(data[indptr[first] : indptr[last]])
        kernels.add_up(values, indptr[first : last + 1], sums[first:last], squares[first:last])
        first = last
    path = f"uns/statistics/{name}"
    return layout.fill(uri, f"{path}/sums", task.start, sums) | layout.fill(uri, f"{path}/squares", task.start, squares)
