"""Triplets of a sample, a feature and a value as rows, by bigfs and by DuckDB's PIVOT.

python benchmarks/triplets.py FOLDER bigfs --count 100000000
python benchmarks/triplets.py FOLDER duckdb --count 100000000

The triplets are generated once, in no order, as Parquet. A line has the seconds and the peak of the
process, which may take 1 GB.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from shared import row, timed

from bigfs import engine, storage

BLOCK = 1_000_000  # triplets that are generated at a time
SAMPLE_TRIPLETS, FEATURES = 100, 2_000
LIMIT = "1GB"


def write(path: Path, count: int) -> None:
    """Write triplets, a hundred per sample, whose features follow a power law."""
    path.mkdir(parents=True)
    for first in range(0, count, BLOCK):
        n, rng = min(BLOCK, count - first), np.random.default_rng(first)
        ids = rng.integers(0, count // SAMPLE_TRIPLETS, n)
        codes = (FEATURES * rng.random(n) ** 2).astype(np.int32)
        table = pa.table({"id": ids, "code": codes, "value": rng.integers(1, 9, n)})
        pq.write_table(table, path / f"part-{first // BLOCK:05d}.parquet")


def pivot(path: Path) -> None:
    """Pivot the triplets by DuckDB, and write the table."""
    with duckdb.connect(config={"memory_limit": LIMIT, "temp_directory": str(path.parent)}) as db:
        table = f"pivot (from '{path}/*.parquet') on code using sum(value) group by id"
        db.execute(f"copy ({table}) to '{path}-pivot.parquet'")


def main(folder: Path, tool: str, count: int = 1_000_000) -> None:
    """Print a row for a tool."""
    if not (path := folder / f"triplets-{count}").exists():
        write(path, count)
    triplets = {"triplets": "id,code,value", "memory_limit": LIMIT}
    stage = {"bigfs": lambda: storage.stage(path, f"{path}.zarr", **triplets)}
    run = timed((stage | {"duckdb": lambda: pivot(path)})[tool])
    peak = engine.peak_memory()["driver"] >> 20
    row(f"triplets to a table, {tool}", f"{count:,} triplets", f"{run.seconds:.1f} s, {peak} MiB")


if __name__ == "__main__":
    typer.run(main)
