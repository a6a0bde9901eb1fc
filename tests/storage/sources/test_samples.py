"""Samples are the same from every kind of source, whatever the memory and the pieces."""

import json
import re
import subprocess
import sys
import tracemalloc
from types import SimpleNamespace

import dask.array as da
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse as sp
from pyarrow import parquet

from bigfs import storage
from bigfs.storage.errors import SourceError
from bigfs.storage.sources import samples
from bigfs.storage.sources.tables.tables import BATCH_BYTES
from bigfs.storage.staging.build import MATRIX_PIECE, TEXT_PIECE
from bigfs.storage.write_back import write_element

N, BAD = 60, 41  # rows, and the one with the bad fact
GROUP = 9  # rows of a group of Parquet and of a batch of Arrow
FEATURES = ["a", "b", "c"]
ROLES = {"label": "kind", "split": "half", "group": "donor", "sample_weight": "w", "time": "day"}
KINDS = ["csv", "jsonl", "parquet", "arrow", "h5ad", "pandas", "polars", "cells"]


def table(bad=None):
    row = np.arange(N)
    told = {
        "kind": [["no", "yes", "perhaps"][i % 3] for i in row],
        "half": ["test" if i % 5 == 2 else "train" for i in row],
        "donor": [f"d{i}" for i in row % 7],
        "w": (row / 8).tolist(),
        "day": [f"2024-03-{1 + i % 28:02}" for i in row],
        "id": [f"s{i}" for i in row],
    }
    for column, value in (bad or {}).items():
        told[column][BAD] = value
    numbers = np.random.default_rng(5).integers(0, 3, (N, 3))
    frame = {name: numbers[:, j] for j, name in enumerate(FEATURES)}
    return pd.DataFrame(frame | {k: pd.Series(v, dtype=object) for k, v in told.items()})


def arrow(frame):
    columns = {name: frame[name].tolist() for name in frame}
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def as_source(entry, frame, folder):
    """The source of a table from a kind of source, and its options."""
    options = {"columns": "a,b,c", "name": "id", **ROLES}
    path = folder / f"rows.{entry}"
    if entry == "csv":
        frame.to_csv(path, index=False)
    elif entry == "jsonl":
        options = {"indices": "i", "values": "v", "name": "id", **ROLES}
        records = frame.drop(columns=FEATURES).to_dict("records")
        rows = frame[FEATURES].to_numpy().tolist()
        lines = [{"i": [0, 1, 2], "v": v, **r} for v, r in zip(rows, records, strict=True)]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    elif entry == "parquet":
        parquet.write_table(arrow(frame), path, row_group_size=GROUP)
    elif entry == "arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, arrow(frame).schema) as out:
            out.write_table(arrow(frame), max_chunksize=GROUP)
    elif entry == "pandas":
        return frame, options
    elif entry == "polars":
        return pl.from_arrow(arrow(frame)), options
    elif entry == "cells":
        obs = frame.drop(columns=FEATURES).set_index("id")
        X = sp.csr_array(frame[FEATURES].to_numpy(np.float32))
        return SimpleNamespace(
            **{"X": X, "obs": obs, "var": pd.DataFrame(index=FEATURES), "layers": {}},
            **{"obs_names": obs.index, "var_names": FEATURES, "isbacked": False, "is_view": False},
        ), ROLES
    else:
        with h5py.File(path, "w") as root:
            root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
            write_element(root, "X", sp.csr_array(frame[FEATURES].to_numpy(np.float32)))
            for name in ("obs", "var"):
                encoding = {"encoding-type": "dataframe", "encoding-version": "0.2.0"}
                root.create_group(name).attrs.update(encoding)
            write_element(root["var"], "_index", FEATURES)
            write_element(root["obs"], "_index", frame["id"].tolist())
            for name in ROLES.values():
                if all(isinstance(v, float) for v in frame[name]):
                    write_element(root["obs"], name, frame[name].to_numpy(float))
                    continue
                codes, names = pd.factorize(frame[name])
                if all(isinstance(v, str) for v in names):
                    write_element(root["obs"], name, (names, codes))
                else:
                    pytest.skip("obs has no column of texts and numbers")
        options = ROLES
    return path, options


