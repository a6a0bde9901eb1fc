"""Tables of numbers and categories: the columns of CSV and Parquet that a pattern names.

A column of numbers is a feature. A column of categories becomes one indicator per category, in the
order of their texts. The categories, and the means that take the place of missing numbers, are
found in one reading of the table before it is staged.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from bigfs.storage.errors import SourceError
from bigfs.storage.fingerprint import fingerprint_of
from bigfs.storage.sources import checks
from bigfs.storage.sources import labels as label_rules
from bigfs.storage.sources.base import Label, shorten, shorten_names
from bigfs.storage.sources.tables.columnar import ArrowFile, ParquetFile
from bigfs.storage.sources.tables.columns import as_numbers, as_texts
from bigfs.storage.sources.tables.names import Block, require_lines
from bigfs.storage.sources.tables.records import Batch, MatrixRecords
from bigfs.storage.sources.tables.tables import CsvFile, Table

from bigfs.types import FloatArray

MAX_CATEGORIES = 1000  # of a column; more of them are names of samples or numbers
SURVEY_BYTES = 4 << 20  # of a piece in the reading before
FILLS = ("mean", "zero")


class Column(NamedTuple):
    """A column of the table."""

    name: str
    first: int  # feature of it
    categories: tuple[str, ...] | None = None  # None for numbers
    fill: float = 0.0  # in place of a missing number


@dataclass(eq=False, kw_only=True)
class NumericTable(MatrixRecords, Table):
    """A table whose columns are features."""

    # names or patterns with * and ?, of which * takes all without a role, and !id leaves id out
    columns: str | Sequence[str]
    categories: str | Sequence[str] = ()  # those of the columns that hold categories
    # "mean" or "zero" in place of a missing number; the mean is that of the samples that are not
    # for the test. A missing category then has no indicator. None refuses them
    missing: str | None = None
    target: str | None = None  # "class" or "real"; None lets the numbers of Parquet decide
    may_have_names = True  # where they are hashed
    layout: tuple[Column, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.columns, self.categories = _split(self.columns), _split(self.categories or ())
        if self.missing not in (None, *FILLS):
            raise SourceError(f"missing must be one of {', '.join(FILLS)}; got {self.missing!r}")
        if self.target not in (None, "class", "real") and not self.label_fields:
            raise SourceError(f"target must be class or real; got {self.target!r}")

    def fingerprint(self) -> str:
        settings = [self.columns, self.categories, self.missing, self.target, self.unlabeled]
        return fingerprint_of(
            self.format,
            self.identity(),
            *(str(value) for value in (*settings, self.label, self.split, self.name)),
            str(getattr(self, "delimiter", None)),
            *sorted(self.later_settings().items()),
        )

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
        return self._match("columns", [c for c in columns if c not in roles])

    def _match(self, option: str, columns: list[str]) -> list[str]:
        """Return the columns that the patterns of an option name, in the order of the table."""
        patterns = getattr(self, option)
        excludes = [p for p in patterns if p.startswith("!") and p not in columns]
        matched = set(columns) if patterns and len(excludes) == len(patterns) else set[str]()
        for pattern in sorted(patterns, key=excludes.__contains__):
            name, known = pattern, set(columns)
            if pattern in excludes:  # a role may be left out, which it is already
                name, known = pattern[1:], known | set(self.roles)
            some = {name} & known or {c for c in known if fnmatchcase(c, name)}
            if not some:
                raise SourceError(
                    f"{self.path}: {option}= names {pattern!r}, but the columns are "
                    f"{shorten_names(columns) or 'none'}"
                )
            matched = matched - some if pattern in excludes else matched | some
        if patterns and not matched:
            raise SourceError(f"{self.path}: {option}= leaves no column")
        return [c for c in columns if c in matched]

    # --- the reading before -----------------------------------------------------------------------

    def prepare(self, scratch: Path) -> Self:
        """Find the means, and the categories unless they are hashed."""
        ready = super().prepare(scratch)
        features = ready._features(ready.column_names())
        categories: dict[str, set[str]] = {
            name: set() for name in ready._match("categories", features)
        }
        numbers = [name for name in features if name not in categories]
        # in extended precision, so that the size of the batches does not show in a mean
        sums, counts = np.zeros(len(numbers), np.longdouble), np.zeros(len(numbers), np.int64)
        has_means = self.missing == "mean"
        counted = {} if self.hashing else categories
        for piece in ready.pieces(SURVEY_BYTES) if counted or has_means else []:
            for batch in ready.batches(piece):
                for name, known in counted.items():
                    known |= set(as_texts(batch.fields[name]).drop_null().unique().to_pylist())
                    if len(known) > MAX_CATEGORIES:
                        raise SourceError(
                            f"{self.path}: column {name!r} holds more than {MAX_CATEGORIES:,} "
                            f"categories: give hashing=N, or leave it out of categories= or of "
                            f"columns="
                        )
                is_train = np.array([split != "test" for split in batch.values(self.roles[1])])
                table = self._numbers(batch, numbers if has_means else [])
                for j, column in enumerate(table.values()):
                    values = column[is_train]
                    sums[j] += np.nansum(values, dtype=np.longdouble)
                    counts[j] += np.count_nonzero(~np.isnan(values))
        means = dict(
            zip(numbers, (sums / np.maximum(counts, 1)).astype(float).tolist(), strict=True)
        )
        layout: list[Column] = []
        names: list[str] = []
        for name in features:
            values = tuple(sorted(categories[name])) if name in categories else None
            layout.append(Column(name, len(names), values, means.get(name, 0.0)))
            names += [name] if values is None else [f"{name}={value}" for value in values]
        ready.layout = tuple(layout)
        if self.hashing:
            ready.has_names = True
        else:
            checks.require_shape(0, len(names), self.path)
            ready.feature_names, ready.n_features = names, len(names)
            ready.may_lack = tuple(f"{name}=" for name in categories)
        return ready

    # --- rows -------------------------------------------------------------------------------------

    def block(self, batch: Batch) -> Block:
        import pyarrow as pa
        from pyarrow import compute

        rows, columns, entries = [], [], []
        names: list[Any] = []  # of the columns, where they are hashed
        lacking: dict[str, int] = {}  # the first row without a value
        numbers = [column.name for column in self.layout if column.categories is None]
        table = self._numbers(batch, numbers)
        for column in self.layout:
            first = sum(map(len, names)) if self.hashing else column.first
            if column.categories is None:
                is_missing = np.isnan(table[column.name])
                values = np.where(is_missing, column.fill, table[column.name])
                row = np.flatnonzero(values)
                position, values = np.full(len(row), first), values[row]
                names.append(pa.array([column.name], pa.large_string()))
            else:
                texts = as_texts(batch.fields[column.name])
                known = texts.unique() if self.hashing else column.categories
                known = pa.array(known, pa.string()).drop_null()
                found = compute.index_in(texts, known)
                codes = np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
                is_missing = codes < 0
                row = np.flatnonzero(~is_missing)
                position, values = first + codes[row], np.ones(len(row))
                name = compute.binary_join_element_wise(column.name, known, "=")
                names.append(name.cast(pa.large_string()))
            if self.missing is None and is_missing.any():
                lacking[column.name] = int(np.argmax(is_missing))
            rows.append(row)
            columns.append(position)
            entries.append(values)
        if lacking:
            (name, first), *others = lacking.items()
            also = (
                f" ({shorten_names([other for other, _ in others])} further on)" if others else ""
            )
            raise SourceError(
                f"{batch.place(first)}: column {name!r} is missing{also}: give missing=mean or "
                f"missing=zero, or leave the column out, such as by columns=*,!{name}"
            )
        coordinates = (np.concatenate(rows), np.concatenate(columns))
        width = sum(map(len, names)) if self.hashing else self.n_features or 0
        X = sp.csr_array((np.concatenate(entries), coordinates), shape=(batch.length, width))
        X.indices = X.indices.astype(np.int32)
        X.sort_indices()
        checks.require_values(X, lambda row: str(batch.place(row)))
        if not self.hashing:
            return Block(X)
        return Block(X, require_lines(pa.concat_arrays(names), batch.place(0)))

    def _numbers(self, batch: Batch, names: Sequence[str]) -> dict[str, FloatArray]:
        """Return columns as numbers, NaN where they are missing, or tell all that hold none."""
        import pyarrow as pa

        numbers: dict[str, FloatArray] = {}
        faults: dict[str, str] = {}
        for name in names:
            values = batch.fields[name]
            try:
                column = as_numbers(values).to_numpy(zero_copy_only=False)
                numbers[name] = np.asarray(column, dtype=np.float64)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                is_nested = pa.types.is_nested(values.type)
                text = shorten(str(error).splitlines()[0])
                faults[name] = f"which holds {values.type}" if is_nested else text
        if not faults:
            return numbers
        if len(faults) > 1:
            leave = ",".join(f"!{name}" for name in faults)
            some = ", ".join(
                f"{name!r} ({why})" for name, why in itertools.islice(faults.items(), 20)
            )
            raise SourceError(
                f"{batch.place(0)} …: {len(faults)} columns do not hold numbers, {some}: name them "
                f"with categories=, or leave them out, such as by columns=*,{leave}"
            )
        [(name, why)] = faults.items()
        if pa.types.is_nested(batch.fields[name].type):
            raise SourceError(
                f"{batch.place(0)} …: column {name!r} holds {batch.fields[name].type}, and a "
                f"column must hold one number per sample: leave it out of columns=, or name "
                f"lists of columns and values with indices= and values="
            )
        raise SourceError(
            f"{batch.place(0)} …: column {name!r} does not hold numbers ({why}): name it with "
            f"categories=, or leave it out, such as by columns=*,!{name}"
        )

    def read_label(self, label: Any, place: object) -> Label:
        if self.target == "real" and isinstance(label, str):
            try:
                label = label_rules.parse_number(label) if label else None
            except ValueError:
                raise SourceError(
                    f"{place}: {self.label} must be a number, because target=real; got "
                    f"{shorten(label)}"
                ) from None
        return super().read_label(label, place)


def _split(value: str | Sequence[str]) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    return tuple(name.strip() for name in names if name.strip())


# --- formats --------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class CsvFeatures(NumericTable, CsvFile):
    """Numbers and categories in comma- or tab-separated values."""

    format = "csv-features"


@dataclass(eq=False, kw_only=True)
class ParquetFeatures(NumericTable, ParquetFile):
    """Numbers and categories in Parquet."""

    format = "parquet-features"


@dataclass(eq=False, kw_only=True)
class ArrowFeatures(NumericTable, ArrowFile):
    """Numbers and categories in Arrow IPC."""

    format = "arrow-features"
