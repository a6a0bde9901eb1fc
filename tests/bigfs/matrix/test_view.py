"""Columns far from zero less their mean, against the same columns made dense and near zero."""

import pickle
import tracemalloc
from functools import partial

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import bigfs
from bigfs import RFS, RLSR, SRLSR, UDFS, Matrix, MultiTaskLasso, SparGE, engine
from bigfs.embedding.spectral import randomized_svd
from bigfs.graph.row_blocks import row_blocks
from bigfs.linalg.ridge import Ridge
from bigfs.linalg.ridge.operator import SampleOperator, centering
from bigfs.matrix import Centered, Stats
from bigfs.matrix.tiles import DaskTile
from bigfs.result import Status, iterate
from bigfs.selectors.sparge import targets

N, D = 120, 9
FAR = [1, 4, 7]


@pytest.fixture
def columns(rng):
    """Sparse columns near zero, three columns far from it, and a constant one."""
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.4)
    X[:, FAR] = np.round(rng.normal(size=(N, 3)) * 64) / 64 + np.array([1e6, -3e7, 2**20])
    X[:, 5] = 1e9
    return X


def layouts(X, dtype=np.float64):
    S = sp.csr_array(X.astype(dtype))
    rows = Matrix.from_array(S, tile_rows=25)
    both = Matrix.from_array(S, tile_rows=25, tile_columns=4)
    return {
        "dense": Matrix.from_array(X.astype(dtype), tile_rows=30, tile_columns=3),
        "sparse": both,
        "rows": Matrix(X.shape, rows=rows.row_tiles, local=True, meta=rows.meta),
        "columns": Matrix(X.shape, columns=both.column_tiles, local=True, meta=rows.meta),
        "lazy": Matrix.from_dask(da.from_array(X.astype(dtype), chunks=(40, -1))),
    }


@pytest.mark.parametrize("kind", ["dense", "sparse", "rows", "columns", "lazy"])
def test_columns_far_from_zero_are_read_less_their_mean(columns, kind):
    X = layouts(columns)[kind]
    near = X.near_zero()
    expected = columns - X.near_numbers
    expected[:, 5] = 0
    assert np.flatnonzero(X.near_numbers).tolist() == [1, 4, 5, 7]
    np.testing.assert_array_equal(near @ np.eye(D), expected)
    np.testing.assert_array_equal(near.T @ np.eye(N), expected.T)
    np.testing.assert_array_equal(near.columns([7, 0, 5]).toarray(), expected[:, [7, 0, 5]])
    if near.row_tiles:
        rows = near.rows([0, 60, 119])
        rows = rows.toarray() if sp.issparse(rows) else rows
        np.testing.assert_array_equal(rows, expected[[0, 60, 119]])
    part = near.take_rows(np.arange(0, N, 2)).take_columns([1, 2, 5, 8])
    np.testing.assert_array_equal(part @ np.eye(4), expected[::2][:, [1, 2, 5, 8]])
    np.testing.assert_allclose(near.stats.sums, expected.sum(axis=0), atol=1e-6)
    np.testing.assert_allclose(near.stats.sums_of_squares, (expected**2).sum(axis=0), rtol=1e-12)
    assert near.near_zero() is near
    assert X.near_zero() is near


def test_columns_near_zero_are_the_same_matrix(rng):
    X = Matrix.from_array(sp.random_array((60, 8), density=0.3, rng=rng, format="csr"))
    assert X.near_zero() is X
    assert not X.near_numbers.any()


def test_passes_over_the_view_count_as_passes_over_the_matrix(columns):
    X = layouts(columns)["sparse"]
    near, before = X.near_zero(), X.passes
    _ = near @ np.ones(D)
    assert X.passes == before + 1


@pytest.mark.parametrize("solver", ["primal", "woodbury", "cg"])
@pytest.mark.parametrize("shift", [1e3, 1e5, 1e7, 1e8])
def test_a_ridge_solve_keeps_its_digits_far_from_zero(rng, solver, shift):
    """It said a residual of 2e-16 where the true one was 2e-2, or that the system is singular."""
    X, T, u = rng.normal(size=(90, 12)), rng.normal(size=(90, 2)), np.full(12, 1e-3)
    X[:, :2] = np.round(X[:, :2] * 64) / 64
    T -= T.mean(axis=0)
    Xc = X - X.mean(axis=0)
    W = np.linalg.solve(Xc.T @ Xc + np.diag(u), Xc.T @ T)
    X[:, :2] += shift
    ridge = Ridge(Matrix.from_array(X).near_zero(), centering(90), solver=solver, targets=2)
    solution = ridge.prepare(u).solve(T)
    np.testing.assert_allclose(solution.W, W, rtol=1e-9, atol=1e-12)
    assert solution.status in (Status.EXACT, Status.CONVERGED)


