"""Folders of documents, or tar or zip archives of them, with the subfolder as class or split.

An archive is never extracted: documents are read from where they lie in it. A folder and an archive
of it hold the same documents, a hard link is one, and of two members of a name the last counts. A
symbolic link is a document in a folder, but an archive with one, or with a sparse file, is refused.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import tarfile
import zipfile
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bigfs.engine import require_memory
from bigfs.storage.downloads.remote import is_unseen
from bigfs.storage.errors import SourceError
from bigfs.storage.fingerprint import fingerprint_of, identity_of
from bigfs.storage.sources import samples
from bigfs.storage.sources.base import Documents, PlainFile, TextSource
from bigfs.storage.sources.files import (
    CORPORA,
    TEXT_HEAD,
    compression_of,
    data_suffixes,
    decode,
    head,
    inflate,
    no_text,
    require_encoding,
    source_errors,
    split_word,
    walk,
)

# suffixes of files that are no documents
TABLES = {*CORPORA, ".csv", ".tsv", ".parquet", ".arrow", ".feather", ".jsonl", ".ndjson", ".xlsx"}
BLOCK = 512  # bytes: the unit of a tar's headers and of its end
HEADER_LIMIT = 1 << 20  # bytes of a member's name and attributes
MIN_COST = 256  # bytes that an empty document counts, as it is an object too
NAME_BYTES = 250  # measured: bytes of a name and its place
ZIP_ENTRY_BYTES = 1000  # measured: bytes of an entry in a zip's own list
INFLATE_STEP = 1 << 12  # compressed bytes at a time, of which a bzip2 bomb makes 80 MB


class Folders(NamedTuple):
    """The meaning of the folders of documents."""

    skip: int  # leading folders that all documents share
    has_halves: bool  # whether the next folder is a half of the same classes, for training or test


class Piece(NamedTuple):
    """Some documents, in order of their names."""

    names: list[str]  # of the files or members
    sizes: array[int]  # in bytes
    offsets: array[int]  # the byte at which each begins in a tar
    folders: Folders


@dataclass
class Text(PlainFile, TextSource):
    """A folder, tar (plain, gz, bz2, xz) or zip of documents in UTF-8 or Latin-1.

    ``prefix-train/class/file`` gives the split and the class, if all documents lie in such halves
    and these share classes. Else the first folder that tells documents apart is the class. Without
    folders, documents are unlabeled. A document may be compressed, or in UTF-16 with its mark.
    """

    format = "text"
    path: str
    _: KW_ONLY
    encoding: str | None = None  # of the texts; None is UTF-8, or else Latin-1
    # what other names of splits mean, such as "validation=test,extra=", which leaves extra out
    split_map: str | Mapping[str, str | None] | None = None
    unlabeled: str | None = None  # the class that means "none"

    def __post_init__(self) -> None:
        self.plain = self.path
        require_encoding(self.encoding)
        samples.split_words(self.split_map)  # or it is refused

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return _is_tar(head) or _is_zip(path, head)

    def check(self) -> None:
        path = Path(self.path)
        if path.is_file() and not self.sniff(path, start := head(path)):
            if kind := no_text(start):
                raise SourceError(f"{path} {kind}")
            raise SourceError(
                f"{path} is one text, and a corpus has many: put one on each line of JSON Lines or "
                f"CSV, or one in each file of a folder"
            )

    def text_encoding(self) -> str | None:
        return None  # an archive has none, and each document its own

    def fingerprint(self) -> str:
        settings: list[Any] = [self.encoding, self.unlabeled]
        settings += [sorted(map(str, self.split_words.items()))] if self.split_map else []
        if not os.path.isdir(self.path):
            return fingerprint_of("text", identity_of([self.path]), *settings)
        files = (os.path.join(self.path, name) for name in walk(self.path))
        return fingerprint_of("text", identity_of(files, root=self.path), *settings)

    def pieces(self, size: int) -> list[Piece]:
        names, sizes, offsets = self._list_documents()
        if not names:
            raise SourceError(
                f"{self.path} holds no documents: give a folder with one "
                f"subfolder of text files per class"
            )
        if os.path.isfile(self.path):
            require_documents(self.path, names)
        words = self.split_words
        folders = _folders_of(names, self.path, words)
        order = sorted(range(len(names)), key=names.__getitem__)
        pieces: list[Piece] = []
        room = 0
        for at, after in zip(order, [*order[1:], -1], strict=True):
            if after >= 0 and names[at] == names[after]:
                continue  # the sort is stable, so the last one of a name counts
            if folders.has_halves and _split_of(_parts(names[at])[folders.skip], words) is None:
                continue
            self.require_record_fits(sizes[at], f"{self.path}: {_as_text(names[at])}")
            cost = max(sizes[at], MIN_COST)
            if not pieces or cost > room:
                pieces.append(Piece([], array("q"), array("q"), folders))
                room = size
            pieces[-1].names.append(names[at])
            pieces[-1].sizes.append(sizes[at])
            pieces[-1].offsets.append(offsets[at])
            room -= cost
        return pieces

    def weight(self, piece: Piece) -> int:
        return sum(piece.sizes)

    def read(self, piece: Piece) -> Iterator[Documents]:
        words = self.split_words
        told = [_class_and_split(_parts(name), piece.folders, words) for name in piece.names]
        names = list(map(_as_text, piece.names))
        values: dict[str, list[Any]] = {
            "label": [None if label is None else _as_text(label) for label, _ in told],
            "split": [split for _, split in told],
            "name": names,
        }

        def place(i: int) -> object:
            return f"{self.path}: {names[i]}"

        columns = {
            role: samples.read(role, column, place, self.label_rules)
            for role, column in values.items()
        }
        yield Documents(self._texts(piece), columns, place)

    def _texts(self, piece: Piece) -> Iterator[str]:
        with source_errors(f"{self.path} is broken"):
            for name, raw in self._contents(piece):
                yield self._decode(raw, name)

    def _decode(self, raw: bytes, name: str) -> str:
        place = f"{self.path}: {_as_text(name)}"
        if compression_of(raw[:6]):
            limit = sys.maxsize if self.memory_limit is None else self.memory_limit
            if (content := inflate(raw, limit // self.memory_per_byte)) is None:
                self.require_record_fits(limit, place)
            raw = content or b""
        if self.encoding is None:
            if kind := no_text(raw[:TEXT_HEAD]):
                raise SourceError(f"{place} is no text. It {kind}")
            return decode(raw)
        try:
            return raw.decode(self.encoding)
        except UnicodeError as error:
            raise SourceError(f"{place} is not {self.encoding}: {error}") from error

    # --- the list -------------------------------------------------------------------------------

    def _list_documents(self) -> tuple[list[str], array[int], array[int]]:
        """Return names, sizes and offsets of the documents, without hidden files."""
        names: list[str] = []
        sizes, offsets = array("q"), array("q")
        links: list[tuple[str, str]] = []
        with source_errors(f"{self.path} is broken"):
            for name, size, offset, target in self._members():
                if target:
                    links.append((name, target))
                else:
                    names.append(name)
                    sizes.append(size)
                    offsets.append(offset)
                if len(names) % (1 << 16) == 0:
                    self._require_list(len(names) * NAME_BYTES)
        self._require_list(len(names) * NAME_BYTES)
        place = {name: at for at, name in enumerate(names)} if links else {}
        for name, target in links:
            if target not in place:
                raise SourceError(
                    f"{self.path}: {_as_text(name)} is a hard link to {_as_text(target)}, "
                    f"which is not a document in the archive"
                )
            names.append(name)
            sizes.append(sizes[place[target]])
            offsets.append(offsets[place[target]])
        return names, sizes, offsets

    def _require_list(self, size: int) -> None:
        if self.memory_limit is not None:
            require_memory(size, f"the list of documents of {self.path}", self.memory_limit)

    def _members(self) -> Iterator[tuple[str, int, int, str]]:
        """Yield (name, size, offset, target of a hard link) of every file that is not hidden."""
        if os.path.isdir(self.path):
            for name in walk(self.path):
                yield name, os.path.getsize(os.path.join(self.path, name)), 0, ""
        elif self._is_zip_archive():
            yield from self._in_zip()
        else:
            yield from self._in_tar()

    def _is_zip_archive(self) -> bool:
        with open(self.plain, "rb") as file:
            return _is_zip(Path(self.plain), file.read(BLOCK))

    def _in_zip(self) -> Iterator[tuple[str, int, int, str]]:
        with zipfile.ZipFile(self.path) as archive:
            self._require_list(len(archive.infolist()) * ZIP_ENTRY_BYTES)
            for info in archive.infolist():
                if info.is_dir() or is_unseen(info.filename):
                    continue
                if stat.S_ISLNK(info.external_attr >> 16):
                    raise SourceError(
                        f"{self.path}: {info.filename} is a symbolic link: pack "
                        f"the file that it leads to"
                    )
                yield info.filename, info.file_size, 0, ""

    def _in_tar(self) -> Iterator[tuple[str, int, int, str]]:
        with (
            _Headers(io.FileIO(self.plain)) as file,
            tarfile.open(
                fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape"
            ) as tar,
        ):
            at, last = -1, "its first member"
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # it keeps a kilobyte for each
                if tar.offset <= at:  # a negative size would lead back for ever
                    raise SourceError(
                        f"{self.path} is broken: the header of {_as_text(member.name)} is bad"
                    )
                at, last = tar.offset, _as_text(member.name)  # the next header
                if is_unseen(member.name):
                    continue
                if member.issym():
                    raise SourceError(
                        f"{self.path}: {last} is a symbolic link: pack the "
                        f"archive with tar --dereference"
                    )
                if member.issparse():
                    raise SourceError(
                        f"{self.path}: {last} is a sparse file: pack the "
                        f"archive without tar --sparse"
                    )
                if member.islnk():
                    yield member.name, 0, 0, member.linkname
                elif member.isfile():
                    yield member.name, member.size, member.offset_data, ""
            self._require_end(file, tar.offset, last)  # where the end should be

    def _require_end(self, file: io.BufferedReader, offset: int, last: str) -> None:
        """Refuse a tar that ends without zeros, as `tarfile` takes any bad header for the end."""
        file.seek(offset)
        block = file.read(BLOCK)
        if len(block) < BLOCK:
            raise SourceError(f"{self.path} is broken: it ends early, after {last}")
        if any(block):
            raise SourceError(f"{self.path} is broken: the header after {last} is bad")
        while rest := file.read(HEADER_LIMIT):
            if rest.count(0) < len(rest):
                raise SourceError(f"{self.path} is broken: data lies behind its end, after {last}")

    # --- the content ----------------------------------------------------------------------------

    def _contents(self, piece: Piece) -> Iterator[tuple[str, bytes]]:
        if os.path.isdir(self.path):
            for name in piece.names:
                yield name, Path(self.path, name).read_bytes()
        elif self._is_zip_archive():
            with zipfile.ZipFile(self.path) as archive:
                for name, size in zip(piece.names, piece.sizes, strict=True):
                    yield name, _read_member(archive, name, size)
        else:
            with open(self.plain, "rb") as tar:
                for name, size, offset in zip(piece.names, piece.sizes, piece.offsets, strict=True):
                    tar.seek(offset)
                    raw = tar.read(size)
                    if len(raw) < size:
                        raise SourceError(f"{self.path} is broken: it ends inside {_as_text(name)}")
                    yield name, raw


def require_documents(archive: str, names: Iterable[str]) -> None:
    """Refuse an archive whose members are tables."""
    if (found := data_suffixes(names)) and set(found) <= TABLES:
        raise SourceError(
            f"{archive} holds tables ({', '.join(sorted(found))}): unpack it, and stage the folder "
            f"or the file in it"
        )


class _Headers(io.BufferedReader):
    """A reader for `tarfile` that refuses a header which would fill the memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > HEADER_LIMIT:
            raise tarfile.ReadError(f"a header claims {size} bytes")
        return super().read(size)


