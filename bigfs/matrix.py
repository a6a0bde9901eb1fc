"""`Matrix`: an n × d matrix that is held as tiles and loaded tile by tile.

It is never loaded as a whole and never made dense. A matrix may have two layouts. Tiles of rows
(CSR) give X @ W. Tiles of columns (CSC) give Xᵀ V, column scores and gathered columns without a
d × r reduction. Either layout alone suffices for every method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine, tiles
from bigfs.tiles import Block, BlockTile, OnBlock, OnGroup, RowSubsetTile
from bigfs.types import AnyArray
from bigfs.validation import check_block, require_magnitude

__all__ = ["Block", "Centered", "ClassStats", "Matrix", "Stats", "gram"]


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


class Matrix:
    """Hold an n × d matrix as tiles that are loaded where they are used.

    The matrix is never loaded as a whole and never made dense. It may have two layouts. Tiles of
    rows (CSR) give products X @ W. Tiles of columns (CSC) give products Xᵀ @ V, column scores and
    gathered columns. Either layout alone suffices for both products.

    Parameters
    ----------
    shape : tuple of int
        Numbers of rows and columns, (n, d).
    rows : sequence of tiles, default=()
        Tiles of rows in order. A tile has `start`, `stop` and `load()`.
    columns : sequence of tiles, default=()
        Tiles of columns in order. One layout may be missing, but not both.
    stats : Stats, callable or None, default=None
        Column statistics, or a function that reads them when they are asked for. None computes them
        in one pass.
    class_stats : callable, default=lambda codes: None
        Function of the class codes that returns their `ClassStats`, or None if it has none for
        these codes.
    local : bool, default=False
        Whether the tiles hold their arrays. Then all work stays in this process.

    Attributes
    ----------
    shape : tuple of int
        Numbers of rows and columns, (n, d).
    ndim : int
        Always 2.
    row_tiles : tuple of tiles
        Tiles of rows. Empty if the matrix has no such layout.
    column_tiles : tuple of tiles
        Tiles of columns. Empty if the matrix has no such layout.
    local : bool
        Whether all work stays in this process.
    passes : int
        How often the whole matrix was read. Gathering columns is not a pass.
    class_stats : callable
        As given.
    T : transposed view
        The transposed matrix, for products only.
    stats : Stats
        Column sums, sums of squares, and counts of non-zeros.
    means : ndarray of shape (d,)
        Column means μ.
    nnz : int
        Number of non-zeros.

    See Also
    --------
    cluster : Run the work on the tiles in several processes.

    Examples
    --------
    >>> import numpy as np
    >>> from bigfs import Matrix
    >>> X = Matrix.from_array(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]), tile_rows=2)
    >>> X.shape, len(X.row_tiles)
    ((3, 2), 2)
    >>> X @ np.array([1.0, 1.0])
    array([1., 2., 3.])
    >>> X.T @ np.ones(3)
    array([4., 2.])
    >>> X.columns([1]).toarray().ravel()
    array([0., 2., 0.])
    """

    __array_ufunc__ = None  # let `ndarray @ Matrix` reach us, to be refused

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        rows: Sequence[Any] = (),
        columns: Sequence[Any] = (),
        stats: Stats | Callable[[], Stats] | None = None,
        class_stats: Callable[[AnyArray], ClassStats | None] = lambda codes: None,
        local: bool = False,
    ) -> None:
        if not rows and not columns:
            raise ValueError("a Matrix needs tiles of rows or tiles of columns; got neither")
        self.shape = (int(shape[0]), int(shape[1]))
        self.row_tiles, self.column_tiles = tuple(rows), tuple(columns)
        self.local = local
        self.passes = 0
        self._stats, self.class_stats = stats, class_stats

    ndim = 2

    @classmethod
    def from_array(
        cls, X: Any, *, tile_rows: int | None = None, tile_columns: int | None = None
    ) -> Matrix:
        """Tile an array in memory.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            A NumPy array gives dense tiles. A sparse matrix gives both layouts.
        tile_rows : int or None, default=None
            Rows per tile of rows. None makes one tile.
        tile_columns : int or None, default=None
            Columns per tile of columns. None makes one tile.

        Returns
        -------
        Matrix
            The matrix, whose tiles hold their arrays.

        Raises
        ------
        ValueError
            X holds NaN, infinity, or something that is not a real number.
        """
        X = check_block(X)
        if not sp.issparse(X):
            return cls(
                X.shape,
                rows=tiles.block_tiles(X, 0, tile_rows),
                columns=tiles.block_tiles(X, 1, tile_columns),
                local=True,
            )
        by_rows, by_columns = sp.csr_array(X), sp.csc_array(X)
        return cls(
            X.shape,
            rows=tiles.block_tiles(by_rows, 0, tile_rows),
            columns=tiles.block_tiles(by_columns, 1, tile_columns),
            local=True,
        )

    @classmethod
    def from_dask(cls, X: Any) -> Matrix:
        """Tile a Dask array by its chunks of rows.

        The columns are brought into one chunk. A block is checked each time it is computed, so NaN
        and infinity raise a ValueError only then.

        Parameters
        ----------
        X : dask.array.Array of shape (n, d)
            Array whose blocks are NumPy or SciPy sparse arrays.

        Returns
        -------
        Matrix
            The matrix, by rows. Its tiles stay lazy.

        Raises
        ------
        ValueError
            X does not have two dimensions.
        """
        if X.ndim != 2:
            raise ValueError(
                f"X must have two dimensions, samples and features; the Dask array has {X.ndim}"
            )
        if any(np.isnan(size) for size in X.chunks[0]):
            X = X.compute_chunk_sizes()
        if len(X.chunks[1]) > 1:
            X = X.rechunk({1: -1})
        bounds = np.concatenate([[0], np.cumsum(X.chunks[0])])
        parts = X.to_delayed()[:, 0]
        return cls(
            X.shape,
            rows=[
                BlockTile(int(a), int(b), part)
                for a, b, part in zip(bounds, bounds[1:], parts, strict=False)
                if b > a
            ],
        )

    # --- work by tile -------------------------------------------------------------------------

    def map_rows(
        self,
        fn: Callable[..., Any],
        *shared: Any,
        each: Sequence[Sequence[Any]] = (),
        label: str | None = None,
    ) -> list[Any]:
        """Call a function on every tile of rows.

        Parameters
        ----------
        fn : callable
            Called as ``fn(block, start, stop, *each_i, *shared)`` with the block of a tile, and the
            range [start, stop) of the tile. It must pickle.
        *shared : object
            Arguments that are the same for every tile.
        each : sequence of sequence, default=()
            Arguments with one value per tile, in the order of the tiles.
        label : str or None, default=None
            Name of the step in the progress display. None shows no progress.

        Returns
        -------
        list
            The results in the order of the tiles. The matrix is read once.
        """
        over = self.require_row_tiles()
        self.passes += 1
        return engine.map_tiles(
            OnBlock(fn), over, *shared, each=each, local=self.local, label=label
        )

    def map_columns(
        self,
        fn: Callable[..., Any],
        *shared: Any,
        each: Sequence[Sequence[Any]] = (),
        label: str | None = None,
    ) -> list[Any]:
        """Call a function on every tile of columns.

        Parameters
        ----------
        fn : callable
            Called as ``fn(block, start, stop, *each_i, *shared)`` with the block of a tile, and the
            range [start, stop) of the tile. It must pickle.
        *shared : object
            Arguments that are the same for every tile.
        each : sequence of sequence, default=()
            Arguments with one value per tile, in the order of the tiles.
        label : str or None, default=None
            Name of the step in the progress display. None shows no progress.

        Returns
        -------
        list
            The results in the order of the tiles. The matrix is read once.
        """
        over = self.require_column_tiles()
        self.passes += 1
        return engine.map_tiles(
            OnBlock(fn), over, *shared, each=each, local=self.local, label=label
        )

    def reduce_rows(
        self,
        fn: Callable[..., Any],
        *shared: Any,
        each: Sequence[Sequence[Any]] = (),
        label: str | None = None,
    ) -> Any:
        """Sum a function over the tiles of rows.

        The sum is taken in a fixed tree, so its rounding does not depend on the workers.

        Parameters
        ----------
        fn : callable
            Called as ``fn(block, start, stop, *each_i, *shared)`` with the block of a tile, and the
            range [start, stop) of the tile. It must pickle.
        *shared : object
            Arguments that are the same for every tile.
        each : sequence of sequence, default=()
            Arguments with one value per tile, in the order of the tiles.
        label : str or None, default=None
            Name of the step in the progress display. None shows no progress.

        Returns
        -------
        object
            The sum of the results. The matrix is read once.
        """
        over = self.require_row_tiles()
        self.passes += 1
        return engine.reduce_tiles(
            OnBlock(fn), over, *shared, each=each, local=self.local, label=label
        )

    def reduce_columns(
        self,
        fn: Callable[..., Any],
        *shared: Any,
        each: Sequence[Sequence[Any]] = (),
        label: str | None = None,
    ) -> Any:
        """Sum a function over the tiles of columns.

        The sum is taken in a fixed tree, so its rounding does not depend on the workers.

        Parameters
        ----------
        fn : callable
            Called as ``fn(block, start, stop, *each_i, *shared)`` with the block of a tile, and the
            range [start, stop) of the tile. It must pickle.
        *shared : object
            Arguments that are the same for every tile.
        each : sequence of sequence, default=()
            Arguments with one value per tile, in the order of the tiles.
        label : str or None, default=None
            Name of the step in the progress display. None shows no progress.

        Returns
        -------
        object
            The sum of the results. The matrix is read once.
        """
        over = self.require_column_tiles()
        self.passes += 1
        return engine.reduce_tiles(
            OnBlock(fn), over, *shared, each=each, local=self.local, label=label
        )

    def reduce_row_groups(
        self,
        fn: Callable[..., Any],
        n_groups: int,
        *shared: Any,
        each: Sequence[Sequence[Any]] = (),
        label: str | None = None,
    ) -> Any:
        """Sum a function over the tiles of rows, with fewer and larger tasks.

        It is `reduce_rows` for large results: a task sums them over consecutive tiles, so that few
        of them exist at a time.

        Parameters
        ----------
        fn : callable
            Called as ``fn(block, start, stop, *each_i, *shared, total)``. `total` is its result for
            the tile before, or None for the first one, and it returns the sum with its own.
        n_groups : int
            Largest number of tasks. The rounding of the sum depends on it, and not on the workers.
        *shared : object
            Arguments that are the same for every tile.
        each : sequence of sequence, default=()
            Arguments with one value per tile, in the order of the tiles.
        label : str or None, default=None
            Name of the step in the progress display. None shows no progress.

        Returns
        -------
        object
            The sum of the results. The matrix is read once.
        """
        over = self.require_row_tiles()
        self.passes += 1
        size = -(-len(over) // n_groups)
        starts = range(0, len(over), size)
        own = list(zip(*each, strict=True)) if each else [()] * len(over)
        return engine.reduce_tiles(
            OnGroup(fn),
            [over[a : a + size] for a in starts],
            *shared,
            each=[[own[a : a + size] for a in starts]],
            local=self.local,
            label=label,
        )

    def require_row_tiles(self) -> Sequence[Any]:
        """Return the tiles of rows.

        Returns
        -------
        sequence of tiles
            The tiles of rows, at least one.

        Raises
        ------
        ValueError
            The matrix has only the layout by columns.
        """
        if not self.row_tiles:
            raise ValueError(
                "this step reads rows, but the matrix has only the layout by columns: "
                "stage it with the layout by rows"
            )
        return self.row_tiles

    def require_column_tiles(self) -> Sequence[Any]:
        """Return the tiles of columns.

        Returns
        -------
        sequence of tiles
            The tiles of columns, at least one.

        Raises
        ------
        ValueError
            The matrix has only the layout by rows.
        """
        if not self.column_tiles:
            raise ValueError(
                "this step reads columns, but the matrix has only the layout by rows: "
                "stage it with the layout by columns"
            )
        return self.column_tiles

    # --- products -----------------------------------------------------------------------------

    def __matmul__(self, W: AnyArray) -> AnyArray:
        """X @ W, dense n × r, for a dense d × r (or d) `W`. One pass."""
        W = np.asarray(W)
        if self.row_tiles:
            return np.concatenate(self.map_rows(tiles.times, W))
        return np.asarray(
            self.reduce_columns(
                tiles.times, each=[[W[t.start : t.stop] for t in self.column_tiles]]
            )
        )

    @property
    def T(self) -> _Transposed:
        """Transposed matrix, only for products `X.T @ V`."""
        return _Transposed(self)

    def columns(self, index: Any) -> sp.csc_array:
        """Gather columns in memory.

        Parameters
        ----------
        index : array-like of int
            Numbers of the columns, in any order.

        Returns
        -------
        csc_array of shape (n, len(index))
            The columns, in the order of `index`.
        """
        index = np.asarray(index, dtype=np.int64)
        if not self.column_tiles:
            row_tiles = self.require_row_tiles()
            parts = [
                part
                for batch in tiles.batches(row_tiles)
                for part in engine.map_tiles(
                    OnBlock(tiles.take_columns), row_tiles[batch], index, local=self.local
                )
            ]
            return sp.csc_array(sp.vstack([sp.csr_array(part) for part in parts]))
        order = np.argsort(index, kind="stable")
        bounds = np.searchsorted(
            index[order], [t.start for t in self.column_tiles] + [self.shape[1]]
        )
        wanted = [
            (t, index[order[a:b]] - t.start)
            for t, a, b in zip(self.column_tiles, bounds, bounds[1:], strict=False)
            if b > a
        ]
        if not wanted:
            return sp.csc_array((self.shape[0], 0))
        wanted_tiles, wanted_columns = zip(*wanted, strict=True)
        parts = [
            part
            for batch in tiles.batches(wanted_tiles)
            for part in engine.map_tiles(
                tiles.read_columns,
                wanted_tiles[batch],
                each=[wanted_columns[batch]],
                local=self.local,
            )
        ]
        Z = sp.csc_array(sp.hstack(parts, format="csc"))
        return Z if np.array_equal(order, np.arange(len(order))) else Z[:, np.argsort(order)]

    def take_rows(self, rows: Any) -> Matrix:
        """Take some rows as a matrix, without reading them.

        Parameters
        ----------
        rows : array-like of int or bool
            Strictly increasing row numbers, or a mask of length n.

        Returns
        -------
        Matrix
            The matrix of these rows. Its tiles have the bounds of this one's.

        Raises
        ------
        ValueError
            The row numbers are not strictly increasing.
        """
        rows = np.asarray(rows)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        if len(rows) and np.any(np.diff(rows) <= 0):
            raise ValueError("row numbers must be strictly increasing: sort them and drop repeats")
        bounds = np.searchsorted(rows, [t.start for t in self.row_tiles] + [self.shape[0]])
        by_rows = [
            RowSubsetTile(int(a), int(b), t, rows[a:b] - t.start)
            for t, a, b in zip(self.row_tiles, bounds, bounds[1:], strict=False)
            if b > a
        ]
        by_columns = [RowSubsetTile(t.start, t.stop, t, rows) for t in self.column_tiles]
        return Matrix(
            (len(rows), self.shape[1]), rows=by_rows, columns=by_columns, local=self.local
        )

    def rows(self, rows: Any) -> Any:
        """Gather rows in memory.

        Parameters
        ----------
        rows : array-like of int or bool
            Strictly increasing row numbers, or a mask of length n.

        Returns
        -------
        csr_array or ndarray of shape (n_selected, d)
            The rows. An ndarray if the tiles are dense.
        """
        self.require_row_tiles()
        parts = engine.map_tiles(engine.load, self.take_rows(rows).row_tiles, local=self.local)
        return (
            np.concatenate(parts)
            if all(isinstance(p, np.ndarray) for p in parts)
            else sp.csr_array(sp.vstack(parts))
        )

    # --- column statistics --------------------------------------------------------------------

    @property
    def stats(self) -> Stats:
        """Column sums, sums of squares, and counts of non-zeros.

        They cost one pass the first time, unless the store holds them.

        Raises
        ------
        ValueError
            The values are too large or too small for products of four in double precision.
        """
        if isinstance(self._stats, Stats):
            return self._stats
        if callable(self._stats):
            stats = self._stats()
        else:
            if self.column_tiles:
                parts = self.map_columns(tiles.column_stats)
                sums, squares, nnz = (np.concatenate(part) for part in zip(*parts, strict=True))
            else:
                sums, squares, nnz = self.reduce_rows(tiles.column_stats)
            stats = Stats(sums, squares, nnz.astype(np.int64))
        require_magnitude(stats.sums_of_squares, stats.nnz)
        self._stats = stats
        return stats

    @property
    def means(self) -> AnyArray:
        """Column means μ, an ndarray of shape (d,)."""
        return self.stats.sums / self.shape[0]

    @property
    def nnz(self) -> int:
        """Number of non-zeros."""
        return int(self.stats.nnz.sum())


@dataclass(frozen=True)
class _Transposed:
    X: Matrix

    def __matmul__(self, V: AnyArray) -> AnyArray:
        """Xᵀ @ V, dense d × r, for a dense n × r (or n) `V`. One pass."""
        V = np.asarray(V)
        if self.X.column_tiles:
            return np.concatenate(self.X.map_columns(tiles.transposed_times, V))
        return np.asarray(
            self.X.reduce_rows(
                tiles.transposed_times, each=[[V[t.start : t.stop] for t in self.X.row_tiles]]
            )
        )


@dataclass(frozen=True)
class Centered:
    """Xc = X − 1μᵀ, given by its products and never formed."""

    X: Matrix
    mu: AnyArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape

    def __matmul__(self, W: AnyArray) -> AnyArray:
        return (self.X @ W) - self.mu @ W

    def rmatmul(self, V: AnyArray) -> AnyArray:
        """Xcᵀ V = Xᵀ V − μ (1ᵀV)."""
        shift = V.sum(axis=0)
        return (self.X.T @ V) - (np.outer(self.mu, shift) if V.ndim == 2 else self.mu * shift)


def gram(Z: Any, mu: AnyArray) -> AnyArray:
    """ZcᵀZc = ZᵀZ − n μμᵀ, dense u × u, for gathered columns Z (n × u) with means μ."""
    Z = Z.astype(np.float64)
    G = Z.T @ Z
    return (G.toarray() if sp.issparse(G) else G) - Z.shape[0] * np.outer(mu, mu)
