"""Archives: a folder and an archive of it hold the same documents; a damaged archive is refused by
name, within the memory.
"""

import io
import os
import pickle
import stat
import subprocess
import tarfile
import zipfile

import numpy as np
import pytest

from bigfs import storage
from bigfs.engine import MemoryLimitError
from bigfs.storage import sources
from bigfs.storage.errors import SourceError
from tests.helpers.sources import documents_of, refused

DOCUMENTS = {f"{'ab'[i % 2]}/{i:02d}": f"document {i} ".encode() * (60 + i) for i in range(20)}


def write_tar(path, documents=DOCUMENTS):
    with tarfile.open(path, "w") as out:
        for name, raw in documents.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            out.addfile(member, io.BytesIO(raw))
    return path


def write_zip(path, documents=DOCUMENTS, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as out:
        for name, raw in documents.items():
            out.writestr(name, raw)
    return path


def headers(path):
    """Where the headers of a tar begin."""
    with tarfile.open(path) as tar:
        return [member.offset for member in tar]


def read(path, scratch, size=10**9):
    return [(d.name, d.label, d.text) for d in documents_of(sources.find(path), scratch, size)]


@pytest.mark.parametrize("size", [1, 3000, 10**9])
@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_archive_gives_its_documents_in_any_pieces(tmp_path, write, size):
    expected = [(name, name[0], raw.decode()) for name, raw in sorted(DOCUMENTS.items())]
    assert read(write(tmp_path / "archive"), tmp_path, size) == expected


@pytest.mark.parametrize(
    "into",
    [0, 200, 512, 700],
    ids=["between members", "in a header", "after a header", "in a document"],
)
def test_tar_refuses_an_early_end(tmp_path, into):
    path = write_tar(tmp_path / "a.tar")
    cut = headers(path)[7] + into
    path.write_bytes(path.read_bytes()[:cut])
    refused(path, "is broken: (it ends early, after a/06|it ends early|unexpected end)", tmp_path)


@pytest.mark.parametrize("content", [b"\xff" * 512, b"\0" * 512, b"a" * 100 + b"\0" * 412])
def test_tar_refuses_a_bad_header(tmp_path, content):
    path = write_tar(tmp_path / "a.tar")
    raw, at = path.read_bytes(), headers(path)[5]
    path.write_bytes(raw[:at] + content + raw[at + 512 :])
    refused(
        path,
        "is broken: (the header after a/04 is bad|data lies behind its end, after a/04)",
        tmp_path,
    )


def test_tar_refuses_a_size_that_leads_back(tmp_path):
    path = write_tar(tmp_path / "a.tar")
    raw, at = bytearray(path.read_bytes()), headers(path)[5]
    raw[at + 124 : at + 136] = (-4096).to_bytes(12, "big", signed=True)
    raw[at + 148 : at + 156] = b" " * 8
    raw[at + 148 : at + 156] = f"{sum(raw[at : at + 512]):06o}\0 ".encode()
    path.write_bytes(raw)
    refused(path, "is broken", tmp_path)


def test_tar_refuses_a_header_as_large_as_the_memory(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as out:
        out.addfile(tarfile.TarInfo("a/" + "x" * (2 << 20)))
    refused(path, "is broken: a header claims", tmp_path)


def test_tar_refuses_a_sparse_member_by_name(tmp_path):
    (tmp_path / "a").mkdir()
    for i in range(3):
        (tmp_path / "a" / f"{i}.txt").write_text(f"document {i}")
    with open(tmp_path / "a" / "1.txt", "r+b") as file:
        file.truncate(200_000)
        file.seek(199_990)
        file.write(b"the end")
    subprocess.run(["tar", "-S", "-cf", "s.tar", "a"], cwd=tmp_path, check=True)
    refused(
        tmp_path / "s.tar",
        r"a/1\.txt is a sparse file: pack the archive " r"without tar --sparse",
        tmp_path,
    )


@pytest.mark.parametrize("form", ["folder", "tar"])
def test_hard_link_is_a_document_of_its_own(tmp_path, form):
    folder = tmp_path / "docs"
    for i in range(5):
        (folder / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        (folder / "ab"[i % 2] / f"{i}.txt").write_text(f"document {i}")
        os.link(folder / "ab"[i % 2] / f"{i}.txt", folder / "ab"[i % 2] / f"{i}-link.txt")
    names = [f"{'ab'[i % 2]}/{i}{end}.txt" for i in (0, 2, 4, 1, 3) for end in ("-link", "")]
    expected = [(name, name[0], f"document {name[2]}") for name in names]
    path = folder
    if form == "tar":
        path = tmp_path / "docs.tar"
        with tarfile.open(path, "w") as out:
            for name in ("a", "b"):
                out.add(folder / name, name)
    assert read(path, tmp_path, 1) == expected


def test_tar_refuses_links_that_it_does_not_hold(tmp_path):
    for kind, message in (
        (tarfile.LNKTYPE, "a/link is a hard link to a/none"),
        (tarfile.SYMTYPE, "a/link is a symbolic link: pack"),
    ):
        with tarfile.open(tmp_path / "a.tar", "w") as out:
            member = tarfile.TarInfo("a/link")
            member.type, member.linkname = kind, "a/none"
            out.addfile(member)
        refused(tmp_path / "a.tar", message, tmp_path)


def test_zip_refuses_a_symbolic_link(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as out:
        info = zipfile.ZipInfo("a/link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        out.writestr(info, "/etc/passwd")
    refused(tmp_path / "a.zip", "a/link is a symbolic link", tmp_path)


@pytest.mark.parametrize("cut", [30, 200, 2000])
def test_zip_refuses_an_early_end(tmp_path, cut):
    path = write_zip(tmp_path / "a.zip")
    path.write_bytes(path.read_bytes()[:-cut])
    refused(path, "is broken: File is not a zip file", tmp_path)


def test_npz_refuses_an_early_end(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones((3, 2)))
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-30])
    refused(tmp_path / "a.npz", "cannot be read as npz: .*not a zip file", tmp_path)


def test_last_member_of_a_name_counts(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as out:
        for raw in (b"old", b"other", b"new"):
            member = tarfile.TarInfo("a/other" if raw == b"other" else "a/text")
            member.size = len(raw)
            out.addfile(member, io.BytesIO(raw))
    assert read(tmp_path / "a.tar", tmp_path) == [("a/other", "a", "other"), ("a/text", "a", "new")]


@pytest.mark.parametrize("form", ["folder", "tar"])
def test_name_that_is_not_utf8_is_read_as_latin1(tmp_path, form):
    folder = os.fsencode(tmp_path / "docs")
    for name in (b"caf\xe9", b"th\xe9"):
        os.makedirs(folder + b"/" + name)
        for i in range(2):
            with open(folder + b"/" + name + b"/\xff%d" % i, "w") as out:
                out.write("the same words")
    path = tmp_path / "docs"
    if form == "tar":
        path = tmp_path / "docs.tar"
        with tarfile.open(path, "w") as out:
            for name in (b"caf\xe9", b"th\xe9"):
                out.add(os.fsdecode(folder + b"/" + name), os.fsdecode(name))
    corpus = storage.open(storage.stage(path, tmp_path / "a.zarr"))
    assert corpus.class_names == ["café", "thé"]
    assert list(corpus.sample_names) == ["café/ÿ0", "café/ÿ1", "thé/ÿ0", "thé/ÿ1"]


# --- memory ---------------------------------------------------------------------------------------


def too_large(path, match, tmp_path, memory_limit="512MB"):
    with pytest.raises(MemoryLimitError, match=match) as caught:
        storage.stage(path, tmp_path / "a.zarr", memory_limit=memory_limit)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a.zarr").exists()


@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_a_member_beyond_the_memory_is_refused_before_it_is_read(tmp_path, write):
    path = write(tmp_path / "bomb", {"a/small": b"words", "a/bomb": bytes(20 << 20)})
    too_large(
        path,
        r"bomb: a/bomb: a record of 20\.00 MiB cannot be cut and needs .* is "
        r"allowed: raise --memory-limit",
        tmp_path,
    )


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_lies_about_sizes_is_not_inflated_further(tmp_path, method):
    """A member of 3 MB whose headers say 1000 bytes."""
    path = write_zip(tmp_path / "a.zip", {"a/bomb": bytes(3 << 20)}, method)
    raw = path.read_bytes().replace((3 << 20).to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    path.write_bytes(raw)
    refused(path, "is broken: (Bad CRC-32|a/bomb has)", tmp_path)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a.jsonl", '{"text": "%s"}\n'),
        ("features.jsonl", '{"features": {"1": 1}, "id": "%s"}\n'),
        ("a.csv", '"%s"\n'),
        ("a.svm", "1 1:0.5 # %s\n"),
    ],
)
def test_a_record_beyond_the_memory_is_refused(tmp_path, name, line):
    first = "text\n" if name == "a.csv" else ""
    (tmp_path / name).write_text(first + line % "x" + line % ("word " * (8 << 20)) + line % "x")
    too_large(
        tmp_path / name,
        f"{name}.*(line|byte|record 1:).* cannot be cut and needs .* is allowed: "
        f"raise --memory-limit",
        tmp_path,
    )


@pytest.mark.parametrize("name", ["joined", "topics"])
def test_a_source_of_others_holds_them_to_the_memory(tmp_path, name):
    (tmp_path / "a.svm").write_text("1 1:0.5\n1 1:0.5 # %s\n" % ("word " * (8 << 20)))
    (tmp_path / "qrels").write_text("x 1 1\n")
    parts = [(sources.find(tmp_path / "a.svm"), "train")]
    source = (
        sources.join("both", parts)
        if name == "joined"
        else sources.Topics("both", parts, str(tmp_path / "qrels"))
    )
    with pytest.raises(MemoryLimitError, match=r"a\.svm, the line at byte .* cannot be cut"):
        storage.stage(source, tmp_path / "a.zarr", memory_limit="400MB")


def test_a_long_list_of_members_is_refused_by_memory(tmp_path):
    path = write_tar(tmp_path / "a.tar")
    source = sources.find(path)
    source.memory_limit = 1000
    with pytest.raises(MemoryLimitError, match=r"the list of documents of .*a\.tar needs"):
        source.pieces(10**6)
    source.memory_limit = 10**6
    assert len(source.pieces(10**6)) == 1


def test_a_piece_of_empty_documents_is_short(tmp_path):
    path = write_tar(tmp_path / "a.tar", {f"a/{i}": b"" for i in range(100)})
    assert [len(piece.names) for piece in sources.find(path).pieces(2560)] == [10] * 10


def test_a_broken_member_is_one_line(tmp_path):
    path = write_zip(tmp_path / "a.zip")
    raw = bytearray(path.read_bytes())
    raw[40:50] = bytes(10)
    path.write_bytes(raw)
    with pytest.raises(SourceError, match=r"a\.zip is broken") as caught:
        read(path, tmp_path)
    assert "\n" not in str(caught.value)


def test_zip_refuses_a_member_without_a_name(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"a/1": b"words"})
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 46] = 0  # the name ends where it begins
    path.write_bytes(raw)
    refused(path, "is broken: |is a broken zip archive: ", tmp_path)


@pytest.mark.parametrize("extra", [None, 2**62])
def test_zip_refuses_a_member_that_begins_nowhere(tmp_path, extra):
    """A place in the list that is beyond the file, or before its beginning."""
    path = write_zip(tmp_path / "a.zip", {"a/1": b"words"})
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\x01\x02")
    if extra is None:
        # the list lies earlier than it does: zipfile then looks before the beginning
        end = raw.index(b"PK\x05\x06")
        raw[end + 16 : end + 20] = (at + 10).to_bytes(4, "little")
    else:
        raw[at + 42 : at + 46] = b"\xff" * 4  # a place of 8 bytes follows
        field = (1).to_bytes(2, "little") + (8).to_bytes(2, "little") + extra.to_bytes(8, "little")
        raw[at + 30 : at + 32] = len(field).to_bytes(2, "little")
        raw[at + 46 + 3 : at + 46 + 3] = field
        end = raw.index(b"PK\x05\x06")
        raw[end + 12 : end + 16] = (end - at).to_bytes(4, "little")
    path.write_bytes(raw)
    refused(path, "is broken", tmp_path)


@pytest.mark.parametrize(
    "line", ['{"text": "%s"}\n', '{"features": {"1": 1}, "id": "%s"}\n'], ids=["text", "features"]
)
def test_a_worker_refuses_a_line_beyond_its_memory(tmp_path, line):
    """The bound goes with the source to the worker."""
    (tmp_path / "a.jsonl").write_text(line % "x" + line % ("word " * 1000))
    source = sources.find(tmp_path / "a.jsonl")
    source.memory_limit = 4000 * source.memory_per_byte
    ready = pickle.loads(pickle.dumps(source))  # noqa: S301, as a worker gets it
    [piece] = source.pieces(10**6)
    with pytest.raises(MemoryLimitError, match=r"a\.jsonl, line 2: a record of .* cannot be cut"):
        list(ready.read(piece))
