"""A store that is staged again has the present layout, and all that the old one holds."""

import json
import shutil

import numpy as np
import pytest
from bigfs.storage.errors import StoreError
from bigfs.storage.format import manifest, shards, writer
from bigfs.storage.runs.runs import Run

from bigfs import storage
from tests.helpers.daily import daily
from tests.helpers.stores import STORES, dense_tiles, write_named

WORDS = [f"w{i:03d}" for i in range(400)]
ROLES = {"group": "donor", "batch": "lane", "sample_weight": "w", "time": "day"}


def write_texts(path, rows, seed, *, new=False):
    """Write documents of forty words, with labels, names, splits and columns with roles."""
    rng = np.random.default_rng(seed)
    words = np.array([*WORDS, "zebra", "yak"] if new else WORDS)
    with path.open("w") as file:
        for i in range(rows):
            label = int(rng.integers(3))
            chosen = rng.choice(words, 40)
            about = {"donor": f"d{i % 4}", "lane": i % 2, "w": 0.5 + i % 3}
            about |= {"day": f"2024-03-0{i % 9 + 1}"}
            record = {"text": " ".join([*chosen, f"w{label:03d}"]), "label": f"c{label}"}
            record |= {"id": f"{seed}-{i}", "split": "test" if i % 5 == 1 else "train"}
            file.write(json.dumps(record | about) + "\n")
    return str(path)


def texts(folder, **settings):
    options = "&".join(f"{role}={name}" for role, name in ROLES.items())
    first = write_texts(folder / "first.jsonl", 600, 1)
    later = write_texts(folder / "later.jsonl", 40, 2, new=True)
    return f"{first}?{options}", f"{later}?{options}", settings | {"tile_rows": 60}


def rows_by_names(folder, **settings):
    rng = np.random.default_rng(3)

    def some(names, n):
        return [dict.fromkeys(rng.choice(names, 30, False).tolist(), 1.0 + i % 7) for i in range(n)]

    first = write_named(folder / "first.jsonl", some(WORDS, 500), "maps")
    later = write_named(folder / "later.jsonl", some([*WORDS, "zebra"], 40), "maps", 500)
    return first, later, settings | {"tile_rows": 60}


CASES = {
    "vocabulary": lambda folder: texts(folder, ngram_range=(1, 2), min_df=3),
    "hashed text": lambda folder: texts(folder, hashing=300),
    "names": rows_by_names,
    "hashed names": lambda folder: rows_by_names(folder, hashing=300),
    "weighed": lambda folder: rows_by_names(folder, weight="lognorm"),
    "scaled": lambda folder: rows_by_names(folder, scale="standard"),
}


@pytest.fixture
def earlier(monkeypatch):
    """Within it, stores have smaller chunks, another codec and no shards, as those of before."""
    monkeypatch.setattr(shards, "FILES", 2)
    monkeypatch.setattr(shards, "MOST_CHUNKS", 4)

    def context():
        patch = pytest.MonkeyPatch()
        patch.setattr(shards, "MOST_CHUNKS", 1)
        patch.setattr(manifest, "CHUNK", 1 << 10)
        patch.setattr(writer, "CODEC", {})
        return patch

    return context


