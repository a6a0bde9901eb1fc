"""The tiles of a store's matrix, which tasks get, and the names of its features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, overload

import numpy as np
import scipy.sparse as sp

from bigfs.storage.format.manifest import STRING_CHUNK
from bigfs.storage.format.verified import StoreRef
from bigfs.types import AnyArray


class Names(Sequence[str]):
    """Names of samples or features, read as they are asked for, or their numbers without names.

    `store` reads the array `path`, of which the names are the values of some ranges.
    """

    what = ""

    def __init__(
        self, store: Any, path: str, ranges: Sequence[tuple[int, int]], named: bool
    ) -> None:
        self.store, self.path, self.ranges, self.named = store, path, tuple(ranges), named
        self.size = sum(stop - start for start, stop in ranges)

    def __repr__(self) -> str:
        kind = "names" if self.named else "numbers for names"
        return f"<{type(self).__name__}: {self.size:,} {kind}, read as they are asked for>"

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[str]:
        for start in range(0, self.size, STRING_CHUNK):
            yield from self[start : start + STRING_CHUNK]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice | AnyArray | Sequence[int]) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int | np.integer):
            if not -self.size <= index < self.size:
                raise IndexError(f"{self.what} {index} is out of range: there are {self.size}")
            return str(self[np.array([int(index) % self.size])][0])
        if isinstance(index, slice):
            index = np.arange(*index.indices(self.size))
        index = np.asarray(index)
        index = np.flatnonzero(index) if index.dtype == bool else index
        # where they lie in the array
        starts = np.cumsum([0, *(stop - start for start, stop in self.ranges)])
        shifts = (
            np.array([start for start, _ in self.ranges] or [0]) - starts[: len(self.ranges) or 1]
        )
        index = index + shifts[np.searchsorted(starts, index, side="right") - 1]
        if not self.named:
            return index.astype(np.str_).astype(object)
        chunk, end = self.store.chunk(self.path), max(stop for _, stop in self.ranges)
        names = np.empty(len(index), dtype=object)
        for c in np.unique(index // chunk):
            here = np.flatnonzero(index // chunk == c)
            block = self.store.read(self.path, int(c) * chunk, min((int(c) + 1) * chunk, end))
            names[here] = block[index[here] - c * chunk].astype(object)
        return names

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        return np.asarray(self[:], dtype=dtype)

    def tolist(self) -> list[str]:
        """Read all names."""
        return list(self)


class FeatureNames(Names):
    """The d feature names, read as they are asked for, or the column numbers without names."""

    what = "feature"

    def __init__(self, store: StoreRef, size: int, named: bool) -> None:
        super().__init__(store, "var/_index", [(0, size)], named)


class SampleNames(Names):
    """The names of the samples, read as they are asked for, or the row numbers without names."""

    what = "sample"


@dataclass(frozen=True)
class RowTile:
    """Rows [start, stop) of the matrix, which the store holds from row `first` on."""

    store: StoreRef
    first: int
    start: int
    stop: int
    d: int
    place: float | None = field(default=None, compare=False)  # in the matrix, from 0 to 1
    verified: ClassVar[bool] = True  # its values were checked when they were staged

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.store, "rows", self.first, self.stop - self.start)

    def load(self) -> sp.csr_array:
        indptr = self.store.read("X/indptr", self.first, self.first + self.stop - self.start + 1)
        a, b = int(indptr[0]), int(indptr[-1])
        self.store.require(bool((np.diff(indptr) >= 0).all()), "X/indptr")
        data, indices = self.store.read("X/data", a, b), self.store.read("X/indices", a, b)
        self.store.require(_are_inside(indices, b - a, self.d), "X/indices")
        return sp.csr_array(
            (data, indices, (indptr - a).astype(np.int32)), shape=(self.stop - self.start, self.d)
        )

    def cut(self, low: int, high: int) -> RowTile:
        """Return a tile of rows [low, high) of this one. Only the chunks with them are read."""
        first, start, stop = self.first + low, self.start + low, self.start + high
        return replace(self, first=first, start=start, stop=stop)


@dataclass(frozen=True)
class ColumnTile:
    """Columns [start, stop) of some segments, one below the other."""

    store: StoreRef
    segments: tuple[str, ...]
    lengths: tuple[int, ...]
    start: int
    stop: int
    place: float | None = field(default=None, compare=False)  # in the matrix, from 0 to 1
    verified: ClassVar[bool] = True

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.store, "columns", self.segments, self.start)

    def load(self) -> sp.csc_array:
        return self.columns(np.arange(self.stop - self.start))

    def columns(self, index: AnyArray) -> sp.csc_array:
        """Read some columns of the tile (increasing). Only the chunks with them are read."""
        index = np.asarray(index)
        parts = [
            self._read(f"uns/columns/{name}", index, length)
            for name, length in zip(self.segments, self.lengths, strict=True)
        ]
        firsts = np.cumsum([0, *self.lengths])
        if len(parts) == 1:
            data, rows, indptr = parts[0]
        else:
            data, rows, indptr = _stack(
                [
                    (d, r + np.int32(first), p)
                    for (d, r, p), first in zip(parts, firsts, strict=False)
                ]
            )
        return sp.csc_array(
            (data, rows, indptr.astype(np.int32)), shape=(int(firsts[-1]), len(index))
        )

    def _read(self, path: str, index: AnyArray, length: int) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Read data, rows and indptr of some columns of one segment."""
        edges = self.store.read(f"{path}/indptr", self.start, self.stop + 1)
        self.store.require(bool((np.diff(edges) >= 0).all()), f"{path}/indptr")
        starts, stops = edges[index], edges[index + 1]
        indptr = np.concatenate([[0], np.cumsum(stops - starts)])
        data, rows = np.empty(indptr[-1], dtype=np.float32), np.empty(indptr[-1], dtype=np.int32)
        for a, b in _runs(starts, stops, self.store.chunk(f"{path}/data")):
            begin = starts[a]
            wanted: Any = slice(None)  # all that is read, unless some columns are left out
            if not np.array_equal(starts[a + 1 : b], stops[a : b - 1]):
                wanted = np.repeat(
                    starts[a:b] - begin - indptr[a:b], np.diff(indptr[a : b + 1])
                ) + np.arange(indptr[a], indptr[b])
            for name, out in (("data", data), ("indices", rows)):
                out[indptr[a] : indptr[b]] = self.store.read(
                    f"{path}/{name}", int(begin), int(stops[b - 1])
                )[wanted]
        self.store.require(_are_inside(rows, len(rows), length), f"{path}/indices")
        return data, rows, indptr


