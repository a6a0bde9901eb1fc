"""Labels as files write them.

Every value that is written as a label is a class: −1 in a file labeled ±1 is the class "-1". A
sample is unlabeled if its label is missing (null, an empty cell, NaN) or is the value that the
option `unlabeled` names. Two labels are one class if their texts are. Whole numbers are exact at
any size: held as integers where they fit, else in a list, and as floats only below 2⁵³.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from bigfs.storage.errors import SourceError
from bigfs.storage.format import disk
from bigfs.storage.sources.base import Label, shorten
from bigfs.storage.sources.files import decode, open_decompressed

from bigfs.types import AnyArray

MAX_EXACT = 2**53  # whole numbers below it are exact as floats
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)


def label_text(value: Any) -> str:
    """Return the text of a label. Whole numbers have no point, so that 1.0 and 1 are one class."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def as_label(value: Any, unlabeled: str | None, place: object, role: str = "label") -> Label:
    """Return the label of one document, None if it is unlabeled. A list is a label set.

    `place` and `role` are written out in an error only.
    """
    if value is None or value == "" or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, (list, tuple)):
        return tuple(
            label
            for label in (_scalar_label(v, place, role) for v in value)
            if not _is_unlabeled(unlabeled, label)
        )
    value = _scalar_label(value, place, role)
    return None if _is_unlabeled(unlabeled, value) else value


def _is_unlabeled(unlabeled: str | None, value: Any) -> bool:
    return unlabeled is not None and str(unlabeled) in (str(value), label_text(value))


