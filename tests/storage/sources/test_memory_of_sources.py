"""The peak of a process that stages what memory could follow: a long value, rows that hold all
entries, many columns.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

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
