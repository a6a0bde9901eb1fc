"""The three solvers against the dense formula (XᵀMX + diag u)⁻¹ XᵀT, and against one another."""

import os
import sys
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor

import dask.array as da
import numpy as np
import psutil
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfs import engine
from bigfs.engine.budget import Shares
from bigfs.linalg import active_columns, sparse_gram
from bigfs.linalg.active_columns import ActiveColumns
from bigfs.linalg.conjugate_gradients import block_cg
from bigfs.linalg.ridge import Ridge, direct
from bigfs.linalg.ridge.operator import SampleOperator, WeightedCentering, centering
from bigfs.linalg.ridge.plan import SOLVERS, choose_solver, project_costs
from bigfs.linalg.ridge.working_set import WorkingSet
from bigfs.linalg.sample_kernel import kernel
from bigfs.matrix import Matrix
from bigfs.matrix.tiles import BlockTile
from bigfs.result import Status

SHAPES = {"d < n": (40, 15), "d > n": (20, 55)}


def data(n, d, seed=0):
    """Sparse X with an empty and a constant column, T (n × 3) with one zero column, u over six
    decades.
    """
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=0.4, format="lil", rng=rng)
    X[:, 2] = 0
    X[:, 5] = 1.5
    T = rng.normal(size=(n, 3))
    T[:, 1] = 0
    return sp.csr_array(X), T, 10 ** rng.uniform(-3, 3, d)


def middles(n, seed=1):
    rng = np.random.default_rng(seed)
    a = (rng.random(n) < 0.5).astype(float)
    H = (rng.random((n, 12)) < 0.3).astype(float)
    H[:, 0] = 1  # everyone is in one hyperedge, so every degree is positive
    F = H / np.sqrt(H.sum(axis=1))[:, None]
    c = rng.dirichlet(np.ones(12)) / H.sum(axis=0)
    return {
        "identity": (SampleOperator(), np.eye(n)),
        "centering": (centering(n), np.eye(n) - np.full((n, n), 1 / n)),
        "diagonal": (SampleOperator(a), np.diag(a)),
        "laplacian": (
            SampleOperator(a + 0.7, sp.csr_array(F * np.sqrt(0.7 * c))),
            np.diag(a) + 0.7 * (np.eye(n) - F @ np.diag(c) @ F.T),
        ),
        "singular laplacian": (
            SampleOperator(0 * a + 1, F[:, :1] / np.linalg.norm(F[:, 0])),
            None,
        ),
    }


def dense_ridge(X, M, u, T):
    X = X.toarray()
    on = np.isfinite(u)
    W = np.zeros((len(u), T.shape[1]))
    W[on] = np.linalg.solve(X[:, on].T @ M @ X[:, on] + np.diag(u[on]), X[:, on].T @ T)
    return W


@pytest.mark.parametrize(
    "middle", ["identity", "centering", "diagonal", "laplacian", "singular laplacian"]
)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_each_solver_equals_the_dense_formula(solver, shape, middle):
    X, T, u = data(*shape)
    u[7] = np.inf
    M, oracle = middles(shape[0])[middle]
    oracle = M.dense(shape[0]) if oracle is None else oracle
    np.testing.assert_allclose(M.apply(T), oracle @ T, atol=1e-12)
    solved = (
        Ridge(
            Matrix.from_array(X, tile_rows=6, tile_columns=4),
            M,
            solver=solver,
            targets=3,
            tol=1e-13,
        )
        .prepare(u)
        .solve(T)
    )
    W = dense_ridge(X, oracle, u, T)
    # conditioning 1e6 or so times rounding
    assert np.abs(solved.W - W).max() <= 1e-8 * np.abs(W).max()
    assert not solved.W[[2, 7]].any()  # empty, and off
    assert solved.residual <= 1e-9


def test_the_root_of_a_singular_middle_gives_it_back(rng):
    for kind, (M, oracle) in middles(20).items():
        assert M.has_root is (kind in ("identity", "centering", "diagonal"))  # in closed form
        C = M.root(20)
        oracle = M.dense(20) if oracle is None else oracle
        V = rng.normal(size=(20, 2))
        np.testing.assert_allclose(C.times(C.transposed_times(V)), oracle @ V, atol=1e-12)


