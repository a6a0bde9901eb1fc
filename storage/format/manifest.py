"""The layout of a store: a Zarr group in AnnData's published layout, with our manifest as an
attribute.

    zarr.json                   AnnData's root; its attribute "bigfs" is the manifest, written last,
                                in an object store with a hash of the ETags of all else
    X/                          csr_matrix: data, indices, indptr; all rows, training rows first
    obs/                        labels, splits, names, groups, batches, weights and times
    var/  obsm/                 feature names and idf; label sets or several real targets
    uns/columns/<segment>/      csc_matrix of one segment of rows, all columns
    uns/statistics/<segment>/   sums and sums of squares of its columns
    uns/checksums/              a JSON text with the checksum of every document; the manifest holds
                                its hash
    uns/chunk_checksums/        uint32: the CRC-32C of every chunk that lies in a shard

An array of many chunks has them in shards (`bigfs.storage.format.shards`). The JSON text says where
the checksums of its chunks begin, so that a reader does not hold the checksums of all tiles.

The layout by columns is kept per segment of rows: one per split, and one more for every append.
So a split is a choice of segments, and appending writes a segment. Zarr reads a missing chunk as
zeros and a swapped one as numbers. Here every document is compared with its checksum as it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, ClassVar, NamedTuple

import fsspec
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore

from bigfs.cards import brief
from bigfs.settings import Setting
from bigfs.storage import atomic, versions
from bigfs.storage.errors import CorruptStoreError, StoreError
from bigfs.storage.format.checked import parse

VERSION = 1  # of a store and of a graph
MANIFEST, CHECKSUMS, CHUNK_CHECKSUMS = "zarr.json", "uns/checksums", "uns/chunk_checksums"
ETAGS = "etags"  # next to the manifest: a hash of what an object store calls the versions of files
CHUNK = 1 << 18  # values per chunk: 1 MB of float32 or int32
# values per chunk of arrays with one value per row, with one per column, and of strings
ROW_CHUNK, COLUMN_CHUNK, STRING_CHUNK = 1 << 18, 1 << 16, 1 << 15
# the kinds of targets that a matrix of obsm holds: where it lies, and the type of its values
MATRICES = {"multilabel": ("obsm/labels", "int8"), "multioutput": ("obsm/targets", "float64")}
MEND = "restore it or remove it, and stage again"  # what to do about a damaged store
CHECKSUM_CHUNK = Setting(1 << 14)  # checksums of chunks that are read at once, for 16 GB of values


SOURCE_FIELDS = {"uri", "format", "fingerprint", "sample_shape", "planted"}

STRICT = {"extra": "forbid", "strict": True}  # how pydantic reads what follows


@dataclass(frozen=True)
class Segment:
    """Rows [start, stop) of one split, whose columns are stored together."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    name: str  # its number, which becomes part of a path
    split: str | None
    start: int
    stop: int
    nnz: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.stop - self.start


@dataclass(frozen=True)
class Manifest:
    """Metadata of a store. `key` identifies source and settings: equal keys mean equal stores."""

    __repr__ = brief

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    key: str
    shape: tuple[int, int]
    nnz: int
    target: str | None  # "class", "real", "multilabel", "multioutput"
    segments: tuple[Segment, ...]
    row_bounds: tuple[int, ...]
    column_bounds: tuple[int, ...]
    named: tuple[bool, bool]  # whether samples and features have names
    source: dict[str, Any]  # uri, format, fingerprint and other facts about the source
    settings: dict[str, Any]
    content: str = ""  # the hash of the checksums, hence of everything stored

    def faults(self) -> list[str]:
        """Return the fields that contradict one another, or that bigfs does not write so."""
        (n, d), rows = self.shape, [0, *(s.stop for s in self.segments)]
        consistent = {
            "shape": min(n, d) >= 0,
            "nnz": self.nnz >= 0,
            "target": self.target in (None, "class", "real", *MATRICES),
            "segments": bool(self.segments)
            and rows[-1] == n
            and all(
                (s.name, s.start) == (str(i), rows[i])
                and s.start <= s.stop
                and s.nnz >= 0
                and s.split in (None, "train", "test")
                for i, s in enumerate(self.segments)
            ),
            "row_bounds": _are_bounds(self.row_bounds, n),
            "column_bounds": _are_bounds(self.column_bounds, d),
            "source": set(self.source) >= SOURCE_FIELDS,
            "settings": "tile_rows" in self.settings,
        }
        return [name for name, is_right in consistent.items() if not is_right]


def _are_bounds(bounds: tuple[int, ...], end: int) -> bool:
    return (
        2 <= len(bounds) <= end + 2
        and (bounds[0], bounds[-1]) == (0, end)
        and all(a <= b for a, b in pairwise(bounds))
    )


