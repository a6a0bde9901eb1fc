"""The products of gathered columns where these and the residual are too large for one process.

The columns stay in the tiles of rows. A task makes the rows of V that it needs, and the rows of T
if T is given by its factors, so V never exists as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numba import njit

from bigfs import engine
from bigfs.cutting_plane.columns import Columns, Products, Residual
from bigfs.cutting_plane.restricted_master import times
from bigfs.linalg.sparse_gram import mirror, sparse_gram
from bigfs.matrix import Matrix
from bigfs.matrix.kernels import (
    STRIP_ROWS,
    SUMS_BYTES,
    add_by_columns,
    begin_sum,
    most_at_once,
    n_sums,
)
from bigfs.settings import Setting
from bigfs.types import AnyArray, FloatArray, IntArray

PART_BYTES = Setting(SUMS_BYTES // 2)  # of the products of new columns that a pass makes
# sets of m features of large variance that are gathered with the first one
LIKELY_SETS = Setting(3)
LIKELY_VARIANCE = 2.0  # of such a feature at least, times the mean one


@dataclass(frozen=True)
class FactoredTargets:
    """The targets T = YC − 1shiftᵀ (n × r), whose rows are computed when they are needed."""

    # csr array (n × q) of targets, or the class number of each sample (n,), which stands for its
    # indicators; without C the targets themselves (n × r)
    Y: Any
    C: FloatArray | None  # q × r
    shift: FloatArray  # (r,)
    norm2: float  # ‖T‖²

    @classmethod
    def of(cls, T: FloatArray) -> Self:
        """Return the targets T as they are."""
        return cls(T, None, np.zeros(T.shape[1]), float(np.vdot(T, T)))

    def rows(self, rows: slice) -> Any:
        """Return these rows of Y, class numbers in as few bytes as the classes need."""
        part = self.Y[rows]
        if self.C is None or part.ndim > 1:
            return part
        return part.astype(np.min_scalar_type(len(self.C) - 1))

    def whole(self) -> FloatArray:
        """Return T, if it is given as it is or by the classes without a shift."""
        return self.Y if self.C is None else self.C[self.Y]


@dataclass(frozen=True)
class _TargetRows:
    """The rows of the targets and the weights of the samples, as a pass takes them."""

    targets: FactoredTargets
    omega: FloatArray | None

    def __getitem__(self, rows: slice) -> tuple[Any, FloatArray | None]:
        return self.targets.rows(rows), None if self.omega is None else self.omega[rows]


class TiledColumns(Columns):
    """Products of the gathered columns, from passes over the tiles of rows."""

    # A step takes two passes, and cuts on the gathered columns cost much less (measured).
    sets_per_pass = 3
    inner_gap_share = 0.1
    max_inner_cuts = 8
    keeps_factor = False
    in_single = True

    def __init__(
        self, X: Matrix, targets: FactoredTargets, omega: FloatArray | None = None
    ) -> None:
        super().__init__(X, len(targets.shift), targets.norm2, omega)
        mean = np.zeros(self.r)  # ωᵀT/‖ω‖²: what `center` takes from T
        if targets.C is None:
            mean = self.omega @ (targets.Y - targets.shift) / self.omega_norm2
        self._T = _TargetRows(targets, omega)
        self._shared = (targets.C, targets.shift, mean)

    def add(self, features: IntArray) -> None:
        before = len(self.features)
        super().add(features)
        if len(self.features) > before and not self.X.local:
            engine.trim_memory()  # what the products of the new columns have left

    def _products(self, union: IntArray, new: IntArray) -> Products:
        n_rows = len(union) + 1 + self.r
        parts = np.array_split(
            np.searchsorted(union, new), -(-8 * n_rows * len(new) // PART_BYTES.value)
        )
        products, first = np.empty((n_rows, len(new))), 0
        for part in parts:
            size = 8 * n_rows * len(part)
            columns = slice(first, first := first + len(part))
            most_at_once(1, size)
            products[:, columns] = self._sum(_products_of_tile, size, union, part, label="gather")
        gram, sums, B = np.split(products, [len(union), len(union) + 1])
        mirror(gram, np.searchsorted(union, new))
        return Products(gram.T, sums[0], np.ascontiguousarray(B.T))

    def residual(self, W: FloatArray, features: IntArray) -> Residual:
        """Return the residual for the weights W of gathered features, without its V."""
        positions = self.positions(features)
        W_gathered = np.zeros((len(self.features), self.r))
        W_gathered[positions] = W
        B, GW = self.B[positions], times(self.G, W_gathered)[positions]  # no part of G is copied
        return Residual.from_products(self.T_norm2, B, B - GW, W)

    @property
    def weights_per_pass(self) -> int:
        """How many weights `residual_products` takes at a time, so that its sums stay small."""
        return max(1, SUMS_BYTES // 2 // (8 * self.X.shape[1] * self.r))

    def residual_products(self, weights: Sequence[tuple[IntArray, FloatArray]]) -> FloatArray:
        """Return XcᵀV for the residuals V of several (features, W), side by side.

        It is d × (number of weights · r), from one pass, or from several with the same bits where
        a worker cannot hold the sums of all.
        """
        d, K = self.X.shape[1], len(weights)
        union = np.unique(np.concatenate([features for features, _ in weights]))
        W = np.zeros((len(union), K * self.r))
        for k, (features, W_k) in enumerate(weights):
            W[np.searchsorted(union, features), k * self.r : (k + 1) * self.r] = W_k
        means = self.mu[self.positions(union)] @ W
        size, width = 8 * d * self.r, most_at_once(K, 8 * d * self.r) * self.r
        parts = [
            self._sum(
                *(_residual_products_of_tile, K * size, union, W[:, k : k + width].copy()),
                *(means[k : k + width],),
                label="scores",
            )
            for k in range(0, K * self.r, width)
        ]
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def _sum(self, fn: Any, size: int, *operands: Any, label: str) -> FloatArray:
        """Sum a function of a tile's block over all tiles, in as many parts as for `size` bytes."""
        total: FloatArray = self.X.sum(
            fn,
            0,
            *operands,
            *self._shared,
            split=[self._T],
            max_parts=n_sums(size),
            label=label,
        )
        return total