def content(uri):
    corpus = storage.open(uri)
    X = np.vstack([tile.load().toarray() for tile in corpus.X.row_tiles])
    told = corpus.y, corpus.groups, corpus.sample_weight, corpus.times
    names = corpus.class_names, corpus.categories("group"), corpus.sample_names.tolist()
    return corpus.splits, *names, *(np.asarray(part).tolist() for part in (X, *told))


@pytest.mark.parametrize("entry", KINDS)
@pytest.mark.parametrize(("piece", "limit"), [(1 << 25, "320MB"), (600, "320MB"), (600, "4GB")])
def test_the_same_rows_are_one_store_from_every_kind(tmp_path, change, entry, piece, limit):
    frame = table({"kind": None})
    change(MATRIX_PIECE, piece)
    source, options = as_source(entry, frame, tmp_path)
    uri = storage.stage(source, tmp_path / "a.zarr", memory_limit=limit, **options)
    expected = storage.stage(
        arrow(frame), tmp_path / "b.zarr", columns="a,b,c", name="id", memory_limit="1GB", **ROLES
    )
    assert content(uri) == content(expected)
    assert storage.open(uri).class_names == ["no", "perhaps", "yes"]
    assert np.count_nonzero(storage.open(uri).y == -1) == 1


BAD_FACTS = [
    ({"half": None}, "the split is missing here, and other samples have one: write train or"),
    ({"half": "dev"}, "the split must be train or test; got 'dev'"),
    ({"donor": None}, "group= names a column that must hold a text or a number .*; got none"),
    ({"w": None}, "sample_weight= names a column that must hold a finite number .*; got n"),
    ({"w": -1.0}, "sample_weight= names a column that must hold a finite number .*; got '?-1"),
    ({"day": None}, "time= names a column that must hold a number or a date .*; got none"),
    ({"day": "2"}, "time= names a column with both numbers and dates: give one kind"),
    ({"kind": "x\0"}, "the label 'x.x00' holds the character NUL, which a store cannot hold"),
]


@pytest.mark.parametrize("entry", KINDS)
@pytest.mark.parametrize("piece", [1 << 25, 900])
@pytest.mark.parametrize(("bad", "message"), BAD_FACTS)
def test_one_bad_fact_is_the_same_error_from_every_kind_of_source(
    tmp_path, change, entry, bad, message, piece
):
    if entry in ("csv", "h5ad") and "kind" in bad:
        pytest.skip("such a file holds no NUL")
    change(MATRIX_PIECE, piece)
    source, options = as_source(entry, table(bad), tmp_path)
    with pytest.raises(SourceError, match=message) as caught:
        storage.stage(source, tmp_path / "a.zarr", **options)
    group, row = divmod(BAD, GROUP)
    place = rf"row {BAD} \(from 0\)|line {BAD + 1}:|{group}.*row {row} \(from 0\)"
    assert re.search(place, str(caught.value))
    assert not (tmp_path / "a.zarr").exists()


def test_a_list_among_labels_is_refused_in_one_piece_and_in_many(tmp_path, change):
    path = tmp_path / "rows.jsonl"
    labels = ["a"] * 7 + [["b"]] + ["a"] * 7
    path.write_text("".join(json.dumps({"text": "some words", "label": v}) + "\n" for v in labels))
    for piece in (1 << 22, 1):
        change(TEXT_PIECE, piece)
        with pytest.raises(SourceError, match="line 8: either all labels or none must be lists"):
            storage.stage(path, tmp_path / "a.zarr", min_df=1)


def test_a_sample_without_a_name_has_its_number(tmp_path, change):
    change(TEXT_PIECE, 1)
    path = tmp_path / "rows.jsonl"
    rows = [{"text": "some words", "id": name} for name in ("a", None, "", "b\0")]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    corpus = storage.open(storage.stage(path, tmp_path / "a.zarr", min_df=1))
    assert corpus.sample_names.tolist() == ["a", "1", "2", "b\0"]
    path.write_text('{"text": "some words"}\n' * 2)
    corpus = storage.open(storage.stage(path, tmp_path / "b.zarr", min_df=1))
    assert corpus.sample_names.tolist() == ["0", "1"]
    assert corpus.manifest.named[0] is False
    assert corpus.spec["target"] is None


