"""Tables that are read once: streams of Arrow, as data frames and queries give them.

`spool` lays such a table out on scratch, and takes the hash of its content as it goes by.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from bigfs.storage.errors import SourceError
from bigfs.storage.lazy import compute, pa, types
from bigfs.storage.sources.base import shorten
from bigfs.storage.sources.tables.columns import count_bytes, decode_batch, field_names, pick
from bigfs.storage.sources.tables.records import Batch
from bigfs.storage.sources.tables.tables import BATCH_BYTES, BATCH_ROWS, Table, as_batch

UNREAD = ("run_end_encoded", "list_view", "large_list_view")  # types that pyarrow hardly knows


@dataclass(eq=False, kw_only=True)
class Stream(Table):
    """Tables with the same columns, one after the other. `path` is an iterator over them at first.

    Each is a stream or an array of Arrow, by the PyCapsule interface.
    """

    reads_once = True
    header: list[str] | None = field(default=None, init=False, repr=False)  # names of the columns
    hash: Any = field(default=None, init=False, repr=False)  # a `ContentHash`, while it is read
    content: str | None = field(default=None, init=False, repr=False)  # a hash, after `spool`

    def __post_init__(self) -> None:
        self.tables: Iterator[Any] = iter(self.path)
        self.path = "stream"
        super().__post_init__()
        self.tables = map(open_reader, self.tables)

    def absolute(self) -> Self:
        return copy.copy(self)

    def files(self) -> list[str]:
        return [self.path]

    def columns_of(self, file: str) -> list[str]:
        if self.header is None:
            first = next(self.tables)
            self.tables = itertools.chain([first], self.tables)
            self.header = field_names(first.schema, self.paths)
        return self.header

    def head(self) -> Batch | None:
        names = self.columns_to_read(self.column_names())
        for reader in self.tables:
            for batch in reader:  # is read again, before the others
                again = itertools.chain([batch], reader)
                first = pa.RecordBatchReader.from_batches(reader.schema, again)
                self.tables = itertools.chain([first], self.tables)
                return as_batch(decode_batch(pick(batch, names)), 0, "stream: row")
        return None

    def spool(self, scratch: Path) -> Self:
        ready = copy.copy(self)
        ready.hash = ContentHash()
        ready.lay_out(scratch)
        ready.content, ready.hash, ready.tables = ready.hash.hexdigest(), None, iter(())
        return ready

    def prepare(self, scratch: Path) -> Self:
        return copy.copy(self)  # it lies on scratch already

    def identity(self) -> str:
        if self.content is None:
            raise SourceError(
                "what a stream holds is known only after it was read: call bigfs.storage.stage, "
                "which reads it and then finds out whether the store is there"
            )
        return self.content

    def streams(self) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
        yield self.path, self._batches()

    def _batches(self) -> Iterator[pa.RecordBatch]:

        for reader in self.tables:
            names = self.columns_to_read(field_names(reader.schema, self.paths))
            for name in names:  # pyarrow ends the process where it slices or casts some of these
                top = name if name in reader.schema.names else name.partition(".")[0]
                kind = reader.schema.field(top).type
                if str(kind).startswith(UNREAD):
                    raise SourceError(
                        f"the column {name!r} holds {kind}, which cannot be read: turn it into "
                        f"plain values or lists"
                    )
            for batch in reader:
                batch = pick(batch, names)
                rows = BATCH_BYTES.value * batch.num_rows // max(count_bytes(batch), 1)
                rows = max(1, min(rows, BATCH_ROWS))
                for start in range(0, batch.num_rows, rows):
                    part = decode_batch(batch.slice(start, rows))
                    for name, values in zip(names, part.columns, strict=True):
                        self.hash.update(name, values)
                    yield part


def open_reader(table: Any) -> pa.RecordBatchReader:
    """Open a table that has Arrow's PyCapsule interface, or a frame of pandas."""
    if hasattr(table, "iloc") and hasattr(table, "columns"):  # pandas would give its index too
        try:
            table = pa.Table.from_pandas(table, preserve_index=False)
        except (pa.ArrowException, TypeError) as error:
            why = " ".join(map(str, error.args)).splitlines()[0]
            raise SourceError(
                f"the frame of pandas cannot be read ({shorten(why, 200)}): give each column one "
                f"type, and sparse ones as a matrix, by frame.sparse.to_coo() and names="
            ) from error
    try:
        if hasattr(table, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(table)
        batch = pa.record_batch(table)
    except pa.ArrowInvalid as error:
        kind, why = type(table).__name__, shorten(str(error).splitlines()[0])
        if "non-struct" in str(error):
            why = "it is one column without a name, and a table has named columns"
        raise SourceError(f"{kind} cannot be read ({why}): convert its columns first") from error
    return pa.RecordBatchReader.from_batches(batch.schema, [batch])


class ContentHash:
    """A hash of the columns of a table, whatever the batches in which they come."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}
        self.kinds: dict[str, str] = {}

    def update(self, name: str, values: pa.Array) -> None:
        """Add the next values of a column: which are there, their kind, their lengths, and they."""
        kind = values.type
        self._add(name, "valid", values.is_valid())
        values = values.drop_null()
        if types.is_null(kind):
            return
        is_list = types.is_list(kind) or types.is_large_list(kind)
        is_text = types.is_string(kind) or types.is_large_string(kind)
        if self.kinds.get(name) != str(kind):
            self.kinds[name] = str(kind)
            word = "list" if is_list else "text" if is_text else str(kind)
            self._hash(name, "kinds").update(word.encode())
        if types.is_struct(kind):
            for part, inside in zip(kind, values.flatten(), strict=True):
                self.update(f"{name}\0{part.name}", inside)
        elif types.is_map(kind):
            entries = pa.struct([kind.key_field, kind.item_field])
            self.update(f"{name}\0", values.cast(pa.list_(entries)))
        elif is_list or types.is_fixed_size_list(kind):
            self._add(name, "lengths", compute.list_value_length(values).cast(pa.int64()))
            self.update(f"{name}\0", values.flatten())
        elif is_text or types.is_binary(kind) or types.is_large_binary(kind):
            texts = values.cast(pa.large_binary())
            self._add(name, "lengths", lengths := compute.binary_length(texts))
            if compute.sum(lengths).as_py():
                _, offsets, content = texts.buffers()
                ends = np.frombuffer(offsets, np.int64)[texts.offset :]
                self._hash(name, "values").update(memoryview(content)[ends[0] : ends[len(texts)]])
        elif types.is_primitive(kind) or types.is_decimal(kind):
            self._add(name, "values", values)
        else:
            raise SourceError(
                f"the column {name.split(chr(0))[0]!r} holds {kind}, which cannot be read: convert "
                f"it to numbers, texts or lists of them, or leave it out"
            )

    def _hash(self, name: str, part: str) -> Any:
        return self.parts.setdefault(f"{name}\0{part}", hashlib.blake2b(digest_size=16))

    def _add(self, name: str, part: str, values: pa.Array) -> None:
        """Add an array of values of the same width, none of which is missing."""
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.uint8())
        size = values.type.bit_width // 8
        if len(values):
            start = values.offset * size
            raw = memoryview(values.buffers()[1])[start : start + len(values) * size]
            self._hash(name, part).update(raw)

    def hexdigest(self) -> str:
        """Return the hash of all columns."""
        parts = {name: part.hexdigest() for name, part in self.parts.items()}
        return hashlib.blake2b(repr(sorted(parts.items())).encode(), digest_size=16).hexdigest()
