"""The active features of a loop: their columns are gathered in memory once they fit.

Later products then no longer read the corpus. Until then they read only the active columns of its
tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.matrix.statistics import Stats
from bigfs.types import FloatArray, IntArray

MEMORY_SHARE = 0.25  # share of the memory limit that gathered columns may take
DENSE_ABOVE = 0.3  # share of non-zeros above which a dense array is smaller and faster


class ActiveColumns:
    """The active columns of X: gathered if they fit in memory, else taken from its tiles.

    Parameters
    ----------
    X : Matrix of shape (n, d)
        The samples.
    limit : int or None, default=None
        Bytes that one process may use. None takes `engine.memory_limit()`.

    Attributes
    ----------
    full : Matrix of shape (n, d)
        The samples.
    X : Matrix
        The active columns, or all of them.
    index : ndarray of shape (n_active,) or None
        Numbers of the columns in X, increasing. None if X holds all of them.
    gathered : bool
        Whether X is in memory because its columns were gathered.
    """

    def __init__(self, X: Matrix, limit: int | None = None) -> None:
        self.full = self.X = X
        self.index: IntArray | None = None
        self.gathered = False
        self._dense: FloatArray | None = None  # the gathered columns, if they are a dense array
        self._limit = limit

    def select(self, active: IntArray) -> None:
        """Gather these columns, given in increasing order, if they fit."""
        if self.stays_full(active):
            self.index, self.X, self.gathered = None, self.full, False
            return
        if not self.fits(active):
            self.index, self.X, self.gathered = active, self.full.take_columns(active), False
            return
        if self.gathered and self.index is not None and np.array_equal(self.index, active):
            return
        columns = self._gather(active)
        self._dense = None if sp.issparse(columns) else columns
        self.index, self.gathered = active, True
        self.X = self.full  # what was gathered goes before its successor has both layouts
        gathered = Matrix.from_array(columns)
        self.X = Matrix(
            gathered.shape,
            rows=gathered.row_tiles,
            columns=gathered.column_tiles,
            stats=Stats(*(of_column[active] for of_column in self.full.stats)),
            local=True,
        )

    def fits(self, active: IntArray) -> bool:
        """Return whether these columns fit in their share of the memory."""
        return self._bytes(active) <= MEMORY_SHARE * (self._limit or engine.memory_limit())

    def stays_full(self, active: IntArray) -> bool:
        """Return whether these columns are served by the full matrix.

        It is so where they do not fit and are all of them, or part of an array in memory.
        """
        every = self.full.local or len(active) == self.full.shape[1]
        return every and not self.fits(active)

    def times(self, W: FloatArray) -> FloatArray:
        """Return X W (n × r) for a W (d × r) that is zero outside the active columns."""
        return self.full @ W if self.index is None else self.X @ W[self.index]

    def transposed_times(self, V: FloatArray) -> FloatArray:
        """Return XᵀV (d × r). Rows of columns that are not in `X` are zero."""
        if self.index is None:
            return self.X.T @ V
        G = np.zeros((self.full.shape[1], V.shape[1]))
        G[self.index] = self.X.T @ V
        return G

    def _gather(self, active: IntArray) -> Any:
        """Return these columns as a csc array, or as a dense one where that is smaller."""
        held = self.index if self.gathered else None
        if held is not None and np.isin(active, held, assume_unique=True).all():
            part = np.searchsorted(held, active)
            if self._dense is not None:
                return self._dense[:, part]
            columns = self.X.columns(part)
        else:
            columns = self.full.columns(active)
        dense = columns.nnz > DENSE_ABOVE * columns.shape[0] * max(columns.shape[1], 1)
        gathered = columns.toarray() if dense else columns
        return gathered.astype(np.float64, copy=False)

    def _bytes(self, active: IntArray) -> int:
        """Return the bytes of these columns in float64: in both sparse layouts, or dense."""
        return min(
            24 * int(self.full.stats.nnz[active].sum()), 8 * self.full.shape[0] * len(active)
        )
