"""T, the response that a graph embedding asks the features to explain: TᵀT = I, S = HHᵀ in its
span.

SparGE's Table 1: each embedding is a positive semi-definite S (n × n), never formed; T holds the
left singular vectors of its factor with non-negligible singular value.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.embedding import spectral
from bigfs.graph.hypergraph import Hypergraph
from bigfs.matrix import Block, Centered, Matrix
from bigfs.types import FloatArray, IntArray

CONSTANT = 1e-13  # a squared singular value over Σx² that is only rounding
NEGLIGIBLE = 1e-8  # of the largest singular value


def one_hot(codes: IntArray, c: int) -> FloatArray:
    """Y (n × c) of class numbers; an unlabelled row (−1) is zero."""
    Y = np.zeros((len(codes), c))
    known = np.flatnonzero(codes >= 0)
    Y[known, codes[known]] = 1
    return Y


def lda(codes: IntArray, c: int) -> FloatArray:
    """T (n × c−1) of linear discriminant analysis, in closed form.

    S = Y(YᵀY)⁻¹Yᵀ between the centred indicators: H = (I − 11ᵀ/n) Y diag(n_c)^-½ has c − 1 singular
    values, all one, so T = Y diag(n_c)^-½ U with U an orthonormal basis of what is orthogonal to
    √n_c.
    """
    sizes = np.bincount(codes, minlength=c).astype(float)
    if sizes.min() == 0:
        raise ValueError(f"class number {int(sizes.argmin())} has no sample: every class needs one")
    root = np.sqrt(sizes)
    basis = np.linalg.qr(np.column_stack([root, np.eye(c)[:, : c - 1]]))[0]
    U = basis[:, 1:] * np.sign(np.diag(basis)[1:] + 0.5)  # a sign of its own, not LAPACK's
    return (U / root[:, None])[codes]


def pca(X: Matrix, r: int, *, tol: float = 1e-3, seed: int = 0) -> FloatArray:
    """T (n × r): the leading left singular vectors of Xc, by a randomized SVD with implicit
    centring.

    Their space is as exact as `tol` asks: ‖T − its projection on the true space‖ is about `tol` at
    most.

    Raises
    ------
    ValueError
        All samples are the same.
    """
    found = spectral.randomized_svd(Centered(X, X.means), r, tol=tol, seed=seed).value
    if not len(found.values) or found.values[0] ** 2 <= CONSTANT * X.stats.sums_of_squares.sum():
        raise ValueError("all samples of X are equal up to rounding: pca needs samples that differ")
    return found.vectors


def cca(Y: FloatArray) -> FloatArray:
    """T of canonical correlation analysis: an orthonormal basis of the centred targets, (n × rank).

    S = Yc(YcᵀYc)⁺Ycᵀ for any real Y (n × q): real targets, or the indicators of several labels a
    sample.
    """
    U, s, _ = np.linalg.svd(Y - Y.mean(axis=0), full_matrices=False)
    if s.size == 0 or s[0] <= 0:
        raise ValueError("the targets are constant: cca needs targets that vary")
    return spectral.signed(U[:, s > NEGLIGIBLE * s[0]])


def lpp(A: sp.csr_array, r: int) -> FloatArray:
    """T (n × r) of locality preserving projections: the leading eigenvectors of D^-½ A D^-½,
    trivial ones dropped.
    """
    return spectral.graph_embedding(A, r).value.vectors


def hsl_labels(Y: FloatArray) -> FloatArray:
    """T of hypergraph spectral learning with one hyperedge a label: Y (n × q) holds 0 and 1.

    S = I − L_H = HHᵀ with H = D_v^-½ Y D_e^-½, so T is a thin SVD; the trivial D_v^½ 1 (value 1) is
    dropped. A sample without labels is in no hyperedge and has a zero row.
    """
    degree = Y.sum(axis=1)
    if not degree.any():
        raise ValueError(
            "no sample has a label: hsl needs labels, or y=None for the "
            "hypergraph of the neighbourhoods"
        )
    root = np.sqrt(np.divide(1, degree, out=np.zeros_like(degree), where=degree > 0))
    H = root[:, None] * Y / np.sqrt(np.maximum(Y.sum(axis=0), 1))
    trivial = np.sqrt(degree / degree.sum())
    U, s, _ = np.linalg.svd(H - np.outer(trivial, trivial @ H), full_matrices=False)
    return spectral.signed(U[:, s > NEGLIGIBLE])


def hsl_neighbours(hypergraph: Hypergraph, r: int) -> FloatArray:
    """T (n × r) of hypergraph spectral learning on any hypergraph: the leading eigenvectors of I −
    L_H.
    """
    return spectral.hypergraph_embedding(hypergraph, r).value.vectors


def sda(A: sp.csr_array, codes: IntArray, c: int, r: int, beta: float) -> FloatArray:
    """T (n × r) of semi-supervised discriminant analysis: the leading eigenvectors of

        (I + βD)^-½ (W_b + βA) (I + βD)^-½,   W_b = E diag(1/l_c) Eᵀ, E (n × c) the labelled
            indicators,

    a low rank plus a sparse operator, off its constant direction (I + βD)^½ 1.
    """
    E = one_hot(codes, c)
    E = E / np.sqrt(np.maximum(E.sum(axis=0), 1))
    scale = np.sqrt(1 + beta * A.sum(axis=1))
    constant = scale / np.linalg.norm(scale)

    def times(V: FloatArray) -> FloatArray:
        V = V - np.outer(constant, constant @ V)
        W = V / scale[:, None]
        W = (E @ (E.T @ W) + beta * (A @ W)) / scale[:, None]
        return W - np.outer(constant, constant @ W)

    trivial = sp.csr_array(constant[:, None])
    return spectral.leading(
        times, r, trivial, tol=1e-8, max_iter=1000, seed=0, name="the sda embedding"
    ).value.vectors


# --- kernels by their factors -------------------------------------------------------------------


def same_class_factor(codes: IntArray, c: int) -> FloatArray:
    """Φ (n × c) with ΦΦᵀ = 1/n_c between labelled samples of class c, else 0."""
    Y = one_hot(codes, c)
    sizes = Y.sum(axis=0)
    if sizes.min(initial=1) == 0:
        raise ValueError(f"class number {int(sizes.argmin())} has no sample: every class needs one")
    return np.asarray(Y / np.sqrt(sizes))


def gaussian_factor(X: Matrix, r: int, *, sigma: float | None = None, seed: int = 0) -> FloatArray:
    """Φ (n × at most r) with ΦΦᵀ ≈ exp(−‖x_i − x_j‖²/2σ²), by Nyström on r random samples.

    Φ = K_nr U Λ^-½ from the kernel K_rr = UΛUᵀ between the landmarks, so that the kernel is exact
    among them. With r = n it is exact. Two passes.

    Parameters
    ----------
    sigma : default: the mean distance between two landmarks.
    seed : of the choice of landmarks.

    Source: Williams and Seeger, Using the Nyström method to speed up kernel machines, NIPS 2000.
    """
    n, d = X.shape
    r = min(r, n)
    _ = X.stats  # refuses values whose squares overflow
    engine.require_memory(8 * r * (d + 4 * n), f"{r} landmarks of a Gaussian kernel")
    rows = np.sort(np.random.default_rng(seed).choice(n, r, replace=False))
    Z = X.take_rows(rows).columns(np.arange(d)).toarray().astype(np.float64)
    squares = np.concatenate(X.map_rows(_row_squares))
    distances = np.maximum(
        squares[:, None] + np.sum(Z**2, axis=1) - 2 * (X @ np.ascontiguousarray(Z.T)), 0
    )
    distances[rows, np.arange(r)] = 0
    if sigma is None:
        between = np.sqrt(distances[rows])[~np.eye(r, dtype=bool)]
        sigma = float(between.mean()) if len(between) and between.any() else 1.0
    K = np.exp(-distances / (2 * sigma**2))
    values, vectors = np.linalg.eigh(K[rows])
    kept = values > 1e-10 * values[-1]
    return np.asarray(K @ (vectors[:, kept] / np.sqrt(values[kept])))


def _row_squares(block: Block, start: int, stop: int) -> FloatArray:
    squared = (
        block.astype(np.float64).power(2)
        if sp.issparse(block)
        else np.asarray(block, dtype=np.float64) ** 2
    )
    return np.asarray(squared.sum(axis=1)).ravel()
