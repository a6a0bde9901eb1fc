"""From the labels of the blocks to one target: class codes, real values, or label sets.

The distinct labels of a block lie beside it on scratch, with a code for each row. The driver gets
only their `LabelKind`, from which it can `decide_target`. Labels are compared as text, which is
exact: no whole number becomes a float.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from bigfs.storage.errors import SourceError
from bigfs.storage.sources.labels import label_text, parse_number
from bigfs.storage.staging.scratch import LabelKind, RowBlock, open_array, save
from numpy.typing import NDArray

from bigfs.types import AnyArray


class Target(NamedTuple):
    """The target of all samples."""

    kind: str | None  # "class", "real", "multilabel", or None without labels
    codes: Mapping[str, int] = {}  # the place in `class_names` of the text of a label
    class_names: Sequence[str] = ()


def save_labels(path: str, y: Any) -> LabelKind | None:
    """Save the labels of a block, given as in `bigfs.storage.sources.base.Rows`, on scratch."""
    if y is None:
        return None
    sets = isinstance(y, list) and any(isinstance(label, tuple) for label in y)
    if sets:
        rows = [
            [v for v in (label if isinstance(label, tuple) else (label,)) if v not in (None, "")]
            for label in y
        ]
        save(path, set_sizes=np.array([len(row) for row in rows], dtype=np.int32))
        y = [label for row in rows for label in row]
    classes, codes, texts, whole = distinct_labels(y)
    save(path, classes=classes, codes=codes)
    return LabelKind(texts, whole, sets)


def distinct_labels(labels: Any) -> tuple[AnyArray, NDArray[np.int32], bool, bool]:
    """Return the distinct labels, the code of each row, and what the labels are."""
    if isinstance(labels, list | np.ma.MaskedArray):
        return _distinct_listed(labels if isinstance(labels, list) else labels.tolist())
    labels = np.asarray(labels)
    labeled = labels != "" if labels.dtype.kind == "U" else ~np.isnan(labels)
    classes, inverse = np.unique(labels[labeled], return_inverse=True)
    codes = np.full(len(labels), -1, dtype=np.int32)
    codes[labeled] = inverse
    texts = classes.dtype.kind == "U"
    return classes, codes, texts, texts or bool(np.all(classes == np.rint(classes)))


def _distinct_listed(labels: list[Any]) -> tuple[AnyArray, NDArray[np.int32], bool, bool]:
    values = [None if v is None or v == "" or v != v else v for v in labels]  # v != v: NaN
    index: dict[str, int] = {}
    codes = [-1 if v is None else index.setdefault(label_text(v), len(index)) for v in values]
    whole = all(not isinstance(v, float) or v.is_integer() for v in values)
    return (
        np.array(list(index), dtype=np.str_),
        np.array(codes, dtype=np.int32),
        any(isinstance(v, str) for v in values),
        whole,
    )


def decide_target(
    row_blocks: Sequence[RowBlock],
    *,
    kind: str | None = None,
    class_names: Sequence[str] | None = None,
) -> Target:
    """Return the target that fits the labels of all blocks."""
    blocks = [s for s in row_blocks if s.rows]
    kinds = [s.labels for s in blocks if s.labels is not None]
    if not kinds:
        return Target(None)
    if len(kinds) < len(blocks):
        raise SourceError(
            "some samples have a label field and some do not: "
            "give a label field to all samples or to none"
        )
    return common_target((open_array(s.path, "classes") for s in blocks), kinds, kind, class_names)


def common_target(
    classes: Iterable[AnyArray],
    kinds: Sequence[LabelKind],
    kind: str | None,
    class_names: Sequence[str] | None,
) -> Target:
    """Return the target that fits blocks with these distinct labels and kinds of labels."""
    texts = any(labels.texts for labels in kinds)
    sets = kind == "multilabel" or any(labels.sets for labels in kinds)
    whole = all(labels.whole for labels in kinds)
    if not texts and not whole and any(labels.sets for labels in kinds):
        raise SourceError(
            "the lists of labels hold numbers that are not whole, and several real targets per "
            "sample are not supported: give one column of real targets, or whole numbers as labels"
        )
    if not texts and not sets and (kind == "real" or (kind is None and not whole)):
        return Target("real")
    if class_names is not None and not texts:
        keys = [str(i) for i in range(len(class_names))]
        names = [str(name) for name in class_names]
    else:
        distinct = {text for block in classes for text in label_texts(block)}
        keys = names = sorted(distinct, key=None if texts else parse_number)
    return Target("multilabel" if sets else "class", {key: i for i, key in enumerate(keys)}, names)


def target_values(block: RowBlock, target: Target) -> AnyArray:
    """Return the codes of a block's rows, −1 where unlabeled, or the values of real targets."""
    return encode(open_array(block.path, "classes"), open_array(block.path, "codes"), target)


def encode(classes: AnyArray, codes: AnyArray, target: Target) -> AnyArray:
    """Return the targets of rows whose labels are `classes[codes]`."""
    if target.kind == "real":
        values = (
            [float(text) for text in classes.tolist()] if classes.dtype.kind == "U" else classes
        )
        return np.append(np.asarray(values, dtype=np.float64), np.nan)[codes]
    texts = label_texts(classes)
    if unknown := [text for text in texts if text not in target.codes]:
        raise SourceError(
            f"the label {unknown[0]} is not among the {len(target.codes)} "
            f"classes that the source names"
        )
    # the code −1 takes the last entry, which is −1
    return np.array([*(target.codes[text] for text in texts), -1], dtype=np.int64)[codes]


def label_sets(block: RowBlock, target: Target) -> sp.csr_array:
    """Return the label sets of a block's rows, rows × c, with a one for each label."""
    code = target_values(block, target)
    sizes = (
        open_array(block.path, "set_sizes")
        if block.labels is not None and block.labels.sets
        else code >= 0
    )
    code = code[code >= 0]
    rows = sp.csr_array(
        (np.ones(len(code), dtype=np.int8), code, np.cumsum([0, *sizes])),
        shape=(len(sizes), len(target.class_names)),
    )
    rows.sum_duplicates()
    rows.data[:] = 1
    return rows


def label_texts(classes: AnyArray) -> list[str]:
    """Return the text of each label."""
    return [label_text(value) for value in classes.tolist()]
