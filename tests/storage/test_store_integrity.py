"""A damaged store is an error that names the place, never a wrong number; a killed run leaves
nothing that opens.
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from bigfs import engine, storage
from bigfs.matrix import Matrix
from bigfs.storage import integrity
from bigfs.storage.errors import CorruptStoreError, StoreError
from bigfs.storage.format import manifest, verified, writer
from tests.helpers.daily import daily
from tests.helpers.listing import names_in
from tests.helpers.stores import write_svmlight


@pytest.fixture
def store(tmp_path):
    write_svmlight(tmp_path / "a.svm", 300)
    return storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr", tile_rows=40)


def everything(uri):
    """All that a user can read of a store."""
    corpus = storage.open(uri)
    engine.clear_cache()
    parts = [tile.load().toarray() for tile in (*corpus.X.row_tiles, *corpus.X.column_tiles)]
    return [
        *parts,
        *corpus.X.stats,
        corpus.y,
        np.array(corpus.class_names),
        np.array(corpus.sample_names, dtype=str),
    ]


def files(uri):
    return sorted(p for p in Path(uri).rglob("*") if p.is_file())


def attempt(action, *operands):
    """The result and "", or None and the message of the error that a user would see."""
    try:
        return action(*operands), ""
    except StoreError as error:
        return None, str(error)


def fresh():
    verified.root.cache_clear()
    verified.array.cache_clear()
    manifest.checksums_of.cache_clear()


def test_a_whole_store_passes(store):
    report = storage.check(store)
    assert report.problems == []
    # all but the manifest and the list of checksums
    assert report.documents == len(files(store)) - 2


def test_every_way_of_zarr_to_write_and_read_is_checked(codec_pipeline, tmp_path):
    write_svmlight(tmp_path / "a.svm", 300)
    uri = storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr", tile_rows=40)
    assert storage.check(uri).documents == len(files(uri)) - 2
    expected = everything(uri)
    chunk = Path(uri, "uns/columns/0/data/c/0")
    kept = chunk.read_bytes()
    for raw in (None, Path(uri, "X/indptr/c/0").read_bytes()):
        chunk.unlink() if raw is None else chunk.write_bytes(raw)
        fresh()
        with pytest.raises(CorruptStoreError, match="chunk 0 of array uns/columns/0/data is"):
            everything(uri)
    chunk.write_bytes(kept)
    fresh()
    for a, b in zip(everything(uri), expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("fault", ["unlisted", "unwritten"])
def test_a_store_is_sealed_only_with_a_checksum_of_every_document(tmp_path, fault):
    build = writer.Writer(str(tmp_path / "a.zarr"))
    build.group("uns", "dict")
    build.write("uns/numbers", np.arange(5))
    if fault == "unlisted":  # as a Zarr that writes past our store would
        writer.write_chunks(build.target("uns/numbers"), "uns/numbers", 0, [np.arange(5)])
        del build.checksums["uns/numbers/c/0"]
    else:
        Path(build.uri, "uns/numbers/c/0").unlink()
    message = "1 of its documents were written without a checksum, or not at all, such as uns/num"
    with pytest.raises(StoreError, match=message):
        writer.seal(build, {})
    assert not manifest.exists(build.uri)


def test_a_shard_cannot_be_read_past_its_checksum(store):
    document = Path(store, "X/data/zarr.json")
    metadata = json.loads(document.read_text())
    inner = [{"name": "bytes", "configuration": {"endian": "little"}}]
    metadata["codecs"] = [
        {
            "name": "sharding_indexed",
            "configuration": {"chunk_shape": [1], "codecs": inner, "index_codecs": inner},
        }
    ]
    document.write_text(json.dumps(metadata))
    opened = verified.VerifiedStore(manifest.store_at(store, read_only=True), store)
    with pytest.raises(CorruptStoreError, match=r"chunk \d of array X/data holds a shard"):
        zarr.open_array(opened, path="X/data", mode="r")[:3]


@pytest.mark.slow
@pytest.mark.parametrize("grown", daily([False, True], False))
def test_no_byte_can_change_unseen(store, tmp_path, grown):
    """Any single byte of any document: reported by check, and reading gives an error or the same
    numbers.
    """
    if grown:
        write_svmlight(tmp_path / "b.svm", 90)
        storage.append(tmp_path / "b.svm", store)
    expected, chosen = everything(store), random.Random(5)
    everywhere = [(path, i) for path in files(store) for i in range(path.stat().st_size)]
    for path, i in chosen.sample(everywhere, 60):
        raw = path.read_bytes()
        path.write_bytes(raw[:i] + bytes([raw[i] ^ (1 << chosen.randrange(8))]) + raw[i + 1 :])
        fresh()
        found, complaint = attempt(storage.check, store)
        assert complaint or found.problems, path
        assert not complaint or store in complaint
        read, complaint = attempt(everything, store)
        assert "\n" not in complaint
        for a, b in zip(read or [], expected if read else [], strict=True):
            np.testing.assert_array_equal(a, b)
        path.write_bytes(raw)
    fresh()
    assert storage.check(store).problems == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "array", ["X/data", "X/indices", "X/indptr", "uns/columns/0/data", "uns/columns/0/indices"]
)
@pytest.mark.parametrize(
    "how", daily(["missing", "truncated", "empty", "swapped"], "missing", "swapped")
)
def test_a_bad_chunk_is_named_when_it_is_read(tmp_path, array, how):
    write_svmlight(tmp_path / "a.svm", 3000)
    uri = storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr", tile_rows=40)
    chunk = Path(uri) / array / "c" / "0"
    other = chunk.with_name("1")
    if how == "swapped" and not other.exists():
        pytest.skip("this array has one chunk")
    if how == "missing":
        chunk.unlink()
    elif how == "swapped":
        shutil.copy(other, chunk)
    else:
        chunk.write_bytes(chunk.read_bytes()[: 100 if how == "truncated" else 0])
    fresh()
    with pytest.raises(CorruptStoreError, match=f"{uri}: chunk 0 of array {array} is"):
        everything(uri)
    assert [p for p in storage.check(uri).problems if array in p] == [
        f"chunk 0 of array {array} is {'missing' if how == 'missing' else 'damaged'}"
    ]


def test_columns_whose_values_cancel_are_whole(tmp_path, rng):
    values = rng.uniform(1e6, 1e7, (2000, 3)).astype(np.float32)
    X = np.vstack([values, -values, np.full((1, 3), 1e-3, dtype=np.float32)])
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(rng.permuted(X, axis=0)))
    uri = storage.stage(tmp_path / "a.npz", tmp_path / "a.zarr", tile_rows=100)
    corpus = storage.open(uri)
    by_rows = Matrix(corpus.X.shape, rows=corpus.X.row_tiles).stats[0]
    assert not np.allclose(by_rows, corpus.X.stats[0], rtol=1e-9, atol=0)
    assert storage.check(uri).problems == []


@pytest.mark.parametrize("share", [1e-6, np.nan])
def test_statistics_of_other_values_are_reported(store, share):
    corpus = storage.open(store)
    sums, squares, _ = corpus.X.stats
    sums[3] += share * squares[3]
    assert integrity._check_layouts(corpus) == [
        "the sums of the columns differ between the layout by rows and the statistics"
    ]


def test_a_newer_version_is_refused_with_advice(store):
    path = Path(store) / manifest.MANIFEST
    document = json.loads(path.read_text())
    document["attributes"]["bigfs"]["version"] = manifest.VERSION + 1
    path.write_text(json.dumps(document))
    with pytest.raises(StoreError, match="upgrade bigfs"):
        storage.open(store)


def test_a_store_of_before_version_1_is_refused_with_advice(store):
    path = Path(store) / manifest.MANIFEST
    document = json.loads(path.read_text())
    del document["attributes"]["bigfs"]["version"]
    document["attributes"]["bigfs"]["manifest"]["version"] = 1
    path.write_text(json.dumps(document))
    with pytest.raises(StoreError, match=r"before version 1\.0: remove it"):
        storage.open(store)


def test_a_store_without_its_word_is_damaged_and_nobody_elses(store):
    path = Path(store) / "zarr.json"
    path.write_bytes(path.read_bytes().replace(b'"bigfs"', b'"bigfr"'))
    with pytest.raises(storage.CorruptStoreError, match="the manifest in zarr"):
        storage.open(store)
    with pytest.raises(storage.CorruptStoreError, match="the manifest in zarr"):
        storage.stage(store, f"{store}-again.zarr")


def test_an_unfinished_store_does_not_open(store):
    (Path(store) / manifest.MANIFEST).write_text(
        '{"zarr_format": 3, "node_type": "group", "attributes": {}}'
    )
    with pytest.raises(StoreError, match="not a finished store"):
        storage.open(store)
    with pytest.raises(StoreError, match="does not exist"):
        storage.open(Path(store).with_name("other.zarr"))


def test_info_is_plain_data(store):
    told = json.loads(json.dumps(storage.info(store)))
    assert (told["samples"], told["target"]) == (300, "class")
    assert sum(told["classes"].values()) == 300
    assert sum(told["bytes"].values()) == sum(p.stat().st_size for p in files(store))


STAGE = (
    "import sys; from bigfs import storage; print('go', flush=True); "
    "bigfs.storage.stage(sys.argv[1], sys.argv[2], tile_rows=200)"
)


@pytest.mark.slow
def test_a_killed_run_leaves_nothing_that_opens_and_the_next_one_finishes(tmp_path):
    write_svmlight(tmp_path / "a.svm", 6000)
    expected = storage.open(
        storage.stage(tmp_path / "a.svm", tmp_path / "whole.zarr", tile_rows=200)
    ).spec["content"]
    target, killed = tmp_path / "a.zarr", 0
    for delay in (0.05, 0.3):
        run = subprocess.Popen(
            [sys.executable, "-c", STAGE, str(tmp_path / "a.svm"), str(target)],
            stdout=subprocess.PIPE,
        )
        assert run.stdout is not None
        run.stdout.readline()
        time.sleep(delay)
        run.send_signal(signal.SIGKILL)
        run.wait()
        run.stdout.close()
        if not target.exists():
            killed += 1
            with pytest.raises(StoreError, match="does not exist"):
                storage.open(target)
        storage.stage(tmp_path / "a.svm", target, tile_rows=200)
        assert storage.open(target).spec["content"] == expected
        assert storage.check(target).problems == []
        shutil.rmtree(target)
    assert killed
    assert names_in(tmp_path) == ["a.svm", "whole.zarr"]


def test_two_runs_at_once_one_waits_or_says_so(tmp_path):
    from bigfs.storage.atomic import building

    write_svmlight(tmp_path / "a.svm", 50)
    with (
        building(str(tmp_path / "a.zarr"), manifest.exists),
        pytest.raises(StoreError, match="another process works on"),
    ):
        storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr", wait=0)


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    import errno

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    write_svmlight(tmp_path / "a.svm", 50)
    monkeypatch.setattr(writer, "write_chunks", full)
    with pytest.raises(StoreError, match=r"the disk of .* is full"):
        storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr")
    assert names_in(tmp_path) == ["a.svm"]
