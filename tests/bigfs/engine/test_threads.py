"""Threads: those of joblib see the cluster, and workers of several threads keep the promises."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster
from joblib import parallel_config
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_info

from bigfs import ANOVA, MRMR, Matrix, ReliefF, SparGE, engine, storage

MB = 10**6


@pytest.fixture
def data(rng):
    X = sp.random_array((80, 20), density=0.4, format="csr", rng=rng)
    return X, np.arange(80) % 2


class Where(ANOVA):
    """Notes where its tiles are worked on."""

    def _fit(self, X, y):
        super()._fit(X, y)
        PLACES.append((threading.get_ident(), X.map(process, 0)))


PLACES = []


def process(block, start, stop):
    return os.getpid()


@pytest.mark.process
def test_threads_of_joblib_use_the_cluster_around_them(data):
    X, y = data
    pipeline = make_pipeline(SparGE(n_features_to_select=3), LinearSVC())
    expected = cross_val_score(pipeline, X, y, cv=4)
    lazy = Matrix.from_dask(da.from_array(X, chunks=(20, 20)))
    PLACES.clear()
    with (
        engine.cluster(workers=1, memory_limit="600MB") as client,
        parallel_config("threading", n_jobs=2),
    ):
        (worker,) = client.run(os.getpid).values()
        np.testing.assert_array_equal(cross_val_score(pipeline, X, y, cv=4), expected)
        cross_val_score(Where(n_features_to_select=3), lazy, y, cv=4, scoring=score)
    threads, pids = zip(*PLACES, strict=True)
    assert threading.get_ident() not in threads
    assert {pid for of_fit in pids for pid in of_fit} == {worker}


def score(selector, X, y):
    return float(selector.scores_.max())


def in_thread(fn):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(fn).result()


def in_pool_thread(fn):
    """Call a function in a thread as joblib's are."""
    with ThreadPool(1) as pool:
        return pool.apply(fn)


def test_a_thread_of_joblib_sees_the_block_around_it_and_its_own_first():
    with engine.cluster(workers=0, memory_limit="700MB"):
        assert in_pool_thread(engine.memory_limit) == 700 * MB
        with engine.cluster(workers=0, memory_limit="800MB"):
            assert in_pool_thread(engine.memory_limit) == 800 * MB
        assert in_pool_thread(engine.memory_limit) == 700 * MB
        inner, leave = threading.Event(), threading.Event()

        def other():
            with engine.cluster(workers=0, memory_limit="900MB"):
                inner.set()
                leave.wait(10)
                return engine.memory_limit()

        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(other)
            assert inner.wait(10)
            assert engine.memory_limit() == 700 * MB
            leave.set()
            assert answer.result() == 900 * MB
    assert in_pool_thread(engine.budget.given_limit) is None


def test_a_thread_in_no_block_takes_over_no_other_thread():
    """A server has threads of its own, and those of a pool that was there before the block."""
    waiting, go_on = threading.Event(), threading.Event()

    def limit_after():
        waiting.set()
        assert go_on.wait(10)
        return engine.budget.given_limit()

    with ThreadPool(1) as earlier:
        answer = earlier.apply_async(limit_after)
        assert waiting.wait(10)
        with engine.cluster(workers=0, memory_limit="700MB"):
            go_on.set()
            assert answer.get() is None
            assert in_thread(engine.budget.given_limit) is None
            assert in_pool_thread(engine.budget.given_limit) == 700 * MB


def test_blas_keeps_one_thread_until_the_last_block_ends():
    def n_threads():
        return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}

    inside, leave = threading.Event(), threading.Event()

    def first():
        with engine.one_blas_thread():
            inside.set()
            leave.wait(10)

    before = n_threads()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(first)
        assert inside.wait(10)
        with engine.one_blas_thread():
            leave.set()
            done.result()
            assert n_threads() == {1}
    assert n_threads() == before


# --- a user's workers with several threads --------------------------------------------------------


@pytest.fixture(scope="module", params=[True, False], ids=["processes", "threads of this process"])
def threaded(request):
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=4,
            processes=request.param,
            host="127.0.0.1" if request.param else None,
            memory_limit="1GB",
            dashboard_address="127.0.0.1:0",
        ) as running,
        Client(running) as client,
    ):
        yield client


@pytest.mark.process
def test_workers_of_several_threads_give_the_same_bits(threaded, data, tmp_path):
    X, y = data
    sp.save_npz(tmp_path / "a.npz", X)
    corpus = storage.open(storage.stage(tmp_path / "a.npz", tmp_path / "a.zarr", tile_rows=10))
    for selector in (
        ANOVA(),
        SparGE(n_features_to_select=3),
        MRMR(n_features_to_select=3),
        ReliefF(),
    ):
        scores = selector.fit(corpus.X, y).scores_
        with engine.cluster(workers=0):
            np.testing.assert_array_equal(selector.fit(corpus.X, y).scores_, scores)
    lazy = da.from_array(X, chunks=(20, 20))
    np.testing.assert_allclose(ANOVA().fit(lazy, y).scores_, ANOVA().fit(X, y).scores_)
