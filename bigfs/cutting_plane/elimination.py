"""Backward elimination: from the union of the cutting plane's sets to exactly m features.

It works on the problem that the cutting plane relaxes:

    J(S) = min_W ½‖T − Xc[:, S] W‖² + γ/2 ‖W‖²                                  [SparGE, eq. 6]

With P = (G + γI)⁻¹ and W = PB, removing feature j raises J by exactly ‖w_j‖²/(2P_jj). The cheapest
features are removed, a few at a time, by block downdates of P and W, so that the whole elimination
costs about one inverse. Ranking by the ‖w_j‖ of the relaxation would count twice what two features
share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, lapack

from bigfs.constraints import NO_CONSTRAINTS
from bigfs.types import AnyArray, FloatArray, IntArray
from bigfs.validation import explain_singular

STRIP = 128  # rows of the inverse that are made at a time
FOLLOW_SHARE = 0.8  # of the features at which T was last made to follow what is left


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
    follow: Callable[[IntArray, FloatArray, FloatArray], tuple[FloatArray, float]] | None = None,
    removed_last: IntArray = NO_CONSTRAINTS.kept,
) -> Elimination:
    """Remove the features one after another, the cheapest first.

    The first k features of the order are the choice of k features, so the choices are nested.

    Parameters
    ----------
    G, B : ndarray of shape (u, u) and (u, r)
        Products of the columns with each other and with T.
    T_norm2 : float
        ‖T‖².
    gamma : float
        Ridge penalty γ.
    pauses : tuple of int, default=()
        Sizes of the set that no step may pass over, so that `objectives` has them.
    rate : float, default=0.05
        Share of the remaining features that is removed per step, at least one feature.
    follow : callable or None, default=None
        Called as ``follow(remaining, P, W)`` at the pauses, and whenever a fifth of the features is
        gone. It returns the weights of the remaining features and J, where T depends on them. None
        is for a fixed T.
    removed_last : ndarray of int, default=empty
        Positions of the columns that stay until no others are left.

    Returns
    -------
    Elimination
        The order of the features.
    """
    remaining = np.arange(len(B))
    P = _inverse(G, gamma)
    W = P @ B
    removed: list[IntArray] = []
    removed_costs: list[FloatArray] = []
    objectives: dict[int, float] = {}
    followed = np.inf
    while len(remaining):
        size = len(remaining)
        if follow is None:
            objectives[size] = float(0.5 * (T_norm2 - np.vdot(B[remaining], W)))
        elif size in pauses or size <= FOLLOW_SHARE * followed:
            W, objectives[size] = follow(remaining, P, W)
            followed = size
        costs = np.einsum("jr,jr->j", W, W) / (2 * np.diag(P))
        next_pause = max((k for k in pauses if k < size), default=0)
        count = min(max(1, int(rate * size)), size - next_pause)
        stays = np.isin(remaining, removed_last)
        count = min(count, int(np.count_nonzero(~stays)) or size)
        cheapest_first = np.lexsort((costs, stays))
        out, kept = cheapest_first[:count], np.sort(cheapest_first[count:])
        removed.append(remaining[out])
        removed_costs.append(costs[out])
        right = np.linalg.solve(P[np.ix_(out, out)], np.hstack([P[np.ix_(out, kept)], W[out]]))
        left = P[np.ix_(kept, out)]
        P = _downdated(P, kept, left, right[:, : len(kept)])
        W = W[kept] - left @ right[:, len(kept) :]
        remaining = remaining[kept]
    return Elimination(
        np.concatenate(removed)[::-1], np.concatenate(removed_costs)[::-1], objectives
    )


def _downdated(P: FloatArray, kept: IntArray, left: FloatArray, right: AnyArray) -> FloatArray:
    """Return P over the kept positions less `left @ right`, in the memory of P."""
    k = len(kept)
    for first in range(0, k, STRIP):  # no row is written before it is read, because kept[i] ≥ i
        strip = slice(first, min(first + STRIP, k))
        P[strip, :k] = P[np.ix_(kept[strip], kept)] - left[strip] @ right
    return P[:k, :k]


def _inverse(G: FloatArray, gamma: float) -> FloatArray:
    """Return (G + γI)⁻¹: its diagonal is needed. One array of the size of G is made."""
    K = np.array(G)
    K.flat[:: len(K) + 1] += gamma
    with explain_singular("SparGE's ridge system"):
        lower, _ = cho_factor(K.T, lower=True, overwrite_a=True, check_finite=False)
    inverse, info = lapack.dpotri(lower, lower=1, overwrite_c=1)
    if info:
        raise np.linalg.LinAlgError(f"the matrix of {len(K)} features is singular: raise gamma")
    P: FloatArray = inverse.T  # by rows, as K was; LAPACK leaves the other triangle as it was
    for first in range(0, len(P), STRIP):
        last = min(first + STRIP, len(P))
        P[first:last, :first] = P[:first, first:last].T
        square = np.triu(P[first:last, first:last])
        P[first:last, first:last] = square + np.triu(square, 1).T
    return P
