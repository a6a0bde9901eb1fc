"""The inner loops of assembling: scatter sorted runs into columns, and add up columns."""

from __future__ import annotations

import numpy as np
from numba import njit

from bigfs.types import AnyArray


@njit(cache=True, nogil=True)
def scatter(
    columns: AnyArray,
    counts: AnyArray,
    rows: AnyArray,
    values: AnyArray,
    first: int,
    cursor: AnyArray,
    out_rows: AnyArray,
    out_values: AnyArray,
) -> None:
    """Append one block's entries to their columns: `counts[i]` of column `columns[i]`, whose next
    free place is `cursor[columns[i]]`. Block after block in row order, the columns come out sorted.
    """
    entry = 0
    for i in range(len(columns)):
        place = cursor[columns[i]]
        for k in range(counts[i]):
            out_rows[place + k] = rows[entry] + first
            out_values[place + k] = values[entry]
            entry += 1
        cursor[columns[i]] = place + counts[i]


@njit(cache=True, nogil=True)
def add_up(
    columns: AnyArray, counts: AnyArray, values: AnyArray, sums: AnyArray, squares: AnyArray
) -> None:
    """Add one block's Σ x and Σ x² to those of its columns, in float64, entry after entry: block
    after block in row order, they are the same whatever the tiling.
    """
    entry = 0
    for i in range(len(columns)):
        total, square = sums[columns[i]], squares[columns[i]]
        for k in range(entry, entry + counts[i]):
            x = np.float64(values[k])  # `float` would leave it a float32 here
            total += x
            square += x * x
        sums[columns[i]], squares[columns[i]] = total, square
        entry += counts[i]


@njit(cache=True, nogil=True)
def add_up_classes(
    columns: AnyArray,
    counts: AnyArray,
    rows: AnyArray,
    values: AnyArray,
    code: AnyArray,
    sums: AnyArray,
    squares: AnyArray,
    present: AnyArray,
) -> None:
    """Add one block's Σ x, Σ x² and number of entries to those of each of its columns (rows of
    `sums`) and each class (columns of it); `code` of the block's rows, −1 for none.
    """
    entry = 0
    for i in range(len(columns)):
        j = columns[i]
        for k in range(entry, entry + counts[i]):
            c = code[rows[k]]
            if c >= 0:
                x = np.float64(values[k])
                sums[j, c] += x
                squares[j, c] += x * x
                present[j, c] += 1
        entry += counts[i]
