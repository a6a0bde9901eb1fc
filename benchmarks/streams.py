"""Streams against the same by hand, and one that is larger than memory.

python benchmarks/streams.py readers --rows 100000
python benchmarks/streams.py files --rows 20000
python benchmarks/streams.py scale --rows 1000000 --workers 2 --memory-limit 512MB
python benchmarks/streams.py many --rows 100000000 --memory-limit 1GB

Rows have 100 entries in 100,000 columns, and one of three labels. Rows of `many` have ten in
30,000. A command imports what it compares with, as the others show their own memory.
"""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import scipy.sparse as sp
import typer
from shared import by_turns, peaks, show_turns, timed

from bigfs import engine, storage
from bigfs.selectors.registry import METHODS
from bigfs.storage.sources import find

if TYPE_CHECKING:
    import pyarrow as pa

app = typer.Typer(add_completion=False)
PER_ROW, COLUMNS, BLOCK = 100, 100_000, 5_000
SHORT = 10  # entries of a row where there are many
TELLING = 300  # columns that tell the label of such a row
Rows = Annotated[int, typer.Option(help="rows of the matrix")]


def blocks(rows: int, size: int = BLOCK) -> Iterator[tuple[sp.csr_array, np.ndarray]]:
    """Blocks of rows with their labels."""
    for start in range(0, rows, size):
        n, rng = min(size, rows - start), np.random.default_rng(start)
        # columns that increase within a row
        step = rng.integers(1, COLUMNS // PER_ROW, (n, PER_ROW))
        columns = np.cumsum(step, axis=1, dtype=np.int32)
        values = rng.random(n * PER_ROW, dtype=np.float32) + 0.1
        X = sp.csr_array((values, columns.ravel(), PER_ROW * np.arange(n + 1)), (n, COLUMNS))
        yield X, rng.integers(0, 3, n)


def lists(rows: int) -> pa.Table:
    """The same rows as a table of lists."""
    import pyarrow as pa

    return pa.Table.from_batches(
        [
            pa.RecordBatch.from_pydict(
                {
                    "indices": pa.ListArray.from_arrays(X.indptr.astype(np.int32), X.indices),
                    "values": pa.ListArray.from_arrays(X.indptr.astype(np.int32), X.data),
                    "label": y,
                }
            )
            for X, y in blocks(rows)
        ]
    )


def by_hand(table: pa.Table) -> sp.csr_array:
    """Return the csr matrix in memory, as one would with pyarrow and SciPy."""
    parts = []
    for batch in table.to_reader():
        indices, values = batch["indices"], batch["values"]
        rows = values.flatten().to_numpy(), indices.flatten().to_numpy(), indices.offsets.to_numpy()
        parts.append(sp.csr_array(rows, (batch.num_rows, COLUMNS)))
    return sp.vstack(parts, format="csr")


@app.command()
def readers(rows: Rows = 100_000, turns: int = 3) -> None:
    """Stage a table of lists by several libraries, and make the matrix of it in memory by hand."""
    import duckdb
    import polars as pl

    table = lists(rows)
    frame = pl.from_arrow(table)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "a.zarr"

        def stage(data: object) -> str:
            shutil.rmtree(place, ignore_errors=True)
            return storage.stage(data, place, indices="indices", values="values")

        def stage_blocks() -> str:
            shutil.rmtree(place, ignore_errors=True)
            return storage.stage(blocks(rows), place)

        def again() -> str:
            return storage.stage(table, place, indices="indices", values="values")

        calls = {
            "pyarrow to SciPy by hand": lambda: by_hand(table),
            "stage(csr blocks)": stage_blocks,
            "stage(polars)": lambda: stage(frame),
            "stage(DuckDB)": lambda: stage(duckdb.from_arrow(table).to_arrow_reader(BLOCK)),
            "stage(pyarrow)": lambda: stage(table),
            "spool only (the store is there)": again,
            "make the blocks": lambda: sum(X.nnz for X, _ in blocks(rows)),
        }
        found = by_turns(calls, turns)
        show_turns(f"{rows:,} rows", found)
        for name, runs in found.items():
            print(f"{name}: {rows / min(run.seconds for run in runs):,.0f} rows/s")


@app.command()
def files(
    rows: Rows = 20_000,
    turns: int = 3,
    vw: Annotated[Path | None, typer.Option(help="a Python that has vowpalwabbit")] = None,
) -> None:
    """Read the same rows from files of several formats in one process, and by what people use."""
    import pyarrow.parquet as pq
    from sklearn.datasets import dump_svmlight_file, load_svmlight_file
    from sklearn.feature_extraction import DictVectorizer

    table, peers = lists(rows), {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        pq.write_table(table, home / "a.parquet", row_group_size=BLOCK)
        with (home / "a.jsonl").open("w") as names, (home / "a.vw").open("w") as lines:
            for row in table.to_pylist():
                entries = dict(zip(row["indices"], row["values"], strict=True))
                names.write(
                    json.dumps({"features": {f"f{j}": v for j, v in entries.items()}}) + "\n"
                )
                lines.write(
                    f"{row['label']} | {' '.join(f'f{j}:{v}' for j, v in entries.items())}\n"
                )
        X = sp.csr_array(by_hand(table), dtype=np.float32)
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        dump_svmlight_file(X, table["label"].to_numpy(), str(home / "a.svm"))
        sources = {
            "Parquet lists": find(home / "a.parquet", indices="indices", values="values"),
            "JSON Lines by names": find(home / "a.jsonl"),
            "Vowpal Wabbit": find(home / "a.vw"),
            "svmlight": find(home / "a.svm"),
        }
        ready = {name: source.prepare(home / name) for name, source in sources.items()}

        def read(source: Any) -> list[Any]:
            return [source.read(piece) for piece in source.pieces(4 << 20)]

        def vw_by_hand() -> Any:
            lines = (line.split("|")[1].split() for line in (home / "a.vw").open())
            pairs = ((word.rpartition(":") for word in words) for words in lines)
            rows_of = ({name: float(value) for name, _, value in row} for row in pairs)
            return DictVectorizer().fit_transform(rows_of)

        peers["pyarrow to SciPy by hand"] = lambda: by_hand(pq.read_table(home / "a.parquet"))
        peers["json and DictVectorizer"] = lambda: DictVectorizer().fit_transform(
            json.loads(line)["features"] for line in (home / "a.jsonl").open()
        )
        peers["Vowpal Wabbit by hand and DictVectorizer"] = vw_by_hand
        peers["load_svmlight_file"] = lambda: load_svmlight_file(str(home / "a.svm"))
        if vw:
            own = [vw, "-m", "vowpalwabbit", "--noop", "--quiet", "-d", home / "a.vw"]
            peers["Vowpal Wabbit's own parser"] = lambda: subprocess.run(own, check=True)
        calls = {name: partial(read, source) for name, source in ready.items()}
        for name, runs in by_turns(calls | peers, turns).items():
            print(f"{name}: {rows / min(run.seconds for run in runs):,.0f} rows/s")


@app.command()
def scale(
    rows: Rows = 1_000_000,
    workers: int = 2,
    memory_limit: str = "512MB",
    scratch: Path | None = None,
    methods: str = "",
) -> None:
    """Stage csr blocks of a generator on a cluster, and select. The labels tell nothing."""
    stage_and_choose(blocks(rows), workers, memory_limit, scratch, methods)


@app.command()
def many(
    rows: Rows = 100_000_000,
    workers: int = 2,
    memory_limit: str = "1GB",
    scratch: Path | None = None,
    methods: str = "anova,sparge-lda,srlsr",
) -> None:
    """The same of many short rows. SRLSR and RLSR get the label of one in a hundred."""
    stage_and_choose(short_rows(rows), workers, memory_limit, scratch, methods)


def stage_and_choose(
    parts: Iterator[tuple[sp.csr_array, np.ndarray]],
    workers: int,
    memory_limit: str,
    scratch: Path | None,
    methods: str,
) -> None:
    """Stage the blocks, run the methods, and show the peak memory of each process."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        store = Path(folder) / "a.zarr"
        cluster = {"workers": workers, "memory_limit": memory_limit}
        with engine.cluster(**cluster):
            engine.reset_peak_memory()
            run = timed(lambda: storage.stage(parts, store, memory_limit=memory_limit))
            print(f"{storage.open(store)!r}: {run.seconds:.0f} s", peaks())
        files = [file for file in store.rglob("*") if file.is_file()]
        size = sum(file.stat().st_size for file in files)
        print(f"{len(files):,} files, {size / 1e9:.1f} GB", flush=True)
        for method in filter(None, methods.split(",")):
            gc.collect()  # what the method before has left in cycles
            with engine.cluster(**cluster):
                engine.reset_peak_memory()
                run = timed(partial(choose, store, method))
                print(f"{method}: {run.seconds:.0f} s", peaks(), flush=True)


def short_rows(rows: int) -> Iterator[tuple[sp.csr_array, np.ndarray]]:
    """Blocks of rows of ten entries in 30,000 columns. In nine of ten rows the first entry, below
    `TELLING`, is of a column of the label. The first of these columns come most often."""
    for start in range(0, rows, 100_000):
        n, rng = min(100_000, rows - start), np.random.default_rng(start)
        y = rng.integers(0, 3, n)
        columns = TELLING - 1 + np.cumsum(rng.integers(1, 3_000, (n, SHORT)), axis=1)
        columns[:, 1:] = columns[:, :-1]
        word = (TELLING // 3 * rng.random(n) ** 2).astype(np.int64)
        columns[:, 0] = 3 * word + np.where(rng.random(n) < 0.9, y, rng.integers(0, 3, n))
        columns = columns.ravel().astype(np.int32)
        values = rng.random(n * SHORT, dtype=np.float32) + 0.1
        yield sp.csr_array((values, columns, SHORT * np.arange(n + 1)), (n, 30_000)), y


def choose(store: Path, method: str) -> None:
    corpus = storage.open(store)
    y = corpus.y
    if method in ("srlsr", "rlsr"):
        y = np.where(np.arange(len(y)) % 100, np.int8(-1), y.astype(np.int8))
    found = METHODS[method].make(n_features_to_select=100).fit(corpus.X, y)
    told = found.get_support(indices=True) < TELLING
    result = getattr(found, "result_", None)
    status = "closed form" if result is None else result.status.name
    if result is not None and result.history:
        status += f", gap {result.history[-1]['gap']:.1%}"
    print(f"{method}: {status}, {told.sum()} of 100 features tell the label")


if __name__ == "__main__":
    app()
