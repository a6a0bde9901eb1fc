"""The one door to Dask: work by tile on this process, on a cluster of processes, or at an address.

A tile is a small key with `start`, `stop` and `load()`. One task is one tile's read and product; its
result is dense and small. Results come back in tile order and sums are taken in a fixed tree, so
the answer does not depend on the workers: neither on their number nor on the death of one.

With no `cluster(...)` around it, everything runs serially in this process.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

import dask
import numpy as np
from dask.callbacks import Callback
from dask.delayed import Delayed
from dask.utils import format_bytes, parse_bytes

FAN = 8  # of the reduction tree; part of the answer's last bits, so a constant
ROLES = ("client", "worker", "scheduler")  # that a TLS certificate serves
CACHE_SHARE = 0.25  # of a worker's memory, for tiles that are read once and kept


class Tile(Protocol):
    """Rows or columns [start, stop) of a matrix, loaded where they are used."""

    start: int
    stop: int

    def load(self) -> Any: ...


class NotEnoughMemory(MemoryError):
    """A step's projected memory passes what it was given; raised before the step runs."""


class ClusterLost(RuntimeError):
    """The Dask cluster can't be reached, or lost too many workers."""


# --- progress -----------------------------------------------------------------------------------

Progress = Callable[[str, int, int], None]  # what runs, tiles done, tiles in all
_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextlib.contextmanager
def progress(show: Progress) -> Iterator[None]:
    """Tell `show(label, done, total)` of every labelled map while the block runs; an enclosing `progress` is told too."""
    outer = _progress.get()

    def both(label: str, done: int, total: int) -> None:
        for told in (outer, show):
            if told is not None:
                told(label, done, total)

    token = _progress.set(both)
    try:
        yield
    finally:
        _progress.reset(token)


# --- the engine ---------------------------------------------------------------------------------

_client: ContextVar[Any] = ContextVar("client", default=None)


