"""Records with named fields, in batches of Arrow: what CSV, Parquet and JSON Lines share.

A container (`CsvFile`, `ParquetFile`, `JsonFile`) gives `Batch`es. The meaning of the fields is
decided here and in other modules: `TextRecords` reads a text per record, `entries.EntryRecords` the
entries of a row, and `numeric.NumericTable` one feature per field.
"""

from __future__ import annotations

import copy
import itertools
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from bigfs.storage.downloads import remote
from bigfs.storage.errors import SourceError, redact
from bigfs.storage.fingerprint import fingerprint_of, identity_of
from bigfs.storage.lazy import pa
from bigfs.storage.sources import samples
from bigfs.storage.sources.base import (
    Documents,
    MatrixSource,
    PlainFile,
    Rows,
    SampleColumns,
    TextSource,
    shorten,
    shorten_names,
)
from bigfs.storage.sources.files import (
    half_of,
    is_pattern,
    list_files,
    partitions_of,
    require_encoding,
    walk,
)
from bigfs.storage.sources.tables.columns import as_numbers, as_texts
from bigfs.storage.sources.tables.names import Block, join_blocks, require_lines
from bigfs.storage.sources.tables.where import Condition

PACKED = (
    "bigfs.packed"  # the column of lists, and the names of the fields of which they hold values
)
ROLES = {"label": "label", "split": "split", "name": "id"}  # their fields, if nobody names others


class Packed(Mapping[str, Any]):
    """The fields of records of which most come as lists of the values of a record, by `PACKED`."""

    def __init__(self, columns: Mapping[str, Any], names: Sequence[str]) -> None:
        self.columns = dict(columns)
        self.lists = self.columns.pop(PACKED)
        self.places = {name: j for j, name in enumerate(names)}

    def __getitem__(self, name: str) -> Any:
        return self.values_of([name]) if name in self.places else self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return itertools.chain(self.places, self.columns)

    def __len__(self) -> int:
        return len(self.places) + len(self.columns)

    def values_of(self, names: Sequence[str]) -> Any:
        """Return the values of packed fields, one field after the other."""
        columns = np.array([self.places[name] for name in names], dtype=np.int64)
        rows = np.arange(len(self.lists)) * len(self.places)
        return self.lists.flatten().take((columns[:, None] + rows).ravel())

    def filter(self, truth: Any) -> Packed:
        """Return the fields of the records for which an array is true."""
        columns = {**self.columns, PACKED: self.lists}
        kept = {name: values.filter(truth) for name, values in columns.items()}
        return Packed(kept, list(self.places))


class Batch(NamedTuple):
    """Consecutive records. Each field is an Arrow array, or a list of JSON's values."""

    fields: Mapping[str, Any]
    length: int
    place: Callable[[int], object]  # of a record, which is written out in messages only

    def values(self, field: str) -> list[Any]:
        """Return the values of a field, None where there is no such field."""
        if field not in self.fields:
            return [None] * self.length
        values = self.fields[field]
        return values if isinstance(values, list) else values.to_pylist()

    def columns_of(self, fields: Sequence[str]) -> Iterator[tuple[Sequence[int], Any]]:
        """Yield the places of fields of one type, and their values one field after the other."""
        if isinstance(self.fields, Packed) and self.fields.places.keys() >= {*fields}:
            yield range(len(fields)), self.fields.values_of(fields)
            return
        columns = [self.fields[field] for field in fields]
        of_type: dict[Any, list[int]] = {}
        for j, column in enumerate(columns):
            of_type.setdefault(column.type, []).append(j)
        for places in of_type.values():
            yield places, pa.concat_arrays([columns[j] for j in places])

    def array(self, field: str) -> Any:
        """Return a field as an Arrow array."""
        values = self.fields[field]
        return pa.array(values) if isinstance(values, list) else values

    def names(self, field: str) -> Any:
        """Return a field as names of samples or features, or refuse one that is missing."""

        def no_name(i: int, got: str) -> SourceError:
            return SourceError(
                f"{self.place(i)}: {field!r} must hold a text or a whole number in every record; "
                f"got {shorten(got)}"
            )

        try:
            texts = as_texts(self.array(field)).cast(pa.large_string())
        except pa.ArrowException as error:
            raise no_name(0, str(error).splitlines()[0]) from error
        if texts.null_count:
            raise no_name(int(np.argmin(samples.to_numpy(texts.is_valid()))), "none")
        return require_lines(texts, self.place(0))

    def filter(self, condition: Condition) -> Batch:
        """Return the records for which a condition is true."""
        truth = condition.truth(self.array, self.place(0))
        kept = np.flatnonzero(truth.to_numpy(zero_copy_only=False))
        if isinstance(self.fields, Packed):
            fields: Any = self.fields.filter(truth)
            return Batch(fields, len(kept), lambda i: self.place(int(kept[i])))
        fields = {
            name: list(itertools.compress(values, truth.to_pylist()))
            if isinstance(values, list)
            else values.filter(truth)
            for name, values in self.fields.items()
        }
        return Batch(fields, len(kept), lambda i: self.place(int(kept[i])))


