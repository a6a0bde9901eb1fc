"""Tables: CSV (or any delimiter) and Parquet, read by pyarrow in batches, and those with a text.

CSV is cut where records end, at line ends outside quotes, which one scan finds. Parquet is cut
between its row groups. A folder of Parquet files is one table.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import io
import itertools
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from storage import atomic
from storage.errors import SourceError
from storage.sources.base import Document, open_decompressed, shorten_names, source_errors
from storage.sources.tables.records import RecordFile, TextRecords

if TYPE_CHECKING:  # it takes 70 MB, which only a worker that reads tables should pay
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

MAX_GROUP_BYTES = 32 << 20  # of a row group that a task reads whole
# of Parquet: rows held at a time, and their bytes when row groups are rewritten
BATCH_ROWS, BATCH_BYTES = 4096, 4 << 20
SCAN_BYTES = 1 << 22  # bytes of CSV scanned at a time
NO_UTF8 = "it is not UTF-8: convert the file, such as by iconv -f latin1 -t utf-8"
HEADER_LIMIT = 1 << 26  # bytes of a line of the header
SUFFIXES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}


@dataclass(eq=False, kw_only=True)
class Table(RecordFile):
    """A table, of which some columns are read."""

    @abstractmethod
    def column_names(self) -> list[str]:
        """Return the names of the columns."""

    @abstractmethod
    def wanted_columns(self, columns: list[str]) -> list[str]:
        """Return the columns to read of those that are there."""

    @abstractmethod
    def batches(self, piece: Any) -> Iterator[tuple[pa.RecordBatch, int, str]]:
        """Yield the batches of a piece, each with the number of its first record and its place."""

    def check(self) -> None:
        self._columns_to_read(self.column_names())

    def _columns_to_read(self, columns: list[str]) -> list[str]:
        """Return the columns to read, in the order of `wanted_columns`."""
        if len(set(columns)) < len(columns):
            twice = next(name for name in columns if columns.count(name) > 1)
            raise SourceError(f"{self.path} has two columns called {twice!r}")
        for role, name in self.named.items():
            if name not in columns:
                raise SourceError(
                    f"{self.path} has no column {name!r}, only {shorten_names(columns) or 'none'}: "
                    f"name one of them with {role}=, or leave {role}= out"
                )
        return self.wanted_columns(columns)


@dataclass(eq=False, kw_only=True)
class TextTable(Table, TextRecords):
    """A table with a text column."""

    def wanted_columns(self, columns: list[str]) -> list[str]:
        if self.text not in columns:
            raise SourceError(
                f"{self.path} has no column {self.text!r}, only "
                f"{shorten_names(columns)}: name it with text=, or the columns of a table of "
                f"numbers with columns="
            )
        return [name for name in dict.fromkeys((self.text, *self.roles)) if name in columns]

    def read(self, piece: Any) -> Iterator[Document]:
        for batch, first, where in self.batches(piece):
            columns = (column_values(batch, name) for name in (self.text, *self.roles))
            for i, (text, label, split, name) in enumerate(zip(*columns, strict=True), first):
                if text is not None and not isinstance(text, str):
                    kind = batch.schema.field(self.text).type
                    raise SourceError(f"{self.path}: column {self.text!r} holds {kind}, not text")
                yield self.document(text or "", label, split, name, f"{where} {i} (from 0)")


def column_values(batch: pa.RecordBatch, column: str) -> list[Any]:
    """Return the values of a column, None where there is no such column."""
    if column not in batch.schema.names:
        return [None] * batch.num_rows
    values: list[Any] = batch.column(column).to_pylist()
    return values


# --- CSV ------------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class CsvTable(Table):
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
        return self._header()[0]

    def pieces(self, size: int) -> list[tuple[int, int]]:
        """Return byte ranges that begin and end between records. The first holds the header."""
        from storage.sources.tables import csv_kernel  # compiled at its first use

        length, (_, at) = self.length(), self._header()
        cuts, aim, state = [0], size, csv_kernel.BEGIN
        with open(self.plain, "rb") as file:
            file.seek(at)
            while chunk := file.read(SCAN_BYTES):
                raw = np.frombuffer(chunk, np.uint8)
                more, aim, state = csv_kernel.cut_records(
                    raw, at, aim, size, state, ord(self.delimiter)
                )
                cuts += more.tolist()
                at += len(raw)
        if state == csv_kernel.QUOTED:
            raise SourceError(f"{self.path} has a quote that is never closed")
        if cuts[-1] < length:
            cuts.append(length)
        for start, stop in itertools.pairwise(cuts):
            # the part beyond `size` is one record
            self.require_record_fits(stop - start - size, f"{self.path}, after byte {start}")
        return list(itertools.pairwise(cuts))

    def batches(self, piece: tuple[int, int]) -> Iterator[tuple[pa.RecordBatch, int, str]]:
        import pyarrow as pa
        from pyarrow import csv as tables

        start, stop = piece
        columns, after = self._header()
        wanted = self._columns_to_read(columns)
        with open(self.plain, "rb") as file:
            file.seek(max(start, after))
            raw = file.read(max(0, stop - file.tell()))
        if not raw.strip():
            return
        try:
            reader = tables.open_csv(
                io.BytesIO(raw),
                read_options=tables.ReadOptions(
                    column_names=columns, use_threads=False, block_size=max(len(raw), 1)
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
            )
            first = 0
            for batch in reader:
                yield batch, first, f"{self.path}, after byte {start}: record"
                first += batch.num_rows
        except pa.ArrowInvalid as error:
            text = str(error).splitlines()[0]
            raise SourceError(
                f"{self.path}, bytes {start} … {stop}: {NO_UTF8 if 'UTF8' in text else text}"
            ) from error

    def _header(self) -> tuple[list[str], int]:
        """Return the names of the columns, and the byte at which the records begin."""
        after = 0

        def lines(file: IO[bytes]) -> Iterator[str]:
            nonlocal after
            while True:
                with source_errors(f"{self.path} is broken"):
                    line = file.readline(HEADER_LIMIT)
                if not line:
                    return
                text = line.decode("utf-8" if after else "utf-8-sig")
                after += len(line)
                yield text

        try:
            with open_decompressed(self.plain) as file:
                columns = next(csv.reader(lines(file), delimiter=self.delimiter), [])
        except (UnicodeDecodeError, csv.Error) as error:
            why = NO_UTF8 if isinstance(error, UnicodeDecodeError) else error
            raise SourceError(f"{self.path}, line 1: no header can be read: {why}") from error
        return columns, after


@dataclass(eq=False, kw_only=True)
class Csv(CsvTable, TextTable):
    """Comma- or tab-separated values with a text column."""

    format = "csv"

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return bool(set(path.suffixes) & set(SUFFIXES)) and bool(head) and b"\0" not in head


# --- Parquet --------------------------------------------------------------------------------------


class RowGroup(NamedTuple):
    """A row group of a Parquet file."""

    file: str
    number: int
    size: int


@dataclass(eq=False, kw_only=True)
class ParquetTable(Table):
    """A Parquet file, or a folder of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.folder: str | None = None  # of files rewritten with small row groups

    @property
    def batch_rows(self) -> int:
        """The rows that are read at a time."""
        return BATCH_ROWS

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
        """Rewrite files with large row groups in small ones.

        A row group is the smallest part that can be read alone, and some writers put a whole file
        into one.
        """
        if max((group.size for group in self._groups()), default=0) <= MAX_GROUP_BYTES:
            return self
        ready = copy.copy(self)
        ready.folder = str(Path(scratch) / f"{Path(self.path).stem}-{self.fingerprint()}")
        Path(ready.folder).mkdir(parents=True, exist_ok=True)
        for file in self.files():
            self._rewrite(str(file), Path(ready.folder) / file.name)
        return ready

    def _rewrite(self, file: str, target: Path) -> None:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        with self._open(file, pre_buffer=False) as table, _arrow_errors(f"{file} is broken"):
            wanted = self._columns_to_read(table.schema_arrow.names)
            schema = pa.schema([table.schema_arrow.field(name) for name in wanted])
            metadata = table.metadata
            size = sum(metadata.row_group(i).total_byte_size for i in range(table.num_row_groups))
            rows = max(1, min(BATCH_ROWS, BATCH_BYTES * metadata.num_rows // max(size, 1)))
            with ParquetWriter(target, schema, compression="lz4") as out:
                for batch in table.iter_batches(rows, columns=wanted, use_threads=False):
                    out.write_batch(batch)

    def _groups(self) -> Iterator[RowGroup]:
        for file in self.files():
            file = file if self.folder is None else Path(self.folder) / file.name
            with self._open(str(file)) as table:
                self._columns_to_read(table.schema_arrow.names)
                groups = [table.metadata.row_group(i) for i in range(table.num_row_groups)]
            for i, group in enumerate(groups):
                if group.num_rows:
                    yield RowGroup(str(file), i, group.total_byte_size)

    def pieces(self, size: int) -> list[RowGroup]:
        """Return the row groups, whatever `size`."""
        groups = list(self._groups())
        if not groups:
            raise SourceError(f"{self.path} holds no rows")
        return groups

    def weight(self, piece: RowGroup) -> int:
        return piece.size

    def batches(self, piece: RowGroup) -> Iterator[tuple[pa.RecordBatch, int, str]]:
        first = 0
        where = f"{piece.file}, row group {piece.number}"
        with self._open(piece.file) as table, _arrow_errors(f"{where} is broken"):
            columns = self._columns_to_read(table.schema_arrow.names)
            for batch in table.iter_batches(
                self.batch_rows, row_groups=[piece.number], columns=columns, use_threads=False
            ):
                yield batch, first, f"{where}: row"
                first += batch.num_rows

    def _open(self, file: str, **settings: Any) -> ParquetFile:
        from pyarrow.parquet import ParquetFile

        with _arrow_errors(f"{file} is not a whole Parquet file"):
            return ParquetFile(file, **settings)


@dataclass(eq=False, kw_only=True)
class Parquet(ParquetTable, TextTable):
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
