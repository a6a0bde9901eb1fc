"""The restricted master of a cutting plane, in Gram form: no step touches the n samples.

    min_Ω  γ/2 (Σ_t ‖Ωᵗ‖_F)² + ½ ‖T − Σ_t Xc[:, pᵗ] Ωᵗ‖²                       [SparGE, eq. 11]

With G = XcᵤᵀXcᵤ and B = XcᵤᵀT over the u distinct gathered columns, and since
(Σ‖Ωᵗ‖)² = min over η on the simplex of Σ‖Ωᵗ‖²/η_t, it equals the minimum over η of

    J(η) = min_W ½‖T − XcᵤW‖² + γ/2 Σ_j ‖w_j‖²/d_j,      d_j = Σ_{t∋j} η_t:

one ridge problem, convex and smooth in the few η. Three solvers, checked against one another:
`newton` on J, `simplex` its fixed point η_t ∝ ‖Ωᵗ‖, and `apg`, the paper's, on Ω itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from bigfs.linalg.prox import shrink_squared_sum
from bigfs.types import AnyArray, FloatArray, IntArray
from bigfs.validation import explain_singular

SETTLED = 1e-9  # of the value: where the certificate's own rounding begins
SINGLE = 512  # columns from which a factor in single precision saves more than its refinement costs
EASY = 1e4  # condition of K up to which each refinement of it gains two digits or more


class Master(NamedTuple):
    """G (u × u), B (u × r), ‖T‖², γ, and each set's positions among the u columns."""

    G: FloatArray
    B: FloatArray
    tt: float
    gamma: float
    sets: tuple[IntArray, ...]


class Factor(NamedTuple):
    """A Cholesky factor of K = I + RGR, R = (D/γ)^½, over the columns `alive`, where d > 0; in
    single or double precision.
    """

    alive: IntArray
    d: FloatArray
    root: FloatArray
    lower: AnyArray


class Solution(NamedTuple):
    """η (κ), W = Σ_t Ωᵗ (u × r), the value, a lower bound of it, the iterations spent, and the last
    factor.
    """

    eta: FloatArray
    W: FloatArray
    value: float
    lower: float
    n_iter: int
    factor: Factor

    @property
    def gap(self) -> float:
        return (self.value - self.lower) / max(abs(self.value), np.finfo(float).tiny)


class Ridge(NamedTuple):
    """The ridge problem at one η: W, C = XcᵤᵀV at the residual V, J, ∇J, and its factor."""

    W: FloatArray
    C: FloatArray
    value: float
    gradient: FloatArray
    factor: Factor


def solve(
    master: Master,
    eta: FloatArray,
    method: str = "auto",
    tol: float = SETTLED,
    factor: Factor | None = None,
    W: FloatArray | None = None,
) -> Solution:
    """Minimize the master from `eta` until its own relative duality gap is `tol`.

    `method`: "newton" (a handful of Cholesky factorizations of u columns), "simplex" (linear
    convergence, the same factorizations), "apg" (products only; slow where sets overlap). "auto" is
    newton, the fastest of the three wherever it was measured. A new set enters newton at weight
    zero, where W and the `factor` of the solution before still hold and save one factorization.
    """
    if method in ("auto", "newton"):
        return newton(master, eta, tol, factor, W)
    return {"simplex": simplex, "apg": apg}[method](master, eta, tol)


# --- the reduced function of η ------------------------------------------------------------------


def ridge(
    master: Master,
    eta: FloatArray,
    tol: float = SETTLED,
    factor: Factor | None = None,
    W: FloatArray | None = None,
) -> Ridge:
    """J(η) and its gradient −(1/2γ) Σ_{j∈t} ‖x_jᵀV‖², from one Cholesky factorization, or a
    `factor` that fits.

    W, started from the one given, is exact enough for a master that is solved to `tol`; J is that
    of W, so never below the minimum.
    """
    G, B, tt, gamma, sets = master
    d = _coverage(sets, eta, len(B))
    alive = np.flatnonzero(d > 0)
    if (
        factor is None
        or not np.array_equal(factor.d, d[alive])
        or not np.array_equal(factor.alive, alive)
    ):
        factor = _factorize(G, d, alive, gamma)
    W, GW, explained = _solve(
        factor, G, B, np.zeros_like(B) if W is None else W, 1e-3 * min(tol, 1e-2)
    )
    C = B - GW
    return Ridge(W, C, 0.5 * (tt - explained), -_set_sums(sets, C) / (2 * gamma), factor)


def _factorize(G: FloatArray, d: FloatArray, alive: IntArray, gamma: float) -> Factor:
    """In single precision, twice as fast, where that pays and K's condition allows `_solve` to
    refine from it.
    """
    root = np.sqrt(d[alive] / gamma)
    G = G if len(alive) == len(G) else G[np.ix_(alive, alive)]
    K = _system(G, root, np.float32 if len(alive) >= SINGLE else np.float64)
    # Frobenius: above the largest eigenvalue; the least is 1
    if K.dtype == np.float32 and np.linalg.norm(K) > EASY:
        K = _system(G, root, np.float64)
    with explain_singular("SparGE's ridge system"):
        return Factor(
            alive,
            d[alive],
            root[:, None],
            cho_factor(K.T, lower=True, overwrite_a=True, check_finite=False)[0],
        )


