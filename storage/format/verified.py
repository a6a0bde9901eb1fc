"""Reads of a store that never give a wrong number: every document is checked as it is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store

from bigfs.storage.errors import CorruptStoreError, StoreError
from bigfs.storage.format.manifest import (
    CHECKSUM_CHUNK,
    CHUNK_CHECKSUMS,
    MEND,
    Checksums,
    checksum,
    checksums_of,
    lost_document,
    store_at,
)
from bigfs.storage.format.shards import ChunkedStore
from bigfs.storage.versions import place_of
from bigfs.types import AnyArray

PARTS_HELD = 8  # of the checksums of chunks by a reader, of 64 kB each


class VerifiedStore(ChunkedStore):
    """Compare every document read with its checksum. A missing or swapped one is an error.

    The checksums of chunks in shards are read as the chunks are, and only some of them are held.
    """

    def __init__(self, store: Store, uri: str = "", content: str = "") -> None:
        super().__init__(store)
        self.uri, self.content = uri, content
        self.checksums = checksums_of(uri, content) if content else Checksums({}, {})
        self.parts: dict[int, AnyArray] = {}  # of the checksums of chunks

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        array = key.partition("/c/")[0]
        unlisted = self.sizes.get(array, 1) > 1 and array not in self.checksums.shards
        if byte_range is not None or unlisted:
            raise CorruptStoreError(
                f"{self.uri} cannot be read: {document_name(key)} holds a shard, which bigfs did "
                f"not write: stage again"
            )
        try:
            return await super().get(key, prototype)
        except StoreError:
            raise
        except ValueError:  # the index of a shard
            raise lost_document(
                self.uri, self.content, f"{document_name(key)} is damaged"
            ) from None

    async def require(self, key: str, value: Any, prototype: Any) -> None:
        expected = await self._expected(key, prototype)
        if value is None and expected is not None:
            raise lost_document(self.uri, self.content, f"{document_name(key)} is missing")
        if expected is not None and checksum(key, value) != expected:
            raise lost_document(self.uri, self.content, f"{document_name(key)} is damaged")
        try:
            await super().require(key, value, prototype)
        except ValueError as error:
            raise CorruptStoreError(f"{self.uri} cannot be read: {error}") from None

    async def _expected(self, key: str, prototype: Any) -> str | None:
        """Return the recorded checksum of a document or of a chunk in a shard."""
        array, _, numbers = key.partition("/c/")
        shards, number = self.checksums.shards.get(array), numbers.partition("/")[0]
        if shards is None or not number:
            return self.checksums.documents.get(key)
        if int(number) >= shards.chunks:
            return ""
        part, place = divmod(shards.first + int(number), CHECKSUM_CHUNK.value)
        if part not in self.parts:
            raw = await self.get(f"{CHUNK_CHECKSUMS}/c/{part}", prototype)
            if len(self.parts) >= PARTS_HELD:
                self.parts.pop(next(iter(self.parts)))
            self.parts[part] = np.frombuffer(raw.to_bytes(), dtype="<u4")
        return self.parts[part][place].tobytes().hex()


def document_name(key: str) -> str:
    """Return the name of a document for messages."""
    array, is_chunk, chunk = key.partition("/c/")
    return f"chunk {chunk} of array {array}" if is_chunk else f"document {key}"


@lru_cache(maxsize=8)
def root(uri: str, content: str) -> zarr.Group:
    """Open the group of a store for reading. Each process keeps it open."""
    verified = VerifiedStore(store_at(uri, read_only=True), uri, content)
    return zarr.open_group(verified, mode="r", zarr_format=3, use_consolidated=False)


@lru_cache(maxsize=64)
def array(uri: str, content: str, path: str) -> zarr.Array[Any]:
    """Open an array of a store for reading."""
    try:
        found = root(uri, content)[path]
    except KeyError:
        raise lost_document(uri, content, f"array {path} is missing") from None
    except StoreError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError):  # forged, as its checksum fits
        found = None
    if not isinstance(found, zarr.Array) or not all(found.chunks):
        raise CorruptStoreError(f"{uri}: {path} is not an array: {MEND}")
    return found


@dataclass(frozen=True)
class StoreRef:
    """Refer to a store by its URI and the hash of its content. Picklable."""

    uri: str
    content: str

    def read(self, path: str, start: int = 0, stop: int | None = None) -> AnyArray:
        """Read the values or rows [start, stop) of an array.

        A store that has grown since is read as it was, where it is kept.
        """
        if (place := place_of(self.uri, self.content)) != self.uri:
            return replace(self, uri=place).read(path, start, stop)
        try:
            return self._read(path, start, stop)
        except StoreError:
            if (place := place_of(self.uri, self.content)) == self.uri:
                raise
            return replace(self, uri=place).read(path, start, stop)

    def _read(self, path: str, start: int, stop: int | None) -> AnyArray:
        source = array(self.uri, self.content, path)
        stop = source.shape[0] if stop is None else stop
        if stop <= start:
            return np.empty((0, *source.shape[1:]), dtype=source.dtype)
        try:
            return np.asarray(source[start:stop])
        except StoreError:
            raise
        except (ValueError, RuntimeError) as error:  # a forged chunk, whose checksum fits
            raise CorruptStoreError(f"{self.uri}: array {path} is damaged: {MEND}") from error

    def require(self, is_right: bool, path: str) -> None:
        """Refuse an array whose checksum fits and whose values bigfs does not write."""
        if not is_right:
            raise CorruptStoreError(f"{self.uri}: array {path} is damaged: {MEND}")

    def size(self, path: str) -> int:
        """Return the length of an array."""
        return int(array(place_of(self.uri, self.content), self.content, path).shape[0])

    def chunk(self, path: str) -> int:
        """Return the length of the chunks of an array."""
        return int(array(place_of(self.uri, self.content), self.content, path).chunks[0])
