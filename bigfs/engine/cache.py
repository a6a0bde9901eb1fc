"""The cache of a process: what it read or computed, held between its tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bigfs.engine.budget import given_limit, process_memory, worker_limit
from bigfs.validation import check_block

LIBRARIES = 210 << 20  # bytes of a worker that has loaded its libraries and its kernels (measured)
DRIVER_LIBRARIES = 310 << 20  # the same of the driving process, before a fit (measured)
CACHE_SHARE = 0.25  # share of a worker's other memory that the cache may take

_cache: dict[tuple[Any, ...], tuple[Any, int]] = {}  # key: (value, bytes)


def load(tile: Any) -> Any:
    """Return the block of a tile, from the cache of this process if it is there.

    Blocks are cached while there is room, and stay: a cyclic scan would evict each one just before
    it is needed again. A block whose tile is not `verified` is checked after each read.
    """
    if not hasattr(tile, "load"):
        return tile  # the array itself
    key: Any = getattr(tile, "key", None)
    if (entry := _cache.get(key)) is not None:
        return entry[0]
    block = tile.load()
    if not getattr(tile, "verified", False):
        block = check_block(block)
    return block if key is None else _keep(key, block)


def get_cached(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Return the value cached under `key`, computing it with `make()` if absent."""
    if (entry := _cache.get(key)) is not None:
        return entry[0]
    return _keep(key, make())


def _keep(key: tuple[Any, ...], value: Any) -> Any:
    """Cache a value if there is room, and return it. Values of other corpora, whose keys have a
    different first part, are evicted for it."""
    size = nbytes(value)
    # copies of the dict: the task of another thread may clear the cache meanwhile
    for stale in [k for k in list(_cache) if k[0] != key[0]]:
        if _fits(size):
            break
        _cache.pop(stale, None)
    if _fits(size):
        _cache[key] = (value, size)
    return value


def _fits(size: int) -> bool:
    return sum(cached_size for _, cached_size in list(_cache.values())) + size <= _capacity()


def is_cached(tile: Any) -> bool:
    """Return whether the block of a tile is in the cache of this process."""
    return getattr(tile, "key", None) in _cache


def clear_cache() -> None:
    """Drop everything from the cache of this process."""
    _cache.clear()


def _capacity() -> float:
    """Return the number of bytes that the cache may take."""
    limit = worker_limit()
    if limit is not None:
        return CACHE_SHARE * (limit - LIBRARIES)
    return CACHE_SHARE * (given_limit() or process_memory())


def nbytes(value: Any) -> int:
    """Return the number of bytes of an array, a sparse array, or a tuple that contains some."""
    if isinstance(value, tuple):
        return sum(nbytes(part) for part in value)
    if hasattr(value, "indptr"):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    return int(getattr(value, "nbytes", 0))
