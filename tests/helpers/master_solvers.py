"""Two more solvers of the restricted master, which newton is checked against, and the objective of
a set of features.

simplex   the fixed point η_t ∝ ‖Ωᵗ‖
apg       accelerated proximal gradient on Ω itself, the paper's
"""

import numpy as np

from bigfs.cutting_plane.newton import MasterSolution, _simplex_gap
from bigfs.cutting_plane.restricted_master import MASTER_TOL, coverage, ridge_at, set_sums, times

CHECK_EVERY = 20  # iterations of apg between two certificates
EIGENVALUE_MARGIN = 1.05  # over the power iteration's estimate, which is from below


def dense_objective(X, T, gamma, features):
    """Return J(S), of the ridge regression of T on the features alone."""
    Z = X[:, features]
    W = np.linalg.solve(Z.T @ Z + gamma * np.eye(len(features)), Z.T @ T)
    return 0.5 * np.sum((T - Z @ W) ** 2) + gamma / 2 * np.sum(W**2)


def simplex(master, eta, tol=MASTER_TOL, max_iter=2000):
    """Iterate to the fixed point η_t ∝ ‖Ωᵗ‖ with Ωᵗ_j = (η_t/d_j) w_j.

    A weight of zero stays zero, so the start is moved inside the simplex.
    """
    eta = np.maximum(eta, 1e-3 / len(eta))
    eta = eta / eta.sum()
    for n_iter in range(max_iter):  # noqa: B007  (its last value is reported)
        current = ridge_at(master, eta)
        if _simplex_gap(current.gradient, eta) <= tol * current.value:
            break
        # ‖Ωᵗ‖ = (η_t/γ) ‖C_t‖, because γ w_j / d_j = x_jᵀV
        norms = eta * np.sqrt(set_sums(master.sets, current.C))
        eta = norms / norms.sum()
    lower = current.value - _simplex_gap(current.gradient, eta)
    return MasterSolution(eta, current.W, current.value, lower, n_iter, current.factor)


def apg(master, eta, tol=MASTER_TOL, max_iter=20000):
    """SparGE, Alg. 3: momentum with restart, step from the largest eigenvalue of the sets' Gram."""
    G, B, _, gamma, sets = master
    u = len(B)
    members = np.concatenate(sets)
    set_of_row = np.repeat(np.arange(len(sets)), [len(s) for s in sets])
    tau = _largest_eigenvalue(G, np.bincount(members, minlength=u).astype(float))
    inside = np.maximum(eta, 1e-6)
    first = ridge_at(master, inside / inside.sum())
    Omega = _split(first.W, coverage(sets, eta, u), sets, eta)
    extrapolated, momentum = Omega, 1.0
    upper, lower = np.inf, -np.inf

    def proximal_step(point):
        moved = point - (times(G, _join(point, members, u)) - B)[members] / tau
        shrinkage = shrink_squared_sum(_block_norms(moved, set_of_row), gamma / tau)
        return moved * shrinkage[set_of_row][:, None]

    for n_iter in range(max_iter):
        if n_iter % CHECK_EVERY == 0:
            upper, lower = _bounds(master, Omega, _join(Omega, members, u), set_of_row)
            if upper - lower <= tol * upper:
                break
        new = proximal_step(extrapolated)
        if np.vdot(extrapolated - new, new - Omega) > 0:  # the momentum points uphill: restart it
            momentum, new = 1.0, proximal_step(Omega)
        next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        extrapolated = new + (momentum - 1) / next_momentum * (new - Omega)
        Omega, momentum = new, next_momentum
    norms = _block_norms(Omega, set_of_row)
    eta = norms / norms.sum() if norms.any() else np.full(len(sets), 1 / len(sets))
    return MasterSolution(eta, _join(Omega, members, u), upper, lower, n_iter, first.factor)


def _bounds(master, Omega, W, set_of_row):
    """Return the master's value at Ω, and the bound a²/(2b) that the residual V gives."""
    G, B, T_norm2, gamma, sets = master
    GW, BW = times(G, W), np.vdot(B, W)
    V_norm2, a = T_norm2 - 2 * BW + np.vdot(W, GW), T_norm2 - BW
    norms = _block_norms(Omega, set_of_row)
    b = V_norm2 + set_sums(sets, B - GW).max() / gamma
    return 0.5 * V_norm2 + 0.5 * gamma * norms.sum() ** 2, a**2 / (2 * b)


def _largest_eigenvalue(G, copies):
    """Bound λ_max of the Gram of all sets side by side, column j of X in `copies[j]` of them.

    It is that of diag(copies)^½ G diag(copies)^½.
    """
    root = np.sqrt(copies)
    v = root / np.linalg.norm(root)
    for _ in range(100):
        w = root * times(G, root * v)
        size = np.linalg.norm(w)
        if size == 0:
            return 1.0
        v = w / size
    return float(EIGENVALUE_MARGIN * size)


def _block_norms(Omega, set_of_row):
    """Return ‖Ωᵗ‖_F of each block."""
    return np.sqrt(np.bincount(set_of_row, weights=np.einsum("jr,jr->j", Omega, Omega)))


def _join(Omega, members, u):
    """Return W = Σ_t Ωᵗ (u × r)."""
    W = np.zeros((u, Omega.shape[1]))
    np.add.at(W, members, Omega)
    return W


def _split(W, d, sets, eta):
    """Return the blocks Ωᵗ_j = (η_t/d_j) w_j, one below the other."""
    d = np.where(d > 0, d, 1)
    return np.concatenate([eta[t] / d[s][:, None] * W[s] for t, s in enumerate(sets)])


def shrink_squared_sum(u, s):
    """Return the factors in [0, 1] by which the prox of (s/2)(Σ_t ‖Ωᵗ‖)² shrinks its blocks.

    SparGE, Alg. 3, corrected: with the norms u of the blocks sorted descending,
    ρ = max{t : u_(t) − s/(1+ts) Σ_{i≤t} u_(i) > 0} and ς = s/(1+ρs) Σ_{i≤ρ} u_(i). Block t shrinks
    by (1 − ς/u_t)₊.
    """
    descending = -np.sort(-u)
    sums = np.cumsum(descending)
    counts = np.arange(1, len(u) + 1)
    positive = descending - s / (1 + counts * s) * sums > 0
    if not positive.any():
        return np.zeros_like(u)
    rho = np.flatnonzero(positive)[-1]
    threshold = s / (1 + (rho + 1) * s) * sums[rho]
    return np.maximum(1 - threshold / np.where(u > 0, u, np.inf), 0) * (u > 0)
