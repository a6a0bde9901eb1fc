"""A cluster on which no task ends says so, and never stands still in silence."""

import contextlib
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import dask
import pytest
from distributed import Client, LocalCluster

from bigfs import engine
from bigfs.engine import watchdog
from tests.helpers.processes import until

WORKER = {"memory_limit": 10**9, "metrics": {"memory": 870 * 10**6, "task_counts": {}}}


class Slow(NamedTuple):
    """A tile whose load lasts until a file is there."""

    start: int
    stop: int
    end: Path


def load_slowly(tile):
    return until(tile.end.exists, tile.end)


def test_description_says_what_each_worker_does():
    workers = {
        "b": WORKER | {"status": "running"},
        "a": WORKER | {"status": "paused"},
        "c": WORKER | {"status": "running"},
    }
    assigned = {"a": ["_score-12"], "b": ["_score-0c1f", ("_score-0c1f", 1)], "c": []}
    assert watchdog.describe(workers, assigned) == (
        "worker 0 is paused, because it uses 829.70 MiB of 0.93 GiB, worker 1 computes score, "
        "worker 2 has nothing to do; raise --memory-limit, use smaller tiles, or choose smaller "
        "parameters"
    )
    assert watchdog.describe({}, {}) == "the cluster has no workers"


def test_of_many_workers_some_are_listed_and_paused_ones_first():
    metrics = {"memory": 2**20}
    workers = {f"{i:04}": {"status": "running"} for i in range(1023)}
    workers["1023"] = {"status": "paused", "metrics": metrics, "memory_limit": 2**21}
    said = watchdog.describe(workers, {})
    assert said.startswith("worker 1023 is paused, because it uses 1.00 MiB of 2.00 MiB, worker 0 ")
    assert "worker 6 has nothing to do, and 1016 more; raise --memory-limit" in said


@pytest.mark.parametrize(
    ("statuses", "running", "assigned", "error"),
    [
        (["paused", "running"], 0, [], engine.MemoryLimitError),
        (["paused", "paused"], 0, ["a"], engine.MemoryLimitError),
        (["paused", "running"], 1, ["a"], None),
        (["running", "running"], 0, ["a"], None),
        (["running", "running"], 0, [], engine.ClusterLostError),
        ([], 0, [], None),
    ],
)
def test_nothing_can_start_beside_a_paused_worker_or_where_no_task_is_given(
    statuses, running, assigned, error
):
    """The tasks of a paused worker wait for it, though the others have room."""
    workers = {
        str(i): WORKER | {"status": status, "metrics": {"task_counts": {"executing": running * i}}}
        for i, status in enumerate(statuses)
    }
    found = watchdog.standstill(workers, {"0": assigned})
    assert found is error or isinstance(found, error)


class Deaf:
    """A client whose scheduler does not answer the first question, and whose workers wait."""

    cluster = None

    def __init__(self):
        self.asked, self.canceled = 0, threading.Event()

    def processing(self):
        self.asked += 1
        if self.asked == 1:
            raise TimeoutError
        return {"a": []}

    def cancel(self, futures, force):
        self.canceled.set()


def wait_for(client, future):
    with watchdog.watch(client, [future]):
        assert client.canceled.wait(30)
        raise ValueError


@pytest.mark.parametrize("is_done", [False, True])
def test_a_watch_goes_on_after_a_question_without_an_answer(monkeypatch, change, is_done):
    """It gives up tasks that nobody starts, and never values that are being fetched."""
    change(watchdog.LOOK_SECONDS, 0.001)
    change(watchdog.STANDSTILL_SECONDS, 0.002)
    change(watchdog.SILENT_SECONDS, 0.002)
    monkeypatch.setattr(watchdog, "describe_workers", lambda _: {"a": WORKER | {"status": "ok"}})
    client, future = Deaf(), SimpleNamespace(key="task", done=lambda: is_done)
    if is_done:
        with watchdog.watch(client, [future]):
            until(lambda: client.asked > 5, "some questions")
        assert not client.canceled.is_set()
        return
    with pytest.raises(
        engine.ClusterLostError, match=r"stands still: worker 0 has nothing to do; sta"
    ):
        wait_for(client, future)


@pytest.mark.process
def test_a_step_whose_tasks_take_long_says_which_runs(change, monkeypatch, caplog, tmp_path):
    """It says so in the log: a warning in its thread would be an error of nobody."""
    warn, end = watchdog.log.warning, tmp_path / "end"
    monkeypatch.setattr(watchdog.log, "warning", lambda *words: (warn(*words), end.touch()))
    change(watchdog.LOOK_SECONDS, 0.1)
    change(watchdog.SILENT_SECONDS, 0.5)
    with engine.cluster(workers=1):
        assert engine.map_tiles(load_slowly, [Slow(0, 1, end)]) == [True]
    said = [record.getMessage() for record in caplog.records if record.name == watchdog.__name__]
    assert said[0] == "no task has ended for 1 s: worker 0 computes load_slowly"


@pytest.mark.process
def test_a_cluster_whose_workers_are_all_paused_is_given_up(change):
    change(watchdog.LOOK_SECONDS, 0.1)
    change(watchdog.STANDSTILL_SECONDS, 0.5)
    with (
        dask.config.set({"distributed.worker.memory.pause": 0.01}),
        engine.cluster(workers=1),
        pytest.raises(engine.MemoryLimitError, match=r"stands still: worker 0 is paused, because"),
    ):
        engine.map_tiles(load_slowly, [Slow(0, 1, Path("/"))])


@pytest.mark.process
@pytest.mark.parametrize("whose", ["address", "own client", "client of its cluster"])
def test_a_scheduler_without_workers_is_given_up_whoever_started_it(change, whose):
    change(watchdog.LOOK_SECONDS, 0.1)
    change(watchdog.NO_WORKERS_SECONDS, 0.5)
    empty = LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0")
    with contextlib.ExitStack() as stack:
        stack.enter_context(empty)
        if whose == "address":
            stack.enter_context(engine.cluster(empty.scheduler_address))
        else:
            given = empty.scheduler_address if whose == "own client" else empty
            stack.enter_context(Client(given))
        with pytest.raises(
            engine.ClusterLostError, match=r"no workers left: start some and repeat the"
        ):
            engine.map_tiles(load_slowly, [Slow(0, 1, Path("/"))])


def test_a_cluster_that_starts_its_workers_may_have_them_in_a_queue():
    jobs = SimpleNamespace(cluster=SimpleNamespace())
    assert watchdog.without_workers(jobs) is None
    assert watchdog.without_workers(SimpleNamespace(cluster=None)) == 60
    with dask.config.set({watchdog.NO_WORKERS_TIMEOUT: "5s"}):
        assert watchdog.without_workers(jobs) == 5
