"""The peak of a process that stages what memory could follow: a long value, rows that hold all
entries, many columns.
"""

import json
import subprocess
import sys

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from bigfs.storage.format.manifest import manifest_of
from tests.helpers.daily import daily

pytestmark = pytest.mark.slow
STAGE = """
import json, sys
from bigfs import engine, storage
source, store, limit, options = sys.argv[1:]
said = "staged"
try:
    storage.stage(source, store, memory_limit=limit, **json.loads(options))
except (engine.MemoryLimitError, storage.StoreError) as error:
    said = str(error)
print(json.dumps([engine.peak_memory()["driver"], said]))
"""


def peak(source, tmp_path, limit, **options):
    """Return the peak of a process that stages a source, and what it says."""
    words = [str(source), str(tmp_path / "s.zarr"), limit, json.dumps(options)]
    command = [sys.executable, "-c", STAGE, *words]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("role", ["id", "label", "split", "group", "batch", "text"])
def test_one_long_value_among_many_fits(tmp_path, role):
    rows = [
        {"text": f"word milk{i % 7}", "id": f"n{i}", "label": "xy"[i % 2], "group": f"g{i % 9}"}
        for i in range(4000)
    ]
    rows[2000][role] = "train" if role == "split" else "a" * 40_000
    if role in ("split", "batch"):
        rows = [row | {role: row.get(role, "train")} for row in rows]
    source = tmp_path / "t.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"group": "group"} | ({"batch": "batch"} if role == "batch" else {})
    bytes_, said = peak(source, tmp_path, "450MB", **options)
    assert said == "staged"
    assert bytes_ < 450e6


def test_rows_that_hold_all_entries_fit(tmp_path):
    lengths = np.zeros(100_000, dtype=np.int64)
    lengths[:300] = 8_000_000 // 300
    indptr = np.append(0, np.cumsum(lengths))
    columns = np.tile(np.arange(lengths[0], dtype=np.int32), 300)
    X = sp.csr_array((np.ones(len(columns), "f4"), columns, indptr), (100_000, 30_000))
    sp.save_npz(tmp_path / "t.npz", X, compressed=False)
    bytes_, said = peak(tmp_path / "t.npz", tmp_path, "420MB")
    assert said == "staged"
    assert bytes_ < 420e6


@pytest.mark.parametrize(("d", "n"), daily([(100_000, 40), (25_000, 400)], (100_000, 40)))
def test_a_csv_of_many_columns_fits(tmp_path, d, n):
    values = np.random.default_rng(0).integers(0, 3, (n, d))
    with open(tmp_path / "t.csv", "w") as file:
        file.write(",".join(f"c{j}" for j in range(d)) + ",label\n")
        for i, row in enumerate(values.tolist()):
            file.write(",".join(map(str, row)) + f",{i % 2}\n")
    bytes_, said = peak(tmp_path / "t.csv", tmp_path, "512MB", columns="*")
    assert said == "staged"
    assert bytes_ < 512e6


def test_a_long_first_line_is_refused_before_it_is_parsed(tmp_path):
    features = {str(j): j for j in range(2_000_000)}
    (tmp_path / "t.jsonl").write_text(json.dumps({"label": "x", "features": features}) + "\n")
    bytes_, said = peak(tmp_path / "t.jsonl", tmp_path, "420MB", label="label")
    assert "cannot be cut" in said
    assert bytes_ < 420e6


# --- shapes whose entries take more than the limit in memory --------------------------------------

N, D, EACH = 20_000, 5_000, 1_000  # samples, features, and entries of a sample
LABELS = [f"c{i}" for i in range(N)]
LETTERS = [chr(0x4E00 + i) for i in range(71)]
ENDS = np.arange(0, 1000 * EACH + 1, EACH, dtype=np.int32)  # of the entries of a thousand samples


def entries():
    """The columns of the entries, sample by sample: 240 MB as csr, beside 230 MB of libraries."""
    shift = np.arange(N, dtype=np.int32)[:, None]
    return (np.arange(EACH, dtype=np.int32) * 5 + shift % 5).ravel()


def write_lines(path, start, entry):
    """Write a line for each sample, with an entry for each of its columns."""
    rows = [" ".join(map(entry, row)) for row in entries()[: 5 * EACH].reshape(5, EACH).tolist()]
    with open(path, "w") as file:
        file.write(start)
        file.writelines(f"{i % 3} {rows[i % 5]}\n" for i in range(N))
    return path


def write_table(path, column):
    """Write a table of one column, which gets a thousand samples at a time."""
    parts = entries().reshape(-1, 1000 * EACH)
    table = pa.table({"features": column(parts[0])})
    with pq.ParquetWriter(path, table.schema) as out:
        for part in parts:
            out.write_table(pa.table({"features": column(part)}))
    return path


def cell_ranger(folder):
    rows = np.repeat(np.arange(1, N + 1, dtype=np.int32), EACH)
    table = pa.table({"gene": entries() + 1, "cell": rows, "count": np.ones(len(rows), "i1")})
    with open(folder / "matrix.mtx", "wb") as out:
        size = f"{D} {N} {len(rows)}\n"
        out.write(b"%%MatrixMarket matrix coordinate integer general\n" + size.encode())
        pa.csv.write_csv(table, out, pa.csv.WriteOptions(include_header=False, delimiter=" "))
    (folder / "barcodes.tsv").write_text("".join(f"{name}\n" for name in LABELS))
    return folder, {}


