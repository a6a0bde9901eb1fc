"""The ridge systems of SMR's half rounds, one per class.

With F_r = [X_iv_1; …; X_iv_k] of the centered images (kM × n), y_r the centered targets, and A the
weights of the penalty, whose k × k blocks are diagonal,

    u_r = (F_r F_rᵀ + αA)⁻¹ F_r y_r

`GramSystems` solves it as it stands, in kM × kM, from Grams that any number of samples adds up to.
`KernelSystems` solves the n × n system of few samples:

    u_r = A⁻¹F_r (F_rᵀA⁻¹F_r + αI)⁻¹ y_r
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import scipy.linalg

from bigfs import engine
from bigfs.selectors.images.grams import GramSource, class_groups
from bigfs.types import FloatArray
from bigfs.validation import explain_singular


class Factor(NamedTuple):
    """The solution of a class."""

    U: FloatArray  # M × k
    loss: float  # ‖F_rᵀu_r − y_r‖² less ‖y_r‖²


class ImageSystems(Protocol):
    """The data of the half rounds."""

    @property
    def route(self) -> str:
        """The name of the systems in the stats of a run."""

    def solve(self, V: FloatArray, D: FloatArray, alpha: float, transpose: bool) -> list[Factor]:
        """Return the best U_r for V (c × N × k) and the weights D (M × N) of the penalty.

        With `transpose`, V holds the U_r, D is N × M, and the best V_r are returned.
        """


# --- any number of samples ------------------------------------------------------------------------


class GramSystems(NamedTuple):
    """Systems of kM × kM."""

    source: GramSource
    T: FloatArray  # c × M × N: Σ_i y_ir X_i

    @property
    def route(self) -> str:
        """The name of the systems in the stats of a run."""
        return self.source.route

    def solve(self, V: FloatArray, D: FloatArray, alpha: float, transpose: bool) -> list[Factor]:
        """Return the best U_r, or V_r, of each class."""
        T = self.T.swapaxes(-1, -2) if transpose else self.T
        grams = self.source.grams(V, transpose)
        solutions = engine.map_tiles(
            _solve_group,
            class_groups(V),
            D,
            alpha,
            each=[class_groups(grams), class_groups(T)],
        )
        return [solution for group in solutions for solution in group]


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


# --- few samples ----------------------------------------------------------------------------------


class KernelSystems(NamedTuple):
    """Systems of n × n."""

    images: FloatArray  # n × M × N, centered
    Y: FloatArray  # n × c, centered

    @property
    def route(self) -> str:
        """The name of the systems in the stats of a run."""
        return "kernel"

    def solve(self, V: FloatArray, D: FloatArray, alpha: float, transpose: bool) -> list[Factor]:
        """Return the best U_r, or V_r, of each class."""
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
