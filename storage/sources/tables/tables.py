"""Tables, and CSV (or any delimiter) among them, read by pyarrow in batches.

A table that cannot be read in parts where it lies is laid out on scratch first, as Arrow's IPC
files with batches of a few megabytes: CSV, whose records end nobody knows where, and Parquet with
large row groups. A table of another origin has to give the names of its columns and a stream of
batches.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import itertools
import json
import os
import re
import uuid
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, Self
from urllib.parse import quote as quote_url

import numpy as np

from bigfs import engine
from bigfs.engine import format_bytes, require_memory
from bigfs.settings import Setting
from bigfs.storage.downloads import remote
from bigfs.storage.errors import SourceError, redact
from bigfs.storage.lazy import compute, pa
from bigfs.storage.sources.base import PlainFile, shorten, shorten_names
from bigfs.storage.sources.files import no_text, open_text, source_errors
from bigfs.storage.sources.tables.columns import decode_batch, without
from bigfs.storage.sources.tables.records import PACKED, Batch, Packed, Records, TextRecords

BATCH_ROWS = 4096
BATCH_BYTES = Setting(4 << 20)  # of a batch
# that a value counts as, at least: a file may encode it in less, and its entry takes no less memory
VALUE_BYTES = 4
# bytes of a record of CSV that always fits, and of one that is refused whatever the memory
SMALL_RECORD, MAX_RECORD = 1 << 20, 1 << 28
# bytes that pyarrow takes for a column of CSV which it reads, and for one that it leaves out
# (measured at 10,000 to 100,000 columns: 6,700 to 7,500, and 1,100)
READ_COLUMN, SKIPPED_COLUMN = 8000, 1200
WIDE = Setting(10_000)  # columns of a CSV that pyarrow reads at most
WIDE_COLUMN = 1000  # bytes that a column of a wider one takes, whose values are packed
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
LEAST_AXIS = 8  # names of columns, which may be numbers that rise in other steps than 1
HEAD_RECORDS = 256  # that are looked at to tell what a table holds
LINE_LIMIT = 1 << 26  # bytes of a line of CSV's header
QUOTE = b'"'
LINE_ENDS = 1 << 12  # bytes at the end of a CSV, in which blank lines are no records
NO_UTF8 = "it is not UTF-8: give its encoding=, such as cp1252, latin-1 or utf-16"
SUFFIXES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}


class Part(NamedTuple):
    """A batch on scratch, a row group of Parquet or a record batch of Arrow."""

    file: str
    number: int
    size: int  # in bytes
    # on scratch only: the file or table that it comes from, and the number of its first row there
    origin: str = ""
    first: int = 0
    listed: remote.Listed | None = None  # what the server says of the file, behind a URL


@dataclass(eq=False, kw_only=True)
class Table(Records):
    """A table, of which some columns are read."""

    on_scratch: list[Part] | None = field(default=None, init=False, repr=False)
    scratch: Path | None = field(default=None, init=False, repr=False)

    @abstractmethod
    def columns_of(self, file: str) -> list[str]:
        """Return the names of the columns of a file, those that its folders name too."""

    def column_names(self) -> list[str]:
        """Return the names of the columns of the first file."""
        if not (files := self.files()):
            raise SourceError(f"{self.path} holds no file {' or '.join(self.suffixes)}")
        return self.columns_of(files[0])

    @abstractmethod
    def streams(self) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
        """Yield the name of each file, and the columns to read in batches of any size."""

    def head(self) -> Batch | None:
        """Return the first records with all columns to read, None if there is no file."""
        return None

    def check(self) -> None:
        super().check()
        self.columns_to_read(self.column_names())

    def columns_to_read(self, columns: list[str]) -> list[str]:
        """Return the columns to read, in the order of `wanted_fields`."""
        if len(set(columns)) < len(columns):
            [(twice, _)] = Counter(columns).most_common(1)
            raise SourceError(f"{self.path} has two columns called {twice!r}")
        for role, name in self.named_fields:
            if name not in columns:
                advice = f"name one of them with {role}=, or leave {role}= out"
                if self.has_halves:  # as of a competition, whose test file has no labels
                    advice = (
                        "give the training file alone and the other as test= (--test), or " + advice
                    )
                raise SourceError(
                    f"{self.path} has no column {name!r}, only {shorten_names(columns) or 'none'}: "
                    f"{advice}"
                )
        return self.with_condition(self.wanted_fields(columns))

    def same_files(self) -> Iterator[str]:
        """Yield the files, which must have the columns of the first."""
        first = None
        for file in self.files():
            names = self.columns_of(file)
            if first is None:
                first, wanted = file, self.columns_to_read(names)
            lacks = sorted(set(wanted) - set(names))
            more = [] if lacks else sorted(set(self.columns_to_read(names)) - set(wanted))
            if lacks or more:
                advice = ", or the training file alone and the other as test= (--test)" * bool(
                    self.has_halves
                )
                raise SourceError(
                    f"{redact(file)} {'lacks' if lacks else 'has also'} the columns "
                    f"{shorten_names(lacks or more)}, other than {redact(first)}: give files "
                    f"with the same columns{advice}, or name those that all have"
                )
            yield file

    def prepare(self, scratch: Path) -> Self:
        """Lay the table out on scratch."""
        scratch.mkdir(parents=True, exist_ok=True)
        ready = copy.copy(self)
        ready.lay_out(scratch)
        return ready

    def lay_out(self, scratch: Path) -> None:
        """Write the stream to scratch, in a file for each schema that its batches have."""
        self.scratch, self.on_scratch = scratch, []
        out: Any = None
        schema, number, name = None, 0, 0
        size = min(BATCH_BYTES.value, engine.memory_limit() // self.memory_per_byte)
        with contextlib.ExitStack() as files:
            for origin, batches in self.streams():
                first = 0
                for some in batches:
                    batch = _with_nulls_of(decode_batch(some), schema)
                    if batch.schema != schema:
                        files.close()  # the schema's stream before
                        path = scratch / f"table-{name}.arrow"
                        schema, number, name = batch.schema, 0, name + 1
                        out = files.enter_context(pa.ipc.new_file(path, schema))
                    values = batch.num_rows * batch.num_columns
                    total = max(int(batch.nbytes), VALUE_BYTES * values)
                    rows = max(1, batch.num_rows * size // max(total, 1))
                    for start in range(0, batch.num_rows, rows):
                        part = batch.slice(start, rows)
                        out.write_batch(part)
                        counted = -(-total * part.num_rows // batch.num_rows)
                        self.on_scratch.append(Part(str(path), number, counted, origin, first))
                        number, first = number + 1, first + part.num_rows

    def parts(self) -> list[Part]:
        """Return the parts of the table in order, of which there must be some."""
        if not self.on_scratch:
            raise SourceError(f"{self.path} holds no rows")
        return self.on_scratch

    def pieces(self, size: int) -> list[list[Part]]:
        """Return lists of parts of `size` bytes together, at least a part each."""
        pieces: list[list[Part]] = []
        room = 0
        for part in self.parts():
            if part.size > room:
                pieces.append([])
                room = size
            pieces[-1].append(part)
            room -= part.size
        return pieces

    def weight(self, piece: list[Part]) -> int:
        return sum(part.size for part in piece)

    def all_batches(self, piece: list[Part]) -> Iterator[Batch]:
        for part in piece:
            with pa.memory_map(part.file) as file:
                batch = pa.ipc.open_file(file).get_batch(part.number)
                yield as_batch(batch, part.first, f"{part.origin}: row")


def _with_nulls_of(batch: pa.RecordBatch, schema: pa.Schema | None) -> pa.RecordBatch:
    """Return a batch whose empty columns have the types that they had before."""
    if schema is None or batch.schema.names != schema.names or pa.null() not in batch.schema.types:
        return batch
    fields = zip(batch.columns, schema, strict=True)
    columns = [c.cast(field.type) if pa.types.is_null(c.type) else c for c, field in fields]
    return pa.RecordBatch.from_arrays(columns, schema.names, metadata=batch.schema.metadata)


def with_partitions(columns: Sequence[str], partitions: Mapping[str, str | None]) -> list[str]:
    """Return the columns of a file and those that its folders name."""
    there = set(columns)
    return [*columns, *(name for name in partitions if name not in there)]


def add_partitions(
    batch: pa.RecordBatch, partitions: Mapping[str, str | None], wanted: Sequence[str]
) -> pa.RecordBatch:
    """Return a batch with the wanted columns that the folders of its file name."""
    names = set(batch.schema.names)
    for name in wanted:
        if name in partitions and name not in names:
            values = pa.repeat(pa.scalar(partitions[name], pa.string()), batch.num_rows)
            batch = batch.append_column(name, values)
    return batch


def as_batch(batch: pa.RecordBatch, first: int, where: str) -> Batch:
    """Return a batch of Arrow, of whose records the first has a number."""
    fields: Any = dict(zip(batch.schema.names, batch.columns, strict=True))
    if names := (batch.schema.metadata or {}).get(PACKED.encode()):
        fields = Packed(fields, json.loads(names))
    return Batch(fields, batch.num_rows, lambda i: f"{where} {first + i} (from 0)")


# --- CSV ------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class CsvFile(Table):
    """Comma- or tab-separated values with a header line; UTF-8, plain or compressed."""

    version = 3  # 2 left out blank lines of one column, and took a stray quote for one of a field
    suffixes = tuple(SUFFIXES)
    labels_are_typed = False
    delimiter: str = ""  # one character, by default by the suffix (.csv, .tsv) or a comma
    encoding: str | None = None  # of the bytes, by a name that Python knows; None is UTF-8
    # whether the first line names the columns, which else are 0, 1 … None takes it for a header,
    # and refuses one of numbers that do not rise
    header: bool | None = None
    # the letter around fields that hold delimiters or line breaks, or "none". None is ", and
    # refuses line breaks inside of fields that are divided by tabs
    quote: str | None = None
    escape: str | None = None  # the letter before one that is to be read as it is, as \ for Spark
    decimal: str = "."  # the letter before the decimals of a number

    def __post_init__(self) -> None:
        super().__post_init__()
        first = next(iter(self.files()), self.path)
        suffixes = [s for s in Path(first).suffixes if s in SUFFIXES]
        self.delimiter = self.delimiter or (SUFFIXES[suffixes[-1]] if suffixes else ",")
        if len(self.delimiter) != 1:
            raise SourceError(f"delimiter must be one character; got {self.delimiter!r}")
        letters = {"escape": self.escape, "decimal": self.decimal}
        letters["quote"] = None if self.quote == "none" else self.quote
        for option, letter in letters.items():
            if letter is not None and len(letter.encode()) != 1:
                raise SourceError(
                    f"{option}= must be one letter of ASCII"
                    f"{', or none' if option == 'quote' else ''}; got {letter!r}"
                )

    def as_numbers(self, values: Any) -> Any:
        if self.decimal != ".":  # numbers have no other points
            values = compute.replace_substring(values, ".", "no number")
            values = compute.replace_substring(values, self.decimal, ".")
        return super().as_numbers(values)

    def columns_of(self, file: str) -> list[str]:
        with source_errors(f"{file} is broken"), open_text(file, self.encoding) as text:
            names = [name.strip(" ") for name in self._read_header(text, file)]
            return with_partitions(names, self.partitions_of(file))

    def _records(self, file: IO[bytes], limit: int = LINE_LIMIT) -> Any:
        """Return Python's reader of the records of CSV."""
        lines = iter(lambda: file.readline(limit), b"")
        return csv.reader(
            (raw.decode("utf-8-sig" if i == 0 else "utf-8") for i, raw in enumerate(lines)),
            delimiter=self.delimiter,
            quotechar='"' if self.quote in (None, "none") else self.quote,
            quoting=csv.QUOTE_NONE if self.quote == "none" else csv.QUOTE_MINIMAL,
            escapechar=self.escape,
            strict=True,
        )

    def _read_header(self, file: IO[bytes], path: str) -> list[str]:
        """Read the names of the columns, with the blanks around them."""
        quote = '"' if self.quote in (None, "none") else self.quote
        try:
            names: list[str] = next(self._records(file), [])
        except (UnicodeDecodeError, csv.Error) as error:
            why: object = error
            if isinstance(error, UnicodeDecodeError) or "NUL" in str(error):
                why = f"it is not {self.encoding}" if self.encoding else NO_UTF8
            raise SourceError(f"{path}, line 1: no header can be read: {why}") from error
        if len(names) == 1 and (other := next((c for c in ";\t|" if c in names[0]), None)):
            raise SourceError(
                f"{path}, line 1: there is one column, and its name {shorten(names[0])} seems to "
                f"be divided by {other!r}: give delimiter={quote_url(other)}"
            )
        if self.header is False:
            return [str(j) for j in range(len(names))]
        if self.quote != "none" and any(map(re.compile(rf"\s*{re.escape(quote)}").match, names)):
            raise SourceError(
                f"{path}, line 1: blanks come before the quote of {names[-1].strip()!a}, which "
                f"would be a part of the field: remove the blanks after the delimiters"
            )
        if self.header is None and _are_values(names):
            raise SourceError(
                f"{path}, line 1: the names of the columns would be numbers, such as "
                f"{shorten_names(names, 3)}: give header=false if it is the first sample, or "
                f"header=true if these are names"
            )
        return names

    def head(self) -> Batch | None:
        path = self.files()[0]
        with source_errors(f"{path} is broken"), open_text(path, self.encoding) as file:
            names = [name.strip(" ") for name in self._read_header(file, path)]
            try:
                some = list(itertools.islice(self._records(file), HEAD_RECORDS))
            except (UnicodeDecodeError, csv.Error):  # which is refused where it is read
                return None
        records = [record for record in some if len(record) == len(names)]
        columns = [pa.array(values, pa.string()) for values in zip(*records, strict=True)]
        if not columns:
            return None
        batch = pa.RecordBatch.from_arrays(columns, names)
        batch = add_partitions(batch, self.partitions_of(path), self.columns_to_read(names))
        return as_batch(batch, 0, f"{path}: row")

    def streams(self) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
        for file in self.same_files():
            yield file, self._with_path(file).stream_file()

    def stream_file(self) -> Iterator[pa.RecordBatch]:
        """Yield the columns to read of one file, which is decompressed to scratch meanwhile."""
        assert self.scratch is not None
        ready = PlainFile.prepare(self, self.scratch)
        yield from ready._stream_plain()
        if ready.plain != self.plain:
            Path(ready.plain).unlink()

    def require_quotes(self) -> None:
        """Refuse a field whose quotes end before it does, as its first one is a letter."""
        line, limit = 0, csv.field_size_limit(MAX_RECORD)
        try:
            with open(self.plain, "rb") as file:
                records = self._records(file, MAX_RECORD)
                for _ in records:
                    line = records.line_num
        except UnicodeDecodeError:
            pass  # which is refused where it is read
        except csv.Error as error:
            if "expected after" in str(error):
                raise SourceError(
                    f"{self.path}, line {line + 1}: a field begins with a quote, and letters "
                    f"follow the quote that ends it: give quote=none if a quote is a letter, "
                    f"escape=%5C if a backslash stands before the quotes inside of fields, or "
                    f"quote=%22 if all is right"
                ) from error
        finally:
            csv.field_size_limit(limit)

    def _refuse_breaks(self, batch: pa.RecordBatch, count: int) -> None:
        """Refuse a field over several lines, which a letter that is no quote may have made."""
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            broken = compute.index(compute.match_substring(values, "\n"), True).as_py()
            if broken >= 0:
                raise SourceError(
                    f"{self.path}, record {count + broken} (from 0): {name!r} begins with a quote "
                    f"and runs over several lines: give quote=none if a quote is a letter, or "
                    f"quote=%22 if fields may hold line breaks"
                )

    def _stream_plain(self) -> Iterator[pa.RecordBatch]:
        from pyarrow import csv as tables

        size = self.length()  # an empty file is refused
        with open(self.plain, "rb") as file:
            file.seek(-min(size, LINE_ENDS), os.SEEK_END)
            last = file.read()
            ends = last[len(last.rstrip(b"\r\n")) :]  # of which all but the first are blank lines
            size -= len(ends.removeprefix(b"\r").removeprefix(b"\n"))
            file.seek(0)
            names = self._read_header(file, self.path)
            columns = [name.strip(" ") for name in names]
            start = 0 if self.header is False else file.tell()
        wanted = self.columns_to_read(with_partitions(columns, self.partitions))
        there = set(columns)
        included = [name for name in wanted if name in there]
        if len(columns) > WIDE.value:
            for part in self._stream_wide(start, columns, included, columns != names):
                yield add_partitions(part, self.partitions, wanted)
            return
        limit, held = engine.memory_limit(), SKIPPED_COLUMN * (len(columns) - len(included))
        held += READ_COLUMN * len(included)
        require_memory(held, f"reading {len(included):,} columns of {self.path}", limit)
        block = min(max((limit - held) // self.memory_per_byte, SMALL_RECORD), MAX_RECORD)
        # a record more, which a quote that is never closed swallows
        mark = uuid.uuid4().hex
        end = ("" if ends else "\n") + self.delimiter.join([mark] * len(columns)) + "\n"
        count, is_closed = 0, False
        try:
            for batch in tables.open_csv(
                _Lines(self, start, size, end.encode()),
                read_options=tables.ReadOptions(
                    column_names=columns, use_threads=False, block_size=block
                ),
                parse_options=tables.ParseOptions(
                    delimiter=self.delimiter,
                    quote_char=False if self.quote == "none" else self.quote or '"',
                    escape_char=self.escape or False,
                    newlines_in_values=self.quote != "none",
                    ignore_empty_lines=len(columns) > 1,  # else they are records without a value
                ),
                convert_options=tables.ConvertOptions(
                    include_columns=included,
                    column_types={name: pa.string() for name in included},
                    strings_can_be_null=True,
                    null_values=[""],
                ),
            ):
                is_closed = bool(batch) and batch.column(0)[-1].as_py() == mark
                part = batch.slice(0, batch.num_rows - is_closed)
                if self.quote is None and self.delimiter == "\t":
                    self._refuse_breaks(part, count)
                if columns != names:  # the writer puts blanks behind its commas
                    values = list(map(_trimmed, part.columns))
                    part = pa.RecordBatch.from_arrays(values, part.schema.names)
                yield add_partitions(part, self.partitions, wanted)
                count += batch.num_rows
        except pa.ArrowInvalid as error:
            text = str(error).splitlines()[0]
            if "straddling" in text:
                what = f"{self.path}, after record {count}: a record of more than "
                what += f"{format_bytes(block)} cannot be cut and"
                require_memory(2 * block * self.memory_per_byte, what, limit)
                raise SourceError(f"{what} is too long") from error
            if mark not in str(error):
                why = NO_UTF8 if "UTF8" in text else f"{text}: check the delimiter and the quotes"
                if f"Expected {len(columns)} columns, got {len(columns) + 1}" in text:
                    why += ", or give the first column a name, which R leaves out of its tables"
                raise SourceError(f"{self.path}, after the header: {why}") from error
        if not is_closed:
            raise SourceError(f"{self.path} has a quote that is never closed")

    def _stream_wide(
        self, start: int, columns: list[str], included: list[str], has_blanks: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a wide table packed in lists: Arrow takes kilobytes for each."""
        limit, count = engine.memory_limit(), 0
        what = f"reading {len(included):,} columns of {self.path}"
        require_memory(WIDE_COLUMN * len(included), what, limit)
        place = {name: j for j, name in enumerate(columns)}
        fields = [place[name] for name in included]
        rows: list[pa.Array] = []
        try:
            with open(self.plain, "rb") as file:
                file.seek(start)
                for record in self._records(file, limit // self.memory_per_byte):
                    if len(record) != len(columns):
                        if not record:
                            continue
                        raise SourceError(
                            f"{self.path}: record {count + len(rows)} (from 0) has {len(record):,} "
                            f"values, and the header has {len(columns):,} names: check the "
                            f"delimiter and the quotes"
                        )
                    values = pa.array(map(record.__getitem__, fields), pa.large_string())
                    rows.append(_trimmed(values) if has_blanks else values)
                    if sum(row.nbytes for row in rows) > BATCH_BYTES.value:
                        yield pack(pa.concat_arrays(rows), included)
                        count += len(rows)
                        rows.clear()
        except (UnicodeDecodeError, csv.Error) as error:
            is_utf8 = isinstance(error, csv.Error)
            raise SourceError(
                f"{self.path}, record {count + len(rows)} (from 0): {error if is_utf8 else NO_UTF8}"
            ) from error
        if rows:
            yield pack(pa.concat_arrays(rows), included)


def pack(values: pa.Array, names: Sequence[str]) -> pa.RecordBatch:
    """Return the values of records, one record after the other, as a column of lists."""
    lists = pa.FixedSizeListArray.from_arrays(without(values, ("",)), len(names))
    schema = pa.schema({PACKED: lists.type}, metadata={PACKED: json.dumps(names)})
    return pa.record_batch([lists], schema=schema)


def _trimmed(values: pa.Array) -> pa.Array:
    """Return texts without blanks at their ends."""
    return without(compute.utf8_trim(values, " "), ("",))


def _are_values(names: Sequence[str]) -> bool:
    """Return whether most names of columns are numbers that neither count nor rise as an axis."""
    numbers = [float(name) for name in names if NUMBER.fullmatch(name)]
    steps = [b - a for a, b in itertools.pairwise(numbers)]
    is_axis = set(steps) <= {1.0} or (len(numbers) >= LEAST_AXIS and min(steps) > 0)
    return 2 * len(numbers) > len(names) > 1 and not is_axis


class _Lines:
    """The part of a file that pyarrow reads: the bytes from `start` to `size`, and then an `end`.

    Its quotes are looked at as they come. A field is in quotes if it begins with one, and a quote
    inside is written twice.
    """

    closed = False

    def __init__(self, source: CsvFile, start: int, size: int, end: bytes) -> None:
        self.source, self.at, self.size, self.end = source, start, max(start, size), end
        self.between = np.frombuffer(source.delimiter.encode() + b"\r\n", np.uint8)
        self.before, self.rest = (
            b"\n",
            b"",
        )  # the letter before the next ones, and quotes at the end
        self.is_open = False  # whether the next quote ends a field
        self.checks = source.quote is None and source.escape is None

    def read(self, size: int) -> bytes:
        if size := min(size, self.size - self.at):
            with open(self.source.plain, "rb") as file:
                file.seek(self.at)
                raw = file.read(size)
            if not raw:
                raise SourceError(
                    f"{self.source.path} was cut while it was read: repeat the command when "
                    f"nothing writes to it"
                )
            self.at += len(raw)
        else:
            raw, self.end = self.end, b""
        if self.checks and not self._take_turns(raw):
            self.checks = False
            self.source.require_quotes()
        return raw

    def _take_turns(self, raw: bytes) -> bool:
        """Return whether each quote begins or ends a field, or is one of two."""
        text = self.rest + raw
        raw = text.rstrip(QUOTE)  # what follows the others decides what they are
        before, self.rest = self.before, text[len(raw) :]
        self.before = raw[-1:] or before
        if QUOTE not in raw:
            return True
        content = np.frombuffer(before + raw, np.uint8)
        at = np.flatnonzero(content[1:] == QUOTE[0])
        begins, ends = (np.isin(content[at + i], self.between) for i in (0, 2))
        is_double = content[at + 2] == QUOTE[0]
        is_end = (np.arange(len(at)) + self.is_open) % 2 == 1
        self.is_open = not is_end[-1]
        is_second = np.append(False, is_double[:-1])
        return bool(np.where(is_end, ends | is_double, begins | is_second).all())


@dataclass(eq=False, kw_only=True)
class Csv(CsvFile, TextRecords):
    """Comma- or tab-separated values with a text column."""

    format = "csv"

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return bool(set(path.suffixes) & set(SUFFIXES)) and bool(head) and not no_text(head)
