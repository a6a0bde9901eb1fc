"""One look at files: what lies behind a path, how it is written down, and what it is not.

Every format lists its files and opens them here. Names that begin with ``_`` or ``.`` are unseen,
as for Spark, Hive and pyarrow, and so are Zarr stores inside a folder. Links to folders are
followed, once each. A place that is no plain file, no readable folder or leads nowhere is refused
by name.
"""

from __future__ import annotations

import bz2
import codecs
import collections
import contextlib
import errno
import glob
import gzip
import io
import lzma
import os
import re
import shutil
import stat
import tarfile
import traceback
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from bigfs.storage.downloads.remote import is_unseen
from bigfs.storage.errors import DAMAGED, SourceError, StoreError
from bigfs.storage.lazy import pa

# what the parsers of other packages may raise for damaged bytes
BROKEN = (
    *(*DAMAGED, tarfile.TarError, lzma.LZMAError, ArithmeticError, RuntimeError),
    *(UnboundLocalError, TokenError, SyntaxError),
)
# those of them that a mistake of ours raises too
MISTAKES = (TypeError, AttributeError, LookupError, RuntimeError, UnboundLocalError)
TEXT_HEAD = 8 << 10  # bytes of a document in which a NUL shows that it is no text
STEP = 1 << 16  # compressed bytes that are read at a time


class _Streams(io.RawIOBase):
    """The content of streams of bzip2 or xz, behind which nothing else may follow."""

    def __init__(self, file: IO[bytes], new: Callable[[], Any]) -> None:
        self.file, self.new, self.stream = file, new, new()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            raw = b""
            if self.stream.eof:  # another stream may follow, or zeros as padding
                raw = (self.stream.unused_data or self.file.read(STEP)).lstrip(b"\0")
                if not raw:
                    return 0
                self.stream = self.new()
            elif self.stream.needs_input and not (raw := self.file.read(STEP)):
                raise EOFError("it ends before the end of its stream")
            if block := self.stream.decompress(raw, len(buffer)):
                buffer[: len(block)] = block
                return len(block)

    def close(self) -> None:
        self.file.close()
        super().close()


MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
SKIPPED_FRAMES = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")  # with which a file of zstd may begin


def compression_of(start: bytes) -> str | None:
    """Return how bytes that begin like this are compressed, or None."""
    if SKIPPED_FRAMES.match(start):
        return "zstd"
    return next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)


def _decompressed(file: IO[bytes], kind: str | None) -> IO[bytes]:
    """Return a file, or its decompressed content, which closes the file."""
    if kind == "zstd":
        # pyarrow reads all frames
        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd"))
    if kind == "gzip":
        content = gzip.GzipFile(fileobj=file)
        content.myfileobj = file  # type: ignore[assignment]  # which it closes
        return content  # type: ignore[return-value]  # of another family of classes
    if kind is None:
        return file
    new = bz2.BZ2Decompressor if kind == "bz2" else lzma.LZMADecompressor
    return io.BufferedReader(_Streams(file, new))


COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
# the marks that begin a text, the longer ones first
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
POINTER = b"version https://git-lfs."
# what other files begin with, and what to do with them
FOREIGN = {
    POINTER: "a pointer of Git LFS to a file that was not fetched: fetch it, as by git lfs pull",
    b"PAR1": "Parquet: give format=parquet",
    b"ARROW1": "Arrow: give format=arrow",
    b"\x93NUMPY": "a NumPy array: stage one such file, and append the others",
    b"PK\x03\x04": "a zip archive or a .npz: unpack archives, and stage one .npz at a time",
    b"\x89HDF\r\n": "HDF5: stage one such file, and append the others",
    b"\x89PNG": "an image: make one array of all images, and stage it as .npz",
    b"\xff\xd8\xff": "an image: make one array of all images, and stage it as .npz",
    b"GIF8": "an image: make one array of all images, and stage it as .npz",
    b"%PDF": "PDF: turn it into text first, as by pdftotext",
    b"SQLite format 3": "SQLite: export a table of it to Parquet or CSV",
    b"MATLAB 5.0": "MATLAB: stage one such file, and append the others",
    b"\xd0\xcf\x11\xe0": "a document of Office: save it as text or CSV",
    b"Rar!": "a RAR archive: unpack it",
    b"7z\xbc\xaf": "a 7z archive: unpack it",
    b"\x7fELF": "a program: leave it out",
    b"RIFF": "sound or video: leave it out",
    b"ID3": "sound: leave it out",
    b"l\x1b\x01": "genotypes of PLINK: turn them into a table, as by plink2 --export A",
    b"\x80\x04\x95": "a pickle, which may run any code: save its content in another format",
}
# files that hold a corpus each, by their suffix: not the documents of one
CORPORA = (".svm", ".svmlight", ".libsvm", ".mtx", ".npy", ".npz", ".mat", ".h5ad", ".h5", ".loom")


# --- bytes ----------------------------------------------------------------------------------------


