"""Tables of which nobody says what they hold: what each column is, and what is said of it."""

import logging

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from bigfs import storage
from bigfs.storage.errors import SourceError
from bigfs.storage.integrity import summarize
from bigfs.storage.sources import find
from bigfs.storage.sources.tables.formats import CsvFeatures

N = 60
USED = ["age", "height", "member", "city", "grade"]
UNUSED = {
    "customer_id": "counts the samples",
    "user_id": "all different",
    "signup": "dates",
    "seen": "dates",
    "token": "all different",
    "comment": "text, which text=comment takes in place of the table",
    "nothing": "empty",
}


@pytest.fixture
def frame(rng):
    """A table as people have it, with gaps, of which five columns are features."""
    frame = pd.DataFrame(
        {
            "customer_id": np.arange(N) + 1000,
            "user_id": np.cumsum(rng.integers(1, 9, N)),
            "age": rng.integers(18, 80, N).astype(float),
            "height": rng.normal(170, 10, N).round(2),
            "member": rng.random(N) < 0.5,
            "city": rng.choice(["Bern", "Oslo", "Rome"], N),
            "grade": rng.choice([1, 2, 3], N),
            "signup": pd.date_range("2024-01-01", periods=N, freq="D"),
            "seen": [f"{day:02d}/03/2024" for day in rng.integers(1, 29, N)],
            "token": [f"t{i * 7919:x}" for i in range(N)],
            "comment": [f"the parcel number {i} came late again" for i in range(N)],
            "nothing": np.full(N, np.nan),
            "target": rng.choice(["yes", "no"], N),
        }
    )
    frame.loc[[3, 5], "age"] = np.nan
    frame.loc[[4], "city"] = None
    return frame


def expected(frame):
    """Return the features by pandas, in the order of their names."""
    cities = pd.get_dummies(frame["city"], prefix="city", prefix_sep="=")
    numbers = frame[["age", "height", "member", "grade"]].astype(float)
    features = pd.concat([cities, numbers.fillna(numbers.mean())], axis=1)
    return features[sorted(features.columns)].astype(np.float32)


def as_csv(frame, folder):
    frame.to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def as_parquet(frame, folder):
    frame.to_parquet(folder / "t.parquet", row_group_size=7)
    return folder / "t.parquet"


def as_frame(frame, folder):
    return frame


def as_stream(frame, folder):
    return (frame.iloc[start : start + 9] for start in range(0, N, 9))


kinds = pytest.mark.parametrize("kind", [as_csv, as_parquet, as_frame, as_stream])


@kinds
def test_numbers_and_categories_are_features_and_the_rest_is_named(frame, tmp_path, kind):
    uri = storage.stage(kind(frame, tmp_path), tmp_path / "s.zarr", label="target", scale="none")
    corpus, wanted = storage.open(uri), expected(frame)
    assert list(corpus.feature_names) == list(wanted.columns)
    np.testing.assert_allclose(corpus.X.rows(range(N)).toarray(), wanted, rtol=1e-6)
    assert list(corpus.class_names) == ["no", "yes"]
    decided = corpus.manifest.source["decided"]
    assert decided["unused"] == UNUSED
    assert set(decided["columns"]) == set(USED)
    assert (decided["categories"], decided["missing"]) == (["city"], "mean")
    line = summarize(uri)
    assert all(f"{name!r} ({reason})" in line for name, reason in UNUSED.items())


def test_what_was_decided_rules_what_is_appended(frame, tmp_path):
    """The second table alone would have other kinds: a gap, one city, numbers as ids."""
    uri = storage.stage(as_csv(frame, tmp_path), tmp_path / "s.zarr", label="target", scale="none")
    more = frame.head(5).assign(height=np.arange(5), city=["Oslo"] * 5, comment="none")
    more.to_csv(tmp_path / "more.csv", index=False)
    storage.append(tmp_path / "more.csv", uri, label="target")
    corpus = storage.open(uri)
    added = pd.DataFrame(corpus.X.rows(range(N, N + 5)).toarray(), columns=corpus.feature_names)
    assert added["height"].tolist() == [0, 1, 2, 3, 4]
    assert added["city=Oslo"].tolist() == [1] * 5
    assert added["age"][3] == pytest.approx(frame["age"].mean(), rel=1e-6)


@kinds
def test_one_column_of_text_alone_is_a_corpus(frame, tmp_path, kind):
    source = find(kind(frame[["comment", "target", "customer_id"]], tmp_path), label="target")
    assert source.text == "comment"
    kinds = {as_csv: "csv", as_parquet: "parquet"}
    assert source.format == kinds.get(kind, "stream")


def test_a_column_called_text_is_taken_as_before(frame, tmp_path):
    source = find(as_csv(frame.rename(columns={"comment": "text"}), tmp_path), label="target")
    assert (source.format, source.text) == ("csv", "text")


def test_a_table_without_features_names_all_that_is_left_out(frame, tmp_path):
    path = as_csv(frame[["token", "signup", "target"]], tmp_path)
    with pytest.raises(
        SourceError, match=r"'token' \(all different\), 'signup' \(dates\).*columns="
    ):
        storage.stage(path, tmp_path / "s.zarr", label="target")
    assert not (tmp_path / "s.zarr").exists()


def test_a_user_may_leave_out_and_name_more(frame, tmp_path):
    path = as_csv(frame, tmp_path)
    source = find(path, columns="auto,!height,!member", categories="token", label="target")
    ready = source.prepare(tmp_path / "scratch")
    assert set(ready.numbers) == {"age", "grade"}
    assert set(ready.categorical) == {"city", "token"}
    assert ready.missing == "mean"


