"""The base of the scores on the samples' kNN graph, and the sums that they share.

    fᵀAf,    fᵀDf,    fᵀD1        f: the column of a feature, A: the affinity, D: its degrees

With μ = fᵀD1 / 1ᵀD1 and v = 1ᵀD1, f̃ = f − μ1 has f̃ᵀDf̃ = fᵀDf − μ²v and f̃ᵀAf̃ = fᵀAf − μ²v, so
that no column is centered but those that are far from zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.graph import Metric, Weights
from bigfs.linalg.rounding import near_zero, unless_rounding
from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import Selector, map_all_columns
from bigfs.selectors.base.sample_graph import SampleGraph, sample_graph
from bigfs.types import FloatArray

STRIP_COLUMNS = 512  # columns whose neighbor averages are held at once


class GraphSelector(Selector):
    """Base of the methods on a kNN graph, which is computed or given."""

    n_neighbors: int = 5
    metric: Metric = "cosine"
    graph: Any = None

    def _graph(self, X: Matrix, weights: Weights) -> SampleGraph:
        """Return the graph of the samples, the given one or a new one."""
        return sample_graph(self._allowed(X), self.graph, self.n_neighbors, self.metric, weights)


class Forms(NamedTuple):
    """The sums of every column, each of shape (d,)."""

    fAf: FloatArray
    fDf: FloatArray
    fD1: FloatArray
    fLf: FloatArray  # f̃ᵀ(D − A)f̃, and 0 if it is only rounding
    likeness: FloatArray  # f̃ᵀAf̃
    spread: FloatArray  # f̃ᵀDf̃, and 0 for a column that is constant over the graph
    volume: float  # v = 1ᵀD1

    def smoothness(self) -> FloatArray:
        """Return f̃ᵀAf̃ / f̃ᵀDf̃ of each column, in [−1, 1], and −1 for a constant one."""
        out, varies = np.full_like(self.fDf, -1.0), self.spread > 0
        return np.divide(self.likeness, self.spread, out=out, where=varies)


def graph_forms(X: Matrix, A: sp.csr_array, *, label: str) -> Forms:
    """Return the sums of all columns in one pass."""
    degree = np.asarray(A.sum(axis=1)).ravel()
    parts = map_all_columns(X, _forms, A, degree, label=label)
    fAf, fDf, fD1, fLf, likeness, spread = np.concatenate(parts, axis=1)
    return Forms(fAf, fDf, fD1, fLf, likeness, spread, float(degree.sum()))


def _forms(block: Any, start: int, stop: int, A: sp.csr_array, degree: FloatArray) -> FloatArray:
    """Return the sums of a tile of columns (6 × width)."""
    parts = []
    for first in range(0, stop - start, STRIP_COLUMNS):
        F = block[:, first : first + STRIP_COLUMNS]
        F = sp.csc_array(F, dtype=np.float64) if sp.issparse(F) else np.asarray(F, dtype=np.float64)
        sums = _sums(F, A, degree)
        near, far, _ = near_zero(F)
        centered = sums.copy()
        if len(far):
            centered[:, far] = _sums(near[:, far], A, degree)
        gAg, gDg, gD1 = centered
        shift = gD1**2 / degree.sum() if degree.any() else np.zeros_like(gD1)
        spread = unless_rounding(gDg - shift, gDg)
        parts.append([*sums, unless_rounding(gDg - gAg, gDg), gAg - shift, spread])
    return np.concatenate([np.array(part) for part in parts], axis=1)


def _sums(F: Any, A: sp.csr_array, degree: FloatArray) -> FloatArray:
    """Return fᵀAf, fᵀDf and fᵀD1 of each column."""
    products = [(F * (A @ F), None), (F * F, degree), (F, degree)]
    return np.stack([_column_sums(Z, weights) for Z, weights in products])


def _column_sums(Z: Any, weights: FloatArray | None = None) -> FloatArray:
    """Return the weighted sum of each column."""
    weights = np.ones(Z.shape[0]) if weights is None else weights
    return np.asarray(Z.T @ weights)