def test_the_root_of_a_weighted_centering_gives_it_back(rng):
    a, V = 3 * rng.random(20), rng.normal(size=(20, 2))
    M = WeightedCentering(a)
    expected = a[:, None] * V - np.outer(a, a @ V) / a.sum()
    np.testing.assert_allclose(M.apply(V), expected, atol=1e-12)
    C = M.root(20)
    np.testing.assert_allclose(C.times(C.transposed_times(V)), expected, atol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", ["csr", "dense", "rows only", "columns only"])
def test_the_layout_and_the_tiling_change_rounding_only(solver, kind):
    X, T, u = data(40, 15)
    whole = Matrix.from_array(X)
    tiled = Matrix.from_array(X.toarray() if kind == "dense" else X, tile_rows=7, tile_columns=4)
    if kind == "rows only":
        tiled = Matrix(X.shape, rows=tiled.row_tiles)
    if kind == "columns only":
        tiled = Matrix(X.shape, columns=tiled.column_tiles, local=True)
    missing = {("primal", "columns only"): "by rows", ("woodbury", "rows only"): "by columns"}.get(
        (solver, kind)
    )
    if missing:
        with pytest.raises(ValueError, match=f"stage it with the layout {missing}"):
            Ridge(tiled, SampleOperator(np.ones(40)), solver=solver).prepare(u)
        return
    a, b = (
        Ridge(m, SampleOperator(np.ones(40)), solver=solver, tol=1e-12).prepare(u).solve(T).W
        for m in (whole, tiled)
    )
    # CG stops at 1e-12; the direct solvers differ by rounding
    assert np.abs(a - b).max() <= 1e-9 * np.abs(a).max()


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6), n=st.integers(2, 12), d=st.integers(6, 12), decades=st.floats(0, 4)
)
def test_the_solvers_agree_and_features_may_be_permuted(seed, n, d, decades):
    X, T, _ = data(n, d, seed)
    rng = np.random.default_rng(seed)
    u = 10 ** rng.uniform(-decades, decades, d)
    order = rng.permutation(d)
    answers = [
        Ridge(Matrix.from_array(X), centering(n), solver=s, tol=1e-13).prepare(u).solve(T).W
        for s in SOLVERS
    ]
    for solver in SOLVERS:
        answers.append(np.empty_like(answers[0]))
        answers[-1][order] = (
            Ridge(Matrix.from_array(X[:, order]), centering(n), solver=solver, tol=1e-13)
            .prepare(u[order])
            .solve(T)
            .W
        )
    for W in answers[1:]:
        np.testing.assert_allclose(W, answers[0], atol=1e-7 * max(np.abs(answers[0]).max(), 1e-300))


def test_cg_warm_started_at_the_solution_needs_no_step():
    X, T, u = data(40, 15)
    prepared = Ridge(Matrix.from_array(X), solver="cg", tol=1e-8).prepare(u)
    first = prepared.solve(T)
    again = prepared.solve(T, start=first.W)
    assert first.iterations > 1
    assert again.iterations == 0
    np.testing.assert_allclose(again.W, first.W, rtol=1e-12, atol=1e-14)


def test_cg_solves_for_orthogonal_columns_in_one_step():
    X, T, u = np.diag(np.arange(1.0, 8)), np.arange(1.0, 8)[:, None], np.linspace(1, 9, 7)
    solved = Ridge(Matrix.from_array(X), solver="cg", tol=1e-12).prepare(u).solve(T)
    assert solved.iterations == 1


def test_cg_holds_few_arrays_of_the_size_of_the_solution(rng):
    d, r = 40_000, 20
    X = Matrix.from_array(sp.random_array((30, d), density=0.01, rng=rng, format="csr"))
    prepared = Ridge(X, centering(30), solver="cg", targets=r).prepare(rng.uniform(1, 2, d))
    rhs, start = rng.normal(size=(2, d, r))
    prepared.solve_rhs(rhs, start, prepared.gram_times(start))  # compiles
    product = prepared.gram_times(start)
    tracemalloc.start()
    prepared.solve_rhs(rhs, start, product)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 7 * 8 * d * r  # R, Z, P, AP, sP and two in between


def test_a_working_set_by_cg_holds_few_arrays_of_the_size_of_its_solution(rng, change):
    change(engine.SHARES, Shares(active_columns=0))  # no column is gathered
    n, d, r = 30, 40_000, 20
    X = sp.random_array((n, d), density=0.01, rng=rng, format="csr")
    whole = Matrix.from_array(X)
    working = WorkingSet(Matrix(X.shape, rows=whole.row_tiles), solver="cg", targets=r, tol=1e-3)
    u = rng.uniform(1, 2, d)
    u[:10] = np.inf
    rhs, start = rng.normal(size=(2, d, r))
    start[:10] = 0
    product = X.T @ (X @ start)
    working.solve_rhs(SampleOperator(), u, rhs, start, product)  # compiles
    given = start.copy(), product.copy()
    tracemalloc.start()
    solved = working.solve_rhs(SampleOperator(), u, rhs, start, product)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert working.plans[-1] == {**working.plans[-1], "features": d - 10, "gathered": False}
    assert solved.iterations > 0
    np.testing.assert_array_equal(start, given[0])
    np.testing.assert_array_equal(product, given[1])
    assert most < 6 * 8 * d * r  # two copies of rows, P, AP and one in between


