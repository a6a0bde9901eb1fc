"""Layouts of a `Matrix`: from arrays in memory, and from Dask arrays and data frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix import tiles
from bigfs.matrix.tiles import Block, DaskTile
from bigfs.settings import Setting
from bigfs.types import AnyArray, IntArray
from bigfs.validation import check_block, require_readable

TILE_VALUES = Setting(1 << 21)  # values of a tile of a file that others wrote: 16 MB of float64
LARGEST_CHUNK = 8  # tiles of that size, to which a tile grows where the file has such chunks
LEAST_TILES = 64  # that many small blocks of a Dask array become, as work for many workers


def readable(X: Any) -> Any:
    """Return X, or a lazy Dask array of X in a file. Refuse what would be loaded whole."""
    library, kind = type(X).__module__.partition(".")[0], type(X).__name__
    if library == "anndata" and hasattr(X, "group") and hasattr(X, "format"):
        return _lazy_cells(X)
    if (library, kind) in (("zarr", "Array"), ("h5py", "Dataset")):
        return _lazy_slices(X)
    require_readable(X)
    if library == "pandas" and kind == "DataFrame":
        for name, dtype in X.dtypes.items():
            if dtype.kind in "mM":
                raise ValueError(
                    f"column {name} holds dates or times: leave it out, or make numbers of it"
                )
    return X


def _lazy_cells(X: Any) -> Any:
    """Return a backed sparse matrix of AnnData as a Dask array of rows, or of columns if csc."""
    from anndata.experimental import read_elem_lazy  # X is of this library

    axis = 1 if X.format == "csc" else 0
    per_line = X.group["indices"].shape[0] / max(X.shape[axis], 1)
    chunks = [-1, -1]
    chunks[axis] = int(TILE_VALUES.value / max(per_line, 1)) + 1
    return read_elem_lazy(X.group, chunks=tuple(chunks))


def _lazy_slices(X: Any) -> Any:
    """Return an array in a file as a Dask array of rows, or of columns if its chunks are."""
    if len(X.shape) != 2:
        raise ValueError(f"X must have two dimensions, samples and features; got {len(X.shape)}")
    chunks = X.chunks or (1, 1)
    axis = 1 if chunks[0] >= X.shape[0] and chunks[1] < X.shape[1] else 0
    wanted, stored = max(TILE_VALUES.value // max(X.shape[1 - axis], 1), 1), chunks[axis]
    if stored <= LARGEST_CHUNK * wanted:  # else a chunk is read for more than one tile
        wanted = max(wanted // stored, 1) * stored
    sizes = list(X.shape)
    sizes[axis] = min(wanted, max(sizes[axis], 1))
    return engine.dask_slices(X, tuple(sizes))


def array_layouts(
    X: Any, tile_rows: int | None, tile_columns: int | None, feature_names: Any
) -> dict[str, Any]:
    """Return the parts of a `Matrix` for an array in memory. A sparse one gets both layouts."""
    for name, size in (("tile_rows", tile_rows), ("tile_columns", tile_columns)):
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, or None for one tile; got {size}")
    X = check_block(X, names=feature_names)
    if sp.issparse(X):
        engine.require_memory(
            (X.dtype.itemsize + X.indices.itemsize) * X.nnz, "X by rows and by columns"
        )
    return {
        "shape": X.shape,
        "rows": tiles.block_tiles(X, 0, tile_rows),
        "columns": tiles.block_tiles(X, 1, tile_columns),
        "local": True,
        "feature_names": feature_names,
        "meta": sp.csr_array(X[:0]) if sp.issparse(X) else X[:0],
    }


def dask_layout(X: Any) -> dict[str, Any]:
    """Return the parts of a `Matrix` for a Dask array or data frame. The blocks stay lazy."""
    names = None
    if not hasattr(X, "chunks"):  # a data frame
        names = np.array([str(name) for name in X.columns], dtype=object)
        X = X.to_dask_array()
    if X.ndim != 2:
        raise ValueError(
            f"X must have two dimensions, samples and features; the Dask array has {X.ndim}"
        )
    of_columns = X.numblocks[0] == 1 < X.numblocks[1]
    if X.numblocks[1] > 1 and np.isnan(X.shape[1]):
        raise ValueError(
            "X has several chunks of columns of unknown sizes: call X.compute_chunk_sizes() first"
        )
    if X.numblocks[1] > 1 and not of_columns:
        X = X.rechunk({1: -1}, method="tasks")  # a block of p2p has no task of its own
    axis = int(of_columns)
    parts = engine.lazy_blocks(X)
    sizes, other = X.chunks[axis], X.shape[1 - axis]
    if np.isnan([*sizes, other]).any():
        shapes = engine.map_tiles(_shape, parts)
        sizes, other = [shape[axis] for shape in shapes], shapes[0][1 - axis]
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    shape = (int(other), int(bounds[-1])) if of_columns else (int(bounds[-1]), int(other))
    if not shape[0]:
        raise ValueError("X has no rows: a Dask array or data frame needs at least one")
    return {
        "shape": shape,
        "columns" if of_columns else "rows": _dask_tiles(parts, bounds, shape, axis),
        "feature_names": names,
        "meta": _empty_block(engine.empty_block(X), shape[1]),
    }


def _dask_tiles(
    parts: list[engine.LazyBlock], bounds: IntArray, shape: tuple[int, int], axis: int
) -> list[DaskTile]:
    """Return the tiles of lazy blocks. Small neighbors make one tile, which is read at once, unless
    they wait for what others need or a cluster holds."""
    most = min(TILE_VALUES.value // max(shape[1 - axis], 1), shape[axis] // LEAST_TILES)
    source, tiles = engine.Source(), list[DaskTile]()
    for start, stop, part in zip(bounds[:-1].tolist(), bounds[1:].tolist(), parts, strict=True):
        if stop == start:
            continue
        if tiles and stop - tiles[-1].start <= most and not (part.inputs or tiles[-1].block.inputs):
            start, part = tiles[-1].start, tiles.pop().block + part
        tiles.append(DaskTile(start, stop, part, axis, source))
    return tiles


def _shape(of: engine.LazyBlock) -> tuple[int, int]:
    block = of.load()
    return (int(block.shape[0]), int(block.shape[1]))


def _empty_block(meta: Any, width: int) -> Block:
    """Return a block without rows, as `engine.load` gives the blocks of this kind."""
    dtype = meta.dtype if meta.dtype == np.float32 else np.float64
    if sp.issparse(meta):
        return sp.csr_array((0, width), dtype=dtype)
    return np.empty((0, width), dtype=dtype)


def load_as(tile: Any, meta: Block) -> Block:
    """Return the block of a tile, converted to the type and the dtype of `meta`."""
    block = engine.load(tile)
    if sp.issparse(meta):
        return sp.csr_array(block, dtype=meta.dtype)
    dense: AnyArray = block.toarray() if sp.issparse(block) else block
    return np.asarray(dense, dtype=meta.dtype)
