"""Stores that somebody else wrote, or took away: one clear line, and no code of theirs runs."""

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr

from bigfs import engine, storage
from bigfs.storage import sources
from bigfs.storage.errors import CorruptStoreError, SourceError, StoreError
from bigfs.storage.format import manifest, verified
from bigfs.storage.format.verified import StoreRef
from tests.helpers.listing import names_in

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture
def store(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:0.5 3:2\n2 2:1\n1 3:4\n")
    return storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr")


def forge(uri, change):
    """Change the manifest and give it the checksum that it needs."""
    path = Path(uri) / manifest.MANIFEST
    document = json.loads(path.read_text())
    told = document["attributes"]["bigfs"]
    told.pop("checksum")
    change(told["manifest"])
    told["checksum"] = manifest.digest(manifest.canonical(document))
    path.write_bytes(manifest.canonical(document))


FORGED = {
    "no shape": (lambda m: m.pop("shape"), "'shape'"),
    "a text for a shape": (lambda m: m.update(shape="ab"), "'shape'"),
    "a negative shape": (lambda m: m.update(shape=[-3, 3]), "'shape'"),
    "no segments": (lambda m: m.update(segments=[]), "'segments'"),
    "segments of numbers": (lambda m: m.update(segments=[1]), "'segments'"),
    "a segment elsewhere": (lambda m: m["segments"][0].update(name="../../x"), "'segments'"),
    "a segment too long": (lambda m: m["segments"][0].update(stop=99), "'segments'"),
    "bounds that fall": (lambda m: m.update(row_bounds=[0, 2, 1, 3]), "'row_bounds'"),
    "more bounds than rows": (lambda m: m.update(row_bounds=[0] * 100 + [3]), "'row_bounds'"),
    "bounds beyond": (lambda m: m.update(column_bounds=[0, 10**9]), "'column_bounds'"),
    "another target": (lambda m: m.update(target="code"), "'target'"),
    "a source of a text": (lambda m: m.update(source="x"), "'source'"),
    "a source without a word": (lambda m: m.update(source={}), "'source'"),
    "no settings": (lambda m: m.update(settings=None), "'settings'"),
    "names": (lambda m: m.update(named=[1, 2]), "'named'"),
    "a field more": (lambda m: m.update(run="me"), "'run' is unknown"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_manifest_is_one_line(store, name):
    change, word = FORGED[name]
    forge(store, change)
    for action in (storage.open, storage.check, storage.info):
        with pytest.raises(
            CorruptStoreError,
            match=f"bigfs did not write the manifest in zarr.json: the field {word}",
        ) as caught:
            action(store)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"attributes": {"bigfs": []}}',
        '{"attributes": {"bigfs": {"manifest": []}}}',
        '{"attributes": ["bigfs"]}',
        '["bigfs"]',
        '{"attributes": {"bigfs": {"version": 1, "manifest": {}, "checksum": 5}}}',
        '{"attributes": {"bigfs": ' + DEEP + "}}",
    ],
    ids=["a list", "a list inside", "no object", "no object at all", "a wrong checksum", "deep"],
)
def test_a_manifest_of_another_form_is_one_line(store, text):
    (Path(store) / manifest.MANIFEST).write_text(text)
    with pytest.raises(CorruptStoreError, match=r"the manifest in zarr\.json is damaged"):
        storage.open(store)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"manifest": {"version": 9}}, "was written by a bigfs before version 1.0: remove it"),
        ({"manifest": {}, "version": 2}, "has store version 2, but this bigfs reads versions up"),
    ],
)
def test_a_store_of_another_version_is_refused_by_name(store, told, message):
    document = {"attributes": {"bigfs": told | {"checksum": ""}}}
    (Path(store) / manifest.MANIFEST).write_text(json.dumps(document))
    with pytest.raises(StoreError, match=message):
        storage.open(store)


def test_a_store_without_values_and_with_an_empty_split_and_tile_is_right(store):
    told = manifest.manifest_of(str(store))
    empty = manifest.Segment("1", "test", 3, 3, 0)
    few = {"nnz": 0, "segments": (*told.segments, empty), "row_bounds": (0, 0, 3)}
    assert replace(told, **few).faults() == []
    assert replace(told, shape=(3, 0), column_bounds=(0, 0)).faults() == []


@pytest.mark.parametrize("word", ["ETag", "etag"])
def test_the_etags_of_an_object_store_are_all_but_that_of_the_manifest(store, monkeypatch, word):
    assert not manifest.has_its_etags(store)  # a local one
    found = {f"/b/a/{key}": {word: key} for key in ("zarr.json", "X/c/0", ".made-by-bigfs")}
    memory = fsspec.get_filesystem_class("memory")
    monkeypatch.setattr(memory, "find", lambda *_, **__: found)
    assert manifest.objects_of("memory://b/a") == ({"X/c/0"}, manifest.digest(b'{"X/c/0":"X/c/0"}'))


def test_a_forged_graph_is_one_line(store):
    uri = storage.graph(storage.open(store), 1, method="exact").uri
    forge(uri, lambda m: m.update(graph=5))
    with pytest.raises(
        CorruptStoreError, match="bigfs did not write its manifest: remove the graph"
    ):
        storage.graph(storage.open(store), 1, method="exact")