def _system(G: FloatArray, root: FloatArray, dtype: Any) -> AnyArray:
    K = np.empty(G.shape, dtype)
    np.multiply(G, root, out=K, casting="same_kind")
    K *= root[:, None].astype(dtype)
    K[np.diag_indices_from(K)] += 1
    return K


def _solve(
    factor: Factor, G: FloatArray, B: FloatArray, W: FloatArray, accuracy: float
) -> tuple[FloatArray, FloatArray, float]:
    """W = RK⁻¹RB refined until K's residual, in double precision, is within `accuracy`; GW; and
    ‖T‖² − 2J at W.
    """
    alive, _, root, lower = factor
    target = root * B[alive]
    w, GW, before = W[alive] / root, G @ W if W.any() else W, np.inf
    while True:
        left = target - w - root * GW[alive]
        size = float(np.linalg.norm(left))
        if size <= accuracy * np.linalg.norm(target) or size > before / 2:
            return W, GW, float(np.vdot(target, w) + np.vdot(left, w))
        w, W, before = (
            w + cho_solve((lower, True), left.astype(lower.dtype), check_finite=False),
            np.zeros_like(B),
            size,
        )
        W[alive] = root * w
        GW = G @ W


def _hessian(master: Master, at: Ridge) -> FloatArray:
    """∂²J/∂η_t∂η_t' = tr(R_tᵀ M R_t')/γ², M = XcᵤᵀK⁻¹Xcᵤ and R_t the rows of C in set t."""
    G, B, _, gamma, sets = master
    R = np.zeros((len(B), len(sets), B.shape[1]))
    for t, members in enumerate(sets):
        R[members, t] = at.C[members]
    side_by_side = R.reshape(len(B), -1)
    GR = G @ side_by_side
    alive, _, root, lower = at.factor
    F = solve_triangular(
        lower, (root * GR[alive]).astype(lower.dtype), lower=True, check_finite=False
    )
    blocks = side_by_side.T @ GR - F.T @ F
    r = B.shape[1]
    return np.einsum("tjsj->ts", blocks.reshape(len(sets), r, len(sets), r)) / gamma**2


def newton(
    master: Master,
    eta: FloatArray,
    tol: float = SETTLED,
    factor: Factor | None = None,
    W: FloatArray | None = None,
    max_iter: int = 100,
) -> Solution:
    """Projected Newton: each step minimizes the quadratic model on the simplex, then backtracks."""
    at = ridge(master, eta, tol, factor, W)
    for n_iter in range(max_iter):
        gap = _simplex_gap(at.gradient, eta)
        if gap <= tol * at.value or n_iter == max_iter - 1:
            break
        direction = _quadratic_on_simplex(_hessian(master, at), at.gradient, eta) - eta
        slope, length = at.gradient @ direction, 1.0
        while length > 1e-10:
            trial = np.maximum(eta + length * direction, 0)
            there = ridge(master, trial / trial.sum(), tol)
            if there.value <= at.value + 1e-4 * length * slope:
                break
            length /= 2
        if there.value >= at.value:  # nothing left to gain in floating point
            break
        eta, at = trial / trial.sum(), there
    return Solution(
        eta, at.W, at.value, at.value - _simplex_gap(at.gradient, eta), n_iter, at.factor
    )


def simplex(
    master: Master, eta: FloatArray, tol: float = SETTLED, max_iter: int = 2000
) -> Solution:
    """The fixed point η_t ∝ ‖Ωᵗ‖ with Ωᵗ_j = (η_t/d_j) w_j.

    Zeros stay zero, so it starts inside.
    """
    eta = np.maximum(eta, 1e-3 / len(eta))
    eta = eta / eta.sum()
    for n_iter in range(max_iter):  # noqa: B007  (reported below)
        at = ridge(master, eta)
        if _simplex_gap(at.gradient, eta) <= tol * at.value:
            break
        # ‖Ωᵗ‖ = (η_t/γ) ‖C_t‖, because γ w_j / d_j = x_jᵀV
        norms = eta * np.sqrt(_set_sums(master.sets, at.C))
        eta = norms / norms.sum()
    return Solution(
        eta, at.W, at.value, at.value - _simplex_gap(at.gradient, eta), n_iter, at.factor
    )


def _simplex_gap(gradient: FloatArray, eta: FloatArray) -> float:
    """⟨∇J, η⟩ − min_t ∇J_t: bounds J(η) − min J, since J is convex."""
    return float(gradient @ eta - gradient.min())