def test_a_block_shares_its_krylov_space_and_survives_equal_columns(rng):
    A = np.diag(np.logspace(0, 4, 80))
    B = rng.normal(size=(80, 8))
    B[:, 3] = B[:, 2]

    def solve(B):
        R, Z = B.copy(), np.zeros_like(B)
        size = np.linalg.norm(B, axis=0)
        found = block_cg(lambda V: A @ V, R, Z, size, lambda Y: Y, 1e-9, 500)
        np.testing.assert_allclose(R, B - A @ Z, atol=1e-9)
        return Z, found.value, found.stats["iterations"]

    Z, residuals, together = solve(B)
    alone = max(solve(B[:, [j]])[2] for j in range(8))
    np.testing.assert_allclose(Z, np.linalg.solve(A, B), atol=1e-7)
    assert residuals.max() <= 1e-9
    assert together < alone / 2


def test_cg_stops_where_the_residual_has_fallen_enough(rng):
    """By the share of its first residual that is asked for, or by the tolerance."""
    A = np.diag(np.geomspace(1, 1e4, 80))
    B, start = rng.normal(size=(80, 3)), rng.normal(size=(80, 3))
    first = np.linalg.norm(B - A @ start, axis=0) / np.linalg.norm(B, axis=0)

    def solve(*stop):
        Z, size = start.copy(), np.linalg.norm(B, axis=0)
        found = block_cg(lambda V: A @ V, B - A @ Z, Z, size, lambda Y: Y, *stop)
        return Z, found.value, found.stats["iterations"]

    Z, residuals, iterations = solve(1e-9, 500, 0.1)
    np.testing.assert_allclose(
        residuals, np.linalg.norm(B - A @ Z, axis=0) / np.linalg.norm(B, axis=0), rtol=1e-8
    )
    assert np.all(residuals <= 0.1 * first)
    assert 0 < iterations < solve(1e-9, 500)[2] / 2
    assert solve(2 * first.max(), 500, 0.1)[2] == 0


def test_cg_reports_the_true_residual_and_no_convergence_without_it(rng):
    """The updated residual falls on where the true one is rounding of a large solution."""
    A = np.diag(np.geomspace(1e-3, 1e2, 30))
    B, size = rng.normal(size=(30, 2)), np.ones(2)

    def solve(set_residual, tol):
        Z = np.zeros((30, 2))
        found = block_cg(
            *(lambda V: A @ V, B.copy(), Z, size, lambda Y: Y, tol, 5000, 0.0, set_residual)
        )
        return found, np.linalg.norm(B - A @ Z, axis=0)

    def set_residual(Z, R):
        R[:] = B - A @ Z

    updated, true = solve(None, 1e-14)
    assert updated.value.max() <= 1e-14 < true.max() / 2
    for tol in (1e-12, 1e-14, 1e-17):
        found, true = solve(set_residual, tol)
        np.testing.assert_array_equal(found.value, true)
        assert found.converged == (true.max() <= tol)
        assert found.status is (Status.CONVERGED if true.max() <= tol else Status.STALLED)
    assert not found.converged  # it is below the rounding of the solution


def test_a_residual_that_is_not_finite_is_not_solved():
    B = np.array([[1.0, np.nan], [0.0, 1.0]])
    found = block_cg(lambda V: V, B, np.zeros((2, 2)), np.ones(2), lambda Y: Y, 1e-3, 10, 0.0, None)
    assert found.status is Status.NOT_FINITE
    assert not found.converged
    ridge = Ridge(Matrix.from_array(np.eye(3)), solver="primal")
    ridge.gram[:] = np.nan  # of values whose products overflow
    assert ridge.prepare(np.ones(3)).solve(np.eye(3)).status is Status.NOT_FINITE


def test_a_direct_solution_is_refined(rng):
    """The weights of the features differ by eight decades."""
    X, T = rng.normal(size=(200, 100)) * 10 ** rng.uniform(-4, 4, 100), rng.normal(size=(200, 2))
    u = 10 ** rng.uniform(2, 10, 100)[:, None]
    prepared = Ridge(Matrix.from_array(X), solver="woodbury").prepare(u[:, 0])
    once, found = prepared.direct.solve(X.T @ T), prepared.solve(T).W
    size = np.linalg.norm(X.T @ T / np.sqrt(u))
    before, after = (
        np.linalg.norm((X.T @ (T - X @ W) - u * W) / np.sqrt(u)) / size for W in (once, found)
    )
    assert after < 1e-13 < before


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_residual_is_that_of_the_weights(rng, solver):
    X, T, u = data(40, 15)
    ridge = Ridge(Matrix.from_array(X), centering(40), solver=solver, targets=3, max_iter=2)
    found = ridge.prepare(u).solve(T)
    Xc = X.toarray() - X.toarray().mean(axis=0)
    s = u[:, None] ** -0.5
    R = s * (X.T @ T - Xc.T @ (Xc @ found.W) - u[:, None] * found.W)
    true = np.linalg.norm(R, axis=0)[[0, 2]] / np.linalg.norm(s * (X.T @ T), axis=0)[[0, 2]]
    if solver == "cg":
        np.testing.assert_allclose(found.residuals[[0, 2]], true, rtol=1e-6)
        assert found.status is Status.MAX_ITER  # long before the residual is rounding
    else:
        assert max(found.residual, true.max()) < 1e-12
        assert (found.status, found.iterations) == (Status.EXACT, 1)
    np.testing.assert_allclose(found.product, Xc.T @ (Xc @ found.W), atol=1e-9)


