"""Parquet files that commands write, and that they alone replace."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage import atomic

if TYPE_CHECKING:
    import pyarrow as pa

MARK = b"bigfs"  # a key of the file's metadata


def write(file: Path, fields: Sequence[Any], batches: Iterator[Sequence[Any]], about: str) -> None:
    """Write a Parquet file, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(fields, metadata={MARK: about.encode()})
    with atomic.write(file) as part, pq.ParquetWriter(part, schema) as writer:
        for columns in batches:
            arrays: list[pa.Array] = [
                pa.array(values, type=field.type)
                for values, field in zip(columns, schema, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def require_ours(file: Path, about: str) -> None:
    """Check that a file is missing, or that `write` wrote it for the same purpose."""
    if not os.path.lexists(file):
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = None
    with contextlib.suppress(OSError, pa.ArrowInvalid):
        found = (pq.read_schema(file).metadata or {}).get(MARK)
    if found != about.encode():
        raise atomic.name_taken(file)
