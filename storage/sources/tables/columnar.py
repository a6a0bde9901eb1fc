"""Parquet and Arrow IPC: files of columns, of which the wanted ones are read where they lie.

They may be files, folders or patterns of them on this machine, or behind URLs that give ranges of
bytes. Row groups and record batches are the parts that tasks read. Where one is too large for
that, the table is laid out on scratch.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from bigfs import engine
from bigfs.engine import require_memory
from bigfs.settings import Setting
from bigfs.storage.downloads import remote
from bigfs.storage.errors import SourceError, is_full, redact
from bigfs.storage.lazy import pa, types
from bigfs.storage.sources.base import TextSource
from bigfs.storage.sources.files import open_decompressed
from bigfs.storage.sources.tables import tables
from bigfs.storage.sources.tables.columns import decode_batch, field_names, pick
from bigfs.storage.sources.tables.records import Batch
from bigfs.storage.sources.tables.tables import (
    Part,
    Table,
    add_partitions,
    as_batch,
    with_partitions,
)
from bigfs.storage.sources.trial import trial

# of a row group or a record batch that a task reads whole, if it fits in its memory
MAX_GROUP_BYTES = Setting(32 << 20)
REQUESTS = 16  # to a server at a time
MAX_METADATA = 4096  # files behind URLs whose footers a process keeps
# prints the number of values of each row group, by the bytes of a footer
COUNT_VALUES = """
import pyarrow as pa
from pyarrow import parquet
def tried(raw):
    m = parquet.read_metadata(pa.BufferReader(raw))
    groups, columns = map(m.row_group, range(m.num_row_groups)), range(m.num_columns)
    return " ".join(str(sum(g.column(j).num_values for j in columns)) for g in groups)
