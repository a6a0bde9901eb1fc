"""SRLSR and RLSR against a dense loop written from the formulas of docs/methods/srlsr.md and
against bounds.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from bigfs import RLSR, SRLSR
from bigfs.linalg.prox import project_simplex
from bigfs.linalg.ridge import SOLVERS
from bigfs.matrix import Matrix
from bigfs.result import Status, observed
from tests.helpers.fitting import MemoryCheckpoint, fit_few_steps


def data(n=40, d=15, c=3, seed=0, labeled=None):
    """Two informative columns per class; column 3 empty, column 4 constant; all but `labeled`
    samples per class are −1.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(n) % c
    X = sp.random_array((n, d), density=0.5, format="lil", rng=rng)
    for k in range(c):
        X[y == k, 5 + k] = 1 + rng.random((np.sum(y == k), 1))[:, 0]
    X[:, 3] = 0
    X[:, 4] = 2.0
    if labeled is not None:
        for k in range(c):
            y[np.flatnonzero(y == k)[labeled:]] = -1
            y[np.flatnonzero(y == k)[:labeled]] = k
    return sp.csr_array(X), y


def dense_srlsr(X, y, p, gamma, rounds):
    """The loop on dense arrays, with no working set, no warm start and none of our solvers."""
    X = X.toarray()
    n, d = X.shape
    classes = np.unique(y[y != -1])
    known = y != -1
    Y = np.full((n, len(classes)), 1 / len(classes))
    Y[known] = y[known, None] == classes
    Xc, phi, objective = X - X.mean(axis=0), np.ones(d), []
    for _ in range(rounds):
        active = phi > 0
        W = np.zeros((d, len(classes)))
        K = Xc[:, active] * phi[active] @ Xc[:, active].T + gamma * np.eye(n)
        W[active] = phi[active, None] * (Xc[:, active].T @ np.linalg.solve(K, Y - Y.mean(axis=0)))
        b = (Y - X @ W).mean(axis=0)
        Y = np.where(known[:, None], Y, project_simplex(X @ W + b))
        norms = np.linalg.norm(W, axis=1)
        objective.append(np.sum((X @ W + b - Y) ** 2) + gamma * np.sum(norms**p) ** (2 / p))
        theta = norms**p / np.sum(norms**p)
        theta[theta < 1e-10 * theta.max()] = 0
        theta /= theta.sum()
        phi = theta ** (2 / p - 1)
    return W, b, Y, theta, np.array(objective)


def fit(cls, X, y, **parameters):
    return fit_few_steps(cls(**parameters), X, y)


@pytest.mark.parametrize("p", [1.0, 0.7, 0.5])
@pytest.mark.parametrize(
    ("n", "d", "labeled"), [(40, 15, None), (40, 15, 1), (21, 50, 3), (21, 50, 1)]
)
@pytest.mark.parametrize("solver", [*SOLVERS, "auto"])
def test_equals_the_dense_loop(solver, n, d, labeled, p):
    X, y = data(n, d, labeled=labeled)
    W, b, Y, theta, objective = dense_srlsr(X, y, p, 0.05, 6)
    model = fit(
        SRLSR,
        X,
        y,
        p=p,
        gamma=0.05,
        solver=solver,
        solver_tol=1e-13,
        solver_max_iter=500,
        max_iter=6,
        tol=0,
    )
    np.testing.assert_allclose(model.coef_, W, atol=1e-6 * np.abs(W).max())
    np.testing.assert_allclose(model.theta_, theta, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, b, atol=1e-6)
    np.testing.assert_allclose(model.label_distributions_, Y, atol=1e-6)
    np.testing.assert_allclose(
        [r["objective"] for r in model.result_.history], objective, rtol=1e-6
    )
    assert not model.coef_[[3, 4]].any()  # empty, constant


@pytest.mark.parametrize("p", [1.0, 0.5])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_objective_never_rises_after_the_first_round(solver, p):
    for seed in range(2):
        X, y = data(30, 60, seed=seed, labeled=2)
        model = fit(SRLSR, X, y, p=p, gamma=1e-3, solver=solver, max_iter=25, tol=0)
        values = np.array([r["objective"] for r in model.result_.history])
        assert np.all(np.diff(values) <= 1e-9 * values[:-1])


@pytest.mark.slow
def test_rlsr_does_not_depend_on_the_start(rng):
    X, y = data(30, 20, labeled=4)
    start = 10 ** rng.uniform(-2, 2, 20)
    a, b = (
        RLSR(gamma=0.05, tol=1e-9, solver_tol=1e-12, max_iter=20_000, start=s).fit(X, y)
        for s in (None, start)
    )
    objectives = [m.result_.history[-1]["objective"] for m in (a, b)]
    assert a.result_.status is Status.CONVERGED
    # each is within its gap of the optimum
    assert objectives[0] == pytest.approx(objectives[1], rel=2e-9)
    # ‖XW − XW*‖² ≤ gap · objective by strong convexity of the loss; the weights follow where the
    # support is well conditioned
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-3 * np.abs(a.coef_).max())
    np.testing.assert_allclose(a.theta_, b.theta_, atol=1e-3)