@dataclass(eq=False)
class Records(SampleColumns, PlainFile):
    """A file of records, plain or compressed."""

    path: str  # as messages show it: a URL without its query
    _: KW_ONLY
    name: str | None = None  # the field with the name of the sample, by default "id"
    optional: str = ""  # the roles whose fields may be missing although somebody names them
    where: str | None = None  # a condition such as "lang == 'en'" on the records to read
    required: ClassVar[tuple[str, ...]] = ()  # options whose field every record must have
    suffixes: ClassVar[tuple[str, ...]] = ()  # of the files of a folder

    def __post_init__(self) -> None:
        self.url = self.path if remote.is_remote(self.path) else None
        self.path = self.path if self.url is None else redact(self.path)
        self.plain = self.path
        require_encoding(self.encoding)
        self.listed: dict[str, remote.Listed | None] | None = None  # the files behind a URL
        self.url_root: str | None = ""  # the folder behind it, "" before it is listed
        self.partitions: Mapping[str, str | None] = {}  # of the file, by its folders
        self.label_fields = names if len(names := samples.split_names(self.label)) > 1 else ()
        samples.require_target(self.target, self.label_fields)
        if self.label_fields:
            self.label, self.class_names = "", self.label_fields
        elif self.label is not None and not isinstance(self.label, str):
            self.label = "".join(names) or None
        given = {role: getattr(self, role) for role in ROLES}
        # the fields that must be there, because somebody named them
        self.named = {role: field for role, field in given.items() if field} | self.obs_columns
        samples.split_words(self.split_map)  # or it is refused
        self.has_halves: bool | None = None  # whether files are called train and test
        self.condition = Condition(self.where) if self.where else None
        for role, default in ROLES.items():
            setattr(self, role, default if given[role] is None else given[role])

    @property
    def roles(self) -> tuple[str, ...]:
        """The fields of the label, the split and the name, and of what else is known."""
        others = *self.label_fields, *self.obs_columns.values()
        return str(self.label or ""), self.split or "", self.name or "", *others

    @property
    def named_fields(self) -> list[tuple[str, str]]:
        """The fields that must be there, with the options that name them."""
        labels = [("label", name) for name in self.label_fields]
        where = [("where", name) for name in self.with_condition([])]
        named = [*self.named.items(), *labels, *where]
        return [pair for pair in named if pair[0] not in self.optional.split(",")]

    @property
    def paths(self) -> list[str]:
        """The fields to read whose names may be paths inside of others, as in payload.city."""
        rows = [getattr(self, option) or "" for option in self.required]
        return [name for name in self.with_condition([*self.roles, *rows]) if "." in name]

    def batches(self, piece: Any) -> Iterator[Batch]:
        """Yield the records of a piece that `where` keeps, in order."""
        for batch in self.all_batches(piece):
            yield batch.filter(self.condition) if self.condition else batch

    def as_numbers(self, values: Any) -> Any:
        """Return a column as float64, null where it is missing."""
        return as_numbers(values)

    def require_no_roles(self, record: str) -> None:
        """Refuse options that name columns of samples, where something else is a record."""
        if given := sorted({*self.named, *(["label"] if self.label_fields else [])}):
            raise SourceError(
                f"{self.path}: {given[0]}= names a column with a value for each sample, and "
                f"{record} is no sample: leave it out, or give a table of samples by labels="
            )
        self.label = self.split = self.name = ""

    @abstractmethod
    def all_batches(self, piece: Any) -> Iterator[Batch]:
        """Yield the records of a piece in order."""

    @abstractmethod
    def wanted_fields(self, fields: list[str]) -> list[str]:
        """Return the fields to read, without the fields that `where` alone needs."""

    def with_condition(self, fields: list[str]) -> list[str]:
        """Return fields, and the fields that `where` needs."""
        return list(dict.fromkeys([*fields, *(self.condition.fields if self.condition else ())]))

    def absolute(self) -> Self:
        return copy.copy(self) if self.url else super().absolute()

    def files(self) -> list[str]:
        """Return the file, or the files of a folder or a pattern in order, with any URLs."""
        if self.url:
            if self.listed is None:
                self.listed = remote.list_files(self.url, self.suffixes)
                folder = re.split(r"[*\[]", self.url)[0].rpartition("/")[0]
                folder = folder if is_pattern(self.url) else self.url.rstrip("/")
                self.url_root = None if list(self.listed) == [self.url] else folder
            return self._without_halves(list(self.listed))
        files = list_files(self.path, self.suffixes)
        files = [
            file for file in files if os.path.getsize(file)
        ] or files  # Spark writes empty ones
        return self._without_halves(files)

    def _without_halves(self, files: list[str]) -> list[str]:
        """Return the files without the splits that are left out, if there are several splits."""
        root = None if "split" in self.named else self.root
        halves = [None if root is None else half_of(file, root, self.split_words) for file in files]
        words = {half for half in halves if half}
        self.has_halves = len(words) > 1 and not words.isdisjoint(samples.SPLITS)
        if not self.has_halves:
            return files
        if None in halves:
            odd, other = files[halves.index(None)], next(itertools.compress(files, halves))
            raise SourceError(
                f"{redact(odd)} is of no split by its name or its folder, as {redact(other)} "
                f"is: move it out, or give the others by a pattern, or two files by test= (--test)"
            )
        pairs = zip(files, halves, strict=True)
        split = {f: samples.split_of(half, self.split_words, redact(f)) for f, half in pairs}
        return [file for file in files if split[file]]

    def check(self) -> None:
        """Refuse files of no split, or of an unknown one, among files of known splits."""
        if self.root is not None:
            self.files()

    def left_out(self) -> list[str]:
        if self.url or not os.path.isdir(self.path):
            return []
        read = {os.path.relpath(file, self.path) for file in self.files()}
        return [name for name in walk(self.path) if name not in read]

    @property
    def root(self) -> str | None:
        """The folder in which the files lie, None for a single file."""
        if self.url:
            if self.url_root == "":
                self.files()
            return self.url_root
        if is_pattern(self.path):
            return re.split(r"[*\[]", self.path)[0].rpartition("/")[0] or "."
        return self.path.rstrip("/") if os.path.isdir(self.path) else None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the list of the files, as each part knows its own."""
        return self.__dict__ | {"listed": None}

    def partitions_of(self, file: str) -> dict[str, str | None]:
        """Return the columns of a file that its folders name."""
        if (root := self.root) is None:
            return {}
        if self.has_halves is None:
            self.files()
        half = half_of(file, root, self.split_words) if self.has_halves else None
        return ({} if half is None else {"split": half}) | partitions_of(file, root)

    def identity(self) -> Any:
        """Return what changes with the content of the files: a hash, or versions of URLs."""
        if self.url:
            return remote.identity_of(self.url, self.suffixes)
        return identity_of(self.files(), self.root)

    def _with_path(self, file: str, plain: str | None = None) -> Self:
        """Return the source of one of the files, which may be decompressed to another."""
        source = copy.copy(self)
        source.path, source.plain = file, plain or file
        source.partitions = self.partitions_of(file)
        return source

    def settings(self) -> dict[str, Any]:
        """Return the options, which the fingerprint depends on as it does on the files."""
        options = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
        del options["path"], options["optional"]
        if not self.split_map:
            del options["split_map"]
        else:
            options["split_map"] = sorted(map(str, self.split_words.items()))
        where = str(self.condition) if self.condition else None
        return options | {"label": self.label_fields or self.label, "where": where}

    def fingerprint(self) -> str:
        return fingerprint_of(self.format, self.identity(), sorted(self.settings().items()))

    def samples(self, batch: Batch) -> dict[str, Any]:
        """Return what a batch tells of its samples, by the roles of its columns."""
        fields = {role: getattr(self, role) for role in ROLES} | self.obs_columns
        told = {role: batch.fields[name] for role, name in fields.items() if name in batch.fields}
        if self.label_fields:
            several = {name: batch.array(name) for name in self.label_fields}
            told["label"] = samples.label_columns(several, batch.place)
        return {
            role: samples.read(role, values, batch.place, self.label_rules, self.split_words)
            for role, values in told.items()
        }


class SampleRecords(Records):
    """Records of a sample each."""

    def wanted_fields(self, fields: list[str]) -> list[str]:
        roles = [name for name in dict.fromkeys(self.roles) if name in fields]
        return roles if "name" in self.named else fields


@dataclass(eq=False, kw_only=True)
class TextRecords(Records, TextSource):
    """Records with a text. A missing value has an empty text."""

    text: str = "text"  # the field with the text, which every record must have
    required = ("text",)

    def wanted_fields(self, fields: list[str]) -> list[str]:
        if self.text not in fields:
            raise SourceError(
                f"{self.path} has no column {self.text!r}, only "
                f"{shorten_names(fields)}: name it with text=, or the columns of a table of "
                f"numbers with columns="
            )
        return [name for name in dict.fromkeys((self.text, *self.roles)) if name in fields]

    def read(self, piece: Any) -> Iterator[Documents]:
        for batch in self.batches(piece):
            yield Documents(self._texts(batch), self.samples(batch), batch.place)

    def _texts(self, batch: Batch) -> Iterator[str]:
        for i, text in enumerate(batch.values(self.text)):
            if not isinstance(text, str | None):
                raise SourceError(
                    f"{batch.place(i)}: {self.text} must be a text; got {type(text).__name__}"
                )
            yield samples.without_surrogates(text or "")


@dataclass(eq=False, kw_only=True)
class MatrixRecords(Records, MatrixSource):
    """Records whose fields hold numbers."""

    # measured: 31 for entries with columns of six digits, since names and columns are objects
    memory_per_byte = 32

    @abstractmethod
    def block(self, batch: Batch) -> Block:
        """Return the rows of a batch, whose last columns may be missing."""

    def read(self, piece: Any) -> Rows:
        blocks: list[Block] = []
        parts: list[samples.Columns] = []
        places: list[tuple[int, samples.Place]] = []
        for batch in self.batches(piece):
            blocks.append(self.block(batch))
            parts.append(self.samples(batch))
            places.append((batch.length, batch.place))
        X, terms = join_blocks(blocks, self.n_features or 0)
        columns = samples.join(parts, places) if parts else {}
        return Rows(X, columns, terms if self.has_names else None, samples.place_in(places))
