"""The jobs of five users: the commands of a section of docs/guide/jobs.md, on files of that kind.

python -m benchmarks.journeys job latents 1200000 --memory-limit 512MB
python -m benchmarks.journeys forecast    # of each job, with what was measured
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

ROOT = Path(__file__).parents[1]
app = typer.Typer(add_completion=False, callback=lambda: None)  # so that `job` stays a word


BLOCK = 5_000  # rows that a generator holds
PAGE = ROOT / "docs" / "guide" / "jobs.md"


def blocks(n: int, d: int, per_row: int, classes: int, own: int) -> Iterator[tuple[Any, Any]]:
    """Rows (csr) with their class. The first columns belong to the classes, `own` for each.

    A row has `own` of these, of which seven in ten are of its class, and others at random.
    """
    import numpy as np
    import scipy.sparse as sp

    for start in range(0, n, BLOCK):
        m, rng = min(BLOCK, n - start), np.random.default_rng(start)
        y = rng.integers(0, classes, m)
        kind = np.where(rng.random((m, own)) < 0.7, y[:, None], rng.integers(0, classes, (m, own)))
        planted = np.sort(kind * own + np.arange(own), axis=1)
        others = per_row - own
        # columns that increase within a row
        step = rng.integers(1, (d - classes * own) // others, (m, others))
        columns = np.hstack([planted, classes * own - 1 + np.cumsum(step, axis=1)])
        values = 1 + rng.poisson(1.0, columns.size).astype(np.float32)
        indptr = per_row * np.arange(m + 1)
        yield sp.csr_array((values, columns.ravel().astype(np.int32), indptr), (m, d)), y


def make_latents(home: Path, n: int) -> None:
    """Top latents of a sparse autoencoder in Parquet, a row per token."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    (home / "acts").mkdir()
    for number, (X, y) in enumerate(blocks(n, 131_072, 64, 20, 4)):
        offsets = X.indptr.astype(np.int32)
        table = {
            "top_indices": pa.ListArray.from_arrays(offsets, X.indices),
            "top_acts": pa.ListArray.from_arrays(offsets, X.data.astype(np.float16)),
            "doc_id": [f"{number}-{i // 20}" for i in range(len(y))],
            "concept": [f"concept{c}" for c in y],
        }
        pq.write_table(pa.table(table), home / "acts" / f"{number:04}.parquet")


def make_cells(home: Path, n: int) -> None:
    """Counts of cells as anndata writes them, in shards, and two lists of genes."""
    import numpy as np
    import zarr
    from zarr.dtype import VariableLengthUTF8

    def encoded(kind: str, version: str, **more: Any) -> dict[str, Any]:
        return {"encoding-type": kind, "encoding-version": version, **more}

    def write_texts(group: Any, name: str, values: list[str]) -> None:
        attributes = encoded("string-array", "0.2.0")
        array = group.create_array(
            name, shape=(len(values),), dtype=VariableLengthUTF8(), attributes=attributes
        )
        array[:] = np.array(values, dtype=object)

    def frame(name: str, index: list[str], columns: list[str]) -> Any:
        order = {"_index": "_index", "column-order": columns}
        group = root.create_group(name, attributes=encoded("dataframe", "0.2.0", **order))
        write_texts(group, "_index", index)
        return group

    d, per_row, chunk = 20_000, 1_400, 1 << 18
    root = zarr.create_group(home / "atlas.zarr", attributes=encoded("anndata", "0.1.0"))
    X = root.create_group("X", attributes=encoded("csr_matrix", "0.1.0", shape=[n, d]))
    sizes = {"shape": (n * per_row,), "chunks": (chunk,), "shards": (16 * chunk,)}
    data, indices = (
        X.create_array(name, dtype=t, **sizes) for name, t in (("data", "f4"), ("indices", "i4"))
    )
    X.create_array("indptr", data=per_row * np.arange(n + 1))
    types = []
    for number, (block, y) in enumerate(blocks(n, d, per_row, 12, 25)):
        at = slice(number * BLOCK * per_row, number * BLOCK * per_row + block.nnz)
        data[at], indices[at] = block.data, block.indices
        types.append(y)
    kinds = {range(300): "MARKER", range(300, 400): "RPL", range(400, d): "GENE"}
    symbols = [f"{kind}{j}" for genes, kind in kinds.items() for j in genes]
    var = frame("var", [f"ENSG{j:011}" for j in range(d)], ["feature_name"])
    write_texts(var, "feature_name", symbols)
    obs = frame("obs", [f"cell{i}" for i in range(n)], ["cell_type", "donor_id"])
    donors = np.arange(n) * 20 // n
    for name, codes in (("cell_type", np.concatenate(types)), ("donor_id", donors)):
        column = obs.create_group(name, attributes=encoded("categorical", "0.2.0", ordered=False))
        write_texts(column, "categories", [f"{name}{c}" for c in range(codes.max() + 1)])
        column.create_array("codes", data=codes.astype(np.int8))
    (home / "must.txt").write_text("GENE1000\nGENE1001\n")
    (home / "ribo.txt").write_text("\n".join(symbols[300:400]))


