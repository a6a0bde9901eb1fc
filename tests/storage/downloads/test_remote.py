"""Sources behind URLs of fsspec, and what a URL must not hold."""

import errno
import sys

import fsspec
import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import storage
from bigfs.flows.job import Job
from bigfs.storage import sources
from bigfs.storage.downloads import downloader, remote
from bigfs.storage.errors import SourceError, may_pass, redact

X = sp.csr_array(np.array([[0.0, 1.0], [2.0, 0.0], [3.0, 4.0]]))


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv(downloader.FOLDER, str(tmp_path / "data"))


@pytest.fixture
def memory():
    fs = fsspec.filesystem("memory")
    yield fs
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


def put(fs, name, path):
    fs.makedirs(name.rpartition("/")[0], exist_ok=True)
    fs.pipe(name, path.read_bytes())


WRITERS = {
    "rows.svm": lambda path: path.write_text("1 2:1\n2 1:2\n1 1:3 2:4\n"),
    "rows.npz": lambda path: sp.save_npz(path, X),
    "docs.jsonl": lambda path: path.write_text('{"text": "one two"}\n' * 3),
    "docs.csv": lambda path: path.write_text("text\none two\none two\none two\n"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_url_gives_the_store_of_the_file(name, memory, tmp_path):
    WRITERS[name](tmp_path / name)
    put(memory, f"/bucket/{name}", tmp_path / name)
    here, there = (
        storage.open(storage.stage(source, tmp_path / f"{i}.zarr"))
        for i, source in enumerate((tmp_path / name, f"memory://bucket/{name}"))
    )
    assert here.manifest.key == there.manifest.key
    assert here.X.shape[0] == 3
    assert "memory" not in there.manifest.source["uri"]


def test_folder_of_texts_and_changed_files_are_fetched(memory, tmp_path):
    for label in ("a", "b"):
        memory.pipe(f"/texts/{label}/1.txt", b"one two")
    corpus = storage.open(storage.stage("memory://texts", tmp_path / "t.zarr", min_df=1))
    assert corpus.class_names == ["a", "b"]
    memory.pipe("/bucket/rows.svm", b"1 1:1\n")
    first = sources.find("memory://bucket/rows.svm")
    assert sources.find("memory://bucket/rows.svm").path == first.path
    memory.pipe("/bucket/rows.svm", b"1 1:1\n2 1:5\n")
    assert sources.find("memory://bucket/rows.svm").path != first.path


def test_broken_fetch_is_one_line_and_goes_on_where_it_stopped(memory, monkeypatch, change):
    content = b"1 1:1\n2 2:7\n"
    memory.pipe("/bucket/rows.svm", content)
    change(remote.RANGE, 5)
    asked, cat_file = [], type(memory).cat_file

    def read(self, path, start=None, end=None):
        asked.append((start, end))
        if len(asked) == 2:
            raise OSError("the line is dead")
        return cat_file(self, path, start=start, end=end)

    monkeypatch.setattr(type(memory), "cat_file", read)
    with pytest.raises(SourceError, match=r"rows.svm cannot be read \(OSError: the line"):
        sources.find("memory://bucket/rows.svm")
    with open(sources.find("memory://bucket/rows.svm").path, "rb") as file:
        assert file.read() == content
    assert asked == [(0, 5), (5, 10), (5, 10), (10, 12)]
    with pytest.raises(SourceError, match="memory://bucket/none does not exist"):
        sources.find("memory://bucket/none")


def test_a_file_that_changes_while_it_is_read_is_refused(memory, monkeypatch):
    memory.pipe("/bucket/rows.svm", b"1 1:1\n2 2:7\n")

    cat_file = type(memory).cat_file

    def read(self, path, start=None, end=None):
        block = cat_file(self, path, start=start, end=end)
        memory.pipe("/bucket/rows.svm", b"1 1:2\n2 2:9\n")
        return block

    with monkeypatch.context() as patched:
        patched.setattr(type(memory), "cat_file", read)
        with pytest.raises(SourceError, match="changed while it was read: repeat the command"):
            sources.find("memory://bucket/rows.svm")
    with open(sources.find("memory://bucket/rows.svm").path, "rb") as file:
        assert file.read() == b"1 1:2\n2 2:9\n"


def test_a_file_of_unknown_size_is_read_at_once(memory, monkeypatch):
    memory.pipe("/bucket/rows.svm", b"1 1:1\n")
    monkeypatch.setattr(type(memory), "size", lambda self, path: None)
    with open(sources.find("memory://bucket/rows.svm").path, "rb") as file:
        assert file.read() == b"1 1:1\n"


def test_missing_package_and_protocol_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(SourceError, match=r"^gs:// needs a package that is not there: .*gcsfs"):
        sources.find("gs://bucket/rows.svm")
    with pytest.raises(
        SourceError, match=r"nonsense://.* is neither a file nor the URL of a server"
    ):
        sources.find("nonsense://bucket/rows.svm")


@pytest.mark.parametrize("protocol", ["https", "s3", "memory"])
def test_credentials_in_a_url_are_refused_and_not_repeated(protocol, tmp_path):
    with pytest.raises(SourceError, match="holds credentials") as refused:
        storage.stage(f"{protocol}://user:canary@host/rows.svm", tmp_path / "X.zarr")
    assert "canary" not in str(refused.value)
    assert "user" not in str(refused.value)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "zip://a::file:///b.zip", "dir://x"])
