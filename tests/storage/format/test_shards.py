"""Arrays of many chunks lie in shards, which any reader of Zarr reads."""

import os
import random
import shutil
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr

from bigfs import engine, storage
from bigfs.graph.row_blocks import ROW_ALIGNMENT
from bigfs.storage.errors import CorruptStoreError
from bigfs.storage.format import manifest, shards, verified
from bigfs.storage.format.shards import chunks_per_shard
from bigfs.storage.format.writer import ArrayWriter, Writer, seal
from tests.helpers.stores import dense_tiles, write_svmlight

ROWS = 3000
SHARDED = {"X/data", "X/indices", "uns/columns/0/data", "uns/columns/0/indices"}


@pytest.fixture
def small_shards(change):
    """Shards of up to four chunks, for arrays of more than two."""
    change(shards.FILES, 2)
    change(shards.MOST_CHUNKS, 4)


@pytest.fixture
def store(small_shards, tmp_path):
    """A store of 24,000 entries in six chunks and two shards."""
    write_svmlight(tmp_path / "a.svm", ROWS)
    return storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr", tile_rows=40)


def files(uri):
    return {p.relative_to(uri).as_posix(): p for p in Path(uri).rglob("*") if p.is_file()}


def fresh():
    for kept in (verified.root, verified.array, manifest.checksums_of):
        kept.cache_clear()
    engine.clear_cache()


def everything(uri):
    """All values of a store, through its checksums."""
    fresh()
    corpus = storage.open(uri)
    tiles = [*corpus.X.row_tiles, *corpus.X.column_tiles]
    return [*(tile.load().toarray() for tile in tiles), corpus.y, *corpus.X.stats]


def shards_of(uri):
    return manifest.checksums_of(uri, storage.open(uri).manifest.content).shards


@pytest.mark.parametrize(
    ("chunks", "size"),
    [(0, 1), (1, 1), (16, 1), (17, 2), (32, 2), (33, 4), (230, 16), (1024, 64), (10**6, 64)],
)
def test_shards_grow_until_they_hold_64_chunks(chunks, size):
    assert chunks_per_shard(chunks) == size


def test_numbers_are_written_by_eight_chunks_and_strings_by_one(
    small_shards, tmp_path, monkeypatch
):
    sizes, add = [], ArrayWriter.add

    def count(self, values):
        sizes.append(len(values))
        add(self, values)

    monkeypatch.setattr(ArrayWriter, "add", count)
    build = Writer(str(tmp_path / "a.zarr"))
    build.write("numbers", np.arange(40), chunk=4)
    build.write("texts", ["x"] * (manifest.STRING_CHUNK + 2))
    assert sizes == [32, 8, manifest.STRING_CHUNK, 2]
    assert build.shards == {"numbers": 4}
    numbers = zarr.open_array(build.uri, path="numbers", mode="r", zarr_format=3)
    np.testing.assert_array_equal(numbers[:], np.arange(40))
    assert seal(build, {}) == manifest.read_root(build.uri)["content"]


def test_plain_zarr_reads_the_same_values_as_the_checked_reader(store):
    """Zarr's own codec, which knows nothing of how the shards were written, is the oracle."""
    group, ref = zarr.open_group(store, mode="r"), storage.open(store).store
    assert set(shards_of(store)) == SHARDED
    for path in (*SHARDED, "X/indptr", "obs/_index"):
        np.testing.assert_array_equal(group[path][:], ref.read(path))
        np.testing.assert_array_equal(group[path][17:2900], ref.read(path, 17, 2900))
    assert group["X/data"].shards == (4 * 4096,)
    assert storage.check(store).problems == []
    assert storage.check(store).documents == len(files(store)) - 2


def test_values_are_those_of_a_store_without_shards(store, tmp_path, change):
    change(shards.FILES, 1 << 30)
    plain = storage.stage(tmp_path / "a.svm", tmp_path / "plain.zarr", tile_rows=40)
    assert shards_of(plain) == {}
    assert storage.open(plain).manifest.key == storage.open(store).manifest.key
    for a, b in zip(everything(plain), everything(store), strict=True):
        np.testing.assert_array_equal(a, b)
    # the chunks are the same bytes, one after the other
    sizes = shards_of(store)["X/data"]
    inside = [c for key in sizes.keys("X/data") for c in shards.chunks_of(store, key, sizes.size)]
    assert inside == [Path(plain, "X/data/c", str(i)).read_bytes() for i in range(len(inside))]
    assert len(files(store)) < len(files(plain))


