"""The catalogue: fetched, verified, resumed; offline it says what to put where.

The server is this process's own.
"""

import gzip
import hashlib
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np
import pytest

from bigfs import storage
from bigfs.storage import sources
from bigfs.storage.downloads import catalog, downloader
from bigfs.storage.downloads.catalog import ENTRIES, Entry, File
from bigfs.storage.errors import SourceError, may_pass
from tests.helpers import stages
from tests.helpers.sources import documents_of, told_of

TRAIN = b"1 1:0.5 3:2\n2 2:1\n1 3:4\n"
TEST = b"2 1:1.5\n1 2:2 4:1\n"


class Handler(BaseHTTPRequestHandler):
    """Files from a dict; `breaks` holds how many bytes the next answers send before the connection
    drops.
    """

    def do_GET(self):
        site = self.server
        if site.status or urlsplit(self.path).path not in site.files:
            self.send_error(site.status or 404)
            return
        content, mark = site.files[urlsplit(self.path).path]
        start = 0
        if (
            (asked := self.headers.get("Range"))
            and self.headers.get("If-Range") == mark
            and site.ranges
        ):
            start = int(asked.removeprefix("bytes=").rstrip("-"))
        if start > len(content):
            self.send_error(416)
            return
        site.requests.append((self.path, start))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if mark:
            self.send_header("ETag", mark)
        self.end_headers()
        limit = site.breaks.pop(0) if site.breaks else len(content)
        self.wfile.write(content[start : start + limit])

    def do_HEAD(self):
        path = urlsplit(self.path).path
        status = self.server.status or (200 if path in self.server.files else 404)
        self.send_response(status)
        content, mark = self.server.files.get(path, (b"", None))
        self.send_header("Content-Length", str(len(content)))
        if mark:
            self.send_header("ETag", mark)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A server with a broken-connection switch; its files are the catalogue's `tiny`, and the data
    folder is ours.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files = {"/tiny.svm": (TRAIN, '"1"'), "/tiny.t.svm": (TEST, '"1"')}
    server.requests, server.breaks, server.ranges, server.status = [], [], True, None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv(downloader.FOLDER, str(tmp_path / "data"))
    files = (
        File(f"{server.url}/tiny.svm", "tiny.svm", hashlib.sha256(TRAIN).hexdigest(), "train"),
        File(f"{server.url}/tiny.t.svm", "tiny.t.svm", None, "test"),
    )
    monkeypatch.setitem(ENTRIES, "tiny", Entry("five rows", (5, 6), 2, files))
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_fetched_once_verified_and_joined(site, tmp_path):
    uri = storage.stage("tiny", tmp_path / "tiny.zarr")
    corpus = storage.open(uri)
    assert corpus.X.shape == (5, 6)  # as wide as the entry says: the files end at column 4
    assert corpus.y.tolist() == [0, 1, 0, 1, 0]
    assert [path for path, _ in site.requests] == ["/tiny.svm", "/tiny.t.svm"]
    rows = [sources.find("tiny").prepare(tmp_path / "scratch")]
    pieces = rows[0].pieces(10**6)
    assert [{*rows[0].read(piece).samples["split"].to_pylist()} for piece in pieces] == [
        {"train"},
        {"test"},
    ]
    assert len(site.requests) == 2  # nothing is fetched twice
    recorded = (tmp_path / "data" / "tiny" / "registry.txt").read_text()
    assert recorded == f"tiny.t.svm {hashlib.sha256(TEST).hexdigest()}\n"


def big(seed=0):
    return np.random.default_rng(seed).bytes(5_000_000)


def fetch_big(site, monkeypatch, checksum=None):
    monkeypatch.setitem(
        ENTRIES,
        "big",
        Entry("noise", (1, 1), 1, (File(f"{site.url}/big.bin", "big.bin", checksum),)),
    )
    return catalog.fetch("big")[0]


def test_a_broken_download_goes_on_where_it_stopped(site, monkeypatch):
    site.files["/big.bin"] = (big(), '"v1"')
    site.breaks = [2_500_000]
    path = fetch_big(site, monkeypatch, hashlib.sha256(big()).hexdigest())
    assert path.read_bytes() == big()
    (_, first), (_, second) = site.requests
    assert first == 0
    assert 0 < second <= 2_500_000
    assert [p.name for p in path.parent.iterdir() if "part" in p.name] == []