def test_stopping_cg_early_still_lowers_the_objective(rng):
    X, T, u = data(40, 15)
    dense_X, start = X.toarray(), rng.normal(size=(15, 3))

    def objective(W):
        return np.sum((dense_X @ W - T) ** 2) + np.sum(u[:, None] * W**2)

    values = [objective(start)]
    # after five steps of three columns nothing is left of fifteen unknowns but rounding
    for limit in range(1, 5):
        solved = (
            Ridge(Matrix.from_array(X), solver="cg", max_iter=limit)
            .prepare(u)
            .solve(T, start=start)
        )
        assert solved.residual > 1e-10
        values.append(objective(solved.W))
    assert np.all(np.diff(values) <= 1e-12 * values[0])


@pytest.mark.parametrize("solver", ["primal", "woodbury"])
def test_a_direct_solver_makes_no_pass_for_the_squares_of_the_columns(solver):
    X, _, u = data(40, 15)
    m = Matrix.from_array(X)
    ridge = Ridge(m, SampleOperator(np.linspace(0.5, 2, 40)), solver=solver)
    m.passes = 0
    ridge.prepare(u)
    assert m.passes == 1


def test_passes_are_counted():
    X, T, u = data(40, 15)
    m = Matrix.from_array(X)
    for solver, prepare, solve in (("primal", 1, 2), ("woodbury", 1, 6)):
        ridge = Ridge(m, centering(40), solver=solver)
        m.passes = 0
        prepared = ridge.prepare(u)
        assert m.passes == prepare + (solver == "primal")  # the Gram of FᵀX is a second pass
        m.passes = 0
        prepared.solve(T)
        # the right-hand side; for the primal one the check of the Gram matrix; for Woodbury the
        # residual, and its own two, twice
        assert m.passes == solve
    m.passes = 0
    iterations = Ridge(m, centering(40), solver="cg").prepare(u).solve(T).iterations
    assert m.passes == 2 + iterations  # no X P is formed; one for the true residual
    m.passes = 0
    iterations = Ridge(m, SampleOperator(np.ones(40)), solver="cg").prepare(u).solve(T).iterations
    assert m.passes == 4 + 2 * iterations  # the weighted squares too


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_product_of_the_solution_comes_with_it_and_saves_the_first_pass_of_the_next(solver):
    X, T, u = data(40, 15)
    u[7] = np.inf
    m = Matrix.from_array(X, tile_rows=9, tile_columns=4)
    prepared = Ridge(m, centering(40), solver=solver, tol=1e-12).prepare(u)
    solved = prepared.solve(T)
    Xc = X.toarray() - X.toarray().mean(axis=0)
    product = Xc.T @ (Xc @ solved.W)
    product[7] = 0
    np.testing.assert_allclose(solved.product, product, atol=1e-9 * np.abs(product).max())
    if solver == "cg":
        other = np.asarray(X.T @ (2 * T + 1))
        again = prepared.solve_rhs(other, solved.W)
        m.passes = 0
        saved = prepared.solve_rhs(other, solved.W, solved.product)
        assert m.passes == saved.iterations + 1  # for the true residual
        np.testing.assert_allclose(saved.W, again.W, atol=1e-9 * np.abs(again.W).max())


def test_columns_taken_are_read_from_their_tiles_alone():
    X, T, u = data(40, 15)
    whole = Matrix.from_array(X, tile_rows=9, tile_columns=4)
    keyed = Matrix(X.shape, rows=whole.row_tiles, columns=whole.column_tiles)
    few = np.where(np.arange(15) % 5 == 0, np.inf, u)
    working = WorkingSet(keyed, solver="cg", targets=3, tol=1e-13)
    with engine.limit_memory(24 * X.nnz):
        solved = working.solve(centering(40), few, T)
    W = dense_ridge(X, centering(40).dense(40), few, T)
    np.testing.assert_allclose(solved.W, W, atol=1e-8 * np.abs(W).max())
    assert working.X.shape == (40, 12)
    assert not working.plans[-1]["gathered"]
    assert keyed.passes == working.X.passes == 3 + solved.iterations  # statistics, XᵀT, residual
    np.testing.assert_array_equal(working.index, np.flatnonzero(np.isfinite(few)))


