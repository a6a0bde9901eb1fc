"""What a store costs in addition to its values: files, bytes per worker, seconds to open.

python benchmarks/bookkeeping.py                                # 10⁸ non-zeros
python benchmarks/bookkeeping.py --source "synthetic:rcv1?rows=13400000" --name rcv1-1e9

Fresh processes open the store: one is timed until a tile is loaded, and one counts what the
checksums and the indexes of shards hold after a tenth of the tiles was loaded.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from shared import STORES, peaks, row, timed

from bigfs import engine, storage

OPEN = """
import sys, time
from bigfs import storage
start = time.perf_counter()
corpus = storage.open(sys.argv[1])
opened = time.perf_counter()
corpus.X.row_tiles[0].load()
print(opened - start, time.perf_counter() - opened)
"""
HOLD = """
import sys, tracemalloc
from bigfs import storage
from bigfs.storage.format import manifest, verified
corpus = storage.open(sys.argv[1])
verified.root.cache_clear(), verified.array.cache_clear(), manifest.checksums_of.cache_clear()
tracemalloc.start()
held = verified.VerifiedStore(
    manifest.store_at(corpus.uri, read_only=True), corpus.uri, corpus.manifest.content
)
listed = tracemalloc.get_traced_memory()[0]
for tile in (*corpus.X.row_tiles[::10], *corpus.X.column_tiles[::10]):
    tile.load()
held = verified.root(corpus.uri, corpus.manifest.content).store
own = [getattr(held, name, {}) for name in ("parts", "indexes")]
print(listed, sum(array.nbytes for arrays in own for array in arrays.values()))
"""


def numbers_of(script: str, uri: str) -> list[float]:
    """Return the numbers that a script of a fresh process prints."""
    command = [sys.executable, "-c", script, uri]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(number) for number in answer.stdout.split()]


def main(
    source: str = "synthetic:rcv1?rows=1340000",
    name: Annotated[str, typer.Option(help="of the store")] = "rcv1-1e8",
    stores: Annotated[Path, typer.Option(help="where the store is kept")] = STORES,
    workers: int = 2,
    memory: str = "1GB",
) -> None:
    with engine.cluster(workers=workers, memory_limit=memory):
        staged = timed(storage.stage, source, stores / f"{name}.zarr")
        most = peaks()
        corpus = storage.open(staged.value)
    files = sum(path.is_file() for path in Path(staged.value).rglob("*"))
    opened, loaded = min(numbers_of(OPEN, staged.value) for _ in range(3))
    listed, read = numbers_of(HOLD, staged.value)
    about = f"{corpus.X.shape[0]:,} × {corpus.X.shape[1]:,}, {corpus.X.nnz:,} non-zeros"
    row("files", about, f"{files:,}")
    row("bytes held per worker", about, f"{listed:,.0f} and {read:,.0f}")
    row("seconds to open, to load a tile", about, f"{opened:.3f}, {loaded:.3f}")
    row("staging", about, f"{staged.seconds:.1f} s, {staged.processor:.1f} s; {most}")


if __name__ == "__main__":
    typer.run(main)
