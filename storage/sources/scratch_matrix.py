"""Matrices on scratch that are read by row range, for formats that can't be cut.

A dense array stays as it is, and a sparse one becomes csr. Entries that come by column or in no
order are transposed out of core in three passes: the first counts them per row, the second writes
them to ranges of rows, and the third sorts each range.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.settings import Setting
from bigfs.storage.errors import SourceError
from bigfs.storage.format import disk
from bigfs.storage.sources import checks, samples
from bigfs.storage.sources.base import Rows
from bigfs.types import AnyArray

CHUNK = Setting(1 << 20)  # entries that a transpose holds at a time
SQUARE = 1 << 10  # rows and columns of a dense matrix that are transposed at a time
SAMPLES = "samples.arrow"  # the file with the facts of the rows
COMPRESSED = ("data", "indices", "indptr")  # the arrays of csr and csc
Triplets = tuple[AnyArray, AnyArray, AnyArray]  # row, column, value


class ScratchMatrix(NamedTuple):
    """A matrix of shape (n, d) in a folder: X.npy, or data.npy, indices.npy and indptr.npy.

    X may hold n images. The facts of the rows lie next to it.
    """

    folder: str
    origin: str  # the path of the source, for messages
    shape: tuple[int, int]

    def array(self, name: str) -> AnyArray:
        return disk.map_file(Path(self.folder) / f"{name}.npy")

    def has(self, name: str) -> bool:
        return (Path(self.folder) / f"{name}.npy").exists()

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """(M, N) if the rows are stored as images."""
        if not self.has("X") or (X := self.array("X")).ndim != 3:
            return None
        return int(X.shape[1]), int(X.shape[2])

    def save_samples(self, columns: samples.Columns) -> None:
        """Save columns as `bigfs.storage.sources.samples.read` gives them."""
        if columns:
            samples.write(Path(self.folder) / SAMPLES, columns)

    def pieces(self, size: int) -> list[tuple[int, int]]:
        """Return row ranges that take about `size` bytes each as csr."""
        n, d = self.shape
        if self.has("X"):
            return cut_dense(n, d, size)
        indptr = self.array("indptr")
        chunks = (indptr[start : start + CHUNK.value + 1] for start in range(0, n, CHUNK.value))
        return cut_sparse(map(np.diff, chunks), size)

    def read(self, piece: tuple[int, int]) -> Rows:
        start, stop = piece
        if self.has("X"):
            X = flatten_rows(self.array("X")[start:stop], self.origin)
        else:
            parts = {name: self.array(name) for name in COMPRESSED}
            X = read_csr(parts, piece, self.shape[1], self.origin)
        columns = {}
        if (file := Path(self.folder) / SAMPLES).exists():
            batch = samples.open_columns(file).slice(start, stop - start)
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        place = samples.row_places(self.origin, start)
        return Rows(check_rows(X, self.origin, start), columns, None, place)


def cut_dense(n: int, d: int, size: int) -> list[tuple[int, int]]:
    """Cut n rows of d values into ranges of about `size` bytes, at least a row each."""
    rows = max(1, size // (8 * max(d, 1)))
    return [(start, min(start + rows, n)) for start in range(0, n, rows)]


def cut_sparse(lengths: Iterable[AnyArray], size: int) -> list[tuple[int, int]]:
    """Cut rows with these numbers of entries into ranges of about `size` bytes as csr."""
    cuts = bounds((12 * part.astype(np.int64) + 8 for part in lengths), max(size, 1))
    return list(itertools.pairwise(cuts))


def bounds(counts: Iterable[AnyArray], tile: int, most: int | None = None) -> tuple[int, ...]:
    """Cut rows (or columns) into runs of about `tile` non-zeros, and of `most` rows."""
    cuts, row, total = [0], 0, 0
    for part in counts:
        ends = total + np.cumsum(part, dtype=np.int64)
        cuts += (row + 1 + np.flatnonzero(np.diff(ends // tile, prepend=total // tile))).tolist()
        row, total = row + len(part), total + int(np.sum(part))
    cuts += range(0, row, most or max(row, 1))
    return tuple(int(cut) for cut in np.unique([*cuts, row]))


def read_csr(parts: Any, piece: tuple[int, int], d: int, origin: str) -> sp.csr_array:
    """Read rows of csr arrays. Indices are checked and sorted, and repeated entries summed."""
    start, stop = piece
    indptr = np.array(parts["indptr"][start : stop + 1], dtype=np.int64)
    cut = slice(int(indptr[0]), int(indptr[-1]))
    data, indices = np.asarray(parts["data"][cut]), np.asarray(parts["indices"][cut])
    if (
        np.any(np.diff(indptr) < 0)
        or len(data) != len(indices)
        or indptr[-1] - indptr[0] != len(data)
    ):
        raise SourceError(
            f"{origin} is broken: its indptr does not match its {len(data)} stored values"
        )
    columns = checks.require_indices(indices, d, origin, "column").astype(np.int32)
    data = data.astype(checks.real_type(data.dtype, origin))
    X = sp.csr_array((data, columns, indptr - indptr[0]), (stop - start, d))
    X.sum_duplicates()
    return X


def flatten_rows(block: AnyArray, origin: str) -> sp.csr_array:
    """Return the rows of a dense block. Images are flattened columns first, as in MATLAB."""
    if block.ndim == 3:
        block = block.transpose(0, 2, 1).reshape(len(block), -1)
    return sp.csr_array(np.asarray(block, dtype=checks.real_type(block.dtype, origin)))


def check_rows(X: sp.csr_array, origin: str, start: int) -> sp.csr_array:
    """Return rows as floats that all fit in a store. The first one is row `start` of the source."""
    return checks.require_values(
        X.astype(checks.real_type(X.dtype, origin), copy=False),
        lambda row: f"{origin}: row {start + row}",
    )


def open_dense(folder: Path, origin: str) -> ScratchMatrix:
    """Return the matrix of the array X.npy in a folder."""
    X = disk.map_file(folder / "X.npy")
    if X.ndim not in (2, 3):
        raise SourceError(
            f"{origin} has {X.ndim} dimensions: a matrix must have 2, a stack of images 3"
        )
    checks.real_type(X.dtype, origin)
    shape = checks.require_shape(len(X), math.prod(X.shape[1:]), origin)
    return ScratchMatrix(str(folder), origin, shape)


def require_compressed(parts: Any, kind: str, shape: tuple[int, int], origin: str) -> AnyArray:
    """Return the indptr of a group of csr or csc arrays, which must fit together and the shape."""
    size, stored = require_parts(parts, kind, shape, origin)
    checks.require_numbers_fit(size + 1, origin)
    return checks.require_indptr(parts["indptr"][:], size, stored, origin)


def require_parts(parts: Any, kind: str, shape: tuple[int, int], origin: str) -> tuple[int, int]:
    """Return the numbers of rows (of csc: columns) and of entries of a group of arrays."""
    if missing := [name for name in COMPRESSED if name not in parts]:
        raise SourceError(f"{origin} is broken: a {kind} matrix without {', '.join(missing)}")
    size = checks.require_shape(*shape, origin)[kind == "csc"]
    stored = parts["data"].shape
    if len(stored) != 1 or parts["indices"].shape != stored:
        raise SourceError(
            f"{origin} is broken: data has the shape {stored} and indices has "
            f"{parts['indices'].shape}"
        )
    checks.real_type(parts["data"].dtype, origin)
    return size, int(stored[0])


def row_lengths(parts: Any, shape: tuple[int, int], origin: str) -> Iterator[AnyArray]:
    """Yield the numbers of entries of the rows of csr arrays, which are checked, some at a time."""
    n, stored = require_parts(parts, "csr", shape, origin)
    if parts["indptr"].shape != (n + 1,):  # refused
        checks.require_indptr(parts["indptr"], n, stored, origin)
    end = 0
    for start in range(0, n, CHUNK.value):
        stop = min(start + CHUNK.value, n)
        indptr = np.asarray(parts["indptr"][start : stop + 1])
        last = stored if stop == n else int(indptr[-1])
        checks.require_indptr(indptr - end, stop - start, last - end, origin)
        end = last
        yield np.diff(indptr)


def transpose_csc(folder: Path, origin: str, parts: Any, shape: tuple[int, int]) -> ScratchMatrix:
    """Write csr on scratch from a group of csc arrays, in chunks."""
    indptr = require_compressed(parts, "csc", shape, origin)
    data, indices = parts["data"], parts["indices"]

    def entries() -> Iterator[Triplets]:
        for start in range(0, data.shape[0], CHUNK.value):
            stop = min(start + CHUNK.value, data.shape[0])
            column = np.searchsorted(indptr, np.arange(start, stop), side="right") - 1
            yield disk.read_part(indices, start, stop), column, disk.read_part(data, start, stop)

    return write_csr(folder, origin, entries, shape, data.dtype)


def turn(matrix: ScratchMatrix, folder: Path) -> ScratchMatrix:
    """Write the transpose of a matrix on scratch, in chunks."""
    n, d = matrix.shape
    if not matrix.has("X"):  # rows of csr are columns of csc
        parts = {name: matrix.array(name) for name in COMPRESSED}
        return transpose_csc(folder, matrix.origin, parts, (d, n))
    if matrix.image_shape:
        raise SourceError(f"{matrix.origin} holds images, which cannot be transposed")
    folder.mkdir(parents=True, exist_ok=True)
    disk.allocate(folder / "X.npy", matrix.array("X").dtype, (d, n))
    for i, j in itertools.product(range(0, n, SQUARE), range(0, d, SQUARE)):
        block = matrix.array("X")[i : i + SQUARE, j : j + SQUARE]
        disk.map_file(folder / "X.npy", "r+")[j : j + SQUARE, i : i + SQUARE] = block.T
    disk.map_file(folder / "X.npy", "r+").flush()
    return ScratchMatrix(str(folder), matrix.origin, (d, n))


def write_csr(
    folder: Path,
    origin: str,
    entries: Callable[[], Iterable[Triplets]],
    shape: tuple[int, int],
    dtype: Any,
) -> ScratchMatrix:
    """Write csr on scratch from entries in any order.

    `entries` is called twice. Memory holds n counts, and one chunk of entries or one row.
    """
    n, d = checks.require_shape(*shape, origin)
    checks.real_type(np.dtype(dtype), origin)
    checks.require_numbers_fit(4 * n, origin)
    folder.mkdir(parents=True, exist_ok=True)
    count = np.zeros(n + 1, np.int64)
    for row, column, _ in entries():
        checks.require_indices(column, d, origin, "column")
        count[1:] += np.bincount(checks.require_indices(row, n, origin, "row"), minlength=n)
    indptr = np.cumsum(count)
    disk.save(folder / "indptr.npy", indptr)
    parts = {"row": np.int32, "indices": np.int32, "data": dtype}
    for name, kind in parts.items():
        disk.allocate(folder / f"{name}.npy", kind, (int(indptr[-1]),))

    # opened again and again, so that no pages stay in memory
    def open_parts() -> list[np.memmap[Any, Any]]:
        return [disk.map_file(folder / f"{name}.npy", "r+") for name in parts]

    cuts = np.array(bounds([np.diff(indptr)], CHUNK.value))  # between ranges of rows
    free = indptr[cuts].copy()  # where the next entry of a range goes
    for entry in entries():
        of = np.searchsorted(cuts, entry[0], side="right") - 1
        order = np.argsort(of.astype(np.min_scalar_type(len(cuts))), kind="stable")
        starts = np.searchsorted(of[order], np.arange(len(cuts)))
        for to, values in zip(open_parts(), entry, strict=True):
            for k in np.flatnonzero(np.diff(starts)):
                some = order[starts[k] : starts[k + 1]]
                to[free[k] : free[k] + len(some)] = values[some]
        free[:-1] += np.diff(starts)
    for start, stop in itertools.pairwise(indptr[cuts].tolist()):
        row, *others = (part[start:stop] for part in open_parts())
        order = np.argsort(row, kind="stable")
        for part in others:
            part[:] = part[order]
    for part in open_parts():
        part.flush()
    os.remove(folder / "row.npy")
    return ScratchMatrix(str(folder), origin, (n, d))
