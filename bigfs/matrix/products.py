"""The products of a tiled matrix and of its transpose with dense matrices. One pass each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigfs import tiles
from bigfs.matrix.tiled import Tiled
from bigfs.types import AnyArray


def times(X: Tiled, W: AnyArray) -> AnyArray:
    """X @ W, dense n × r, for a dense d × r (or d) `W`."""
    W = np.asarray(W)
    if X.row_tiles:
        return np.concatenate(X.map_rows(tiles.times, W))
    each = [[W[t.start : t.stop] for t in X.column_tiles]]
    return np.asarray(X.reduce_columns(tiles.times, each=each))


@dataclass(frozen=True)
class Transposed:
    """The transposed matrix, only for products."""

    X: Tiled

    def __matmul__(self, V: AnyArray) -> AnyArray:
        """Xᵀ @ V, dense d × r, for a dense n × r (or n) `V`."""
        V = np.asarray(V)
        if self.X.column_tiles:
            return np.concatenate(self.X.map_columns(tiles.transposed_times, V))
        each = [[V[t.start : t.stop] for t in self.X.row_tiles]]
        return np.asarray(self.X.reduce_rows(tiles.transposed_times, each=each))
