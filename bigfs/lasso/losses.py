"""The losses of `bigfs.lasso.path` on gathered columns: least squares, and the squared hinge.

    least squares    ½‖T − XcW‖²                              T is centered
    squared hinge    ½ Σ_ik max(0, 1 − y_ik f_ik)²            f = XcW + 1bᵀ, y_ik = ±1

At the best b both have a residual V with 1ᵀV = 0, and the loss is ½‖V‖²: V = T − XcW, or
V = Y ⊙ max(0, 1 − Y ⊙ F).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.cutting_plane.columns import GatheredColumns
from bigfs.cutting_plane.hinge import best_slack
from bigfs.linalg.descent import descend, descend_hinge, duality_gap
from bigfs.linalg.prox import column_dots, row_norms
from bigfs.matrix import Matrix
from bigfs.matrix.gathering import hold_if_small
from bigfs.types import BoolArray, FloatArray, IntArray

COLUMN_BYTES = 96  # of each feature: its statistics, and the arrays made of them
MAX_SWEEPS = 300  # of coordinate descent per step of the path
SWEEPS = 5  # of coordinate descent on the squared hinge between two duality gaps
MAX_ROUNDS = 200  # of such sweeps per step of the path


class Fit(NamedTuple):
    """The residual of some weights."""

    V: FloatArray  # n × r, with 1ᵀV = 0
    a: FloatArray  # (r,): ⟨V, T⟩ of each target
    norm2: FloatArray  # (r,): ‖V‖² of each target


class Loss(ABC):
    """A loss of r targets T (n × r) on columns of X (n × d)."""

    def __init__(self, X: Matrix, T: FloatArray) -> None:
        _require_memory(X, T.shape[1])
        self.X, self.T = hold_if_small(X.near_zero()), T
        self.columns = GatheredColumns(self.X, T)
        self.varies: BoolArray = X.deviations > 0  # (d,), up to rounding

    def gather(self, features: IntArray) -> None:
        """Gather these columns and their products."""
        union = np.union1d(self.columns.features, features)
        entries = int(self.X.stats.nnz[union].sum())
        engine.require_memory(
            4 * 8 * len(union) ** 2 + 24 * entries,
            f"a working set of {len(union)} features with {entries} values",
        )
        self.columns.add(features)

    def value(self, V: FloatArray) -> float:
        """Return the loss at a residual."""
        return float(np.vdot(V, V)) / 2

    @abstractmethod
    def residual(self, W: FloatArray, features: IntArray) -> Fit:
        """Return the residual of weights W (u × r) of gathered features, at the best b."""

    @abstractmethod
    def solve(
        self, W: FloatArray, features: IntArray, groups: list[slice], lam: float, tol: float
    ) -> FloatArray:
        """Return weights of gathered features with a relative gap of at most `tol` over them."""


def _require_memory(X: Matrix, r: int) -> None:
    """Refuse r regressions on X that do not fit in this process."""
    n, d = X.shape
    needed = 8 * r * (8 * n + 3 * d) + COLUMN_BYTES * d
    engine.require_memory(needed, f"{r} sparse regressions on {n} × {d} data")


class LeastSquares(Loss):
    """½‖T − XcW‖², for centered targets T."""

    def residual(self, W: FloatArray, features: IntArray) -> Fit:
        """Return the residual V = T − XcW."""
        V = self.T - self.columns.times(W, features)
        V -= V.mean(axis=0)
        return Fit(V, column_dots(V, self.T), column_dots(V, V))

    def solve(
        self, W: FloatArray, features: IntArray, groups: list[slice], lam: float, tol: float
    ) -> FloatArray:
        """Return the minimum by coordinate descent on the products of the columns."""
        G, B = self.columns.gram(features)
        parts = [
            descend(
                G,
                np.ascontiguousarray(B[:, g]),
                np.ascontiguousarray(W[:, g]),
                float(np.vdot(self.T[:, g], self.T[:, g])),
                lam,
                tol,
                MAX_SWEEPS,
            )
            for g in groups
        ]
        return np.concatenate(parts, axis=1)


class SquaredHinge(Loss):
    """½ Σ max(0, 1 − y f)², for targets of ±1: 1 where the indicator Y (csr, n × r) is."""

    def __init__(self, X: Matrix, Y: sp.csr_array) -> None:
        _require_memory(X, Y.shape[1])  # before the targets are made
        super().__init__(X, np.where(Y.toarray() != 0, 1.0, -1.0))

    def residual(self, W: FloatArray, features: IntArray) -> Fit:
        """Return the residual V = Y ⊙ max(0, 1 − Y ⊙ F) at the best intercepts."""
        V, _ = self.slack(W, features)
        return Fit(V, column_dots(V, self.T), column_dots(V, V))

    def slack(self, W: FloatArray, features: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return V and F = XcW + 1bᵀ at the best intercepts b."""
        XW = self.columns.times(W, features)
        V, b = best_slack(XW, self.T, self.columns.omega, np.zeros(XW.shape[1]))
        return V - V.mean(axis=0), XW + b  # the mean is zero but for rounding

    def solve(
        self, W: FloatArray, features: IntArray, groups: list[slice], lam: float, tol: float
    ) -> FloatArray:
        """Return the minimum by coordinate descent on the columns, for each group alone."""
        Z = self.columns.Z[:, self.columns.positions(features)].tocsc()
        Z.data = Z.data.astype(np.float64)
        W = W.copy()
        for _ in range(MAX_ROUNDS):
            V, F = self.slack(W, features)
            a, norm2, R = column_dots(V, self.T), column_dots(V, V), Z.T @ V
            open_groups = [
                g
                for g in groups
                if duality_gap(
                    norm2[g].sum(),
                    a[g].sum(),
                    float(row_norms(W[:, g]).sum()),
                    lam,
                    row_norms(R[:, g]).max(initial=0.0),
                )
                > tol
            ]
            if not open_groups:
                break
            for g in open_groups:
                Y, W_g = np.ascontiguousarray(self.T[:, g]), np.ascontiguousarray(W[:, g])
                slack = 1 - Y * F[:, g]
                descend_hinge(Z.indptr, Z.indices, Z.data, Y, slack, W_g, lam, SWEEPS)
                W[:, g] = W_g
        return W
