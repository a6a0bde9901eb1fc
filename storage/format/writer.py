"""Write a store: arrays and groups with AnnData encodings, their checksums, the manifest last."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import fsspec
import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.storage import LocalStore

from bigfs.storage import atomic
from bigfs.storage.errors import CorruptStoreError, StoreError
from bigfs.storage.format.checked import CheckedStore
from bigfs.storage.format.manifest import (
    CHECKSUM_CHUNK,
    CHECKSUMS,
    CHUNK,
    CHUNK_CHECKSUMS,
    ETAGS,
    MANIFEST,
    STRING_CHUNK,
    VERSION,
    Manifest,
    Shards,
    canonical,
    checksum,
    digest,
    objects_of,
    read_document,
    store_at,
)
from bigfs.storage.format.shards import ChunkedStore, ShardFile, chunks_per_shard, shard_of
from bigfs.types import AnyArray

CHUNKS_HELD = 8  # by a stream of numbers
METADATA = {"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"}
# LZ4 writes five times as fast as zstd and reads twice as fast, for a store that is a tenth larger.
# Strings take zstd. Shuffling bits makes floats a tenth smaller; integers are smaller and faster
# with shuffled bytes. An array of mostly zeros compresses three times as fast if it is not
# shuffled, to a third of the size.
CODEC: dict[str, tuple[Any, int, Any]] = {"f": ("lz4", 5, "bitshuffle"), "i": ("lz4", 5, "shuffle")}


class Target(NamedTuple):
    """Where arrays are written, with their metadata if an object store would be asked for them."""

    uri: str
    metadata: dict[str, bytes]


class ChecksumRecorder(CheckedStore):
    """Keep the checksum of every document written through this store.

    An object store is not asked for metadata, which Zarr looks for at each step: what is there is
    known, because it was written here.
    """

    def __init__(self, target: Target, *, read_only: bool = False) -> None:
        super().__init__(store_at(target.uri, read_only=read_only))
        self.checksums: dict[str, str] = {}
        self.metadata = target.metadata

    def _knows(self, key: str) -> bool:
        return not isinstance(self.inner, LocalStore) and key.rpartition("/")[2] in METADATA

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        if not self._knows(key):
            return await super().get(key, prototype, byte_range)
        document = self.metadata.get(key)
        return None if document is None else prototype.buffer.from_bytes(document)

    async def exists(self, key: str) -> bool:
        return key in self.metadata if self._knows(key) else await super().exists(key)

    async def set(self, key: str, value: Any) -> None:
        self.checksums[key] = checksum(key, value)
        if self._knows(key):
            self.metadata[key] = value.to_bytes()
        atomic.fault_point("write", key)
        if isinstance(self.inner, LocalStore):
            # it may be a hard link to a file of the store that grows
            (self.inner.root / key).unlink(missing_ok=True)
        await super().set(key, value)


class ArrayWriter(ChunkedStore):
    """Write the values of an array in order, from `start` on: whole chunks, and so whole shards.

    An array with shards has one dimension. The chunks of the first shard that come before `start`
    are copied. Memory holds what is given at a time, encoded. `checksums` has that of every
    document written. A shard has the checksums of its chunks, one after the other.
    """

    def __init__(self, target: Target, path: str, start: int = 0) -> None:
        recorder = ChecksumRecorder(target)
        super().__init__(recorder)
        self.uri, self.path, self.position = target.uri, path, start
        self.checksums = recorder.checksums
        # of zeros too: the chunks of a shard follow one another
        self.target = zarr.open_array(self, path=path, mode="r+", zarr_format=3).with_config(
            {"write_empty_chunks": True}
        )
        self.encoded: dict[int, Any] = {}  # chunks by their number
        self.shard: ShardFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self.shard is not None:
            if kind is None:
                self._finish(self.shard)
            else:
                self.shard.abandon()

    async def set(self, key: str, value: Any) -> None:
        if self.sizes[self.path] > 1:
            self.encoded[int(key.rpartition("/")[2])] = value
        else:
            await super().set(key, value)

    def add(self, values: AnyArray) -> None:
        """Write the next values. All but the last are cut where a chunk ends."""
        if not len(values):
            return
        stop = self.position + len(values)
        self.target[self.position : stop] = (
            values.astype(object) if values.dtype.kind == "U" else values
        )
        self.position = stop
        for number in sorted(self.encoded):
            key, place = shard_of(f"{self.path}/c/{number}", self.sizes[self.path])
            if self.shard is None:
                self.shard = ShardFile(self.uri, key, self.sizes[self.path])
                if place:
                    self.shard.copy(place)
            self.shard.add(self.encoded.pop(number).to_bytes())
            if place == self.shard.size - 1:
                self._finish(self.shard)

    def _finish(self, shard: ShardFile) -> None:
        shard.finish()
        self.checksums[shard.key] = shard.crcs
        self.shard = None


class Writer:
    """Write the arrays and groups of a store that is being built, with their AnnData encodings."""

    def __init__(self, uri: str, chunk: int = CHUNK) -> None:
        self.uri, self.chunk = uri, chunk
        self.recorder = ChecksumRecorder(Target(uri, {}))
        self.checksums = self.recorder.checksums
        self.shards: dict[str, int] = {}  # chunks per shard of the arrays that have shards

    def target(self, *paths: str) -> Target:
        """Return what another process needs to write or read arrays of the store."""
        known, keys = self.recorder.metadata, [f"{path}/zarr.json" for path in paths]
        return Target(self.uri, {key: known[key] for key in keys if key in known})

    def group(self, path: str, encoding: str, version: str = "0.1.0", **attributes: Any) -> None:
        attributes = {"encoding-type": encoding, "encoding-version": version, **attributes}
        zarr.create_group(
            self.recorder, path=path, zarr_format=3, overwrite=False, attributes=attributes
        )

    def create(
        self,
        path: str,
        shape: int | tuple[int, ...],
        dtype: Any,
        chunk: int | None = None,
        encoding: str = "array",
        compressors: Any = None,
        sparse: bool = False,
        sharded: bool = True,
    ) -> None:
        """Create an array that `ArrayWriter` fills. `sparse` says that it holds mostly zeros.

        If it has many chunks, it gets shards, unless it is not `sharded`.
        """
        n, *rest = (shape,) if isinstance(shape, int) else shape
        length = max(min(chunk or self.chunk, n), 1)
        size = chunks_per_shard(-(-n // length)) if sharded else 1
        if size > 1:
            self.shards[path] = size
        name, level, shuffle = CODEC.get(np.dtype(dtype).kind, ("zstd", 3, "shuffle"))
        if sparse:
            shuffle = "noshuffle"
        zarr.create_array(
            self.recorder,
            name=path,
            shape=(n, *rest),
            dtype=dtype,
            chunks=(length, *rest),
            shards=(length * size, *rest) if size > 1 else None,
            compressors=(BloscCodec(cname=name, clevel=level, shuffle=shuffle), Crc32cCodec())
            if compressors is None
            else compressors,
            filters=None,
            zarr_format=3,
            config={"write_empty_chunks": True},
            attributes={"encoding-type": encoding, "encoding-version": "0.2.0"},
        )

    def extend(self, path: str, length: int) -> None:
        """Make an array longer. Its chunks stay."""
        zarr.open_array(self.recorder, path=path, mode="r+", zarr_format=3).resize((length,))

    def attribute(self, path: str, **attributes: Any) -> None:
        zarr.open_group(
            self.recorder, path=path, mode="r+", zarr_format=3, use_consolidated=False
        ).attrs.update(attributes)

    def write(self, path: str, values: Any, chunk: int | None = None) -> None:
        """Write a whole array of numbers or strings."""
        values = np.asarray(values)
        self.stream(
            path, len(values), str if values.dtype.kind in "OUST" else values.dtype, [values], chunk
        )

    def stream(
        self,
        path: str,
        length: int,
        dtype: Any,
        parts: Iterable[AnyArray],
        chunk: int | None = None,
    ) -> None:
        """Write a whole array from parts of any length, in order. Memory holds some chunks."""
        text = dtype is str
        self.create(
            path,
            length,
            dtype,
            STRING_CHUNK if text else chunk,
            "string-array" if text else "array",
        )
        self.append(path, 0, parts)

    def append(self, path: str, start: int, parts: Iterable[AnyArray]) -> None:
        """Write the values of an array from `start` on, from parts of any length."""
        self.checksums.update(write_chunks(self.target(path), path, start, parts))

    def gather(self, path: str) -> None:
        """Put the chunks of an array without shards into shards, if they are many.

        A shard takes the name of a chunk that an earlier shard, or itself, holds.
        """
        plain = open_unpublished(self.target(path), path)
        chunks, rest = plain.cdata_shape[0], "/0" * (plain.ndim - 1)
        size, shards = chunks_per_shard(chunks), dict[str, str]()
        if size == 1:
            return
        for first in range(0, chunks, size):
            shard = ShardFile(self.uri, f"{path}/c/{first // size}{rest}", size)
            for i in range(first, min(first + size, chunks)):
                key = f"{path}/c/{i}{rest}"
                document = read_document(self.uri, key)
                if checksum(key, document) != self.checksums.pop(key):
                    raise CorruptStoreError(f"{self.uri}: {key} is damaged: repeat the command")
                shard.add(document)
            shard.finish()
            shards[shard.key] = shard.crcs
        fs, base = fsspec.core.url_to_fs(self.uri)
        for i in range(len(shards), chunks):
            fs.rm(f"{base}/{path}/c/{i}", recursive=True)
        fs.rm_file(f"{base}/{path}/zarr.json")
        self.recorder.metadata.pop(f"{path}/zarr.json", None)
        self.create(path, plain.shape, plain.dtype, plain.chunks[0])
        self.checksums.update(shards)


def _regroup(parts: Iterable[AnyArray], start: int, size: int) -> Iterator[AnyArray]:
    """Join parts and cut them at multiples of `size`. The first value is that at `start`."""
    held: list[AnyArray] = []
    room = size - start % size
    for part in parts:
        while len(part):
            held.append(part[:room])
            part, room = part[room:], room - len(held[-1])
            if not room:
                yield np.concatenate(held) if len(held) > 1 else held[0]
                room, held = size, []
    if held:
        yield np.concatenate(held)


def write_chunks(
    target: Target, path: str, start: int, parts: Iterable[AnyArray]
) -> dict[str, str]:
    """Write whole chunks and shards of an array from `start` on. Returns their checksums."""
    with ArrayWriter(target, path, start) as out:
        held = out.target.chunks[0] * (1 if out.target.dtype.kind in "OUST" else CHUNKS_HELD)
        for values in _regroup(parts, start, held):
            out.add(values)
    return out.checksums


def open_unpublished(target: Target, path: str) -> zarr.Array[Any]:
    """Open an array of a store that is being built."""
    store = ChecksumRecorder(target, read_only=True)
    return zarr.open_array(store, path=path, mode="r", zarr_format=3)


# --- the last step --------------------------------------------------------------------------------


def publish(writer: Writer, manifest: Manifest) -> Manifest:
    """Write the checksums and then the manifest, which makes the store exist."""
    return replace(manifest, content=seal(writer, asdict(manifest)))


def seal(writer: Writer, body: dict[str, Any]) -> str:
    """Write the checksums, then `body` with their hash as its `content`. Returns the hash."""
    uri, checksums = writer.uri, writer.checksums
    _delete_remains(uri, checksums)
    checksums.pop(MANIFEST, None)  # Zarr made the root group; its document is replaced below
    shards = _write_chunk_checksums(writer)
    array_key = f"{CHECKSUMS}/zarr.json"
    length = len(_listed(checksums | {array_key: digest(b"")}, shards))
    writer.create(CHECKSUMS, length, np.uint8, chunk=length, compressors=())
    listed = _listed(checksums, shards)
    writer.append(CHECKSUMS, 0, [np.frombuffer(listed, dtype=np.uint8)])
    metadata: dict[str, Any] = {"version": VERSION, "manifest": body | {"content": digest(listed)}}
    metadata |= _require_all_listed(uri, {*checksums, f"{CHECKSUMS}/c/0"})
    attributes = {"encoding-type": "anndata", "encoding-version": "0.1.0", "bigfs": metadata}
    document: dict[str, Any] = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    metadata["checksum"] = digest(canonical(document))
    atomic.fault_point("write", f"{uri}/{MANIFEST}")
    with fsspec.open(f"{uri}/{MANIFEST}", "wb") as file:
        file.write(canonical(document))
    return digest(listed)


def _write_chunk_checksums(writer: Writer) -> dict[str, Shards]:
    """Write the checksums of the chunks in shards as an array. Returns where each array's are."""
    shards, parts, total = dict[str, Shards](), [], 0
    for path in sorted(writer.shards):
        keys = [key for key in writer.checksums if key.startswith(f"{path}/c/")]
        keys.sort(key=lambda key: int(key.removeprefix(f"{path}/c/").partition("/")[0]))
        crcs = np.frombuffer(
            bytes.fromhex("".join(writer.checksums[key] for key in keys)), dtype="<u4"
        )
        shards[path] = Shards(total, len(crcs), writer.shards[path])
        parts.append(crcs)
        total += len(crcs)
    if parts:
        writer.create(
            CHUNK_CHECKSUMS, total, np.uint32, CHECKSUM_CHUNK.value, compressors=(), sharded=False
        )
        writer.append(CHUNK_CHECKSUMS, 0, parts)
    return shards


