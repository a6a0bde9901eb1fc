"""Triplets (sample, feature, value) are the rows of the pivoted table, in any order and pieces."""

import json

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigfs import engine, storage
from bigfs.storage.errors import SourceError
from bigfs.storage.sources import find
from bigfs.storage.sources.tables import triplets
from bigfs.storage.sources.tables.tables import BATCH_BYTES

R = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "id": [f"s{i}" for i in R.integers(0, 40, 600)],
        "code": R.integers(0, 12, 600) ** 2,
        "value": R.integers(1, 9, 600) / 4,
    }
)
NAMES = "id,code,value"


def csv(folder, frame=FRAME):
    frame.to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def tsv(folder):
    FRAME.to_csv(folder / "t.tsv.gz", index=False, sep="\t")
    return folder / "t.tsv.gz"


def parquet(folder):
    pq.write_table(pa.Table.from_pandas(FRAME), folder / "t.parquet", row_group_size=50)
    return folder / "t.parquet"


def jsonl(folder):
    lines = (json.dumps(row) + "\n" for row in FRAME.to_dict("records"))
    (folder / "t.jsonl").write_text("".join(lines))
    return folder / "t.jsonl"


def query(folder):
    return duckdb.sql("select * from FRAME").to_arrow_reader(64)


def read(uri):
    corpus = storage.open(uri)
    X = corpus.X.rows(range(corpus.X.shape[0])).toarray()
    return pd.DataFrame(X, corpus.sample_names[:], corpus.feature_names[:])


def pivoted(frame=FRAME):
    """What DuckDB's PIVOT gives, in the order of the names as texts."""
    table = duckdb.sql("pivot frame on code using sum(value) group by id").df().set_index("id")
    table = table.fillna(0).sort_index()
    return table[sorted(table.columns)].astype(np.float32)


def same(found, wanted):
    assert found.index.tolist() == wanted.index.tolist()
    assert found.columns.tolist() == wanted.columns.tolist()
    assert np.array_equal(found.to_numpy(), wanted.to_numpy())


@pytest.mark.parametrize("write", [csv, tsv, parquet, jsonl, query], ids=lambda f: f.__name__)
def test_triplets_are_the_pivot_of_duckdb(tmp_path, write):
    same(read(storage.stage(write(tmp_path), tmp_path / "x.zarr", triplets=NAMES)), pivoted())


def test_two_columns_count(tmp_path):
    found = read(storage.stage(csv(tmp_path), tmp_path / "x.zarr", triplets="id,code"))
    same(found, pivoted(FRAME.assign(value=1)))


def test_the_order_and_the_pieces_do_not_matter(tmp_path, change):
    """Many runs and ranges of samples, of triplets in another order, give the same bits."""
    frame = FRAME.assign(value=R.normal(size=600))
    wanted = read(storage.stage(csv(tmp_path, frame), tmp_path / "x.zarr", triplets=NAMES))
    path = csv(tmp_path, frame.sample(frac=1, random_state=1))
    change(triplets.RUN_BYTES, 400)
    change(BATCH_BYTES, 400)
    source = find(path, triplets=NAMES)
    with engine.session():
        ready = source.prepare(tmp_path)
    pieces = ready.pieces(800)
    assert len(ready.runs) > 5
    assert len(pieces) > 5
    assert sum(run.size for run in ready.runs) == 600
    rows = [ready.read(piece) for piece in pieces]
    names = [name for part in rows for name in part.samples["name"].to_pylist()]
    assert names == wanted.index.tolist()
    for part in rows:
        columns = part.terms.tobytes().decode().split()
        some = wanted.loc[part.samples["name"].to_pylist(), columns].to_numpy()
        assert np.array_equal(part.X.toarray().astype(np.float32), some)


def test_new_triplets_find_the_columns_of_a_store(tmp_path):
    (tmp_path / "new").mkdir()
    uri = storage.stage(csv(tmp_path), tmp_path / "x.zarr", triplets=NAMES)
    new = pd.DataFrame({"id": ["a", "b"], "code": [4, 777], "value": [2.5, 3]})
    storage.append(csv(tmp_path / "new", new), uri, triplets=NAMES)
    added = read(uri).iloc[-2:]
    assert added.index.tolist() == ["a", "b"]
    assert added["4"].tolist() == [2.5, 0]
    assert added.to_numpy().sum() == 2.5  # 777 is no column


def test_names_are_hashed(tmp_path):
    uri = storage.stage(csv(tmp_path), tmp_path / "x.zarr", triplets=NAMES, hashing=8)
    assert storage.open(uri).X.shape == (40, 8)
    assert read(uri).to_numpy().sum() == FRAME.value.sum()


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("id,f,v\na,x,1\n", {"triplets": "id"}, "must name the columns of the sample, the feature"),
        ("id,f,v\na,x,1\n", {"triplets": "id,g,v"}, "has no column 'g', only 'id', 'f', 'v'"),
        ("id,f,v\na,x,1\n,y,1\n", {}, r"row 1 \(from 0\): 'id' must hold a text .*; got 'none'"),
        ("id,f,v\na,x,1\nb,y,\n", {}, r"row 1 \(from 0\): the value in 'v' is missing"),
        ("id,f,v\na,x,1\nb,y,z\n", {}, "'v' does not hold numbers .*'z'"),
        ("id,f,v\na,x,1\nb,y,1e300\n", {}, "the sample 'b', column 1 .* fit in float32"),
        ("id,f,v\na,x,1\n", {"label": "f"}, "label= names a column .* and a record is no sample"),
    ],
    ids=["one", "unknown", "no sample", "no value", "no number", "too large", "label"],
)
def test_bad_triplets_are_refused_by_their_place(tmp_path, content, options, message):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(SourceError, match=message):
        storage.stage(tmp_path / "t.csv", tmp_path / "x.zarr", **({"triplets": "id,f,v"} | options))


def test_the_advice_of_a_table_of_triplets_works(tmp_path):
    frame = FRAME.assign(code="c" + FRAME.code.astype(str))
    path = csv(tmp_path, frame)
    with pytest.raises(SourceError, match="give triplets=id,code,value") as caught:
        storage.stage(path, tmp_path / "x.zarr")
    advised = str(caught.value).partition("triplets=")[2].partition(", or")[0]
    same(read(storage.stage(path, tmp_path / "x.zarr", triplets=advised)), pivoted(frame))
