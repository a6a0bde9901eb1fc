"""Stored graphs against the same graph in memory; what is broken says so."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import SPEC, engine, graph, storage
from bigfs.matrix import Matrix
from bigfs.storage import graphs
from tests.helpers.daily import daily
from tests.helpers.listing import names_in


@pytest.fixture
def corpus(tmp_path):
    return storage.open(
        storage.stage("synthetic:newswire?rows=9000", tmp_path / "news.zarr", tile_rows=1500)
    )


def whole(corpus):
    return sp.csr_array(sp.vstack(corpus.X.map(_itself, 0)))


def _itself(block, start, stop):
    return block


def test_a_stored_graph_equals_the_one_in_memory_and_is_reused(corpus, monkeypatch):
    expected = graph.knn(Matrix.from_array(whole(corpus)), 7)
    stored = graphs.graph(corpus, 7, method="exact")
    found = stored.neighbors()
    np.testing.assert_array_equal(found.index, expected.index)
    np.testing.assert_array_equal(found.distance, expected.distance)
    assert found.info["method"] == "exact"
    assert stored.shape == (9000, 7)
    some = stored.neighbors(4000, 5000)
    np.testing.assert_array_equal(some.index, expected.index[4000:5000])
    monkeypatch.setattr(graphs, "stream_knn", None)  # a second computation would fail
    assert graphs.graph(corpus, 7, method="exact") == stored


def test_other_settings_and_other_rows_are_other_graphs(corpus):
    places = {graphs.graph(corpus, k).uri for k in (3, 4)} | {
        graphs.graph(corpus.part("train"), 3).uri
    }
    assert len(places) == 3
    assert graphs.graph(corpus.part("train"), 3).shape == (5400, 3)


@pytest.mark.process
@pytest.mark.parametrize("method", daily(["exact", "approx"], "exact"))
def test_workers_write_the_same_graph(corpus, tmp_path, method):
    here = graphs.graph(corpus, 5, method=method).neighbors()
    there = storage.open(
        storage.stage("synthetic:newswire?rows=9000", tmp_path / "again.zarr", tile_rows=700)
    )
    with engine.cluster(workers=2, memory_limit="1GB"):
        found = graphs.graph(there, 5, method=method).neighbors()
    np.testing.assert_array_equal(found.index, here.index)
    np.testing.assert_array_equal(found.distance, here.distance)
    assert found.info == here.info


def test_an_approximate_graph_keeps_its_recall(corpus):
    stored = graphs.graph(corpus, 5, method="approx", recall=0.9)
    assert stored.info["recall_asked"] == 0.9
    assert 0.85 < stored.info["recall"] <= 1
    assert graphs.open_graph(stored.uri).info == stored.info


def test_an_exact_graph_has_no_recall_to_choose(corpus):
    with pytest.raises(ValueError, match="recall and candidates are for an approximate graph"):
        graphs.graph(corpus, 3, method="exact", recall=0.9)


def test_a_failed_graph_leaves_nothing(corpus, tmp_path):
    with pytest.raises(ValueError, match="between 1 and 8999"):
        graphs.graph(corpus, 9000)
    assert names_in(tmp_path / "news.graphs") == []


def test_what_is_damaged_or_newer_says_so(corpus, tmp_path):
    stored = graphs.graph(corpus, 3, method="exact")
    with pytest.raises(storage.StoreError, match="does not exist"):
        graphs.open_graph(str(tmp_path / "nothing"))
    root = tmp_path / stored.uri.removeprefix(f"{tmp_path}/")
    chunk = next((root / "distance" / "c").rglob("0"))
    chunk = chunk if chunk.is_file() else chunk / "0"
    kept = chunk.read_bytes()
    chunk.unlink()
    with pytest.raises(storage.CorruptStoreError, match="array distance"):
        stored.neighbors()
    chunk.write_bytes(bytes([kept[0] ^ 255]) + kept[1:])
    with pytest.raises(storage.CorruptStoreError, match="array distance"):
        stored.neighbors()
    manifest = root / "zarr.json"
    manifest.write_text(manifest.read_text().replace('"k":3', '"k":4'))
    with pytest.raises(storage.CorruptStoreError, match="manifest"):
        graphs.open_graph(stored.uri)


def test_a_graph_is_no_corpus_and_a_corpus_no_graph(corpus):
    with pytest.raises(storage.StoreError, match="holds a graph"):
        storage.open(graphs.graph(corpus, 3).uri)
    with pytest.raises(storage.StoreError, match="holds no graph"):
        graphs.open_graph(corpus.uri)


@pytest.fixture
def blobs(tmp_path):
    """Three blobs of 40 samples that share features, far apart, staged in tiles."""
    X = np.random.default_rng(0).normal(size=(120, 5))
    X[:40, 0] += 9
    X[40:80, 1] += 9
    np.savez(tmp_path / "blobs.npz", X=X)
    return storage.open(storage.stage(tmp_path / "blobs.npz", tmp_path / "blobs.zarr"))


def test_a_stored_graph_has_the_bridges_of_one_made_in_a_fit(blobs):
    corpus = blobs
    stored = graphs.graph(corpus, 5, metric="euclidean")
    assert (stored.info["n_components"], stored.info["n_joined"]) == (3, 2)
    found = graphs.open_graph(stored.uri).neighbors()
    matrix = Matrix.from_array(whole(corpus))
    expected = graph.with_bridges(matrix, graph.knn(matrix, 5, metric="euclidean"))
    for array, other in zip(found.bridges, expected.bridges, strict=True):
        np.testing.assert_array_equal(array, other)
    assert stored.neighbors(0, 50).bridges is None
    made, given = (SPEC(metric="euclidean", graph=given).fit(corpus.X) for given in (None, found))
    np.testing.assert_array_equal(given.scores_, made.scores_)
    of_made, of_given = made.result_.stats, given.result_.stats
    assert of_given.pop("passes") < of_made.pop("passes")  # those of the graph are counted too
    assert of_given == of_made


def test_a_graph_without_bridges_says_so(corpus):
    bridges = graphs.graph(corpus, 5).neighbors().bridges
    assert bridges.samples.shape == (len(bridges.distance), 2)
    assert bridges.n_components >= 1
