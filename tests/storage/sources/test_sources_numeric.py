"""Tables of numbers and categories, against pandas and scikit-learn."""

import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.impute import SimpleImputer
from sklearn.utils import murmurhash3_32

from bigfs import engine, storage
from bigfs.storage.errors import SourceError
from bigfs.storage.sources import find
from bigfs.storage.sources.tables import tables
from bigfs.storage.staging.build import MATRIX_PIECE
from tests.helpers import stages
from tests.helpers.sources import refused, told_of

FEATURES = ["gene_1", "gene_2", "color", "age"]


@pytest.fixture
def frame(rng):
    """60 samples: two sparse genes, a category, an age, a class, a split and a number to ignore."""
    n = 60
    return pd.DataFrame(
        {
            "id": [f"s{i}" for i in range(n)],
            "gene_1": np.where(rng.random(n) < 0.4, 0, rng.normal(size=n).round(3)),
            "gene_2": np.where(rng.random(n) < 0.4, 0, rng.normal(size=n).round(3)),
            "color": rng.choice(["red", "green", "a,b"], n),
            "age": rng.integers(20, 80, n),
            "group": rng.choice(["x", "y"], n),
            "split": np.where(np.arange(n) < 40, "train", "test"),
            "batch": rng.integers(0, 9, n),
        }
    )


def write(frame, path):
    if path.suffix == ".parquet":
        pa.parquet.write_table(
            pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=7
        )
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


def expected(frame):
    indicators = pd.get_dummies(frame["color"], prefix="color", prefix_sep="=")
    parts = [frame[["gene_1", "gene_2"]], indicators, frame[["age"]]]
    return pd.concat(parts, axis=1).astype(np.float32)


def options(**more):
    return {"columns": "gene_*,color,age", "categories": "color", "label": "group"} | more


def read_all(path, scratch, settings):
    source = find(path, **settings).prepare(scratch)
    return [source.read(piece) for piece in source.pieces(1 << 20)]


def table_of(parts, names):
    """The rows of all parts, with these columns. A part lacks categories that it does not hold."""
    frames = []
    for part in parts:
        own = bytes(part.terms).decode().split("\n")[:-1]
        assert own == sorted(own)
        assert set(own) <= set(names)
        frames.append(pd.DataFrame(part.X.toarray(), columns=own))
    return pd.concat(frames).reindex(columns=names).fillna(0).to_numpy()


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".parquet"])
def test_columns_are_those_of_pandas_whatever_the_pieces(frame, tmp_path, change, suffix):
    found = find(write(frame, tmp_path / f"table{suffix}"), **options())
    want = expected(frame)
    for size in (1 << 20, 300):
        change(tables.BATCH_BYTES, size)
        source = found.prepare(tmp_path / f"scratch-{size}")
        rows = [source.read(piece) for piece in source.pieces(size)]
        assert len(rows) > 1 or size > 300
        X = table_of(rows, list(want.columns))
        np.testing.assert_array_equal(X.astype(np.float32), want)
        for role, column in (("label", "group"), ("split", "split"), ("name", "id")):
            assert told_of(rows, role).tolist() == frame[column].tolist()


def test_a_store_of_a_table_knows_its_names(frame, tmp_path):
    path = write(frame, tmp_path / "table.csv")
    query = "columns=gene_?,color&categories=color&label=group"
    corpus = storage.open(storage.stage(f"{path}?{query}", tmp_path / "store.zarr"))
    names = ["color=a,b", "color=green", "color=red", "gene_1", "gene_2"]
    assert list(corpus.feature_names) == names
    np.testing.assert_array_equal(
        corpus.X.rows(np.arange(60)).toarray(), expected(frame)[names].to_numpy()
    )
    assert list(corpus.class_names) == ["x", "y"]
    assert corpus.part("train").X.shape == (40, 5)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("fill", ["mean", "zero"])
