"""A real `dask scheduler` and two `dask worker`s over mutual TLS: same answer, whoever dies; nobody
else gets in.
"""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest

from bigfs import engine as tile_engine
from bigfs.engine.budget import Shares
from bigfs.engine.clusters import describe_workers
from bigfs.flows import steps
from bigfs.flows.options import ClusterOptions, SourceOptions
from bigfs.flows.tls import environment as tls_environment
from bigfs.flows.tls import make_certificates
from bigfs.result import observe
from bigfs.storage.runs.runs import Run
from tests.helpers import stages
from tests.helpers.daily import daily
from tests.helpers.processes import PREFECT_WARNS, dask_cluster, environment, until, write_corpus

pytestmark = PREFECT_WARNS
METHOD, FEATURES, TOL = "sparge-lpp", 12, {"tol": 1e-3}
TILES = {"tile_rows": 1500}  # 6 tiles


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """9000 documents: 3 blocks of the graph."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", seed=3, rows=9000)


@pytest.fixture(scope="module")
def store(corpus, tmp_path_factory):
    return stages.stage(corpus, str(tmp_path_factory.mktemp("store") / "s.zarr"), TILES)["store"]


def select(store, out):
    return stages.select(store, out, method=METHOD, features=FEATURES, parameters=TOL)


@pytest.fixture(scope="module")
def serial(store, tmp_path_factory):
    """The answer of one process."""
    return select(store, tmp_path_factory.mktemp("serial") / "run")


def pipeline(source, cluster):
    from bigfs.flows.prefect_flows import run as flow

    engine = ClusterOptions(scheduler=cluster.address, tls=str(cluster.tls))
    return flow(
        source,
        METHOD,
        FEATURES,
        out="runs/r",
        settings=SourceOptions(**TILES),
        parameters=TOL,
        engine=engine,
    )


@pytest.mark.parametrize(
    "stage",
    daily(["none", "stage", "graph", "select", "evaluate"], "none", "select"),
)
def test_the_answer_is_the_serial_one_whoever_dies(
    prefect, tls_cluster, corpus, serial, monkeypatch, stage
):
    killed = []

    def strike(*_):
        if not killed:
            pids = tls_cluster.worker_pids()
            assert len(pids) == 2
            os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])

    if stage != "none":
        from bigfs.flows.prefect_flows import TASKS

        step = getattr(steps, stage)

        def struck(*given, **more):
            with tile_engine.progress(strike), observe(callback=strike):
                return step(*given, **more)

        monkeypatch.setattr(TASKS[step], "fn", struck)
    run = Run.open(pipeline(corpus, tls_cluster))
    assert bool(killed) is (stage != "none")
    np.testing.assert_array_equal(run.selected, serial.selected)
    np.testing.assert_array_equal(run.scores, serial.scores)
    until(lambda: len(tls_cluster.worker_pids()) == 2, "the nanny's new worker")
    assert not killed or killed[0] not in tls_cluster.worker_pids()


# --- locks on the ports ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("certificate", "said"),
    [
        ("none", "pass your certificates with --tls"),
        ("foreign", "certificates that it trusts"),
        ("plain", "no Dask scheduler answers"),
    ],
)
def test_a_client_without_a_certificate_of_the_cluster_is_refused(
    tls_cluster, tmp_path, certificate, said
):
    address = (
        tls_cluster.address.replace("tls://", "tcp://")
        if certificate == "plain"
        else tls_cluster.address
    )
    tls = make_certificates(tmp_path / "foreign") if certificate == "foreign" else None
    with (
        pytest.raises(tile_engine.ClusterLostError, match=said),
        tile_engine.cluster(address, security=tls, timeout="5s"),
    ):
        raise AssertionError("let in")
    # closed here, not by the garbage collector
    assert not [thread for thread in threading.enumerate() if thread.name == "IO loop"]


def test_a_worker_with_a_foreign_certificate_is_refused(tls_cluster, tmp_path):
    foreign = make_certificates(tmp_path / "foreign")
    env = environment(
        tmp_path, **tls_environment(foreign), DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT="5s"
    )
    command = [
        sys.executable,
        "-m",
        "dask",
        "worker",
        tls_cluster.address,
        "--no-nanny",
        "--host",
        "tls://127.0.0.1",
    ]
    command += [
        "--dashboard-address",
        "127.0.0.1:0",
        "--death-timeout",
        "8",
        "--local-directory",
        str(tmp_path),
    ]
    ended = subprocess.run(command, env=env, cwd=tmp_path, timeout=120, capture_output=True)
    assert ended.returncode != 0 or b"Closing" in ended.stderr
    with tile_engine.cluster(tls_cluster.address, security=tls_cluster.tls) as client:
        assert len(describe_workers(client)) == 2


def test_nothing_listens_beyond_this_machine(tls_cluster):
    for process in (tls_cluster.scheduler, *tls_cluster.workers):
        for one in (
            psutil.Process(process.pid),
            *psutil.Process(process.pid).children(recursive=True),
        ):
            listening = {
                c.laddr.ip for c in one.net_connections() if c.status == psutil.CONN_LISTEN
            }
            assert listening <= {"127.0.0.1"}


# --- a cluster that breaks ------------------------------------------------------------------------


def hog(tile):
    """What a task does that needs more memory than its worker has."""
    held = [np.ones(1 << 24) for _ in range(tile)]  # 128 MB each
    time.sleep(60)
    return len(held)


@pytest.fixture
def doomed(tmp_path):
    """A cluster of one small worker, for a test that breaks it."""
    with dask_cluster(tmp_path / "doomed", workers=1, memory_limit="800MB") as running:
        yield running


@pytest.mark.process
def test_a_task_that_exceeds_its_memory_is_a_plain_error(doomed):
    with tile_engine.cluster(doomed.address, security=doomed.tls) as client:
        client.run_on_scheduler(_allow_no_failure)
        with pytest.raises(
            tile_engine.ClusterLostError,
            match=r"hog killed every worker that ran " r"it.*raise --memory-limit",
        ):
            tile_engine.map_tiles(hog, [6])


def _allow_no_failure(dask_scheduler):
    dask_scheduler.allowed_failures = 0


@pytest.mark.process
def test_a_killed_scheduler_is_a_plain_error_and_the_next_run_goes_on(
    doomed, store, serial, tmp_path, change
):
    change(tile_engine.SHARES, Shares(small_matrix=0))  # a pass needs the cluster
    steps = []

    def strike(name, record):
        steps.append(record)
        if len(steps) == 2:
            os.kill(doomed.scheduler.pid, signal.SIGKILL)

    with tile_engine.cluster(doomed.address, security=doomed.tls, timeout="5s") as client:
        client.wait_for_workers(1, timeout=60)
        with (
            observe(callback=strike),
            pytest.raises(
                tile_engine.ClusterLostError, match="the connection to the Dask cluster was lost"
            ),
        ):
            select(store, tmp_path / "run")
    run = select(store, tmp_path / "run")
    assert list(run.metadata["resumed"].values()) == [2]
    np.testing.assert_array_equal(run.selected, serial.selected)
