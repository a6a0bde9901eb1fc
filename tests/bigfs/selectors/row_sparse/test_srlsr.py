"""SRLSR and RLSR against a dense loop written from the formulas of docs/methods/srlsr.md and
against bounds.
"""

import tracemalloc
from functools import partial
from itertools import pairwise

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from bigfs import RLSR, SRLSR, engine
from bigfs.linalg.prox import project_simplex
from bigfs.linalg.ridge.cg import CG
from bigfs.linalg.ridge.direct import Woodbury
from bigfs.linalg.ridge.plan import SOLVERS
from bigfs.matrix import Matrix, kernels
from bigfs.result import Status, observe
from bigfs.selectors.row_sparse.label_sums import complete_labels, sum_samples
from bigfs.selectors.row_sparse.rows import MAX_MOMENTUM, norm_alone, without_negligible
from bigfs.selectors.row_sparse.srlsr import FIRST, RESTART, SRLSRProblem
from tests.helpers.daily import daily
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
        accelerate=False,
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


def most_rise(history):
    """The largest relative rise of the objective in a round that keeps its samples."""
    pairs = [(a, b) for a, b in pairwise(history) if a["samples"] == b["samples"]]
    return max(b["objective"] / a["objective"] - 1 for a, b in pairs)


@pytest.mark.parametrize("p", [1.0, 0.5])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_objective_never_rises_after_the_first_round(solver, p):
    for seed in range(2):
        X, y = data(30, 60, seed=seed, labeled=2)
        model = fit(SRLSR, X, y, p=p, gamma=1e-3, solver=solver, max_iter=25, tol=0)
        assert most_rise(model.result_.history) <= 1e-9


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


