"""The tables that come with the matrix, streamed in chunks: obs with one row per sample, and var
with one row per feature.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from bigfs.engine import require_memory
from bigfs.storage.errors import SourceError
from bigfs.storage.format.manifest import (
    COLUMN_CHUNK,
    MATRICES,
    ROW_CHUNK,
    STRING_CHUNK,
    Segment,
)
from bigfs.storage.format.writer import Writer
from bigfs.storage.sources import checks, samples
from bigfs.storage.sources.base import Source, shorten_names
from bigfs.storage.sources.joined import Joined
from bigfs.storage.sources.samples import CATEGORIES, Target
from bigfs.storage.staging.scratch import RowBlock, open_samples
from bigfs.types import AnyArray

log = logging.getLogger("bigfs.storage")

Parts = Callable[[], Iterable[Any]]  # gives a fresh iterator over the parts of a column
MANY_CLASSES = 20  # of which it is said if most have one sample
SAMPLES_PER_CLASS = 10  # in the mean, at the least, of a table as it comes with numbers as labels
SEPARATORS = (";", "|", ",", " ")  # of several labels in one text
FEWEST_SETS = 4  # classes, of which it is said that they look like several labels
CATEGORY_BYTES = 200  # of a category in addition to its text, in the tables that hold it


# --- obs ------------------------------------------------------------------------------------------


class ObsColumn(NamedTuple):
    """A column of obs with a role: codes of categories, numbers, or dates as microseconds."""

    parts: Parts
    dtype: Any = np.int64
    categories: Sequence[str] | None = None


def write_samples(
    writer: Writer,
    target: Target,
    segments: Sequence[Segment],
    y: Parts,
    names: Parts | None,
    obs: Mapping[str, ObsColumn],
) -> None:
    """Write the names of the samples and their columns. Several labels, or targets, go to obsm."""
    n = segments[-1].stop
    columns = (
        (["label"] if target.kind in ("class", "real") else [])
        + (["split"] if segments[0].split else [])
        + list(obs)
    )
    writer.group("obs", "dataframe", "0.2.0", **{"_index": "_index", "column-order": columns})
    writer.stream("obs/_index", n, str, row_numbers(0, n) if names is None else names())
    if target.kind == "class":
        write_categories(writer, "obs/label", n, y(), target.class_names)
    elif target.kind == "real":
        writer.stream("obs/label", n, np.float64, y(), ROW_CHUNK)
    elif target.kind is not None:
        write_matrix(writer, n, y, target)
    if segments[0].split:
        halves = ("train", "test")
        code = (np.full(s.rows, halves.index(str(s.split)), dtype=np.int8) for s in segments)
        write_categories(writer, "obs/split", n, code, halves)
    for role, column in obs.items():
        if column.categories is None:
            writer.stream(f"obs/{role}", n, column.dtype, column.parts(), ROW_CHUNK)
        else:
            write_categories(writer, f"obs/{role}", n, column.parts(), column.categories)


def decide_target(blocks: Sequence[RowBlock], source: Source, kind: str | None = None) -> Target:
    """Return the target that fits the labels of all blocks."""
    blocks = [s for s in blocks if s.rows and s.told.has_labels]
    kinds = [s.told.labels for s in blocks if s.told.labels is not None]
    if not source.allows_single:
        samples.require_alike(kinds)
    categories = (_categories(s.path, "label") for s in blocks)
    return samples.common_target(categories, kinds, source.target or kind, source.class_names)


def _categories(path: str, role: str) -> Any:
    return samples.categories_of(open_samples(path, role))


def note_joined_labels(target: Target, source: Source) -> None:
    """Say that most classes look like several labels in one text, whose parts come again."""
    if target.kind != "class" or source.label_separator or not target.texts:
        return
    if "label_separator" not in inspect.signature(type(source)).parameters:
        return
    for separator in SEPARATORS:
        sets = [set(name.split(separator)) for name in target.class_names if separator in name]
        parts = Counter(chain.from_iterable(sets))
        are_most = 2 * len(sets) >= len(target.class_names) >= FEWEST_SETS
        if are_most and len(parts) < len(target.class_names) and min(parts.values()) > 1:
            log.warning(
                "%s: most of its %d classes, such as %s, hold %r between parts that come again: "
                "give label_separator=%s if each is several labels",
                *(source.path, len(target.class_names)),
                samples.shorten(next(name for name in target.class_names if separator in name)),
                *(separator, quote(separator)),
            )
            return


def compare_splits(blocks: Sequence[RowBlock], target: Target, source: Source) -> None:
    """Say what the test samples lack of the labels.

    Labels of a source of their own are refused where none is a known class: two sources may write
    the classes in two ways.
    """
    halves = {half: [s for s in blocks if s.rows and s.split == half] for half in samples.SPLITS}
    labeled = {half: [s for s in some if s.told.labels] for half, some in halves.items()}
    if not labeled["train"] or not halves["test"]:
        return
    if not labeled["test"]:
        log.warning(
            "%s: the test samples have no labels: no score counts them, and predict answers them",
            halves["test"][0].told.first,
        )
    if target.kind != "class":
        return
    texts: dict[str, set[str]] = {half: set() for half in samples.SPLITS}
    for half, some in labeled.items():
        for block in some:
            texts[half].update(
                samples.category_texts(_categories(block.path, "label"), target.texts)
            )
    new = sorted(texts["test"] - texts["train"])
    if not new:
        return
    first = labeled["test"][0].told.labels
    where = source.path if first is None else first.place
    if isinstance(source, Joined) and len(new) == len(texts["test"]):
        raise SourceError(
            f"{where}: no label of a test sample ({shorten_names(new, 3)}) is one of the training "
            f"samples ({shorten_names(sorted(texts['train']), 3)}): write them alike, or give "
            f"unlabeled={new[0]} if it means none"
        )
    message = "%s: the classes %s are in test samples only, for which no model can answer them"
    log.warning(message, where, shorten_names(new, 5))


def are_measured(target: Target, n: int) -> bool:
    """Return whether labels that are whole numbers seem to be measured, as they are many."""
    many = max(MANY_CLASSES, n // SAMPLES_PER_CLASS)
    return target.kind == "class" and not target.texts and len(target.class_names) > many


def note_single_classes(blocks: Sequence[RowBlock], target: Target, place: str) -> None:
    """Say that most classes have one sample, as a number that is no class has."""
    if target.kind != "class" or len(target.class_names) < MANY_CLASSES:
        return
    sizes = np.zeros(len(target.class_names), dtype=np.int64)
    for codes in y_of(blocks, target):
        sizes += np.bincount(codes[codes >= 0], minlength=len(sizes))
    if 2 * np.count_nonzero(sizes == 1) > len(sizes):
        advice = "" if target.texts else ": give target=real if the label is a number"
        log.warning("%s: most of its %d classes have one sample%s", place, len(sizes), advice)


def y_of(blocks: Sequence[RowBlock], target: Target) -> Iterator[Any]:
    """Yield the targets of the rows, block after block."""
    values = samples.encode_matrix if target.kind in MATRICES else samples.encode
    return (values(open_samples(s.path, "label"), target) for s in blocks if s.rows)


def obs_of(
    blocks: Sequence[RowBlock],
    roles: Iterable[str],
    place: str,
    stored: Mapping[str, ObsColumn] | None = None,
) -> dict[str, ObsColumn]:
    """Return the columns of the blocks by their roles, after the values that are stored already."""
    blocks, stored = [s for s in blocks if s.rows], stored or {}
    columns = {}
    for role in roles:
        before, parts = stored.get(role), partial(_values_of, blocks, role)
        if role in CATEGORIES:
            known = [] if before is None else before.categories
            names = _merged_categories(blocks, role, known or [], place)
            column = ObsColumn(partial(_codes_of, blocks, role, names), categories=list(names))
        else:
            dtypes = [] if before is None else [before.dtype]
            for block in blocks:
                is_date = str(open_samples(block.path, role).type).startswith("timestamp")
                dtypes.append(np.dtype(np.int64 if is_date else np.float64))
                if dtypes[-1] != dtypes[0]:
                    raise samples.mixed_times(block.told.first)
            column = ObsColumn(parts, dtypes[0])
        if before is not None:
            column = column._replace(parts=partial(_one_after_another, before.parts, column.parts))
        columns[role] = column
    return columns


def _merged_categories(
    blocks: Sequence[RowBlock], role: str, known: Sequence[str], place: str
) -> dict[str, int]:
    """Return the codes of all categories of a role: those known, then new ones in order."""
    names, size = set(known), 0
    for block in blocks:
        more = set(_categories(block.path, role).to_pylist()) - names
        names |= more
        size += sum(map(sys.getsizeof, more)) + CATEGORY_BYTES * len(more)
        require_memory(size, f"the table of the {len(names):,} values of {role}= in {place}")
    new = sorted(names.difference(known))
    return {name: code for code, name in enumerate([*known, *new])}


def _codes_of(
    blocks: Sequence[RowBlock], role: str, codes: Mapping[str, int]
) -> Iterator[AnyArray]:
    for block in blocks:
        part = samples.as_codes(open_samples(block.path, role))
        yield np.array([codes[name] for name in part.categories.to_pylist()], np.int64)[part.codes]


def _values_of(blocks: Sequence[RowBlock], role: str) -> Iterator[AnyArray]:
    for block in blocks:
        values = open_samples(block.path, role).to_numpy(zero_copy_only=False)
        yield values.astype(np.int64) if values.dtype.kind == "M" else values


def _one_after_another(first: Parts, second: Parts) -> Iterator[AnyArray]:
    return chain(first(), second())


def names_of(blocks: Sequence[RowBlock], first: int = 0) -> Parts | None:
    """Return the names of the samples in parts, or None if none has one.

    A sample without a name has its number in the store, where the blocks begin at `first`.
    """
    blocks = [s for s in blocks if s.rows]
    return partial(_names_of, blocks, first) if any(s.told.named for s in blocks) else None


def _names_of(blocks: Sequence[RowBlock], start: int) -> Iterator[AnyArray]:
    for block in blocks:
        stop = start + block.rows
        if not block.told.named:
            yield from row_numbers(start, stop)
        for a in range(0, block.rows if block.told.named else 0, STRING_CHUNK):
            names = open_samples(block.path, "name").slice(a, STRING_CHUNK)
            some = np.array(names.to_pylist(), dtype=object)
            if names.null_count:
                numbers = next(row_numbers(start + a, start + a + len(some)))
                some = np.where(names.is_null(), numbers.astype(object), some)
            yield some
        start = stop


def row_numbers(start: int, stop: int) -> Iterator[AnyArray]:
    """Yield the numbers start … stop − 1 as text: the names of rows or columns without names."""
    return (
        np.arange(a, min(a + STRING_CHUNK, stop)).astype(np.str_)
        for a in range(start, stop, STRING_CHUNK)
    )


def write_categories(
    writer: Writer, path: str, n: int, codes: Iterable[AnyArray], categories: Sequence[str]
) -> None:
    """Write a categorical column, with codes of the smallest integer type that holds them."""
    smallest = np.min_scalar_type(-1 - len(categories))
    writer.group(path, "categorical", "0.2.0", ordered=False)
    writer.stream(
        f"{path}/codes", n, smallest, (part.astype(smallest) for part in codes), ROW_CHUNK
    )
    writer.write(f"{path}/categories", np.array(categories, dtype=object))


def write_matrix(writer: Writer, n: int, y: Parts, target: Target) -> None:
    """Write label sets, or several real targets, as a matrix of obsm, n × c."""
    path, dtype = MATRICES[str(target.kind)]
    count = sum(part.nnz for part in y())
    writer.group("obsm", "dict")
    writer.group(path, "csr_matrix", shape=[n, len(target.class_names)])
    columns: dict[str, tuple[int, Any, Iterable[AnyArray]]] = {
        "data": (count, dtype, (part.data.astype(dtype) for part in y())),
        "indices": (count, np.int32, (part.indices.astype(np.int32) for part in y())),
        "indptr": (n + 1, np.int64, running_indptr(np.diff(part.indptr) for part in y())),
    }
    for name, (length, kind, parts) in columns.items():
        writer.stream(f"{path}/{name}", length, kind, parts, ROW_CHUNK)
    writer.write("uns/class_names", np.array(target.class_names, dtype=object))


def running_indptr(lengths: Iterable[AnyArray], total: int = 0) -> Iterator[AnyArray]:
    """Yield an indptr in parts, from the lengths of the rows."""
    if not total:
        yield np.zeros(1, dtype=np.int64)
    for part in lengths:
        if len(part):
            ends = total + np.cumsum(part, dtype=np.int64)
            total = int(ends[-1])
            yield ends


def note_rounded(
    blocks: Sequence[RowBlock], names: Sequence[str] | None, terms: str | None, place: str
) -> None:
    """Say which columns hold whole numbers that lost digits."""
    found = dict(pair for block in blocks for pair in block.rounded)
    named: dict[int, object] = {j: j if names is None else names[j] for j in found}
    if terms is not None and found:
        with open(terms, encoding="utf-8", newline="\n") as lines:
            named |= {j: line[:-1] for j, line in enumerate(lines) if j in found}
    checks.note_rounded(((named[j], found[j]) for j in sorted(found)), place)


# --- var ------------------------------------------------------------------------------------------


def write_features(
    writer: Writer,
    d: int,
    names: Sequence[str] | None,
    terms: str | None,
    columns: dict[str, AnyArray],
) -> bool:
    """Write the feature names (of `names`, or of the lines of the file `terms`) and columns."""
    if names is None and terms is None and not columns:
        return False
    writer.group("var", "dataframe", "0.2.0", **{"_index": "_index", "column-order": list(columns)})
    if terms is not None:
        lines = term_lines(terms)
    elif names is not None:
        starts = range(0, d, STRING_CHUNK)
        lines = (np.asarray(names[a : a + STRING_CHUNK], dtype=object) for a in starts)
    else:
        lines = row_numbers(0, d)
    writer.stream("var/_index", d, str, lines)
    for name, values in columns.items():
        writer.write(f"var/{name}", values, COLUMN_CHUNK)
    return names is not None or terms is not None


def term_lines(path: str) -> Iterator[AnyArray]:
    """Yield the lines of a file, some at a time."""
    with open(path, encoding="utf-8", newline="\n") as lines:
        while some := [line[:-1] for line in islice(lines, STRING_CHUNK)]:
            yield np.array(some, dtype=object)
