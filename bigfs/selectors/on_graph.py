"""The base of the scores on the samples' kNN graph, and the sums that they share.

    fᵀAf,    fᵀDf,    fᵀD1        f: the column of a feature, A: the affinity, D: its degrees

No column is centered: with μ = fᵀD1 / 1ᵀD1 and v = 1ᵀD1, f̃ = f − μ1 has f̃ᵀDf̃ = fᵀDf − μ²v and
f̃ᵀAf̃ = fᵀAf − μ²v.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.graph import Metric, Weights
from bigfs.matrix import Matrix
from bigfs.selectors.base import Selector, map_all_columns
from bigfs.selectors.sample_graph import GRAPH_CONSTRAINTS, sample_affinity
from bigfs.types import BoolArray, FloatArray

STRIP_COLUMNS = 512  # columns whose neighbor averages are held at once
ROUNDING = 1e-12  # a column is constant but for rounding if f̃ᵀDf̃ is below this share of fᵀDf


class GraphSelector(Selector):
    """Base of the methods on a kNN graph, which is computed or given."""

    n_neighbors: int
    metric: Metric
    graph: Any

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Selector._parameter_constraints,
        **GRAPH_CONSTRAINTS,
    }

    def _affinity(self, X: Matrix, weights: Weights) -> sp.csr_array:
        """Return the affinity of the samples, from the given graph or a new one."""
        n_neighbors = min(self.n_neighbors, X.shape[0] - 1)
        return sample_affinity(X, self.graph, n_neighbors, self.metric, weights)


class Forms(NamedTuple):
    """The sums of every column, each of shape (d,)."""

    fAf: FloatArray
    fDf: FloatArray
    fD1: FloatArray
    volume: float  # v = 1ᵀD1

    @property
    def shift(self) -> FloatArray:
        """μ²v, which both forms lose by the centering."""
        return self.fD1**2 / self.volume if self.volume else np.zeros_like(self.fDf)

    @property
    def varies(self) -> BoolArray:
        """The mask of the columns that are not constant over the graph."""
        varies: BoolArray = self.fDf - self.shift > ROUNDING * self.fDf
        return varies

    def smoothness(self) -> FloatArray:
        """Return f̃ᵀAf̃ / f̃ᵀDf̃ of each column, in [−1, 1], and −1 for a constant one."""
        out = np.full_like(self.fDf, -1.0)
        return np.divide(self.fAf - self.shift, self.fDf - self.shift, out=out, where=self.varies)


def graph_forms(X: Matrix, A: sp.csr_array, *, label: str) -> Forms:
    """Return the sums of all columns in one pass."""
    degree = np.asarray(A.sum(axis=1)).ravel()
    parts = map_all_columns(X, _forms, A, degree, label=label)
    fAf, fDf, fD1 = np.concatenate(parts, axis=1)
    return Forms(fAf, fDf, fD1, float(degree.sum()))


def _forms(block: Any, start: int, stop: int, A: sp.csr_array, degree: FloatArray) -> FloatArray:
    """Return the sums of a tile of columns (3 × width)."""
    parts = []
    for first in range(0, stop - start, STRIP_COLUMNS):
        F = block[:, first : first + STRIP_COLUMNS]
        F = sp.csc_array(F, dtype=np.float64) if sp.issparse(F) else np.asarray(F, dtype=np.float64)
        fAf = _column_sums(F * (A @ F))
        parts.append([fAf, _column_sums(F * F, degree), _column_sums(F, degree)])
    return np.concatenate([np.array(part) for part in parts], axis=1)


def _column_sums(Z: Any, weights: FloatArray | None = None) -> FloatArray:
    """Return the weighted sum of each column."""
    weights = np.ones(Z.shape[0]) if weights is None else weights
    return np.asarray(Z.T @ weights)