"""
_metadata: dict[tuple[str, str] | None, Any] = {}  # the footers, by URL and version


@dataclass(eq=False, kw_only=True)
class ColumnFile(Table):
    """A file of columns, a folder or a pattern of them, or a URL of one of these."""

    magic: ClassVar[bytes]  # the first bytes of a file that is read where it lies
    groups: list[Part] | None = field(default=None, init=False, repr=False)  # read in place

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return head.startswith(cls.magic)

    @abstractmethod
    def fields_of(self, file: str) -> list[str]:
        """Return the names of the columns of a file."""

    @abstractmethod
    def groups_of(self, file: str) -> list[Part] | None:
        """Return the parts of a file, or None if it must be read from the start."""

    @abstractmethod
    def read_groups(
        self, file: str, numbers: list[int] | None, columns: list[str]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield batches of some parts of a file, or of all, each with the number of its part."""

    def columns_of(self, file: str) -> list[str]:
        return with_partitions(self.fields_of(file), self.partitions_of(file))

    def prepare(self, scratch: Path) -> Self:
        """Lay out a table with large parts, as some writers put a whole file into one."""
        ready = copy.copy(self)
        ready.groups = self._find_groups()
        return super().prepare(scratch) if ready.groups is None else ready

    def _find_groups(self) -> list[Part] | None:
        """Return the parts of all files, or None where one is too large or nobody knows them."""
        groups, most = list[Part](), MAX_GROUP_BYTES.value
        if isinstance(self, TextSource):  # whose terms take many times its bytes
            most = min(most, engine.memory_limit() // self.memory_per_byte)
        for file in self.same_files():
            found = self.groups_of(file)
            if found is None or max((part.size for part in found), default=0) > most:
                return None
            groups += found
        return groups

    def listed_of(self, file: str) -> remote.Listed | None:
        """Return what the server says of a file."""
        return (self.listed or {}).get(file)

    def streams(self) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
        for file in self.same_files():
            yield redact(file), (batch for _, batch in self._read(file, None))

    def head(self) -> Batch | None:
        for file in self.files():
            for _, batch in self._read(file, None):
                return as_batch(batch, 0, f"{redact(file)}: row")
        return None

    def parts(self) -> list[Part]:
        in_place = self._find_groups() if self.on_scratch is self.groups is None else self.groups
        return in_place or super().parts()

    def all_batches(self, piece: list[Part]) -> Iterator[Batch]:
        if self.on_scratch is not None:
            yield from super().all_batches(piece)
            return
        source = copy.copy(self)
        source.listed = {part.file: part.listed for part in piece}
        for file, parts in itertools.groupby(piece, lambda part: part.file):
            batches = source._read(file, [part.number for part in parts])
            for number, group in itertools.groupby(batches, lambda batch: batch[0]):
                first, where = 0, f"{redact(file)}, {self.part_name} {number}: row"
                for _, batch in group:
                    yield as_batch(batch, first, where)
                    first += batch.num_rows

    def _read(self, file: str, numbers: list[int] | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield what `read_groups` does, checked, and with the columns that the folders name."""
        partitions, names = self.partitions_of(file), self.fields_of(file)
        wanted = self.columns_to_read(with_partitions(names, partitions))
        there = set(names)
        columns = [name for name in wanted if name in there]
        for number, batch in self.read_groups(file, numbers, columns):
            with _arrow_errors(f"{redact(file)}, {self.part_name} {number} is broken"):
                batch.validate(full=True)
            batch = pick(batch, columns) if self.paths else batch
            yield number, add_partitions(decode_batch(batch), partitions, wanted)

    part_name: ClassVar[str]  # in messages

    def rows_of_batch(self, width: int) -> int:
        """Return the number of rows of a batch of this many columns."""
        return max(1, min(tables.BATCH_ROWS, tables.BATCH_BYTES.value // (8 * max(width, 1))))


# --- Parquet --------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class ParquetFile(ColumnFile):
    """Parquet."""

    magic = b"PAR1"
    suffixes = (".parquet",)
    part_name = "row group"

    def fields_of(self, file: str) -> list[str]:
        with self._open(file) as table:
            return field_names(table.schema_arrow, self.paths)

    def groups_of(self, file: str) -> list[Part]:
        with self._open(file) as table:
            groups = [table.metadata.row_group(i) for i in range(table.num_row_groups)]
            values = [group.num_rows * group.num_columns for group in groups]
            if groups and any(types.is_nested(field.type) for field in table.schema_arrow):
                values = _count_values(table.metadata, file)
        return [
            Part(
                *(file, i, max(group.total_byte_size, tables.VALUE_BYTES * values[i])),
                listed=self.listed_of(file),
            )
            for i, group in enumerate(groups)
            if group.num_rows
        ]

    def read_groups(
        self, file: str, numbers: list[int] | None, columns: list[str]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        is_whole = numbers is None
        with self._open(file, pre_buffer=not is_whole) as table:
            rows = self.rows_of_batch(len(columns))
            for number in range(table.num_row_groups) if numbers is None else numbers:
                with _arrow_errors(f"{redact(file)}, row group {number} is broken"):
                    for batch in table.iter_batches(
                        rows, row_groups=[number], columns=columns, use_threads=False
                    ):
                        yield number, batch

    @contextlib.contextmanager
    def _open(self, file: str, **settings: Any) -> Iterator[Any]:
        from pyarrow import parquet

        listed = self.listed_of(file)
        key = None if listed is None else (file, listed.version)
        with contextlib.ExitStack() as files:
            with _arrow_errors(f"{redact(file)} is not a whole Parquet file"):
                source: Any = file
                if remote.is_remote(file):
                    source = files.enter_context(remote.open_ranges(file, listed))
                table = files.enter_context(
                    parquet.ParquetFile(
                        source,
                        metadata=_metadata.get(key),
                        page_checksum_verification=True,
                        **settings,
                    )
                )
            if key is not None:
                if len(_metadata) >= MAX_METADATA:
                    _metadata.clear()
                _metadata[key] = table.metadata
            yield table

    def _find_groups(self) -> list[Part] | None:
        if self.url:  # the footers, which are kept
            with ThreadPoolExecutor(REQUESTS) as pool:
                list(pool.map(self.fields_of, self.files()))
        return super()._find_groups()


def _count_values(metadata: Any, file: str) -> list[int]:
    """Return the number of values of each row group, counting those in lists.

    A child is asked for it, as a damaged footer ends the process that looks at its columns.
    """
    footer = pa.BufferOutputStream()
    metadata.write_metadata_file(footer)
    answer = trial(COUNT_VALUES).ask(footer.getvalue().to_pybytes())
    if answer is None or not all(map(str.isdecimal, answer)):
        raise SourceError(f"{redact(file)} is not a whole Parquet file: its footer is damaged")
    return list(map(int, answer))


# --- Arrow IPC ------------------------------------------------------------------------------------


@dataclass(eq=False, kw_only=True)
class ArrowFile(ColumnFile):
    """Arrow's IPC files (Feather, too) and streams."""

    magic = b"ARROW1"
    stream_magic = b"\xff\xff\xff\xff"
    suffixes = (".arrow", ".feather", ".ipc", ".arrows")
    part_name = "record batch"

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return super().sniff(path, head) or (
            head.startswith(cls.stream_magic) and not int.from_bytes(head[4:8], "little") % 8
        )

    def fields_of(self, file: str) -> list[str]:
        with self._reader(file) as reader:
            return field_names(reader.schema, self.paths)

    def groups_of(self, file: str) -> list[Part] | None:
        if not self._is_in_place(file):
            return None
        from pyarrow import dataset

        with self._bytes(file) as source, self._reader(file) as reader:
            count, columns = reader.num_record_batches, len(reader.schema.names)
            size = source.size()
            if not remote.is_remote(file):  # counting the rows reads all bytes
                rows = dataset.IpcFileFormat().make_fragment(source).count_rows()
                size = max(size, tables.VALUE_BYTES * rows * columns)
            listed = self.listed_of(file)
            return [Part(file, i, size // max(count, 1), listed=listed) for i in range(count)]

    def read_groups(
        self, file: str, numbers: list[int] | None, columns: list[str]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        names = self.fields_of(file)
        tops = set(names).difference(self.paths)
        rows = self.rows_of_batch(len(columns))
        fields = {name if name in tops else name.split(".")[0] for name in columns}
        with self._reader(file, sorted(map(names.index, fields))) as reader:
            batches: Iterable[tuple[int, Any]]
            if self._is_in_place(file):
                chosen = range(reader.num_record_batches) if numbers is None else numbers
                batches = ((number, reader.get_batch(number)) for number in chosen)
            else:
                batches = enumerate(reader)
            for number, batch in batches:
                for start in range(0, batch.num_rows, rows):
                    yield number, batch.slice(start, rows)

    @contextlib.contextmanager
    def _reader(self, file: str, fields: list[int] | None = None) -> Iterator[Any]:
        """Open a file or a stream for some of its columns, or for all."""
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        open_reader = pa.ipc.open_file if self._is_in_place(file) else pa.ipc.open_stream
        with (
            _arrow_errors(f"{redact(file)} is not whole Arrow IPC"),
            self._bytes(file) as source,
            open_reader(source, options=options) as reader,
        ):
            yield reader

    def _bytes(self, file: str) -> Any:
        """Open what Arrow reads: a mapped file, ranges of bytes, or a decompressed stream."""
        if remote.is_remote(file):
            return pa.PythonFile(remote.open_ranges(file, self.listed_of(file)), mode="r")
        if self._is_in_place(file):
            return pa.OSFile(file)  # a mapped one that is cut meanwhile ends the process
        return pa.PythonFile(_Messages(open_decompressed(file), file), mode="r")

    def _is_in_place(self, file: str) -> bool:
        """Return whether a file has an end that says where its batches lie."""
        if remote.is_remote(file):
            return True  # others are copied
        with open(file, "rb") as start:
            return start.read(len(self.magic)) == self.magic


class _Messages:
    """The bytes of a stream, of which no message may be larger than the memory."""

    closed = False

    def __init__(self, file: Any, path: str) -> None:
        self.file, self.path = file, path
        if file.peek(8).startswith(ArrowFile.magic):  # a compressed file
            file.read(8)  # what follows is the stream of its batches

    def read(self, size: int = -1) -> bytes:
        limit = engine.memory_limit()
        if 2 * size > limit:
            require_memory(2 * size, f"{self.path}: a record batch cannot be cut and", limit)
        raw = bytes(self.file.read(size))
        if size > 0 and not raw:  # Arrow takes this for the end, and asks for nothing behind a mark
            raise SourceError(
                f"{self.path} ends without the mark that ends a stream: it was cut, or is still "
                f"being written. Close its writer, or copy it again"
            )
        return raw

    def close(self) -> None:
        self.file.close()
        self.closed = True


@contextlib.contextmanager
def _arrow_errors(what: str) -> Iterator[None]:
    """Turn an error of pyarrow into a SourceError of one line."""
    try:
        yield
    except (SourceError, FileNotFoundError):
        raise
    except (pa.ArrowException, ValueError, OSError) as error:
        if is_full(error):
            raise  # the file itself is right
        raise SourceError(f"{what}: {str(error).splitlines()[0]}") from error
