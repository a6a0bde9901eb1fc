"""The statistics of the columns of a matrix, of all samples and per class."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfs import tiles
from bigfs.matrix.tiled import Tiled
from bigfs.types import AnyArray


class Stats(NamedTuple):
    """Σ x, Σ x² (float64) and number of non-zeros (int64) of each column, each of shape (d,)."""

    sums: AnyArray
    sums_of_squares: AnyArray
    nnz: AnyArray


class ClassStats(NamedTuple):
    """Σ x, Σ x² and number of non-zeros of each column in each class, each of shape (d, c)."""

    sums: AnyArray
    sums_of_squares: AnyArray
    nnz: AnyArray


def compute_stats(X: Tiled) -> Stats:
    """Return the statistics of the columns. One pass."""
    if X.column_tiles:
        parts = X.map_columns(tiles.column_stats)
        sums, squares, nnz = (np.concatenate(part) for part in zip(*parts, strict=True))
    else:
        sums, squares, nnz = X.reduce_rows(tiles.column_stats)
    return Stats(sums, squares, nnz.astype(np.int64))
