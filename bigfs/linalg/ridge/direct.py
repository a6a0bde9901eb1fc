"""The direct solvers, which factor once per u.

The primal one takes XᵀMX (d × d) from tiles of rows. Woodbury's takes the n × n kernel
X diag(1/u) Xᵀ. With M = CCᵀ the matrix to factor is symmetric for every M:

    W = D⁻¹ (rhs − Xᵀ C (I + Cᵀ K C)⁻¹ Cᵀ X D⁻¹ rhs),   K = X D⁻¹ Xᵀ,   D = diag u.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from bigfs import engine
from bigfs.linalg.ridge.operator import Root, SampleOperator
from bigfs.linalg.sample_kernel import kernel, sum_over_tiles
from bigfs.linalg.sparse_gram import mirror, sparse_gram
from bigfs.matrix import Block, Matrix
from bigfs.types import FloatArray
from bigfs.validation import explain_singular

ROOT_STRIP = 256  # columns of an n × n array that are multiplied at a time
GRAM_ROWS = 1024  # rows of a dense block that are multiplied at a time, at least


def gram(X: Matrix, M: SampleOperator) -> FloatArray:
    """Return XᵀMX, dense d × d: Σ blockᵀ diag(m) block over tiles of rows, less (FᵀX)ᵀ(FᵀX)."""
    n, d = X.shape
    m = np.ones(n) if M.m is None else M.m
    threads = None if X.local else 1
    fitting = engine.memory_limit() // (8 * max(d, 1) ** 2) - 1
    at_once = max(1, min(engine.n_workers(), fitting))
    G = sum_over_tiles(X, 0, _gram, at_once, m, threads)
    F = M.factor()
    strips = [] if F is None else _strips(F.shape[1], d, at_least=d)
    for strip in strips:
        FtX = sum_over_tiles(X, 0, _projected, at_once, F[:, strip])
        for rows in _strips(d, d):
            low = FtX[:, rows].T @ FtX
            G[rows] -= low.toarray() if sp.issparse(low) else low
    X.passes += 1 + len(strips)
    return G


def _strips(n: int, d: int, at_least: int = 1) -> list[slice]:
    """Cut n rows of d numbers into parts that take little memory."""
    fitting = int(engine.SHARES.value.ridge_strip * engine.planned_memory() / (8 * max(d, 1)))
    height = max(at_least, fitting, 1)
    return [slice(first, first + height) for first in range(0, n, height)]


class Primal:
    """Cholesky factor of XᵀMX + diag u over the active features, those with finite u.

    It factors A = u^-½ XᵀMX u^-½ + 1, which stays well scaled however far apart the weights are.
    """

    def __init__(self, G: FloatArray, u: FloatArray) -> None:
        self.G, self.active = G, np.flatnonzero(np.isfinite(u))
        self.s = u[self.active, None] ** -0.5
        A = G[np.ix_(self.active, self.active)]
        A *= self.s
        A *= self.s.T
        A.flat[:: len(A) + 1] += 1
        with explain_singular("the ridge system"):
            self.factor = la.cho_factor(A.T, lower=True, overwrite_a=True, check_finite=False)

    def gram_times(self, W: FloatArray) -> FloatArray:
        """Return XᵀMX W for a W that is zero where u is infinite, and zero there."""
        if len(self.active) == len(self.G):
            return np.asarray(self.G @ W)
        product = np.zeros(W.shape)
        product[self.active] = (self.G @ W)[self.active]
        return product

    def solve(self, rhs: FloatArray) -> FloatArray:
        """Return (XᵀMX + diag u)⁻¹ rhs, zero where u is infinite."""
        W = np.zeros(rhs.shape)
        if len(self.active):
            scaled = np.asfortranarray(rhs[self.active])
            scaled *= self.s
            solved = la.cho_solve(self.factor, scaled, overwrite_b=True, check_finite=False)
            solved *= self.s
            W[self.active] = solved
        return W


def _gram(block: Block, start: int, stop: int, m: FloatArray, threads: int | None) -> FloatArray:
    if not sp.issparse(block):
        G, height = np.zeros((block.shape[1],) * 2), max(block.shape[1], GRAM_ROWS)
        for first in range(0, block.shape[0], height):
            rows = slice(first, first + height)
            Z = np.sqrt(m[rows])[:, None] * np.asarray(block[rows], dtype=np.float64)
            G += Z.T @ Z
        return G
    Z, every = sp.csc_array(block), np.arange(block.shape[1])
    weighted = sp.csc_array((Z.data * m[Z.indices], Z.indices, Z.indptr), shape=Z.shape)
    G = sparse_gram(Z, weighted, threads=threads, new=every)
    mirror(G, every)
    return G


def _projected(block: Block, start: int, stop: int, F: Any) -> Any:
    """Return Fᵀ block, sparse if both are. The sum over tiles is FᵀX, e × d."""
    return F.T @ block.astype(np.float64, copy=False)


def times_both_sides(root: Root, K: FloatArray) -> FloatArray:
    """Return Cᵀ K C for a symmetric K (n × n), whose memory it takes where C is square."""
    n = len(K)
    strips = [slice(first, first + ROOT_STRIP) for first in range(0, n, ROOT_STRIP)]
    height = len(root.transposed_times(K[:, :1]))
    half = K if height == n else np.empty((height, n))  # CᵀK
    for strip in strips:
        half[:, strip] = root.transposed_times(np.ascontiguousarray(K[:, strip]))
    both = half if height == n else np.empty((height, height))
    for first in range(0, height, ROOT_STRIP):
        strip = slice(first, first + ROOT_STRIP)
        both[strip] = root.transposed_times(np.ascontiguousarray(half[strip].T)).T
    return both


class Woodbury:
    """Cholesky factor of I + Cᵀ K C."""

    def __init__(self, X: Matrix, M: SampleOperator, u: FloatArray) -> None:
        self.X, self.phi = X, 1 / u[:, None]
        self.root = M.root(X.shape[0])
        K = times_both_sides(self.root, kernel(X, self.phi[:, 0]))
        K.flat[:: len(K) + 1] += 1
        with explain_singular("the ridge system"):
            self.factor = la.cho_factor(K.T, overwrite_a=True, check_finite=False)

    def solve(self, rhs: FloatArray) -> FloatArray:
        """Return (XᵀMX + diag u)⁻¹ rhs, zero where u is infinite. Reads X twice."""
        W = self.phi * rhs
        P = la.cho_solve(self.factor, self.root.transposed_times(self.X @ W), check_finite=False)
        return W - self.phi * (self.X.T @ self.root.times(P))
