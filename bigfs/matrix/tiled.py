"""`Tiled`: what holds tiles and runs functions over them, one task per tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from bigfs import engine
from bigfs.matrix.tiles import OnBlock


class Tiled:
    """Hold tiles of rows and tiles of columns, and run functions over them.

    It counts in `passes` how often all of the tiles were read.

    Parameters
    ----------
    shape : tuple of int
        Numbers of rows and columns, (n, d).
    rows : sequence of tiles
        Tiles of rows in order.
    columns : sequence of tiles
        Tiles of columns in order. One layout may be missing, but not both.
    local : bool
        Whether the tiles hold their arrays. Then all work stays in this process.
    """

    def __init__(
        self, shape: tuple[int, int], rows: Sequence[Any], columns: Sequence[Any], local: bool
    ) -> None:
        if not rows and not columns:
            raise ValueError("a Matrix needs tiles of rows or tiles of columns; got neither")
        self.shape = (int(shape[0]), int(shape[1]))
        self.row_tiles, self.column_tiles = tuple(rows), tuple(columns)
        self.local = local
        self._passes = [0]  # a list, which a matrix of some columns shares with its whole

    def __copy__(self) -> Self:
        """Return a matrix of the same tiles that counts its passes by itself."""
        twin = type(self).__new__(type(self))
        twin.__dict__ |= self.__dict__ | {"_passes": [self.passes]}
        return twin

    @property
    def passes(self) -> int:
        """How often the whole matrix was read. Gathering columns is not a pass."""
        return self._passes[0]

    @passes.setter
    def passes(self, count: int) -> None:
        self._passes[0] = count

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
        each: Sequence[Sequence[Any] | engine.KeptOperands] = (),
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
        each : sequence of sequence or KeptOperands, default=()
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

        def add_up() -> Any:
            sent = [
                operand.at_workers() if isinstance(operand, engine.KeptOperands) else operand
                for operand in each
            ]
            return engine.reduce_groups(
                OnBlock(fn), over, n_groups, *shared, each=sent, local=self.local, label=label
            )

        total = engine.while_lost(add_up, each)
        if not self.local:
            engine.trim_memory()  # what a large result has left in the buffers of the connections
        return total

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
