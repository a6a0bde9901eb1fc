"""The trace ratio against all sets of features, and TRCFS against dense propagation and scatter."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import TRCFS, Fisher, Matrix, TraceRatio
from bigfs.graph import affinity, knn
from bigfs.result import Status
from bigfs.selectors.scores.trace_ratio import best_set
from tests.helpers.fitting import fit_and_resume


@pytest.fixture
def sample(rng):
    """60 × 10 with zeros, on different scales, in three classes."""
    y = rng.integers(0, 3, 60)
    X = rng.normal(size=(60, 10)) + rng.uniform(0, 2, 10) * y[:, None]
    return X * rng.uniform(0.2, 3, 10) * (rng.random((60, 10)) < 0.8), y


def scatter(X, y):
    means = np.array([X[y == c].mean(axis=0) for c in range(3)])[y]
    return ((means - X.mean(axis=0)) ** 2).sum(axis=0), ((X - means) ** 2).sum(axis=0)


def on_graph(X, A):
    D, L = np.diag(A.sum(axis=1)), np.diag(A.sum(axis=1)) - A
    one = np.ones(len(X))
    G = X - (one @ D @ X) / (one @ D @ one)
    return np.einsum("ij,ik,kj->j", G, D, G), np.einsum("ij,ik,kj->j", X, L, X)


def best_of_all(b, w, m):
    sets = [list(s) for s in itertools.combinations(range(len(b)), m)]
    ratios = [b[s].sum() / w[s].sum() for s in sets]
    return sets[int(np.argmax(ratios))], max(ratios)


@pytest.mark.parametrize("form", ["fisher", "laplacian"])
@pytest.mark.parametrize("m", [1, 3, 6])
def test_no_set_has_a_larger_ratio(sample, form, m):
    X, y = sample
    A = affinity(knn(Matrix.from_array(X), 5, metric="euclidean"), "heat").toarray()
    b, w = scatter(X, y) if form == "fisher" else on_graph(X, A)
    features, largest = best_of_all(b, w, m)
    selector = TraceRatio(n_features_to_select=m, form=form, metric="euclidean")
    selector.fit(sp.csr_array(X), y)
    assert sorted(selector.selected_) == features
    assert selector.ratio_ == pytest.approx(largest, rel=1e-9)
    np.testing.assert_allclose(selector.scores_, b - largest * w, atol=1e-8 * w.max() * largest)
    assert selector.result_.status is Status.CONVERGED


def test_the_set_is_not_that_of_the_single_ratios():
    b, w = np.array([9.0, 50.0, 4.0]), np.array([1.0, 10.0, 0.5])
    assert sorted(best_set(b, w, 2).value.features) == [0, 2]
    b, w = np.array([9.0, 700.0, 0.4]), np.array([1.0, 100.0, 0.05])
    result = best_set(b, w, 2)
    assert sorted(result.value.features) == best_of_all(b, w, 2)[0]
    ratios = [record["ratio"] for record in result.history]
    assert ratios == sorted(ratios)


def test_features_without_spread_within_come_first():
    X = np.array([[0.0, 1, 5, 2], [0, 1, 4, 2], [2, 9, 5, 2], [2, 9, 6, 2]])
    selector = TraceRatio(n_features_to_select=2).fit(X, [0, 0, 1, 1])
    assert selector.selected_.tolist() == [1, 0]
    assert selector.ratio_ == np.inf
    selector = TraceRatio(n_features_to_select=4).fit(X, [0, 0, 1, 1])
    assert selector.ratio_ == pytest.approx((4 + 64 + 1) / (0.5 + 0.5))
    assert best_set(np.zeros(3), np.array([0, 1.0, 2.0]), 2).value.lam == 0
    assert best_set(np.array([0, 0, 1.0]), np.array([0, 0, 2.0]), 2).value.lam == 0.5


def test_a_killed_run_resumes(sample):
    X, y = sample
    expected, resumed = fit_and_resume(TraceRatio(n_features_to_select=4), X, y, die_after=1)
    np.testing.assert_array_equal(resumed.scores_, expected.scores_)


@pytest.mark.parametrize("alpha", [0.5, 0.99])
def test_trcfs_is_propagation_and_soft_scatter(sample, alpha):
    X, y = sample
    known = np.arange(60) % 4 == 0
    A = affinity(knn(Matrix.from_array(X), 5, metric="euclidean"), "heat").toarray()
    P = alpha * A / A.sum(axis=1)[:, None]
    P[known] = 0
    F = np.linalg.solve(np.eye(60) - P, np.eye(3)[y] * known[:, None])
    sizes, weight = F.sum(axis=0), F.sum(axis=1)
    mean = weight @ X / weight.sum()
    between = sizes @ ((F.T @ X) / sizes[:, None] - mean) ** 2
    selector = TRCFS(alpha=alpha, metric="euclidean")
    selector.fit(Matrix.from_array(X), np.where(known, y, -1))
    np.testing.assert_allclose(selector.label_distributions_, F, atol=1e-8)
    np.testing.assert_allclose(selector.scores_, between / (weight @ (X - mean) ** 2), rtol=1e-6)
    assert selector.result_.stats["residual"] <= 1e-9


def test_trcfs_of_labels_alone_ranks_as_fisher(sample):
    X, y = sample
    assert TRCFS().fit(X, y).selected_.tolist() == Fisher().fit(X, y).selected_.tolist()
