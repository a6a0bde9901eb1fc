"""What encryption of the local Dask cluster costs: the same work over tls and plain tcp, by turns.

python benchmarks/tls_cost.py STORE [TURNS]

The work is a map over many small tiles, and the selection of 500 features by SparGE-LDA.
"""

import tempfile
from pathlib import Path
from unittest import mock

import distributed
import numpy as np
import typer
from shared import Timed, show_turns, timed

from bigfs import engine
from flows import stages

TILES, BYTES = 400, 1 << 20
WHOLE = distributed.LocalCluster


def block(tile):
    return np.full(BYTES // 8, float(tile))


def plain(**settings):
    return WHOLE(**settings | {"protocol": "tcp", "security": None})


def main(store: str, turns: int = 5) -> None:
    found: dict[str, list[Timed]] = {}
    for turn in range(turns):
        for name in ("tcp", "tls")[:: 1 if turn % 2 else -1]:
            with (
                mock.patch.object(distributed, "LocalCluster", plain if name == "tcp" else WHOLE),
                engine.cluster(workers=2, memory_limit="1GB") as client,
                tempfile.TemporaryDirectory() as out,
            ):
                assert client.scheduler.address.startswith(name)
                for what, call in {
                    f"{TILES} tiles of {BYTES >> 20} MiB": lambda: engine.map_tiles(
                        block, range(TILES)
                    ),
                    "select": lambda out=out: stages.select(
                        store, Path(out) / "run", method="sparge-lda", features=500
                    ),
                }.items():
                    found.setdefault(f"{name}: {what}", []).append(timed(call))
    show_turns("encryption", found)


if __name__ == "__main__":
    typer.run(main)
