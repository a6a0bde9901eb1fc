"""Shared data for the tests: generated here, or scikit-learn's own; real corpora only where they
lie.
"""

import atexit
import contextlib
import gc
import os
import tempfile
from pathlib import Path

import dask
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
import zarr.core.codec_pipeline

from bigfs import engine
from bigfs.engine import executor, memory
from bigfs.engine.budget import IDLE, current_session
from tests.helpers.commands import bigfs  # noqa: F401, a fixture
from tests.helpers.processes import prefect, prefect_server, tls_cluster  # noqa: F401, fixtures

REAL = Path(os.environ.get("BIGFS_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")


@pytest.fixture(autouse=True, scope="session")
def as_in_a_new_process():
    """Tests share a process. The memory that it has come to hold is none of the next test's, nor of
    a fixture that many tests share.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "own_memory", lambda: IDLE)
        yield


@pytest.fixture(autouse=True)
def without_lost_clusters():
    """The clusters that a process has lost are none of the next test's. Nor is the scheduler that
    Dask goes on to ask for where a client is closed within its own block.
    """
    with dask.config.set(scheduler=dask.config.get("scheduler", None)):
        yield
    executor.lost_clients.clear()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def matrix(rng):
    """23 × 17, csr, three decimals."""
    X = sp.random_array((23, 17), density=0.2, format="csr", rng=rng, dtype=np.float64)
    X.data = np.round(X.data, 3) + 0.001
    return X


@pytest.fixture
def text():
    """120 × 80 sparse rows of unit length in 4 classes, 3 informative columns a class, and y."""
    rng = np.random.default_rng(7)
    y = np.repeat(np.arange(4), 30)
    rate = np.full((4, 80), 0.15)
    for c in range(4):
        rate[c, 3 * c : 3 * c + 3] = 1.5
    counts = rng.poisson(rate[y]) * rng.uniform(0.5, 1.5, (120, 80))
    counts[:, 79] += 0.1  # a constant presence, so that no row is empty
    X = sp.csr_array((counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32))
    return X, y


@pytest.fixture
def words(rng):
    """300 × 120 sparse rows: Zipf columns, two empty rows, one duplicate and one scaled
    duplicate.
    """
    share = 0.9 / (1 + np.arange(120))
    X = (rng.random((300, 120)) < share) * rng.random((300, 120))
    X[[5, 290]] = 0
    X[200], X[250] = X[3], 3 * X[10]
    X[[3, 200], 40] = 1  # not empty
    return sp.csr_array(X.astype(np.float32))


@pytest.fixture
def real_data():
    """The folder of real data; skips where it is missing."""
    if not REAL.is_dir():
        pytest.skip(f"real data is not in {REAL}: set BIGFS_TEST_DATA to its folder")
    return REAL


@pytest.fixture
def change():
    """A function that gives a setting another value until the test ends."""
    with contextlib.ExitStack() as stack:
        yield lambda setting, value: stack.enter_context(setting.during(value))


@pytest.fixture
def allow_memory(monkeypatch):
    """A function that says how many bytes a step may use, in a process that holds nothing else."""

    def allow(limit):
        for module in (engine, memory):
            monkeypatch.setattr(module, "memory_limit", lambda: limit)
        for module in (executor, memory):
            monkeypatch.setattr(module, "held_memory", lambda: current_session().baseline or 0)

    return allow


@pytest.fixture(params=["BatchedCodecPipeline", "FusedCodecPipeline"])
def codec_pipeline(request):
    """Each way that Zarr has to read and write chunks, as its configuration names it."""
    if not hasattr(zarr.core.codec_pipeline, request.param):
        pytest.skip(f"zarr {zarr.__version__} has no {request.param}: it came with 3.3")
    path = f"zarr.core.codec_pipeline.{request.param}"
    with zarr.config.set({"codec_pipeline.path": path}):
        yield


SERVERS = {"prefect", "prefect_server", "tls_cluster"}


def pytest_configure():
    """Give the processes of the tests a folder that they share."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="bigfs-tests-")
        atexit.register(folder.cleanup)
        os.environ["BIGFS_TESTS_FOLDER"] = folder.name


def pytest_collection_modifyitems(items):
    """Mark the tests that real data or servers reach by a fixture."""
    for item in items:
        if "real_data" in item.fixturenames:
            item.add_marker("real_data")
        if SERVERS & set(item.fixturenames):
            item.add_marker("process")


def pytest_collection_finish():
    """Spare the garbage collector of a worker what lives until its end: modules, 10,000 tests."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        gc.collect()
        gc.freeze()
