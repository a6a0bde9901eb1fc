"""`Matrix`: an n × d matrix that is held as tiles and loaded tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Self

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.cards import brief, card, shape_text
from bigfs.matrix import construction, gathering, kernels, panels, tiles, view
from bigfs.matrix.panels import ColumnStrips
from bigfs.matrix.statistics import (
    ClassStats,
    FarColumns,
    Stats,
    compute_deviations,
    compute_stats,
)
from bigfs.types import AnyArray, FloatArray, IntArray
from bigfs.validation import require_magnitude


def no_class_stats(codes: AnyArray, start: int = 0, stop: int | None = None) -> None:
    """Say that a matrix has no statistics of the classes."""


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
    class_stats : callable, default=no_class_stats
        Function of the class codes, and of a range of columns (all by default), that returns their
        `ClassStats`, or None if it has none for these codes.
    local : bool, default=False
        Whether the tiles hold their arrays. Then all work stays in this process.
    feature_names : sequence of str or None, default=None
        The d names of the columns. An array of indices picks some of them, so the sequence may read
        names as they are asked for. None leaves the columns without names.
    meta : ndarray, csr_array or None, default=None
        Block without rows, of the type and the dtype of the blocks of rows. None stands for a csr
        array of float64.
    batches : ndarray of shape (n,) or None, default=None
        Batch of each row, for methods that tell batches apart. None makes all rows one batch.

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
    feature_names : sequence of str or None
        As given. The matrix of a store reads them as they are asked for.
    meta : ndarray or csr_array of shape (0, d)
        Type and dtype of the blocks of rows.
    batches : ndarray of shape (n,) or None
        As given. `take_rows` takes the values of its rows.

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
    >>> len(X), X[1:].shape
    (3, (2, 2))
    """

    __array_ufunc__ = None  # let `ndarray @ Matrix` reach us, to be refused

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        rows: Sequence[Any] = (),
        columns: Sequence[Any] = (),
        stats: Stats | Callable[[], Stats] | None = None,
        class_stats: Callable[..., ClassStats | None] = no_class_stats,
        local: bool = False,
        feature_names: Any = None,
        meta: Any = None,
        batches: AnyArray | None = None,
    ) -> None:
        if not rows and not columns:
            raise ValueError("a Matrix needs tiles of rows or tiles of columns; got neither")
        self.shape = (int(shape[0]), int(shape[1]))
        self.row_tiles, self.column_tiles = tuple(rows), tuple(columns)
        self.local = local
        self._passes = [0]  # a list, which a matrix of some columns shares with its whole
        self._stats, self.class_stats = stats, class_stats
        self._nnz: int | None = None
        self._deviations: FloatArray | None = None
        self._far: FarColumns | None = None
        self._near: Matrix | None = None
        self._read_stats = None if isinstance(stats, Stats) else stats
        self.feature_names = _array_of_names(feature_names, self.shape[1])
        self.meta = sp.csr_array((0, self.shape[1])) if meta is None else meta
        self.batches = batches

    ndim = 2

    @classmethod
    def from_array(
        cls,
        X: Any,
        *,
        tile_rows: int | None = None,
        tile_columns: int | None = None,
        feature_names: Any = None,
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
        feature_names : sequence of str or None, default=None
            The d names of the columns. None leaves them without names.

        Returns
        -------
        Matrix
            The matrix, whose tiles hold their arrays.

        Raises
        ------
        ValueError
            X holds NaN, infinity, or something that is not a real number. The message names the
            column.
        """
        return cls(**construction.array_layouts(X, tile_rows, tile_columns, feature_names))

    @classmethod
    def from_dask(cls, X: Any) -> Matrix:
        """Tile a Dask array by its chunks of rows, or a Dask data frame by its partitions.

        An array of one chunk of rows and several chunks of columns gives tiles of columns. Else the
        columns are brought into one chunk. Small neighboring chunks make one tile. A block is
        checked each time it is computed, so NaN and infinity raise a ValueError only then. Blocks
        that a cluster holds already (`persist`) stay on their workers. The tasks on them run there.

        Parameters
        ----------
        X : dask.array.Array or dask.dataframe.DataFrame of shape (n, d)
            Array whose blocks are NumPy or SciPy sparse arrays, or data frame of numbers. The
            columns of a data frame are the names of the features. Where the sizes of chunks are
            unknown, they are computed in one pass.

        Returns
        -------
        Matrix
            The matrix, by rows or by columns alone. Its tiles stay lazy.

        Raises
        ------
        ValueError
            X does not have two dimensions, or has several chunks of columns of unknown sizes.
        """
        return cls(**construction.dask_layout(X))

    def __repr__(self) -> str:
        n, d = self.shape
        return (
            f"<Matrix {n} × {d}: {len(self.row_tiles)} tiles of rows, "
            f"{len(self.column_tiles)} tiles of columns>"
        )

    def _repr_html_(self) -> str:
        """Return a card for notebooks. Nothing is read for it."""
        known = self._stats.nnz.sum() if isinstance(self._stats, Stats) else None
        return card(
            "Matrix",
            {
                "shape": shape_text(self.shape),
                "non-zeros": known,
                "tiles of rows": len(self.row_tiles),
                "tiles of columns": len(self.column_tiles),
                "blocks": f"{type(self.meta).__name__} of {self.meta.dtype}",
                "feature names": self.feature_names is not None,
                "passes so far": self.passes,
            },
        )

    def __copy__(self) -> Self:
        """Return a matrix of the same tiles that counts its passes by itself."""
        twin = type(self).__new__(type(self))
        twin.__dict__ |= self.__dict__ | {"_passes": [self.passes], "_near": None}
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels: what can be read or made again does not."""
        derived: dict[str, Any] = {"_deviations": None, "_far": None, "_near": None}
        if self._read_stats is not None:
            derived["_stats"] = self._read_stats
        return self.__dict__ | derived

    # --- functions of tiles -------------------------------------------------------------------

    @property
    def passes(self) -> int:
        """How often the whole matrix was read. Gathering columns is not a pass."""
        return self._passes[0]

    @passes.setter
    def passes(self, count: int) -> None:
        self._passes[0] = count

    def tiles(self, axis: int) -> Sequence[Any]:
        """Return the tiles of one layout.

        Parameters
        ----------
        axis : {0, 1}
            0 for tiles of rows, 1 for tiles of columns.

        Returns
        -------
        sequence of tiles
            The tiles in order, at least one.

        Raises
        ------
        ValueError
            The matrix has only the other layout.
        """
        here = (self.row_tiles, self.column_tiles)[axis]
        if not here:
            noun, other = (("rows", "columns"), ("columns", "rows"))[axis]
            raise ValueError(
                f"this step reads {noun}, but the matrix has only the layout by {other}: "
                f"stage it with the layout by {noun}, or give a Dask array in chunks of {noun}"
            )
        return here

    def map(
        self,
        fn: Callable[..., Any],
        axis: int,
        *shared: Any,
        split: Sequence[Any] = (),
        label: str | None = None,
    ) -> list[Any]:
        """Call a function on every tile. The matrix is read once.

        Parameters
        ----------
        fn : callable
            Called as ``fn(block, start, stop, *parts, *shared)`` with the block of a tile, and the
            range [start, stop) of the tile. It must pickle.
        axis : {0, 1}
            0 for tiles of rows, 1 for tiles of columns.
        *shared : object
            Arguments that are the same for every tile.
        split : sequence of array, default=()
            Arrays with one entry per row of the matrix, or per column. A tile gets its part.
        label : str or None, default=None
            Name of the step in the progress display. None shows no progress.

        Returns
        -------
        list
            The results in the order of the tiles.
        """
        over, each = self._start_pass(axis, split)
        return engine.map_tiles(
            tiles.OnBlock(fn), over, *shared, each=each, local=self.local, label=label
        )

    def sum(
        self,
        fn: Callable[..., Any],
        axis: int,
        *shared: Any,
        split: Sequence[Any] = (),
        max_parts: int | None = None,
        label: str | None = None,
    ) -> Any:
        """Sum a function over the tiles. The matrix is read once.

        The sum is taken in a fixed tree, so its rounding does not depend on the workers.

        Parameters
        ----------
        fn : callable
            As for `map`. With `max_parts` it has a last argument, which is its result for the tile
            before, or None for the first one, and it returns the sum with its own.
        axis : {0, 1}
            0 for tiles of rows, 1 for tiles of columns.
        *shared : object
            Arguments that are the same for every tile.
        split : sequence of array, default=()
            As for `map`.
        max_parts : int or None, default=None
            Largest number of running totals, where results are large. Each is the sum over
            consecutive tiles, so that few large arrays exist at a time. The rounding of the sum
            depends on it, and not on the workers. None makes a result per tile.
        label : str or None, default=None
            Name of the step in the progress display. None shows no progress.

        Returns
        -------
        object
            The sum of the results.
        """
        over, each = self._start_pass(axis, split)
        of_tile = tiles.OnBlock(fn)
        options: dict[str, Any] = {"local": self.local, "label": label}
        if max_parts is None:
            return engine.reduce_tiles(of_tile, over, *shared, each=each, **options)

        total = engine.reduce_groups(of_tile, over, max_parts, *shared, each=each, **options)
        if not self.local:
            engine.trim_memory()  # what a large result has left in the buffers of the connections
        return total

    def _start_pass(self, axis: int, split: Sequence[Any]) -> tuple[Sequence[Any], list[Any]]:
        """Return the tiles of a pass, and each array of `split` cut by them."""
        over = self.tiles(axis)
        self._passes[0] += 1
        return over, [[array[tile.start : tile.stop] for tile in over] for array in split]

    # --- rows as scikit-learn takes them ------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Matrix:
        """Take some rows as a matrix, without reading them: `X[rows]` or `X[rows, ...]`.

        It is `take_rows`, so that splits of scikit-learn work on a matrix of any size. `rows` and
        `columns` gather in memory.
        """
        if isinstance(rows, tuple):
            if len(rows) != 2 or rows[1] is not Ellipsis:
                raise IndexError(
                    "a Matrix is indexed by rows alone, as X[rows]: gather columns with "
                    "X.columns(index)"
                )
            rows = rows[0]
        return self.take_rows(rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        """Refuse to become an array."""
        raise TypeError(
            "a Matrix is never loaded whole: gather rows with X.rows(rows) or columns with "
            "X.columns(index), or use the lazy X.to_dask()"
        )

    def to_dask(self) -> Any:
        """Return the rows as a lazy Dask array, for other libraries.

        Returns
        -------
        dask.array.Array of shape (n, d)
            A block per tile of rows, of the type and the dtype of `meta`: csr for a store.

        Raises
        ------
        ValueError
            The matrix has only the layout by columns.
        """
        return engine.dask_array(construction.load_as, self.tiles(0), self.meta)

    # --- products -----------------------------------------------------------------------------

    def __matmul__(self, W: AnyArray) -> AnyArray:
        """X @ W, dense n × r, for a d × r (or d) `W`. One pass."""
        W = _require_length(W, self.shape[1], "columns")
        if self.row_tiles:
            return np.concatenate(self.map(tiles.times, 0, W))
        return np.asarray(self.sum(tiles.times, 1, split=[W]))

    @property
    def T(self) -> Transposed:
        """Transposed matrix, only for products `X.T @ V`."""
        return Transposed(self)

    def columns(self, index: Any) -> sp.csc_array:
        """Gather columns in memory.

        Parameters
        ----------
        index : array-like of int or bool, or slice
            Numbers of the columns, in any order, a mask of length d, or a slice.

        Returns
        -------
        csc_array of shape (n, len(index))
            The columns, in the order of `index`.

        Raises
        ------
        IndexError
            There are no such columns.
        TypeError
            `index` is something else, such as a single number.
        """
        index = gathering.numbers_of(index, self.shape[1], "column", increasing=False)
        return gathering.gather_columns(self, index)

    def take_rows(self, rows: Any) -> Matrix:
        """Take some rows as a matrix, without reading them.

        Parameters
        ----------
        rows : array-like of int or bool, or slice
            Strictly increasing row numbers, a mask of length n, or a slice.

        Returns
        -------
        Matrix
            The matrix of these rows. Its tiles have the bounds of this one's.

        Raises
        ------
        IndexError
            There are no such rows.
        TypeError
            `rows` is something else, such as a single number.
        ValueError
            The row numbers are not strictly increasing.
        """
        rows = gathering.numbers_of(rows, self.shape[0], "row", increasing=True)
        by_rows, by_columns = view.take_rows(self, rows)
        return Matrix(
            (len(rows), self.shape[1]),
            rows=by_rows,
            columns=by_columns,
            local=self.local,
            feature_names=self.feature_names,
            meta=self.meta,
            batches=None if self.batches is None else self.batches[rows],
        )

    def take_columns(self, index: Any) -> Matrix:
        """Take some columns as a matrix, without reading them.

        Parameters
        ----------
        index : array-like of int or bool, or slice
            Strictly increasing numbers of columns, a mask of length d, or a slice.

        Returns
        -------
        Matrix
            The matrix of these columns. Its passes count as passes over this one.

        Raises
        ------
        IndexError
            There are no such columns.
        TypeError
            `index` is something else, such as a single number.
        ValueError
            The column numbers are not strictly increasing.
        """
        index = gathering.numbers_of(index, self.shape[1], "column", increasing=True)
        by_rows, by_columns = view.take_columns(self, index)

        of_part = partial(_stats_of_columns, self, index)
        taken = Matrix(
            (self.shape[0], len(index)),
            rows=by_rows,
            columns=by_columns,
            stats=of_part() if isinstance(self._stats, Stats) else of_part,
            local=self.local,
            feature_names=None if self.feature_names is None else self.feature_names[index],
            meta=self.meta[:, index],
            batches=self.batches,
        )
        taken._passes = self._passes
        return taken

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
        self.tiles(0)
        return gathering.gather_rows(self.take_rows(rows).row_tiles, self.local)

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
        stats = self._stats() if callable(self._stats) else compute_stats(self)
        require_magnitude(stats.sums_of_squares, stats.nnz)
        self._stats = stats
        return stats

    def release_stats(self) -> None:
        """Free the memory of statistics that a store holds. They are read again when asked for."""
        if self._read_stats is not None:
            _ = self.nnz  # the number of non-zeros stays known
            self._stats, self._deviations, self._far = self._read_stats, None, None

    @property
    def means(self) -> AnyArray:
        """Column means μ, an ndarray of shape (d,)."""
        return self.stats.sums / self.shape[0]

    @property
    def deviations(self) -> FloatArray:
        """Column sums of the squared distances to the mean, nσ², an ndarray of shape (d,).

        A constant column has 0. They follow from `stats`. Columns whose mean is over a hundred
        standard deviations are read once more, because their sums of squares have lost digits.
        """
        if self._deviations is None:
            self._deviations = compute_deviations(self.stats, self.shape[0], self.far_columns)
        return self._deviations

    @property
    def far_columns(self) -> FarColumns:
        """The columns far from zero, with the sums of what remains of them without their mean.

        Their mean is over a hundred standard deviations. They are read once.
        """
        if self._far is None:
            taken = copy(self)  # some columns are not counted as a pass
            self._far = FarColumns.of(taken)
        return self._far

    def near_zero(self) -> Matrix:
        """Subtract their mean from the columns that are far from zero, without reading them.

        Products with columns far from zero lose the digits of their deviations. A method that does
        not depend on where the zero is works on this matrix.

        Returns
        -------
        Matrix
            The matrix whose far columns have a mean of about zero. A constant column is zero. Its
            passes count as passes over this one. Without far columns it is this matrix itself.
        """
        far = self.far_columns
        if not len(far.columns):
            return self
        if self._near is None:
            by_rows, by_columns = view.subtract(self, far.shift(self.deviations))
            near = copy(self)
            near.row_tiles, near.column_tiles = tuple(by_rows), tuple(by_columns)
            near._passes = self._passes
            near._stats, near._read_stats = far.stats(self.stats, self.deviations, len(self)), None
            near._far, near._nnz, near.class_stats = FarColumns.none(), None, no_class_stats
            near.meta = self.meta.astype(np.float64)
            self._near = near
        return self._near

    @property
    def near_numbers(self) -> FloatArray:
        """The number that `near_zero` subtracts from each column, an ndarray of shape (d,)."""
        far, numbers = self.far_columns, np.zeros(self.shape[1])
        numbers[far.columns] = far.means
        return numbers

    @property
    def nnz(self) -> int:
        """Number of non-zeros."""
        if self._nnz is None:
            self._nnz = int(self.stats.nnz.sum())
        return self._nnz


def _stats_of_columns(X: Matrix, index: IntArray) -> Stats:
    return Stats(*(of_column[index] for of_column in X.stats))


def _array_of_names(names: Any, d: int) -> Any:
    """Return the names of d columns, as an array unless they are read as they are asked for."""
    if not isinstance(names, list | tuple | np.ndarray):
        return names
    names = np.asarray(names, dtype=object)
    if names.shape != (d,):
        raise ValueError(
            f"feature_names must hold {d} names, one per column of X; got shape {names.shape}"
        )
    return names


def _require_length(factor: Any, length: int, noun: str) -> AnyArray:
    """Return the factor of a product as an array, or as csr, or refuse one of another length."""
    factor = sp.csr_array(factor) if sp.issparse(factor) else np.asarray(factor)
    if factor.shape[:1] != (length,):
        raise ValueError(
            f"X has {length} {noun}, so the factor needs as many rows; got shape {factor.shape}"
        )
    return factor


@dataclass(frozen=True)
class Transposed:
    """The transposed matrix, only for products."""

    __repr__ = brief

    X: Matrix

    def __matmul__(self, V: AnyArray | ColumnStrips) -> AnyArray:
        """Xᵀ @ V, dense d × r, for an n × r (or n) `V`, or for its strips."""
        X = self.X
        if isinstance(V, ColumnStrips):
            return self._times_strips(V)
        V = _require_length(V, X.shape[0], "rows")
        if X.column_tiles:
            return np.concatenate(X.map(tiles.transposed_times, 1, V))
        return np.asarray(X.sum(tiles.transposed_times, 0, split=[V]))

    def _times_strips(self, V: ColumnStrips) -> FloatArray:
        product = np.empty((self.X.shape[1], V.shape[1]))
        if V.is_shared_by_tasks(self.X):
            parts = kernels.n_sums(product.nbytes)
            return np.asarray(self.X.sum(panels.add_transposed_times, 0, V, max_parts=parts))
        if V.whole:
            return np.asarray(self @ V[V.slices[0]])
        for columns, strip in V:
            product[:, columns] = self @ strip
        return product