def make_texts(home: Path, n: int) -> None:
    """A folder of Parquet with the texts that were kept, and JSON Lines with the others."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    (home / "kept").mkdir()
    words = np.array([f"word{j}" for j in range(50_000)])
    with pa.CompressedOutputStream(str(home / "rejected.jsonl.zst"), "zstd") as rejected:
        for number, (X, y) in enumerate(blocks(n, len(words), 60, 2, 20)):
            texts = np.array([" ".join(row) for row in words[X.indices].reshape(len(y), -1)])
            table = {"text": texts[y == 1], "score": np.linspace(0, 1, int(y.sum()))}
            pq.write_table(pa.table(table), home / "kept" / f"{number:04}.parquet")
            lines = (json.dumps({"text": text}) + "\n" for text in texts[y == 0].tolist())
            rejected.write("".join(lines).encode())


def make_vectors(home: Path, n: int) -> None:
    """Sparse vectors of a learned retriever in JSON Lines, their tokens as keys."""
    row = 0
    with (home / "vectors.jsonl").open("w") as file:
        for X, y in blocks(n, 30_522, 120, 20, 10):
            tokens, weights = (
                (part.reshape(len(y), -1) / 1).tolist() for part in (X.indices, X.data)
            )
            for kind, names, values in zip(y.tolist(), tokens, weights, strict=True):
                vector = {f"token{int(j)}": v for j, v in zip(names, values, strict=True)}
                record = {"id": row, "content": "…", "vector": vector, "intent": f"intent{kind}"}
                file.write(json.dumps(record) + "\n")
                row += 1


def make_clicks(home: Path, n: int) -> None:
    """Parquet with 13 numbers and 26 categories per advertisement shown, over a week."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    (home / "clicks").mkdir()
    for start in range(0, n, 10 * BLOCK):
        m, rng = min(10 * BLOCK, n - start), np.random.default_rng(start)
        click = (rng.random(m) < 0.25).astype(np.int64)
        table = {f"I{j}": rng.poisson(3, m) for j in range(1, 14)}
        for j in range(1, 27):
            value = np.floor(20 * rng.pareto(0.8, m)).astype(np.int64) % 100_000
            if j <= 5:  # half of the rows have a value that tells the click
                value = np.where(rng.random(m) < 0.5, 200_000 + click, value)
            table[f"C{j}"] = np.char.add("v", value.astype(str))
        table |= {"day": np.arange(start, start + m) * 7 // n, "click": click}
        pq.write_table(pa.table(table), home / "clicks" / f"{start:010}.parquet")


class JobFiles(NamedTuple):
    """What makes the files of a job, and the rows of its forecast, which take about a minute."""

    make: Callable[[Path, int], None]
    rows: int


JOBS = {
    "latents": JobFiles(make_latents, 600_000),
    "cells": JobFiles(make_cells, 40_000),
    "texts": JobFiles(make_texts, 150_000),
    "vectors": JobFiles(make_vectors, 120_000),
    "clicks": JobFiles(make_clicks, 250_000),
}


def steps_of(job: str, workers: int, memory_limit: str) -> list[list[str]]:
    """Return the commands of the section of the page, each as its words."""
    [section] = re.findall(rf"^\({job}\)=\n(.*?)(?=^\(|\Z)", PAGE.read_text(), re.S | re.M)
    engine = ["--workers", str(workers), "--memory-limit", memory_limit]
    steps = []
    for language, block in re.findall(r"^```(python|bash)\n(.*?)^```", section, re.S | re.M):
        if language == "python":
            used = f'workers={workers}, memory_limit="{memory_limit}"'
            steps.append(["python", "-c", block.replace('workers=2, memory_limit="1GB"', used)])
            continue
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line)
            steps.append(words if words[1] == "transform" else [*words, *engine])
    return steps