@pytest.mark.process
def test_on_a_cluster_of_processes_the_answer_is_the_same():
    X, T, u = data(40, 15)
    here = Matrix.from_array(X, tile_rows=9, tile_columns=4)
    keyed = Matrix(X.shape, rows=here.row_tiles, columns=here.column_tiles)
    with engine.cluster(workers=1, memory_limit="512MB"):
        for solver in SOLVERS:
            a, b = (
                Ridge(m, centering(40), solver=solver, tol=1e-12).prepare(u).solve(T).W
                for m in (here, keyed)
            )
            np.testing.assert_allclose(a, b, atol=1e-10 * np.abs(a).max())


# --- the working set ----------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["cg", "auto"])
def test_a_working_set_is_streamed_until_it_fits_and_the_answers_agree(solver):
    X, T, u = data(40, 15)
    whole = Matrix.from_array(X, tile_rows=9, tile_columns=4)
    few = np.where(np.arange(15) % 5 == 0, u, np.inf)
    working = WorkingSet(whole, solver=solver, targets=3, tol=1e-13)
    middle = centering(40)
    for weights, gathered in (
        (u, False),
        (few, True),
        (np.where(np.arange(15) == 5, u, np.inf), True),
    ):
        with engine.limit_memory(10_000):
            working.solve(middle, weights, T, None)
            solved = working.solve(middle, weights, T, None)
        W = dense_ridge(X, middle.dense(40), weights, T)
        np.testing.assert_allclose(solved.W, W, atol=1e-8 * np.abs(W).max())
        np.testing.assert_allclose(working.times(solved.W), X @ solved.W, atol=1e-12)
        on = np.isfinite(weights)
        np.testing.assert_allclose(working.transposed_times(T)[on], (X.T @ T)[on], atol=1e-12)
        assert working.plans[-1]["gathered"] is gathered
    assert len(working.plans) == 3  # one per set of features
    whole.passes = 0
    working.solve(middle, weights, T)
    assert whole.passes == 0  # gathered: the corpus is not read again
    returned = working.solve(middle, few, T)  # a feature that was left out comes back
    np.testing.assert_allclose(returned.W, dense_ridge(X, middle.dense(40), few, T), atol=1e-8)


def test_a_plan_expects_the_steps_of_the_last_solve_but_for_the_first():
    """The first one knows no solution."""
    X, T, u = data(40, 15)
    working, expected, made = WorkingSet(Matrix.from_array(X), solver="cg", targets=3), [], []
    for on in (15, 10, 5):
        weights = np.where(np.arange(15) < on, u, np.inf)
        made.append(working.solve(centering(40), weights, T).iterations)
        product = 4 * (X[:, :on].nnz + 40) * 3 / 3e8  # 40 of the centering
        expected.append(working.plans[-1]["plan"].cost.seconds / product - 1)
    assert expected == pytest.approx([50, 50, made[1]])


@pytest.mark.parametrize("tiles", [None, 9])
def test_the_gram_matrix_of_a_diagonal_is_the_dense_one(tiles):
    X, *_ = data(40, 15)
    m = np.linspace(0, 1, 40)
    dense = X.toarray()
    matrix = Matrix.from_array(X, tile_rows=tiles)
    np.testing.assert_allclose(
        direct.gram(matrix, SampleOperator(m)),
        dense.T @ (m[:, None] * dense),
        rtol=1e-12,
        atol=1e-15,
    )


@pytest.mark.parametrize("density", [0.01, 0.3])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_the_gram_matrix_of_entries_in_any_order_is_the_dense_one(
    rng, density, is_weighted, layout
):
    X = sp.random_array((400, 90), density=density, format=layout, rng=rng)
    starts = X.indptr
    order = np.concatenate(
        [a + rng.permutation(b - a) for a, b in zip(starts, starts[1:], strict=False)]
    )
    X = type(X)((X.data[order], X.indices[order], starts), shape=X.shape)
    assert not X.has_sorted_indices
    m = rng.random(400) if is_weighted else np.ones(400)
    expected = X.toarray().T @ (m[:, None] * X.toarray())
    found = direct._gram(X, 0, 400, m, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_the_gram_matrix_has_no_more_threads_than_the_process_has_cores(monkeypatch):
    """In a container of 2 cores on a host of 64 it had 64, each of which wrote out all rows."""
    asked = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, threads):
            asked.append(threads)
            super().__init__(threads)

    monkeypatch.setattr(sparse_gram, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)  # of the host
    Z = data(40, 15)[0].tocsc()
    found = sparse_gram.sparse_gram(Z, Z)
    np.testing.assert_allclose(found, (Z.T @ Z).toarray(), rtol=1e-12)
    assert asked == [engine.CPU_COUNT] != [64]


