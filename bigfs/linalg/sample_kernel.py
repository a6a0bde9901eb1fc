"""The n × n kernel X diag(φ) Xᵀ, summed over tiles of columns."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix import Block, Matrix
from bigfs.types import FloatArray

DENSE_SHARE = 0.05  # columns with more non-zeros than this share of n are multiplied as dense ones
ROWS_PER_BLOCK = 2048  # the sparse part of the kernel is added in blocks of this many rows
DENSE_COLUMNS = 256  # columns that are made dense at a time


def kernel(X: Matrix, phi: FloatArray) -> FloatArray:
    """Return X diag(φ) Xᵀ, dense n × n, summed over tiles of columns. Reads X once. At most three
    arrays of its size exist at a time. A matrix in memory that has only the layout by rows is
    copied by columns."""
    n, d = X.shape
    by_columns = X if X.column_tiles or not X.local else Matrix.from_array(X.columns(np.arange(d)))
    tiles, K = by_columns.tiles(1), None
    at_once = 1 if engine.client() is None else 2  # parts of n × n beside the sum
    for k in range(0, len(tiles), at_once):
        batch = Matrix(X.shape, columns=tiles[k : k + at_once], local=X.local)
        for part in batch.map(_kernel, 1, split=[phi]):
            if K is None:
                K = np.require(part, requirements="W")  # what came from a worker may be read-only
            else:
                K += part
        del part  # before the next ones are made
    X.passes += 1
    return np.zeros((n, n)) if K is None else K


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
