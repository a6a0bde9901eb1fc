"""The Woodbury solver, by the n × n kernel X diag(1/u) Xᵀ.

With M = CCᵀ the matrix to factor is symmetric for every M:

    W = D⁻¹ (rhs − Xᵀ C (I + Cᵀ K C)⁻¹ Cᵀ X D⁻¹ rhs),   K = X D⁻¹ Xᵀ,   D = diag u.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la

from bigfs.linalg.ridge.operator import SampleOperator
from bigfs.linalg.sample_kernel import kernel
from bigfs.matrix import Matrix
from bigfs.types import FloatArray
from bigfs.validation import explain_singular


class Woodbury:
    """Cholesky factor of I + Cᵀ K C."""

    def __init__(self, X: Matrix, M: SampleOperator, u: FloatArray) -> None:
        self.X, self.phi = X, 1 / u[:, None]
        self.root = M.root(X.shape[0])
        K = self.root.transposed_times(kernel(X, self.phi[:, 0]))
        K = self.root.transposed_times(np.ascontiguousarray(K.T))
        K.flat[:: len(K) + 1] += 1
        with explain_singular("the ridge system"):
            self.factor = la.cho_factor(K.T, overwrite_a=True, check_finite=False)

    def solve(self, rhs: FloatArray) -> FloatArray:
        """Return (XᵀMX + diag u)⁻¹ rhs, zero where u is infinite. Reads X twice."""
        W = self.phi * rhs
        P = la.cho_solve(self.factor, self.root.transposed_times(self.X @ W), check_finite=False)
        return W - self.phi * (self.X.T @ self.root.times(P))