@pytest.mark.parametrize("layout", ["both", "rows", "columns", "dense"])
def test_the_sums_over_samples_are_the_dense_ones(layout, rng, change):
    change(kernels.STRIP_ROWS, 4)
    change(kernels.SMALL_SUM, 0)
    X, y = data(40, 15, labeled=3)
    tiled = Matrix.from_array(X.toarray() if layout == "dense" else X, tile_rows=7, tile_columns=4)
    rows = () if layout == "columns" else tiled.row_tiles
    columns = () if layout == "rows" else tiled.column_tiles
    W, b = rng.normal(size=(15, 3)), rng.normal(size=3)
    matrix = Matrix(X.shape, rows=rows, columns=columns, local=True)
    sums = sum_samples(matrix, y, W, b)
    assert matrix.passes == (2 if layout == "columns" else 1)

    Y = np.where((y >= 0)[:, None], y[:, None] == np.arange(3), project_simplex(X @ W + b))
    V = Y - X @ W - b
    np.testing.assert_allclose(complete_labels(matrix, y, W, b), Y, atol=1e-14)
    expected = {
        "V": V.sum(axis=0),
        "labeled_V": V[y >= 0].sum(axis=0),
        "V_norm2": np.sum(V**2),
        "labeled_VY": np.sum((V * Y)[y >= 0]),
        "least_V": V[y < 0].min(axis=1).sum(),
        "product": X.T @ V,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(sums, name), value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cls", [SRLSR, RLSR])
def test_nothing_of_samples_by_classes_is_made(cls, rng, change):
    """60 classes and 12,000 samples: Y, XW or V would each take 5.8 MB."""
    change(kernels.STRIP_ROWS, 256)
    n, c = 12_000, 60
    codes = np.arange(n) % c
    X = sp.csr_array((np.ones(n), codes, np.arange(n + 1)), shape=(n, c))
    X.data += rng.random(n)
    tiled = Matrix.from_array(X, tile_rows=500)
    y = np.where(np.arange(n) < n // 10, codes, -1)
    fit(cls, tiled, y, max_iter=1, tol=0, solver="cg")  # compile
    with engine.limit_memory(16 << 20):
        tracemalloc.start()
        model = fit(cls, tiled, y, max_iter=3, tol=0, solver="cg", gamma=1e-3)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 8 * n * c / 2
    with pytest.raises(AttributeError, match="would take more than 25% of the memory limit"):
        model.label_distributions_  # noqa: B018
    assert not hasattr(model, "label_distributions_")
    with pytest.raises(AttributeError, match="no attribute 'label_distributions_'"):
        cls().label_distributions_  # noqa: B018


def test_the_labels_take_little_more_than_themselves(rng):
    n, c = 16_000, 40
    codes = np.arange(n) % c
    X = sp.csr_array((np.ones(n), codes, np.arange(n + 1)), shape=(n, c))
    tiled, W, b = Matrix.from_array(X, tile_rows=400), rng.normal(size=(c, c)), np.zeros(c)
    complete_labels(tiled, codes, W, b)  # compile
    tracemalloc.start()
    Y = complete_labels(tiled, codes, W, b)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * Y.nbytes
    np.testing.assert_array_equal(Y, np.eye(c)[codes])


def test_a_round_is_one_pass_and_one_per_step_of_cg(monkeypatch):
    X, y = data(40, 15, labeled=5)
    steps, solve = [], CG.solve

    def count(self, *operands):
        steps.append(solve(self, *operands))
        return steps[-1]

    monkeypatch.setattr(CG, "solve", count)
    tiled = Matrix.from_array(X, tile_rows=7)
    with engine.limit_memory(12_000):  # too little to gather the columns
        plain = {"solver": "cg", "solver_tol": 1e-6, "accelerate": False}
        model = fit(SRLSR, tiled, y, p=0.7, gamma=1e-3, max_iter=4, tol=0, **plain)
    assert not any(plan["gathered"] for plan in model.result_.stats["plans"])
    iterations = sum(solution.iterations for solution in steps)
    # statistics, the first labels, four rounds, the scores, the labels
    assert model.result_.stats["passes"] == 1 + 1 + 4 + iterations + 1 + 1


def test_rounds_read_nothing_for_labels_that_are_all_known(monkeypatch):
    """XcᵀY is constant, and the solve knows the rest. Only a claim to be solved is checked."""
    X, y = data(40, 15)
    passes = []
    for tol in (0, 1e-2):
        tiled, steps, solve = Matrix.from_array(X, tile_rows=7), [], CG.solve

        def count(self, *operands, solve=solve, steps=steps):
            steps.append(solve(self, *operands))
            return steps[-1]

        monkeypatch.setattr(CG, "solve", count)
        with engine.limit_memory(12_000):  # too little to gather the columns
            given = {"solver": "cg", "solver_tol": 1e-6, "accelerate": False, "max_iter": 4}
            model = fit(SRLSR, tiled, y, p=0.7, gamma=1e-3, tol=tol, **given)
        monkeypatch.undo()
        passes.append(model.result_.stats["passes"] - sum(s.iterations for s in steps))
        V = np.eye(3)[y] - X @ model.coef_ - model.intercept_
        norms = np.linalg.norm(model.coef_, axis=1)
        objective = np.sum(V**2) + 1e-3 * np.sum(norms**0.7) ** (2 / 0.7)
        assert model.result_.history[-1]["objective"] == pytest.approx(objective, rel=1e-9)
    assert passes[0] == 1 + 1 + 1 + 1  # statistics, the first labels, the scores, the labels


def test_passes_are_those_of_the_fit():
    X, y = data(40, 15, labeled=5)
    matrix = Matrix.from_array(X)
    _ = matrix.stats
    passes = [fit(RLSR, matrix, y, gamma=1e-2).result_.stats["passes"] for _ in range(3)]
    assert passes[0] == passes[1] == passes[2]


def test_the_certificate_is_that_of_the_weights_and_not_of_the_solver(monkeypatch):
    X, y = data(40, 15)
    solve = Woodbury.solve
    monkeypatch.setattr(Woodbury, "solve", lambda self, rhs: 1.5 * solve(self, rhs))
    model = fit(SRLSR, X, y, p=0.7, gamma=0.05, solver="woodbury", tol=100, max_iter=1)
    W, theta = model.coef_, model.theta_
    Xc, Y = X.toarray() - X.toarray().mean(axis=0), np.eye(3)[y]
    on, norms = theta > 0, np.linalg.norm(W, axis=1)
    slopes = Xc.T @ (Y - Xc @ W)
    slopes[on] -= 0.05 * W[on] / theta[on, None] ** (2 / 0.7 - 1)
    lacks = norms[on] @ np.linalg.norm(slopes[on], axis=1)
    expected = lacks / (0.05 * np.sum(norms[on] ** 0.7) ** (2 / 0.7))
    assert model.result_.history[-1]["violation"] == pytest.approx(expected)


@pytest.mark.parametrize("p", daily([1.0, 0.7], 0.7))
def test_by_default_fewer_steps_of_cg_still_lower_the_objective(p):
    X, y = data(60, 40, labeled=4)
    given = {"p": p, "gamma": 1e-2, "solver": "cg", "max_iter": 500, "tol": 1e-3}
    exact, early = (fit(SRLSR, X, y, **given, **more) for more in ({"solver_tol": 1e-6}, {}))
    values = np.array([r["objective"] for r in early.result_.history])
    assert most_rise(early.result_.history) <= 1e-12
    assert 1e-6 < early.result_.history[0]["residual"] <= 0.1
    assert early.result_.stats["passes"] <= exact.result_.stats["passes"]
    if p == 1:  # convex: both are within their gaps of one optimum
        assert values[-1] == pytest.approx(exact.result_.history[-1]["objective"], rel=2e-3)


def sparse_data(n=240, d=400, c=4, seed=0):
    """Three words per class, the rest noise of few entries; a fifth of the samples labeled."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % c
    X = sp.random_array((n, d), density=0.05, format="lil", rng=rng)
    for k in range(3 * c):
        X[:, k] = ((y == k % c) & (rng.random(n) < 0.6))[:, None].astype(float)
    return sp.csr_array(X), np.where(rng.random(n) < 0.2, y, -1)


@pytest.mark.parametrize("p", [1.0, 0.7, 0.5])
def test_accelerated_rounds_reach_the_answer_of_plain_ones_sooner(p):
    X, y = sparse_data()
    given = {"p": p, "gamma": {1.0: 1e-1, 0.7: 1e-2, 0.5: 1e-3}[p], "max_iter": 2000, "tol": 1e-4}
    plain, fast = (SRLSR(accelerate=a, **given).fit(X, y) for a in (False, True))
    assert fast.result_.converged
    assert plain.result_.converged
    objectives = [np.array([r["objective"] for r in m.result_.history]) for m in (plain, fast)]
    assert most_rise(fast.result_.history) <= 1e-12
    if p == 1:  # convex: each is within its gap of the one optimum
        assert objectives[1][-1] == pytest.approx(objectives[0][-1], rel=1e-4)
    else:
        assert objectives[1][-1] <= objectives[0][-1] * (1 + 1e-2)
    assert fast.n_iter_ <= 0.8 * plain.n_iter_
    features = [[r["features"] for r in m.result_.history] for m in (plain, fast)]
    assert sum(features[1]) <= 0.6 * sum(features[0])


def test_accelerated_rounds_start_from_equal_shares_of_the_features_that_take_part():
    X, y = data(40, 15, labeled=5)
    ridge = {"solver": "auto", "tol": 1e-12, "max_iter": 500}
    problem = SRLSRProblem(Matrix.from_array(X), y, 3, 0.5, 1e-3, tol=1e-3, ridge=ridge)
    np.testing.assert_allclose(
        problem.start(None).theta, np.where(np.isin(np.arange(15), [3, 4]), 0, 1 / 13)
    )
    # so the first round lowers a bound on the objective, which is that of W = 0 there
    X, y = data(40, 15)
    given = {"p": 0.5, "gamma": 0.1, "max_iter": 1}
    plain, fast = (
        fit(SRLSR, X, y, accelerate=a, **given).result_.history[0]["objective"]
        for a in (False, True)
    )
    Y = y[:, None] == np.arange(3)
    assert fast < np.sum((Y - Y.mean(axis=0)) ** 2) < plain
    np.testing.assert_allclose(  # only the ratios of a start count
        problem.start(np.arange(1.0, 16)).theta, problem.start(np.arange(3.0, 46, 3)).theta
    )


@pytest.mark.parametrize("p", [1.0, 0.5])
def test_accelerated_rounds_end_at_a_stationary_point_of_the_dense_objective(p):
    X, y = sparse_data()
    gamma = {1.0: 1e-1, 0.5: 1e-3}[p]
    model = SRLSR(p=p, gamma=gamma, accelerate=True, tol=1e-5, max_iter=5000).fit(X, y)
    active = np.flatnonzero(model.theta_)
    assert 0 < len(active) < 100
    assert not np.delete(model.coef_, active, axis=0).any()
    dense_X, known = X.toarray(), y != -1

    def objective(W, b):
        F = dense_X @ W + b
        Y = np.where(known[:, None], y[:, None] == np.arange(4), project_simplex(F))
        norms = np.sqrt(np.sum(W**2, axis=1))
        return np.sum((F - Y) ** 2) + gamma * np.sum(norms**p) ** (2 / p)

    best = objective(model.coef_, model.intercept_)
    assert best == pytest.approx(model.result_.history[-1]["objective"], rel=1e-9)
    # no active row, scaled, lowers the objective by more than the tolerance allows
    for j in active:
        for scale in (0.9, 0.99, 1.01, 1.1):
            W = model.coef_.copy()
            W[j] *= scale
            assert objective(W, model.intercept_) >= best * (1 - 1e-6)


def solved_without(X, y, features, tol=1e-3, **given):
    """The problem, and its state solved over all but some features."""
    ridge = {"solver": "auto", "tol": 1e-12, "max_iter": 500}
    problem = SRLSRProblem(Matrix.from_array(X), y, 4, tol=tol, ridge=ridge, **given)
    state = problem.start(None)
    state = state._replace(theta=np.where(np.isin(np.arange(X.shape[1]), features), 0, 1.0))
    check, problem.check_inactive = problem.check_inactive, lambda state: state
    for _ in range(400):
        state = problem.step(state)
        if state.violation <= tol:
            break
    problem.check_inactive = check
    return problem, state


@pytest.mark.parametrize("p", [1.0, 0.7, 0.5])
def test_a_row_alone_has_the_length_of_the_dense_minimum(rng, p):
    pulls, squares = rng.uniform(0, 4, 50), rng.uniform(0.5, 2, 50)
    lengths = norm_alone(pulls, squares, 1.5, p)
    grid = np.linspace(0, 10, 100_001)
    for pull, square, length in zip(pulls, squares, lengths, strict=True):
        value = square * grid**2 - 2 * pull * grid + 1.5 * grid**p
        assert length == pytest.approx(grid[value.argmin()], abs=2e-4)
    assert 0 < np.count_nonzero(lengths) < 50
    assert norm_alone(np.array([1.5]), np.ones(1), 2.0, 0.5) == 0  # a tie with the length 1
    few = without_negligible(4 * np.array([1, 0.9e-6, 1.1e-6]))
    np.testing.assert_array_equal(few > 0, [True, False, True])


def test_features_that_left_too_early_return_once_and_stay():
    X, y = sparse_data()
    gone = [0, 4, 8, 399]  # the words of a class, and noise
    problem, state = solved_without(X, y, gone, p=0.5, gamma=1e-5)
    checked = problem.check_inactive(state)
    assert checked.gap == np.inf
    assert checked.theta.sum() == pytest.approx(1)
    dense = X.toarray()
    Xc = dense - dense.mean(axis=0)
    Y = np.where((y == -1)[:, None], project_simplex(X @ state.W + state.b), 0)
    Y[y >= 0] = np.eye(4)[y[y >= 0]]
    V = Y - X @ state.W - state.b
    np.testing.assert_allclose(checked.XtV, Xc.T @ V, atol=1e-10)
    total = np.sum(np.linalg.norm(state.W, axis=1) ** 0.5)
    lowers = []
    for j in gone:  # a row alone, along its pull, at every length
        pull, t = np.linalg.norm(Xc[:, j] @ V), np.geomspace(1e-6, 10, 300)
        loss = t**2 * (Xc[:, j] @ Xc[:, j]) - 2 * t * pull
        lowers.append((loss + 1e-5 * ((total + t**0.5) ** 4 - total**4)).min() < 0)
    assert lowers == [True, True, True, False]
    assert (checked.theta[gone] > 0).tolist() == checked.returned[gone].tolist() == lowers
    objectives = [state.objective]
    while checked.gap > problem.tol:
        checked = problem.step(checked)
        objectives.append(checked.objective)
        assert len(objectives) < 400
    assert np.all(np.diff(objectives) < 0)
    assert np.all(checked.theta[:5:4] > 1e-3)


def test_features_stay_out_where_their_return_gains_less_than_the_tolerance():
    X, y = sparse_data()
    problem, state = solved_without(X, y, [0, 4], p=0.5, gamma=1e-5)
    _, XtV = problem.sums(problem.X, state.W, state.b)
    total, t = np.sum(np.linalg.norm(state.W, axis=1) ** 0.5), np.geomspace(1e-6, 1, 10_000)
    values = np.outer(problem.X.deviations, t**2) - 2 * np.outer(np.linalg.norm(XtV, axis=1), t)
    gains = -(values + 4e-5 * total**3 * t**0.5).min(axis=1)[state.theta == 0]
    share = gains[gains > 0].sum() / state.objective
    problem.tol = 1.001 * share
    assert state.violation < problem.tol
    out = problem.check_inactive(state)
    assert out.gap == out.violation
    np.testing.assert_array_equal(out.theta, state.theta)
    problem.tol = 0.999 * share
    assert np.all(problem.check_inactive(state).theta[[0, 4]] > 0)


def test_a_return_that_raises_the_objective_is_taken_back():
    X, y = sparse_data()
    problem, state = solved_without(X, y, [399], p=0.5, gamma=1e-3)
    state = state._replace(XtV=problem.sums(problem.X, state.W, state.b)[1])
    wrong = state._replace(theta=np.where(np.arange(400) == 399, 0.9, 0.1 * state.theta))
    wrong = wrong._replace(ended=None)
    assert problem.evaluate(problem.solve(wrong), wrong).objective > state.objective
    after = problem.step(wrong)
    assert after.objective <= state.objective


def test_features_that_left_too_early_return_to_the_convex_optimum():
    X, y = sparse_data()
    plain = RLSR(gamma=0.1, tol=1e-4, max_iter=5000).fit(X, y)
    best = plain.theta_.argsort()[-3:]
    problem, state = solved_without(X, y, best, tol=1e-4, p=1.0, gamma=0.1)
    state = problem.check_inactive(state)
    while state.gap > problem.tol:
        state = problem.step(state)
    assert np.all(state.theta[best] > 1e-3)
    assert state.returned[best].all()
    objective = plain.result_.history[-1]["objective"]
    assert state.objective == pytest.approx(objective, rel=1e-4)


def test_a_shortcut_that_raises_the_objective_is_taken_back(monkeypatch):
    X, y = sparse_data()
    problem, state = solved_without(X, y, [], p=0.5, gamma=1e-3)
    right = problem.step(state._replace(ended=None, age=1.0))
    opposite = np.vstack([-9 * state.W[state.theta > 0], [0] * 4])
    monkeypatch.setattr(problem, "check_inactive", lambda state: state)
    far = problem.step(state._replace(ended=opposite, age=50.0))
    assert far.objective == pytest.approx(right.objective, rel=1e-4)
    assert far.age == RESTART * 50
    largest = np.arange(400) == state.theta.argmax()
    monkeypatch.setattr(problem, "leaving", lambda state, W: largest)
    taken_back = problem.step(state._replace(ended=None))
    assert taken_back.theta[largest] > 0
    assert taken_back.objective == pytest.approx(right.objective, rel=1e-9)


@pytest.mark.parametrize(("accelerate", "p"), [(False, 0.7), (True, 0.7), (True, 1.0)])
@pytest.mark.parametrize("rounds", [4, 12])
def test_resumes_from_a_checkpoint(rounds, accelerate, p):
    X, y = data(40, 20, labeled=5)
    given = {"p": p, "gamma": 0.01, "tol": 0, "accelerate": accelerate}
    whole = fit(SRLSR, X, y, max_iter=rounds + 5, **given)
    steps, checkpoint = [], MemoryCheckpoint()
    with observe(lambda *_: steps.append(1), checkpoint):
        fit(SRLSR, X, y, max_iter=rounds, **given)
    with observe(lambda *_: steps.append(1), checkpoint):
        resumed = fit(SRLSR, X, y, max_iter=rounds + 5, **given)
    assert len(resumed.result_.history) == len(steps) == rounds + 5
    np.testing.assert_allclose(resumed.scores_, whole.scores_, rtol=1e-9)


def test_bad_input_is_named():
    X, y = data()
    with pytest.raises(ValueError, match="15 positive numbers"):
        RLSR(start=np.zeros(15)).fit(X, y)
    with pytest.raises(ValueError, match="1 class"):
        SRLSR().fit(X, np.where(y == 0, 0, -1))
    with pytest.raises(ValueError, match="every feature of X that may be chosen is constant"):
        SRLSR().fit(np.ones((6, 2)), [0, 1, 0, 1, 0, 1])


@pytest.mark.process
@pytest.mark.parametrize("accelerate", [True, False])
def test_what_double_precision_does_not_hold_is_refused(accelerate):
    X, y = data(60, 22)  # two columns are constant
    cls = partial(SRLSR, accelerate=accelerate)
    with pytest.raises(ValueError, match=r"p must be at least 0\.0186.* of 20 features; got 0\.01"):
        cls(p=0.01).fit(X, y)
    assert cls(p=0.02).fit(X, y).result_.status is Status.CONVERGED
    with pytest.raises(ValueError, match=r"gamma must be at most 1e\+136.*; got 1e\+300"):
        cls(gamma=1e300).fit(X, y)
    with pytest.raises(ValueError, match="start must hold 22 positive numbers"):
        cls(start=[np.inf, *np.ones(21)]).fit(X, y)


@pytest.mark.filterwarnings("ignore::bigfs.result.NotConvergedWarning")
@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("p", [0.1, 0.05])
def test_a_small_p_ends_with_the_objective_of_its_weights(p, accelerate):
    """The penalty of a feature grows by up to 10¹⁰⁰ in a round, and rounding with it."""
    rng, y = np.random.default_rng(0), np.arange(60) % 3
    X = rng.normal(size=(60, 25)) + 3.0
    X[:, :6] += 1.5 * (np.arange(6) // 2 == y[:, None])
    X *= rng.random((60, 25)) < 0.7
    for gamma in (1e-6, 1.0):
        for rounds in (7, 200):
            options = {"p": p, "gamma": gamma, "accelerate": accelerate, "max_iter": rounds}
            model = SRLSR(n_features_to_select=3, solver="woodbury", **options).fit(X, y)
            assert model.result_.status in (Status.CONVERGED, Status.MAX_ITER)
            norms = np.linalg.norm(model.coef_, axis=1)
            loss = np.sum((X @ model.coef_ + model.intercept_ - np.eye(3)[y]) ** 2)
            expected = loss + gamma * np.sum(norms**p) ** (2 / p)
            assert model.result_.history[-1]["objective"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("labeled", [True, False])
def test_what_is_not_finite_does_not_crash_the_projection(labeled):
    X, codes = np.ones((4, 2)), np.full(4, 0 if labeled else -1)
    sums = sum_samples(Matrix.from_array(X), codes, np.full((2, 3), np.nan), np.zeros(3))
    assert np.isnan(sums.V_norm2)


def test_on_a_cluster_of_processes_the_bits_are_the_same():
    X, y = data(60, 15, labeled=5)
    here = Matrix.from_array(X, tile_rows=7, tile_columns=4)
    keyed = Matrix(X.shape, rows=here.row_tiles, columns=here.column_tiles)
    given = {"p": 0.7, "gamma": 1e-3, "solver": "cg", "max_iter": 5, "tol": 0}
    limit = 13_000  # too little to gather the columns
    with engine.limit_memory(limit):
        alone = fit(SRLSR, keyed, y, **given)
    with engine.cluster(workers=2, memory_limit="512MB"), engine.limit_memory(limit):
        spread = fit(SRLSR, keyed, y, **given)
    np.testing.assert_array_equal(spread.coef_, alone.coef_)
    np.testing.assert_array_equal(spread.scores_, alone.scores_)
    np.testing.assert_array_equal(spread.label_distributions_, alone.label_distributions_)


def test_predict_refuses_other_features_in_every_input(rng):
    X, y = rng.random((20, 5)), np.arange(20) % 2
    fitted = RLSR(n_features_to_select=2, tol=0.5).fit(X, y)
    wide = np.hstack([X, X])
    for samples in (wide, Matrix.from_array(wide), da.from_array(wide, chunks=(7, -1))):
        with pytest.raises(ValueError, match="X has 10 features, but RLSR is expecting 5"):
            fitted.predict(samples)


@pytest.mark.parametrize("selector", [SRLSR(), RLSR()], ids=["p < 1", "p = 1"])
def test_few_labels_converge_by_default(selector):
    """With a constant momentum nine labels of sixty take more than 200 rounds."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 20))
    X[:, :3] += np.arange(3) == y[:, None]
    result = selector.fit(X, np.where(np.arange(60) < 9, y, -1)).result_
    assert result.status is Status.CONVERGED
    assert most_rise(result.history[1:]) <= 1e-9


def topics(n, d, c):
    """Documents of sixty words each from one of c topics, by Zipf's law, at unit length."""
    rng = np.random.default_rng(0)
    shares = 1 / (np.arange(d) + 10.0)
    y = rng.integers(0, c, n)
    lifts = [np.exp(1.5 * rng.normal(size=d) * (rng.random(d) < 0.05)) for _ in range(c)]
    limits = np.cumsum([shares * lift / (shares @ lift) for lift in lifts], axis=1)
    words = [np.searchsorted(limits[k], rng.random(60)) for k in y]
    words = [np.unique(row[row < d]) for row in words]
    rows = np.repeat(np.arange(n), [len(row) for row in words])
    X = sp.csr_array((np.ones(len(rows)), (rows, np.concatenate(words))), shape=(n, d))
    X = sp.csr_array(X @ sp.diags_array(1 + np.log(n / np.maximum(X.sum(axis=0), 1))))
    return sp.csr_array(sp.diags_array(X.multiply(X).sum(axis=1) ** -0.5) @ X), y


@pytest.mark.parametrize("selector", [SRLSR(), RLSR()], ids=["p < 1", "p = 1"])
@pytest.mark.parametrize(
    ("n", "d", "c"), daily([(4000, 2000, 6), (10_000, 4000, 10)], (4000, 2000, 6))
)
def test_one_label_of_a_hundred_converges_on_text_by_default(n, d, c, selector):
    X, y = topics(n, d, c)
    few = np.where(np.random.default_rng(1).random(n) < 0.01, y, -1)
    for k in range(c):
        few[np.flatnonzero(y == k)[:2]] = k
    result = selector.fit(X, few).result_
    assert result.status is Status.CONVERGED
    assert most_rise(result.history[1:]) <= 1e-9
    if isinstance(selector, RLSR):  # the samples that are left out are on the simplex
        F = X @ selector.coef_ + selector.intercept_
        V = np.where(few[:, None] < 0, project_simplex(F), np.eye(c)[few]) - F
        penalty = 1e-3 * np.linalg.norm(selector.coef_, axis=1).sum() ** 2
        assert result.history[-1]["objective"] == pytest.approx(np.sum(V**2) + penalty, rel=1e-9)
        assert sum(r["samples"] for r in result.history) <= 0.2 * n * len(result.history)


def test_momentum_in_theta_takes_fewer_rounds_where_all_samples_are_labeled(change):
    X, y = topics(600, 1200, 4)
    fast = RLSR().fit(X, y).result_
    change(MAX_MOMENTUM, 0.0)
    slow = RLSR().fit(X, y).result_
    assert fast.status is slow.status is Status.CONVERGED
    assert len(fast.history) < len(slow.history)
    ends = [result.history[-1]["objective"] for result in (fast, slow)]
    np.testing.assert_allclose(*ends, rtol=RLSR().tol)


def test_the_convex_case_begins_with_the_features_of_the_largest_pulls():
    X, y = topics(600, 1500, 4)
    convex = RLSR(n_features_to_select=50).fit(X, y)
    assert convex.result_.history[0]["features"] <= FIRST < X.shape[1]
    assert convex.result_.status is Status.CONVERGED
    plain = RLSR(n_features_to_select=50, accelerate=False).fit(X, y)
    ends = [model.result_.history[-1]["objective"] for model in (convex, plain)]
    np.testing.assert_allclose(*ends, rtol=convex.tol)
