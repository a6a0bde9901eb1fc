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
from bigfs.matrix.gathering import gather_dense
from bigfs.matrix.panels import ColumnStrips, times_by_strips
from bigfs.matrix.statistics import Stats
from bigfs.matrix.tiles import BlockTile
from bigfs.types import FloatArray, IntArray

DENSE_ABOVE = 0.3  # share of non-zeros above which a dense array is smaller and faster


class ActiveColumns:
    """The active columns of X: gathered if they fit in memory, else taken from its tiles."""

    def __init__(self, X: Matrix, room: float = np.inf, feature_bytes: int = 0) -> None:
        self.full = self.X = X  # X: the active columns, or the full matrix
        self.index: IntArray | None = None  # (n_active,) of the columns of X, None if it is full
        self.gathered = False
        self._block: Any = None  # the gathered columns: a csr array, or a dense one
        self._room, self._feature_bytes = room, feature_bytes

    def select(self, active: IntArray) -> None:
        """Gather these columns, given in increasing order, if they fit."""
        if self.stays_full(active):
            self._release()
            return
        if not self.fits(active):
            self._release()
            self.index, self.X = active, self.full.take_columns(active)
            return
        if self.gathered and self.index is not None and np.array_equal(self.index, active):
            return
        block = self._gather(active)
        self.index, self.gathered, self._block = active, True, block
        tiles = [BlockTile(0, size, block, verified=True) for size in block.shape]
        self.X = Matrix(
            block.shape,
            rows=tiles[:1],
            columns=[] if sp.issparse(block) else tiles[1:],
            stats=Stats(*(of_column[active] for of_column in self.full.stats)),
            local=True,
        )

    def fits(self, active: IntArray) -> bool:
        """Return whether these columns fit in their share of the memory."""
        size = self._bytes(active)
        beside = self._feature_bytes * len(active)
        return self.has_room(size, len(active)) and size / 2 + beside <= self._room

    def has_room(self, size: int, n_active: int) -> bool:
        """Return whether columns of `size` bytes fit in their share of the memory."""
        return size <= engine.SHARES.value.active_columns * engine.planned_memory()

    def stays_full(self, active: IntArray) -> bool:
        """Return whether these columns are served by the full matrix.

        It is so where they do not fit and are all of them, or part of an array in memory.
        """
        every = self.full.local or len(active) == self.full.shape[1]
        return every and not self.fits(active)

    def own_rows(self, W: FloatArray) -> FloatArray:
        """Return the rows of W (d × r) of the columns of `X`."""
        return W if self.index is None else W[self.index]

    def all_rows(self, part: FloatArray) -> FloatArray:
        """Return the W (d × r) whose rows of the columns of `X` are these, and zero elsewhere."""
        if self.index is None:
            return part
        W = engine.lazy_zeros((self.full.shape[1], part.shape[1]))
        W[self.index] = part
        return W

    def times(self, W: FloatArray) -> FloatArray:
        """Return X W (n × r) for a W (d × r) that is zero outside the active columns."""
        return self.X @ self.own_rows(W)

    def times_by_strips(self, W: FloatArray, width: int) -> ColumnStrips:
        """Return X W as `times` does, by strips of `width` columns."""
        return times_by_strips(self.X, self.own_rows(W), width)

    def transposed_times(self, V: FloatArray | ColumnStrips) -> FloatArray:
        """Return XᵀV (d × r). Rows of columns that are not in `X` are zero."""
        return self.all_rows(np.asarray(self.X.T @ V))

    def _release(self) -> None:
        """Free what was gathered, so that `X` is the full matrix."""
        self.index, self.X, self._block, self.gathered = None, self.full, None, False

    def _gather(self, active: IntArray) -> Any:
        """Return these columns as a csr array, or as a dense one where that is smaller. Columns
        gathered before are freed first, unless they are part of it."""
        held, block = self.index if self.gathered else None, self._block
        self._release()
        if held is not None and np.isin(active, held, assume_unique=True).all():
            block = block[:, np.searchsorted(held, active)]
        else:
            block = None  # the last columns go before the next ones come
            nnz, size = self.full.stats.nnz[active].sum(), self.full.shape[0] * max(len(active), 1)
            if nnz > DENSE_ABOVE * size:
                return gather_dense(self.full, active)
            block = self.full.columns(active).tocsr()
        if not sp.issparse(block):
            return block
        if not self.full.local:
            engine.trim_memory()  # what the parts that traveled have left
        values = block.data.astype(np.float64, copy=False)
        return sp.csr_array((values, block.indices, block.indptr), shape=block.shape)

    def _bytes(self, active: IntArray) -> int:
        """Return the bytes of these columns in float64, sparse or dense.

        There are two sparse copies while they are gathered, of which one stays.
        """
        return min(
            24 * int(self.full.stats.nnz[active].sum()), 8 * self.full.shape[0] * len(active)
        )
