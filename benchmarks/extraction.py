"""Extractions to compare selections with: PCA, LPP and 2DLDA. They are not selectors.

    pca     v_k = Xcᵀu_k / s_k,    Xc = Σ u_k s_k v_kᵀ
    lpp     W = (XcᵀXc + ρI)⁻¹ XcᵀT,    LT = DTΛ                    [He, Niyogi, NIPS 2003]
    lda2d   S_b v = λ S_w v,    the embedding of an image A is AV    [Li, Yuan, PRL 2005]

Each gives a linear map, which takes training and test samples tile by tile. `score` trains the
model of `bigfs.evaluation.linear_model` on the embedding, as for the columns of a selection.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from bigfs import engine
from bigfs.embedding.spectral import randomized_svd
from bigfs.embedding.targets import one_hot
from bigfs.evaluation import linear_model
from bigfs.evaluation.scoring import score_predictions
from bigfs.evaluation.splits import Split
from bigfs.graph import Metric
from bigfs.linalg.ridge import Ridge
from bigfs.linalg.ridge.operator import centering
from bigfs.matrix import Block, Centered, Matrix
from bigfs.selectors.base.labels import Labels, labeled_part
from bigfs.selectors.base.sample_graph import sample_graph
from bigfs.selectors.penalty_path.sparse_regression import spectral_targets
from bigfs.types import FloatArray, IntArray

SCATTER_SHARE = 1e-6  # of the mean of S_w's diagonal, added to it


class Extraction(NamedTuple):
    """A linear map of the samples."""

    mean: FloatArray  # (d,), subtracted from a sample
    components: FloatArray  # d × r

    def embed(self, X: Matrix) -> FloatArray:
        """Return the embedding of samples (n × r). Reads X once."""
        return np.asarray(X @ self.components - self.mean @ self.components)


def pca(X: Matrix, r: int, *, tol: float = 1e-3, seed: int = 0) -> Extraction:
    """Return the r leading principal axes, by a randomized SVD of the centered X."""
    Xc = Centered(X)
    U, s = randomized_svd(Xc, r, tol=tol, seed=seed).value
    return Extraction(X.means, np.asarray(Xc.rmatmul(U) / s))


def lpp(
    X: Matrix,
    r: int,
    *,
    graph: Any = None,
    n_neighbors: int = 5,
    metric: Metric = "cosine",
    reg: float = 1e-3,
) -> Extraction:
    """Return r locality preserving projections, by ridge regression on the eigenvectors."""
    n, d = X.shape
    T = spectral_targets(sample_graph(X, graph, n_neighbors, metric), r, d)
    mean_square = float(X.stats.sums_of_squares.mean()) or 1.0
    ridge = Ridge(X, centering(n), targets=r)
    return Extraction(X.means, ridge.prepare(np.full(d, reg * mean_square)).solve(T).W)


def lda2d(X: Matrix, y: Labels, shape: tuple[int, int], r: int) -> Extraction:
    """Return r directions of the rows of images that tell the classes apart."""
    M, N = shape
    if X.shape[1] != M * N or not 1 <= r <= N:
        raise ValueError(
            f"images of {M} × {N} pixels and {r} directions need {M * N} features and at most {N} "
            f"directions; X has {X.shape[1]} features"
        )
    engine.require_memory(8 * M * N * M * r, f"a map of {M} × {N} pixels to {M} × {r}")
    X, classes, codes = labeled_part(X, y)
    between, within = _scatters(X, codes, len(classes), shape)
    within[np.diag_indices(N)] += SCATTER_SHARE * max(float(np.trace(within)) / N, 1e-300)
    V = scipy.linalg.eigh(between, within, subset_by_index=[N - r, N - 1])[1][:, ::-1]
    return Extraction(np.zeros(M * N), np.kron(np.eye(M), V / np.linalg.norm(V, axis=0)))


def _scatters(
    X: Matrix, codes: IntArray, c: int, shape: tuple[int, int]
) -> tuple[FloatArray, FloatArray]:
    """Return S_b = Σ n_c (Ā_c − Ā)ᵀ(Ā_c − Ā) and S_w = Σ (A_i − Ā_c)ᵀ(A_i − Ā_c), N × N."""
    M, N = shape
    total = np.asarray(sum(X.map(_row_gram, 0, N)))
    sizes = np.bincount(codes, minlength=c)
    means = np.asarray(X.T @ one_hot(codes, c)).T.reshape(c, M, N) / sizes[:, None, None]
    apart = means - np.tensordot(sizes / sizes.sum(), means, axes=1)
    gram_of_means = np.einsum("c,cmi,cmj->ij", sizes, means, means)
    return np.einsum("c,cmi,cmj->ij", sizes, apart, apart), total - gram_of_means


def _row_gram(block: Block, start: int, stop: int, N: int) -> FloatArray:
    """Return Σ AᵀA of the images of a tile."""
    Z = block.toarray() if sp.issparse(block) else np.asarray(block)
    rows = Z.astype(np.float64).reshape(-1, N)
    return np.asarray(rows.T @ rows)


def score(extraction: Extraction, split: Split) -> dict[str, float]:
    """Return the scores of the model that a selection is scored by, on an embedding."""
    model = linear_model.fit(extraction.embed(split.X_train), split.y_train)
    return score_predictions(model, model.predict(extraction.embed(split.X_test)), split.y_test)
