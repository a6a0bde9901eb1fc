"""The names of a store's features in the hands of a selector."""

import pickle

import numpy as np
import pandas as pd
import pytest

from bigfs import ANOVA, storage
from bigfs.storage.format.tiles import FeatureNames
from bigfs.storage.format.verified import StoreRef


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A store of two classes of documents with terms of their own."""
    folder = tmp_path_factory.mktemp("names")
    texts = {"cats": "cat meow w{} x{}", "dogs": "dog bark w{} y{}"}
    for name, text in texts.items():
        (folder / "docs" / name).mkdir(parents=True)
        for i in range(6):
            (folder / "docs" / name / str(i)).write_text(text.format(i % 3, i % 2))
    return storage.open(storage.stage(folder / "docs", folder / "docs.zarr", min_df=1, tile_rows=4))


def test_terms_of_a_store_are_the_names_and_only_the_chosen_are_read(corpus, monkeypatch):
    read = []
    whole = FeatureNames.__getitem__
    monkeypatch.setattr(
        FeatureNames, "__getitem__", lambda self, index: read.append(index) or whole(self, index)
    )
    selector = ANOVA(n_features_to_select=4).fit(corpus.X, corpus.y)
    assert read == []
    assert set(selector.get_feature_names_out()) == {"cat", "meow", "dog", "bark"}
    assert [len(index) for index in read] == [4]
    part = ANOVA(n_features_to_select=4).fit(corpus.X[: len(corpus.y)], corpus.y)
    assert list(part.get_feature_names_out()) == list(selector.get_feature_names_out())
    copy = pickle.loads(pickle.dumps(selector))  # noqa: S301, of this test
    assert list(copy.get_feature_names_out()) == list(selector.get_feature_names_out())


def test_pandas_gets_the_terms_as_columns(corpus):
    selector = ANOVA(n_features_to_select=4).set_output(transform="pandas")
    frame = selector.fit(corpus.X, corpus.y).transform(corpus.X)
    assert sorted(frame.columns) == ["bark", "cat", "dog", "meow"]
    assert all(isinstance(dtype, pd.SparseDtype) for dtype in frame.dtypes)
    whole = corpus.X.rows(slice(None)).toarray()
    names = list(corpus.feature_names[:])
    for term in frame.columns:
        np.testing.assert_array_equal(frame[term], whole[:, names.index(term)])


def test_columns_of_a_source_without_names_are_numbered_as_scikit_learn_does(tmp_path):
    rows = [f"{i % 2} 1:{i + 1} 3:{1 + 5 * (i % 2)}" for i in range(8)]
    (tmp_path / "a.svm").write_text("\n".join(rows) + "\n")
    plain = storage.open(storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr"))
    assert plain.X.feature_names is None
    selector = ANOVA(n_features_to_select=1).fit(plain.X, plain.y)
    assert list(selector.get_feature_names_out()) == ["x2"]


def test_lazy_rows_of_a_store_are_its_rows(corpus):
    lazy = corpus.X.to_dask()
    assert lazy.dtype == np.float32
    assert lazy.numblocks == (len(corpus.X.row_tiles), 1)
    np.testing.assert_array_equal(
        lazy.compute(scheduler="sync").toarray(), corpus.X.rows(slice(None)).toarray()
    )


def test_names_of_samples_are_read_as_they_are_asked_for(tmp_path, monkeypatch):
    """`tests/storage/format/test_store_versions.py` compares the names themselves."""
    for half in ("x-train", "x-test"):
        for i in range(5):
            (tmp_path / "docs" / half / "cats").mkdir(parents=True, exist_ok=True)
            (tmp_path / "docs" / half / "cats" / f"n{i}").write_text(f"cat w{i % 2}")
    corpus = storage.open(storage.stage(tmp_path / "docs", tmp_path / "docs.zarr", min_df=1))
    expected = [f"{half}/cats/n{i}" for half in ("x-train", "x-test") for i in range(5)]
    read, whole = [], StoreRef.read
    monkeypatch.setattr(
        StoreRef, "read", lambda self, path, *cut: read.append(path) or whole(self, path, *cut)
    )
    names = corpus.sample_names
    assert (len(names), read) == (10, [])
    assert (names[-1], names[np.array([7, 0])].tolist()) == (
        expected[-1],
        [expected[7], expected[0]],
    )
    assert set(read) == {"obs/_index"}
    assert names.tolist() == list(names) == expected
    assert corpus.part("test").sample_names[1:3].tolist() == expected[6:8]
    np.testing.assert_array_equal(np.asarray(corpus.part("test").sample_names), expected[5:])
    with pytest.raises(IndexError, match="sample 10 is out of range"):
        names[10]
    copy = pickle.loads(pickle.dumps(names))  # noqa: S301, of this test
    assert copy.tolist() == expected


def test_numbers_of_samples_without_names_need_no_reading(tmp_path, monkeypatch):
    (tmp_path / "a.svm").write_text("".join(f"{i % 2} 1:{i + 1}\n" for i in range(6)))
    corpus = storage.open(storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr"))
    stored = corpus.store.read("obs/_index").tolist()
    monkeypatch.setattr(StoreRef, "read", None)
    assert corpus.sample_names.tolist() == stored == [str(i) for i in range(6)]
