"""Embeddings of graphs and hypergraphs, and a randomized SVD, from operators that are never formed.

    graph        N = D^-½ A D^-½ = I − L                          D = diag(A 1)
    hypergraph   N = D_v^-½ H diag(w) D_e⁻¹ Hᵀ D_v^-½ = I − L_H   D_v = diag(H w)

With w = 1 the second operator is JHLSR's.

The largest eigenvalue of N is 1, once for each connected component c, with the vector D^½ 1_c. One
direction in their span is trivial, D^½ 1. The others separate the components, and come first in the
embedding. Components of a few samples are set aside, because each would take a vector: their rows
are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from bigfs import engine
from bigfs.graph.affinities import components
from bigfs.graph.hypergraph.hypergraph import Hypergraph
from bigfs.linalg.lanczos import basis_size, largest_eigenvectors
from bigfs.linalg.prox import inverse_root
from bigfs.matrix import Centered
from bigfs.result import Result, Status, iterate, warn_early_end
from bigfs.settings import Setting
from bigfs.types import AnyArray, FloatArray, IntArray

DEFAULT_WIDTH = 10
TOL = 1e-8  # largest ‖N v − λ v‖ of an eigenvector; the scale of N is 1
MAX_ITER = 1000  # restarts of the Lanczos iterations
MAX_DENSE_VERTICES = Setting(300)  # up to here the n × n matrix is the cheapest way
VECTORS_BESIDE = 16  # of n numbers, in addition to the basis of the Lanczos iterations
OVERSAMPLING = 10  # of the randomized SVD [Halko, Martinsson, Tropp 2011, section 4.2]
MIN_GAP = 0.01  # of the largest squared singular value: a smaller gap counts as this one
LEAST_EIGENVALUE = 1e-8  # of an embedding, which has no vector of a smaller or negative one
NEGLIGIBLE_SINGULAR_VALUE = 1e-6  # of the largest: float64 cannot tell the square of less from 0


class Embedding(NamedTuple):
    """Eigenvectors or left singular vectors, with their values."""

    vectors: AnyArray  # n × r, orthonormal, the largest entry of each positive
    values: AnyArray  # (r,), decreasing


# --- parts --------------------------------------------------------------------------------------


class Components(NamedTuple):
    """The parts of a graph: its components of enough samples, the largest first."""

    labels: IntArray  # (n,) the number of the part of each sample, −1 for one that is set aside
    degree: FloatArray  # (n,) the diagonal of D, 0 for a sample that is set aside

    @property
    def n_parts(self) -> int:
        """Number of parts."""
        return int(self.labels.max(initial=-1)) + 1

    @property
    def n_set_aside(self) -> int:
        """Number of samples in no part."""
        return int(np.count_nonzero(self.labels < 0))

    def trivial(self, joined: bool = True) -> sp.csr_array:
        """Return D^½ 1 over all parts at unit length, and the samples that are set aside (n × c).

        If not `joined`, D^½ 1_c of each part has a column of its own.
        """
        labels, aside = np.minimum(self.labels, 0 if joined else self.n_parts), self.labels < 0
        labels[aside] = labels.max(initial=-1) + 1 + np.arange(np.count_nonzero(aside))
        values = np.where(self.degree > 0, np.sqrt(self.degree), 1.0)
        values /= np.sqrt(np.bincount(labels, weights=values**2))[labels]
        return sp.csr_array((values, labels, np.arange(len(labels) + 1)))

    def contrasts(self, r: int) -> FloatArray:
        """Return r orthonormal combinations of the vectors D^½ 1_c that separate parts (n × r).

        Each is of one part against all smaller ones, and orthogonal to D^½ 1. There are fewer than
        r if there are at most r parts.
        """
        r = min(r, max(self.n_parts - 1, 0))
        is_in = self.labels >= 0
        volumes = np.bincount(self.labels[is_in], weights=self.degree[is_in], minlength=r)
        rest = volumes.sum() - np.cumsum(volumes)  # of all smaller parts
        contrasts = np.zeros((len(self.labels), r))
        root = np.sqrt(self.degree)
        for c in range(r):
            own, others = self.labels == c, self.labels > c
            both = volumes[c] + rest[c]
            contrasts[own, c] = root[own] * np.sqrt(rest[c] / (volumes[c] * both))
            contrasts[others, c] = -root[others] * np.sqrt(volumes[c] / (rest[c] * both))
        return contrasts


def graph_parts(A: sp.csr_array, n_neighbors: int) -> Components:
    """Return the parts of a symmetric affinity: its components of n_neighbors + 1 samples or more,
    or the largest ones if all are smaller."""
    degree = np.asarray(A.sum(axis=1), dtype=np.float64).ravel()
    return _parts(components(A).labels, degree, n_neighbors)


def hypergraph_parts(hypergraph: Hypergraph, n_neighbors: int) -> Components:
    """Return the parts of a hypergraph, as `graph_parts` does."""
    H = sp.csr_array(hypergraph.H @ sp.diags_array(hypergraph.w))
    bipartite = sp.block_array([[None, H], [H.T, None]])  # samples and hyperedges
    _, labels = connected_components(bipartite, directed=False)
    labels = np.unique(labels[: H.shape[0]], return_inverse=True)[1]
    return _parts(labels, hypergraph.H @ hypergraph.w, n_neighbors)


def _parts(components: IntArray, degree: FloatArray, n_neighbors: int) -> Components:
    """Return the parts of a graph with these components (n,)."""
    sizes = np.bincount(components)
    order = np.argsort(-sizes, kind="stable")
    least = max(min(n_neighbors + 1, sizes.max(initial=0)), 2)
    n_parts = np.count_nonzero(sizes >= least)
    number = np.full(len(sizes), -1)
    number[order[:n_parts]] = np.arange(n_parts)
    labels = number[components]
    return Components(labels, np.where(labels >= 0, degree, 0.0))


# --- eigenvectors -------------------------------------------------------------------------------


def default_width(n: int, d: int, n_set_aside: int = 0) -> int:
    """Return how many eigenvectors are taken without a choice: 10, or as many as there are.

    A sample that is set aside leaves one less.
    """
    return max(1, min(DEFAULT_WIDTH, n - max(1 + n_set_aside, 2), d))


def graph_embedding(
    A: sp.csr_array,
    r: int,
    parts: Components | None = None,
    max_iter: int = MAX_ITER,
    *,
    positive: bool = True,
) -> Result[Embedding]:
    """Return the r leading non-trivial eigenvectors of D^-½ A D^-½, A a symmetric affinity (n × n).

    They are the first non-trivial eigenvectors of the normalized Laplacian, with the eigenvalues
    `1 − values`. `graph_parts` gives `parts`. The result is as from `leading_eigenvectors`.
    """
    parts = graph_parts(A, 1) if parts is None else parts
    root = inverse_root(parts.degree)[:, None]
    null = parts.trivial(joined=False)
    return leading_eigenvectors(
        lambda V: root * (A @ (root * V)),
        r,
        null,
        "the graph embedding",
        parts,
        max_iter,
        positive=positive,
    )


def hypergraph_embedding(
    hypergraph: Hypergraph, r: int, parts: Components | None = None
) -> Result[Embedding]:
    """Return the r leading non-trivial eigenvectors of I − L_H.

    The degrees include the weights, D_v = diag(H w), so that the trivial vectors are known for any
    w. With w = 1 it is the operator of JHLSR and of `Hypergraph.similarity`. `parts` come from
    `hypergraph_parts`. The result is as from `leading_eigenvectors`.
    """
    parts = hypergraph_parts(hypergraph, 1) if parts is None else parts
    H, root = hypergraph.H, inverse_root(parts.degree)[:, None]
    Ht = sp.csr_array(H.T)
    weighted = sp.csr_array(H @ sp.diags_array(hypergraph.w / hypergraph.edge_degrees))
    null = parts.trivial(joined=False)
    return leading_eigenvectors(
        lambda V: root * (weighted @ (Ht @ (root * V))),
        r,
        null,
        "the hypergraph embedding",
        parts,
    )


def leading_eigenvectors(
    multiply: Callable[[AnyArray], AnyArray],
    r: int,
    null: sp.csr_array,
    name: str,
    parts: Components | None = None,
    max_iter: int = MAX_ITER,
    *,
    positive: bool = True,
) -> Result[Embedding]:
    """Return the r leading non-trivial eigenvectors of a symmetric N with ‖N‖ ≤ 1.

    If `positive`, vectors of a negative or negligible eigenvalue are left out, as they are no part
    of a positive semi-definite S. There may be fewer than r then.

    The contrasts of the parts come first, in closed form. Lanczos iterations for the others start
    from fixed vectors. They work on N − 2 T₀T₀ᵀ, which moves the eigenvalues of T₀ to −1, so that a
    graph of many parts needs no more steps than a connected one.

    `multiply` takes a V (n × m) to N V. `null` is T₀ (n × c), orthonormal, with N T₀ = T₀ except
    for samples that are set aside, where N is zero. Without `parts` all of it is trivial.

    The stats have `n_set_aside` and `contrasts`, numbers of samples and of vectors; `residual`, the
    largest; `gap`, between the last value kept and the next one; and `degenerate`, whether this gap
    or one among the values kept is within the residual, so that the vectors are only one basis of
    their space.
    """
    n, c = null.shape
    n_parts, n_set_aside = (1, 0) if parts is None else (parts.n_parts, parts.n_set_aside)
    most = n - c + n_parts - 1
    if not 1 <= r <= most:
        aside = f", {n_set_aside} of them set aside," if n_set_aside else ""
        raise ValueError(
            f"{n} samples{aside} have {max(most, 0)} non-trivial eigenvectors; {r} were requested"
        )
    contrasts = np.empty((n, 0)) if parts is None else parts.contrasts(r)
    null_t = null.T

    def multiply_deflated(V: AnyArray) -> AnyArray:
        product = multiply(V)
        product -= 2 * (null @ (null_t @ V))
        return np.asarray(product)

    n_contrasts = contrasts.shape[1]
    values, rows, next_value = np.empty(0), np.empty((0, n)), 1.0
    if n_contrasts == n_parts - 1:
        values, rows, next_value = _largest(multiply_deflated, n, r - n_contrasts, n - c, max_iter)
    residuals = np.array(
        [
            np.linalg.norm(multiply_deflated(v[:, None])[:, 0] - value * v)
            for v, value in zip(rows, values, strict=True)
        ]
    )
    residual = float(residuals.max(initial=0.0))
    values = np.append(np.ones(n_contrasts), values)
    if positive and len(values) and values[-1] <= LEAST_EIGENVALUE:
        n_kept = int(np.count_nonzero(values > LEAST_EIGENVALUE))
        values, next_value = values[:n_kept], float(values[n_kept])
        rows = rows[: n_kept - n_contrasts]
        if not n_kept:
            raise ValueError(
                f"{name} is empty, because no eigenvector separates the samples: give a graph of "
                "fewer neighbors, or more samples"
            )
    gaps = -np.diff(np.append(values, next_value))
    stats = {
        "n_set_aside": n_set_aside,
        "contrasts": n_contrasts,
        "residual": residual,
        "gap": float(gaps[-1]),
        "degenerate": bool(np.any(gaps <= max(residual, TOL))),
    }
    status = Status.CONVERGED if residual <= TOL else Status.MAX_ITER
    if status is not Status.CONVERGED:
        warn_early_end(f"{name} {status} (residual {residual:.1e}, tolerance {TOL:.0e})", 3)
    vectors = np.column_stack([contrasts, rows.T]) if n_contrasts else rows.T
    if parts is not None and n_set_aside:
        vectors[parts.labels < 0] = 0  # they are, but for rounding
    return Result(Embedding(fix_signs(vectors), values), status, stats=stats)


def _largest(
    multiply: Callable[[AnyArray], AnyArray], n: int, r: int, most: int, max_iter: int
) -> tuple[AnyArray, AnyArray, float]:
    """Return the r largest eigenvalues of an n × n matrix, their vectors as rows, and the next one.

    It has `most` eigenvalues but those that are moved to −1, which is the next one after the last.
    """
    count = min(r + 1, most)  # one more, for the gap
    if count == 0:
        return np.empty(0), np.empty((0, n)), -1.0
    if n <= MAX_DENSE_VERTICES.value or count > n // 6:
        # N, its mean with Nᵀ, and four of that size while LAPACK works (measured)
        engine.require_memory(
            8 * n * (6 * n + VECTORS_BESIDE),
            f"computing {r} eigenvectors of {n} samples from the dense n × n matrix",
        )
        N = multiply(np.eye(n))
        values, dense_vectors = np.linalg.eigh((N + N.T) / 2)
        values, rows = values[::-1][:count], dense_vectors.T[::-1][:count]
    else:
        engine.require_memory(
            8 * n * (basis_size(count) + count + VECTORS_BESIDE),
            f"{r} eigenvectors of {n} samples",
        )
        # a little more than is asked for, as the residuals are known but for rounding
        values, rows = largest_eigenvectors(
            multiply, n, count, tol=TOL / 10, max_iter=max_iter, seed=0
        )
    return values[:r], rows[:r], values[r] if count > r else -1.0


def require_width(result: Result[Embedding], n_components: int | None) -> Result[Embedding]:
    """Return the result, or refuse one of fewer vectors than a user asks for."""
    width = len(result.value.values)
    if n_components is not None and width < n_components:
        raise ValueError(
            f"n_components={n_components}, but {width} eigenvectors have a positive eigenvalue: "
            f"choose {width} or fewer, or None"
        )
    return result


def fix_signs(vectors: AnyArray) -> AnyArray:
    """Return the columns with their largest entry, the first of equals, made positive."""
    signed = np.empty(vectors.shape)
    for v, column in zip(vectors.T, signed.T, strict=True):
        np.multiply(v, -1.0 if v[np.abs(v).argmax()] < 0 else 1.0, out=column)
    return signed


# --- randomized SVD -----------------------------------------------------------------------------


class SubspaceState(NamedTuple):
    """The subspace iteration after some steps. m is the smaller one of n and d."""

    Q: AnyArray  # m × l, orthonormal: spans the space in which the singular vectors are sought
    V: AnyArray  # m × r: singular vectors of the smaller side in the span of Q
    s: AnyArray  # (r,): singular values
    residual: float  # max_i ‖S v_i − s_i² v_i‖ / s_1²
    error: float  # about the distance of the span of the left singular vectors from the true one


def randomized_svd(
    Xc: Centered, r: int, *, tol: float = 1e-3, max_iter: int = 200, seed: int = 0
) -> Result[Embedding]:
    """Return the r largest singular values of Xc (n × d) with their left singular vectors.

    Xc is never formed. Subspace iteration with oversampling (Halko, Martinsson, Tropp 2011,
    algorithm 4.4) holds arrays of the smaller side alone, of min(n, d) rows. A step takes one pass
    over X by S = XcᵀXc where d < n, and two by S = XcXcᵀ else. A Rayleigh–Ritz step gives the
    vectors V of S and their residuals at once. Where d < n, one more pass gives U = Xc V diag(1/s).
    The start is the same for any tiling.

    It stops where ‖SV − V diag(s²)‖ / (s_r² − s_{r+1}²) is at most `tol`. This bounds the sine of
    the angle between the span of V and the true one (Davis and Kahan 1970). That of U by way of V
    is at most 1 + s_{r+1} / s_r times as much (Wedin 1972), and this bound is compared. A gap
    below 0.01 s_1² counts as 0.01 s_1²: the vectors beyond such a gap are as good as those kept.

    The result is an `Embedding` of U and s. Vectors of negligible singular value are left out, so
    there may be fewer than r. The stats have `residual`, `error` and `passes`.
    """
    n, d = Xc.shape
    m, is_tall = min(n, d), d < n
    if not 1 <= r <= min(n - 1, d):
        raise ValueError(
            f"the number of singular vectors must be at most {min(n - 1, d)} for a centered "
            f"{n} × {d} matrix; got {r}"
        )
    width = min(r + OVERSAMPLING, m)
    # of a step: Q, SQ and the four arrays of its QR decomposition, two V, and the sums of a pass
    step_floats = m * (6 * width + 2 * r) + 2 * d * width
    last_floats = (3 * n + 2 * d) * r  # U with the part that is taken from it, and V
    engine.require_memory(
        8 * max(step_floats, last_floats),
        f"{r} singular vectors of a {n} × {d} matrix",
    )
    passes_before = Xc.X.passes

    def step(state: SubspaceState) -> SubspaceState:
        SQ = Xc.gram_times(state.Q) if is_tall else Xc @ Xc.rmatmul(state.Q)
        G = state.Q.T @ SQ
        squares, W = np.linalg.eigh((G + G.T) / 2)
        squares, W = np.maximum(squares[::-1], np.finfo(float).tiny), W[:, ::-1][:, :r]
        V = state.Q @ W
        residuals = np.linalg.norm(SQ @ W - V * squares[:r], axis=0)
        next_square = squares[r] if len(squares) > r else 0.0
        gap = max(squares[r - 1] - next_square, MIN_GAP * squares[0])
        by_way = 1 + np.sqrt(next_square / squares[r - 1]) if is_tall else 1
        return SubspaceState(
            np.linalg.qr(SQ)[0],
            V,
            np.sqrt(squares[:r]),
            float(residuals.max() / squares[0]),
            float(by_way * np.linalg.norm(residuals) / gap),
        )

    def start() -> AnyArray:
        return np.linalg.qr(np.random.default_rng(seed).normal(size=(m, width)))[0]

    result = iterate(
        step,
        SubspaceState(start(), np.zeros((m, r)), np.zeros(r), np.inf, np.inf),
        measure=lambda state: {"residual": state.residual, "error": state.error},
        stop="error",
        tol=tol,
        max_iter=max_iter,
        name="randomized SVD",
    )
    state = result.value
    U, s = state.V, state.s
    if is_tall:
        U = Xc @ state.V
        s = np.linalg.norm(U, axis=0)
        U /= np.maximum(s, np.finfo(float).tiny)
    stats = {
        "residual": state.residual,
        "error": state.error,
        "passes": Xc.X.passes - passes_before,
    }
    kept = s > NEGLIGIBLE_SINGULAR_VALUE * s[0]
    embedding = Embedding(fix_signs(U[:, kept]), s[kept])
    return Result(embedding, result.status, result.history, stats)
