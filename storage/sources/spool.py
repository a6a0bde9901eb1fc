"""Arrays on scratch that are read by row range: where formats that can't be cut are unpacked to.

A dense array stays as it is; sparse ones become csr: a file that lists its entries by column, or
in no order, is transposed out of core by two passes over its entries (count, then place).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from storage import disk
from storage.errors import SourceError
from storage.sources.base import Rows

CHUNK = 1 << 20  # entries that a transpose holds at a time
Triplets = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # row, column, value


class Spool(NamedTuple):
    """A matrix on scratch, as X.npy (k × d, or k images) or data.npy, indices.npy and indptr.npy; labels as y.npy.

    origin : the source's path, for messages.
    shape : (n, d).
    """

    folder: str
    origin: str
    shape: tuple[int, int]

    def array(self, name: str) -> NDArray[Any]:
        mapped: NDArray[Any] = np.load(Path(self.folder) / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return mapped

    def has(self, name: str) -> bool:
        return (Path(self.folder) / f"{name}.npy").exists()

    def pieces(self, size: int) -> list[tuple[int, int]]:
        """Row ranges of about `size` bytes."""
        n, _ = self.shape
        total = self.array("X").nbytes if self.has("X") else 12 * len(self.array("data"))
        rows = max(1, int(size * n / max(total, 1)))
        return [(start, min(start + rows, n)) for start in range(0, n, rows)]

    def read(self, piece: tuple[int, int]) -> Rows:
        start, stop = piece
        y = np.array(self.array("y")[start:stop]) if self.has("y") else None
        X = flat(self.array("X")[start:stop]) if self.has("X") else self._csr(start, stop)
        return Rows(checked(X, self.origin, start), y)

    def _csr(self, start: int, stop: int) -> sp.csr_array:
        indptr = np.array(self.array("indptr")[start : stop + 1], dtype=np.int64)
        cut = slice(indptr[0], indptr[-1])
        return csr(self.array("data")[cut], self.array("indices")[cut], indptr, (stop - start, self.shape[1]), self.origin)


def csr(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, int], origin: str) -> sp.csr_array:
    """A row block of checked indices, sorted in a row and without repeats."""
    if np.any(np.diff(indptr) < 0) or len(data) != len(indices) or indptr[-1] - indptr[0] != len(data):
        raise SourceError(f"{origin} is broken: its indptr does not match its {len(data)} stored values")
    if len(indices) and not 0 <= indices.min() <= indices.max() < shape[1]:
        raise SourceError(f"{origin} is broken: a column index lies outside 0 … {shape[1] - 1}")
    X = sp.csr_array(
        (data.astype(floating(data.dtype, origin)), indices.astype(np.int32 if shape[1] < 2**31 else np.int64), indptr - indptr[0]), shape
    )
    X.sum_duplicates()
    return X


def flat(block: NDArray[Any]) -> sp.csr_array:
    """Rows of a dense block; an image's pixels are taken columns first, as MATLAB does."""
    if block.ndim == 3:
        block = block.transpose(0, 2, 1).reshape(len(block), -1)
    return sp.csr_array(np.asarray(block))


def checked(X: sp.csr_array, origin: str, start: int) -> sp.csr_array:
    """The rows as floats, none of them NaN or infinite."""
    X = X.astype(floating(X.dtype, origin))
    wrong = np.flatnonzero(~np.isfinite(X.data))
    if len(wrong):
        row = np.searchsorted(X.indptr, wrong[0], side="right") - 1
        place = f"row {start + row}, column {X.indices[wrong[0]]}"
        raise SourceError(f"{origin}: {place} (from 0) is {X.data[wrong[0]]}: values must be finite numbers")
    return X


def floating(dtype: np.dtype[Any], origin: str) -> np.dtype[Any]:
    """float32 for what it holds exactly, else float64."""
    if dtype.kind not in "biuf":
        raise SourceError(f"{origin} holds {dtype}: values must be real numbers")
    return np.result_type(dtype, np.float32) if dtype.itemsize <= 8 else np.dtype(np.float64)


def save_dense(folder: Path, origin: str, X: NDArray[Any]) -> Spool:
    _save(folder, X=X)
    return Spool(str(folder), origin, (len(X), int(np.prod(X.shape[1:]))))


def save_csr(folder: Path, origin: str, X: sp.csr_array) -> Spool:
    _save(folder, data=X.data, indices=X.indices, indptr=X.indptr)
    return Spool(str(folder), origin, X.shape)


def save_labels(spool: Spool, y: NDArray[Any] | None) -> Spool:
    if y is not None:
        _save(Path(spool.folder), y=y)
    return spool


def _save(folder: Path, **arrays: NDArray[Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        disk.save(folder / f"{name}.npy", array)


def save_triplets(folder: Path, origin: str, entries: Callable[[], Iterable[Triplets]], shape: tuple[int, int], dtype: Any) -> Spool:
    """csr on scratch from entries in any order, `entries` being called twice; holds n counts and one chunk."""
    folder.mkdir(parents=True, exist_ok=True)
    count = np.zeros(shape[0] + 1, np.int64)
    for row, column, _ in entries():
        for axis, index in (("row", row), ("column", column)):
            if len(index) and not 0 <= index.min() <= index.max() < shape[axis == "column"]:
                raise SourceError(f"{origin}: a {axis} index lies outside 0 … {shape[axis == 'column'] - 1}")
        count[1:] += np.bincount(row, minlength=shape[0])
    indptr = np.cumsum(count)
    _save(folder, indptr=indptr)
    data = disk.allocate(folder / "data.npy", dtype, (int(indptr[-1]),))
    indices = disk.allocate(folder / "indices.npy", np.int64, (int(indptr[-1]),))
    free = indptr[:-1].copy()  # where the next entry of a row goes
    for row, column, value in entries():
        order = np.argsort(row, kind="stable")
        row = row[order]
        at = free[row] + np.arange(len(row)) - np.searchsorted(row, row)
        data[at], indices[at] = value[order], column[order]
        free += np.bincount(row, minlength=shape[0])
    data.flush()
    indices.flush()
    return Spool(str(folder), origin, shape)


def csc_triplets(data: Any, indices: Any, indptr: NDArray[Any]) -> Iterator[Triplets]:
    """The entries of a csc matrix, a chunk at a time; `data` and `indices` may be on disk."""
    nnz = data.shape[0]
    for start in range(0, nnz, CHUNK):
        stop = min(start + CHUNK, nnz)
        column = np.searchsorted(indptr, np.arange(start, stop), side="right") - 1
        yield np.asarray(indices[start:stop], dtype=np.int64), column, np.asarray(data[start:stop])
