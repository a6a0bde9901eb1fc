"""MCFS and MRSF against dense eigenvectors and scikit-learn's regressions."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from sklearn import linear_model
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph

from bigfs import JELSR, MCFS, MRSF, NDFS, Matrix, SparGE
from bigfs.graph import affinity, knn


@pytest.fixture
def clusters(rng):
    """66 × 30 in three clusters on features 4 and 11, with a constant column."""
    y = np.arange(66) % 3
    X = rng.normal(size=(66, 30)) * (rng.random((66, 30)) < 0.7)
    X[:, 4] += 4 * (y == 1)
    X[:, 11] += 4 * (y == 2)
    X[:, 8] = 2
    return X


def heat_graph(X, k=5):
    """The affinity of euclidean neighbors with heat weights, dense, from scikit-learn's graph."""
    distance = kneighbors_graph(X, k, mode="distance")
    width = distance.data.mean()
    distance.data = np.exp(-(distance.data**2) / (2 * width**2))
    A = distance.toarray()
    return np.maximum(A, A.T)


def targets(A, r):
    """The generalized eigenvectors of the least eigenvalues but the trivial one, by LAPACK."""
    D = np.diag(A.sum(axis=1))
    values, Y = scipy.linalg.eigh(D - A, D)
    assert values[1] > 1e-6  # connected
    return Y[:, 1 : r + 1]


def expected_scores(X, T, alpha, shared):
    options = {"alpha": alpha, "tol": 1e-11, "max_iter": 100_000}
    if shared:
        W = linear_model.MultiTaskLasso(**options).fit(X, T).coef_
        return np.linalg.norm(W, axis=0)
    W = [linear_model.Lasso(**options).fit(X, t).coef_ for t in T.T]
    return np.abs(W).max(axis=0)


@pytest.mark.parametrize(("cls", "shared"), [(MCFS, False), (MRSF, True)])
@pytest.mark.parametrize("alpha", [0.002, 0.01])
def test_scores_are_those_of_the_dense_formula(clusters, cls, shared, alpha):
    X = clusters
    A = heat_graph(X)
    ours = affinity(knn(Matrix.from_array(X), 5, metric="euclidean"), weights="heat")
    np.testing.assert_allclose(ours.toarray(), A, atol=1e-12)
    expected = expected_scores(X, targets(A, 3), alpha, shared)
    selector = cls(alpha=alpha, n_components=3, metric="euclidean", tol=1e-9)
    selector.fit(sp.csr_array(X))
    np.testing.assert_allclose(np.maximum(selector.scores_, 0), expected, atol=1e-6)
    assert 0 < np.count_nonzero(expected > 1e-9) < 29
    assert selector.alpha_ == pytest.approx(alpha)


def test_mcfs_takes_the_absolute_weight(clusters):
    selector = MCFS(n_components=3, n_features_to_select=9, metric="euclidean").fit(clusters)
    signed = selector.coef_.max(axis=1)
    negative = (selector.scores_ > 0) & (signed <= 0)
    assert negative.any()
    np.testing.assert_array_equal(selector.scores_[negative], -selector.coef_[negative].min(axis=1))


@pytest.mark.parametrize("selector", [MCFS(tol=1e-7), MRSF(tol=1e-7)])
class TestBoth:
    def test_finds_the_features_of_the_clusters(self, clusters, selector):
        selector = clone(selector).set_params(n_features_to_select=2, n_components=2)
        assert set(selector.set_params(metric="euclidean").fit(clusters).selected_) == {4, 11}

    def test_graph_of_the_user(self, clusters, selector):
        expected = selector.fit(clusters).scores_
        # a constant column takes no part
        neighbors = knn(Matrix.from_array(np.delete(clusters, 8, axis=1)), 5)
        for graph in (neighbors, affinity(neighbors, weights="cosine")):
            found = clone(selector).set_params(graph=graph).fit(clusters).scores_
            np.testing.assert_array_equal(found, expected)
        with pytest.raises(ValueError, match="but X has 66 samples"):
            clone(selector).set_params(graph=sp.eye_array(5, format="csr")).fit(clusters)


def test_each_eigenvector_has_features_of_its_own():
    """MCFS's penalties are the same share of those that empty the lassos."""
    X = load_digits().data[:120]
    selector = MCFS(n_features_to_select=8, n_components=9, tol=1e-9).fit(X)
    assert np.count_nonzero(selector.coef_, axis=0).min() >= 1
    A = affinity(knn(Matrix.from_array(X), 5), "cosine")
    T = targets(A.toarray(), 9)
    T -= T.mean(axis=0)
    largest = np.abs(X.T @ T).max(axis=0) / 120
    np.testing.assert_allclose(selector.alpha_ / largest, selector.alpha_[0] / largest[0])
    W = [
        linear_model.Lasso(alpha=alpha, tol=1e-11, max_iter=100_000).fit(X, t).coef_
        for alpha, t in zip(selector.alpha_, T.T, strict=True)
    ]
    np.testing.assert_allclose(np.abs(selector.coef_), np.abs(W).T, atol=1e-7)
    expected = np.abs(W).max(axis=0)
    np.testing.assert_allclose(np.maximum(selector.scores_, 0), expected, atol=1e-7)


def test_a_forbidden_feature_does_not_set_the_penalties(clusters):
    without = MCFS(n_features_to_select=4).fit(np.delete(clusters, 4, axis=1))
    graph = affinity(knn(Matrix.from_array(np.delete(clusters, [4, 8], axis=1)), 5), "cosine")
    found = MCFS(n_features_to_select=4, forbid=[4], graph=graph).fit(clusters)
    np.testing.assert_allclose(found.alpha_, without.alpha_)
    np.testing.assert_allclose(np.delete(found.coef_, 4, axis=0), without.coef_, atol=1e-9)


@pytest.mark.parametrize(
    "selector",
    [MCFS(), MRSF(), NDFS(), JELSR(), SparGE(embedding="lpp"), SparGE(embedding="hsl")],
    ids=lambda selector: type(selector).__name__,
)
def test_cliques_have_a_contrast_less_than_there_are(rng, selector):
    """Nine samples in three cliques, which share no feature, have two positive eigenvalues."""
    X = np.kron(np.eye(3), np.ones((3, 4))) * (0.1 + rng.random((9, 12)))
    selector = selector.set_params(n_features_to_select=3, n_neighbors=2).fit(X)
    assert selector.coef_.shape[1] == 2
    assert selector.result_.stats["contrasts"] == 2
    with pytest.raises(ValueError, match="8 non-trivial eigenvectors; 9 were requested"):
        selector.set_params(n_components=9).fit(X)
    if not isinstance(selector, NDFS):  # whose three clusters are cliques
        with pytest.raises(ValueError, match="2 eigenvectors have a positive eigenvalue"):
            selector.set_params(n_components=3).fit(X)
