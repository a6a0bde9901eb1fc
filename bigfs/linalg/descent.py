"""Coordinate descent for two sparse regressions.

    ½‖T − ZW‖² + λ Σ_j ‖w_j‖₂,      G = ZᵀZ (u × u),  B = ZᵀT (u × r)

needs the products G and B alone. With R = B − GW, the minimum over one row is
w_j = (z/G_jj)(1 − λ/‖z‖)₊ with z = R_j + G_jj w_j. With r = 1 it is the lasso.

    ½ Σ_ik max(0, 1 − y_ik(w_k·z_i + b_k))² + λ Σ_j ‖w_j‖₂

goes by columns. A row takes a proximal Newton step, with the largest curvature of its targets for
all of them, and a line search [Blondel, Seki, Uehara, Machine Learning 2013]. With r = 1 it is the
step of LIBLINEAR [Yuan, Chang, Hsieh, Lin, JMLR 2010, section 4.1].
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigfs.types import FloatArray, IntArray

ACTIVE_SWEEPS = 10  # sweeps over the rows with a weight between two over all rows
SUFFICIENT = 0.01  # share of the predicted decrease that a step of the squared hinge must reach
HALVINGS = 30  # of such a step


@njit(nogil=True, cache=True)
def duality_gap(
    norm2: float, a: float, penalty: float, lam: float, largest_correlation: float
) -> float:
    """Return the relative duality gap of weights whose residual V gives a lower bound.

    Any multiple sV with ‖z_jᵀ(sV)‖ ≤ λ for all j bounds the optimum from below by
    s⟨V, T⟩ − s²‖V‖²/2. `norm2` is ‖V‖², `a` is ⟨V, T⟩, `penalty` is Σ_j ‖w_j‖, and
    `largest_correlation` is max_j ‖z_jᵀV‖.
    """
    primal = norm2 / 2 + lam * penalty
    if primal <= 0:
        return 0.0
    s = a / norm2 if norm2 > 0 else 0.0
    if largest_correlation > 0:
        s = min(s, lam / largest_correlation)
    s = max(s, 0.0)
    return (primal - s * a + s**2 * norm2 / 2) / primal


@njit(nogil=True, cache=True)
def _sweep(G: FloatArray, R: FloatArray, W: FloatArray, lam: float, active: bool) -> float:
    """Minimize over each row in turn, and return the largest change relative to the largest weight.

    `active` leaves out the rows without a weight. W and R are changed in place.
    """
    u, r = W.shape
    z = np.empty(r)
    largest, most = 0.0, 0.0
    for j in range(u):
        if G[j, j] <= 0:
            continue
        if active:
            weight = 0.0
            for k in range(r):
                weight += abs(W[j, k])
            if weight == 0:
                continue
        norm2 = 0.0
        for k in range(r):
            z[k] = R[j, k] + G[j, j] * W[j, k]
            norm2 += z[k] ** 2
        shrink = max(1 - lam / np.sqrt(norm2), 0.0) if norm2 > 0 else 0.0
        change = 0.0
        for k in range(r):
            z[k] = shrink * z[k] / G[j, j] - W[j, k]
            change = max(change, abs(z[k]))
            W[j, k] += z[k]
            largest = max(largest, abs(W[j, k]))
        if change > 0:
            most = max(most, change)
            for i in range(u):
                for k in range(r):
                    R[i, k] -= G[j, i] * z[k]  # G is symmetric: one row of it
    return most / largest if largest > 0 else 0.0


@njit(nogil=True, cache=True)
def descend(
    G: FloatArray,
    B: FloatArray,
    W: FloatArray,
    T_norm2: float,
    lam: float,
    tol: float,
    max_sweeps: int,
) -> FloatArray:
    """Return weights whose relative duality gap over these columns is at most `tol`.

    They start at W. A column with a zero diagonal in G gets no weight. After `max_sweeps` sweeps
    over all rows the weights are returned as they are. There may be no columns.
    """
    W = W.copy()
    if len(W) == 0:
        return W
    R = B - G @ W
    for _ in range(max_sweeps):
        _sweep(G, R, W, lam, False)
        for _ in range(ACTIVE_SWEEPS):
            if _sweep(G, R, W, lam, True) <= tol * 1e-3:
                break
        a = T_norm2 - np.sum(B * W)
        norm2 = a - np.sum(W * R)
        penalty = np.sqrt(np.sum(W**2, axis=1)).sum()
        largest = np.sqrt(np.sum(R**2, axis=1).max())
        if duality_gap(norm2, a, penalty, lam, largest) <= tol:
            break
    return W


@njit(nogil=True, cache=True)
def _length(w: FloatArray, step: FloatArray, t: float) -> float:
    """Return ‖w + t step‖. `step` is not read if t is zero."""
    norm2 = 0.0
    for k in range(len(w)):
        norm2 += (w[k] + t * step[k] if t != 0 else w[k]) ** 2
    return float(np.sqrt(norm2))


@njit(nogil=True, cache=True)
def descend_hinge(
    indptr: IntArray,
    rows: IntArray,
    values: FloatArray,
    Y: FloatArray,
    slack: FloatArray,
    W: FloatArray,
    lam: float,
    sweeps: int,
) -> None:
    """Sweep over the columns and the intercepts of squared hinge losses, with targets Y of ±1.

    Z is given by columns. W (u × r) and the slack 1 − Y ⊙ (ZW + 1bᵀ) are changed in place. All
    sweeps but the first leave out the columns without a weight.
    """
    u, r = W.shape
    slope, curvature, step = np.empty(r), np.empty(r), np.empty(r)
    for sweep in range(sweeps):
        for j in range(u):
            length = _length(W[j], step, 0.0)
            if sweep > 0 and length == 0:
                continue
            slope[:] = 0.0
            curvature[:] = 0.0
            for p in range(indptr[j], indptr[j + 1]):
                for k in range(r):
                    if slack[rows[p], k] > 0:
                        slope[k] -= Y[rows[p], k] * values[p] * slack[rows[p], k]
                        curvature[k] += values[p] ** 2
            bound = curvature.max()
            shrink = 0.0
            if bound > 0:
                norm = _length(W[j], slope, -1 / bound)
                shrink = max(1 - lam / (bound * norm), 0.0) if norm > 0 else 0.0
            predicted, largest = 0.0, 0.0
            for k in range(r):
                step[k] = -W[j, k]
                if shrink > 0:
                    step[k] += shrink * (W[j, k] - slope[k] / bound)
                predicted += slope[k] * step[k]
                largest = max(largest, abs(step[k]))
            if largest == 0:
                continue
            predicted += lam * (_length(W[j], step, 1.0) - length)
            for _ in range(HALVINGS):
                change = lam * (_length(W[j], step, 1.0) - length)
                for p in range(indptr[j], indptr[j + 1]):
                    for k in range(r):
                        before = slack[rows[p], k]
                        after = max(before - Y[rows[p], k] * values[p] * step[k], 0.0)
                        before = max(before, 0.0)
                        change += (after - before) * (after + before) / 2
                if change <= SUFFICIENT * predicted:
                    for k in range(r):
                        W[j, k] += step[k]
                    for p in range(indptr[j], indptr[j + 1]):
                        for k in range(r):
                            slack[rows[p], k] -= Y[rows[p], k] * values[p] * step[k]
                    break
                for k in range(r):
                    step[k] /= 2
                predicted /= 2
        for k in range(r):  # a Newton step of the intercept
            total, count = 0.0, 0
            for i in range(len(Y)):
                if slack[i, k] > 0:
                    total += Y[i, k] * slack[i, k]
                    count += 1
            if count > 0:
                for i in range(len(Y)):
                    slack[i, k] -= Y[i, k] * total / count