def open_decompressed(path: str | Path, encoding: str | None = None) -> IO[bytes]:
    """Open a file to read its decompressed bytes, as UTF-8 if its encoding is given."""
    if encoding:
        return io.BufferedReader(_Transcoded(open_decompressed(path), encoding))
    file = open(path, "rb")  # noqa: SIM115, the caller closes it
    return _decompressed(file, compression_of(file.peek(6)[:6]))


def open_text(path: str | Path, encoding: str | None = None) -> IO[bytes]:
    """Open a text to read its bytes in UTF-8, by its encoding or its mark."""
    return open_decompressed(path, encoding or encoding_of(path))


def encoding_of(path: str | Path) -> str | None:
    """Return the encoding that a text names by its mark, or None."""
    with open_decompressed(path) as file:
        return _marked(file.read(4))


def _marked(start: bytes) -> str | None:
    if not start.startswith(tuple(MARKS)):
        return None
    return next(name for mark, name in MARKS.items() if start.startswith(mark))


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
            f"encoding={ascii(encoding)[:80]} is unknown: give one such as cp1252, latin-1 or "
            f"utf-16"
        ) from None


def decode(raw: bytes) -> str:
    """Decode a text by its mark, as UTF-8, or else as Latin-1, in which every byte is a letter."""
    try:
        return raw.decode(_marked(raw[:4]) or "utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def is_compressed(path: str | Path) -> bool:
    """Return whether a file begins as gzip, bzip2, xz or Zstandard does."""
    with open(path, "rb") as file:
        return compression_of(file.read(6)) is not None


def head(path: Path, size: int = 1 << 16) -> bytes:
    """Return the first decompressed bytes of a file, in UTF-8 if a mark tells its encoding.

    A folder has none.
    """
    if path.is_dir():
        return b""
    with source_errors(f"{path} is broken"):
        encoding = encoding_of(path)
        try:
            with open_decompressed(path, encoding) as file:
                return file.read(size)
        except UnicodeDecodeError:
            with open_decompressed(path) as file:
                return file.read(size)


def decompress(path: str | Path, target: Path, encoding: str | None = None) -> None:
    """Write the decompressed content of `path` to `target`, as UTF-8 if its encoding is given."""
    with (
        source_errors(f"{path} is broken"),
        open_decompressed(path, encoding) as file,
        open(target, "wb") as out,
    ):
        shutil.copyfileobj(file, out, 1 << 22)


def inflate(raw: bytes, limit: int) -> bytes | None:
    """Return the content of a document that may be compressed, or None if it passes `limit`."""
    file, out = _decompressed(io.BytesIO(raw), compression_of(raw[:6])), io.BytesIO()
    while block := file.read(1 << 16):
        if out.write(block) and out.tell() > limit:
            return None
    return out.getvalue()


def looks_like(start: bytes) -> str | None:
    """Return what a file is by its first bytes, with what to do, if bigfs cannot read it."""
    if not start.startswith(tuple(FOREIGN)):
        return None
    advice = next(advice for magic, advice in FOREIGN.items() if start.startswith(magic))
    return f"looks like {advice}"


def no_text(start: bytes) -> str | None:
    """Return why bytes are no text, with what to do. None if they may be one."""
    if b"\0" in start[:TEXT_HEAD] and _marked(start[:4]) is None:
        zeros = "holds bytes of 0, as no text does: leave it out, or name its encoding="
        return looks_like(start) or zeros
    return looks_like(start)


@contextlib.contextmanager
def source_errors(complaint: str) -> Iterator[None]:
    """Turn what a foreign parser raises for damaged bytes, and not our code, into a SourceError."""
    try:
        yield
    except BROKEN as error:
        if isinstance(error, MISTAKES) and is_ours(error):
            raise
        # EINVAL: a damaged file made the reader seek to a wrong place. Other errors are the disk's
        if isinstance(error, StoreError) or (
            isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
        ):
            raise
        text = str(error).splitlines()[0] if str(error) else repr(error)
        raise SourceError(f"{complaint}: {text}") from error


def is_ours(error: BaseException) -> bool:
    """Return whether a line of this package raised an error, and not what it calls."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("bigfs.")


# --- folders --------------------------------------------------------------------------------------


def walk(folder: str | Path) -> list[str]:
    """Return the sorted names of the files in a folder and its folders, relative to it."""
    names: list[str] = []
    open_folders = collections.deque([(str(folder), "")])
    seen = {_identity(str(folder))}
    while open_folders:
        home, inside = open_folders.popleft()
        try:
            entries = sorted(os.scandir(home), key=lambda e: (e.is_symlink(), e.name))
        except OSError as error:
            raise SourceError(
                f"{home} is a folder that cannot be read: {error.strerror}"
            ) from error
        if inside and any(entry.name in ("zarr.json", ".zgroup", ".zarray") for entry in entries):
            continue  # a store, such as one that was staged from this folder
        for entry in entries:
            if is_unseen(entry.name):
                continue
            name = f"{inside}/{entry.name}" if inside else entry.name
            if entry.is_dir():
                if (identity := _identity(entry.path)) not in seen:
                    seen.add(identity)
                    open_folders.append((entry.path, name))
            else:
                require_plain(entry.path)
                names.append(name)
    return sorted(names)


def _identity(path: str) -> tuple[int, int]:
    state = os.stat(path)
    return state.st_dev, state.st_ino


def require_plain(path: str) -> None:
    """Refuse a path that is no plain file, or a link that leads nowhere."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if not os.path.islink(path):
            raise
        raise SourceError(
            f"{path} is a link that leads nowhere (to {os.readlink(path)!a}): fetch what it "
            f"stands for, or remove it"
        ) from error
    if not stat.S_ISREG(mode):
        raise SourceError(f"{path} is no plain file: move it out of the source")


def is_pattern(path: str) -> bool:
    """Return whether a path is no file but names some by * or [ ]."""
    return ("*" in path or "[" in path) and not os.path.exists(path)


def list_files(path: str, suffixes: Sequence[str]) -> list[str]:
    """Return the file, or the sorted files of a pattern, or those with a suffix in a folder."""
    if os.path.isdir(path):
        names = walk(path)
        saved = {os.path.dirname(name) for name in names if os.path.basename(name) == "state.json"}
        return [
            os.path.join(path, name)
            for name in names
            if suffix_of(name) in suffixes
            and os.path.basename(name) not in NO_TABLES
            # what a data set of Hugging Face keeps with its own files
            and not (os.path.dirname(name) in saved and os.path.basename(name)[:6] == "cache-")
        ]
    if not is_pattern(path):
        return [path]
    files = []
    for file in sorted(glob.glob(path, recursive=True)):
        if not os.path.isdir(file) and not os.path.basename(file).startswith("_"):
            require_plain(file)
            files.append(file)
    return files


def suffix_of(name: str) -> str:
    """Return the suffix of a name, without the suffix of a compression."""
    stem, suffix = os.path.splitext(name)
    return os.path.splitext(stem)[1] if suffix in COMPRESSED_SUFFIXES else suffix


# files that lie among data and are not data
NO_TABLES = ("dataset_info.json", "state.json", "dataset_infos.json", "dataset_dict.json")
BESIDE = ("readme", "license", "licence", "notice", "citation", "changelog")


def data_suffixes(names: Iterable[str]) -> Counter[str]:
    """Return how many files have each suffix, without those that only tell of the others."""
    return Counter(
        suffix_of(name)
        for name in names
        if os.path.basename(name) not in NO_TABLES
        and not os.path.basename(name).lower().startswith(BESIDE)
        and not name.endswith((".crc", ".md"))
    )


def require_no_other_format(folder: str, names: Sequence[str]) -> None:
    """Refuse a folder in the form of another tool, whose files do not stand for themselves."""
    if os.path.isdir(os.path.join(folder, "_delta_log")):
        raise SourceError(
            f"{folder} is a Delta table, whose log says which files count: give it as an object, "
            f"bigfs.storage.stage(deltalake.DeltaTable({folder!r}).to_pyarrow_table())"
        )
    if os.path.isdir(os.path.join(folder, ".hoodie")):
        raise SourceError(
            f"{folder} is a Hudi table, whose timeline says which files count: export its rows to "
            f"Parquet by Spark"
        )
    if any(name.startswith("metadata/") and name.endswith(".metadata.json") for name in names):
        raise SourceError(
            f"{folder} is an Iceberg table, whose metadata say which files count: give it as an "
            f"object, bigfs.storage.stage(table.scan().to_arrow()) by pyiceberg"
        )


# the end of the name of a folder of a split, and the beginning of a file's name
SPLIT = r"(train|test|validation|valid|val|dev)(?:ing)?"
SPLIT_FOLDER = re.compile(rf"(?:^|[-_. ]){SPLIT}$", re.IGNORECASE)
SPLIT_FILE = re.compile(rf"{SPLIT}(?=[-_.])", re.IGNORECASE)
SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}\.")  # a file of Hugging Face, behind its split


def split_word(folder: str, words: Container[str] = ()) -> str | None:
    """Return the word for a split that the name of a folder is or ends with, None without one."""
    found = SPLIT_FOLDER.search(folder)
    return folder if folder in words else found[1].lower() if found else None


def half_of(file: str, root: str, words: Container[str] = ()) -> str | None:
    """Return the word for the split of a file that a folder or its name tells, None without one."""
    if "split" in partitions_of(file, root):
        return None
    *folders, name = urlsplit(file.removeprefix(root)).path.strip("/").split("/")
    if told := [word for folder in folders if (word := split_word(folder, words))]:
        return told[-1]
    if shard := SHARD.match(name):
        return split_word(shard[1], words) or shard[1]
    begin = re.split(r"[-_.]", name)[0]
    found = SPLIT_FILE.match(name)
    return begin if begin in words else found[1].lower() if found else None


def partitions_of(file: str, root: str) -> dict[str, str | None]:
    """Return the columns that the folders of a file name as key=value, as Hive and Spark do."""
    inside = file.removeprefix(root).strip("/").split("/")[:-1]
    pairs = (part.partition("=") for part in inside if "=" in part)
    return {
        unquote(key): None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)
        for key, _, value in pairs
        if key
    }
