"""Spectral work on operators that are never formed: embeddings of graphs and hypergraphs,
randomized SVD.

    graph        N = D^-½ A D^-½ = I − L                         D = diag(A 1)
    hypergraph   N = D_v^-½ H diag(w) D_e⁻¹ Hᵀ D_v^-½ = I − L_H   D_v = diag(H w); for w = 1,
        JHLSR's

N's largest eigenvalue is 1, once for each connected component c, with the vector D^½ 1_c: trivial,
because it tells only the component. The embedding is what comes after those.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh, lobpcg

from bigfs import engine
from bigfs.graph import components
from bigfs.graph.hypergraph import Hypergraph
from bigfs.matrix import Centered
from bigfs.result import NotConverged, Result, Status, iterate
from bigfs.types import AnyArray

DENSE = 300  # vertices; below it the n × n matrix is the cheapest way
OVERSAMPLE = 10  # of the randomized SVD; Halko, Martinsson, Tropp 2011, section 4.2
GAP = 0.01  # of the largest squared singular value
NEGLIGIBLE = 1e-6  # of the largest singular value; squares in float64 know no less


class Embedding(NamedTuple):
    """`vectors` (n × r), orthonormal, each with its largest entry positive; `values` (r),
    decreasing.
    """

    vectors: AnyArray
    values: AnyArray


# --- eigenvectors -------------------------------------------------------------------------------


def graph_embedding(
    A: sp.csr_array, r: int, *, tol: float = 1e-8, max_iter: int = 1000, seed: int = 0
) -> Result[Embedding]:
    """The r leading eigenvectors of D^-½ A D^-½ after the trivial ones, of a symmetric affinity A
    (n × n).

    These are the first non-trivial eigenvectors of the normalized Laplacian: `1 − values` are its
    eigenvalues. See `leading` for the parameters and what the result says. `stats["components"]`
    counts what was dropped.
    """
    degree = np.asarray(A.sum(axis=1), dtype=np.float64).ravel()
    root = _inverse_root(degree)
    parts = components(A)

    def times(V: AnyArray) -> AnyArray:
        return np.asarray(root[:, None] * (A @ (root[:, None] * V)))

    return leading(
        times,
        r,
        _trivial(degree, parts.labels),
        tol=tol,
        max_iter=max_iter,
        seed=seed,
        name="the graph embedding",
    )


def hypergraph_embedding(
    hypergraph: Hypergraph, r: int, *, tol: float = 1e-8, max_iter: int = 1000, seed: int = 0
) -> Result[Embedding]:
    """The r leading eigenvectors of I − L_H after the trivial ones.

    The degrees count the weights, D_v = diag(H w), so that the trivial vectors are known for any w;
    for w = 1 the operator is that of JHLSR and `Hypergraph.similarity`. See `leading`.
    """
    H, degree = hypergraph.H, hypergraph.H @ hypergraph.w
    root, share = _inverse_root(degree), hypergraph.w / hypergraph.edge_degrees
    Ht = sp.csr_array(H.T)
    used = sp.csr_array(H @ sp.diags_array(share))
    _, labels = connected_components(sp.block_array([[None, used], [used.T, None]]), directed=False)
    _, labels = np.unique(labels[: H.shape[0]], return_inverse=True)

    def times(V: AnyArray) -> AnyArray:
        return np.asarray(root[:, None] * (used @ (Ht @ (root[:, None] * V))))

    return leading(
        times,
        r,
        _trivial(degree, labels),
        tol=tol,
        max_iter=max_iter,
        seed=seed,
        name="the hypergraph embedding",
    )


def leading(
    times: Any, r: int, trivial: sp.csr_array, *, tol: float, max_iter: int, seed: int, name: str
) -> Result[Embedding]:
    """The r largest eigenvalues, with their vectors, of a symmetric N with ‖N‖ ≤ 1 and known
    trivial vectors.

    Lanczos (ARPACK; LOBPCG goes on where it gives up) from a fixed start on N − 2 T₀T₀ᵀ, which
    moves the trivial eigenvalues to −1, so that a graph in many components needs no more steps than
    a connected one.

    Parameters
    ----------
    times : V (n × m) → N V, on this process or over the cluster.
    trivial : T₀ (n × c), orthonormal, N T₀ = T₀ (or an isolated vertex).
    tol : of ‖N v − λ v‖, for each vector; 1 is the scale of N.

    Returns ------- Result with an `Embedding`. `stats`: `components`, `residual` (the largest),
    `gap` between the last value kept and the next, `degenerate` (whether the gap, or one among the
    values kept, is within the residual: those vectors are only one basis of their space).

    Raises
    ------
    ValueError : for more vectors than the n − c that there are.
    """
    n, c = trivial.shape
    if not 1 <= r <= n - c:
        raise ValueError(
            f"{n} samples in {c} connected components have {n - c} non-trivial "
            f"eigenvectors; {r} were requested"
        )
    flat = sp.csr_array(trivial.T)

    def deflated(V: AnyArray) -> AnyArray:
        tall = V.reshape(n, -1)
        return np.asarray(times(tall) - 2 * (trivial @ (flat @ tall))).reshape(V.shape)

    wanted = min(r + 1, n - c)  # one more, to see the gap
    if n <= DENSE or wanted > n // 6:
        engine.require_memory(
            3 * 8 * n * n, f"computing {r} eigenvectors of {n} samples from the dense n × n matrix"
        )
        N = deflated(np.eye(n))
        values, vectors = np.linalg.eigh((N + N.T) / 2)
    else:
        values, vectors = _lanczos(deflated, n, wanted, tol, max_iter, seed)
    found = np.argsort(-values, kind="stable")
    after = values[found[r]] if len(found) > r and wanted > r else -1.0
    values, vectors = values[found[:r]], signed(vectors[:, found[:r]])
    residual = float(np.linalg.norm(deflated(vectors) - vectors * values, axis=0).max(initial=0.0))
    done = residual <= tol
    gaps = -np.diff(np.append(values, after))
    stats = {
        "components": c,
        "residual": residual,
        "gap": float(gaps[-1]),
        "degenerate": bool(np.any(gaps <= max(residual, tol))),
    }
    status = Status.CONVERGED if done else Status.MAX_ITER
    if not done:
        warnings.warn(
            f"{name} {status} (residual {residual:.1e}, tolerance {tol:.0e})",
            NotConverged,
            stacklevel=3,
        )
    return Result(Embedding(vectors, values), status, stats=stats)


def _lanczos(
    times: Any, n: int, count: int, tol: float, max_iter: int, seed: int
) -> tuple[AnyArray, AnyArray]:
    operator = LinearOperator((n, n), dtype=np.float64, matvec=times, matmat=times)
    start = np.random.default_rng(seed).normal(size=n)
    try:
        # ARPACK's tolerance is relative to the value, which may be small: ask for a little more
        values, vectors = eigsh(
            operator, count, which="LA", v0=start, tol=tol / 10, maxiter=max_iter
        )
    except ArpackNoConvergence as error:
        guess = np.random.default_rng(seed).normal(size=(n, count))
        guess[:, : error.eigenvectors.shape[1]] = error.eigenvectors
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # our own residuals say what is left
            values, vectors = lobpcg(operator, guess, tol=tol / 10, maxiter=max_iter, largest=True)
    return values, vectors


def signed(vectors: AnyArray) -> AnyArray:
    """Each column with its largest entry positive (the first of equals), so that a sign is no
    chance.
    """
    largest = np.abs(vectors).argmax(axis=0)
    return np.asarray(
        vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    )


def _inverse_root(degree: AnyArray) -> AnyArray:
    return np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)


def _trivial(degree: AnyArray, labels: AnyArray) -> sp.csr_array:
    """D^½ 1_c of each component, of unit length; an isolated vertex is its own."""
    values = np.where(degree > 0, np.sqrt(degree), 1.0)
    values /= np.sqrt(np.bincount(labels, weights=values**2))[labels]
    return sp.csr_array((values, labels, np.arange(len(labels) + 1)))


# --- randomized SVD -----------------------------------------------------------------------------


class Subspace(NamedTuple):
    Q: AnyArray  # n × l, orthonormal: where the singular vectors are looked for
    U: AnyArray  # n × r, left singular vectors in Q's span
    s: AnyArray  # r
    residual: float  # max_i ‖Xc Xcᵀ u_i − s_i² u_i‖ / s_1²
    # ‖Xc Xcᵀ U − U diag(s²)‖ / (s_r² − s_{r+1}²): about the distance of U's span from the true one
    error: float


def randomized_svd(
    Xc: Centered, r: int, *, tol: float = 1e-3, max_iter: int = 200, seed: int = 0
) -> Result[Embedding]:
    """The r largest singular values of Xc (n × d) and their left singular vectors, Xc never formed.

    Subspace iteration with oversampling (Halko, Martinsson, Tropp 2011, algorithm 4.4), each step
    two passes over X: Z = XcᵀQ (d × l, dense) and Y = XcZ; a Rayleigh–Ritz step gives the vectors
    and their residuals at once.

    Parameters
    ----------
    tol : of ‖XcXcᵀU − U diag(s²)‖ / (s_r² − s_{r+1}²), which bounds the sine of the angle between
        U's span and the true
        one (Davis and Kahan 1970). A gap below 0.01 s_1² counts as that: vectors beyond it are as
        good as those kept.
    seed : of the start, the same for any tiling.

    Returns ------- Result with an `Embedding` (U, s). Vectors of negligible singular value are left
    out, so there may be fewer than r. `stats`: `residual`, `error`, `passes`.

    Raises
    ------
    ValueError : for more than min(n − 1, d) vectors.
    """
    n, d = Xc.shape
    if not 1 <= r <= min(n - 1, d):
        raise ValueError(
            f"the number of singular vectors must be at most {min(n - 1, d)} for a centred "
            f"{n} × {d} matrix; got {r}"
        )
    width = min(r + OVERSAMPLE, n, d)
    engine.require_memory(8 * (3 * n + d) * width, f"{r} singular vectors of a {n} × {d} matrix")
    before = Xc.X.passes

    def step(state: Subspace) -> Subspace:
        Z = Xc.rmatmul(state.Q)
        Y = Xc @ Z
        squares, W = np.linalg.eigh(Z.T @ Z)
        squares, W = np.maximum(squares[::-1], 0), W[:, ::-1][:, :r]
        U, largest = state.Q @ W, max(squares[0], np.finfo(float).tiny)
        off = np.linalg.norm(Y @ W - U * squares[:r], axis=0)
        gap = max(squares[r - 1] - (squares[r] if len(squares) > r else 0.0), GAP * largest)
        return Subspace(
            np.linalg.qr(Y)[0],
            U,
            np.sqrt(squares[:r]),
            float(off.max() / largest),
            float(np.linalg.norm(off) / gap),
        )

    start = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, width)))[0]
    result = iterate(
        step,
        Subspace(start, np.zeros((n, r)), np.zeros(r), np.inf, np.inf),
        measure=lambda state: {"residual": state.residual, "error": state.error},
        stop="error",
        tol=tol,
        max_iter=max_iter,
        name="randomized SVD",
    )
    stats = {
        "residual": result.value.residual,
        "error": result.value.error,
        "passes": Xc.X.passes - before,
    }
    kept = result.value.s > NEGLIGIBLE * result.value.s[0]
    found = Embedding(signed(result.value.U[:, kept]), result.value.s[kept])
    return Result(found, result.status, result.history, stats)
