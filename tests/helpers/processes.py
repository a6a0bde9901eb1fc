"""Real processes for the tests of flows and clusters, each started once: a Prefect server behind
its basic-auth, a Dask scheduler with two workers behind mutual TLS. All on 127.0.0.1, on free
ports.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest

from bigfs.storage.locks import lock

ROOT = Path(__file__).parents[2]
# this and the next: what must never be found in a log or a run's files
AUTH = "admin:canary-of-the-server"
CANARY = "canary-of-the-store"
PREFECT_WARNS = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:prefect", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def write_corpus(path, seed, rows=200):
    """Documents of 60 terms; in each of 3 classes 4 terms are frequent.

    A name that ends in .jsonl gives JSON Lines with a test half of one document in thirty, so that
    a run needs no folds. Any other name gives svmlight's format. Returns its path.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 3
    rate = np.full((3, 60), 0.2)
    for c in range(3):
        rate[c, 4 * c : 4 * c + 4] = 2.0
    counts = rng.poisson(rate[y])
    if path.suffix == ".jsonl":
        records = (
            {
                "features": {str(j): int(v) for j, v in enumerate(row) if v},
                "label": int(c),
                "split": "test" if i % 30 == 29 else "train",
            }
            for i, (c, row) in enumerate(zip(y, counts, strict=True))
        )
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return str(path)
    lines = (
        f"{c} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row) if v)
        for c, row in zip(y, counts, strict=True)
    )
    path.write_text("\n".join(lines) + "\n")
    return str(path)


# --- processes ------------------------------------------------------------------------------------


def free_port():
    """Return a port that nobody uses, below those that the kernel gives to connections.

    One of those could be taken again before the server that it is for has started.
    """
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.SystemRandom().randrange(20_000, 32_000)))
            return probe.getsockname()[1]


def until(true, what, seconds=90, every=0.05):
    """Wait for something another process does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        time.sleep(every)
    raise AssertionError(f"{what} did not happen in {seconds} s")


def start(command, log, env, cwd):
    with log.open("ab") as out:
        return subprocess.Popen(
            [str(c) for c in command], stdout=out, stderr=subprocess.STDOUT, env=env, cwd=cwd
        )


def stop(process):
    """End a process and what it started, kindly first."""
    with contextlib.suppress(psutil.NoSuchProcess):
        tree = [*psutil.Process(process.pid).children(recursive=True)]
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        for child in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        process.kill()
    process.wait()


def kill(process):
    """kill -9 of a process and what it started, as the machine's memory killer does to a group."""
    tree = [*psutil.Process(process.pid).children(recursive=True)]
    os.kill(process.pid, signal.SIGKILL)
    for child in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    process.wait()


# --- Prefect --------------------------------------------------------------------------------------


class Prefect(NamedTuple):
    """A running server: its address, the environment of who may use it, its process."""

    url: str
    env: dict
    process: subprocess.Popen
    home: Path


