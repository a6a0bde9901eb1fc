"""The cost of a graph, predicted from the numbers of non-zeros per column alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfs.graph.approximate import sketch
from bigfs.graph.kernels import exact
from bigfs.settings import Setting
from bigfs.types import AnyArray

# Seconds on one core, all measured.
# The exact graph: a multiply-add by posting list, and a compared pair.
MULTIPLY_ADD = Setting(0.85e-9)
PAIR = 0.2e-9
# Sketches: the same, a pair that passes, and a multiply-add of its other columns.
SKETCH_MULTIPLY_ADD = Setting(0.49e-9)
SKETCH_PAIR = 0.1e-9
PASSING_PAIR = 70e-9
OTHER_MULTIPLY_ADD = Setting(0.7e-9)
# A candidate that is compared exactly, and a row apart from that (reading, sample, sketch).
CANDIDATE = 500e-9
SKETCHED_ROW = 20e-6
# "auto" takes the exact graph up to this many seconds on one core. Workers do not count, so that
# they do not change the graph.
EXACT_BELOW = Setting(600.0)


class GraphCost(NamedTuple):
    """Predicted cost of the exact graph."""

    multiply_adds: float  # Σ df²/2: each pair of rows once
    seconds: float  # on one core
    row_bytes: float  # of an average row as csr, in single precision as stores have it
    column_bytes: int  # of the tables by term that a strip of rows is inverted with


def predict(n: int, nnz: AnyArray) -> GraphCost:
    """Predict the cost of the exact graph of n rows, from the non-zeros per column."""
    counts = nnz.astype(np.float64)
    # a dense line costs as much as a posting list of the share `exact.DENSE_SHARE` of the rows
    work = np.minimum(counts**2, counts * n * exact.DENSE_SHARE.value).sum() / 2
    return GraphCost(
        multiply_adds(counts),
        float(work * MULTIPLY_ADD.value + n * (n - 1) / 2 * PAIR),
        float(8.0 * counts.sum() / n + 4),
        exact.COLUMN_BYTES * len(counts),
    )


def multiply_adds(counts: AnyArray) -> float:
    """Return the number of multiply-adds of all pairs of rows, from the non-zeros per column."""
    return float((counts**2).sum() / 2)


def column_costs(counts: AnyArray, n: int) -> AnyArray:
    """Return the multiply-adds of each column in eight bits. A dense line costs as much as a
    posting list of the share `sketch.DENSE_SHARE` of the rows."""
    return np.asarray(np.minimum(counts**2, counts * n * sketch.DENSE_SHARE.value) / 2)


def approximate_cost(
    counts: AnyArray, screen: AnyArray, n: int, n_passing: float, candidates: int
) -> tuple[float, float]:
    """Predict the multiply-adds and the seconds of the approximate graph."""
    others = n_passing * counts[~screen].sum()
    pairs = column_costs(counts[screen], n).sum() * SKETCH_MULTIPLY_ADD.value
    pairs += n * (n - 1) / 2 * SKETCH_PAIR
    rows = n * (SKETCHED_ROW + n_passing * PASSING_PAIR + candidates * CANDIDATE)
    seconds = float(pairs + others * OTHER_MULTIPLY_ADD.value + rows)
    return multiply_adds(counts[screen]) + others, seconds


def choose_method(cost: GraphCost) -> tuple[str, str]:
    """Return the method that "auto" selects, and the reason in words."""
    predicted = (
        f"the exact graph is predicted to take {cost.seconds:.0f} s on one core "
        f"({cost.multiply_adds:.2g} multiply-adds)"
    )
    if cost.seconds <= EXACT_BELOW.value:
        return "exact", f"{predicted}, within {EXACT_BELOW.value:.0f} s"
    return "approx", f"{predicted}, more than {EXACT_BELOW.value:.0f} s"