# --- documents ------------------------------------------------------------------------------------


def normalize_uri(uri: str | os.PathLike[str]) -> str:
    """Return a URL as it is, and a path from the root, because workers may run elsewhere."""
    uri = str(uri).removeprefix("file://")
    if "://" not in uri:
        return os.path.abspath(uri)
    if "reference" in (part.partition("://")[0] for part in uri.split("::")):
        raise StoreError(
            f"{uri} cannot be used: it is a list of references, which may lead anywhere "
            f"and run code: give the store itself"
        )
    try:
        fsspec.get_filesystem_class(uri.partition("://")[0])
    except (ImportError, ValueError) as error:
        raise StoreError(f"{uri} cannot be used: {error}") from error
    return uri.rstrip("/")


def store_at(uri: str, *, read_only: bool = False) -> Store:
    """Return the Zarr store at a path or URL."""
    return (
        FsspecStore.from_url(uri, read_only=read_only)
        if "://" in uri
        else LocalStore(uri, read_only=read_only)
    )


def read_document(uri: str, name: str) -> bytes:
    """Read a document of a store."""
    with fsspec.open(f"{uri}/{name}", "rb") as file:
        return file.read()


def exists(uri: str) -> bool:
    """Return whether a finished store is there, damaged or not, once it has its name back.

    A process may have been killed while it replaced the store.
    """
    return _read_root(uri) is not None


def _read_root(uri: str) -> bytes | None:
    """Return the root's document of a finished store, by one look as it may just be replaced."""
    if (root := _root_now(uri)) is None and "://" not in uri:
        atomic.recover(uri)
        root = _root_now(uri)
    return root


def is_there(uri: str) -> bool:
    """Return whether a name has a finished store now, damaged or not."""
    return _root_now(uri) is not None


