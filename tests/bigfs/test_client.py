"""A user's own Dask client: found, used, and left as it was."""

import os

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from bigfs import ANOVA, LaplacianScore, SparGE, engine
from bigfs.engine.tasks import map_tiles

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


def test_persisted_array_is_fitted_and_transformed_where_it_lies(client, rng):
    X, y = rng.random((40, 6)), np.arange(40) % 2
    persisted = da.from_array(X, chunks=(10, 3)).persist()
    for selector in (ANOVA(), SparGE(n_features_to_select=2), LaplacianScore()):
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
