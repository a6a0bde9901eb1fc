"""Labels of the pieces → one array of targets: class codes, real values, or label sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from storage.errors import SourceError


class Targets(NamedTuple):
    """kind "class": int codes, −1 unlabelled; "real": float64; "multilabel": n × c csr of ones; None: no labels."""

    kind: str | None
    y: Any
    class_names: list[str]


def encode(parts: Sequence[Any], rows: int, *, kind: str | None = None, class_names: Sequence[str] | None = None) -> Targets:
    """The targets of `rows` samples, from the labels of their parts in order."""
    parts = [part for part in parts if part is not None and len(part)]
    if not parts:
        return Targets(None, np.full(rows, -1, dtype=np.int64), [])
    if sum(len(part) for part in parts) != rows:
        raise SourceError("some samples have a label field and some have none: give every sample one, or none")
    if kind == "multilabel" or any(isinstance(part, list) and isinstance(part[0], tuple) for part in parts):
        return _label_sets([one for part in parts for one in _as_sets(part)], class_names)
    y = np.concatenate(_alike([_as_array(part) for part in parts]))
    if y.dtype.kind == "f" and (kind == "real" or (kind is None and not _whole(y))):
        return Targets("real", y.astype(np.float64), [])
    known = _known(y)
    if class_names is not None and y.dtype.kind in "if":
        classes = np.arange(len(class_names))
    else:
        classes = np.unique(y[known])
    code = np.full(rows, -1, dtype=np.int64)
    code[known] = np.searchsorted(classes, y[known])
    if class_names is None:
        class_names = [_name(value) for value in classes.tolist()]
    return Targets("class", code, [str(name) for name in class_names])


def _as_array(part: Any) -> NDArray[Any]:
    """Labels as floats (NaN unlabelled) or strings ("" unlabelled)."""
    if isinstance(part, np.ndarray) and part.dtype.kind in "iufUb":
        return part if part.dtype.kind in "fU" else part.astype(np.float64)
    if all(label is None or isinstance(label, int | float) for label in part):
        return np.array([np.nan if label is None else label for label in part], dtype=np.float64)
    return np.array(["" if label is None else str(label) for label in part], dtype=np.str_)


def _alike(parts: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """All floats or all strings: a piece with numbers only, or with no label at all, can't know of the others' words."""
    if not any(part.dtype.kind == "U" for part in parts):
        return parts
    return [part if part.dtype.kind == "U" else np.array(["" if np.isnan(v) else _name(float(v)) for v in part]) for part in parts]


def _known(y: NDArray[Any]) -> NDArray[np.bool_]:
    return ~np.isnan(y) if y.dtype.kind == "f" else y != ""


def _whole(y: NDArray[Any]) -> bool:
    known = y[~np.isnan(y)]
    return bool(np.all(known == np.rint(known)))


def _name(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _as_sets(part: Any) -> list[tuple[Any, ...]]:
    """A piece in which every sample happened to have one label looks like single labels."""
    if isinstance(part, list):
        return [one if isinstance(one, tuple) else (one,) for one in part]
    return [(int(v) if isinstance(v, float) and v.is_integer() else v,) for v in part.tolist()]


def _label_sets(sets: Sequence[tuple[Any, ...]], class_names: Sequence[str] | None) -> Targets:
    labels = [label for one in sets for label in one]
    numbered = class_names is not None and all(isinstance(label, int) for label in labels)
    classes: list[Any] = list(range(len(class_names))) if numbered and class_names is not None else sorted(set(labels))
    code = {label: i for i, label in enumerate(classes)}
    indptr = np.cumsum([0, *(len(one) for one in sets)])
    ones = np.ones(len(labels), dtype=np.int8)
    y = sp.csr_array((ones, np.array([code[label] for label in labels], dtype=np.int32), indptr), shape=(len(sets), len(classes)))
    y.sum_duplicates()
    y.data[:] = 1
    return Targets("multilabel", y, [str(name) for name in (class_names if class_names is not None else classes)])
