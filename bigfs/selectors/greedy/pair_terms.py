"""The terms of two features in greedy criteria: correlations and (conditional) information.

    |ρ_ji| = |x̃_jᵀ x̃_i| / (‖x̃_j‖ ‖x̃_i‖),      x̃ = x − x̄
    I(x_j; v | u) = Σ_{b,u,v} p(b, u, v) log( p(b, u, v) p(u) / (p(b, u) p(u, v)) )

b is a bin of x_j.
Only the non-zero entries of x_j are visited. Those of x_i are written out, one number per sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numba import njit

from bigfs import engine
from bigfs.linalg.rounding import near_zero
from bigfs.selectors.scores.bins import fill_bins, labeled_columns
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Correlations:
    """Terms |ρ_ji|, over the samples that `codes` does not exclude by −1."""

    codes: IntArray  # (n,)
    line_bytes: ClassVar[int] = 8

    def prepare(self, block: Any) -> sp.csc_array:
        """Return the columns of a block without excluded samples."""
        Z, _, _ = near_zero(labeled_columns(block, self.codes), self.codes >= 0)
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


@dataclass(frozen=True)
class Information:
    """Terms I(x_j; x_i), or I(x_j; y | x_i) if `conditional`, in nats, of binned features.

    Zero is a bin of its own, and its number is `n_bins`.
    """

    codes: IntArray  # (n,) the classes y, −1 for an excluded sample
    n_classes: int
    n_bins: int  # of the non-zero values
    conditional: bool
    line_bytes: ClassVar[int] = 4

    def __post_init__(self) -> None:
        table = (self.n_bins + 1) * self._shape[0] * self._shape[1] * 8
        engine.require_memory(4 * table, f"a table of {self.n_bins + 1} bins per feature")

    @property
    def _shape(self) -> tuple[int, int]:
        """How many values the condition u and the variable v have."""
        bins = self.n_bins + 1
        return (bins, self.n_classes) if self.conditional else (1, bins)

    def prepare(self, block: Any) -> sp.csc_array:
        """Return the columns of a block with the number of the bin in place of each value."""
        Z = labeled_columns(block, self.codes)
        bins = np.zeros(Z.nnz, dtype=np.min_scalar_type(self.n_bins))
        fill_bins(Z.indptr, Z.data, self.n_bins, bins)
        return sp.csc_array((bins, Z.indices, Z.indptr), shape=Z.shape)

    def lines(self, Z: sp.csc_array) -> IntArray:
        """Return the number of (u, v) of each sample, −1 for an excluded one, then their counts."""
        (n, width), bins = Z.shape, self.n_bins + 1
        c = self.n_classes if self.conditional else 1
        is_included = self.codes >= 0
        y = np.where(is_included, self.codes, 0) if self.conditional else np.zeros(n, np.int64)
        columns = np.repeat(np.arange(width), np.diff(Z.indptr))
        uv = Z.data * np.int64(c) + y[Z.indices]
        counts = np.bincount(columns * bins * c + uv, minlength=width * bins * c)
        counts = counts.reshape(width, bins, c)
        # an included sample without an entry has a zero
        counts[:, self.n_bins] = np.bincount(y[is_included], minlength=c) - counts.sum(axis=1)
        lines = np.empty((width, n + bins * c), dtype=np.int32)
        lines[:, :n] = np.where(is_included, self.n_bins * c + y, -1)
        lines[columns, Z.indices] = uv
        lines[:, n:] = counts.reshape(width, bins * c)
        return lines

    def terms(self, Z: sp.csc_array, lines: IntArray, skipped: IntArray) -> FloatArray:
        """Return the information of columns and lines."""
        return self._fill(Z, lines, skipped, self._shape)

    def relevance(self, Z: sp.csc_array) -> FloatArray:
        """Return I(x_j; y) and the entropy H(x_j) of prepared columns (width × 2)."""
        width = Z.shape[1]
        sizes = np.bincount(self.codes[self.codes >= 0], minlength=self.n_classes)
        y = np.append(self.codes, sizes)[None].astype(np.int32)
        no_skip = np.zeros(width, dtype=np.int64)
        information = self._fill(Z, y, no_skip, (1, self.n_classes))[:, 0]
        counts = np.zeros((width, self.n_bins + 1))
        columns = np.repeat(np.arange(width), np.diff(Z.indptr))
        np.add.at(counts, (columns, Z.data), 1)
        n = np.count_nonzero(self.codes >= 0)
        counts[:, self.n_bins] = n - np.diff(Z.indptr)
        share = counts / n
        logs = np.log(share, out=np.zeros_like(share), where=share > 0)
        return np.column_stack([information, -(share * logs).sum(axis=1)])

    def _fill(
        self, Z: sp.csc_array, lines: AnyArray, skipped: IntArray, shape: tuple[int, int]
    ) -> FloatArray:
        out = np.zeros((Z.shape[1], len(lines)))
        _fill_information(Z.indptr, Z.indices, Z.data, self.n_bins, lines, *shape, skipped, out)
        return out


@njit(nogil=True, cache=True)
def _fill_centered(
    indptr: IntArray, rows: IntArray, values: FloatArray, included: BoolArray, lines: FloatArray
) -> None:
    n = included.sum()
    for i in range(len(lines)):
        total, squares = 0.0, 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += values[p]
            squares += values[p] * values[p]
        deviation = squares - total * total / n
        if deviation <= 0:
            continue
        norm = np.sqrt(deviation)
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
        total, squares = 0.0, 0.0
        for p in range(indptr[j], indptr[j + 1]):
            total += values[p]
            squares += values[p] * values[p]
        deviation = squares - total * total / n
        if deviation <= 0:
            continue
        norm = np.sqrt(deviation)
        for i in range(skipped[j], len(lines)):
            product = 0.0
            for p in range(indptr[j], indptr[j + 1]):
                product += values[p] * lines[i, rows[p]]
            out[j, i] = min(abs(product) / norm, 1.0)


@njit(nogil=True, cache=True)
def _fill_information(
    indptr: IntArray,
    rows: IntArray,
    bins: IntArray,
    n_bins: int,
    lines: IntArray,
    n_u: int,
    n_v: int,
    skipped: IntArray,
    out: FloatArray,
) -> None:
    """Fill in I(x_j; v | u), where a line holds u · n_v + v of each sample, then their counts."""
    first = lines.shape[1] - n_u * n_v
    margins = np.zeros(n_u * n_v)
    counts = np.zeros((n_bins + 1, n_u * n_v))
    for j in range(len(indptr) - 1):
        for i in range(skipped[j], len(lines)):
            margins[:] = lines[i, first:]
            counts[:] = 0
            counts[n_bins] = margins
            for p in range(indptr[j], indptr[j + 1]):
                uv = lines[i, rows[p]]
                counts[bins[p], uv] += 1
                counts[n_bins, uv] -= 1
            information = 0.0
            for u in range(n_u):
                in_u = margins[u * n_v : (u + 1) * n_v].sum()
                for b in range(n_bins + 1):
                    in_bin = counts[b, u * n_v : (u + 1) * n_v].sum()
                    for uv in range(u * n_v, (u + 1) * n_v):
                        if counts[b, uv] > 0:
                            information += counts[b, uv] * np.log(
                                counts[b, uv] * in_u / (in_bin * margins[uv])
                            )
            out[j, i] = max(information / margins.sum(), 0.0)
