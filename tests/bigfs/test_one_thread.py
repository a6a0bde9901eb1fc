"""BLAS rounds by its number of threads, so every fit and every task runs with one."""

import numpy as np
import pytest
import scipy.sparse as sp
import spams  # noqa: F401  # it brings a BLAS of its own when JGSC first needs it
from threadpoolctl import threadpool_info, threadpool_limits

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.selectors.registry import METHODS
from tests.helpers.fitting import fit_few_steps


def blas_threads():
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield


def test_blas_gets_its_threads_back_after_the_outer_block():
    with engine.one_blas_thread():
        with engine.one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_every_task_runs_with_one_thread():
    tiles = [engine.Tile] * 2
    assert engine.map_tiles(lambda tile: blas_threads(), tiles, local=True) == [{1}, {1}]
    assert engine.map_tiles(lambda tile: blas_threads(), tiles) == [{1}, {1}]
    assert blas_threads() == {2}


@pytest.mark.parametrize("name", METHODS)
def test_every_fit_runs_with_one_thread(name, monkeypatch):
    seen = set()
    passes = Matrix.passes

    def count_passes(self, value):
        seen.update(blas_threads())
        passes.fset(self, value)

    monkeypatch.setattr(Matrix, "passes", passes.setter(count_passes))
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = np.abs(rng.normal(size=(40, 9)) + y[:, None])
    target = y + rng.random(40) if METHODS[name].targets == ("real",) else y
    selector = METHODS[name].make(n_features_to_select=3)
    if name == "smr":
        selector.set_params(sample_shape=(3, 3))
    if name == "sparge-lda-cv":
        selector.set_params(gammas=[1.0])
    fit_few_steps(selector, sp.csr_array(X), target)
    assert seen == {1}
    assert blas_threads() == {2}
