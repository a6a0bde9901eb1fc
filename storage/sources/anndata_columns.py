"""Columns of AnnData's data frames, read by their published encodings."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigfs.types import AnyArray
from storage.errors import SourceError
from storage.sources import checks

NULLABLE = ("nullable-string-array", "nullable-integer", "nullable-boolean")


def read_column(
    column: Any, place: str, n: int | None = None, start: int = 0, stop: int | None = None
) -> AnyArray:
    """Read values [start, stop) of a column of n values. They are masked where one is missing.

    Parameters
    ----------
    column : group or array
        The column, as h5py or Zarr has it.
    place : str
        The file and the name of the column, for messages.
    n : int, default=None
        The length that the column must have. None allows any.
    start, stop : int
        The range. None as `stop` reads to the end.

    Raises
    ------
    SourceError
        The column has an encoding that cannot be read, or is broken.
    """
    kind = column.attrs.get("encoding-type")
    if kind == "categorical":
        codes = _read_array(column["codes"], place, n, start, stop)
        categories = read_column(column["categories"], f"{place}: categories").astype(object)
        if codes.size and not -1 <= codes.min() <= codes.max() < len(categories):
            raise SourceError(f"{place} is broken: a code lies outside its categories")
        padded = np.array([*categories, None], dtype=object)  # −1, a missing one, takes the last
        return np.ma.MaskedArray(padded[codes], codes == -1)
    if kind in NULLABLE:
        values = _read_array(column["values"], place, n, start, stop)
        missing = _read_array(column["mask"], place, n, start, stop)
        return np.ma.MaskedArray(values, missing.astype(bool))
    # anndata 0.7 wrote the codes of categories as an array with a link to them
    if not hasattr(column, "dtype") or "categories" in column.attrs:
        raise SourceError(_unreadable(column, place))
    return _read_array(column, place, n, start, stop)


def _read_array(array: Any, place: str, n: int | None, start: int, stop: int | None) -> AnyArray:
    if not hasattr(array, "dtype") or array.dtype.kind not in "biufOSTU":
        raise SourceError(_unreadable(array, place))
    if len(array.shape) != 1 or n not in (None, array.shape[0]):
        raise SourceError(f"{place} is broken: it has the shape {array.shape}, not ({n or 'n'},)")
    if array.dtype.kind in "biuf":
        return np.asarray(array[start:stop])
    checks.require_room(array.shape[0] if stop is None else stop - start, place)
    if hasattr(array, "asstr"):  # h5py
        try:
            array = array.asstr()
        except TypeError:
            raise SourceError(_unreadable(array, place)) from None
    # as objects, because NumPy's text loses a NUL at its end
    return np.array(list(array[start:stop]), dtype=object)


def _unreadable(element: Any, place: str) -> str:
    kind = element.attrs.get("encoding-type")
    held = f"{element.dtype}" if hasattr(element, "dtype") else "a group"
    return (
        f"{place} has the encoding {kind!r} ({held}), which cannot be read: texts, numbers, "
        f"booleans and categories can be. Write it again as one of these with anndata"
    )