def _are_inside(indices: AnyArray, size: int, stop: int) -> bool:
    """Return whether the indices have this number and lie in [0, stop): kernels trust them."""
    return len(indices) == size and (not size or bool(indices.min() >= 0 and indices.max() < stop))


def _runs(starts: AnyArray, stops: AnyArray, chunk: int) -> Iterator[tuple[int, int]]:
    """Yield runs [a, b) of columns that are read at once, as no whole chunk lies between them."""
    if not len(starts):
        return
    gaps = np.flatnonzero(starts[1:] // chunk > np.maximum(stops[:-1] - 1, 0) // chunk + 1) + 1
    yield from zip([0, *gaps.tolist()], [*gaps.tolist(), len(starts)], strict=True)


def _stack(
    parts: Sequence[tuple[AnyArray, AnyArray, AnyArray]],
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Stack CSC blocks, given as (data, rows, indptr), one below the other."""
    indptr = np.sum([p for _, _, p in parts], axis=0)
    data, rows = np.empty(indptr[-1], dtype=parts[0][0].dtype), np.empty(indptr[-1], dtype=np.int32)
    begin = indptr[:-1].copy()
    for values, indices, ends in parts:
        where = np.repeat(begin - ends[:-1], np.diff(ends)) + np.arange(ends[-1])
        data[where], rows[where] = values, indices
        begin += np.diff(ends)
    return data, rows, indptr
