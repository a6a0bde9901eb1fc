"""Appending: the store that grew is the store of all samples, and nothing else was rewritten."""

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import f_classif
from zarr.storage import LocalStore

from bigfs import ANOVA, engine, storage
from bigfs.storage import atomic, versions
from bigfs.storage.errors import CorruptStoreError, SourceError, StoreError
from bigfs.storage.format import manifest, writer
from bigfs.storage.format.verified import StoreRef
from bigfs.storage.sources.checks import MAX_SIDE
from bigfs.storage.staging.build import MOST_CLASSES
from tests.helpers.daily import daily
from tests.helpers.listing import names_in
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
    assert names_in(tmp_path) == ["1", "2", "a.zarr", "b.zarr", "both"]


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
    with engine.limit_memory(20_000):  # for a few columns at a time
        in_blocks = ANOVA().fit(corpus.X, y)
    assert corpus.X.passes == 0
    np.testing.assert_array_equal(in_blocks.scores_, found.scores_)
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


def test_an_exchange_that_was_killed_is_finished_by_the_next_command(tmp_path):
    uri = storage.stage(
        write_svmlight(tmp_path / "1", 50, 1, n_classes=2, d=50), tmp_path / "a.zarr"
    )
    work = tmp_path / f".a.zarr.{'0' * 16}.staging"
    atomic.write_marker(work)
    shutil.move(uri, work / "old")  # killed between the two renames
    assert storage.check(uri).problems == []  # whoever opens it first
    assert storage.append(write_svmlight(tmp_path / "2", 9, 2, n_classes=2, d=50), uri) == uri
    assert names_in(tmp_path) == ["1", "2", "a.zarr"]


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


# --- the store that grows is the old or the new one -----------------------------------------------


@pytest.fixture
def store(tmp_path):
    """A store of 50 samples, and a source of 9 more at "2"."""
    write_svmlight(tmp_path / "2", 9, 2, n_classes=2, d=50)
    source = write_svmlight(tmp_path / "1", 50, 1, n_classes=2, d=50)
    return storage.stage(source, tmp_path / "a.zarr")


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()])
@pytest.mark.parametrize("number", [1, 2])
def test_a_rename_that_fails_leaves_the_store_under_its_name(
    store, tmp_path, monkeypatch, error, number
):
    content, renames = storage.open(store).spec["content"], [0]

    def rename(old, new, rename=os.rename):
        if Path(new).name in ("old", "a.zarr"):
            renames[0] += 1
            if renames[0] == number:
                raise error
        rename(old, new)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(type(error)):
        storage.append(tmp_path / "2", store)
    monkeypatch.undo()
    assert storage.open(store).spec["content"] == content
    assert storage.check(store).problems == []
    assert names_in(tmp_path) == ["1", "2", "a.zarr"]
    storage.append(tmp_path / "2", store)
    assert storage.open(store).X.shape[0] == 59


class InPlace(LocalStore):
    """Zarr before 3.1.3: a file that is there is written into."""

    async def set(self, key, value):
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value.to_bytes())


def test_append_never_writes_into_the_files_of_the_store(store, tmp_path, monkeypatch):
    before = {p: p.read_bytes() for p in Path(store).rglob("*") if p.is_file()}
    kept = tmp_path / "kept"
    shutil.copytree(store, kept, copy_function=os.link)
    monkeypatch.setattr(
        "bigfs.storage.format.writer.store_at",
        lambda uri, read_only=False: InPlace(uri, read_only=read_only),
    )
    storage.append(tmp_path / "2", store)
    assert {p: (kept / p.relative_to(store)).read_bytes() for p in before} == before
    assert storage.check(store).problems == []
    assert storage.open(store).X.shape[0] == 59


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.EMLINK])
def test_a_disk_without_hard_links_gets_copies(store, tmp_path, monkeypatch, number):
    def link(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    content = storage.open(store).manifest.content
    with versions.hold(store, content):  # whose files are kept for the block
        storage.append(tmp_path / "2", store)
        assert StoreRef(store, content).read("X/indptr").shape == (51,)
    assert storage.check(store).problems == []
    assert storage.open(store).X.shape[0] == 59
    assert names_in(tmp_path) == ["1", "2", "a.zarr"]


def test_the_source_that_a_store_was_staged_from_is_not_appended_to_it(store, tmp_path, bigfs):
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "1", tmp_path / "copy" / "1")
    for name in ("1", "copy/1"):
        status, out, _ = bigfs("append", name, store, "--workers", 0)
        assert status == 0
        assert f"already holds the samples of {name}" in out
    assert storage.open(store).X.shape[0] == 50


