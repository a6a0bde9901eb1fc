"""Conditions on the values, indices and shape of a matrix, for all formats.

A store holds float32 values and int32 indices. A number that does not fit is refused as it is read,
with its file and place. The conditions on labels are in `bigfs.storage.sources.samples`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs.engine import require_memory
from bigfs.settings import Setting
from bigfs.storage.errors import SourceError
from bigfs.types import AnyArray, BoolArray, IntArray

log = logging.getLogger("bigfs.storage")

# samples or features, which the store numbers by int32
MAX_SIDE = Setting(2**31 - 1)
MOST_WHOLE = 2**24  # whole numbers up to it are exact in float32
MOST_ROUNDED = 5  # columns of a block whose whole numbers lost digits, which are named
MUST_FIT = "values must be finite and fit in float32"


def fits_float32(values: AnyArray) -> BoolArray:
    """Return which values are finite, stay so in float32, and become 0 there only if they are 0."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(np.float32)
    return np.isfinite(rounded) & ((rounded != 0) | (values == 0))


def require_values(X: sp.csr_array, place: Callable[[int], str]) -> sp.csr_array:
    """Return X, or refuse a stored value that does not fit in float32 by the place of its row."""
    wrong = np.flatnonzero(~fits_float32(X.data))
    if len(wrong):
        row = int(np.searchsorted(X.indptr, wrong[0], side="right")) - 1
        raise SourceError(
            f"{place(row)}, column {X.indices[wrong[0]]} (from 0) is {X.data[wrong[0]]}: {MUST_FIT}"
        )
    return X


def rounded(exact: AnyArray, data: AnyArray, indices: AnyArray) -> tuple[tuple[int, float], ...]:
    """Return some columns whose whole numbers are others in float32, each with its first one."""
    if exact.dtype == data.dtype:
        return ()
    large = np.flatnonzero(np.abs(data) > MOST_WHOLE)
    lost = large[(exact[large] != data[large]) & (exact[large] == np.rint(exact[large]))]
    columns, first = np.unique(indices[lost], return_index=True)
    some = zip(columns.tolist(), exact[lost[first]].tolist(), strict=True)
    return tuple(itertools.islice(some, MOST_ROUNDED))


def note_rounded(found: Iterable[tuple[object, float]], place: str) -> None:
    """Say which columns, by their names or numbers, hold whole numbers that lost digits."""
    for column, value in itertools.islice(dict(found).items(), MOST_ROUNDED):
        log.warning(
            "%s: the column %r loses digits: %d becomes %d, as a store holds float32. Subtract its "
            "least value, or leave the column out",
            *(place, column, value, np.float32(value)),
        )


def real_type(dtype: np.dtype[Any], origin: str) -> np.dtype[Any]:
    """Return float32 if it holds values of a type exactly, else float64."""
    if dtype.kind not in "biuf":
        raise SourceError(f"{origin} holds {dtype}, but values must be real numbers")
    return np.result_type(dtype, np.float32) if dtype.itemsize <= 8 else np.dtype(np.float64)


def require_shape(n: int, d: int, origin: str) -> tuple[int, int]:
    """Return a shape, or refuse it if it is too large for a store."""
    for what, side in (("samples", n), ("features", d)):
        if not 0 <= side <= MAX_SIDE.value:
            raise SourceError(f"{origin} has {side} {what}: a store holds up to {MAX_SIDE.value}")
    return int(n), int(d)


def require_indices(indices: AnyArray, size: int, origin: str, axis: str) -> IntArray:
    """Return the indices of an axis ("row" or "column") as int64, or refuse one beyond `size`."""
    if indices.dtype.kind not in "iu":
        raise SourceError(
            f"{origin} is broken: its {axis} indices are {indices.dtype}, not integers"
        )
    if len(indices) and not 0 <= indices.min() <= indices.max() < size:
        raise SourceError(f"{origin} is broken: a {axis} index lies outside 0 … {size - 1}")
    return indices.astype(np.int64, copy=False)


def require_indptr(indptr: AnyArray, size: int, stored: int, origin: str) -> AnyArray:
    """Return an indptr of (size + 1,), or refuse one that does not match the stored values."""
    if indptr.shape != (size + 1,) or indptr.dtype.kind not in "iu":
        raise SourceError(
            f"{origin} is broken: its indptr has {indptr.size} entries of "
            f"{indptr.dtype}, not {size + 1} integers"
        )
    if indptr[0] != 0 or indptr[-1] != stored or np.any(indptr[1:] < indptr[:-1]):
        ends = f"it runs from {indptr[0]} to {indptr[-1]}"
        raise SourceError(
            f"{origin} is broken: its indptr does not match its {stored} stored values ({ends})"
        )
    return indptr


def require_numbers_fit(count: int, origin: str) -> None:
    """Refuse a file whose shape asks for numbers of 8 bytes that do not fit in memory."""
    require_memory(8 * count, f"reading {origin}, whose shape says so,")
