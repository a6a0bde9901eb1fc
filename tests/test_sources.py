"""Formats in: what is written comes back, in any pieces; what is broken is one clear line."""

import bz2
import gzip
import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import storage
from bigfs.blocks import NotEnoughMemory
from storage import sources
from storage.errors import SourceError
from storage.sources import labels

SIZES = [1, 200, 10**9]  # bytes a piece: one row or so, a few, all


@pytest.fixture
def matrix(rng):
    X = sp.random_array((23, 17), density=0.2, format="csr", rng=rng, dtype=np.float64)
    X.data = np.round(X.data, 3) + 0.001
    return X


def rows_of(source, scratch, size=10**9):
    """All rows of a source read piece by piece, as a worker would: dense X, y, split, names."""
    ready = source.unpacked(scratch)
    parts = [pickle.loads(pickle.dumps(ready)).read(piece) for piece in ready.pieces(size)]  # noqa: S301, as a worker gets it
    parts = [part for part in parts if part.X.shape[0]]  # no line begins in a very small piece
    width = ready.n_features or max(part.X.shape[1] for part in parts)
    for part in parts:
        assert part.X.has_canonical_format
        part.X.resize(part.X.shape[0], width)
    y, split, names = (None if parts[0][k] is None else np.concatenate([part[k] for part in parts]) for k in (1, 2, 3))
    return np.vstack([part.X.toarray() for part in parts]), y, split, names


def documents_of(source, scratch, size=10**9):
    ready = source.unpacked(scratch)
    return [document for piece in ready.pieces(size) for document in pickle.loads(pickle.dumps(ready)).read(piece)]  # noqa: S301


def consumed(path, scratch, size=10**9, **options):
    """Everything a source gives, read and thrown away."""
    ready = sources.find(path, **options).unpacked(scratch)
    for piece in ready.pieces(size):
        part = ready.read(piece)
        if not hasattr(part, "X"):
            list(part)


def refused(path, match, scratch, size=10**9, **options):
    """Reading it is a SourceError of one line that names the file."""
    with pytest.raises(SourceError, match=match) as caught:
        consumed(path, scratch, size, **options)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


def whole_or_refused(read, *args, **options):
    """What `read` gives, or "refused"; any error but one of our own, of one line, goes through."""
    try:
        return read(*args, **options)
    except (SourceError, NotEnoughMemory) as error:
        return "refused" if "\n" not in str(error) else "refused at length"


# --- matrices -----------------------------------------------------------------------------------


def save_matrix(kind, path, X):
    if kind == "npy":
        np.save(path, X.toarray())
    elif kind in ("csr", "csc", "coo"):
        sp.save_npz(path, X.asformat(kind), compressed=kind != "csc")
    elif kind == "dense.npz":
        np.savez_compressed(path, X=X.toarray(), y=np.arange(X.shape[0]) % 3)
    elif kind == "mat":
        scipy.io.savemat(path, {"X": X, "Y": np.arange(X.shape[0])[:, None] % 3})
    elif kind == "dense.mat":
        scipy.io.savemat(path, {"fea": X.toarray(), "gnd": np.arange(X.shape[0])[:, None] % 3})
    elif kind == "mtx":
        scipy.io.mmwrite(path, X)
    elif kind == "dense.mtx":
        scipy.io.mmwrite(path, X.toarray())
    elif kind == "mtx.gz":
        scipy.io.mmwrite(path.with_suffix(""), X)
        path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))


