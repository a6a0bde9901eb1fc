"""Each row of the table of shapes: its command reads what other tools wrote, and says what it says
there."""

import json
import re
import shlex
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from bigfs.storage.write_back import write_element
from tests.helpers.anndata import write_anndata
from tests.storage.shapes import test_cells as genes

PAGE = Path(__file__).parents[2] / "docs/guide/sources.md"
ROW = re.compile(r"^\| (.+?) \| `bigfs (.+?)` \| `(.+?)` \|$", re.M)
N, D = 60, 8
Y = np.arange(N) % 3
WORDS = ["purr milk mouse", "bark bone ball", "moo grass milk"]


def numbers():
    X = np.random.default_rng(0).poisson(0.7, (N, D)).astype(float)
    X[np.arange(N), Y] += 2
    return X


def rows():
    """The columns and the values of each row that are not 0."""
    return [(np.flatnonzero(x).tolist(), x[x > 0].tolist()) for x in numbers()]


def lines(path, some):
    path.write_text("".join(f"{line}\n" for line in some), encoding="utf-8")


def frame():
    about = {"city": np.array(["Bern", "Oslo"])[Y % 2], "churn": np.array(["no", "yes", "no"])[Y]}
    return pd.DataFrame(numbers(), columns=[f"x{j}" for j in range(D)]).assign(**about)


def parquet(name, **columns):
    return lambda folder: pq.write_table(pa.table({**columns, "label": Y}), folder / name)


def documents(folder):
    for i, y in enumerate(Y):
        path = folder / "pets" / "abc"[y] / f"{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(WORDS[y])


def texts(folder):
    posts = [{"text": WORDS[y], "label": "abc"[y]} for y in Y]
    pd.DataFrame(posts).to_csv(folder / "posts.csv", index=False)


def chinese(folder):
    posts = (["我喜欢喝茶", "今天下雨", "他在读书"][y] + "的" * (i % 2) for i, y in enumerate(Y))
    lines(folder / "posts.jsonl", (json.dumps({"text": p}) for p in posts))


def two_files(folder):
    frame()[:40].to_csv(folder / "train.csv", index=False)
    frame()[40:].to_csv(folder / "test.csv", index=False)


def with_names(folder):
    sp.save_npz(folder / "X.npz", sp.csr_array(numbers()))
    lines(folder / "vocabulary.txt", (f"word{j}" for j in range(D)))
    lines(folder / "y.txt", Y)


def triplets(folder):
    entries = sp.coo_array(numbers())
    table = {"user": entries.row, "item": entries.col, "count": entries.data}
    pd.DataFrame(table).to_csv(folder / "events.csv", index=False)
    pd.DataFrame({"user": range(N), "churn": Y}).to_csv(folder / "users.csv", index=False)


def genes_in_rows(folder):
    cells = [f"GSM{i}" for i in range(N)]
    table = pd.DataFrame(numbers().T, [f"gene{j}" for j in range(D)], cells)
    table.to_csv(folder / "GSE1.tsv.gz", sep="\t")
    about = {"cell": cells, "type": np.array(list("abc"))[Y]}
    pd.DataFrame(about).to_csv(folder / "cells.csv", index=False)


def market(folder):
    scipy.io.mmwrite(folder / "X.mtx", sp.coo_array(numbers()))
    lines(folder / "y.txt", Y)


def arrays(folder):
    np.save(folder / "X.npy", numbers())
    np.save(folder / "y.npy", Y)


def cells(folder):
    with h5py.File(folder / "cells.h5ad", "w") as root:
        write_anndata(root, sp.csr_array(numbers()), "csr_matrix", write_element)
        write_element(root["obs"], "cell_type", (["B", "NK", "T"], Y))
        root["obs"].attrs["column-order"] = ["cell_type"]


def rcv1(folder):
    documents = range(2286, 2286 + N)
    dump_svmlight_file(numbers(), documents, str(folder / "vectors.dat"), zero_based=False)
    lines(folder / "rcv1.qrels", (f"TOPIC{Y[i]} {number} 1" for i, number in enumerate(documents)))


