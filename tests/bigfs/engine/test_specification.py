"""Where the cluster is: Dask's own configuration, and a cluster that a YAML file describes."""

import os
import signal
import threading

import dask
import distributed
import numpy as np
import pytest
from distributed import LocalCluster

from bigfs import ANOVA, Matrix, engine
from bigfs.engine.clusters import _wait_for_worker
from bigfs.engine.specification import configured_scheduler, read_specification
from bigfs.flows.options import ClusterOptions

LOCAL = """\
cluster_class: distributed.LocalCluster
cluster_kwargs:
  n_workers: 1
  threads_per_worker: 2
  memory_limit: 600MB
  dashboard_address: 127.0.0.1:0
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "cluster.yaml").write_text(text)
        return tmp_path / "cluster.yaml"

    return write


STARTED = []


class Noted(LocalCluster):
    """A cluster that is remembered, with workers in threads of this process."""

    def __init__(self, **options):
        STARTED.append(self)
        super().__init__(n_workers=0, processes=False, dashboard_address="127.0.0.1:0", **options)


NOTED = f"cluster_class: {__name__}.Noted\n"


@pytest.mark.process
def test_a_cluster_is_started_by_its_file_and_closed(written, rng):
    X, y = rng.random((20, 4)), np.arange(20) % 2
    lazy = Matrix.from_array(X, tile_rows=5)
    lazy.local = False
    path = written(LOCAL)
    with ClusterOptions(cluster=str(path)).start() as client:
        assert engine.client() is client
        (pid,) = client.run(os.getpid).values()
        assert set(lazy.map(process, 0)) == {pid} != {os.getpid()}
        np.testing.assert_allclose(ANOVA().fit(lazy, y).scores_, ANOVA().fit(X, y).scores_)
    assert client.status == "closed"
    assert client.cluster.status.name == "closed"


def process(block, start, stop):
    return os.getpid()


@pytest.mark.process
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_adaptive_cluster_gets_its_first_worker_and_is_closed_after_errors(error, written):
    path = written(NOTED + "adapt_kwargs: {minimum: 0, maximum: 2}\n")
    STARTED.clear()

    def work():
        with engine.cluster(path):
            assert engine.n_workers() == 1
            assert dask.config.get("distributed.scheduler.no-workers-timeout") is None
            raise error

    with pytest.raises(error):
        work()
    assert engine.client() is None
    (started,) = STARTED
    assert started.status.name == "closed"


@pytest.mark.process
def test_a_worker_that_does_not_come_is_waited_for_with_a_warning():
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as running,
        distributed.Client(running, set_as_default=False) as client,
    ):
        threading.Timer(1, running.scale, [1]).start()
        with pytest.warns(UserWarning, match=r"no worker of the cluster has come in 0\.1s"):
            _wait_for_worker(client, "0.1s")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cluster_class: [", "is no YAML"),
        ("n_workers: 2", "needs a line such as cluster_class"),
        ("- a", "needs a line such as cluster_class"),
        (NOTED + "workers: 2", "has workers, and may have cluster_class, cluster_kwargs, adapt"),
        (NOTED + "cluster_kwargs: 3", "cluster_kwargs must be names with values; got 3"),
        (NOTED + "adapt_kwargs: {minimun: 3}", "adapt_kwargs has minimun; it takes minimum, max"),
        ("cluster_class: no_such_package.Cluster", "no class no_such_package.Cluster .* install"),
        ("cluster_class: distributed.Nothing", "no class distributed.Nothing"),
        ("cluster_class: Local", "no class Local"),
        ("cluster_class: distributed.Client", "distributed.Client is no cluster class"),
        ("cluster_class: os.system", "os.system is no cluster class"),
    ],
)
def test_a_wrong_file_is_one_plain_line(text, message, written):
    path = written(text)
    with pytest.raises(ValueError, match=message) as error, engine.cluster(path):
        raise AssertionError("let in")
    assert str(path) in str(error.value)


def test_a_missing_file_and_a_cluster_that_does_not_start_are_plain(written, tmp_path):
    with pytest.raises(ValueError, match=r"there is no file .*none\.yaml"):
        read_specification(tmp_path / "none.yaml")
    path = written(NOTED + "cluster_kwargs: {n_workers: 1}")
    with (
        pytest.raises(engine.ClusterLostError, match=r"the Noted of .* did not start: .*n_workers"),
        engine.cluster(path),
    ):
        raise AssertionError("let in")


def test_ctrl_c_stays_what_it_was(written, tmp_path, monkeypatch):
    """dask_jobqueue takes it for itself when it is imported."""
    (tmp_path / "takes_interrupts.py").write_text(
        "import signal, sys\nfrom distributed import LocalCluster\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    kind, _, _ = read_specification(written("cluster_class: takes_interrupts.LocalCluster"))
    assert kind is LocalCluster
    assert signal.getsignal(signal.SIGINT) is before


def test_the_class_of_a_gateway_is_a_cluster(written, monkeypatch):
    kind = type("GatewayCluster", (), {"__module__": "dask_gateway.client"})
    monkeypatch.setattr(distributed, "GatewayCluster", kind, raising=False)
    text = "cluster_class: distributed.GatewayCluster\ncluster_kwargs: {address: http://gw}"
    assert read_specification(written(text)) == (kind, {"address": "http://gw"}, {})


# --- Dask's configuration -------------------------------------------------------------------------


@pytest.mark.process
def test_the_scheduler_of_dasks_configuration_is_taken():
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as running,
        dask.config.set({"scheduler-address": running.scheduler_address}),
    ):
        assert configured_scheduler() == running.scheduler_address
        assert not ClusterOptions().is_local
        assert ClusterOptions().staging_memory is None
        assert ClusterOptions(workers=0).is_local
        with engine.cluster() as client:
            assert client.scheduler.address == running.scheduler_address
        with engine.cluster(workers=0) as client:
            assert client is None
    assert ClusterOptions().is_local
    assert not ClusterOptions(cluster="a.yaml").is_local


def test_options_of_where_the_cluster_is_are_checked():
    with pytest.raises(ValueError, match=r"must be the path of a \.yaml file; got tcp"):
        ClusterOptions(cluster="tcp://127.0.0.1:1")
    with pytest.raises(ValueError, match="exclude one another"):
        ClusterOptions(scheduler="tcp://127.0.0.1:1", cluster="a.yaml")
    with pytest.raises(ValueError, match="tls is for a cluster that runs"):
        ClusterOptions(tls="tls")
    with dask.config.set({"scheduler-address": "tls://127.0.0.1:1"}):
        assert ClusterOptions(tls="tls").tls == "tls"
