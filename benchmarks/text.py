"""Staging JSON Lines of text against TfidfVectorizer on the same texts in memory, by turns.

python benchmarks/text.py 20news-bydate.tar.xz --megabytes 280 --workers 2 --memory-limit 1GB
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from shared import table
from sklearn.feature_extraction.text import TfidfVectorizer

import storage
from bigfs import engine


def newsgroups(archive: Path) -> list[tuple[str, str]]:
    """Text and group of each document."""
    with tarfile.open(archive) as tar:
        return [
            (content.read().decode("latin-1"), member.name.split("/")[-2])
            for member in tar
            if (content := tar.extractfile(member))
        ]


def write(path: Path, documents: list[tuple[str, str]], megabytes: int) -> list[str]:
    """Write the documents as JSON Lines, shuffled and repeated. Returns their texts in order."""
    rng, texts, size = np.random.default_rng(0), [], 0
    with open(path, "w", encoding="utf-8") as out:
        while size < megabytes * 1e6:
            for i in rng.permutation(len(documents)):
                text, group = documents[i]
                size += out.write(json.dumps({"text": text, "label": group}) + "\n")
                texts.append(text)
                if size >= megabytes * 1e6:
                    break
    return texts


def processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def stage(path: Path, store: Path, client: Any) -> dict[str, float]:
    """Seconds, seconds of processor in all processes, and seconds of each step."""

    def used() -> float:
        return processor() + sum(client.run(processor).values() if client else ())

    steps: dict[str, float] = {}
    begin = last = time.perf_counter()
    before = used()

    def show(label: str, done: int, total: int) -> None:
        nonlocal last
        if done == total:
            now = time.perf_counter()
            steps[label], last = steps.get(label, 0) + now - last, now

    with engine.progress(show):
        storage.stage(path, store, memory_limit=engine.memory_limit())
    return {
        "seconds": time.perf_counter() - begin,
        "processor": used() - before,
        **{f"  until {label}": seconds for label, seconds in steps.items()},
    }


def by_scikit_learn(texts: list[str]) -> dict[str, float]:
    begin, before = time.perf_counter(), processor()
    TfidfVectorizer(min_df=2, sublinear_tf=True).fit_transform(texts)
    return {"seconds": time.perf_counter() - begin, "processor": processor() - before}


def main(
    archive: Annotated[Path, typer.Argument(help="20news-bydate.tar.xz")],
    megabytes: Annotated[int, typer.Option(help="size of the input")] = 280,
    workers: Annotated[int, typer.Option(help="processes")] = 2,
    memory_limit: Annotated[str, typer.Option(help="of each process")] = "1GB",
    turns: Annotated[int, typer.Option(help="runs of each")] = 3,
    compare: Annotated[bool, typer.Option(help="also run TfidfVectorizer")] = True,
    scratch: Annotated[
        Path | None, typer.Option(help="where the input and the store go, removed afterwards")
    ] = None,
) -> None:
    place = Path(tempfile.mkdtemp(dir=scratch))
    found: dict[str, list[dict[str, float]]] = {"stage": [], "TfidfVectorizer": []}
    try:
        texts = write(place / "input.jsonl", newsgroups(archive), megabytes)
        size = (place / "input.jsonl").stat().st_size / 1e6
        with engine.cluster(workers=workers, memory_limit=memory_limit) as client:
            for turn in range(turns):
                store = place / f"{turn}.zarr"
                found["stage"].append(stage(place / "input.jsonl", store, client))
                shutil.rmtree(store)
                if compare:
                    found["TfidfVectorizer"].append(by_scikit_learn(texts))
            peaks = engine.peak_memory()
    finally:
        shutil.rmtree(place)
    rows = [
        (f"{what}: {name}", *(f"{run[name]:.1f}" for run in runs), f"{middle(runs, name):.1f}")
        for what, runs in found.items()
        for name in (runs[0] if runs else ())
    ]
    title = f"{size:.0f} MB, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    table(title, ["", *(f"turn {turn}" for turn in range(turns)), "median"], rows)
    for name, peak in peaks.items():
        print(f"peak of {name}: {peak / 1e6:.0f} MB")
    if compare:
        for name in ("seconds", "processor"):
            ratio = middle(found["TfidfVectorizer"], name) / middle(found["stage"], name)
            print(f"TfidfVectorizer takes {ratio:.1f} times the {name}")


def middle(runs: list[dict[str, float]], name: str) -> float:
    return statistics.median(run[name] for run in runs)


if __name__ == "__main__":
    typer.run(main)