def test_it_goes_on_in_the_next_run_too(site, monkeypatch, change):
    change(downloader.RETRIES, 0)
    site.files["/big.bin"] = (big(), '"v1"')
    site.breaks = [3_000_000]
    with pytest.raises(
        SourceError,
        match=r"big\.bin cannot be downloaded from 127\.0\.0\.1 " r".*repeat the command to resume",
    ):
        fetch_big(site, monkeypatch)
    path = fetch_big(site, monkeypatch)
    assert path.read_bytes() == big()
    assert site.requests[1][1] > 0


@pytest.mark.parametrize("reason", ["another version", "no ranges", "no version given"])
def test_it_starts_anew_where_it_must(site, monkeypatch, change, reason):
    change(downloader.RETRIES, 0)
    site.files["/big.bin"] = (big(1), None if reason == "no version given" else '"v1"')
    site.breaks = [3_000_000]
    with pytest.raises(SourceError):
        fetch_big(site, monkeypatch)
    site.ranges = reason != "no ranges"
    if reason == "another version":
        site.files["/big.bin"] = (big(2), '"v2"')
    assert fetch_big(site, monkeypatch).read_bytes() == big(2 if reason == "another version" else 1)
    assert [start for _, start in site.requests] == [0, 0]


def test_another_content_is_refused(site, monkeypatch, change, tmp_path):
    change(downloader.RETRIES, 0)
    site.files["/big.bin"] = (big(), '"v1"')
    with pytest.raises(SourceError, match="did not send the published file") as caught:
        fetch_big(site, monkeypatch, "0" * 64)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "data" / "big" / "big.bin").exists()


def test_a_file_put_there_by_hand_is_used_and_watched(site, tmp_path):
    folder = tmp_path / "data" / "tiny"
    folder.mkdir(parents=True)
    (folder / "tiny.svm").write_bytes(TRAIN)
    (folder / "tiny.t.svm").write_bytes(TEST)
    assert [path.name for path in catalog.fetch("tiny")] == ["tiny.svm", "tiny.t.svm"]
    assert site.requests == []
    (folder / "tiny.t.svm").write_bytes(TEST + b"1 1:1\n")  # its checksum was recorded
    with pytest.raises(
        SourceError, match=r"tiny\.t\.svm is not the file that .* had " r".*: remove it"
    ):
        catalog.fetch("tiny")
    (folder / "tiny.svm").write_bytes(b"something else")
    with pytest.raises(SourceError, match=r"tiny\.svm is not the file"):
        catalog.fetch("tiny")


def test_offline_the_error_says_what_to_put_where(site, change, tmp_path):
    change(downloader.RETRIES, 0)
    site.shutdown()
    site.server_close()
    with pytest.raises(SourceError, match=r"tiny\.svm cannot be downloaded") as caught:
        storage.stage("tiny", tmp_path / "tiny.zarr")
    message = str(caught.value)
    assert f"{site.url}/tiny.svm" in message
    assert str(tmp_path / "data" / "tiny" / "tiny.svm") in message
    assert "\n" not in message


def test_a_url_is_a_source(site):
    site.files["/some/rows.svm"] = (TRAIN, '"1"')
    source = sources.find(f"{site.url}/some/rows.svm")
    assert source.format == "svmlight"
    assert sources.find(f"{site.url}/some/rows.svm").path == source.path
    assert len(site.requests) == 1


@pytest.mark.parametrize("name", ["two words.svm", "registry.txt", ".lock", "tab%09stop.svm"])
def test_a_url_may_have_any_file_name(site, name):
    site.files[f"/some/{quote(name, safe='%')}"] = (TRAIN, '"1"')
    path = downloader.download(f"{site.url}/some/{name}")
    assert path.read_bytes() == TRAIN
    assert downloader.download(f"{site.url}/some/{name}") == path
    assert len(site.requests) == 1
    assert (
        path.parent / "registry.txt"
    ).read_text() == f"{path.name} {hashlib.sha256(TRAIN).hexdigest()}\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [("tiny/registry.txt", "is not the list of checksums"), (".tiny.lock", "is in the way")],
)
def test_a_file_of_the_user_among_the_downloads_stays(site, tmp_path, name, message):
    (tmp_path / "data" / "tiny").mkdir(parents=True)
    (tmp_path / "data" / name).write_text("my own notes\n")
    with pytest.raises(storage.StoreError, match=message):
        catalog.fetch("tiny")
    assert (tmp_path / "data" / name).read_text() == "my own notes\n"
    assert site.requests == []


