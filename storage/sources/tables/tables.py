"""Tables: CSV (or any delimiter) and Parquet, read by pyarrow in batches.

What can't be read in parts where it lies is laid out on scratch first, as Arrow's IPC files with
batches of a few megabytes: CSV, whose records end nobody knows where, and Parquet with large row
groups. A table of another origin has to give the names of its columns and a stream of batches.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import mmap
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from bigfs import engine
from bigfs.engine import format_bytes, require_memory
from storage import atomic
from storage.errors import SourceError
from storage.sources.base import open_decompressed, shorten_names, source_errors
from storage.sources.tables.columns import decoded
from storage.sources.tables.records import Batch, Records, TextRecords

if TYPE_CHECKING:  # it takes 70 MB, which only a worker that reads tables should pay
    import pyarrow as pa
    from pyarrow import parquet

MAX_GROUP_BYTES = 32 << 20  # of a row group that a task reads whole
BATCH_ROWS, BATCH_BYTES = 4096, 4 << 20  # of a batch
# bytes of a record of CSV: what is always taken, and what is refused whatever the memory
SMALL_RECORD, MAX_RECORD = 1 << 20, 1 << 28
LINE_LIMIT = 1 << 26  # bytes of a line of CSV's header
NO_UTF8 = "it is not UTF-8: convert the file, such as by iconv -f latin1 -t utf-8"
SUFFIXES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}


class Part(NamedTuple):
    """A batch on scratch, or a row group of Parquet."""

    file: str
    number: int
    size: int  # in bytes
    first: int = 0  # the number of its first row in the table, on scratch only


@dataclass(eq=False, kw_only=True)
class Table(Records):
    """A table, of which some columns are read."""

    on_scratch: list[Part] | None = field(default=None, init=False, repr=False)

    @abstractmethod
    def column_names(self) -> list[str]:
        """Return the names of the columns."""

    @abstractmethod
    def stream(self) -> Iterator[pa.RecordBatch]:
        """Yield the columns to read in batches of any size."""

    def check(self) -> None:
        self.columns_to_read(self.column_names())

    def columns_to_read(self, columns: list[str]) -> list[str]:
        """Return the columns to read, in the order of `wanted_fields`."""
        if len(set(columns)) < len(columns):
            twice = next(name for name in columns if columns.count(name) > 1)
            raise SourceError(f"{self.path} has two columns called {twice!r}")
        where = [("where", name) for name in self.with_condition([])]
        for role, name in [*self.named.items(), *where]:
            if name not in columns:
                raise SourceError(
                    f"{self.path} has no column {name!r}, only {shorten_names(columns) or 'none'}: "
                    f"name one of them with {role}=, or leave {role}= out"
                )
        return self.with_condition(self.wanted_fields(columns))

    def prepare(self, scratch: Path) -> Self:
        """Lay the table out on scratch."""
        scratch.mkdir(parents=True, exist_ok=True)
        ready = super().prepare(scratch)
        ready.lay_out(scratch)
        if ready.plain != self.plain:
            Path(ready.plain).unlink()  # what was decompressed
        return ready

    def lay_out(self, scratch: Path) -> None:
        """Write the stream to scratch, in a file for each schema that its batches have."""
        import pyarrow as pa

        self.on_scratch = []
        out: Any = None
        schema, number, first = None, 0, 0
        size = min(BATCH_BYTES, engine.memory_limit() // self.memory_per_byte)
        with contextlib.ExitStack() as files:
            for batch in filter(None, self.stream()):
                batch = pa.RecordBatch.from_arrays(
                    [decoded(column) for column in batch.columns], batch.schema.names
                )
                if batch.schema != schema:
                    path = scratch / f"{Path(self.path).stem}-{first}.arrow"
                    schema, number = batch.schema, 0
                    out = files.enter_context(pa.ipc.new_file(path, schema))
                rows = max(1, batch.num_rows * size // max(batch.nbytes, 1))
                for start in range(0, batch.num_rows, rows):
                    part = batch.slice(start, rows)
                    out.write_batch(part)
                    self.on_scratch.append(Part(str(path), number, part.nbytes, first))
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
            yield from self.read_part(part)

    def read_part(self, part: Part) -> Iterator[Batch]:
        import pyarrow as pa

        with pa.memory_map(part.file) as file:
            batch = pa.ipc.open_file(file).get_batch(part.number)
            yield as_batch(batch, part.first, f"{self.path}: row")


def as_batch(batch: pa.RecordBatch, first: int, where: str) -> Batch:
    """Return a batch of Arrow, of whose records the first has a number."""
    fields = dict(zip(batch.schema.names, batch.columns, strict=True))
    return Batch(fields, batch.num_rows, lambda i: f"{where} {first + i} (from 0)")


# --- CSV ------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class CsvFile(Table):
    """Comma- or tab-separated values with a header line; UTF-8, plain or compressed."""

    delimiter: str = ""  # one character, by default that of the suffix (.csv, .tsv) or a comma

    def __post_init__(self) -> None:
        super().__post_init__()
        suffixes = [s for s in Path(self.path).suffixes if s in SUFFIXES]
        self.delimiter = self.delimiter or (SUFFIXES[suffixes[-1]] if suffixes else ",")
        if len(self.delimiter) != 1:
            raise SourceError(f"delimiter must be one character; got {self.delimiter!r}")

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"delimiter": self.delimiter}

    def column_names(self) -> list[str]:
        with source_errors(f"{self.path} is broken"), open_decompressed(self.path) as file:
            return self._read_header(file)

    def _read_header(self, file: IO[bytes]) -> list[str]:
        lines = (raw.decode("utf-8-sig") for raw in iter(lambda: file.readline(LINE_LIMIT), b""))
        try:
            return next(csv.reader(lines, delimiter=self.delimiter), [])
        except (UnicodeDecodeError, csv.Error) as error:
            why = NO_UTF8 if isinstance(error, UnicodeDecodeError) else error
            raise SourceError(f"{self.path}, line 1: no header can be read: {why}") from error

    def stream(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyarrow import csv as tables

        self.length()  # which refuses an empty file
        limit = engine.memory_limit()
        block = min(max(limit // self.memory_per_byte, SMALL_RECORD), MAX_RECORD)
        with open(self.plain, "rb") as file:
            columns = self._read_header(file)
            start, raw = file.tell(), mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        wanted = self.columns_to_read(columns)
        # a record more, which a quote that is never closed swallows
        mark = uuid.uuid4().hex
        end = f"\n{self.delimiter.join([mark] * len(columns))}\n".encode()
        count, is_closed = 0, False
        try:
            for batch in tables.open_csv(
                _Bytes([memoryview(raw)[start:], memoryview(end)]),
                read_options=tables.ReadOptions(
                    column_names=columns, use_threads=False, block_size=block
                ),
                parse_options=tables.ParseOptions(
                    delimiter=self.delimiter, newlines_in_values=True
                ),
                convert_options=tables.ConvertOptions(
                    include_columns=wanted,
                    column_types={name: pa.string() for name in wanted},
                    strings_can_be_null=True,
                    null_values=[""],
                ),
            ):
                is_closed = bool(batch) and batch.column(0)[-1].as_py() == mark
                yield batch.slice(0, batch.num_rows - is_closed)
                count += batch.num_rows
                raw.madvise(mmap.MADV_DONTNEED)  # what was read counts as memory of the process
        except pa.ArrowInvalid as error:
            text = str(error).splitlines()[0]
            if "straddling" in text:
                what = f"{self.path}, after record {count}: a record of more than "
                what += f"{format_bytes(block)} cannot be cut and"
                require_memory(2 * block * self.memory_per_byte, what, limit)
                raise SourceError(f"{what} is too long") from error
            if mark not in str(error):
                why = NO_UTF8 if "UTF8" in text else f"{text}: check the delimiter and the quotes"
                raise SourceError(f"{self.path}, after the header: {why}") from error
        if not is_closed:
            raise SourceError(f"{self.path} has a quote that is never closed")


class _Bytes:
    """What pyarrow reads: parts of memory, one after the other, which it does not copy."""

    closed = False

    def __init__(self, parts: list[memoryview]) -> None:
        self.parts = parts

    def read(self, size: int) -> memoryview | bytes:
        while self.parts and not self.parts[0]:
            self.parts.pop(0)
        if not self.parts:
            return b""
        part, self.parts[0] = self.parts[0][:size], self.parts[0][size:]
        return part


@dataclass(eq=False, kw_only=True)
class Csv(CsvFile, TextRecords):
    """Comma- or tab-separated values with a text column."""

    format = "csv"

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return bool(set(path.suffixes) & set(SUFFIXES)) and bool(head) and b"\0" not in head


# --- Parquet --------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class ParquetFile(Table):
    """A Parquet file, or a folder of them."""

    def column_names(self) -> list[str]:
        """Return the names of the columns of the first file."""
        if not (files := self.files()):
            raise SourceError(f"{self.path} holds no .parquet file")
        with self._open(str(files[0])) as table:
            return list(table.schema_arrow.names)

    def files(self) -> list[Path]:
        path = Path(self.path)
        return sorted(path.glob("*.parquet")) if path.is_dir() else [path]

    def prepare(self, scratch: Path) -> Self:
        """Lay out a table with large row groups, as some writers put a whole file into one."""
        if max((group.size for group in self._groups()), default=0) <= MAX_GROUP_BYTES:
            return copy.copy(self)
        return super().prepare(scratch)

    def stream(self) -> Iterator[pa.RecordBatch]:
        for file in map(str, self.files()):
            with self._open(file, pre_buffer=False) as table, _arrow_errors(f"{file} is broken"):
                yield from self._read(table)

    def _groups(self) -> list[Part]:
        groups = []
        for file in map(str, self.files()):
            with self._open(file) as table:
                self.columns_to_read(table.schema_arrow.names)
                for i in range(table.num_row_groups):
                    group = table.metadata.row_group(i)
                    if group.num_rows:
                        groups.append(Part(file, i, group.total_byte_size))
        return groups

    def parts(self) -> list[Part]:
        return (self.on_scratch is None and self._groups()) or super().parts()

    def read_part(self, part: Part) -> Iterator[Batch]:
        if self.on_scratch is not None:
            yield from super().read_part(part)
            return
        first, where = 0, f"{part.file}, row group {part.number}"
        with self._open(part.file) as table, _arrow_errors(f"{where} is broken"):
            for batch in self._read(table, row_groups=[part.number]):
                yield as_batch(batch, first, f"{where}: row")
                first += batch.num_rows

    def _read(self, table: parquet.ParquetFile, **groups: Any) -> Iterator[pa.RecordBatch]:
        columns = self.columns_to_read(table.schema_arrow.names)
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES // (8 * len(columns))))
        return table.iter_batches(rows, columns=columns, use_threads=False, **groups)

    def _open(self, file: str, **settings: Any) -> parquet.ParquetFile:
        from pyarrow import parquet

        with _arrow_errors(f"{file} is not a whole Parquet file"):
            return parquet.ParquetFile(file, **settings)


@dataclass(eq=False, kw_only=True)
class Parquet(ParquetFile, TextRecords):
    """A table of Parquet with a text column."""

    format = "parquet"

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return any(path.glob("*.parquet")) if path.is_dir() else head.startswith(b"PAR1")


@contextlib.contextmanager
def _arrow_errors(what: str) -> Iterator[None]:
    """Turn an error of pyarrow into a SourceError of one line."""
    import pyarrow as pa

    try:
        yield
    except (SourceError, FileNotFoundError):
        raise
    except (pa.ArrowException, ValueError, OSError) as error:
        if atomic.is_full(error):
            raise  # the file itself is right
        raise SourceError(f"{what}: {str(error).splitlines()[0]}") from error
