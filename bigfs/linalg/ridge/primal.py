"""The primal solver: XᵀMX (d × d) from tiles of rows, and one Cholesky factor per u."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from bigfs import engine
from bigfs.linalg.ridge.operator import SampleOperator
from bigfs.matrix import Block, Matrix
from bigfs.types import FloatArray
from bigfs.validation import explain_singular

GRAM_ROWS = 1 << 16  # rows of a sparse block that are copied at a time
STRIP_SHARE = 0.05  # of the memory limit, for FᵀX where F has more than d columns


def gram(X: Matrix, M: SampleOperator) -> FloatArray:
    """Return XᵀMX, dense d × d: Σ blockᵀ diag(m) block over tiles of rows, less (FᵀX)ᵀ(FᵀX).

    Reads X once, and once more if M has an F. The columns of an F that has many more than d are
    taken in strips, with a pass for each.
    """
    n, d = X.shape
    G = np.zeros((d, d))
    tiles = X.row_tiles or X.require_row_tiles()
    m = np.ones(n) if M.m is None else M.m
    F = M.factor()
    strips = _strips(F, d)
    for k in range(0, len(tiles), engine.n_workers()):  # few at a time, as each part is d × d
        batch = Matrix(X.shape, rows=tiles[k : k + engine.n_workers()], local=X.local)
        for part in batch.map_rows(_gram, each=[[m[t.start : t.stop] for t in batch.row_tiles]]):
            G += part
    for strip in strips:
        FtX: Any = 0
        for k in range(0, len(tiles), engine.n_workers()):
            batch = Matrix(X.shape, rows=tiles[k : k + engine.n_workers()], local=X.local)
            for part in batch.map_rows(
                _projected, each=[[F[t.start : t.stop, strip] for t in batch.row_tiles]]
            ):
                FtX = FtX + part
        low = FtX.T @ FtX
        G -= low.toarray() if sp.issparse(low) else low
    X.passes += 1 + len(strips)
    return G


def _strips(F: Any, d: int) -> list[slice]:
    """Return the columns of F in strips, so that Fᵀ block of a strip takes little memory."""
    if F is None:
        return []
    width = max(d, int(STRIP_SHARE * engine.memory_limit() / (8 * max(d, 1))), 1)
    return [slice(a, a + width) for a in range(0, F.shape[1], width)]


class Primal:
    """Cholesky factor of XᵀMX + diag u over the active features, those with finite u."""

    def __init__(self, G: FloatArray, u: FloatArray) -> None:
        self.active = np.flatnonzero(np.isfinite(u))
        self.u = u[self.active]
        self.G = G if len(self.active) == len(u) else G[np.ix_(self.active, self.active)]
        A = self.scale(self.G)
        A.flat[:: len(A) + 1] += 1
        with explain_singular("the ridge system"):
            self.factor = la.cho_factor(A, overwrite_a=True, check_finite=False)

    def scale(self, G: FloatArray) -> FloatArray:
        """Return u^-½ G u^-½, which stays well scaled however far apart the weights are."""
        s = self.u**-0.5
        return s[:, None] * G * s

    def gram_times(self, W: FloatArray) -> FloatArray:
        """Return XᵀMX W for a W that is zero where u is infinite, and zero there."""
        product = np.zeros(W.shape)
        product[self.active] = self.G @ W[self.active]
        return product

    def solve(self, rhs: FloatArray) -> FloatArray:
        """Return (XᵀMX + diag u)⁻¹ rhs, zero where u is infinite."""
        s = self.u[:, None] ** -0.5
        W = np.zeros(rhs.shape)
        W[self.active] = s * la.cho_solve(self.factor, s * rhs[self.active], check_finite=False)
        return W


def _gram(block: Block, start: int, stop: int, m: FloatArray) -> FloatArray:
    if not sp.issparse(block):
        Z = np.sqrt(m)[:, None] * np.asarray(block, dtype=np.float64)
        return np.asarray(Z.T @ Z)
    G = np.zeros((block.shape[1], block.shape[1]))
    for a in range(0, len(m), GRAM_ROWS):
        Z = sp.csr_array(block[a : a + GRAM_ROWS], dtype=np.float64)
        G += sp.csr_array(Z.T) @ (sp.diags_array(m[a : a + GRAM_ROWS]) @ Z)
    return G


def _projected(block: Block, start: int, stop: int, F: Any) -> Any:
    """Return Fᵀ block, sparse if both are. The sum over tiles is FᵀX, e × d."""
    return F.T @ block.astype(np.float64)