MATRICES = {
    "npy": ("X.npy", "npy"),
    "csr": ("X.npz", "npz"),
    "csc": ("X.npz", "npz"),
    "coo": ("X.npz", "npz"),
    "dense.npz": ("X.npz", "npz"),
    "mat": ("X.mat", "mat"),
    "dense.mat": ("X.mat", "mat"),
    "mtx": ("X.mtx", "mtx"),
    "dense.mtx": ("X.mtx", "mtx"),
    "mtx.gz": ("X.mtx.gz", "mtx"),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", MATRICES)
def test_matrices_come_back(tmp_path, matrix, kind, size):
    name, format = MATRICES[kind]
    save_matrix(kind, tmp_path / name, matrix)
    source = sources.find(tmp_path / name)
    assert source.format == format
    X, y, *_ = rows_of(source, tmp_path / "scratch", size)
    np.testing.assert_array_equal(X, matrix.toarray())
    if kind in ("dense.npz", "mat", "dense.mat"):
        np.testing.assert_array_equal(y, np.arange(23) % 3)
    if size == 1:
        assert len(source.unpacked(tmp_path / "scratch").pieces(size)) == 23


def test_what_has_no_labels_takes_a_file_of_them(tmp_path, matrix):
    sp.save_npz(tmp_path / "X.npz", matrix)
    (tmp_path / "y.txt").write_text("spam\n\nham\n" + "spam\n" * 20)
    y = rows_of(sources.find(tmp_path / "X.npz", labels=str(tmp_path / "y.txt")), tmp_path, 200)[1]
    assert y.tolist() == ["spam", "", "ham", *["spam"] * 20]
    np.save(tmp_path / "y.npy", np.arange(23))
    y = rows_of(sources.find(tmp_path / "X.npz", labels=str(tmp_path / "y.npy")), tmp_path, 200)[1]
    assert y.tolist() == list(range(23))
    (tmp_path / "few.txt").write_text("1\n2\n")
    with pytest.raises(SourceError, match=r"few\.txt has 2 labels for 23 rows"):
        sources.find(tmp_path / "X.npz", labels=str(tmp_path / "few.txt")).unpacked(tmp_path)


def test_a_stack_of_images_is_flattened_columns_first(tmp_path, rng):
    stack = rng.integers(0, 255, (9, 4, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", stack)
    source = sources.find(tmp_path / "images.npy").unpacked(tmp_path)
    assert source.sample_shape == (4, 3)
    X, *_ = rows_of(source.__class__(str(tmp_path / "images.npy")), tmp_path, 30)
    for image, row in zip(stack, X, strict=True):
        np.testing.assert_array_equal(row, image.T.ravel())
        np.testing.assert_array_equal(row.reshape(4, 3, order="F"), image)
    np.savez(tmp_path / "images.npz", X=stack, y=np.array(list("abcabcabc")))
    X2, y, *_ = rows_of(sources.find(tmp_path / "images.npz"), tmp_path)
    np.testing.assert_array_equal(X2, X)
    assert "".join(y) == "abcabcabc"


def test_matlab_7_3(tmp_path, matrix):
    h5py = pytest.importorskip("h5py", reason="h5py is an optional extra")
    csc = matrix.tocsc()
    with h5py.File(tmp_path / "v73.mat", "w", userblock_size=512) as file:
        file["Y"] = (np.arange(23) % 2)[None]
        group = file.create_group("X")
        group.attrs["MATLAB_sparse"] = 23
        for name, array in (("data", csc.data), ("ir", csc.indices), ("jc", csc.indptr)):
            group[name] = array
        file["dense"] = matrix.toarray().T
    with open(tmp_path / "v73.mat", "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(128))
    for options in ({}, {"x": "dense"}):
        X, y, *_ = rows_of(sources.find(tmp_path / "v73.mat", **options), tmp_path, 100)
        np.testing.assert_array_equal(X, matrix.toarray())
        np.testing.assert_array_equal(y, np.arange(23) % 2)


def test_real_matlab_files(real_data, tmp_path):
    X, y, *_ = rows_of(sources.find(real_data / "colon.mat"), tmp_path, 10**5)
    assert X.shape == (62, 2000)
    assert set(y.tolist()) == {-1, 1}  # two classes: −1 is one of them
    source = sources.find(real_data / "COIL20.mat", sample_shape="32x32").unpacked(tmp_path)
    assert (source.n_features, source.sample_shape) == (1024, (32, 32))
    assert len(np.unique(rows_of(sources.find(real_data / "PCMAC.mat"), tmp_path)[1])) == 2


# --- AnnData ------------------------------------------------------------------------------------


def write_anndata(root, X, kind, text):
    """By the published encoding; `text(group, name, values)` writes a string array as the library at hand does."""
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    if kind == "array":
        root["X"] = X.toarray()
        root["X"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    else:
        group = root.create_group("X")
        S = X.asformat(kind[:3])
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(S, name)
        group.attrs.update({"encoding-type": kind, "encoding-version": "0.1.0", "shape": list(X.shape)})
    for frame, length in (("obs", X.shape[0]), ("var", X.shape[1])):
        group = root.create_group(frame)
        group.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index", "column-order": []})
        text(group, "_index", [f"{frame}{i}" for i in range(length)])
    cell = root["obs"].create_group("cell")
    cell.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
    text(cell, "categories", ["B", "T"])
    cell["codes"] = np.array([-1, *(np.arange(X.shape[0] - 1) % 2)], dtype=np.int8)
    root["obs"]["label"] = np.arange(X.shape[0]) % 3


def zarr_text(group, name, values):
    group.create_array(name, shape=(len(values),), dtype=str)[:] = np.array(values)


@pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification")  # zarr on its own strings
@pytest.mark.parametrize("kind", ["csr_matrix", "csc_matrix", "array"])
@pytest.mark.parametrize("container", ["zarr", "h5ad"])
def test_anndata(tmp_path, matrix, kind, container):
    path = tmp_path / f"cells.{container}"
    if container == "zarr":
        write_anndata(zarr.open_group(path, mode="w"), matrix, kind, zarr_text)
    else:
        h5py = pytest.importorskip("h5py", reason="h5py is an optional extra")
        with h5py.File(path, "w") as file:
            write_anndata(file, matrix, kind, lambda group, name, values: group.create_dataset(name, data=values))
    for size in SIZES:
        X, y, _, names = rows_of(sources.find(path), tmp_path, size)
        np.testing.assert_array_equal(X, matrix.toarray())
        assert y.tolist() == [i % 3 for i in range(23)]
        assert names.tolist() == [f"obs{i}" for i in range(23)]
    source = sources.find(path, label="cell").unpacked(tmp_path)
    assert source.feature_names == [f"var{j}" for j in range(17)]
    assert rows_of(source, tmp_path, 200)[1].tolist() == ["", *["B", "T"] * 11]
    refused(path, r"no obs\['none'\], only cell, label|no obs\['none'\], only label, cell", tmp_path, label="none")
    refused(path, "has no layers/raw", tmp_path, layer="raw")


def test_a_staged_store_is_a_source_itself(tmp_path):
    """What we write is AnnData's layout: the same matrix, labels, split and names come back."""
    source = sources.find("synthetic:newswire?rows=300")
    uri = storage.stage(source, tmp_path / "nw.zarr")
    again = sources.find(uri)
    assert again.format == "anndata"
    X, y, split, _ = rows_of(again, tmp_path / "scratch", 10_000)
    expected = source.read((0, 300))
    order = np.argsort(expected.split == "test", kind="stable")  # a store has the training rows first
    np.testing.assert_array_equal(X, expected.X.toarray()[order])
    assert y.tolist() == [source.class_names[c] for c in expected.y[order]]
    assert split.tolist() == expected.split[order].tolist()
    assert again.unpacked(tmp_path).feature_names == list(source.feature_names)


def test_broken_anndata_names_the_file(tmp_path, matrix):
    path = tmp_path / "cells.zarr"
    root = zarr.open_group(path, mode="w")
    root.attrs["encoding-type"] = "anndata"
    refused(path, "has no X", tmp_path)
    group = root.create_group("X")
    group.attrs.update({"encoding-type": "csr_matrix", "shape": [23, 17]})
    refused(path, "is broken", tmp_path)


# --- documents ----------------------------------------------------------------------------------

TEXTS = ["one", "zwei, drei", 'say "four"\nand five', "", "naïve café 東京", "x" * 1000, "tab\there"]


def write_documents(kind, path):
    label = ["a", "b", None, "a", "", "b", "a"]
    if kind == "jsonl":
        lines = [json.dumps({"text": t, "label": c, "id": i, "split": "train"}) for i, (t, c) in enumerate(zip(TEXTS, label, strict=True))]
        path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    elif kind == "jsonl.gz":
        write_documents("jsonl", path)
        path.write_bytes(gzip.compress(path.read_bytes()))
    elif kind in ("csv", "tsv", "csv.bz2"):
        mark = "\t" if kind == "tsv" else ","
        quoted = ['"' + t.replace('"', '""') + '"' for t in TEXTS]
        lines = [mark.join((str(i), t, c or "", "train")) for i, (t, c) in enumerate(zip(quoted, label, strict=True))]
        text = "\n".join([mark.join(("id", "text", "label", "split")), *lines])
        path.write_bytes(bz2.compress(text.encode()) if kind == "csv.bz2" else text.encode())
    else:
        table = pa.table(
            {"text": TEXTS, "label": label, "id": range(len(TEXTS)), "split": ["train"] * len(TEXTS), "more": [[1]] * len(TEXTS)}
        )
        if kind == "folder":
            path.mkdir()
            pq.write_table(table.slice(0, 3), path / "a.parquet")
            pq.write_table(table.slice(3), path / "b.parquet")
        else:
            pq.write_table(table, path, row_group_size=2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("kind", "name", "format"),
    [
        ("jsonl", "d.jsonl", "jsonl"),
        ("jsonl.gz", "d.jsonl.gz", "jsonl"),
        ("csv", "d.csv", "csv"),
        ("tsv", "d.tsv", "csv"),
        ("csv.bz2", "d.csv.bz2", "csv"),
        ("parquet", "d.parquet", "parquet"),
        ("folder", "d", "parquet"),
    ],
)
def test_documents_come_back(tmp_path, kind, name, format, size):
    write_documents(kind, tmp_path / name)
    source = sources.find(tmp_path / name)
    assert source.format == format
    found = documents_of(source, tmp_path, size)
    assert [d.text for d in found] == TEXTS
    assert [d.label for d in found] == ["a", "b", None, "a", None, "b", "a"]
    assert [d.split for d in found] == ["train"] * len(TEXTS)
    assert [d.name for d in found] == [str(i) for i in range(len(TEXTS))]


def test_other_columns_and_kinds_of_label(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text('{"body": "x", "y": -1}\n{"body": "y", "y": [1, "b"]}\n{"body": "z", "y": 0.5}\n{"body": "w", "y": true}\n')
    found = documents_of(sources.find(path, text="body", label="y"), tmp_path)
    assert [d.label for d in found] == [-1, (1, "b"), 0.5, "true"]
    found = documents_of(sources.find(path, text="body", label="y", unlabelled="-1"), tmp_path)
    assert found[0].label is None
    table = pa.table({"text": ["x", "y"], "label": [["a", "b"], []]})
    pq.write_table(table, tmp_path / "multi.parquet")
    assert [d.label for d in documents_of(sources.find(tmp_path / "multi.parquet"), tmp_path)] == [("a", "b"), ()]


@pytest.mark.parametrize("size", SIZES)
def test_features_in_json(tmp_path, matrix, size):
    path = tmp_path / "X.jsonl"
    with open(path, "w") as file:
        for i in range(23):
            row = matrix[[i]]
            features = {str(j): float(v) for j, v in zip(row.indices, row.data, strict=True)}
            file.write(json.dumps({"features": features, "label": i % 2, "id": f"r{i}"}) + "\n")
    source = sources.find(path, n_features=17)
    assert source.format == "jsonl-features"
    X, y, _, names = rows_of(source, tmp_path, size)
    np.testing.assert_array_equal(X, matrix.toarray())
    assert y.tolist() == [i % 2 for i in range(23)]
    assert names[3] == "r3"


def test_options_may_follow_the_path(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text('{"body": "x", "y": "?"}\n')
    (found,) = documents_of(sources.find(f"{path}?text=body&label=y&unlabelled=%3F"), tmp_path)
    assert (found.text, found.label) == ("x", None)
    path = tmp_path / "X.svm"
    path.write_text("1 1:2\n")
    assert sources.find(f"{path}?zero_based=true&n_features=9").unpacked(tmp_path).zero_based is True
    assert rows_of(sources.find(f"{path}?zero_based=true&n_features=9"), tmp_path)[0].tolist() == [[0, 2, *[0] * 7]]
    for query, message in (
        ("zero_based=maybe", "zero_based is true or false"),
        ("n_features=x", "n_features is a whole number"),
        ("plain=x", "has no option plain"),
    ):
        with pytest.raises(SourceError, match=message):
            sources.find(f"{path}?{query}")


# --- labels -------------------------------------------------------------------------------------


def test_minus_one_is_a_class_unless_it_is_named():
    y = np.array([[-1], [1], [-1]], dtype=np.int16)
    assert labels.many(y, 3, None, "f").tolist() == [-1, 1, -1]
    named = labels.many(y, 3, "-1", "f")
    assert np.isnan(named).tolist() == [True, False, True]
    assert labels.many(np.array([1.0, np.nan, 2.0]), 3, None, "f")[1] != 1
    assert labels.many(np.array([1.0, 2.0]), 2, None, "f").dtype == np.int64
    assert labels.many(np.array(["x", "?"]), 2, "?", "f").tolist() == ["x", ""]
    assert labels.gathered([1, None, 2], "f").tolist()[::2] == [1, 2]
    assert np.isnan(labels.gathered([None, None], "f")).all()


def test_a_piece_without_words_does_not_make_a_class_nan(tmp_path, monkeypatch):
    path = tmp_path / "X.jsonl"
    lines = [{"features": {"0": 1}, "label": label} for label in ("spam", None, 7, "spam")]
    path.write_text("\n".join(map(json.dumps, lines)))
    source = sources.find(path)
    whole = type(source).pieces
    monkeypatch.setattr(type(source), "pieces", lambda self, size: whole(self, 1))
    corpus = storage.open(storage.stage(source, tmp_path / "X.zarr"))
    assert corpus.class_names == ["7", "spam"]
    assert corpus.y.tolist() == [1, -1, 0, 1]


# --- what is broken -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "x"', "line 2 is not JSON"),
        ("[1, 2]", "line 2 holds list, not an object"),
        ('{"body": "x", "label": 1}', "line 2 has no field 'text', only 'body', 'label': name it with text="),
        ('{"text": 5}', "line 2: text is int, not a text"),
        ('{"text": "x", "label": NaN}', "line 2 is not JSON: NaN is no number"),
        ('{"text": "x", "label": {"a": 1}}', "line 2: a label is a text"),
        ('{"text": "x", "split": "dev"}', "line 2: split is train or test, not 'dev'"),
        ('{"text": ' + "[" * 100_000, "line 2: the object is nested too deeply"),
        ('{"text": "' + "\\uD800" * 2 + '", "label": 1e999}', "line 2: a label is a text, a number"),
    ],
)
def test_bad_documents_in_json(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "fine"}\n' + line + "\n")
    refused(path, message, tmp_path, size=5)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"features": {"-1": 1}}', "'-1' is no column number from 0"),
        ('{"features": {"a": 1}}', "'a' is no column number"),
        ('{"features": {"1": "2"}}', "the value of column 1 is '2', not a finite number"),
        ('{"features": {"1": 1e999}}', "the value of column 1 is inf"),
        ('{"features": {"1": null}}', "the value of column 1 is None"),
        ('{"features": {"1": true}}', "the value of column 1 is True"),
        ('{"features": [1]}', "features is list, not {column: value}"),
        ('{"features": {"99": 1}}', r"column 99 of 50 \(from 0\)"),
        ('{"features": {"1": 1' + "0" * 400 + "}}", "not a finite number"),
    ],
)
def test_bad_features_in_json(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"features": {"1": 1}}\n' + line + "\n")
    refused(path, message, tmp_path, n_features=50)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n", "has no column 'text', only 'a', 'b': name it with text="),
        (b"text,text\nx,y\n", "two columns called 'text'"),
        (b"text,label\nx\n", "Expected 2 columns"),
        (b'text,label\n"x,1\n', "a quote that is never closed"),
        (b"text\n\xff\xfe\xff\n", "(?i)utf"),
        (b"\xff\xfe\n1\n", "no header can be read"),
        (b"text,split\nx,dev\n", "split is train or test, not 'dev'"),
    ],
)
def test_bad_csv(tmp_path, content, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    refused(path, message, tmp_path)


def test_bad_parquet(tmp_path):
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"text": [1, 2]}), path)
    refused(path, "column 'text' is of int64, not of text", tmp_path)
    pq.write_table(pa.table({"words": ["x"]}), path)
    refused(path, "no column 'text', only 'words'", tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    refused(path, "not a whole Parquet file", tmp_path)
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    refused(path, "holds no rows", tmp_path)


MTX = "%%MatrixMarket matrix coordinate real general\n% made by hand\n3 4 2\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (MTX + "1 1 1.5\n", "announces 2 entries and holds fewer"),
        (MTX + "1 1 1.5\n4 1 2\n", "a row index lies outside 0 … 2"),
        (MTX + "1 1 1.5\n1 0 2\n", "a column index lies outside 0 … 3"),
        (MTX + "1 1 nan\n2 2 1\n", r"row 0, column 0 \(from 0\) is nan"),
        (MTX + "1 1 x\n2 2 1\n", "after line 3"),
        (MTX + "1 1\n2 2\n", "is nan"),
        (MTX + "1 1 1\n2 2 1\n3 3 1\n", "announces 2 entries and holds more"),
        (MTX + "1 1 1 5\n2 2 1 5\n", "after line 3"),
        (MTX, "announces 2 entries and holds fewer"),
        ("%%MatrixMarket matrix coordinate complex general\n3 4 2\n", "complex general matrix"),
        ("%%MatrixMarket matrix coordinate real symmetric\n3 3 0\n", "real symmetric matrix"),
        ("%%MatrixMarket vector\n3\n", "line 1: a header"),
        ("%%MatrixMarket matrix coordinate real general\n3 4\n", "line 2: rows, columns and entries"),
        ("%%MatrixMarket matrix coordinate real general\n0 4 0\n", "0 × 4"),
    ],
)
def test_bad_matrix_market(tmp_path, content, message):
    path = tmp_path / "bad.mtx"
    path.write_text(content)
    refused(path, message, tmp_path)


