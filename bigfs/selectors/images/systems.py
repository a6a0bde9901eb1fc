"""The ridge systems of SMR's half rounds, one per class, on three routes.

With the centered M × N samples X_i, F_r = [X_iv_1; …; X_iv_k] (kM × n), y_r the centered targets,
and A the weights of the penalty, whose k × k blocks are diagonal,

    u_r = (F_r F_rᵀ + αA)⁻¹ F_r y_r

`KernelSystems` solves the n × n system of few samples:

    u_r = A⁻¹F_r (F_rᵀA⁻¹F_r + αI)⁻¹ y_r

The others solve it as it is. Where the covariance C of the pixels (d × d) fits in memory, one
pass over the data serves every round (`CovarianceSystems`):

    F_r F_rᵀ = (V_r ⊗ I)ᵀ C (V_r ⊗ I)          kM × kM

Otherwise each half round sums these Grams over the tiles (`SampleSystems`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.types import FloatArray, IntArray
from bigfs.validation import explain_singular

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


class Factor(NamedTuple):
    """The solution of a class."""

    U: FloatArray  # M × k
    loss: float  # ‖F_rᵀu_r − y_r‖² less ‖y_r‖²


class ImageSystems(ABC):
    """The data of the half rounds."""

    route: ClassVar[str]  # the name of the systems in the stats of a run

    @abstractmethod
    def solve(self, V: FloatArray, D: FloatArray, alpha: float, transpose: bool) -> list[Factor]:
        """Return the best U_r for V (c × N × k) and the weights D (M × N) of the penalty.

        With `transpose`, V holds the U_r, D is N × M, and the best V_r are returned.
        """


# --- few samples ----------------------------------------------------------------------------------


class KernelSystems(ImageSystems):
    """Systems of n × n."""

    route = "kernel"

    def __init__(self, images: FloatArray, Y: FloatArray) -> None:
        self.images, self.Y = images, Y  # n × M × N and n × c, centered

    def solve(self, V: FloatArray, D: FloatArray, alpha: float, transpose: bool) -> list[Factor]:
        images = self.images.swapaxes(-1, -2) if transpose else self.images
        return [
            _solve_by_kernel(images @ Vr, y, _penalty_blocks(Vr, D), alpha)
            for Vr, y in zip(V, self.Y.T, strict=True)
        ]


def _solve_by_kernel(F: FloatArray, y: FloatArray, A: FloatArray, alpha: float) -> Factor:
    """Solve for F (n × M × k) and the k × k blocks A (M × k × k)."""
    n, M, k = F.shape
    scaled = (F.swapaxes(0, 1) @ np.linalg.inv(A)).swapaxes(0, 1).reshape(n, M * k)
    F = F.reshape(n, M * k)
    K = F @ scaled.T
    K.flat[:: n + 1] += alpha
    with explain_singular("SMR's ridge system"):
        factor = scipy.linalg.cho_factor(K, lower=True, overwrite_a=True)
        u = scaled.T @ scipy.linalg.cho_solve(factor, y)
    fitted = F @ u
    return Factor(u.reshape(M, k), float(fitted @ fitted - 2 * fitted @ y))


def _penalty_blocks(V: FloatArray, D: FloatArray) -> FloatArray:
    """Return A as its k × k block of each row of the image (M × k × k)."""
    return np.einsum("ij,ja,jb->iab", D, V, V)


# --- any number of samples ------------------------------------------------------------------------


class GramSystems(ImageSystems):
    """Systems of kM × kM."""

    def __init__(self, X: Matrix, Y: FloatArray, layout: ImageLayout, blank: IntArray) -> None:
        XtY = X.T @ Y
        XtY[blank] = 0
        self.T = np.ascontiguousarray(layout.fold(XtY.T))  # c × M × N: Σ_i y_ir X_i

    @abstractmethod
    def grams(self, V: FloatArray, transpose: bool) -> FloatArray:
        """Return the Grams of F_r (c × kM × kM).

        With `transpose`, V holds the U_r (M × k), and the Grams are of [X_iᵀu_1; …]
        (c × kN × kN).
        """

    def solve(self, V: FloatArray, D: FloatArray, alpha: float, transpose: bool) -> list[Factor]:
        T = self.T.swapaxes(-1, -2) if transpose else self.T
        grams = self.grams(V, transpose)
        each = [class_groups(grams), class_groups(T)]
        groups = engine.map_tiles(_solve_group, class_groups(V), D, alpha, each=each)
        return [solution for group in groups for solution in group]


def _solve_group(
    V: FloatArray, grams: FloatArray, T: FloatArray, D: FloatArray, alpha: float
) -> list[Factor]:
    return [_solve_class(*arrays, D, alpha) for arrays in zip(V, grams, T, strict=True)]


def _solve_class(
    V: FloatArray, G: FloatArray, T: FloatArray, D: FloatArray, alpha: float
) -> Factor:
    k, M = V.shape[1], len(D)
    K, t = G.reshape(k, M, k, M).copy(), (T @ V).T.ravel()
    i = np.arange(M)
    K[:, i, :, i] += alpha * _penalty_blocks(V, D)
    with explain_singular("SMR's ridge system"):
        factor = scipy.linalg.cho_factor(K.reshape(k * M, k * M), lower=True, overwrite_a=True)
        u = scipy.linalg.cho_solve(factor, t)
    return Factor(u.reshape(k, M).T, float(u @ (G @ u) - 2 * u @ t))


class CovarianceSystems(GramSystems):
    """Grams from C = XcᵀXc, in 2·MN·M·k(N + k) flops per class, without reading the data."""

    route = "covariance"

    def __init__(self, X: Matrix, Y: FloatArray, layout: ImageLayout, blank: IntArray) -> None:
        super().__init__(X, Y, layout, blank)
        C = X.sum(_covariance_of_tile, 0, X.means, blank, label="covariance")
        folded = layout.fold(layout.fold(C).transpose(1, 2, 0))  # M × N × M × N
        # C of pixels (i, n) and (j, n') at n, i, j, n', and of (m, i) and (m', j) at m, i, j, m'
        self.by_column = np.ascontiguousarray(folded.transpose(1, 0, 2, 3))
        self.by_row = np.ascontiguousarray(folded.transpose(0, 1, 3, 2))

    def grams(self, V: FloatArray, transpose: bool) -> FloatArray:
        C = self.by_row if transpose else self.by_column
        return np.concatenate(engine.map_tiles(_contract, class_groups(V), C))


class SampleSystems(GramSystems):
    """Grams summed over the tiles, in 2·n·kM(N + kM) flops per class and a pass over X.

    No d × d array is formed.
    """

    route = "samples"

    def __init__(self, X: Matrix, Y: FloatArray, layout: ImageLayout, blank: IntArray) -> None:
        super().__init__(X, Y, layout, blank)
        self.X, self.layout, self.blank = X, layout, blank

    def grams(self, V: FloatArray, transpose: bool) -> FloatArray:
        shared = self.X.means, self.blank, V, self.layout, transpose
        return np.asarray(self.X.sum(_grams_of_tile, 0, *shared))


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
