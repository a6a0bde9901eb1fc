"""Matrices on scratch that are read by row range, for formats that can't be cut.

A dense array stays as it is, and a sparse one becomes csr. Entries that come by column or in no
order are transposed out of core in two passes: the first counts them per row, the second writes
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.types import AnyArray
from storage.errors import SourceError
from storage.format import disk
from storage.sources import checks
from storage.sources.base import Rows

CHUNK = 1 << 20  # entries that a transpose holds at a time
Triplets = tuple[AnyArray, AnyArray, AnyArray]  # row, column, value


class ScratchMatrix(NamedTuple):
    """A matrix on scratch, of shape (n, d).

    Its folder holds X.npy (n × d, or n images) or data.npy, indices.npy and indptr.npy, and the
    labels as y.npy. `origin` is the path of the source, for messages.
    """

    folder: str
    origin: str
    shape: tuple[int, int]

    def array(self, name: str) -> AnyArray:
        return disk.map_file(Path(self.folder) / f"{name}.npy")

    def has(self, name: str) -> bool:
        return (Path(self.folder) / f"{name}.npy").exists()

    def pieces(self, size: int) -> list[tuple[int, int]]:
        """Return row ranges that take about `size` bytes each as csr."""
        n, _ = self.shape
        total = 8 * self.array("X").size if self.has("X") else 12 * len(self.array("data")) + 8 * n
        return row_ranges(n, total, size)

    def read(self, piece: tuple[int, int]) -> Rows:
        start, stop = piece
        X = (
            flatten_rows(self.array("X")[start:stop], self.origin)
            if self.has("X")
            else self._csr(start, stop)
        )
        return Rows(check_rows(X, self.origin, start), self._labels(start, stop))

    def _labels(self, start: int, stop: int) -> AnyArray | None:
        if not self.has("y"):
            return None
        y = np.array(self.array("y")[start:stop])
        return (
            np.ma.MaskedArray(y, self.array("unlabeled")[start:stop])
            if self.has("unlabeled")
            else y
        )

    def _csr(self, start: int, stop: int) -> sp.csr_array:
        indptr = np.array(self.array("indptr")[start : stop + 1], dtype=np.int64)
        cut = slice(indptr[0], indptr[-1])
        return make_csr(
            self.array("data")[cut],
            self.array("indices")[cut],
            indptr,
            (stop - start, self.shape[1]),
            self.origin,
        )


def row_ranges(n: int, total: int, size: int) -> list[tuple[int, int]]:
    """Cut n rows of `total` bytes in all into ranges of about `size` bytes, at least a row each."""
    rows = max(1, size * n // max(total, 1))
    return [(start, min(start + rows, n)) for start in range(0, n, rows)]


def make_csr(
    data: AnyArray, indices: AnyArray, indptr: AnyArray, shape: tuple[int, int], origin: str
) -> sp.csr_array:
    """Return rows with checked and sorted indices. Repeated entries are summed."""
    if (
        np.any(np.diff(indptr) < 0)
        or len(data) != len(indices)
        or indptr[-1] - indptr[0] != len(data)
    ):
        raise SourceError(
            f"{origin} is broken: its indptr does not match its {len(data)} stored values"
        )
    columns = checks.require_indices(np.asarray(indices), shape[1], origin, "column").astype(
        np.int32
    )
    X = sp.csr_array(
        (data.astype(checks.real_type(data.dtype, origin)), columns, indptr - indptr[0]), shape
    )
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


def dense_scratch_matrix(folder: Path, origin: str) -> ScratchMatrix:
    """Return the scratch_matrix of the array X.npy in a folder."""
    X = disk.map_file(folder / "X.npy")
    if X.ndim not in (2, 3):
        raise SourceError(
            f"{origin} has {X.ndim} dimensions: a matrix must have 2, a stack of images 3"
        )
    checks.real_type(X.dtype, origin)
    return ScratchMatrix(
        str(folder), origin, checks.require_shape(len(X), math.prod(X.shape[1:]), origin)
    )


def sparse_scratch_matrix(folder: Path, origin: str, shape: tuple[int, int]) -> ScratchMatrix:
    """Return the scratch_matrix of the csr arrays data.npy, indices.npy and indptr.npy in a folder."""
    scratch_matrix = ScratchMatrix(str(folder), origin, checks.require_shape(*shape, origin))
    stored = len(scratch_matrix.array("data"))
    checks.real_type(scratch_matrix.array("data").dtype, origin)
    if len(scratch_matrix.array("indices")) != stored:
        raise SourceError(
            f"{origin} is broken: it has {stored} values and {len(scratch_matrix.array('indices'))} indices"
        )
    checks.require_indptr(scratch_matrix.array("indptr"), shape[0], stored, origin)
    return scratch_matrix


def save_labels(scratch_matrix: ScratchMatrix, y: AnyArray | None) -> ScratchMatrix:
    """Save labels, as `storage.sources.labels.as_label_array` gives them, beside the matrix."""
    if y is not None:
        _save(Path(scratch_matrix.folder), y=np.ma.getdata(y))
        if isinstance(y, np.ma.MaskedArray):
            _save(Path(scratch_matrix.folder), unlabeled=np.ma.getmaskarray(y))
    return scratch_matrix


def _save(folder: Path, **arrays: AnyArray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        disk.save(folder / f"{name}.npy", array)


def save_triplets(
    folder: Path,
    origin: str,
    entries: Callable[[], Iterable[Triplets]],
    shape: tuple[int, int],
    dtype: Any,
) -> ScratchMatrix:
    """Write csr on scratch from entries in any order.

    `entries` is called twice. Memory holds n counts and one chunk of entries.
    """
    n, d = checks.require_shape(*shape, origin)
    checks.real_type(np.dtype(dtype), origin)
    checks.require_room(4 * n, origin)
    folder.mkdir(parents=True, exist_ok=True)
    count = np.zeros(n + 1, np.int64)
    for row, column, _ in entries():
        checks.require_indices(column, d, origin, "column")
        count[1:] += np.bincount(checks.require_indices(row, n, origin, "row"), minlength=n)
    indptr = np.cumsum(count)
    _save(folder, indptr=indptr)
    data = disk.allocate(folder / "data.npy", dtype, (int(indptr[-1]),))
    indices = disk.allocate(folder / "indices.npy", np.int32, (int(indptr[-1]),))
    free = indptr[:-1].copy()  # where the next entry of a row goes
    for row, column, value in entries():
        order = np.argsort(row, kind="stable")
        row = row[order].astype(np.int64)
        at = free[row] + np.arange(len(row)) - np.searchsorted(row, row)
        data[at], indices[at] = value[order], column[order]
        free += np.bincount(row, minlength=n)
    data.flush()
    indices.flush()
    return ScratchMatrix(str(folder), origin, (n, d))


def csc_triplets(data: Any, indices: Any, indptr: AnyArray) -> Iterator[Triplets]:
    """Yield the entries of a csc matrix in chunks.

    `data` and `indices` may be on disk. `indptr` must be checked before.
    """
    nnz = data.shape[0]
    for start in range(0, nnz, CHUNK):
        stop = min(start + CHUNK, nnz)
        column = np.searchsorted(indptr, np.arange(start, stop), side="right") - 1
        yield np.asarray(indices[start:stop]), column, np.asarray(data[start:stop])
