"""Stores with one byte changed. For kills see kills.py, for full disks full_disk.py.

python benchmarks/faults.py --corruptions 200
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from staging import write

import storage
from bigfs import engine
from storage.errors import StoreError
from storage.format import manifest, verified


def everything(uri: str) -> list[Any]:
    for kept in (verified.root, verified.array, manifest.checksums_of):
        kept.cache_clear()
    engine.clear_cache()
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
        path.write_bytes(
            raw[:i] + bytes([chosen.choice([b for b in range(256) if b != raw[i]])]) + raw[i + 1 :]
        )
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
    print(
        f"{times} single bytes changed, one at a time, in {len(documents)} documents of "
        f"{what} (every document equally likely):"
    )
    print(
        f"  wrong numbers read without an error {silent}, errors at reading {errors}, "
        f"not reported by check {unreported}"
    )


def main(
    corruption: Annotated[int, typer.Option("--corruptions", help="bytes to change")] = 200,
    seed: Annotated[int, typer.Option(help="of the bytes")] = 0,
) -> None:
    place, chosen = Path(tempfile.mkdtemp()), random.Random(seed)
    try:
        for grown in (False, True):
            corruptions(place, corruption, chosen, grown)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    typer.run(main)
