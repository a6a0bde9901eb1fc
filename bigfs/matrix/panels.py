"""A dense n × r by strips of its columns, which lie in a temporary file where they do not fit.

An operation that mixes the samples, such as a product with a graph, needs all rows of a column, but
one column does not need the others. A product with a tile of rows needs all columns of its rows.
The file serves both: a strip lies in one piece, and a task reads or writes its rows of each strip.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bigfs import engine
from bigfs.matrix import kernels
from bigfs.types import FloatArray

STRIP_ARRAYS = 2  # n × width arrays that exist at a time
CACHE_LINE = 8  # numbers that the processor fetches together


def strip_width(n: int, r: int) -> int:
    """Return how many of r columns with n rows make a strip: all where they fit, and 1 at least.
    Strips that are wider than a line of the cache take whole lines."""
    room = engine.SHARES.value.column_strip * engine.planned_memory()
    width = max(1, min(r, int(room / (8 * STRIP_ARRAYS * max(n, 1)))))
    return width if width == r or width < CACHE_LINE else width - width % CACHE_LINE


class ColumnStrips:
    """An n × r array by strips of its columns.

    One strip of all columns stays in memory. Several lie in a temporary file, which is deleted when
    the block of a `with` statement ends. Then it travels as the path of the file.
    """

    def __init__(self, n: int, r: int, width: int) -> None:
        self.shape = (n, r)
        self.slices = tuple(slice(a, min(a + width, r)) for a in range(0, r, width))
        self.whole = len(self.slices) == 1
        self._array: FloatArray | None = None
        self.path: str | None = None
        if not self.whole:
            descriptor, self.path = tempfile.mkstemp(prefix="bigfs-")
            os.close(descriptor)

    def __enter__(self) -> ColumnStrips:
        """Return the strips. Their file is deleted when the block ends."""
        return self

    def __exit__(self, *error: object) -> None:
        if self.path is not None:
            Path(self.path).unlink(missing_ok=True)

    @classmethod
    def of(cls, P: FloatArray, width: int | None = None) -> ColumnStrips:
        """Take an array in memory (n × r), as one strip by default."""
        n, r = P.shape
        with ExitStack() as until_filled:  # a file that cannot be written is deleted
            strips = until_filled.enter_context(cls(n, r, width or r))
            for columns in strips.slices:
                strips[columns] = P[:, columns]
            until_filled.pop_all()
        return strips

    def __setitem__(self, columns: slice, strip: FloatArray) -> None:
        """Set one of the strips."""
        if self.path is None:
            self._array = strip
        else:
            self.write(columns, 0, strip)

    def __getitem__(self, columns: slice) -> FloatArray:
        """Return one of the strips (n × width)."""
        return self.read(columns, 0, self.shape[0])

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield the columns of each strip, and the strip (n × width)."""
        for columns in self.slices:
            yield columns, self[columns]

    def read(self, columns: slice, start: int, stop: int) -> FloatArray:
        """Return the rows [start, stop) of a strip."""
        if self.path is None:
            assert self._array is not None, "the strip has not been set"
            return self._array[start:stop]
        width = columns.stop - columns.start
        place = 8 * (self.shape[0] * columns.start + start * width)
        numbers = np.fromfile(self.path, count=(stop - start) * width, offset=place)
        return numbers.reshape(stop - start, width)

    def write(self, columns: slice, start: int, rows: FloatArray) -> None:
        """Write rows of a strip to the file, the first of which has the number `start`."""
        assert self.path is not None
        width = columns.stop - columns.start
        try:
            with open(self.path, "r+b") as file:
                file.seek(8 * (self.shape[0] * columns.start + start * width))
                file.write(np.ascontiguousarray(rows, dtype=np.float64).data)
        except OSError as error:
            raise OSError(
                f"the temporary file {self.path} cannot be written ({error.strerror}): set TMPDIR "
                f"to a folder with room that all workers see"
            ) from error

    def rows(self, start: int, stop: int) -> FloatArray:
        """Return the rows [start, stop) of all columns."""
        if self.whole:
            return self.read(self.slices[0], start, stop)
        rows = np.empty((stop - start, self.shape[1]))
        for columns in self.slices:
            rows[:, columns] = self.read(columns, start, stop)
        return rows

    def replace(self, fn: Callable[[slice, FloatArray], FloatArray]) -> None:
        """Put what a function returns for a strip in its place. It may write over the strip."""
        for columns, strip in self:
            self[columns] = fn(columns, strip)

    def is_shared_by_tasks(self, X: Any) -> bool:
        """Return whether the tasks of a pass over X read or write their rows in the file."""
        if self.path is None or X.local or not X.row_tiles:
            return False
        return all(engine.on_workers(os.path.exists, self.path).values())


def times_by_strips(X: Any, W: FloatArray, width: int) -> ColumnStrips:
    """Return X @ W (n × r) by strips of `width` columns, for use in a `with` statement.

    The tasks of one pass write several strips to a file. It takes a pass per strip where there are
    no tiles of rows, or where a worker does not see the file.
    """
    with ExitStack() as until_filled:  # a pass that fails leaves no file
        product = until_filled.enter_context(ColumnStrips(X.shape[0], W.shape[1], width))
        if product.is_shared_by_tasks(X):
            X.map(write_times, 0, W, product)
            engine.trim_memory()  # what W has left in the buffers of the connections
        else:
            for columns in product.slices:
                product[columns] = X @ W[:, columns]
        until_filled.pop_all()
    return product


def write_times(block: Any, start: int, stop: int, W: FloatArray, product: ColumnStrips) -> None:
    for rows, Z in kernels.strips(block):
        part = kernels.times(Z, W)
        for columns in product.slices:
            product.write(columns, start + rows.start, part[:, columns])


def add_transposed_times(
    block: Any, start: int, stop: int, V: ColumnStrips, total: FloatArray | None
) -> FloatArray:
    """Add blockᵀ V, for the rows of V in a file."""
    if total is None:
        total = np.zeros((block.shape[1], V.shape[1]))
    for rows, Z in kernels.strips(block):
        kernels.add_products(Z, V.rows(start + rows.start, start + rows.stop), total)
    return total