@pytest.mark.parametrize("dropped", [0, 2])
def test_the_primal_factor_solves_the_features_that_are_not_dropped(rng, dropped):
    u = 7
    X = rng.normal(size=(20, u + dropped))
    weights = 10 ** rng.uniform(-3, 3, u + dropped)
    weights[:dropped] = np.inf
    G, rhs = X.T @ X, rng.normal(size=(u + dropped, 3))
    solver = direct.Primal(G, weights)
    rhs[:dropped] = 0
    solved = solver.solve(rhs)
    assert not solved[:dropped].any()
    expected = np.linalg.solve(G[dropped:, dropped:] + np.diag(weights[dropped:]), rhs[dropped:])
    np.testing.assert_allclose(solved[dropped:], expected, rtol=1e-10)
    product = np.r_[np.zeros((dropped, 3)), G[dropped:, dropped:] @ solved[dropped:]]
    np.testing.assert_allclose(solver.gram_times(solved), product, atol=1e-10)


def test_a_system_that_is_not_positive_definite_is_refused_in_one_line():
    with pytest.raises(ValueError, match="the ridge system"):
        direct.Primal(np.array([[1.0, 0.0], [0.0, -4.0]]), np.ones(2))


def test_the_primal_solver_takes_what_was_projected(rng):
    n, d = 3000, 700
    X = sp.random_array((n, d), density=0.02, format="csr", rng=rng, dtype=np.float32)
    matrix = Matrix.from_array(X)

    def solve(d):
        ridge = Ridge(Matrix.from_array(X[:, :d]), centering(n), solver="primal")
        ridge.prepare(np.ones(d)).solve_rhs(rng.normal(size=(d, 2)))
        return ridge

    solve(20)  # with what it imports
    tracemalloc.start()
    ridge = solve(d)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    copies = 4 * 12 * matrix.stats.nnz.sum()  # of X, by rows and by columns
    assert peak < 18 * d * d + copies < ridge.plan.cost.bytes


def test_gathered_columns_take_what_was_projected(rng):
    n, d = 20_000, 60
    X = sp.random_array((n, d), density=0.2, format="csr", rng=rng, dtype=np.float32)
    whole = Matrix.from_array(X, tile_rows=500, tile_columns=4)
    columns = ActiveColumns(Matrix(X.shape, rows=whole.row_tiles, columns=whole.column_tiles))
    columns.select(np.arange(40, 60))  # with what it imports
    for active in (np.arange(25), np.arange(20)):
        entries = int(X[:, active].nnz)
        tracemalloc.start()
        columns.select(active)
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 24 * entries + 8 * n
        assert held < 12 * entries + 8 * n
        np.testing.assert_array_equal(columns.X @ np.eye(len(active)), X[:, active].toarray())


def test_the_columns_of_the_last_set_are_freed_before_the_next_are_gathered():
    X, T, u = data(40, 15)
    working = WorkingSet(Matrix.from_array(X), solver="primal", targets=3)
    working.solve(centering(40), np.where(np.arange(15) < 6, u, np.inf), T)
    last = weakref.ref(working.X.row_tiles[0].block)
    freed, gather = [], active_columns.gather_dense

    def watch(matrix, index):
        freed.append(last() is None)
        return gather(matrix, index)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(active_columns, "gather_dense", watch)
        working.solve(centering(40), np.where(np.arange(15) > 3, u, np.inf), T)
    assert freed == [True]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems choose their pages themselves")