class StreamedColumns(TiledColumns):
    """Products of gathered columns that are too large for one process, with the residual in it.

    The products of new columns come from a pass over the tiles of rows. The residual's product with
    all columns comes from a pass over the tiles of columns, as for `GatheredColumns`, so that no
    task returns d numbers. So X needs both layouts.
    """

    # The targets are narrow, so that cuts on more columns cost less than a pass (measured).
    sets_per_pass = 4

    def __init__(self, X: Matrix, T: FloatArray, omega: FloatArray | None = None) -> None:
        super().__init__(X, FactoredTargets.of(T), omega)
        self.T = T

    def likely_features(self, m: int) -> IntArray:
        """Return the features of largest variance.

        To most features the residual is noise once the first ones explain a part of T. The mean
        score of a feature is then its variance times ‖V‖², so the next sets hold those of large
        variance. Standardized data have none.
        """
        deviations = self.X.deviations
        largest = np.sort(np.argsort(-deviations, kind="stable")[: LIKELY_SETS.value * m])
        return largest[deviations[largest] >= LIKELY_VARIANCE * deviations.mean()]

    def residual(self, W: FloatArray, features: IntArray) -> Residual:
        """Return the residual for the weights W of gathered features. It reads their columns."""
        omega = self.omega[:, None]
        V = self.T.copy()
        if len(features):
            taken = copy(self.X.take_columns(features))  # some columns are not counted as a pass
            taken.row_tiles = ()  # they would be read whole
            V -= omega * (taken @ W - self.mu[self.positions(features)] @ W)
        a, norm2 = float(np.vdot(V, self.T)), float(np.vdot(V, V))
        return Residual(omega * (V - omega * (self.omega @ V / self.omega_norm2)), a, norm2)


