"""Labels of the blocks → one target: class codes, real values, or label sets.

The distinct labels of a block lie beside it on scratch with a code for each row; the driver only
learns what they are like, so that it can `settle` what the target is. A label goes by its name,
which is exact: no whole number becomes a float.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bigfs.types import AnyArray
from storage.errors import SourceError
from storage.sources.labels import name_of, number
from storage.staging.scratch import Labels, Spill, open_array, save


class Target(NamedTuple):
    """kind : "class", "real", "multilabel", or None: no labels.
    codes : the code of each label's name, an index of `class_names`.
    """

    kind: str | None
    codes: Mapping[str, int] = {}
    class_names: Sequence[str] = ()


def save_labels(path: str, y: Any) -> Labels | None:
    """Labels as `storage.sources.base.Rows` has them, onto scratch."""
    if y is None:
        return None
    sets = isinstance(y, list) and any(isinstance(label, tuple) for label in y)
    if sets:
        rows = [
            [
                one
                for one in (label if isinstance(label, tuple) else (label,))
                if one not in (None, "")
            ]
            for label in y
        ]
        save(path, set_sizes=np.array([len(row) for row in rows], dtype=np.int32))
        y = [label for row in rows for label in row]
    classes, codes, texts, whole = distinct(y)
    save(path, classes=classes, codes=codes)
    return Labels(texts, whole, sets)


def distinct(labels: Any) -> tuple[AnyArray, NDArray[np.int32], bool, bool]:
    """The distinct labels, as numbers or names; each row's index among them, −1 unlabelled; whether
    some labels are texts; whether all numbers are whole.
    """
    if isinstance(labels, list | np.ma.MaskedArray):
        return _listed(labels if isinstance(labels, list) else labels.tolist())
    labels = np.asarray(labels)
    known = labels != "" if labels.dtype.kind == "U" else ~np.isnan(labels)
    classes, inverse = np.unique(labels[known], return_inverse=True)
    codes = np.full(len(labels), -1, dtype=np.int32)
    codes[known] = inverse
    texts = classes.dtype.kind == "U"
    return classes, codes, texts, texts or bool(np.all(classes == np.rint(classes)))


def _listed(labels: list[Any]) -> tuple[AnyArray, NDArray[np.int32], bool, bool]:
    known = [None if v is None or v == "" or v != v else v for v in labels]  # v != v: NaN
    index: dict[str, int] = {}
    codes = [-1 if v is None else index.setdefault(name_of(v), len(index)) for v in known]
    whole = all(not isinstance(v, float) or v.is_integer() for v in known)
    return (
        np.array(list(index), dtype=np.str_),
        np.array(codes, dtype=np.int32),
        any(isinstance(v, str) for v in known),
        whole,
    )


def settle(
    spills: Sequence[Spill], *, kind: str | None = None, class_names: Sequence[str] | None = None
) -> Target:
    """What the labels of all blocks are together.

    kind : what the source says it is; else sets anywhere make it multi-label, and numbers that are
        not whole, real.
    class_names : of the numbers 0 … c − 1, if the source has them.
    """
    blocks = [s for s in spills if s.rows]
    kinds = [s.labels for s in blocks if s.labels is not None]
    if not kinds:
        return Target(None)
    if len(kinds) < len(blocks):
        raise SourceError(
            "some samples have a label field and some do not: "
            "give a label field to all samples or to none"
        )
    return settled((open_array(s.path, "classes") for s in blocks), kinds, kind, class_names)


def settled(
    classes: Iterable[AnyArray],
    kinds: Sequence[Labels],
    kind: str | None,
    class_names: Sequence[str] | None,
) -> Target:
    """The target of blocks with these distinct labels, which are like `kinds`."""
    texts, sets = (
        any(labels.texts for labels in kinds),
        kind == "multilabel" or any(labels.sets for labels in kinds),
    )
    if (
        not texts
        and not sets
        and (kind == "real" or (kind is None and not all(labels.whole for labels in kinds)))
    ):
        return Target("real")
    if class_names is not None and not texts:
        names, shown = (
            [str(i) for i in range(len(class_names))],
            [str(name) for name in class_names],
        )
    else:
        names = shown = sorted(
            {name for some in classes for name in names_of(some)}, key=None if texts else number
        )
    return Target(
        "multilabel" if sets else "class", {name: i for i, name in enumerate(names)}, shown
    )


def coded(block: Spill, target: Target) -> AnyArray:
    """The codes of a block's rows, −1 where unlabelled; its labels themselves where they are real
    targets.
    """
    return code_of(open_array(block.path, "classes"), open_array(block.path, "codes"), target)


def code_of(classes: AnyArray, codes: AnyArray, target: Target) -> AnyArray:
    """The targets of rows whose labels are `classes[codes]`."""
    if target.kind == "real":
        values = (
            [float(name) for name in classes.tolist()] if classes.dtype.kind == "U" else classes
        )
        return np.append(np.asarray(values, dtype=np.float64), np.nan)[codes]
    if lost := [name for name in names_of(classes) if name not in target.codes]:
        raise SourceError(
            f"the label {lost[0]} is not among the {len(target.codes)} "
            f"classes that the source names"
        )
    # −1 is the last
    return np.array([*(target.codes[name] for name in names_of(classes)), -1], dtype=np.int64)[
        codes
    ]


def label_sets(block: Spill, target: Target) -> sp.csr_array:
    """rows × c: a one for each label; in a block where no row has several, they look like single
    labels.
    """
    code = coded(block, target)
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


def names_of(classes: AnyArray) -> list[str]:
    return [name_of(value) for value in classes.tolist()]
