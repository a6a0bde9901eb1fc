"""A cluster in use: its settings differ, its workers come and go, and it keeps nothing of a fit."""

import contextlib
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import LaplacianScore, Matrix, SparGE, engine
from bigfs.engine import watchdog
from bigfs.engine.budget import resident
from bigfs.result import NotConvergedWarning
from tests.helpers.counting import counted_tasks
from tests.helpers.processes import until
from tests.helpers.threads import threads

N, D = 240, 40
S = sp.random_array((N, D), density=0.3, format="csr", rng=np.random.default_rng(5))
Y = np.arange(N) % 3


def fit(X):
    selector = SparGE(n_features_to_select=5, embedding="lpp", max_iter=2, tol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return selector.fit(X, Y).scores_


def tiles():
    """A matrix of which no process holds the tiles."""
    X = Matrix.from_array(S, tile_rows=30)
    X.local = False
    return X


@pytest.fixture(scope="module")
def serial():
    with engine.cluster(workers=0):
        return fit(tiles())


@pytest.mark.parametrize(
    "settings",
    [
        {"scheduler": "threads", "array.chunk-size": "1kiB"},
        {"scheduler": "processes", "optimization.fuse.active": True},
        {"distributed.scheduler.worker-saturation": "inf", "distributed.comm.compression": "zlib"},
        {"distributed.scheduler.work-stealing": False, "distributed.worker.memory.target": 0.01},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_dask_change_no_bit(settings, serial):
    lazy = da.from_array(S.toarray(), chunks=(30, D))
    with dask.config.set(settings):
        with engine.cluster(workers=0):
            of_array = LaplacianScore().fit(lazy).scores_
        with threads(2) as client, counted_tasks(client):
            np.testing.assert_array_equal(fit(tiles()), serial)
            np.testing.assert_array_equal(LaplacianScore().fit(lazy).scores_, of_array)
            until(lambda: not client.cluster.scheduler.tasks, "the end of all tasks")
            assert not client.futures


def number(tile):
    return tile.start


@pytest.mark.parametrize("has_plugin", [True, False])
def test_tasks_go_on_after_all_workers_were_replaced(has_plugin, change):
    """A scheduler that takes no plugin leaves tasks to a worker that is gone. The step ends."""
    parts = Matrix.from_array(S, tile_rows=4).row_tiles
    with threads(1) as client:
        engine.map_tiles(number, parts)
        if not has_plugin:
            client.unregister_scheduler_plugin("bigfs-any-worker")
            change(watchdog.LOOK_SECONDS, 0.02)
            change(watchdog.STANDSTILL_SECONDS, 0.2)
        stream = engine.stream_tiles(number, parts)
        found = dict([next(stream)])
        client.cluster.scale(0)
        until(lambda: not client.nthreads(), "no worker")
        with (
            contextlib.nullcontext()
            if has_plugin
            else pytest.raises(engine.ClusterLostError, match="stands still")
        ):
            client.cluster.scale(1)
            found |= stream
            assert found == {i: 4 * i for i in range(len(parts))}


def test_workers_come_with_a_fit_and_go_after_it(serial):
    with threads(0) as client:
        client.cluster.adapt(
            minimum=0, maximum=3, interval="50ms", wait_count=2, target_duration="10ms"
        )
        for _ in range(2):
            with counted_tasks(client):
                np.testing.assert_array_equal(fit(tiles()), serial)
            until(lambda: not client.nthreads(), "no worker")


@pytest.mark.process
@pytest.mark.nightly
def test_twenty_fits_leave_no_task_and_no_memory(serial):
    used = []
    with engine.cluster(workers=2) as client:
        for _ in range(20):
            np.testing.assert_array_equal(fit(tiles()), serial)
            until(lambda: client.run_on_scheduler(n_tasks) == 0, "the end of all tasks")
            used.append(max(client.run(resident).values()))
    assert used[-1] < 1.1 * used[4]


def n_tasks(dask_scheduler):
    return len(dask_scheduler.tasks)
