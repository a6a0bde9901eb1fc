"""A store is reused only for the same content, and always for it. What was guessed of a source is
kept.
"""

import os
import shutil

import numpy as np
import pytest

from bigfs import storage
from bigfs.storage import fingerprint, sources
from bigfs.storage.errors import SourceError, StoreError
from tests.helpers.listing import names_in
from tests.helpers.stores import TEXTS


def write_like(path, text, model):
    """Another content of the same size and the same dates, as far as a user can set them."""
    path.write_text(text)
    os.utime(path, ns=(model.st_atime_ns, model.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (model.st_size, model.st_mtime_ns)


def test_changed_content_of_equal_size_and_date_is_another_source(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("1 1:0.5\n2 2:1.5\n")
    storage.stage(path, tmp_path / "a.zarr")
    write_like(path, "1 1:0.5\n2 2:9.5\n", path.stat())
    with pytest.raises(StoreError, match="changed since"):
        storage.stage(path, tmp_path / "a.zarr")


def test_files_of_one_name_in_two_folders_are_told_apart(tmp_path):
    for folder in ("o1", "o2"):
        (tmp_path / folder).mkdir()
    (tmp_path / "o1" / "a.svm").write_text("1 1:0.5\n2 2:1.5\n")
    write_like(tmp_path / "o2" / "a.svm", "1 1:0.5\n2 2:9.5\n", (tmp_path / "o1" / "a.svm").stat())
    storage.stage(tmp_path / "o1" / "a.svm", tmp_path / "a.zarr")
    with pytest.raises(StoreError, match="changed since"):
        storage.stage(tmp_path / "o2" / "a.svm", tmp_path / "a.zarr")


def write_corpus(folder, texts):
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_copy_elsewhere_with_other_dates_is_the_same_source(tmp_path):
    folder = write_corpus(tmp_path / "docs", TEXTS)
    uri = storage.stage(folder, tmp_path / "a.zarr", min_df=1)
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(folder, tmp_path / "elsewhere" / "docs", copy_function=shutil.copyfile)
    os.utime(folder / "x-train/cats/a")
    for source in (folder, tmp_path / "elsewhere" / "docs"):
        assert storage.find_store(source, uri, min_df=1) == uri


def test_one_changed_document_of_a_folder_is_noticed(tmp_path):
    folder = write_corpus(tmp_path / "docs", TEXTS)
    uri = storage.stage(folder, tmp_path / "a.zarr", min_df=1)
    path = folder / "x-train/cats/a"
    write_like(path, path.read_text().replace("mat", "rug"), path.stat())
    with pytest.raises(StoreError, match="changed since"):
        storage.stage(folder, uri, min_df=1)


@pytest.mark.parametrize("where", ["first", "last", "middle"])
def test_large_files_are_told_apart_by_their_blocks(tmp_path, change, where):
    change(fingerprint.WHOLE, 1000)
    change(fingerprint.BLOCK, 10)
    path = tmp_path / "a.bin"
    content = bytearray(np.random.default_rng(0).bytes(5000))
    path.write_bytes(content)
    model, before = path.stat(), fingerprint.identity_of([path])
    at = {"first": 0, "last": 4999, "middle": (5000 - 10) * 32 // 65}[where]
    content[at] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(model.st_atime_ns, model.st_mtime_ns))
    assert fingerprint.identity_of([path]) != before
    content[at] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(model.st_atime_ns, model.st_mtime_ns))
    assert fingerprint.identity_of([path]) == before


def test_large_files_count_with_their_folder_and_date(tmp_path, change):
    change(fingerprint.WHOLE, 10)
    for folder in ("o1", "o2"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.bin").write_bytes(bytes(100))
        os.utime(tmp_path / folder / "a.bin", (1, 1))
    first = fingerprint.identity_of([tmp_path / "o1" / "a.bin"])
    assert fingerprint.identity_of([tmp_path / "o2" / "a.bin"]) != first
    os.utime(tmp_path / "o1" / "a.bin", (2, 2))
    assert fingerprint.identity_of([tmp_path / "o1" / "a.bin"]) != first


def test_files_are_hashed_once(tmp_path, monkeypatch):
    (tmp_path / "a.svm").write_text("1 1:0.5\n2 2:1.5\n")
    hashed = []
    monkeypatch.setattr(
        fingerprint,
        "_identity",
        lambda files, hash=fingerprint._identity: hashed.append(files) or hash(files),
    )
    storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr")
    storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr")
    assert len(hashed) == 1


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.svm"
    path.write_text("1 1:0.5\n2 2:1.5\n")

    def read(self, piece, read=sources.svmlight.source.Svmlight.read):
        path.write_text("1 1:0.5\n2 2:9.5\n")
        return read(self, piece)

    monkeypatch.setattr(sources.svmlight.source.Svmlight, "read", read)
    with pytest.raises(SourceError, match=r"a\.svm changed while it was read: repeat the command"):
        storage.stage(path, tmp_path / "a.zarr")
    assert names_in(tmp_path) == ["a.svm"]


# --- what was guessed is kept ---------------------------------------------------------------------


def test_a_file_that_is_appended_counts_its_columns_as_the_first_did(tmp_path):
    (tmp_path / "a.svm").write_text("1 0:1 2:5\n-1 1:2 2:7\n")
    (tmp_path / "b.svm").write_text("1 1:9 2:8\n")  # says nothing of its base
    uri = storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr")
    assert storage.open(uri).manifest.source["decided"] == {"zero_based": True}
    storage.append(tmp_path / "b.svm", uri)
    rows = storage.open(uri).X.rows(np.arange(3)).toarray()
    assert rows.tolist() == [[1, 0, 5], [0, 2, 7], [0, 9, 8]]


def test_a_file_that_is_appended_may_say_otherwise(tmp_path):
    (tmp_path / "a.svm").write_text("1 0:1 2:5\n-1 1:2 2:7\n")
    (tmp_path / "b.svm").write_text("1 1:9 2:8\n")
    uri = storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr")
    storage.append(tmp_path / "b.svm", uri, zero_based=False)
    assert storage.open(uri).X.rows(np.arange(2, 3)).toarray().tolist() == [[9, 8, 0]]


def test_a_source_whose_store_has_grown_has_not_changed(tmp_path):
    (tmp_path / "a.csv").write_text("x,label\n1,a\n2,b\n")
    (tmp_path / "b.csv").write_text("x,label\n3,a\n")
    (tmp_path / "c.csv").write_text("x,label\n4,b\n")
    uri = storage.stage(tmp_path / "a.csv", tmp_path / "a.zarr", columns="x")
    for more in ("b.csv", "c.csv"):
        storage.append(tmp_path / more, uri, columns="x")
        assert storage.stage(tmp_path / "a.csv", uri, columns="x") == uri
    with pytest.raises(StoreError, match="changed since"):
        storage.stage(tmp_path / "c.csv", uri, columns="x")


def test_another_version_of_a_reader_has_another_key(tmp_path, monkeypatch):
    (tmp_path / "a.svm").write_text("1 1:2\n")
    uri = storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr")
    monkeypatch.setattr(sources.svmlight.source.Svmlight, "version", 99)
    with pytest.raises(StoreError, match="changed since or was staged with other settings"):
        storage.stage(tmp_path / "a.svm", uri)


def test_csv_whose_labels_were_read_otherwise_is_staged_anew(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("x,label\n1,a\n2,b\n")
    with monkeypatch.context() as earlier:
        earlier.setattr(sources.tables.tables.CsvFile, "version", 1)
        uri = storage.stage(tmp_path / "a.csv", tmp_path / "a.zarr", columns="x")
    with pytest.raises(StoreError, match="changed since or was staged with other settings"):
        storage.stage(tmp_path / "a.csv", uri, columns="x")