def cells_in_hdf5(folder):
    with h5py.File(folder / "c.h5", "w") as file:
        group = file.create_group("matrix")
        group["data"], group["indices"] = np.ones(N * EACH, np.int32), entries()
        group["indptr"], group["shape"] = np.arange(0, N * EACH + 1, EACH), np.array([D, N])
        group["barcodes"], group["features/id"] = np.array(LABELS, "S"), np.arange(D).astype("S")
    return folder / "c.h5", {}


def loom(folder):
    with h5py.File(folder / "c.loom", "w") as file:
        X = file.create_dataset("matrix", (D, N), "f4", chunks=(64, 64), compression="gzip")
        for first in range(0, D, 320):
            genes = np.arange(first, min(first + 320, D))[:, None]
            X[first : first + 320] = (genes % 5 == np.arange(N) % 5).astype("f4")
        file["row_attrs/Gene"], file["col_attrs/CellID"] = np.arange(D), np.array(LABELS, "S")
    return folder / "c.loom", {}


def turned_rows(folder):
    parts = np.ones(N * EACH, "f4"), entries(), np.arange(0, N * EACH + 1, EACH)
    sp.save_npz(folder / "x.npz", sp.csc_array(parts, (D, N)), compressed=False)
    return folder / "x.npz", {"transpose": True}


def turned_array(folder):
    X = np.lib.format.open_memmap(folder / "x.npy", "w+", "f4", (D, N))
    for gene in range(D):
        X[gene] = gene % 5 == np.arange(N) % 5
    return folder / "x.npy", {"transpose": True}


def turned_csv(folder):
    rows = [",".join("1" if i % 5 == gene else "0" for i in range(N)) for gene in range(5)]
    with open(folder / "x.csv", "w") as file:
        file.write(",".join(["gene", *LABELS]) + "\n")
        file.writelines(f"g{gene},{rows[gene % 5]}\n" for gene in range(D))
    return folder / "x.csv", {"transpose": True}


def triplets(folder):
    order = np.random.default_rng(0).permutation(N * EACH)
    ids = (order // EACH).astype(np.int32)
    table = pa.table({"id": ids, "code": entries()[order], "value": np.ones(len(ids), "f4")})
    pq.write_table(table, folder / "t.parquet", row_group_size=1 << 20)
    return folder / "t.parquet", {"triplets": "id,code,value"}


def vectors_of_spark(folder):
    def column(codes):
        parts = pa.array(codes), pa.array(np.ones(len(codes)))
        lists = [pa.ListArray.from_arrays(ENDS, part) for part in parts]
        return pa.StructArray.from_arrays(lists, ["indices", "values"])

    return write_table(folder / "t.parquet", column), {}


def lists_of_pairs(folder):
    def column(codes):
        parts = pa.array(codes), pa.array(np.ones(len(codes)))
        return pa.ListArray.from_arrays(ENDS, pa.StructArray.from_arrays(parts, ["index", "value"]))

    return write_table(folder / "t.parquet", column), {}


def embeddings(folder):
    def column(codes):
        return pa.FixedSizeListArray.from_arrays(pa.array(codes + np.float32(1)), EACH)

    return write_table(folder / "t.parquet", column), {}


def extreme(folder):
    return write_lines(folder / "x.txt", f"{N} {D} 3\n", "{}:1".format), {}


def libffm(folder):
    return write_lines(folder / "x.ffm", "", lambda j: f"{j % 7}:{j}:1"), {}


def text_by_characters(folder):
    """Texts of EACH pairs of characters, out of a cycle in which no pair comes twice."""
    steps = np.arange(1, len(LETTERS))
    cycle = "".join(LETTERS[i] for i in np.cumsum(np.repeat(steps, len(LETTERS))) % len(LETTERS))
    lines = [cycle[5 * i : 5 * i + EACH + 1] for i in range(790)]
    with open(folder / "t.jsonl", "w") as file:
        file.writelines(json.dumps({"text": lines[i % 790]}) + "\n" for i in range(N))
    return folder / "t.jsonl", {"analyzer": "char", "ngram_range": [2, 2]}


def labels_by_names(folder):
    parts = np.ones(N * EACH, "f4"), entries(), np.arange(0, N * EACH + 1, EACH)
    sp.save_npz(folder / "x.npz", sp.csr_array(parts, (N, D)), compressed=False)
    table = pa.table({"cell": LABELS[::-1], "note": ["x" * 300] * N, "kind": ["a", "b"] * (N // 2)})
    pa.csv.write_csv(table, folder / "labels.csv")
    (folder / "names.txt").write_text("".join(f"{name}\n" for name in LABELS))
    lists = {"sample_names": str(folder / "names.txt"), "labels": str(folder / "labels.csv")}
    return folder / "x.npz", lists | {"label": "kind"}


SHAPES = [
    *(cell_ranger, cells_in_hdf5, loom, turned_rows, turned_array, turned_csv),
    *(vectors_of_spark, lists_of_pairs, embeddings, triplets, extreme, libffm),
    *(text_by_characters, labels_by_names),
]


@pytest.mark.nightly
@pytest.mark.parametrize("write", SHAPES, ids=lambda write: write.__name__)
def test_a_shape_larger_than_the_limit_fits(tmp_path, write):
    (tmp_path / "s").mkdir()
    source, options = write(tmp_path / "s")
    bytes_, said = peak(source, tmp_path, "420MB", **options)
    assert said == "staged"
    about = manifest_of(str(tmp_path / "s.zarr"))
    assert (about.shape[0], about.nnz) == (N, N * EACH)
    assert bytes_ < 420e6
