"""Clusters: start one on this machine, connect to a scheduler, report failures in one line."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import signal
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import dask
from dask.system import CPU_COUNT
from dask.utils import key_split, parse_bytes

from bigfs.engine.budget import IDLE, SERIAL, SHARES, TILE_TASK, hold_session, holding_session
from bigfs.engine.specification import (
    configured_scheduler,
    is_specification,
    read_specification,
)

# Dask's HTTP servers have no password, so they serve no pages unless the user asks for the
# dashboard.
WITHOUT_HTTP: dict[str, Any] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
WITH_DASHBOARD: dict[str, Any] = {
    "distributed.scheduler.http.routes": [
        f"distributed.http.{page}"
        for page in ("scheduler.info", "scheduler.json", "health", "statics")
    ],
    "distributed.worker.http.routes": [],
}
# bokeh takes a page's origin with its port alone
ORIGINS = "distributed.scheduler.dashboard.bokeh-application.allow_websocket_origin"
BEFORE_START = {  # environment of a worker before it starts
    # A worker holds on to some megabytes of freed memory. Dask's own setting returns them at once,
    # and then half of the time of reading and writing chunks goes into getting them back, page by
    # page.
    "MALLOC_TRIM_THRESHOLD_": 64 << 20,
    "MALLOC_MMAP_THRESHOLD_": 32 << 20,
    # Zarr decodes chunks in threads, and each would hold freed memory of its own.
    "MALLOC_ARENA_MAX": 1,
}
# what distributed sets by default
ONE_THREAD = {"OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1}
LEAST_WORKER = int(IDLE / SHARES.value.most) + TILE_TASK  # bytes of the smallest worker
WORKER_MEMORY = "1GB"  # of a worker of a local cluster, where no limit is given
ROLES = ("client", "worker", "scheduler")  # one TLS certificate serves all three


class ClusterLostError(RuntimeError):
    """The Dask cluster cannot be reached, or it lost too many workers."""


class Cluster:
    """A cluster that works until its block ends, or until `close`.

    Parameters
    ----------
    running : context manager
        Starts the cluster. Gives its client and the changes of the session.

    Attributes
    ----------
    client : distributed.Client or None
        The client. None when serial, and once the cluster is closed.
    """

    def __init__(self, running: AbstractContextManager[dict[str, Any]]) -> None:
        self._stack = contextlib.ExitStack()
        self._session = self._stack.enter_context(running)
        self._release = hold_session(**self._session)
        self.client = None if self._session["client"] is SERIAL else self._session["client"]

    def __enter__(self) -> Any:
        self._release()
        self._stack.enter_context(holding_session(**self._session))
        return self.client

    def __exit__(self, *error: Any) -> None:
        self._release()
        self.client = None
        self._stack.__exit__(*error)

    def close(self) -> None:
        """End the cluster if it was started here, or leave it."""
        self.__exit__(None, None, None)

    def __repr__(self) -> str:
        without = "this process alone" if self._session["client"] is SERIAL else "closed"
        return f"<bigfs cluster: {self.client or without}>"


def cluster(
    scheduler: Any = None,
    *,
    workers: int | None = None,
    memory_limit: str | int | None = None,
    planned_memory: str | int | None = None,
    security: Any = None,
    dashboard: bool = False,
    timeout: str = "20s",
) -> Cluster:
    """Run the tiles of a block on a Dask cluster, or of all work until `close`.

    A cluster started here is bound to 127.0.0.1 and speaks mutual TLS. Its key is made for this
    block and kept in memory, so other users of the machine cannot join the cluster or run code in
    it.

    Parameters
    ----------
    scheduler : str, distributed.Client or cluster object, default=None
        Address of a running scheduler (``tcp://…``, ``tls://…``), a client, or a cluster
        (`LocalCluster`, `SLURMCluster`, …). It is used as it is and stays open. The path of a YAML
        file (``….yaml``) with `cluster_class`, `cluster_kwargs` and `adapt_kwargs` starts the
        cluster that it describes, which is closed at the end. None takes the address in Dask's
        configuration (``DASK_SCHEDULER_ADDRESS``) where `workers` is None too, else it starts
        processes on this machine.
    workers : int, default=None
        Number of processes to start on this machine, one thread each. None and -1 start one per
        core. 0 runs serially, in this process.
    memory_limit : str or int, default=None
        Memory of each worker, or of this process with `workers=0`, as Dask writes it. "auto" shares
        the machine's memory. None gives each worker 1 GB, and this process the memory of its
        control group or of the machine. Ignored with `scheduler`, whose workers have limits. With
        `workers=0` it counts all that this process holds. The process that drives workers may take
        as much as one of them, on top of what it held before.
    planned_memory : str or int, default=None
        Memory of a process by which one of several ways to the same answer is chosen, such as the
        solver of a ridge system. The last bits of the answer depend on it, so it is the same on
        every machine unless it is given, and a result says so in its stats. None plans for 1 GB.
        The memory limit bounds it.
    security : distributed.Security, str or path-like, default=None
        Certificates for the scheduler at an address: an object, or the folder that `bigfs
        certificates` wrote.
    dashboard : bool, default=False
        Whether a cluster started here shows Dask's dashboard on 127.0.0.1. The dashboard has no
        password: every user of this machine can read it.
    timeout : str, default="20s"
        How long to wait for a scheduler to answer.

    Returns
    -------
    Cluster
        The cluster, which works from now on. ``with`` gives its client, or None when serial, and
        ends it with the block. Without ``with``, as in a notebook, its `close()` ends it.

    Raises
    ------
    ClusterLostError
        The cluster cannot be reached, or it is lost while the block runs. The message has advice.
    ValueError
        `workers` is below -1. `memory_limit` is not a size, or is less than the libraries of a
        worker take. The YAML file names no cluster class, or is no specification.
    RuntimeError
        The script that calls it would start it again in each worker, which imports the script.

    See Also
    --------
    Matrix : The tiles that the cluster works on.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import bigfs
    >>> X, y = load_iris(return_X_y=True)
    >>> with bigfs.cluster(workers=0):
    ...     selector = bigfs.ANOVA(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 3])
    """
    return Cluster(
        _running(scheduler, workers, memory_limit, planned_memory, security, dashboard, timeout)
    )


@contextlib.contextmanager
def _running(
    scheduler: Any,
    workers: int | None,
    memory_limit: str | int | None,
    planned_memory: str | int | None,
    security: Any,
    dashboard: bool,
    timeout: str,
) -> Iterator[dict[str, Any]]:
    """Run what `cluster` describes. Yields the changes of the session."""
    if scheduler is None and workers is None:
        scheduler = configured_scheduler()
    if workers is not None and workers < -1:
        raise ValueError(
            f"workers must be a number of processes, 0 for this process alone, or -1 for one per "
            f"core; got {workers}"
        )
    is_serial = scheduler is None and workers == 0
    if scheduler is None and memory_limit is not None:
        require_size(memory_limit, TILE_TASK if is_serial else LEAST_WORKER)
    changes: dict[str, Any] = {}
    if planned_memory is not None:
        changes["planned"] = parse_bytes(planned_memory)
    if is_serial:
        if memory_limit is not None and memory_limit != "auto":
            changes |= {"limit": parse_bytes(memory_limit), "baseline": None}
        yield {"client": SERIAL, **changes}
        return
    memory_limit = WORKER_MEMORY if memory_limit is None else memory_limit
    from distributed import Client  # sets Dask's defaults, which are changed below

    if isinstance(scheduler, Client):
        if scheduler.asynchronous:
            raise ValueError(
                "bigfs needs a synchronous Dask client; got an asynchronous one: create it "
                "with Client(…, asynchronous=False)"
            )
        prepare_client(scheduler)
        yield {"client": scheduler, "baseline": IDLE, **changes}
        return
    log, client_log = logging.getLogger("distributed"), logging.getLogger("distributed.client")
    is_specified = isinstance(scheduler, str | os.PathLike) and is_specification(scheduler)
    with contextlib.ExitStack() as stack:
        stack.callback(log.setLevel, log.level)
        stack.callback(client_log.setLevel, client_log.level)
        client_log.setLevel(logging.CRITICAL)  # its errors reach the caller
        stack.enter_context(dask.config.set(_settings(memory_limit)))
        if scheduler is None:
            n_processes = CPU_COUNT if workers in (None, -1) else workers
            address: Any = stack.enter_context(_local(n_processes, memory_limit, dashboard))
        elif is_specified:
            address = stack.enter_context(_read_specification(str(scheduler)))
        else:
            address = scheduler
        options = {"security": _security(security), "set_as_default": False, "timeout": timeout}
        with _translate_connect_errors(scheduler):
            client = stack.enter_context(_connect(address, **options))
        if is_specified:
            _wait_for_worker(client, timeout)
        prepare_client(client)
        if scheduler is not None and not is_specified:  # the cluster stays without us
            stack.callback(release_client, client)
        try:
            yield {"client": client, "baseline": IDLE, **changes}
        except Exception:  # told apart from an interruption, which the next clause is about
            raise
        except BaseException:  # an interruption: the errors of the broken tasks say nothing new
            log.setLevel(logging.CRITICAL + 1)
            raise


def _require_guard() -> None:
    """Refuse a script that each worker, which imports it, would run from its beginning."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", "")
    if name.endswith(".__main__"):  # of `python -m package`, which no worker imports
        return
    script = getattr(main, "__file__", None) or ""
    with contextlib.suppress(OSError):
        if script.endswith(".py") and "__name__" not in Path(script).read_text(
            encoding="utf-8", errors="replace"
        ):
            raise RuntimeError(
                f"the workers of a cluster import {script} and would run it again: put its work "
                f'under `if __name__ == "__main__":`, or work in this process with workers=0'
            )


