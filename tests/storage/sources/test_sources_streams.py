"""Objects in: a matrix or a table is one store, whatever object holds it and in whatever parts."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from bigfs import engine, storage
from bigfs.matrix.matrix import Matrix
from bigfs.storage.errors import SourceError, StoreError
from bigfs.storage.format.manifest import manifest_of
from tests.helpers.daily import daily

duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")

N, D = 300, 40
NAMES = [f"f{j}" for j in range(D)]


@pytest.fixture
def X(rng):
    X = rng.random((N, D)).astype(np.float32) * (rng.random((N, D)) < 0.2)
    X[[0, 7]] = 0  # empty rows
    X[5, D - 1] = 1  # a file of svmlight knows by it how many columns there are
    X = sp.csr_array(X)
    return X


@pytest.fixture
def y(rng):
    return rng.integers(0, 3, N)


def content(data, place, **options):
    """The identity of what a store holds."""
    return manifest_of(storage.stage(data, place, **options)).content


def pairs(X, y, rows, convert=lambda block: block):
    return ((convert(X[a : a + rows]), y[a : a + rows]) for a in range(0, X.shape[0], rows))


# --- matrices -------------------------------------------------------------------------------------


def with_scrambled_rows(X):
    """The same matrix with unsorted indices, an entry in two parts, and a stored zero."""
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in itertools.pairwise(X.indptr)])
    data, indices, indptr = X.data[order] / 2, X.indices[order], X.indptr.copy()
    data, indices = np.repeat(data, 2), np.repeat(indices, 2)
    indices = np.append(indices, 0).astype(np.int64)
    indptr = 2 * indptr.astype(np.int64)
    indptr[-1] += 1
    return sp.csr_array((np.append(data, 0), indices, indptr), shape=X.shape)


MATRICES = {
    "csr": lambda X, y: (X, y),
    "csr_matrix": lambda X, y: (sp.csr_matrix(X), y),
    "csc": lambda X, y: (X.tocsc(), y),
    "coo": lambda X, y: (X.tocoo(), y.tolist()),
    "lil": lambda X, y: (X.tolil(), pd.Series(y)),
    "float64, int64 indices": lambda X, y: (
        with_scrambled_rows(X.astype(float)),
        y.astype(np.int8),
    ),
    "NumPy": lambda X, y: (X.toarray(order="F"), y.astype(float)),
    "Matrix": lambda X, y: (Matrix.from_array(X, tile_rows=70), y),
    "Dask": lambda X, y: (da.from_array(X.toarray(), chunks=(70, 17)), da.from_array(y)),
    "Dask, csr": lambda X, y: (
        da.from_array(X.toarray(), chunks=(70, 17)).map_blocks(sp.csr_matrix),
        y,
    ),
    "one pair": lambda X, y: ([(X, y)], None),
    "rows": lambda X, y: (pairs(X, y, 1), None),
    "pairs": lambda X, y: (pairs(X, y, 64, sp.csc_matrix), None),
    "dense pairs": lambda X, y: (pairs(X, y, 299, lambda block: block.toarray()), None),
    "blocks": lambda X, y: ((X[a : a + 64] for a in range(0, N, 64)), y),
}


@pytest.mark.parametrize("kind", daily(MATRICES, "csc", "NumPy", "Dask", "pairs", "blocks"))
def test_a_matrix_is_one_store_whatever_holds_it(tmp_path, X, y, kind):
    np.savez(tmp_path / "Xy.npz", X=X.toarray(), y=y)
    dump_svmlight_file(X, y, str(tmp_path / "Xy.svm"), zero_based=True)
    data, labels = MATRICES[kind](X, y)
    uri = storage.stage(data, tmp_path / "a.zarr", **({} if labels is None else {"y": labels}))
    np.testing.assert_array_equal(storage.open(uri).X.rows(range(N)).toarray(), X.toarray())
    expected = {
        content(tmp_path / f"Xy.{name}", tmp_path / f"{name}.zarr") for name in ("npz", "svm")
    }
    assert {manifest_of(uri).content} == expected


def test_labels_and_names_come_with_a_matrix(tmp_path, X, y):
    texts = np.array(["spam", "ham", ""])[y]
    uri = storage.stage(X, tmp_path / "a.zarr", y=texts, names=NAMES, sample_names=range(5, N + 5))
    corpus = storage.open(uri)
    assert list(corpus.class_names) == ["ham", "spam"]
    np.testing.assert_array_equal(corpus.y, np.array([1, 0, -1])[y])
    assert list(corpus.feature_names) == NAMES
    assert list(corpus.sample_names[:2]) == ["5", "6"]
    real = storage.open(storage.stage(X, tmp_path / "b.zarr", y=np.where(y == 0, np.nan, y / 4)))
    np.testing.assert_array_equal(real.y, np.where(y == 0, np.nan, y / 4))
    sets = np.stack([y == 0, y < 2, y >= 0], axis=1)
    of_lists = [np.flatnonzero(row).tolist() for row in sets]
    same = {
        content(X, tmp_path / f"{i}.zarr", y=labels)
        for i, labels in enumerate((sets, sp.csr_array(sets.astype(int)), of_lists))
    }
    assert len(same) == 1
    np.testing.assert_array_equal(storage.open(tmp_path / "0.zarr").y.toarray(), sets)


def test_what_is_known_of_samples_comes_as_arrays(tmp_path, X, y):
    told = {"group": [f"donor {i % 4}" for i in range(N)], "sample_weight": np.linspace(0, 1, N)}
    blocks = (X[a : a + 64] for a in range(0, N, 64))
    corpus = storage.open(storage.stage(blocks, tmp_path / "a.zarr", y=y, **told))
    np.testing.assert_array_equal(corpus.sample_weight, told["sample_weight"])
    assert corpus.groups[:5].tolist() == [0, 1, 2, 3, 0]


def test_a_store_grows_by_blocks(tmp_path, X, y):
    uri = storage.stage(pairs(X[:100], y[:100], 40), tmp_path / "a.zarr")
    for _ in range(2):  # what was appended is not appended again
        assert storage.append(pairs(X[100:], y[100:], 70), uri) == uri
        np.testing.assert_array_equal(storage.open(uri).X.rows(range(N)).toarray(), X.toarray())
    np.testing.assert_array_equal(storage.open(uri).y, y)


# --- tables ---------------------------------------------------------------------------------------


TABLES = {
    "Table": pa.Table.from_pandas,
    "reader": lambda frame: pa.Table.from_pandas(frame).to_reader(17),
    "batch": lambda frame: pa.RecordBatch.from_pandas(frame),
    "batches": lambda frame: iter(pa.Table.from_pandas(frame).to_batches(50)),
    "pandas": lambda frame: frame.set_index(np.arange(N) + 7),
    "pandas in parts": lambda frame: (frame[a : a + 70] for a in range(0, N, 70)),
    "polars": pl.from_pandas,
    "polars, lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "DuckDB": lambda frame: duckdb.sql("select * from frame"),
    "DuckDB's reader": lambda frame: duckdb.sql("select * from frame").to_arrow_reader(100),
    "Dask": lambda frame: dd.from_pandas(frame, npartitions=4),
    "categories": lambda frame: pl.from_pandas(frame).with_columns(
        pl.col("kind").cast(pl.Categorical)
    ),
}


@pytest.fixture
def frame(X, y):
    frame = pd.DataFrame(X.toarray(), columns=NAMES)
    frame["kind"] = np.array(["spam", "ham", None], dtype=object)[y]
    frame["half"] = np.where(np.arange(N) % 3 == 0, "test", "train")
    return frame


@pytest.mark.parametrize("kind", daily(TABLES, "reader", "pandas", "polars, lazy", "DuckDB"))
def test_a_table_is_one_store_whatever_holds_it(tmp_path, frame, kind):
    frame.to_parquet(tmp_path / "t.parquet")
    roles = {"columns": "f*", "label": "kind", "split": "half"}
    expected = content(tmp_path / "t.parquet", tmp_path / "file.zarr", **roles)
    assert content(TABLES[kind](frame), tmp_path / "a.zarr", **roles) == expected


def as_lists(X):
    return [part.tolist() for part in np.split(X.indices, X.indptr[1:-1])], [
        part.tolist() for part in np.split(X.data, X.indptr[1:-1])
    ]


def test_lists_and_maps_are_rows_as_those_of_blocks(tmp_path, X, y):
    indices, values = as_lists(X)
    table = pa.table({"at": indices, "is": values, "kind": y})
    maps = [list(zip(map(str, i), v, strict=True)) for i, v in zip(indices, values, strict=True)]
    maps = pa.table({"row": pa.array(maps, pa.map_(pa.string(), pa.float32())), "label": y})
    roles = {"indices": "at", "values": "is", "label": "kind"}
    expected = content(X, tmp_path / "blocks.zarr", y=y)
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    for name, data in {
        "parquet": tmp_path / "t.parquet",
        "arrow": table,
        "polars": pl.from_arrow(table),
        "duckdb": duckdb.from_arrow(table).to_arrow_reader(64),
    }.items():
        assert content(data, tmp_path / f"{name}.zarr", **roles) == expected
    assert content(maps, tmp_path / "maps.zarr", features="row") == expected
    half = content(table, tmp_path / "half.zarr", where="kind == 1", **roles)
    assert half == content(X[y == 1], tmp_path / "of half.zarr", y=y[y == 1])


def test_texts_come_as_those_of_a_file(tmp_path, y):
    words = np.array(
        ["oil", "wheat", "gold", "ship", "trade", "bank", "loan", "rate", "crop", "corn"]
    )
    table = pa.table(
        {
            "body": [" ".join(words[: 3 + i % 8]) for i in range(N)],
            "tags": [[["a", "b"], ["b"], []][i] for i in y],
            "id": [f"n{i}" for i in range(N)],
        }
    )
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    roles = {"text": "body", "label": "tags", "min_df": 1}
    expected = content(tmp_path / "t.parquet", tmp_path / "file.zarr", **roles)
    for name, data in {"arrow": table, "polars": pl.from_arrow(table)}.items():
        assert content(data, tmp_path / f"{name}.zarr", **roles) == expected
    assert list(storage.open(tmp_path / "polars.zarr").sample_names[:2]) == ["n0", "n1"]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None, 3, 4, None]),
        pa.array([True, None, False, True, True]),
        pa.array(["a", None, "", "bcd", "e"]),
        pa.array(["a", "b", "a", None, "b"]).dictionary_encode(),
        pa.array([[1, 2], None, [], [3], [None, 4]]),
        pa.array([["a"], None, [], ["b", "c"], [None]], pa.list_(pa.string_view())),
        pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}, {}, {"x": 2}]),
        pa.array(
            [[("a", 1)], None, [], [("b", 2), ("c", None)], []], pa.map_(pa.string(), pa.int8())
        ),
        pa.array([1, 2, None, 4, 5], pa.decimal128(9, 2)),
    ],
    ids=lambda values: str(values.type)[:30],
)
def test_the_hash_of_a_column_knows_its_values_and_not_its_batches(values):
    from bigfs.storage.sources.tables.columns import decode
    from bigfs.storage.sources.tables.streams import ContentHash

    def digest(*parts):
        content = ContentHash()
        for part in parts:
            content.update("a", decode(part))
        return content.hexdigest()

    whole = digest(values)
    assert digest(*(values[i : i + 1] for i in range(5))) == whole
    assert digest(values[:3], values[3:3], values[3:]) == whole
    values = decode(values)
    others = [values.take(pa.array(order)) for order in ([1, 0, 2, 3, 4], [0, 1, 3, 2, 4])]
    others += [values[:4], pa.nulls(5, values.type)]
    assert len({whole, *map(digest, others)}) == 5


# --- AnnData --------------------------------------------------------------------------------------


@pytest.fixture
def cells(X, y):
    obs = pd.DataFrame(
        {"kind": pd.Categorical(np.array(["B", "T", None], dtype=object)[y])},
        index=[f"cell {i}" for i in range(N)],
    )
    obs["split"] = np.where(np.arange(N) % 3 == 0, "test", "train")
    obs["donor"] = [f"donor {i % 4}" for i in range(N)]
    return {"X": X, "obs": obs, "var": pd.DataFrame(index=NAMES), "layers": {"twice": X * 2}}


def test_an_object_like_anndata_is_read_by_its_parts(tmp_path, cells):
    """By a stand-in, because the anndata of this Python asks for an older pandas."""
    names = {"obs_names": cells["obs"].index, "var_names": cells["var"].index}
    cells = SimpleNamespace(**cells, **names, isbacked=False, is_view=False)
    corpus = storage.open(storage.stage(cells, tmp_path / "a.zarr", label="kind", group="donor"))
    train = np.flatnonzero(cells.obs["split"] == "train")
    np.testing.assert_array_equal(
        corpus.X.rows(range(len(train))).toarray(), cells.X[train].toarray()
    )
    assert list(corpus.class_names) == ["B", "T"]
    np.testing.assert_array_equal(corpus.y[: len(train)], cells.obs["kind"].cat.codes.iloc[train])
    assert list(corpus.feature_names) == NAMES
    assert corpus.sample_names[0] == "cell 1"
    twice = storage.open(storage.stage(cells, tmp_path / "b.zarr", layer="twice", label="kind"))
    assert twice.X.rows([0]).sum() == pytest.approx(2 * corpus.X.rows([0]).sum())
    for options, message in [
        ({"layer": "none"}, "no layers.'none'.; its layers are: twice"),
        ({"label": "none"}, "no obs.'none'., only kind, split, donor"),
        ({"y": [1]}, "has no option y, which is for arrays: name the column"),
    ]:
        with pytest.raises(SourceError, match=message):
            storage.stage(cells, tmp_path / "bad.zarr", **options)
    cells.isbacked = cells.is_view = True
    with pytest.raises(SourceError, match="stage the whole object"):
        storage.stage(cells, tmp_path / "bad.zarr")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("form", ["csr", "dense"])
def test_anndata_in_memory_backed_and_lazy_is_as_its_file(tmp_path, cells, form):
    anndata = pytest.importorskip(
        "anndata", reason="anndata is no dependency: `make newest` has it"
    )
    from anndata.experimental import read_lazy

    if form == "dense":
        cells["X"] = cells["X"].toarray()
    adata = anndata.AnnData(**{**cells, "X": sp.csr_matrix(cells["X"])} if form == "csr" else cells)
    adata.write_h5ad(tmp_path / "a.h5ad")
    adata.write_zarr(tmp_path / "a.zarr")
    roles = {"label": "kind", "group": "donor"}
    expected = content(tmp_path / "a.h5ad", tmp_path / "file.zarr", **roles)
    objects = {
        "memory": adata,
        "view": adata[:, :],
        "backed": anndata.read_h5ad(tmp_path / "a.h5ad", backed="r"),
        "lazy": read_lazy(tmp_path / "a.h5ad"),
        "lazy zarr": read_lazy(tmp_path / "a.zarr"),
    }
    for name, data in objects.items():
        assert content(data, tmp_path / f"{name}.store", **roles) == expected, name


# --- the same content, and other content ----------------------------------------------------------


def test_the_same_stream_finds_its_store_and_another_is_refused(
    tmp_path, monkeypatch, X, y, caplog
):
    monkeypatch.chdir(tmp_path)
    first = storage.stage(pairs(X, y, 50), "a.zarr")
    written = os.stat(Path(first) / "zarr.json").st_mtime_ns
    with caplog.at_level("INFO", "bigfs.storage"):
        assert storage.stage(pairs(X.astype(float), y, 31), "a.zarr") == first
    assert "there already" in caplog.text
    assert os.stat(Path(first) / "zarr.json").st_mtime_ns == written
    for changed in (X * 2, X[::-1], X[:, :-1]):
        with pytest.raises(StoreError, match="changed since"):
            storage.stage(pairs(sp.csr_array(changed), y, 50), "a.zarr")
    with pytest.raises(StoreError, match="changed since"):
        storage.stage(pairs(X, y, 50), "a.zarr", weight="tfidf")
    with pytest.raises(StoreError, match="changed since"):
        storage.stage(pairs(X, y[::-1], 50), "a.zarr")
    unnamed = storage.stage(pairs(X, y, 50))
    assert storage.stage(pairs(X, y, 9)) == unnamed
    assert Path(unnamed).name.startswith("stream-")
    with pytest.raises(SourceError, match="known only after it was read"):
        storage.find_store(X, "a.zarr")
    assert {path.name for path in tmp_path.iterdir()} == {"a.zarr", ".bigfs"}
    assert len(list((tmp_path / ".bigfs").iterdir())) == 1


def test_the_name_of_something_else_is_refused_before_anything_is_read(tmp_path):
    (tmp_path / "a.zarr").write_text("mine")
    blocks = iter([np.eye(3), np.eye(3)])
    with pytest.raises(StoreError, match="not a store"):
        storage.stage(blocks, tmp_path / "a.zarr")
    assert len(list(blocks)) == 1  # the first told what it yields


# --- what ends early ------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [0, 1, 4])
def test_an_error_of_the_users_generator_passes_and_leaves_nothing(
    tmp_path, monkeypatch, X, y, batch
):
    class Mine(Exception):
        pass

    def blocks():
        for i, pair in enumerate(pairs(X, y, 60)):
            if i == batch:
                raise Mine
            yield pair

    monkeypatch.chdir(tmp_path)
    for store, scratch in (("a.zarr", None), ("a.zarr", "."), (None, None)):
        with pytest.raises(Mine):
            storage.stage(blocks(), store, scratch=scratch)
        assert not list(tmp_path.iterdir())


KILLED = """
    import os, signal, sys
    import numpy as np, pyarrow as pa
    from bigfs import storage
    from bigfs.storage.staging import stage

    def kill(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def blocks():
        for i in range(5):
            if sys.argv[1] == str(i):
                kill()
            yield np.eye(4)

    if sys.argv[1] == "build":
        stage.build = kill

    storage.stage(blocks(), *sys.argv[2:])
"""


@pytest.mark.process
@pytest.mark.parametrize("named", daily([True, False], True))
def test_a_kill_at_any_batch_leaves_nothing_that_the_next_stage_does_not_sweep(tmp_path, named):
    store = ["a.zarr"] if named else []
    for batch in (*range(5), "build"):
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(batch), *store]
        path = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        ended = subprocess.run(command, cwd=tmp_path, env=path, check=False)
        assert ended.returncode == -signal.SIGKILL
        # a workplace of the spool, and those of the build, whose name may be another
        left = [p.name for p in tmp_path.rglob("*.staging")]
        assert (batch != 0) <= len(left) <= (3 if batch == "build" else 1)
    command[3] = "none"
    subprocess.run(command, cwd=tmp_path, env=path, check=True)
    there = sorted(p.name for p in (tmp_path if named else tmp_path / ".bigfs").iterdir())
    assert len(there) == 1, there


# --- wrong objects --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (np.ones(3), {}, r"ndarray has the shape \(3,\): a matrix must have two"),
        (sp.coo_array([1.0, 2]), {}, r"coo_array has the shape \(2,\)"),
        ([{"a": 1}], {}, r"block 0 .* is dict: .*pyarrow\.Table\.from_pylist"),
        (["a text"], {}, "block 0 .* is str"),
        ([], {}, "list yields nothing"),
        (3, {}, "int is no source: give a path"),
        (None, {}, "NoneType is no source"),
        (b"a.svm", {}, "bytes is no source"),
        ({"X": 1}, {}, "a mapping of sources: the split must be train or test; got 'X'"),
        (pd.Series([1.0, 2]), {}, "Series (cannot be read .it is one column|has the shape .2)"),
        (pl.Series([1.0, 2]), {}, "Series cannot be read .it is one column"),
        (pd.DataFrame({"a": [1.0]}), {"label": "b", "columns": "a"}, "no column 'b'"),
        (pd.DataFrame({"a": [1.0]}), {"y": [1]}, "has no option y, which is for arrays: name"),
        (pd.DataFrame({"a": [1.0]}), {"format": "csv"}, "format= is for files"),
        ("x" * 5000, {}, "does not exist"),
        ([np.eye(3), np.eye(4)], {}, r"block 1 .* has 4 columns, and those before it 3"),
        ([np.eye(3), (np.eye(3), [1, 2, 3])], {}, "either all blocks or none must have labels"),
        ([(np.eye(3), [1, 2])], {}, "has 3 rows, and for them 2 labels"),
        ([(np.eye(3), [1, 2, 3])], {"y": [1, 2, 3]}, "has labels: leave y= out"),
        (np.eye(3), {"y": [1, 2]}, "has 3 rows, and for them 2 labels"),
        (np.eye(3), {"y": [1, 2, 3, 4]}, "the array has 3 rows and 4 labels"),
        (
            np.eye(3),
            {"y": np.array([1, "a", 2], dtype=object)},
            "array, label: the values must be all numbers",
        ),
        (np.eye(3), {"names": ["a"]}, "has 3 columns, and 1 names"),
        (np.eye(3), {"min_df": 3}, "is a matrix, and min_df is for text"),
        (np.eye(3) * 1j, {}, "complex128, but values must be real"),
        ([np.eye(3), np.full((3, 3), np.nan)], {}, r"stream: row 3, column 0 \(from 0\) is nan"),
        (np.zeros((0, 3)), {}, "array holds no rows"),
    ],
    ids=str,
)
def test_a_wrong_object_is_refused_in_one_line(tmp_path, data, options, message):
    with pytest.raises(SourceError, match=message) as error:
        storage.stage(data, tmp_path / "a.zarr", **options)
    assert "\n" not in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} == set()


def test_what_cannot_be_cut_is_refused_before_it_is_held(tmp_path):
    X = da.zeros((200_000, 1000), chunks=(200_000, 1000))
    with pytest.raises(engine.MemoryLimitError, match=r"its block \(0, 0\)"):
        storage.stage(X, tmp_path / "a.zarr")
    row = np.broadcast_to(np.float32(1), (1, 30_000_000))
    row = sp.csr_array((row[0], np.arange(row.size, dtype=np.int32), [0, row.size]), row.shape)
    with pytest.raises(engine.MemoryLimitError, match="row 0, alone,"):
        storage.stage(row, tmp_path / "a.zarr")
    assert not list(tmp_path.iterdir())
