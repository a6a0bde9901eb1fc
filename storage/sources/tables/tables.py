"""Tables: CSV (or any delimiter) and Parquet, read by pyarrow in batches, and those with a text.

CSV is cut where records end, at line ends outside quotes, which one scan finds. Parquet is cut
between its row groups. A folder of Parquet files is one table.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import io
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from storage import atomic
from storage.errors import SourceError
from storage.sources.base import (
    Document,
    TextSource,
    open_decompressed,
    shorten_names,
    source_errors,
)
from storage.sources.tables.records import ByteRangeFile, RecordFile

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


class Table(RecordFile):
    """A table, of which some columns are read."""

    @abstractmethod
    def column_names(self) -> list[str]:
        """Return the names of the columns."""

    @abstractmethod
    def wanted_columns(self, columns: list[str]) -> list[str]:
        """Return the columns to read of those that are there."""

    def check(self) -> None:
        """Refuse options that name a column that is not there."""
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

    @abstractmethod
    def batches(self, piece: Any) -> Iterator[tuple[pa.RecordBatch, int, str]]:
        """Yield the batches of a piece, each with the number of its first record and its place."""


class TextTable(Table, TextSource):
    """A table with a text column."""

    def wanted_columns(self, columns: list[str]) -> list[str]:
        """Return the columns of the text, the label, the split and the name. The text must be
        there.
        """
        if self.text not in columns:
            raise SourceError(
                f"{self.path} has no column {self.text!r}, only "
                f"{shorten_names(columns)}: name it with text=, or the columns of a table of "
                f"numbers with columns="
            )
        return [
            name
            for name in dict.fromkeys((self.text, self.label, self.split, self.name))
            if name in columns
        ]

    def read(self, piece: Any) -> Iterator[Document]:
        for batch, first, where in self.batches(piece):
            yield from self._documents(batch, first, where)

    def _documents(self, batch: pa.RecordBatch, first: int, where: str) -> Iterator[Document]:
        table = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        nothing = [None] * batch.num_rows
        text = table[self.text]
        rows = zip(
            text,
            *(table.get(column, nothing) for column in (self.label, self.split, self.name)),
            strict=True,
        )
        for i, (words, label, split, name) in enumerate(rows, first):
            if words is not None and not isinstance(words, str):
                raise SourceError(
                    f"{self.path}: column {self.text!r} holds "
                    f"{batch.schema.field(self.text).type}, not text"
                )
            yield self.document(words or "", label, split, name, f"{where} {i} (from 0)")


class CsvFile(Table, ByteRangeFile):
    """Comma- or tab-separated values with a header line; UTF-8, plain or compressed."""

    delimiter: str

    def set_delimiter(self, delimiter: str | None) -> None:
        """Set the delimiter. None goes by the suffix (.csv, .tsv), else takes a comma."""
        suffixes = [s for s in Path(self.path).suffixes if s in SUFFIXES]
        self.delimiter = delimiter or (SUFFIXES[suffixes[-1]] if suffixes else ",")
        if len(self.delimiter) != 1:
            raise SourceError(f"delimiter must be one character; got {self.delimiter!r}")

    def column_names(self) -> list[str]:
        """Return the names of the columns."""
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
        for start, stop in zip(cuts[:-1], cuts[1:], strict=True):
            # the part beyond `size` is one record
            self.require_room(stop - start - size, f"{self.path}, after byte {start}")
        return list(zip(cuts[:-1], cuts[1:], strict=True))

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
        except UnicodeDecodeError as error:
            raise SourceError(f"{self.path}, line 1: no header can be read: {NO_UTF8}") from error
        except csv.Error as error:
            raise SourceError(f"{self.path}, line 1: no header can be read: {error}") from error
        return columns, after


class Csv(CsvFile, TextTable):
    """Comma- or tab-separated values with a text column.

    It takes the options of `storage.sources.tables.records.RecordFile` and one more.

    Parameters
    ----------
    delimiter : str or None, default=None
        One character. None goes by the suffix (.csv, .tsv), else takes a comma.
    """

    format = "csv"

    def __init__(
        self,
        path: str,
        *,
        text: str = "text",
        label: str | None = None,
        split: str | None = None,
        name: str | None = None,
        unlabeled: str | None = None,
        delimiter: str | None = None,
    ) -> None:
        super().__init__(path, text=text, label=label, split=split, name=name, unlabeled=unlabeled)
        self.set_delimiter(delimiter)

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return bool(set(path.suffixes) & set(SUFFIXES)) and bool(head) and b"\0" not in head


class RowGroup(NamedTuple):
    """A row group of a Parquet file."""

    file: str
    number: int
    size: int


class ParquetFiles(Table):
    """A Parquet file, or a folder of them."""

    folder: str | None = None  # of files rewritten with small row groups
    batch_rows = BATCH_ROWS

    def column_names(self) -> list[str]:
        """Return the names of the columns of the first file."""
        return list(self.schema().names)

    def schema(self) -> pa.Schema:
        """Return the columns of the first file, with their types."""
        if not (files := self.files()):
            raise SourceError(f"{self.path} holds no .parquet file")
        with self._open(str(files[0])) as table:
            return table.schema_arrow

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
            with ParquetWriter(target, schema, compression="lz4") as out:
                size = sum(
                    table.metadata.row_group(i).total_byte_size for i in range(table.num_row_groups)
                )
                rows = max(
                    1, min(BATCH_ROWS, BATCH_BYTES * table.metadata.num_rows // max(size, 1))
                )
                for batch in table.iter_batches(rows, columns=wanted, use_threads=False):
                    out.write_batch(batch)

    def _groups(self) -> Iterator[RowGroup]:
        for file in self.files():
            file = file if self.folder is None else Path(self.folder) / file.name
            with self._open(str(file)) as table:
                self._columns_to_read(table.schema_arrow.names)
                groups = [table.metadata.row_group(i) for i in range(table.num_row_groups)]
                yield from (
                    RowGroup(str(file), i, group.total_byte_size)
                    for i, group in enumerate(groups)
                    if group.num_rows
                )

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
        with (
            self._open(piece.file) as table,
            _arrow_errors(f"{piece.file}, row group {piece.number} is broken"),
        ):
            columns = self._columns_to_read(table.schema_arrow.names)
            for batch in table.iter_batches(
                self.batch_rows, row_groups=[piece.number], columns=columns, use_threads=False
            ):
                yield batch, first, f"{piece.file}, row group {piece.number}: row"
                first += batch.num_rows

    def _open(self, file: str, **settings: Any) -> ParquetFile:
        from pyarrow.parquet import ParquetFile

        with _arrow_errors(f"{file} is not a whole Parquet file"):
            return ParquetFile(file, **settings)


class Parquet(ParquetFiles, TextTable):
    """A table of Parquet with a text column. Takes the options of `records`."""

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