def test_a_direct_solve_is_exact_only_by_the_residual_of_the_matrix(rng):
    """Its residual was that of the Gram matrix that it factored."""
    X = Matrix.from_array(rng.normal(size=(60, 6)))
    ridge = Ridge(X, centering(60), solver="primal", targets=2)
    ridge._gram = ridge.gram * (1 + 1e-3)  # as rounding far from zero would leave it
    solution = ridge.prepare(np.ones(6)).solve(rng.normal(size=(60, 2)))
    assert solution.residual > 1e-4
    assert solution.status is Status.STALLED


FITS = {
    "SRLSR": lambda: SRLSR(n_features_to_select=3),
    "RLSR": lambda: RLSR(n_features_to_select=3),
    "RFS": lambda: RFS(n_features_to_select=3),
    "SparGE": lambda: SparGE(n_features_to_select=3, gamma=1e-4),
    "MultiTaskLasso": lambda: MultiTaskLasso(n_features_to_select=3),
    "UDFS": lambda: UDFS(n_features_to_select=3, metric="euclidean"),
}


# both end at a relative tolerance of 1e-2, from which rounding takes them on other ways
TOLERANCE = {"RFS": 1e-3, "UDFS": 1e-3}


@pytest.mark.parametrize("shift", [1e4, 1e6])
@pytest.mark.parametrize("method", FITS)
def test_a_shift_of_two_columns_costs_no_method_its_certificate(rng, method, shift):
    """SRLSR took 200 rounds in place of 2, and RLSR a negative gap for a small one."""
    y = np.arange(300) % 3
    X = rng.normal(size=(300, 12))
    X[:, :3] += 1.5 * (y[:, None] == np.arange(3))
    X = np.round(X * 64) / 64
    far = X.copy()
    far[:, :2] += shift
    graph = None
    if method == "UDFS":  # the graph's distances are not its subject
        graph = bigfs.graph.knn(Matrix.from_array(X), 5, metric="euclidean")
    fits = []
    for data in (X, far):
        selector = FITS[method]()
        if graph is not None:
            selector.set_params(graph=graph)
        fits.append(selector.fit(data, y))
    near, moved = fits
    assert moved.result_.status is near.result_.status is Status.CONVERGED
    assert len(moved.result_.history) <= len(near.result_.history) + 1
    assert moved.selected_.tolist() == near.selected_.tolist()
    for name in ("coef_", "scores_"):
        if hasattr(near, name):
            np.testing.assert_allclose(
                getattr(moved, name),
                getattr(near, name),
                rtol=1e-5,
                atol=TOLERANCE.get(method, 1e-7),
            )
    if hasattr(near, "intercept_"):
        np.testing.assert_allclose(
            far @ moved.coef_ + moved.intercept_,
            X @ near.coef_ + near.intercept_,
            atol=TOLERANCE.get(method, 1e-5),
        )


@pytest.mark.parametrize("n", [300, 3_000, 30_000])
def test_years_cost_srlsr_no_round(n):
    """Two columns of 2015 ± 5 took it 200 rounds from 3,000 samples on, and a gap of 0.39."""
    rng, y = np.random.default_rng(0), np.arange(n) % 3
    X = rng.normal(size=(n, 30))
    X[:, :3] += [1.5, 1.5, 1] * (y[:, None] == np.arange(3))
    ages = np.round(5 * X[:, :2])
    n_rounds = []
    for numbers in (ages / 5, 2015 + ages):
        X[:, :2] = numbers
        result = SRLSR(n_features_to_select=3, tol=1e-6, max_iter=9).fit(X, y).result_
        assert result.status is Status.CONVERGED
        n_rounds.append(len(result.history))
    assert n_rounds[1] <= n_rounds[0] + 1


@pytest.mark.parametrize("kind", ["tiled", "streamed", "gathered"])
def test_sparge_by_tiles_bounds_the_optimum_far_from_zero(rng, kind, monkeypatch):
    """An upper bound below the optimum was certified."""
    y = np.arange(200) % 4
    X = np.round((rng.normal(size=(200, 40)) + 0.3 * (y[:, None] == np.arange(40) % 4)) * 64) / 64
    monkeypatch.setattr(targets, "columns_for", lambda method, X, r: kind)
    records = []
    for data in (X, X + 1e5):
        matrix = Matrix.from_array(sp.csr_array(data), tile_rows=50, tile_columns=10)
        selector = SparGE(n_features_to_select=5, gamma=1e-4).fit(matrix, y)
        assert selector.result_.status is Status.CONVERGED
        records.append(selector.result_.history[-1])
    near, far = records
    for name in ("upper", "lower"):
        assert far[name] == pytest.approx(near[name], rel=1e-8)


def test_singular_vectors_keep_their_digits_far_from_zero(rng):
    """A sine of 3e-3 was said to be 8e-4."""
    for shape in ((200, 20), (20, 200)):
        X = np.round(rng.normal(size=shape) * np.linspace(8, 1, shape[1]) * 64) / 64
        near = randomized_svd(Centered(Matrix.from_array(X)), 3, tol=1e-6).value
        X[:, :3] += 1e7
        far = randomized_svd(Centered(Matrix.from_array(X)), 3, tol=1e-6).value
        np.testing.assert_allclose(np.abs(far.vectors.T @ near.vectors), np.eye(3), atol=1e-5)