def test_the_solution_takes_memory_for_its_active_rows(rng):
    n, d, r = 60, 40_000, 100
    X = sp.random_array((n, d), density=0.05, format="csr", rng=rng)
    u = np.full(d, np.inf)
    u[:: d // 40] = 1.0
    working = WorkingSet(Matrix.from_array(X), solver="primal", targets=r)
    T = rng.normal(size=(n, r))
    working.solve_rhs(centering(n), u, lambda rows: X[:, rows].T @ T)  # with what it imports
    before = psutil.Process().memory_info().rss
    solved = working.solve_rhs(centering(n), u, lambda rows: X[:, rows].T @ T)
    assert solved.W.shape == solved.product.shape == (d, r)
    assert psutil.Process().memory_info().rss - before < solved.W.nbytes / 8


@pytest.mark.parametrize("solver", SOLVERS)
def test_gathered_columns_of_sparse_data_serve_every_solver(solver):
    X, T, u = data(40, 55)
    X = X.multiply(np.random.default_rng(3).random(X.shape) < 0.4).tocsr()
    X.eliminate_zeros()  # so few are left that they stay sparse
    working = WorkingSet(Matrix.from_array(X), solver=solver, targets=3, tol=1e-13)
    few = np.where(np.arange(55) % 3 == 0, np.inf, u)
    solved = working.solve(centering(40), few, T)
    assert working.plans[-1]["gathered"]
    assert sp.issparse(working.X.row_tiles[0].block)
    W = dense_ridge(X, centering(40).dense(40), few, T)
    np.testing.assert_allclose(solved.W, W, atol=1e-8 * np.abs(W).max())


def test_the_gram_matrix_of_a_narrower_set_is_cut_from_the_wider(rng):
    X, T, u = data(40, 15)
    working = WorkingSet(Matrix.from_array(X), solver="primal", targets=3)
    middle = centering(40)
    working.solve(middle, np.where(np.arange(15) < 12, u, np.inf), T)
    narrow = np.where(np.arange(15) % 3 == 0, u, np.inf) * np.where(np.arange(15) < 12, 1, np.inf)
    solved = working.solve(middle, narrow, T)
    # the right-hand side and a check of the product; none for a Gram matrix, or for statistics,
    # which the full matrix has
    assert working.X.passes == 2
    np.testing.assert_allclose(solved.W, dense_ridge(X, middle.dense(40), narrow, T), atol=1e-8)


# --- the plan -----------------------------------------------------------------------------------


def counts(d, a_column):
    return np.full(d, a_column)


@pytest.mark.parametrize(
    ("n", "d", "a_column", "expected"),
    [
        (62, 2000, 62, "woodbury"),  # colon: few samples
        (1440, 300, 1440, "primal"),  # images after most pixels left
        (72309, 20958, 177, "cg"),  # real-sim: neither matrix is worth its time
        (15935, 62061, 20, "cg"),  # news20
    ],
)
def test_the_plan_picks_by_shape(n, d, a_column, expected):
    with engine.limit_memory(10**12):
        plan = choose_solver(project_costs(n, d, counts(d, a_column), 2))
    assert plan.solver == expected
    assert plan.cost.seconds == min(c.seconds for c in plan.costs.values())


def test_the_projected_costs_are_those_of_the_table():
    """Of 20 samples of ten features with one entry each, and three right-hand sides."""
    columns, product = np.ones(10, dtype=int), 4 * 10 * 3 / 3e8
    costs = project_costs(20, 10, columns, 3)
    assert [costs[name].bytes for name in SOLVERS] == [24 * 20**2, 24 * 10**2, 72 * 30 + 16 * 60]
    factors = 20**3 / 3 / 2e10, 10**3 / 3 / 2e10
    expected = 20 / 3e8 + factors[0] + 3 * product, 10 / 3e8 + factors[1] + 2 * product
    assert [costs[name].seconds for name in SOLVERS] == pytest.approx([*expected, 51 * product])
    # with a second term of 20 entries, whose root is made, tiles in workers, and strips
    more = {"e": 20, "root": True, "iterations": 9, "width": 2, "local": False}
    costs, product = project_costs(20, 10, columns, 3, **more), 3 * product
    assert [costs[name].bytes for name in SOLVERS] == [40 * 20**2, 40 * 10**2, 72 * 30 + 16 * 40]
    expected = 20 / 3e8 + 5 * factors[0] + 3 * product, 20 / 3e8 + factors[1] + 2 * product
    assert [costs[name].seconds for name in SOLVERS] == pytest.approx([*expected, 10 * product])


def test_the_plan_leaves_out_what_does_not_fit_and_says_so():
    costs = project_costs(3000, 100_000, counts(100_000, 3), 2)
    with engine.limit_memory(10**12):
        free, requested = choose_solver(costs), choose_solver(costs, "primal")
    with engine.limit_memory(costs["woodbury"].bytes - 1):
        tight = choose_solver(costs)
    assert tight.solver == "cg"
    assert "Too large for 205.99 MiB: woodbury, primal" in tight.why
    assert requested.why.startswith("requested")
    assert free.why.startswith("the least time")


def test_the_plan_leaves_workers_room_to_send_a_gram_matrix():
    for local, expected in ((True, "primal"), (False, "cg")):
        costs = project_costs(804_414, 6255, counts(6255, 5000), 103, width=0, local=local)
        with engine.limit_memory(10**9):
            assert choose_solver(costs).solver == expected


@pytest.mark.parametrize("n", [300, 3000, 8000, 60_000])
@pytest.mark.parametrize("d", [500, 6000, 30_000, 10**6])
def test_the_plan_does_not_depend_on_the_machine(n, d, monkeypatch):
    stats = Matrix.from_array(sp.random_array((50, d), density=0.01, format="csr", rng=0)).stats
    tiles = [BlockTile(a, a + n // 100, None) for a in range(0, n, n // 100)]
    plans = []
    for workers in (1, 2, 32):
        for limit in (10**9, 64 * 10**9):
            for rows in (tiles, tiles[:1]):
                monkeypatch.setattr(engine, "n_workers", lambda workers=workers: workers)
                stored = Matrix((n, d), rows=rows, stats=stats)
                with engine.limit_memory(limit):
                    plans.append(Ridge(stored, centering(n), targets=3).plan)
    assert all(plan == plans[0] for plan in plans)


@pytest.mark.parametrize(
    ("n", "d", "fastest", "layout"), [(20, 400, "woodbury", "rows"), (400, 20, "primal", "columns")]
)
def test_a_solver_without_its_layout_is_never_chosen(n, d, fastest, layout):
    """It was chosen by its time, and ended with "stage it with the layout by columns"."""
    S, T, u = data(n, d)
    both = Matrix.from_array(S, tile_rows=n // 2, tile_columns=d // 2)
    tiles = {"rows": both.row_tiles, "columns": both.column_tiles}
    assert Ridge(Matrix(S.shape, **tiles, stats=both.stats), targets=3).plan.solver == fastest
    X = Matrix(S.shape, **{layout: tiles[layout]}, stats=both.stats)
    ridge = Ridge(X, targets=3, tol=1e-10)
    assert ridge.plan.solver != fastest
    expected = dense_ridge(S, np.eye(n), u, T)
    np.testing.assert_allclose(ridge.prepare(u).solve(T).W, expected, atol=1e-7)
    with pytest.raises(ValueError, match=f"has only the layout by {layout}"):
        Ridge(X, targets=3, solver=fastest).prepare(u)


def test_few_samples_by_rows_alone_are_gathered_beside_their_kernel():
    """A Dask array by rows had conjugate gradients, with a hundred passes in each round."""
    n, d = 60, 150
    S, T, u = np.random.default_rng(3).random((n, d)), np.ones((n, 1)), np.ones(d)
    X = Matrix.from_dask(da.from_array(S, chunks=(6, d)))
    together = 8 * n * d + 24 * n * n
    solvers = []
    for limit in (together - 1, together):
        working = WorkingSet(X, targets=1)
        passes = X.passes
        with engine.limit_memory(limit):
            solution = working.solve(centering(n), u, T)
        solvers.append((working.plans[0]["plan"].solver, X.passes - passes == 0))
        expected = dense_ridge(sp.csr_array(S), np.eye(n) - 1 / n, u, T)
        np.testing.assert_allclose(solution.W, expected, atol=1e-7)
    assert solvers == [("cg", False), ("woodbury", True)]
    with_root = WorkingSet(X, targets=1)  # its root takes memory of its own
    M = SampleOperator(m=np.ones(n), F=np.full((n, 1), 0.5 * n**-0.5))
    with engine.limit_memory(together):
        with_root.solve(M, u, T)
    assert with_root.plans[0]["plan"].solver == "cg"


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_dense_columns_are_gathered_once(layout):
    """Dense blocks were made sparse, put together twice, and made dense again."""
    n, d = 2000, 200
    S = np.random.default_rng(0).random((n, d))
    both = Matrix.from_array(S, tile_rows=n // 40, tile_columns=d // 40)
    tiles = {"rows": both.row_tiles, "columns": both.column_tiles}
    working = ActiveColumns(Matrix(S.shape, **{layout: tiles[layout]}, stats=both.stats))
    active = np.delete(np.arange(d), 7)
    tracemalloc.start()
    working.select(active)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(working.X.rows(np.arange(n)), S[:, active])
    assert peak < 1.3 * S.nbytes


def test_the_kernel_holds_three_matrices_of_samples_at_most():
    n = 700
    X = sp.csc_array(np.random.default_rng(0).random((n, 600)))
    matrix = Matrix.from_array(X, tile_columns=75)
    tracemalloc.start()
    K = kernel(matrix, np.ones(600))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(K, (X @ X.T).toarray(), rtol=1e-12)
    assert peak < 24 * n**2 + 8 * n * 600


def test_a_solver_that_does_not_fit_is_refused_with_both_numbers():
    X, _, _ = data(40, 15)
    refused = pytest.raises(
        engine.MemoryLimitError, match=r"by primal needs 5\.27 kiB .* 1\.00 kiB is allowed"
    )
    X = Matrix.from_array(X)
    with engine.limit_memory(1024), refused:
        Ridge(X, solver="primal")


def test_bad_input_is_named():
    X, _, u = data(40, 15)
    with pytest.raises(ValueError, match="15 positive weights"):
        Ridge(Matrix.from_array(X)).prepare(0 * u)
    assert SampleOperator().apply(u) is u