def assert_same(one, other):
    """Compare all that two stores hold, whatever their layouts."""
    for corpus in (one, other):
        assert storage.check(corpus.uri).problems == []
    for tiles, axis in (("row_tiles", 0), ("column_tiles", 1)):
        values = [dense_tiles(getattr(c.X, tiles), axis) for c in (one, other)]
        np.testing.assert_array_equal(*values)
    for name in ("y", "split", "groups", "batches", "sample_weight", "times"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("sums", "sums_of_squares", "nnz"):
        np.testing.assert_array_equal(getattr(one.X.stats, name), getattr(other.X.stats, name))
    by_class = [c.X.class_stats(c.y) for c in (one, other)]
    assert (by_class[0] is None) == (by_class[1] is None)
    if by_class[0] is not None:
        for a, b in zip(*by_class, strict=True):
            np.testing.assert_array_equal(a, b)
    assert list(one.sample_names) == list(other.sample_names)
    assert list(one.feature_names) == list(other.feature_names)
    for column in ("idf", "target_sum", "scale"):
        if f"var/{column}/zarr.json" in documents_of(one):
            path = f"var/{column}"
            np.testing.assert_array_equal(one.store.read(path), other.store.read(path))
    kept = set(one.spec) - {"content", "version"}
    assert {k: one.spec[k] for k in kept} == {k: other.spec[k] for k in kept}


def documents_of(corpus):
    return manifest.checksums_of(corpus.uri, corpus.manifest.content).documents


@pytest.mark.slow
@pytest.mark.parametrize("case", daily(CASES, "vocabulary"))
def test_the_new_store_is_that_of_its_source_and_grows_as_the_old_one(tmp_path, earlier, case):
    first, later, settings = CASES[case](tmp_path)
    patch = earlier()
    old = storage.stage(first, tmp_path / "old.zarr", **settings)
    patch.undo()
    assert not manifest.checksums_of(old, storage.open(old).manifest.content).shards
    present = storage.stage(first, tmp_path / "present.zarr", **settings)
    new = storage.stage(old, tmp_path / "new.zarr")
    assert_same(storage.open(old), storage.open(new))
    assert "X/data" in manifest.checksums_of(new, storage.open(new).manifest.content).shards
    # to the byte: all documents have the checksums that they have in a store of the source
    assert storage.open(new).manifest.content == storage.open(present).manifest.content
    assert storage.staged(old, new) == storage.staged(first, new, **settings) == new
    for uri in (old, new, present):
        storage.append(later, uri)
    assert_same(storage.open(old), storage.open(new))
    assert storage.open(new).manifest.content == storage.open(present).manifest.content
    # a store that grew is converted as well
    again = storage.stage(old, tmp_path / "again.zarr")
    assert_same(storage.open(old), storage.open(again))
    storage.append(later, again)  # it is there already
    assert storage.open(again).X.shape == storage.open(old).X.shape
    with pytest.raises(storage.SourceError, match=r"is what .*again.zarr was staged from"):
        storage.append(first, again)


@pytest.mark.parametrize("name", ["text-v1.zarr", "samples-v3.zarr"])
def test_stores_of_earlier_versions_are_converted(tmp_path, name):
    old = shutil.copytree(STORES / name, tmp_path / name)
    new = storage.stage(old, tmp_path / "new.zarr")
    assert_same(storage.open(old), storage.open(new))
    assert storage.staged(old, new) == new
    if name == "text-v1.zarr":
        for i, text in enumerate(("a kitten and a zebra", "the mat")):
            path = tmp_path / f"more/mice/{i}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for uri in (old, new):
            storage.append(tmp_path / "more", uri)
        assert_same(storage.open(old), storage.open(new))
        with pytest.raises(StoreError, match="was staged with other settings"):
            storage.staged(STORES / name, new)  # which has grown since


@pytest.mark.slow
def test_the_command_converts_and_predictions_stay(tmp_path, bigfs, earlier):
    first, later, settings = texts(tmp_path)
    patch = earlier()
    storage.stage(first, tmp_path / "old.zarr", **settings)
    patch.undo()
    status, out, err = bigfs("stage", "old.zarr", "new.zarr", "--workers", "0")
    assert status == 0, err
    assert "staged" in out
    assert "reused" in bigfs("stage", "old.zarr", "new.zarr", "--workers", "0")[1]
    answers = []
    for store in ("old", "new"):
        options = ("--method", "anova", "--features", "9", "--out", store, "--workers", "0")
        status, _, err = bigfs("run", f"{store}.zarr", *options)
        assert status == 0, err
        status, _, err = bigfs("predict", store, later, f"{store}.csv")
        assert status == 0, err
        answers.append((tmp_path / f"{store}.csv").read_text())
    assert answers[0] == answers[1]
    runs = [Run.open(tmp_path / store) for store in ("old", "new")]
    np.testing.assert_array_equal(runs[0].scores, runs[1].scores)
    # with options it is read as a matrix, as any AnnData is
    status, _, err = bigfs("stage", "old.zarr?group=group", "matrix.zarr", "--workers", "0")
    assert status == 0, err
    assert storage.open(tmp_path / "matrix.zarr").spec["source"]["format"] == "anndata"


def test_a_damaged_store_is_not_converted(tmp_path, earlier):
    first, _, settings = texts(tmp_path)
    old = storage.stage(first, tmp_path / "old.zarr", **settings)
    chunk = tmp_path / "old.zarr/uns/columns/0/data/c/0"
    raw = bytearray(chunk.read_bytes())
    raw[20] ^= 1
    chunk.write_bytes(raw)
    with pytest.raises(storage.Damaged, match="array uns/columns/0/data is damaged"):
        storage.stage(old, tmp_path / "new.zarr")
    assert not (tmp_path / "new.zarr").exists()
