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

from bigfs.cutting_plane.elimination import Elimination, eliminate, inverse
from bigfs.types import FloatArray, IntArray

LEAST_FALL = 1e-6  # of J: an exchange that gains less is not made
MOST_GAINING = 200  # columns outside that are weighed against all inside, those that gain most
EXCHANGES_PER_FEATURE = 10  # at most; a fifth of one is usual
REFRESH = 100  # exchanges after which rounding is taken out of P, W and H


class Exchanges:
    """The chosen features and the others, with P, W, H, C and σ."""

    def __init__(
        self, G: FloatArray, B: FloatArray, gamma: float, chosen: IntArray, fixed: IntArray
    ) -> None:
        self.G, self.B, self.gamma = G, B, gamma
        self.inside = np.array(chosen)
        self.outside = np.setdiff1d(np.arange(len(B)), chosen)
        self.fixed = fixed
        self.refresh()

    def refresh(self) -> None:
        """Compute everything anew from the features inside."""
        S, N = self.inside, self.outside
        G_NS = self.G[np.ix_(N, S)].astype(np.float64, copy=False)
        self.P = inverse(self.G[np.ix_(S, S)], self.gamma)
        self.W = self.P @ self.B[S]
        self.H = G_NS @ self.P
        self.C = self.B[N] - G_NS @ self.W
        explained = np.einsum("ji,ji->j", self.H, G_NS)
        self.sigma = self.G[N, N].astype(np.float64) + self.gamma - explained

    def objective(self, T_norm2: float) -> float:
        """Return J of the features inside."""
        return float(0.5 * (T_norm2 - np.vdot(self.B[self.inside], self.W)))

    def changes(self) -> tuple[FloatArray, IntArray]:
        """Return Δ_ij by j and i, for the j at these positions outside and all i inside."""
        gains = np.einsum("jr,jr->j", self.C, self.C) / (2 * self.sigma)
        weighed = np.sort(np.argsort(-gains, kind="stable")[:MOST_GAINING])
        H, C, pivots = self.H[weighed], self.C[weighed], self.P.diagonal()
        share = H / pivots
        squares = np.einsum("ir,ir->i", self.W, self.W)
        # ‖c_j + h_ji w_i/P_ii‖², j × i
        norms2 = np.einsum("jr,jr->j", C, C)[:, None] + 2 * share * (C @ self.W.T)
        norms2 += share**2 * squares
        changes = squares / (2 * pivots) - norms2 / (2 * (self.sigma[weighed, None] + H * share))
        changes[:, np.isin(self.inside, self.fixed)] = np.inf
        return changes, weighed

    def best(self) -> tuple[float, int, int]:
        """Return the least Δ_ij, with the positions of i inside and of j outside."""
        changes, weighed = self.changes()
        # of equal changes the one of the first columns
        j, i = np.nonzero(changes == changes.min())
        first = np.lexsort((self.outside[weighed[j]], self.inside[i]))[0]
        return float(changes.min()), int(i[first]), int(weighed[j[first]])

    def swap(self, i: int, j: int) -> None:
        """Put the feature at position j outside in the place of the one at position i inside."""
        P, W, H, C, sigma = self.P, self.W, self.H, self.C, self.sigma
        p, h = P[i].copy(), H[:, i].copy()  # without i: its row and column become zero
        w = W[i] / p[i]
        C += np.outer(h, w)
        sigma += h**2 / p[i]
        W -= np.outer(p, w)
        H -= np.outer(h, p / p[i])
        P -= np.outer(p, p / p[i])
        P[i], P[:, i], W[i], H[:, i] = 0, 0, 0, 0  # but for rounding
        new, h = self.outside[j], H[j].copy()  # with j
        e = self.G[self.outside, new] - self.G[np.ix_(self.outside, self.inside)] @ h
        pivot, w = sigma[j], C[j] / sigma[j]
        C -= np.outer(e, w)
        sigma -= e**2 / pivot
        W -= np.outer(h, w)
        H -= np.outer(e, h / pivot)
        P += np.outer(h, h / pivot)
        P[i] = P[:, i] = -h / pivot
        P[i, i], W[i], H[:, i] = 1 / pivot, w, e / pivot
        old, self.inside[i] = self.inside[i], new  # which is outside now
        self.outside[j] = old
        row = self.G[old, self.inside].astype(np.float64)
        H[j] = row @ P
        C[j] = self.B[old] - row @ W
        sigma[j] = float(self.G[old, old]) + self.gamma - H[j] @ row


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
    order, costs = elimination.order, elimination.costs
    if not len(kept) < m < len(order):
        return elimination
    exchanges = Exchanges(G, B, gamma, order[:m], kept)
    # that of the elimination has the rounding of all removals
    objective = first = exchanges.objective(T_norm2)
    for count in range(1, EXCHANGES_PER_FEATURE * m + 1):
        change, i, j = exchanges.best()
        if not change < -LEAST_FALL * objective:
            break
        exchanges.swap(i, j)
        objective += change
        if count % REFRESH == 0:
            exchanges.refresh()
    if np.array_equal(exchanges.inside, order[:m]):
        return elimination
    S = np.sort(exchanges.inside)
    fixed = np.searchsorted(S, kept)
    of_S = eliminate(G[np.ix_(S, S)], B[S], T_norm2, gamma, removed_last=fixed)
    if of_S.objectives[m] >= first:  # what seemed to gain was rounding
        return elimination
    rest = ~np.isin(order, S)
    return Elimination(
        np.append(S[of_S.order], order[rest]),
        np.append(of_S.costs, costs[rest]),
        {k: J for k, J in elimination.objectives.items() if k > m} | of_S.objectives,
    )
