"""DLSR and SPFS against the formulas of their papers on dense data."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn import linear_model
from sklearn.metrics.pairwise import rbf_kernel

from bigfs import DLSR, SPFS


@pytest.fixture
def data(rng):
    """50 × 30 in three classes of 30, 12 and 8 samples, with a constant column."""
    y = np.repeat(np.arange(3), (30, 12, 8))
    X = rng.normal(size=(50, 30)) * (rng.random((50, 30)) < 0.6)
    X[:, 5] += 1.5 * (y == 1)
    X[:, 6] += 1.5 * (y == 2)
    X[:, 4] = 2
    return X, y


def dragged_objective(X, y, W, gamma):
    """DLSR's objective at the best intercept and M ≥ 0, by a smooth minimization over b."""
    Y = np.eye(3)[y]
    B = np.where(Y == 1, 1, -1)

    def loss(b):
        E = X @ W + b - Y
        M = np.maximum(B * E, 0)  # the best M ≥ 0
        return ((E - B * M) ** 2).sum(), 2 * (E - B * M).sum(axis=0)

    found = minimize(loss, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-9})
    return found.fun + gamma * np.linalg.norm(W, axis=1).sum(), found.x


@pytest.mark.parametrize("gamma", [2.0, 6.0])
def test_dlsr_is_optimal_for_the_printed_problem(data, gamma):
    X, y = data
    selector = DLSR(gamma=gamma, tol=1e-8).fit(sp.csr_array(X), y)
    W, Y = selector.coef_, np.eye(3)[y]
    _, b = dragged_objective(X, y, W, gamma)
    B = np.where(Y == 1, 1, -1)
    E = X @ W + b - Y
    slope = 2 * X.T @ (E - B * np.maximum(B * E, 0))  # of the loss along W, at the best M
    norms = np.linalg.norm(W, axis=1)
    active = norms > 0
    assert np.linalg.norm(slope, axis=1).max() <= gamma * (1 + 1e-3)
    np.testing.assert_allclose(
        slope[active], -gamma * W[active] / norms[active, None], atol=2e-3 * gamma
    )
    np.testing.assert_allclose(selector.scores_[active], norms[active])
    assert 2 <= active.sum() < 29
    assert selector.gamma_ == pytest.approx(gamma)


def test_gap_of_dlsr_bounds_its_optimum(data):
    X, y = data
    loose, close = (DLSR(gamma=2.0, tol=tol).fit(X, y) for tol in (0.2, 1e-8))
    gap = loose.result_.history[-1]["gap"]
    values = [dragged_objective(X, y, s.coef_, 2.0)[0] for s in (loose, close)]
    assert values[0] == pytest.approx(loose.result_.history[-1]["objective"] / 2)
    assert 1e-4 < gap <= 0.2
    assert values[0] * (1 - gap) <= values[1] <= values[0]


def test_spfs_regresses_on_a_factor_of_the_class_kernel(data):
    X, y = data
    K = (y[:, None] == y) / np.bincount(y)[y]
    values, vectors = np.linalg.eigh(K)
    assert np.allclose(values[-3:], 1)  # any other factor is a rotation of this one
    Phi = vectors[:, -3:]
    model = linear_model.MultiTaskLasso(alpha=0.005, tol=1e-12, max_iter=100_000)
    expected = np.linalg.norm(model.fit(X, Phi).coef_, axis=0)
    scores = SPFS(alpha=0.005, tol=1e-9).fit(sp.csr_array(X), y).scores_
    np.testing.assert_allclose(np.maximum(scores, 0), expected, atol=1e-6)
    assert 2 <= np.count_nonzero(expected) < 29


def test_spfs_without_labels_preserves_a_gaussian_kernel(data):
    X, _ = data
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    sigma = distances[~np.eye(50, dtype=bool)].mean()
    values, vectors = np.linalg.eigh(rbf_kernel(X, gamma=1 / (2 * sigma**2)))
    Phi = vectors * np.sqrt(values)
    model = linear_model.MultiTaskLasso(alpha=0.055, tol=1e-12, max_iter=100_000)
    expected = np.linalg.norm(model.fit(X, Phi).coef_, axis=0)
    scores = SPFS(alpha=0.055, tol=1e-9).fit(X).scores_  # 50 landmarks: exact
    np.testing.assert_allclose(np.maximum(scores, 0), expected, atol=1e-6)
    assert 2 <= np.count_nonzero(expected) < 29
