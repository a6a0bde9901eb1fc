"""M, the middle of XᵀMX: diag(m) − F Fᵀ, positive semi-definite, n × n and never formed.

The identity, the centring matrix I − 11ᵀ/n, a diagonal, and a diagonal plus a hypergraph Laplacian
are all of this form, so the three solvers know only this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from bigfs.types import AnyArray


@dataclass(frozen=True)
class Middle:
    """M = diag(m) − F Fᵀ.

    Parameters
    ----------
    m : (n,) non-negative; None is all ones.
    F : (n, e), NumPy or scipy.sparse; None is nothing. M has to be positive semi-definite.
    projection : M² = M, so that M is its own root.
    """

    m: AnyArray | None = None
    F: Any = None
    projection: bool = False

    def apply(self, V: AnyArray) -> AnyArray:
        """M V, dense n × r."""
        MV = V if self.m is None else self.m[:, None] * V
        return MV if self.F is None else MV - self.F @ (self.F.T @ V)

    def dense(self, n: int) -> AnyArray:
        """M itself, n × n: only for Woodbury's root."""
        FFt: Any = 0 if self.F is None else self.F @ self.F.T
        return np.diag(np.ones(n) if self.m is None else self.m) - (
            FFt.toarray() if sp.issparse(FFt) else FFt
        )

    def root(self, n: int) -> Root:
        """C with M = CCᵀ: M itself if it is a projection, a diagonal where there is no F, else a
        pivoted Cholesky factor, which allows a singular M.
        """
        if self.F is None or self.projection:
            scale = None if self.m is None else np.sqrt(self.m)
            return Root(self if self.projection else Middle(scale))
        factor, pivots, rank, _ = lapack.dpstrf(self.dense(n), lower=1, overwrite_a=1)
        C = np.zeros((n, rank))
        C[pivots - 1] = np.tril(factor)[:, :rank]
        return Root(self, C)


@dataclass(frozen=True)
class Root:
    """C with M = CCᵀ, n × k: dense or, where it is None, the symmetric one, applied."""

    symmetric: Middle
    C: AnyArray | None = None

    def times(self, P: AnyArray) -> AnyArray:
        """C P, n × r."""
        return self.symmetric.apply(P) if self.C is None else self.C @ P

    def transposed_times(self, V: AnyArray) -> AnyArray:
        """Cᵀ V, k × r."""
        return self.symmetric.apply(V) if self.C is None else self.C.T @ V


def identity() -> Middle:
    """M = I."""
    return Middle()


def centring(n: int) -> Middle:
    """M = I − 11ᵀ/n, so that XᵀMX = XcᵀXc."""
    return Middle(F=np.full((n, 1), n**-0.5), projection=True)


def diagonal(a: AnyArray) -> Middle:
    """M = diag(a), a ≥ 0: weights of the samples."""
    if np.any(a < 0):
        raise ValueError("sample weights must be 0 or more: the diagonal of M has a negative entry")
    return Middle(m=np.asarray(a, dtype=np.float64))


def laplacian(a: AnyArray, mu: float, F: Any, c: AnyArray) -> Middle:
    """M = diag(a) + μ(I − F diag(c) Fᵀ), e.g. F = D_v^-½ H (n × e) and c = w/δ for a hypergraph."""
    return Middle(
        m=np.asarray(a, dtype=np.float64) + mu,
        F=sp.csr_array(F) * np.sqrt(mu * np.asarray(c, dtype=np.float64))[None, :],
    )
