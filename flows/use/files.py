"""Files that commands write, and that they alone replace."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bigfs.storage import atomic, locks
from bigfs.storage.errors import redact
from bigfs.storage.runs.runs import write_csv

MARK = b"bigfs"  # a key of the metadata of a Parquet file
HEADER_BYTES = 1 << 16  # of a CSV file, which hold the names of its first columns


STDOUT = Path("-")  # in place of a file


def require_local(path: str) -> str:
    """Return a path, which must be on a local disk."""
    if "://" in path:
        raise ValueError(f"{redact(path)} is a URL: give a path on a local disk")
    return path


def with_suffix(file: str | Path, known: Sequence[str], default: str = "") -> Path:
    """Return the file to write, whose ending says what to write. It is stdout for CSV."""
    file = Path(require_local(str(file)))
    if file == STDOUT and ".csv" in known:
        return file
    if not file.suffix:
        return Path(f"{file}{default}")
    if file.suffix.lower() not in known:
        raise ValueError(
            f"{file} must end in {' or '.join(known)}, which says what is written; got "
            f"{file.suffix}"
        )
    return file


def require_ours(file: Path, is_ours: Callable[[Path], bool]) -> None:
    """Check that a file is missing or empty, or that the same command wrote it."""
    is_new = file == STDOUT or not os.path.lexists(file)
    if not (is_new or is_ours(file) or (file.is_file() and not file.stat().st_size)):
        raise locks.name_taken(file)


def write_table(file: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table as CSV, whole or not at all, or to stdout."""
    if file == STDOUT:
        with tempfile.TemporaryDirectory() as folder:
            write_csv(table := Path(folder, "table.csv"), header, rows)
            with table.open(newline="", encoding="utf-8") as stream:
                shutil.copyfileobj(stream, sys.stdout)
        return
    with atomic.write(file) as part:
        write_csv(part, header, rows)


def is_table(file: Path, header: Sequence[str], *, more: bool = False) -> bool:
    """Return whether a file is a CSV file with this header.

    It may have `more`: columns of scores, or one of the last column for each of several targets.
    """
    found: list[str] = []
    with contextlib.suppress(OSError, csv.Error), file.open("rb") as stream:
        start = stream.read(HEADER_BYTES).decode("utf-8", "replace")
        found = next(csv.reader(io.StringIO(start, newline="")), [])
    *first, last = header
    if found == [*first, last]:
        return True
    column, score = [*found[len(first) :], "", ""][:2]
    has_more = column.startswith(f"{last} ") or (column == last and score.startswith("score "))
    return more and found[: len(first)] == first and has_more


def begins_with(file: Path, start: str) -> bool:
    """Return whether a text file begins with `start`."""
    with contextlib.suppress(OSError), file.open("rb") as stream:
        return stream.read(len(start.encode())) == start.encode()
    return False


def archive_members(file: Path) -> set[str]:
    """Return the names in a zip archive. Another file has none."""
    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(file) as archive:
        return set(archive.namelist())
    return set()


# --- Parquet --------------------------------------------------------------------------------------


def is_parquet(file: Path, about: str) -> bool:
    """Return whether `write_parquet` wrote a file for this purpose."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with contextlib.suppress(OSError, pa.ArrowInvalid):
        return bool((pq.read_schema(file).metadata or {}).get(MARK) == about.encode())
    return False


def write_parquet(
    file: Path, fields: Sequence[tuple[str, Any]], batches: Iterator[Sequence[Any]], about: str
) -> None:
    """Write a Parquet file of fields (name, type), whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(fields, metadata={MARK: about.encode()})
    with atomic.write(file) as part, pq.ParquetWriter(part, schema) as writer:
        for columns in batches:
            pairs = zip(columns, schema.types, strict=True)
            arrays: list[Any] = [pa.array(values, type=kind) for values, kind in pairs]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def label_type(target: str) -> Any:
    """Return the type of a column of labels: numbers, lists of names, or names."""
    import pyarrow as pa

    lists = {"multilabel": pa.list_(pa.string()), "multioutput": pa.list_(pa.float64())}
    return {"real": pa.float64(), **lists}.get(target, pa.string())


def label_sets(indicator: Any, names: Sequence[str]) -> list[list[str]]:
    """Return the names of the labels of each row of an indicator in CSR."""
    bounds = zip(indicator.indptr, indicator.indptr[1:], strict=False)
    return [[names[j] for j in indicator.indices[a:b]] for a, b in bounds]
