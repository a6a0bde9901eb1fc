"""A user's own Dask client: found, used, and left as it was."""

import gc
import os

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster, get_worker

from bigfs import ANOVA, MRMR, LaplacianScore, Matrix, ReliefF, SelectorCV, SparGE, engine, storage
from bigfs.engine.clusters import describe_workers
from bigfs.engine.executor import OnCluster, map_tiles
from bigfs.matrix import gathering
from bigfs.matrix.gathering import PEAK_ENTRY_BYTES, hold_columns
from tests.helpers.threads import threads

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def local():
    """One cluster object with a worker process of its own."""
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit="1GB",
    ) as running:
        yield running


@pytest.fixture
def client(local):
    with Client(local) as current:
        yield current


def where(tile):
    return os.getpid()


def fitted_inside(X, y):
    """What a task of the user's own may do."""
    assert engine.client() is None  # it would wait for the worker that it runs on
    return ANOVA().fit(da.from_array(X, chunks=(10, 5)), y).scores_


def test_current_client_runs_the_tiles_and_stays_open(client):
    assert engine.client() is client
    assert map_tiles(where, [0, 1]) == 2 * list(client.run(os.getpid).values())
    with engine.cluster(workers=0):
        assert engine.client() is None
        assert map_tiles(where, [0]) == [os.getpid()]
    assert client.status == "running"


def test_workers_are_known_while_the_client_forgets_them(client, monkeypatch):
    """A timer of the client replaces what it remembers, at any moment, by nothing."""
    remember = client._update_scheduler_info

    async def forget(n_workers=0):
        await remember(n_workers=0)

    monkeypatch.setattr(client, "_update_scheduler_info", forget)
    assert list(OnCluster(client).threads()) == list(client.run(os.getpid))
    assert engine.memory_limit() == 10**9


def test_a_cluster_may_have_no_worker_yet():
    here = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=0, **here) as empty, Client(empty):
        assert engine.executor.known_workers() == {}
        assert engine.n_workers() == 1


def test_tiles_have_no_preference_while_all_workers_restart(client, monkeypatch):
    monkeypatch.setattr(OnCluster, "threads", lambda self: {})
    assert map_tiles(where, [0, 1]) == 2 * list(client.run(os.getpid).values())


def test_persisted_array_is_fitted_and_transformed_where_it_lies(client, rng):
    X, y = rng.random((40, 6)), np.arange(40) % 2
    persisted = da.from_array(X, chunks=(10, 3)).persist()
    for selector in (ANOVA(), SparGE(n_features_to_select=2), LaplacianScore(), MRMR(), ReliefF()):
        expected = type(selector)(**selector.get_params()).fit(X, y)
        np.testing.assert_allclose(selector.fit(persisted, y).scores_, expected.scores_, rtol=1e-9)
        np.testing.assert_array_equal(
            selector.transform(persisted).compute(), expected.transform(X)
        )
    with pytest.raises(ValueError, match="NaN"):
        ANOVA().fit(da.where(persisted > 0.5, np.nan, persisted), y)


def test_task_of_the_user_fits_inside_its_worker(client, rng):
    X, y = rng.random((40, 6)), np.arange(40) % 2
    np.testing.assert_array_equal(
        client.submit(fitted_inside, X, y).result(timeout=60), fitted_serially(X, y)
    )


def fitted_serially(X, y):
    with engine.cluster(workers=0):
        return ANOVA().fit(da.from_array(X, chunks=(10, 5)), y).scores_


def test_cluster_takes_a_client_a_cluster_or_an_address_and_closes_none(local):
    with Client(local, set_as_default=False) as own:
        assert engine.client() is None
        for given in (own, local, local.scheduler_address):
            with engine.cluster(given) as inside:
                assert engine.client() is inside
                assert (inside is own) is (given is own)
                assert map_tiles(where, [0]) == list(own.run(os.getpid).values())
            assert engine.client() is None
            assert own.status == "running"
            assert local.status.name == "running"


def test_asynchronous_client_is_refused_by_cluster_and_not_taken_by_itself(client, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Client, "asynchronous", property(lambda self: True))
        assert engine.client() is None
        with pytest.raises(ValueError, match="synchronous Dask client"), engine.cluster(client):
            raise AssertionError("let in")
    assert engine.client() is client


# --- blocks that lie on workers -------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair():
    """Two workers in threads of this process, with a client that is not the default."""
    with (
        # an idle worker takes a task from a busy one, and this test asks what is preferred
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        threads(set_as_default=False) as own,
    ):
        yield own


def block(S, a, b):
    return S[a:b]


@pytest.fixture
def scattered(pair, rng):
    """A csr Dask array with every other block on the other worker, its futures, and S, y."""
    S, y = sp.random_array((60, 8), density=0.4, format="csr", rng=rng), np.arange(60) % 3
    workers = sorted(describe_workers(pair))
    cuts = range(0, 60, 10)
    futures = [
        pair.submit(block, S, a, a + 10, workers=[workers[i % 2]], pure=False)
        for i, a in enumerate(cuts)
    ]
    for future in futures:
        future.result()
    X = da.concatenate([da.from_delayed(f, (10, 8), meta=S[:0]) for f in futures])
    return X, futures, [workers[i % 2] for i in range(6)], S, y


def worker_of(block, start, stop):
    return get_worker().address


