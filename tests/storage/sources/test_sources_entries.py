"""Rows as people have them: lists of columns and values, against svmlight and SciPy."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from sklearn.feature_extraction import DictVectorizer
from sklearn.utils import murmurhash3_32

from bigfs import storage
from bigfs.storage import sources
from bigfs.storage.staging.build import MATRIX_PIECE
from tests.helpers.daily import daily
from tests.helpers.sources import SIZES, refused, rows_of
from tests.helpers.stores import write_named

PIECES = [700, 3000, 10**7]  # bytes
DENSE = {"type": 1, "size": None, "indices": None, "values": [1.0, 0.0, 4.0, 0.0]}  # of Spark


@pytest.fixture
def table(rng):
    """Rows 90 × 40 with empty rows, and their label, as lists in an order of their own."""
    X = sp.random_array((90, 40), density=0.1, format="csr", rng=rng)
    X.data = X.data.round(2).astype(np.float32) + 1
    orders = [rng.permutation(len(X[[i]].indices)) for i in range(90)]
    rows = [(X[[i]].indices[order], X[[i]].data[order]) for i, order in enumerate(orders)]
    return X, [{"cols": c, "vals": v, "y": i % 3} for i, (c, v) in enumerate(rows)]


def content_of(uri):
    return storage.open(uri).spec["content"]


LISTS = {
    "list": (pa.list_(pa.int64()), pa.list_(pa.float64())),
    "large": (pa.large_list(pa.uint16()), pa.large_list(pa.float32())),
    "small": (pa.list_(pa.int8()), pa.list_(pa.float32())),
    "unsigned": (pa.list_(pa.uint64()), pa.list_(pa.float32())),
}


def write(rows, path, kind="list"):
    if path.suffix == ".jsonl":
        lines = ({k: np.asarray(v).tolist() for k, v in row.items()} for row in rows)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return path
    cols, vals = LISTS[kind]
    columns = {
        "cols": pa.array([row["cols"] for row in rows], cols),
        "vals": pa.array([row["vals"] for row in rows], vals),
        "y": [row["y"] for row in rows],
    }
    pq.write_table(pa.table(columns), path, row_group_size=20)
    return path


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [*LISTS, "jsonl"])
def test_lists_are_the_rows_of_scipy(tmp_path, table, kind, size):
    X, rows = table
    path = write(rows, tmp_path / ("x.jsonl" if kind == "jsonl" else "x.parquet"), kind)
    source = sources.find(f"{path}?indices=cols&values=vals&label=y&n_features=40")
    found, y, _, _ = rows_of(source, tmp_path, size)
    np.testing.assert_array_equal(found, X.toarray())
    assert y.tolist() == [i % 3 for i in range(90)]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_a_store_of_lists_is_that_of_svmlight(tmp_path, table, suffix, change):
    X, rows = table
    dump_svmlight_file(X, [row["y"] for row in rows], str(tmp_path / "x.svm"))
    want = storage.stage(tmp_path / "x.svm", tmp_path / "want.zarr", n_features=40)
    path = write(rows, tmp_path / f"x{suffix}")
    question = f"{path}?indices=cols&values=vals&label=y&n_features=40"
    for size in PIECES:
        change(MATRIX_PIECE, size)
        uri = storage.stage(question, tmp_path / f"{size}.zarr")
        assert content_of(uri) == content_of(want)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_columns_that_come_again_are_added_and_no_values_are_ones(tmp_path, suffix):
    rows = [{"cols": [7, 2, 7, 7], "vals": [1, 2, 3, -4], "y": 0}, {"cols": [], "vals": [], "y": 1}]
    path = write(rows, tmp_path / f"x{suffix}", "small")
    X = rows_of(sources.find(path, indices="cols"), tmp_path)[0]
    assert X.tolist() == [[0, 0, 1, 0, 0, 0, 0, 3], [0] * 8]
    source = sources.find(path, indices="cols", values="vals").prepare(tmp_path)
    X = source.read(source.pieces(10**9)[0]).X
    assert X.toarray()[0].tolist() == [0, 0, 2, 0, 0, 0, 0, 0]


def test_lists_of_one_length_and_half_floats(tmp_path):
    columns = {
        "i": pa.array([[3, 0], [1, 2]], pa.list_(pa.int32(), 2)),
        "v": pa.array([np.float16([0.5, 2]), np.float16([4, 1])], pa.list_(pa.float16(), 2)),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    X = rows_of(sources.find(f"{tmp_path}/x.parquet?indices=i&values=v"), tmp_path)[0]
    assert X.tolist() == [[2, 0, 0, 0.5], [0, 4, 1, 0]]


INT, FLOAT = pa.list_(pa.int64()), pa.list_(pa.float64())
BAD = {
    "null list": ([[1], None], [[1.0], [1.0]], r"row 1 \(from 0\): i is or holds null"),
    "null column": ([[1], [None]], [[1.0], [1.0]], r"row 1 \(from 0\): i is or holds null"),
    "null value": ([[1], [2]], [[1.0], [None]], "row 1 .*: the value of column 2 is null"),
    "unequal": ([[1], [2, 3]], [[1.0], [1.0]], "row 1 .*: i has 2 entries and v has 1"),
    "negative": ([[1], [-2]], [[1.0], [1.0]], "row 1 .*: column -2 is negative: columns count"),
    "outside": ([[1], [50]], [[1.0], [1.0]], r"row 1 .*: column 50 \(from 0\) lies outside 50"),
    "huge": ([[1], [2**40]], [[1.0], [1.0]], rf"row 1 .*: column {2**40} \(from 0\)"),
    "infinite": ([[1], [2]], [[1.0], [np.inf]], "row 1 .*, column 2 .* is inf: values must be"),
}


@pytest.mark.parametrize(("indices", "values", "message"), BAD.values(), ids=list(BAD))
def test_bad_lists_of_parquet(tmp_path, indices, values, message):
    columns = {"i": pa.array(indices, INT), "v": pa.array(values, FLOAT)}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    refused(tmp_path / "x.parquet", message, tmp_path, indices="i", values="v", n_features=50)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"i": [1], "v": [[1.0]]}, "column 'i' holds int64, but must hold lists"),
        ({"i": [[1.5]], "v": [[1.0]]}, "column 'i' holds double, not numbers of columns"),
        ({"i": [[1]], "v": [["a"]]}, "the values are string, not numbers"),
        ({"i": [[1]], "v": [[True]]}, "the values are bool, not numbers"),
        ({"i": [[1]]}, "has no column 'v', only 'i': name one of them with values="),
        ({"v": [[1]]}, "has no column 'i', only 'v': name one of them with indices="),
    ],
)
def test_columns_of_other_types_are_refused(tmp_path, columns, message):
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    refused(tmp_path / "x.parquet", message, tmp_path, indices="i", values="v")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"i": [1, null], "v": [1, 2]}', "i holds None, but must hold whole numbers"),
        ('{"i": [1, "a"], "v": [1, 2]}', "i holds 'a', but must hold whole numbers"),
        ('{"i": [true], "v": [1]}', "i holds True, but must hold whole numbers"),
        ('{"i": [1.0], "v": [1]}', "i holds 1.0, but must hold whole numbers"),
        ('{"i": 1, "v": [1]}', "i is int, but must be a list"),
        ('{"i": [1], "v": null}', "v is NoneType, but must be a list"),
        ('{"i": [1, 4], "v": [1, "2"]}', "the value of column 4 is '2', not a finite number"),
        ('{"i": [1], "v": [null]}', "the value of column 1 is None"),
        ('{"i": [1], "v": [1, 2]}', "i has 1 entries and v has 2"),
        ('{"i": [99], "v": [1]}', r"column 99 \(from 0\) lies outside 50 columns"),
        ('{"i": [-1], "v": [1]}', "column -1 is negative: columns count from 0"),
        (
            '{"i": [%d], "v": [1]}'.replace("%d", f"1{'0' * 30}"),
            r"column 10* \(from 0\) lies outside 50 columns",
        ),
        (
            '{"i": [1], "v": [1%s]}'.replace("%s", "0" * 400),
            "column 1 .* is inf: values must be finite",
        ),
        ('{"i": [1]}', "has no field 'v', only 'i': name it with values="),
    ],
)
def test_bad_lists_of_json(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"i": [1], "v": [1]}\n' + line + "\n")
    refused(path, f"line 2.* {message}", tmp_path, indices="i", values="v", n_features=50)


@pytest.mark.parametrize("key", [pa.int32(), pa.string()])
def test_maps_of_parquet_are_rows(tmp_path, key):
    rows = [[(3, 0.5), (1, 2.0)], [], [(0, 4.0)]]
    rows = [[(str(k) if key == pa.string() else k, v) for k, v in row] for row in rows]
    column = pa.array(rows, pa.map_(key, pa.float32()))
    pq.write_table(pa.table({"vector": column, "label": ["a", "b", "a"]}), tmp_path / "x.parquet")
    source = sources.find(f"{tmp_path}/x.parquet?features=vector")
    X, y, _, _ = rows_of(source, tmp_path)
    assert X.tolist() == [[0, 2, 0, 0.5], [0] * 4, [4, 0, 0, 0]]
    assert y.tolist() == ["a", "b", "a"]
    column = pa.array([[(1, 1.0)], [(2, None)]], pa.map_(pa.int32(), pa.float32()))
    pq.write_table(pa.table({"features": column}), tmp_path / "x.parquet")
    match = "row 1 .*: the value of column 2 is null"
    refused(tmp_path / "x.parquet", match, tmp_path, features="features")


# --- names ----------------------------------------------------------------------------------------


WORDS = ["rain", "été", "a b", "Ärger", "7", "x=y", "", "tab\tname", "東京"]


@pytest.fixture
def counts(rng):
    """80 rows {name: value}, of which two are empty."""
    rows = []
    for i in range(80):
        words = [] if i in (3, 40) else rng.choice(WORDS, 4, replace=False).tolist()
        more = [f"w{j}" for j in rng.integers(0, 60, 3)]
        rows.append({word: float(rng.integers(1, 9)) for word in words + more * bool(words)})
    return rows


@pytest.mark.parametrize("hashing", [None, 16])
@pytest.mark.parametrize("kind", daily(["maps", "lists"], "maps"))
@pytest.mark.parametrize("suffix", daily([".jsonl", ".parquet"], ".jsonl"))
def test_names_are_columns_as_those_of_scikit_learn(
    tmp_path, counts, change, suffix, kind, hashing
):
    question = write_named(tmp_path / f"x{suffix}", counts, kind)
    content = set()
    for size in PIECES:
        change(MATRIX_PIECE, size)
        uri = storage.stage(question, tmp_path / f"{size}.zarr", hashing=hashing)
        content.add(content_of(uri))
    assert len(content) == 1
    corpus = storage.open(uri)
    names, X = list(corpus.feature_names[:]), corpus.X.rows(slice(None)).toarray()
    order = [i for i in range(80) if i % 4 != 1] + [i for i in range(80) if i % 4 == 1]
    rows = [counts[i] for i in order]
    if hashing is None:
        vectorizer = DictVectorizer(sparse=False)
        want = vectorizer.fit_transform(rows)
        assert sorted(names) == vectorizer.feature_names_
        assert names == sorted(names, key=lambda name: f"{name}\n".encode())
        np.testing.assert_array_equal(X, want[:, np.argsort(np.argsort(names))])
        return
    want, first = np.zeros((80, hashing)), {}
    for i, row in enumerate(rows):
        for name in sorted(row, key=lambda name: f"{name}\n".encode()):
            bucket = murmurhash3_32(name.encode(), positive=True) % hashing
            want[i, bucket] += row[name]
            first.setdefault(bucket, name)
    np.testing.assert_array_equal(X, want)
    assert names == [first.get(j, str(j)) for j in range(hashing)]


def test_the_first_row_says_whether_keys_are_numbers(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"features": {}}\n{"features": {"3": 1}}\n{"features": {"1": 2, "a": 3}}\n')
    refused(path, "line 3: 'a' is not a column number .*: give by_name=true", tmp_path)
    corpus = storage.open(storage.stage(f"{path}?by_name=true", tmp_path / "a.zarr"))
    assert list(corpus.feature_names[:]) == ["1", "3", "a"]
    path.write_text('{"features": {"3": 1, "b": 2}}\n{"features": {"1": 2}}\n')
    corpus = storage.open(storage.stage(path, tmp_path / "b.zarr"))
    assert list(corpus.feature_names[:]) == ["1", "3", "b"]
    refused(path, "n_features is for numbers of columns", tmp_path, n_features=5)
    numbers = tmp_path / "y.jsonl"
    numbers.write_text('{"features": {"3": 1}}\n')
    with pytest.raises(storage.SourceError, match="hashing is for names"):
        storage.stage(numbers, tmp_path / "c.zarr", hashing=8)


def test_numbers_beyond_any_store_may_be_names(tmp_path):
    ids = pa.array([[2**62, 7], [7]], pa.list_(pa.int64()))
    pq.write_table(pa.table({"ids": ids}), tmp_path / "x.parquet")
    uri = storage.stage(f"{tmp_path}/x.parquet?indices=ids&by_name=true", tmp_path / "a.zarr")
    corpus = storage.open(uri)
    assert list(corpus.feature_names[:]) == [str(2**62), "7"]
    assert corpus.X.rows(slice(None)).toarray().tolist() == [[1, 1], [0, 1]]


def test_a_name_is_one_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"features": {"a\\nb": 1}}\n')
    refused(path, r"line 1 …: the name 'a\\nb' holds a line break", tmp_path)


@pytest.mark.parametrize(
    "rows",
    [
        [{"type": 0, "size": 4, "indices": [1, 3], "values": [2.0, 5.0]}, DENSE, None],
        [[{"i": 1, "v": 2.0}, {"i": 3, "v": 5.0}], [{"i": 0, "v": 1.0}, {"i": 2, "v": 4.0}], None],
        [[0.0, 2.0, 0.0, 5.0], [1.0, 0.0, 4.0, 0.0], None],
    ],
    ids=["structs", "pairs", "lists"],
)
def test_vectors_are_rows(tmp_path, rows):
    column = pa.array(rows)[:2]
    for offset in (0, 1):  # a slice begins inside of its children
        table = pa.table({"v": column[offset:]})
        corpus = storage.open(storage.stage(table, tmp_path / f"{offset}.zarr", features="v"))
        expected = np.array([[0.0, 2, 0, 5], [1, 0, 4, 0]])[offset:]
        X = corpus.X.row_tiles[0].load().toarray()
        np.testing.assert_array_equal(X, expected[:, : X.shape[1]])
        assert not expected[:, X.shape[1] :].any()
