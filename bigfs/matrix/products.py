"""The products of a tiled matrix and of its transpose with dense matrices. One pass each.

A dense matrix of n rows that does not fit in memory is taken by strips of its columns.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigfs import engine
from bigfs.matrix import kernels, tiles
from bigfs.matrix.panels import ColumnStrips, StripFile
from bigfs.matrix.tiled import Tiled
from bigfs.types import AnyArray, FloatArray


def times(X: Tiled, W: AnyArray) -> AnyArray:
    """X @ W, dense n × r, for a dense d × r (or d) `W`."""
    W = _require_length(W, X.shape[1], "columns")
    if X.row_tiles:
        return np.concatenate(X.map_rows(tiles.times, W))
    each = [[W[t.start : t.stop] for t in X.column_tiles]]
    return np.asarray(X.reduce_columns(tiles.times, each=each))


def times_by_strips(X: Tiled, W: AnyArray, width: int) -> ColumnStrips:
    """X @ W by strips of `width` columns, for a dense d × r `W`."""
    with ExitStack() as until_filled:  # a pass that fails leaves no file
        product = until_filled.enter_context(ColumnStrips(X.shape[0], W.shape[1], width))
        if is_by_rows(X, product):
            X.map_rows(_write_times, W, product.file)
            engine.trim_memory()  # what W has left in the buffers of the connections
        else:
            for columns in product.slices:
                product[columns] = times(X, W[:, columns])
        until_filled.pop_all()
    return product


def is_by_rows(X: Tiled, V: ColumnStrips) -> bool:
    """Return whether the tasks of a pass over X read or write their rows in the file of V."""
    return V.file is not None and not X.local and len(X.row_tiles) > 0 and V.file.file.is_shared()


def _write_times(block: Any, start: int, stop: int, W: FloatArray, file: StripFile) -> None:
    """Write block @ W."""
    for rows, Z in kernels.strips(block):
        file.write_rows(start + rows.start, kernels.times(Z, W))


def _require_length(factor: Any, length: int, noun: str) -> AnyArray:
    """Return the factor of a product as an array, or refuse one of another length."""
    factor = np.asarray(factor)
    if len(factor) != length:
        raise ValueError(
            f"X has {length} {noun}, so the factor needs as many rows; got shape {factor.shape}"
        )
    return factor


@dataclass(frozen=True)
class Transposed:
    """The transposed matrix, only for products."""

    X: Tiled

    def __matmul__(self, V: AnyArray | ColumnStrips) -> AnyArray:
        """Xᵀ @ V, dense d × r, for a dense n × r (or n) `V`, or for its strips."""
        if isinstance(V, ColumnStrips):
            return self._times_strips(V)
        V = _require_length(V, self.X.shape[0], "rows")
        if self.X.column_tiles:
            return np.concatenate(self.X.map_columns(tiles.transposed_times, V))
        each = [[V[t.start : t.stop] for t in self.X.row_tiles]]
        return np.asarray(self.X.reduce_rows(tiles.transposed_times, each=each))

    def _times_strips(self, V: ColumnStrips) -> FloatArray:
        shape = (self.X.shape[1], V.shape[1])
        if is_by_rows(self.X, V):
            n_groups = kernels.n_sums(8 * shape[0] * shape[1])
            return np.asarray(self.X.reduce_row_groups(_add_transposed_times, n_groups, V.file))
        if V.whole:
            return np.asarray(self @ V[V.slices[0]])
        product = np.empty(shape)
        for columns, strip in V:
            product[:, columns] = self @ strip
        return product


def _add_transposed_times(
    block: Any, start: int, stop: int, file: StripFile, total: FloatArray | None
) -> FloatArray:
    """Add blockᵀ V, for the rows of V in a file."""
    if total is None:
        total = np.zeros((block.shape[1], file.slices[-1].stop))
    for rows, Z in kernels.strips(block):
        kernels.add_products(Z, file.read_rows(start + rows.start, start + rows.stop), total)
    return total