@pytest.mark.parametrize("role", ["id", "label", "group"])
def test_one_long_value_makes_no_other_value_longer(tmp_path, role):
    rows = [{"features": {"0": 1}, "id": f"s{i}", "label": "a", "group": "g"} for i in range(4000)]
    rows[2000][role] = "x" * 40_000
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    storage.stage(path, tmp_path / "warm.zarr", group="group", tile_rows=4000)
    tracemalloc.start()
    uri = storage.stage(path, tmp_path / "a.zarr", group="group")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20  # a text of fixed width takes 640 MB
    corpus = storage.open(uri)
    found = {
        "id": corpus.sample_names.tolist,
        "label": lambda: corpus.class_names,
        "group": lambda: corpus.categories("group"),
    }[role]()
    assert max(map(len, found)) == 40_000


@pytest.mark.parametrize(
    ("values", "options", "names", "target"),
    [
        (["9", "10", "1.0", "1"], {}, ["1", "9", "10"], "class"),
        (["10.5", "20.25", "1"], {}, [], "real"),
        (["7", "400", "7"], {"target": "real"}, [], "real"),
        (["10.5", "2", "2"], {"target": "class"}, ["2", "10.5"], "class"),
        (["01", "1", "2"], {}, ["01", "1", "2"], "class"),  # no numbers as people write them
        (["E11 ECAT", "ECAT", "M11 E11"], {"label_separator": " "}, None, "multilabel"),
    ],
)
@pytest.mark.parametrize("piece", [1, 1 << 22])
def test_labels_that_csv_spells(tmp_path, change, values, options, names, target, piece):
    change(TEXT_PIECE, piece)
    change(BATCH_BYTES, piece)
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "".join(f"some words,{value}\n" for value in values))
    corpus = storage.open(storage.stage(path, tmp_path / "a.zarr", min_df=1, **options))
    assert corpus.spec["target"] == target
    assert corpus.class_names == (["E11", "ECAT", "M11"] if names is None else names)
    if target == "real":
        assert corpus.y.tolist() == [float(value) for value in values]
    elif target == "class":
        number = {name: code for code, name in enumerate(names)}
        assert corpus.y.tolist() == [number.get(v, number.get(v[:1])) for v in values]
    else:
        assert corpus.y.toarray().tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 1]]


