"""Several real targets per sample, from every kind of source to the predictions of a run."""

import csv
import json
from types import SimpleNamespace

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bigfs import storage
from bigfs.storage.errors import SourceError
from bigfs.storage.integrity import summarize
from bigfs.storage.runs.runs import Run
from bigfs.storage.staging.build import MATRIX_PIECE
from tests.helpers.anndata import write_anndata
from tests.helpers.commands import fails

NAMES = ["age", "dose", "days"]
N, D = 60, 6


@pytest.fixture
def data(rng):
    """60 samples whose three targets are sums of two features each, and one without targets."""
    X = rng.normal(size=(N, D)).round(3)
    Y = X @ np.repeat(np.eye(3), 2, axis=0) * [1, 10, 100] + rng.normal(size=(N, 3))
    Y = Y.round(3)
    Y[:, 2] = Y[:, 2].round()  # whole numbers
    Y[7] = np.nan
    return X, Y


def frame_of(X, Y):
    columns = {f"x{j}": X[:, j] for j in range(D)}
    return pd.DataFrame(columns | {name: Y[:, k] for k, name in enumerate(NAMES)})


def lists_of(Y):
    return [[] if np.isnan(row).any() else row.tolist() for row in Y]


def columns_csv(X, Y, path):
    frame_of(X, Y).to_csv(path / "x.csv", index=False)
    return path / "x.csv", {"columns": "x*", "label": "age,dose,days"}


def joined_csv(X, Y, path):
    cells = [";".join(map(repr, row)) for row in lists_of(Y)]
    frame_of(X, Y).assign(all=cells).to_csv(path / "x.csv", index=False)
    return path / "x.csv", {
        **{"columns": "x*", "label": "all", "label_separator": ";"},
        "target": "real",
    }


def columns_parquet(X, Y, path):
    table = pa.Table.from_pandas(frame_of(X, Y), preserve_index=False)
    pq.write_table(table, path / "x.parquet", row_group_size=7)
    return path / "x.parquet", {"columns": "x*", "label": NAMES}


def lists_parquet(X, Y, path):
    table = pa.Table.from_pandas(frame_of(X, Y), preserve_index=False)
    table = table.append_column("all", pa.array(lists_of(Y), pa.list_(pa.float64())))
    pq.write_table(table, path / "x.parquet", row_group_size=7)
    return path / "x.parquet", {"columns": "x*", "label": "all", "target": "real"}


def matrix_parquet(X, Y, path):
    pytest.importorskip("pyarrow", "24", "older ones write no null of a list of fixed length")
    rows = [row or None for row in lists_of(Y)]
    table = pa.Table.from_pandas(frame_of(X, Y), preserve_index=False)
    table = table.append_column("all", pa.array(rows, pa.list_(pa.float64(), 3)))
    pq.write_table(table, path / "x.parquet")
    return path / "x.parquet", {"columns": "x*", "label": "all"}