def test_missing_is_as_the_user_says(frame, tmp_path):
    source = find(as_csv(frame, tmp_path), missing="zero", label="target")
    assert source.prepare(tmp_path / "scratch").missing == "zero"


@pytest.mark.parametrize("rows", [3, 40, 300])
def test_few_values_are_categories_in_a_table_of_any_size(tmp_path, rows):
    """Half the samples at the most, and a tenth of them above 20."""
    texts = [f"v{i % (rows // 2 or 1)}" for i in range(rows)]
    frame = pd.DataFrame({"many": texts, "two": [f"v{i % 2}" for i in range(rows)], "x": 1.5})
    source = find(as_csv(frame, tmp_path)).prepare(tmp_path / "scratch")
    few = rows // 2 <= max(min(20, rows // 2), rows // 10)
    assert ("many" in source.categorical) == few
    assert "many" in source.unused or few


def test_a_mark_of_missing_numbers_is_no_category(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{i % 7}.5,{i}.25\n" for i in range(30)))
    text = (tmp_path / "t.csv").read_text().replace("3.5,", "?,")
    (tmp_path / "t.csv").write_text(text)
    source = find(tmp_path / "t.csv").prepare(tmp_path / "scratch")
    assert (source.numbers, source.categorical) == (("a", "b"), ())


def test_numbers_that_end_in_a_text_are_told_from_the_whole_table(tmp_path):
    """The first records do not decide: 5,000 numbers, and one text behind them."""
    values = [f"{i}.5" for i in range(5000)]
    frame = pd.DataFrame({"a": [*values, "many"], "x": np.arange(5001) / 7})
    source = find(as_csv(frame, tmp_path)).prepare(tmp_path / "scratch")
    assert source.numbers == ("x",)
    assert source.unused == {"a": "more than 1,000 values, which categories=a takes"}


def test_types_of_arrow_are_known(tmp_path):
    n = 40
    table = pa.table(
        {
            "flag": pa.array([i % 3 == 0 for i in range(n)]),
            "kind": pa.array([f"k{i % 4}" for i in range(n)]).dictionary_encode(),
            "price": pa.array([i * 1.25 for i in range(n)]).cast(pa.decimal128(9, 2)),
            "when": pa.array(range(n), pa.timestamp("us")),
            "raw": pa.array([b"\x00"] * n),
            "list": pa.array([[1, 2]] * n),
        }
    )
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    source = find(tmp_path / "t.parquet").prepare(tmp_path / "scratch")
    assert (source.numbers, source.categorical) == (("flag", "price"), ("kind",))
    assert source.unused == {
        "when": "dates",
        "raw": "holds binary",
        "list": "vectors, which features=list takes in place of the table",
    }


def test_an_index_of_pandas_is_said_as_before(frame, tmp_path, caplog):
    frame.to_csv(tmp_path / "t.csv")
    with caplog.at_level(logging.WARNING):
        source = find(tmp_path / "t.csv", label="target").prepare(tmp_path / "scratch")
    assert "" not in source.columns
    assert any("index of pandas" in line for line in caplog.messages)


@pytest.mark.parametrize(("values", "kind"), [(12, "class"), (20, "class"), (50, "real")])
def test_whole_numbers_of_many_values_are_measured(tmp_path, values, kind):
    """Those of a grade are classes, those of a price are not, unless the user says so."""
    frame = pd.DataFrame({"x": np.arange(200) / 7, "y": 1.5, "price": np.arange(200) % values})
    path = as_csv(frame, tmp_path)
    uri = storage.stage(path, tmp_path / "s.zarr", label="price")
    corpus = storage.open(uri)
    assert corpus.manifest.target == kind
    assert ("target=class takes" in summarize(uri)) == (kind == "real")
    assert (corpus.manifest.source["decided"].get("target") == "real") == (kind == "real")
    said = storage.stage(path, tmp_path / "t.zarr", label="price", target="class")
    assert storage.open(said).manifest.target == "class"
    frame.head(5).to_csv(tmp_path / "more.csv", index=False)
    storage.append(tmp_path / "more.csv", uri, label="price")
    assert storage.open(uri).manifest.target == kind


def test_the_values_of_a_table_as_it_comes_are_read_once_to_decide(frame, tmp_path, monkeypatch):
    frame.to_csv(tmp_path / "t.csv", index=False)
    read, batches = [], CsvFeatures.batches

    def counted(source, piece):
        for batch in batches(source, piece):
            read.append(batch.length)
            yield batch

    monkeypatch.setattr(CsvFeatures, "batches", counted)
    uri = storage.stage(f"{tmp_path}/t.csv?label=target", tmp_path / "t.zarr")
    # the first batch, which is all here, to see which columns count the samples,
    # all once for kinds and means, and once for the store
    assert sum(read) == 3 * N
    means = storage.open(uri).spec["source"]["decided"]["means"]
    assert means["age"] == frame["age"].mean()


def test_a_column_whose_first_rows_alone_are_numbers_holds_categories(tmp_path):
    rows = 40_000  # several batches
    text = "x,code,y\n" + "".join(
        f"{i % 7},{'abc'[i % 3] if i > 20_000 else i % 3},{i % 2}\n" for i in range(rows)
    )
    (tmp_path / "t.csv").write_text(text)
    corpus = storage.open(storage.stage(f"{tmp_path}/t.csv?label=y", tmp_path / "t.zarr"))
    expected = ["x", *(f"code={value}" for value in "012abc")]
    assert sorted(corpus.feature_names[:]) == sorted(expected)
