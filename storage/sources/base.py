"""The base classes of sources, which workers read in pieces, as matrix rows or as documents.

A source holds a path and settings, never data. `pieces` returns small keys in the order of the rows
(byte ranges, row ranges …), and `read` turns one into `Rows` or `Documents` within bounded memory.
A new format is one class that takes the path first and its options as keywords.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self
from urllib.parse import unquote

import scipy.sparse as sp

from bigfs.engine import format_bytes, require_memory
from bigfs.storage.errors import SourceError
from bigfs.storage.sources.files import decompress, encoding_of, is_compressed, source_errors
from bigfs.storage.sources.samples import OBS_ROLES, LabelRules, split_words
from bigfs.storage.sources.samples import shorten as shorten
from bigfs.types import AnyArray


class Rows(NamedTuple):
    """Some rows of a matrix, and the facts of their samples.

    samples holds columns of Arrow by their roles, as `bigfs.storage.sources.samples.read` returns
    them. place gives the place of a row, for messages.

    terms are the names of the columns of X, where the source has names in place of numbers: in
    UTF-8, each followed by a newline, in the order of the bytes of these lines.
    """

    X: sp.csr_array  # (k, at most d) floats; columns increase, the widest piece decides d
    samples: Mapping[str, Any] = {}
    terms: AnyArray | None = None
    place: Callable[[int], object] = "row {} of a piece".format


class Documents(NamedTuple):
    """Some documents: their texts in order, and the facts of them, as in `Rows`."""

    texts: Iterable[str]
    samples: Mapping[str, Any]
    place: Callable[[int], object]


class Source(ABC):
    """The origin of a corpus."""

    format: ClassVar[str]  # as in --format
    path: str  # the file or folder, or the name of a generated corpus
    target: str | None = None  # "class", "real", "multilabel", or None to let the labels decide
    unlabeled: str | None = None  # a label that also means "none"
    of_samples: ClassVar[tuple[str, ...]] = ()  # options that hold values of samples, no settings
    reads_once: bool = False  # whether it is a stream, which `spool` writes to scratch
    label_separator: str | None = None  # that divides the labels of a sample in one text
    # what other words for splits mean, such as "validation=test,extra=", which leaves extra out
    split_map: str | Mapping[str, str | None] | None = None
    labels_are_typed: bool = True  # whether texts are told from numbers
    allows_single: bool = False  # whether single labels may be mixed with lists of them
    n_features: int | None = None  # d, if it is known before reading
    class_names: Sequence[str] | None = None  # of the integer labels 0 … c − 1, if they have some
    feature_names: Sequence[str] | None = None
    sample_shape: tuple[int, int] | None = None  # (M, N) if a row is an image
    planted: AnyArray | None = None  # the informative features of a generated corpus
    memory_per_byte: int = 20  # bytes of memory per byte of input while it is read
    memory_limit: int | None = None  # bytes that a process may use without its libraries
    label_columns: Sequence[str] | None = None  # that could hold the labels, if none was named
    categorical: Sequence[str] | None = None  # columns of categories, of a table of features
    given: Mapping[str, Any] = MappingProxyType({})  # the options that `find` was given
    version: ClassVar[int] = 1  # of the reader: another one may read other rows of the same bytes
    guessed: tuple[str, ...] = ()  # the options that the content tells, as nobody named them

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
        return self.replace(path=os.path.abspath(self.path))

    def spool(self, scratch: Path) -> Self:
        """Read a stream to its end. Return the source of its copy on scratch."""
        return self

    def prepare(self, scratch: Path) -> Self:
        """Return the source ready for `pieces`, written to `scratch` first if it cannot be cut."""
        return self

    def left_out(self) -> list[str]:
        """Return the names of the files of a folder that are not read."""
        return []

    def decided(self) -> dict[str, Any]:
        """Return what was guessed of a prepared source. It holds for rows that are added later."""
        values = {name: getattr(self, name) for name in self.guessed}
        return {name: value for name, value in values.items() if value is not None}

    def as_decided(self, decided: Mapping[str, Any]) -> Self:
        """Return the source with what was guessed of an earlier one, where nobody named it."""
        known = {name: decided[name] for name in self.guessed if name in decided}
        return self.replace(**known, guessed=tuple(set(self.guessed) - set(decided)))

    @abstractmethod
    def pieces(self, size: int) -> list[Any]:
        """Return the keys of pieces of up to about `size` bytes of input, in row order."""

    @property
    def label_rules(self) -> LabelRules:
        """The options about labels."""
        return LabelRules(self.unlabeled, self.target, self.label_separator)

    @property
    def split_words(self) -> dict[str, str | None]:
        """The split that each word means."""
        return split_words(self.split_map)

    @property
    def obs_columns(self) -> dict[str, str]:
        """The columns that tell of each sample its group, batch, weight or time, by their roles."""
        return {role: name for role in OBS_ROLES if (name := getattr(self, role, None))}

    def replace(self, **changes: Any) -> Self:
        """Return the source with other values of some attributes."""
        source = copy.copy(self)
        vars(source).update(changes)
        return source

    def weight(self, piece: Any) -> int:
        """Return the bytes of input of a piece, for messages and balance, or 0 if unknown."""
        return 0

    def require_record_fits(self, size: int, place: object) -> None:
        """Refuse a record of `size` bytes, which can't be cut, if reading it needs more memory."""
        needed = size * self.memory_per_byte
        if self.memory_limit is not None and needed > self.memory_limit:
            what = f"{place}: a record of {format_bytes(size)} cannot be cut and"
            require_memory(needed, what, self.memory_limit)