def label_names(label: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the columns of labels, which commas divide in a text."""
    words = label.split(",") if isinstance(label, str) else label or ()
    return tuple(word.strip() for word in words if word.strip())


def as_label_sets(
    columns: Mapping[str, AnyArray], place: Callable[[int], object]
) -> list[tuple[int, ...]]:
    """Return the label sets of rows, from a column of zeros and ones per label (NaN: missing).

    A label is the number of its column.
    """
    Y = np.column_stack(list(columns.values()))
    wrong = np.argwhere((Y != 0) & (Y != 1))
    if len(wrong):
        i, j = wrong[0].tolist()
        got = "none" if np.isnan(Y[i, j]) else f"{Y[i, j]:g}"
        raise SourceError(
            f"{place(i)}: {list(columns)[j]!r} is one of several columns of labels, which must "
            f"hold 0 or 1 for every sample; got {got}: give one column as the label, of "
            f"classes, lists or real targets. Several real targets per sample are not supported"
        )
    sets = sp.csr_array(Y)
    return [tuple(part.tolist()) for part in np.split(sets.indices, sets.indptr[1:-1])]


def _scalar_label(value: Any, place: object, role: str) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _require_storable(value, place, role)
    if isinstance(value, int) or (isinstance(value, float) and np.isfinite(value)):
        return value
    raise SourceError(
        f"{place}: a {role} must be a text, a number or a list of those; got {shorten(value)}"
    )


def _require_storable(label: str, place: object, role: str = "label") -> str:
    """Return a text, or refuse it if a store would change it."""
    if "\0" in label:
        raise SourceError(
            f"{place}: the {role} {shorten(label)} holds the character "
            f"NUL, which a store cannot hold"
        )
    if not label.isascii() and any("\ud800" <= letter <= "\udfff" for letter in label):
        raise SourceError(
            f"{place}: the {role} {shorten(label)} holds half of a "
            f"surrogate pair, which is not a character"
        )
    return label


def as_label_array(values: Any, n: int, unlabeled: str | None, origin: str) -> AnyArray:
    """Return n labels as an array, as `Rows.y` describes it: integers, floats or strings.

    What is masked is unlabeled.
    """
    y, missing = np.ma.getdata(values), np.ma.getmaskarray(values).reshape(-1)
    if y.size != n:
        raise SourceError(
            f"{origin} has {y.size} labels for {n} rows: rows are samples, with one label each"
        )
    y = y.reshape(-1)
    if y.dtype.kind in "OSU":  # O: a cell array of texts
        return np.where(missing, "", _text_labels(y, unlabeled, origin))
    if y.dtype.kind not in "biuf":
        raise SourceError(f"{origin}: labels must be texts or numbers; got {y.dtype}")
    if y.dtype.kind == "f":
        y = _float_labels(np.where(missing, np.nan, y), origin)
    elif y.dtype.kind == "b":
        y = y.astype(np.int64)
    if unlabeled is not None:
        missing = missing | (y == _number(unlabeled, origin))
    elif not missing.any():
        return y
    exact = y.dtype.kind == "f" or not len(y) or max(-int(y.min()), int(y.max())) <= MAX_EXACT
    return np.where(missing, np.nan, y) if exact else np.ma.MaskedArray(y, missing)


def _number(unlabeled: str, origin: str) -> int | float:
    try:
        return parse_number(str(unlabeled))
    except ValueError:
        raise SourceError(
            f"{origin} has numeric labels: unlabeled={unlabeled!r} must be a number"
        ) from None


def _text_labels(y: AnyArray, unlabeled: str | None, origin: str) -> AnyArray:
    words = [
        decode(v) if isinstance(v, bytes) else str(v)
        for v in (np.squeeze(v).item() if isinstance(v, np.ndarray) else v for v in y)
    ]
    for i, word in enumerate(words):
        _require_storable(word, f"{origin}: row {i} (from 0)")
    y = np.array(words, dtype=np.str_)
    return y if unlabeled is None else np.where(y == str(unlabeled), "", y)


def _float_labels(y: AnyArray, origin: str) -> AnyArray:
    """Return labels as integers if all are small whole numbers, else as float64."""
    if np.isinf(y).any():
        raise SourceError(
            f"{origin}: label {int(np.flatnonzero(np.isinf(y))[0])} (from 0) is infinite"
        )
    if y.dtype.itemsize > 8 and not np.array_equal(y.astype(np.float64), y, equal_nan=True):
        raise SourceError(f"{origin}: labels of {y.dtype} do not fit in float64")
    y = y.astype(np.float64)
    return y.astype(np.int64) if np.all(y == np.round(y)) and np.all(np.abs(y) <= MAX_EXACT) else y


def read_labels(path: str, n: int, unlabeled: str | None) -> AnyArray:
    """Read labels from a separate file: .npy, or text with one per line and "" if unlabeled."""
    if not Path(path).is_file():
        raise SourceError(
            f"{path} does not exist: labels= must name a .npy file or a "
            f"text file with one label per line"
        )
    if path.endswith(".npy"):
        try:
            return as_label_array(disk.load(path), n, unlabeled, path)
        except (ValueError, EOFError) as error:
            if isinstance(error, SourceError):
                raise
            raise SourceError(f"{path} is not an array of labels: {error}") from error
    with open_decompressed(path) as file:
        words = [decode(line).strip() for line in file]
    try:
        numbers = [parse_number(word) if word else None for word in words]
    except ValueError:
        return as_label_array(np.array(words, dtype=object), n, unlabeled, path)
    if any(isinstance(v, float) for v in numbers):
        numbers = [None if v is None else float(v) for v in numbers]
    y = pack_labels(numbers, path)
    if isinstance(y, list):  # integers that no array of numbers holds go by name
        y = np.array(["" if v is None else label_text(v) for v in y])
    return as_label_array(y, n, unlabeled, path)


def parse_number(word: str) -> int | float:
    """Return the number of a word, an integer if it has digits only, or raise a ValueError."""
    if "_" in word:  # Python allows 1_000, files of labels do not
        raise ValueError(word)
    return int(word) if WHOLE.fullmatch(word) else float(word)


def pack_labels(labels: Sequence[Label], origin: str) -> Any:
    """Return labels as `Rows.y` holds them: an array if it is exact, else a list."""
    kinds = {
        "set" if isinstance(v, tuple) else "text" if isinstance(v, str) else "number"
        for v in labels
        if v is not None
    }
    if not kinds:
        return np.full(len(labels), np.nan)
    if "set" in kinds:
        if len(kinds) > 1:
            raise SourceError(f"{origin}: either all labels or none must be lists")
        return [v or () for v in labels]
    if "text" in kinds:
        return np.array(["" if v is None else label_text(v) for v in labels])
    whole = [v for v in labels if isinstance(v, int)]
    if whole and max(map(abs, whole)) > MAX_EXACT:
        return labels
    return np.array([np.nan if v is None else v for v in labels])
