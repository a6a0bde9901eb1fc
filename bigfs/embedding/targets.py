"""The targets T of each graph embedding: what SparGE asks the features to explain.

In SparGE's Table 1 an embedding is a positive semi-definite S = HHᵀ (n × n). S is never formed. T
holds the left singular vectors of H with non-negligible singular value, so that TᵀT = I.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.embedding import spectral
from bigfs.matrix import Centered, Matrix
from bigfs.matrix.class_sums import class_sizes
from bigfs.result import Result
from bigfs.types import FloatArray, IntArray

NEGLIGIBLE_SINGULAR_VALUE = 1e-8  # of the largest one
# what a thin SVD of n × k numbers takes: what it is of, two copies, the vectors twice, and k × k of
# LAPACK (measured)
SVD_ARRAYS, SVD_SQUARES = 5, 7


def one_hot(codes: IntArray, c: int) -> FloatArray:
    """Return Y (n × c) of class numbers, if it fits, with zeros for an unlabeled sample (−1)."""
    engine.require_memory(2 * 8 * len(codes) * c, f"{len(codes)} targets of {c} classes each")
    Y = np.zeros((len(codes), c))
    labeled = np.flatnonzero(codes >= 0)
    Y[labeled, codes[labeled]] = 1
    return Y


def lda_factor(codes: IntArray, c: int, weights: FloatArray | None = None) -> FloatArray:
    """Return C (c × c−1) with T = YC of linear discriminant analysis, Y the class indicators.

    S = Y(YᵀY)⁻¹Yᵀ, taken between the centered indicators. The factor H = (I − 11ᵀ/n) Y diag(n_c)^-½
    has c − 1 singular values, and all are one. So T = Y diag(n_c)^-½ U, with U an orthonormal basis
    of the complement of √n_c.

    With weights v of the classes, H = (I − 11ᵀ/n) Y diag(v)^½. Then T = HU, with U a basis of the
    complement of v^-½, has TTᵀ = HHᵀ. No weights mean v = 1/n_c.
    """
    sizes = class_sizes(codes, c).astype(np.float64)
    if sizes.min() == 0:
        raise ValueError(f"class number {int(sizes.argmin())} has no sample: every class needs one")
    root = np.sqrt(sizes) if weights is None else 1 / np.sqrt(weights)
    basis = np.linalg.qr(np.column_stack([root, np.eye(c)[:, : c - 1]]))[0]
    # q_kk ≠ 0, so that the sign of the contrast of class k and those after it is not LAPACK's
    U = basis[:, 1:] * np.where(np.diag(basis)[1:] < 0, -1.0, 1.0)
    C: FloatArray = U / root[:, None]
    return C if weights is None else C - sizes @ C / sizes.sum()


def pca(X: Matrix, r: int, *, tol: float = 1e-3, seed: int = 0) -> Result[spectral.Embedding]:
    """Return T (n × r), the leading left singular vectors of Xc, fewer if X has lower rank.

    A randomized SVD computes them with implicit centering. `tol` is about the largest distance of T
    from its projection on the true space.
    """
    if not X.deviations.any():
        raise ValueError("all samples of X are equal up to rounding: pca needs samples that differ")
    return spectral.randomized_svd(Centered(X), r, tol=tol, seed=seed)


def _thin_svd(A: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the left singular vectors of A (n × q) and its singular values."""
    n, k = max(A.shape), min(A.shape)
    engine.require_memory(
        8 * (SVD_ARRAYS * n * k + SVD_SQUARES * k * k),
        f"the singular vectors of {A.shape[1]} targets of {A.shape[0]} samples",
    )
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    return U, s


def cca(Y: FloatArray) -> FloatArray:
    """Return T (n × rank) of canonical correlation analysis: a basis of the centered targets.

    S = Yc(YcᵀYc)⁺Ycᵀ for any real Y (n × q): real targets, or the indicators of several labels per
    sample.
    """
    U, s = _thin_svd(Y - Y.mean(axis=0))
    if s.size == 0 or s[0] <= 0:
        raise ValueError("the targets are constant: cca needs targets that vary")
    return spectral.fix_signs(U[:, s > NEGLIGIBLE_SINGULAR_VALUE * s[0]])


