"""Files of columns behind URLs: ranges of them are read, and nothing is copied."""

import re
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigfs import engine, storage
from bigfs.storage.downloads import downloader
from bigfs.storage.errors import SourceError
from bigfs.storage.sources import find
from bigfs.storage.sources.tables.columnar import MAX_GROUP_BYTES
from tests.helpers.sources import rows_of

N, COLUMNS = 20_000, 20


class Handler(BaseHTTPRequestHandler):
    """Files by ranges; counts the bytes that it sends."""

    def do_HEAD(self):
        self.answer(send=False)

    def do_GET(self):
        self.answer(send=True)

    def answer(self, send):
        site = self.server
        if site.status or urlsplit(self.path).path not in site.files:
            self.send_error(site.status or 404)
            return
        content = site.files[urlsplit(self.path).path]
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, stop = 0, len(content)
        if asked and site.ranges:
            start, stop = int(asked[1]), min(int(asked[2]) + 1, len(content))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(stop - start))
        if site.mark:
            self.send_header("ETag", site.mark)
        self.end_headers()
        if send:
            site.sent += stop - start
            self.wfile.write(content[start:stop])

    def log_message(self, *args):
        pass


@pytest.fixture
def site(tmp_path, monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.sent, server.ranges = {}, 0, True
    server.status, server.mark = None, '"1"'
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(downloader.FOLDER, str(tmp_path / "data"))
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def table(rng):
    numbers = {f"c{i}": rng.random(N) for i in range(COLUMNS)}
    return pa.table(numbers | {"label": np.resize(["x", "y"], N)})


def write_parquet(table, path):
    pq.write_table(table, path, row_group_size=5000)


def write_arrow(table, path):
    with pa.ipc.new_file(path, table.schema) as out:
        out.write_table(table, max_chunksize=5000)


WRITERS = {"t.parquet": write_parquet, "t.arrow": write_arrow}


@pytest.mark.parametrize("name", WRITERS)
def test_two_of_twenty_columns_take_a_part_of_the_bytes(site, tmp_path, table, name):
    WRITERS[name](table, tmp_path / name)
    site.files[f"/{name}"] = (tmp_path / name).read_bytes()
    url = f"{site.url}/{name}?X-Amz-Signature=canary"
    remote = storage.open(storage.stage(f"{url}#columns=c3,c11", tmp_path / "r.zarr"))
    assert not (tmp_path / "data").exists()
    size = len(site.files[f"/{name}"])
    assert 2 / 21 * size < site.sent < 0.35 * size, site.sent / size
    local = storage.open(storage.stage(tmp_path / name, tmp_path / "l.zarr", columns="c3,c11"))
    assert remote.manifest.content == local.manifest.content
    assert remote.manifest.source["uri"] == f"{site.url}/{name}?…"
    written = "".join(p.read_text("latin-1") for p in tmp_path.rglob("*.zarr/**/*") if p.is_file())
    assert "canary" not in written
    site.sent = 0
    assert storage.find_store(f"{url}#columns=c3,c11", tmp_path / "r.zarr") == remote.uri
    assert site.sent < 0.1 * size
    site.mark = '"2"'
    with pytest.raises(storage.StoreError, match="has changed since"):
        storage.find_store(f"{url}#columns=c3,c11", tmp_path / "r.zarr")


def test_large_row_groups_are_laid_out_without_a_copy(site, tmp_path, table, change):
    change(MAX_GROUP_BYTES, 1 << 16)
    write_parquet(table, tmp_path / "t.parquet")
    site.files["/t.parquet"] = (tmp_path / "t.parquet").read_bytes()
    source = find(f"{site.url}/t.parquet", columns="c3,c11", where="c3 > 0.5")
    X = rows_of(source, tmp_path / "scratch", 1 << 16)[0]
    want = table.to_pandas()[["c3", "c11"]]
    np.testing.assert_array_equal(X, want[want.c3 > 0.5])
    assert site.sent < 0.35 * len(site.files["/t.parquet"])


@pytest.mark.process
def test_workers_read_ranges(site, tmp_path, table):
    write_parquet(table, tmp_path / "t.parquet")
    site.files["/t.parquet"] = (tmp_path / "t.parquet").read_bytes()
    with engine.cluster(workers=1, memory_limit="1GB"):
        remote = storage.open(
            storage.stage(f"{site.url}/t.parquet#columns=c*", tmp_path / "r.zarr")
        )
    local = storage.open(storage.stage(tmp_path / "t.parquet?columns=c*", tmp_path / "l.zarr"))
    assert remote.manifest.content == local.manifest.content


@pytest.mark.parametrize(("ranges", "mark"), [(False, '"1"'), (True, None)])
def test_a_server_without_ranges_or_versions_gives_a_copy(site, tmp_path, table, ranges, mark):
    write_parquet(table, tmp_path / "t.parquet")
    site.files["/t.parquet"], site.ranges, site.mark = (
        (tmp_path / "t.parquet").read_bytes(),
        ranges,
        mark,
    )
    path = find(f"{site.url}/t.parquet", columns="c1").path
    assert path.startswith(str(tmp_path / "data"))


def test_a_server_that_fails_meanwhile_is_one_line_without_secrets(site, tmp_path, table):
    write_parquet(table, tmp_path / "t.parquet")
    site.files["/t.parquet"] = (tmp_path / "t.parquet").read_bytes()
    source = find(f"{site.url}/t.parquet?sig=canary", columns="c1")
    ready = source.prepare(tmp_path)
    [piece, *_] = ready.pieces(1)
    for status in (403, 503):
        site.status = status
        with pytest.raises(
            SourceError, match=rf"t\.parquet\?… cannot be read \(.*{status}"
        ) as caught:
            ready.read(piece)
        assert "canary" not in str(caught.value)
        assert "\n" not in str(caught.value)
    site.status, site.ranges = None, False
    with pytest.raises(SourceError, match="the server sends no ranges of a known version"):
        ready.read(piece)
    assert "canary" not in repr(source)


# --- fsspec ---------------------------------------------------------------------------------------


@pytest.fixture
def memory(tmp_path, monkeypatch):
    monkeypatch.setenv(downloader.FOLDER, str(tmp_path / "data"))
    fs = fsspec.filesystem("memory")
    yield fs
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


@pytest.mark.parametrize("name", WRITERS)
def test_folders_and_patterns_behind_urls_are_one_table(memory, tmp_path, table, name):
    for part, some in (("a", table.slice(0, 6000)), ("b", table.slice(6000))):
        WRITERS[name](some, tmp_path / f"{part}-{name}")
        memory.pipe(f"/bucket/d/{part}-{name}", (tmp_path / f"{part}-{name}").read_bytes())
    memory.pipe("/bucket/d/README.md", b"# words")
    local = storage.stage(tmp_path / f"*-{name}", tmp_path / "l.zarr", columns="c*")
    content = storage.open(local).manifest.content
    for i, url in enumerate(("memory://bucket/d", f"memory://bucket/d/*{name}#columns=c*")):
        store = storage.stage(url, tmp_path / f"{i}.zarr", columns="c*")
        assert storage.open(store).manifest.content == content
    assert not (tmp_path / "data").exists()
    source = find("memory://bucket/d", columns="c*")
    before = source.fingerprint()
    memory.pipe(f"/bucket/d/c-{name}", memory.cat(f"/bucket/d/a-{name}"))
    assert source.fingerprint() != before


def test_a_small_file_takes_three_requests_at_most_in_parallel(memory, tmp_path, monkeypatch):
    n_files, asked, threads = 50, Counter(), set()
    for i in range(n_files):
        table = pa.table({"a": np.arange(4.0) + i, "label": list("xyxy")})
        pq.write_table(table, tmp_path / "a.parquet")
        memory.pipe(f"/bucket/d/{i:02}.parquet", (tmp_path / "a.parquet").read_bytes())

    def counted(name, call):
        def ask(*args, **options):
            asked[name] += 1
            threads.add(threading.get_ident())
            return call(*args, **options)

        return ask

    for name in ("cat_file", "info", "ukey", "size", "glob", "find", "isfile", "exists"):
        call = getattr(type(memory), name)
        monkeypatch.setattr(type(memory), name, counted(name, call))
    uri = storage.stage("memory://bucket/d/*.parquet#columns=*", tmp_path / "a.zarr")
    assert storage.open(uri).X.shape == (4 * n_files, 1)
    assert asked["cat_file"] <= 3 * n_files
    assert asked.total() - asked["cat_file"] < n_files  # nothing else is asked of each file
    assert len(threads) > 2