@pytest.mark.parametrize(
    ("kind", "key", "value", "message"),
    [
        ("documents", "../secret", "00", r"the checksum of '\.\./secret' is wrong"),
        ("documents", "/secret", "00", "the checksum of '/secret' is wrong"),
        ("documents", "secret", 0, "the checksum of 'secret' is wrong"),
        ("shards", "../secret", [0, 1, 1], r"the checksum of '\.\./secret' is wrong"),
        ("shards", "X/data", [0, 1, 0], "an array has shards of no size"),
        ("shards", "X/data", [-1, 1, 1], "an array has shards of no size"),
    ],
)
def test_append_links_no_file_from_outside_the_store(store, tmp_path, kind, key, value, message):
    """A list of checksums that names ../secret, with all hashes right."""
    (tmp_path / "secret").write_text("mine")
    path = Path(store) / manifest.CHECKSUMS / "c" / "0"
    listed = json.loads(path.read_text())
    listed[kind][key] = value
    raw = manifest.canonical(listed)
    path.write_bytes(raw)
    forge(store, lambda m: m.update(content=manifest.digest(raw)))
    (tmp_path / "b.svm").write_text("1 1:0.5\n")
    with pytest.raises(CorruptStoreError, match=message):
        storage.append(tmp_path / "b.svm", store)
    assert names_in(tmp_path) == ["a.svm", "a.zarr", "b.svm", "secret"]


# --- codecs and references ------------------------------------------------------------------------


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def write_anndata(path, zarr_format):
    root = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    root.create_array("X", data=np.eye(3)).attrs["encoding-type"] = "array"
    return path


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_codec_that_may_run_code_is_refused_by_name(codec_pipeline, tmp_path, zarr_format):
    path, name = (
        write_anndata(tmp_path / "x.zarr", zarr_format),
        {2: ".zarray", 3: "zarr.json"}[zarr_format],
    )
    source = sources.find(path)
    assert source.prepare(tmp_path).read((0, 3)).X.nnz == 3
    document = json.loads((path / "X" / name).read_text())
    if zarr_format == 2:
        document |= {
            "filters": [{"id": "pickle", "protocol": 5}],
            "dtype": "|O",
            "compressor": None,
            "fill_value": None,
        }
        (path / "X" / "0.0").write_bytes(pickle.dumps(Bomb(tmp_path / "executed")))
    else:
        document["codecs"] = [{"name": "numcodecs.pickle", "configuration": {}}]
    (path / "X" / name).write_text(json.dumps(document))
    with pytest.raises(
        SourceError,
        match=rf"x\.zarr is broken, or not AnnData: .*X/{name} names the "
        rf"codec '(numcodecs\.)?pickle'",
    ):
        storage.stage(path, tmp_path / "a.zarr", format="anndata")
    assert not (tmp_path / "executed").exists()


def test_a_reference_store_is_refused():
    for uri in ("reference://x.json", "reference:///tmp/x.json", "simplecache::reference://x.json"):
        with pytest.raises(StoreError, match="cannot be used: it is a list of references"):
            storage.open(uri)


# --- stores that go away while they are used ------------------------------------------------------


def read(corpus):
    engine.clear_cache()
    return [tile.load() for tile in corpus.X.row_tiles]


def forget():
    for kept in (verified.root, verified.array, manifest.checksums_of):
        kept.cache_clear()


@pytest.mark.parametrize("fresh", [False, True], ids=["known", "fresh worker"])
@pytest.mark.parametrize("event", ["removed", "replaced"])
def test_a_store_that_goes_away_while_it_is_used_is_no_damage(store, tmp_path, event, fresh):
    corpus = storage.open(store)
    read(corpus)
    shutil.rmtree(store)
    if event == "replaced":
        (tmp_path / "a.svm").write_text("1 1:0.75 3:2.25\n2 2:1.5\n1 3:4.125\n2 1:7\n")
        storage.stage(tmp_path / "a.svm", store)
    if fresh:
        forget()
    with pytest.raises(
        StoreError, match=rf"a\.zarr was {event} while it was in use: " rf".*repeat the command"
    ) as caught:
        read(corpus)
    assert not isinstance(caught.value, CorruptStoreError)


@pytest.mark.parametrize("wrong", [10**6, -1])
@pytest.mark.parametrize("part", ["indices", "indptr"])
def test_a_tile_whose_checksums_fit_and_whose_indices_lead_out_is_damaged(
    store, monkeypatch, part, wrong
):
    """Kernels trust them, and would touch memory that is not theirs."""

    def forged(self, path, *bounds, read=StoreRef.read):
        values = read(self, path, *bounds)
        if path.endswith(part):
            values = values.copy()
            values[len(values) // 2] = wrong
        return values

    X = storage.open(store).X
    monkeypatch.setattr(StoreRef, "read", forged)
    for tile in (X.row_tiles[0], X.column_tiles[0]):
        with pytest.raises(CorruptStoreError, match=f"{part} is damaged"):
            tile.load()


@pytest.mark.parametrize(
    "change",
    [
        {"node_type": "group"},
        {"data_type": 5},
        {"shape": "x"},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0]}}},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*The stored chunk shape")  # newer Zarr reads 0 as 1
def test_metadata_of_an_array_whose_checksums_fit_are_one_line(store, change):
    file, checksums = (Path(store) / name for name in ("X/data/zarr.json", "uns/checksums/c/0"))
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    listed = json.loads(checksums.read_bytes())
    listed["documents"]["X/data/zarr.json"] = manifest.digest(file.read_bytes())
    checksums.write_bytes(manifest.canonical(listed))
    forge(store, lambda m: m.update(content=manifest.digest(checksums.read_bytes())))
    with pytest.raises(CorruptStoreError, match=r"X/data is (not an array|damaged): restore it"):
        storage.open(store).X.row_tiles[0].load()


def test_labels_that_are_no_classes_are_damaged(store, monkeypatch):
    monkeypatch.setattr(
        StoreRef,
        "read",
        lambda self, path, *_, read=StoreRef.read: (
            np.array([0, 99], dtype=np.int32) if path.endswith("codes") else read(self, path, *_)
        ),
    )
    with pytest.raises(CorruptStoreError, match="obs/label/codes is damaged"):
        _ = storage.open(store).y
