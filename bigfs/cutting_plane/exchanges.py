"""Exchanges after the elimination: one chosen feature for one of the others, while J falls.

With S the m chosen features, N the others, P = (G_SS + γI)⁻¹, W = P B_S, H = G_NS P,
C = B_N − G_NS W and σ_j = G_jj + γ − (H G_SN)_jj, putting j ∈ N in the place of i ∈ S changes

    J(S) = min_W ½‖T − Xc[:, S] W‖² + γ/2 ‖W‖²                                  [SparGE, eq. 6]

by exactly

    Δ_ij = ‖w_i‖²/(2P_ii) − ‖c_j + h_ji w_i/P_ii‖² / (2(σ_j + h_ji²/P_ii))

The first term is what J rises without i, and the second what it then falls with j. This is not in
the paper; splicing does the same for linear models [Zhu and others, PNAS 2020].
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas

from bigfs.cutting_plane.elimination import Elimination, eliminate, inverse
from bigfs.settings import Setting
from bigfs.types import FloatArray, IntArray

LEAST_FALL = Setting(1e-6)  # of J: an exchange that gains less is not made
# columns outside that a round weighs against all inside, those that gain most
MOST_GAINING = Setting(200)
# exchanges after which rounding is taken out of P, W and H, and others are weighed
ROUND = Setting(100)
ROUNDS_PER_FEATURE = Setting(0.1)  # at most, and one more; two in all are usual


class Exchanges:
    """The chosen features and those others that gain most, with P, W, H, C and σ."""

    def __init__(
        self, G: FloatArray, B: FloatArray, gamma: float, chosen: IntArray, fixed: IntArray
    ) -> None:
        self.G, self.B, self.gamma, self.fixed = G, B, gamma, fixed
        self.inside = S = np.array(chosen)
        self.P = inverse(G[np.ix_(S, S)], gamma)
        self.W = self.P @ B[S]
        N = np.setdiff1d(np.arange(len(B)), S)
        C = B[N] - G[np.ix_(N, S)] @ self.W
        diagonal = G[N, N].astype(np.float64) + gamma
        gains = np.einsum("jr,jr->j", C, C) / diagonal  # as if the chosen explained no feature
        most = np.sort(np.argsort(-gains, kind="stable")[: MOST_GAINING.value])
        self.outside, self.C = N[most], C[most]
        G_NS = G[np.ix_(self.outside, S)].astype(np.float64, copy=False)
        self.H = G_NS @ self.P
        self.sigma = diagonal[most] - np.einsum("ji,ji->j", self.H, G_NS)

    def objective(self, T_norm2: float) -> float:
        """Return J of the features inside."""
        return float(0.5 * (T_norm2 - np.vdot(self.B[self.inside], self.W)))

    def changes(self) -> FloatArray:
        """Return Δ_ij by j and i, for all j outside and i inside."""
        H, C, pivots = self.H, self.C, self.P.diagonal()
        share = H / pivots
        squares = np.einsum("ir,ir->i", self.W, self.W)
        # ‖c_j + h_ji w_i/P_ii‖², j × i
        norms2 = np.einsum("jr,jr->j", C, C)[:, None] + 2 * share * (C @ self.W.T)
        norms2 += share**2 * squares
        changes = squares / (2 * pivots) - norms2 / (2 * (self.sigma[:, None] + H * share))
        changes[:, np.isin(self.inside, self.fixed)] = np.inf
        return np.asarray(changes)

    def best(self) -> tuple[float, int, int]:
        """Return the least Δ_ij, with the positions of i inside and of j outside."""
        changes = self.changes()
        # of equal changes the one of the first columns
        j, i = np.nonzero(changes == changes.min())
        first = np.lexsort((self.outside[j], self.inside[i]))[0]
        return float(changes.min()), int(i[first]), int(j[first])

    def swap(self, i: int, j: int) -> None:
        """Put the feature at position j outside in the place of the one at position i inside."""
        P, W, H, C, sigma = self.P, self.W, self.H, self.C, self.sigma
        p, h = P[i].copy(), H[:, i].copy()  # without i: its row and column become zero
        w = W[i] / p[i]
        subtract_outer(C, h, -w)
        sigma += h**2 / p[i]
        subtract_outer(W, p, w)
        subtract_outer(H, h, p / p[i])
        subtract_outer(P, p, p / p[i])
        P[i], P[:, i], W[i], H[:, i] = 0, 0, 0, 0  # but for rounding
        new, h = self.outside[j], H[j].copy()  # with j
        e = self.G[self.outside, new] - self.G[np.ix_(self.outside, self.inside)] @ h
        pivot, w = sigma[j], C[j] / sigma[j]
        subtract_outer(C, e, w)
        sigma -= e**2 / pivot
        subtract_outer(W, h, w)
        subtract_outer(H, e, h / pivot)
        subtract_outer(P, h, -h / pivot)
        P[i] = P[:, i] = -h / pivot
        P[i, i], W[i], H[:, i] = 1 / pivot, w, e / pivot
        old, self.inside[i] = self.inside[i], new  # which is outside now
        self.outside[j] = old
        row = self.G[old, self.inside].astype(np.float64)
        H[j] = row @ P
        C[j] = self.B[old] - row @ W
        sigma[j] = float(self.G[old, old]) + self.gamma - H[j] @ row

    def improve(self, T_norm2: float) -> int:
        """Make the exchange that gains most, and so on while one gains; return how many."""
        objective = self.objective(T_norm2)
        for count in range(ROUND.value):
            change, i, j = self.best()
            if not change < -LEAST_FALL.value * objective:
                return count
            self.swap(i, j)
            objective += change
        return ROUND.value


def subtract_outer(A: FloatArray, x: FloatArray, y: FloatArray) -> None:
    """Take xyᵀ from A, in place and without an array of its size."""
    blas.dger(-1.0, y, x, a=A.T, overwrite_a=1)


def exchange(
    G: FloatArray,
    B: FloatArray,
    T_norm2: float,
    gamma: float,
    elimination: Elimination,
    m: int,
    kept: IntArray,
) -> Elimination:
    """Exchange features of the choice of m, and order the m by elimination again.

    So the choices of less than m are nested. Those at the positions `kept` stay. The features
    outside follow in the order of the elimination before.
    """
    order = elimination.order
    if not len(kept) < m < len(order):
        return elimination
    exchanges = Exchanges(G, B, gamma, order[:m], kept)
    # the elimination's has the rounding of all removals
    first = exchanges.objective(T_norm2)
    for _ in range(1 + int(ROUNDS_PER_FEATURE.value * m)):
        if not exchanges.improve(T_norm2):
            break
        exchanges = Exchanges(G, B, gamma, exchanges.inside, kept)
    if np.array_equal(exchanges.inside, order[:m]):
        return elimination
    chosen = with_choice(G, B, T_norm2, gamma, elimination, exchanges.inside, kept)
    # what seemed to gain may be rounding
    return elimination if chosen.objectives[m] >= first else chosen


def with_choice(
    G: FloatArray,
    B: FloatArray,
    T_norm2: float,
    gamma: float,
    elimination: Elimination,
    inside: IntArray,
    kept: IntArray,
) -> Elimination:
    """Return the order with the features `inside` first, ordered by elimination again."""
    S = np.sort(inside)
    fixed = np.searchsorted(S, kept)
    of_S = eliminate(G[np.ix_(S, S)], B[S], T_norm2, gamma, removed_last=fixed)
    rest = ~np.isin(elimination.order, S)
    return Elimination(
        np.append(S[of_S.order], elimination.order[rest]),
        np.append(of_S.costs, elimination.costs[rest]),
        {k: J for k, J in elimination.objectives.items() if k > len(S)} | of_S.objectives,
    )
