"""The base classes of sources, which workers read in pieces, as matrix rows or as documents.

A source is small and picklable: it holds a path and settings, never data. `pieces` returns keys
(byte ranges, archive members, row ranges) in the order of the rows, which are small and picklable
too. `read` turns one piece into `Rows` or `Document`s within bounded memory, on any worker.

A new format is a module with one class that derives from `MatrixSource` or `TextSource`, takes the
path first and its options as keywords, and is listed in `storage.sources.FORMATS`.
"""

from __future__ import annotations

import bz2
import contextlib
import copy
import errno
import gzip
import itertools
import lzma
import os
import shutil
import tarfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from bigfs.engine import format_bytes, require_memory
from bigfs.types import AnyArray
from storage.errors import SourceError, StoreError
from storage.sources import matfile

# a class, a real target, a set of classes, or None if unlabeled
Label = str | int | float | tuple[str | int, ...] | None
Labels = AnyArray | Sequence[Label]

# what the readers of all formats may raise for damaged bytes
BROKEN = (
    *(*matfile.BROKEN, zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError),
    *(TokenError, SyntaxError),
)

# magic bytes
COMPRESSED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


class Rows(NamedTuple):
    """Some rows of a matrix.

    Attributes
    ----------
    X : csr_array of shape (k, at most d)
        The rows, as floats. Column indices increase along a row. X may be narrower than d: the
        widest piece decides d, unless the source states it.
    y : array, list or None
        The k labels, in one of these forms:

        * integers: classes, masked where unlabeled,
        * strings: classes, "" where unlabeled,
        * floats: classes if all labels of the source are whole, else real targets; NaN where
          unlabeled,
        * a list of labels that an array would not hold exactly, None where unlabeled,
        * a list of tuples: label sets.
    split : ndarray of str or None
        "train" or "test" per row.
    names : ndarray of str or None
        The names of the samples.
    """

    X: sp.csr_array
    y: Labels | None = None
    split: AnyArray | None = None
    names: AnyArray | None = None


def take_rows(rows: Rows, index: AnyArray) -> Rows:
    """Return some of the rows, without their splits."""
    y = (
        rows.y[index]
        if isinstance(rows.y, np.ndarray)
        else None
        if rows.y is None
        else [rows.y[i] for i in index]
    )
    return Rows(rows.X[index], y, None, None if rows.names is None else rows.names[index])


class Document(NamedTuple):
    """One text. `label` is None if it is unlabeled."""

    text: str
    label: Label = None
    split: str | None = None
    name: str = ""


