"""Grams of images on one side, from their covariance or from the images themselves.

With X_i the M × N sample i, C = XcᵀXc the covariance of the pixels, and V_r (N × k) of class r, the
Gram of F_r = [X_iv_1; …; X_iv_k], centered, is

    F_r L_c F_rᵀ = (V_r ⊗ I)ᵀ C (V_r ⊗ I)          kM × kM

Where C (d × d) fits in memory, one pass over the data serves every round (`CovarianceGrams`).
Otherwise each call sums the Grams over the tiles (`SampleGrams`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.types import FloatArray, IntArray

CLASSES_PER_TASK = 8
DENSE_ROWS = 256  # samples that are dense at once


class ImageLayout(NamedTuple):
    """How a row of X is an M × N image."""

    M: int
    N: int
    order: str  # "C": pixel (i, j) is column iN + j; "F", MATLAB's: column jM + i

    def fold(self, Z: FloatArray) -> FloatArray:
        """Return Z (…, MN) as images (…, M, N)."""
        shape = Z.shape[:-1]
        if self.order == "C":
            return Z.reshape(*shape, self.M, self.N)
        return Z.reshape(*shape, self.N, self.M).swapaxes(-1, -2)

    def flatten(self, P: FloatArray) -> FloatArray:
        """Return images (…, M, N) as (…, MN), in the order of the columns of X."""
        P = P if self.order == "C" else P.swapaxes(-1, -2)
        return P.reshape(*P.shape[:-2], self.M * self.N)


class GramSource(Protocol):
    """The Grams that a half round needs."""

    @property
    def route(self) -> str:
        """The name of the source in the stats of a run."""

    def grams(self, V: FloatArray, transpose: bool) -> FloatArray:
        """Return the Grams of F_r (c × kM × kM).

        With `transpose`, V holds the U_r (M × k), and the Grams are those of [X_iᵀu_1; …]
        (c × kN × kN).
        """


class CovarianceGrams(NamedTuple):
    """Grams from C = XcᵀXc, in 2·MN·M·k(N + k) flops per class, without reading the data."""

    by_column: FloatArray  # N × M × M × N: C of pixels (i, n) and (j, n') at n, i, j, n'
    by_row: FloatArray  # M × N × N × M: C of pixels (m, i) and (m', j) at m, i, j, m'

    @property
    def route(self) -> str:
        """The name of the source in the stats of a run."""
        return "covariance"

    def grams(self, V: FloatArray, transpose: bool) -> FloatArray:
        """Return the Grams of F_r, or of its transposed form."""
        C = self.by_row if transpose else self.by_column
        return np.concatenate(engine.map_tiles(_contract, class_groups(V), C))


class SampleGrams(NamedTuple):
    """Grams summed over the tiles, in 2·n·kM(N + kM) flops per class and a pass over X.

    No d × d array is formed.
    """

    X: Matrix
    mu: FloatArray
    layout: ImageLayout
    blank: IntArray  # pixels that count as zero in every image

    @property
    def route(self) -> str:
        """The name of the source in the stats of a run."""
        return "samples"

    def grams(self, V: FloatArray, transpose: bool) -> FloatArray:
        """Return the Grams of F_r, or of its transposed form."""
        return np.asarray(
            self.X.sum(_grams_of_tile, 0, self.mu, self.blank, V, self.layout, transpose)
        )


def covariance_grams(X: Matrix, layout: ImageLayout, blank: IntArray) -> CovarianceGrams:
    """Compute C, in one pass over X."""
    C = X.sum(_covariance_of_tile, 0, X.means, blank, label="covariance")
    folded = layout.fold(layout.fold(C).transpose(1, 2, 0))  # M × N × M × N
    return CovarianceGrams(
        np.ascontiguousarray(folded.transpose(1, 0, 2, 3)),
        np.ascontiguousarray(folded.transpose(0, 1, 3, 2)),
    )


def class_groups(stack: FloatArray) -> list[FloatArray]:
    """Return a stack over the classes as one part per task."""
    return [
        stack[first : first + CLASSES_PER_TASK] for first in range(0, len(stack), CLASSES_PER_TASK)
    ]


def _contract(V: FloatArray, C: FloatArray) -> FloatArray:
    """Return (V_r ⊗ I)ᵀ C (V_r ⊗ I) for g classes, from V (g × N × k) and C (N × M × M × N).

    The blocks are ordered by column of V. The classes of a product have at most N columns together,
    so that it is no larger than C.
    """
    N, M = C.shape[:2]
    g, _, k = V.shape
    grams = np.empty((g, k, M, k, M))
    step = max(1, N // k)
    for first in range(0, g, step):
        Vs = V[first : first + step]
        left = Vs.swapaxes(1, 2).reshape(-1, N) @ C.reshape(N, M * M * N)
        both = left.reshape(len(Vs), k * M * M, N) @ Vs
        grams[first : first + step] = both.reshape(len(Vs), k, M, M, k).swapaxes(3, 4)
    return grams.reshape(g, k * M, k * M)


def _grams_of_tile(
    block: Any,
    start: int,
    stop: int,
    mu: FloatArray,
    blank: IntArray,
    V: FloatArray,
    layout: ImageLayout,
    transpose: bool,
) -> FloatArray:
    size, k = (layout.N if transpose else layout.M), V.shape[2]
    total = np.zeros((len(V), k * size, k * size))
    for first in range(0, stop - start, DENSE_ROWS):
        images = layout.fold(_centered_rows(block, first, mu, blank))
        images = np.ascontiguousarray(images.swapaxes(-1, -2) if transpose else images)
        for r, Vr in enumerate(V):
            F = (images @ Vr).swapaxes(-1, -2).reshape(len(images), k * size)
            total[r] += F.T @ F
    return total


def _covariance_of_tile(
    block: Any, start: int, stop: int, mu: FloatArray, blank: IntArray
) -> FloatArray:
    """Return Σ (x_i − μ)(x_i − μ)ᵀ over the tile."""
    total = np.zeros((len(mu), len(mu)))
    for first in range(0, stop - start, DENSE_ROWS):
        Xc = _centered_rows(block, first, mu, blank)
        total += Xc.T @ Xc
    return total


def _centered_rows(block: Any, first: int, mu: FloatArray, blank: IntArray) -> FloatArray:
    """Return `DENSE_ROWS` rows of a tile, dense and centered."""
    rows = block[first : first + DENSE_ROWS]
    centered: FloatArray = (rows.toarray() if sp.issparse(rows) else np.asarray(rows)) - mu
    centered[:, blank] = 0
    return centered
