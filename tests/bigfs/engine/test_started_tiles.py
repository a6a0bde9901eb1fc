"""Tasks that run on the cluster beside what this process does."""

import contextlib
import threading

import dask
import numpy as np
import pytest
from distributed import get_worker

from bigfs import engine
from tests.helpers.processes import until
from tests.helpers.threads import threads

go_on, order = threading.Event(), []


def wait_and_note(number):
    if not order:
        assert go_on.wait(60)
    order.append(number)
    return number


def go_on_with(scheduler, n_tasks):
    """Let the first task end when the scheduler knows so many."""
    until(lambda: len(scheduler.tasks) >= n_tasks, f"the start of {n_tasks} tasks")
    go_on.set()


@contextlib.contextmanager
def workers(n_workers):
    """A cluster of threads of this process, so that its tasks share the lists of the test."""
    go_on.clear()
    order.clear()
    with threads(n_workers, set_as_default=False) as client, engine.cluster(client):
        yield client


@pytest.fixture
def one_thread():
    with workers(1) as client:
        yield client


def test_the_tasks_of_the_block_go_before_them(one_thread):
    shown = []
    with (
        engine.progress(lambda *step: shown.append(step)),
        engine.started_tiles(wait_and_note, [0, 1, 2], label="behind") as results,
    ):
        threading.Thread(target=go_on_with, args=(one_thread.cluster.scheduler, 5)).start()
        assert engine.map_tiles(wait_and_note, [10, 11]) == [10, 11]
        assert results() == [0, 1, 2]
    assert set(order[1:3]) == {10, 11}  # one task behind had begun
    assert sorted(order) == [0, 1, 2, 10, 11]
    assert shown == [("behind", done, 3) for done in (1, 2, 3)]


def fail_beside_tasks():
    with engine.started_tiles(wait_and_note, [0, 1, 2]):
        go_on.set()
        raise ValueError("no ranking")


def test_they_are_canceled_if_the_block_fails(one_thread):
    with pytest.raises(ValueError, match="no ranking"):
        fail_beside_tasks()
    assert not one_thread.futures


@pytest.mark.parametrize("local", [True, False])
def test_without_a_cluster_they_run_when_they_are_asked_for(local):
    go_on.set()
    order.clear()
    with engine.started_tiles(wait_and_note, [0, 1], local=local) as results:
        assert order == []
        assert results() == [0, 1]


def worker_that_waits(index):
    assert go_on.wait(20)
    return get_worker().address


def worker_of(index):
    return get_worker().address


def test_an_index_of_columns_waits_for_no_worker():
    """A tile prefers the worker that may have it cached. An index is in no cache."""
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        workers(2),
        engine.started_tiles(worker_that_waits, [np.arange(3)]) as first,
    ):
        (second,) = engine.map_tiles(worker_of, [np.arange(2)])
        go_on.set()
        assert first() != [second]