@pytest.mark.parametrize("limit", ["298MB", "1GB"])
def test_shards_are_the_same_bytes_whatever_the_memory(store, tmp_path, limit, monkeypatch):
    from bigfs.storage.staging import build

    if limit == "298MB":  # a chunk at a time
        monkeypatch.setattr(build, "chunks_for", lambda writer, limit: 1)
    other = storage.stage(tmp_path / "a.svm", tmp_path / "b.zarr", tile_rows=40, memory_limit=limit)
    one, two = files(store), files(other)
    assert one.keys() == two.keys()
    for name in one:
        assert one[name].read_bytes() == two[name].read_bytes(), name


@pytest.mark.process
def test_workers_write_the_same_shards(store, tmp_path):
    with engine.cluster(workers=2, memory_limit="512MB"):
        other = storage.stage(tmp_path / "a.svm", tmp_path / "b.zarr", tile_rows=40)
    assert storage.open(other).manifest.content == storage.open(store).manifest.content


def test_anndata_and_staging_read_a_store_with_shards(store, tmp_path):
    again = storage.open(storage.stage(store, tmp_path / "again.zarr", format="anndata"))
    corpus = storage.open(store)
    for tiles, axis in (("row_tiles", 0), ("column_tiles", 1)):
        np.testing.assert_array_equal(
            *(dense_tiles(getattr(c.X, tiles), axis) for c in (again, corpus))
        )


# --- damage ---------------------------------------------------------------------------------------


def replace_part(path, start, raw):
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + raw + whole[start + len(raw) :])


def test_a_damaged_chunk_of_a_shard_is_named(store):
    shard = files(store)["X/data/c/1"]
    length = len(next(shards.chunks_of(store, "X/data/c/1", 4)))
    replace_part(shard, length - 9, b"\0\1")
    with pytest.raises(CorruptStoreError, match="array X/data is damaged"):
        everything(store)
    assert storage.check(store).problems == ["chunk 4 of array X/data is damaged"]


def test_chunks_that_are_exchanged_are_seen(store):
    """Each has a CRC that fits it, and the index leads to it."""
    shard = files(store)["X/data/c/0"]
    raw, tail = shard.read_bytes(), 16 * 4 + 4
    index = shards.parse_index(raw[-tail:], 4).copy()
    index[[0, 1]] = index[[1, 0]]
    body = index.tobytes()
    crc = shards.google_crc32c.value(body).to_bytes(4, "little")
    shard.write_bytes(raw[:-tail] + body + crc)
    with pytest.raises(CorruptStoreError, match=r"chunk [01] of array X/data is damaged"):
        everything(store)
    assert storage.check(store).problems == ["shard 0 of array X/data is damaged"]


@pytest.mark.parametrize("how", ["missing", "empty", "truncated", "swapped"])
def test_a_bad_shard_is_named(store, how):
    shard = files(store)["uns/columns/0/data/c/0"]
    if how == "missing":
        shard.unlink()
    elif how == "swapped":
        shutil.copy(files(store)["X/data/c/0"], shard)
    else:
        shard.write_bytes(shard.read_bytes()[: 100 if how == "truncated" else 0])
    with pytest.raises(CorruptStoreError, match=r"chunk \d of array uns/columns/0/data is"):
        everything(store)
    problems = storage.check(store).problems
    assert problems
    assert all("of array uns/columns/0/data is" in line for line in problems)


@pytest.mark.parametrize("name", ["uns/chunk_checksums/c/0", "X/data/zarr.json"])
def test_changed_checksums_and_metadata_are_seen(store, name):
    replace_part(files(store)[name], 9, b"\7")
    with pytest.raises(CorruptStoreError, match="is damaged"):
        everything(store)
    assert storage.check(store).problems


def test_no_byte_of_a_shard_can_change_unseen(store):
    path, chosen = files(store)["X/indices/c/1"], random.Random(3)
    raw = path.read_bytes()
    for i in chosen.sample(range(len(raw)), 12):
        path.write_bytes(raw[:i] + bytes([raw[i] ^ (1 << chosen.randrange(8))]) + raw[i + 1 :])
        fresh()
        assert storage.check(store).problems, i
    path.write_bytes(raw)
    fresh()
    assert storage.check(store).problems == []