def test_bad_arrays(tmp_path, matrix):
    path = tmp_path / "bad.npy"
    np.save(path, np.array([[1.0, np.inf], [0, 1]]))
    refused(path, r"row 0, column 1 \(from 0\) is inf", tmp_path)
    np.save(path, np.array([[1, "a"]], dtype=object))
    refused(path, "can't be read as npy: .*Python objects", tmp_path)
    np.save(path, np.zeros((2, 2), complex))
    refused(path, "holds complex128", tmp_path)
    np.save(path, np.zeros(5))
    refused(path, "has 1 dimensions", tmp_path)
    np.save(path, np.zeros((0, 5)))
    refused(path, "0 × 5", tmp_path)
    np.save(path, np.ones((20, 20)))
    path.write_bytes(path.read_bytes()[:-100])
    refused(path, "can't be read as npy", tmp_path)
    np.save(path, np.ones((4, 10)))
    refused(path, "10 features a row, which is not an image", tmp_path, sample_shape="3x3")
    with pytest.raises(SourceError, match="sample_shape is M x N"):
        sources.find(path, sample_shape="3by3")


def test_bad_npz(tmp_path, matrix):
    path = tmp_path / "bad.npz"
    np.savez(path, data=matrix.data, indices=matrix.indices + 17, indptr=matrix.indptr, format="csr", shape=matrix.shape)
    refused(path, "column index lies outside 0 … 16", tmp_path)
    np.savez(path, data=matrix.data, indices=matrix.indices, indptr=matrix.indptr[::-1], format="csr", shape=matrix.shape)
    refused(path, "indptr does not match", tmp_path)
    np.savez(path, data=matrix.data, indices=matrix.indices, indptr=matrix.indptr[:-1], format="csr", shape=matrix.shape)
    refused(path, "indptr has 23 entries of int32, not 24", tmp_path)
    sp.save_npz(path, sp.eye_array(4).asformat("dia"))
    refused(path, "holds a dia matrix: save X.tocsr", tmp_path)
    np.savez(path, X=matrix.toarray(), y=np.arange(5))
    refused(path, "5 labels for 23 rows", tmp_path)
    np.savez(path, A=matrix.toarray())
    refused(path, "holds 'A.npy'", tmp_path, format="npz")
    np.savez(path, X=np.array([{"a": 1}], dtype=object))
    refused(path, "Python objects", tmp_path)


