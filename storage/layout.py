"""How a store lies in Zarr: a group in AnnData's published layout, with our manifest in its attributes.

    zarr.json                   AnnData's root; its attribute "bigfs" is the manifest, written last
    X/                          csr_matrix: data, indices, indptr; all rows, training rows first
    obs/  var/  obsm/           labels, splits, sample names; feature names and idf; label sets
    uns/columns/<segment>/      csc_matrix of one segment of rows, all columns
    uns/statistics/<segment>/   sums, squares of its columns
    uns/checksums/              a JSON text: the checksum of every document; its hash is in the manifest

The column layout is kept by segments of rows (one a split, one more for every append), so that a
split is a choice of segments and appending writes a segment. Zarr reads a missing chunk as zeros
and a swapped one as numbers; here every document is looked up in the checksums as it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import fsspec
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, WrapperStore

from storage import validation
from storage.errors import Damaged, StoreError

VERSION = 1
MANIFEST, CHECKSUMS = "zarr.json", "uns/checksums"
CHUNK = 1 << 18  # values: 1 MB of float32 or int32
PER_ROW, PER_COLUMN, STRINGS = 1 << 18, 1 << 16, 1 << 15  # values a chunk of what there is one of per row or column; names


@dataclass(frozen=True)
class Segment:
    """Rows [start, stop) whose columns are stored together; all of one split."""

    name: str
    split: str | None
    start: int
    stop: int
    nnz: int


@dataclass(frozen=True)
class Manifest:
    """What a store is. `key` says of what it was made: equal keys, equal stores."""

    key: str
    shape: tuple[int, int]
    nnz: int
    target: str | None  # "class", "real", "multilabel"
    segments: tuple[Segment, ...]
    row_bounds: tuple[int, ...]
    column_bounds: tuple[int, ...]
    named: tuple[bool, bool]  # whether samples and features have names
    source: dict[str, Any]  # uri, format, fingerprint, and what the source told of itself
    settings: dict[str, Any]
    content: str = ""  # the hash of the checksums, hence of everything stored
    version: int = VERSION


# --- documents ------------------------------------------------------------------------------------


def absolute(uri: str | os.PathLike[str]) -> str:
    """A URL as it is; a path from the root, because workers may run elsewhere."""
    uri = str(uri).removeprefix("file://")
    if "://" not in uri:
        return os.path.abspath(uri)
    if "reference" in (part.partition("://")[0] for part in uri.split("::")):
        raise StoreError(f"{uri} can't be used: it is a list of references, which may lead anywhere and run code; give the store itself")
    try:
        fsspec.get_filesystem_class(uri.partition("://")[0])
    except (ImportError, ValueError) as error:
        raise StoreError(f"{uri} can't be used: {error}") from error
    return uri.rstrip("/")


def store_at(uri: str, *, read_only: bool = False) -> Store:
    return FsspecStore.from_url(uri, read_only=read_only) if "://" in uri else LocalStore(uri, read_only=read_only)


def put(uri: str, name: str, document: bytes) -> None:
    with fsspec.open(f"{uri}/{name}", "wb") as file:
        file.write(document)


def get(uri: str, name: str) -> bytes:
    with fsspec.open(f"{uri}/{name}", "rb") as file:
        return file.read()


def exists(uri: str) -> bool:
    """Whether a finished store is there; true of a damaged one too."""
    try:
        return b'"bigfs"' in get(uri, MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except _clients_errors() as error:
        raise StoreError(f"{uri} can't be reached: {str(error) or type(error).__name__}") from error


def _clients_errors() -> tuple[type[Exception], ...]:
    """What clients of object stores raise for a server that does not answer or credentials that are not there: no OSError."""
    kinds = {"botocore.exceptions": "BotoCoreError", "aiohttp": "ClientError"}
    return tuple(getattr(sys.modules[module], name) for module, name in kinds.items() if module in sys.modules)


def digest(document: bytes) -> str:
    return hashlib.blake2b(document, digest_size=16).hexdigest()


def checksum(key: str, document: Any) -> str:
    """Of bytes, or a buffer of Zarr's. A chunk ends with its own CRC-32C, which its codec verifies; other documents are hashed."""
    part = document if key.endswith("zarr.json") else document[-4:]
    part = part if isinstance(part, bytes) else part.to_bytes()
    return digest(part) if key.endswith("zarr.json") else part.hex()


# --- the manifest, and the checksums of everything -----------------------------------------------


def manifest_of(uri: str) -> Manifest:
    """The manifest of a finished store.

    Raises
    ------
    StoreError : nothing there, not a store, or one of a newer version.
    Damaged : the manifest is not what was written.
    """
    body = sealed(uri)
    if "segments" not in body:
        raise StoreError(f"{uri} holds a graph, not a corpus: give the store that it was made of")
    try:
        validation.require_manifest(body)
    except ValueError as error:
        raise Damaged(f"{uri}: the manifest in {MANIFEST} is none that bigfs wrote: {error}; restore it or stage again") from None
    segments = tuple(Segment(**segment) for segment in body.pop("segments"))
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in body.items()}
    return Manifest(segments=segments, **fields)


