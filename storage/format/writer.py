"""Write a store: arrays and groups with AnnData encodings, their checksums, the manifest last."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.storage import LocalStore

from bigfs.types import AnyArray
from storage import atomic
from storage.errors import StoreError
from storage.format.checked import CheckedStore
from storage.format.manifest import (
    CHECKSUMS,
    CHUNK,
    MANIFEST,
    STRING_CHUNK,
    Manifest,
    canonical,
    checksum,
    digest,
    store_at,
)

CHUNKS_HELD = 8  # by a stream of numbers
# LZ4 writes five times as fast as zstd and reads twice as fast, for a store that is a tenth larger.
# Strings take zstd. Shuffling bits makes floats a tenth smaller; integers are smaller and faster
# with shuffled bytes. What is mostly zeros compresses three times as fast if it is not shuffled, to
# a third of the size.
CODEC: dict[str, tuple[Any, int, Any]] = {"f": ("lz4", 5, "bitshuffle"), "i": ("lz4", 5, "shuffle")}


class ChecksumRecorder(CheckedStore):
    """Keep the checksum of every document written through this store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.checksums: dict[str, str] = {}

    async def set(self, key: str, value: Any) -> None:
        self.checksums[key] = checksum(key, value)
        atomic.before("write", key)
        if isinstance(self.inner, LocalStore):
            # it may be a hard link to a file of the store that grows
            (self.inner.root / key).unlink(missing_ok=True)
        await super().set(key, value)


class Writer:
    """Write the arrays and groups of a store that is being built, with their AnnData encodings."""

    def __init__(self, uri: str, chunk: int = CHUNK) -> None:
        self.uri, self.chunk = uri, chunk
        self.recorder = ChecksumRecorder(store_at(uri))
        self.checksums = self.recorder.checksums

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
    ) -> None:
        """Create an array that `write_chunks` fills. `sparse` says that it holds mostly zeros."""
        n, *rest = (shape,) if isinstance(shape, int) else shape
        name, level, shuffle = CODEC.get(np.dtype(dtype).kind, ("zstd", 3, "shuffle"))
        if sparse:
            shuffle = "noshuffle"
        zarr.create_array(
            self.recorder,
            name=path,
            shape=(n, *rest),
            dtype=dtype,
            chunks=(max(min(chunk or self.chunk, n), 1), *rest),
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
        target = open_unpublished(self.uri, path)
        held = target.chunks[0] * (1 if target.dtype.kind in "OUST" else CHUNKS_HELD)
        for first, values in _regroup(parts, start, held):
            self.checksums.update(write_chunks(self.uri, path, first, values))


def _regroup(parts: Iterable[AnyArray], start: int, size: int) -> Iterator[tuple[int, AnyArray]]:
    """Join parts and cut them at multiples of `size`. Yields (index of first value, values)."""
    held: list[AnyArray] = []
    first, room = start, size - start % size
    for part in parts:
        while len(part):
            held.append(part[:room])
            part, room = part[room:], room - len(held[-1])
            if not room:
                values = np.concatenate(held) if len(held) > 1 else held[0]
                yield first, values
                first, room, held = first + len(values), size, []
    if held:
        yield first, np.concatenate(held)


def write_chunks(uri: str, path: str, start: int, values: AnyArray) -> dict[str, str]:
    """Write whole chunks of an array from `start` on. Returns their checksums."""
    recorder = ChecksumRecorder(store_at(uri))
    target = zarr.open_array(recorder, path=path, mode="r+", zarr_format=3)
    if len(values):
        target[start : start + len(values)] = (
            values.astype(object) if values.dtype.kind == "U" else values
        )
    return recorder.checksums


def open_unpublished(uri: str, path: str) -> zarr.Array[Any]:
    """Open an array of a store that is being built."""
    return zarr.open_array(store_at(uri, read_only=True), path=path, mode="r", zarr_format=3)


# --- the last step --------------------------------------------------------------------------------


def publish(writer: Writer, manifest: Manifest) -> Manifest:
    """Write the checksums and then the manifest, which makes the store exist."""
    return replace(manifest, content=seal(writer, asdict(manifest)))


def seal(writer: Writer, body: dict[str, Any]) -> str:
    """Write the checksums, then `body` with their hash as its `content`. Returns the hash."""
    uri, checksums = writer.uri, writer.checksums
    _delete_remains(uri, checksums)
    checksums.pop(MANIFEST, None)  # Zarr made the root group; its document is replaced below
    array_key = f"{CHECKSUMS}/zarr.json"
    length = len(_listed(checksums | {array_key: digest(b"")}))
    writer.create(CHECKSUMS, length, np.uint8, chunk=length, compressors=())
    listed = _listed(checksums)
    write_chunks(uri, CHECKSUMS, 0, np.frombuffer(listed, dtype=np.uint8))
    _require_all_listed(uri, {*checksums, f"{CHECKSUMS}/c/0"})
    metadata: dict[str, Any] = {"manifest": body | {"content": digest(listed)}}
    attributes = {"encoding-type": "anndata", "encoding-version": "0.1.0", "bigfs": metadata}
    document: dict[str, Any] = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    metadata["checksum"] = digest(canonical(document))
    atomic.before("write", f"{uri}/{MANIFEST}")
    with fsspec.open(f"{uri}/{MANIFEST}", "wb") as file:
        file.write(canonical(document))
    return digest(listed)


def _require_all_listed(uri: str, listed: set[str]) -> None:
    """Refuse a store with a document that has no checksum, or with a checksum of none."""
    fs, base = fsspec.core.url_to_fs(uri)
    fs.invalidate_cache()
    written = {path.removeprefix(base).lstrip("/") for path in fs.find(base)}
    # hidden: the mark of a store that is built at its name
    written = {key for key in written if key != MANIFEST and not key.startswith(".")}
    if wrong := sorted(written ^ listed):
        raise StoreError(
            f"{uri} is not finished: {len(wrong)} of its documents were written without a "
            f"checksum, or not at all, such as {wrong[0]}: another program writes there, or this "
            f"version of Zarr cannot be used"
        )


def _delete_remains(uri: str, checksums: dict[str, str]) -> None:
    """Delete what workers left that died while they wrote a chunk, as others wrote it again."""
    if "://" not in uri:
        for path in Path(uri).rglob("*.partial"):
            if is_remains(path.relative_to(uri).as_posix(), checksums):
                path.unlink(missing_ok=True)


def is_remains(name: str, checksums: dict[str, str]) -> bool:
    """Return whether a file is an unfinished one of Zarr, of a document that was written since."""
    match = re.fullmatch(r"(.+)\.[0-9a-f]+\.partial", name)
    return match is not None and not {match[1], f"{match[1]}.json"}.isdisjoint(checksums)


def _listed(checksums: dict[str, str]) -> bytes:
    return canonical({key: value for key, value in checksums.items() if key != f"{CHECKSUMS}/c/0"})
