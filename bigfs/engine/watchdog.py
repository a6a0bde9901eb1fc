"""A watch on the tasks of a step: when none ends for a while, it says so, and why.

A worker that is nearly full is paused by Dask: it ends what it runs and starts nothing. If a worker
is paused and nothing runs anywhere, only a release of memory can help. The step is given up when
none comes. So it is when the workers wait and the scheduler gives them nothing, and when the
cluster has had no worker for Dask's `no-workers-timeout`.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Collection, Iterator
from typing import Any

import dask
from dask.utils import format_bytes, key_split, parse_timedelta

from bigfs.engine.budget import MemoryLimitError
from bigfs.engine.clusters import AGAIN, ClusterLostError, describe_workers, no_workers_left
from bigfs.settings import Setting

NO_WORKERS_TIMEOUT = "distributed.scheduler.no-workers-timeout"  # in Dask's configuration
# until a step without workers is given up, where Dask says nothing
NO_WORKERS_SECONDS = Setting(60.0)
SILENT_SECONDS = Setting(60.0)  # without the end of a task until the first line; doubled after each
# in which nothing runs and nothing can start, until it is given up
STANDSTILL_SECONDS = Setting(120.0)
LOOK_SECONDS = Setting(5.0)
LISTED = 8  # workers in a message, those that are paused first
log = logging.getLogger(__name__)


@contextlib.contextmanager
def watch(client: Any, futures: Collection[Any]) -> Iterator[None]:
    """Log from a thread while the block waits for `futures` and none ends."""
    ended, given_up = threading.Event(), queue.SimpleQueue[Exception]()
    watcher = threading.Thread(
        target=_watch, args=(client, futures, ended, given_up), daemon=True, name="bigfs-silence"
    )
    watcher.start()
    try:
        yield
    except BaseException as error:
        if given_up.empty():
            raise
        raise given_up.get() from error
    finally:
        ended.set()
        watcher.join()


def _watch(
    client: Any,
    futures: Collection[Any],
    ended: threading.Event,
    given_up: queue.SimpleQueue[Exception],
) -> None:
    pending: set[str] | None = None
    assigned: dict[str, Any] | None = None
    since, patience = time.monotonic(), SILENT_SECONDS.value
    had_workers, lonely_seconds = since, without_workers(client)
    # the answers of a large cluster are large, so it is not asked before
    unasked = min(patience, STANDSTILL_SECONDS.value, lonely_seconds or patience) / 2
    while not ended.wait(LOOK_SECONDS.value):
        now = {future.key for future in list(futures) if not future.done()}
        if now != pending:
            pending, patience = now, SILENT_SECONDS.value
            since = had_workers = time.monotonic()
        if time.monotonic() - since < unasked:
            continue
        before = assigned
        try:
            assigned, workers = client.processing(), describe_workers(client)
        except (OSError, TimeoutError, RuntimeError):
            continue  # when the cluster is lost, the waiting thread says so
        if workers:
            had_workers = time.monotonic()
        elif lonely_seconds and time.monotonic() - had_workers >= lonely_seconds:
            give_up(client, futures, given_up, no_workers_left())
            return
        if before is not None and assigned != before:
            since, patience = time.monotonic(), SILENT_SECONDS.value
            continue
        silent = time.monotonic() - since
        is_long = silent >= STANDSTILL_SECONDS.value and bool(pending)
        if is_long and (error := standstill(workers, assigned)):
            give_up(client, futures, given_up, error)
            return
        if silent >= patience:
            patience *= 2
            still = describe(workers, assigned)
            log.warning("no task has ended for %.0f s: %s", silent, still)


def give_up(client: Any, futures: Collection[Any], given_up: Any, error: Exception) -> None:
    """Cancel the tasks, so that the waiting thread ends with an error."""
    given_up.put(error)
    with contextlib.suppress(OSError, TimeoutError, RuntimeError):
        client.cancel(list(futures), force=True)


def without_workers(client: Any) -> float | None:
    """Return how many seconds a cluster may be without workers, or None without a limit.

    A cluster that starts its own workers may have them in a queue.
    """
    if given := parse_timedelta(dask.config.get(NO_WORKERS_TIMEOUT)):
        return float(given)
    from distributed import LocalCluster

    starts_workers = client.cluster is not None and not isinstance(client.cluster, LocalCluster)
    return None if starts_workers else NO_WORKERS_SECONDS.value


def standstill(workers: dict[str, Any], assigned: dict[str, Any]) -> Exception | None:
    """Return the error of a cluster on which nothing runs and nothing can start, or None.

    On such a cluster a worker is paused, or none has a task, and none runs one or fetches what it
    needs.
    """
    counts = [worker["metrics"].get("task_counts", {}) for worker in workers.values()]
    if not workers or any(count.get("executing") or count.get("flight") for count in counts):
        return None
    still = f"the cluster stands still: {describe(workers, assigned)}"
    if any(worker["status"] == "paused" for worker in workers.values()):
        return MemoryLimitError(still)
    return (
        None if any(assigned.values()) else ClusterLostError(f"{still}; start it again and {AGAIN}")
    )


def describe(workers: dict[str, Any], assigned: dict[str, Any]) -> str:
    """Return what each worker does, or some of many, in one line."""
    if not workers:
        return "the cluster has no workers"
    clauses, paused = list[str](), list[str]()
    for number, address in enumerate(sorted(workers)):
        worker = workers[address]
        names = sorted({str(key_split(key)).strip("_") for key in assigned.get(address, ())})
        if worker["status"] == "paused":
            used, limit = worker["metrics"].get("memory", 0), worker["memory_limit"]
            paused.append(
                f"worker {number} is paused, because it uses {format_bytes(used)} "
                f"of {format_bytes(limit)}"
            )
        elif names:
            clauses.append(f"worker {number} computes {', '.join(names)}")
        else:
            clauses.append(f"worker {number} has nothing to do")
    said = [*paused, *clauses]
    if len(said) > LISTED:
        said[LISTED:] = [f"and {len(said) - LISTED} more"]
    advice = "; raise --memory-limit, use smaller tiles, or choose smaller parameters"
    return ", ".join(said) + (advice if paused else "")
