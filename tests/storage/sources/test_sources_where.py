"""The rows that `where=` keeps, against pandas, and conditions that are refused."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from bigfs import storage
from bigfs.storage.errors import SourceError
from bigfs.storage.sources import find
from bigfs.storage.sources.tables.where import Condition
from tests.helpers.daily import daily
from tests.helpers.sources import SIZES, documents_of, refused, rows_of

N = 40
FRAME = pd.DataFrame(
    {
        "x": np.arange(1.0, N + 1),
        "lang": np.resize(["en", "de", None, "fr"], N),
        "my score": np.where(np.arange(N) % 5, np.arange(N) / N, np.nan),
        "checked": np.resize([True, False, False], N),
        "label": np.resize(["a", "b"], N),
        "text": [f"word{i}" for i in range(N)],
    }
)
SCORE = FRAME["my score"]
CONDITIONS = {
    "lang == 'en'": FRAME.lang == "en",
    "lang != 'en'": FRAME.lang.notna() & (FRAME.lang != "en"),
    "lang in ('en', 'fr') and not checked": FRAME.lang.isin(["en", "fr"]) & ~FRAME.checked,
    "lang not in ['en']": FRAME.lang.notna() & (FRAME.lang != "en"),
    "lang is null or column('my score') > 0.5": FRAME.lang.isna() | (SCORE > 0.5),
    "lang is not None and x >= 3": FRAME.lang.notna() & (FRAME.x >= 3),
    "0.25 < column('my score') <= 0.75": (SCORE > 0.25) & (SCORE <= 0.75),
    "not (column('my score') < 0.5)": SCORE >= 0.5,
    "text != lang and x < -1 or checked == true": FRAME.checked,
    "checked": FRAME.checked,
}


def write(kind, path):
    if kind == "jsonl":
        records = FRAME.astype(object).where(FRAME.notna(), None).to_dict("records")
        for record in records:
            record["features"] = {"0": record["x"]}
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif kind == "csv":
        FRAME.to_csv(path, index=False)
    else:
        table = pa.Table.from_pandas(FRAME, preserve_index=False)
        pa.parquet.write_table(table, path, row_group_size=7)
    return path


@pytest.mark.parametrize("kind", daily(["jsonl", "csv", "parquet"], "parquet"))
@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_and_documents_are_those_of_pandas(tmp_path, kind, condition):
    path, kept = write(kind, tmp_path / f"a.{kind}"), CONDITIONS[condition]
    assert 0 < kept.sum() < N
    numbers = {"format": "jsonl-features"} if kind == "jsonl" else {"columns": "x"}
    for size in SIZES:
        X, y, _, _ = rows_of(find(path, where=condition, **numbers), tmp_path / f"{size}", size)
        assert X[:, 0].tolist() == FRAME.x[kept].tolist()
        assert y.tolist() == FRAME.label[kept].tolist()
    text = {"format": "jsonl"} if kind == "jsonl" else {}
    documents = documents_of(find(path, where=condition, **text), tmp_path)
    assert [d.text for d in documents] == FRAME.text[kept].tolist()


def test_a_store_of_some_rows_has_a_key_of_its_own(tmp_path):
    path = write("csv", tmp_path / "a.csv")
    whole, some, same = (
        storage.open(storage.stage(f"{path}?columns=x{where}", tmp_path / f"{i}.zarr"))
        for i, where in enumerate(("", "&where=x>9", "&where=x%20%3E%20%209"))
    )
    assert [corpus.X.shape for corpus in (whole, some, same)] == [(N, 1), (N - 9, 1), (N - 9, 1)]
    assert whole.manifest.key != some.manifest.key == same.manifest.key


def test_places_are_those_in_the_file(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,1\n2,0\n3,1\n,1\n")
    refused(tmp_path / "a.csv", r"row 3 \(from 0\): column 'x'", tmp_path, columns="x", where="y>0")


def test_dates_and_dictionaries_are_compared(tmp_path):
    dates = pa.array(np.arange("2024-01", "2024-07", dtype="datetime64[M]").astype("datetime64[D]"))
    table = pa.table(
        {"day": dates, "x": range(6), "c": pa.array(list("ababab")).dictionary_encode()}
    )
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    where = "day >= '2024-03-01' and c == 'a'"
    X = rows_of(find(tmp_path / "a.parquet", columns="x", where=where), tmp_path)[0]
    assert X.tolist() == [[2], [4]]


def test_two_columns_of_numbers_are_ordered(tmp_path):
    path = write("parquet", tmp_path / "a.parquet")
    X = rows_of(find(path, columns="x", where="column('my score') < x"), tmp_path)[0]
    assert X[:, 0].tolist() == FRAME.x[FRAME.x > SCORE].tolist()


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("lang ==", "where= cannot be read"),
        ("__import__('os').system('true')", "where= does not know"),
        ("lang.upper() == 'EN'", "where= does not know"),
        ("x + 1 > 2", "where= does not know"),
        ("lang == 'en' if x else y", "where= does not know"),
        ("lambda: x", "where= does not know"),
        ("column(x) > 1", "where= does not know"),
        ("1 < 2", "where= needs a column in each comparison"),
        ("'en'", "where= has 'en' in place of a condition"),
        ("x == null", "use is null"),
        ("x is 3", "where= knows is null"),
        ("x in 'abc'", "where= needs a list after in"),
        ("lang < text", "does not order two columns of texts"),
        ("lang > 0.5", r"where=lang > 0.5 cannot be evaluated: .*'(en|fr|de)'"),
        ("nothing > 1", "has no column 'nothing', only .*where="),
    ],
)
def test_other_conditions_are_refused(tmp_path, condition, message):
    path = write("csv", tmp_path / "a.csv")
    with pytest.raises(SourceError, match=message) as caught:
        rows_of(find(path, columns="x", where=condition), tmp_path)
    assert "\n" not in str(caught.value)


def test_a_field_that_no_record_has_is_refused(tmp_path):
    path = write("jsonl", tmp_path / "a.jsonl")
    refused(path, "has no field 'nothing'.*where=", tmp_path, where="nothing > 1")


def test_the_names_of_a_condition_are_its_fields():
    assert Condition("a > 1 and column('b c') is null or a in (1, 2)").fields == ("a", "b c")
