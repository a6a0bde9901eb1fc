"""Columns of X brought into memory, and their products: all that the master ever needs of the data.

    G = XcᵤᵀXcᵤ (u × u),    B = XcᵤᵀT (u × r)

over the u columns gathered so far, grown by the products of new columns alone. With weights ω of
the samples Xc stands for diag(ω)(X − 1μᵀ), μ the weighted means. Nothing is centred in place: XcᵀV
= Xᵀ `centre`(V).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit

from bigfs.matrix import Matrix
from bigfs.types import BoolArray, FloatArray, IntArray

Index = IntArray
# share of non-zeros from which adding whole rows is faster than adding entries (measured)
DENSE = 0.08
STRIP = 256  # samples
# of Σx²: a column whose centred sum of squares is below it is constant but for rounding
ROUNDING = 1e-12


class Gathered:
    """The columns `features` (u, increasing) of X, and their G, B and means `mu`.

    Parameters
    ----------
    X : n × d Matrix.
    T : (n, r) response.
    omega : (n,) weights ω of the samples, or None for all one.
    """

    def __init__(self, X: Matrix, T: FloatArray, omega: FloatArray | None = None) -> None:
        self.X, self.T, self.uniform, self._before = X, T, omega is None, X.passes
        self.omega = np.ones(X.shape[0]) if omega is None else omega
        self.mass = float(self.omega @ self.omega)
        self.features: Index = np.empty(0, dtype=np.int64)
        self.Z = sp.csc_array((X.shape[0], 0), dtype=np.float32)  # the columns as they are
        self.mu: FloatArray = np.empty(0)
        self.G: FloatArray = np.empty((0, 0))
        self.B: FloatArray = np.empty((0, T.shape[1]))
        self.constant: BoolArray = np.empty(0, dtype=bool)  # these columns have zeros in G and B

    @property
    def passes(self) -> int:
        """Passes over X since."""
        return self.X.passes - self._before

    def take(self, index: Index) -> None:
        """Gather the columns `index` that are not there yet."""
        new = np.setdiff1d(index, self.features)
        if not len(new):
            return
        Z = self.X.columns(new)
        Z.sort_indices()
        before, self.features = self.features, np.union1d(self.features, new)
        old, at = self.positions(before), self.positions(new)
        self.Z = sp.csc_array(
            sp.hstack([self.Z, Z], format="csc")[:, np.argsort(np.append(old, at))]
        )
        mu, self.mu = self.mu, np.empty(len(self.features))
        self.mu[old], self.mu[at] = mu, (Z.T @ self.omega**2) / self.mass
        across = products(self._weighted(self.Z), self._weighted(Z))
        squares = across[at, np.arange(len(new))]
        across -= self.mass * np.outer(self.mu, self.mu[at])
        constant, self.constant = self.constant, np.empty(len(self.features), dtype=bool)
        self.constant[old], self.constant[at] = (
            constant,
            across[at, np.arange(len(new))] <= ROUNDING * squares,
        )
        across[self.constant] = 0
        across[:, self.constant[at]] = 0
        G, B = self.G, self.B
        self.G, self.B = (
            np.empty((len(self.features), len(self.features))),
            np.empty((len(self.features), B.shape[1])),
        )
        self.G[np.ix_(old, old)] = G
        self.G[:, at] = across
        self.G[at] = across.T
        self.B[old], self.B[at] = B, np.where(self.constant[at, None], 0, Z.T @ self.centre(self.T))

    def centre(self, V: FloatArray) -> FloatArray:
        """ω(V − ω(ωᵀV)/Σω²), with which XcᵀV = Xᵀ `centre`(V)."""
        return self.omega[:, None] * (V - np.outer(self.omega, self.omega @ V / self.mass))

    def _weighted(self, Z: Any) -> Any:
        return (
            Z
            if self.uniform
            else sp.csc_array((Z.data * self.omega[Z.indices], Z.indices, Z.indptr), shape=Z.shape)
        )

    def residual(self, W: FloatArray, features: Index) -> FloatArray:
        """V = T − XcW, for weights W of gathered features."""
        place = self.positions(features)
        spread = np.zeros((len(self.features), W.shape[1]))
        spread[place] = W
        return self.T - self.omega[:, None] * (self.Z @ spread - self.mu[place] @ W)

    def gram(self, features: Index) -> tuple[FloatArray, FloatArray]:
        """G and B of gathered features."""
        if len(features) == len(self.features):
            return self.G, self.B
        place = self.positions(features)
        return self.G[np.ix_(place, place)], self.B[place]

    def positions(self, features: Index) -> Index:
        """Where gathered features are among the columns."""
        return np.searchsorted(self.features, features)


def products(Z: Any, new: Any) -> FloatArray:
    """ZᵀZ_new, dense, of csc columns with sorted samples.

    Each entry adds up sample after sample, so that it has the same bits whatever columns are asked
    for at once, and from either side.
    """
    rows = new.tocsr()
    out, threads = np.zeros((Z.shape[1], new.shape[1])), os.cpu_count() or 1
    own, others = (Z.indptr, Z.indices, Z.data), (rows.indptr, rows.indices, rows.data)
    kernel = _of_dense_rows if new.nnz > DENSE * new.shape[0] * new.shape[1] else _of_sparse_rows
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda k: kernel(*own, *others, k, threads, out), range(threads)))
    return out


@njit(nogil=True, cache=True)
def _of_sparse_rows(
    starts: FloatArray,
    samples: FloatArray,
    values: FloatArray,
    row_starts: FloatArray,
    columns: FloatArray,
    others: FloatArray,
    first: int,
    step: int,
    out: FloatArray,
) -> None:
    """Rows first, first + step, … of ZᵀZ_new, Z by columns and Z_new by rows."""
    for i in range(first, len(starts) - 1, step):
        for p in range(starts[i], starts[i + 1]):
            k, x = samples[p], np.float64(values[p])
            for q in range(row_starts[k], row_starts[k + 1]):
                out[i, columns[q]] += x * others[q]


@njit(nogil=True, cache=True)
def _of_dense_rows(
    starts: FloatArray,
    samples: FloatArray,
    values: FloatArray,
    row_starts: FloatArray,
    columns: FloatArray,
    others: FloatArray,
    first: int,
    step: int,
    out: FloatArray,
) -> None:
    """The same to the bit, a strip of samples at a time, whose Z_new is written out."""
    n, at = len(row_starts) - 1, starts[:-1].copy()
    strip = np.empty((STRIP, out.shape[1]))
    for begin in range(0, n, STRIP):
        end = min(begin + STRIP, n)
        strip[:] = 0
        for k in range(begin, end):
            for q in range(row_starts[k], row_starts[k + 1]):
                strip[k - begin, columns[q]] += others[q]
        for i in range(first, len(starts) - 1, step):
            while at[i] < starts[i + 1] and samples[at[i]] < end:
                x, row = np.float64(values[at[i]]), strip[samples[at[i]] - begin]
                for c in range(len(row)):
                    out[i, c] += x * row[c]
                at[i] += 1
