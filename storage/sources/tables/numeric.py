"""Tables of numbers and categories: the columns of CSV and Parquet that a pattern names.

A column of numbers is a feature. A column of categories becomes one indicator per category, in the
order of their texts. The categories, and the means that take the place of missing numbers, are
found in one reading of the table before it is staged.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from bigfs.types import FloatArray, IntArray
from storage.errors import SourceError
from storage.fingerprint import fingerprint_of, identity_of
from storage.sources import checks
from storage.sources import labels as label_rules
from storage.sources.base import MatrixSource, Rows, shorten, shorten_names
from storage.sources.tables.tables import BATCH_BYTES, CsvFile, ParquetFiles, Table

if TYPE_CHECKING:  # it takes 70 MB, which only a worker that reads tables should pay
    import pyarrow as pa

MAX_CATEGORIES = 1000  # of a column; more of them are names of samples or numbers
NO_NUMBER = ("", "NA", "N/A", "NaN", "nan", "NULL", "null")  # a number that is missing in a text
SURVEY_BYTES = 4 << 20  # of a piece in the reading before
FILLS = ("mean", "zero")


class Column(NamedTuple):
    """A column of the table."""

    name: str
    first: int  # feature of it
    categories: tuple[str, ...] | None = None  # None for numbers
    fill: float = 0.0  # in place of a missing number


class NumericTable(Table, MatrixSource):
    """A table whose columns are features.

    Parameters
    ----------
    path : str
        The file, plain or compressed, or a folder of Parquet files.
    columns : str or sequence of str
        Names of the columns, or patterns with ``*`` and ``?``, divided by commas. ``*`` takes all
        but those of the label, the split and the name.
    categories : str or sequence of str or None, default=None
        Those of the columns that hold categories, named in the same way.
    missing : {"mean", "zero"} or None, default=None
        What takes the place of a missing number: the mean of the column over the samples that are
        not for the test, or 0. A missing category then has no indicator. None refuses them.
    label, split, name : str or None, default=None
        Names of the columns with the label, "train" or "test", and the sample's name. None takes
        "label", "split" and "id" where there is such a column.
    target : {"class", "real"} or None, default=None
        Kind of the labels. None takes the labels of CSV as classes, and lets the numbers of Parquet
        decide.
    unlabeled : str or None, default=None
        A label that also means "none".
    """

    memory_per_byte = 32
    layout: tuple[Column, ...] = ()

    def __init__(
        self,
        path: str,
        *,
        columns: str | Sequence[str],
        categories: str | Sequence[str] | None = None,
        missing: str | None = None,
        label: str | None = None,
        split: str | None = None,
        name: str | None = None,
        target: str | None = None,
        unlabeled: str | None = None,
    ) -> None:
        super().__init__(path, text="", label=label, split=split, name=name, unlabeled=unlabeled)
        self.columns, self.categories = _names(columns), _names(categories or ())
        self.missing, self.target = missing, target
        if missing not in (None, *FILLS):
            raise SourceError(f"missing must be one of {', '.join(FILLS)}; got {missing!r}")
        if target not in (None, "class", "real"):
            raise SourceError(f"target must be class or real; got {target!r}")

    def fingerprint(self) -> str:
        settings = [self.columns, self.categories, self.missing, self.target, self.unlabeled]
        return fingerprint_of(
            self.format,
            identity_of(self.files()),
            *(str(value) for value in (*settings, self.label, self.split, self.name)),
            str(getattr(self, "delimiter", None)),
        )

    def wanted_columns(self, columns: list[str]) -> list[str]:
        """Return the columns of the features, the label, the split and the name."""
        roles = dict.fromkeys((self.label, self.split, self.name))
        return [*self._features(columns), *(name for name in roles if name in columns)]

    def _features(self, columns: list[str]) -> list[str]:
        roles = {self.label, self.split, self.name}
        for name in sorted(roles.intersection(self.columns)):
            raise SourceError(
                f"{self.path}: columns= names {name!r}, which holds the label, the split or the "
                f"name of a sample: leave it out, or name another column for that"
            )
        return self._match(self.columns, [c for c in columns if c not in roles], "columns")

    def _match(self, patterns: Sequence[str], columns: list[str], option: str) -> list[str]:
        """Return the columns that the patterns of an option name, in the order of the table."""
        matched: set[str] = set()
        for pattern in patterns:
            some = {pattern} & set(columns) or {c for c in columns if fnmatchcase(c, pattern)}
            if not some:
                raise SourceError(
                    f"{self.path}: {option}= names {pattern!r}, but the columns are "
                    f"{shorten_names(columns) or 'none'}"
                )
            matched |= some
        return [c for c in columns if c in matched]

    # --- the reading before -----------------------------------------------------------------------

    def prepare(self, scratch: Path) -> Self:
        """Find the categories and the means."""
        ready = copy.copy(super().prepare(scratch))
        features = ready._features(ready.column_names())
        categories: dict[str, set[str]] = {
            name: set() for name in ready._match(ready.categories, features, "categories")
        }
        numbers = [name for name in features if name not in categories]
        sums, counts = np.zeros(len(numbers)), np.zeros(len(numbers))
        if categories or self.missing == "mean":
            for piece in ready.pieces(SURVEY_BYTES):
                for batch, first, where in ready.batches(piece):
                    for name, known in categories.items():
                        texts = ready._texts(batch.column(name)).drop_null()
                        known |= set(texts.unique().to_pylist())
                        ready._require_few(name, known)
                    if self.missing == "mean":
                        train = ready._splits(batch, first, where) != "test"
                        for j, name in enumerate(numbers):
                            values = ready._numbers(batch.column(name), name, where)[train]
                            is_there = ~np.isnan(values)
                            sums[j] += values[is_there].sum()
                            counts[j] += is_there.sum()
        means = dict(zip(numbers, sums / np.maximum(counts, 1), strict=True))
        layout: list[Column] = []
        names: list[str] = []
        for name in features:
            if name in means:
                layout.append(Column(name, len(names), None, means[name]))
                names.append(name)
            else:
                values = tuple(sorted(categories[name]))
                layout.append(Column(name, len(names), values))
                names += [f"{name}={value}" for value in values]
        checks.require_shape(0, len(names), self.path)
        ready.layout, ready.feature_names, ready.n_features = tuple(layout), names, len(names)
        return ready

    def _require_few(self, name: str, known: set[str]) -> None:
        if len(known) > MAX_CATEGORIES:
            raise SourceError(
                f"{self.path}: column {name!r} holds more than {MAX_CATEGORIES:,} categories: "
                f"leave it out of categories= or of columns="
            )

    # --- rows -------------------------------------------------------------------------------------

    def read(self, piece: Any) -> Rows:
        blocks = [sp.csr_array((0, self.n_features or 0))]
        row_labels: list[Any] = []
        splits, names = [np.empty(0, dtype=str)], []
        for batch, first, where in self.batches(piece):
            blocks.append(self._block(batch, first, where))
            row_labels += self._labels(batch, first, where)
            splits.append(self._splits(batch, first, where))
            values = self._values(batch, self.name)
            names += [self.read_name(value) for value in values]
        split = np.concatenate(splits)
        return Rows(
            sp.csr_array(sp.vstack(blocks)),
            label_rules.pack_labels(row_labels, self.path) if row_labels else None,
            split if len(split) and np.all(split != "") else None,
            np.array(names) if any(names) else None,
        )

    def _block(self, batch: pa.RecordBatch, first: int, where: str) -> sp.csr_array:
        """Return the features of a batch."""
        rows: list[IntArray] = []
        columns: list[IntArray] = []
        entries: list[FloatArray] = []
        for column in self.layout:
            if column.categories is None:
                values = self._numbers(batch.column(column.name), column.name, where)
                is_missing = np.isnan(values)
                values = np.where(is_missing, column.fill, values)
                row = np.flatnonzero(values)
                position = np.full(len(row), column.first)
                values = values[row]
            else:
                codes = self._codes(batch.column(column.name), column.categories)
                is_missing = codes < 0
                row = np.flatnonzero(~is_missing)
                position, values = column.first + codes[row], np.ones(len(row))
            if self.missing is None and is_missing.any():
                at = first + int(np.flatnonzero(is_missing)[0])
                raise SourceError(
                    f"{where} {at} (from 0): column {column.name!r} is missing: give missing=mean "
                    f"or missing=zero, or leave the column out of columns="
                )
            rows.append(row)
            columns.append(position)
            entries.append(values)
        coordinates = (np.concatenate(rows), np.concatenate(columns))
        X = sp.csr_array(
            (np.concatenate(entries), coordinates), shape=(batch.num_rows, self.n_features or 0)
        )
        X.indices = X.indices.astype(np.int32)
        X.sort_indices()
        return checks.require_values(X, lambda row: f"{where} {first + row} (from 0)")

    def _numbers(self, values: Any, name: str, where: str) -> FloatArray:
        """Return a column as numbers, NaN where they are missing."""
        import pyarrow as pa
        from pyarrow import compute

        with contextlib.suppress(AttributeError):  # only columns with a dictionary have it
            values = values.dictionary_decode()
        if _is_text(values.type):
            values = compute.utf8_trim_whitespace(values)
            values = compute.if_else(
                compute.is_in(values, pa.array(NO_NUMBER, values.type)), None, values
            )
        try:
            numbers = compute.cast(values, pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            text = str(error).splitlines()[0]
            if pa.types.is_nested(values.type):
                raise SourceError(
                    f"{where} … : column {name!r} holds {values.type}, and a column must hold one "
                    f"number per sample: leave it out of columns=, or write each place of it as a "
                    f"column of its own"
                ) from error
            raise SourceError(
                f"{where} … : column {name!r} does not hold numbers ({shorten(text)}): name it "
                f"with categories=, or leave it out of columns="
            ) from error
        return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)

    def _texts(self, values: Any) -> Any:
        """Return a column as texts, null where they are missing."""
        import pyarrow as pa
        from pyarrow import compute

        with contextlib.suppress(AttributeError):
            values = values.dictionary_decode()
        texts = compute.cast(values, pa.string())
        return compute.if_else(compute.equal(texts, ""), None, texts)

    def _codes(self, values: Any, categories: tuple[str, ...]) -> IntArray:
        """Return the number of each category, −1 where it is missing."""
        import pyarrow as pa
        from pyarrow import compute

        codes = compute.index_in(self._texts(values), pa.array(categories, pa.string()))
        return np.asarray(codes.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)

    def _labels(self, batch: pa.RecordBatch, first: int, where: str) -> list[Any]:
        if self.label not in batch.schema.names:
            return []
        labels = []
        for i, value in enumerate(self._values(batch, self.label), first):
            place = f"{where} {i} (from 0)"
            if self.target == "real" and isinstance(value, str):
                try:
                    value = label_rules.parse_number(value) if value else None
                except ValueError:
                    raise SourceError(
                        f"{place}: {self.label} must be a number, because target=real; "
                        f"got {shorten(value)}"
                    ) from None
            labels.append(self.read_label(value, place))
        return labels

    def _splits(self, batch: pa.RecordBatch, first: int, where: str) -> Any:
        values = self._values(batch, self.split)
        return np.array(
            [
                self.read_split(value, f"{where} {i} (from 0)") or ""
                for i, value in enumerate(values, first)
            ],
            dtype=str,
        )

    def _values(self, batch: pa.RecordBatch, column: str) -> list[Any]:
        """Return the values of a column, None where there is no such column."""
        if column not in batch.schema.names:
            return [None] * batch.num_rows
        values: list[Any] = batch.column(column).to_pylist()
        return values


class CsvFeatures(NumericTable, CsvFile):
    """Numbers and categories in comma- or tab-separated values.

    It takes the options of `NumericTable` and one more.

    Parameters
    ----------
    delimiter : str or None, default=None
        One character. None goes by the suffix (.csv, .tsv), else takes a comma.
    """

    format = "csv-features"

    def __init__(
        self,
        path: str,
        *,
        columns: str | Sequence[str],
        categories: str | Sequence[str] | None = None,
        missing: str | None = None,
        label: str | None = None,
        split: str | None = None,
        name: str | None = None,
        target: str | None = None,
        unlabeled: str | None = None,
        delimiter: str | None = None,
    ) -> None:
        super().__init__(
            path,
            columns=columns,
            categories=categories,
            missing=missing,
            label=label,
            split=split,
            name=name,
            target=target,
            unlabeled=unlabeled,
        )
        self.set_delimiter(delimiter)


class ParquetFeatures(NumericTable, ParquetFiles):
    """Numbers and categories in Parquet. It takes the options of `NumericTable`."""

    format = "parquet-features"

    @property
    def batch_rows(self) -> int:  # type: ignore[override]
        """Rows that are read at a time: few if they are wide."""
        width = len(self.layout) or len(self._features(self.column_names()))
        return max(1, min(4096, BATCH_BYTES // (8 * max(width, 1))))


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    return tuple(name.strip() for name in names if name.strip())


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
