"""A cluster that bigfs starts on this machine: nobody else runs code in it, and it opens no
page.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

import dask
import distributed
import psutil
import pytest

from bigfs import engine
from bigfs.engine import clusters
from bigfs.engine.clusters import describe_workers
from bigfs.flows.options import ClusterOptions
from tests.helpers.processes import until

pytestmark = pytest.mark.process

NOBODY = 65534
INTRUDER = """
import asyncio, json, os, sys
import distributed.comm.tcp, distributed.protocol.pickle, encodings.idna
from distributed import Client, Security
from distributed.comm import connect

foreign = Security.temporary()
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))

async def plain(address):
    comm = await connect(address, timeout=3)
    await comm.write({"op": "identity", "reply": True})
    return await comm.read()

def client(address, **how):
    with Client(address, timeout=4, set_as_default=False, **how) as c:
        return c.submit(lambda: "ran", pure=False).result(timeout=4)

answers = {}
for address in sys.argv[2:]:
    tcp = address.replace("tls://", "tcp://")
    for name, attempt in {
        "plain": lambda: asyncio.run(plain(tcp)),
        "client": lambda: client(tcp),
        "foreign key": lambda: client(address, security=foreign),
    }.items():
        try:
            answers[f"{name} {address}"] = f"answered {attempt()}"
        except Exception as error:  # whatever refuses the connection is the answer
            answers[f"{name} {address}"] = type(error).__name__
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def of_pytest():
    """The ports that this process listened on before the cluster: a plugin of pytest has one."""
    return listening()


@pytest.fixture(scope="module")
def local(of_pytest):
    with engine.cluster(workers=1, memory_limit="600MB") as client:
        yield client


def ports(client):
    """The addresses of scheduler, worker and nanny."""
    workers = describe_workers(client)
    nannies = (worker["nanny"] for worker in workers.values())
    return [client.scheduler.address, *workers, *nannies]


def listening():
    """The local ports that this process and its children listen on."""
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return {
        c.laddr for p in tree for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN
    }


def test_local_cluster_speaks_mutual_tls_everywhere(local):
    assert len(ports(local)) == 3
    assert all(address.startswith("tls://127.0.0.1:") for address in ports(local))
    assert {address.ip for address in listening()} == {"127.0.0.1"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_local_cluster_runs_no_code_of_another_user(local):
    command = [sys.executable, "-c", INTRUDER, str(NOBODY), *ports(local)]
    ended = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    answers = json.loads(ended.stdout)
    assert len(answers) == 9
    assert set(answers.values()) <= {
        "OSError",
        "CommClosedError",
        "FatalCommClosedError",
        "TimeoutError",
    }, answers
    assert local.submit(lambda: "still works").result(timeout=30) == "still works"


def test_usage_is_measured_on_the_workers_too(local):
    before = engine.processor_time()
    (worker,) = local.scheduler_info(n_workers=-1)["workers"]
    assert set(before) == {"driver", worker}
    used = local.submit(busy).result(timeout=30)
    assert engine.processor_time()[worker] - before[worker] >= used > 0
    assert engine.reset_peak_memory() == (sys.platform == "linux")


def busy():
    began = time.process_time()
    sum(range(300_000))
    return time.process_time() - began


def test_local_cluster_refuses_plain_tcp(local):
    async def hang_up(address):
        host, port = address.removeprefix("tls://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        try:
            return await asyncio.wait_for(reader.read(), 10)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    for address in ports(local):
        assert b"HTTP" not in asyncio.run(hang_up(address))


def test_local_cluster_serves_no_page(local, of_pytest):
    tls = {int(address.rsplit(":", 1)[1]) for address in ports(local)}
    others = {address.port for address in listening() - of_pytest} - tls
    for port in others:
        for page in (
            "/",
            "/health",
            "/metrics",
            "/json/identity.json",
            "/info/main/workers.html",
            "/status",
            "/proxy/80/127.0.0.1/",
        ):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=10)


def test_local_cluster_keeps_its_key_out_of_files_and_of_its_workers_arguments(local):
    key = local.security.tls_client_key.splitlines()[1]
    for process in psutil.Process().children(recursive=True):
        assert key not in " ".join(process.cmdline())
        assert not any("dask.pem" in file.path for file in process.open_files())


@pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info < (3, 11, 1),
    reason="each worker imports for itself",
)
def test_workers_are_forks_of_a_process_that_has_imported_their_libraries(local):
    (server,) = local.run(os.getppid).values()
    assert server != os.getpid()
    assert "forkserver" in " ".join(psutil.Process(server).cmdline())
    assert local.run(lambda: os.environ["MALLOC_ARENA_MAX"]).popitem()[1] == "1"


