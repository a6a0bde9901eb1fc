"""What version 1 of each format holds must open for ever, with the same numbers."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from bigfs import graph, storage
from bigfs.storage.runs.runs import Run, results_of
from tests.helpers.formats import ROLES, unpack_formats
from tests.helpers.stores import LATER, TEXTS


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("formats")
    unpack_formats(folder)
    return folder


def tfidf():
    """Rows in the store's order: training, test, appended."""
    vectorizer = TfidfVectorizer(sublinear_tf=True).fit(
        [text for name, text in TEXTS.items() if "train" in name]
    )
    return vectorizer, vectorizer.transform([*TEXTS.values(), *LATER.values()]).toarray()


def test_a_store_of_text_opens(kept):
    corpus = storage.open(kept / "text.zarr")
    vectorizer, expected = tfidf()
    assert list(corpus.feature_names[:]) == list(vectorizer.get_feature_names_out())
    rows = sp.vstack([tile.load() for tile in corpus.X.row_tiles]).toarray()
    columns = sp.hstack([tile.load() for tile in corpus.X.column_tiles]).toarray()
    np.testing.assert_allclose(rows, expected, rtol=2e-7)  # one float32 rounding
    np.testing.assert_array_equal(columns, rows)
    np.testing.assert_allclose(corpus.X.stats.sums_of_squares, (expected**2).sum(axis=0), rtol=1e-6)
    classes = ["cats", "cats", "dogs", "cats", "dogs", "dogs", "mice"]
    assert [corpus.class_names[c] for c in corpus.y] == classes
    assert list(corpus.split) == ["train"] * 3 + ["test"] * 4
    assert list(corpus.sample_names) == [*TEXTS, *LATER]
    assert corpus.part("test").X.shape == (4, expected.shape[1])
    assert storage.check(kept / "text.zarr").problems == []


def test_a_store_with_groups_batches_weights_and_times_opens(kept):
    corpus = storage.open(kept / "samples.zarr")
    assert corpus.roles == ROLES
    assert [corpus.categories("group")[code] for code in corpus.groups] == ["d2", "d1", "d2"]
    assert [corpus.categories("batch")[code] for code in corpus.batches] == ["1", "2", "1"]
    assert corpus.sample_weight.tolist() == [0.5, 1.0, 0.0]
    days = ["2024-03-01T00:00", "2024-02-01T00:00", "2024-03-01T12:30"]
    np.testing.assert_array_equal(corpus.times, np.array(days, dtype="datetime64[us]"))
    assert storage.check(kept / "samples.zarr").problems == []


def test_a_graph_opens(kept):
    (uri,) = (kept / "text.graphs").glob("*.zarr")
    found = storage.open_graph(str(uri)).neighbors()
    expected = graph.knn(storage.open(kept / "text.zarr").X, 2)
    np.testing.assert_array_equal(found.index, expected.index)
    np.testing.assert_array_equal(found.distance, expected.distance)
    assert found.bridges.samples.shape == (found.info["n_joined"], 2)


def test_a_run_and_its_model_open(kept):
    run, vectorizer = Run.open(kept / "run"), tfidf()[0]
    assert results_of(kept / "run") == [run.path]
    assert run.store == str(kept / "text.zarr")
    names = [row["name"] for row in run.read_table("selected.csv")]
    assert names == vectorizer.get_feature_names_out()[run.selected].tolist()
    np.testing.assert_array_equal(run.scores[run.selected], np.sort(run.scores)[::-1][:4])
    assert run.read_table("curves.csv")
    model = run.model()
    assert sorted(model.names) == sorted(names)
    assert model.predict(["a cat sat", "dogs chase dogs"]).tolist() == ["cats", "dogs"]
    assert model.to_sklearn().predict(["dogs chase dogs"]).tolist() == ["dogs"]
