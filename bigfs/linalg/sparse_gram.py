"""Products ZᵀZ_new of sparse columns, dense, with the same bits whatever the call.

Two kernels make them: entry by entry, or with a strip of rows written out as a dense array.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

from bigfs import engine
from bigfs.settings import Setting
from bigfs.types import FloatArray, IntArray

# share of non-zeros from which adding whole rows is faster than adding entries (measured)
DENSE_SHARE = Setting(0.06)
STRIP_ROWS = 256  # samples written out as dense rows at a time
CACHED_ROWS = 8192  # samples whose entries stay in the cache while they are added (measured)


def sparse_gram(
    Z: Any,
    Z_new: Any,
    threads: int | None = None,
    out: FloatArray | None = None,
    new: IntArray | None = None,
) -> FloatArray:
    """Return ZᵀZ_new, dense, for Z by columns. Add it to `out` if that is given."""
    # the kernels need the samples of a column, and the columns of a row, in increasing order
    Z = Z if Z.has_sorted_indices else Z.sorted_indices()
    rows = Z_new.tocsr()
    rows = rows if rows.has_sorted_indices else rows.sorted_indices()
    out = np.zeros((Z.shape[1], Z_new.shape[1])) if out is None else out
    starts = np.zeros(Z.shape[1], dtype=np.int64)  # the first column that a row of `out` needs
    if new is not None:
        starts[new] = np.arange(len(new))
    threads = threads or engine.CPU_COUNT
    by_column, by_row = (Z.indptr, Z.indices, Z.data), (rows.indptr, rows.indices, rows.data)
    is_dense = rows.nnz > DENSE_SHARE.value * Z_new.shape[0] * Z_new.shape[1]
    kernel = _gram_by_strips if is_dense else _gram_by_entries
    with ThreadPoolExecutor(threads) as pool:
        list(
            pool.map(
                lambda first: kernel(*by_column, *by_row, starts, first, threads, out),
                range(threads),
            )
        )
    return out


def mirror(gram: FloatArray, new: IntArray) -> None:
    """Write the products that `sparse_gram` made once for two columns to their other place."""
    for k in range(len(new) - 1):
        gram[new[k + 1 :], k] = gram[new[k], k + 1 :]


@njit(nogil=True, cache=True)
def _gram_by_entries(
    indptr: IntArray,
    samples: IntArray,
    values: FloatArray,
    row_indptr: IntArray,
    row_columns: IntArray,
    row_values: FloatArray,
    starts: IntArray,
    first: int,
    step: int,
    out: FloatArray,
) -> None:
    """Add rows first, first + step, … of ZᵀZ_new to `out`, from Z by columns and Z_new by rows."""
    n, next_entry = len(row_indptr) - 1, indptr[:-1].copy()  # of each column of Z
    for begin in range(0, n, CACHED_ROWS):
        end = min(begin + CACHED_ROWS, n)
        for i in range(first, len(indptr) - 1, step):
            row, start = out[i], starts[i]
            while next_entry[i] < indptr[i + 1] and samples[next_entry[i]] < end:
                p = next_entry[i]
                k, x = samples[p], np.float64(values[p])
                for q in range(row_indptr[k + 1] - 1, row_indptr[k] - 1, -1):
                    if row_columns[q] < start:
                        break
                    row[row_columns[q]] += x * row_values[q]
                next_entry[i] += 1


@njit(nogil=True, cache=True)
def _gram_by_strips(
    indptr: IntArray,
    samples: IntArray,
    values: FloatArray,
    row_indptr: IntArray,
    row_columns: IntArray,
    row_values: FloatArray,
    starts: IntArray,
    first: int,
    step: int,
    out: FloatArray,
) -> None:
    """Do what `_gram_by_entries` does, to the bit, with a strip of Z_new's rows dense at a time."""
    n, next_entry = len(row_indptr) - 1, indptr[:-1].copy()  # of each column of Z
    strip = np.empty((STRIP_ROWS, out.shape[1]), row_values.dtype)
    for begin in range(0, n, STRIP_ROWS):
        end = min(begin + STRIP_ROWS, n)
        strip[:] = 0
        for k in range(begin, end):
            for q in range(row_indptr[k], row_indptr[k + 1]):
                strip[k - begin, row_columns[q]] += row_values[q]
        for i in range(first, len(indptr) - 1, step):
            rows, total, p = strip[:, starts[i] :], out[i, starts[i] :], next_entry[i]
            while next_entry[i] < indptr[i + 1] and samples[next_entry[i]] < end:
                next_entry[i] += 1
            while p + 4 <= next_entry[i]:
                x0, x1 = np.float64(values[p]), np.float64(values[p + 1])
                x2, x3 = np.float64(values[p + 2]), np.float64(values[p + 3])
                row0, row1 = rows[samples[p] - begin], rows[samples[p + 1] - begin]
                row2, row3 = rows[samples[p + 2] - begin], rows[samples[p + 3] - begin]
                for c in range(len(total)):
                    sum0 = total[c] + x0 * row0[c]
                    sum1 = sum0 + x1 * row1[c]
                    sum2 = sum1 + x2 * row2[c]
                    total[c] = sum2 + x3 * row3[c]
                p += 4
            while p < next_entry[i]:
                x, row = np.float64(values[p]), rows[samples[p] - begin]
                for c in range(len(total)):
                    total[c] += x * row[c]
                p += 1