@pytest.mark.slow
def test_the_duality_gap_bounds_the_optimum_that_another_method_finds():
    X, y = data(24, 8)
    gamma, dense_X, Y = 0.3, X.toarray(), (y[:, None] == np.arange(3)).astype(float)
    Xc, Yc = dense_X - dense_X.mean(axis=0), Y - Y.mean(axis=0)

    def objective(w):
        W = w.reshape(8, 3)
        return (
            np.sum((Xc @ W - Yc) ** 2) + gamma * np.sum(np.sqrt(np.sum(W**2, axis=1) + 1e-14)) ** 2
        )

    best = minimize(
        objective,
        np.full(24, 0.01),
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 10**6, "ftol": 1e-15},
    ).fun
    model = RLSR(gamma=gamma, tol=1e-3).fit(X, y)
    reached = model.result_.history[-1]
    assert reached["objective"] * (1 - reached["gap"]) <= best * (1 + 1e-9)
    assert best <= reached["objective"] * (1 + 1e-5)


def test_inactive_feature_that_violates_optimality_returns():
    X, y = data(40, 15)
    start = np.ones(15)
    start[5:8] = 1e-250  # the informative ones: gone after the first round
    model = RLSR(gamma=0.05, start=start, tol=1e-6, max_iter=5000).fit(X, y)
    features = [r["features"] for r in model.result_.history]
    assert min(features) < max(features[features.index(min(features)) :])
    fair = RLSR(gamma=0.05, tol=1e-6, max_iter=5000).fit(X, y)
    assert model.result_.value.objective == pytest.approx(fair.result_.value.objective, rel=2e-6)


def test_features_of_zero_weight_rank_last_by_correlation_with_the_residual():
    X, y = data(40, 15)
    model = SRLSR(p=0.5, gamma=0.5, n_features_to_select=15).fit(X, y)
    out = model.theta_ == 0
    assert out.sum() > 3
    assert np.all(model.scores_[out] <= 0)
    assert np.all(model.scores_[~out] > 0)
    V = model.label_distributions_ - X @ model.coef_ - model.intercept_
    correlations = np.linalg.norm(X.T @ (V - V.mean(axis=0)), axis=1)
    order = [j for j in model.selected_ if out[j]]
    assert np.all(np.diff(correlations[order]) <= 1e-12)


def test_permuting_features_permutes_scores_and_tiles_do_not_matter(rng):
    X, y = data(40, 20, labeled=5)
    order = rng.permutation(20)
    parameters = {"gamma": 0.01, "solver_tol": 1e-12, "max_iter": 15, "tol": 0}
    a = fit(SRLSR, X, y, **parameters)
    b = fit(SRLSR, X[:, order], y, **parameters)
    c = fit(SRLSR, Matrix.from_array(X, tile_rows=7, tile_columns=3), y, **parameters)
    np.testing.assert_allclose(b.scores_, a.scores_[order], atol=1e-8)
    np.testing.assert_allclose(c.scores_, a.scores_, atol=1e-8)
    np.testing.assert_array_equal(c.selected_, a.selected_)


def test_predicts_and_completes_labels():
    X, y = data(90, 15, labeled=4)
    model = SRLSR(p=0.7, gamma=0.01, n_features_to_select=3).fit(X, y)
    truth = np.arange(90) % 3
    assert set(model.get_support(indices=True)) == {5, 6, 7}
    assert (model.predict(X) == truth).mean() > 0.9
    np.testing.assert_array_equal(
        model.predict(Matrix.from_array(X, tile_rows=11)), model.predict(X.toarray())
    )
    Y = model.label_distributions_
    np.testing.assert_allclose(Y.sum(axis=1), 1, atol=1e-12)
    assert Y.min() >= 0
    np.testing.assert_array_equal(Y[y != -1].argmax(axis=1), y[y != -1])


def test_resumes_from_a_checkpoint():
    X, y = data(40, 20, labeled=5)
    whole = fit(SRLSR, X, y, gamma=0.01, max_iter=9, tol=0)
    kept = MemoryCheckpoint()
    with observed(checkpoint=kept):
        fit(SRLSR, X, y, gamma=0.01, max_iter=4, tol=0)
        resumed = fit(SRLSR, X, y, gamma=0.01, max_iter=9, tol=0)
    assert len(resumed.result_.history) == 9
    np.testing.assert_allclose(resumed.scores_, whole.scores_, rtol=1e-9)


def test_bad_input_is_named():
    X, y = data()
    with pytest.raises(ValueError, match="15 positive numbers"):
        RLSR(start=np.zeros(15)).fit(X, y)
    with pytest.raises(ValueError, match="1 class"):
        SRLSR().fit(X, np.where(y == 0, 0, -1))
    with pytest.raises(ValueError, match="no feature of X is correlated"):
        SRLSR().fit(np.ones((6, 2)), [0, 1, 0, 1, 0, 1])
