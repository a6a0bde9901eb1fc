"""Staging against scikit-learn's readers, by turns: throughput, peak memory, one pass.

python benchmarks/staging.py svmlight --megabytes 1000 --workers 2 --memory-limit 512MB
python benchmarks/staging.py text 20news-bydate.tar.xz --megabytes 280 --memory-limit 1GB

A LIBSVM file has Real-Sim's shape. Text is JSON Lines of 20 Newsgroups, shuffled and repeated; the
peer is TfidfVectorizer on the same texts in memory.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from data import documents
from shared import by_turns, peaks, show_turns, timed
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import TfidfVectorizer

from bigfs import engine, storage

app = typer.Typer(add_completion=False)
ROWS, COLUMNS, PER_ROW = 4096, 20_958, 51.3  # Real-Sim has 72,309 such rows
Workers = Annotated[int, typer.Option(help="processes")]
Limit = Annotated[str, typer.Option(help="memory of each process")]
Compare = Annotated[bool, typer.Option(help="also run the peer")]
Scratch = Annotated[Path | None, typer.Option(help="for input and store, removed afterwards")]


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


def write(path: Path, megabytes: int) -> None:
    """Write a LIBSVM file."""
    raw, size = block(), 0
    with open(path, "wb") as out:
        while size < megabytes * 1e6:
            size += out.write(raw)


def write_text(path: Path, archive: Path, megabytes: int) -> list[str]:
    """Write JSON Lines, and return the texts in their order."""
    own, rng, texts, size = documents(archive), np.random.default_rng(0), [], 0
    with open(path, "w", encoding="utf-8") as out:
        while size < megabytes * 1e6:
            for i in rng.permutation(len(own)):
                _, group, text = own[i]
                size += out.write(json.dumps({"text": text, "label": group}) + "\n")
                texts.append(text)
                if size >= megabytes * 1e6:
                    break
    return texts


def measure(
    path: Path, workers: int, limit: str, turns: int, peer: Callable[[], Any] | None
) -> str:
    """Stage a file and run the peer, by turns. Returns the store of the last turn."""
    size, uri, most = path.stat().st_size / 1e6, "", ""

    def stage() -> None:
        nonlocal uri, most
        shutil.rmtree(path.with_name("store.zarr"), ignore_errors=True)
        engine.reset_peak_memory()
        uri = storage.stage(path, path.with_name("store.zarr"), memory_limit=limit)
        most = most or peaks()  # of the first turn, before the peer

    with engine.cluster(workers=workers, memory_limit=limit):
        calls = {"bigfs.storage.stage": stage} | ({"scikit-learn": peer} if peer else {})
        found = by_turns(calls, turns)
    print(most)
    show_turns(f"{size:.0f} MB, {workers} workers", found)
    for what in ("seconds", "processor"):
        middle = {name: median(getattr(run, what) for run in runs) for name, runs in found.items()}
        text = ", ".join(f"{name} {size / value:.1f} MB/s" for name, value in middle.items())
        ratio = f", {middle['scikit-learn'] / middle['bigfs.storage.stage']:.1f} ×" if peer else ""
        print(f"medians of {what}: {text}{ratio}")
    stored = sum(f.stat().st_size for f in Path(uri).rglob("*") if f.is_file())
    print(f"the store has {stored / 1e6:.0f} MB")
    return uri


@app.command()
def svmlight(
    megabytes: int = 1000,
    workers: Workers = 2,
    memory_limit: Limit = "512MB",
    turns: int = 1,
    compare: Compare = True,
    scratch: Scratch = None,
) -> None:
    """A LIBSVM file against load_svmlight_file, and one pass over the store, or a memory map."""
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        path = Path(place) / "input.svm"
        write(path, megabytes)
        peer = (lambda: load_svmlight_file(str(path))) if compare else None
        X = storage.open(measure(path, workers, memory_limit, turns, peer)).X
        V = np.random.default_rng(0).normal(size=(X.shape[0], 4)).astype(np.float32)
        once = timed(lambda: X.T @ V).seconds
        loaded = timed(lambda: sum(8 * tile.load().nnz for tile in X.column_tiles))
        np.save(path.with_name("plain.npy"), np.zeros(loaded.value // 4, dtype=np.float32))
        plain = timed(lambda: np.load(path.with_name("plain.npy"), mmap_mode="r").sum()).seconds
        print(
            f"one pass XᵀV, 4 columns, serial: {once:.1f} s, of it reading and decoding "
            f"{loaded.seconds:.1f} s; summing the same {loaded.value / 1e6:.0f} MB of an .npy map "
            f"{plain:.1f} s"
        )


@app.command()
def text(
    archive: Path,
    megabytes: int = 280,
    workers: Workers = 2,
    memory_limit: Limit = "1GB",
    turns: int = 3,
    compare: Compare = True,
    scratch: Scratch = None,
) -> None:
    """JSON Lines of text against TfidfVectorizer."""
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        path = Path(place) / "input.jsonl"
        texts = write_text(path, archive, megabytes)
        vectorizer = TfidfVectorizer(min_df=2, sublinear_tf=True)
        peer = (lambda: vectorizer.fit_transform(texts)) if compare else None
        measure(path, workers, memory_limit, turns, peer)


if __name__ == "__main__":
    app()
