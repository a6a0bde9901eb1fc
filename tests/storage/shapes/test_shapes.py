"""Files and folders in the shapes in which people have their data: each is read right, or refused
in one line that says what it is and what to do.
"""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import re
import tarfile
import zipfile

import dask.array as da
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from bigfs import storage
from bigfs.storage.errors import SourceError

WORDS = {"cat": "purr milk purr", "dog": "bark bone bark", "cow": "moo grass milk"}
FRAME = pd.DataFrame(
    {
        "a": [0.0, 1.5, 2.0, 3.0, 4.0, 5.5],
        "b": [1.0, 0.0, 0.0, 2.0, 0.0, 7.0],
        "label": ["x", "y", "x", "y", "x", "y"],
        "split": ["train"] * 4 + ["test"] * 2,
    }
)
BARE = FRAME.drop(columns="split")
TABLE = {"columns": "*"}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def documents(folder, classes=("cat", "dog"), count=2, encode=str.encode, suffix=".txt"):
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            (folder / name / f"{i}{suffix}").write_bytes(encode(WORDS.get(name, "word thing")))
    return folder


def files(folder, **contents):
    for name, content in contents.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def csv(frame=FRAME, **options):
    return frame.to_csv(index=False, **options)


def jsonl(frame=FRAME[["label", "split"]]):
    rows = frame.assign(text="purr milk").to_dict("records")
    return "".join(json.dumps(row) + "\n" for row in rows)


def parquet(frame=FRAME, **options):
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), out, **options)
    return out.getvalue()


def npz(matrix=None):
    out = io.BytesIO()
    sp.save_npz(out, sp.eye_array(3, format="csr") if matrix is None else matrix)
    return out.getvalue()


