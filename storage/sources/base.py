"""What a source is: pieces that workers read independently, as rows of a matrix or as documents.

A source is small and picklable: it holds a path and settings, never data. `pieces` cuts it in keys
(byte ranges, archive members, row ranges) that are small and picklable too, in the order of the
rows; `read` turns one piece into `Rows` or `Document`s within bounded memory, on any worker.

A new format is a module with one class that derives from `MatrixSource` or `TextSource`, takes the
path first and its options as keywords, and is listed in `storage.sources.FORMATS`.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import itertools
import lzma
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

# a class, a real target, a set of classes, unlabelled
Label = str | int | float | tuple[str | int, ...] | None
Labels = AnyArray | Sequence[Label]

# what the readers of all formats raise for bytes that are not what they should be
BROKEN = (
    *(*matfile.BROKEN, zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError),
    *(TokenError, SyntaxError),
)

# by their first bytes
COMPRESSED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


class Rows(NamedTuple):
    """Some rows of a matrix.

    X : (k, ≤ d) csr array, float; column indices sorted in a row, no repeats. Narrower than d is
        fine when the source does not know d: the widest piece decides.
    y : k labels: an array of integers (classes; masked: unlabelled) or strings (classes; the empty
        string: unlabelled), of floats
        (classes when every label of the source is a whole number, else real targets; NaN:
        unlabelled), a list of labels where an array would not hold them exactly (None: unlabelled),
        a list of tuples of labels (multi-label), or None.
    split : k strings "train" or "test", or None.
    names : k sample names, or None.
    """

    X: sp.csr_array
    y: Labels | None = None
    split: AnyArray | None = None
    names: AnyArray | None = None


def taken(rows: Rows, index: AnyArray) -> Rows:
    """Some of the rows."""
    y = (
        rows.y[index]
        if isinstance(rows.y, np.ndarray)
        else None
        if rows.y is None
        else [rows.y[i] for i in index]
    )
    return Rows(rows.X[index], y, None, None if rows.names is None else rows.names[index])


class Document(NamedTuple):
    """One text; `label` None when unlabelled."""

    text: str
    label: Label = None
    split: str | None = None
    name: str = ""


class Source(ABC):
    """Where a corpus comes from.

    Attributes
    ----------
    format : its name, as in ``--format``.
    path : the file or folder; for what is generated, the name it goes by.
    target : "class", "real" or "multilabel"; None lets the labels decide (see `Rows.y`).
    n_features : d if it is known before reading.
    class_names : names of the integer labels 0 … c − 1, in order, if the source has them.
    feature_names : d names if the source has them (a sequence that may be lazy).
    sample_shape : (M, N) when a row is an image.
    planted : indices of the truly informative features (generated corpora).
    expansion : bytes that a byte of input takes while it is read.
    room : bytes that a process may use beside its libraries; None does not limit it.
    label_columns : names of the columns that could hold the labels, where it has some and none was
        named.
    """

    format: ClassVar[str]
    path: str
    target: str | None = None
    n_features: int | None = None
    class_names: Sequence[str] | None = None
    feature_names: Sequence[str] | None = None
    sample_shape: tuple[int, int] | None = None
    planted: AnyArray | None = None
    expansion: ClassVar[int] = 20
    room: int | None = None
    label_columns: Sequence[str] | None = None

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        """Whether `path` looks like this format.

        `head`: its first decompressed bytes; empty for a folder.
        """
        return False

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes whenever the content or a setting that shapes the rows does."""

    def unpacked(self, scratch: Path) -> Self:
        """The same source, ready to be cut: a compressed stream is written out in `scratch`
        first.
        """
        return self

    @abstractmethod
    def pieces(self, size: int) -> list[Any]:
        """Keys of the parts, in row order, each of about `size` bytes of input or less.

        Raises
        ------
        SourceError : nothing to read (an empty folder or file).
        """

    def weight(self, piece: Any) -> int:
        """Bytes of input behind `piece`, for messages and balance; 0 if unknown."""
        return 0

    def require_room(self, size: int, place: object) -> None:
        """Refuse a record that does not fit in memory while it is read: it can't be cut.

        Parameters
        ----------
        size : int
            Its bytes, expanded.
        place : object
            The record, for the message.

        Raises
        ------
        NotEnoughMemory
            Reading it takes more than `room`.
        """
        if self.room is not None and size * self.expansion > self.room:
            require_memory(
                size * self.expansion,
                f"{place}: a record of {format_bytes(size)} cannot be cut and",
                self.room,
            )


class MatrixSource(Source):
    """A source whose rows are numbers already."""

    @abstractmethod
    def read(self, piece: Any) -> Rows:
        """The rows of one piece.

        Raises
        ------
        SourceError : a bad number or index, NaN or infinity, naming the file and the line or row.
        """


class TextSource(Source):
    """A source of documents, which `storage.staging.vectorize` turns into rows."""

    # measured: 18 where every word is another one, 28 of words of two letters, as weights
    expansion = 32

    @abstractmethod
    def read(self, piece: Any) -> Iterator[Document]:
        """The documents of one piece, in order."""


# --- what the formats share -----------------------------------------------------------------------


def opened(path: str | Path) -> IO[bytes]:
    """The file as bytes; gzip, bzip2 and xz are known by their first bytes and decompressed."""
    with open(path, "rb") as file:
        start = file.read(6)
    for magic, open_compressed in COMPRESSED.items():
        if start.startswith(magic):
            return open_compressed(path, "rb")  # type: ignore[return-value, operator]  # the modules' types differ
    return open(path, "rb")


def is_compressed(path: str | Path) -> bool:
    with open(path, "rb") as file:
        return file.read(6).startswith(tuple(COMPRESSED))


@contextlib.contextmanager
def intact(complaint: str) -> Iterator[None]:
    """Turn what a reader raises for damaged bytes into one line.

    Parameters
    ----------
    complaint : str
        The beginning of the line, with the file's name.

    Raises
    ------
    SourceError
        The bytes are not what they should be. What the disk raises for itself goes through.
    """
    try:
        yield
    except BROKEN as error:
        # EINVAL: a seek to where a damaged file says
        if isinstance(error, StoreError) or (
            isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
        ):
            raise
        text = str(error).splitlines()[0] if str(error) else repr(error)
        raise SourceError(f"{complaint}: {text}") from error


def head(path: Path, size: int = 1 << 16) -> bytes:
    """The first decompressed bytes of a file, empty for a folder."""
    if path.is_dir():
        return b""
    with intact(f"{path} is broken"), opened(path) as file:
        return file.read(size)


def decompress(path: str | Path, target: Path) -> None:
    """Write the decompressed content of `path` to `target`."""
    with intact(f"{path} is broken"), opened(path) as file, open(target, "wb") as out:
        shutil.copyfileobj(file, out, 1 << 22)


def shortened(value: object, length: int = 80) -> str:
    """What came, for a message: in ASCII, and cut where it is long."""
    text = ascii(value)
    return text if len(text) <= length else f"{text[:length]}…"


def decode(raw: bytes) -> str:
    """UTF-8, or Latin-1, in which every byte is a letter."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def byte_ranges(length: int, size: int) -> list[tuple[int, int]]:
    """[0, length) in ranges of at most `size`, all about equal."""
    count = max(1, -(-length // size))
    cuts = [length * i // count for i in range(count + 1)]
    return list(itertools.pairwise(cuts))