def test_a_url_is_fetched_again_when_it_changed(site, tmp_path):
    url = f"{site.url}/some/rows.svm?token=canary"
    site.files["/some/rows.svm"] = (TRAIN, '"1"')
    first = storage.open(storage.stage(url, tmp_path / "a.zarr"))
    assert storage.find_store(url, tmp_path / "a.zarr") == first.uri
    site.files["/some/rows.svm"] = (TEST, '"2"')
    assert storage.open(storage.stage(url, tmp_path / "b.zarr")).X.shape == (2, 4)
    assert (first.X.shape, len(site.requests)) == ((3, 3), 2)
    shutil.rmtree(tmp_path / "data")  # a copy that the user deletes forbids no new content
    site.files["/some/rows.svm"] = (TRAIN + TEST, '"2"')
    assert storage.open(storage.stage(url, tmp_path / "c.zarr")).X.shape == (5, 4)
    everything = "".join(p.read_text("latin-1") for p in tmp_path.rglob("*") if p.is_file())
    assert "canary" not in everything + str(list(tmp_path.rglob("*")))


def test_a_url_that_is_refused_or_out_of_reach(site, monkeypatch):
    url = f"{site.url}/some/rows.svm?X-Amz-Signature=canary"
    site.files["/some/rows.svm"] = (TRAIN, '"1"')
    copy = downloader.download(url)
    for status in (403, 404):
        site.status = status
        with pytest.raises(SourceError, match=f"the server answers {status}") as caught:
            sources.find(url)
        assert not may_pass(caught.value.__cause__)
        assert "canary" not in str(caught.value)
    site.status = 503
    with pytest.warns(UserWarning, match="the copy that was fetched before is used"):
        assert downloader.download(url) == copy
    site.shutdown()
    site.server_close()
    with pytest.warns(UserWarning, match="the copy that was fetched before") as warned:
        assert downloader.download(url) == copy
    assert "canary" not in str(warned[0].message)
    with pytest.raises(SourceError, match=r"other\.svm.* cannot be read") as caught:
        downloader.download(f"{site.url}/other.svm?token=canary")
    assert "canary" not in str(caught.value)
    assert may_pass(caught.value.__cause__)


