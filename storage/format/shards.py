"""Shards: files of many chunks, in the layout of Zarr's codec `sharding_indexed`.

A shard is its chunks one after the other, then their offsets and lengths, closed by a CRC-32C. Any
program that reads Zarr reads it. Zarr's own codec makes a shard of values that are all in memory,
reads its chunks one by one, and has nothing to compare them with. So Zarr encodes and decodes
chunks here, as it does without shards, and a chunk is a range of a file.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import fsspec
import google_crc32c
import numpy as np
from zarr.abc.store import RangeByteRequest, Store, SuffixByteRequest

from bigfs.settings import Setting
from bigfs.storage import atomic
from bigfs.storage.format.checked import CheckedStore, parse
from bigfs.storage.format.manifest import canonical, checksum
from bigfs.types import AnyArray

FILES = Setting(16)  # of an array, before its shards hold more chunks than one
MOST_CHUNKS = Setting(64)  # per shard: 64 MB of numbers before they are compressed
INDEXES_HELD = 256  # by a reader, of 1 kB each
MISSING = (1 << 64) - 1  # the offset and the length of a chunk that is not there


def chunks_per_shard(chunks: int) -> int:
    """Return the chunks per shard of an array: a power of two, and 1 if it has few chunks."""
    wanted = 1 << (-(-chunks // FILES.value) - 1).bit_length()
    return min(wanted, MOST_CHUNKS.value) if chunks else 1


def shard_of(key: str, size: int) -> tuple[str, int]:
    """Return the key of the shard of `size` chunks that holds a chunk, and the place in it."""
    array, _, numbers = key.partition("/c/")
    first, *rest = numbers.split("/")
    return "/".join([array, "c", str(int(first) // size), *rest]), int(first) % size


def without_shards(document: bytes) -> tuple[bytes, int]:
    """Return the metadata of the same array without shards, and its chunks per shard."""
    metadata = parse(document)
    codecs = metadata.get("codecs")
    if not codecs or codecs[0]["name"] != "sharding_indexed":
        return document, 1
    shard, inner = metadata["chunk_grid"]["configuration"], codecs[0]["configuration"]
    size = shard["chunk_shape"][0] // inner["chunk_shape"][0]
    shard["chunk_shape"], metadata["codecs"] = inner["chunk_shape"], inner["codecs"]
    return canonical(metadata), size


def parse_index(raw: bytes, size: int) -> AnyArray:
    """Return the offset and the length of each chunk, from the end of a shard."""
    body, crc = raw[:-4], raw[-4:]
    if len(body) != 16 * size or google_crc32c.value(body).to_bytes(4, "little") != crc:
        raise ValueError("the index of a shard is damaged")
    return np.frombuffer(body, dtype="<u8").reshape(size, 2)


def chunks_of(uri: str, key: str, size: int) -> Iterator[bytes]:
    """Yield the chunks of a shard. A ValueError says that they do not make up the whole file."""
    with fsspec.open(f"{uri}/{key}", "rb") as file:
        end = file.seek(0, os.SEEK_END) - (16 * size + 4)
        file.seek(max(end, 0))
        index, position = parse_index(file.read(), size), 0
        file.seek(0)
        for offset, length in index[index[:, 0] != MISSING].tolist():
            if offset != position:
                raise ValueError("the chunks of a shard do not follow one another")
            yield file.read(length)
            position += length
        if position != end:
            raise ValueError("the chunks of a shard do not fill it")


class ShardFile:
    """Write a shard, chunk by chunk. It gets its name when it is finished."""

    def __init__(self, uri: str, key: str, size: int) -> None:
        self.uri, self.key, self.size = uri, key, size
        self.lengths: list[int] = []
        self.crcs = ""  # of the chunks, one after the other
        self.partial: Path | None = None
        atomic.fault_point("write", key)
        if "://" in uri:
            self.file: Any = tempfile.TemporaryFile()  # noqa: SIM115, closed by `finish` or `abandon`
        else:
            path = Path(uri, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
            self.file = open(self.partial, "wb")  # noqa: SIM115, the same

    def add(self, chunk: Any) -> None:
        """Write the next chunk, given as bytes."""
        self.file.write(chunk)
        self.lengths.append(len(chunk))
        self.crcs += checksum(self.key, chunk)

    def copy(self, chunks: int) -> None:
        """Copy the first chunks of the shard that is there under this name."""
        for chunk in islice(chunks_of(self.uri, self.key, self.size), chunks):
            self.add(chunk)

    def finish(self) -> None:
        index = np.full((self.size, 2), MISSING, dtype="<u8")
        ends = np.cumsum([0, *self.lengths])
        index[: len(self.lengths)] = np.column_stack([ends[:-1], self.lengths])
        body = index.tobytes()
        self.file.write(body + google_crc32c.value(body).to_bytes(4, "little"))
        if self.partial is None:
            self.file.seek(0)
            with fsspec.open(f"{self.uri}/{self.key}", "wb") as out:
                shutil.copyfileobj(self.file, out)
        self.file.close()
        if self.partial is not None:
            # not written in place: it may be a hard link to a file of the store that grows
            os.replace(self.partial, Path(self.uri, self.key))

    def abandon(self) -> None:
        """Leave no unfinished file."""
        self.file.close()
        if self.partial is not None:
            self.partial.unlink(missing_ok=True)


class ChunkedStore(CheckedStore):
    """Show arrays by their chunks, whether these lie in shards or in files of their own."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.sizes: dict[str, int] = {}  # chunks per shard of the arrays that are open
        self.indexes: dict[str, AnyArray] = {}

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        size = self.sizes.get(key.partition("/c/")[0], 1)
        if size > 1:
            value = await self._chunk(key, prototype, size)
            await self.require(key, value, prototype)
            return value
        value = await super().get(key, prototype, byte_range)
        array, is_metadata, _ = key.rpartition("/zarr.json")
        if is_metadata and value is not None:
            document, self.sizes[array] = without_shards(value.to_bytes())
            value = prototype.buffer.from_bytes(document)
        return value

    async def _chunk(self, key: str, prototype: Any, size: int) -> Any:
        shard, place = shard_of(key, size)
        index = self.indexes.get(shard)
        if index is None:
            raw = await self.inner.get(shard, prototype, SuffixByteRequest(16 * size + 4))
            if raw is None:
                return None
            index = parse_index(raw.to_bytes(), size)
            if len(self.indexes) >= INDEXES_HELD:
                self.indexes.pop(next(iter(self.indexes)))
            self.indexes[shard] = index
        offset, length = index[place].tolist()
        if offset == MISSING:
            return None
        return await self.inner.get(shard, prototype, RangeByteRequest(offset, offset + length))
