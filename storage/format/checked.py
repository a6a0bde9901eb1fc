"""A Zarr store whose documents all pass `get` and `set`: a check there sees each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from zarr.abc.store import Store


class CheckedStore(Store):
    """Hand the documents of another store on. A subclass checks them in `get` or `set`."""

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, store: Store) -> None:
        super().__init__(read_only=store.read_only)
        self.inner = store

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.inner == self.inner

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        return await self.inner.get(key, prototype, byte_range)

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