def _quadratic_on_simplex(H: FloatArray, g: FloatArray, eta: FloatArray) -> FloatArray:
    """argmin over the simplex of gᵀz + ½ zᵀHz with z = x − η, by an active-set method."""
    k = len(g)
    H = H + np.eye(k) * (1e-12 * np.trace(H) / k + np.finfo(float).tiny)
    linear = g - H @ eta
    free = eta > 0
    x = np.where(free, eta, 0)
    for _ in range(50 * k):
        f = np.flatnonzero(free)
        kkt = np.block(
            [[H[np.ix_(f, f)], np.ones((len(f), 1))], [np.ones((1, len(f))), np.zeros((1, 1))]]
        )
        target = np.linalg.solve(kkt, np.append(-linear[f], 1.0))
        new, multiplier = target[:-1], -target[-1]
        if new.min() < 0:  # go as far as the simplex allows and fix what hits zero
            falling = new < x[f]
            reach = np.min(x[f][falling & (new < 0)] / (x[f] - new)[falling & (new < 0)])
            x[f] = np.maximum(x[f] + reach * (new - x[f]), 0)
            free[f[(new < 0) & (x[f] <= 1e-15)]] = False
            continue
        x[:] = 0
        x[f] = new
        slack = linear + H @ x - multiplier
        slack[free] = 0
        if slack.min() >= -1e-12 * (1 + abs(multiplier)):
            break
        free[np.argmin(slack)] = True
    return x / x.sum()


# --- the paper's: accelerated proximal gradient on the blocks Ωᵗ ---------------------------------


def apg(master: Master, eta: FloatArray, tol: float = SETTLED, max_iter: int = 20000) -> Solution:
    """SparGE, Alg. 3: momentum with restart, step from the largest eigenvalue of the sets' Gram."""
    G, B, _, gamma, sets = master
    u = len(B)
    members = np.concatenate(sets)
    owner = np.repeat(np.arange(len(sets)), [len(s) for s in sets])
    tau = _largest_eigenvalue(G, np.bincount(members, minlength=u).astype(float))
    at = ridge(master, np.maximum(eta, 1e-6) / np.maximum(eta, 1e-6).sum())
    Omega = _split(at.W, _coverage(sets, eta, u), sets, eta)
    ahead, momentum, best = Omega, 1.0, (np.inf, -np.inf)

    def proximal_step(point: FloatArray) -> FloatArray:
        moved = point - (G @ _join(point, members, u) - B)[members] / tau
        return moved * shrink_squared_sum(_norms(moved, owner), gamma / tau)[owner][:, None]

    for n_iter in range(max_iter):
        if n_iter % 20 == 0:
            best = _bounds(master, Omega, _join(Omega, members, u), owner)
            if best[0] - best[1] <= tol * best[0]:
                break
        new = proximal_step(ahead)
        if np.vdot(ahead - new, new - Omega) > 0:  # the momentum points uphill: restart it
            momentum, new = 1.0, proximal_step(Omega)
        faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / faster * (new - Omega)
        Omega, momentum = new, faster
    weight = _norms(Omega, owner)
    eta = weight / weight.sum() if weight.any() else np.full(len(sets), 1 / len(sets))
    return Solution(eta, _join(Omega, members, u), best[0], best[1], n_iter, at.factor)


def _bounds(
    master: Master, Omega: FloatArray, W: FloatArray, owner: IntArray
) -> tuple[float, float]:
    """The master's value at Ω, and the bound a²/(2b) that the residual V gives."""
    G, B, tt, gamma, sets = master
    GW, BW = G @ W, np.vdot(B, W)
    vv, a = tt - 2 * BW + np.vdot(W, GW), tt - BW
    norms = _norms(Omega, owner)
    b = vv + _set_sums(sets, B - GW).max() / gamma
    return 0.5 * vv + 0.5 * gamma * norms.sum() ** 2, a**2 / (2 * b)


def _largest_eigenvalue(G: FloatArray, copies: FloatArray) -> float:
    """λ_max of the Gram of the sets side by side = of diag(copies)^½ G diag(copies)^½; a bound
    above.
    """
    root = np.sqrt(copies)
    v = root / np.linalg.norm(root)
    for _ in range(100):
        w = root * (G @ (root * v))
        size = np.linalg.norm(w)
        if size == 0:
            return 1.0
        v = w / size
    return float(1.05 * size)


def _norms(Omega: FloatArray, owner: IntArray) -> FloatArray:
    """‖Ωᵗ‖_F of each block."""
    return np.sqrt(np.bincount(owner, weights=np.einsum("jr,jr->j", Omega, Omega)))


def _join(Omega: FloatArray, members: IntArray, u: int) -> FloatArray:
    W = np.zeros((u, Omega.shape[1]))
    np.add.at(W, members, Omega)
    return W


def _split(W: FloatArray, d: FloatArray, sets: tuple[IntArray, ...], eta: FloatArray) -> FloatArray:
    d = np.where(d > 0, d, 1)
    return np.concatenate([eta[t] / d[s][:, None] * W[s] for t, s in enumerate(sets)])


def _coverage(sets: tuple[IntArray, ...], eta: FloatArray, u: int) -> FloatArray:
    d = np.zeros(u)
    for members, weight in zip(sets, eta, strict=True):
        d[members] += weight
    return d


def _set_sums(sets: tuple[IntArray, ...], C: FloatArray) -> FloatArray:
    """Σ_{j∈t} ‖c_j‖² of each set t."""
    s = np.einsum("jr,jr->j", C, C)
    return np.array([s[members].sum() for members in sets])
