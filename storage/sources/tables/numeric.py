"""Tables of numbers and categories: the columns of CSV and Parquet that a pattern names.

A column of numbers is a feature. A column of categories becomes one indicator per category, called
``column=category``. Where there are some, all columns come in the order of their names, as those of
maps do. Means that take the place of missing numbers are found in a reading of the table before it
is staged, and hold for rows that are added later.
"""

from __future__ import annotations

import copy
import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import scipy.sparse as sp

from bigfs.storage.errors import SourceError
from bigfs.storage.lazy import compute, pa
from bigfs.storage.sources import checks, samples
from bigfs.storage.sources.base import shorten, shorten_names
from bigfs.storage.sources.tables import kinds
from bigfs.storage.sources.tables.columns import as_texts
from bigfs.storage.sources.tables.names import Block, require_lines
from bigfs.storage.sources.tables.records import Batch, MatrixRecords
from bigfs.storage.sources.tables.tables import Table
from bigfs.types import BoolArray, FloatArray

log = logging.getLogger("bigfs.storage")

SURVEY_BYTES = 4 << 20  # of a piece in the reading before
FILLS = ("mean", "zero")
INDEX_NAMES = ("", "__index_level_0__")  # of pandas' index in CSV and in Parquet
# names that archives give to samples, and barcodes of cells
OF_SAMPLES = re.compile(r"(GSM|SRR|ERR|DRR|SAMN|SAMEA)\d{4,}|TCGA-\w\w-\w{4}|[ACGT]{12,}(-\d+)?$")
# names of a column that names features, where these are the rows
OF_FEATURES = re.compile(
    r"(gene|probe|feature|transcript|protein|peptide|metabolite|otu|taxon|snp|cpg|term|word)s?"
    r"([ _.]?(id|name|symbol|set)s?)?|id_ref|symbol|ensembl.*",
    re.IGNORECASE,
)
TURN = (
    "and a store has a row for each sample: give transpose=true if the rows of the table are "
    "features"
)


