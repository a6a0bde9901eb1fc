"""A cluster that is struck within a step of each kind: the same bits or `ClusterLostError`, and
never a step in this process.
"""

import contextlib
import os
import signal
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from distributed import get_worker

from bigfs import Matrix, engine
from bigfs.engine import executor
from bigfs.graph import knn
from tests.helpers.daily import daily
from tests.helpers.processes import until
from tests.helpers.threads import threads

N, D, WIDTH = 48, 12, 4


@dataclass(frozen=True)
class Part:
    """Some rows or columns. On a cluster the first that are loaded wait for the strike."""

    axis: int
    start: int
    stop: int
    folder: str | None
    verified: ClassVar[bool] = True

    def load(self):
        if self.folder is not None:
            get_worker()  # an error in this process
            (Path(self.folder) / "begun").touch()
            while not (Path(self.folder) / "struck").exists():
                time.sleep(0.01)
        if self.axis == 0:
            return whole()[self.start : self.stop]
        return sp.csc_array(whole()[:, self.start : self.stop])


def whole():
    return sp.random_array((N, D), density=0.5, format="csr", rng=np.random.default_rng(1))


def matrix(folder=None):
    rows, columns = (
        [Part(axis, a, a + WIDTH, folder) for a in range(0, size, WIDTH)]
        for axis, size in ((0, N), (1, D))
    )
    return Matrix((N, D), rows=rows, columns=columns)


def gram(block, start, stop):
    return (block.T @ block).toarray()


def add_gram(block, start, stop, total):
    return gram(block, start, stop) + (0 if total is None else total)


def load_part(tile):
    return tile.load().toarray()


def streamed(X):
    parts = dict(engine.stream_tiles(load_part, X.row_tiles))
    return np.vstack([parts[i] for i in sorted(parts)])


STEPS = {
    "map": lambda X: np.stack(X.map(gram, 0)),
    "fold": lambda X: X.sum(gram, 0),
    "totals": lambda X: X.sum(add_gram, 0, max_parts=3),
    "stream": streamed,
    "gather": lambda X: X.columns(np.arange(0, D, 2)).toarray(),
    "pairs": lambda X: knn(X, 3, block_rows=8).index,
}


@contextlib.contextmanager
def struck(folder, strike):
    """Strike within the first tasks of the block."""

    def wait_and_strike():
        while not (folder / "begun").exists():
            time.sleep(0.01)
        strike()
        (folder / "struck").touch()

    striker = threading.Thread(target=wait_and_strike)
    striker.start()
    try:
        yield
    finally:
        (folder / "begun").touch()  # whatever the step did
        striker.join()


@pytest.mark.parametrize("how", ["closed", "scheduler"])
@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_a_lost_cluster_is_an_error(step, how, tmp_path, change):
    change(executor.CANCEL_SECONDS, 0.1)
    with threads() as client:

        def strike():
            if how == "closed":
                client.close()
            else:
                (tmp_path / "struck").touch()  # a worker that closes waits for its tasks
                client.cluster.close()

        with struck(tmp_path, strike), contextlib.suppress(engine.ClusterLostError):
            np.testing.assert_array_equal(STEPS[step](matrix(str(tmp_path))), STEPS[step](matrix()))
            assert how == "scheduler", "the step went on without a client"


@pytest.fixture(scope="module")
def two():
    with engine.cluster(workers=2) as client:
        yield client


@pytest.mark.process
@pytest.mark.parametrize("how", ["killed", "restarted"])
@pytest.mark.parametrize("step", daily(STEPS, "stream", "pairs"))
def test_a_step_survives_a_worker_and_says_when_all_are_gone(two, step, how, tmp_path):
    killed = min(two.run(os.getpid).values())

    def strike():
        if how == "restarted":
            (tmp_path / "struck").touch()
            two.restart(timeout="120s")  # a worker may start slowly beside other work
        else:
            os.kill(killed, signal.SIGKILL)

    with struck(tmp_path, strike):
        try:
            found = STEPS[step](matrix(str(tmp_path)))
        except engine.ClusterLostError:
            assert how == "restarted"
            return
    if how == "killed":  # or Dask waits for half a minute where it restarts one that is starting
        processes = partial(two.run, os.getpid, on_error="ignore")
        until(lambda: len({killed, *processes().values()}) == 3, "another worker")
    with engine.cluster(workers=0):
        np.testing.assert_array_equal(found, STEPS[step](matrix()))