def cca_factor(Y: sp.csr_array) -> tuple[FloatArray, FloatArray]:
    """Return C (q × rank) and the shift with which T = YC − 1 shiftᵀ, for sparse targets Y (n × q).

    They come from the q × q matrix YcᵀYc. Its small eigenvalues are less exact than singular values
    of Yc, so directions below the square root of `NEGLIGIBLE_SINGULAR_VALUE` are dropped.
    """
    Y = sp.csr_array(Y, dtype=np.float64)  # sums of small whole numbers would overflow
    means = np.asarray(Y.mean(axis=0)).ravel()
    squares, vectors = np.linalg.eigh((Y.T @ Y).toarray() - Y.shape[0] * np.outer(means, means))
    squares, vectors = squares[::-1], vectors[:, ::-1]
    if not len(squares) or squares[0] <= 0:
        raise ValueError("the targets are constant: cca needs targets that vary")
    kept = squares > NEGLIGIBLE_SINGULAR_VALUE * squares[0]
    C = spectral.fix_signs(vectors[:, kept]) / np.sqrt(squares[kept])
    return C, means @ C


def hsl_labels(Y: FloatArray) -> FloatArray:
    """Return T of hypergraph spectral learning with one hyperedge per label.

    Y (n × q) holds 0 and 1. S = I − L_H = HHᵀ with H = D_v^-½ Y D_e^-½, so T is a thin SVD. The
    trivial vector D_v^½ 1, of singular value 1, is dropped. A sample without labels is in no
    hyperedge and has a zero row.
    """
    if not np.isin(Y, (0, 1)).all():
        raise ValueError(
            "hsl needs classes or an indicator of label sets, of 0 and 1; got other numbers: "
            "embedding='cca' takes real targets and counts"
        )
    degree = Y.sum(axis=1)
    if not degree.any():
        raise ValueError(
            "no sample has a label: hsl needs labels, or y=None for the "
            "hypergraph of the neighborhoods"
        )
    inverse_root = np.sqrt(np.divide(1, degree, out=np.zeros_like(degree), where=degree > 0))
    H = inverse_root[:, None] * Y / np.sqrt(np.maximum(Y.sum(axis=0), 1))
    trivial = np.sqrt(degree / degree.sum())
    U, s = _thin_svd(H - np.outer(trivial, trivial @ H))
    return spectral.fix_signs(U[:, s > NEGLIGIBLE_SINGULAR_VALUE])


def sda(
    A: sp.csr_array, codes: IntArray, c: int, r: int, beta: float
) -> Result[spectral.Embedding]:
    """Return T (n × r) of semi-supervised discriminant analysis as the vectors of the result.

    It holds the leading eigenvectors, off the constant direction (I + βD)^½ 1, of::

        (I + βD)^-½ (W_b + βA) (I + βD)^-½,    W_b = E diag(1/l_c) Eᵀ

    E (n × c) are the indicators of the labeled samples, l_c of them in class c. The operator is of
    low rank plus sparse.
    """
    E = one_hot(codes, c)
    E = E / np.sqrt(np.maximum(E.sum(axis=0), 1))
    scale = np.sqrt(1 + beta * A.sum(axis=1))
    constant = scale / np.linalg.norm(scale)

    def multiply(V: FloatArray) -> FloatArray:
        V = V - np.outer(constant, constant @ V)
        W = V / scale[:, None]
        W = (E @ (E.T @ W) + beta * (A @ W)) / scale[:, None]
        return W - np.outer(constant, constant @ W)

    trivial = sp.csr_array(constant[:, None])
    return spectral.leading_eigenvectors(multiply, r, trivial, "the sda embedding")
