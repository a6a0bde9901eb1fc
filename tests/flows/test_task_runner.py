"""The flow `bigfs` with prefect-dask's `DaskTaskRunner`, where prefect-dask is installed."""

import numpy as np
import pytest
from dask.distributed import LocalCluster

from bigfs.flows.options import ClusterOptions
from bigfs.storage.runs.runs import Run
from tests.helpers.processes import PREFECT_WARNS, write_corpus

pytestmark = [PREFECT_WARNS, pytest.mark.nightly]
prefect_dask = pytest.importorskip("prefect_dask", reason="prefect-dask is not installed")


def test_the_flow_gives_its_answer_on_the_cluster_of_its_task_runner(prefect, tmp_path):
    from bigfs.flows.prefect_flows import run as flow_of_run

    corpus = write_corpus(tmp_path / "corpus.jsonl", seed=3)
    local = flow_of_run(corpus, features=12, out="runs/local", engine=ClusterOptions(workers=0))
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        runner = prefect_dask.DaskTaskRunner(address=cluster.scheduler_address)
        flow = flow_of_run.with_options(task_runner=runner)
        engine = ClusterOptions(scheduler=cluster.scheduler_address)
        shared = flow(corpus, features=12, out="runs/shared", engine=engine)
        done = cluster.scheduler.cumulative_worker_metrics
        assert any("execute" in metric for metric in done)
    np.testing.assert_array_equal(Run.open(local).selected, Run.open(shared).selected)
    np.testing.assert_array_equal(Run.open(local).scores, Run.open(shared).scores)
