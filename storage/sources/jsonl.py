"""JSON Lines: one object a line, with a text field or with features as {column: value}.

A plain file is cut by byte ranges and read in parallel; a piece holds the lines that begin in it.
A compressed one is written out in scratch first.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import orjson
import scipy.sparse as sp

from storage.errors import SourceError
from storage.sources import gate
from storage.sources import labels as label_rules
from storage.sources.base import Document, MatrixSource, Rows, TextSource, byte_ranges, shortened
from storage.sources.records import Cut

LINE_LIMIT = 1 << 28  # bytes of one line: more is not a file of lines
WITH_FEATURES = re.compile(rb'(?<!\\)"features"\s*:\s*\{')


class Lines(Cut):
    """What both kinds share: cutting by bytes, and a parser whose errors name the line.

    flat : whether the fields are mostly texts and whole numbers, which orjson reads faster.
    """

    flat: ClassVar[bool] = False

    def pieces(self, size: int) -> list[tuple[int, int]]:
        return byte_ranges(self.length(), size)

    def objects(self, piece: tuple[int, int]) -> Iterator[tuple[dict[str, Any], Place]]:
        """The objects of the lines that begin in a byte range, each with its place for messages."""
        start, stop = piece
        limit = (
            LINE_LIMIT if self.room is None else min(LINE_LIMIT, self.room // self.expansion + 1)
        )
        with open(self.plain, "rb") as file:
            if start:
                file.seek(start - 1)
                while (rest := file.readline(1 << 16)) and not rest.endswith(b"\n"):
                    pass
            at = file.tell()
            while at < stop and (line := file.readline(limit)):
                place = Place(self, at)
                self.require_room(len(line), place)
                if not line.isspace():
                    yield self._parse(line, place), place
                at += len(line)

    def _parse(self, line: bytes, place: Place) -> dict[str, Any]:
        if len(line) >= LINE_LIMIT:
            raise SourceError(
                f"{place}: the line is longer than {LINE_LIMIT >> 20} MiB: "
                f"write one object per line"
            )
        try:
            found = _parse_flat(line) if self.flat else None
            if found is None:
                found = json.loads(
                    line, parse_constant=_no_constant, object_pairs_hook=_without_repeats
                )
        except RecursionError:
            raise SourceError(f"{place}: the object is nested too deeply") from None
        except ValueError as error:
            raise SourceError(f"{place} is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise SourceError(f"{place} holds {type(found).__name__}, not an object with fields")
        return found

    def field(self, found: dict[str, Any], name: str, option: str, place: Place) -> Any:
        if name not in found:
            raise SourceError(
                f"{place} has no field {name!r}, only "
                f"{', '.join(map(repr, found)) or 'none'}: name it with {option}="
            )
        return found[name]


class Place:
    """Where a line is, as a message says it; the lines before it are counted only then."""

    def __init__(self, source: Lines, at: int) -> None:
        self.source, self.at = source, at

    def __str__(self) -> str:
        before, left = 0, self.at
        with open(self.source.plain, "rb") as file:
            while left and (chunk := file.read(min(left, 1 << 22))):
                before, left = before + chunk.count(b"\n"), left - len(chunk)
        return f"{self.source.path}, line {before + 1}"


def _parse_flat(line: bytes) -> dict[str, Any] | None:
    """Parse a line with orjson, or return None where `json` might find something else in it.

    orjson keeps the last of several fields with one name, reads whole numbers of more than 64 bits
    as floats, and refuses some of what `json` reads. Every field has one colon outside the texts,
    so the colons show repeats, unless one is written as an escape.
    """
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict) or b"\\u003" in line:
        return None
    colons = len(found)
    for name, value in found.items():
        colons += name.count(":")
        if isinstance(value, str):
            colons += value.count(":")
        elif not (value is None or isinstance(value, int)):
            return None
    return found if line.count(b":") == colons else None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the name "
            f"{next(name for name in names if names.count(name) > 1)!a} comes "
            f"twice in one object"
        )
    return named


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number; leave out the field or write null")


class JsonLines(Lines, TextSource):
    """Documents: ``{"text": …, "label": …}`` a line.

    Takes the options of `storage.sources.records`.
    """

    format = "jsonl"
    flat = True

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return (first := _first(head)) is not None and not isinstance(first.get("features"), dict)

    def read(self, piece: tuple[int, int]) -> Iterator[Document]:
        for found, place in self.objects(piece):
            text = self.field(found, self.text, "text", place)
            yield self.document(
                text, found.get(self.label), found.get(self.split), found.get(self.name), place
            )


class JsonFeatures(Lines, MatrixSource):
    """Rows: ``{"features": {"3": 0.5, "17": 1}, "label": …}`` a line; columns are numbered from 0.

    Parameters
    ----------
    features, label, split, name : the fields that hold them.
    n_features : d; default: one more than the largest column.
    unlabelled : the label that also means "none".
    """

    format = "jsonl-features"
    expansion = 32  # measured: 31 of names of six digits, which are objects as their columns are

    def __init__(
        self,
        path: str,
        *,
        features: str = "features",
        label: str = "label",
        split: str = "split",
        name: str = "id",
        n_features: int | str | None = None,
        unlabelled: str | None = None,
    ) -> None:
        super().__init__(
            path, text=features, label=label, split=split, name=name, unlabelled=unlabelled
        )
        self.n_features = None if n_features is None else int(n_features)

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return (first := _first(head)) is not None and isinstance(first.get("features"), dict)

    def read(self, piece: tuple[int, int]) -> Rows:
        columns: list[int] = []
        values: list[float] = []
        indptr, found_labels, splits, names = [0], [], [], []
        for found, place in self.objects(piece):
            row = self.field(found, self.text, "features", place)
            if not isinstance(row, dict):
                raise SourceError(
                    f"{place}: {self.text} is {type(row).__name__}, but must be {{column: value}}"
                )
            for column, value in row.items():
                columns.append(self._column(column, place))
                values.append(self._value(value, column, place))
            if len(set(columns[indptr[-1] :])) < len(row):
                raise SourceError(f"{place}: two names mean the same column, such as '1' and '01'")
            indptr.append(len(columns))
            found_labels.append(self.labelled(found.get(self.label), place))
            splits.append(self.half(found.get(self.split), place))
            names.append(self.called(found.get(self.name)))
        width = max(self.n_features or 0, max(columns, default=-1) + 1)
        X = sp.csr_array(
            (values, np.array(columns, dtype=np.int32), indptr), shape=(len(indptr) - 1, width)
        )
        X.sort_indices()
        return Rows(
            X,
            label_rules.gathered(found_labels, self.path),
            np.array(splits, dtype=str) if splits and None not in splits else None,
            np.array(names) if any(names) else None,
        )

    def _column(self, column: str, place: Place) -> int:
        if not (column.isascii() and column.isdigit() and len(column) < 19):
            raise SourceError(f"{place}: {column!r} is not a column number (from 0)")
        return gate.require_index(int(column), place, self.n_features)

    def _value(self, value: Any, column: str, place: Place) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise SourceError(
                f"{place}: the value of column {column} is {shortened(value)}, not a finite number"
            )
        if not abs(value) <= sys.float_info.max or not gate.single(float(value)):
            raise SourceError(
                f"{place}: the value of column {column} is {shortened(value)}: {gate.FITS}"
            )
        return float(value)


def _first(head: bytes) -> dict[str, Any] | None:
    """The object on the first line, or None.

    A first line that goes on past the head has features if its start does.
    """
    line, newline, _ = head.lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        if newline:
            return None
        return {"features": {}} if WITH_FEATURES.search(line) else {}
    return found if isinstance(found, dict) else None
