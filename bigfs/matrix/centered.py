"""The centered matrix, given by its products and never formed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigfs.matrix.kernels import gram_times
from bigfs.types import AnyArray

if TYPE_CHECKING:
    from bigfs.matrix.matrix import Matrix


class Centered:
    """Xc = X − 1μᵀ, given by its products and never formed. Columns far from zero are read less
    their mean, so that the products keep the digits of their deviations."""

    def __init__(self, X: Matrix) -> None:
        self.X = X.near_zero()
        self.mu = self.X.means  # about zero for the columns that are far from it

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
