"""The correlations of two features: |ρ_ji| = |x̃_jᵀ x̃_i| / (‖x̃_j‖ ‖x̃_i‖),  x̃ = x − x̄.

Only the non-zero entries of x_j are visited. x_i is written out, one number per sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numba import njit

from bigfs.selectors.scores.bins import labeled_columns
from bigfs.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Correlations:
    """Terms |ρ_ji|, over the samples that `codes` does not exclude by −1."""

    codes: IntArray  # (n,)
    line_bytes: ClassVar[int] = 8

    def prepare(self, block: Any) -> sp.csc_array:
        """Return the columns of a block without excluded samples."""
        Z = labeled_columns(block, self.codes)
        Z.sort_indices()
        return sp.csc_array(Z, dtype=np.float64)

    def lines(self, Z: sp.csc_array) -> FloatArray:
        """Return the columns centered and divided by their norms, and zeros for a constant one."""
        lines = np.zeros((Z.shape[1], Z.shape[0]))
        _fill_centered(Z.indptr, Z.indices, Z.data, self.codes >= 0, lines)
        return lines

    def terms(self, Z: sp.csc_array, lines: FloatArray, skipped: IntArray) -> FloatArray:
        """Return |ρ| of columns and lines."""
        out = np.zeros((Z.shape[1], len(lines)))
        n = float(np.count_nonzero(self.codes >= 0))
        _fill_correlations(Z.indptr, Z.indices, Z.data, n, lines, skipped, out)
        return out


@njit(nogil=True, cache=True)
def _centered_norm(values: FloatArray, n: float) -> tuple[float, float]:
    """Return Σx and √Σ(x − x̄)² over n samples, from the non-zero values."""
    total, squares = 0.0, 0.0
    for x in values:
        total += x
        squares += x * x
    return total, np.sqrt(max(squares - total * total / n, 0.0))


@njit(nogil=True, cache=True)
def _fill_centered(
    indptr: IntArray, rows: IntArray, values: FloatArray, included: BoolArray, lines: FloatArray
) -> None:
    n = included.sum()
    for i in range(len(lines)):
        total, norm = _centered_norm(values[indptr[i] : indptr[i + 1]], n)
        if norm == 0:
            continue
        for k in range(len(included)):
            if included[k]:
                lines[i, k] = -total / n / norm
        for p in range(indptr[i], indptr[i + 1]):
            lines[i, rows[p]] += values[p] / norm


@njit(nogil=True, cache=True)
def _fill_correlations(
    indptr: IntArray,
    rows: IntArray,
    values: FloatArray,
    n: float,
    lines: FloatArray,
    skipped: IntArray,
    out: FloatArray,
) -> None:
    for j in range(len(indptr) - 1):
        _, norm = _centered_norm(values[indptr[j] : indptr[j + 1]], n)
        if norm == 0:
            continue
        for i in range(skipped[j], len(lines)):
            product = 0.0
            for p in range(indptr[j], indptr[j + 1]):
                product += values[p] * lines[i, rows[p]]
            out[j, i] = min(abs(product) / norm, 1.0)
