"""Staging a LIBSVM file at Real-Sim's shape: throughput against scikit-learn's reader, peak memory,
one pass.

python benchmarks/staging.py --megabytes 1000 --workers 2 --memory-limit 512MB
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import storage
from bigfs import engine

ROWS, COLUMNS, PER_ROW = 4096, 20_958, 51.3  # Real-Sim has 72,309 such rows


def block() -> bytes:
    """4,096 rows with Zipf columns, unit length, six digits as LIBSVM's own files have."""
    rng = np.random.default_rng(0)
    rate = 1 / (np.arange(COLUMNS) + 8.0)
    lines = []
    for length in rng.poisson(PER_ROW, ROWS) + 1:
        columns = np.unique(rng.choice(COLUMNS, length, p=rate / rate.sum())) + 1
        values = rng.gamma(2.0, 1.0, len(columns))
        values /= np.linalg.norm(values)
        entries = " ".join(f"{c}:{v:.6f}" for c, v in zip(columns, values, strict=True))
        lines.append(f"{rng.choice([-1, 1])} {entries}\n")
    return "".join(lines).encode()


def write(path: Path, megabytes: int) -> int:
    raw, size = block(), 0
    with open(path, "wb") as out:
        while size < megabytes * 1e6:
            size += out.write(raw)
    return size


def cpu() -> float:
    """Seconds of processor that this process used since it began; they hardly depend on the
    machine's other work.
    """
    return time.process_time()


def disk_rates(path: Path) -> list[tuple[str, float]]:
    """MB/s of reading the file, from the disk and from the page cache, and of writing it to the
    disk.
    """
    size, rates = path.stat().st_size / 1e6, []
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for what in (
            "reading the file alone, from the disk (MB/s)",
            "  from the page cache (MB/s)",
        ):
            begin = time.perf_counter()
            file.seek(0)
            while file.read(1 << 24):
                pass
            rates.append((what, size / (time.perf_counter() - begin)))
    begin = time.perf_counter()
    with open(path, "rb") as file, open(path.with_name("copy"), "wb") as out:
        shutil.copyfileobj(file, out, 1 << 24)
        out.flush()
        os.fsync(out.fileno())
    path.with_name("copy").unlink()
    return [*rates, ("  copying it to the disk (MB/s)", size / (time.perf_counter() - begin))]


def scikit_learn(path: Path) -> tuple[float, float]:
    """Seconds, and seconds of processor."""
    code = (
        "import sys, time; from sklearn.datasets import load_svmlight_file as f; t, c = "
        "time.perf_counter(), time.process_time()"
    )
    code += "; f(sys.argv[1]); print(time.perf_counter() - t, time.process_time() - c)"
    told = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True
    ).stdout
    seconds, used = map(float, told.split())
    return seconds, used


def one_pass(uri: str, scratch: Path) -> list[tuple[str, float]]:
    """Xᵀ V by stored columns, and the same bytes from an uncompressed memory map."""
    corpus = storage.open(uri)
    V = np.random.default_rng(0).normal(size=(corpus.X.shape[0], 4)).astype(np.float32)
    begin = time.perf_counter()
    product = corpus.X.T @ V
    rows = [("one pass X'V, 4 columns, serial (s)", time.perf_counter() - begin)]
    begin = time.perf_counter()
    size = sum(engine.workers.nbytes(tile.load()) for tile in corpus.X.column_tiles)
    rows.append(("  of it reading and decoding (s)", time.perf_counter() - begin))
    np.save(scratch / "plain.npy", np.zeros(size // 4, dtype=np.float32))
    begin = time.perf_counter()
    np.load(scratch / "plain.npy", mmap_mode="r").sum()
    rows.append(
        (f"  the same {size / 1e6:.0f} MB summed from an .npy map (s)", time.perf_counter() - begin)
    )
    assert np.isfinite(product).all()
    return rows


def main(
    megabytes: Annotated[int, typer.Option(help="size of the input")] = 1000,
    workers: Annotated[int, typer.Option(help="processes")] = 2,
    memory_limit: Annotated[str, typer.Option(help="of each process")] = "512MB",
    compare: Annotated[
        bool, typer.Option(help="also run scikit-learn's reader and one pass")
    ] = True,
    scratch: Annotated[
        Path | None, typer.Option(help="where the input and the store go, removed afterwards")
    ] = None,
) -> None:
    place = Path(tempfile.mkdtemp(dir=scratch))
    try:
        size = write(place / "input.svm", megabytes) / 1e6
        table = [("input (MB)", size), *(disk_rates(place / "input.svm") if compare else ())]
        if compare:
            seconds, used = scikit_learn(place / "input.svm")
            table += [("load_svmlight_file (MB/s)", size / seconds), ("  processor (s)", used)]
        stages: dict[str, float] = {}
        with engine.cluster(workers=workers, memory_limit=memory_limit) as client:
            last = begin = time.perf_counter()
            before = cpu() + (0 if client is None else sum(client.run(cpu).values()))

            def show(label: str, done: int, total: int) -> None:
                nonlocal last
                if done == total:
                    now = time.perf_counter()
                    stages[label], last = stages.get(label, 0) + now - last, now

            with engine.progress(show):
                uri = storage.stage(
                    place / "input.svm", place / "input.zarr", memory_limit=memory_limit
                )
            seconds = time.perf_counter() - begin
            used = cpu() + (0 if client is None else sum(client.run(cpu).values())) - before
            peaks = engine.peak_memory()
        table += [
            ("stage, both layouts and statistics (MB/s)", size / seconds),
            ("  processor, all (s)", used),
            *((f"  {k} (s)", v) for k, v in stages.items()),
        ]
        table += [(f"peak of {name} (MB)", value / 1e6) for name, value in peaks.items()]
        stored = sum(f.stat().st_size for f in Path(uri).rglob("*") if f.is_file())
        table.append(("store (MB)", stored / 1e6))
        if compare:
            table += one_pass(uri, place)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        for name, value in table:
            print(f"{name:50s} {value:10.1f}")
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    typer.run(main)