VECTOR = pa.struct(
    [
        ("type", pa.int8()),
        ("size", pa.int32()),
        ("indices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
    ]
)
PAIRS = pa.list_(pa.struct([("index", pa.int64()), ("value", pa.float64())]))
MAKERS = {
    "documents, a folder per class": documents,
    "texts in CSV": texts,
    "texts in Chinese": chinese,
    "svmlight": lambda folder: dump_svmlight_file(
        numbers(), Y, str(folder / "rows.svm"), zero_based=False
    ),
    "XMC": lambda folder: lines(
        folder / "xmc.txt",
        [
            f"{N} {D} 3",
            *(
                f"{Y[i]} " + " ".join(f"{j}:{v:g}" for j, v in zip(*row, strict=True))
                for i, row in enumerate(rows())
            ),
        ],
    ),
    "RCV1 as published": rcv1,
    "libffm": lambda folder: lines(
        folder / "ads.ffm",
        (
            f"{Y[i] % 2} " + " ".join(f"{j % 2}:{j}:{v:g}" for j, v in zip(*row, strict=True))
            for i, row in enumerate(rows())
        ),
    ),
    "Vowpal Wabbit": lambda folder: lines(
        folder / "clicks.vw",
        (f"{Y[i]} |f " + " ".join(map("w{}".format, row[0])) for i, row in enumerate(rows())),
    ),
    "a table": lambda folder: frame().to_csv(folder / "churn.csv", index=False),
    "a table in two files": two_files,
    "a table in Parquet": lambda folder: frame().to_parquet(folder / "churn.parquet"),
    "objects in JSON Lines": lambda folder: lines(
        folder / "rows.jsonl",
        (
            json.dumps(
                {"features": {f"w{j}": v for j, v in zip(*row, strict=True)}, "label": int(y)}
            )
            for row, y in zip(rows(), Y, strict=True)
        ),
    ),
    "lists of columns and values": parquet(
        "acts.parquet", i=[row[0] for row in rows()], v=[row[1] for row in rows()]
    ),
    "vectors of Spark": parquet(
        "spark.parquet",
        features=pa.array(
            [{"type": 0, "size": D, "indices": i, "values": v} for i, v in rows()], VECTOR
        ),
    ),
    "vectors of BigQuery": parquet(
        "bigquery.parquet",
        features=pa.array(
            [[{"index": i, "value": v} for i, v in zip(*row, strict=True)] for row in rows()], PAIRS
        ),
    ),
    "embeddings": parquet(
        "embedded.parquet",
        embedding=pa.FixedSizeListArray.from_arrays(pa.array(numbers().ravel()), D),
    ),
    "triplets": triplets,
    "a sparse matrix of SciPy and a word list": with_names,
    "Matrix Market": market,
    "genes × cells as GEO has them": genes_in_rows,
    "arrays of NumPy": arrays,
    "cells of AnnData": cells,
    "cells of Cell Ranger": lambda folder: genes.write(folder / "filtered", genes.ranger3()),
    "cells of Cell Ranger in HDF5": lambda folder: genes.write(folder, genes.hdf5()),
    "cells of Loom": lambda folder: genes.write(folder, genes.loom()),
}


def table_of(page):
    return ROW.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("people_have", "command", "says"), table_of(PAGE), ids=lambda text: None)
def test_a_row_reads_what_other_tools_wrote(
    bigfs, tmp_path, monkeypatch, people_have, command, says
):
    monkeypatch.chdir(tmp_path)
    MAKERS[people_have](tmp_path)
    status, out, err = bigfs(*shlex.split(command), "--workers", "0")
    assert status == 0, err
    assert out.splitlines()[0].partition(" s: ")[2] == says


def test_each_shape_has_its_row():
    assert [row[0] for row in table_of(PAGE)] == list(MAKERS)
