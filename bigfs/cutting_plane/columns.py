"""The columns of X that a cutting plane has gathered, and their products.

The master needs nothing else of the data:

    G = XcᵤᵀXcᵤ (u × u),    B = XcᵤᵀT (u × r)

over the u gathered columns. When columns are added, only their own products are computed.

With weights ω of the samples, Xc is diag(ω)(X − 1μᵀ) with μ the weighted means. Nothing is centered
in place: XcᵀV = Xᵀ `center`(V).

`GatheredColumns` holds the columns and the targets in this process. `TiledColumns`
(`bigfs.cutting_plane.tiled_columns`) leaves them in the tiles of rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.linalg.sparse_gram import mirror, sparse_gram
from bigfs.matrix import Matrix
from bigfs.rounding import unless_rounding
from bigfs.settings import Setting
from bigfs.types import BoolArray, FloatArray, IntArray

LARGE_SIZE = Setting(4096)  # columns from which G may be held in single precision
# A master takes G, half a square in double precision, and some arrays of the size of W.
FACTOR_BYTES = Setting(4)
MASTER_WIDTHS = 8
TARGET_ARRAYS = 5  # n × r: the targets, their residual, and what these are made of


class Residual(NamedTuple):
    """The residual V = T − XcW of some weights."""

    V: FloatArray | None  # n × r, made so that XcᵀV = XᵀV; None if only tasks make it, by tile
    a: float  # tr(VᵀT)
    norm2: float  # ‖V‖²

    @classmethod
    def from_products(cls, T_norm2: float, B: FloatArray, C: FloatArray, W: FloatArray) -> Residual:
        """Return it without V, from B = ZᵀT and C = B − GW over the features of W."""
        a = T_norm2 - float(np.vdot(B, W))
        return cls(None, a, a - float(np.vdot(W, C)))


class Products(NamedTuple):
    """The products of new columns with all columns, not centered."""

    gram: FloatArray  # new × u: Z_newᵀ diag(ω²) Z
    sums: FloatArray  # new: Z_newᵀω²
    B: FloatArray  # new × r: Z_newᵀ `center`(T)


class Columns(ABC):
    """G, B and the means of gathered columns of X (n × d). A subclass computes their products.

    `features` (u,) are the increasing indices of the columns, and `mu` (u,) the means of the
    columns as they are held. G (u × u) has their products with each other, and may be of float32
    where it is large. B (u × r) has their products with the targets T (n × r). Both are zero for a
    `constant` column. Without `omega` (n,), the weights ω of the samples are one.
    """

    sets_per_pass = 1  # how many sets of m features a pass gathers
    keeps_factor = True  # whether a pass leaves memory for a factor of the master
    in_single = False  # whether a large G is held in single precision
    # Cuts on the gathered columns end at this share of the gap that the last pass left,
    inner_gap_share = 0.15
    max_inner_cuts = 2  # and after this number, so that `max_iter` bounds the work

    def __init__(self, X: Matrix, r: int, T_norm2: float, omega: FloatArray | None) -> None:
        self.X, self.r, self.T_norm2 = X.near_zero(), r, T_norm2
        self.uniform = omega is None
        # without weights one number in memory, however many samples
        self.omega = np.broadcast_to(1.0, X.shape[0]) if omega is None else omega
        self.omega_norm2 = float(X.shape[0] if omega is None else omega @ omega)
        self._passes_before = X.passes
        self.features: IntArray = np.empty(0, dtype=np.int64)
        self.mu: FloatArray = np.empty(0)
        self.G: FloatArray = np.empty((0, 0))
        self.B: FloatArray = np.empty((0, r))
        self.constant: BoolArray = np.empty(0, dtype=bool)
        self.target_stats: Mapping[str, Any] = {}  # what a result says about T

    @abstractmethod
    def _products(self, union: IntArray, new: IntArray) -> Products:
        """Return the products of the columns `new` with the columns `union`, which include them."""

    @abstractmethod
    def residual(self, W: FloatArray, features: IntArray) -> Residual:
        """Return the residual for the weights W of gathered features."""

    def likely_features(self, m: int) -> IntArray:
        """Return features to gather with the first set, because later sets may hold them."""
        return np.empty(0, dtype=np.int64)

    @property
    def passes(self) -> int:
        """Passes over X since the first column could be gathered."""
        return self.X.passes - self._passes_before

    def add(self, features: IntArray) -> None:
        """Gather the new columns of `features`, or refuse them all where they do not fit."""
        new = np.setdiff1d(features, self.features)
        if not len(new):
            return
        union = np.union1d(self.features, new)
        if len(union) >= LARGE_SIZE.value:
            self._require_memory(len(union), len(new))
        old_positions = np.searchsorted(union, self.features)
        new_positions = np.searchsorted(union, new)
        order = np.argsort(np.append(old_positions, new_positions))  # of [old, new] in the union

        G_new, sums, B_new = self._products(union, new)
        mu_new = sums / self.omega_norm2
        mu = np.append(self.mu, mu_new)[order]
        diagonal = (np.arange(len(new)), new_positions)
        sums_of_squares = G_new[diagonal]
        for row, mu_j in zip(G_new, mu_new, strict=True):
            row -= self.omega_norm2 * (mu * mu_j)
        constant_new = unless_rounding(G_new[diagonal], sums_of_squares) == 0
        constant = np.append(self.constant, constant_new)[order]
        G_new[:, constant] = 0
        G_new[constant_new] = 0
        G = self._widen(old_positions, len(union))
        G[new_positions] = G_new
        G[:, new_positions] = G_new.T
        B_new[constant_new] = 0
        self.features, self.mu, self.constant = union, mu, constant
        self.G, self.B = G, np.concatenate([self.B, B_new])[order]

    def _require_memory(self, u: int, n_new: int) -> None:
        """Raise `MemoryLimitError` if a master over u columns does not fit in this process."""
        of_product, u_before = 4 if self.in_single else 8, u - n_new
        widened = (
            of_product * (u**2 + u_before**2) + self.keeps_factor * FACTOR_BYTES.value * u_before**2
        )
        largest = max((of_product + FACTOR_BYTES.value) * u**2, widened)
        projected = largest + 8 * u * (n_new + MASTER_WIDTHS * self.r)
        engine.require_memory(projected, f"solving for {u} gathered columns")

    def _widen(self, positions: IntArray, size: int) -> FloatArray:
        """Return a matrix of size × size that holds G at positions × positions."""
        is_single = self.in_single and size >= LARGE_SIZE.value
        wide = np.zeros((size, size), np.float32 if is_single else np.float64)
        wide[positions[:, None], positions] = self.G
        return wide

    def gram(self, features: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return G and B of gathered features."""
        if len(features) == len(self.features):
            return self.G, self.B
        positions = self.positions(features)
        part = self.G[np.ix_(positions, positions)]
        if len(features) < LARGE_SIZE.value:
            part = part.astype(np.float64, copy=False)
        return part, self.B[positions]

    def positions(self, features: IntArray) -> IntArray:
        """Return the positions of gathered features among the gathered columns."""
        return np.searchsorted(self.features, features)