def _read_member(archive: zipfile.ZipFile, name: str, size: int) -> bytes:
    """Read a member, but no further than the `size` bytes that its header states."""
    out = io.BytesIO()
    with archive.open(name) as member:
        while out.tell() <= size and (part := member.read(INFLATE_STEP)):
            out.write(part)
    if out.tell() != size:
        raise zipfile.BadZipFile(f"{name} has {out.tell()} bytes and the archive says {size}")
    return out.getvalue()


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _is_zip(path: Path, head: bytes) -> bool:
    """Return whether a file is a zip archive, by its first bytes or else by its end.

    The first bytes show a truncated archive too. The end shows one that begins with a program.
    """
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06")) or (
        not _is_tar(head) and zipfile.is_zipfile(path)
    )


# --- names ----------------------------------------------------------------------------------------


def _as_text(name: str) -> str:
    """Return a name as text. Bytes that are not UTF-8 are read as Latin-1."""
    return decode(name.encode("utf-8", "surrogateescape"))


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _class_and_split(
    parts: list[str], folders: Folders, words: Mapping[str, str | None]
) -> tuple[str | None, str | None]:
    """Return the class and the split of a document, from its folders."""
    parts, split = parts[folders.skip :], None
    if folders.has_halves:
        split, parts = _split_of(parts[0], words), parts[1:]
    return parts[0] if len(parts) > 1 else None, split


