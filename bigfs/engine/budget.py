"""The memory that this process has: the given limit, or the one of its control group.

It is the same for the whole life of a process, so that no plan depends on the free memory of the
minute. Freed memory goes back to the system.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from multiprocessing.dummy import Process as PoolThread
from typing import Any
from weakref import WeakSet

import numpy as np
import psutil

from bigfs.result import holding
from bigfs.settings import Setting

# bytes of the process that every choice of a way assumes where none are given, however many it has
PLANNED = 10**9
# bytes of an idle process: one that staged tables, ran a solver and trained scikit-learn's models,
# with the libraries and the kernels of these (measured)
IDLE = 352 << 20
TILE_TASK = 96 << 20  # bytes that a task on a tile of the usual size takes (measured)


class MemoryLimitError(MemoryError):
    """The projected memory of a step exceeds its limit. Raised before the step runs."""


@dataclass(frozen=True)
class Shares:
    """The share of the memory of a process that each step may take."""

    # of `memory_limit`
    row_block: float = 0.04  # rows of a graph's task: two such blocks, their lists and copies
    discriminant_block: float = 0.1  # neighborhoods of a task of UDFS
    small_matrix: float = 0.05  # a matrix that is read many times and held as a whole
    # of `planned_memory`, because the choice of a way depends on them
    active_columns: float = 0.25  # gathered columns of an active set
    column_block: float = 0.1  # sums per class of a block of columns, with the arrays made of them
    svm_kernel: float = 0.25  # n × n matrices of an SVM by its kernel
    column_strip: float = 0.11  # arrays of a strip of the columns of a dense n × r
    ridge_strip: float = 0.05  # what the primal ridge makes a strip at a time
    # of the limit of a worker
    cache: float = 0.25  # blocks that stay between tasks, of what its libraries leave
    waiting_results: float = 0.3  # results that other tasks wait for, of what its libraries leave
    most: float = 0.9  # what a large task may take in all; at 0.95 Dask ends a worker
    pause: float = 0.8  # use from which Dask pauses a worker
    relief: float = 0.75  # of the limit that may stay in use when a large task starts


SHARES = Setting(Shares())


SERIAL = "serial"  # the client of a session in this process


@dataclass(frozen=True)
class Session:
    """The session of a block: who runs the tasks, and the memory limit of this process."""

    client: Any = None  # of a cluster, or `SERIAL`. None: not asked yet
    limit: int | None = None  # bytes that were given
    # bytes that this process holds without a step: all, where the limit is its own, `IDLE` where it
    # is that of a worker or a default, and 0 where it is that of the steps alone
    baseline: int | None = None
    planned: int = PLANNED  # bytes of the process by which a way is chosen
    said: set[str] | None = None  # what was said already and is not said again


_session: ContextVar[Session | None] = ContextVar("session", default=None)


@dataclass(eq=False)
class _Block:
    """A block that a thread is in, with the threads that had begun before it."""

    session: Session
    thread: threading.Thread
    before: WeakSet[threading.Thread]


_blocks: list[_Block] = []
_held: list[Session] = []  # of clusters in no block


@contextlib.contextmanager
def holding_session(**changes: Any) -> Iterator[None]:
    """Change the session inside a block."""
    session = replace(current_session(), **changes)
    block = _Block(session, threading.current_thread(), WeakSet(threading.enumerate()))
    _blocks.append(block)
    try:
        with holding(_session, session):
            yield
    finally:
        _blocks.remove(block)


def hold_session(**changes: Any) -> Callable[[], None]:
    """Change the session outside of all blocks. Returns a function that ends this."""
    session = replace(current_session(), **changes)
    _held.append(session)

    def release() -> None:
        _held[:] = [other for other in _held if other is not session]

    return release


def current_session() -> Session:
    """Return the session of the innermost block that this thread is in, else the one that is held.

    A thread of a pool that began inside a block, as threads of joblib do, is in that block too,
    unless another thread is in a block of its own. Any other thread is in no block.
    """
    if (own := _session.get()) is not None:
        return own
    thread = threading.current_thread()
    if isinstance(thread, PoolThread) and not in_task():
        around = [block for block in list(_blocks) if thread not in block.before]
        if len({block.thread for block in around}) == 1:
            return around[-1].session
    return _held[-1] if _held and not in_task() else Session()


def first_time(what: str) -> bool:
    """Return whether this is not said yet in the session, outside of which nothing is kept."""
    said = current_session().said
    is_first = said is None or what not in said
    if said is not None:
        said.add(what)
    return is_first


def leave_unsaid(what: str) -> contextlib.AbstractContextManager[None]:
    """Let `first_time` say no inside a block, whose caller says it."""
    return holding_session(said={what, *(current_session().said or ())})


def limit_memory(limit: int) -> contextlib.AbstractContextManager[None]:
    """Set the memory limit of each step inside a block, on top of what this process holds."""
    return holding_session(limit=limit, baseline=0)


def count_as_idle() -> contextlib.AbstractContextManager[None]:
    """Let this process count as an idle one inside a block, whatever its user has loaded."""
    return holding_session(baseline=IDLE)


def given_limit() -> int | None:
    """Return the limit that `limit_memory` has set, or None."""
    return current_session().limit


def in_task() -> bool:
    """Return whether this thread runs a task of a Dask worker."""
    return worker_limit() is not None


def worker_limit() -> float | None:
    """Return the memory limit of this Dask worker in bytes, or infinity, and None in the driver."""
    if "distributed" in sys.modules:
        from distributed import get_worker

        with contextlib.suppress(ValueError):  # "no worker found"
            return get_worker().memory_manager.memory_limit or np.inf
    return None


def process_memory() -> int:
    """Return the number of bytes that a task of this process may use, if no limit was given."""
    from distributed import get_worker, system

    limit = worker_limit()
    if limit is None or limit == np.inf:
        return int(system.MEMORY_LIMIT)
    return of_thread(limit, get_worker().state.nthreads)


def of_thread(limit: float, n_threads: int) -> int:
    """Return the limit that each thread of a worker plans by.

    The threads share its libraries, and the rest in equal parts.
    """
    shared = min(IDLE, limit)
    return int(shared + (limit - shared) / max(n_threads, 1))


# --- freed memory -------------------------------------------------------------------------------


def most_between_tasks(limit: float) -> float:
    """Return the use of a worker from which memory is released, so that a task on a tile fits."""
    return min(SHARES.value.relief * limit, SHARES.value.pause * limit - TILE_TASK)


def trim_memory() -> None:
    """Return freed memory to the system, where glibc would hold it for later."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def resident() -> int:
    """Return the resident bytes of this process."""
    return int(psutil.Process().memory_info().rss)
