"""The restricted master of a cutting plane, in Gram form: nothing here touches the n samples.

    min_Ω  γ/2 (Σ_t ‖Ωᵗ‖_F)² + ½ ‖T − Σ_t Xc[:, pᵗ] Ωᵗ‖²                       [SparGE, eq. 11]

Let G = XcᵤᵀXcᵤ and B = XcᵤᵀT over the u distinct gathered columns. Since (Σ‖Ωᵗ‖)² is the minimum
over η on the simplex of Σ‖Ωᵗ‖²/η_t, the master equals the minimum over η of

    J(η) = min_W ½‖T − XcᵤW‖² + γ/2 Σ_j ‖w_j‖²/d_j,      d_j = Σ_{t∋j} η_t

This is one ridge problem for each η, and J is convex and smooth in the few η. `newton` minimizes
it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from bigfs import engine
from bigfs.settings import Setting
from bigfs.types import AnyArray, FloatArray, IntArray
from bigfs.validation import explain_singular

# share of the value at which the rounding of the certificate begins
MASTER_TOL = 1e-9
# columns from which a factor in single precision saves more than its refinement costs
MIN_SIZE_FLOAT32 = 512
SMALL_BYTES = 64 << 20  # of K up to which both its triangles may take memory
# condition of K up to which each refinement of such a factor gains a digit or more
MAX_COND_FLOAT32 = 1e5
STRIP_ROWS = Setting(1024)  # of G that are copied at a time
SOLVED_BYTES = Setting(8 << 20)  # of the right-hand sides of a Hessian that are solved together
# tolerance of the ridge problem, as a share of the master's, which counts as 0.01 at most
RIDGE_TOL_SHARE, MAX_RIDGE_TOL = 1e-3, 1e-2


class RestrictedMaster(NamedTuple):
    """The master over some sets of the u gathered columns."""

    G: FloatArray  # u × u
    B: FloatArray  # u × r
    T_norm2: float  # ‖T‖²
    gamma: float
    sets: tuple[IntArray, ...]  # the positions of each set among the u columns, increasing


class Factor(NamedTuple):
    """A Cholesky factor of K = I + RGR, R = (D/γ)^½, in single or double precision."""

    active: IntArray  # the columns with d > 0, over which K is taken
    d: FloatArray  # of the active columns
    root: FloatArray  # the diagonal of R, as a column
    kept: list[AnyArray]  # the factor itself, or nothing once it is released

    @property
    def upper(self) -> AnyArray:
        return self.kept[0]

    def release(self) -> None:
        """Free the memory of the factor, whoever else holds it."""
        self.kept.clear()


class RidgeAtEta(NamedTuple):
    """The ridge problem at one η, solved."""

    W: FloatArray  # u × r
    C: FloatArray  # u × r: XcᵤᵀV at the residual V
    value: float  # J
    gradient: FloatArray  # ∇J
    factor: Factor


def ridge_at(
    master: RestrictedMaster,
    eta: FloatArray,
    tol: float = MASTER_TOL,
    factor: Factor | None = None,
    W: FloatArray | None = None,
) -> RidgeAtEta:
    """Evaluate J(η) and its gradient −(1/2γ) Σ_{j∈t} ‖x_jᵀV‖².

    It takes one Cholesky factorization, or none if `factor` fits η. W starts from the one given and
    is exact enough for a master that is solved to `tol`. J is evaluated at that W, so it is never
    below the minimum.
    """
    G, B, T_norm2, gamma, sets = master
    d = coverage(sets, eta, len(B))
    active = np.flatnonzero(d > 0)
    if (
        factor is None
        or not factor.kept
        or not np.array_equal(factor.d, d[active])
        or not np.array_equal(factor.active, active)
    ):
        if factor is not None:
            factor.release()  # the next one is as large
        factor = _factorize(G, d, active, gamma)
    start = np.zeros_like(B) if W is None else W
    W, GW, explained = _solve(factor, G, B, start, RIDGE_TOL_SHARE * min(tol, MAX_RIDGE_TOL))
    C = B - GW
    return RidgeAtEta(W, C, 0.5 * (T_norm2 - explained), -set_sums(sets, C) / (2 * gamma), factor)


def system_name(G: FloatArray) -> str:
    """Return what to call the ridge system on a G that may be rounded more than the system."""
    rounded = ", of columns whose products are held in single precision," * (G.dtype == np.float32)
    return f"SparGE's ridge system{rounded}"


def _factorize(G: FloatArray, d: FloatArray, active: IntArray, gamma: float) -> Factor:
    """Factorize K, in single precision where that pays and K's condition allows a refinement."""
    root = np.sqrt(d[active] / gamma)
    if G.dtype == np.float32:
        engine.trim_memory()  # K comes on top of what earlier arrays have left
    K, norm = _system(
        G, active, root, np.float32 if len(active) >= MIN_SIZE_FLOAT32 else np.float64
    )
    # the Frobenius norm is above the largest eigenvalue; the least is 1
    if K.dtype == np.float32 and norm > MAX_COND_FLOAT32:
        del K
        K, _ = _system(G, active, root, np.float64)
    with explain_singular(system_name(G)):
        # LAPACK reads K by columns, where its lower triangle is the upper one
        upper, _ = cho_factor(K.T, lower=False, overwrite_a=True, check_finite=False)
    return Factor(active, d[active], root[:, None], [upper])