def sealed(uri: str) -> dict[str, Any]:
    """What `seal` wrote; raises as `manifest_of`."""
    if not exists(uri):
        fs, path = fsspec.core.url_to_fs(uri)
        what = "is not a finished store: stage it again" if fs.exists(path) else "does not exist: stage a source there first"
        raise StoreError(f"{uri} {what}")
    try:
        document = validation.parse(get(uri, MANIFEST))
        told = document["attributes"]["bigfs"]
        body, expected, version = told["manifest"], told.pop("checksum"), told["manifest"]["version"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged(f"{uri}: the manifest in {MANIFEST} is damaged: restore it or stage again") from None
    if isinstance(version, int) and version > VERSION and isinstance(body, dict):
        raise StoreError(f"{uri} has store version {version} and this bigfs reads up to {VERSION}: upgrade bigfs, or stage again")
    if digest(canonical(document)) != expected:
        raise Damaged(f"{uri}: the manifest in {MANIFEST} is damaged: restore it or stage again")
    return dict(body)


def canonical(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


@lru_cache(maxsize=8)
def checksums_of(uri: str, content: str) -> dict[str, str]:
    try:
        raw = get(uri, f"{CHECKSUMS}/c/0")
    except FileNotFoundError:
        raise lost(uri, content, f"array {CHECKSUMS} is missing") from None
    if digest(raw) != content:
        raise lost(uri, content, f"array {CHECKSUMS} is damaged")
    try:
        listed = validation.parse(raw)
        validation.require_checksums(listed)
    except ValueError as error:
        raise Damaged(f"{uri}: array {CHECKSUMS} is none that bigfs wrote: {error}; restore it or stage again") from None
    return listed


def lost(uri: str, content: str, what: str) -> StoreError:
    """Return the error for a document that is not what it was: the store was removed, was replaced, or is damaged.

    Parameters
    ----------
    uri : str
        The store.
    content : str
        The hash of its content when it was opened.
    what : str
        The document and what is wrong with it.

    Returns
    -------
    StoreError
        To be raised.
    """
    if not exists(uri):
        return StoreError(f"{uri} was removed while it was in use: stage it again and repeat the command")
    if sealed(uri).get("content") != content:
        return StoreError(f"{uri} was replaced while it was in use: repeat the command")
    return Damaged(f"{uri}: {what}: restore it or stage again")


# --- reading, never a wrong number ----------------------------------------------------------------


class Verified(WrapperStore[Store]):
    """Compares every document read with its checksum: a missing or exchanged one is an error."""

    def __init__(self, store: Store, uri: str = "", content: str = "") -> None:
        super().__init__(store)
        self.uri, self.content = uri, content
        self.checksums = checksums_of(uri, content) if content else {}

    def _with_store(self, store: Store) -> Verified:
        return Verified(store, self.uri, self.content)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        value = await self._store.get(key, prototype, byte_range)
        expected = self.checksums.get(key)
        if value is None and expected is not None:
            raise lost(self.uri, self.content, f"{where(key)} is missing")
        if expected is not None and byte_range is None and checksum(key, value) != expected:
            raise lost(self.uri, self.content, f"{where(key)} is damaged")
        if value is not None:
            try:
                validation.require_codecs(key, value)
            except ValueError as error:
                raise Damaged(f"{self.uri} can't be read: {error}") from None
        return value


def where(key: str) -> str:
    """A document's key in words."""
    array, is_chunk, chunk = key.partition("/c/")
    return f"chunk {chunk} of array {array}" if is_chunk else f"document {key}"


@lru_cache(maxsize=8)
def root(uri: str, content: str) -> zarr.Group:
    """The store's group, for reading; kept open in each process."""
    verified = Verified(store_at(uri, read_only=True), uri, content)
    return zarr.open_group(verified, mode="r", zarr_format=3, use_consolidated=False)


@lru_cache(maxsize=64)
def array(uri: str, content: str, path: str) -> zarr.Array[Any]:
    try:
        found = root(uri, content)[path]
    except KeyError:
        raise lost(uri, content, f"array {path} is missing") from None
    if not isinstance(found, zarr.Array):
        raise Damaged(f"{uri}: {path} is no array: restore it or stage again")
    return found


def read(uri: str, content: str, path: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
    """Values [start, stop) of a 1-d array; a chunk that fails its checksum is named."""
    source = array(uri, content, path)
    stop = source.shape[0] if stop is None else stop
    if stop <= start:
        return np.empty(0, dtype=source.dtype)
    try:
        return np.asarray(source[start:stop])
    except StoreError:
        raise
    except (ValueError, RuntimeError, OSError) as error:
        size = source.chunks[0]
        for chunk in range(start // size, -(-stop // size)):
            try:
                source[chunk * size : min((chunk + 1) * size, source.shape[0])]
            except (ValueError, RuntimeError, OSError):
                raise Damaged(f"{uri}: chunk {chunk} of array {path} is damaged: restore it or stage again") from error
        raise
