"""A table as it comes: what each of its columns is, by its type and then by its values.

Numbers and truth values are features, texts of few values are categories. A column that tells
nothing of a new sample is left out, and is named with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bigfs.storage.lazy import compute, types
from bigfs.storage.sources.base import shorten
from bigfs.storage.sources.samples import plain_number
from bigfs.storage.sources.tables.columns import as_texts, is_text, is_vector
from bigfs.storage.sources.tables.records import Batch
from bigfs.types import BoolArray, FloatArray

AUTO = "auto"  # the option columns= of a table as it comes
FEW, MOST = 20, 1000  # values of a column of categories: in any table, and in the largest
SAMPLES_PER_VALUE = 10  # at the least, of a column with more than FEW categories
WORDS = 3  # in the mean, of a text that is read rather than compared
MOST_NAMED = 20  # columns that are left out, which are named
MOST_LABELS = 5  # columns that are named as possible labels
LOOKED = 200  # columns of a table whose first records decide whether it is a text
TEXT = "text, which text={} takes in place of the table"  # why a column is left out
VECTORS = "vectors, which features={} takes in place of the table"
LEAST_COUNTED = 4  # samples, of which a column is said to count them
DATE = r"^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ]\d{1,2}:\d{2}.*)?$"
ID = re.compile(r"(.*[_\W])?(id|uid|uuid|guid|index|key)|.*[a-z]ID", re.IGNORECASE)

# converts columns of a batch to numbers, and returns the names of those that hold none, with why
Convert = Callable[[Batch, list[str]], tuple[FloatArray, Mapping[str, str]]]
Train = Callable[[Batch], BoolArray]  # the records of a batch that are not for the test


class Kinds(NamedTuple):
    """The kinds of the columns of a table."""

    numbers: list[str]
    categories: list[str]
    unused: dict[str, str]  # the columns that are left out, with the reason
    texts: list[str]  # the columns among them that hold texts to read
    vectors: list[str]  # and those that hold the numbers of a row
    # of the columns of numbers, used or not, over the samples that are not for the test
    means: dict[str, float]


def kinds_of(
    batches: Callable[[], Iterable[Batch]], names: list[str], convert: Convert, train: Train
) -> Kinds:
    """Return what columns are, in one reading of the batches.

    They are read again for the columns of which the first batch has numbers, and a later one has
    none.
    """
    columns: dict[str, Values] = {}
    means, unused = _numbers_of(batches(), names, convert, train, columns)
    numbers = [name for name in means if name not in unused]
    late = {name: Values() for name in names if name not in means and name not in columns}
    for batch in batches() if late else ():
        for name, values in late.items():
            values.add(batch.fields[name])
    columns |= late
    reasons = {name: columns[name].reason(name) for name in names if name in columns}
    unused |= {name: reason for name, reason in reasons.items() if reason}
    texts = [name for name, reason in reasons.items() if reason and columns[name].is_prose()]
    categories = [name for name, reason in reasons.items() if not reason]
    unused = {name: unused[name] for name in names if name in unused}
    vectors = [name for name in unused if unused[name] == VECTORS.format(name)]
    return Kinds(numbers, categories, unused, texts, vectors, means)


def _numbers_of(
    batches: Iterable[Batch],
    names: list[str],
    convert: Convert,
    train: Train,
    columns: dict[str, Values],
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the means of the columns of numbers, and the columns that are left out, with why.

    `columns` get the values of those that have no numbers from the first batch on.
    """
    names, d, seen = list(names), len(names), 0
    # in extended precision, so that the size of the batches does not show in a mean
    sums, trained = np.zeros(d, np.longdouble), np.zeros(d, np.int64)
    is_number, counts, last = np.ones(d, bool), np.zeros(d, np.int64), np.full(d, np.nan)
    steps, rises = np.ones(d, bool), np.ones(d, bool)  # from each sample to the next
    for batch in batches:
        left = np.flatnonzero(is_number)
        table, others = convert(batch, [names[j] for j in left])
        if others:
            kept = np.array([names[j] not in others for j in left])
            is_number[left] = kept
            table, left = table[:, kept], left[kept]
            columns |= {} if seen else {name: Values() for name in others}
        for name, values in columns.items():
            values.add(batch.fields[name])
        before = np.vstack([last[left], table])[0 if seen else 1 :]
        change = np.diff(before, axis=0)
        steps[left] &= (change == 1).all(axis=0)
        rises[left] &= ((change > 0) & (before[1:] == np.rint(before[1:]))).all(axis=0)
        counts[left] += np.count_nonzero(~np.isnan(table), axis=0)
        is_train = train(batch)
        sums[left] += np.nansum(table[is_train], axis=0, dtype=np.longdouble)
        trained[left] += np.count_nonzero(~np.isnan(table[is_train]), axis=0)
        if batch.length:
            last[left], seen = table[-1], seen + batch.length
    unused = {}
    for j in np.flatnonzero(is_number & ((counts == 0) | (rises & (seen >= LEAST_COUNTED)))):
        if not counts[j]:
            unused[names[j]] = "empty"
        elif steps[j]:
            unused[names[j]] = "counts the samples"
        elif ID.fullmatch(names[j]):
            unused[names[j]] = "all different"
    means = (sums / np.maximum(trained, 1)).astype(float)
    return {names[j]: float(means[j]) for j in np.flatnonzero(is_number)}, unused


