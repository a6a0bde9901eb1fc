"""Containers and compression: what holds the rows changes nothing, and other files get advice."""

import gzip
import io
import json
import tarfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from bigfs import storage
from bigfs.engine import MemoryLimitError, limit_memory
from bigfs.storage.errors import SourceError
from bigfs.storage.sources import find
from bigfs.storage.sources.tables.columnar import MAX_GROUP_BYTES
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
        ("a.arff", b"@relation r", "cannot be read as it is: export it to CSV", {}),
        ("a.txt", b"some words\n", "is one text, and a corpus has many", {"format": "text"}),
    ],
)
def test_what_cannot_be_read_gets_advice(tmp_path, name, content, message, options):
    (tmp_path / name).write_bytes(content)
    refused(tmp_path / name, message, tmp_path, **options)


# --- tables ---------------------------------------------------------------------------------------


def frame_of(n, seed=0):
    """Two numbers, a Boolean, a category, a label, a name and a text."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "a": rng.integers(0, 3, n) / 4,
            "b": rng.random(n),
            "is_c": rng.random(n) < 0.5,
            "color": rng.choice(["red", "green"], n),
            "label": rng.choice(["x", "y"], n),
            "id": [f"s{i}" for i in range(n)],
            "text": [f"word{i} naïve" for i in range(n)],
        }
    )


def write_arrow(table, path, rows=7, new=pa.ipc.new_file, compression=None):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with new(path, table.schema, options=options) as out:
        out.write_table(table, max_chunksize=rows)


def write_stream(table, path):
    write_arrow(table, path, new=pa.ipc.new_stream)


def write_views(table, path):
    """As polars does, with dictionaries and views of texts."""
    table = table.set_column(3, "color", table["color"].dictionary_encode())
    columns = [
        column.cast(pa.string_view()) if pa.types.is_string(column.type) else column
        for column in table.cast(pa.schema(table.schema)).columns
    ]
    write_arrow(pa.table(columns, names=table.schema.names), path)


def write_compressed(write, compress):
    def write_both(table, path):
        write(table, path)
        path.write_bytes(compress(path.read_bytes()))

    return write_both


def write_csv(table, path):
    table.to_pandas().to_csv(path, index=False, compression=None)


CONTAINERS = {
    "a.csv": write_csv,
    "a.csv.zst": write_compressed(write_csv, zstandard),
    "a.tsv": lambda table, path: table.to_pandas().to_csv(path, index=False, sep="\t"),
    "a.parquet": lambda table, path: pa.parquet.write_table(table, path, row_group_size=7),
    "a.arrow": write_arrow,
    "a.feather": lambda table, path: write_arrow(table, path, compression="lz4"),
    "a.ipc": write_views,
    "a.arrows": write_stream,
    "a.arrow.gz": write_compressed(write_arrow, gzip.compress),
    "a.arrows.zst": write_compressed(write_stream, zstandard),
}
NUMBERS = {"columns": "a,b,is_c,color", "categories": "color"}


@pytest.mark.nightly
def test_the_same_table_in_all_containers_gives_equal_stores(tmp_path):
    table = pa.Table.from_pandas(frame_of(40), preserve_index=False)
    contents = {}
    for name, write in CONTAINERS.items():
        write(table, tmp_path / name)
        store = storage.stage(tmp_path / name, tmp_path / f"{name}.zarr", **NUMBERS)
        contents[name] = storage.open(store).manifest.content
        for where in ("folder", "pattern"):
            folder = tmp_path / f"{name}-{where}"
            folder.mkdir()
            write(table.slice(0, 15), folder / name)
            write(table.slice(15), folder / f"b{name}")
            source = folder if where == "folder" else folder / f"*{name}"
            store = storage.stage(source, tmp_path / f"{name}-{where}.zarr", **NUMBERS)
            contents[f"{name}-{where}"] = storage.open(store).manifest.content
    assert len(contents) == 30
    assert len(set(contents.values())) == 1, contents
    corpus = storage.open(store)
    assert list(corpus.feature_names) == ["a", "b", "color=green", "color=red", "is_c"]
    want = frame_of(40)[["a", "b", "is_c"]].astype(np.float32)
    np.testing.assert_array_equal(corpus.X.rows(np.arange(40)).toarray()[:, [0, 1, 4]], want)


@pytest.mark.parametrize("limit", [1 << 25, 100])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CONTAINERS)
def test_rows_and_documents_of_containers_in_any_pieces(tmp_path, change, name, size, limit):
    """In place, and laid out on scratch where a part is larger than the limit."""
    change(MAX_GROUP_BYTES, limit)
    frame = frame_of(40)
    CONTAINERS[name](pa.Table.from_pandas(frame, preserve_index=False), tmp_path / name)
    source = find(tmp_path / name, where="b > 0.25", columns="b")
    X, y, _, names = rows_of(source, tmp_path / "scratch", size)
    kept = frame[frame.b > 0.25]
    assert X[:, 0].tolist() == kept.b.tolist()
    assert (y.tolist(), names.tolist()) == (kept.label.tolist(), kept.id.tolist())
    documents = documents_of(find(tmp_path / name), tmp_path / "scratch", size)
    assert [(d.text, d.label) for d in documents] == list(zip(frame.text, frame.label, strict=True))
    in_place = name in ("a.parquet", "a.arrow", "a.feather", "a.ipc") and limit > 100
    assert (find(tmp_path / name).prepare(tmp_path / "scratch").on_scratch is None) == in_place


@pytest.mark.parametrize("name", ["a.parquet", "a.feather"])
def test_a_part_counts_its_values_where_their_encoding_is_short(tmp_path, name):
    """Categories that take a bit each in the file have entries of the size of others."""
    sides = np.resize(["left", "right"], 50_000)
    columns = {f"C{j}": pa.array(sides).dictionary_encode() for j in range(6)}
    table = pa.table({"label": np.arange(50_000) % 2, **columns})
    if name == "a.parquet":
        pa.parquet.write_table(table, tmp_path / name)
    else:
        write_arrow(table, tmp_path / name, 10_000, compression="lz4")
    source = find(tmp_path / name, columns="C*", categories="C*")
    assert sum(part.size for part in source.parts()) >= 4 * 7 * 50_000


def test_a_part_on_scratch_counts_its_values_too(tmp_path):
    table = pa.table({f"I{j}": np.ones(50_000, dtype=np.int8) for j in range(7)})
    write_arrow(table, tmp_path / "a.arrows", 50_000, new=pa.ipc.new_stream)
    source = find(tmp_path / "a.arrows", columns="I*").prepare(tmp_path / "scratch")
    assert source.on_scratch
    assert sum(part.size for part in source.parts()) >= 4 * 7 * 50_000


def test_a_stream_whose_batch_does_not_fit_is_refused(tmp_path):
    table = pa.table({"x": np.arange(1e6)})
    write_arrow(table, tmp_path / "a.arrows", 1 << 12, pa.ipc.new_stream)
    write_arrow(table, tmp_path / "b.arrows", 1 << 20, pa.ipc.new_stream)
    with limit_memory(4 << 20):
        assert len(rows_of(find(tmp_path / "a.arrows", columns="x"), tmp_path / "s")[0]) == 10**6
        with pytest.raises(MemoryLimitError, match=r"b\.arrows: a record batch cannot be cut"):
            find(tmp_path / "b.arrows", columns="x").prepare(tmp_path / "t")


def test_lines_of_many_files_are_one_source(tmp_path):
    (tmp_path / "d").mkdir()
    for name, texts in (("b.jsonl.zst", ["three"]), ("a.jsonl", ["one", "two"])):
        lines = "".join(json.dumps({"text": text, "label": name}) + "\n" for text in texts)
        raw = lines.encode()
        (tmp_path / "d" / name).write_bytes(zstandard(raw) if name.endswith("zst") else raw)
    for source in (tmp_path / "d", tmp_path / "d" / "*.jsonl*"):
        for size in SIZES:
            documents = documents_of(find(source), tmp_path / "scratch", size)
            assert [d.text for d in documents] == ["one", "two", "three"]
            assert [d.label for d in documents] == ["a.jsonl", "a.jsonl", "b.jsonl.zst"]
    (tmp_path / "d" / "c.jsonl").write_text('{"text": 1}\n')
    refused(tmp_path / "d", r"c\.jsonl, line 1: text must be a text", tmp_path / "scratch")
    (tmp_path / "d" / "c.jsonl").write_text('{"features": {"0": 1}}\n')
    refused(tmp_path / "d", r"c\.jsonl, line 1 has no field 'text'", tmp_path / "scratch")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow", "a.arrows"])
def test_a_file_with_other_columns_is_named(tmp_path, name):
    frame = frame_of(20)
    for where, table in (("a", frame), ("b", frame.drop(columns="b"))):
        (tmp_path / where).mkdir()
        CONTAINERS[name](pa.Table.from_pandas(table), tmp_path / where / name)
    drop = "*,!color,!text"
    pattern = tmp_path / "[ab]" / name
    refused(
        pattern, rf"b/{name} lacks the columns 'b', other than .*a/{name}", tmp_path, columns=drop
    )
    pattern = tmp_path / "[ba]" / name
    CONTAINERS[name](pa.Table.from_pandas(frame.assign(z=1.0)), tmp_path / "b" / name)
    refused(pattern, rf"b/{name} has also the columns 'z', other than", tmp_path, columns=drop)
    X = rows_of(find(pattern, columns="a,b"), tmp_path / "s")[0]
    assert X[:, 1].tolist() == [*frame.b, *frame.b]


def test_patterns_of_other_files_and_of_none_are_refused(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n")
    refused(tmp_path / "*.svm", "format svmlight, and a pattern is for tables and JSON", tmp_path)
    refused(tmp_path / "*.csv", "no file has a name like", tmp_path)


# --- encodings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "latin-1", "utf-8-sig"])
def test_csv_of_other_encodings_is_read_as_utf_8(tmp_path, encoding):
    text = "text,größe\n" + "".join(f"naïve café {i},{i}\n" for i in range(20_000))
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(text.encode(encoding)))
    for path in (tmp_path / "a.csv", tmp_path / "b.csv.gz"):
        options = {"encoding": encoding, "format": "csv"}
        documents = documents_of(find(path, **options), tmp_path / "s")
        assert [d.text for d in documents] == [f"naïve café {i}" for i in range(20_000)]
        X = rows_of(find(path, columns="größe", **options), tmp_path / "s")[0]
        assert X[:, 0].tolist() == list(range(20_000))
    if encoding in ("cp1252", "latin-1", "utf-16-le"):  # others have a mark
        refused(tmp_path / "a.csv", "give its encoding=", tmp_path / "s", format="csv")


def test_other_encodings_that_are_wrong_or_unknown_are_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes("text\ncafé\n".encode("latin-1"))
    with pytest.raises(SourceError, match="encoding='klingon' is unknown"):
        find(tmp_path / "a.csv", encoding="klingon")
    refused(tmp_path / "a.csv", "it is not ascii", tmp_path, encoding="ascii")


def test_texts_of_other_encodings_are_decoded(tmp_path):
    for label in "ab":
        (tmp_path / "d" / label).mkdir(parents=True)
        (tmp_path / "d" / label / "1").write_bytes("naïve".encode("utf-16"))
    texts = [d.text for d in documents_of(find(tmp_path / "d", encoding="utf-16"), tmp_path)]
    assert texts == ["naïve", "naïve"]
    (tmp_path / "d" / "b" / "2").write_bytes(b"abc")
    refused(tmp_path / "d", "d: b/2 is not utf-16", tmp_path, encoding="utf-16")