class Source(ABC):
    """The origin of a corpus.

    Attributes
    ----------
    format : str
        Name of the format, as in ``--format``.
    path : str
        The file or folder, or the name of a generated corpus.
    target : {"class", "real", "multilabel"} or None
        Kind of the target. None lets the labels decide (see `Rows.y`).
    n_features : int or None
        d, if it is known before reading.
    class_names : sequence of str or None
        Names of the integer labels 0 … c − 1, if the source has them.
    feature_names : sequence of str or None
        d names, if the source has them. They may be read lazily.
    sample_shape : tuple of int or None
        (M, N) if a row is an image.
    planted : ndarray of int or None
        Indices of the informative features of a generated corpus.
    memory_per_byte : int
        Bytes of memory per byte of input while it is read.
    memory_limit : int or None
        Bytes that a process may use beside its libraries. None does not limit it.
    label_columns : sequence of str or None
        Columns that could hold the labels, if the source has some and the user named none.
    """

    format: ClassVar[str]
    path: str
    target: str | None = None
    n_features: int | None = None
    class_names: Sequence[str] | None = None
    feature_names: Sequence[str] | None = None
    sample_shape: tuple[int, int] | None = None
    planted: AnyArray | None = None
    memory_per_byte: int = 20
    memory_limit: int | None = None
    label_columns: Sequence[str] | None = None

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        """Return whether a path looks like this format.

        `head` holds its first decompressed bytes, none for a folder.
        """
        return False

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash of the content and of the settings that shape the rows."""

    def absolute(self) -> Self:
        """Return the same source by its absolute path.

        The workers of a user's cluster may have another current folder.
        """
        source = copy.copy(self)
        source.path = os.path.abspath(self.path)
        return source

    def prepare(self, scratch: Path) -> Self:
        """Return the same source, ready for `pieces`.

        A source that can't be cut as it is, such as a compressed file, is written to `scratch`.
        """
        return self

    @abstractmethod
    def pieces(self, size: int) -> list[Any]:
        """Return the keys of the pieces in row order, each of at most about `size` bytes of input.

        Raises
        ------
        SourceError
            The folder or file is empty.
        """

    def with_memory_limit(self, room: int) -> Self:
        """Return the same source with at most `memory_limit` bytes per process."""
        source = copy.copy(self)
        source.memory_limit = room
        return source

    def weight(self, piece: Any) -> int:
        """Return the bytes of input of a piece, for messages and balance, or 0 if unknown."""
        return 0

    def require_room(self, size: int, place: object) -> None:
        """Refuse a record that does not fit in memory while it is read, as records can't be cut.

        Parameters
        ----------
        size : int
            Its bytes, decompressed.
        place : object
            The file and the record, for the message.

        Raises
        ------
        NotEnoughMemory
            Reading it takes more than `memory_limit`.
        """
        if self.memory_limit is not None and size * self.memory_per_byte > self.memory_limit:
            require_memory(
                size * self.memory_per_byte,
                f"{place}: a record of {format_bytes(size)} cannot be cut and",
                self.memory_limit,
            )


class MatrixSource(Source):
    """A source whose rows are numbers already."""

    @abstractmethod
    def read(self, piece: Any) -> Rows:
        """Read the rows of one piece.

        Raises
        ------
        SourceError
            A bad number or index, NaN or infinity. The message names the file and the line or row.
        """


class TextSource(Source):
    """A source of documents, which `storage.staging.text.vectorize` turns into rows."""

    # measured: 18 if all words differ, 28 for words of two letters
    memory_per_byte = 32

    def with_term_memory(self, growth: int) -> Self:
        """Return the same source, of which a byte takes `growth` times the memory."""
        source = copy.copy(self)
        source.memory_per_byte = self.memory_per_byte * growth
        return source

    @abstractmethod
    def read(self, piece: Any) -> Iterator[Document]:
        """Yield the documents of one piece in order."""


# --- what the formats share -----------------------------------------------------------------------


def open_decompressed(path: str | Path) -> IO[bytes]:
    """Open a file to read its bytes. Gzip, bzip2 and xz are decompressed."""
    with open(path, "rb") as file:
        start = file.read(6)
    for magic, open_compressed in COMPRESSED.items():
        if start.startswith(magic):
            return open_compressed(path, "rb")  # type: ignore[operator]  # the modules' types differ
    return open(path, "rb")


def is_compressed(path: str | Path) -> bool:
    """Return whether the first bytes are those of gzip, bzip2 or xz."""
    with open(path, "rb") as file:
        return file.read(6).startswith(tuple(COMPRESSED))


@contextlib.contextmanager
def source_errors(complaint: str) -> Iterator[None]:
    """Turn what a reader raises for damaged bytes into a SourceError of one line.

    Parameters
    ----------
    complaint : str
        The beginning of the line, with the file's name.

    Raises
    ------
    SourceError
        The bytes are damaged. Errors of the disk pass as they are.
    """
    try:
        yield
    except BROKEN as error:
        # EINVAL: a damaged file made the reader seek to a wrong place
        if isinstance(error, StoreError) or (
            isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
        ):
            raise
        text = str(error).splitlines()[0] if str(error) else repr(error)
        raise SourceError(f"{complaint}: {text}") from error


@contextlib.contextmanager
def seen_by_workers(path: str) -> Iterator[None]:
    """Say what to do where a worker of another machine does not see the source.

    Raises
    ------
    SourceError
        A file is missing in a task, although the driving process has looked at it.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise SourceError(
            f"a worker cannot see {error.filename or path}: put it on a disk that all workers see, "
            f"downloads by BIGFS_DATA=FOLDER"
        ) from error


def head(path: Path, size: int = 1 << 16) -> bytes:
    """Return the first decompressed bytes of a file, none for a folder."""
    if path.is_dir():
        return b""
    with source_errors(f"{path} is broken"), open_decompressed(path) as file:
        return file.read(size)


def decompress(path: str | Path, target: Path) -> None:
    """Write the decompressed content of `path` to `target`."""
    with (
        source_errors(f"{path} is broken"),
        open_decompressed(path) as file,
        open(target, "wb") as out,
    ):
        shutil.copyfileobj(file, out, 1 << 22)


def shorten(value: object, length: int = 80) -> str:
    """Return a value for a message: in ASCII, and cut if it is long."""
    text = ascii(value)
    return text if len(text) <= length else f"{text[:length]}…"


def shorten_names(names: Sequence[str], most: int = 20) -> str:
    """Return names for a message, the first ones if they are many."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def decode(raw: bytes) -> str:
    """Decode UTF-8, or else Latin-1, in which every byte is a letter."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def byte_ranges(length: int, size: int) -> list[tuple[int, int]]:
    """Cut [0, length) into ranges of about equal length, at most `size`."""
    count = max(1, -(-length // size))
    cuts = [length * i // count for i in range(count + 1)]
    return list(itertools.pairwise(cuts))
