"""Stores with one byte changed. For kills see kills.py, for full disks full_disk.py.

python benchmarks/faults.py --corruptions 200
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import typer
from shared import row
from staging import write

from bigfs import engine, storage
from bigfs.storage.errors import StoreError
from bigfs.storage.format import manifest, verified


def everything(uri: str) -> list[Any]:
    for kept in (verified.root, verified.array, manifest.checksums_of):
        kept.cache_clear()
    engine.clear_cache()
    corpus = storage.open(uri)
    tiles = [tile.load() for tile in (*corpus.X.row_tiles, *corpus.X.column_tiles)]
    arrays = [part for tile in tiles for part in (tile.data, tile.indices, tile.indptr)]
    arrays += [*corpus.X.stats, *(corpus.X.class_stats(corpus.y) or ())]
    return [
        *arrays,
        corpus.y,
        np.array(corpus.class_names),
        np.array(corpus.sample_names, dtype=str),
    ]


def corrupt(place: Path, times: int, chosen: random.Random, grown: bool) -> None:
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
        other = (raw[i] + chosen.randrange(1, 256)) % 256
        path.write_bytes(raw[:i] + bytes([other]) + raw[i + 1 :])
        try:
            read = everything(uri)
            silent += any(not np.array_equal(a, b) for a, b in zip(read, expected, strict=True))
        except StoreError:
            errors += 1
        with contextlib.suppress(StoreError):  # the manifest itself: reported by the error
            unreported += not storage.check(uri).problems
        path.write_bytes(raw)
    shutil.rmtree(uri)
    what = f"{len(documents)} documents of a store{' that grew' * grown}"
    figure = f"{silent} wrong numbers read, {errors} errors, {unreported} not reported by check"
    row(f"{times} single bytes changed", what, figure, "asked 0 and 0", "faults.py")


def main(corruptions: int = 200, seed: int = 0) -> None:
    chosen = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        for grown in (False, True):
            corrupt(Path(place), corruptions, chosen, grown)


if __name__ == "__main__":
    typer.run(main)