def test_blocks_are_worked_on_where_they_lie(pair, scattered):
    X, futures, homes, S, y = scattered
    with engine.cluster(pair):
        matrix = Matrix.from_dask(X)
        assert matrix.map(worker_of, 0) == homes
        assert matrix[y > 0].map(worker_of, 0) == homes
        selectors = [s.fit(X, y) for s in (ANOVA(), SparGE(n_features_to_select=2))]
        kept = selectors[0].transform(X)
    assert pair.who_has(futures) == {f.key: [home] for f, home in zip(futures, homes, strict=True)}
    for selector in selectors:
        expected = type(selector)(**selector.get_params()).fit(S, y)
        np.testing.assert_allclose(selector.scores_, expected.scores_, rtol=1e-9)
    kept = pair.compute(kept, sync=True)
    np.testing.assert_array_equal(kept.toarray(), selectors[0].transform(S).toarray())


def worker_of_columns(tile, *_):
    return get_worker().address


def test_a_tile_is_worked_on_where_it_is_cached_in_whatever_call(pair, tmp_path):
    rng = np.random.default_rng(0)
    source = tmp_path / "a.npz"
    sp.save_npz(source, sp.random_array((60, 40), density=0.4, format="csr", rng=rng))
    corpus = storage.open(storage.stage(source, tmp_path / "a.zarr", tile_rows=10))
    object.__setattr__(corpus.manifest, "column_bounds", (0, 5, 10, 20, 25, 30, 40))
    X = corpus.X
    with engine.cluster(pair):
        rows, columns = X.map(worker_of, 0), X.map(worker_of, 1)
        assert [rows.count(worker) for worker in sorted(set(rows))] == [3, 3]
        assert X[np.arange(60) % 7 == 0].map(worker_of, 0) == rows
        assert X[35:].map(worker_of, 0) == rows[3:]
        for tiles, homes in ((X.row_tiles, rows), (X.column_tiles, columns)):
            for some in (slice(0, 2), slice(1, None, 2), slice(-1, None)):
                assert map_tiles(worker_of_columns, tiles[some]) == homes[some]


def test_number_of_features_is_chosen_where_the_blocks_lie(
    pair, scattered, allow_memory, monkeypatch
):
    """The models take gathered columns: a task cannot wait for the blocks of others."""
    X, futures, homes, S, y = scattered
    selector, expected = (SelectorCV(ANOVA(), sizes=[1, 4], cv=2) for _ in range(2))
    with engine.cluster(pair):
        scores = selector.cross_val_score(X, y, cv=2)
        selector.fit(X, y)
        predicted = selector.predict(X)
        held = hold_columns(Matrix.from_dask(X), [1, 5])
    np.testing.assert_array_equal(scores, expected.cross_val_score(S, y, cv=2))
    np.testing.assert_array_equal(selector.selected_, expected.fit(S, y).selected_)
    np.testing.assert_array_equal(predicted, expected.predict(S))
    np.testing.assert_array_equal(held.columns([1, 5]).toarray(), S[:, [1, 5]].toarray())
    assert held.nnz == S[:, [1, 5]].nnz
    assert hold_columns(Matrix.from_array(S), [1]).nnz == S.nnz
    lazy = Matrix.from_dask(X)
    allow_memory(PEAK_ENTRY_BYTES * S[:, [1, 5]].nnz - 1)
    with engine.cluster(pair):
        _ = lazy.stats
        monkeypatch.setattr(gathering, "gather_columns", lambda *_: pytest.fail("it gathered"))
        with pytest.raises(engine.MemoryLimitError, match="2 gathered columns of"):
            hold_columns(lazy, [1, 5])
    assert pair.who_has(futures) == {f.key: [home] for f, home in zip(futures, homes, strict=True)}


def test_persisted_blocks_live_as_long_as_their_matrix(pair, rng):
    S = rng.random((30, 4))
    with engine.cluster(pair):
        X = Matrix.from_dask(pair.persist(da.from_array(S, chunks=(10, 2))))[5:]
        gc.collect()
        np.testing.assert_allclose(X @ np.ones(4), S[5:].sum(axis=1))
        homes = X.map(worker_of, 0)
    assert len(homes) == 3


def test_unknown_sizes_and_labels_are_computed_on_the_enclosing_client(pair, scattered):
    X, _, _, S, y = scattered
    unknown = X.map_blocks(half, chunks=((np.nan,) * 6, (8,)), meta=S[:0])
    labels = pair.persist(da.from_array(y[np.arange(60) % 10 < 5], chunks=10))
    with engine.cluster(pair):
        selector = ANOVA().fit(pair.persist(unknown), labels)
        frame = pair.persist(dd.from_pandas(pd.DataFrame(S.toarray()), npartitions=3))
        of_frame = ANOVA().fit(frame, pair.persist(dd.from_pandas(pd.Series(y), npartitions=3)))
    expected = ANOVA().fit(S[np.arange(60) % 10 < 5], y[np.arange(60) % 10 < 5])
    np.testing.assert_allclose(selector.scores_, expected.scores_, rtol=1e-9)
    np.testing.assert_allclose(of_frame.scores_, ANOVA().fit(S, y).scores_, rtol=1e-9)


def half(block):
    return block[:5]


def test_staging_runs_on_the_current_client(client, tmp_path):
    rows = "\n".join(f"{i % 2} 1:{i + 1} 2:{i % 3 + 1}" for i in range(40))
    (tmp_path / "a.svm").write_text(rows)
    before = client.run(tasks_done)
    corpus = storage.open(storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr", tile_rows=10))
    (done,) = client.run(tasks_done).values()
    assert done > sum(before.values())
    assert corpus.X.shape == (40, 2)
    (staged,) = client.run(tasks_done).values()
    selector = ANOVA(n_features_to_select=1).fit(corpus.X[: len(corpus.y)], corpus.y)
    assert sum(client.run(tasks_done).values()) > staged
    assert selector.n_features_in_ == 2
    assert client.status == "running"


def tasks_done(dask_worker):
    return dask_worker.state.executed_count