def jsonl(X, Y, path):
    rows = [{"features": dict(enumerate(x)), "label": y} for x, y in zip(X, lists_of(Y))]  # noqa: B905
    (path / "x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path / "x.jsonl", {"target": "real"}


def svmlight(X, Y, path):
    with open(path / "x.svm", "w") as out:
        for x, y in zip(X, lists_of(Y), strict=True):
            entries = " ".join(f"{j + 1}:{float(value)!r}" for j, value in enumerate(x))
            out.write(f"{','.join(map(repr, y))} {entries}\n")
    return path / "x.svm", {"target": "real"}


def npz(X, Y, path):
    np.savez(path / "x.npz", X=X, y=Y)
    return path / "x.npz", {}


def npy(X, Y, path):
    np.save(path / "x.npy", X)
    np.save(path / "y.npy", Y)
    return path / "x.npy", {"labels": str(path / "y.npy")}


def h5ad(X, Y, path, **options):
    def write_text(group, name, values):
        group[name] = values

    with h5py.File(path / "x.h5ad", "w") as root:
        write_anndata(root, sp.csr_array(X), "csr_matrix", write_text)
        for k, name in enumerate(NAMES):
            root["obs"][name] = Y[:, k]
            root["obs"][name].attrs["encoding-type"] = "array"
        root.create_group("obsm")["targets"] = Y
        S = root["obsm"].create_group("sparse")
        rows = sp.csr_array(Y)
        S.attrs.update({"encoding-type": "csr_matrix", "shape": Y.shape})
        for part in ("data", "indices", "indptr"):
            S[part] = getattr(rows, part)
    return path / "x.h5ad", {"label": "age,dose,days"} | options


def obsm(X, Y, path):
    return h5ad(X, Y, path, label="obsm/targets")


def sparse_obsm(X, Y, path):
    return h5ad(X, Y, path, label="obsm/sparse")


def array(X, Y, path):
    return X, {"y": Y}


def array_of_frame(X, Y, path):
    return X, {"y": pd.DataFrame(Y, columns=NAMES)}


def array_of_lists(X, Y, path):
    return X, {"y": lists_of(Y), "target": "real"}


def blocks(X, Y, path):
    return [(X[a : a + 20], Y[a : a + 20]) for a in range(0, N, 20)], {}


def cells(X, Y, path, label="age,dose,days"):
    obs = pd.DataFrame(Y, columns=NAMES)
    names = list(map(str, range(N)))
    about = {"obs_names": names, "var_names": list("abcdef"), "var": None, "layers": {}}
    about |= {"isbacked": False, "is_view": False, "obsm": {"targets": Y}}
    return SimpleNamespace(X=X, obs=obs, **about), {"label": label}


def cells_obsm(X, Y, path):
    return cells(X, Y, path, "obsm/targets")


KINDS = [
    *(columns_csv, joined_csv, columns_parquet, lists_parquet, matrix_parquet, jsonl, svmlight),
    *(npz, npy, h5ad, obsm, sparse_obsm, array, array_of_frame, array_of_lists, blocks),
    *(cells, cells_obsm),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_source_keeps_several_real_targets(data, tmp_path, kind, change):
    change(MATRIX_PIECE, 700)
    source, options = kind(*data, tmp_path)
    uri = storage.stage(source, tmp_path / "a.zarr", **options)
    corpus = storage.open(uri)
    assert corpus.spec["target"] == "multioutput"
    np.testing.assert_array_equal(corpus.y, data[1])
    are_named = corpus.class_names == NAMES
    assert are_named or corpus.class_names == ["0", "1", "2"]
    assert are_named == ("age" in "".join(options.get("label", "")) or kind is array_of_frame)
    if isinstance(source, list | np.ndarray | SimpleNamespace):
        source, options = kind(data[0] + 1, data[1] + 1, tmp_path)
        grown = np.concatenate([data[1], data[1] + 1])
    else:  # another file in the same place
        source, options = kind(data[0][:9] + 1, data[1][:9] + 1, tmp_path)
        grown = np.concatenate([data[1], data[1][:9] + 1])
    storage.append(source, uri, **options)
    np.testing.assert_array_equal(storage.open(uri).y, grown)
    assert "; 3 real targets per sample; no split" in summarize(uri)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("age,flag", "row 0.* 'age' is one of several columns of labels, which must hold 0 or 1"),
        ("age,gap", "row 3.*some of the real targets age, gap are missing here: give all of them"),
        ("age,text", "'text' is one of several columns of labels, which must hold 0 or 1, or real"),
        ("age,far", "row 5.*a label must be a text, a number.*; got inf"),
    ],
)
def test_what_is_no_row_of_real_targets_is_refused(data, tmp_path, label, message):
    X, Y = data[0], np.nan_to_num(data[1])
    frame = frame_of(X, Y).assign(flag=1, gap=Y[:, 1], text="word", far=Y[:, 1])
    frame.loc[3, "gap"], frame.loc[5, "far"] = np.nan, np.inf
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / "x.parquet")
    with pytest.raises(SourceError, match=message) as caught:
        storage.stage(tmp_path / "x.parquet", tmp_path / "a.zarr", columns="x*", label=label)
    assert "\n" not in str(caught.value)