def environment(home, **more):
    """Of a child: nothing of the caller's Prefect, everything under `home`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "DASK_"))}
    return {
        **clean,
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT), *sorted({str(p.parent) for p in (ROOT / "tests").glob("*/**/test_*.py")})]
        ),
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_CLI_PROMPT": "false",
        "DASK_LOGGING__DISTRIBUTED": "error",
        **more,
    }


def healthy(url):
    with contextlib.suppress(urllib.error.URLError, OSError):
        urllib.request.urlopen(f"{url}/health", timeout=2).close()
        return True
    return False


def give_database(home):
    """Put an empty Prefect database into a folder.

    Prefect takes ten seconds for it. It is made once for all processes of the tests.
    """
    template = Path(os.environ["BIGFS_TESTS_FOLDER"])
    with lock(template):
        if not (template / "prefect.db").exists():
            making = template / "making"
            subprocess.run(
                [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"],
                env=environment(making),
                check=True,
                capture_output=True,
            )
            with contextlib.closing(sqlite3.connect(making / "prefect.db")) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            os.rename(making / "prefect.db", template / "prefect.db")
    home.mkdir(exist_ok=True)
    shutil.copy(template / "prefect.db", home)


@contextlib.contextmanager
def prefect_process(home, auth=AUTH, **settings):
    """`prefect server start`, with a quick scheduler, and with more settings of the server."""
    if "PREFECT_SERVER_DATABASE_CONNECTION_URL" not in settings:
        give_database(home)
    home.mkdir(exist_ok=True)
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    server = environment(
        home,
        PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS="2",
        PREFECT_SERVER_SERVICES_SCHEDULER_MIN_SCHEDULED_TIME="0:00:10",
        PREFECT_SERVER_SERVICES_SCHEDULER_MIN_RUNS="2",
        PREFECT_SERVER_UI_API_URL=url,
        **settings,
    )
    client = environment(home, PREFECT_API_URL=url, PREFECT_WORKER_QUERY_SECONDS="2")
    if auth:
        server["PREFECT_SERVER_API_AUTH_STRING"] = client["PREFECT_API_AUTH_STRING"] = auth
    command = [
        sys.executable,
        "-m",
        "prefect",
        "server",
        "start",
        "--host",
        "127.0.0.1",
        "--port",
        port,
    ]
    process = start(command, home / "server.log", server, home)
    try:
        until(lambda: healthy(url), "the Prefect server's start", 180)
        yield Prefect(url, client, process, home)
    finally:
        stop(process)


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory):
    with prefect_process(tmp_path_factory.mktemp("prefect")) as server:
        yield server


@pytest.fixture
def prefect(prefect_server, monkeypatch, tmp_path):
    """Flows of this process go to the server; their results and files to `tmp_path`."""
    from prefect import settings
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker
    from prefect.settings import temporary_settings

    monkeypatch.chdir(tmp_path)
    mine = {
        settings.PREFECT_API_URL: prefect_server.url,
        settings.PREFECT_API_AUTH_STRING: AUTH,
        settings.PREFECT_LOCAL_STORAGE_PATH: tmp_path / "results",
        settings.PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,  # a second a flow
    }
    with temporary_settings(mine):
        yield prefect_server
        # else they try to reach the server after it has gone
        for queue in (APILogWorker, EventsWorker):
            queue.drain_all(timeout=30)


def client():
    from prefect.client.orchestration import get_client

    return get_client(sync_client=True)


def artifacts(state):
    """{key: the artifact} of a flow run, through the API."""
    with client() as api:
        asked = {"flow_runs": {"id": {"any_": [str(state.state_details.flow_run_id)]}}}
        return {a["key"]: a for a in api._client.post("/artifacts/filter", json=asked).json()}


def assert_no_secrets(home, log):
    """Neither in what was told nor in any file of runs, stores and results."""
    secrets = [CANARY, AUTH, AUTH.partition(":")[2]]
    assert not any(secret in log for secret in secrets)
    files = [p for p in home.rglob("*") if p.is_file()]
    assert any(p.name == "run.json" for p in files)
    for file in files:
        content = file.read_bytes()
        assert not any(secret.encode() in content for secret in secrets), file


# --- Dask -----------------------------------------------------------------------------------------


class Cluster(NamedTuple):
    """A running scheduler with workers: its address, the certificates' folder, the processes."""

    address: str
    tls: Path
    scheduler: subprocess.Popen
    workers: list
    home: Path

    def worker_pids(self):
        """Of the processes that work, not their nannies."""
        pids = []
        for nanny in self.workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                children = psutil.Process(nanny.pid).children(recursive=True)
                pids += [c.pid for c in children if "spawn_main" in " ".join(c.cmdline())]
        return pids


@contextlib.contextmanager
def dask_cluster(home, workers=2, memory_limit="1GB", **more):
    """`dask scheduler` and `dask worker` processes over mutual TLS."""
    from bigfs import engine
    from bigfs.flows.tls import environment as tls_environment
    from bigfs.flows.tls import make_certificates

    tls = home / "tls"
    if not tls.exists():
        make_certificates(tls)
    env = environment(home, **tls_environment(tls), **more)
    address = f"tls://127.0.0.1:{free_port()}"
    dask = [sys.executable, "-m", "dask"]
    local = ["--host", "tls://127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
    port = address.rsplit(":", 1)[1]
    started = []
    try:
        started.append(
            start(
                [*dask, "scheduler", "--protocol", "tls", *local, "--port", port],
                home / "dask.log",
                env,
                home,
            )
        )
        each = ["--nthreads", "1", "--memory-limit", memory_limit, "--local-directory", str(home)]
        started += [
            start([*dask, "worker", address, *local, *each], home / "dask.log", env, home)
            for _ in range(workers)
        ]
        running = Cluster(address, tls, started[0], started[1:], home)
        with engine.cluster(address, security=tls, timeout="60s") as client:
            client.wait_for_workers(workers, timeout=90)
        yield running
    finally:
        for process in reversed(started):
            stop(process)


@pytest.fixture(scope="session")
def tls_cluster(tmp_path_factory):
    with dask_cluster(tmp_path_factory.mktemp("dask")) as running:
        yield running
