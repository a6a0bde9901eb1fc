"""The n × n kernel X diag(φ) Xᵀ, summed over tiles of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix import Block, Matrix
from bigfs.types import FloatArray

DENSE_SHARE = 0.05  # columns with more non-zeros than this share of n are multiplied as dense ones
ROWS_PER_BLOCK = 2048  # the sparse part of the kernel is added in blocks of this many rows
DENSE_COLUMNS = 256  # columns that are made dense at a time


def kernel(X: Matrix, phi: FloatArray) -> FloatArray:
    """Return X diag(φ) Xᵀ, dense n × n, summed over tiles of columns in one pass.

    At most three arrays of its size exist at a time. A matrix in memory by rows alone is copied by
    columns.
    """
    by_columns = X
    if X.local and not X.column_tiles:
        by_columns = Matrix.from_array(X.columns(slice(None)))
    at_once = 1 if engine.client() is None else 2  # parts of n × n in addition to the sum
    K: FloatArray = sum_over_tiles(by_columns, 1, _kernel, at_once, phi)
    X.passes += 1
    return K


def sum_over_tiles(X: Matrix, axis: int, fn: Any, at_once: int, each: Any, *shared: Any) -> Any:
    """Return the sum of large parts in the order of the tiles, few of which exist at a time. `each`
    has a row per sample or column, of which a tile gets its own. The sum belongs to the caller."""
    tiles, total = X.tiles(axis), None
    for k in range(0, len(tiles), at_once):
        some: dict[str, Any] = {("rows", "columns")[axis]: tiles[k : k + at_once]}
        batch = Matrix(X.shape, **some, local=X.local)
        for part in batch.map(fn, axis, *shared, split=[each]):
            if total is not None:
                total += part
            else:  # what came from a worker may be read-only
                total = part.copy() if sp.issparse(part) else np.require(part, requirements="W")
        del part  # before the next ones are made
    return total


def _kernel(block: Block, start: int, stop: int, phi: FloatArray) -> FloatArray:
    """Return block diag(φ) blockᵀ: dense columns by BLAS, the rest as a product of sparse rows."""
    s, n = np.sqrt(phi), block.shape[0]
    K = np.zeros((n, n))
    if sp.issparse(block):
        Z = sp.csc_array(sp.csc_array(block, dtype=np.float64) * s[None, :])
        is_dense = np.diff(Z.indptr) > DENSE_SHARE * n
        dense, width = Z[:, is_dense], DENSE_COLUMNS
    else:
        dense, width = block, max(n, DENSE_COLUMNS)
    for a in range(0, dense.shape[1], width):
        some = dense[:, a : a + width]
        some = some.toarray() if sp.issparse(some) else some.astype(np.float64) * s[a : a + width]
        K += some @ some.T
    if sp.issparse(block):
        sparse = sp.csr_array(Z[:, ~is_dense])
        sparse_T = sp.csr_array(sparse.T)
        for a in range(0, n, ROWS_PER_BLOCK):
            K[a : a + ROWS_PER_BLOCK] += (sparse[a : a + ROWS_PER_BLOCK] @ sparse_T).toarray()
    return K