def test_bad_mat(tmp_path, matrix):
    path = tmp_path / "bad.mat"
    scipy.io.savemat(path, {"A": matrix, "b": 1})
    refused(path, "has the variables A, b: name the matrix with x=", tmp_path)
    scipy.io.savemat(path, {"X": matrix, "Y": np.ones((17, 1))})
    refused(path, "17 labels for 23 rows", tmp_path)
    scipy.io.savemat(path, {"X": matrix.toarray()}, do_compression=True)
    whole = path.read_bytes()
    for length in (130, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(path, "can't be read as mat|has the variables none", tmp_path)


def test_unknown_content_and_options(tmp_path):
    path = tmp_path / "noise.bin"
    path.write_bytes(bytes(range(256)))
    refused(path, "name it with format=", tmp_path)
    path = tmp_path / "d.jsonl"
    path.write_text('{"text": "x"}\n')
    with pytest.raises(SourceError, match="jsonl has no option labl; it has text, label"):
        sources.find(path, labl="y")
    with pytest.raises(SourceError, match=r"unknown format 'word': the known ones are"):
        sources.find(path, format="word")
    with pytest.raises(SourceError, match="does not exist"):
        sources.find(tmp_path / "nothing.csv")


# --- fuzzing ------------------------------------------------------------------------------------

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
FIELDS = st.sampled_from(["text", "label", "features", "split", "0", "7"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=8,
)
GOOD = st.fixed_dictionaries({"text": st.text(max_size=20), "label": st.integers() | st.text(max_size=3)})
ROW = st.fixed_dictionaries({"features": st.dictionaries(st.integers(0, 99).map(str), st.floats(allow_nan=False), max_size=4)})
LINE = st.binary(max_size=60) | (JSON | GOOD | ROW).map(lambda value: json.dumps(value).encode())


@FUZZ
@given(lines=st.lists(LINE, min_size=1, max_size=5), size=st.integers(1, 64))
def test_any_bytes_are_documents_or_refused(tmp_path, lines, size):
    """Nothing but SourceError leaves the reader, and what it gives doesn't depend on the pieces."""
    path = tmp_path / "fuzz.jsonl"
    path.write_bytes(b"\n".join(lines))

    def read(size):
        return [repr(document) for document in documents_of(sources.find(path, format="jsonl"), tmp_path, size)]

    outcome = whole_or_refused(read, size)
    assert outcome != "refused at length"
    assert outcome == whole_or_refused(read, 10**9)


@FUZZ
@given(lines=st.lists(LINE, min_size=1, max_size=5), size=st.integers(1, 64))
def test_any_bytes_are_features_or_refused(tmp_path, lines, size):
    path = tmp_path / "fuzz.jsonl"
    path.write_bytes(b"\n".join(lines))

    def read(size):
        source = sources.find(path, format="jsonl-features", n_features=100).unpacked(tmp_path)
        return np.vstack([source.read(piece).X.toarray() for piece in source.pieces(size)]).tolist()

    outcome = whole_or_refused(read, size)
    assert outcome != "refused at length"
    assert outcome == whole_or_refused(read, 10**9)


@FUZZ
@given(texts=st.lists(st.text(max_size=30), min_size=1, max_size=6), size=st.integers(1, 50))
def test_any_text_comes_back_from_json(tmp_path, texts, size):
    path = tmp_path / "fuzz.jsonl"
    path.write_text("\n".join(json.dumps({"text": t}) for t in texts))
    assert [d.text for d in documents_of(sources.find(path), tmp_path, size)] == texts


@FUZZ
@given(
    content=st.binary(min_size=1, max_size=200),
    where=st.integers(0, 10**6),
    kind=st.sampled_from(["npy", "csr", "csc", "coo", "dense.npz", "mtx", "dense.mtx", "csv", "parquet"]),
)
def test_altered_files_are_read_or_refused(tmp_path, content, where, kind):
    """Bytes overwritten anywhere in a good file: rows, or a SourceError. Not .mat: scipy's reader can crash on one."""
    name, format = MATRICES.get(kind, (f"d.{kind}", kind))
    path = tmp_path / name
    if kind == "csv":
        path.write_text("text,label\n" + 'a "b" c,1\n"x, y",2\n' * 5)
    elif kind == "parquet":
        pq.write_table(pa.table({"text": ["x", "y"]}), path)
    else:
        save_matrix(kind, path, sp.csr_array(np.arange(12.0).reshape(4, 3)))
    raw = bytearray(path.read_bytes())
    at = where % len(raw)
    raw[at : at + len(content)] = content
    path.write_bytes(raw)
    assert whole_or_refused(consumed, path, tmp_path / "scratch", 50, format=format) != "refused at length"