# --- what a reader holds --------------------------------------------------------------------------


def test_a_tile_reads_only_its_part_of_the_checksums(store, monkeypatch, change):
    change(manifest.CHECKSUM_CHUNK, 2)
    other = storage.stage(Path(store).with_name("a.svm"), f"{store}-2", tile_rows=40)
    read, get = [], verified.VerifiedStore.get

    async def noted(self, key, *given, **more):
        read.append(key)
        return await get(self, key, *given, **more)

    monkeypatch.setattr(verified.VerifiedStore, "get", noted)
    fresh()
    corpus = storage.open(other)
    tile = corpus.X.row_tiles[0]
    read.clear()
    tile.load()
    parts = {key for key in read if key.startswith(manifest.CHUNK_CHECKSUMS)}
    first = {shards_of(other)[f"X/{name}"].first // 2 for name in ("data", "indices")}
    assert parts == {f"{manifest.CHUNK_CHECKSUMS}/c/{part}" for part in first}
    everything(other)
    held = verified.root(other, corpus.manifest.content).store
    assert len(held.parts) <= verified.PARTS_HELD
    assert not any("/data/c/" in key for key in held.checksums.documents)


# --- stores that grow -----------------------------------------------------------------------------


def test_a_store_with_a_partly_filled_shard_grows_and_the_old_files_stay(store, tmp_path):
    kept = tmp_path / "kept"
    shutil.copytree(store, kept, copy_function=os.link)
    before = {name: path.read_bytes() for name, path in files(kept).items()}
    inodes = {name: path.stat().st_ino for name, path in files(store).items()}
    second = write_svmlight(tmp_path / "b.svm", 4000, 1)
    storage.append(second, store)
    assert {name: path.read_bytes() for name, path in files(kept).items()} == before
    after = {name: path.stat().st_ino for name, path in files(store).items()}
    whole = ("X/data/c/0", "X/indices/c/0", "uns/columns/0/data/c/0", "uns/columns/0/data/c/1")
    assert all(inodes[name] == after[name] for name in whole)
    assert inodes["X/data/c/1"] != after["X/data/c/1"]  # it was filled
    (tmp_path / "both.svm").write_text((tmp_path / "a.svm").read_text() + second.read_text())
    expected = storage.open(
        storage.stage(tmp_path / "both.svm", tmp_path / "both.zarr", tile_rows=40)
    )
    grown = storage.open(store)
    for tiles, axis in (("row_tiles", 0), ("column_tiles", 1)):
        np.testing.assert_array_equal(
            *(dense_tiles(getattr(c.X, tiles), axis) for c in (grown, expected))
        )
    np.testing.assert_array_equal(grown.y, expected.y)
    assert storage.check(store).problems == []
    storage.append(write_svmlight(tmp_path / "c.svm", 30, 2), store)  # and again, by a little
    assert storage.check(store).problems == []
    assert storage.open(store).X.shape[0] == ROWS + 4030


@pytest.mark.parametrize("how", ["missing", "cut short", "one byte"])
def test_a_store_with_a_damaged_shard_is_not_reused(store, tmp_path, how):
    shard = files(store)["X/data/c/1"]
    raw = shard.read_bytes()
    shard.write_bytes(raw[:-9] if how == "cut short" else bytes([raw[0] ^ 1]) + raw[1:])
    if how == "missing":
        shard.unlink()
    with pytest.raises(
        CorruptStoreError, match=r"(shard 1|chunk 4) of array X/data is (damaged|missing)"
    ):
        storage.stage(tmp_path / "a.svm", store, tile_rows=40)


def test_append_does_not_hide_a_chunk_that_was_damaged(store, tmp_path):
    """The first chunk of the last shard is another one, whose CRC fits it."""
    path = files(store)["X/data/c/1"]
    chunks = list(shards.chunks_of(store, "X/data/c/1", 4))
    other = next(shards.chunks_of(store, "X/data/c/0", 4))
    path.unlink()
    shard = shards.ShardFile(store, "X/data/c/1", 4)
    for chunk in (other, *chunks[1:]):
        shard.add(chunk)
    shard.finish()
    with pytest.raises(CorruptStoreError, match="chunk 4 of array X/data is damaged"):
        storage.append(write_svmlight(tmp_path / "b.svm", 30, 1), store)


def test_a_store_without_shards_grows(small_shards, tmp_path, change):
    write_svmlight(tmp_path / "a.svm", ROWS)
    change(shards.FILES, 1 << 30)
    uri = storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr", tile_rows=40)
    change(shards.FILES, 2)
    storage.append(write_svmlight(tmp_path / "b.svm", ROWS, 1), uri)
    assert set(shards_of(uri)) == {"uns/columns/1/data", "uns/columns/1/indices"}
    assert storage.check(uri).problems == []
    assert storage.open(uri).X.shape[0] == 2 * ROWS


@pytest.mark.parametrize("zeros", [slice(0, 30), slice(10, 20), slice(0, 0), slice(70, 100)])
def test_chunks_of_zeros_keep_their_place(small_shards, tmp_path, zeros):
    """Zarr leaves such chunks out where each has a file of its own, as the classes of rows that are
    sorted by class have them."""
    values = np.arange(1, 101)
    values[zeros] = 0
    for path, sharded in (("a", True), ("gathered", False)):
        writer = Writer(str(tmp_path / path), chunk=10)
        writer.group("", "dict")
        writer.create("x", 100, np.int32, sharded=sharded)
        writer.append("x", 0, [values[:45], values[45:]])
        if not sharded:
            writer.gather("x")
        assert len(list((tmp_path / path / "x/c").iterdir())) == 3
        stored = zarr.open_array(tmp_path / path, path="x", mode="r")
        np.testing.assert_array_equal(stored[:], values)


def test_an_error_in_a_shard_leaves_nothing(store, tmp_path, monkeypatch):
    content = storage.open(store).manifest.content
    write_svmlight(tmp_path / "b.svm", 4000, 1)

    def full(self, chunk):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shards.ShardFile, "add", full)
    with pytest.raises(storage.StoreError, match="is full"):
        storage.append(tmp_path / "b.svm", store)
    monkeypatch.undo()
    assert storage.open(store).manifest.content == content
    assert storage.check(store).problems == []
    assert sorted(p.name for p in tmp_path.iterdir() if p.name[0] != ".") == [
        "a.svm",
        "a.zarr",
        "b.svm",
    ]