def test_a_part_of_an_old_version_is_emptied_before_the_new_mark(site, monkeypatch, change):
    """Killed between the two, the next command must not join both versions."""
    change(downloader.RETRIES, 0)
    site.files["/big.bin"], site.breaks = (big(1), '"v1"'), [3_000_000]
    with pytest.raises(SourceError):
        fetch_big(site, monkeypatch)
    site.files["/big.bin"] = (big(2), '"v2"')
    with monkeypatch.context() as patched:
        write_text = Path.write_text

        def killed(self, text, *rest, **options):
            write_text(self, text, *rest, **options)
            if self.name.endswith(".version"):
                raise KeyboardInterrupt

        patched.setattr(Path, "write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            fetch_big(site, monkeypatch)
    assert fetch_big(site, monkeypatch).read_bytes() == big(2)


def test_options_follow_a_url_after_a_mark(site, tmp_path):
    site.files["/some/posts.csv"] = (b"body,kind\none two,x\nthree,y\n", '"1"')
    source = sources.find(f"{site.url}/some/posts.csv?token=a#text=body&label=kind")
    assert [d.label for d in documents_of(source, tmp_path)] == ["x", "y"]
    with pytest.raises(SourceError, match="no column 'kin'"):
        sources.find(f"{site.url}/some/posts.csv#text=body&label=kin")


def test_rcv1_takes_its_topics_from_their_own_file(site, monkeypatch, tmp_path):
    rows = gzip.compress(b"2286 1:0.5 3:2\n2287 2:1\n2288 3:4\n")
    topics = gzip.compress(b"E11 2286 1\nECAT 2286 1\nM11 2287 1\nECAT 2288 1\n")
    site.files |= {"/vectors.gz": (rows, '"1"'), "/topics.gz": (topics, '"1"')}
    files = (
        File(f"{site.url}/vectors.gz", "vectors.gz", None, "train"),
        File(f"{site.url}/topics.gz", "topics.gz"),
    )
    monkeypatch.setitem(
        ENTRIES, "topical", Entry("three rows", (3, 5), 3, files, topics="topics.gz")
    )
    source = sources.find("topical").prepare(tmp_path)
    found = source.read(source.pieces(10**6)[0])
    assert found.samples["label"].to_pylist() == [["E11", "ECAT"], ["M11"], ["ECAT"]]
    assert found.samples["name"].to_pylist() == ["2286", "2287", "2288"]
    assert Path(source.qrels).is_relative_to(tmp_path)  # which workers of other machines see
    assert not Path(source.qrels).is_relative_to(tmp_path / "data")
    corpus = storage.open(storage.stage("topical", tmp_path / "topical.zarr"))
    assert corpus.X.shape == (3, 5)
    site.files["/topics.gz"] = (gzip.compress(b"E11 2286 1\n"), '"2"')
    (tmp_path / "data" / "topical" / "topics.gz").unlink()
    (tmp_path / "data" / "topical" / "registry.txt").unlink()
    sources.rcv1._read_topics.cache_clear()
    source = sources.find("topical").prepare(tmp_path)
    with pytest.raises(SourceError, match="no topic for document 2287"):
        source.read(source.pieces(10**6)[0])


def test_topics_are_selected_for_and_evaluated_on_the_test_half(site, monkeypatch, tmp_path):
    """As rcv1 is: several vector files with halves, and topics in a file of their own."""
    rng, files, topics = np.random.default_rng(0), [], []
    for half, first in (("train", 0), ("test", 60)):
        lines = []
        for i in range(first, first + 60):
            own = [j for j in range(3) if rng.random() < 0.5] or [0]
            topics += [f"TOPIC{j} {i} 1" for j in own]
            columns = sorted({*own, *rng.integers(3, 40, 6)})
            lines.append(f"{i} " + " ".join(f"{j + 1}:1" for j in columns))
        site.files[f"/{half}.gz"] = (gzip.compress("\n".join(lines).encode() + b"\n"), '"1"')
        files.append(File(f"{site.url}/{half}.gz", f"{half}.gz", None, half))
    site.files["/topics.gz"] = (gzip.compress("\n".join(topics).encode() + b"\n"), '"1"')
    files.append(File(f"{site.url}/topics.gz", "topics.gz"))
    monkeypatch.setitem(
        ENTRIES, "topical", Entry("120 rows", (120, 40), 3, tuple(files), topics="topics.gz")
    )
    monkeypatch.chdir(tmp_path)
    store = stages.stage("topical")["store"]
    for method in ("sparge-cca", "sparge-hsl"):
        run = stages.select(store, f"runs/{method}", method=method, features=3)
        points = stages.evaluate(run)
        assert sorted(run.selected.tolist()) == [0, 1, 2]
        assert run.metadata["measured"]["how"] == "test half"
        assert next(p.scores for p in points if p.n_features == 3) == {
            "micro_f1": 1.0,
            "macro_f1": 1.0,
        }
        stages.finish(run)


def test_every_entry_can_be_asked_for():
    for name, entry in ENTRIES.items():
        assert "/" not in name
        assert entry.files
        names = [file.name for file in entry.files]
        assert len(set(names)) == len(names)
        assert entry.topics is None or entry.topics in names
        for file in entry.files:
            assert file.url.startswith("https://")
            algorithm, _, value = (file.checksum or "sha256:" + "0" * 64).rpartition(":")
            assert len(value) == 2 * hashlib.new(algorithm or "sha256").digest_size
            assert file.split in (None, "train", "test")
        if entry.sample_shape:
            assert np.prod(entry.sample_shape) == entry.shape[1]
    with pytest.raises(
        SourceError, match="unknown corpus 'news21'; the corpora are 20newsgroups, news20"
    ):
        catalog.fetch("news21")


@pytest.mark.parametrize("name", ["coil20", "orl", "pcmac", "colon"])
def test_real_files_are_what_their_entries_say(real_data, monkeypatch, tmp_path, name):
    entry = ENTRIES[name]
    (tmp_path / "data" / name).mkdir(parents=True)
    (tmp_path / "data" / name / entry.files[0].name).symlink_to(real_data / entry.files[0].name)
    monkeypatch.setenv(downloader.FOLDER, str(tmp_path / "data"))
    source = sources.find(name).prepare(tmp_path)
    rows = [source.read(piece) for piece in source.pieces(10**6)]
    assert (sum(part.X.shape[0] for part in rows), rows[0].X.shape[1]) == entry.shape
    assert len(np.unique(told_of(rows, "label"))) == entry.classes
    assert source.sample_shape == entry.sample_shape
