"""The process of a task: the cache of tiles, room for its arrays, one thread of BLAS."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Self
from uuid import uuid4

import scipy.linalg  # noqa: F401  # it has a BLAS of its own, which is found only once it is there
from threadpoolctl import ThreadpoolController

from bigfs.engine.budget import (
    IDLE,
    SHARES,
    given_limit,
    in_task,
    most_between_tasks,
    process_memory,
    resident,
    trim_memory,
    worker_limit,
)
from bigfs.validation import check_block

_cache: dict[tuple[Any, ...], tuple[Any, int]] = {}  # key: (value, bytes)


def load(tile: Any) -> Any:
    """Return the block of a tile, from the cache of this process if it is there.

    Blocks are cached while there is room, and stay: a cyclic scan would evict each one just before
    it is needed again. A block whose tile is not `verified` is checked after each read.
    """
    if not hasattr(tile, "load"):
        return tile  # the array itself

    def read() -> Any:
        block = tile.load()
        return block if getattr(tile, "verified", False) else check_block(block)

    key = getattr(tile, "key", None)
    return read() if key is None else get_cached(key, read)


def get_cached(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Return the value cached under `key`, computing it with `make()` if absent."""
    if (entry := _cache.get(key)) is not None:
        return entry[0]
    return _keep(key, make())


def _keep(key: tuple[Any, ...], value: Any) -> Any:
    """Cache a value if there is room, and return it.

    Values of other corpora, whose keys have a different first part, are evicted for it.
    """
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
    return cached_bytes() + size <= _capacity()


def is_cached(tile: Any) -> bool:
    """Return whether the block of a tile is in the cache of this process."""
    return getattr(tile, "key", None) in _cache


def cached_bytes() -> int:
    return sum(size for _, size in list(_cache.values()))


def own_memory() -> int:
    """Return the bytes that this process holds without the cache.

    These are its libraries, and what its user has loaded. A worker counts as an idle process, and
    so does one that holds less, because a fit loads kernels.
    """
    return IDLE if in_task() else max(resident() - cached_bytes(), IDLE)


class Source(str):
    """A name in the cache, whose blocks leave it with the last holder. It travels as plain text."""

    def __new__(cls) -> Self:
        source = super().__new__(cls, uuid4().hex)
        weakref.finalize(source, _drop_source, str(source))
        return source

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


def _drop_source(source: str) -> None:
    for key in [key for key in list(_cache) if key[0] == source]:
        _cache.pop(key, None)


def clear_cache() -> None:
    """Drop everything from the cache of this process."""
    _cache.clear()


def _capacity() -> float:
    """Return the number of bytes that the cache may take."""
    limit = worker_limit()
    if limit is not None:
        return SHARES.value.cache * (limit - IDLE)
    return SHARES.value.cache * (given_limit() or process_memory())


def nbytes(value: Any) -> int:
    """Return the number of bytes of an array, a sparse array, or a tuple that contains some."""
    if isinstance(value, tuple):
        return sum(nbytes(part) for part in value)
    if hasattr(value, "indptr"):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    return int(getattr(value, "nbytes", 0))


# --- release of memory ----------------------------------------------------------------------------


def release_memory() -> None:
    """Release memory of this worker so that a task on a tile fits. Runs after each task. Freed
    memory goes back to the system first. If that does not suffice, blocks leave the cache."""
    limit = worker_limit()
    if limit is None:
        return
    most = most_between_tasks(limit)
    for allowed, release in (
        (most, trim_memory),
        (most, lambda: _drop_blocks(resident() - most)),
        (SHARES.value.relief * limit, gc.collect),  # which takes longer than a short task
        (SHARES.value.relief * limit, trim_memory),
    ):
        if resident() <= allowed:
            return
        release()


def _drop_blocks(size: float) -> None:
    """Drop blocks of `size` bytes or more from the cache, the newest first: in a cyclic scan the
    oldest is needed next."""
    while _cache and size > 0:
        with contextlib.suppress(KeyError):  # the task of another thread has dropped the last one
            size -= _cache.popitem()[1][1]
    trim_memory()


def make_room(size: int) -> None:
    """Clear the cache of this worker if a task that takes `size` bytes does not fit with it."""
    limit = worker_limit()
    if limit is not None and resident() + size > SHARES.value.relief * limit:
        clear_cache()
        trim_memory()


# --- BLAS -----------------------------------------------------------------------------------------


_blas_lock = threading.Lock()
_blas_blocks = [0]  # blocks that this process is in, of all its threads
_blas_limits: list[Any] = []  # one per set of libraries that was found


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread in the block, so that its answer has the same bits anywhere. The
    setting is the process's, and stays until the last thread leaves such a block. That of a library
    on OpenMP is each thread's."""
    with _blas_lock:
        controller = _controller(len(sys.modules))
        of_thread = controller.select(threading_layer="openmp").limit(limits=1, user_api="blas")
        if not _blas_limits or _blas_limits[-1][0] is not controller:
            _blas_limits.append((controller, controller.limit(limits=1, user_api="blas")))
            _let_go(controller)
        _blas_blocks[0] += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_blocks[0] -= 1
            while _blas_limits and not _blas_blocks[0]:
                controller, limit = _blas_limits.pop()
                limit.restore_original_limits()
                _let_go(controller)
            of_thread.restore_original_limits()


def _let_go(controller: ThreadpoolController) -> None:
    """Let other threads set the number of threads of OpenBLAS.

    From 3.8 on, threadpoolctl ignores all but the thread that set it, until that leaves a block.
    """
    with controller.limit(limits=None):
        pass


@lru_cache(1)
def _controller(n_modules: int) -> ThreadpoolController:
    """Return the controller of the libraries that are loaded, which another import may change."""
    return ThreadpoolController()