def _split_of(folder: str, words: Mapping[str, str | None]) -> str | None:
    return words[str(split_word(folder, words))]


def _folders_of(names: list[str], place: str, words: Mapping[str, str | None]) -> Folders:
    """Return what the folders of documents mean, or refuse them where nobody can tell."""
    skip = _shared_folders(names, words)
    inside = [parts[skip:] for parts in map(_parts, names)]
    tops = {parts[0] for parts in inside if len(parts) > 1}
    told = {top: word for top in sorted(tops) if (word := split_word(top, words))}
    halves = {top for top, word in told.items() if word in words}
    if not halves or tops - set(told):
        return Folders(skip, False)
    classes = [{p[1] for p in inside if p[0] == top and len(p) > 2} for top in sorted(halves)]
    if len(classes) > 1 and not set.intersection(*classes) and any(classes):
        return Folders(skip, False)  # two classes that are called so
    for top, word in told.items():
        samples.split_of(word, words, f"{place}: {_as_text(top)}")
    beside = [
        "/".join(parts) for parts in inside if len(parts) == 1 or (any(classes) and len(parts) == 2)
    ]
    if beside:
        raise SourceError(
            f"{place} holds {_as_text(beside[0])!a}"
            + (f" and {len(beside) - 1:,} more" if len(beside) > 1 else "")
            + " next to the folders of the classes: move it out, or let its name begin with _"
        )
    return Folders(skip, True)


def _shared_folders(names: list[str], words: Mapping[str, str | None]) -> int:
    """Return how many leading folders all documents share, but for their class or split."""
    shared, depth = _parts(names[0]), len(_parts(names[0]))
    for name in names:
        parts = _parts(name)
        depth = min(depth, len(parts))
        while parts[: len(shared)] != shared:
            shared.pop()
    skip = 0
    while skip < len(shared) and depth - skip > 2 and split_word(shared[skip], words) not in words:
        skip += 1
    return skip
