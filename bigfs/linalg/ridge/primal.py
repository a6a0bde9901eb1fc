"""The primal way: XᵀMX, d × d, by tiles of rows; one Cholesky for each diag u."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from bigfs import engine
from bigfs.linalg.ridge.operator import Middle
from bigfs.matrix import Block, Matrix
from bigfs.types import FloatArray
from bigfs.validation import factorized


def gram(X: Matrix, middle: Middle) -> FloatArray:
    """XᵀMX, dense d × d: Σ blockᵀ diag(m) block over tiles of rows, less (FᵀX)ᵀ(FᵀX).

    One or two passes.
    """
    n, d = X.shape
    G = np.zeros((d, d))
    tiles = X.row_tiles or X.require_row_tiles()
    m = np.ones(n) if middle.m is None else middle.m
    FtX: Any = 0
    for k in range(0, len(tiles), engine.n_workers()):  # a few at a time: each part is d × d
        some = Matrix(X.shape, rows=tiles[k : k + engine.n_workers()], local=X.local)
        for part in some.map_rows(_gram, each=[[m[t.start : t.stop] for t in some.row_tiles]]):
            G += part
        if middle.F is not None:
            for part in some.map_rows(
                _projected, each=[[middle.F[t.start : t.stop] for t in some.row_tiles]]
            ):
                FtX = FtX + part
    X.passes += 1 + (middle.F is not None)
    if middle.F is not None:
        low = FtX.T @ FtX
        G -= low.toarray() if sp.issparse(low) else low
    return G


class Primal:
    """Cholesky of XᵀMX + diag u, over the features of finite u."""

    def __init__(self, G: FloatArray, u: FloatArray) -> None:
        self.on = np.flatnonzero(np.isfinite(u))
        self.u = u[self.on]
        self.G = G if len(self.on) == len(u) else G[np.ix_(self.on, self.on)]
        A = self.scale(self.G)
        A.flat[:: len(A) + 1] += 1
        with factorized("the ridge system"):
            self.factor = la.cho_factor(A, overwrite_a=True, check_finite=False)

    def scale(self, G: FloatArray) -> FloatArray:
        """u^-½ G u^-½: scaled so, the Cholesky does not see how far apart the weights are."""
        s = self.u**-0.5
        return s[:, None] * G * s

    def solve(self, rhs: FloatArray) -> FloatArray:
        """(XᵀMX + diag u)⁻¹ rhs; zero where u is infinite."""
        s = self.u[:, None] ** -0.5
        W = np.zeros(rhs.shape)
        W[self.on] = s * la.cho_solve(self.factor, s * rhs[self.on], check_finite=False)
        return W


def _gram(block: Block, start: int, stop: int, m: FloatArray) -> FloatArray:
    if not sp.issparse(block):
        Z = np.sqrt(m)[:, None] * np.asarray(block, dtype=np.float64)
        return np.asarray(Z.T @ Z)
    Z = sp.csr_array(block, dtype=np.float64)
    return np.asarray((sp.csr_array(Z.T) @ (sp.diags_array(m) @ Z)).toarray())


def _projected(block: Block, start: int, stop: int, F: Any) -> Any:
    """Fᵀ block: its sum is FᵀX, e × d, sparse where both are."""
    return F.T @ block.astype(np.float64)