class GatheredColumns(Columns):
    """The gathered columns of X and the targets T, in this process."""

    def __init__(self, X: Matrix, T: FloatArray, omega: FloatArray | None = None) -> None:
        engine.require_memory(
            8 * TARGET_ARRAYS * T.size,
            f"the targets of {len(T)} samples in {T.shape[1]} columns",
        )
        super().__init__(X, T.shape[1], float(np.vdot(T, T)), omega)
        self.T = T
        self.omega = np.ascontiguousarray(self.omega)  # for compiled loops
        # n × u: the gathered columns by rows, not centered but where they are far from zero
        self.Z = sp.csr_array((X.shape[0], 0), dtype=np.float32)

    def _products(self, union: IntArray, new: IntArray) -> Products:
        Z_new = self.X.columns(new)
        Z_new.sort_indices()
        rows, weighted, every = Z_new.tocsr(), self.weighted(Z_new), np.arange(len(new))
        old_positions, new_positions = (np.searchsorted(union, f) for f in (self.features, new))
        gram = np.empty((len(new), len(union)))
        gram[:, old_positions] = sparse_gram(weighted, self.weighted(self.Z))
        of_each_other = sparse_gram(weighted, self.weighted(rows), new=every)
        mirror(of_each_other, every)
        gram[:, new_positions] = of_each_other
        sums, B = Z_new.T @ self.omega**2, Z_new.T @ self.center(self.T)
        del Z_new, weighted  # before all columns are held twice
        self.Z = _joined(self.Z, rows, old_positions, new_positions)
        return Products(gram, sums, B)

    def residual(self, W: FloatArray, features: IntArray) -> Residual:
        V = self.T - self.omega[:, None] * self.times(W, features)
        return Residual(self.center(V), float(np.vdot(V, self.T)), float(np.vdot(V, V)))

    def times(self, W: FloatArray, features: IntArray) -> FloatArray:
        """Return (X − 1μᵀ)W (n × r) for the weights W of gathered features."""
        positions = self.positions(features)
        W_gathered = np.zeros((len(self.features), W.shape[1]))
        W_gathered[positions] = W
        product: FloatArray = self.Z @ W_gathered - self.mu[positions] @ W
        return product

    def center(self, V: FloatArray) -> FloatArray:
        """Return ω(V − ω(ωᵀV)/‖ω‖²), with which XcᵀV = Xᵀ `center`(V)."""
        return self.omega[:, None] * (V - np.outer(self.omega, self.omega @ V / self.omega_norm2))

    def weighted(self, Z: Any) -> Any:
        """Return diag(ω) Z."""
        if self.uniform:
            return Z
        weights = self.omega[Z.tocoo(copy=False).coords[0]]
        return type(Z)((Z.data * weights, Z.indices, Z.indptr), shape=Z.shape)


def _joined(Z: Any, Z_new: Any, old_positions: IntArray, new_positions: IntArray) -> sp.csr_array:
    """Return the columns of both at their positions, by rows. Both are overwritten on the way."""
    shape = Z.shape[0], Z.shape[1] + Z_new.shape[1]
    for part, positions in ((Z, old_positions), (Z_new, new_positions)):
        part.indices[:] = positions[part.indices]
        part.resize(shape)
    return Z + Z_new if Z.nnz else Z_new  # the sum is a copy
