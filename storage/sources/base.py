"""The base classes of sources, which workers read in pieces, as matrix rows or as documents.

A source holds a path and settings, never data. `pieces` returns small keys in the order of the rows
(byte ranges, row ranges …), and `read` turns one into `Rows` or `Document`s within bounded memory.
A new format is one class that takes the path first and its options as keywords.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import copy
import errno
import glob
import gzip
import io
import itertools
import lzma
import os
import shutil
import sys
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tokenize import TokenError
from types import MappingProxyType
from typing import IO, Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from bigfs.storage.errors import DAMAGED, SourceError, StoreError

from bigfs.engine import format_bytes, require_memory
from bigfs.types import AnyArray

# a class, a real target, a set of classes, or None if unlabeled
Label = str | int | float | tuple[str | int, ...] | None
Labels = AnyArray | Sequence[Label]

# what a column of `Rows.obs` says of its samples, by the names of the options that name it
OBS_ROLES = ("group", "batch", "sample_weight", "time")

# what the readers of all formats may raise for damaged bytes
BROKEN = (
    *(*DAMAGED, tarfile.TarError, lzma.LZMAError, ArithmeticError, RuntimeError),
    *(UnboundLocalError, TokenError, SyntaxError),
)


def _open_zstandard(path: str | Path, mode: str) -> IO[bytes]:
    import pyarrow as pa

    return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))  # all of its frames


# magic bytes
COMPRESSED = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x28\xb5\x2f\xfd": _open_zstandard,
}
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")


class Rows(NamedTuple):
    """Some rows of a matrix, with their labels, splits ("train" or "test") and names, if any.

    obs holds the columns of `Source.obs_columns` by their roles, as
    `bigfs.storage.sources.obs.as_obs` returns them.

    y holds integers (masked where unlabeled), texts ("" where unlabeled), floats (NaN where
    unlabeled; real targets if any of the source is not whole), or a list where an array would not
    hold the labels exactly: labels with None where unlabeled, or label sets as tuples.

    terms are the names of the columns of X, where the source has names in place of numbers: in
    UTF-8, each followed by a newline, in the order of the bytes of these lines.
    """

    X: sp.csr_array  # (k, at most d) floats; columns increase, the widest piece decides d
    y: Labels | None = None
    split: AnyArray | None = None
    names: AnyArray | None = None
    obs: Mapping[str, AnyArray] = {}
    terms: AnyArray | None = None


def take_rows(rows: Rows, index: AnyArray) -> Rows:
    """Return some of the rows, without their splits."""
    y = rows.y
    if y is not None:
        y = y[index] if isinstance(y, np.ndarray) else [y[i] for i in index]
    names = None if rows.names is None else rows.names[index]
    return Rows(
        rows.X[index], y, None, names, {k: v[index] for k, v in rows.obs.items()}, rows.terms
    )


class Document(NamedTuple):
    """One text. `label` is None if it is unlabeled. `obs` holds a value of each of `Rows.obs`."""

    text: str
    label: Label = None
    split: str | None = None
    name: str = ""
    obs: Mapping[str, Any] = {}


class Source(ABC):
    """The origin of a corpus."""

    format: ClassVar[str]  # as in --format
    path: str  # the file or folder, or the name of a generated corpus
    target: str | None = None  # "class", "real", "multilabel", or None to let the labels decide
    n_features: int | None = None  # d, if it is known before reading
    class_names: Sequence[str] | None = None  # of the integer labels 0 … c − 1, if they have some
    feature_names: Sequence[str] | None = None
    sample_shape: tuple[int, int] | None = None  # (M, N) if a row is an image
    planted: AnyArray | None = None  # the informative features of a generated corpus
    memory_per_byte: int = 20  # bytes of memory per byte of input while it is read
    memory_limit: int | None = None  # bytes that a process may use beside its libraries
    label_columns: Sequence[str] | None = None  # that could hold the labels, if none was named
    given: Mapping[str, Any] = MappingProxyType({})  # the options that `find` was given

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        """Return whether a path looks like this format, by its first decompressed bytes."""
        return False

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash of the content and of the settings that shape the rows."""

    def check(self) -> None:  # noqa: B027, most formats have nothing to check
        """Refuse options that do not fit the file, where that shows at once."""

    def absolute(self) -> Self:
        """Return the source by its absolute path, as workers may have another current folder."""
        source = copy.copy(self)
        source.path = os.path.abspath(self.path)
        return source

    def prepare(self, scratch: Path) -> Self:
        """Return the source ready for `pieces`. What can't be cut is written to `scratch` first."""
        return self

    @abstractmethod
    def pieces(self, size: int) -> list[Any]:
        """Return the keys of pieces of up to about `size` bytes of input, in row order."""

    @property
    def obs_columns(self) -> dict[str, str]:
        """The columns that tell of each sample its group, batch, weight or time, by their roles."""
        return {role: name for role in OBS_ROLES if (name := getattr(self, role, None))}

    def with_memory_limit(self, memory_limit: int) -> Self:
        """Return the source with at most `memory_limit` bytes per process."""
        source = copy.copy(self)
        source.memory_limit = memory_limit
        return source

    def weight(self, piece: Any) -> int:
        """Return the bytes of input of a piece, for messages and balance, or 0 if unknown."""
        return 0

    def require_record_fits(self, size: int, place: object) -> None:
        """Refuse a record of `size` bytes at a place that does not fit in memory while it is read.

        Records can't be cut. The place is written out in an error only.
        """
        needed = size * self.memory_per_byte
        if self.memory_limit is not None and needed > self.memory_limit:
            what = f"{place}: a record of {format_bytes(size)} cannot be cut and"
            require_memory(needed, what, self.memory_limit)