def _root_now(uri: str) -> bytes | None:
    try:
        root = read_document(uri, MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except _clients_errors() as error:
        raise StoreError(
            f"{uri} cannot be reached: {str(error) or type(error).__name__}"
        ) from error
    # where the first word is damaged, the second one tells
    return root if b'"bigfs"' in root or b'"row_bounds"' in root else None


def _clients_errors() -> tuple[type[Exception], ...]:
    """Return the errors of clients of object stores that are no OSError."""
    kinds = {"botocore.exceptions": "BotoCoreError", "aiohttp": "ClientError"}
    return tuple(
        getattr(sys.modules[module], name)
        for module, name in kinds.items()
        if module in sys.modules
    )


def digest(document: bytes) -> str:
    """Return the hash of a document."""
    return hashlib.blake2b(document, digest_size=16).hexdigest()


def checksum(key: str, document: Any) -> str:
    """Return the checksum of a document, given as bytes or as a buffer of Zarr's."""
    part = document if is_hashed(key) else document[-4:]
    part = part if isinstance(part, bytes) else part.to_bytes()
    return digest(part) if is_hashed(key) else part.hex()


def is_hashed(key: str) -> bool:
    """Return whether a document has a hash for its checksum, and not the CRC at its end."""
    return key.endswith("zarr.json") or key.startswith(f"{CHUNK_CHECKSUMS}/c/")


# --- the manifest, and the checksums of everything -----------------------------------------------


def manifest_of(uri: str) -> Manifest:
    """Read the manifest of a finished store, or raise a StoreError or CorruptStoreError."""
    body = read_root(uri)
    if "segments" not in body:
        raise StoreError(
            f"{uri} holds a graph, not a corpus: give the store that it was computed from"
        )
    from pydantic import TypeAdapter, ValidationError  # tasks of workers read no manifest

    fault = "is missing or wrong"
    try:
        manifest = TypeAdapter(Manifest).validate_json(canonical(body))
        names = manifest.faults()
        if not names:
            return manifest
    except ValidationError as error:
        first = error.errors()[0]
        names = [str(first["loc"][0])]
        if first["type"] == "unexpected_keyword_argument":
            fault = "is unknown"
    raise CorruptStoreError(
        f"{uri}: bigfs did not write the manifest in {MANIFEST}: the field {names[0]!r} {fault}; "
        f"{MEND}"
    )


def read_root(uri: str) -> dict[str, Any]:
    """Read what `seal` was given. Raises the errors of `manifest_of`."""
    return dict(_read_metadata(uri)["manifest"])


def has_its_etags(uri: str) -> bool:
    """Return whether every object of a store has the ETag that it had when the store was finished.

    A local store has none, nor has one that was copied to where it lies.
    """
    etags = _read_metadata(uri).get(ETAGS)
    return etags is not None and etags == objects_of(uri)[1]


def objects_of(uri: str) -> tuple[set[str], str | None]:
    """List a store. Returns all keys but the manifest's, and a hash of their ETags, if any."""
    fs, base = fsspec.core.url_to_fs(uri)
    fs.invalidate_cache()
    found = {
        path.removeprefix(base).lstrip("/"): about.get("ETag") or about.get("etag")
        for path, about in fs.find(base, detail=True).items()
    }
    # hidden: the mark of a store that is built at its name
    etags = {key: tag for key, tag in found.items() if key != MANIFEST and not key.startswith(".")}
    return set(etags), digest(canonical(etags)) if all(etags.values()) else None


def _read_metadata(uri: str) -> dict[str, Any]:
    """Read the attribute of the root, without its checksum."""
    if (root := _read_root(uri)) is None:
        fs, path = fsspec.core.url_to_fs(uri)
        if fs.isfile(path):
            what = "is a file and no store: `bigfs stage` puts a source in one"
        elif fs.exists(f"{path}/run.json"):
            what = "is the directory of a run and no store, which its run.json names"
        elif atomic.is_free(uri) and not fs.exists(path):  # a bucket that is not there is an error
            what = "does not exist: stage a source there first"
        else:
            what = "is not a finished store: stage it again"
        raise StoreError(f"{uri} {what}")
    try:
        document = parse(root)
        metadata = document["attributes"]["bigfs"]
        body, expected = metadata["manifest"], metadata.pop("checksum")
        is_old, version = "version" in body, metadata.get("version")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CorruptStoreError(f"{uri}: the manifest in {MANIFEST} is damaged: {MEND}") from None
    if is_old:  # it stood in the manifest then
        raise StoreError(
            f"{uri} was written by a bigfs before version 1.0: remove it, and stage it again"
        )
    if isinstance(version, int) and version > VERSION:
        raise StoreError(
            f"{uri} has store version {version}, but this bigfs reads versions up to {VERSION}: "
            f"upgrade bigfs, or stage again"
        )
    if digest(canonical(document)) != expected:
        raise CorruptStoreError(f"{uri}: the manifest in {MANIFEST} is damaged: {MEND}")
    return dict(metadata)


def canonical(document: dict[str, Any]) -> bytes:
    """Return a JSON document with sorted keys and no spaces."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


class Shards(NamedTuple):
    """The chunks of an array with shards."""

    first: int  # where their checksums begin in `CHUNK_CHECKSUMS`
    chunks: int
    size: int  # chunks per shard

    def keys(self, path: str) -> list[str]:
        """Return the keys of the shards, in order."""
        return [f"{path}/c/{i}" for i in range(-(-self.chunks // self.size))]


class Checksums(NamedTuple):
    """The checksum of every document by its key, but for shards, and the arrays with shards."""

    documents: dict[str, str]
    shards: dict[str, Shards]

    def keys(self) -> list[str]:
        """Return the keys of all documents."""
        shards = [key for path, shards in self.shards.items() for key in shards.keys(path)]
        return [*self.documents, *shards]


@lru_cache(maxsize=8)
def checksums_of(uri: str, content: str) -> Checksums:
    """Read the checksums of a store."""
    try:
        raw = read_document(versions.place_of(uri, content), f"{CHECKSUMS}/c/0")
    except FileNotFoundError:
        raise lost_document(uri, content, f"array {CHECKSUMS} is missing") from None
    if digest(raw) != content:
        raise lost_document(uri, content, f"array {CHECKSUMS} is damaged")
    try:
        listed = parse(raw)
        documents = dict(listed["documents"])
        shards = {path: Shards(*map(int, told)) for path, told in listed["shards"].items()}
        # append links these files, so none is outside the store
        for key, value in [*documents.items(), *((path, "") for path in shards)]:
            if not isinstance(value, str) or ".." in PurePosixPath(key).parts or key[:1] == "/":
                raise ValueError(f"the checksum of {key!r} is wrong")
        if any(min(told) < 0 or not told.size for told in shards.values()):
            raise ValueError("an array has shards of no size")
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise CorruptStoreError(
            f"{uri}: bigfs did not write array {CHECKSUMS}: {error}; {MEND}"
        ) from None
    return Checksums(documents, shards)


def lost_document(uri: str, content: str, what: str) -> StoreError:
    """Return the error for a changed document: its store was removed, replaced or damaged."""
    if not exists(uri):
        return StoreError(
            f"{uri} was removed while it was in use: stage it again and repeat the command"
        )
    if read_root(uri).get("content") != content:
        return StoreError(
            f"{uri} was replaced while it was in use: repeat the command", may_pass=True
        )
    return CorruptStoreError(f"{uri}: {what}: {MEND}")
