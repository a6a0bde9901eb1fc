"""What encryption of the local Dask cluster costs: the same work over tls and over plain tcp, by
turns.

    python benchmarks/tls_cost.py [STORE] [TURNS]

Times the start of the cluster, a map over many small tiles, and with STORE the selection of 500
features by SparGE-LDA.
"""

import contextlib
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import distributed
import numpy as np
import psutil

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]
from bigfs import engine  # noqa: E402  # from this folder, not from an installed one

TILES, BYTES = 400, 1 << 20


def block(tile):
    """A tile's dense result."""
    return np.full(BYTES // 8, float(tile))


@contextlib.contextmanager
def protocol(name):
    """Local clusters of the block speak this protocol."""
    whole = distributed.LocalCluster

    def made(**how):
        return whole(**how if name == "tls" else how | {"protocol": "tcp", "security": None})

    with mock.patch.object(distributed, "LocalCluster", made):
        yield


def now():
    """The clock, and the CPU seconds of this process and its workers."""
    tree = [psutil.Process(), *psutil.Process().children()]
    return time.perf_counter(), sum(sum(process.cpu_times()[:2]) for process in tree)


def taken_by(name, store):
    """Seconds by the clock and of the CPU that each step takes over this protocol."""
    with protocol(name):
        at = [now()]
        with engine.cluster(workers=2, memory_limit="1GB") as client:
            assert client.scheduler.address.startswith(name)
            at.append(now())
            engine.map_tiles(block, range(TILES))
            at.append(now())
            if store:
                from flows import stages

                with tempfile.TemporaryDirectory() as out:
                    stages.select(store, Path(out) / "run", method="sparge-lda", features=500)
            at.append(now())
    return np.diff(at, axis=0)


def main():
    """Print the medians."""
    store, turns = (
        (sys.argv[1] if len(sys.argv) > 1 else None),
        int(sys.argv[2]) if len(sys.argv) > 2 else 5,
    )
    taken = {name: [] for name in ("tcp", "tls")}
    for turn in range(turns):
        for name in list(taken)[:: 1 if turn % 2 else -1]:
            taken[name].append(taken_by(name, store))
    labels = ("start", f"{TILES} tiles of {BYTES >> 20} MiB", "select")
    for name, rows in taken.items():
        print(
            name,
            *(
                f"{label} {wall:.2f} s (CPU {cpu:.2f} s)"
                for label, (wall, cpu) in zip(labels, np.median(rows, axis=0), strict=True)
            ),
            sep="  ",
        )


if __name__ == "__main__":
    main()