def watched(words: list[str], home: Path) -> tuple[float, int, int]:
    """Run a command. Returns its seconds, and the peak MiB of it and of its largest child."""
    import psutil

    program = [sys.executable, *(["-m", "bigfs"] if words[0] == "bigfs" else []), *words[1:]]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    began, peaks = time.perf_counter(), {}
    process = subprocess.Popen(program, cwd=home, env=environment)
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in (top := psutil.Process(process.pid), *top.children(recursive=True)):
                with contextlib.suppress(OSError, TypeError):
                    status = Path(f"/proc/{each.pid}/status").read_text()
                    peaks[each.pid] = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) >> 10
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{shlex.join(words)}: status {process.returncode}")
    driver = peaks.pop(process.pid, 0)
    return time.perf_counter() - began, driver, max(peaks.values(), default=0)


@app.command("job")
def run_job(
    job: Annotated[str, typer.Argument(help=", ".join(JOBS))],
    rows: int,
    workers: int = 2,
    memory_limit: str = "512MB",
    scratch: Path | None = None,
) -> None:
    """Make the files of a job, run its commands, and show their seconds and peak memory."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        home = Path(folder)
        JOBS[job].make(home, rows)
        for words in steps_of(job, workers, memory_limit):
            seconds, driver, child = watched(words, home)
            print(f"{' '.join(words[:3])}: {seconds:.0f} s, {driver} and {child} MiB", flush=True)


# the job that compares methods, as the run of one of them
LATENTS = (
    "bigfs run acts.zarr --features 80 --classifier logistic --metric auc --test-size 0.2 --out one"
)


@app.command("forecast")
def show_forecasts(
    job: Annotated[str, typer.Argument(help="one job, or all")] = "all",
    scale: Annotated[float, typer.Option(help="of the rows, for longer runs")] = 1.0,
    before: Annotated[
        float, typer.Option(help="share of the rows that were measured before")
    ] = 0.1,
    memory_limit: str = "1GB",
) -> None:
    """Run each job on a part of its rows, and then on more with the forecast that it gets."""
    for name in JOBS if job == "all" else [job]:
        with tempfile.TemporaryDirectory() as folder:
            for size, part in (("before", before * scale), ("now", scale)):
                home = Path(folder, size)
                home.mkdir()
                JOBS[name].make(home, int(JOBS[name].rows * part))
                for words in steps_of(name, 2, memory_limit):
                    if name == "latents" and words[1] == "compare":
                        words = [*shlex.split(LATENTS), *words[-4:]]
                    if words[0] == "python" or words[1] == "stage":
                        watched(words, home)
                    elif words[1] == "run":
                        show_forecast(words, home, size)


def show_forecast(words: list[str], home: Path, size: str) -> None:
    """Run a command whose result lies next to results of other sizes, and print what it took."""
    at = words.index("--out") + 1
    run = home.parent / "runs" / f"{words[at]}-{size}"
    words = [sys.executable, "-m", *words[:at], str(run), *words[at + 1 :]]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    record = json.loads((run / "run.json").read_text())
    took = {s["stage"]: s["seconds"] for s in record["stages"] if s["stage"] != "report"}
    parts = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in took.items())
    measured = f"{parts}, {record['stats'].get('passes')} passes"
    said = "" if size == "before" else f"  {forecast_of(record, run, home)}\n"
    print(f"{run.name}\n{said}  measured: {measured}", flush=True)


def forecast_of(record: dict[str, Any], run: Path, home: Path) -> str | None:
    """Return the forecast of a run by the smaller one, however short it is."""
    from bigfs.flows.forecast import forecast, past_runs
    from bigfs.flows.job import Job
    from bigfs.flows.plan import Plan

    asked, options = record["parameters"], {"folds": "cv", "baselines": "against"}
    scoring = {options.get(name, name): value for name, value in record["scoring"].items()}
    given = {name: asked[name] for name in ("method", "features", "parameters")}
    past = [one for one in past_runs(str(run)) if one.name.endswith("-before")]
    with contextlib.chdir(home):
        job = Job(source=asked["store"], store=asked["store"], scoring=scoring, **given)
        return forecast(Plan.of(job), past, least=0.0)


if __name__ == "__main__":
    app()
