"""Labels of the blocks → one target: class codes, real values, or label sets.

The labels of a block lie beside it on scratch (`save`); the driver only learns what they are like,
so that it can `settle` what the target is, and then codes them block after block.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from storage.errors import SourceError
from storage.spill import Spill, open_array, save

Array = NDArray[Any]
NONE = np.array([], dtype=np.float64)


class Labels(NamedTuple):
    """What the labels of one block are like. On scratch: `labels`, floats or strings, NaN or "" where unlabelled;
    `classes`, the distinct ones; and of sets of labels `set_sizes`, with the sets in `labels` one after the other."""

    texts: bool
    whole: bool
    sets: bool


class Target(NamedTuple):
    """kind : "class", "real", "multilabel", or None: no labels.
    classes : the labels that there are, sorted; `code[i]` is the code of `classes[i]` and an index of `class_names`.
    """

    kind: str | None
    classes: Array = NONE
    code: Array = NONE
    class_names: Sequence[str] = ()


def save_labels(path: str, y: Any) -> Labels | None:
    """Labels as `storage.sources.base.Rows` has them, onto scratch."""
    if y is None:
        return None
    sets = isinstance(y, list) and any(isinstance(label, tuple) for label in y)
    if sets:
        rows = [[one for one in (label if isinstance(label, tuple) else (label,)) if one not in (None, "")] for label in y]
        save(path, set_sizes=np.array([len(row) for row in rows], dtype=np.int32))
        y = [label for row in rows for label in row]
    labels = as_array(y)
    classes = np.unique(labels[known(labels)])
    save(path, labels=labels, classes=classes)
    texts = labels.dtype.kind == "U"
    return Labels(texts, texts or bool(np.all(classes == np.rint(classes))), sets)


def as_array(labels: Any) -> Array:
    """Floats (NaN unlabelled) or strings ("" unlabelled)."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iufUb":
        return labels if labels.dtype.kind == "U" else labels.astype(np.float64)
    if all(label is None or isinstance(label, int | float) for label in labels):
        return np.array([np.nan if label is None else label for label in labels], dtype=np.float64)
    return np.array(["" if label is None else name_of(label) for label in labels], dtype=np.str_)


def known(labels: Array) -> NDArray[np.bool_]:
    return ~np.isnan(labels) if labels.dtype.kind == "f" else labels != ""


def settle(spills: Sequence[Spill], *, kind: str | None = None, class_names: Sequence[str] | None = None) -> Target:
    """What the labels of all blocks are together.

    kind : what the source says it is; else sets anywhere make it multi-label, and numbers that are not whole, real.
    class_names : of the numbers 0 … c − 1, if the source has them.
    """
    blocks = [s for s in spills if s.rows]
    found = [s.labels for s in blocks if s.labels is not None]
    if not found:
        return Target(None)
    if len(found) < len(blocks):
        raise SourceError("some samples have a label field and some have none: give every sample one, or none")
    texts, sets = any(labels.texts for labels in found), kind == "multilabel" or any(labels.sets for labels in found)
    if not texts and not sets and (kind == "real" or (kind is None and not all(labels.whole for labels in found))):
        return Target("real")
    if class_names is not None and not texts:
        classes: Array = np.arange(len(class_names), dtype=np.float64)
    else:
        classes = reduce(np.union1d, (_alike(open_array(s.path, "classes"), texts) for s in blocks))
    names = [str(name) for name in class_names] if class_names is not None else [name_of(value) for value in classes.tolist()]
    return Target("multilabel" if sets else "class", classes, np.arange(len(names)), names)


def coded(block: Spill, target: Target) -> Array:
    """The codes of a block's rows, −1 where unlabelled; its labels themselves where they are real targets."""
    labels = open_array(block.path, "labels")
    if target.kind == "real":
        return np.array(labels)
    there = known(labels)
    code = np.full(len(labels), -1, dtype=np.int64)
    code[there] = _codes(labels[there], target)
    return code


def label_sets(block: Spill, target: Target) -> sp.csr_array:
    """rows × c: a one for each label; in a block where no row has several, they look like single labels."""
    labels = open_array(block.path, "labels")
    there = known(labels)
    sizes = open_array(block.path, "set_sizes") if block.labels is not None and block.labels.sets else there.astype(np.int32)
    code = _codes(labels[there], target)
    rows = sp.csr_array((np.ones(len(code), dtype=np.int8), code, np.cumsum([0, *sizes])), shape=(len(sizes), len(target.class_names)))
    rows.sum_duplicates()
    rows.data[:] = 1
    return rows


def _codes(labels: Array, target: Target) -> Array:
    return target.code[np.searchsorted(target.classes, _alike(labels, target.classes.dtype.kind == "U"))]


def _alike(labels: Array, texts: bool) -> Array:
    """As strings where any block has words: one with numbers only can't know of the others' words."""
    if not texts or labels.dtype.kind == "U":
        return labels
    return np.array([name_of(value) for value in labels.tolist()], dtype=np.str_)


def name_of(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
