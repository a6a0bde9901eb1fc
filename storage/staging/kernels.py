"""The inner loops of the transpose: scatter sorted blocks into columns, and sum columns."""

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
    first_row: int,
    cursor: AnyArray,
    out_rows: AnyArray,
    out_values: AnyArray,
) -> None:
    """Append the entries of one block to their columns.

    Column `columns[i]` gets `counts[i]` entries, written from `cursor[columns[i]]` on. Blocks that
    come in row order leave every column sorted.
    """
    entry = 0
    for i in range(len(columns)):
        begin = cursor[columns[i]]
        for k in range(counts[i]):
            out_rows[begin + k] = rows[entry] + first_row
            out_values[begin + k] = values[entry]
            entry += 1
        cursor[columns[i]] = begin + counts[i]


@njit(cache=True, nogil=True)
def add_up(
    columns: AnyArray,
    counts: AnyArray,
    rows: AnyArray,
    values: AnyArray,
    code: AnyArray,
    sums: AnyArray,
    squares: AnyArray,
    present: AnyArray,
) -> None:
    """Add Σ x, Σ x² and the number of entries of one block, per column and class.

    `sums`, `squares` and `present` are columns × classes. `code` holds the class of each row of the
    block, −1 if unlabeled. Entries are added one after the other, in float64. With blocks in row
    order, the sums do not depend on the tiling.
    """
    entry = 0
    for i in range(len(columns)):
        j = columns[i]
        for k in range(entry, entry + counts[i]):
            c = code[rows[k]]
            if c >= 0:
                x = np.float64(values[k])  # `float` would leave it a float32 here
                sums[j, c] += x
                squares[j, c] += x * x
                present[j, c] += 1
        entry += counts[i]
