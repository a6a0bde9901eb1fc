"""Vectors in columns, as Spark, BigQuery, embeddings and vector databases write them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from bigfs import storage
from bigfs.storage.errors import SourceError

X = sp.random(12, 6, 0.5, format="csr", rng=np.random.default_rng(0), dtype=np.float32)
X[0, 5] = 1.0
LABELS = ["x", "y"] * 6
PARTS = [(row.indices.tolist(), row.data.tolist()) for row in (X[[i]] for i in range(12))]
STRUCTS = [{"indices": indices, "values": values} for indices, values in PARTS]
UDT = pa.struct(
    [
        ("type", pa.int8()),
        ("size", pa.int32()),
        ("indices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
    ]
)
SPARK = pa.array([{"type": 0, "size": 6, **row} for row in STRUCTS], UDT)
PAIR = pa.list_(pa.struct([("index", pa.int64()), ("value", pa.float64())]))
BIGQUERY = pa.array(
    [[{"index": i, "value": v} for i, v in zip(*row, strict=True)] for row in PARTS], PAIR
)
DENSE = X.toarray()
FIXED = pa.FixedSizeListArray.from_arrays(DENSE.ravel(), 6)
QDRANT = pa.array([{"words": row, "image": [1.0]} for row in STRUCTS])
CITIES = pa.array([{"city": {"kind": label}} for label in LABELS])


def parquet(**fields):
    def write(folder):
        pq.write_table(pa.table(fields), folder / "t.parquet", row_group_size=5)
        return folder / "t.parquet"

    return write


def arrow(**fields):
    def write(folder):
        with pa.ipc.new_file(folder / "t.arrow", (table := pa.table(fields)).schema) as out:
            out.write_table(table, 5)
        return folder / "t.arrow"

    return write


def lines(*rows):
    def write(folder):
        (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return folder / "t.jsonl"

    return write


PINECONE = [
    {"id": f"v{i}", "values": [0.5], "sparse_values": row, "metadata": {"kind": label}}
    for i, (row, label) in enumerate(zip(STRUCTS, LABELS, strict=True))
]
DOTTED = {"features": "vector.words", "label": "payload.city.kind"}
SHAPES = {
    "Spark": (parquet(label=LABELS, features=SPARK), {}),
    "BigQuery": (parquet(label=LABELS, row=BIGQUERY), {}),
    "embeddings": (parquet(id=range(12), label=LABELS, embedding=FIXED), {}),
    "lists of floats": (
        arrow(label=LABELS, e=pa.array(DENSE.tolist(), pa.list_(pa.float32()))),
        {},
    ),
    "JSON arrays": (
        lines(*({"features": r.tolist(), "label": y} for r, y in zip(DENSE, LABELS, strict=True))),
        {},
    ),
    "Pinecone": (lines(*PINECONE), {"features": "sparse_values", "label": "metadata.kind"}),
    "Pinecone by lists": (
        lines(*PINECONE),
        {
            "indices": "sparse_values.indices",
            "values": "sparse_values.values",
            "label": "metadata.kind",
        },
    ),
    "Qdrant in Parquet": (parquet(vector=QDRANT, payload=CITIES), DOTTED),
    "Qdrant in Arrow": (arrow(more=range(12), vector=QDRANT, payload=CITIES), DOTTED),
    "Qdrant in a stream": (lambda folder: pa.table({"vector": QDRANT, "payload": CITIES}), DOTTED),
    "a name with a dot": (parquet(**{"a.b": SPARK, "c.d": LABELS}), {"label": "c.d"}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_vectors_in_columns_are_the_rows_of_the_matrix(tmp_path, name):
    write, options = SHAPES[name]
    corpus = storage.open(storage.stage(write(tmp_path), tmp_path / "x.zarr", **options))
    assert np.array_equal(corpus.X.rows(range(12)).toarray(), DENSE)
    assert [corpus.class_names[code] for code in corpus.y] == LABELS


@pytest.mark.parametrize(
    ("write", "options", "message"),
    [
        (parquet(label=LABELS, a=SPARK, b=FIXED), {}, r"'a' \(vectors, which features=a takes in"),
        (parquet(label=LABELS, v=QDRANT), {"features": "v.title"}, "has no column 'v.title'"),
        (lines(*PINECONE), {}, "name it with text=, or a field with the numbers of a row with fea"),
        (lines(*PINECONE), {"features": "sparse_values.more"}, "no field 'sparse_values.more'"),
    ],
    ids=["two", "no path", "no text", "no field"],
)
def test_advice_about_vectors_leads_on(tmp_path, write, options, message):
    with pytest.raises(SourceError, match=message):
        storage.stage(write(tmp_path), tmp_path / "x.zarr", **options)


def test_vectors_beside_numbers_are_left_out_with_the_way_to_read_them(tmp_path):
    source = parquet(label=LABELS, age=np.arange(12.0) ** 2, features=SPARK)(tmp_path)
    about = storage.open(storage.stage(source, tmp_path / "x.zarr")).manifest.source
    assert about["decided"]["unused"] == {
        "features": "vectors, which features=features takes in place of the table"
    }