@contextlib.contextmanager
def cluster(
    scheduler: str | None = None,
    *,
    workers: int | None = None,
    memory_limit: str | int = "1GB",
    security: Any = None,
    timeout: str = "20s",
) -> Iterator[Any]:
    """Run the tiles of the block on a Dask cluster.

    Parameters
    ----------
    scheduler : address of a running scheduler (``tcp://…``, ``tls://…``). None starts a cluster of
        processes on this machine, bound to 127.0.0.1.
    workers : processes to start, one thread each; default: one a core. 0 runs serially, here.
    memory_limit : of each worker, as Dask writes it ("1GB"). Ignored with `scheduler`.
    security : for tls addresses: a `distributed.Security`, or the folder that `bigfs certificates` wrote.
    timeout : how long to wait for a scheduler to answer.

    Yields the `distributed.Client`, or None when serial. Raises `ClusterLost`, with advice, when the
    cluster can't be reached or goes away while the block works.
    """
    if scheduler is None and workers == 0:
        yield None
        return
    from distributed import LocalCluster

    settings = {
        "distributed.scheduler.no-workers-timeout": "60s",
        "distributed.scheduler.allowed-failures": 3,
        "distributed.admin.large-graph-warning-threshold": "64MB",
        # a worker keeps freed memory of some megabytes: Dask's own setting gives it back at once, and half of the time
        # of reading and writing chunks then goes into getting it again, page by page
        "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 64 << 20,
        "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 32 << 20,
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        if scheduler is None:
            address: Any = stack.enter_context(
                LocalCluster(
                    n_workers=workers or os.cpu_count() or 1,
                    threads_per_worker=1,
                    memory_limit=memory_limit,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                )
            )
        else:
            address = scheduler
        with _reached(scheduler):
            client = stack.enter_context(_connected(address, security=_security(security), set_as_default=False, timeout=timeout))
        token = _client.set(client)
        try:
            yield client
        finally:
            _client.reset(token)


def _connected(address: Any, **how: Any) -> Any:
    """A `distributed.Client`; one that can't connect is closed here.

    distributed leaves it to the garbage collector, which comes at any time: while the next client starts, say, and
    then waits for ever for the lock that this start holds.
    """
    from distributed import Client

    class Whole(Client):
        def start(self, **how: Any) -> None:
            try:
                super().start(**how)
            except BaseException:
                self.close()
                self._loop_runner.stop()
                raise

    return Whole(address, **how)


def _security(security: Any) -> Any:
    """What `distributed` takes: a folder of certificates becomes mutual TLS that refuses everything else."""
    if not isinstance(security, str | os.PathLike):
        return security
    from distributed import Security

    folder = Path(security)
    missing = [name for name in ("ca.pem", "node.pem", "node.key") if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{folder} has no {', '.join(missing)}: make certificates with `bigfs certificates {folder}`")
    pair = {f"tls_{role}_{kind}": str(folder / f"node.{end}") for role in ROLES for kind, end in (("cert", "pem"), ("key", "key"))}
    return Security(tls_ca_file=str(folder / "ca.pem"), require_encryption=True, **pair)


@contextlib.contextmanager
def _reached(scheduler: str | None) -> Iterator[None]:
    try:
        yield
    except (OSError, TimeoutError) as error:
        trusted = ", or with --tls the certificates that it trusts" if str(scheduler).startswith("tls") else ""
        raise ClusterLost(f"no Dask scheduler answers at {scheduler}: start one or give another address{trusted}") from error
    except TypeError as error:  # distributed's answer to a tls:// address without certificates
        if "ssl_context" not in str(error):
            raise
        raise ClusterLost(f"{scheduler} takes only encrypted connections: give your certificates with --tls DIR") from error
    except RuntimeError as error:  # and to a tcp:// address where encryption is required
        if "encryption required" not in str(error):
            raise
        raise ClusterLost(f"{scheduler} is not encrypted and the Dask configuration requires it: give a tls:// address") from error


@contextlib.contextmanager
def _lost() -> Iterator[None]:
    """The errors of a cluster that broke, as `ClusterLost` with advice; errors of the work pass as they are."""
    from distributed.client import CancelledError, ClosedClientError
    from distributed.comm import CommClosedError
    from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError

    again = "start it again and repeat the command: finished stages and steps are kept"
    try:
        yield
    except KilledWorker as error:
        raise ClusterLost(
            f"the step {_step(error)} killed every worker that tried it, most likely by their memory limit: "
            "raise --memory-limit, or stage with fewer --tile-rows; finished stages and steps are kept"
        ) from error
    except (NoWorkerError, NoValidWorkerError) as error:
        raise ClusterLost(f"the Dask cluster has no workers left: {again}") from error
    except (CancelledError, ClosedClientError, CommClosedError) as error:
        raise ClusterLost(f"the Dask cluster went away while it worked: {again}") from error


def _step(error: Any) -> str:
    return str(error.task).rsplit("-", 5)[0].strip("('\"")


def client() -> Any:
    """The client of the enclosing `cluster`, or None when serial."""
    return _client.get()


def n_workers() -> int:
    return 1 if client() is None else max(1, len(_addresses()))


def _addresses() -> list[str]:
    with _lost():
        return sorted(client().scheduler_info(n_workers=-1)["workers"])


# --- map and reduce -----------------------------------------------------------------------------


def map_tiles(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    local: bool = False,
    label: str | None = None,
) -> list[Any]:
    """``[fn(tile, *each_i, *shared) for tile in tiles]`` in order, one task a tile.

    Parameters
    ----------
    shared : operands that every task needs.
    each : sequences as long as `tiles`: the operands that only tile i needs.
    local : run in this process whatever the cluster (the tiles hold arrays, not keys).
    label : show progress under this name.
    """
    return _collect(_tasks(fn, tiles, shared, each, local), local, label)


def lazy_tiles(
    fn: Callable[..., Any], tiles: Sequence[Any], *shared: Any, each: Sequence[Sequence[Any]] = (), local: bool = False
) -> list[Delayed]:
    """The tasks of `map_tiles`, not run: operands (`each`) of a later map, which runs each of them once."""
    return _tasks(fn, tiles, shared, each, local)


def reduce_tiles(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    combine: Callable[[list[Any]], Any] | None = None,
    local: bool = False,
    label: str | None = None,
) -> Any:
    """`map_tiles`, then one value: parts are combined (summed) in a tree of fixed shape."""
    if local or client() is None:
        parts = map_tiles(fn, tiles, *shared, each=each, local=local, label=label)
        while len(parts) > 1:
            parts = [(combine or add)(parts[k : k + FAN]) for k in range(0, len(parts), FAN)]
        return parts[0]
    parts = _tasks(fn, tiles, shared, each, local)
    while len(parts) > 1:
        parts = [dask.delayed(combine or add, pure=False)(parts[k : k + FAN]) for k in range(0, len(parts), FAN)]
    return _collect(parts, local, None)[0]


def add(parts: list[Any]) -> Any:
    """Sum in order. Aligned first: numpy rounds unaligned operands differently."""
    total = np.array(parts[0], dtype=np.result_type(parts[0], np.float64))
    for part in parts[1:]:
        total += np.require(part, requirements="A")
    return total


def _tasks(
    fn: Callable[..., Any], tiles: Sequence[Any], shared: Sequence[Any], each: Sequence[Sequence[Any]], local: bool
) -> list[Delayed]:
    shared = [dask.delayed(s) if isinstance(s, np.ndarray) or hasattr(s, "indptr") else s for s in shared]
    task = dask.delayed(_Aligned(fn), pure=False)
    addresses = [] if local or client() is None else _addresses()
    tasks = []
    for i, tile in enumerate(tiles):
        with _prefer(addresses, i, len(tiles)):
            tasks.append(task(tile, *(operand[i] for operand in each), *shared))
    return tasks


def _prefer(addresses: list[str], i: int, count: int) -> contextlib.AbstractContextManager[Any]:
    """The worker that tile i prefers, the same in every pass, so that a kept tile is found again."""
    if not addresses:
        return contextlib.nullcontext()
    return dask.annotate(workers=[addresses[i * len(addresses) // count]], allow_other_workers=True)


class _Aligned:
    """Arrays that travelled between processes may be unaligned, which changes how BLAS rounds."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__name__ = getattr(fn, "__name__", "tile")

    def __call__(self, *operands: Any) -> Any:
        return self.fn(*(np.require(o, requirements="A") if isinstance(o, np.ndarray) else o for o in operands))


def _collect(tasks: list[Delayed], local: bool, label: str | None) -> list[Any]:
    show = _progress.get() if label else None
    if local or client() is None:
        with _Finished(show, str(label), {task.key for task in tasks}) if show else contextlib.nullcontext():
            return list(dask.compute(*tasks, scheduler="sync", optimize_graph=False))
    from distributed import as_completed

    with _lost():
        futures = client().compute(tasks, optimize_graph=False)
        if show:
            for done, _ in enumerate(as_completed(futures, loop=client().loop), 1):
                show(str(label), done, len(tasks))
        return list(client().gather(futures))


class _Finished(Callback):
    """Progress of a serial run: counts the tasks asked for, not what they depend on."""

    def __init__(self, show: Progress, label: str, wanted: set[Any]) -> None:
        super().__init__(posttask=self._count)
        self.show, self.label, self.wanted, self.done = show, label, wanted, 0

    def _count(self, key: Any, *_: Any) -> None:
        if key in self.wanted:
            self.done += 1
            self.show(self.label, self.done, len(self.wanted))


# --- memory -------------------------------------------------------------------------------------


def memory_limit() -> int:
    """Bytes that one process may use: a worker's limit on Dask, else the machine's free memory."""
    if client() is not None:
        limits = [w["memory_limit"] for w in client().scheduler_info(n_workers=-1)["workers"].values()]
        if limits and min(limits) > 0:
            return int(min(limits))
    import psutil

    return int(psutil.virtual_memory().available)


def require_memory(projected: int, what: str, limit: int | str | None = None) -> None:
    """Raise `NotEnoughMemory`, with both numbers, if `projected` bytes do not fit in `limit`."""
    given = memory_limit() if limit is None else parse_bytes(limit)
    if projected > given:
        raise NotEnoughMemory(
            f"{what} needs {format_bytes(int(projected))} in one process and {format_bytes(int(given))} is allowed: "
            "raise --memory-limit, use smaller tiles, or ask for less"
        )


def peak_memory() -> dict[str, int]:
    """Peak resident bytes so far of this process ("driver") and of each worker ("worker 0", …)."""
    peaks = {"driver": _peak_resident()}
    if client() is not None:
        with _lost():
            found = client().run(_peak_resident)
        peaks |= {f"worker {i}": found[address] for i, address in enumerate(sorted(found))}
    return peaks


def _peak_resident() -> int:
    if sys.platform == "linux":  # getrusage would count what the parent held when it forked
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# --- tiles that are kept ------------------------------------------------------------------------

_kept: dict[tuple[Any, ...], tuple[Any, int]] = {}


def load(tile: Any) -> Any:
    """`tile.load()`, kept in this process while there is room; a corpus that fits is read once.

    What does not fit is streamed: kept tiles stay, because a cyclic scan would evict each one
    just before it is wanted again.
    """
    if not hasattr(tile, "load"):
        return tile  # the array itself: in-memory input, or a block of a Dask array
    key = getattr(tile, "key", None)
    if key is None:
        return tile.load()
    if key in _kept:
        return _kept[key][0]
    value = tile.load()
    size = _nbytes(value)
    for stale in [k for k in _kept if k[0] != key[0]]:
        if sum(s for _, s in _kept.values()) + size <= _room():
            break
        del _kept[stale]
    if sum(s for _, s in _kept.values()) + size <= _room():
        _kept[key] = (value, size)
    return value


def kept(tile: Any) -> bool:
    """Whether this process has the tile in memory."""
    return getattr(tile, "key", None) in _kept


def forget() -> None:
    """Drop this process's kept tiles."""
    _kept.clear()


def _room() -> float:
    if "distributed" in sys.modules:
        from distributed import get_worker

        with contextlib.suppress(ValueError):  # "no worker found": this is the driver
            return CACHE_SHARE * (get_worker().memory_manager.memory_limit or np.inf)
    import psutil

    return CACHE_SHARE * psutil.virtual_memory().available


def _nbytes(value: Any) -> int:
    if hasattr(value, "indptr"):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    return int(value.nbytes)