def _system(
    G: FloatArray, active: IntArray, root: FloatArray, dtype: Any
) -> tuple[AnyArray, float]:
    """Return the lower triangle of K = I + RGR over the active columns, and K's Frobenius norm.

    The part above the triangle is not written, and thus takes no memory where K is large. A small K
    lies in large pages, which are faster.
    """
    u = len(active)
    is_small = u**2 * np.dtype(dtype).itemsize <= SMALL_BYTES
    K = np.empty((u, u), dtype) if is_small else engine.lazy_zeros((u, u), dtype)
    return K, float(np.sqrt(_fill_rows(G, active, root, K)))


@njit(nogil=True, cache=True)
def _fill_rows(G: AnyArray, active: IntArray, root: FloatArray, K: AnyArray) -> float:
    """Write the lower triangle of K, and return ‖K‖²."""
    norm2, is_all = 0.0, len(active) == active[-1] + 1
    for i in range(len(active)):
        row = G[active[i]]
        if not is_all:
            row = row[active[: i + 1]]
        for j in range(i):
            K[i, j] = root[i] * row[j] * root[j]
        k = 1 + root[i] * row[i] * root[i]
        K[i, i] = k
        norm2 += 2 * _norm2(K[i, :i]) + k * k
    return norm2


@njit(nogil=True, cache=True, fastmath={"reassoc"})
def _norm2(row: AnyArray) -> float:
    """Return the squared norm of a row, whose last bits depend on the machine."""
    norm2 = 0.0
    for k in row:
        norm2 += np.float64(k) * np.float64(k)
    return norm2


def _solve(
    factor: Factor, G: FloatArray, B: FloatArray, W: FloatArray, tol: float
) -> tuple[FloatArray, FloatArray, float]:
    """Return W = RK⁻¹RB, GW, and ‖T‖² − 2J at W, refined until the residual of K in double
    precision is at most `tol` relative to RB, or no longer halves."""
    active, root, upper = factor.active, factor.root, factor.upper
    target = root * B[active]
    target_size = np.linalg.norm(target)
    w = W[active] / root
    GW = times(G, W) if W.any() else W
    size_before = np.inf
    while True:  # with few arrays of the size of W at a time
        residual, part = target - w, GW[active]
        part *= root
        residual -= part
        del part
        size = float(np.linalg.norm(residual))
        # NaN ends the loop too
        if size <= tol * target_size or not size <= size_before / 2:
            return W, GW, float(np.vdot(target, w) + np.vdot(residual, w))
        del W, GW
        w += cho_solve(
            (upper, False), residual.astype(upper.dtype), overwrite_b=True, check_finite=False
        )
        del residual
        W = np.zeros_like(B)
        W[active] = root * w
        GW = times(G, W)
        size_before = size


def hessian(master: RestrictedMaster, ridge: RidgeAtEta) -> FloatArray:
    """Return ∂²J/∂η_t∂η_t' = tr(R_tᵀ M R_t')/γ², M = XcᵤᵀK⁻¹Xcᵤ and R_t the rows of C in set t."""
    G, B, _, gamma, sets = master
    active, root, upper = ridge.factor.active, ridge.factor.root, ridge.factor.upper
    r, size = B.shape[1], upper.itemsize * len(sets) * len(active)
    width = max(1, min(r, SOLVED_BYTES.value // max(size, 1)))
    products, explained = np.zeros((2, len(sets), len(sets)))
    for first in range(0, r, width):
        C = ridge.C[:, first : first + width]
        # by set, so that it is solved in place
        F = np.empty((len(sets), C.shape[1], len(active)), upper.dtype)
        for t, members in enumerate(sets):
            GR = times(G, C[members], members)
            products[t] += [np.vdot(C[others], GR[others]) for others in sets]
            F[t] = (root * GR[active]).T
        solve_triangular(
            upper, F.reshape(-1, len(active)).T, trans="T", overwrite_b=True, check_finite=False
        )
        by_set = F.reshape(len(sets), -1)
        explained += by_set @ by_set.T
    hessian: FloatArray = (products - explained) / gamma**2
    return hessian


def times(G: FloatArray, W: FloatArray, members: IntArray | None = None) -> FloatArray:
    """Return GW in double precision, or G[:, members] W, by strips that are copied."""
    if members is None and G.dtype == np.float64:
        return np.asarray(G @ W)
    product = np.empty((len(G), *W.shape[1:]))
    for first in range(0, len(G), STRIP_ROWS.value):
        rows = slice(first, first + STRIP_ROWS.value)
        strip = G[rows] if members is None else G[members, rows].T
        product[rows] = strip.astype(np.float64, copy=False) @ W
    return product


def coverage(sets: tuple[IntArray, ...], eta: FloatArray, u: int) -> FloatArray:
    """Return d_j = Σ_{t∋j} η_t of the u columns."""
    d = np.zeros(u)
    for members, weight in zip(sets, eta, strict=True):
        d[members] += weight
    return d


def set_sums(sets: tuple[IntArray, ...], C: FloatArray) -> FloatArray:
    """Return Σ_{j∈t} ‖c_j‖² of each set t."""
    squares = np.einsum("jr,jr->j", C, C)
    return np.array([squares[members].sum() for members in sets])