@dataclass(eq=False, kw_only=True)
class SampleColumns:
    """The options that name the columns of the facts of each sample."""

    # a text, a number or a list. Several columns hold 0 or 1 each, or real targets. By default the
    # columns are those called "label" and "split", where there are such
    label: str | Sequence[str] | None = None
    split: str | None = None  # "train" or "test"
    # what other words for splits mean, such as "validation=test,extra=", which leaves extra out
    split_map: str | Mapping[str, str | None] | None = None
    unlabeled: str | None = None  # a label that also means "none", as null and "" do
    target: str | None = None  # "class", "real" or "multilabel"; None lets the labels decide
    label_separator: str | None = None  # that divides the labels of a sample in one text
    group: str | None = None
    batch: str | None = None
    sample_weight: str | None = None
    time: str | None = None


class MatrixSource(Source):
    """A source whose rows are numbers already."""

    may_have_names: ClassVar[bool] = False  # whether its rows may come by names of columns
    has_names: bool = False  # whether they do, known after `prepare`
    hashing: int | None = None  # to how many columns the names are hashed
    fixed_names: tuple[str, ...] = ()  # names of columns that every file for a store must have
    may_lack: tuple[str, ...] = ()  # how names of columns begin that another file may lack

    def like_store(self, by_name: bool, hashing: int | None) -> Self:
        """Return the source for a store whose rows came by names, and were hashed or not."""
        return self.replace(hashing=hashing)

    @abstractmethod
    def read(self, piece: Any) -> Rows:
        """Read the rows of one piece. A bad number, index or value is refused by its place."""


class TextSource(Source):
    """A source of documents, which `bigfs.storage.staging.text.vectorize` turns into rows."""

    # measured: 18 if all words differ, 28 for words of two letters
    memory_per_byte = 32

    @abstractmethod
    def read(self, piece: Any) -> Iterator[Documents]:
        """Yield the documents of one piece in order, some at a time."""


class PlainFile(Source):
    """A file that is cut where it lies. A compressed one is decompressed to scratch first.

    By default pieces are ranges of bytes, and the lines that begin in one belong to it.
    """

    plain: str  # the decompressed file
    encoding: str | None = None  # of a text that is transcoded to UTF-8 when it is decompressed

    def absolute(self) -> Self:
        path = os.path.abspath(self.path)
        return self.replace(path=path, plain=path)

    def text_encoding(self) -> str | None:
        """Return what the file is transcoded from, None if it is UTF-8 without a mark."""
        with source_errors(f"{self.path} is broken"):
            return self.encoding or encoding_of(self.path)

    def prepare(self, scratch: Path) -> Self:
        ready = copy.copy(self)
        if os.path.isfile(self.path):
            encoding = self.text_encoding()
            if encoding or is_compressed(self.path):
                name = f"{Path(self.path).stem}-{self.fingerprint()}.plain"
                ready.plain = str(Path(scratch) / name)
                decompress(self.path, Path(ready.plain), encoding)
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


@contextlib.contextmanager
def seen_by_workers(path: str) -> Iterator[None]:
    """Say what to do where a file of the source is gone, or a worker does not see it."""
    try:
        yield
    except FileNotFoundError as error:
        raise SourceError(
            f"{error.filename or path} is gone, or a worker cannot see it: put it where all "
            f"workers see it, downloads by BIGFS_DATA=FOLDER"
        ) from error


# the file whose lines were counted last, its version, an offset, and the line that begins there
_counted: tuple[str, Any, int, int] = ("", None, 0, 1)


def line_number(path: str, offset: int) -> int:
    """Return the number of the line, from 1, that begins at a byte of a file.

    Counting continues where the last call ended, as pieces are read in order.
    """
    global _counted
    about = os.stat(path)
    version = about.st_size, about.st_mtime_ns
    *known, at, lines = _counted
    if known != [path, version] or at > offset:
        at, lines = 0, 1
    with open(path, "rb") as file:
        file.seek(at)
        while at < offset and (block := file.read(min(offset - at, 1 << 22))):
            lines, at = lines + block.count(b"\n"), at + len(block)
    _counted = path, version, at, lines
    return lines


def shorten_names(names: Sequence[str], most: int = 20) -> str:
    """Return names for a message, the first ones if they are many."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def parse_options(query: str) -> dict[str, Any]:
    """Return the options behind a path, in which %xx means a byte and + itself."""
    options: dict[str, Any] = {}
    for option in filter(None, query.split("&")):
        name, _, value = option.partition("=")
        if (name := unquote(name)) in options:
            raise SourceError(f"{name}= is given twice: give it once, with commas between names")
        options[name] = unquote(value)
    return options