def tar(**members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, raw in members.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    return out.getvalue()


def zipped(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, raw in members.items():
            archive.writestr(name.replace("__", "/"), raw)
    return out.getvalue()


def hive(folder, keys):
    FRAME.assign(part=np.arange(6) % 2).to_parquet(folder / "t", partition_cols=keys)
    return folder / "t"


def spark(folder, suffix, content, marks=("_SUCCESS", "._SUCCESS.crc", ".part-0.crc")):
    for mark in marks:
        put(folder / mark, b"")
    put(folder / f"part-00000{suffix}", content)
    put(folder / f"part-00001{suffix}", content)
    return folder


def links(folder, target, name):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(target)
    return folder


def with_store(folder):
    documents(folder)
    storage.stage(folder, folder / "store.zarr", min_df=1)
    return folder


def datasets(folder):
    table = pa.table({"text": ["purr milk", "bark bone"] * 3, "label": [0, 1] * 3})
    for part in ("train", "test"):
        put(folder / part / "dataset_info.json", "{}")
        put(folder / part / "state.json", "{}")
        with pa.ipc.new_stream(folder / part / "data-00000-of-00001.arrow", table.schema) as out:
            out.write_table(table)
    put(folder / "dataset_dict.json", '{"splits": ["train", "test"]}')
    return folder


def arrow_stream(folder, cut=None):
    table = pa.table({"a": FRAME["a"], "label": FRAME["label"]})
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as stream:
        for start in (0, 3):
            stream.write_table(table.slice(start, 3))
    return put(folder / "t.arrows", out.getvalue()[:cut])


def hdf5(name, **content):
    """An HDF5 file of arrays, groups (None) and attributes (texts)."""

    def write(folder):
        with h5py.File(folder / name, "w") as file:
            for key, value in content.items():
                if isinstance(value, str):
                    file.attrs[key.replace("_", "-") if "encoding" in key else key] = value
                elif value is None:
                    file.create_group(key.replace("__", "/"))
                else:
                    file[key.replace("__", "/")] = value
        return folder / name

    return write


def h5ad(X="X", labels=(18, 30, 44, 89)):
    """AnnData whose matrix lies in X or in a layer, with numbers as labels."""

    def write(folder):
        with h5py.File(folder / "t.h5ad", "w") as file:
            file.attrs["encoding-type"] = "anndata"
            if X != "X":
                file.create_dataset("X", data=h5py.Empty("f")).attrs["encoding-type"] = "null"
            file[X] = np.arange(12.0).reshape(4, 3)
            file[X].attrs["encoding-type"] = "array"
            for frame, n in (("obs", 4), ("var", 3)):
                names = np.array([f"n{i}" for i in range(n)], dtype=h5py.string_dtype())
                file.create_group(frame).attrs["_index"] = "_index"
                file[frame].create_dataset("_index", data=names)
            file["obs"]["label"] = np.array(labels)
        return folder / "t.h5ad"

    return write


def arrays(**parts):
    out = io.BytesIO()
    np.savez(out, **parts)
    return out.getvalue()


def labeled(words, raw):
    return lambda folder: f"{put(folder / 't.npy', raw)}?labels={put(folder / 'y.txt', words)}"


def columns(**fields):
    out = io.BytesIO()
    pq.write_table(pa.table(fields), out)
    return out.getvalue()


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def zarr_array(folder):
    zarr.save_array(str(folder / "a.zarr"), np.ones((3, 2)))
    return folder / "a.zarr"


def shared(*writes):
    """The last of several things that are written into one folder."""

    def write(folder):
        for one in writes:
            path = one(folder)
        return path

    return write


def doc(name, content):
    return lambda folder: put(folder / name, content) and folder


def both(content, name="t.csv"):
    return lambda folder: put(folder / name, content)


def asked(content, query):
    return lambda folder: f"{put(folder / 't.csv', content)}?{query}"


class PyData:
    """What a sparse array of PyData gives, beside what is asked of any array."""

    shape, dtype = (3, 3), np.dtype(float)

    def __getitem__(self, index):
        raise RuntimeError("cannot convert a sparse array to dense automatically")

    def to_scipy_sparse(self):
        return sp.eye_array(3)


class NoTable:
    """A table whose types Arrow does not know, as the Int128 of polars."""

    def __arrow_c_stream__(self, requested_schema=None):
        raise pa.ArrowInvalid("Invalid or unsupported format string: '_pli128'")


MATRIX = "%%MatrixMarket matrix coordinate real general\n2 3 2\n1 1 2\n2 3 1\n"
TWO = (4, ["cat", "dog"], [0, 0, 1, 1])  # samples, classes, and the class of each sample
SIX = (6, ["x", "y"], [0, 1, 0, 1, 0, 1])
HALVED = (6, ["x", "y"], [0, 0, 1, 1, 0, 1], ("train", "test"))  # by label, then by split
SPLIT_LATER = (6, ["x", "y"], [0, 1, 0, 1, 1, 0], ("train", "test"))  # the last file comes first
ROWS = "1 1:1 2:2\n2 2:1\n"
TWO_ROWS = (2, ["1", "2"], [0, 1])
REAL = (4, [], [18.0, 30.0, 44.0, 89.0])
XY = (2, ["x", "y"], [0, 1])
MIXED = pa.array(
    [
        {"type": 0, "size": 3, "indices": [2], "values": [2.0]},
        {"type": 1, "size": None, "indices": None, "values": [1.0, 0.0, 4.0]},
    ]
)
PAIRS = pa.array([[{"index": i, "value": 2.0}] for i in range(2)])
LISTS = pa.FixedSizeListArray.from_arrays(np.arange(8, dtype="f4"), 4)
TOPICS = "id\tlabel\ttext\n1\tE11 ECAT\tword\n2\tECAT\tthing\n3\tE11\tword\n"
SETS = (3, ["E11", "ECAT"], [[1, 1], [0, 1], [1, 0]])
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n"

QRELS = "E1 2286 1\nC1 2286 1\nE1 2287 1\n"

# what is written, the options, and what is read
READ = {
    # documents
    "folders are classes": (documents, {}, TWO),
    "documents in gzip": (
        lambda f: documents(f, encode=lambda t: gzip.compress(t.encode()), suffix=".txt.gz"),
        {},
        TWO,
    ),
    "documents in bzip2": (
        lambda f: documents(f, encode=lambda t: bz2.compress(t.encode()), suffix=".bz2"),
        {},
        TWO,
    ),
    "documents in xz": (
        lambda f: documents(f, encode=lambda t: lzma.compress(t.encode()), suffix=".xz"),
        {},
        TWO,
    ),
    "documents in UTF-16 with a mark": (
        lambda f: documents(f, encode=lambda t: t.encode("utf-16")),
        {},
        TWO,
    ),
    "documents in UTF-8 with a mark": (
        lambda f: documents(f, encode=lambda t: t.encode("utf-8-sig")),
        {},
        TWO,
    ),
    "documents in UTF-16 without a mark": (
        lambda f: documents(f, encode=lambda t: t.encode("utf-16-le")),
        {"encoding": "utf-16-le"},
        TWO,
    ),
    "documents without a suffix": (lambda f: documents(f, suffix=""), {}, TWO),
    "hidden files beside documents": (
        shared(doc("cat/.DS_Store", bytes(9)), doc("_SUCCESS", ""), documents),
        {},
        TWO,
    ),
    "a README beside a store": (with_store, {}, TWO),
    "a class behind a link": (
        shared(
            lambda f: documents(f.parent / "elsewhere", ["dog"]),
            lambda f: documents(f, ["cat"]),
            lambda f: links(f, f.parent / "elsewhere" / "dog", "dog"),
        ),
        {},
        TWO,
    ),
    "a link to the folder itself": (shared(documents, lambda f: links(f, f, "dog/loop")), {}, TWO),
    "a document behind a link": (
        shared(
            lambda f: documents(f, ["cat"]),
            lambda f: documents(f, ["dog"], 1),
            lambda f: links(f, f / "cat" / "0.txt", "dog/1.txt"),
        ),
        {},
        TWO,
    ),
    "a tar of documents": (
        both(
            tar(cat__1=b"purr milk", cat__2=b"purr", dog__1=b"bark", dog__2=b"bark bone"), "t.tar"
        ),
        {},
        TWO,
    ),
    "a zip of documents": (
        both(
            zipped(cat__1=b"purr milk", cat__2=b"purr", dog__1=b"bark", dog__2=b"bark bone"),
            "t.zip",
        ),
        {},
        TWO,
    ),
    "an archive of UTF-16": (
        both(tar(cat__1="purr".encode("utf-16"), dog__1="bark".encode("utf-16")), "t.tar"),
        {"encoding": "utf-16"},
        (2, ["cat", "dog"], [0, 1]),
    ),
    "a class called train": (
        lambda f: documents(f, ["bus", "car", "train"], 1),
        {},
        (3, ["bus", "car", "train"], [0, 1, 2]),
    ),
    "halves of the same classes": (
        lambda f: documents(f / "train") and documents(f / "test") and f,
        {},
        (8, ["cat", "dog"], [0, 0, 1, 1] * 2, ("train", "test")),
    ),
    "halves with a prefix": (
        lambda f: documents(f / "news-train") and documents(f / "news-test") and f,
        {},
        (8, ["cat", "dog"], [0, 0, 1, 1] * 2, ("train", "test")),
    ),
    "halves in a folder of their own": (
        lambda f: documents(f / "n" / "train") and documents(f / "n" / "test") and f,
        {},
        (8, ["cat", "dog"], [0, 0, 1, 1] * 2, ("train", "test")),
    ),
    "a class without a label": (
        lambda f: (
            documents(f / "train", ["cat", "dog", "unsup"], 1)
            and documents(f / "test", count=1)
            and f
        ),
        {"unlabeled": "unsup"},
        (5, ["cat", "dog"], [0, 1, -1, 0, 1], ("train", "test")),
    ),
    # tables
    "CSV": (both(csv()), TABLE, SIX),
    "CSV in gzip": (both(gzip.compress(csv().encode()), "t.csv.gz"), TABLE, SIX),
    "CSV with the mark of UTF-8": (both(csv().encode("utf-8-sig")), TABLE, SIX),
    "CSV in UTF-16 with its mark": (both(csv().encode("utf-16")), TABLE, SIX),
    "TSV": (both(csv(sep="\t"), "t.tsv"), TABLE, SIX),
    "Spark's CSV": (
        lambda f: spark(f, ".csv", csv(FRAME[:3])),
        TABLE,
        (6, ["x", "y"], [0, 1, 0] * 2),
    ),
    "Spark's JSON": (lambda f: spark(f, ".json", jsonl()), {}, (12, ["x", "y"], [0, 1] * 6)),
    "CSV in folders": (
        lambda f: files(f, **{"2023__a.csv": csv(FRAME[:3]), "2024__a.csv": csv(FRAME[3:])}),
        TABLE,
        SIX,
    ),
    "CSV with a README": (lambda f: files(f, **{"a.csv": csv(), "README.md": "rows"}), TABLE, SIX),
    "Parquet": (both(parquet(), "t.parquet"), TABLE, SIX),
    "Parquet in one partition each": (
        lambda f: hive(f, ["label"]),
        {"columns": "a,b"},
        HALVED,
    ),
    "Parquet in two partitions": (
        lambda f: hive(f, ["split", "label"]),
        {"columns": "a,b"},
        HALVED,
    ),
    "Parquet with a number as partition": (
        lambda f: hive(f, ["part"]),
        {"columns": "a,part"},
        HALVED,
    ),
    "CSV in partitions": (
        lambda f: files(f, **{"label=x__a.csv": "a\n1\n2\n", "label=y__a.csv": "a\n3\n"}),
        TABLE,
        (3, ["x", "y"], [0, 0, 1]),
    ),
    "JSON Lines in partitions": (
        lambda f: files(
            f,
            **{"label=x__a.jsonl": '{"text": "purr"}\n', "label=y__a.jsonl": '{"text": "bark"}\n'},
        ),
        {},
        (2, ["x", "y"], [0, 1]),
    ),
    "Arrow of one Dataset": (lambda f: datasets(f) / "train", {}, (6, ["0", "1"], [0, 1] * 3)),
    "a DatasetDict": (datasets, {}, (12, ["0", "1"], [0, 1] * 6, ("train", "test"))),
    "two halves of a table": (
        lambda f: files(f, **{"train.csv": csv(BARE[:4]), "test.csv": csv(BARE[4:])}),
        TABLE,
        (*SIX, ("train", "test")),
    ),
    "a pattern of two halves": (
        lambda f: (
            files(f, **{"train-0.parquet": parquet(BARE[:4]), "test-0.parquet": parquet(BARE[4:])})
            / "*.parquet"
        ),
        TABLE,
        (*SIX, ("train", "test")),
    ),
    "halves in folders": (
        lambda f: files(f, **{"train__a.csv": csv(BARE[:4]), "test__a.csv": csv(BARE[4:])}),
        TABLE,
        (*SIX, ("train", "test")),
    ),
    "three splits of Hugging Face": (
        lambda f: files(
            f,
            **{
                "data__train-00000-of-00001.parquet": parquet(BARE[:4]),
                "data__validation-00000-of-00001.parquet": parquet(BARE[4:5]),
                "data__test-00000-of-00001.parquet": parquet(BARE[5:]),
            },
        ),
        TABLE | {"split_map": "validation=test"},
        SPLIT_LATER,
    ),
    "halves of documents and a third part": (
        lambda f: [documents(f / part) for part in ("train", "test", "valid")] and f,
        {"split_map": "valid="},
        (8, ["cat", "dog"], [0, 0, 1, 1] * 2, ("train", "test")),
    ),
    "JSON Lines": (both(jsonl(), "t.jsonl"), {}, SIX),
    "JSON Lines with a mark": (both(jsonl().encode("utf-8-sig"), "t.jsonl"), {}, SIX),
    "JSON Lines in UTF-16": (both(jsonl().encode("utf-16"), "t.jsonl"), {}, SIX),
    "JSON Lines with an empty part": (
        lambda f: files(f, **{"a.jsonl": jsonl(), "b.jsonl": ""}),
        {},
        SIX,
    ),
    "CSV with an empty part": (lambda f: files(f, **{"a.csv": csv(), "b.csv": ""}), TABLE, SIX),
    "a link to a part": (
        shared(
            lambda f: put(f.parent / "blob", parquet()) and f,
            lambda f: links(f, f.parent / "blob", "a.parquet"),
        ),
        TABLE,
        SIX,
    ),
    "CSV without a header": (
        both("0.5,1,x\n0.25,2,y\n0.75,0,x\n"),
        {"header": False, "label": "2", "columns": "0,1"},
        (3, ["x", "y"], [0, 1, 0]),
    ),
    "TSV without a header, in gzip": (
        both(gzip.compress(b"x\tpurr milk\ny\tbark\n"), "t.tsv.gz"),
        {"header": False, "label": "0", "text": "1"},
        (2, ["x", "y"], [0, 1]),
    ),
    "an axis of numbers as a header": (
        both(
            ",".join(str(400 + 1.5 * j) for j in range(8)) + f",label\n{'1,' * 8}x\n{'2,' * 8}y\n"
        ),
        TABLE,
        (2, ["x", "y"], [0, 1]),
    ),
    "numbers of columns as a header": (both("0,1,2,label\n1,2,3,x\n3,4,5,y\n"), TABLE, XY),
    "quotes inside of fields": (
        both('text,label\n"say ""hi"" film",x\n5" disk of "mine",y\n"",x\n'),
        {},
        (3, ["x", "y"], [0, 1, 0]),
    ),
    "a blank line of one column": (both("text\nword milk\n\nword tea\n\n"), {}, (3, [], None)),
    "a matrix beside the names of its rows": (
        shared(doc("m.mtx", MATRIX), doc("cells.tsv", "C1\n" * 2), lambda f: f / "m.mtx"),
        {},
        (2, [], None),
    ),
    "a matrix of kallisto beside its names": (
        shared(
            doc("cells_x_genes.mtx", MATRIX),
            doc("cells_x_genes.barcodes.txt", "C1\n" * 2),
            doc("cells_x_genes.genes.txt", "E1\n" * 3),
            lambda f: f / "cells_x_genes.mtx",
        ),
        {},
        (2, [], None),
    ),
    "genes beside a matrix of any name": (
        shared(doc("m.mtx", MATRIX), doc("genes.csv", "E1\nE2\n"), lambda f: f / "m.mtx"),
        {},
        (3, [], None),
    ),
    "barcodes with a header beside a matrix": (
        shared(doc("m.mtx", MATRIX), doc("m.barcodes.tsv", "id\nC1\nC2\nC3\n"), doc("a", "")),
        {"format": "mtx"},
        (3, [], None),
    ),
    "labels by a path": (
        shared(
            doc("y.txt", "x\ny\n"),
            lambda f: put(f / "t.npy", npy(np.eye(2))),
        ),
        {"labels": "y.txt"},
        XY,
    ),
    "a sparse array of PyData": (lambda f: PyData(), {}, (3, [], None)),
    "TSV with stray quotes": (
        both('label\ttext\nx\t"oil price\ny\tgold" mine\nx\train\n', "t.tsv"),
        {"quote": "none"},
        (3, ["x", "y"], [0, 1, 0]),
    ),
    "TSV with quoted line breaks": (
        both('label\ttext\nx\t"oil\nprice"\ny\tgold mine\n', "t.tsv"),
        {"quote": '"'},
        (2, ["x", "y"], [0, 1]),
    ),
    "Spark's escapes": (
        both('text,label\n"say \\"hi\\" film",x\nbark,y\n'),
        {"escape": "\\"},
        (2, ["x", "y"], [0, 1]),
    ),
    "single quotes": (
        both("text,label\n'a, b milk',x\nbark,y\n"),
        {"quote": "'"},
        (2, ["x", "y"], [0, 1]),
    ),
    "decimal commas": (
        both("a;b;label\n1,5;2;x\n0,25;3;y\n"),
        {"delimiter": ";", "decimal": ",", **TABLE},
        (2, ["x", "y"], [0, 1]),
    ),
    "many categories": (
        both("color,label\n" + "".join(f"c{i},{'xy'[i % 2]}\n" for i in range(3000))),
        {"categories": "color", **TABLE},
        (3000, ["x", "y"], [0, 1] * 1500),
    ),
    "queries as groups": (
        both("1 qid:3 1:1\n2 qid:3 1:2\n1 qid:10 2:1\n", "t.svm"),
        {"group": "qid"},
        (3, ["1", "2"], [0, 1, 0]),
    ),
    "a plus in a name": (
        asked("C++,Java,label\n1,2,x\n3,0,y\n", "columns=C++,Java"),
        {},
        (2, ["x", "y"], [0, 1]),
    ),
    "a name by its bytes": (
        asked("a&b,label\n1,x\n3,y\n", "columns=a%26b"),
        {},
        (2, ["x", "y"], [0, 1]),
    ),
    # matrices
    "svmlight": (both(ROWS, "t.svm"), {}, TWO_ROWS),
    "svmlight with a mark": (both(ROWS.encode("utf-8-sig"), "t.svm"), {}, TWO_ROWS),
    "svmlight whose indices fall": (both("1 2:2 1:1\n2 2:1\n", "t.svm"), {}, TWO_ROWS),
    "svmlight with a line without a label": (
        both("1 1:1 2:2\n2 2:1\n 1:3\n", "t.svm"),
        {},
        (3, ["1", "2"], [0, 1, -1]),
    ),
    "svmlight without labels": (both("1:1 2:2\n2:1\n", "t.svm"), {"labels": "none"}, (2, [], None)),
    "a saved matrix": (both(npz(), "t.npz"), {}, (3, [], None)),
    # what public reports tell of
    "files of Windows among documents": (
        shared(doc("desktop.ini", "[Shell]"), doc("cat/Thumbs.db", bytes(9)), documents),
        {},
        TWO,
    ),
    "a flat folder of documents": (
        lambda f: files(f, **{"1.txt": "hello milk", "2.txt": "buy milk"}),
        {},
        (2, [], None),
    ),
    "one JSON document per file": (
        lambda f: files(
            f,
            **{"a.json": '{"text":"purr","label":"x"}', "b.json": '{"text":"bark","label":"y"}'},
        ),
        {},
        XY,
    ),
    "an Arrow stream": (arrow_stream, TABLE, SIX),
    "zstd that begins with a skippable frame": (
        both(
            b"\x50\x2a\x4d\x18\x04\0\0\0skip"
            + pa.compress(csv().encode(), codec="zstd", asbytes=True),
            "t.csv.zst",
        ),
        TABLE,
        SIX,
    ),
    "the index of pandas in CSV": (both(FRAME.to_csv()), TABLE, SIX),
    "CSV with line ends of Windows": (both(csv(lineterminator="\r\n")), TABLE, SIX),
    "CSV without a line end": (both(csv().rstrip("\n")), TABLE, SIX),
    "CSV in Latin-1": (
        both("text,label\ncaf\xe9,x\nbar,y\n".encode("latin-1")),
        {"encoding": "latin-1"},
        XY,
    ),
    "prices in CSV": (
        both("a,price\n1,18\n5,30\n3,44\n0,89\n"),
        {"label": "price", "target": "real", **TABLE},
        REAL,
    ),
    "stars of texts": (
        both("text,stars\nword,18\nthing,30\nword,44\nthing,89\n"),
        {"label": "stars", "target": "real"},
        REAL,
    ),
    "days of texts in JSON Lines": (
        both("".join(f'{{"text":"w{v} word","days":{v}}}\n' for v in (18, 30, 44, 89)), "t.jsonl"),
        {"label": "days", "target": "real"},
        REAL,
    ),
    "ages in AnnData": (h5ad(), {"target": "real"}, REAL),
    "counts in a layer of AnnData": (
        h5ad("layers/counts"),
        {"layer": "counts", "target": "real"},
        REAL,
    ),
    "days beside arrays": (
        both(arrays(X=np.eye(4), y=np.array([18, 30, 44, 89])), "t.npz"),
        {"target": "real"},
        REAL,
    ),
    "topics of LibMultiLabel": (both(TOPICS, "t.tsv"), {"label_separator": " "}, SETS),
    "topics without a header": (
        both(TOPICS.partition("\n")[2], "t.tsv"),
        {"header": False, "label": "1", "text": "2", "label_separator": " "},
        SETS,
    ),
    "the first line of XMC": (
        both("2 40 3\n0,1 3:1 7:2\n 4:1\n", "t.svm"),
        {},
        (2, ["0", "1"], [[1, 1], [0, 0]]),
    ),
    "RCV1 as published": (
        lambda f: put(f / "v.dat", "2286  1:0.5 3:2\n2287  2:1\n") if put(f / "q", QRELS) else None,
        {"topics": "q"},
        (2, ["C1", "E1"], [[1, 1], [0, 1]]),
    ),
    "rows of libffm": (
        both("1 0:3:1 1:4:0.5\n0 0:4:1\n", "t.ffm"),
        {},
        (2, ["0", "1"], [1, 0]),
    ),
    "svmlight of several labels": (
        both("1,2 5:1\n1 3:1\n", "t.svm"),
        {},
        (2, ["1", "2"], [[1, 1], [1, 0]]),
    ),
    "labels with a mark": (
        labeled(b"\xef\xbb\xbf1\n2\n1\n2\n", npy(np.arange(8.0).reshape(4, 2))),
        {},
        (4, ["1", "2"], [0, 1, 0, 1]),
    ),
    "labels in UTF-16": (
        labeled("1\n2\n1\n2\n".encode("utf-16"), npy(np.arange(8.0).reshape(4, 2))),
        {},
        (4, ["1", "2"], [0, 1, 0, 1]),
    ),
    "labels with a blank line": (
        labeled("1\n2\n1\n2\n\n", npy(np.arange(8.0).reshape(4, 2))),
        {},
        (4, ["1", "2"], [0, 1, 0, 1]),
    ),
    "unsigned counts of SciPy": (
        both("%%MatrixMarket matrix coordinate unsigned-integer general\n2 2 1\n1 2 3\n", "t.mtx"),
        {},
        (2, [], None),
    ),
    "a pattern of Matrix Market": (
        both("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n", "t.mtx"),
        {},
        (2, [], None),
    ),
    "texts in Hindi": (
        both(
            '{"text": "आधुनिक मानक हिन्दी", "label": "x"}\n{"text": "मानक", "label": "y"}\n',
            "t.jsonl",
        ),
        {},
        XY,
    ),
    "dense and sparse vectors of Spark": (
        both(columns(label=["x", "y"], features=MIXED), "t.parquet"),
        {"features": "features"},
        XY,
    ),
    "pairs of BigQuery": (
        both(columns(label=["x", "y"], features=PAIRS), "t.parquet"),
        {"features": "features"},
        XY,
    ),
    "embeddings": (
        both(columns(label=["x", "y"], embedding=LISTS), "t.parquet"),
        {"features": "embedding"},
        XY,
    ),
    "embeddings in JSON Lines": (
        both('{"e": [0, 1.5], "label": "x"}\n{"e": [2, 0], "label": "y"}\n', "t.jsonl"),
        {"features": "e"},
        XY,
    ),
    "categories beside a pattern": (
        both("num_a,num_b,color,label\n1,2,red,x\n3,4,blue,y\n"),
        {"columns": "num_*", "categories": "color"},
        XY,
    ),
    "blanks behind commas": (both("a, b, label\n1, 2, x\n3, 4, y\n"), TABLE, XY),
    "parts of names that no half has": (
        lambda f: (
            files(f, **{"trained.csv": csv(FRAME[:3]), "untested.csv": csv(FRAME[3:])}) / "*.csv"
        ),
        TABLE,
        SIX,
    ),
    "halves with a column of their own": (
        lambda f: files(f, **{"train.csv": csv(FRAME[:4]), "test.csv": csv(FRAME[4:])}) / "t*.csv",
        {"split": "split", **TABLE},
        (*SIX, ("train", "test")),
    ),
    "lists of decimals": (
        lambda f: pa.table({"i": [[0, 1], [1]], "v": DECIMALS}),
        {"indices": "i", "values": "v"},
        (2, [], None),
    ),
    "truth values": (both("a,label\ntrue,x\nfalse,y\n"), TABLE, XY),
}

COUNTED = "key,b,label\n1,5,x\n2,6,y\n3,1,x\n4,0,y\n"
DAYS = np.array([[20240101.0, 1.0], [20240102.0, 2.0]])
TOPIC_SETS = ["E11", "ECAT", "E11 ECAT", "M11", "E11 M11", "ECAT M11", "E11 ECAT M11"]
DECIMALS = pa.array([["1.5", "2"], ["3"]], pa.list_(pa.string())).cast(
    pa.list_(pa.decimal128(5, 2))
)

# what is read although it looks like a mistake, and what is said of it
NOTED = {
    "queries without a group": (
        both("1 qid:3 1:1\n2 qid:3 1:2\n", "t.svm"),
        {},
        r"the query of each line \(qid:\) is left out: group=qid keeps it as its group",
    ),
    "a column that counts few samples": (
        both(COUNTED),
        TABLE,
        "the column 'key' counts the samples: give name=key",
    ),
    "samples in columns": (
        both("gene,GSM10001,GSM10002\nA,5,2\nB,0,1\n"),
        {"columns": "GSM*"},
        "named as samples are, such as 'GSM10001', .*: give transpose=true if",
    ),
    "cells in columns": (
        both("gene,AAACCTGAGCAT-1,AAACCTGAGCCT-1\nA,5,2\nB,0,1\n"),
        {"columns": "*,!gene"},
        "named as samples are, such as 'AAACCTGAGCAT-1'",
    ),
    "genes in rows": (
        both("gene,tumor1,tumor2\nA,5,2\nB,0,1\n"),
        {"columns": "*,!gene"},
        "the column 'gene' seems to name features, .*: give transpose=true if",
    ),
    "probes as names of rows": (
        both("ID_REF,tumor1,tumor2\n1007_s_at,5,2\n1053_at,0,1\n"),
        {"columns": "tumor*", "name": "ID_REF"},
        "the column 'ID_REF' seems to name features",
    ),
    "rows without a name for their names": (
        both(",tumor1,tumor2\nTP53,5,2\nBRCA1,0,1\n"),
        TABLE,
        "'' is left out, as it is the index of pandas, .*: give transpose=true if",
    ),
    "one entry of a sample per row": (
        both(
            columns(id=[0, 0, 1, 1, 2, 2], feature=[3, 5, 1, 5, 2, 3], value=np.ones(6)),
            "t.parquet",
        ),
        TABLE,
        "the names of samples in 'id' come again: .* if a row is one entry of a sample",
    ),
    "days in CSV": (
        both("day,label\n3,x\n20240103,y\n"),
        TABLE,
        "the column 'day' loses digits: 20240103",
    ),
    "a day that only a category hides": (
        both("day,color,label\n20240103,red,x\n3,blue,y\n"),
        {"categories": "color", **TABLE},
        "the column 'day' loses digits: 20240103",
    ),
    "days in svmlight": (
        both("1 1:20240103 2:3\n2 2:1\n", "t.svm"),
        {},
        "the column 0 loses digits: 20240103",
    ),
    "days in an array": (both(npy(DAYS), "t.npy"), {}, "the column 0 loses digits: 20240101"),
    "days in an object": (
        lambda f: DAYS,
        {"names": ["day", "n"]},
        "the column 'day' loses digits: 20240101",
    ),
    "several labels in one text": (
        both("label\ttext\n" + "".join(f"{v}\tword w{v}\n" for v in TOPIC_SETS), "t.tsv"),
        {"min_df": 1},
        "most of its 7 classes, such as 'E11 ECAT', hold ' ' .*give label_separator=%20",
    ),
    "texts in Thai": (
        both('{"text": "สวัสดีชาวโลก"}\n{"text": "สวัสดีชาว"}\n', "t.jsonl"),
        {"min_df": 1},
        "the script of most letters has none between words",
    ),
}

# what is written, the options, and what the refusal says
REFUSED = {
    "a Delta table": (
        lambda f: files(
            f, **{"_delta_log__0.json": "{}", "a.parquet": parquet(), "b.parquet": parquet()}
        ),
        TABLE,
        "Delta table.*deltalake",
    ),
    "a Delta table as Parquet": (
        lambda f: files(f, **{"_delta_log__0.json": "{}", "a.parquet": parquet()}),
        {"format": "parquet", **TABLE},
        "Delta table",
    ),
    "an Iceberg table": (
        lambda f: files(f, **{"metadata__v1.metadata.json": "{}", "data__a.parquet": parquet()}),
        TABLE,
        "Iceberg table.*pyiceberg",
    ),
    "a folder of images": (
        lambda f: files(f, cat__1=PNG, dog__1=PNG),
        {},
        "cat/1 is no text. It looks like an image: make one array",
    ),
    "a folder of JPEG": (
        lambda f: files(f, cat__1=b"\xff\xd8\xff\xe0" + b"JFIF" * 9),
        {},
        "looks like an image",
    ),
    "a folder of PDF": (
        lambda f: files(f, cat__1=b"%PDF-1.7 text"),
        {},
        "looks like PDF: turn it into text",
    ),
    "a folder of random bytes": (
        lambda f: files(f, a__1=bytes(range(256))),
        {},
        "a/1 is no text. It holds bytes of 0",
    ),
    "a folder of .npz": (
        lambda f: files(f, **{"a.npz": npz(), "b.npz": npz()}),
        {},
        r"2 files \.npz, each of which is a corpus: stage one",
    ),
    "a folder of .h5ad": (
        lambda f: files(f, **{"a.h5ad": b"\x89HDF\r\n\x1a\n"}),
        {},
        r"1 files \.h5ad, each of which is a corpus",
    ),
    "a folder of svmlight": (
        lambda f: files(f, **{"a.svm": ROWS}),
        {},
        "each of which is a corpus",
    ),
    "a tar of images": (
        both(tar(cat__1=PNG), "t.tar"),
        {},
        "cat/1 is no text. It looks like an image",
    ),
    "a zip of Parquet": (
        both(zipped(a=parquet()), "t.zip"),
        {},
        "a is no text. It looks like Parquet",
    ),
    "Excel among documents": (
        lambda f: files(documents(f), cat__9=b"\xd0\xcf\x11\xe0" + bytes(30)),
        {},
        "looks like a document of Office",
    ),
    "a table among documents": (
        lambda f: files(documents(f), **{"labels.csv": "a,b\n"}),
        {},
        r"several kinds \(4 \.txt, 1 \.csv\): give a pattern",
    ),
    "two kinds of tables": (
        lambda f: files(f, **{"a.csv": csv(), "b.parquet": parquet()}),
        TABLE,
        "several kinds",
    ),
    "halves and a third part": (
        lambda f: [documents(f / part) for part in ("train", "test", "valid")] and f,
        {},
        r": valid: the split must be train or test; .* split_map=valid=test",
    ),
    "files beside the halves": (
        lambda f: (
            documents(f / "train")
            and documents(f / "test")
            and files(f, README="imdb", **{"imdb.vocab": "words"})
        ),
        {},
        "'README' and 1 more next to the folders of the classes",
    ),
    "a dangling link among documents": (
        lambda f: links(documents(f), f / "nowhere", "cat/9.txt"),
        {},
        r"9\.txt is a link that leads nowhere",
    ),
    "a dangling part of a table": (
        lambda f: links(files(f, **{"a.parquet": parquet()}), f / "nowhere", "b.parquet"),
        TABLE,
        r"b\.parquet is a link that leads nowhere",
    ),
    "a dangling part of a pattern": (
        lambda f: (
            links(files(f, **{"a.parquet": parquet()}), f / "nowhere", "b.parquet") / "*.parquet"
        ),
        TABLE,
        r"b\.parquet is a link that leads nowhere",
    ),
    "a pipe among documents": (
        lambda f: os.mkfifo(documents(f) / "cat" / "pipe") or f,
        {},
        "pipe is no plain file",
    ),
    "an empty folder": (lambda f: f, {}, "holds no file that is seen"),
    "a folder of hidden files": (lambda f: files(f, _SUCCESS=""), {}, "holds no file that is seen"),
    "one text": (both("some words\n", "t.txt"), {}, "cannot be detected"),
    "a JSON array": (
        both(json.dumps([{"text": "a"}, {"text": "b"}]), "t.json"),
        {},
        "one JSON array.*jq -c",
    ),
    "a bag of words of UCI": (
        both("3\n4\n5\n1 1 2\n", "docword.kos.txt"),
        {},
        "bag of words of UCI: make it Matrix Market",
    ),
    "a spreadsheet": (both(b"PK\x03\x04", "t.xlsx"), {}, "save the sheet as CSV"),
    "an SQLite file": (
        both(b"SQLite format 3\0" + bytes(90), "t.db"),
        {},
        "looks like SQLite: export a table",
    ),
    "an image": (both(PNG, "t.png"), {}, "looks like an image"),
    "an empty file": (both("", "t.csv"), {}, "is empty"),
    "bytes behind the end of xz": (
        both(lzma.compress(csv().encode()) + b"more", "t.csv.xz"),
        TABLE,
        "is broken",
    ),
    "bytes behind the end of bzip2": (
        both(bz2.compress(csv().encode()) + b"more", "t.csv.bz2"),
        TABLE,
        "is broken",
    ),
    "bytes behind the end of gzip": (
        both(gzip.compress(csv().encode()) + b"more", "t.csv.gz"),
        TABLE,
        "is broken",
    ),
    "half of a gzip file": (
        both(gzip.compress(csv().encode())[:40], "t.csv.gz"),
        TABLE,
        "is broken",
    ),
    "XGBoost's label:weight": (
        both("1:0.5 3:3 4:1\n2:1 3:1\n", "t.svm"),
        {},
        "line 1: it may begin with label:weight",
    ),
    "an index twice in a line": (
        both("1 2:2 1:1 2:3\n", "t.svm"),
        {},
        "line 1: an index comes twice in a line; got 2 twice",
    ),
    "a target that is none": (
        both(ROWS, "t.svm"),
        {"target": "regression"},
        "target must be class, real or multilabel",
    ),
    "samples without a header": (
        both("0.0,0.12,-0.5\n1.0,0.3,0.2\n"),
        TABLE,
        "line 1: the names of the columns would be numbers.*header=false",
    ),
    "stray quotes in TSV": (
        both('label\ttext\nx\t"oil price\ny\tgold" mine\nx\train\n', "t.tsv"),
        {},
        "line 2: a field begins with a quote, and letters follow .*: give quote=none",
    ),
    "a field of TSV over several lines": (
        both('label\ttext\nx\t"oil price\ny\tgold\nx\train"\n', "t.tsv"),
        {},
        r"record 0 .*'text' begins with a quote and runs over several lines: .*quote=none",
    ),
    "stray quotes in CSV": (
        both('text,label\n"5 stars film,x\nbad film,y\n"other,x\nlast film,y\n'),
        {},
        "line 2: a field begins with a quote, and letters follow .*: give quote=none",
    ),
    "escapes of Spark that nobody named": (
        both('text,label\nbark,y\n"say \\"hi\\" film",x\n'),
        {},
        "line 3: .* escape=%5C if a backslash stands before the quotes inside of fields",
    ),
    "a sample of rising numbers without a header": (
        both("0,1.5,a\n1,2.5,b\n"),
        TABLE,
        "the names of the columns would be numbers.*header=false",
    ),
    "a square matrix beside barcodes": (
        shared(
            doc("m.mtx", MATRIX.replace("2 3 2", "3 3 2")),
            doc("barcodes.tsv", "C\n" * 3),
            lambda f: f / "m.mtx",
        ),
        {},
        "3 rows and 3 columns, so that the lines of samples next to it do not tell",
    ),
    "labels of a table as those of an array": (
        lambda f: pd.DataFrame({"a": [1.0, 2.0]}),
        {"y": [0, 1], **TABLE},
        "has no option y, which is for arrays: name the column of the labels by label=",
    ),
    "a table of unknown types": (
        lambda f: NoTable(),
        TABLE,
        "NoTable cannot be read .*: convert its columns first",
    ),
    "a query that is no number": (
        both("1 qid:a 1:1\n", "t.svm"),
        {"format": "svmlight"},
        "line 1: qid: must be followed by a whole number",
    ),
    "a line without a query": (
        both("1 qid:1 1:1\n1 1:1\n", "t.svm"),
        {"group": "qid"},
        "line 2: no qid:",
    ),
    "a zip of one table": (
        both(zipped(**{"data.csv": csv().encode()}), "data.csv.zip"),
        TABLE,
        "holds tables .*unpack it",
    ),
    # what public reports tell of
    "MuData": (
        hdf5("t.h5mu", encoding_type="MuData", mod__rna__X=np.eye(3)),
        {},
        r"is MuData: .*mudata\.read",
    ),
    "HDF5 of pandas": (
        hdf5("t.h5", PYTABLES_FORMAT_VERSION="2.1", df__block0_values=np.eye(3)),
        {},
        r"is HDF5 of pandas: .*pandas\.read_hdf",
    ),
    "HDF5 of arrays": (
        hdf5("t.h5", data=np.eye(3)),
        {},
        "is HDF5 that holds 'data', and no AnnData: save its matrix",
    ),
    "AnnData whose X is empty": (
        h5ad("layers/counts"),
        {},
        "X is empty: name a layer with layer=. They are: counts",
    ),
    "an array of Zarr": (zarr_array, {}, "is Zarr, and no AnnData"),
    "an Arrow stream without its end": (
        lambda f: arrow_stream(f, -8),
        TABLE,
        "ends without the mark that ends a stream: it was cut",
    ),
    "a pointer of Git LFS": (both(POINTER), TABLE, "pointer of Git LFS .*git lfs pull"),
    "pointers of Git LFS as documents": (
        lambda f: files(f, cat__1=POINTER, dog__1=POINTER),
        {},
        "pointer of Git LFS .*git lfs pull",
    ),
    "a Hudi table": (
        lambda f: files(f, **{"_dot_hoodie__a": "", "a.parquet": parquet()}),
        TABLE,
        "Hudi table",
    ),
    "a JSON array without blanks, in gzip": (
        both(gzip.compress(b'[{"text":"a"},{"text":"b"}]'), "t.json.gz"),
        {},
        "one JSON array.*jq -c",
    ),
    "a JSON object over lines": (both('{\n "data": []\n}', "t.json"), {}, "over several lines"),
    "JSON Lines of numbers": (
        both('{"a":1.0,"label":"x"}\n', "t.jsonl"),
        TABLE,
        "jsonl has no option columns: it is for csv, parquet, arrow",
    ),
    "sparse ARFF": (both("@relation w\n", "t.arff"), {}, "LibSVMSaver of Weka"),
    "arrays with names of their own": (
        both(arrays(features=np.eye(3)), "t.npz"),
        {},
        "holds 'features.npy': it must hold a sparse matrix of save_npz, or arrays X and y",
    ),
    "an array of objects": (both(npy(np.array([{}])), "t.npy"), {}, "cannot be read as npy"),
    "an array of complex numbers": (both(npy(np.eye(2) * 1j), "t.npy"), {}, "must be real numbers"),
    "an array with NaN": (both(npy(np.array([[1, np.nan]])), "t.npy"), {}, "column 1 .* is nan"),
    "a pickle": (both(pickle.dumps(np.eye(3), protocol=4), "t.pkl"), {}, "looks like a pickle"),
    "genotypes of PLINK": (both(b"l\x1b\x01\xdc\x0f\xe7\x0f", "t.bed"), {}, "plink2 --export A"),
    "an indptr that overflowed": (
        both(
            arrays(
                **{"format": b"csr", "shape": (3, 3), "data": np.ones(3), "indices": np.arange(3)},
                indptr=np.array([0, 1, 2, -5], "i4"),
            ),
            "t.npz",
        ),
        {},
        "its indptr does not match its 3 stored values",
    ),
    "a large word in a matrix": (
        both(
            arrays(
                format=np.zeros((), "S1000000"), shape=(1, 1), data=[1], indices=[0], indptr=[0]
            ),
            "t.npz",
        ),
        {},
        r"its format\.npy has .*holds a word or two numbers",
    ),
    "embeddings in a column": (
        both(columns(label=["x", "y"], embedding=LISTS), "t.parquet"),
        TABLE,
        "'embedding' holds fixed_size_list.*read it alone by features=embedding",
    ),
    "a vector with an index too many": (
        lambda f: pa.table({"v": pa.array([{"indices": [1, 2], "values": [1.0]}])}),
        {"features": "v"},
        r"row 0 \(from 0\): v has 2 indices and 1 values",
    ),
    "triplets of a database": (
        both(
            columns(id=[0, 0, 1], feature_code=["f", "g", "f"], value=[1.0, 2.0, 3.0]), "t.parquet"
        ),
        {},
        "one value per record, of the sample 'id' and the feature 'feature_code'",
    ),
    "rows with names of R": (
        both("a,b,label\nr1,1,2,x\nr2,3,4,y\n"),
        TABLE,
        "Expected 3 columns, got 4.*or give the first column a name, which R leaves out",
    ),
    "a row that is short": (both("a,b,label\n1,2,x\n9,y\n"), TABLE, "Expected 3 columns, got 2"),
    "a name twice": (both("a,a,label\n1,2,x\n"), TABLE, "two columns called 'a'"),
    "a missing value": (both("a,label\nNA,x\n3,y\n"), TABLE, "'a' is missing: give missing="),
    "a table of texts": (
        both("a,city,label\n1,Rome,x\n2,Oslo,y\n"),
        TABLE,
        r"row 0 \(from 0\): .*'Rome'.*leave it out by columns=.*,!city",
    ),
    "CSV in Latin-1 that says nothing": (
        both("text,label\ncaf\xe9,x\n".encode("latin-1")),
        {},
        "is not UTF-8: give its encoding=",
    ),
    "CSV of a header alone": (both("a,b,label\n"), TABLE, "holds no rows"),
    "a split that is missing": (
        both("a,label,split\n1,x,train\n2,y,test\n3,x,\n"),
        TABLE,
        r"row 2 \(from 0\): the split is missing here",
    ),
    "tokens of RCV1": (
        both(".I 2286\n.W\nrecov excit\n\n", "t.dat"),
        {},
        r"t\.dat holds the tokens of RCV1: stage its vectors, .* as 'vectors\.dat\?topics=FILE'",
    ),
    "a row of libffm without a field": (
        both("1 0:3:1\n0 3:1\n", "t.ffm"),
        {},
        "line 2: '3:1' is no field:feature:value",
    ),
    "NaN in JSON Lines": (both('{"features":{"x":NaN}}\n', "t.jsonl"), {}, "NaN is not a number"),
    "texts in Chinese": (
        both("".join(f'{{"text": "我们今天去北京{c}"}}\n' for c in "甲乙丙丁"), "t.jsonl"),
        {},
        "the script of most letters has none between words: count characters by analyzer=char and",
    ),
    "CSV by semicolons": (
        both("a;b;label\n1;2;x\n"),
        TABLE,
        r"one column, and its name 'a;b;label' seems to be divided by ';': give delimiter=%3B",
    ),
    "MATLAB 7.3": (
        both(b"MATLAB 7.3 MAT-file".ljust(512), "t.mat"),
        {},
        r"is of version 7\.3: save it by save\(NAME, 'X', 'Y', '-v7'\)",
    ),
    "training and validation": (
        lambda f: files(f, **{"train.jsonl": jsonl(), "validation.jsonl": jsonl()}),
        {},
        r"validation\.jsonl: the split must be train or test; .* by split_map=validation=test",
    ),
    "two halves and another table": (
        lambda f: files(f, **{"train.csv": csv(), "test.csv": csv(), "more.csv": csv()}),
        TABLE,
        r"more\.csv is of no split by its name or its folder, as .*: move it out",
    ),
    "blanks before quotes": (both('"a", "label"\n"1", "x"\n'), TABLE, "remove the blanks after"),
    "masked blocks of Dask": (
        lambda f: da.from_array(np.ma.MaskedArray(np.eye(2), mask=[[0, 1], [0, 0]]), chunks=1),
        {},
        r"row 0, column 1 \(from 0\) is masked",
    ),
    "a frame of mixed columns": (
        lambda f: pd.DataFrame({"a": [1, "x", 2.5]}),
        TABLE,
        "give each column one type",
    ),
    "a frame of sparse columns": (
        lambda f: pd.DataFrame.sparse.from_spmatrix(sp.eye(3)),
        TABLE,
        r"frame\.sparse\.to_coo",
    ),
    "runs in a column": (
        lambda f: pa.table({"a": pc.run_end_encode(pa.array([1.0, 1, 2]))}),
        TABLE,
        "'a' holds run_end_encoded.*, which cannot be read: turn it into plain values",
    ),
    "views of lists": (
        lambda f: pa.table({"i": pa.array([[0, 1], [1]], pa.list_view(pa.int64()))}),
        {"indices": "i"},
        "'i' holds list_view.*, which cannot be read: turn it into plain values",
    ),
    "half of a surrogate in a name": (
        lambda f: np.eye(2),
        {"names": ["a\ud800", "b"]},
        "half of a surrogate pair",
    ),
    "an option twice": (
        asked(csv(), "columns=a&columns=b"),
        {},
        "columns= is given twice",
    ),
}


@pytest.mark.parametrize("name", READ)
def test_a_shape_is_read_right(tmp_path, name):
    write, options, (n, classes, y, *splits) = READ[name]
    (tmp_path / "s").mkdir()
    source = write(tmp_path / "s")
    for option in {"labels", "topics"} & set(options):
        if options[option] in ("y.txt", "q"):
            options = options | {option: str(tmp_path / "s" / options[option])}
    text = {"min_df": 1} if "columns" not in options else {}
    try:
        uri = storage.stage(source, tmp_path / "out.zarr", **text, **options)
    except SourceError as error:
        if "is a matrix" not in str(error):
            raise
        uri = storage.stage(source, tmp_path / "out.zarr", **options)
    corpus = storage.open(uri)
    assert corpus.X.shape[0] == n
    assert list(corpus.class_names) == classes
    found = corpus.y.toarray() if sp.issparse(corpus.y) else corpus.y
    assert found.tolist() == (y or [-1] * n)
    assert not splits or tuple(corpus.splits) == splits[0]
    assert corpus.X.row_tiles[0].load().nnz > 0


@pytest.mark.parametrize("name", NOTED)
def test_a_shape_is_read_with_a_note(tmp_path, caplog, name):
    write, options, note = NOTED[name]
    (tmp_path / "s").mkdir()
    storage.stage(write(tmp_path / "s"), tmp_path / "out.zarr", **options)
    assert re.search(note, caplog.text)


@pytest.mark.parametrize("name", REFUSED)
def test_a_shape_is_refused_with_advice(tmp_path, name):
    write, options, message = REFUSED[name]
    (tmp_path / "s").mkdir()
    source = write(tmp_path / "s")
    with pytest.raises(SourceError, match=message) as caught:
        storage.stage(source, tmp_path / "out.zarr", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.zarr").exists()
