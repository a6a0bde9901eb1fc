"""JSON Lines: one object per line, with a text field or with features as {column: value}.

A file is cut by byte ranges and read in parallel. A piece holds the lines that begin in it. A
compressed file is decompressed to scratch first.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import orjson
import scipy.sparse as sp

from storage.errors import SourceError
from storage.sources import checks
from storage.sources.base import (
    Document,
    MatrixSource,
    Rows,
    byte_ranges,
    line_number,
    seek_line,
    shorten,
    shorten_names,
)
from storage.sources.tables.records import RecordFile, TextRecords

LINE_LIMIT = 1 << 28  # bytes; a longer line means that the file has no lines
WITH_FEATURES = re.compile(rb'(?<!\\)"features"\s*:\s*\{')


@dataclass(eq=False, kw_only=True)
class JsonFile(RecordFile):
    """A file of JSON objects, cut by bytes. Errors name the line."""

    flat: ClassVar[bool] = False  # fields are mostly texts and whole numbers, read fast by orjson

    def pieces(self, size: int) -> list[tuple[int, int]]:
        return byte_ranges(self.length(), size)

    def prepare(self, scratch: Path) -> Self:
        ready = super().prepare(scratch)
        for role, name in ready.named.items():
            ready._require_field(role, name)
        return ready

    def _require_field(self, role: str, name: str) -> None:
        """Refuse the name of a field that no record has. Most files show it in their first line."""
        quoted, fields = json.dumps(name, ensure_ascii=False).encode(), None
        with open(self.plain, "rb") as file:
            while line := file.readline(min(LINE_LIMIT, self.line_limit)):
                is_there = quoted in line
                if fields and not is_there and b"\\u" not in line and b"\\/" not in line:
                    continue
                try:
                    record = orjson.loads(line)
                except orjson.JSONDecodeError:
                    if is_there:
                        return  # reading the line names what is wrong
                    continue
                if name in record:
                    return
                fields = fields or list(record)
        raise SourceError(
            f"{self.path} has no field {name!r}; its first line has "
            f"{shorten_names(fields or [])}: name one of them with {role}=, or leave {role}= out"
        )

    def objects(self, piece: tuple[int, int]) -> Iterator[tuple[dict[str, Any], LinePosition]]:
        """Yield the object of each line that begins in a byte range, and its place for messages."""
        start, stop = piece
        with open(self.plain, "rb") as file:
            offset = seek_line(file, start)
            while offset < stop and (line := file.readline(min(LINE_LIMIT, self.line_limit))):
                place = LinePosition(self, offset)
                self.require_record_fits(len(line), place)
                if not line.isspace():
                    yield self._parse(line, place), place
                offset += len(line)

    def _parse(self, line: bytes, place: LinePosition) -> dict[str, Any]:
        if len(line) >= LINE_LIMIT:
            raise SourceError(
                f"{place}: the line is longer than {LINE_LIMIT >> 20} MiB: "
                f"write one object per line"
            )
        try:
            record = _parse_flat(line) if self.flat else None
            if record is None:
                record = json.loads(
                    line, parse_constant=_no_constant, object_pairs_hook=_without_repeats
                )
        except RecursionError:
            raise SourceError(f"{place}: the object is nested too deeply") from None
        except ValueError as error:
            raise SourceError(f"{place} is not JSON: {error}") from None
        if not isinstance(record, dict):
            raise SourceError(f"{place} holds {type(record).__name__}, not an object with fields")
        return record

    def field(self, record: dict[str, Any], option: str, place: LinePosition) -> Any:
        """Return the field of a record that an option names, which must be there."""
        name = getattr(self, option)
        if name not in record:
            raise SourceError(
                f"{place} has no field {name!r}, only "
                f"{', '.join(map(repr, record)) or 'none'}: name it with {option}="
            )
        return record[name]


class LinePosition:
    """The file and the number of a line. Lines are counted only when a message needs the number."""

    def __init__(self, source: JsonFile, offset: int) -> None:
        self.source, self.offset = source, offset

    def __str__(self) -> str:
        return f"{self.source.path}, line {line_number(self.source.plain, self.offset)}"


def _parse_flat(line: bytes) -> dict[str, Any] | None:
    """Parse a line with orjson, or return None where `json` might find something else in it.

    orjson keeps the last of several fields with one name, reads whole numbers of more than 64 bits
    as floats, and refuses some of what `json` reads. Every field has one colon outside the texts,
    so the colons show repeats, unless one is written as an escape.
    """
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(record, dict) or b"\\u003" in line:
        return None
    colons = len(record)
    for name, value in record.items():
        colons += name.count(":")
        if isinstance(value, str):
            colons += value.count(":")
        elif not (value is None or isinstance(value, int)):
            return None
    return record if line.count(b":") == colons else None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {repeated!a} comes twice in one object")
    return named


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number; leave out the field or write null")


@dataclass(eq=False, kw_only=True)
class JsonLines(JsonFile, TextRecords):
    """Documents: ``{"text": …, "label": …}`` per line."""

    format = "jsonl"
    flat = True

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return (first := _first(head)) is not None and not isinstance(first.get("features"), dict)

    def read(self, piece: tuple[int, int]) -> Iterator[Document]:
        label, split, name = self.roles
        for record, place in self.objects(piece):
            text, get = self.field(record, "text", place), record.get
            yield self.document(text, get(label), get(split), get(name), place)


@dataclass(eq=False, kw_only=True)
class JsonFeatures(JsonFile, MatrixSource):
    """Rows: ``{"features": {"3": 0.5, "17": 1}, "label": …}`` per line, columns from 0."""

    format = "jsonl-features"
    # measured: 31 for columns of six digits, since names and columns are objects
    memory_per_byte = 32
    features: str = "features"  # the field with the row, which every record must have
    n_features: int | None = None  # d, by default one more than the largest column

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"text": self.features, "n_features": self.n_features}

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return (first := _first(head)) is not None and isinstance(first.get("features"), dict)

    def read(self, piece: tuple[int, int]) -> Rows:
        columns: list[int] = []
        values: list[float] = []
        indptr, labels, splits, names = [0], [], [], []
        for record, place in self.objects(piece):
            row = self.field(record, "features", place)
            if not isinstance(row, dict):
                raise SourceError(
                    f"{place}: {self.features} is {type(row).__name__}, but must be "
                    f"{{column: value}}"
                )
            for column, value in row.items():
                columns.append(self._column(column, place))
                values.append(_value(value, column, place))
            if len(set(columns[indptr[-1] :])) < len(row):
                raise SourceError(f"{place}: two names mean the same column, such as '1' and '01'")
            indptr.append(len(columns))
            label, split, name = map(record.get, self.roles)
            labels.append(self.read_label(label, place))
            splits.append(self.read_split(split, place))
            names.append(self.read_name(name))
        width = max(self.n_features or 0, max(columns, default=-1) + 1)
        X = sp.csr_array(
            (values, np.array(columns, dtype=np.int32), indptr), shape=(len(indptr) - 1, width)
        )
        X.sort_indices()
        return self.rows(X, labels, splits, names)

    def _column(self, column: str, place: LinePosition) -> int:
        if not (column.isascii() and column.isdigit() and len(column) < 19):
            raise SourceError(f"{place}: {column!r} is not a column number (from 0)")
        return checks.require_index(int(column), place, self.n_features)


def _value(value: Any, column: str, place: LinePosition) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SourceError(
            f"{place}: the value of column {column} is {shorten(value)}, not a finite number"
        )
    if not abs(value) <= sys.float_info.max or not checks.value_fits_float32(float(value)):
        raise SourceError(
            f"{place}: the value of column {column} is {shorten(value)}: {checks.MUST_FIT}"
        )
    return float(value)


def _first(head: bytes) -> dict[str, Any] | None:
    """Return the object on the first line, or None.

    A line that is longer than the head has features if the head shows some.
    """
    line, newline, _ = head.lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        if newline:
            return None
        return {"features": {}} if WITH_FEATURES.search(line) else {}
    return record if isinstance(record, dict) else None
