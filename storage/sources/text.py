"""Folders of documents, or a tar or zip of one: the class is the subfolder, train/ and test/ halves are kept.

An archive is never extracted: documents are read from where they lie in it, so no name in it can
reach the file system. A compressed tar is decompressed once, into scratch, so that it can be cut.
"""

from __future__ import annotations

import os
import re
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from storage.errors import SourceError
from storage.sources.base import Document, TextSource, decode, decompress, fingerprint_of, identity_of, is_compressed

HALF = re.compile(r"(?:^|[-_. ])(train|test)(?:ing)?$", re.IGNORECASE)


class Entry(NamedTuple):
    """A document in its folder or archive; `offset` where its bytes begin in a tar."""

    name: str
    size: int
    offset: int
    label: str | None
    split: str | None


@dataclass
class Text(TextSource):
    """A folder, tar (plain, gz, bz2, xz) or zip of documents in UTF-8 or Latin-1.

    ``prefix-train/class/file`` gives split and class; without halves the first folder that tells
    documents apart is the class; without folders documents are unlabelled.
    """

    format = "text"
    path: str
    plain: str = field(default="", repr=False)  # the decompressed tar

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        folder = path.is_dir() and not any((path / name).exists() for name in ("zarr.json", ".zgroup"))
        return folder or head[257:262] == b"ustar" or zipfile.is_zipfile(path)

    def fingerprint(self) -> str:
        if not os.path.isdir(self.path):
            return fingerprint_of("text", identity_of([self.path]))
        found = [(name, s.st_size, s.st_mtime_ns) for name, s in ((n, os.stat(os.path.join(self.path, n))) for n in _walk(self.path))]
        return fingerprint_of("text", found)

    def unpacked(self, scratch: Path) -> Text:
        if os.path.isdir(self.path) or not is_compressed(self.path):
            return self
        decompress(self.path, scratch / "documents.tar")
        return replace(self, plain=str(scratch / "documents.tar"))

    def pieces(self, size: int) -> list[list[Entry]]:
        entries = _placed(list(self._list()))
        if not entries:
            raise SourceError(f"{self.path} holds no documents: give a folder with one subfolder of text files a class")
        pieces: list[list[Entry]] = []
        room = 0
        for entry in entries:
            if not pieces or entry.size > room:
                pieces.append([])
                room = size
            pieces[-1].append(entry)
            room -= entry.size
        return pieces

    def weight(self, piece: list[Entry]) -> int:
        return sum(entry.size for entry in piece)

    def read(self, piece: list[Entry]) -> Iterator[Document]:
        try:
            for entry, raw in self._contents(piece):
                yield Document(decode(raw), entry.label, entry.split, entry.name)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
            raise SourceError(f"{self.path} is broken: {error}") from error

    def _list(self) -> Iterator[Entry]:
        try:
            if os.path.isdir(self.path):
                for name in _walk(self.path):
                    yield Entry(name, os.path.getsize(os.path.join(self.path, name)), 0, None, None)
            elif zipfile.is_zipfile(self.path):
                with zipfile.ZipFile(self.path) as archive:
                    for info in archive.infolist():
                        if not info.is_dir():
                            yield Entry(info.filename, info.file_size, 0, None, None)
            else:
                with tarfile.open(self.plain or self.path, "r:") as tar:
                    for member in tar:
                        if member.isfile():
                            yield Entry(member.name, member.size, member.offset_data, None, None)
        except (tarfile.TarError, zipfile.BadZipFile) as error:
            raise SourceError(f"{self.path} is broken: {error}") from error

    def _contents(self, piece: list[Entry]) -> Iterator[tuple[Entry, bytes]]:
        if os.path.isdir(self.path):
            for entry in piece:
                yield entry, Path(self.path, entry.name).read_bytes()
        elif zipfile.is_zipfile(self.path):
            with zipfile.ZipFile(self.path) as archive:
                for entry in piece:
                    yield entry, archive.read(entry.name)
        else:
            with open(self.plain or self.path, "rb") as tar:
                for entry in piece:
                    tar.seek(entry.offset)
                    raw = tar.read(entry.size)
                    if len(raw) < entry.size:
                        raise SourceError(f"{self.path} is broken: it ends inside {entry.name}")
                    yield entry, raw


def _walk(folder: str) -> list[str]:
    names = (p.relative_to(folder).as_posix() for p in Path(folder).rglob("*") if p.is_file())
    return sorted(name for name in names)


def _placed(entries: list[Entry]) -> list[Entry]:
    """Entries by name, with split and class from their folders; hidden files are left out."""
    parts = {e.name: [p for p in PurePosixPath(e.name).parts if p != "."] for e in entries}
    shown = sorted(e for e in entries if not any(p.startswith((".", "__MACOSX")) for p in parts[e.name]))
    while shown and all(len(parts[e.name]) > 2 for e in shown) and len({parts[e.name][0] for e in shown}) == 1:
        if HALF.search(parts[shown[0].name][0]):
            break
        for e in shown:
            parts[e.name] = parts[e.name][1:]
    return [_place(e, parts[e.name]) for e in shown]


def _place(entry: Entry, parts: list[str]) -> Entry:
    halves = [i for i, part in enumerate(parts[:-1]) if HALF.search(part)]
    split = None
    if halves:
        found: Any = HALF.search(parts[halves[0]])
        split = found.group(1).lower()
        parts = parts[halves[0] + 1 :]
    return entry._replace(label=parts[0] if len(parts) > 1 else None, split=split)
