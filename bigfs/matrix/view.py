"""The part of a matrix that another one is: rows, columns, and its columns less a number each.

A view is one value. The tiles of the matrix share it, so it travels once, and it is applied where a
tile is loaded: `of_block` to a block, and `of_columns` to some columns of a tile of columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix.tiles import Block, cut, read_columns
from bigfs.types import AnyArray, FloatArray, IntArray


@dataclass(frozen=True)
class Subset:
    """Increasing numbers of some of `size` rows or columns, in the form that takes least memory."""

    size: int
    values: AnyArray  # the numbers, a bit per row or column, or the numbers of the others
    form: Literal["numbers", "bits", "others"]

    @classmethod
    def of(cls, numbers: IntArray, size: int) -> Self:
        """Pack numbers."""
        of_bits, of_others = size // 8, numbers.itemsize * (size - len(numbers))
        if numbers.nbytes <= min(of_bits, of_others):
            return cls(size, numbers, "numbers")
        mask = np.zeros(size, dtype=bool)
        mask[numbers] = True
        if of_others < of_bits:
            return cls(size, np.flatnonzero(~mask), "others")
        return cls(size, np.packbits(mask), "bits")

    def numbers(self) -> IntArray:
        if self.form == "numbers":
            return self.values
        if self.form == "bits":
            return np.flatnonzero(np.unpackbits(self.values, count=self.size))
        return np.delete(np.arange(self.size), self.values)


class RowSet(Subset):
    """Rows that are taken."""

    def of_block(self, block: Block) -> Block:
        return block[self.numbers()]

    def of_columns(self, tile: Any, index: IntArray) -> sp.csc_array:
        return read_columns(tile, index)[self.numbers()]


class ColumnSet(Subset):
    """Columns that are taken."""

    def of_block(self, block: Block) -> Block:
        return block[:, self.numbers()]

    def of_columns(self, tile: Any, index: IntArray) -> sp.csc_array:
        return read_columns(tile, self.numbers()[index])


@dataclass(frozen=True)
class Shift:
    """Columns that are far from zero, with the number that is subtracted from each.

    It is NaN for a constant column, which becomes zero.
    """

    columns: IntArray
    numbers: FloatArray

    def within(self, start: int, stop: int) -> Shift:
        """Return the shift of the columns [start, stop), which are numbered from 0."""
        own = slice(*np.searchsorted(self.columns, [start, stop]))
        return Shift(self.columns[own] - start, self.numbers[own])

    def of_block(self, block: Block) -> Block:
        if not len(self.columns):
            return block
        is_constant = np.isnan(self.numbers)
        constant, far = self.columns[is_constant], self.columns[~is_constant]
        numbers = self.numbers[~is_constant]
        near = block.astype(np.float64)
        if not sp.issparse(block):
            near[:, far] -= numbers
            near[:, constant] = 0
            return near
        n, d = block.shape
        zero = np.zeros(d, dtype=bool)
        zero[constant] = True
        near.data[zero[sp.coo_array(near).coords[1]]] = 0
        sizes = np.zeros(d + 1, dtype=near.indptr.dtype)
        sizes[far + 1] = n
        rows = np.tile(np.arange(n, dtype=near.indices.dtype), len(far))
        shift = sp.csc_array((np.repeat(numbers, n), rows, np.cumsum(sizes)), shape=block.shape)
        # the columns are all but full, so their differences take no more memory
        return near - type(near)(shift)

    def of_columns(self, tile: Any, index: IntArray) -> sp.csc_array:
        wanted = np.flatnonzero(np.isin(index, self.columns))
        numbers = self.numbers[np.searchsorted(self.columns, index[wanted])]
        near: sp.csc_array = Shift(wanted, numbers).of_block(read_columns(tile, index))
        return near


@dataclass(frozen=True)
class ViewTile:
    """The part that is taken of another tile of rows."""

    start: int
    stop: int
    tile: Any
    view: Any  # a `RowSet`, a `ColumnSet` or a `Shift`, or a `Shared` one
    verified: ClassVar[bool] = True

    def load(self) -> Block:
        return engine.unshare(self.view).of_block(engine.load(self.tile))


class ColumnViewTile(ViewTile):
    """The part that is taken of another tile of columns."""

    def load(self) -> Block:
        view = engine.unshare(self.view)
        if isinstance(view, ColumnSet) and reads_columns(self.tile):
            return read_columns(self.tile, view.numbers())
        return view.of_block(engine.load(self.tile))

    def columns(self, index: AnyArray) -> sp.csc_array:
        """Return some columns, read as `read_columns` reads them."""
        columns: sp.csc_array = engine.unshare(self.view).of_columns(self.tile, index)
        return columns


def reads_columns(tile: Any) -> bool:
    """Return whether a tile of columns can read some of them."""
    while isinstance(tile, ViewTile):
        tile = tile.tile
    return hasattr(tile, "columns")


def take_rows(X: Any, rows: IntArray) -> tuple[list[Any], list[Any]]:
    """Return the tiles of rows and of columns of some rows. Nothing is read."""
    by_rows = [
        ViewTile(place.start, place.stop, tile, RowSet.of(numbers, tile.stop - tile.start))
        for tile, place, numbers in cut(X.row_tiles, X.shape[0], rows)
    ]
    if X.row_tiles and not by_rows:
        by_rows = [ViewTile(0, 0, X.row_tiles[0], RowSet.of(rows, 0))]
    of_all = engine.Shared(RowSet.of(rows, X.shape[0]))
    return by_rows, [ColumnViewTile(t.start, t.stop, t, of_all) for t in X.column_tiles]


def take_columns(X: Any, index: IntArray) -> tuple[list[Any], list[Any]]:
    """Return the tiles of rows and of columns of some columns. Nothing is read."""
    by_columns = [
        ColumnViewTile(place.start, place.stop, tile, ColumnSet.of(numbers, tile.stop - tile.start))
        for tile, place, numbers in cut(X.column_tiles, X.shape[1], index)
    ]
    of_all = engine.Shared(ColumnSet.of(index, X.shape[1]))
    return [ViewTile(t.start, t.stop, t, of_all) for t in X.row_tiles], by_columns


def subtract(X: Any, shift: Shift) -> tuple[list[Any], list[Any]]:
    """Return the tiles of rows and of columns of X less a shift. Nothing is read."""
    of_all = engine.Shared(shift)
    by_columns = list(X.column_tiles)
    for i, tile in enumerate(by_columns):
        own = shift.within(tile.start, tile.stop)
        if len(own.columns):
            by_columns[i] = ColumnViewTile(tile.start, tile.stop, tile, own)
    return [ViewTile(t.start, t.stop, t, of_all) for t in X.row_tiles], by_columns
