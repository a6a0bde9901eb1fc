"""Several columns of zeros and ones are sets of labels, in the order in which they are named."""

import json
from types import SimpleNamespace

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from bigfs import FRegression, storage
from bigfs.storage.errors import SourceError
from bigfs.storage.runs.runs import Run
from bigfs.storage.staging.build import MATRIX_PIECE
from tests.helpers.anndata import write_anndata
from tests.helpers.commands import fails

TAGS = ["spam", "ad", "rare"]


@pytest.fixture
def frame(rng):
    """70 rows with two features per tag, of which the last tag is never given."""
    Y = rng.random((70, 3)) < [0.4, 0.6, 0]
    X = Y[:, [0, 1, 2, 0, 1, 2]] + rng.random((70, 6)) / 2
    table = {f"x{j}": X[:, j].round(3) for j in range(6)}
    table |= {"spam": Y[:, 0], "ad": Y[:, 1].astype(int), "rare": Y[:, 2].astype(float)}
    table["text"] = [" ".join(["word", *np.array(TAGS)[row]]) for row in Y]
    table["tags"] = [np.array(TAGS)[row].tolist() for row in Y]
    return pd.DataFrame(table)


def write_text(group, name, values):
    group[name] = values


def save(frame, path):
    if path.suffix == ".csv":
        frame.drop(columns="tags").to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in frame.to_dict("records")))
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=9)
    else:
        pa.feather.write_feather(pa.Table.from_pandas(frame, preserve_index=False), path)
    return path


def require_sets(uri, frame, order=TAGS):
    corpus = storage.open(uri)
    assert corpus.spec["target"] == "multilabel"
    assert corpus.class_names == list(order)
    np.testing.assert_array_equal(corpus.y.toarray(), frame[list(order)].astype(int))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".jsonl"])
@pytest.mark.parametrize("options", [{"text": "text"}, {"columns": "x*"}])
def test_files_of_tables(frame, tmp_path, suffix, options, change):
    if suffix == ".jsonl" and "columns" in options:
        frame["i"], frame["v"] = [[[0, 3]] * 70, [[1.5, 2.5]] * 70]
        options = {"indices": "i", "values": "v"}
    change(MATRIX_PIECE, 600)
    path = save(frame, tmp_path / f"x{suffix}")
    uri = storage.stage(path, tmp_path / "a.zarr", label=TAGS, **options)
    require_sets(uri, frame)
    query = "&".join(f"{name}={value}" for name, value in options.items())
    assert storage.find_store(f"{path}?{query}&label=spam,ad,rare", tmp_path / "a.zarr") == uri
    other = storage.stage(path, tmp_path / "b.zarr", label="ad, spam", **options)
    require_sets(other, frame, ["ad", "spam"])
    storage.append(save(frame[:5], tmp_path / f"y{suffix}"), uri, label=TAGS[::-1], **options)
    require_sets(uri, pd.concat([frame, frame[:5]]))


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_a_column_of_lists_of_names_is_sets_of_labels_too(frame, tmp_path, suffix):
    path = save(frame, tmp_path / f"x{suffix}")
    corpus = storage.open(storage.stage(path, tmp_path / "a.zarr", text="text", label="tags"))
    assert corpus.class_names == ["ad", "spam"]
    np.testing.assert_array_equal(corpus.y.toarray(), frame[["ad", "spam"]].astype(int))


def test_objects(frame, tmp_path):
    X, table = frame[[f"x{j}" for j in range(6)]], pl.from_pandas(frame)
    sources = [(table, {"columns": "x*", "label": TAGS}), (X.to_numpy(), {"y": frame[TAGS]})]
    sources += [(X.to_numpy(), {"y": {name: frame[name] for name in TAGS}})]
    obs = frame[TAGS].rename(columns=str)
    cells = SimpleNamespace(
        **{"X": X.to_numpy(), "obs": obs, "var": X.T[[]], "obs_names": list(map(str, X.index))},
        **{"var_names": list(X.columns), "layers": {}, "isbacked": False, "is_view": False},
    )
    sources.append((cells, {"label": "spam,ad,rare"}))
    for number, (source, options) in enumerate(sources):
        uri = storage.stage(source, tmp_path / f"{number}.zarr", **options)
        require_sets(uri, frame)
    uri = storage.stage(X.to_numpy(), tmp_path / "y.zarr", y=frame[TAGS].to_numpy(dtype=float))
    np.testing.assert_array_equal(storage.open(uri).y.toarray(), frame[TAGS[:2]].astype(int))
    with pytest.raises(SourceError, match="a column for each label must hold 0 or 1: give target"):
        storage.stage(X.to_numpy(), tmp_path / "z.zarr", y=sp.csr_array(X.to_numpy()[:, :2]))


