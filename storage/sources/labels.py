"""Labels as files write them: classes go by name, and what is unlabelled is said, never guessed.

Every value that is written as a label is a class: −1 of a file labelled ±1 is the class "-1".
Unlabelled is what is missing (null, an empty cell, NaN), and the one value that the option
`unlabelled` names, for the files that write −1 (or 0, or "?") where they have no label.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storage.errors import SourceError
from storage.sources.base import Label, decode, opened


def one(value: Any, unlabelled: str | None, place: object) -> Label:
    """The label of one document; a list is a set of classes. `place` is only written out in an error."""
    if value is None or value == "" or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, (list, tuple)):
        return tuple(_simple(v, place) for v in value)
    value = _simple(value, place)
    return None if unlabelled is not None and str(value) == str(unlabelled) else value


def _simple(value: Any, place: object) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int)) or (isinstance(value, float) and np.isfinite(value)):
        return value
    raise SourceError(f"{place}: a label is a text, a number or a list of those, not {value!r}")


def many(values: Any, n: int, unlabelled: str | None, origin: str) -> NDArray[Any]:
    """n labels as an array: integers, or floats with NaN where unlabelled, or strings with "" there."""
    y = np.asarray(values)
    if y.size != n:
        raise SourceError(f"{origin} has {y.size} labels for {n} rows: rows are samples, with one label each")
    y = y.reshape(-1)
    if y.dtype.kind == "O":  # a cell array of texts
        y = np.array([str(np.squeeze(v)) for v in y])
    if y.dtype.kind not in "biufUS":
        raise SourceError(f"{origin}: labels are texts or numbers, not {y.dtype}")
    if y.dtype.kind in "US":
        y = y.astype(str)
        return y if unlabelled is None else np.where(y == str(unlabelled), "", y)
    if y.dtype.kind == "f" and np.isinf(y).any():
        raise SourceError(f"{origin}: label {int(np.flatnonzero(np.isinf(y))[0])} (from 0) is infinite")
    if (y.dtype.kind == "f" and np.all(y == np.round(y))) or y.dtype.kind in "bu":
        y = y.astype(np.int64)
    if unlabelled is None:
        return y
    try:
        return np.where(y == float(unlabelled), np.nan, y)
    except ValueError:
        raise SourceError(f"{origin} has numbers as labels: unlabelled={unlabelled!r} is none of them") from None


def beside(path: str, n: int, unlabelled: str | None) -> NDArray[Any]:
    """Labels from a file of their own: .npy, or a text with one a line, where an empty line is unlabelled."""
    if not Path(path).is_file():
        raise SourceError(f"{path} does not exist: labels= names a .npy file or a text with one label a line")
    if path.endswith(".npy"):
        try:
            return many(np.load(path, allow_pickle=False), n, unlabelled, path)
        except (ValueError, EOFError) as error:
            raise SourceError(f"{path} is not an array of labels: {error}") from error
    with opened(path) as file:
        words = np.array([decode(line).strip() for line in file], dtype=str)
    known = words[words != ""]
    try:
        known.astype(float)
    except ValueError:
        return many(words, n, unlabelled, path)
    return many(np.array([float(w) if w else np.nan for w in words]), n, unlabelled, path)


def gathered(labels: list[Label], origin: str) -> Any:
    """Labels of rows read one by one as `Rows` holds them: an array or a list of tuples."""
    kinds = {"set" if isinstance(v, tuple) else "text" if isinstance(v, str) else "number" for v in labels if v is not None}
    if not kinds:
        return np.full(len(labels), np.nan)
    if kinds == {"set"}:
        return [v or () for v in labels]
    if "set" in kinds:
        raise SourceError(f"{origin}: some labels are lists and some are not")
    if kinds == {"number"} and None in labels:
        return np.array([np.nan if v is None else v for v in labels], dtype=np.float64)
    return np.array(["" if v is None else str(v) for v in labels]) if "text" in kinds else np.array(labels)