def test_urls_of_this_machine_are_no_sources(url):
    assert not remote.is_remote(url)
    with pytest.raises(SourceError, match=r"does not exist|neither a file nor the URL of a server"):
        sources.find(url)


@pytest.mark.parametrize("name", ["..", ".lock", ".rows.svm.part", "registry.txt"])
def test_a_url_names_no_file_of_ours(name):
    assert downloader.file_name(f"s3://bucket/folder/{name}").startswith("download")
    assert not downloader.file_name(f"s3://bucket/folder/{name}").startswith(".")


def test_a_text_is_shown_without_the_secrets_of_its_urls():
    for secret, shown in (
        ("https://h/a.csv?X-Amz-Signature=canary&x=1", "https://h/a.csv?…"),
        ("GET https://user:canary@h/a.csv: 403", "GET https://h/a.csv: 403"),
        (
            "url='https://b.blob.core.windows.net/c/a?sig=canary', 403",
            "url='https://b.blob.core.windows.net/c/a?…', 403",
        ),
        ("s3://bucket/a.csv?canary#text=body", "s3://bucket/a.csv?…#text=body"),
        ("faces.mat?sample_shape=32x32", "faces.mat?sample_shape=32x32"),
    ):
        assert redact(secret) == shown
    assert "canary" not in str(
        Job(source="https://h/a.csv?token=can/canary", method="anova").with_out().out
    )


class ClientError(Exception):
    def __init__(self, status, code="X"):
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}


def test_what_a_server_refuses_for_good_may_pass():
    botocore = type("NoCredentialsError", (Exception,), {"__module__": "botocore.exceptions"})
    answer = type("ClientResponseError", (Exception,), {"status": 403})
    for error in (ClientError(403), ClientError(404), botocore(), answer()):
        assert not may_pass(error)
    for error in (ClientError(503), ClientError(429), ClientError(400, "RequestTimeout")):
        assert may_pass(error)
    for error in (OSError(5, "EIO"), TimeoutError()):
        assert may_pass(error)
    lasting = (errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ELOOP, errno.ENOTDIR, errno.ENOSPC)
    for error in (*(OSError(n, "") for n in lasting), OSError("broken bytes"), ValueError("x")):
        assert not may_pass(error)
    broken = SourceError("a.svm.bz2 is broken")
    broken.__cause__ = OSError("Invalid data stream")
    assert not may_pass(broken)
    assert may_pass(SourceError("a.svm changed while it was read", may_pass=True))