def test_workers_have_the_environment_of_the_moment_when_their_cluster_starts(local, monkeypatch):
    monkeypatch.setenv("BIGFS_SET_LATE", "yes")  # such as credentials, set in a notebook
    cluster = engine.cluster(workers=1)
    assert "<Client: 'tls://127.0.0.1:" in repr(cluster)
    assert "processes=1 threads=1, memory=" in repr(cluster)
    with cluster as client:
        assert list(client.run(os.getenv, "BIGFS_SET_LATE").values()) == ["yes"]
    assert repr(cluster) == "<bigfs cluster: closed>"


def test_local_cluster_shows_a_dashboard_on_demand():
    with engine.cluster(workers=1, memory_limit="600MB", dashboard=True) as client:
        assert client.dashboard_link.startswith("http://127.0.0.1:")
        # there without bokeh, too
        page = client.dashboard_link.replace("/status", "/json/identity.json")
        assert b"Scheduler" in urllib.request.urlopen(page, timeout=60).read()


def test_the_dashboard_is_for_pages_of_its_own_port(monkeypatch):
    """bokeh, which draws it, refuses any other form."""

    class Started(Exception):
        pass

    def start(dashboard_address, **_):
        origins = dask.config.get(clusters.ORIGINS)
        port = dashboard_address.rpartition(":")[2]
        assert origins == [f"127.0.0.1:{port}", f"localhost:{port}"]
        assert int(port) > 0
        raise Started

    monkeypatch.setattr(distributed, "LocalCluster", start)
    with pytest.raises(Started), engine.cluster(workers=1, dashboard=True):
        pass


# --- the memory limit -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("-5", "the least that a process needs"),
        ("0", "the least that a process needs"),
        (0, "the least that a process needs"),
        ("MB", "the least that a process needs"),
        ("100MB", "the least that a process needs"),
        ("-1GB", "the least that a process needs"),
    ]
    + [(bad, "must be a size") for bad in ("abc", "1e999GB", "nan", "1 parsec", "GB1")],
)
def test_cluster_refuses_a_memory_limit_that_no_worker_can_have(limit, said):
    with pytest.raises(ValueError, match=said), engine.cluster(workers=1, memory_limit=limit):
        raise AssertionError("started")
    with pytest.raises(ValueError, match=said):
        ClusterOptions(memory_limit=str(limit))


def test_engine_leaves_memory_to_dask_where_it_is_auto():
    assert ClusterOptions(memory_limit="auto").staging_memory is None
    assert ClusterOptions(memory_limit="300MB").staging_memory == "300MB"


class Fails(NamedTuple):
    """A tile whose step fails while that of another is at work, which ends after it is canceled."""

    start: int
    stop: int
    folder: str


def fail_or_write(tile):
    folder = Path(tile.folder)
    if tile.start == 0:
        while not (folder / "begun").exists():
            time.sleep(0.01)
        raise ValueError("the first one fails")
    (folder / "begun").touch()
    until((folder / "canceled").exists, "the end of the step")
    time.sleep(0.5)  # it works on: an error that does not wait for it comes before its end
    (folder / "written").touch()


def test_a_failed_step_is_over_before_its_error_is_raised(tmp_path, monkeypatch):
    """Who cleans up after the error must not meet a task that still writes."""
    tiles = [Fails(i, i + 1, str(tmp_path)) for i in range(2)]
    with engine.cluster(workers=2, memory_limit="600MB") as client:
        cancel = client.cancel
        monkeypatch.setattr(
            client, "cancel", lambda *given: (cancel(*given), (tmp_path / "canceled").touch())
        )
        with pytest.raises(ValueError, match="the first one fails"):
            engine.map_tiles(fail_or_write, tiles)
        assert (tmp_path / "written").exists()
