"""The two inner loops of assembling: scatter sorted runs into columns, and add up columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]


@njit(cache=True, nogil=True)
def scatter(
    columns: Array, counts: Array, rows: Array, values: Array, first: int, cursor: Array, out_rows: Array, out_values: Array
) -> None:
    """Append one block's entries to their columns: `counts[i]` of column `columns[i]`, whose next free
    place is `cursor[columns[i]]`. Block after block in row order, the columns come out sorted."""
    entry = 0
    for i in range(len(columns)):
        place = cursor[columns[i]]
        for k in range(counts[i]):
            out_rows[place + k] = rows[entry] + first
            out_values[place + k] = values[entry]
            entry += 1
        cursor[columns[i]] = place + counts[i]


@njit(cache=True, nogil=True)
def add_up(values: Array, indptr: Array, sums: Array, squares: Array) -> None:
    """Σ x and Σ x² of each column in float64, entry after entry: the same whatever the tiling."""
    for j in range(len(indptr) - 1):
        total, square = 0.0, 0.0
        for k in range(indptr[j] - indptr[0], indptr[j + 1] - indptr[0]):
            x = np.float64(values[k])  # `float` would leave it a float32 here
            total += x
            square += x * x
        sums[j], squares[j] = total, square