def test_columns_of_zeros_and_ones_are_real_targets_where_the_user_says_so(data, tmp_path):
    X, Y = data[0], np.arange(3 * N).reshape(N, 3) % 2.0
    options = {"columns": "x*", "label": NAMES, "target": "real"}
    frame_of(X, Y).to_csv(tmp_path / "x.csv", index=False)
    uri = storage.stage(tmp_path / "x.csv", tmp_path / "a.zarr", **options)
    np.testing.assert_array_equal(storage.open(uri).y, Y)
    uri = storage.stage(X, tmp_path / "b.zarr", y=Y.astype(bool), target="real")
    np.testing.assert_array_equal(storage.open(uri).y, Y)


def test_lists_of_other_lengths_and_other_targets_are_refused(data, tmp_path):
    X, Y = data
    short = [*lists_of(Y)[:-1], [1.5]]
    with pytest.raises(SourceError, match=r"row 59.*the label has 1 real targets, and others have"):
        storage.stage(X, tmp_path / "a.zarr", y=short, target="real")
    with pytest.raises(SourceError, match=r"not whole: give target=real if they are several real"):
        storage.stage(X, tmp_path / "a.zarr", y=lists_of(Y))
    with pytest.raises(SourceError, match=r"column 1 \(from 0\) does not: give target=real if all"):
        storage.stage(X, tmp_path / "a.zarr", y=np.column_stack([np.arange(N) % 2, X[:, 0]]))
    uri = storage.stage(X, tmp_path / "a.zarr", y=pd.DataFrame(Y, columns=NAMES))
    with pytest.raises(SourceError, match="has the real targets 0, 1, 2 and the store has age, d"):
        storage.append(X + 1, uri, y=Y)
    turned = pd.DataFrame(Y, columns=NAMES)[NAMES[::-1]]
    storage.append(X + 1, uri, y=turned)
    np.testing.assert_array_equal(storage.open(uri).y, np.concatenate([Y, Y]))


@pytest.mark.parametrize("method", ["sparge-cca", "multitask-lasso"])
def test_a_table_with_real_targets_runs_to_its_predictions(data, tmp_path, method, bigfs):
    X, Y = data
    halves = ["train", "test", "train"] * (N // 3)
    frame = frame_of(X, Y).assign(noise=np.cos(np.arange(N)), split=halves)
    frame.to_csv(tmp_path / "x.csv", index=False)
    options = ("--method", method, "--features", 6, "--workers", 0, "--no-prefect")
    words = ("x.csv?columns=x*,noise", "--label", "age,dose,days", "--out", "r")
    status, _, err = bigfs("run", *words, *options)
    assert status == 0, err
    run = Run.open(tmp_path / "r")
    assert {row["name"] for row in run.read_table("selected.csv")} == {f"x{j}" for j in range(D)}
    train = (frame["split"] == "train").to_numpy() & ~np.isnan(Y[:, 0])
    test = (frame["split"] == "test").to_numpy() & ~np.isnan(Y[:, 0])
    single = sp.csr_array(X.astype(np.float32).astype(float))
    ridge = make_pipeline(StandardScaler(with_mean=False), Ridge()).fit(single[train], Y[train])
    left = ((Y[test] - ridge.predict(single[test])) ** 2).sum(axis=0)
    r2 = 1 - left / ((Y[test] - Y[train].mean(axis=0)) ** 2).sum(axis=0)
    own = (p for p in run.metadata["curves"] if p["method"] == method and p["n_features"] == D)
    point = next(own)
    assert point["r2"] == pytest.approx(r2.mean(), rel=1e-6)
    assert (tmp_path / "r" / "report.html").exists()
    for name in ("p.csv", "p.csv", "p.parquet"):  # one of ours is written anew
        status, _, err = bigfs("predict", "r", "x.csv", name, "--workers", 0)
        assert status == 0, err
    with open(tmp_path / "p.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["sample", *(f"prediction {name}" for name in NAMES)]
    found = np.array([row[1:] for row in rows], dtype=float)
    np.testing.assert_allclose(found, ridge.predict(single), rtol=1e-5, atol=1e-5)
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == header
    np.testing.assert_array_equal(np.column_stack(table.columns[1:]), found)
    np.testing.assert_allclose(run.model().to_sklearn().predict(frame), found, rtol=1e-5)
    fails(
        bigfs("run", *words[:-1], "other", "--method", "f-regression", *options[2:]),
        "which has several real targets per sample: use --method sparge-cca or multitask-lasso",
    )