def test_a_negative_gap_is_a_failed_certificate():
    with pytest.warns(UserWarning, match="limit of floating point"):
        result = iterate(
            lambda state: state,
            (0,),
            measure=lambda state: {"gap": -2.5e-4},
            stop="gap",
            tol=1e-2,
            max_iter=9,
            name="loop",
        )
    assert result.status is Status.STALLED
    assert len(result.history) == 1


def test_conjugate_gradients_end_where_they_diverge(rng):
    """They went on for 500 iterations, to weights of 1e70."""
    X, T = rng.normal(size=(90, 12)), rng.normal(size=(90, 2))
    X[:, :2] += 1e8
    M = SampleOperator(F=np.full((90, 1), 90**-0.5))  # a product that loses all digits
    ridge = Ridge(Matrix.from_array(X), M, solver="cg", targets=2)
    solution = ridge.prepare(np.full(12, 1e-3)).solve(T - T.mean(axis=0))
    assert solution.status is Status.STALLED
    assert solution.iterations < 20


def test_names_may_be_a_list(rng):
    """Whatever looked at a name was a TypeError."""
    X = Matrix.from_array(rng.normal(size=(9, 3)), feature_names=["a", "b", "c"])
    assert X.take_columns([0, 2]).feature_names.tolist() == ["a", "c"]
    with pytest.raises(ValueError, match="must hold 3 names"):
        Matrix.from_array(rng.normal(size=(9, 3)), feature_names=["a", "b"])


def test_every_name_of_the_room_is_there():
    import bigfs.matrix

    assert all(hasattr(bigfs.matrix, name) for name in bigfs.matrix.__all__)


@pytest.mark.parametrize(
    ("left_out", "most"), [([5], 800), ([], 800), (np.arange(0, 10**6, 2), 10**6 / 8 + 800)]
)
def test_a_tile_of_columns_carries_the_fewer_of_taken_and_left_out(left_out, most):
    """With one forbidden feature a task of a graph carried 8 bytes per column."""
    d = 10**6
    X = Matrix.from_array(sp.csr_array(([1.0], ([0], [7])), shape=(3, d)), tile_rows=2)
    keys = [DaskTile(t.start, t.stop, None) for t in X.row_tiles]
    index = np.delete(np.arange(d), left_out)
    taken = Matrix(X.shape, rows=keys, stats=X.stats).take_columns(index)
    assert all(len(pickle.dumps(tile)) < most for tile in taken.row_tiles)
    np.testing.assert_array_equal(engine.unshare(taken.row_tiles[0].view).numbers(), index)
    assert all(len(pickle.dumps(block)) < most + 200 for block in row_blocks(taken, 2))


def test_a_matrix_travels_without_what_can_be_read_again():
    X = Matrix((5, 10**5), rows=[DaskTile(0, 5, None)], stats=partial(read_stats, 5))
    small = len(pickle.dumps(X))
    assert X.deviations.size == 10**5
    assert len(pickle.dumps(X)) <= small + 10
    part = X.take_columns([1, 2])
    _ = part.deviations
    assert len(pickle.dumps(part)) < 5000


def read_stats(n):
    return Stats(np.arange(10**5) % n, np.full(10**5, n), np.full(10**5, n))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["sparse", "rows", "columns"])
@pytest.mark.parametrize("order", ["increasing", "permuted"])
def test_gathering_takes_at_most_what_it_asks_for(rng, dtype, kind, order, monkeypatch):
    """From rows nothing was asked, and in another order 36 bytes of 24 were taken."""
    S = sp.random_array((6000, 60), density=0.3, format="csr", rng=rng, dtype=dtype)
    both = Matrix.from_array(S, tile_rows=1500, tile_columns=15)
    rows = both.row_tiles if kind != "columns" else ()
    columns = both.column_tiles if kind != "rows" else ()
    X = Matrix(S.shape, rows=rows, columns=columns, local=True, meta=both.meta)
    index = np.arange(60) if order == "increasing" else rng.permutation(60)
    asked = []
    monkeypatch.setattr(engine, "require_memory", lambda size, *_: asked.append(size))
    X.columns(index)
    tracemalloc.start()
    X.columns(index)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 1.05 * max(asked)
    assert max(asked) <= 2 * peak


def test_gathered_rows_that_do_not_fit_are_refused(rng):
    X = layouts(rng.normal(size=(500, 40)))["rows"]
    with engine.limit_memory(100_000):
        for gather in (lambda: X.columns(np.arange(40)), lambda: X.rows(np.arange(500))):
            with pytest.raises(engine.MemoryLimitError, match=r"needs .* is allowed"):
                gather()