def _require_all_listed(uri: str, listed: set[str]) -> dict[str, str]:
    """Refuse a store with a document that has no checksum, or with a checksum of none.

    Returns the ETags of an object store, as the manifest holds them.
    """
    written, etags = objects_of(uri)
    if wrong := sorted(written ^ listed):
        raise StoreError(
            f"{uri} is not finished: {len(wrong)} of its documents were written without a "
            f"checksum, or not at all, such as {wrong[0]}: another program writes there, or this "
            f"version of Zarr cannot be used"
        )
    return {ETAGS: etags} if etags else {}


def _delete_remains(uri: str, checksums: dict[str, str]) -> None:
    """Delete what workers left that died while they wrote a chunk, as others wrote it again."""
    if "://" not in uri:
        for path in Path(uri).rglob("*.partial"):
            if is_remains(path.relative_to(uri).as_posix(), checksums):
                path.unlink(missing_ok=True)


def is_remains(name: str, documents: Collection[str]) -> bool:
    """Return whether a file is an unfinished one of Zarr, of a document that was written since."""
    match = re.fullmatch(r"(.+)\.[0-9a-f]+\.partial", name)
    return match is not None and not {match[1], f"{match[1]}.json"}.isdisjoint(documents)


def _listed(checksums: dict[str, str], shards: dict[str, Shards]) -> bytes:
    listed = {
        key: value
        for key, value in checksums.items()
        if key != f"{CHECKSUMS}/c/0" and key.partition("/c/")[0] not in shards
    }
    return canonical({"documents": listed, "shards": shards})
