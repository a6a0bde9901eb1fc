"""Layouts of a `Matrix`: from arrays in memory, and from Dask arrays and data frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix import tiles
from bigfs.matrix.tiles import Block, DaskTile
from bigfs.types import AnyArray
from bigfs.validation import check_block


def array_layouts(X: Any, tile_rows: int | None, tile_columns: int | None) -> dict[str, Any]:
    """Return the parts of a `Matrix` for an array in memory. A sparse one gets both layouts."""
    for name, size in (("tile_rows", tile_rows), ("tile_columns", tile_columns)):
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, or None for one tile; got {size}")
    X = check_block(X)
    if sp.issparse(X):
        engine.require_memory(
            (X.dtype.itemsize + X.indices.itemsize) * X.nnz, "X by rows and by columns"
        )
    by_rows, by_columns = (sp.csr_array(X), sp.csc_array(X)) if sp.issparse(X) else (X, X)
    return {
        "shape": X.shape,
        "rows": tiles.block_tiles(by_rows, 0, tile_rows),
        "columns": tiles.block_tiles(by_columns, 1, tile_columns),
        "local": True,
        "meta": by_rows[:0],
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
    if len(X.chunks[1]) > 1:
        if np.isnan(X.shape[1]):
            raise ValueError(
                "X has several chunks of columns of unknown sizes: call "
                "X.compute_chunk_sizes() first"
            )
        X = X.rechunk({1: -1})
    parts = engine.lazy_blocks(list(X.to_delayed()[:, 0]))
    sizes, width = X.chunks[0], X.shape[1]
    if np.isnan([*sizes, width]).any():
        shapes = engine.map_tiles(_shape, parts)
        sizes, width = [rows for rows, _ in shapes], shapes[0][1]
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    if not bounds[-1]:
        raise ValueError("X has no rows: a Dask array or data frame needs at least one")
    return {
        "shape": (int(bounds[-1]), int(width)),
        "rows": [
            DaskTile(int(a), int(b), part)
            for a, b, part in zip(bounds, bounds[1:], parts, strict=False)
            if b > a
        ],
        "feature_names": names,
        "meta": _empty_block(X._meta, int(width)),
    }


def _shape(of: engine.LazyBlock) -> tuple[int, int]:
    block = of.load()
    return (int(block.shape[0]), int(block.shape[1]))


def _empty_block(meta: Any, width: int) -> Block:
    """Return a block without rows, as `engine.load` gives the blocks of this kind."""
    dtype = meta.dtype if meta.dtype == np.float32 else np.float64
    if sp.issparse(meta):
        return sp.csr_array((0, width), dtype=dtype)
    return np.empty((0, width), dtype=dtype)


def lazy_rows(row_tiles: Any, meta: Block) -> Any:
    """Return the rows as a Dask array of blocks of the kind of `meta`, one per tile."""
    return engine.dask_array(
        [tile.stop - tile.start for tile in row_tiles],
        [(_load_as, tile, meta) for tile in row_tiles],
        meta,
    )


def _load_as(tile: Any, meta: Block) -> Block:
    """Return the block of a tile, converted to the type and the dtype of `meta`."""
    block = engine.load(tile)
    if sp.issparse(meta):
        return sp.csr_array(block, dtype=meta.dtype)
    dense: AnyArray = block.toarray() if sp.issparse(block) else block
    return np.asarray(dense, dtype=meta.dtype)
