"""Rows and columns of a `Matrix` X, gathered in memory."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.engine.workers import nbytes
from bigfs.matrix import tiles
from bigfs.matrix.tiles import BlockTile, FileTile, cut
from bigfs.settings import Setting
from bigfs.types import AnyArray, FloatArray, IntArray

MIN_NNZ = Setting(100_000)  # below which a pass has too little work for its tasks to matter
ENTRY_BYTES = 8  # of a gathered non-zero: a float32 value and an int32 row
# of a non-zero while columns are gathered: the parts of the tiles and their union, each a float64
# and an int64, and at the end both layouts of a matrix
PEAK_ENTRY_BYTES = 48


def gather_columns(X: Any, index: IntArray) -> sp.csc_array:
    """Return columns, in the order of `index`, n × u in memory."""
    if not X.column_tiles:
        return _columns_of_rows(X, index)
    n, d = X.shape
    order = np.argsort(index, kind="stable")
    wanted = cut(X.column_tiles, d, index[order])
    if not wanted:
        return sp.csc_array((n, 0))
    wanted_tiles, _, wanted_columns = zip(*wanted, strict=True)
    results = engine.stream_tiles(
        tiles.read_columns, wanted_tiles, each=[wanted_columns], local=X.local
    )
    parts = _collect(results, len(wanted), f"{len(index)} columns")
    Z = sp.csc_array(sp.hstack(parts, format="csc"))
    del parts  # before the columns are held twice again
    return Z if np.array_equal(order, np.arange(len(order))) else Z[:, np.argsort(order)]


def gather_dense(X: Any, index: IntArray) -> FloatArray:
    """Return increasing columns as a dense array, n × u. A tile's part of them is in memory too."""
    Z = np.empty((X.shape[0], len(index)), order="F")  # a CSC array becomes such a dense one
    if not X.column_tiles:
        for i, part in engine.stream_tiles(_dense_columns, X.row_tiles, index, local=X.local):
            Z[X.row_tiles[i].start : X.row_tiles[i].stop] = part
        return Z
    wanted_tiles, places, own = zip(*cut(X.column_tiles, X.shape[1], index), strict=True)
    parts = engine.stream_tiles(tiles.read_columns, wanted_tiles, each=[own], local=X.local)
    for i, part in parts:
        Z[:, places[i]] = part.toarray()
    return Z


def _dense_columns(tile: Any, index: IntArray) -> AnyArray:
    part = engine.load(tile)[:, index]
    return np.asarray(part.toarray() if sp.issparse(part) else part)


def _collect(results: Iterable[tuple[int, Any]], n: int, what: str) -> list[Any]:
    """Return the n parts of the gathered columns, or refuse them as soon as they do not fit."""
    parts, size = [None] * n, 0
    for i, part in results:
        parts[i] = part
        size += nbytes(part)
        engine.require_memory(2 * size, what)
    return parts


def hold_if_small(X: Any) -> Any:
    """Return a sparse X whose columns this process holds, or X itself if that takes more than its
    share of the memory. On a cluster each pass over a small matrix would wait for its tasks."""
    if X.local or not X.column_tiles or not sp.issparse(X.meta):
        return X
    largest = engine.SHARES.value.small_matrix * engine.memory_limit() / ENTRY_BYTES
    if not MIN_NNZ.value <= X.nnz <= largest or engine.lazy_inputs(X.column_tiles):
        return X
    every = [np.arange(tile.stop - tile.start) for tile in X.column_tiles]
    blocks = engine.map_tiles(tiles.read_columns, X.column_tiles, each=[every], local=True)
    here = copy(X)
    here._passes = X._passes  # its passes count as passes over X
    here.row_tiles, here.local = (), True
    here.column_tiles = tuple(
        BlockTile(tile.start, tile.stop, block, verified=True)
        for tile, block in zip(X.column_tiles, blocks, strict=True)
    )
    return here


@contextlib.contextmanager
def rows_on_disk(X: Any) -> Iterator[Any]:
    """Give a sparse X by rows alone, in a temporary file of this process until the block ends.

    Many passes over chosen columns read them there, and not all columns each time.
    """
    if X.local or not X.row_tiles:
        yield X
        return
    here = copy(X)
    here.column_tiles = ()
    if not sp.issparse(X.meta):
        yield here
        return
    with tempfile.TemporaryFile(prefix="bigfs-") as file:
        written = {
            i: FileTile.write(X.row_tiles[i].start, sp.csr_array(block), file)
            for i, block in engine.stream_tiles(engine.load, X.row_tiles)
        }
        engine.trim_memory()  # what the blocks have left in the buffers of the connections
        here.row_tiles = tuple(written[i] for i in range(len(written)))
        here.local = True
        yield here


def hold_columns(X: Any, index: IntArray) -> Any:
    """Return X, or a matrix of its shape with the values of these columns alone where each task
    would wait for all of X: for blocks of a Dask array that others need or that a cluster holds."""
    if not engine.lazy_inputs(X.row_tiles, X.column_tiles):
        return X
    index = np.asarray(index, dtype=np.int64)
    engine.require_memory(
        PEAK_ENTRY_BYTES * int(X.stats.nnz[index].sum()),
        f"{len(index)} gathered columns of {X.shape[0]} samples",
    )
    Z = gather_columns(X, index).tocsr()
    return type(X).from_array(sp.csr_array((Z.data, index[Z.indices], Z.indptr), shape=X.shape))


def _columns_of_rows(X: Any, index: IntArray) -> sp.csc_array:
    results = engine.stream_tiles(_sparse_columns, X.tiles(0), index, local=X.local)
    parts = _collect(results, len(X.row_tiles), f"{len(index)} columns")
    Z = sp.vstack(parts, format="csr")
    del parts
    return sp.csc_array(Z)


def _sparse_columns(tile: Any, index: IntArray) -> sp.csr_array:
    return sp.csr_array(engine.load(tile)[:, index])


def numbers_of(index: Any, size: int, noun: str, *, increasing: bool) -> IntArray:
    """Return the numbers of rows or columns, the noun, from a mask, a slice or numbers."""
    if isinstance(index, slice):
        index = np.arange(size)[index]
    index = np.asarray(index)
    if index.dtype == bool:
        if index.shape != (size,):
            raise IndexError(f"a mask of {noun}s must have shape ({size},); got {index.shape}")
        return np.flatnonzero(index)
    if index.ndim != 1 or (len(index) and index.dtype.kind not in "iu"):
        raise TypeError(  # an IndexError would end a loop over the rows in silence
            f"{noun}s must be a slice, a mask, or a list of {noun} numbers; got "
            f"{index.dtype} of shape {index.shape}"
        )
    index = index.astype(np.int64)
    if increasing and np.any(np.diff(index) <= 0):
        raise ValueError(f"{noun} numbers must be strictly increasing: sort them and drop repeats")
    wrong = index[(index < 0) | (index >= size)]
    if len(wrong):
        raise IndexError(f"{noun} {wrong[0]} is out of range: there are {size} {noun}s")
    return index


def gather_rows(row_tiles: Any, local: bool) -> sp.csr_array | AnyArray:
    """Return the blocks of tiles of rows, one below the other. An ndarray if they are dense."""
    results = engine.stream_tiles(engine.load, row_tiles, local=local)
    parts = _collect(results, len(row_tiles), "the rows")
    return (
        np.concatenate(parts)
        if all(isinstance(p, np.ndarray) for p in parts)
        else sp.csr_array(sp.vstack(parts))
    )
