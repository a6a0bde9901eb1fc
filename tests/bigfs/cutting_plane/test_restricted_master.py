"""The restricted master and its three solvers against dense problems in the n samples."""

import sys
import tracemalloc

import numpy as np
import psutil
import pytest
from scipy.optimize import minimize

from bigfs.cutting_plane import restricted_master
from bigfs.cutting_plane.elimination import Remaining, eliminate, inverse
from bigfs.cutting_plane.newton import _quadratic_on_simplex, newton
from bigfs.cutting_plane.restricted_master import (
    MIN_SIZE_FLOAT32,
    RestrictedMaster,
    hessian,
    ridge_at,
)
from tests.helpers.master_solvers import apg, dense_objective, simplex

SOLVERS = {"newton": newton, "simplex": simplex, "apg": apg}


def problem(seed, n=30, u=12, r=3, k=4, size=5, gamma=0.3, duplicates=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, u))
    if duplicates:
        X[:, u // 2 :] = X[:, : u - u // 2]
    X -= X.mean(axis=0)
    T = np.linalg.qr(rng.normal(size=(n, r)) + X[:, :r])[0]
    sets = tuple(np.sort(rng.choice(u, size, replace=False)) for _ in range(k))
    return X, T, RestrictedMaster(X.T @ X, X.T @ T, float(np.vdot(T, T)), gamma, sets)


def dense_value(X, T, master, eta):
    """J(η) = ½ tr(Tᵀ (I + X D Xᵀ/γ)⁻¹ T), in the samples."""
    K = np.eye(len(X))
    for members, weight in zip(master.sets, eta, strict=True):
        K += weight / master.gamma * X[:, members] @ X[:, members].T
    return 0.5 * np.trace(T.T @ np.linalg.solve(K, T))


def dense_optimum(X, T, master):
    k = len(master.sets)
    return minimize(
        lambda eta: dense_value(X, T, master, eta),
        np.full(k, 1 / k),
        bounds=[(0, 1)] * k,
        constraints={"type": "eq", "fun": lambda eta: eta.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    ).fun


def test_nan_ends_the_refinement():
    _, _, master = problem(1)
    master.B[2, 1] = np.nan
    assert np.isnan(ridge_at(master, np.full(4, 0.25)).value)


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("gamma", [0.01, 0.3, 30.0])
@pytest.mark.parametrize("solver", SOLVERS)
def test_value_equals_the_dense_solve(solver, gamma, duplicates):
    X, T, master = problem(1, gamma=gamma, duplicates=duplicates)
    solution = SOLVERS[solver](master, np.full(4, 0.25))
    assert solution.value == pytest.approx(dense_optimum(X, T, master), rel=1e-6)
    assert solution.gap <= 1e-8
    assert solution.lower <= solution.value * (1 + 1e-14)  # rounding
    assert solution.eta.min() >= 0
    assert solution.eta.sum() == pytest.approx(1)


@pytest.mark.parametrize("seed", range(3))
def test_solvers_agree_on_the_weights(seed):
    _, _, master = problem(seed)
    W = [solver(master, np.full(4, 0.25)).W for solver in SOLVERS.values()]
    for other in W[1:]:
        np.testing.assert_allclose(other, W[0], atol=2e-4 * np.abs(W[0]).max())


def test_gradient_and_hessian_are_those_of_the_dense_function():
    X, T, master = problem(5)
    eta = np.array([0.1, 0.4, 0.3, 0.2])
    ridge, h = ridge_at(master, eta), 1e-4
    assert ridge.value == pytest.approx(dense_value(X, T, master, eta), rel=1e-12)
    steps = np.eye(4) * h
    numeric = [
        (dense_value(X, T, master, eta + s) - dense_value(X, T, master, eta - s)) / (2 * h)
        for s in steps
    ]
    np.testing.assert_allclose(ridge.gradient, numeric, rtol=1e-6)
    numeric = [
        (ridge_at(master, eta + s).gradient - ridge_at(master, eta - s).gradient) / (2 * h)
        for s in steps
    ]
    np.testing.assert_allclose(hessian(master, ridge), numeric, rtol=1e-5, atol=1e-9)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems choose their pages themselves")
def test_a_factor_takes_the_memory_of_a_triangle():
    u, factors = 4100, []
    assert 4 * u**2 > restricted_master.SMALL_BYTES
    for _ in range(2):  # the first one with what LAPACK holds
        before = psutil.Process().memory_info().rss
        G = np.broadcast_to(1.0, (u, u))
        factors.append(restricted_master._factorize(G, np.ones(u), np.arange(u), 1.0))
        taken = psutil.Process().memory_info().rss - before
    assert factors[1].upper.dtype == np.float32
    assert taken < 0.8 * factors[1].upper.nbytes


def test_a_hessian_is_made_in_parts_of_a_bounded_size(change):
    _, _, master = problem(4, n=500, u=400, r=40, k=6, size=200)
    ridge = ridge_at(master, np.full(6, 1 / 6))

    def hessian_and_peak():
        tracemalloc.start()
        matrix = hessian(master, ridge)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return matrix, peak

    whole, peak_of_whole = hessian_and_peak()
    change(restricted_master.SOLVED_BYTES, 9 * 8 * 6 * 400)  # 9 of 40 columns
    change(restricted_master.STRIP_ROWS, 50)
    in_parts, peak = hessian_and_peak()
    np.testing.assert_allclose(in_parts, whole, rtol=1e-12)
    assert peak < peak_of_whole / 2


@pytest.mark.parametrize(("gamma", "precision"), [(1.0, np.float32), (1e-3, np.float64)])
def test_single_precision_is_refined_to_double_or_not_used(gamma, precision):
    X, T, master = problem(6, n=300, u=MIN_SIZE_FLOAT32 + 10, k=3, size=400, gamma=gamma)
    eta = np.array([0.5, 0.3, 0.2])
    ridge = ridge_at(master, eta)
    assert ridge.factor.upper.dtype == precision
    d = np.array(
        [
            sum(w for s, w in zip(master.sets, eta, strict=True) if j in s)
            for j in range(len(master.B))
        ]
    )
    K = np.eye(len(X)) + (X * d / gamma) @ X.T
    assert ridge.value == pytest.approx(0.5 * np.vdot(T, np.linalg.solve(K, T)), rel=1e-10)
    np.testing.assert_allclose(
        ridge.W,
        d[:, None] / gamma * (X.T @ np.linalg.solve(K, T)),
        rtol=1e-7,
        atol=1e-9 * np.abs(ridge.W).max(),
    )


def test_the_step_of_newton_keeps_the_small_eigenvalues_of_the_hessian():
    eta, H, c = (
        np.full(30, 1 / 30),
        np.diag([1.0] + [1e-9] * 29),
        np.r_[0, 0.01, -0.01, np.zeros(27)],
    )
    np.testing.assert_allclose(_quadratic_on_simplex(H, 1e-9 * c, eta), eta - c, atol=1e-5)


def test_newton_drops_a_useless_set_and_finds_a_useful_one():
    X, T, master = problem(2)
    X[:, 6:] = 0  # sets within the empty columns explain nothing
    sets = (np.arange(6), np.arange(6, 12))
    master = RestrictedMaster(X.T @ X, X.T @ T, master.T_norm2, 1.0, sets)
    np.testing.assert_allclose(newton(master, np.array([0.0, 1.0])).eta, [1, 0], atol=1e-12)


def test_elimination_removes_the_feature_of_least_exact_cost():
    X, T, master = problem(3)
    elimination = eliminate(master.G, master.B, master.T_norm2, master.gamma, rate=1e-9)
    remaining = list(range(12))
    for removed, cost in zip(elimination.order[::-1], elimination.costs[::-1], strict=True):
        before = dense_objective(X, T, master.gamma, remaining)
        assert elimination.objectives[len(remaining)] == pytest.approx(before, rel=1e-9)
        rises = {
            j: dense_objective(X, T, master.gamma, [k for k in remaining if k != j]) - before
            for j in remaining
        }
        assert min(rises, key=rises.get) == removed
        assert cost == pytest.approx(rises[removed], rel=1e-7)
        remaining.remove(removed)


def test_elimination_of_many_features_makes_one_array_of_their_square(rng):
    X, T = rng.normal(size=(1200, 900)), rng.normal(size=(1200, 2))
    G, B = X.T @ X, X.T @ T
    before = G.copy()
    tracemalloc.start()
    elimination = eliminate(G, B, float(np.vdot(T, T)), 5.0, pauses=(40,))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * G.nbytes
    np.testing.assert_array_equal(G, before)
    for k in (40, 900):
        expected = dense_objective(X, T, 5.0, elimination.order[:k])
        assert elimination.objectives[k] == pytest.approx(expected, rel=1e-9)


def test_elimination_in_blocks_does_not_pass_over_a_pause():
    X, T, master = problem(4)
    elimination = eliminate(
        master.G, master.B, master.T_norm2, master.gamma, pauses=(7, 3), rate=0.4
    )
    assert sorted(elimination.order) == list(range(12))
    for k in (7, 3):
        assert elimination.objectives[k] == pytest.approx(
            dense_objective(X, T, master.gamma, elimination.order[:k]), rel=1e-9
        )


@pytest.mark.parametrize("duplicates", [False, True])
def test_what_elimination_leaves_is_the_inverse_over_the_remaining_features(rng, duplicates):
    _, _, master = problem(7, n=60, u=40, duplicates=duplicates)
    K = master.G + 0.3 * np.eye(40)
    rest, V = Remaining(np.linalg.inv(K), master.B), rng.normal(size=(40, 2))
    removed: list[int] = []
    for out in ([39, 0, 5], [2], [30, 35, 31, 1, 0], [7, 6]):  # behind, among and before the first
        removed.extend(rest.features[out])
        rest.remove(np.array(out))
        left = rest.features
        assert sorted([*removed, *left]) == list(range(40))
        P = np.linalg.inv(K[np.ix_(left, left)])
        np.testing.assert_allclose(rest.diagonal, P.diagonal(), rtol=1e-9)
        np.testing.assert_allclose(rest.W, P @ master.B[left], atol=1e-10)
        np.testing.assert_allclose(rest.times_inverse(V[left]), P @ V[left], atol=1e-9)


def test_features_of_equal_cost_leave_in_the_order_of_their_columns():
    G, B = np.eye(9), np.ones((9, 1))
    elimination = eliminate(G, B, 9.0, 1.0, rate=0.3)
    np.testing.assert_array_equal(elimination.order, np.arange(9)[::-1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("active", [np.arange(300), np.arange(1, 300, 3), np.array([4])])
def test_the_system_of_the_active_features_is_its_dense_formula(rng, dtype, active):
    Z = rng.normal(size=(400, 300))
    G, root = Z.T @ Z, rng.uniform(0, 2, len(active))
    K, norm = restricted_master._system(G, active, root, dtype)
    expected = np.eye(len(active)) + root[:, None] * G[np.ix_(active, active)] * root
    assert K.dtype == dtype
    np.testing.assert_array_equal(np.tril(K), np.tril(expected).astype(dtype))  # to the bit
    assert norm == pytest.approx(np.linalg.norm(expected), rel=1e-5)


@pytest.mark.parametrize(
    "solve",
    [
        lambda G: restricted_master._factorize(G, np.ones(9), np.arange(9), 1e-12),
        lambda G: inverse(G, 1e-12),
    ],
)
def test_a_system_that_single_precision_makes_singular_says_so(solve):
    G = np.ones((9, 9), dtype=np.float32) - 1e-6 * np.eye(9, dtype=np.float32)
    with pytest.raises(ValueError, match=r"held in single precision, is singular .* raise the pen"):
        solve(G)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_the_gram_matrix_multiply_as_all_of_it(rng, dtype, change):
    change(restricted_master.STRIP_ROWS, 16)
    Z, members = rng.normal(size=(90, 70)), np.array([3, 4, 40, 69])
    G, R = (Z.T @ Z).astype(dtype), rng.normal(size=(4, 3))
    all_rows = np.zeros((70, 3))
    all_rows[members] = R
    expected = G.astype(np.float64) @ all_rows
    for product in (restricted_master.times(G, R, members), restricted_master.times(G, all_rows)):
        np.testing.assert_allclose(product, expected, rtol=1e-10, atol=1e-9)