def _lookup(d: int, features: IntArray) -> AnyArray:
    """Return the position of each feature among `features`, −1 for the others."""
    positions = np.full(d, -1, dtype=np.int32)
    positions[features] = np.arange(len(features))
    return positions


def _rows_of_T(
    Y: Any, omega: FloatArray | None, C: FloatArray | None, shift: FloatArray, mean: FloatArray
) -> FloatArray:
    """Return rows of `center`(T), without the factor ω outside."""
    rows = Y if C is None else C[Y] if Y.ndim == 1 else Y @ C
    T = np.asarray(rows - shift, dtype=np.float64)
    return T - mean if omega is None else T - np.outer(omega, mean)


def _products_of_tile(
    block: Any,
    start: int,
    stop: int,
    rows: tuple[Any, FloatArray | None],
    union: IntArray,
    new_positions: IntArray,
    C: FloatArray | None,
    shift: FloatArray,
    mean: FloatArray,
    total: FloatArray | None,
) -> FloatArray:
    """Add Zᵀdiag(ω²)Z_new, ω²ᵀZ_new and (Z_newᵀ `center`(T))ᵀ, one below the other."""
    Y, omega = rows
    Z = sp.csc_array(sp.csr_array(block)[:, union])
    if omega is not None:
        Z = sp.csc_array(sp.diags_array(omega) @ Z)
    Z_new = Z[:, new_positions]
    if total is None:
        total = begin_sum(Z.shape[1] + 1 + len(shift), len(new_positions))
    gram, sums, B = np.split(total, [Z.shape[1], Z.shape[1] + 1])
    sparse_gram(Z, Z_new, threads=1, out=gram, new=new_positions)
    sums += (np.ones(Z.shape[0]) if omega is None else omega) @ Z_new
    B += (Z_new.T @ _rows_of_T(Y, omega, C, shift, mean)).T
    return total


def _residual_products_of_tile(
    block: Any,
    start: int,
    stop: int,
    rows: tuple[Any, FloatArray | None],
    union: IntArray,
    W: FloatArray,
    means: FloatArray,
    C: FloatArray | None,
    shift: FloatArray,
    mean: FloatArray,
    total: FloatArray | None,
) -> FloatArray:
    """Add blockᵀ `center`(V) for the tile's rows of V."""
    Y, omega = rows
    X, columns = sp.csr_array(block), _lookup(block.shape[1], union)
    if total is None:
        total = begin_sum(X.shape[1], W.shape[1])
    for first in range(0, X.shape[0], STRIP_ROWS.value):
        strip = slice(first, min(first + STRIP_ROWS.value, X.shape[0]))
        weights = np.ones(strip.stop - first) if omega is None else omega[strip]
        T = _rows_of_T(Y[strip], None if omega is None else weights, C, shift, mean)
        Z = X[strip]
        V = _residual_rows(Z.indptr, Z.indices, Z.data, columns, T, weights, W, means)
        by_column = sp.csc_array(Z)
        add_by_columns(by_column.indptr, by_column.indices, by_column.data, V, total)
    return total


@njit(nogil=True, cache=True)
def _residual_rows(
    indptr: IntArray,
    indices: IntArray,
    data: FloatArray,
    columns: AnyArray,
    T: FloatArray,
    weights: FloatArray,
    W: FloatArray,
    means: FloatArray,
) -> FloatArray:
    """Return diag(ω)(T − diag(ω)(ZW − means)), with T repeated for each W."""
    r = T.shape[1]
    V = np.empty((len(T), W.shape[1]))
    for i in range(len(T)):
        v = V[i]
        for c in range(len(v)):
            v[c] = -means[c]
        for p in range(indptr[i], indptr[i + 1]):
            k, x = columns[indices[p]], np.float64(data[p])
            if k >= 0:
                for c in range(len(v)):
                    v[c] += x * W[k, c]
        for c in range(len(v)):
            v[c] = weights[i] * (T[i, c % r] - weights[i] * v[c])
    return V
