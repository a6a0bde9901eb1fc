"""Woodbury's way: through the n × n kernel X diag(1/u) Xᵀ, built tile by tile over the features.

With M = CCᵀ the matrix to factor is symmetric whatever M is:
    W = D⁻¹ (rhs − Xᵀ C (I + Cᵀ K C)⁻¹ Cᵀ X D⁻¹ rhs),   K = X D⁻¹ Xᵀ,   D = diag u.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from bigfs import engine
from bigfs.linalg.ridge.operator import Middle
from bigfs.matrix import Block, Matrix
from bigfs.types import FloatArray
from bigfs.validation import factorized

HEAVY = 0.05  # columns with more non-zeros than this share of n are multiplied dense
ROWS = 2048  # of a block of the kernel's sparse part


def kernel(X: Matrix, phi: FloatArray) -> FloatArray:
    """X diag(φ) Xᵀ, dense n × n, summed over tiles of columns. One pass."""
    n, _ = X.shape
    K = np.zeros((n, n))
    tiles = X.require_column_tiles()
    for k in range(0, len(tiles), engine.n_workers()):  # a few at a time: each part is n × n
        some = Matrix(X.shape, columns=tiles[k : k + engine.n_workers()], local=X.local)
        for part in some.map_columns(
            _kernel, each=[[phi[t.start : t.stop] for t in some.column_tiles]]
        ):
            K += part
    X.passes += 1
    return K


class Woodbury:
    """Cholesky of I + Cᵀ K C."""

    def __init__(self, X: Matrix, middle: Middle, u: FloatArray) -> None:
        self.X, self.phi = X, 1 / u[:, None]
        self.root = middle.root(X.shape[0])
        K = self.root.transposed_times(kernel(X, self.phi[:, 0]))
        K = self.root.transposed_times(np.ascontiguousarray(K.T))
        K.flat[:: len(K) + 1] += 1
        with factorized("the ridge system"):
            self.factor = la.cho_factor(K.T, overwrite_a=True, check_finite=False)

    def solve(self, rhs: FloatArray) -> FloatArray:
        """(XᵀMX + diag u)⁻¹ rhs; zero where u is infinite. Two passes."""
        W = self.phi * rhs
        P = la.cho_solve(self.factor, self.root.transposed_times(self.X @ W), check_finite=False)
        return W - self.phi * (self.X.T @ self.root.times(P))


def _kernel(block: Block, start: int, stop: int, phi: FloatArray) -> FloatArray:
    """block diag(φ) blockᵀ: heavy columns by BLAS, the rest as a product of sparse rows."""
    s = np.sqrt(phi)
    if not sp.issparse(block):
        Z = np.asarray(block, dtype=np.float64) * s
        return np.asarray(Z @ Z.T)
    Z = sp.csc_array(block, dtype=np.float64) * s[None, :]
    Z = sp.csc_array(Z)
    heavy = np.diff(Z.indptr) > HEAVY * Z.shape[0]
    dense = Z[:, heavy].toarray()
    K = dense @ dense.T
    light = sp.csr_array(Z[:, ~heavy])
    light_T = sp.csr_array(light.T)
    for a in range(0, len(K), ROWS):
        K[a : a + ROWS] += (light[a : a + ROWS] @ light_T).toarray()
    return np.asarray(K)