@pytest.mark.parametrize("kind", ["object", "jsonl", "svmlight"])
def test_lists_of_real_targets_are_not_taken_for_labels(rng, tmp_path, kind):
    X, Y = np.eye(5), rng.normal(size=(5, 2)).round(3)
    source, options = X, {"y": Y.tolist()}
    if kind != "object":
        source, options = tmp_path / f"x.{kind}", {}
        rows = [{"features": {"a": 1.5}, "label": y} for y in Y.tolist()]
        lines = [f"{u},{v} {i + 1}:1" for i, (u, v) in enumerate(Y.tolist())]
        lines = lines if kind == "svmlight" else [json.dumps(row) for row in rows]
        source.write_text("\n".join(lines) + "\n")
    with pytest.raises(SourceError, match="give target=real if they are several real targets"):
        storage.stage(source, tmp_path / "a.zarr", **options)
    if kind == "object":
        with pytest.raises(ValueError, match="for several real targets per sample use"):
            FRegression().fit(X, Y)


def test_columns_of_obs(tmp_path):
    X = np.eye(4, 3, dtype=np.float32)
    with h5py.File(tmp_path / "x.h5ad", "w") as root:
        write_anndata(root, sp.csr_array(X), "csr_matrix", write_text)
        for name, values in (("a", [True, False, True, False]), ("b", [1, 1, 0, 0]), ("c", 2)):
            root["obs"][name] = np.broadcast_to(values, 4)
            root["obs"][name].attrs["encoding-type"] = "array"
    uri = storage.stage(tmp_path / "x.h5ad", tmp_path / "a.zarr", label="b,a")
    corpus = storage.open(uri)
    assert corpus.class_names == ["b", "a"]
    assert corpus.y.toarray().tolist() == [[1, 1], [1, 0], [0, 1], [0, 0]]
    with pytest.raises(
        SourceError, match=r"x\.h5ad: row 0 .*'c' is one of several columns .* got 2"
    ):
        storage.stage(tmp_path / "x.h5ad", tmp_path / "b.zarr", label=["a", "c"])


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("spam,x0", r"row 0 .*'x0' is one of several columns of labels, which must hold 0 or 1"),
        ("spam,tags", "'tags' is one of several columns of labels, which must hold 0 or 1"),
        ("spam,text", "'text' is one of several columns of labels, which must hold 0 or 1"),
        ("spam,gap", r"row 3 .*'gap' is one of several columns .* for every sample; got none"),
        ("spam,no", "has no column 'no', only .*: name one of them with label="),
    ],
)
def test_what_is_no_column_of_labels_is_refused(frame, tmp_path, label, message):
    frame["gap"] = [1.0, 0, 1, None, *[0.0] * 66]
    path = save(frame, tmp_path / "x.parquet")
    with pytest.raises(SourceError, match=message) as caught:
        storage.stage(path, tmp_path / "a.zarr", columns="x1,x2", label=label)
    assert "\n" not in str(caught.value)
    with pytest.raises(SourceError, match="several columns, which are labels that hold 0 or 1, or"):
        storage.stage(path, columns="x1", label="spam,ad", target="class")


@pytest.mark.parametrize("method", ["sparge-cca", "sparge-hsl"])
def test_a_table_with_columns_of_labels_runs_to_its_report(frame, tmp_path, method, bigfs):
    save(frame, tmp_path / "x.parquet")
    options = ("--method", method, "--features", 2, "--workers", 0, "--no-prefect")
    words = ("x.parquet?columns=x*", "--label", "spam,ad", "--out", "r", *options)
    status, _, err = bigfs("run", *words)
    assert status == 0, err
    run = Run.open(tmp_path / "r")
    assert {row["name"] for row in run.read_table("selected.csv")} <= {"x0", "x1", "x3", "x4"}
    assert run.metadata["curves"][0]["micro_f1"] > 0.5
    assert "micro F1" in (tmp_path / "r" / "report.html").read_text()
    status, _, err = bigfs("predict", "r", "x.parquet", "p.csv", "--workers", 0)
    assert status == 0, err
    fails(
        bigfs("stage", "x.parquet?columns=x*", "s.zarr", "--label", "x0,ad", "--workers", 0),
        "'x0' is one of several columns of labels",
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_value_that_means_none_is_missing_in_each_of_several_columns(tmp_path, suffix):
    """It was read as a target, without a word."""
    frame = pd.DataFrame({"a": range(6), "p": [1.5, -1, 2, 3, -1, 5], "q": [2.5, -1, 2, 0, -1, 8]})
    path = tmp_path / f"t{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    options = {"columns": "a", "label": "p,q", "scale": "none"}
    found = storage.open(storage.stage(path, tmp_path / "t.zarr", unlabeled=-1, **options)).y
    expected = frame[["p", "q"]].replace(-1, np.nan).to_numpy()
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(SourceError, match="unlabeled='none' must be a number"):
        storage.stage(path, tmp_path / "u.zarr", unlabeled="none", **options)
