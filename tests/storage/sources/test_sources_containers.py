"""Containers and compression: what holds the rows changes nothing, and other files get advice."""

import io
import tarfile

import pyarrow as pa
import pytest

from storage.sources import find
from tests.helpers.sources import SIZES, documents_of, refused, rows_of

LINES = b"".join(b"%d %d:%d\n" % (i % 2, 1 + i % 5, 1 + i) for i in range(300))


def zstandard(*frames):
    """Frames of Zstandard, with one to be skipped after the first, as pzstd writes them."""
    first, *rest = (pa.Codec("zstd").compress(frame, asbytes=True) for frame in frames)
    return b"".join((first, b"\x50\x2a\x4d\x18\x04\0\0\0skip", *rest))


@pytest.mark.parametrize("size", SIZES[1:])
def test_zstandard_of_several_frames_holds_all_rows(tmp_path, size):
    (tmp_path / "rows.svm").write_bytes(LINES)
    (tmp_path / "rows.svm.zst").write_bytes(zstandard(LINES[:1000], LINES[1000:]))
    X, y, _, _ = rows_of(find(tmp_path / "rows.svm"), tmp_path)
    X_zst, y_zst, _, _ = rows_of(find(tmp_path / "rows.svm.zst"), tmp_path, size)
    assert X.tolist() == X_zst.tolist()
    assert y.tolist() == y_zst.tolist()


def test_zstandard_of_documents_is_known_by_content(tmp_path):
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard(b'{"text": "one"}\n', b'{"text": "two"}\n'))
    (tmp_path / "a.csv.zst").write_bytes(zstandard(b"text\none\n", b"two\n"))
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, text in (("a/1", b"one"), ("b/2", b"two")):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    (tmp_path / "a.tar.zst").write_bytes(zstandard(tar.getvalue()))
    for name in ("a.jsonl.zst", "a.csv.zst", "a.tar.zst"):
        texts = [d.text for d in documents_of(find(tmp_path / name), tmp_path)]
        assert texts == ["one", "two"], name


def test_truncated_zstandard_is_refused(tmp_path):
    (tmp_path / "rows.svm.zst").write_bytes(zstandard(LINES, LINES)[:-3])
    refused(tmp_path / "rows.svm.zst", "is broken: Truncated", tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message", "options"),
    [
        ("a.csv", b"", "is empty", {}),
        ("a.duckdb", b"x" * 20, "cannot be read as it is: export a table of it to Parquet", {}),
        ("a.xlsx", b"PK\x03\x04rest", "cannot be read as it is: save the sheet as CSV", {}),
        ("a.arff", b"@relation r", "cannot be read as it is: export it to Parquet, as by", {}),
        ("a.txt", b"some words\n", "is one text, and a corpus has many", {"format": "text"}),
    ],
)
def test_what_cannot_be_read_gets_advice(tmp_path, name, content, message, options):
    (tmp_path / name).write_bytes(content)
    refused(tmp_path / name, message, tmp_path, **options)