def test_missing_values_are_refused_or_filled(frame, tmp_path, suffix, fill):
    frame["age"] = frame["age"].astype(float)
    frame.loc[[3, 50], "age"] = np.nan
    frame.loc[5, "color"] = None
    path = write(frame, tmp_path / f"table{suffix}")
    with pytest.raises(SourceError, match=r"5 \(from 0\): column 'color' is missing: give"):
        read_all(path, tmp_path, options(columns="color"))
    with pytest.raises(SourceError, match=r"3 \(from 0\): column 'age' is missing: give missing="):
        read_all(path, tmp_path, options(columns="age", categories=None))
    rows = read_all(path, tmp_path, options(missing=fill))
    want = expected(frame)
    X = table_of(rows, list(want.columns))
    if fill == "mean":  # of the training samples alone
        imputer = SimpleImputer().fit(want.iloc[:40])
        np.testing.assert_allclose(X, imputer.transform(want), rtol=1e-6)
    else:
        np.testing.assert_array_equal(X.astype(np.float32), want.fillna(0))
    assert not X[5, 2:5].any()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_numbers_are_real_targets_on_request(frame, tmp_path, suffix):
    path = write(frame, tmp_path / f"table{suffix}")
    real = storage.open(
        storage.stage(
            path, tmp_path / "r.zarr", columns=["gene_1", "age"], label="gene_2", target="real"
        )
    )
    np.testing.assert_allclose(real.y, frame["gene_2"], rtol=1e-12)
    assert list(real.feature_names) == ["gene_1", "age"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"columns": "gene_9"}, "columns= names 'gene_9', but the columns are 'gene_1', 'gene_2'"),
        ({"columns": "gene_1,group"}, "columns= names 'group', which holds the label"),
        ({"categories": "nothing"}, "categories= names 'nothing', but the columns are"),
        ({"categories": ""}, "column 'color' does not hold numbers"),
        ({"missing": "median"}, "missing must be one of mean, zero; got 'median'"),
        ({"target": "set"}, "target must be class, real or multilabel; got 'set'"),
        ({"target": "real"}, "the label must be a number, because target=real; got 'x'"),
        ({"colums": "a"}, "has no option colums"),
    ],
)
def test_bad_options_are_refused_by_name(frame, tmp_path, more, message):
    frame["group"] = "x"
    path = write(frame, tmp_path / "table.csv")
    with pytest.raises(SourceError) as refused:
        read_all(path, tmp_path, options(**more))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_means_hold_for_rows_that_are_appended(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,label\n1,1,a\n11,1,b\n,1,a\n")
    (tmp_path / "b.csv").write_text("x,y,label\n100,1,a\n,1,b\n")
    words = {"columns": "*", "missing": "mean"}
    uri = storage.stage(tmp_path / "a.csv", tmp_path / "a.zarr", **words)
    storage.append(tmp_path / "b.csv", uri, **words)
    assert storage.open(uri).X.rows(slice(None)).toarray()[:, 0].tolist() == [1, 11, 6, 100, 6]


@pytest.mark.parametrize("text", ["color,a,label\nred,1,x\n", "color,label\nred,x\n"])
def test_a_table_with_categories_must_have_the_columns_of_numbers(tmp_path, text):
    (tmp_path / "a.csv").write_text("color,a,b,label\nred,1,2,x\nblue,0,3,y\n")
    (tmp_path / "b.csv").write_text(text)
    words = {"columns": "*", "categories": "color"}
    uri = storage.stage(tmp_path / "a.csv", tmp_path / "a.zarr", **words)
    with pytest.raises(SourceError, match=r"lacks \d of the 4 columns of .*, such as .*'b'"):
        storage.append(tmp_path / "b.csv", uri, **words)


def test_a_new_category_is_left_out_of_a_store(tmp_path):
    (tmp_path / "a.csv").write_text("color,a,label\nred,1,x\nblue,0,y\n")
    (tmp_path / "b.csv").write_text("color,a,label\ngold,5,x\nred,6,y\n")
    words = {"columns": "*", "categories": "color"}
    uri = storage.stage(tmp_path / "a.csv", tmp_path / "a.zarr", **words)
    storage.append(tmp_path / "b.csv", uri, **words)
    corpus = storage.open(uri)
    assert list(corpus.feature_names) == ["a", "color=blue", "color=red"]
    rows = corpus.X.rows(slice(None)).toarray().tolist()
    assert rows == [[1, 0, 1], [0, 1, 0], [5, 0, 0], [6, 0, 1]]


@pytest.mark.parametrize("role", ["label", "split", "name", "columns", "categories"])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_a_named_column_that_is_not_there_is_an_error(frame, tmp_path, suffix, role):
    path = write(frame, tmp_path / f"table{suffix}")
    refused(
        path, f"(?s)(?=.*'tarjet')(?=.*'gene_1').*{role}=", tmp_path, **options() | {role: "tarjet"}
    )


def test_a_column_of_lists_is_told_what_it_must_be(tmp_path):
    table = pa.table({"a": [1.0, 2.0], "vector": [[1.0, 2.0], [3.0, 4.0]]})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    match = r"'vector' holds list<.*>, and a column must hold one number per sample"
    refused(tmp_path / "t.parquet", match, tmp_path, columns="*")


def test_a_wide_table_is_surveyed_in_small_batches(tmp_path):
    table = pa.table({f"c{j}": np.arange(400.0) for j in range(3000)})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    source = find(tmp_path / "t.parquet", columns="*", missing="mean")
    for ready in (source, source.prepare(tmp_path)):
        batches = [batch.length for piece in ready.pieces(1) for batch in ready.batches(piece)]
        assert batches == [174, 174, 52]
    assert 174 == (4 << 20) // (8 * 3000)


def test_columns_far_larger_than_the_others_are_named(frame, tmp_path):
    frame["income"] = frame["age"] * 1000.0
    path, columns = write(frame, tmp_path / "t.csv"), "gene_*,age,income"
    words = {"columns": columns, "label": "group"}
    store = storage.stage(path, tmp_path / "a.zarr", scale="none", **words)
    with pytest.warns(UserWarning, match=r"of income, age is up to .* --scale standard"):
        run = stages.select(store, tmp_path / "r", method="anova", features=2)
    assert ["income" in hint for hint in run.metadata["hints"]] == [True]
    scaled = storage.stage(path, tmp_path / "b.zarr", scale="standard", **words)
    assert stages.select(scaled, tmp_path / "s", method="anova", features=2).metadata["hints"] == []


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_are_left_out_and_booleans_are_numbers(frame, tmp_path, suffix):
    frame["is_old"] = frame["age"] > 50
    frame = frame.drop(columns=["split", "id"]).assign(name="Ann", city="Rome", **{"!odd": 1})
    path = write(frame, tmp_path / f"table{suffix}")
    for columns in (
        "*,!name,!c*,!group",
        "!name,!color,!city",
        "gene_*,age,batch,is_old,!odd",
    ):
        source = find(path, columns=columns, label="group").prepare(tmp_path / "scratch")
        names = ["gene_1", "gene_2", "age", "batch", "is_old", "!odd"]
        assert list(source.feature_names) == names
    X = np.concatenate([source.read(piece).X.toarray() for piece in source.pieces(1 << 20)])
    np.testing.assert_array_equal(X, frame[names].astype(float))
    faults = r"3 columns do not hold numbers, 'color' \(.*'city' .*columns=\*,!color,!name,!city$"
    refused(path, faults, tmp_path, columns="*", label="group")
    refused(path, "columns= leaves no column", tmp_path, columns="!*", label="group")
    refused(path, "columns= names '!nme', but", tmp_path, columns="!nme", label="group")


def test_all_columns_with_missing_values_are_told_at_once(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,c\n1,2,3\n1,,3\n,2,3\n")
    refused(
        tmp_path / "a.csv", r"row 2 .*'a' is missing \('b' further on\): ", tmp_path, columns="*"
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_categories_and_names_of_columns_may_be_hashed(frame, tmp_path, change, suffix):
    """As many categories as there are, by the hash of scikit-learn's vectorizers."""
    path, content = write(frame, tmp_path / f"table{suffix}"), set()
    for size in (300, 10**7):
        change(tables.BATCH_BYTES, size)
        change(MATRIX_PIECE, size)
        uri = storage.stage(path, tmp_path / f"{size}.zarr", hashing=5, scale="none", **options())
        content.add(storage.open(uri).spec["content"])
    assert len(content) == 1
    corpus, want = storage.open(uri), np.zeros((60, 5))
    first = {}
    for i, row in enumerate(frame.to_dict("records")):
        cells = {"gene_1": row["gene_1"], "gene_2": row["gene_2"], "age": row["age"]}
        cells[f"color={row['color']}"] = 1
        for name in sorted(name for name, value in cells.items() if value):
            bucket = murmurhash3_32(name.encode(), positive=True) % 5
            want[i, bucket] += cells[name]
            first.setdefault(bucket, name)
    np.testing.assert_allclose(corpus.X.rows(slice(None)).toarray(), want, rtol=1e-6)
    assert list(corpus.feature_names[:]) == [first.get(j, str(j)) for j in range(5)]


def write_wide(path, d):
    rows = [",".join(f"c{j}" for j in range(d)), *[",".join(["1.5", "0"] * (d // 2))] * 3]
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_wide_csv_takes_few_calls_per_column(tmp_path):
    def calls(d):
        path, events = write_wide(tmp_path / f"{d}.csv", d), []
        before = sys.getprofile()
        sys.setprofile(lambda frame, event, arg: events.append(event))
        try:
            source = find(path, columns="*").prepare(tmp_path)
            [piece] = source.pieces(1 << 30)
            source.read(piece)
        finally:
            sys.setprofile(before)
        return events.count("call")

    calls(2000)  # imports
    assert calls(4000) - calls(2000) < 3 * 2000


def test_a_csv_with_more_columns_than_fit_is_refused_before_it_is_read(tmp_path):
    path = write_wide(tmp_path / "t.csv", 10_000)
    match = r"reading 10,000 columns of .*t.csv needs 76.29 MiB .*libraries take 219.35 MiB of"
    with pytest.raises(engine.MemoryLimitError, match=match):
        storage.stage(path, tmp_path / "s", columns="*", memory_limit="300MB")
    storage.stage(path, tmp_path / "s", columns="c0,c1", memory_limit="300MB")


WIDE = """\
"a",b,color,lang,label
1, 2.5,red,en,x
NA,"3",blue,de,y

true,7,"red, or so",en,x
4,,red,en,"y z ""w"" "
"""


@pytest.mark.parametrize(
    "options",
    [
        {"columns": "a,b", "missing": "mean"},
        {"columns": "b,a", "missing": "zero", "categories": "color"},
        {"columns": "a,b", "missing": "zero", "where": "lang == 'en'"},
    ],
)
def test_a_csv_of_many_columns_is_read_as_one_of_few(tmp_path, change, options):
    (tmp_path / "t.csv").write_text(WIDE)
    content = set()
    for most, size in ((3, 1), (3, 4 << 20), (10, 4 << 20)):
        change(tables.WIDE, most)
        change(tables.BATCH_BYTES, size)
        store = tmp_path / f"{most}-{size}.zarr"
        corpus = storage.open(storage.stage(tmp_path / "t.csv", store, **options))
        content.add(corpus.spec["content"])
    assert len(content) == 1
    assert list(corpus.class_names) == ["x", *["y"] * ("where" not in options), 'y z "w" ']


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b,c\n1,2,3\n1,2\n", r"record 1 \(from 0\) has 2 values, and the header has 3 names"),
        ("a,b,c\n1,2,x\n", r"row 0 .*'c' does not hold numbers"),
        ('a,b,c\n1,2,"3\n', r"record 0 \(from 0\): unexpected end of data"),
        ('a,b,c\n1,2,"3" 4\n', r"record 0 \(from 0\): ',' expected after"),
        (b"a,b,c\n1,2,\xe9\n", r"record 0 \(from 0\): it is not UTF-8: give its encoding="),
        ("a,b,c\n", "holds no rows"),
    ],
)
def test_a_bad_csv_of_many_columns_is_refused(tmp_path, change, content, message):
    change(tables.WIDE, 2)
    raw = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "t.csv").write_bytes(raw)
    refused(tmp_path / "t.csv", message, tmp_path, columns="*")
