"""Rows as entries, a column and a value each: a map per record, or two lists.

A batch becomes three arrays, whose lists and maps are taken from Arrow by their children and from
JSON by C loops. Then both are checked and assembled by the same code.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from bigfs.storage.errors import SourceError
from bigfs.storage.lazy import compute, pa, types
from bigfs.storage.sources import checks
from bigfs.storage.sources.base import shorten, shorten_names
from bigfs.storage.sources.samples import from_texts, without_surrogates
from bigfs.storage.sources.tables.columns import decode, is_list
from bigfs.storage.sources.tables.names import Block, require_lines
from bigfs.storage.sources.tables.records import Batch, MatrixRecords
from bigfs.types import AnyArray, FloatArray, IntArray

SURVEY_BYTES = 4 << 20  # of a piece in which the first row is looked for
Place = Callable[[int], object]  # of the record with an entry


class Entries(NamedTuple):
    """The entries of some records, one after the other."""

    lengths: IntArray  # entries per record
    keys: Any  # numbers of columns (integers of any size), or an Arrow array of texts
    values: FloatArray


@dataclass(eq=False, kw_only=True)
class EntryRecords(MatrixRecords):
    """Records with the entries of a row, columns from 0."""

    n_features: int | None = None  # d, by default one more than the largest column
    # whether the columns of a row are names in place of numbers. None lets the first row decide
    # that has some: names, unless all are numbers
    by_name: bool | None = None
    repeats: ClassVar[bool]  # whether a row may name a column again, to be added
    may_have_names = True

    @abstractmethod
    def entries(self, batch: Batch) -> Entries:
        """Return the entries of a batch. The keys are not checked yet."""

    def wanted_fields(self, fields: list[str]) -> list[str]:
        wanted = {option: getattr(self, option) for option in self.required}
        for option, name in wanted.items():
            if name and name not in fields:
                raise SourceError(
                    f"{self.path} has no column {name!r}, only {shorten_names(fields)}: name one "
                    f"of them with {option}="
                )
        names = dict.fromkeys([*wanted.values(), *self.roles])
        return [name for name in names if name in fields]

    def like_store(self, by_name: bool, hashing: int | None) -> Self:
        source = super().like_store(by_name, hashing)
        if source.by_name is None and by_name:
            source.by_name = True
        return source

    def prepare(self, scratch: Path) -> Self:
        """Find out whether the columns have names."""
        ready = super().prepare(scratch)
        ready.has_names = ready._find_names() if self.by_name is None else self.by_name
        if ready.has_names and self.n_features is not None:
            raise SourceError(
                f"{self.path}: n_features is for numbers of columns, and these have names: leave "
                f"it out"
            )
        return ready

    def _find_names(self) -> bool:
        for piece in self.pieces(SURVEY_BYTES):
            for batch in self.batches(piece):
                lengths, keys, _ = self.entries(batch)
                if len(keys):
                    return self.are_names(keys[: lengths[np.flatnonzero(lengths)[0]]])
        return False

    @abstractmethod
    def are_names(self, keys: Any) -> bool:
        """Return whether the keys of the first row are names and not numbers."""

    def block(self, batch: Batch) -> Block:
        lengths, keys, values = self.entries(batch)
        place = _places(batch, lengths)
        names = None
        if self.has_names:
            if isinstance(keys, np.ndarray):
                keys = from_texts(list(map(str, keys.tolist())))
            encoded = keys.dictionary_encode()
            columns = encoded.indices.to_numpy(zero_copy_only=False)
            names = require_lines(encoded.dictionary, batch.place(0))
        else:
            columns = self._columns(keys, place)
        width = max(self.n_features or 0, int(columns.max(initial=-1)) + 1)
        indptr = np.append(0, np.cumsum(lengths))
        X = sp.csr_array((values, columns, indptr), shape=(batch.length, width))
        X.sum_duplicates()
        if not self.repeats and X.nnz < len(values):
            twice = batch.place(int(np.argmax(np.diff(X.indptr) < lengths)))
            raise SourceError(f"{twice}: two names mean the same column, such as '1' and '01'")
        return Block(checks.require_values(X, lambda row: str(batch.place(row))), names)

    def _columns(self, keys: Any, place: Place) -> IntArray:
        """Return keys as numbers of columns, or refuse one by its place."""
        if not isinstance(keys, np.ndarray):
            keys = _parsed(keys, place)
        limit = checks.MAX_SIDE.value if self.n_features is None else self.n_features
        wrong = np.flatnonzero((keys < 0) | (keys >= limit))
        if len(wrong):
            column, where = int(keys[wrong[0]]), place(wrong[0])
            if column < 0:
                raise SourceError(f"{where}: column {column} is negative: columns count from 0")
            fault = f" lies outside {limit} columns"
            if self.n_features is None:
                fault = f": a store holds up to {limit} features"
            raise SourceError(f"{where}: column {column} (from 0){fault}")
        return keys.astype(np.int32)


@dataclass(eq=False, kw_only=True)
class MapRecords(EntryRecords):
    """Records with a row {column: value}, or a vector."""

    features: str = "features"  # the field with the row, which every record must have
    required = ("features",)
    repeats = False

    def are_names(self, keys: Any) -> bool:
        return not isinstance(keys, np.ndarray) and _are_numbers(keys).false_count > 0

    def entries(self, batch: Batch) -> Entries:
        rows = batch.fields[self.features]
        if not isinstance(rows, list):
            return self._arrow_entries(rows, batch)
        if _holds_vectors(rows):
            return self._arrow_entries(_vectors(rows, self.features, batch.place), batch)
        if wrong := _first_other(rows, {dict}):
            raise SourceError(
                f"{batch.place(wrong[0])}: {self.features} is {wrong[1]}, but must be "
                f"{{column: value}}"
            )
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        place = _places(batch, lengths)
        keys = _texts(list(chain.from_iterable(rows)), place)
        numbers = list(chain.from_iterable(row.values() for row in rows))
        return Entries(lengths, keys, _numbers(numbers, keys, place))

    def _arrow_entries(self, rows: Any, batch: Batch) -> Entries:
        """Return the entries of maps, or of vectors: lists of numbers, pairs of index and value, or
        structs of indices and values, whose indices are null where the vector is dense.
        """
        _require_no_null(rows, self.features, batch.place)
        if types.is_map(rows.type):
            rows = rows.cast(pa.list_(pa.struct([rows.type.key_field, rows.type.item_field])))
        indices, values, kind = None, rows, rows.type
        if types.is_struct(kind) and {"indices", "values"} <= {part.name for part in kind}:
            fields = dict(zip((part.name for part in kind), rows.flatten(), strict=True))
            indices, values = fields["indices"], fields["values"]
            _require_no_null(values, f"{self.features}.values", batch.place)
        if not is_list(values.type) or not (indices is None or is_list(indices.type)):
            raise SourceError(
                f"{batch.place(0)} …: column {self.features!r} holds {kind}, but must hold maps of "
                f"columns to values, lists of numbers, lists of index and value, or structs of "
                f"indices and values"
            )
        lengths = compute.list_value_length(values).to_numpy().astype(np.int64)
        place, flat = _places(batch, lengths), values.flatten()
        if types.is_struct(flat.type) and flat.type.num_fields == 2:
            _require_no_null(flat, self.features, place)
            keys, flat = flat.flatten()
            keys = _keys(decode(keys), self.features, place)
        else:
            keys = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        if indices is not None:
            sizes = compute.list_value_length(indices)  # null where the vector is dense
            wrong = compute.fill_null(
                compute.not_equal(sizes, compute.list_value_length(values)), False
            )
            if (i := compute.index(wrong, True).as_py()) >= 0:
                raise SourceError(
                    f"{batch.place(i)}: {self.features} has {sizes[i]} indices and {lengths[i]} "
                    f"values"
                )
            is_sparse = np.repeat(sizes.is_valid().to_numpy(zero_copy_only=False), lengths)
            keys[is_sparse] = _keys(indices.flatten(), f"{self.features}.indices", place)
        return Entries(lengths, keys, _numbers(flat, keys, place))


@dataclass(eq=False, kw_only=True)
class ListRecords(EntryRecords):
    """Records with a list of columns and one of values."""

    indices: str  # the field with the columns of a row. One that comes again is added
    values: str | None = None  # the field with their values. None takes ones
    required = ("indices", "values")
    repeats = True

    def are_names(self, keys: Any) -> bool:
        return not isinstance(keys, np.ndarray)

    def entries(self, batch: Batch) -> Entries:
        lengths, indices = _flat(batch, self.indices)
        place = _places(batch, lengths)
        keys = _keys(indices, self.indices, place)
        if not self.values:
            return Entries(lengths, keys, np.ones(len(keys)))
        others, values = _flat(batch, self.values)
        if len(wrong := np.flatnonzero(lengths != others)):
            i = int(wrong[0])
            raise SourceError(
                f"{batch.place(i)}: {self.indices} has {lengths[i]} entries and {self.values} has "
                f"{others[i]}"
            )
        return Entries(lengths, keys, _numbers(values, keys, place))


# --- lists and numbers of Arrow and of JSON -------------------------------------------------------


def _places(batch: Batch, lengths: IntArray) -> Place:
    ends = np.cumsum(lengths)
    return lambda entry: batch.place(int(np.searchsorted(ends, entry, side="right")))


def _holds_vectors(rows: list[Any]) -> bool:
    """Return whether rows of JSON are lists, or objects with lists of indices and values."""
    first = next((row for row in rows if row is not None), None)
    return isinstance(first, list) or (
        isinstance(first, dict) and isinstance(first.get("values"), list)
    )


def _vectors(rows: list[Any], name: str, place: Place) -> Any:
    """Return vectors of JSON as Arrow has them."""
    try:
        return pa.array(rows)
    except (pa.ArrowException, OverflowError) as error:
        raise SourceError(
            f"{place(0)} …: {name} must hold vectors of one kind: {str(error).splitlines()[0]}"
        ) from error


def _first_other(values: list[Any], kinds: set[type]) -> tuple[int, str] | None:
    """Return the place and the type of the first value of another type."""
    if not set(map(type, values)) - kinds:
        return None
    i = next(i for i, value in enumerate(values) if type(value) not in kinds)
    return i, type(values[i]).__name__


def _require_no_null(values: Any, name: str, place: Place) -> None:
    if values.null_count:
        i = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise SourceError(f"{place(i)}: {name} is or holds null: write an empty list or a number")


def _flat(batch: Batch, name: str) -> tuple[IntArray, Any]:
    """Return the lengths of the lists of a field, and their values one after the other."""
    rows = batch.fields[name]
    if isinstance(rows, list):
        if wrong := _first_other(rows, {list}):
            raise SourceError(f"{batch.place(wrong[0])}: {name} is {wrong[1]}, but must be a list")
        return np.fromiter(map(len, rows), np.int64, len(rows)), list(chain.from_iterable(rows))
    if not is_list(kind := rows.type):
        raise SourceError(f"{batch.place(0)} …: column {name!r} holds {kind}, but must hold lists")
    _require_no_null(rows, name, batch.place)
    lengths = compute.list_value_length(rows).to_numpy().astype(np.int64)
    return lengths, rows.flatten()


def _keys(keys: Any, name: str, place: Place) -> Any:
    """Return keys as an array of integers, or as an Arrow array of texts."""
    if isinstance(keys, list):
        kind: set[type] = {str} if keys and isinstance(keys[0], str) else {int}
        if wrong := _first_other(keys, kind):
            raise SourceError(
                f"{place(wrong[0])}: {name} holds {shorten(keys[wrong[0]])}, but must hold "
                f"{'texts' if kind == {str} else 'whole numbers'}, as others do"
            )
        if kind == {str}:
            return _texts(keys, place)
        try:
            return np.array(keys, dtype=np.int64)
        except OverflowError:
            return np.array(keys, dtype=object)
    _require_no_null(keys, name, place)
    if pa.types.is_integer(keys.type) or pa.types.is_null(keys.type):
        return keys.to_numpy(zero_copy_only=False)
    if pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type):
        return keys
    raise SourceError(f"{place(0)} …: column {name!r} holds {keys.type}, not numbers of columns")


def _texts(texts: list[str], place: Place) -> Any:
    try:
        return from_texts(texts)
    except UnicodeEncodeError:
        i = next(i for i, text in enumerate(texts) if without_surrogates(text) != text)
        raise SourceError(
            f"{place(i)}: the name {shorten(texts[i])} holds half of a surrogate pair, which has "
            f"no bytes in UTF-8: replace it"
        ) from None


def _numbers(values: Any, keys: Any, place: Place) -> FloatArray:
    """Return values as floats, or refuse one by its place and its key."""
    if isinstance(values, list):
        if wrong := _first_other(values, {int, float}):
            i = wrong[0]
            raise SourceError(
                f"{place(i)}: the value of column {keys[i]} is {shorten(values[i])}, not a finite "
                f"number"
            )
        try:
            return np.array(values, dtype=np.float64)
        except OverflowError:
            most = sys.float_info.max
            return np.array([float(v) if abs(v) <= most else np.inf for v in values])
    kind = values.type
    if values.null_count:
        i = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise SourceError(f"{place(i)}: the value of column {keys[i]} is null, not a finite number")
    if pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    elif len(values) and not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise SourceError(f"{place(0)} …: the values are {kind}, not numbers")
    return values.to_numpy(zero_copy_only=False).astype(np.float64)  # not read-only


def _are_numbers(keys: Any) -> Any:
    return compute.and_(
        compute.ascii_is_decimal(keys), compute.less(compute.binary_length(keys), 19)
    )


def _parsed(keys: Any, place: Place) -> AnyArray:
    """Return texts as numbers of columns."""
    if (are_numbers := _are_numbers(keys)).false_count:
        i = int(np.argmin(are_numbers.to_numpy(zero_copy_only=False)))
        raise SourceError(
            f"{place(i)}: {keys[i].as_py()!r} is not a column number (from 0): give by_name=true "
            f"if the columns have names"
        )
    return compute.cast(keys, pa.int64()).to_numpy(zero_copy_only=False)
