"""A deployment of one's own on a process pool: its hooks hear of a cancel and of a crash."""

import os
import signal
import sys

import psutil
import pytest
from prefect import Flow
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.states import Cancelling

from bigfs.storage.runs.runs import lock_run
from tests.helpers.processes import PREFECT_WARNS, client, start, stop, until, write_corpus

pytestmark = PREFECT_WARNS

OWN = """
from bigfs.flows.prefect_flows import run as flow_of_run

def tell(flow, flow_run, state):
    with open("heard", "a") as file:
        print(state.name, file=file)

watched = flow_of_run.with_options(on_cancellation=[tell], on_crashed=[tell])
"""


@pytest.fixture
def deployed(prefect, tmp_path):
    """The ID of a deployment whose runs wait, and the process of its worker."""
    write_corpus(tmp_path / "corpus.jsonl", seed=3)
    (tmp_path / "mine.py").write_text(OWN)
    with client() as api:
        api.create_work_pool(WorkPoolCreate(name="own", type="process"), overwrite=True)
    watched = Flow.from_source(source=str(tmp_path), entrypoint="mine.py:watched")
    made = watched.deploy(
        name="own",
        work_pool_name="own",
        parameters={"source": "corpus.jsonl", "out": "runs/r", "engine": {"workers": 0}},
        job_variables={"working_dir": str(tmp_path)},
    )
    words = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "own"]
    env = prefect.env | {
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_LOGGING_EXTRA_LOGGERS": "bigfs",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    }
    worker = start(words, tmp_path / "worker.log", env, tmp_path)
    try:
        yield made, worker
    finally:
        stop(worker)
        with client() as api:
            api.delete_deployment(made)
            api.delete_work_pool("own")


def test_hooks_hear_of_a_cancel_and_of_a_crash(deployed, tmp_path):
    made, worker = deployed
    with lock_run(tmp_path / "runs" / "r"), client() as api:  # so that a run waits
        cancelled = running(api, made)
        api.set_flow_run_state(cancelled, Cancelling())
        until(lambda: heard(tmp_path) == ["Cancelling"], "the hook for a cancel", 60)
        crashed = running(api, made)
        for child in psutil.Process(worker.pid).children(recursive=True):
            os.kill(child.pid, signal.SIGKILL)
        until(lambda: heard(tmp_path) == ["Cancelling", "Crashed"], "the hook for a crash", 60)
        ended = [api.read_flow_run(run).state.name for run in (cancelled, crashed)]
    assert ended == ["Cancelled", "Crashed"]
    log = (tmp_path / "worker.log").read_text()
    assert "failed to retrieve flow" not in log
    assert "ModuleNotFoundError" not in log


def running(api, deployment):
    """Start a flow run, and return its ID once it waits for the lock."""
    run = api.create_flow_run_from_deployment(deployment).id

    def waits():
        state = api.read_flow_run(run).state
        assert not state.is_final(), state.message
        lines = api._client.post(
            "/logs/filter", json={"logs": {"flow_run_id": {"any_": [str(run)]}}}
        )
        return any("waiting for it to end" in line["message"] for line in lines.json())

    until(waits, "a run that waits", 90)
    return run


def heard(folder):
    file = folder / "heard"
    return file.read_text().split() if file.exists() else []
