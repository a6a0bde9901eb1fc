"""Appending: the store that grew is the store of all samples, and nothing else was rewritten."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import f_classif

import storage
from bigfs import ANOVA
from storage import ownership
from storage.errors import SourceError, StoreError
from tests.helpers.stores import dense_tiles, write_svmlight


def test_a_store_that_grew_is_the_store_of_everything(tmp_path):
    first, second = (
        write_svmlight(tmp_path / "1", 500, 1, n_classes=2, d=50),
        write_svmlight(tmp_path / "2", 300, 2, n_classes=3, d=50),
    )
    (tmp_path / "both").write_text(first.read_text() + second.read_text())
    uri = storage.stage(first, tmp_path / "a.zarr", tile_rows=60, n_features=50)
    before = {p: p.stat().st_ino for p in Path(uri).rglob("*") if p.is_file()}
    assert storage.append(second, uri) == uri
    grown, whole = (
        storage.open(uri),
        storage.open(
            storage.stage(tmp_path / "both", tmp_path / "b.zarr", tile_rows=60, n_features=50)
        ),
    )
    for tiles, axis in (("row_tiles", 0), ("column_tiles", 1)):
        np.testing.assert_array_equal(
            *(dense_tiles(getattr(corpus.X, tiles), axis) for corpus in (grown, whole))
        )
    # added in two parts
    np.testing.assert_allclose(grown.X.stats.sums, whole.X.stats.sums, rtol=1e-12)
    np.testing.assert_array_equal(grown.X.stats.nnz, whole.X.stats.nnz)
    np.testing.assert_array_equal(grown.y, whole.y)
    assert grown.class_names == ["0", "1", "2"]
    assert storage.check(uri).problems == []
    kept = [p for p, inode in before.items() if p.exists() and p.stat().st_ino == inode]
    assert {str(p.relative_to(uri)) for p in kept} >= {
        "X/data/c/0",
        "uns/columns/0/data/c/0",
        "uns/columns/0/indptr/c/0",
    }
    assert storage.append(second, uri) == uri  # it is there already
    assert storage.open(uri).X.shape == (800, 50)
    assert sorted(os.listdir(tmp_path)) == ["1", "2", "a.zarr", "b.zarr", "both"]


def test_statistics_by_class_are_stored_and_save_a_pass(tmp_path):
    uri = storage.stage(
        write_svmlight(tmp_path / "1", 500, 1, n_classes=2, d=50),
        tmp_path / "a.zarr",
        tile_rows=60,
        n_features=50,
    )
    storage.append(write_svmlight(tmp_path / "2", 300, 2, n_classes=3, d=50), uri)  # a class more
    corpus = storage.open(uri)
    X, y = dense_tiles(corpus.X.row_tiles, 0).astype(np.float64), corpus.y
    stored = corpus.X.class_stats(y)
    for c in range(3):
        np.testing.assert_allclose(stored.sums[:, c], X[y == c].sum(axis=0), rtol=1e-12)
        np.testing.assert_allclose(
            stored.sums_of_squares[:, c], (X[y == c] ** 2).sum(axis=0), rtol=1e-12
        )
        np.testing.assert_array_equal(stored.nnz[:, c], (X[y == c] != 0).sum(axis=0))
    found = ANOVA().fit(corpus.X, y)
    assert (corpus.X.passes, found.result_.stats["passes"]) == (0, 0)
    np.testing.assert_allclose(found.scores_, f_classif(X, y)[0], rtol=1e-8)
    # of other labels than its own the store knows nothing
    half = np.where(np.arange(800) % 2, y, -1)
    assert corpus.X.class_stats(half) is None
    np.testing.assert_allclose(
        ANOVA().fit(corpus.X, half).scores_, f_classif(X[half >= 0], half[half >= 0])[0], rtol=1e-5
    )
    assert corpus.X.passes == 1


def test_text_joins_in_the_stores_vocabulary(tmp_path):
    texts = {
        "train": ["a cat sat", "a cat ran", "dogs ran far", "dogs sat"],
        "test": ["a cat", "dogs ran"],
        "new": ["cat cat dogs zebra", "far"],
    }
    for half, documents in texts.items():
        for i, text in enumerate(documents):
            place = tmp_path / ("later" if half == "new" else f"first/x-{half}") / f"c{i % 2}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{i}").write_text(text)
    uri = storage.stage(tmp_path / "first", tmp_path / "a.zarr", min_df=2)
    storage.append(tmp_path / "later", uri, split="test")
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2).fit(
        [texts["train"][i] for i in (0, 2, 1, 3)]
    )
    grown = storage.open(uri).part("test")
    expected = sp.vstack(
        [vectorizer.transform(texts["test"]), vectorizer.transform(texts["new"])]
    ).toarray()
    np.testing.assert_allclose(dense_tiles(grown.X.row_tiles, 0), expected, rtol=2e-7)
    np.testing.assert_allclose(dense_tiles(grown.X.column_tiles, 1), expected, rtol=2e-7)
    assert list(grown.sample_names) == ["x-test/c0/0", "x-test/c1/1", "c0/0", "c1/1"]
    assert storage.open(uri).part("train").X.shape[0] == 4


def test_what_does_not_fit_is_refused_and_changes_nothing(tmp_path):
    uri = storage.stage(
        write_svmlight(tmp_path / "1", 50, 1, n_classes=2, d=50), tmp_path / "a.zarr"
    )
    content = storage.open(uri).spec["content"]
    (tmp_path / "wide").write_text("1 99:1\n")
    (tmp_path / "real").write_text("1.5 2:1\n0 1:1\n")
    for source, message in (
        ("wide", "has 99 columns and the store has 50"),
        ("real", "real labels and the store has class"),
    ):
        with pytest.raises(SourceError, match=message):
            storage.append(tmp_path / source, uri, format="svmlight")
    assert storage.open(uri).spec["content"] == content
    with pytest.raises(StoreError, match="local disk"):
        storage.append(tmp_path / "wide", "memory://a.zarr")


def test_an_exchange_that_was_killed_is_finished_by_the_next_run(tmp_path):
    uri = storage.stage(
        write_svmlight(tmp_path / "1", 50, 1, n_classes=2, d=50), tmp_path / "a.zarr"
    )
    ownership.claim(tmp_path / ".a.zarr.staging")
    shutil.move(uri, tmp_path / ".a.zarr.staging" / "old")  # killed between the two renames
    assert storage.stage(tmp_path / "1", uri) == uri
    assert storage.check(uri).problems == []
    assert sorted(os.listdir(tmp_path)) == ["1", "a.zarr"]


def test_append_refuses_a_store_with_files_that_are_not_its_own(tmp_path):
    uri = storage.stage(
        write_svmlight(tmp_path / "1", 50, 1, n_classes=2, d=50), tmp_path / "a.zarr"
    )
    (Path(uri) / "obs" / "notes.txt").write_text("mine")
    with pytest.raises(
        StoreError, match=r"a\.zarr holds obs/notes\.txt, which " r"bigfs did not write"
    ):
        storage.append(write_svmlight(tmp_path / "2", 9, 2, n_classes=2, d=50), uri)
    assert (Path(uri) / "obs" / "notes.txt").read_text() == "mine"
    (Path(uri) / "obs" / "notes.txt").unlink()
    storage.append(tmp_path / "2", uri)
    assert storage.open(uri).X.shape[0] == 59
