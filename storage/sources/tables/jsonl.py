"""JSON Lines: one object per line, with a text field or with features as {column: value}.

A file is cut by byte ranges and read in parallel. A piece holds the lines that begin in it. A
compressed file is decompressed to scratch first.
"""

from __future__ import annotations

import copy
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

from bigfs import engine
from bigfs.engine import format_bytes, require_memory
from bigfs.storage.errors import SourceError
from bigfs.storage.sources.base import PlainFile, line_number, shorten_names
from bigfs.storage.sources.tables.entries import MapRecords
from bigfs.storage.sources.tables.records import Batch, Records, TextRecords

BATCH_BYTES = 1 << 18  # of lines that are objects of Python at a time, at least a line
WITH_FEATURES = re.compile(rb'(?<!\\)"features"\s*:\s*[{\[]')
ABSENT = object()  # in place of a field that is not there


class JsonPiece(NamedTuple):
    """The lines that begin in a range of bytes of a file."""

    start: int
    stop: int
    file: str
    plain: str  # the decompressed file


class LinePosition(NamedTuple):
    """Where a line begins. Its number is counted only when a message needs it."""

    path: str
    plain: str
    offset: int

    def __str__(self) -> str:
        return f"{self.path}, line {line_number(self.plain, self.offset)}"


@dataclass(eq=False, kw_only=True)
class JsonFile(Records):
    """A file of JSON objects, cut by bytes. Errors name the line."""

    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".json")
    encoding: str | None = None  # of the bytes; None goes by their mark, or takes UTF-8
    plains: list[tuple[str, str]] | None = field(default=None, init=False, repr=False)

    def prepare(self, scratch: Path) -> Self:
        """Decompress the files, and look for the fields that options name."""
        ready = copy.copy(self)
        ready.plains = []
        for number, file in enumerate(self.files()):
            folder = scratch / str(number) if number else scratch
            folder.mkdir(parents=True, exist_ok=True)
            one = PlainFile.prepare(self._with_path(file), folder)
            for role, name in self.named_fields:
                if name not in one.partitions:
                    one._require_field(role, name)
            ready.plains.append((file, one.plain))
        return ready

    def pieces(self, size: int) -> list[JsonPiece]:
        """Return byte ranges of the files."""
        plains = [(file, file) for file in self.files()] if self.plains is None else self.plains
        return [
            JsonPiece(start, stop, file, plain)
            for file, plain in plains
            for start, stop in super(JsonFile, self._with_path(file, plain)).pieces(size)
        ]

    def weight(self, piece: JsonPiece) -> int:
        return piece.stop - piece.start

    def _require_field(self, role: str, name: str) -> None:
        """Refuse the name of a field that no record has. Most files show it in their first line."""
        quoted = json.dumps(name, ensure_ascii=False).encode()
        fields: list[str] = []
        limit = engine.memory_limit() // self.memory_per_byte + 1  # bytes of a line
        with open(self.plain, "rb") as file:
            while line := file.readline(limit):
                if len(line) == limit:
                    place = LinePosition(self.path, self.plain, file.tell() - limit)
                    what = f"{place}: a record of {format_bytes(limit)} or more cannot be cut and"
                    require_memory(limit * self.memory_per_byte, what, engine.memory_limit())
                may_hold = "." in name or quoted in line or b"\\u" in line or b"\\/" in line
                if line.isspace() or (fields and not may_hold):
                    continue
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    return  # reading the line names the fault
                if not isinstance(record, dict) or field_of(record, name) is not ABSENT:
                    return
                fields = fields or list(record)
        raise SourceError(
            f"{self.path} has no field {name!r}; its first line has "
            f"{shorten_names(fields)}: name one of them with {role}=, or leave {role}= out"
        )

    def all_batches(self, piece: JsonPiece) -> Iterator[Batch]:
        entries = filter(None, (getattr(self, option) for option in self.required))
        names = self.with_condition([*entries, *self.roles])
        source = self._with_path(piece.file, piece.plain)
        lines, partitions = source._lines(piece[:2]), source.partitions
        for _, group in itertools.groupby(lines, lambda line: line[1].offset // BATCH_BYTES):
            some = list(group)
            yield Batch(
                {name: [_value(r, name, partitions) for r, _ in some] for name in names},
                len(some),
                lambda i, some=some: some[i][1],  # type: ignore[misc]  # a default binds it
            )

    def _lines(self, piece: tuple[int, int]) -> Iterator[tuple[dict[str, Any], LinePosition]]:
        """Yield the object of each line that begins in a byte range, and its place."""
        offset, raw = self.read_lines(piece)
        for line in io.BytesIO(raw):
            place = LinePosition(self.path, self.plain, offset)
            self.require_record_fits(len(line), place)
            if not line.isspace():
                yield self._parse(line, place), place
            offset += len(line)

    def _parse(self, line: bytes, place: LinePosition) -> dict[str, Any]:
        try:
            record = json.loads(
                line, parse_constant=_no_constant, object_pairs_hook=_without_repeats
            )
        except RecursionError:
            raise SourceError(f"{place}: the object is nested too deeply") from None
        except ValueError as error:
            raise SourceError(f"{place} is not JSON: {error}") from None
        if not isinstance(record, dict):
            raise SourceError(f"{place} holds {type(record).__name__}, not an object with fields")
        for option in self.required:
            if (name := getattr(self, option)) and field_of(record, name) is ABSENT:
                rows = ", or a field with the numbers of a row with features="
                raise SourceError(
                    f"{place} has no field {name!r}, only "
                    f"{', '.join(map(repr, record)) or 'none'}: name it with {option}="
                    f"{rows if option == 'text' else ''}"
                )
        return record


def field_of(record: Any, name: str) -> Any:
    """Return a field of an object, to which dots may lead inside of it, or `ABSENT`."""
    if not isinstance(record, dict):
        return ABSENT
    first, dot, rest = name.partition(".")
    if name in record or not dot:
        return record.get(name, ABSENT)
    return field_of(record.get(first), rest)


def _value(record: dict[str, Any], name: str, partitions: Mapping[str, str | None]) -> Any:
    value = field_of(record, name)
    return partitions.get(name) if value is ABSENT else value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        names = (name for name, _ in pairs)
        [(repeated, _)] = Counter(names).most_common(1)
        raise ValueError(f"the name {repeated!a} comes twice in one object")
    return named


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number; leave out the field or write null")


@dataclass(eq=False, kw_only=True)
class JsonLines(JsonFile, TextRecords):
    """Documents: ``{"text": …, "label": …}`` per line."""

    format = "jsonl"

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return (first := _first(head)) is not None and not _has_features(first)


@dataclass(eq=False, kw_only=True)
class JsonFeatures(MapRecords, JsonFile):
    """Rows: ``{"features": {"3": 0.5, "17": 1}, "label": …}`` per line, columns from 0."""

    format = "jsonl-features"

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return (first := _first(head)) is not None and _has_features(first)


def _has_features(first: dict[str, Any]) -> bool:
    return isinstance(first.get("features"), dict | list)


def _first(start: bytes) -> dict[str, Any] | None:
    """Return the object on the first line of a file, or None.

    A line that is longer than the start, or is no JSON, has features if it shows some.
    """
    line, newline, _ = start.lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        if newline and not line.rstrip().endswith(b"}"):
            return None
        return {"features": {}} if WITH_FEATURES.search(line) else {}
    return record if isinstance(record, dict) else None
