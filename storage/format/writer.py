"""Writing a store: arrays and groups with their AnnData encodings, the checksum of every document,
and the manifest last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.storage import WrapperStore

from bigfs.types import AnyArray
from storage.format.manifest import (
    CHECKSUMS,
    CHUNK,
    MANIFEST,
    STRINGS,
    Manifest,
    canonical,
    checksum,
    digest,
    put,
    store_at,
)

HELD = 8  # chunks that a stream of numbers holds
# LZ4 writes five times as fast as zstd and reads twice as fast, and the store is a tenth larger;
# names are worth zstd.
# By bits, floats get a tenth smaller; integers are smaller and faster by bytes.
CODEC: dict[str, tuple[Any, int, Any]] = {"f": ("lz4", 5, "bitshuffle"), "i": ("lz4", 5, "shuffle")}


class Recorded(WrapperStore[Store]):
    """Notes the checksum of every document written through it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.checksums: dict[str, str] = {}

    async def set(self, key: str, value: Any, byte_range: Any = None) -> None:
        self.checksums[key] = checksum(key, value)
        await self._store.set(key, value)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        # an array's parents: a group there keeps its attributes
        if not await self._store.exists(key):
            await self.set(key, value)


class Writer:
    """The arrays and groups of a store that is being built, with their AnnData encodings."""

    def __init__(self, uri: str, chunk: int = CHUNK) -> None:
        self.uri, self.chunk = uri, chunk
        self.recorded = Recorded(store_at(uri))

    @property
    def checksums(self) -> dict[str, str]:
        return self.recorded.checksums

    def group(self, path: str, encoding: str, version: str = "0.1.0", **attributes: Any) -> None:
        attributes = {"encoding-type": encoding, "encoding-version": version, **attributes}
        zarr.create_group(
            self.recorded, path=path, zarr_format=3, overwrite=False, attributes=attributes
        )

    def create(
        self,
        path: str,
        length: int,
        dtype: Any,
        chunk: int | None = None,
        encoding: str = "array",
        compressors: Any = None,
    ) -> None:
        """An empty array, to be filled by `fill`."""
        name, level, shuffle = CODEC.get(np.dtype(dtype).kind, ("zstd", 3, "shuffle"))
        zarr.create_array(
            self.recorded,
            name=path,
            shape=(length,),
            dtype=dtype,
            chunks=(max(min(chunk or self.chunk, length), 1),),
            compressors=(BloscCodec(cname=name, clevel=level, shuffle=shuffle), Crc32cCodec())
            if compressors is None
            else compressors,
            filters=None,
            zarr_format=3,
            config={"write_empty_chunks": True},
            attributes={"encoding-type": encoding, "encoding-version": "0.2.0"},
        )

    def extend(self, path: str, length: int) -> None:
        """Make an array longer; its chunks stay."""
        zarr.open_array(self.recorded, path=path, mode="r+", zarr_format=3).resize((length,))

    def attribute(self, path: str, **attributes: Any) -> None:
        zarr.open_group(
            self.recorded, path=path, mode="r+", zarr_format=3, use_consolidated=False
        ).attrs.update(attributes)

    def write(self, path: str, values: Any, chunk: int | None = None) -> None:
        """A whole array: numbers or strings."""
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
        """A whole array from parts of any length, in order; some chunks are held at a time."""
        text = dtype is str
        self.create(
            path, length, dtype, STRINGS if text else chunk, "string-array" if text else "array"
        )
        self.append(path, 0, parts)

    def append(self, path: str, start: int, parts: Iterable[AnyArray]) -> None:
        """The values of an array from `start` on, from parts of any length."""
        target = unpublished(self.uri, path)
        held = target.chunks[0] * (1 if target.dtype.kind in "OUST" else HELD)
        for at, values in _regrouped(parts, start, held):
            self.checksums.update(fill(self.uri, path, at, values))


def _regrouped(parts: Iterable[AnyArray], start: int, size: int) -> Iterator[tuple[int, AnyArray]]:
    """(place, values): the parts joined and cut where places are multiples of `size`."""
    held: list[AnyArray] = []
    at, room = start, size - start % size
    for part in parts:
        while len(part):
            held.append(part[:room])
            part, room = part[room:], room - len(held[-1])
            if not room:
                values = np.concatenate(held) if len(held) > 1 else held[0]
                yield at, values
                at, room, held = at + len(values), size, []
    if held:
        yield at, np.concatenate(held)


def fill(uri: str, path: str, start: int, values: AnyArray) -> dict[str, str]:
    """Write whole chunks of an array from `start` on; returns their checksums."""
    recorded = Recorded(store_at(uri))
    target = zarr.open_array(recorded, path=path, mode="r+", zarr_format=3)
    if len(values):
        target[start : start + len(values)] = (
            values.astype(object) if values.dtype.kind == "U" else values
        )
    return recorded.checksums


def unpublished(uri: str, path: str) -> zarr.Array[Any]:
    """An array of a store that is being built."""
    return zarr.open_array(store_at(uri, read_only=True), path=path, mode="r", zarr_format=3)


# --- the last step --------------------------------------------------------------------------------


def publish(writer: Writer, manifest: Manifest) -> Manifest:
    """Write the checksums and then the manifest, with which the store exists."""
    return replace(manifest, content=seal(writer, asdict(manifest)))


def seal(writer: Writer, body: dict[str, Any]) -> str:
    """Write the checksums, then `body` with their hash as its `content`; returns the hash."""
    uri, checksums = writer.uri, writer.checksums
    checksums.pop(MANIFEST, None)  # of the group without a manifest that Zarr made above our arrays
    own = f"{CHECKSUMS}/zarr.json"
    length = len(_listed(checksums | {own: digest(b"")}))
    writer.create(CHECKSUMS, length, np.uint8, chunk=length, compressors=())
    listed = _listed(checksums)
    fill(uri, CHECKSUMS, 0, np.frombuffer(listed, dtype=np.uint8))
    told: dict[str, Any] = {"manifest": body | {"content": digest(listed)}}
    attributes = {"encoding-type": "anndata", "encoding-version": "0.1.0", "bigfs": told}
    document: dict[str, Any] = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    told["checksum"] = digest(canonical(document))
    put(uri, MANIFEST, canonical(document))
    return digest(listed)


def _listed(checksums: dict[str, str]) -> bytes:
    return canonical({key: value for key, value in checksums.items() if key != f"{CHECKSUMS}/c/0"})
