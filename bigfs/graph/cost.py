"""What a graph costs, predicted from the column counts alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfs.graph import sketch
from bigfs.graph.kernels import exact
from bigfs.matrix import Matrix
from bigfs.types import AnyArray

# seconds of one core: a multiply-add by posting list, a pair compared (measured)
SPARSE, SCAN = 0.85e-9, 0.2e-9
SKETCH_SPARSE, SKETCH_SCAN = 0.49e-9, 0.1e-9  # the same of sketches (measured)
# a pair that passes a screen, a multiply-add of its other columns (measured)
PASSED, COMPLETED = 70e-9, 0.7e-9
# a candidate compared; what a row costs besides: reading, sample, sketches (measured)
COMPARED, SKETCHED = 500e-9, 20e-6
# seconds of one core: "auto" goes exact; not counted in workers, so that they don't change the
# graph
EXACT_BELOW = 600.0


class Cost(NamedTuple):
    """Predicted for the exact graph. `multiply_adds` is Σ df²/2: each pair of rows once."""

    multiply_adds: float
    seconds: float  # of one core
    row_bytes: float  # of an average row as csr, in single precision as stores have it


def predict(X: Matrix) -> Cost:
    """From the stored column counts, or one pass where they are not known."""
    n, counts = X.shape[0], X.stats.nnz.astype(np.float64)
    return Cost(products(counts), seconds(counts, n), float(8.0 * counts.sum() / n + 4))


def products(counts: AnyArray) -> float:
    """Multiply-adds of all pairs of rows, for columns with so many non-zeros."""
    return float((counts**2).sum() / 2)


def seconds(counts: AnyArray, n: int) -> float:
    """A dense line costs as much as a posting list of the share `kernel.DENSE`."""
    work = np.minimum(counts**2, counts * n * exact.DENSE).sum() / 2
    return float(work * SPARSE + n * (n - 1) / 2 * SCAN)


def sketch_costs(counts: AnyArray, n: int) -> AnyArray:
    """Of each column in eight bits, in multiply-adds: a dense line costs as much as a posting list
    of the share `sketch.DENSE`.
    """
    return np.asarray(np.minimum(counts**2, counts * n * sketch.DENSE) / 2)


def sketch_cost(
    counts: AnyArray, screen: AnyArray, n: int, passing: float, candidates: int
) -> tuple[float, float]:
    """(multiply-adds, seconds) of the approximate graph: the columns of the screen (mask) for all
    pairs, the others for those that pass, so many of each row.
    """
    others = passing * counts[~screen].sum()
    pairs = sketch_costs(counts[screen], n).sum() * SKETCH_SPARSE + n * (n - 1) / 2 * SKETCH_SCAN
    rows = n * (SKETCHED + passing * PASSED + candidates * COMPARED)
    return products(counts[screen]) + others, float(pairs + others * COMPLETED + rows)


def choose(cost: Cost) -> tuple[str, str]:
    """Return the method that "auto" selects, and the reason in words."""
    predicted = (
        f"the exact graph is predicted to take {cost.seconds:.0f} s on one core "
        f"({cost.multiply_adds:.2g} multiply-adds)"
    )
    if cost.seconds <= EXACT_BELOW:
        return "exact", f"{predicted}, within {EXACT_BELOW:.0f} s"
    return "approx", f"{predicted}, more than {EXACT_BELOW:.0f} s"