@contextlib.contextmanager
def _local(workers: int, memory_limit: str | int, dashboard: bool) -> Iterator[Any]:
    """Start a local cluster that only this process and its workers can use."""
    from distributed import LocalCluster, Security

    _require_guard()

    method = "forkserver" if prepare_workers() else "spawn"
    # distributed opens this port always
    port, pages = 0, WITHOUT_HTTP
    if dashboard:
        port = free_port()
        pages = WITH_DASHBOARD | {ORIGINS: [f"127.0.0.1:{port}", f"localhost:{port}"]}
    with dask.config.set(pages | {"distributed.worker.multiprocessing-method": method}):
        with _interrupts_blocked():
            started = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=memory_limit,
                host="127.0.0.1",
                protocol="tls",
                security=Security.temporary(),
                dashboard_address=f"127.0.0.1:{port}",
                scheduler_kwargs={"dashboard": dashboard},
                # a fork has the environment of the moment when the first worker started
                env=dict(os.environ),
            )
        with started:
            yield started


@contextlib.contextmanager
def write_report(client: Any, file: str) -> Iterator[None]:
    """Write Dask's report on the work of the block, an HTML page that needs bokeh."""
    from distributed import performance_report

    with client.as_current(), performance_report(filename=file):
        yield


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def _read_specification(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Start the cluster that a YAML file describes, and close it after the block."""
    from distributed import LocalCluster

    kind, arguments, adaptation = read_specification(path)
    is_here = issubclass(kind, LocalCluster)
    if is_here and arguments.get("processes", True):
        _require_guard()
    try:
        with _interrupts_blocked() if is_here else contextlib.nullcontext():
            started = kind(**arguments)
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        raise ClusterLostError(f"the {kind.__name__} of {path} did not start: {error}") from error
    with started:
        if adaptation:
            started.adapt(**adaptation)
        yield started


def _wait_for_worker(client: Any, timeout: str) -> None:
    """Wait for the first worker, because plans go by its memory.

    A cluster that adapts needs a task to start one, and a job may wait in a queue for hours.
    """
    first = client.submit(os.getpid, pure=False)
    try:
        first.result(timeout)
    except TimeoutError:
        warnings.warn(f"no worker of the cluster has come in {timeout}: waiting", stacklevel=2)
        first.result()


# Python's resource tracker would name the semaphores of a process that had to end at once
NO_LEAK_WARNING = "ignore::UserWarning:multiprocessing.resource_tracker"
CAN_FORK = sys.platform == "linux" and sys.version_info >= (3, 11, 1)
WORKERS_IMPORT = ["distributed", "numba", "scipy.sparse", "bigfs.matrix"]


def prepare_workers(*modules: str) -> bool:
    """Start the process that the workers of local clusters are forked from, if none runs.

    It imports their libraries once. Return whether it runs. It does not before Python 3.11.1, where
    other users of the machine could connect to it, nor where somebody else ended it.
    """
    if not CAN_FORK:
        return False
    forkserver.set_forkserver_preload([*WORKERS_IMPORT, *modules])
    # distributed is not imported for its defaults: that takes as long as all of the rest
    given = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    settings = ONE_THREAD | given | BEFORE_START
    added = {k: str(v) for k, v in settings.items() if k not in os.environ}
    with _environment(added), _interrupts_blocked(), contextlib.suppress(ChildProcessError):
        forkserver.ensure_running()
        return True
    return False


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Give the processes that start in the block these environment variables."""
    before = {name: os.environ[name] for name in values if name in os.environ}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values.keys() - before:
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C for the threads and processes that start in the block.

    This process receives it and ends them.
    """
    filters = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), NO_LEAK_WARNING)))
    with _environment({"PYTHONWARNINGS": filters}):
        resource_tracker.ensure_running()  # its later start would unblock SIGINT
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def require_size(memory_limit: str | int, least: int = TILE_TASK) -> None:
    """Refuse a memory limit that is not a size, or is less than `least` bytes."""
    if memory_limit == "auto":
        return
    try:
        size = parse_bytes(memory_limit)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"--memory-limit must be a size such as 1GB or 512MB; got {memory_limit!r}"
        ) from error
    if size < least:
        raise ValueError(
            f"--memory-limit must be above {least / 1e6:.0f} MB, the least that a "
            f"process needs; got {memory_limit!r}: give more, such as 1GB"
        )


def _settings(memory_limit: str | int) -> dict[str, Any]:
    settings = {
        "distributed.scheduler.allowed-failures": 3,
        # a worker gets its next task when it is free, or a short one waits behind a long one
        "distributed.scheduler.worker-saturation": 1.0,
        "distributed.admin.large-graph-warning-threshold": "64MB",
    } | {f"distributed.nanny.pre-spawn-environ.{k}": v for k, v in BEFORE_START.items()}
    if limit := parse_bytes(memory_limit) if memory_limit != "auto" else 0:
        # Waiting results go to disk early, because the libraries and the tasks need the rest.
        settings["distributed.worker.memory.target"] = SHARES.value.waiting_results * max(
            1 - IDLE / limit, 0.1
        )
    return settings


def _connect(address: Any, **options: Any) -> Any:
    """Connect a `distributed.Client`. A client that fails to connect is closed at once."""
    # distributed leaves it to the garbage collector. If that runs while the next client starts, it
    # waits forever for the lock that this start holds.
    import distributed

    class Client(distributed.Client):  # this name is in its repr
        def start(self, **options: Any) -> None:
            try:
                super().start(**options)
            except BaseException:
                self.status = "connecting"  # "closed" would leave its thread
                self.close()
                raise

    return Client(address, **options)


def _security(security: Any) -> Any:
    """Return the security settings for `distributed`.

    A folder of certificates becomes mutual TLS that refuses every other connection.
    """
    if not isinstance(security, str | os.PathLike):
        return security
    from cryptography import x509
    from distributed import Security

    folder = Path(security)
    missing = [name for name in ("ca.pem", "node.pem", "node.key") if not (folder / name).is_file()]
    if missing:
        raise ValueError(
            f"{folder} has no {', '.join(missing)}: make certificates with "
            f"`bigfs certificates {folder}`"
        )
    until = x509.load_pem_x509_certificate((folder / "node.pem").read_bytes()).not_valid_after_utc
    if until < dt.datetime.now(dt.UTC):
        raise ValueError(
            f"the certificates in {folder} expired on {until:%Y-%m-%d}: make new "
            f"ones with `bigfs certificates`"
        )
    pair = {
        f"tls_{role}_{kind}": str(folder / f"node.{end}")
        for role in ROLES
        for kind, end in (("cert", "pem"), ("key", "key"))
    }
    return Security(tls_ca_file=str(folder / "ca.pem"), require_encryption=True, **pair)


@contextlib.contextmanager
def _translate_connect_errors(scheduler: str | None) -> Iterator[None]:
    """Turn the errors of a failed connection into `ClusterLostError` with advice."""
    try:
        yield
    except (OSError, TypeError, RuntimeError) as error:
        if isinstance(error, OSError) and scheduler is None:
            why = (
                f"the cluster on this machine did not start ({error}): give a longer timeout, or "
                "workers=0 to run in this process"
            )
        elif isinstance(error, OSError):
            why = f"no Dask scheduler answers at {scheduler}: start one or give another address"
            if str(scheduler).startswith("tls"):
                why += ", or pass certificates that it trusts with --tls"
        elif "ssl_context" in str(error):  # of distributed, for tls:// without certificates
            why = f"{scheduler} accepts only encrypted connections: pass your certificates with "
            why += "--tls DIR"
        elif "encryption required" in str(error):  # and for a tcp:// address
            why = (
                f"{scheduler} is not encrypted, but the Dask configuration requires "
                "encryption: give a tls:// address"
            )
        else:
            raise
        raise ClusterLostError(why) from error


AGAIN = "repeat the command; finished stages and steps are kept"


def no_workers_left() -> ClusterLostError:
    """Return the error for a cluster that has had no workers for too long."""
    return ClusterLostError(f"the Dask cluster has no workers left: start some and {AGAIN}")


def connection_lost() -> ClusterLostError:
    return ClusterLostError(
        f"the connection to the Dask cluster was lost: see whether the cluster and the network "
        f"work, and {AGAIN}"
    )


@contextlib.contextmanager
def translate_cluster_errors() -> Iterator[None]:
    """Turn errors of a broken cluster, not of its tasks, into `ClusterLostError`."""
    from distributed.client import CancelledError, ClosedClientError
    from distributed.comm import CommClosedError
    from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError

    try:
        yield
    except KilledWorker as error:
        step = str(key_split(error.task)).strip("_")
        raise ClusterLostError(
            f"the step {step} killed every worker that ran it, most likely because "
            f"it exceeded their memory limit: "
            "raise --memory-limit, or stage with fewer --tile-rows; "
            "finished stages and steps are kept"
        ) from error
    except (NoWorkerError, NoValidWorkerError) as error:
        raise no_workers_left() from error
    except (CancelledError, ClosedClientError, CommClosedError) as error:
        raise connection_lost() from error


@contextlib.contextmanager
def asking_cluster() -> Iterator[None]:
    """Turn errors of a question to the scheduler or the workers into `ClusterLostError`.

    It runs no task that could read a disk, so an OSError is one of the connection.
    """
    with translate_cluster_errors():
        try:
            yield
        except OSError as error:
            raise connection_lost() from error


_prepared: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()  # workers, by client


def prepare_client(client: Any) -> None:
    """Ask new workers which Python and bigfs they run, and give the cluster its plugins.

    The scheduler gives the plugins to workers that come later.
    """
    with asking_cluster():
        workers = set(client.nthreads())
        if client in _prepared and workers <= _prepared[client]:
            return
        _require_same_versions(client.get_versions(packages=["bigfs"]))
        if client not in _prepared:
            from bigfs.engine.cluster_plugins import AnyWorker, MemoryRelief

            client.register_plugin(AnyWorker())
            client.register_plugin(MemoryRelief())
        _prepared[client] = workers


def release_client(client: Any) -> None:
    """Take from the workers what `prepare_client` gave them, if they can still be reached. The
    scheduler keeps its plugin, which other clients may need."""
    with contextlib.suppress(OSError, TimeoutError, RuntimeError, ValueError):
        if _prepared.pop(client, None) is not None and client.status == "running":
            client.unregister_worker_plugin("bigfs-relief")


def _require_same_versions(versions: dict[str, Any]) -> None:
    """Refuse a cluster on which this process's tasks could not be read."""
    own = _version(versions["client"])
    for place, found in {"the scheduler": versions["scheduler"], **versions["workers"]}.items():
        if (theirs := _version(found)) != own:
            raise ClusterLostError(
                f"{place} of the Dask cluster runs {theirs}, and this process {own}: start the "
                f"scheduler and the workers from an environment like this one"
            )


def _version(found: dict[str, Any]) -> str:
    """Return which Python and which bigfs a process runs, as a text."""
    package = found["packages"].get("bigfs")
    python = ".".join(str(dict(found["host"])["python"]).split(".")[:2])
    return f"Python {python} {f'with bigfs {package}' if package else 'without bigfs'}"


def describe_workers(client: Any) -> dict[str, Any]:
    """Return what the scheduler knows of each worker, by address."""
    return dict(client.sync(client.scheduler.identity, n_workers=-1)["workers"])


def quiet_dask() -> None:
    """Keep Dask's log off the console. Call it before `distributed` is imported."""
    dask.config.set({"logging.distributed": "critical"})  # its errors reach the caller