class MatrixSource(Source):
    """A source whose rows are numbers already."""

    may_have_names: ClassVar[bool] = False  # whether its rows may come by names of columns
    has_names: bool = False  # whether they do, known after `prepare`
    hashing: int | None = None  # to how many columns the names are hashed
    may_lack: tuple[str, ...] = ()  # how names of columns begin that another file may lack

    def with_hashing(self, hashing: int | None) -> Self:
        """Return the source with its names hashed to so many columns, or with a vocabulary."""
        source = copy.copy(self)
        source.hashing = hashing
        return source

    def like_store(self, by_name: bool, hashing: int | None) -> Self:
        """Return the source for a store whose rows came by names, and were hashed or not."""
        return self.with_hashing(hashing)

    @abstractmethod
    def read(self, piece: Any) -> Rows:
        """Read the rows of one piece. A bad number, index or value is refused by its place."""


class TextSource(Source):
    """A source of documents, which `bigfs.storage.staging.text.vectorize` turns into rows."""

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


class PlainFile(Source):
    """A file that is cut where it lies. A compressed one is decompressed to scratch first.

    By default pieces are ranges of bytes, and the lines that begin in one belong to it.
    """

    plain: str  # the decompressed file
    encoding: str | None = None  # of a text that is transcoded to UTF-8 when it is decompressed

    def absolute(self) -> Self:
        source = super().absolute()
        source.plain = source.path
        return source

    def prepare(self, scratch: Path) -> Self:
        ready = copy.copy(self)
        if os.path.isfile(self.path) and (self.encoding or is_compressed(self.path)):
            ready.plain = str(Path(scratch) / f"{Path(self.path).stem}-{self.fingerprint()}.plain")
            decompress(self.path, Path(ready.plain), self.encoding)
        return ready

    def length(self) -> int:
        """Return the bytes of the decompressed file, of which there must be some."""
        length = os.path.getsize(self.plain)
        if not length:
            raise SourceError(f"{self.path} is empty")
        return length

    def pieces(self, size: int) -> list[Any]:
        """Return byte ranges of about equal length, at most `size`."""
        length = self.length()
        count = max(1, -(-length // size))
        cuts = [length * i // count for i in range(count + 1)]
        return list(itertools.pairwise(cuts))

    def weight(self, piece: Any) -> int:
        start, stop = piece
        return int(stop - start)

    def read_lines(self, piece: tuple[int, int]) -> tuple[int, bytes]:
        """Return where the first line in a byte range begins, and all that begin in the range."""
        start, stop = piece
        limit = (self.memory_limit or sys.maxsize) // self.memory_per_byte + 1
        with open(self.plain, "rb") as file:
            if start:
                file.seek(start - 1)
                while (rest := file.readline(1 << 16)) and not rest.endswith(b"\n"):
                    pass
            start = file.tell()
            raw = file.read(max(0, stop - start))
            if raw and not raw.endswith(b"\n"):
                rest = file.readline(limit)
                self.require_record_fits(len(rest), f"{self.path}, the line at byte {stop}")
                raw += rest
        return start, raw


# --- what the formats share -----------------------------------------------------------------------


def open_decompressed(path: str | Path, encoding: str | None = None) -> IO[bytes]:
    """Open a file to read its bytes, those of UTF-8 if its encoding is given.

    Gzip, bzip2, xz and Zstandard are decompressed.
    """
    if encoding:
        return io.BufferedReader(_Transcoded(open_decompressed(path), encoding))
    with open(path, "rb") as file:
        start = file.read(6)
    for magic, open_compressed in COMPRESSED.items():
        if start.startswith(magic):
            return open_compressed(path, "rb")  # type: ignore[operator]  # the modules' types differ
    return open(path, "rb")


class _Transcoded(io.RawIOBase):
    """The bytes of a text in UTF-8, whatever it is encoded in."""

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        self.file = file
        self.decoder = codecs.getincrementaldecoder(encoding)()
        self.rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.rest and (raw := self.file.read(1 << 16)):
            self.rest = self.decoder.decode(raw).encode("utf-8", "replace")
        if not self.rest:
            self.rest = self.decoder.decode(b"", final=True).encode("utf-8", "replace")
        count = min(len(buffer), len(self.rest))
        buffer[:count], self.rest = self.rest[:count], self.rest[count:]
        return count

    def close(self) -> None:
        self.file.close()
        super().close()


def require_encoding(encoding: str | None) -> None:
    """Refuse the name of an encoding that Python does not know."""
    try:
        codecs.getincrementaldecoder(encoding or "utf-8")
    except LookupError:
        raise SourceError(
            f"encoding={shorten(encoding)} is unknown: give one such as cp1252, latin-1 or utf-16"
        ) from None


def is_pattern(path: str) -> bool:
    """Return whether a path is no file but names some by * or [ ]."""
    return ("*" in path or "[" in path) and not os.path.exists(path)


def list_files(path: str, suffixes: Sequence[str]) -> list[str]:
    """Return the file, or the sorted files of a pattern or with a suffix in a folder."""
    if os.path.isdir(path):
        return files_in(Path(path), suffixes)
    if is_pattern(path):
        return sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
    return [path]


def files_in(folder: Path, suffixes: Sequence[str]) -> list[str]:
    """Return the sorted files of a folder that have a suffix, that of a compression apart."""
    files = [file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")]
    return sorted(str(file) for file in files if _suffix(file) in suffixes)


def holds_only(folder: Path, suffixes: Sequence[str]) -> bool:
    """Return whether all that is to be seen in a folder are files with a suffix."""
    seen = [file for file in folder.iterdir() if not file.name.startswith(".")]
    return bool(seen) and all(file.is_file() and _suffix(file) in suffixes for file in seen)


def _suffix(file: Path) -> str:
    return (file.with_suffix("") if file.suffix in COMPRESSED_SUFFIXES else file).suffix


def is_compressed(path: str | Path) -> bool:
    """Return whether the first bytes are those of gzip, bzip2, xz or Zstandard."""
    with open(path, "rb") as file:
        return file.read(6).startswith(tuple(COMPRESSED))


@contextlib.contextmanager
def source_errors(complaint: str) -> Iterator[None]:
    """Turn what a reader raises for damaged bytes into a SourceError: "complaint: reason"."""
    try:
        yield
    except BROKEN as error:
        # EINVAL: a damaged file made the reader seek to a wrong place. Other errors are the disk's
        if isinstance(error, StoreError) or (
            isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
        ):
            raise
        text = str(error).splitlines()[0] if str(error) else repr(error)
        raise SourceError(f"{complaint}: {text}") from error


@contextlib.contextmanager
def seen_by_workers(path: str) -> Iterator[None]:
    """Say what to do where a worker of another machine does not see the source."""
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


def decompress(path: str | Path, target: Path, encoding: str | None = None) -> None:
    """Write the decompressed content of `path` to `target`, as UTF-8 if its encoding is given."""
    with (
        source_errors(f"{path} is broken"),
        open_decompressed(path, encoding) as file,
        open(target, "wb") as out,
    ):
        shutil.copyfileobj(file, out, 1 << 22)


def line_number(path: str, offset: int) -> int:
    """Return the number of the line, from 1, that begins at a byte of a file."""
    lines = 1
    with open(path, "rb") as file:
        while offset > 0 and (block := file.read(min(offset, 1 << 22))):
            lines, offset = lines + block.count(b"\n"), offset - len(block)
    return lines


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
