"""The relaxation of a node of the tree: some features are in, some are out, the others are free.

    J(d) = ½‖T‖² − ½ tr(BᵀW),   W = D½ (I + D½ G D½)⁻¹ D½ B,   0 ≤ d ≤ 1,  Σ d = m

Here the columns are divided by √γ, so that the penalty is one. The features in have d = 1 and those
out d = 0. With C = B − GW and s_j = ‖c_j‖², any d bounds every choice of the node from below by the
a²/(2b) of `bigfs.cutting_plane.loop`.

J is convex, and ∂J/∂d_j = −s_j/2. The multiplicative rule d_j ← min(1, λ d_j ‖c_j‖), with λ such
that Σ d = m, minimizes a majorant of J, so that J never rises. Every third step is extrapolated
[Varadhan and Roland 2008]. The search for a bound ends as soon as it reaches the cutoff, or is near
the least J while that is below the cutoff.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigfs.types import FloatArray, IntArray

IN, OUT = 2.0, -1.0  # the d of a decided feature
ENTERS = 0.02  # the d of a feature without weight that is among the largest scores
FARTHEST = 3.0  # change of a logarithm by an extrapolation
LEAST_ROUNDS, NEAR = 8, 0.1  # after which the search ends at this share of the way to the cutoff
ENOUGH = 1e-9  # relative gap at which the search ends
LEAST = 1e-5  # a smaller d is zero
# how many, the weights, those one round before, and the best bound with its a, b and scores
Rounds = tuple[int, FloatArray, FloatArray, float, float, float, FloatArray]


def no_rounds(d: FloatArray) -> Rounds:
    """Return the rounds of a node before the first one."""
    weight = np.where(d == IN, 1.0, np.maximum(d, 0.0))
    return 0, weight, weight.copy(), 0.0, 0.0, 1.0, np.zeros(len(d))


@njit(nogil=True, cache=True)
def node_bound(
    held: tuple[FloatArray, IntArray],
    B: FloatArray,
    T_norm2: float,
    d: FloatArray,
    m: int,
    cutoff: float,
    most: int,
    begun: Rounds,
) -> tuple[Rounds, IntArray]:
    """Return the rounds with the best bound of the node. `d` becomes the last weights.

    Held are rows of G (u × u) and the position of each feature's row among them. B is r × u, and d
    (u,) holds IN and OUT. It ends after `most` rounds, or where the bound reaches the cutoff or
    never will. If a row is not held (position −1) it returns the features whose rows it needs, and
    can go on from the rounds `begun`.
    """
    u, r = len(d), len(B)
    is_in, free = d == IN, np.flatnonzero((d != IN) & (d != OUT))
    k = m - int(is_in.sum())
    rows_of_G, position = held
    begin, weight, older, lower, best_a, best_b, best_s = begun
    for n in range(begin, most):
        active = np.flatnonzero(weight > 0)
        if (position[active] < 0).any():
            return (n, weight, older, lower, best_a, best_b, best_s), active
        root = np.sqrt(weight[active])
        rows = rows_of_G[position[active]]
        K, rhs = np.empty((len(active), len(active))), np.empty((len(active), r))
        for i in range(len(active)):
            for j in range(len(active)):
                K[i, j] = root[i] * rows[i, active[j]] * root[j]
            K[i, i] += 1.0
            for c in range(r):
                rhs[i, c] = root[i] * B[c, active[i]]
        solved = np.linalg.solve(K, rhs)
        W = np.empty((r, len(active)))
        explained, penalty = 0.0, 0.0
        for i in range(len(active)):
            for c in range(r):
                W[c, i] = root[i] * solved[i, c]
                explained += rhs[i, c] * solved[i, c]
                penalty += solved[i, c] ** 2
        C = B - np.dot(W, rows)
        s = np.zeros(u)
        for c in range(r):
            s += C[c] ** 2
        a = T_norm2 - explained  # tr(VᵀT)
        value = a / 2
        of_free = np.sort(s[free])[::-1]
        b = a - penalty + s[is_in].sum() + of_free[:k].sum()  # ‖V‖² = a − ‖W‖²/d
        if a * a / (2 * b) > lower:
            best_a, best_b, lower, best_s = a, b, a * a / (2 * b), s
        if lower >= cutoff or k == 0 or value - lower <= ENOUGH * value:
            break
        if value < cutoff and n >= LEAST_ROUNDS and value - lower <= NEAR * (cutoff - lower):
            break
        least = of_free[k - 1]
        q = np.zeros(u)
        for f in free:
            enters = weight[f] == 0 and s[f] >= least
            q[f] = (ENTERS if enters else weight[f]) * np.sqrt(s[f])
        fill(q, free, k)
        if n % 3 == 2:
            extrapolate(older, weight, q, free, k)
        older = weight.copy()
        for f in free:
            weight[f] = q[f] if q[f] > LEAST else 0.0
    for f in free:
        d[f] = weight[f]
    return (most, weight, older, lower, best_a, best_b, best_s), free[:0]


@njit(nogil=True, cache=True)
def extrapolate(older: FloatArray, old: FloatArray, q: FloatArray, free: IntArray, k: int) -> None:
    """Move q on by squared extrapolation of the logarithms of three iterates."""
    step, bend = np.zeros(len(q)), np.zeros(len(q))
    for j in free:
        if min(older[j], old[j], q[j]) > 0:
            step[j] = np.log(old[j] / older[j])
            bend[j] = np.log(q[j] / old[j]) - step[j]
    curvature = (bend**2).sum()
    if curvature <= 0:
        return
    length = max(np.sqrt((step**2).sum() / curvature), 1.0)
    for j in free:
        if step[j] != 0:
            moved = 2 * length * step[j] + length**2 * bend[j]
            q[j] = older[j] * np.exp(min(max(moved, -FARTHEST), FARTHEST))
    fill(q, free, k)


@njit(nogil=True, cache=True)
def fill(q: FloatArray, free: IntArray, k: int) -> None:
    """Scale the free q to the sum k, each to one at most."""
    order = free[np.argsort(-q[free])]
    rest = q[free].sum()
    left = float(k)
    for p in range(len(order)):
        j = order[p]
        if rest <= 0 or q[j] * left < rest:
            scale = left / rest if rest > 0 else 0.0
            for t in range(p, len(order)):
                q[order[t]] *= scale
            return
        rest -= q[j]
        q[j] = 1.0
        left -= 1.0
