"""GLSPFS and JFS against the formulas of their papers on dense data."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import rbf_kernel

from bigfs import GLSPFS, JFS, Matrix
from bigfs.engine import MemoryLimitError, limit_memory
from bigfs.graph import affinity, knn


@pytest.fixture
def X(rng):
    """40 × 12: six columns, and six noisy sums of two of them."""
    first = rng.normal(size=(40, 6)) * (rng.random((40, 6)) < 0.7)
    return np.hstack([first, first @ rng.normal(size=(6, 6)) / 2 + 0.1 * rng.normal(size=(40, 6))])


def norms(W):
    return np.linalg.norm(W, axis=1)


def test_glspfs_is_optimal_for_the_printed_problem(X):
    mu, lam = 0.5, 0.8
    selector = GLSPFS(mu=mu, lam=lam, metric="euclidean", tol=1e-6, max_iter=3000)
    W = selector.fit(sp.csr_array(X)).coef_
    A = affinity(knn(Matrix.from_array(X), 5, metric="euclidean")).toarray()
    root = np.sqrt(A.sum(axis=1))
    L = np.eye(40) - A / np.outer(root, root)
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    sigma = distances[~np.eye(40, dtype=bool)].mean()
    K = rbf_kernel(X, gamma=1 / (2 * sigma**2))
    # W = P⁻¹XᵀΦ solves the convex problem, with ΦΦᵀ = K
    P = X.T @ X + mu / 2 * X.T @ L @ X + np.diag(lam / (2 * norms(W)))
    half = np.linalg.solve(P, X.T)
    np.testing.assert_allclose(W @ W.T, half @ K @ half.T, atol=1e-5)
    np.testing.assert_allclose(selector.scores_, norms(W))
    loss = np.trace(K) - 2 * np.trace(half @ K @ X) + np.trace(X @ W @ W.T @ X.T)
    smoothness = np.trace(W.T @ X.T @ L @ X @ W)
    assert selector.result_.history[-1]["objective"] == pytest.approx(
        loss + mu / 2 * smoothness + lam * norms(W).sum(), rel=1e-5
    )
    assert norms(W).max() > 1.5 * norms(W).min()


def test_jfs_is_rfs_on_the_features_themselves(X):
    """Its optimality: ‖x_jᵀV‖ ≤ γ over the directions V of the residuals, with equality at W."""
    gamma = 6.0
    selector = JFS(gamma=gamma, tol=1e-4, max_iter=3000).fit(sp.csr_array(X))
    W = selector.coef_
    R = X - X @ W - selector.intercept_
    V = R / np.sqrt(norms(R) ** 2 + 1e-8)[:, None]
    np.testing.assert_allclose(V.sum(axis=0), 0, atol=0.05)
    slopes, on = X.T @ V, norms(W) > 1e-3
    assert 3 <= on.sum() < 12
    np.testing.assert_allclose(slopes[on], gamma * W[on] / norms(W[on])[:, None], atol=0.05 * gamma)
    assert norms(slopes).max() <= gamma * 1.02
    objective = norms(R).sum() + gamma * norms(W).sum()
    assert objective == pytest.approx(selector.result_.history[-1]["objective"], rel=1e-4)


def test_jfs_refuses_features_that_do_not_fit(X):
    with (
        limit_memory(30_000),
        pytest.raises(MemoryLimitError, match=r"12 features of 40 samples .* needs 31\.50 kiB"),
    ):
        JFS().fit(X)
