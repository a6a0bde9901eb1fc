"""The certificate of SparGE's default on the sets of the race, with exchanges and without.

python -m benchmarks.gaps DATA

The gap bounds by how much the best set of m features has a lower objective. A fit sees the training
part of a set's first split.
"""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import typer

from benchmarks.choosing import SOURCES, Split, split
from benchmarks.shared import table
from bigfs import SparGE, engine
from bigfs.cutting_plane import exchanges


def objective_and_gap(samples: Split, m: int, least_fall: float) -> tuple[float, float]:
    """Return the objective and its gap, where each exchange gains a share of `least_fall`."""
    with mock.patch.object(exchanges, "LEAST_FALL", least_fall):
        stats = SparGE(n_features_to_select=m).fit(samples.X, samples.y).result_.stats
    return stats["objective"], stats["objective_gap"]


def main(folder: Path, m: int = 50) -> None:
    """Show the gap and the objective of every set that has more than m features."""
    rows = []
    with engine.one_blas_thread():
        for name, source in SOURCES.items():
            samples = split(folder, name, 0)
            if samples.X.shape[1] > m:
                before, after = (
                    objective_and_gap(samples, m, least)
                    for least in (1.0, exchanges.LEAST_FALL)  # no exchange removes all of it
                )
                ratio = f"{after[0] / before[0]:.5f}"
                rows.append([name, source.kind, f"{before[1]:.2%}", f"{after[1]:.2%}", ratio])
    head = ["set", "kind", "gap without", "gap with", "objective with / without"]
    table(f"{m} features", head, rows)


if __name__ == "__main__":
    typer.run(main)
