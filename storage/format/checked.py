"""A Zarr store whose documents all pass `get` and `set`: a check there sees each of them.

Metadata that name a codec which may run code, such as pickle, are refused before it runs.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from zarr.abc.store import Store

# codecs that decode bytes to numbers and text
CODECS = {
    *("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd", "astype", "bitround", "bytes"),
    *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3", "sharding_indexed"),
    *("delta", "endian", "fixedscaleoffset", "packbits", "quantize", "shuffle", "transpose"),
    *("vlen-bytes", "vlen-utf8"),
}
# fields of Zarr's metadata that name codecs
LISTS = ("codecs", "compressor", "compressors", "filters", "index_codecs")


class CheckedStore(Store):
    """Hand the documents of another store on. A subclass checks them in `get` or `set`.

    Zarr reads and writes in several ways: whole, in ranges, many at once, and from 3.3 on also
    without its event loop. Its own `WrapperStore` hands each of them on, past `get` and `set`. This
    class implements only what a store must. Zarr makes the rest of it, or does without.
    """

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, store: Store) -> None:
        super().__init__(read_only=store.read_only)
        self.inner = store

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.inner == self.inner

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        value = await self.inner.get(key, prototype, byte_range)
        await self.require(key, value, prototype)
        return value

    async def require(self, key: str, value: Any, prototype: Any) -> None:
        """Refuse a document that is not what it must be."""
        if value is not None:
            require_codecs(key, value)

    async def get_partial_values(
        self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]
    ) -> list[Any]:
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def set(self, key: str, value: Any) -> None:
        await self.inner.set(key, value)

    async def exists(self, key: str) -> bool:
        return await self.inner.exists(key)

    async def delete(self, key: str) -> None:
        await self.inner.delete(key)

    def list(self) -> AsyncIterator[str]:
        return self.inner.list()

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        return self.inner.list_prefix(prefix)

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        return self.inner.list_dir(prefix)


def parse(document: bytes) -> dict[str, Any]:
    """Return the object of a JSON document. Anything else is a ValueError."""
    try:
        value = json.loads(document)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it holds no JSON object")
    return value


def require_codecs(key: str, document: Any) -> None:
    """Refuse Zarr metadata, in a buffer of Zarr's, that name a codec which may run code."""
    if key.rpartition("/")[2] in ("zarr.json", ".zarray", ".zmetadata"):
        for codec in _codecs(parse(document.to_bytes())):
            if str(codec).removeprefix("numcodecs.") not in CODECS:
                raise ValueError(f"{key} names the codec {codec!r}, which bigfs does not use")


def _codecs(value: Any) -> Iterator[Any]:
    """Yield the names of all codecs in metadata, also in consolidated ones and in shards."""
    if isinstance(value, list):
        for item in value:
            yield from _codecs(item)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name in LISTS:
                for codec in inner if isinstance(inner, list) else [inner]:
                    if isinstance(codec, dict):
                        yield codec.get("id", codec.get("name"))
                    elif isinstance(codec, str):
                        yield codec
            if name != "attributes":
                yield from _codecs(inner)
