"""Backward elimination: from the union of the cutting plane's sets to exactly m features.

It works on the problem that the cutting plane relaxes:

    J(S) = min_W ½‖T − Xc[:, S] W‖² + γ/2 ‖W‖²                                  [SparGE, eq. 6]

With P = (G + γI)⁻¹ and W = PB, removing feature j raises J by exactly ‖w_j‖²/(2P_jj). The cheapest
features are removed, a few at a time, as the pivots of a Cholesky factorization of P, so that all
removals together cost less than the inverse. Ranking by the ‖w_j‖ of the relaxation would count
twice what two features share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, lapack, solve_triangular

from bigfs.constraints import NO_CONSTRAINTS
from bigfs.cutting_plane.restricted_master import system_name
from bigfs.types import BoolArray, FloatArray, IntArray
from bigfs.validation import explain_singular

Solve = Callable[[FloatArray], FloatArray]  # multiplies by an inverse
Follow = Callable[[IntArray, Solve, FloatArray], tuple[FloatArray, float]]

STRIP = 128  # rows of the inverse that are made at a time
TIE = 1e-10  # relative difference of two scores that is rounding
FOLLOW_SHARE = 0.8  # of the features at which T was last made to follow the remaining ones


class Elimination(NamedTuple):
    """The features in the reverse order of their removal."""

    order: IntArray  # (u,): positions among the u columns, best first
    costs: FloatArray  # (u,): how much each removal raised J, in that order
    objectives: dict[int, float]  # J by the size of the set


def eliminate(
    G: FloatArray,
    B: FloatArray,
    T_norm2: float,
    gamma: float,
    pauses: tuple[int, ...] = (),
    rate: float = 0.05,
    follow: Follow | None = None,
    removed_last: IntArray = NO_CONSTRAINTS.kept,
) -> Elimination:
    """Remove the features one after another, the cheapest first.

    The first k features of the order are the choice of k features, so the choices are nested. A
    step removes a share `rate` of those that remain, at least one, and passes over no size among
    `pauses`. The columns at the positions `removed_last` stay until no others are left.

    Where T depends on what remains, ``follow(remaining, times_inverse, W)`` returns the weights and
    J at the pauses, and whenever a fifth of the features is gone. `times_inverse` multiplies by P.
    """
    rest = Remaining(inverse(G, gamma), B)
    removed: list[IntArray] = []
    removed_costs: list[FloatArray] = []
    objectives: dict[int, float] = {}
    followed = np.inf
    while size := len(rest.features):
        if follow is None:
            objectives[size] = float(0.5 * (T_norm2 - np.vdot(B[rest.features], rest.W)))
        elif size in pauses or size <= FOLLOW_SHARE * followed:
            rest.W[:], objectives[size] = follow(rest.features, rest.times_inverse, rest.W)
            followed = size
        costs = np.einsum("jr,jr->j", rest.W, rest.W) / (2 * rest.diagonal)
        next_pause = max((k for k in pauses if k < size), default=0)
        count = min(max(1, int(rate * size)), size - next_pause)
        stays = np.isin(rest.features, removed_last)
        count = min(count, int(np.count_nonzero(~stays)) or size)
        out = best_first(costs, -rest.features, stays)[::-1][:count]  # of ties the first column
        removed.append(rest.features[out])
        removed_costs.append(costs[out])
        rest.remove(out)
    return Elimination(
        np.concatenate(removed)[::-1], np.concatenate(removed_costs)[::-1], objectives
    )


class Remaining:
    """The features that remain, their weights W, and the inverse P of their G + γI.

    Removing the features o takes LᵀL from P, where L = R⁻ᵀP[o] and RᵀR = P[o, o]. This is a step of
    a Cholesky factorization of the first P with these features as pivots. The steps need no more of
    P than its diagonal and the rows of the next pivots. So LᵀL is taken from these alone, and L is
    kept in place of the rows that it is made of. The removed features come first.
    """

    def __init__(self, P: FloatArray, B: FloatArray) -> None:
        self._P, self._order = P, np.arange(len(P))
        self._W, self._diagonal = P @ B, P.diagonal().copy()
        self._n_removed = 0

    @property
    def features(self) -> IntArray:
        """The features that remain (k)."""
        return self._order[self._n_removed :]

    @property
    def W(self) -> FloatArray:
        """Their weights (k × r)."""
        return self._W[self._n_removed :]

    @property
    def diagonal(self) -> FloatArray:
        """The diagonal of P (k)."""
        return self._diagonal[self._n_removed :]

    def times_inverse(self, V: FloatArray) -> FloatArray:
        """Return PV for a V of k rows."""
        f = self._n_removed
        L = self._P[:f, f:]
        return np.asarray(self._P[f:, f:] @ V - L.T @ (L @ V))

    def remove(self, out: IntArray) -> None:
        """Remove the features at these positions among the remaining ones."""
        f, last = self._n_removed, self._n_removed + len(out)
        self._bring_forward(out)
        L, rows = self._P[:f, f:], self._P[f:last, f:]
        rows -= L[:, : len(out)].T @ L
        with explain_singular("SparGE's ridge system"):
            lower = np.linalg.cholesky(rows[:, : len(out)])
        right = np.hstack([rows[:, len(out) :], self._W[f:last]])
        right = solve_triangular(lower, right, lower=True, overwrite_b=True, check_finite=False)
        new, W = np.split(right, [len(self._P) - last], axis=1)
        self._P[f:last, last:] = new
        self._n_removed = last
        self.diagonal[:] -= np.einsum("oj,oj->j", new, new)
        self.W[:] -= new.T @ W

    def _bring_forward(self, out: IntArray) -> None:
        """Swap the features at these positions with the first of the remaining ones."""
        f = self._n_removed
        is_out = np.zeros(len(self.features), dtype=bool)
        is_out[out] = True
        there = f + len(out) + np.flatnonzero(is_out[len(out) :])
        here = f + np.flatnonzero(~is_out[: len(out)])
        old, new = np.append(there, here), np.append(here, there)
        self._P[new, f:] = self._P[old, f:]
        self._P[:, new] = self._P[:, old]
        for array in (self._order, self._W, self._diagonal):
            array[new] = array[old]


def best_first(s: FloatArray, features: IntArray, is_kept: BoolArray) -> IntArray:
    """Return the positions of the kept features and then the others, by decreasing score.

    Scores that differ by rounding are ties and go by index. A product rounds a column by its place
    in a block, so equal columns would be told apart by the tiles otherwise.
    """
    order = np.lexsort((-s, ~is_kept))
    falls = s[order[:-1]] - s[order[1:]] > TIE * s[order[:-1]]
    steps = falls | (is_kept[order[:-1]] != is_kept[order[1:]])
    ties = np.concatenate([[0], np.cumsum(steps)]) if len(s) else np.zeros(0)
    return order[np.lexsort((features[order], ties))]


def inverse(G: FloatArray, gamma: float) -> FloatArray:
    """Return (G + γI)⁻¹: its diagonal is needed. One array of the size of G is made."""
    K = G.astype(np.float64)  # a copy
    K.flat[:: len(K) + 1] += gamma
    with explain_singular(system_name(G)):
        lower, _ = cho_factor(K.T, lower=True, overwrite_a=True, check_finite=False)
    triangle, info = lapack.dpotri(lower, lower=1, overwrite_c=1)
    if info:
        raise np.linalg.LinAlgError(f"the matrix of {len(K)} features is singular: raise gamma")
    P: FloatArray = triangle.T  # by rows, as K was; LAPACK leaves the other triangle as it was
    for first in range(0, len(P), STRIP):
        last = min(first + STRIP, len(P))
        P[first:last, :first] = P[:first, first:last].T
        square = np.triu(P[first:last, first:last])
        P[first:last, first:last] = square + np.triu(square, 1).T
    return P