class Values:
    """The kind of the values of a column without numbers."""

    def __init__(self) -> None:
        self.kind: str | None = None  # of values that are neither numbers nor texts
        self.different: set[str] = set()  # up to one more than the most
        self.seen = self.words = 0
        self.is_date = True

    def add(self, values: Any) -> None:
        """Take the next values of the column."""
        if not is_text(values):
            if is_vector(values.type):
                self.kind = VECTORS
            elif not types.is_null(values.type):
                is_time = types.is_temporal(values.type)
                self.kind = "dates" if is_time else f"holds {values.type}"
            return
        texts = as_texts(values).drop_null()
        self.seen += len(texts)
        self.words += compute.sum(compute.count_substring_regex(texts, r"\S+")).as_py() or 0
        if self.is_date:
            self.is_date = bool(compute.all(compute.match_substring_regex(texts, DATE)).as_py())
        if len(self.different) <= MOST:
            self.different.update(texts.unique().to_pylist())

    def reason(self, name: str) -> str:
        """Return why the column is left out, empty if it holds categories."""
        if self.kind is not None:
            return self.kind.format(name) if self.kind == VECTORS else self.kind
        if not self.seen:
            return "empty"
        if self.is_date:
            return "dates"
        k = len(self.different)
        if k <= max(min(FEW, self.seen // 2), min(MOST, self.seen // SAMPLES_PER_VALUE)):
            return ""
        if self.is_prose():
            return TEXT.format(name)
        if k > MOST:  # of which no more are kept
            return f"more than {MOST:,} values, which categories={name} takes"
        return "all different" if k == self.seen else f"{k} values, which categories={name} takes"

    def is_prose(self) -> bool:
        """Return whether the values are texts to read."""
        return self.kind is None and self.words >= WORDS * self.seen > 0


def triplets_of(batch: Batch, found: Kinds, name: str) -> tuple[str, str, str] | None:
    """Return the columns of samples, features and values, if records seem to be single values.

    They have a name of a sample that comes again, a feature, and a number.
    """
    others = [*found.categories, *found.unused]
    ids = [c for c in (name, *found.numbers, *others) if c in batch.fields and ID.fullmatch(c)]
    values = [c for c in found.numbers if c not in ids[:1]]
    features = [c for c in others if c not in ids[:1]]
    if not ids or len(values) != 1 or len(features) != 1:
        return None
    different = set(batch.values(ids[0]))
    return (ids[0], features[0], values[0]) if len(different) < batch.length else None


def label_columns(batch: Batch, names: Iterable[str]) -> list[str]:
    """Return the columns of few values among some records, with their number: labels, maybe."""
    found = []
    for name in names:
        values = batch.array(name).drop_null().unique()
        if 2 <= len(values) <= min(FEW, batch.length // 2):
            texts = map(str, values.to_pylist())
            numbers = [number for text in texts if (number := plain_number(text)) is not None]
            if all(number == int(number) for number in numbers):
                found.append(f"{shorten(name, 30)} ({len(values)} values)")
    return found[:MOST_LABELS]


def left_out(unused: Mapping[str, str]) -> str:
    """Return in one line which columns of a table are left out, and why. Empty if none is."""
    named = [f"{shorten(name, 30)} ({why})" for name, why in islice(unused.items(), MOST_NAMED)]
    more = [f"{len(unused) - len(named):,} more"] if len(unused) > len(named) else []
    return f"left out {', '.join(named + more)}" if named else ""