@pytest.mark.parametrize("target", ["class", "real", "multilabel"])
def test_every_source_takes_the_kind_of_its_target(tmp_path, target):
    X, y = np.eye(6), np.array([18, 40, 18, 89, 7, 7])
    np.savez(tmp_path / "x.npz", X=X, y=y)
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "y.txt").write_text("\ufeff" + "\n".join(map(str, y)) + "\n\n")
    (tmp_path / "x.svm").write_text("".join(f"{v} {i + 1}:1\n" for i, v in enumerate(y)))
    lines = [{"features": {str(i): 1}, "label": int(v)} for i, v in enumerate(y)]
    (tmp_path / "x.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    scipy.io.savemat(tmp_path / "x.mat", {"X": X, "Y": y[:, None].astype(float)})
    sources = [tmp_path / f"x.{kind}" for kind in ("npz", "svm", "jsonl", "mat")]
    told = [(path, {}) for path in sources] + [(X, {"y": y})]
    told.append((tmp_path / "x.npy", {"labels": str(tmp_path / "y.txt")}))
    for number, (source, options) in enumerate(told):
        uri = storage.stage(source, tmp_path / f"{number}.zarr", target=target, **options)
        corpus = storage.open(uri)
        assert corpus.spec["target"] == target
        if target == "real":
            assert corpus.y.tolist() == y.tolist()
        else:
            assert corpus.class_names == ["7", "18", "40", "89"]
    with pytest.raises(SourceError, match="target must be class, real or multilabel"):
        storage.stage(tmp_path / "x.svm", tmp_path / "no.zarr", target="regression")


@pytest.mark.parametrize(
    ("values", "options", "names"),
    [
        ([True, False, True], {}, ["false", "true"]),
        ([1.0, 2.0, 1.0], {}, ["1", "2"]),
        ([1.0, 2.0, 1.0], {"unlabeled": "1"}, ["2"]),
    ],
)
def test_categories_of_a_file_and_of_an_object_are_the_same_labels(
    tmp_path, values, options, names
):
    frame = table()[:3]
    frame["kind"] = values
    cells, _ = as_source("cells", frame, tmp_path)
    cells.obs["kind"] = cells.obs["kind"].astype("category")
    corpus = storage.open(storage.stage(cells, tmp_path / "a.zarr", label="kind", **options))
    path, _ = as_source("h5ad", table()[:3], tmp_path)
    with h5py.File(path, "r+") as root:
        codes, found = pd.factorize(np.array(values))
        write_element(root["obs"], "kind", (["x"], codes))
        del root["obs/kind/categories"]
        write_element(root["obs/kind"], "categories", found)
    of_file = storage.open(storage.stage(path, tmp_path / "b.zarr", label="kind", **options))
    assert of_file.class_names == corpus.class_names == names
    assert of_file.y.tolist() == corpus.y.tolist()
    for source, name in ((cells, "c"), (path, "d")):  # a column called split may mean another thing
        if name == "c":
            cells.obs["split"] = ["x", "y", "z"]
        else:
            with h5py.File(path, "r+") as root:
                write_element(root["obs"], "split", ["x", "y", "z"])
        uri = storage.stage(source, tmp_path / f"{name}.zarr", label="kind", split="")
        assert storage.open(uri).splits == ()


def test_decimals_are_labels(tmp_path):
    values = pa.array([1.5, 2, 1.5]).cast(pa.decimal128(10, 2))
    corpus = storage.open(
        storage.stage(pa.table({"x": [1, 2, 3], "label": values}), tmp_path / "a", columns="x")
    )
    assert (corpus.spec["target"], corpus.y.tolist()) == ("real", [1.5, 2, 1.5])


def test_whole_numbers_are_exact_at_any_size():
    values = [2**53 + 1, 2**70, -(2**63), 2**64 - 1]
    assert [int(v) for v in samples.read("label", values, str).to_pylist()] == values
    column = samples.read("label", np.array([2**64 - 1, 1], np.uint64), str)
    assert [int(v) for v in column.to_pylist()] == [2**64 - 1, 1]


def test_values_of_samples_are_no_settings(tmp_path):
    y, names = list(np.array([1, 2, 1])), ["Ann", "Bob", "Cy"]
    uri = storage.stage(np.eye(3), tmp_path / "a.zarr", y=y, sample_names=names, unlabeled="9")
    assert storage.open(uri).manifest.source["options"] == {"unlabeled": "9"}
    assert "Ann" not in (tmp_path / "a.zarr" / "zarr.json").read_text()


def test_samples_for_the_test_make_those_of_a_store_the_training_samples(tmp_path):
    table = pa.table({"x": [1, 2], "label": ["a", "b"]})
    uri = storage.stage(table, tmp_path / "a.zarr", columns="x")
    more = pa.table({"x": [3, 4], "label": ["a", "b"]})
    assert storage.open(storage.append(more, uri, columns="x", split="train")).splits == ()
    test = pa.table({"x": [5], "label": ["b"]})
    corpus = storage.open(storage.append(test, uri, columns="x", split="test"))
    assert [corpus.part(half).X.shape[0] for half in ("train", "test")] == [4, 1]
    both = pa.table({"x": [6, 7], "label": ["a", "b"], "split": ["train", "test"]})
    corpus = storage.open(storage.append(both, uri, columns="x"))
    assert [corpus.part(half).X.shape[0] for half in ("train", "test")] == [5, 2]
    assert storage.check(uri).problems == []


def test_a_masked_value_is_refused(tmp_path):
    X = np.ma.MaskedArray([[1.0, 2.0], [3.0, 4.0]], mask=[[0, 0], [1, 0]])
    with pytest.raises(SourceError, match=r"row 1, column 0 \(from 0\) is masked"):
        storage.stage(X, tmp_path / "a.zarr")
    blocks = da.from_array(X, chunks=(1, 2), asarray=False)
    with pytest.raises(SourceError, match=r"row 1, column 0 \(from 0\) is masked"):
        storage.stage(blocks, tmp_path / "a.zarr")
    X = np.ma.MaskedArray(X.data, mask=False)
    assert storage.open(storage.stage(X, tmp_path / "a.zarr")).X.shape == (2, 2)


def test_the_index_of_pandas_is_no_feature(tmp_path, caplog):
    frame = pd.DataFrame({"a": [0.5, 1.5, 2.5], "label": ["x", "y", "x"]}, index=[4, 5, 9])
    frame.to_csv(tmp_path / "x.csv")
    frame.to_parquet(tmp_path / "x.parquet")
    for number, source in enumerate((tmp_path / "x.csv", tmp_path / "x.parquet", frame)):
        corpus = storage.open(storage.stage(source, tmp_path / f"{number}.zarr", columns="*"))
        assert list(corpus.feature_names[:]) == ["a"]
    assert caplog.text.count("is left out, as it is the index of pandas") == 2


def test_columns_that_count_or_lose_digits_are_said_with_what_to_type(tmp_path, caplog):
    n = 40
    days = {"day": 20240100 + np.arange(n), "a": np.arange(n) % 3, "b": np.arange(n) % 2}
    pd.DataFrame({"nr": np.arange(1, n + 1), **days}).to_csv(tmp_path / "x.csv", index=False)
    storage.stage(tmp_path / "x.csv", tmp_path / "a.zarr", columns="*,!b")
    assert "the column 'nr' counts the samples: give name=nr" in caplog.text
    assert "leave it out by columns=*,!b,!nr" in caplog.text
    assert "the column 'day' loses digits: 20240101 becomes 20240100" in caplog.text


@pytest.mark.parametrize(
    ("columns", "advice"), [("*,!id", r"columns=\*,!id,!c$"), ("a,b,c", "columns=a,b$")]
)
def test_advice_is_the_request_with_the_change_in_it(tmp_path, columns, advice):
    path = tmp_path / "x.csv"
    path.write_text("id,a,b,c,label\n1,.5,.2,4,0\n2,.1,.4,y,1\n3,.7,.9,x,0\n")
    with pytest.raises(SourceError, match=rf"row 1 \(from 0\): column 'c' .*{advice}"):
        storage.stage(path, tmp_path / "a.zarr", columns=columns)


def test_large_whole_numbers_are_rounded_from_parquet_as_from_csv(tmp_path):
    frame = pd.DataFrame({"x": [1, 2**53 + 1], "label": ["a", "b"]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    rows = []
    for suffix in ("csv", "parquet"):
        uri = storage.stage(tmp_path / f"x.{suffix}", tmp_path / f"{suffix}.zarr", columns="x")
        rows.append(storage.open(uri).X.row_tiles[0].load().toarray().tolist())
    assert rows[0] == rows[1]


def test_classes_of_one_sample_each_are_said(tmp_path, caplog):
    storage.stage(np.eye(30), tmp_path / "a.zarr", y=np.arange(30))
    assert "most of its 30 classes have one sample: give target=real" in caplog.text


def test_reading_imports_no_pandas(tmp_path):
    """It takes 0.2 s and 29 MB per worker, and pyarrow imports it where it converts values."""
    (tmp_path / "x.svm").write_text("1 1:2 2:3\n0 2:1.5\n" * 4)
    for i in range(4):
        path = tmp_path / f"text/{['train', 'test'][i % 2]}/{i // 2}/{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("alpha beta")
    columns = {"a": [1.0, None, 3.0], "b": [1, 2, 3], "label": ["x", None, "y"]}
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_text("a,b,label\n1,2,x\n,3,y\n4,NA,x\n")
    code = (
        "import sys; from bigfs import storage; storage.stage('x.svm'); storage.stage('text'); "
        "[storage.stage(f'x.{kind}', columns='*', missing='mean') for kind in ('parquet', 'csv')]; "
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
