"""The matrix M of XᵀMX: M = diag(m) − F Fᵀ, n × n, positive semi-definite and never formed.

The identity, the centering matrix I − 11ᵀ/n, a diagonal, and a diagonal plus a hypergraph Laplacian
(of JHLSR) all have this form, so the three solvers know only this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from bigfs.types import AnyArray


class Root(NamedTuple):
    """C (n × k) with M = CCᵀ, by its products."""

    times: Callable[[AnyArray], AnyArray]  # C P, n × r
    transposed_times: Callable[[AnyArray], AnyArray]  # CᵀV, k × r


@dataclass(frozen=True)
class SampleOperator:
    """The operator M = diag(m) − F Fᵀ on vectors with one entry per sample."""

    m: AnyArray | None = None  # (n,): diagonal, not negative
    F: Any = None  # (n, e): factor of the second term
    projection: bool = False  # whether M² = M

    @property
    def entries(self) -> int:
        """Number of non-zeros of F."""
        return 0 if self.F is None else self.F.nnz if sp.issparse(self.F) else self.F.size

    @property
    def has_root(self) -> bool:
        """Whether `root` is in closed form."""
        return self.entries == 0 or self.projection

    def height(self, n: int) -> int:
        """Return the rows of the largest array that `apply` makes for n samples."""
        return n

    def factor(self) -> Any:
        """Return F."""
        return self.F

    def apply(self, V: AnyArray, overwrite: bool = False) -> AnyArray:
        """Return M V, dense n × r. With `overwrite` it may lie in the memory of V."""
        MV = V if self.m is None else self.m[:, None] * V
        return MV if self.F is None else MV - self.F @ (self.F.T @ V)

    def dense(self, n: int) -> AnyArray:
        """Return M as an n × n array. Only the root of Woodbury needs it."""
        F = self.factor()
        FFt: Any = 0 if F is None else F @ F.T
        return np.diag(np.ones(n) if self.m is None else self.m) - (
            FFt.toarray() if sp.issparse(FFt) else FFt
        )

    def root(self, n: int) -> Root:
        """Return C with M = CCᵀ: M itself if M is a projection, a diagonal if there is no F, and
        otherwise a pivoted Cholesky factor, which allows a singular M."""
        if self.entries == 0 or self.projection:
            scale = None if self.m is None else np.sqrt(self.m)
            symmetric = self if self.projection else SampleOperator(scale)
            return Root(symmetric.apply, symmetric.apply)
        factor, pivots, rank, _ = lapack.dpstrf(self.dense(n), lower=1, overwrite_a=1)
        C = np.zeros((n, rank))
        C[pivots - 1] = np.tril(factor)[:, :rank]
        return Root(lambda P: C @ P, lambda V: C.T @ V)


class WeightedCentering(SampleOperator):
    """M = diag(a) − aaᵀ/1ᵀa: weights of the samples, and an intercept that is at its best."""

    def __init__(self, a: AnyArray) -> None:
        super().__init__(m=a, F=(a / np.sqrt(a.sum()))[:, None])

    has_root = True

    def root(self, n: int) -> Root:
        """Return C = diag(√a)(I − qqᵀ) with q = √a/‖√a‖."""
        assert self.m is not None
        s = np.sqrt(self.m)[:, None]
        projection = SampleOperator(F=s / np.linalg.norm(s))
        return Root(lambda P: s * projection.apply(P), lambda V: projection.apply(s * V))


def centering(n: int) -> SampleOperator:
    """Return M = I − 11ᵀ/n, for which XᵀMX = XcᵀXc."""
    return SampleOperator(F=np.full((n, 1), n**-0.5), projection=True)
