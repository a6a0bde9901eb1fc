"""Embeddings of graphs and hypergraphs, and a randomized SVD, from operators that are never formed.

    graph        N = D^-½ A D^-½ = I − L                          D = diag(A 1)
    hypergraph   N = D_v^-½ H diag(w) D_e⁻¹ Hᵀ D_v^-½ = I − L_H   D_v = diag(H w)

With w = 1 the second operator is JHLSR's.

The largest eigenvalue of N is 1, once for each connected component c, with the vector D^½ 1_c.
These vectors are trivial, because they tell nothing but the component. The embedding consists of
the next ones.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from bigfs import engine
from bigfs.embedding.lanczos import basis_size, largest_eigenvectors
from bigfs.graph import components
from bigfs.graph.hypergraph import Hypergraph
from bigfs.matrix import Centered
from bigfs.result import NotConverged, Result, Status, iterate
from bigfs.types import AnyArray, IntArray

DEFAULT_WIDTH = 10
MAX_DENSE_VERTICES = 300  # up to here the n × n matrix is the cheapest way
VECTORS_BESIDE = 12  # of n numbers, beside the basis of the Lanczos iterations
OVERSAMPLING = 10  # of the randomized SVD [Halko, Martinsson, Tropp 2011, section 4.2]
MIN_GAP = 0.01  # of the largest squared singular value: a smaller gap counts as this one
NEGLIGIBLE = 1e-6  # of the largest singular value: float64 cannot tell the square of less from 0


class Embedding(NamedTuple):
    """Eigenvectors or left singular vectors, with their values."""

    vectors: AnyArray  # n × r, orthonormal, the largest entry of each positive
    values: AnyArray  # (r,), decreasing


# --- eigenvectors -------------------------------------------------------------------------------


def default_width(n: int, d: int, n_components: int = 1) -> int:
    """Return how many eigenvectors are taken without a choice: 10, or as many as there are.

    `n_components` counts the connected components of the graph, each of which has a trivial
    eigenvector.
    """
    return max(1, min(DEFAULT_WIDTH, n - max(n_components, 2), d))


def graph_embedding(
    A: sp.csr_array, r: int, *, tol: float = 1e-8, max_iter: int = 1000, seed: int = 0
) -> Result[Embedding]:
    """Return the r leading non-trivial eigenvectors of D^-½ A D^-½, A a symmetric affinity (n × n).

    They are the first non-trivial eigenvectors of the normalized Laplacian, with the eigenvalues
    `1 − values`. `stats["components"]` is the number of trivial vectors. See `leading_eigenvectors`
    for the other parameters and the result.
    """
    degree = np.asarray(A.sum(axis=1), dtype=np.float64).ravel()
    inverse_root = _inverse_root(degree)
    parts = components(A)

    def multiply(V: AnyArray) -> AnyArray:
        return np.asarray(inverse_root[:, None] * (A @ (inverse_root[:, None] * V)))

    return leading_eigenvectors(
        multiply,
        r,
        trivial_vectors(degree, parts.labels),
        tol=tol,
        max_iter=max_iter,
        seed=seed,
        name="the graph embedding",
    )


def hypergraph_embedding(
    hypergraph: Hypergraph, r: int, *, tol: float = 1e-8, max_iter: int = 1000, seed: int = 0
) -> Result[Embedding]:
    """Return the r leading non-trivial eigenvectors of I − L_H.

    The degrees include the weights, D_v = diag(H w), so that the trivial vectors are known for any
    w. With w = 1 the operator is that of JHLSR and of `Hypergraph.similarity`. See
    `leading_eigenvectors` for the other parameters and the result.
    """
    H, degree = hypergraph.H, hypergraph.H @ hypergraph.w
    inverse_root = _inverse_root(degree)
    Ht = sp.csr_array(H.T)
    weighted = sp.csr_array(H @ sp.diags_array(hypergraph.w / hypergraph.edge_degrees))

    def multiply(V: AnyArray) -> AnyArray:
        return np.asarray(inverse_root[:, None] * (weighted @ (Ht @ (inverse_root[:, None] * V))))

    return leading_eigenvectors(
        multiply,
        r,
        trivial_vectors(degree, hypergraph_components(hypergraph)),
        tol=tol,
        max_iter=max_iter,
        seed=seed,
        name="the hypergraph embedding",
    )


def hypergraph_components(hypergraph: Hypergraph) -> IntArray:
    """Return the number (n,) of the connected component of each sample. They count from zero."""
    H = sp.csr_array(hypergraph.H @ sp.diags_array(hypergraph.w))
    bipartite = sp.block_array([[None, H], [H.T, None]])  # samples and hyperedges
    _, labels = connected_components(bipartite, directed=False)
    return np.asarray(np.unique(labels[: H.shape[0]], return_inverse=True)[1])


def leading_eigenvectors(
    multiply: Any, r: int, trivial: sp.csr_array, *, tol: float, max_iter: int, seed: int, name: str
) -> Result[Embedding]:
    """Return the r leading non-trivial eigenvectors of a symmetric N with ‖N‖ ≤ 1.

    Lanczos iterations start from fixed vectors. They work on N − 2 T₀T₀ᵀ, which moves the trivial
    eigenvalues to −1, so that a graph of many components needs no more steps than a connected one.

    Parameters
    ----------
    multiply : callable
        Function from V (n × m) to N V, in this process or on the cluster.
    r : int
        Number of vectors.
    trivial : csr_array of shape (n, c)
        T₀, orthonormal, with N T₀ = T₀ except for isolated vertices.
    tol : float
        Largest ‖N v − λ v‖ of a vector. The scale of N is 1.
    max_iter : int
        Maximum number of restarts.
    seed : int
        Seed of the first vectors.
    name : str
        What is computed, for the warning.

    Returns
    -------
    Result
        An `Embedding`. The stats have `components`, c; `residual`, the largest; `gap`, between the
        last value kept and the next one; and `degenerate`, whether this gap or one among the values
        kept is within the residual, so that the vectors are only one basis of their space.

    Raises
    ------
    ValueError
        N has fewer than r non-trivial eigenvectors.
    """
    n, c = trivial.shape
    if not 1 <= r <= n - c:
        raise ValueError(
            f"{n} samples in {c} connected components have {n - c} non-trivial "
            f"eigenvectors; {r} were requested"
        )
    trivial_t = trivial.T

    def multiply_deflated(V: AnyArray) -> AnyArray:
        product = multiply(V)
        product -= 2 * (trivial @ (trivial_t @ V))
        return np.asarray(product)

    count = min(r + 1, n - c)  # one more, for the gap
    if n <= MAX_DENSE_VERTICES or count > n // 6:
        engine.require_memory(
            3 * 8 * n * n, f"computing {r} eigenvectors of {n} samples from the dense n × n matrix"
        )
        N = multiply_deflated(np.eye(n))
        values, dense_vectors = np.linalg.eigh((N + N.T) / 2)
        values, rows = values[::-1][:count], dense_vectors.T[::-1][:count]
    else:
        engine.require_memory(
            8 * n * (basis_size(count) + VECTORS_BESIDE), f"{r} eigenvectors of {n} samples"
        )
        # a little more than is asked for, as the residuals are known but for rounding
        values, rows = largest_eigenvectors(
            multiply_deflated, n, count, tol=tol / 10, max_iter=max_iter, seed=seed
        )
    next_value = values[r] if count > r else -1.0
    values, rows = values[:r], rows[:r]
    residuals = np.array(
        [
            np.linalg.norm(multiply_deflated(v[:, None])[:, 0] - value * v)
            for v, value in zip(rows, values, strict=True)
        ]
    )
    residual = float(residuals.max(initial=0.0))
    gaps = -np.diff(np.append(values, next_value))
    stats = {
        "components": c,
        "residual": residual,
        "gap": float(gaps[-1]),
        "degenerate": bool(np.any(gaps <= max(residual, tol))),
    }
    status = Status.CONVERGED if residual <= tol else Status.MAX_ITER
    if status is not Status.CONVERGED:
        warnings.warn(
            f"{name} {status} (residual {residual:.1e}, tolerance {tol:.0e})",
            NotConverged,
            stacklevel=3,
        )
    return Result(Embedding(fix_signs(rows.T), values), status, stats=stats)


def fix_signs(vectors: AnyArray) -> AnyArray:
    """Return the columns with their largest entry, the first of equals, made positive."""
    signed = np.empty(vectors.shape)
    for v, column in zip(vectors.T, signed.T, strict=True):
        np.multiply(v, -1.0 if v[np.abs(v).argmax()] < 0 else 1.0, out=column)
    return signed


def _inverse_root(degree: AnyArray) -> AnyArray:
    """Return degree^-½, and 0 for an isolated vertex."""
    return np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)


def trivial_vectors(degree: AnyArray, labels: AnyArray) -> sp.csr_array:
    """Return D^½ 1_c of each component c at unit length (n × c).

    An isolated vertex is a component of its own.
    """
    values = np.where(degree > 0, np.sqrt(degree), 1.0)
    values /= np.sqrt(np.bincount(labels, weights=values**2))[labels]
    return sp.csr_array((values, labels, np.arange(len(labels) + 1)))


# --- randomized SVD -----------------------------------------------------------------------------


class SubspaceState(NamedTuple):
    """The subspace iteration after some steps."""

    Q: AnyArray  # n × l, orthonormal: spans the space in which the singular vectors are sought
    U: AnyArray  # n × r: left singular vectors in the span of Q
    s: AnyArray  # (r,): singular values
    residual: float  # max_i ‖Xc Xcᵀ u_i − s_i² u_i‖ / s_1²
    # ‖Xc Xcᵀ U − U diag(s²)‖ / (s_r² − s_{r+1}²): about the distance of U's span from the true one
    error: float


def randomized_svd(
    Xc: Centered, r: int, *, tol: float = 1e-3, max_iter: int = 200, seed: int = 0
) -> Result[Embedding]:
    """Return the r largest singular values of Xc (n × d) with their left singular vectors.

    Xc is never formed. Subspace iteration with oversampling (Halko, Martinsson, Tropp 2011,
    algorithm 4.4) takes two passes over X per step: Z = XcᵀQ (d × l, dense) and Y = XcZ. A
    Rayleigh–Ritz step gives the vectors and their residuals at once.

    Parameters
    ----------
    Xc : Centered
        The centered data.
    r : int
        Number of vectors.
    tol : float, default=1e-3
        Tolerance of ‖XcXcᵀU − U diag(s²)‖ / (s_r² − s_{r+1}²), which bounds the sine of the angle
        between the span of U and the true one (Davis and Kahan 1970). A gap below 0.01 s_1² counts
        as 0.01 s_1²: the vectors beyond such a gap are as good as those kept.
    max_iter : int, default=200
        Maximum number of steps.
    seed : int, default=0
        Seed of the start, which is the same for any tiling.

    Returns
    -------
    Result
        An `Embedding` of U and s. Vectors of negligible singular value are left out, so there may
        be fewer than r. The stats have `residual`, `error` and `passes`.

    Raises
    ------
    ValueError
        More than min(n − 1, d) vectors are requested.
    """
    n, d = Xc.shape
    if not 1 <= r <= min(n - 1, d):
        raise ValueError(
            f"the number of singular vectors must be at most {min(n - 1, d)} for a centered "
            f"{n} × {d} matrix; got {r}"
        )
    width = min(r + OVERSAMPLING, n, d)
    engine.require_memory(8 * (3 * n + d) * width, f"{r} singular vectors of a {n} × {d} matrix")
    passes_before = Xc.X.passes

    def step(state: SubspaceState) -> SubspaceState:
        Z = Xc.rmatmul(state.Q)
        Y = Xc @ Z
        squares, W = np.linalg.eigh(Z.T @ Z)
        squares, W = np.maximum(squares[::-1], 0), W[:, ::-1][:, :r]
        U, largest = state.Q @ W, max(squares[0], np.finfo(float).tiny)
        residuals = np.linalg.norm(Y @ W - U * squares[:r], axis=0)
        next_square = squares[r] if len(squares) > r else 0.0
        gap = max(squares[r - 1] - next_square, MIN_GAP * largest)
        return SubspaceState(
            np.linalg.qr(Y)[0],
            U,
            np.sqrt(squares[:r]),
            float(residuals.max() / largest),
            float(np.linalg.norm(residuals) / gap),
        )

    start = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, width)))[0]
    result = iterate(
        step,
        SubspaceState(start, np.zeros((n, r)), np.zeros(r), np.inf, np.inf),
        measure=lambda state: {"residual": state.residual, "error": state.error},
        stop="error",
        tol=tol,
        max_iter=max_iter,
        name="randomized SVD",
    )
    state = result.value
    stats = {
        "residual": state.residual,
        "error": state.error,
        "passes": Xc.X.passes - passes_before,
    }
    kept = state.s > NEGLIGIBLE * state.s[0]
    embedding = Embedding(fix_signs(state.U[:, kept]), state.s[kept])
    return Result(embedding, result.status, result.history, stats)
