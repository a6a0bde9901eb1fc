"""A look at a source: what bigfs would read of it, by its first records."""

from __future__ import annotations

import copy
import os
import tempfile
from pathlib import Path
from typing import Any

from bigfs.storage.corpus import Corpus
from bigfs.storage.integrity import summarize
from bigfs.storage.lazy import pa
from bigfs.storage.opening import open as open_corpus
from bigfs.storage.opening import require_staged
from bigfs.storage.sources import find
from bigfs.storage.sources.base import PlainFile, Source, TextSource
from bigfs.storage.sources.files import COMPRESSED_SUFFIXES, open_text
from bigfs.storage.sources.tables.columnar import ColumnFile, ParquetFile
from bigfs.storage.sources.tables.records import Records
from bigfs.storage.sources.text import Text
from bigfs.storage.staging.stage import stage

HEAD = 1 << 20  # bytes of a file of lines that are looked at
ROWS = 3  # that are shown
ENTRIES = 5  # of a row that are shown


def look(source: str | os.PathLike[str], *, format: str | None = None, **options: Any) -> Any:
    """Tell what would be read of a source, by its first records.

    The first megabyte of the lines of the first file, or its first rows, are staged to a folder
    that is deleted. Folders of documents and saved matrices are read whole.

    Parameters
    ----------
    source : str or path-like
        Source, as in `stage`.
    format : str or None, default=None
        Format of the source. None guesses it from the content.
    **options : object
        Options of the format.

    Returns
    -------
    dict
        The format, what was guessed, a summary of what was looked at, whether that is all, and the
        name, the label and the first entries of three samples.

    Raises
    ------
    SourceError
        The source is missing or broken, or what was looked at cannot be read.

    See Also
    --------
    stage : Make the store of a source.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bigfs import storage
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "rows.svm").write_text("1 1:2 3:1\\n-1 2:4\\n")
    ...     storage.look(f"{folder}/rows.svm")["guessed"]
    {'zero_based': False}
    """
    found = find(source, format=format, **options)
    with tempfile.TemporaryDirectory() as folder:
        head = _head_of(found, Path(folder, "head"))
        text: dict[str, Any] = {"min_df": 1} if isinstance(head, TextSource) else {}
        uri = stage(head, Path(folder, "head.zarr"), **text)
        corpus = require_staged(open_corpus(uri))
        rows = corpus.X.rows(range(min(ROWS, corpus.X.shape[0]))).tocsr()
        samples = []
        for i in range(rows.shape[0]):
            columns = rows.indices[rows.indptr[i] : rows.indptr[i + 1]][:ENTRIES]
            names = corpus.feature_names[columns] if len(columns) else []
            values = rows.data[rows.indptr[i] :][: len(columns)].tolist()
            entries = {str(name): value for name, value in zip(names, values, strict=True)}
            about = {"name": str(corpus.sample_names[i]), "label": _label(corpus, i)}
            samples.append(about | {"entries": entries})
        return {
            "source": found.path,
            "format": found.format,
            "options": dict(found.given),
            "guessed": corpus.manifest.source.get("decided", {}),
            "read": summarize(uri),
            "is_whole": head is found,
            "samples": samples,
        }


def _label(corpus: Corpus, i: int) -> Any:
    """Return the label of a sample: a class, a number, a list of labels or numbers, or None."""
    kind, y = corpus.manifest.target, corpus.y
    if kind == "multilabel":
        return [corpus.class_names[code] for code in y[[i]].indices.tolist()]
    if kind in ("real", "multioutput"):
        return y[i].tolist()
    return None if kind is None or y[i] < 0 else corpus.class_names[y[i]]


def _head_of(source: Source, folder: Path) -> Source:
    """Return a source of the first records of a source, or the source itself."""
    if not isinstance(source, PlainFile) or isinstance(source, Text):
        return source
    file = source.files()[0] if isinstance(source, Records) else source.path
    root = source.root if isinstance(source, Records) else None
    inside = file.removeprefix(root).strip("/") if root else os.path.basename(file)
    if isinstance(source, ColumnFile):
        target = folder / inside
        target.parent.mkdir(parents=True)
        _write_batch(source, file, str(target))
    else:
        with open_text(file, source.encoding) as raw:
            lines = raw.read(HEAD + 1)
        if len(lines) <= HEAD and root is None:
            return source
        stem, suffix = os.path.splitext(inside)
        target = folder / (stem if suffix in COMPRESSED_SUFFIXES else inside)
        target.parent.mkdir(parents=True)
        target.write_bytes(lines[: lines.rfind(b"\n") + 1] or lines)
    head = copy.copy(source)
    head.path, head.encoding = str(folder if root else target), None
    head.plain = head.path
    if isinstance(head, Records):
        head.url, head.listed = None, None
    return head


def _write_batch(source: ColumnFile, file: str, target: str) -> None:
    """Write the first rows of a file of columns to another of its format."""
    from pyarrow import parquet

    _, batch = next(iter(source.read_groups(file, None, source.fields_of(file))))
    table = pa.Table.from_batches([batch])
    if isinstance(source, ParquetFile):
        parquet.write_table(table, target)
        return
    with pa.ipc.new_file(target, table.schema) as out:
        out.write_table(table)