def test_what_a_worker_left_that_died_is_not_published(tmp_path, monkeypatch):
    """Dask does its task again, and Zarr's unfinished file stays."""

    def fill(target, path, start, values, write_chunks=writer.write_chunks):
        if path != manifest.CHECKSUMS:  # the driver writes these
            (Path(target.uri) / path / "c").mkdir(exist_ok=True)
            (Path(target.uri) / path / "c" / f"{start}.0123abcd.partial").write_bytes(b"half")
        return write_chunks(target, path, start, values)

    monkeypatch.setattr(writer, "write_chunks", fill)
    source = write_svmlight(tmp_path / "1", 50, 1, n_classes=2, d=50)
    uri = storage.stage(source, tmp_path / "a.zarr")
    assert list(Path(uri).rglob("*.partial")) == []
    assert storage.check(uri).problems == []


def test_what_a_worker_of_version_0_1_left_is_not_in_the_way(store, tmp_path):
    (Path(store) / "X" / "data" / "c" / "0.0123abcd.partial").write_bytes(b"half")
    storage.append(tmp_path / "2", store)
    assert list(Path(store).rglob("*.partial")) == []
    assert storage.check(store).problems == []
    (Path(store) / "X" / "data" / "c" / "mine.partial").write_bytes(b"mine")
    with pytest.raises(StoreError, match=r"holds X/data/c/mine\.partial, which"):
        storage.append(write_svmlight(tmp_path / "3", 9, 3, n_classes=2, d=50), store)


def test_a_store_behind_a_symbolic_link_grows_where_it_lies(store, tmp_path):
    (tmp_path / "disk").mkdir()
    shutil.move(store, tmp_path / "disk" / "b.zarr")
    (tmp_path / "a.zarr").symlink_to(tmp_path / "disk" / "b.zarr")
    storage.append(tmp_path / "2", store)
    assert (tmp_path / "a.zarr").is_symlink()
    assert names_in(tmp_path / "disk") == ["b.zarr"]
    assert storage.open(store).X.shape[0] == 59


def test_a_store_whose_list_of_checksums_is_damaged_is_not_reused(store, tmp_path):
    (Path(store) / "uns" / "checksums" / "c" / "0").write_bytes(b"")  # as after a loss of power
    manifest.checksums_of.cache_clear()
    for use in (storage.stage, storage.find_store):
        with pytest.raises(CorruptStoreError, match="array uns/checksums is damaged"):
            use(tmp_path / "1", store)


@pytest.mark.parametrize("how", daily(["missing", "empty", "cut short", "one byte"], "one byte"))
@pytest.mark.parametrize("array", ["X/data", "uns/columns/0/indices", "obs/label/codes"])
def test_a_store_with_a_damaged_file_is_not_reused(store, tmp_path, array, how):
    file = Path(store, array, "c/0")
    raw = file.read_bytes()
    file.write_bytes({"empty": b"", "cut short": raw[:-1]}.get(how, bytes([raw[0] ^ 1]) + raw[1:]))
    if how == "missing":
        file.unlink()
    fault = "missing" if how == "missing" else "damaged"
    for use, source in ((storage.stage, "1"), (storage.find_store, "1"), (storage.append, "2")):
        with pytest.raises(
            CorruptStoreError, match=f"chunk 0 of array {array} is {fault}: restore it or re"
        ):
            use(tmp_path / source, store)
    file.write_bytes(raw)
    assert storage.stage(tmp_path / "1", store) == store
    shutil.rmtree(store)
    assert storage.stage(tmp_path / "1", store) == store


def test_json_lines_without_a_label_fit_a_store_without_labels(tmp_path):
    uri = storage.stage(np.eye(3), tmp_path / "b.zarr", names=["a", "b", "c"])
    rows = tmp_path / "b.jsonl"
    rows.write_text('{"features": {"a": 2}}\n{"features": {"c": 3}}\n')
    storage.append(rows, uri)
    about = storage.info(uri)
    assert (about["samples"], about["target"], about["unlabeled"]) == (5, None, 5)
    rows.write_text('{"features": {"a": 2}, "label": "x"}\n')
    with pytest.raises(SourceError, match="has class labels and the store has none"):
        storage.append(rows, uri)


def test_statistics_of_many_classes_are_not_stored_and_the_scores_stay(tmp_path, change):
    source = write_svmlight(tmp_path / "1", 500, 1, n_classes=3, d=50)
    few = storage.open(storage.stage(source, tmp_path / "few.zarr"))
    change(MOST_CLASSES, 2)
    many = storage.open(storage.stage(source, tmp_path / "many.zarr"))
    assert many.X.class_stats(many.y) is None
    assert not (tmp_path / "many.zarr/uns/statistics/0/classes").exists()
    found = [ANOVA().fit(corpus.X, corpus.y).scores_ for corpus in (few, many)]
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_more_samples_than_int32_numbers_are_refused(store, tmp_path, change):
    change(MAX_SIDE, 55)
    content = storage.open(store).spec["content"]
    with pytest.raises(SourceError, match="has 59 samples: a store holds up to 55"):
        storage.append(tmp_path / "2", store)
    assert storage.open(store).spec["content"] == content
    (tmp_path / "all").write_text((tmp_path / "1").read_text() + (tmp_path / "2").read_text())
    with pytest.raises(SourceError, match="has 59 samples: a store holds up to 55"):
        storage.stage(tmp_path / "all", tmp_path / "all.zarr")