# --- graphs ---------------------------------------------------------------------------------------


def test_a_graph_of_many_blocks_has_shards_and_the_same_neighbors(
    store, tmp_path, monkeypatch, change
):
    change(ROW_ALIGNMENT, 256)
    corpus = storage.open(store)
    sharded = storage.graph(corpus, k=3, method="exact")
    change(shards.FILES, 1 << 30)
    shutil.move(sharded.uri, tmp_path / "sharded.zarr")
    plain = storage.graph(corpus, k=3, method="exact")
    moved = storage.open_graph(str(tmp_path / "sharded.zarr"))
    again, part, whole = moved.neighbors(), moved.neighbors(300, 1000), plain.neighbors()
    np.testing.assert_array_equal(again.index, whole.index)
    np.testing.assert_array_equal(again.distance, whole.distance)
    np.testing.assert_array_equal(part.index, whole.index[300:1000])
    group = zarr.open_group(moved.uri, mode="r")
    assert group["index"].shards == (4 * 256, 3)
    np.testing.assert_array_equal(group["index"][:], whole.index)  # by Zarr's own codec
    names = [name for name in files(moved.uri) if name.startswith("index/c/")]
    assert sorted(names) == ["index/c/0/0", "index/c/1/0", "index/c/2/0"]
    assert len(files(moved.uri)) < len(files(plain.uri))
    replace_part(files(moved.uri)["index/c/1/0"], 50, b"\0\1\2")
    fresh()
    with pytest.raises(CorruptStoreError, match="array index is damaged"):
        moved.neighbors()


def test_an_object_store_holds_the_same_shards(store, tmp_path):
    uri = "memory://shards.zarr"
    try:
        storage.stage(tmp_path / "a.svm", uri, tile_rows=40, scratch=tmp_path / "scratch")
        assert storage.check(uri).problems == []
        for a, b in zip(everything(uri), everything(store), strict=True):
            np.testing.assert_array_equal(a, b)
        for name in SHARDED:
            raw = manifest.read_document(uri, f"{name}/c/1")
            assert raw == files(store)[f"{name}/c/1"].read_bytes()
    finally:
        fsspec.filesystem("memory").rm("/shards.zarr", recursive=True)
