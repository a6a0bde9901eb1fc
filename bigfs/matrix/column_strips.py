"""A dense n × r by strips of its columns, which are made where they are used.

An operation that mixes the samples, such as a product with a graph, needs all rows of a column, but
one column does not need the others. Strips that are used several times lie in a temporary file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bigfs import engine
from bigfs.types import FloatArray

STRIP_SHARE = 0.1  # of the memory limit: what the arrays of a strip take together
STRIP_ARRAYS = 3  # n × width arrays that exist at a time


def strip_width(n: int, r: int, limit: int | None = None) -> int:
    """Return how many of r columns with n rows make a strip: all where they fit, and 1 at least."""
    limit = engine.memory_limit() if limit is None else limit
    return max(1, min(r, int(STRIP_SHARE * limit / (8 * STRIP_ARRAYS * max(n, 1)))))


class ColumnStrips:
    """Columns that are made strip by strip.

    Parameters
    ----------
    make : callable
        Function from a slice of the columns to them (n × width).
    r : int
        Number of columns.
    width : int
        Columns per strip. A strip of all columns is kept.
    keep : bool, default=False
        Whether a strip is made once and then read from a temporary file. Otherwise it is made each
        time that it is asked for.

    Attributes
    ----------
    whole : bool
        Whether all columns are one strip.
    """

    def __init__(
        self, make: Callable[[slice], FloatArray], r: int, width: int, keep: bool = False
    ) -> None:
        self._make, self.slices = make, [slice(a, min(a + width, r)) for a in range(0, r, width)]
        self.whole = len(self.slices) == 1
        self._kept: FloatArray | None = None
        self._file: Any = None
        if keep and not self.whole:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  # `__exit__` closes it
        # where each strip of the file begins, and its shape
        self._places: list[tuple[int, tuple[int, ...]]] = []

    def __enter__(self) -> ColumnStrips:
        """Return the strips. Their file is closed when the block ends."""
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    @classmethod
    def of(cls, P: FloatArray) -> ColumnStrips:
        """Take an array in memory (n × r) as one strip."""
        return cls(lambda columns: P[:, columns], P.shape[1], P.shape[1])

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield each range of columns with its columns (n × width)."""
        for i, columns in enumerate(self.slices):
            if i < len(self._places):
                yield columns, self._read(i)
                continue
            strip = self._make(columns) if self._kept is None else self._kept
            if self.whole:
                self._kept = strip
            elif self._file is not None:
                self._write(strip)
            yield columns, strip

    def _write(self, strip: FloatArray) -> None:
        place = self._file.seek(0, 2)
        self._file.write(np.ascontiguousarray(strip, dtype=np.float64).data)
        self._places.append((place, strip.shape))

    def _read(self, i: int) -> FloatArray:
        place, shape = self._places[i]
        strip = np.empty(shape)
        self._file.seek(place)
        self._file.readinto(strip.data)
        return strip

    def map(self, fn: Callable[[slice, FloatArray], FloatArray]) -> FloatArray:
        """Return the results of a function of each strip, side by side."""
        parts = [fn(columns, strip) for columns, strip in self]
        return parts[0] if self.whole else np.concatenate(parts, axis=1)
