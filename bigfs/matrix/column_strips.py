"""A dense n × r by strips of its columns, which are made where they are used.

An operation that mixes the samples, such as a product with a graph, needs all rows of a column, but
one column does not need the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from bigfs import engine
from bigfs.types import FloatArray

STRIP_SHARE = 0.2  # of the memory limit: what the arrays of a strip take together
STRIP_ARRAYS = 4  # n × width arrays that exist at a time


def strip_width(n: int, r: int, limit: int | None = None) -> int:
    """Return how many of r columns with n rows make a strip: all where they fit, and 1 at least."""
    limit = engine.memory_limit() if limit is None else limit
    return max(1, min(r, int(STRIP_SHARE * limit / (8 * STRIP_ARRAYS * max(n, 1)))))


class ColumnStrips:
    """Columns that are made strip by strip, each time that they are asked for.

    Parameters
    ----------
    make : callable
        Function from a slice of the columns to them (n × width).
    r : int
        Number of columns.
    width : int
        Columns per strip. A strip of all columns is made once and kept.

    Attributes
    ----------
    whole : bool
        Whether all columns are one strip.
    """

    def __init__(self, make: Callable[[slice], FloatArray], r: int, width: int) -> None:
        self._make, self.slices = make, [slice(a, min(a + width, r)) for a in range(0, r, width)]
        self.whole = len(self.slices) == 1
        self._kept: FloatArray | None = None

    @classmethod
    def of(cls, P: FloatArray) -> ColumnStrips:
        """Take an array in memory (n × r) as one strip."""
        return cls(lambda columns: P[:, columns], P.shape[1], P.shape[1])

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield each range of columns with its columns (n × width)."""
        for columns in self.slices:
            strip = self._make(columns) if self._kept is None else self._kept
            if self.whole:
                self._kept = strip
            yield columns, strip

    def map(self, fn: Callable[[slice, FloatArray], FloatArray]) -> FloatArray:
        """Return the results of a function of each strip, side by side."""
        parts = [fn(columns, strip) for columns, strip in self]
        return parts[0] if self.whole else np.concatenate(parts, axis=1)
