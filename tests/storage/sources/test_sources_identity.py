"""A store is reused only for the same content, and always for it; stores of earlier versions are
found by their own rule.
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from bigfs.storage import fingerprint, sources
from bigfs.storage.errors import SourceError, StoreError
from bigfs.storage.format import manifest

from bigfs import storage
from tests.helpers.listing import names_in
from tests.helpers.stores import LATER, STORES, TEXTS


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
        assert storage.staged(source, uri, min_df=1) == uri


def test_one_changed_document_of_a_folder_is_noticed(tmp_path):
    folder = write_corpus(tmp_path / "docs", TEXTS)
    uri = storage.stage(folder, tmp_path / "a.zarr", min_df=1)
    path = folder / "x-train/cats/a"
    write_like(path, path.read_text().replace("mat", "rug"), path.stat())
    with pytest.raises(StoreError, match="changed since"):
        storage.stage(folder, uri, min_df=1)


@pytest.mark.parametrize("where", ["first", "last", "middle"])
def test_large_files_are_told_apart_by_their_blocks(tmp_path, monkeypatch, where):
    monkeypatch.setattr(fingerprint, "WHOLE", 1000)
    monkeypatch.setattr(fingerprint, "BLOCK", 10)
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


def test_large_files_count_with_their_folder_and_date(tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprint, "WHOLE", 10)
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


# --- stores of earlier versions -------------------------------------------------------------------


def as_by_rule_1(uri, source, settings, **appended):
    """Make a store look as the first version wrote it: its key by rule 1, and no word of a rule."""
    path = Path(uri) / manifest.MANIFEST
    document = json.loads(path.read_text())
    told = document["attributes"]["bigfs"]
    del told["checksum"]
    with fingerprint.first_rule():
        found = sources.find(source)
        told["manifest"]["key"] = storage.staging.stage.key_of(found, found.fingerprint(), settings)
        told["manifest"]["source"] |= {"fingerprint": found.fingerprint()} | appended
    del told["manifest"]["source"]["identity"]
    told["checksum"] = manifest.digest(manifest.canonical(document))
    path.write_bytes(manifest.canonical(document))


def test_a_store_of_an_earlier_version_is_reused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scipy.io.savemat("a.mat", {"X": np.eye(4), "Y": np.arange(4)[:, None] % 2})
    uri = storage.stage("a.mat")
    as_by_rule_1(uri, "a.mat", {"tile_rows": None})
    with fingerprint.first_rule():
        old = storage.staging.stage.default_store(
            sources.find("a.mat"), storage.staging.stage.make_plan("a.mat", None).key
        )
    shutil.move(uri, old)
    assert Path(storage.stage("a.mat")).samefile(old)
    assert storage.stage("a.mat", old) == str(old.absolute())
    os.utime("a.mat")  # by its own rule it has changed
    with pytest.raises(StoreError, match="changed since"):
        storage.stage("a.mat", old)


def test_what_an_earlier_version_appended_is_not_appended_again(tmp_path):
    shutil.copytree(STORES / "text-v1.zarr", tmp_path / "a.zarr")
    later = write_corpus(tmp_path / "later", LATER)
    with fingerprint.first_rule():
        name = sources.find(later).fingerprint()
    path = tmp_path / "a.zarr" / manifest.MANIFEST
    document = json.loads(path.read_text())
    told = document["attributes"]["bigfs"]
    del told["checksum"]
    told["manifest"]["source"]["appended"] = [name]
    told["checksum"] = manifest.digest(manifest.canonical(document))
    path.write_bytes(manifest.canonical(document))
    storage.append(later, tmp_path / "a.zarr", split="test")
    assert storage.open(tmp_path / "a.zarr").X.shape[0] == 7


# content, then its fingerprints without and with an option, as earlier commits gave them
PUBLISHED = {
    "a.jsonl": (
        '{"text": "one word", "label": "x"}\n',
        ("edcb5e559d249863f8cef36c", "18f6bb5dfa9b69c0e7bb5b24"),
    ),
    "f.jsonl": (
        '{"features": {"1": 2}, "label": "x"}\n',
        ("9a0b91c06e5feea8ccd79aaa", "0f7bb66b1d97cc15bec05d2f"),
    ),
    "a.csv": (
        "text,label\none word,x\n",
        ("3fff53b7f446bfb7fa7d551f", "ddce4076e6e3501464a01bfb"),
    ),
    "a.svm": ("1 1:2\n", ("669590bb22694c4969a35c1e", "f686977365ca4de1700260ad")),
    "a.mtx": (
        "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\n",
        ("86a628cc0e6ecf9f8b43e0c1", "e26709a06ca0eb38bbda60e6"),
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_name_changed_in_the_program_changes_no_fingerprint(name, tmp_path, monkeypatch):
    """Stores are found by the fingerprint of their source, so it has to stay as it is."""
    monkeypatch.chdir(tmp_path)
    text, expected = PUBLISHED[name]
    Path(name).write_text(text)
    found = sources.find(name).fingerprint(), sources.find(name, unlabeled="0").fingerprint()
    assert found == expected
