"""RFS against a dense loop written from the formulas of docs/methods/rfs.md and against bounds."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.datasets import load_digits

from bigfs import JFS, RFS, Matrix
from bigfs.engine import MemoryLimitError, limit_memory
from bigfs.linalg.ridge.plan import SOLVERS
from bigfs.result import Status
from bigfs.selectors.row_sparse.rfs import RFSProblem
from tests.helpers.fitting import fit_few_steps


@pytest.fixture
def data(rng):
    """45 × 20 in three classes, an empty and a constant column."""
    y = np.arange(45) % 3
    X = rng.normal(size=(45, 20)) * (rng.random((45, 20)) < 0.6)
    X[:, 5] += 2 * (y == 1)
    X[:, 6] += 2 * (y == 2)
    X[:, 3], X[:, 4] = 0, 2
    return X, y


def norms(W, axis=1):
    return np.linalg.norm(W, axis=axis)


def dense_rfs(X, y, gamma, rounds):
    """The loop with a column of ones in place of M, without smoothing δ and our solvers."""
    Y, n, d = np.eye(3)[y], len(y), X.shape[1]
    hat = np.column_stack([X, np.ones(n)])
    theta, a, objective = np.ones(d), np.full(n, 1 / norms(Y - Y.mean(axis=0)).mean()), []
    theta[~X.any(axis=0)] = 0
    before, epsilon, age = (theta, a), None, 1.0

    def one_round(theta, a):
        nonlocal epsilon
        on = np.append(theta > 1e-6 * theta.max(), True)
        penalty = np.append(gamma / (2 * theta[on[:-1]]), 0)
        U = np.zeros((d + 1, 3))
        Z = hat[:, on]
        U[on] = np.linalg.solve(Z.T @ (a[:, None] * Z) + np.diag(penalty), Z.T @ (a[:, None] * Y))
        residuals = norms(Y - hat @ U)
        epsilon = epsilon or 1e-4 * residuals.mean()
        lengths = np.sqrt(residuals**2 + epsilon**2)
        return U, norms(U[:-1]), 1 / (2 * lengths), lengths.sum() + gamma * norms(U[:-1]).sum()

    for _ in range(rounds):
        following = (1 + np.sqrt(1 + 4 * age**2)) / 2
        momentum = (age - 1) / following
        growth = np.divide(theta, before[0], out=np.ones(d), where=(theta > 0) & (before[0] > 0))
        ahead = theta * growth**momentum, a * (a / before[1]) ** momentum
        end, age = one_round(*ahead), following
        if momentum and end[-1] > objective[-1]:
            end, age = one_round(theta, a), 1.0
        before = theta, a
        U, theta, a, value = end
        objective.append(value)
    return U[:-1], U[-1], np.array(objective)


@pytest.mark.parametrize("solver", [*SOLVERS, "auto"])
@pytest.mark.parametrize("gamma", [0.3, 3.0])
def test_equals_the_dense_loop(data, solver, gamma):
    X, y = data
    W, b, objective = dense_rfs(X, y, gamma, 7)
    options = {"solver_tol": 1e-13, "solver_max_iter": 500, "max_iter": 7, "tol": 0}
    selector = fit_few_steps(RFS(gamma=gamma, solver=solver, **options), sp.csr_array(X), y)
    np.testing.assert_allclose(selector.coef_, W, atol=1e-7 * np.abs(W).max())
    np.testing.assert_allclose(selector.intercept_, b, atol=1e-6)
    values = [r["objective"] for r in selector.result_.history]
    np.testing.assert_allclose(values, objective, rtol=1e-8)
    assert np.all(np.diff(values) <= 1e-12 * objective[0])  # descent


def test_gap_bounds_the_optimum_that_another_method_finds(data):
    X, y = data
    Y = np.eye(3)[y]

    def objective(u, smooth=1e-12):
        U = u.reshape(21, 3)
        R, W = X @ U[:-1] + U[-1] - Y, U[:-1]
        return (
            np.sqrt((R**2).sum(axis=1) + smooth).sum()
            + 2 * np.sqrt((W**2).sum(axis=1) + smooth).sum()
        )

    best = np.full(63, 0.01)
    for smooth in (1e-3, 1e-6, 1e-9):
        best = minimize(objective, best, (smooth,), "L-BFGS-B", options={"maxfun": 10**6}).x
    optimum = objective(best)
    selector = RFS(gamma=2.0, tol=1e-2, max_iter=1000).fit(X, y)
    last = selector.result_.history[-1]
    reached = objective(np.vstack([selector.coef_, selector.intercept_]).ravel())
    assert selector.result_.status is Status.CONVERGED
    assert 0 <= last["objective"] - reached <= 1e-2 * reached  # at most half of tol for each norm
    assert reached * (1 - last["gap"]) <= optimum + 1e-4  # smoothed by 1e-6 per norm
    assert optimum <= reached * (1 + 1e-6)
    assert 0 < last["gap"] <= 1e-2


def test_features_without_a_weight_follow_by_their_correlation(data):
    X, y = data
    selector = RFS(gamma=12.0, tol=5e-3, max_iter=1000).fit(X, y)
    R = np.eye(3)[y] - X @ selector.coef_ - selector.intercept_
    V = R / np.sqrt(norms(R) ** 2 + selector.result_.value.epsilon**2)[:, None]
    correlations = norms(X.T @ (V - V.mean(axis=0)))
    out = selector.scores_ <= 0
    assert 5 < out.sum() < 20
    expected = correlations / correlations.max() - 1
    np.testing.assert_allclose(selector.scores_[out], expected[out], atol=1e-9)
    np.testing.assert_allclose(selector.scores_[~out], norms(selector.coef_)[~out])
    assert set(selector.selected_[:2]) == {5, 6}


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_jfs_in_other_units_takes_the_same_rounds(data, unit):
    X = data[0]
    expected = JFS(gamma=2.0, tol=1e-2, max_iter=1000).fit(X)
    found = JFS(gamma=2.0 * unit, tol=1e-2, max_iter=1000).fit(unit * X)
    np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-6)
    assert found.n_iter_ == expected.n_iter_


def test_a_small_penalty_of_separable_classes_reaches_its_tolerance(rng):
    y = np.arange(12) % 3
    X = rng.normal(size=(12, 30))
    selector = RFS(gamma=1e-4, tol=1e-2, max_iter=1000).fit(X, y)
    assert selector.result_.status is Status.CONVERGED
    assert selector.result_.history[-1]["objective"] < 12e-4  # n times the old absolute smoothing


def test_a_feature_that_left_returns(data):
    X, y = data
    problem = RFSProblem(Matrix.from_array(X), np.eye(3)[y], 2.0, tol=1e-2, ridge={})
    start = problem.start()
    start.theta[[5, 9]] = 0
    states = [start]
    while states[-1].gap > 1e-2:
        states.append(problem.step(states[-1]))
    first = next(s for s in states if np.isfinite(s.gap))
    assert first.gap > 0.1  # solved without them, and refused
    assert first.theta[5] > 0
    whole = RFS(gamma=2.0, tol=1e-2, max_iter=1000).fit(X, y).result_.value
    assert states[-1].objective <= whole.objective * 1.011


SELECTOR = RFS(gamma=1.0, tol=0.03, solver_tol=1e-12, solver_max_iter=500)


def test_solver_that_does_not_fit_is_refused(data):
    X, y = data
    with limit_memory(20_000), pytest.raises(MemoryLimitError, match="ridge solve by woodbury"):
        RFS(solver="woodbury").fit(X, y)


def test_constant_features_are_refused(data):
    with pytest.raises(ValueError, match="every feature of X that may be chosen is constant"):
        RFS().fit(np.zeros((45, 3)), data[1])


@pytest.mark.parametrize("gamma", [30.0, 100.0, 1e3])
def test_a_penalty_that_leaves_no_weight_is_certified(gamma):
    """W = 0 is optimal up to `tol`. The correlations with the residuals rank the features."""
    X, y = load_digits(return_X_y=True)
    rows = np.concatenate([np.flatnonzero(y == c)[:4] for c in range(10)])
    model = RFS(gamma=gamma, max_iter=50, n_features_to_select=20).fit(X[rows] / 16, y[rows])
    assert model.result_.history[-1]["gap"] <= model.tol
    np.testing.assert_allclose(model.coef_, 0, atol=1e-4)
    assert len(np.unique(model.scores_)) > 40


def test_raw_counts_that_are_met_exactly_reach_their_tolerance(rng):
    """Most residuals are zero at the optimum, where plain rounds take hundreds (issue 15)."""
    y = np.arange(150) % 2
    X = sp.csr_array(rng.poisson(rng.gamma(0.1, 1.0, (2, 300))[y]) * 1.0)
    selector = RFS(gamma=0.1).fit(X, y)
    assert selector.result_.status is Status.CONVERGED
    assert selector.n_iter_ <= 60