@dataclass(eq=False, kw_only=True)
class NumberTable(Table):
    """A table with columns of numbers."""

    # names or patterns with * and ?, of which * takes all without a role, and !id leaves id out.
    # "auto" takes those with numbers or few values, which decides on categories and missing= too
    columns: str | Sequence[str] = kinds.AUTO
    # "mean" or "zero" in place of a missing number; the mean is over the samples that are not
    # for the test. A missing category then has no indicator. None refuses them
    missing: str | None = None
    means: dict[str, float] | None = field(default=None, init=False, repr=False)  # of features
    patterns: ClassVar[tuple[str, ...]] = ("columns",)  # the options that name columns
    for_texts: ClassVar[str] = "names"  # the option that names columns of texts

    def __post_init__(self) -> None:
        super().__post_init__()
        self.columns = samples.split_names(self.columns)
        if self.missing not in (None, *FILLS):
            raise SourceError(f"missing must be one of {', '.join(FILLS)}; got {self.missing!r}")
        if self.missing == "mean" or (self.is_auto and self.missing is None):
            self.guessed = (*self.guessed, "means")

    @property
    def is_auto(self) -> bool:
        """Whether the values decide which columns are features."""
        return kinds.AUTO in self.columns

    def wanted_fields(self, columns: list[str]) -> list[str]:
        """Return the columns of the features, and those with a role."""
        roles = [name for name in dict.fromkeys(self.roles) if name in columns]
        return [*self._features(columns), *roles]

    def _features(self, columns: list[str]) -> list[str]:
        roles = set(self.roles)
        for name in sorted(roles.intersection(self.columns)):
            raise SourceError(
                f"{self.path}: columns= names {name!r}, which holds the label, the split, the "
                f"name or another role of a sample: leave it out, or name another column for that"
            )
        others = [c for c in columns if c not in roles]
        matched = {name for option in self.patterns for name in self._match(option, others)}
        return [c for c in others if c in matched and (c not in INDEX_NAMES or c in self.columns)]

    def _match(self, option: str, columns: list[str]) -> list[str]:
        """Return the columns that the patterns of an option name, in the order of the table."""
        patterns = ["*" if p == kinds.AUTO else p for p in getattr(self, option)]
        excludes = [p for p in patterns if p.startswith("!") and p not in columns]
        matched = set(columns) if patterns and len(excludes) == len(patterns) else set[str]()
        for pattern in sorted(patterns, key=excludes.__contains__):
            name, known = pattern, set(columns)
            if pattern in excludes:  # a role may be left out, which it is already
                name, known = pattern[1:], known | set(self.roles)
            some = {name} & known or set(filter(re.compile(translate(name)).match, known))
            if not some:
                raise SourceError(
                    f"{self.path}: {option}= names {pattern!r}, but the columns are "
                    f"{shorten_names(columns) or 'none'}"
                )
            matched = matched - some if pattern in excludes else matched | some
        if patterns and not matched:
            raise SourceError(f"{self.path}: {option}= leaves no column")
        return [c for c in columns if c in matched]

    def _without(self, names: Sequence[str]) -> str:
        """Return what to type to leave columns out: the option that was given, and the change."""
        kept = [pattern for pattern in self.columns if pattern not in names]
        return "columns=" + ",".join(
            [*kept, *(f"!{name}" for name in names if name not in self.columns)]
        )

    def _every(self, size: int = SURVEY_BYTES) -> Iterator[Batch]:
        """Yield all records, read in pieces."""
        return itertools.chain.from_iterable(map(self.batches, self.pieces(size)))

    def _numbers(self, batch: Batch, names: Sequence[str]) -> tuple[FloatArray, dict[str, str]]:
        """Return columns as numbers, NaN where they are missing, and why some hold none.

        Columns of one type are converted together, as a table may have 100,000 of them.
        """
        table, faults = np.full((len(names), batch.length), np.nan), dict[str, str]()
        for places, values in batch.columns_of(names):
            numbers = self._converted(values)
            if not isinstance(numbers, str):
                table[places] = numbers.reshape(len(places), -1)
                continue
            for j in places:
                numbers = self._converted(batch.fields[names[j]])
                if isinstance(numbers, str):
                    faults[names[j]] = numbers
                else:
                    table[j] = numbers
        return table.T, faults

    def _converted(self, values: Any) -> FloatArray | str:
        """Return values as numbers, or why some of them are not."""
        try:
            return samples.to_numpy(self.as_numbers(values), np.nan).astype(float, copy=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if pa.types.is_nested(values.type):
                return f"which holds {values.type}"
            return shorten(str(error).splitlines()[0])

    def _refuse_columns(self, batch: Batch, faults: Mapping[str, str]) -> NoReturn:
        """Tell which columns hold no numbers, and why."""
        if len(faults) > 1:
            some = ", ".join(
                f"{name!r} ({why})" for name, why in itertools.islice(faults.items(), 20)
            )
            raise SourceError(
                f"{batch.place(0)} …: {len(faults)} columns do not hold numbers, {some}: name them "
                f"with {self.for_texts}=, or leave them out by {self._without([*faults])}"
            )
        [name] = faults
        if pa.types.is_nested(batch.fields[name].type):
            raise SourceError(
                f"{batch.place(0)} …: column {name!r} holds {batch.fields[name].type}, and a "
                f"column must hold one number per sample: read it alone by features={name}, or "
                f"leave it out by {self._without([name])}"
            )
        values = batch.fields[name]
        each = ((row, self._converted(values[row : row + 1])) for row in range(batch.length))
        row, why = next((row, why) for row, why in each if isinstance(why, str))
        raise SourceError(
            f"{batch.place(row)}: column {name!r} does not hold numbers ({why}): name it with "
            f"{self.for_texts}=, or leave it out by {self._without([name])}"
        )

    def _refuse_missing(self, batch: Batch, lacking: Mapping[str, int]) -> NoReturn:
        """Tell which columns lack a number or a category, and in which row of the batch first."""
        (name, first), *others = lacking.items()
        also = f" ({shorten_names([other for other, _ in others])} further on)" if others else ""
        raise SourceError(
            f"{batch.place(first)}: column {name!r} is missing{also}: give missing=mean or "
            f"missing=zero, or leave the column out by {self._without([name])}"
        )


@dataclass(eq=False, kw_only=True)
class NumericTable(NumberTable, MatrixRecords):
    """A table whose columns are features."""

    categories: str | Sequence[str] = ()  # the columns that hold categories
    may_have_names = True  # where there are categories
    numbers: tuple[str, ...] = field(default=(), init=False, repr=False)  # columns, in order
    categorical: tuple[str, ...] = field(default=(), init=False, repr=False)  # of categories
    # the columns that "auto" leaves out, with the reason
    unused: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    patterns, for_texts = ("columns", "categories"), "categories"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.categories = samples.split_names(self.categories or ())
        if self.is_auto:
            others = [name for name in ("missing", "target") if getattr(self, name) is None]
            self.guessed = ("columns", "categories", "unused", *others, *self.guessed)

    def only(self, features: Sequence[str], fills: Mapping[str, float | None]) -> Self:
        """Return the table with the columns of some features, which are called as in a store.

        `fills` take the place of missing numbers, by columns. None refuses them.
        """
        there, columns, categories = set(self.column_names()), list[str](), list[str]()
        lacking = []
        for name in features:
            ends = [i for i, letter in enumerate(name) if letter == "="]
            column = next((name[:i] for i in reversed(ends) if name[:i] in there), None)
            if name in there:
                columns.append(name)
            elif column is None:
                lacking.append(name)
            else:
                categories.append(column)
        if lacking:
            raise SourceError(
                f"{self.path} lacks {len(lacking):,} of the {len(features):,} columns of the "
                f"model, such as {shorten_names(lacking, 3)}: give a source that has them"
            )
        source = copy.copy(self)
        source.categories = tuple(dict.fromkeys(categories))
        source.columns = (*columns, *source.categories)
        source.means = {name: fill for name, fill in fills.items() if fill is not None}
        source.missing = "mean" if len(source.means) == len(fills) else None
        return source

    # --- the reading before -----------------------------------------------------------------------

    def prepare(self, scratch: Path) -> Self:
        """Find out which columns there are, and the means where they are asked for."""
        ready = super().prepare(scratch)
        columns = ready.column_names()
        if self.is_auto:
            ready._decide_kinds(columns)
        features = ready._features(columns)
        for name in set(INDEX_NAMES).intersection(columns).difference(features, self.roles):
            turn = "" if self.label in columns else f", {TURN}"
            log.warning(
                *("%s: the column %r is left out, as it is the index of pandas%s", self.path, name),
                turn,
            )
        ready.categorical = tuple(ready._match("categories", features))
        named = set(ready.categorical)
        ready.numbers = tuple(name for name in features if name not in named)
        if ready.missing == "mean" and ready.means is None:
            ready.means = ready._survey(ready.numbers).means
        ready._note_columns(columns)
        if self.hashing or named:
            ready.has_names, ready.fixed_names = True, ready.numbers
            ready.may_lack = tuple(f"{name}=" for name in ready.categorical)
        else:
            checks.require_shape(0, len(features), self.path)
            ready.feature_names, ready.n_features = features, len(features)
        return ready

    def look(self) -> kinds.Kinds:
        """Return what the columns seem to be, by the first records. Many are numbers, unread."""
        names = self._features(self.column_names())
        if len(names) > kinds.LOOKED:
            return kinds.Kinds(names, [], {}, [], [], {})
        batch = self.head()
        found = self._survey(names if batch else [], [] if batch is None else [batch])
        if batch is not None and (of := kinds.triplets_of(batch, found, self.name or "")):
            raise SourceError(
                f"{self.path} seems to hold one value per record, of the sample {of[0]!r} and the "
                f"feature {of[1]!r}: give triplets={','.join(of)}, or say that a record is a "
                f"sample, by columns="
            )
        return found

    def _decide_kinds(self, columns: list[str]) -> None:
        """Decide which columns are features, and which of them are categories."""
        named = self._match("categories", self._features(columns)) if self.categories else []
        found = self._survey([name for name in self._features(columns) if name not in named])
        if not (found.numbers or found.categories or named):
            raise SourceError(
                f"{self.path} has no column of numbers or categories "
                f"({kinds.left_out(found.unused)}): name columns=, categories= or text="
            )
        categories = {*named, *found.categories}
        features = categories.union(found.numbers)
        self.columns = tuple(name for name in columns if name in features)
        self.categories = tuple(name for name in columns if name in categories)
        self.unused, self.missing = found.unused, self.missing or "mean"
        means = {name: found.means[name] for name in found.numbers}
        self.means = means if self.missing == "mean" else None

    def _survey(self, names: Sequence[str], batches: Iterable[Batch] | None = None) -> kinds.Kinds:
        """Return what columns are, by some batches or by all."""

        again = self._every if batches is None else lambda: batches
        return kinds.kinds_of(again, list(names), self._numbers, self._is_train)

    def _note_columns(self, columns: Sequence[str]) -> None:
        """Say that rows seem to be features or entries, and which of the first numbers count."""
        named = list(filter(OF_SAMPLES.match, self.numbers))
        others = set(columns).difference(self.numbers, self.categorical)
        names = sorted(filter(OF_FEATURES.fullmatch, others))
        if 2 * len(named) > len(self.numbers):
            message = "%s: the columns are named as samples are, such as %r, %s"
            log.warning(message, self.path, named[0], TURN)
        elif names and self.label not in columns:
            message = "%s: the column %r seems to name features, %s"
            log.warning(message, self.path, names[0], TURN)
        batch = next(self._every(1), None)
        if batch is None or batch.length < kinds.LEAST_COUNTED:
            return
        if self.label not in columns and not self.label_fields and len(columns) <= kinds.LOOKED:
            names = kinds.label_columns(batch, (*self.categorical, *self.numbers))
            self.label_columns = names or None
        name = self.name or ""
        if name in batch.fields and 2 * len({*batch.values(name)}) <= batch.length:
            log.warning(
                "%s: the names of samples in %r come again: give triplets=SAMPLE,FEATURE,VALUE if "
                "a row is one entry of a sample",
                *(self.path, name),
            )
        table, _ = self._numbers(batch, self.numbers)
        counts = np.arange(batch.length)[:, None]
        for first in (0, 1):
            for j in np.flatnonzero((table == counts + first).all(axis=0)).tolist():
                log.warning(
                    "%s: the column %r counts the samples: give name=%s, or leave it out by %s",
                    *(self.path, self.numbers[j], self.numbers[j]),
                    self._without([self.numbers[j]]),
                )

    def _is_train(self, batch: Batch) -> BoolArray:
        """Return which records of a batch are not for the test."""
        splits = map(self.split_words.get, batch.values(self.split or ""))
        return np.array([split != "test" for split in splits], dtype=bool)

    # --- rows -------------------------------------------------------------------------------------

    def block(self, batch: Batch) -> Block:
        table, faults = self._numbers(batch, self.numbers)
        if faults:
            self._refuse_columns(batch, faults)
        lacking = first_gaps(table, self.numbers) if self.missing is None else {}
        if self.missing is not None:
            means = self.means or {}
            fills = np.array([means.get(name, 0.0) for name in self.numbers])
            table = np.where(np.isnan(table), fills, table)
        row, column = np.nonzero(table)
        rows, columns, entries = [row], [column], [table[row, column]]
        names = [samples.from_texts(self.numbers)]
        width = len(self.numbers)
        for name in self.categorical:
            encoded = as_texts(batch.fields[name]).dictionary_encode()
            codes = samples.to_numpy(encoded.indices, -1)
            row = np.flatnonzero(codes >= 0)
            if self.missing is None and len(row) < batch.length:
                lacking[name] = int(np.argmin(codes >= 0))
            rows.append(row)
            columns.append(codes[row].astype(np.int64) + width)
            entries.append(np.ones(len(row)))
            lines = compute.binary_join_element_wise(name, encoded.dictionary, "=")
            names.append(lines.cast(pa.large_string()))
            width += len(lines)
        if lacking:
            self._refuse_missing(batch, lacking)
        coordinates = (np.concatenate(rows), np.concatenate(columns))
        X = sp.csr_array((np.concatenate(entries), coordinates), shape=(batch.length, width))
        X.indices = X.indices.astype(np.int32)
        X.sort_indices()
        checks.require_values(X, lambda row: str(batch.place(row)))
        if not self.has_names:
            return Block(X)
        return Block(X, require_lines(pa.concat_arrays(names), batch.place(0)))


def first_gaps(table: FloatArray, names: Sequence[str]) -> dict[str, int]:
    """Return the first row without a number, of the columns that lack some."""
    gaps = np.isnan(table)
    return {names[j]: int(np.argmax(gaps[:, j])) for j in np.flatnonzero(gaps.any(axis=0)).tolist()}
