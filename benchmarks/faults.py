"""Staging killed at random moments on 2 workers, and stores with one byte changed.

python benchmarks/faults.py --kills 30 --corruptions 200
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from staging import write

import storage
from bigfs import blocks
from storage import layout
from storage.errors import StoreError

CHILD = """
import sys, storage
from bigfs import blocks
if __name__ == "__main__":
    with blocks.cluster(workers=2, memory_limit="600MB"):
        print("go", flush=True)
        storage.stage(sys.argv[1], sys.argv[2])
        print("whole", flush=True)
"""


def killed(script: Path, source: Path, target: Path, delay: float | None) -> tuple[bool, float]:
    """Stage in a process group of its own and kill all of it after `delay`. Whether it had finished, and its seconds."""
    command = [sys.executable, str(script), str(source), str(target)]
    quiet = subprocess.DEVNULL
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, text=True, start_new_session=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "go\n"
    begin = time.perf_counter()
    if delay is not None:
        time.sleep(delay)
        os.killpg(run.pid, signal.SIGKILL)
    whole = run.stdout.read() == "whole\n"
    seconds = time.perf_counter() - begin
    run.wait()
    return whole, seconds


def opens(target: Path) -> str | None:
    """The content hash of what opens there; None if nothing does."""
    try:
        return str(storage.open(target).spec["content"])
    except StoreError:
        return None


def kills(place: Path, times: int, chosen: random.Random) -> None:
    write(place / "input.svm", 30)
    (place / "child.py").write_text(CHILD)
    runs = [killed(place / "child.py", place / "input.svm", place / f"whole-{i}.zarr", None) for i in range(3)]
    seconds, expected = min(seconds for _, seconds in runs), opens(place / "whole-0.zarr")
    half, finished, late, inside = 0, 0, 0, 0
    while inside < times:
        target = place / "killed.zarr"
        whole, _ = killed(place / "child.py", place / "input.svm", target, chosen.uniform(0, seconds))
        found = opens(target)
        late += whole or found is not None
        inside += not whole and found is None
        half += found not in (None, expected) or (found is not None and bool(storage.check(target).problems))
        storage.stage(place / "input.svm", target)
        finished += opens(target) == expected
        shutil.rmtree(target)
    left = sorted(p.name for p in place.iterdir() if "killed" in p.name)
    print(f"kill -9 of driver and 2 workers at random moments of {seconds:.1f} s of staging, {times} of them before it was done:")
    print(f"  stores that open damaged {half}, finished on the second try {finished} of {inside + late}, left behind {left}")


def everything(uri: str) -> list[Any]:
    for kept in (layout.root, layout.array, layout.checksums_of):
        kept.cache_clear()
    blocks.forget()
    corpus = storage.open(uri)
    tiles = [tile.load() for tile in (*corpus.X.row_tiles, *corpus.X.column_tiles)]
    arrays = [part for tile in tiles for part in (tile.data, tile.indices, tile.indptr)]
    arrays += [*corpus.X.stats, *(corpus.X.class_stats(corpus.y) or ())]
    return [*arrays, corpus.y, np.array(corpus.class_names), corpus.sample_names.astype(str)]


def corruptions(place: Path, times: int, chosen: random.Random, grown: bool) -> None:
    write(place / "small.svm", 2)
    uri = storage.stage(place / "small.svm", place / "small.zarr", tile_rows=200)
    if grown:
        write(place / "more.svm", 1)
        storage.append(place / "more.svm", uri)
    expected, silent, unreported, errors = everything(uri), 0, 0, 0
    documents = [p for p in sorted(Path(uri).rglob("*")) if p.is_file()]
    for _ in range(times):
        path = chosen.choice(documents)
        raw = path.read_bytes()
        i = chosen.randrange(len(raw))
        path.write_bytes(raw[:i] + bytes([chosen.choice([b for b in range(256) if b != raw[i]])]) + raw[i + 1 :])
        try:
            read = everything(uri)
            silent += any(not np.array_equal(a, b) for a, b in zip(read, expected, strict=True))
        except StoreError:
            errors += 1
        with contextlib.suppress(StoreError):  # the manifest itself: reported by the error
            unreported += not storage.check(uri).problems
        path.write_bytes(raw)
    shutil.rmtree(uri)
    what = "a store that grew" if grown else "a store"
    print(f"{times} single bytes changed, one at a time, in {len(documents)} documents of {what} (every document equally likely):")
    print(f"  wrong numbers read without an error {silent}, errors at reading {errors}, not reported by check {unreported}")


def main(
    kill: Annotated[int, typer.Option("--kills", help="runs to kill")] = 30,
    corruption: Annotated[int, typer.Option("--corruptions", help="bytes to change")] = 200,
    seed: Annotated[int, typer.Option(help="of moments and bytes")] = 0,
) -> None:
    place, chosen = Path(tempfile.mkdtemp()), random.Random(seed)
    try:
        for grown in (False, True):
            corruptions(place, corruption, chosen, grown)
        kills(place, kill, chosen)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    typer.run(main)
