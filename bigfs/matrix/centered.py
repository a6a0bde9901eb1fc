"""The centered matrix, given by its products and never formed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigfs.linalg.rounding import near_zero
from bigfs.matrix.kernels import gram_times
from bigfs.types import AnyArray

if TYPE_CHECKING:
    from bigfs.matrix.matrix import Matrix


@dataclass(frozen=True)
class Centered:
    """Xc = X − 1μᵀ, given by its products and never formed."""

    X: Matrix
    mu: AnyArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape

    def __matmul__(self, W: AnyArray) -> AnyArray:
        return (self.X @ W) - self.mu @ W

    def rmatmul(self, V: AnyArray) -> AnyArray:
        """Xcᵀ V = Xᵀ V − μ (1ᵀV)."""
        shift = V.sum(axis=0)
        return (self.X.T @ V) - (np.outer(self.mu, shift) if V.ndim == 2 else self.mu * shift)

    def gram_times(self, P: AnyArray) -> AnyArray:
        """XcᵀXc P = XᵀX P − n μ (μᵀP), for the means μ of X, in a pass over the tiles of rows."""
        return gram_times(self.X, P) - self.X.shape[0] * np.outer(self.mu, self.mu @ P)


def gram(Z: Any, mu: AnyArray) -> AnyArray:
    """ZcᵀZc = ZᵀZ − n μμᵀ, dense u × u, for gathered columns Z (n × u) with means μ. Columns far
    from zero are centered first."""
    Z, far, _ = near_zero(Z.astype(np.float64))
    mu = np.array(mu)
    mu[far] = 0
    G = Z.T @ Z
    return (G.toarray() if sp.issparse(G) else G) - Z.shape[0] * np.outer(mu, mu)
