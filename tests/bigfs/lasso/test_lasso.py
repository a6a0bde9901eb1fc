"""The multi-task lasso and the ℓ1 SVM against scikit-learn's, and their duality gaps."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from sklearn import linear_model
from sklearn.svm import LinearSVC

from bigfs import L1SVM, Matrix, MultiTaskLasso
from bigfs.cutting_plane.hinge import best_slack
from bigfs.engine import MemoryLimitError, limit_memory
from bigfs.linalg.descent import descend
from bigfs.result import NotConvergedWarning, Status
from tests.helpers.fitting import fit_few_steps


@pytest.fixture
def noisy(rng):
    """60 × 90, half of it zero, three classes, an empty and a constant column."""
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 90)) * (rng.random((60, 90)) < 0.5)
    X[:, 4] += y
    X[:, 11] += y == 1
    X[:, 7], X[:, 8] = 0, 2
    return X, y


def lasso_of(X, y, alpha):
    Y = np.eye(y.max() + 1)[y]
    return linear_model.MultiTaskLasso(alpha=alpha, tol=1e-10, max_iter=100_000).fit(X, Y)


def best_intercept(f, sign):
    return minimize_scalar(
        lambda b: (np.maximum(1 - sign * (f + b), 0) ** 2).sum(), options={"xtol": 1e-12}
    ).x


def hinge_objective(X, y, W, C):
    """The objective of the ℓ1 SVM at the best intercepts, by scalar minimization."""
    total = np.abs(W).sum()
    for k in range(W.shape[1]):
        sign = np.where(y == (k if W.shape[1] > 1 else 1), 1, -1)
        f = X @ W[:, k]
        slack = np.maximum(1 - sign * (f + best_intercept(f, sign)), 0)
        total += C * (slack**2).sum()
    return total


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_multi_task_lasso_is_scikit_learns(noisy, alpha):
    X, y = noisy
    selector = MultiTaskLasso(alpha=alpha, tol=1e-9).fit(sp.csr_array(X), y)
    expected = lasso_of(X, y, alpha).coef_.T
    np.testing.assert_allclose(selector.coef_, expected, atol=1e-5)
    norms = np.linalg.norm(expected, axis=1)
    np.testing.assert_allclose(np.maximum(selector.scores_, 0), norms, atol=1e-5)
    assert selector.alpha_ == pytest.approx(alpha)
    # a feature without a weight: its correlation with the residual, relative to the bound
    V = np.eye(3)[y] - X @ expected
    V -= V.mean(axis=0)
    share = np.linalg.norm(X.T @ V, axis=1) / (60 * alpha)
    np.testing.assert_allclose(selector.scores_[norms == 0], share[norms == 0] - 1, atol=1e-3)


@pytest.mark.parametrize("C", [0.1, 1.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_l1_svm_is_optimal(noisy, C, n_classes):
    X, y = noisy
    y = np.minimum(y, n_classes - 1)
    selector = L1SVM(C=C, tol=1e-8).fit(sp.csr_array(X), y)
    W = selector.coef_
    for k in range(W.shape[1]):
        sign = np.where(y == (k if n_classes > 2 else 1), 1, -1)
        b = best_intercept(X @ W[:, k], sign)
        slope = -2 * C * X.T @ (sign * np.maximum(1 - sign * (X @ W[:, k] + b), 0))
        assert np.abs(slope).max() <= 1 + 1e-3
        active = W[:, k] != 0
        np.testing.assert_allclose(slope[active], -np.sign(W[active, k]), atol=1e-3)
    assert pytest.approx(C) == selector.C_


def test_a_penalty_that_empties_the_model_ranks_by_correlation(noisy):
    X, y = noisy
    selector = MultiTaskLasso(alpha=10).fit(X, y)
    assert not selector.coef_.any()
    assert selector.result_.status is Status.CONVERGED
    correlations = np.linalg.norm(X.T @ (np.eye(3)[y] - np.eye(3)[y].mean(axis=0)), axis=1)
    correlations[8] = 0  # it is constant
    informed = np.setdiff1d(np.arange(90), [7, 8])
    expected = informed[np.argsort(-correlations[informed])][:45]
    np.testing.assert_array_equal(selector.selected_, expected)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_l1_svm_is_scikit_learns_but_for_the_intercept(noisy):
    X, y = noisy
    selector = L1SVM(C=0.2, tol=1e-6).fit(X, y)
    model = LinearSVC(penalty="l1", dual=False, C=0.2, tol=1e-6, intercept_scaling=30)
    expected = model.fit(X, y).coef_.T
    ours, theirs = (hinge_objective(X, y, W, 0.2) for W in (selector.coef_, expected))
    assert ours <= theirs <= 1.01 * ours
    np.testing.assert_allclose(selector.coef_, expected, atol=0.02)


def test_gaps_bound_the_optimum(noisy):
    X, y = noisy
    loose = MultiTaskLasso(alpha=0.01, tol=0.2).fit(X, y)
    gap = loose.result_.history[-1]["gap"]
    values = []
    for W in (loose.coef_, lasso_of(X, y, 0.01).coef_.T):
        V = np.eye(3)[y] - X @ W
        V -= V.mean(axis=0)
        values.append((V**2).sum() / 2 + 0.6 * np.linalg.norm(W, axis=1).sum())
    assert loose.result_.history[-1]["objective"] == pytest.approx(values[0])
    assert 1e-6 < gap <= 0.2
    assert values[0] * (1 - gap) <= values[1] <= values[0]

    y = np.minimum(y, 1)
    loose = L1SVM(C=1.0, tol=0.2).fit(X, y)
    gap = loose.result_.history[-1]["gap"]
    close = L1SVM(C=1.0, tol=1e-6).fit(X, y)
    values = [hinge_objective(X, y, s.coef_, 1.0) for s in (loose, close)]
    assert 2 * loose.result_.history[-1]["objective"] == pytest.approx(values[0])
    assert 1e-4 < gap <= 0.2
    assert values[0] * (1 - gap) <= values[1] <= values[0]


def test_auto_takes_the_largest_penalty_with_enough_features(noisy):
    X, y = noisy
    selector = MultiTaskLasso(n_features_to_select=12, tol=1e-8).fit(X, y)

    def count(alpha):
        return np.count_nonzero(np.linalg.norm(lasso_of(X, y, alpha).coef_, axis=0) > 1e-9)

    assert count(selector.alpha_ / 0.8) < 12 <= count(selector.alpha_)
    assert np.count_nonzero(selector.scores_ > 0) == count(selector.alpha_)
    largest = np.linalg.norm(X.T @ (np.eye(3)[y] - 1 / 3), axis=1).max() / 60
    steps = np.log(selector.alpha_ / largest) / np.log(0.8)
    assert steps == pytest.approx(round(steps))


def test_path_ends_where_no_more_features_come(noisy):
    X, y = noisy
    X, y = X[:9], y[:9]  # at most 8 × 3 weights
    selector = fit_few_steps(L1SVM(n_features_to_select=80), X, y)
    assert selector.result_.history[-1]["penalty"] == pytest.approx(1e-3)
    assert 3 < np.count_nonzero(selector.scores_ > 0) < 30
    assert len(selector.selected_) == 80
    assert selector.scores_[[7, 8]].tolist() == [-1, -1]


def test_descent_is_the_lasso_of_scikit_learn(rng):
    Z, t = rng.normal(size=(40, 12)), rng.normal(size=40)
    expected = linear_model.Lasso(alpha=0.1, fit_intercept=False, tol=1e-12).fit(Z, t).coef_
    W = descend(Z.T @ Z, Z.T @ t[:, None], np.zeros((12, 1)), t @ t, 4.0, 1e-12, 1000)
    np.testing.assert_allclose(W[:, 0], expected, atol=1e-8)
    assert np.count_nonzero(W) < 12


def test_best_intercepts_minimize_the_loss(rng):
    F = 10 ** rng.uniform(-3, 3, 6) * rng.normal(size=(30, 6)) + rng.normal(size=6) * 100
    Y = np.where(rng.random((30, 6)) < 0.3, 1, -1)
    V, b = best_slack(F, Y.astype(float), np.ones(30), np.zeros(6))
    np.testing.assert_allclose(V, Y * np.maximum(1 - Y * (F + b), 0))
    assert np.abs(V.sum(axis=0)).max() <= 1e-9 * np.abs(F).max()


@pytest.mark.parametrize("selector", [MultiTaskLasso(tol=1e-6), L1SVM(tol=1e-4)])
class TestBoth:
    def test_each_step_is_one_pass(self, noisy, selector):
        X, y = noisy
        matrix = Matrix.from_array(sp.csr_array(X), tile_rows=20, tile_columns=30)
        selector.fit(matrix, y)
        assert matrix.passes == selector.n_iter_ + 2  # the statistics, and λ_max

    def test_too_little_memory_is_refused(self, noisy, selector):
        X, y = noisy
        with limit_memory(15_000), pytest.raises(MemoryLimitError, match="3 sparse regressions on"):
            selector.fit(X, y)
        with limit_memory(27_000), pytest.raises(MemoryLimitError, match="a working set of"):
            selector.fit(X, y)

    def test_limit_of_passes_warns(self, noisy, selector):
        X, y = noisy
        limited = type(selector)(max_iter=2)
        with pytest.warns(NotConvergedWarning, match="missing"):
            limited.fit(X, y)
        assert limited.result_.status.name == "MAX_ITER"

    def test_the_end_of_the_grid_is_named_with_what_is_missing(self, rng, selector):
        X, y = rng.normal(size=(10, 30)), np.arange(10) % 2
        with pytest.warns(NotConvergedWarning, match="least penalty"):
            ended = type(selector)(n_features_to_select=28).fit(X, y)
        last = ended.result_.history[-1]
        assert ended.result_.status.name == "GRID_END"
        assert last["missing"] == 28 - last["features"] > 0
        assert last["gap"] <= ended.tol
        assert len(ended.selected_) == 28

    def test_constant_features_are_refused(self, noisy, selector):
        _, y = noisy
        with pytest.raises(ValueError, match="is constant"):
            selector.fit(np.ones((60, 3)), y)
