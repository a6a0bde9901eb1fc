"""Tiles of a matrix, and the functions that `Matrix` runs on their blocks.

A tile is a small key with `start`, `stop` and `load()`. It stands for the rows or the columns
[start, stop) of a matrix. `load()` returns its block, an array with these rows or columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.types import AnyArray, FloatArray, IntArray
from bigfs.validation import check_block

# A block: a csr or csc array, or a dense ndarray.
Block = Any


@dataclass(frozen=True)
class BlockTile:
    """A tile that holds an array in memory, known to be finite and canonical if `verified`."""

    start: int
    stop: int
    block: Any
    verified: bool = False

    def load(self) -> Block:
        return self.block


@dataclass(frozen=True)
class OtherLayoutTile:
    """A tile of a whole sparse array in the other layout, which is made when it is first read."""

    start: int
    stop: int
    array: Any
    make: Callable[[Any], Any]
    verified: ClassVar[bool] = True

    @cached_property
    def block(self) -> Block:
        return self.make(self.array)

    def load(self) -> Block:
        return self.block


@dataclass(frozen=True)
class FileTile:
    """A tile of sparse rows that lie in a temporary file of this process, for many passes."""

    start: int
    stop: int
    file: Any
    place: int  # where its arrays begin
    n_columns: int
    verified: ClassVar[bool] = True

    @classmethod
    def write(cls, start: int, block: sp.csr_array, file: Any) -> FileTile:
        """Add a block to the end of a file."""
        place = file.tell()
        try:
            for part in (block.data, block.indices, block.indptr):
                np.save(file, part)
        except OSError as error:
            raise OSError(
                f"a temporary file of the chosen columns cannot be written ({error}): set TMPDIR "
                f"to a folder with room"
            ) from error
        return cls(start, start + block.shape[0], file, place, block.shape[1])

    def load(self) -> Block:
        self.file.seek(self.place)
        parts = tuple(np.load(self.file) for _ in range(3))
        return sp.csr_array(parts, shape=(self.stop - self.start, self.n_columns))


@dataclass(frozen=True)
class DaskTile:
    """A tile of a Dask array: keys of blocks, which are computed where the tile is loaded."""

    start: int
    stop: int
    block: engine.LazyBlock
    axis: int = 0
    source: str = ""  # in the cache
    verified: ClassVar[bool] = True

    @property
    def key(self) -> tuple[str, int] | None:
        """The key in the cache. Values that a cluster holds anyway are not cached."""
        return None if self.block.inputs else (str(self.source), self.start)

    def load(self) -> Block:
        return check_block(self.block.load(self.axis), self.start * self.axis)


def block_tiles(X: Any, axis: int, size: int | None) -> list[BlockTile | OtherLayoutTile]:
    """Cut a checked array along an axis into tiles of `size` rows or columns.

    One tile holds the array itself, because a slice of a sparse one is a copy.
    """
    length, kind = X.shape[axis], (sp.csr_array, sp.csc_array)[axis]
    if 0 < length <= (size or length):
        if sp.issparse(X) and X.format != ("csr", "csc")[axis]:
            return [OtherLayoutTile(0, length, X, kind)]
        return [BlockTile(0, length, kind(X) if sp.issparse(X) else X, verified=True)]
    X = kind(X) if sp.issparse(X) else X
    starts = range(0, length, size or max(length, 1))
    bounds = [(a, min(a + (size or length), length)) for a in starts]
    return [BlockTile(a, b, X[a:b] if axis == 0 else X[:, a:b], verified=True) for a, b in bounds]


def cut(tiles: Sequence[Any], size: int, index: IntArray) -> list[tuple[Any, slice, IntArray]]:
    """Return each tile with some of these increasing numbers of rows or columns, their places among
    them, and the numbers counted from its first one."""
    bounds = np.searchsorted(index, [t.start for t in tiles] + [size])
    return [
        (t, slice(a, b), index[a:b] - t.start)
        for t, a, b in zip(tiles, bounds.tolist(), bounds[1:].tolist(), strict=False)
        if b > a
    ]


class OnBlock:
    """Turn a function of a block into a function of a tile. It pickles if `fn` does."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__name__ = getattr(fn, "__name__", "block").strip("_")

    def __call__(self, tile: Any, *operands: Any) -> Any:
        return self.fn(engine.load(tile), tile.start, tile.stop, *operands)


# --- functions of a block ---------------------------------------------------------------------


def times(block: Block, start: int, stop: int, W: Any) -> AnyArray:
    """block @ W, dense."""
    product: Any = block @ W
    return np.asarray(product.toarray() if sp.issparse(product) else product)


def transposed_times(block: Block, start: int, stop: int, V: Any) -> AnyArray:
    """blockᵀ @ V, dense."""
    return times(block.T, start, stop, V)


def read_columns(tile: Any, index: AnyArray) -> sp.csc_array:
    """Return columns of a tile of columns.

    Only their bytes are read, if the tile can do that and is not cached anyway.
    """
    if hasattr(tile, "columns") and not engine.is_cached(tile):
        return (
            tile.columns(index)
            if getattr(tile, "verified", False)
            else sp.csc_array(check_block(tile.columns(index)))
        )
    return sp.csc_array(engine.load(tile)[:, index])


def column_stats(block: Block, start: int, stop: int) -> AnyArray:
    """Return Σ x, Σ x² and the number of non-zeros per column, float64 of shape (3, width)."""
    with np.errstate(over="ignore", under="ignore"):  # `Matrix.stats` refuses too large values
        if not sp.issparse(block):
            block = np.asarray(block, dtype=np.float64)
            return np.stack(
                [block.sum(axis=0), (block**2).sum(axis=0), np.count_nonzero(block, axis=0)]
            )
        entries = sp.coo_array(block)
        values, width = entries.data.astype(np.float64), block.shape[1]
        column = entries.coords[1]
        return np.stack(
            [
                np.bincount(column, weights=values, minlength=width),
                np.bincount(column, weights=values**2, minlength=width),
                np.bincount(column[values != 0], minlength=width),
            ]
        )


def shifted_sums(block: Block, start: int, stop: int, shift: FloatArray) -> FloatArray:
    """Return Σ(x − s) and Σ(x − s)² per column (2 × width). The columns are far from zero."""
    near = (block.toarray() if sp.issparse(block) else block).astype(np.float64) - shift
    return np.stack([near.sum(axis=0), np.einsum("ij,ij->j", near, near)])
