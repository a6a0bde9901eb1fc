"""SparGE against dense computations from the paper's formulas, on small data."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from bigfs import Matrix, SparGE, engine
from bigfs.cutting_plane import columns, relaxation
from bigfs.cutting_plane.columns import GatheredColumns, Residual
from bigfs.cutting_plane.elimination import best_first
from bigfs.cutting_plane.loop import certify, cutting_plane
from bigfs.cutting_plane.relaxation import Relaxation
from bigfs.cutting_plane.scores import largest_scores
from bigfs.embedding.targets import lda_factor, one_hot
from bigfs.graph import affinity, knn
from bigfs.result import NotConvergedWarning, Status, observe
from tests.helpers.daily import daily
from tests.helpers.fitting import MemoryCheckpoint
from tests.helpers.master_solvers import apg, simplex


def dense_centered(X):
    dense = X.toarray().astype(float)
    return dense - dense.mean(axis=0)


def relaxation_value(Xc, T, gamma, V, m):
    """min over p of tr(VᵀT) − ½‖V‖² − 1/(2γ)‖diag(p) XcᵀV‖²: what any V certifies, by enumeration's
    shortcut.
    """
    s = np.sort(np.sum((Xc.T @ V) ** 2, axis=1))[::-1]
    return np.vdot(V, T) - 0.5 * np.vdot(V, V) - s[:m].sum() / (2 * gamma)


def test_lda_targets_span_the_centered_indicators():
    codes = np.random.default_rng(0).integers(0, 5, 60)
    T = lda_factor(codes, 5)[codes]
    assert T.shape == (60, 4)
    np.testing.assert_allclose(T.T @ T, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(T.sum(axis=0), 0, atol=1e-12)
    Y = one_hot(codes, 5) - one_hot(codes, 5).mean(axis=0)
    np.testing.assert_allclose(T @ (T.T @ Y), Y, atol=1e-12)


def test_an_empty_class_is_refused():
    with pytest.raises(ValueError, match="class number 1 has no sample"):
        lda_factor(np.array([0, 2, 2]), 3)


@pytest.mark.parametrize("m", [3, 8])
def test_bounds_bracket_the_relaxation_and_meet(text, m):
    X, y = text
    Xc, T = dense_centered(X), lda_factor(y, 4)[y]
    problem = Relaxation(GatheredColumns(Matrix.from_array(X), T), m, 0.5)
    result = cutting_plane(problem, tol=1e-8, max_iter=100)
    assert result.status is Status.CONVERGED
    cuts = result.value
    V = T - Xc[:, cuts.features] @ cuts.W  # the dense residual
    # the value of the primal at W, and what V certifies in the relaxation, both dense
    lower = relaxation_value(Xc, T, 0.5, V, m)
    assert cuts.upper == pytest.approx(lower, rel=1e-6)
    assert all(r["lower"] <= cuts.upper * (1 + 1e-12) for r in result.history)
    assert all(r["upper"] >= lower * (1 - 1e-12) for r in result.history)
    assert all(b["upper"] <= a["upper"] * (1 + 1e-9) for a, b in itertools.pairwise(result.history))


@pytest.mark.parametrize("weights", [None, "some"])
def test_inner_certificate_is_the_dense_one_of_the_gathered_columns(text, weights, rng):
    X, y = text
    omega = None if weights is None else rng.uniform(0.5, 2, X.shape[0])
    T = lda_factor(y, 4)[y]
    if omega is not None:
        T = T - np.outer(omega, omega @ T / (omega @ omega))
    problem = Relaxation(GatheredColumns(Matrix.from_array(X), T, omega), 6, 0.5)
    [state] = certify([problem], [problem.start()])
    state = problem.add_set(state, state.next_set, 1e-9)
    [state] = certify([problem], [state])
    problem.data.add(state.gathered)
    chosen, bound = problem.inner_certificate(state)

    w = np.ones(X.shape[0]) if omega is None else omega
    dense = X.toarray().astype(float)
    Xc = w[:, None] * (dense - (w**2 @ dense) / (w @ w))
    V = T - Xc[:, state.features] @ state.W
    s = np.sum((Xc[:, state.gathered].T @ V) ** 2, axis=1)
    best = np.argsort(-s, kind="stable")[:6]
    np.testing.assert_array_equal(chosen, state.gathered[best])
    a, b = np.vdot(V, T), np.vdot(V, V) + s[best].sum() / 0.5
    assert bound == pytest.approx(a**2 / (2 * b), rel=1e-10)
    assert len(state.gathered) > 6  # the second pass found others


def test_cuts_inside_save_passes_and_end_at_the_same_optimum(text, monkeypatch, change):
    X, y = text

    def fitted(tol=1e-6):
        problem = Relaxation(GatheredColumns(Matrix.from_array(X), lda_factor(y, 4)[y]), 8, 0.2)
        return cutting_plane(problem, tol=tol, max_iter=100)

    without = fitted()
    change(relaxation.MIN_PASS_NNZ, 0)
    with_cuts = fitted()
    assert with_cuts.converged
    assert without.converged
    assert len(with_cuts.history) < len(without.history)
    assert with_cuts.value.upper == pytest.approx(without.value.upper, rel=2e-6)
    one_set = fitted(tol=0.01)
    monkeypatch.setattr(GatheredColumns, "sets_per_pass", 3)
    three_sets = fitted(tol=0.01)
    assert three_sets.converged
    assert len(three_sets.history) < len(one_set.history)
    assert len(three_sets.value.next_set) == 8
    assert three_sets.value.upper == pytest.approx(without.value.upper, rel=0.01)


def test_the_relaxation_bounds_every_subset(text):
    """The certified lower bound holds for the best 2 of 6 features, by enumeration."""
    X, y = text
    Xc, T = dense_centered(X)[:, [0, 3, 6, 20, 21, 22]], lda_factor(y, 4)[y]
    result = cutting_plane(
        Relaxation(GatheredColumns(Matrix.from_array(Xc), T), 2, 0.3),
        tol=1e-9,
        max_iter=100,
    )
    values = {}
    for pair in itertools.combinations(range(6), 2):
        Z = Xc[:, pair]
        W = np.linalg.solve(Z.T @ Z + 0.3 * np.eye(2), Z.T @ T)
        values[pair] = 0.5 * np.sum((T - Z @ W) ** 2) + 0.15 * np.sum(W**2)
    assert result.value.lower <= min(values.values()) * (1 + 1e-12)
    assert result.value.upper <= min(values.values()) * (1 + 1e-9)  # a relaxation


@pytest.mark.slow
@pytest.mark.parametrize("solver", daily([simplex, apg], apg))
def test_each_master_solver_selects_the_same(text, solver, monkeypatch):
    X, y = text
    reference = SparGE(n_features_to_select=10, tol=1e-4).fit(X, y)
    monkeypatch.setattr(relaxation, "newton", lambda *problem: solver(*problem[:3]))
    selector = SparGE(n_features_to_select=10, tol=1e-4).fit(X, y)
    assert set(selector.selected_) == set(reference.selected_)
    np.testing.assert_allclose(
        selector.scores_[selector.selected_], reference.scores_[selector.selected_], rtol=0.05
    )  # W is free within the gap
    assert reference.result_.stats["objective_gap"] >= 0


def test_ranking_by_weights_is_the_papers(text):
    X, y = text
    selector = SparGE(n_features_to_select=10, ranking="weights").fit(X, y)
    np.testing.assert_allclose(
        selector.scores_[selector.union_], np.linalg.norm(selector.coef_, axis=1)
    )


def test_finds_the_planted_features_in_kappa_plus_one_passes(text):
    X, y = text
    matrix = Matrix.from_array(X, tile_columns=11)
    _ = matrix.stats
    before = matrix.passes
    selector = SparGE(n_features_to_select=12).fit(matrix, y)
    assert set(selector.selected_) == set(range(12))
    assert matrix.passes - before == selector.result_.stats["cuts"] + 1
    assert len(selector.union_) >= 12
    assert set(np.flatnonzero(selector.scores_)) <= set(selector.union_)


def test_weighted_samples_equal_a_dense_weighted_problem(text):
    X, _ = text
    rng = np.random.default_rng(0)
    omega, T = rng.uniform(0.5, 2, 120), np.linalg.qr(rng.normal(size=(120, 2)))[0]
    dense = X.toarray().astype(float)
    mean = omega**2 @ dense / np.sum(omega**2)
    weighted = omega[:, None] * (dense - mean)
    data = GatheredColumns(Matrix.from_array(X), T, omega)
    problem = Relaxation(data, 5, 0.5)
    residual = Residual(data.center(T), 0.0, 0.0)
    [(index, s)] = largest_scores([problem], [problem.start()], [residual])
    np.testing.assert_allclose(
        s, np.sort(np.sum((weighted.T @ T) ** 2, axis=1))[::-1][:5], rtol=1e-9
    )
    data.add(index[:2])
    data.add(index)
    Z = weighted[:, data.features]
    np.testing.assert_allclose(data.G, Z.T @ Z, atol=1e-9)
    np.testing.assert_allclose(data.B, Z.T @ T, atol=1e-9)
    W = rng.normal(size=(5, 2))
    V, residual = T - Z @ W, data.residual(W, data.features)
    np.testing.assert_allclose(dense.T @ residual.V, weighted.T @ V, atol=1e-9)
    assert residual.a == pytest.approx(np.vdot(V, T))
    assert residual.norm2 == pytest.approx(np.vdot(V, V))


def test_scale_of_the_data_does_not_matter(text):
    X, y = text
    np.testing.assert_array_equal(
        SparGE(n_features_to_select=9).fit(X, y).selected_,
        SparGE(n_features_to_select=9).fit(1000 * X, y).selected_,
    )


@pytest.mark.parametrize("columns", [slice(None), slice(0, 2)])
def test_the_unit_of_gamma_is_the_smaller_of_two(text, columns):
    X, y = text
    X = X[:, columns] if columns.stop else sp.csr_array(np.tile(X.toarray(), (1, 100)))
    sums = np.sum(dense_centered(X) ** 2, axis=0)
    units = np.sum(sums) / 120, 2 * np.sum(sums**2) / np.sum(sums)
    assert np.argmin(units) == (0 if columns.stop else 1)
    selector = SparGE(n_features_to_select=1, gamma=0.3).fit(X, y)
    assert selector.result_.stats["gamma"] == pytest.approx(0.3 * min(units), rel=1e-6)


def test_features_of_the_same_variance_do_not_make_gamma_grow(rng):
    X, y = rng.normal(size=(40, 200)), np.arange(40) % 2
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    for d in (100, 150, 200):
        selector = SparGE(n_features_to_select=3).fit(X[:, :d], y)
        assert selector.result_.stats["gamma"] == pytest.approx(2 * 40, rel=1e-6)


def test_duplicate_columns_do_no_harm(text):
    X, y = text
    doubled = np.hstack([X.toarray(), X.toarray()])
    selector = SparGE(n_features_to_select=24, tol=1e-6).fit(doubled, y)
    assert selector.result_.status is Status.CONVERGED
    # a second copy is worth less than the first
    assert set(range(12)) <= set(selector.selected_ % 80)
    norms = np.zeros(160)
    norms[selector.union_] = np.linalg.norm(selector.coef_, axis=1)
    np.testing.assert_allclose(norms[:80], norms[80:], atol=1e-6 * norms.max())


def test_iteration_limit_warns_with_the_gap(text):
    X, y = text
    with pytest.warns(NotConvergedWarning, match="SparGE stopped at the iteration limit"):
        selector = SparGE(n_features_to_select=5, tol=1e-9, max_iter=1).fit(X, y)
    assert selector.result_.status is Status.MAX_ITER
    assert selector.result_.history[-1]["gap"] > 1e-9


def test_columns_that_do_not_fit_in_memory_end_the_cuts_and_more_memory_goes_on(text, change):
    X, y = text
    selector = SparGE(n_features_to_select=5, tol=1e-4)
    whole, checkpoint = clone(selector).fit(X, y), MemoryCheckpoint()
    most = whole.result_.stats["gathered"]
    change(columns.LARGE_SIZE, 0)
    with engine.limit_memory(10**9):
        with (
            columns.FACTOR_BYTES.during(10**9 // (most - 1) ** 2),
            observe(checkpoint=checkpoint),
            pytest.warns(NotConvergedWarning, match="next step does not fit in memory"),
        ):
            short = clone(selector).fit(X, y)
        assert short.result_.status is Status.MEMORY
        assert short.result_.stats["gathered"] < most
        assert len(short.selected_) == 5
        n_steps = len(short.result_.history)
        steps = []
        assert 0 < n_steps < len(whole.result_.history)
        assert short.result_.history == whole.result_.history[:n_steps]
        with observe(lambda *_: steps.append(1), checkpoint):
            more = clone(selector).fit(X, y)
    assert len(steps) == len(whole.result_.history) - n_steps
    assert more.result_.history == whole.result_.history
    np.testing.assert_array_equal(more.scores_, whole.scores_)


@pytest.mark.process
def test_tiles_and_workers_do_not_change_the_selection(text):
    import dask.array as da

    X, y = text
    whole = SparGE(n_features_to_select=12).fit(Matrix.from_array(X), y)
    for size in (5, 33):
        other = SparGE(n_features_to_select=12).fit(
            Matrix.from_array(X, tile_rows=size, tile_columns=size), y
        )
        np.testing.assert_array_equal(other.selected_, whole.selected_)
        np.testing.assert_array_equal(other.scores_, whole.scores_)
    with engine.cluster(workers=1):
        other = SparGE(n_features_to_select=12).fit(
            da.from_array(X, chunks=(40, 80), asarray=False), y
        )
    np.testing.assert_array_equal(other.selected_, whole.selected_)


@pytest.mark.parametrize(
    ("parameters", "y", "message"),
    [
        ({}, np.zeros(120, int), "1 class"),
        ({"gamma": -1.0}, None, "gamma"),
        ({"embedding": "lde"}, None, "embedding"),
    ],
)
def test_bad_parameters_are_named(text, parameters, y, message):
    X, labels = text
    with pytest.raises(ValueError, match=message):
        SparGE(**parameters).fit(X, labels if y is None else y)


TARGETS = {
    "lda": lambda y: y,
    "cca": lambda y: np.column_stack([y == 0, y >= 2]).astype(float),
    "hsl": lambda y: np.column_stack([y == 0, y >= 1, y >= 2]).astype(float),
    "sda": lambda y: np.where(np.arange(len(y)) % 3, -1, y),
    "lpp": lambda y: None,
    "pca": lambda y: None,
}


@pytest.mark.parametrize(
    ("embedding", "weighting"),
    [*((one, "uniform") for one in TARGETS), ("sda", "degree"), ("lpp", "degree")],
)
def test_every_embedding_selects_and_certifies(text, embedding, weighting):
    X, y = text
    selector = SparGE(
        embedding=embedding, n_features_to_select=12, n_neighbors=8, weighting=weighting
    ).fit(X, TARGETS[embedding](y))
    assert selector.result_.converged
    assert len(set(selector.selected_) & set(range(12))) >= (
        9 if embedding in ("lda", "sda", "cca", "hsl") else 6
    )
    assert selector.transform(X).shape == (120, 12)


def test_a_graph_can_be_given(text):
    X, _ = text
    A = affinity(knn(Matrix.from_array(X), 5), weights="cosine")
    given = SparGE(embedding="lpp", n_features_to_select=9, graph=A).fit(X)
    np.testing.assert_array_equal(
        given.scores_, SparGE(embedding="lpp", n_features_to_select=9).fit(X).scores_
    )
    with pytest.raises(ValueError, match="n × n affinity"):
        SparGE(embedding="lpp", graph=A[:5, :5].tocsr()).fit(X)


def test_a_size_that_is_given_twice_is_chosen_once(text):
    X, y = text
    path = SparGE().fit_path(X, y, [5, 3, 5])
    assert list(path) == [5, 3]
    np.testing.assert_array_equal(
        path[5].selected_, SparGE(n_features_to_select=5).fit(X, y).selected_
    )


@pytest.mark.parametrize(
    ("embedding", "parameters"),
    [
        ("lda", {"graph": sp.csr_array(1 - np.eye(6))}),
        ("hsl", {"graph": sp.csr_array(np.eye(6) - 1)}),
        ("pca", {"weighting": "degree"}),
        ("lpp", {"beta": 2.0}),
        ("lpp", {"target": "real"}),
        ("cca", {"loss": "squared_hinge"}),
        ("sda", {"class_weight": {0: 2.0}}),
    ],
)
def test_a_parameter_without_effect_is_refused(embedding, parameters, rng):
    (name,) = parameters
    with pytest.raises(ValueError, match=f"^{name}.* needs embedding="):
        SparGE(embedding=embedding, **parameters).fit(rng.normal(size=(6, 3)), [0, 1, 0, 1, 0, 1])


def test_hsl_takes_no_real_targets(rng):
    X = rng.normal(size=(20, 4))
    for y in (rng.normal(size=20), rng.integers(0, 4, (20, 3))):
        with pytest.raises(ValueError, match="indicator of label sets"):
            SparGE(embedding="hsl").fit(X, y)


def test_the_status_of_every_embedding_is_in_the_stats(text):
    X, y = text
    for embedding in ("pca", "sda", "lpp"):
        selector = SparGE(embedding=embedding, n_features_to_select=5)
        stats = selector.fit(X, TARGETS[embedding](y)).result_.stats
        assert stats["embedding_status"] == "CONVERGED"
        assert stats["embedding_residual"] < 0.1
    stats = SparGE(embedding="sda").fit(X, TARGETS["sda"](y)).result_.stats
    assert stats["degenerate"] is False


@pytest.mark.parametrize("seed", [9, 10, 11, 16])
def test_the_choice_among_equal_columns_does_not_depend_on_the_tiles(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(30, 80)), int(rng.integers(20, 60))
    y = np.arange(n) % 3
    X = rng.normal(size=(n, d))
    X[:, :5] += rng.normal(size=(3, 5))[y]
    X = np.hstack([X, X[:, rng.permutation(d)]])[:, rng.permutation(2 * d)]
    expected = SparGE(n_features_to_select=7).fit(X, y).selected_
    for height, width in ((7, 5), (13, 17), (n, 33), (n, 1)):
        matrix = Matrix.from_array(X, tile_rows=height, tile_columns=width)
        found = SparGE(n_features_to_select=7).fit(matrix, y).selected_
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("embedding", ["lda", "pca"])
def test_the_first_of_equal_columns_leaves_whatever_the_tiles(embedding, rng):
    """Rounding told equal columns apart, and which of them stayed followed from the tiles."""
    y = np.arange(72) % 3
    X = np.round(np.abs(rng.normal(size=(72, 7))) * 64) / 64 + (np.arange(7) // 2 == y[:, None])
    X = np.hstack([X, X])
    for form in (X, Matrix.from_array(sp.csr_array(X), tile_rows=17, tile_columns=4)):
        order = SparGE(n_features_to_select=14, embedding=embedding).fit(form, y).selected_
        for j in range(7):
            assert np.flatnonzero(order == j + 7) < np.flatnonzero(order == j)


def test_scores_that_differ_by_rounding_go_by_index():
    s = np.array([3.0, 1.0, 3.0 * (1 + 1e-14), 2.0, 3.0 * (1 + 1e-6), 1.0 + 1e-15])
    kept = np.arange(6) == 1
    assert best_first(s, np.arange(6), kept).tolist() == [1, 4, 0, 2, 3, 5]
    assert best_first(s[::-1], np.arange(6)[::-1], kept[::-1]).tolist() == [4, 1, 5, 3, 2, 0]
    zero = np.zeros(3)
    assert best_first(zero, np.array([4, 2, 9]), zero > 0).tolist() == [1, 0, 2]
