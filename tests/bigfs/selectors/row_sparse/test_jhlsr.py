"""JHLSR against a dense loop written from the formulas of docs/methods/jhlsr.md with hand-made
hypergraphs.
"""

import copy
import tracemalloc
import weakref
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp

from bigfs import GLSPFS, engine
from bigfs.embedding import factors
from bigfs.engine import MemoryLimitError
from bigfs.engine.budget import Shares
from bigfs.graph.hypergraph.hypergraph import Hypergraph
from bigfs.graph.hypergraph.smoothness import Smoothness, choose_weights
from bigfs.linalg.ridge.plan import SOLVERS
from bigfs.matrix import Matrix, panels
from bigfs.matrix.panels import ColumnStrips
from bigfs.result import Status, observe
from bigfs.selectors.row_sparse import jhlsr_problem, rows
from bigfs.selectors.row_sparse.jhlsr import JHLSR
from bigfs.selectors.row_sparse.jhlsr_operator import HypergraphOperator
from bigfs.selectors.row_sparse.jhlsr_problem import EPSILON, JHLSRProblem
from tests.helpers.daily import daily
from tests.helpers.fitting import MemoryCheckpoint, fit_few_steps


def data(n=30, d=12, seed=0, labeled=None, constant=1.0):
    """Three classes with one informative column each (5, 6, 7); column 3 empty, column 4 constant;
    and an incidence H (n × 9).
    """
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = sp.random_array((n, d), density=0.4, format="lil", rng=rng)
    X[np.arange(n), 5 + y] = 2.0
    X[:, 3] = 0
    X[:, 4] = constant
    H = (rng.random((n, 9)) < 0.3).astype(float)
    H[:, 0] = 1
    if labeled is not None:
        y = np.where(np.arange(n) < 3 * labeled, y, -1)
    return sp.csr_array(X), y, H


def without_constants(X):
    """X (csr) with zeros in the constant columns, which take no part."""
    return sp.csr_array(X * (np.ptp(X.toarray(), axis=0) > 0))


# --- features of zero weight ---


def test_features_of_zero_weight_follow_by_their_correlation():
    X, y, H = data()
    few = {"hyperedges": H, "lam": 1.0, "tol": 1e-4}
    varying = without_constants(X)
    for max_iter in (3, 1000):
        selector = fit_few_steps(JHLSR(max_iter=max_iter, variant="hyper", **few), X, y)
        S, w = selector.coef_, selector.hyperedge_weights_
        F = H / np.sqrt(np.maximum(H @ w, 1e-300))[:, None]
        M = 1.1 * np.eye(30) - 0.1 * F * (w / H.sum(axis=0)) @ F.T
        Phi = factors.same_class_factor(y, 3).toarray()
        pulls = np.linalg.norm(varying.T @ (Phi - M @ (X @ S)), axis=1)
        out = selector.scores_ <= 0
        expected = pulls / pulls.max() - 1
        np.testing.assert_allclose(selector.scores_[out], expected[out], atol=1e-6)
        np.testing.assert_allclose(selector.scores_[~out], np.linalg.norm(S[~out], axis=1))
    assert 3 < out.sum() < 12
    assert selector.scores_[3] == -1


def test_a_penalty_that_leaves_no_weight_is_refused():
    X, y, H = data()
    with pytest.raises(ValueError, match="lam=1e\\+06 leaves every row of weights below 1e-07"):
        JHLSR(hyperedges=H, lam=1e6).fit(X, y)
    with pytest.raises(ValueError, match="every feature of X that may be chosen is constant"):
        JHLSR(hyperedges=H, mode="unsupervised").fit(sp.csr_array(X.shape), y)


def test_unsupervised_ignores_whatever_y_is():
    X, y, H = data()
    expected = JHLSR(hyperedges=H, mode="unsupervised").fit(X).scores_
    for ignored in (y + 0.25, y[:4], "none"):
        found = JHLSR(hyperedges=H, mode="unsupervised").fit(X, ignored).scores_
        np.testing.assert_array_equal(found, expected)


def pairwise_descent(q, mu, gamma):
    """The paper's w-step: move weight between two hyperedges at a time until nothing moves."""
    w = np.full(len(q), 1 / len(q))
    for _ in range(2000):
        moved = 0.0
        for i in range(len(q)):
            for j in range(i):
                best = (w[i] + w[j]) / 2 + mu * (q[i] - q[j]) / (4 * gamma)
                best = np.clip(best, 0, w[i] + w[j])
                moved, w[j], w[i] = max(moved, abs(best - w[i])), w[i] + w[j] - best, best
        if moved < 1e-13:
            break
    return w


def dense_laplacian(H, w, degrees):
    """L_H(w), whose D_v weighs the incidence by w or not."""
    Dv, De = H @ (w if degrees == "weighted" else np.ones(len(w))), H.sum(axis=0)
    root = np.where(Dv > 0, 1 / np.sqrt(np.where(Dv > 0, Dv, 1)), 0)
    F = root[:, None] * H
    return np.eye(len(H)) - F @ np.diag(w / De) @ F.T


def dense_jhlsr(X, y, H, mu, lam, gamma, rounds, learn=True, degrees="incidence", intercept=False):
    """The loop with dense matrices, explicit L_H and no working set.

    An intercept is the last row of S: the weight of a constant column that no penalty sees.
    """
    X = without_constants(X).toarray()
    d = X.shape[1]
    if intercept:
        X = np.hstack([X, np.ones((len(X), 1))])
    free = np.zeros(X.shape[1] - d)
    classes = np.unique(y[y != -1])
    Phi = (y[:, None] == classes) / np.sqrt([(y == k).sum() for k in classes])
    A = np.diag((y != -1).astype(float))
    De = H.sum(axis=0)
    F = H / np.sqrt(H.sum(axis=1))[:, None]
    w, u, objective = np.full(H.shape[1], 1 / H.shape[1]), np.full(d, lam), []
    for _ in range(rounds):
        L = dense_laplacian(H, w, degrees)
        S = np.linalg.solve(X.T @ (A + mu * L) @ X + np.diag(np.r_[u, free]), X.T @ A @ Phi)
        q = ((F.T @ X @ S) ** 2).sum(axis=1) / De
        w = pairwise_descent(q, mu, gamma) if learn else w
        L = dense_laplacian(H, w, degrees)
        smooth = np.sqrt((S[:d] ** 2).sum(axis=1) + EPSILON)
        loss = np.sum((A @ X @ S - Phi) ** 2) + mu * np.trace(S.T @ X.T @ L @ X @ S)
        objective.append(loss + lam * smooth.sum() + learn * gamma * w @ w)
        u = lam / (2 * smooth)
    return S, w, objective


def fit(X, y, **parameters):
    return fit_few_steps(JHLSR(**parameters), X, y)


@pytest.mark.parametrize(
    ("variant", "degrees"), [("joint", "incidence"), ("hyper", "incidence"), ("hyper", "weighted")]
)
@pytest.mark.parametrize(
    ("n", "d", "labeled"), [(30, 12, None), (30, 12, 1), (15, 40, 3), (15, 40, 1)]
)
@pytest.mark.parametrize("solver", [*SOLVERS, "auto"])
def test_equals_the_dense_loop(solver, n, d, labeled, variant, degrees):
    X, y, H = data(n, d, labeled=labeled)
    learn = variant == "joint"
    S, w, objective = dense_jhlsr(X, y, H, 0.8, 0.3, 0.05, 6, learn, degrees)
    exact = {"solver": solver, "solver_tol": 1e-13, "solver_max_iter": 500, "max_iter": 6, "tol": 0}
    model = fit(
        *(X, y),
        mu=0.8,
        lam=0.3,
        gamma=0.05,
        hyperedges=H,
        variant=variant,
        degrees=degrees,
        **exact,
    )
    np.testing.assert_allclose(model.coef_, S, atol=1e-6 * np.abs(S).max())
    np.testing.assert_allclose(model.hyperedge_weights_, w, atol=1e-6)
    np.testing.assert_allclose(
        [r["objective"] for r in model.result_.history], objective, rtol=1e-6
    )
    assert not model.coef_[3].any()
    assert model.mode_ == ("supervised" if labeled is None or 3 * labeled >= n else "semi")
    assert model.result_.stats["zero_hyperedges"] == np.sum(model.hyperedge_weights_ == 0)


# --- the intercept ---


@pytest.mark.parametrize("strip", [None, 1])
@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("variant", "degrees", "labeled"),
    [("joint", "incidence", 3), ("hyper", "incidence", 3), ("hyper", "weighted", None)],
)
def test_an_intercept_is_the_weight_of_a_constant_that_no_penalty_sees(
    variant, degrees, labeled, solver, accelerate, strip, monkeypatch
):
    if strip:
        for module in (jhlsr_problem, panels):
            monkeypatch.setattr(module, "strip_width", lambda *_: strip)
    X, y, H = data(20, 30, labeled=labeled, constant=0.0)
    given = {"variant": variant, "degrees": degrees, "hyperedges": H, "accelerate": accelerate}
    exact = {"solver": solver, "solver_tol": 1e-13, "solver_max_iter": 500, "tol": 0}
    model = fit(X, y, mu=0.8, lam=0.1, gamma=0.05, fit_intercept=True, max_iter=3, **given, **exact)
    learn = variant == "joint"
    S, w, objective = dense_jhlsr(X, y, H, 0.8, 0.1, 0.05, 3, learn, degrees, intercept=True)
    values = [r["objective"] for r in model.result_.history]
    if accelerate:  # what leaves at once lowers the objective at least as much
        assert values[-1] <= objective[-1] * (1 + 1e-3)
        return
    np.testing.assert_allclose(model.coef_, S[:-1], atol=1e-6 * np.abs(S).max())
    np.testing.assert_allclose(model.hyperedge_weights_, w, atol=1e-6)
    np.testing.assert_allclose(values, objective, rtol=1e-6)
    if not learn:  # the best for the weights that were learned in the last round otherwise
        np.testing.assert_allclose(model.intercept_, S[-1], atol=1e-6 * np.abs(S).max())


@pytest.mark.parametrize("degrees", ["weighted", "incidence"])
@pytest.mark.parametrize("variant", ["joint", "hyper"])
def test_converged_with_an_intercept_means_stationary_in_it_too(variant, degrees):
    X, y, H = data(60, 30, constant=0.0)
    given = {"mu": 0.5, "lam": 0.5, "gamma": 0.1, "hyperedges": H, "degrees": degrees}
    ends = {"tol": 1e-4, "max_iter": 5000}
    model = JHLSR(variant=variant, fit_intercept=True, **given, **ends).fit(X, y)
    assert model.result_.status is Status.CONVERGED
    M = np.eye(60) + 0.5 * dense_laplacian(H, model.hyperedge_weights_, degrees)
    T = factors.same_class_factor(y, 3).toarray()
    V = T - M @ (X @ model.coef_ + model.intercept_)
    np.testing.assert_allclose(V.sum(axis=0), 0, atol=1e-10)
    pulls, norms = 2 * X.T @ V, np.linalg.norm(model.coef_, axis=1)
    strong = norms > 1e-3 * norms.max()
    np.testing.assert_allclose(
        pulls[strong], 0.5 * model.coef_[strong] / norms[strong, None], atol=0.02 * 0.5
    )
    assert np.all(np.linalg.norm(pulls[norms == 0], axis=1) <= 0.5 * (1 + 1e-3))
    assert set(model.selected_[:3].tolist()) == {5, 6, 7}
    expected = np.linalg.norm(pulls, axis=1)
    expected = np.where(X.count_nonzero(axis=0) > 0, expected, 0) / expected.max() - 1
    out = model.scores_ <= 0
    np.testing.assert_allclose(model.scores_[out], expected[out], atol=1e-2)


@pytest.mark.parametrize("accelerate", [False, True])
def test_a_constant_added_to_the_features_changes_nothing_with_an_intercept(accelerate):
    X, y, H = data(60, 30)
    X = X.toarray()
    given = {"hyperedges": H, "lam": 0.5, "tol": 1e-6, "accelerate": accelerate}
    one, other = (
        JHLSR(fit_intercept=True, max_iter=5000, **given).fit(X_, y) for X_ in (X, X + 5.0)
    )
    np.testing.assert_array_equal(one.selected_[:3], other.selected_[:3])
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-3 * np.abs(one.coef_).max())
    np.testing.assert_allclose(
        one.intercept_, other.intercept_ + 5 * other.coef_.sum(axis=0), atol=1e-3
    )
    plain = [JHLSR(max_iter=5000, **given).fit(X_, y).scores_ for X_ in (X, X + 5.0)]
    assert np.abs(plain[0] - plain[1]).max() > 0.1 * plain[0].max()


def test_the_graph_method_has_an_intercept_too(rng):
    X = rng.normal(size=(40, 6)) + np.arange(6)
    given = {"metric": "euclidean", "lam": 0.5, "tol": 1e-8, "max_iter": 5000}
    one, other = (GLSPFS(fit_intercept=True, **given).fit(X_) for X_ in (X, X - 3.0))
    np.testing.assert_allclose(one.scores_, other.scores_, atol=1e-5)
    assert one.intercept_.shape == (one.coef_.shape[1],)
    assert not GLSPFS(**given).fit(X).intercept_.any()


@pytest.mark.slow
@pytest.mark.parametrize("degrees", daily(["weighted", "incidence"], "weighted"))
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_objective_never_rises_after_the_first_round(solver, degrees):
    given = {"mu": 2.0, "lam": 0.2, "gamma": 0.02, "degrees": degrees, "solver": solver}
    for seed in range(2):
        X, y, H = data(20, 40, seed=seed, labeled=3)
        model = fit(X, y, hyperedges=H, max_iter=40, tol=0, **given)
        values = np.array([r["objective"] for r in model.result_.history])
        # the last value is the dense objective at the weights that are returned
        S, w, P = model.coef_, model.hyperedge_weights_, X @ model.coef_
        T, is_labeled = factors.same_class_factor(y, 3).toarray(), y >= 0
        dense = np.sum((P - T)[is_labeled] ** 2) + 0.02 * w @ w
        dense += 2.0 * np.trace(P.T @ dense_laplacian(H, w, degrees) @ P)
        dense += 0.2 * np.sqrt(np.sum(S**2, axis=1) + EPSILON).sum()
        assert values[-1] == pytest.approx(dense, rel=1e-10)
        # a feature that is left out may cost √ε
        assert np.all(np.diff(values) <= 1e-6 * values[:-1])


@pytest.mark.parametrize("degrees", ["weighted", "incidence"])
def test_converged_means_stationary_and_left_out_means_at_zero(degrees):
    X, y, H = data(60, 30)
    model = JHLSR(
        mu=0.5, lam=0.5, gamma=0.1, hyperedges=H, degrees=degrees, tol=1e-5, max_iter=5000
    ).fit(X, y)
    assert model.result_.status is Status.CONVERGED
    M = np.eye(60) + 0.5 * dense_laplacian(H, model.hyperedge_weights_, degrees)
    T = factors.same_class_factor(y, 3).toarray()
    pull = 2 * without_constants(X).T @ (T - M @ (X @ model.coef_))
    norms = np.linalg.norm(model.coef_, axis=1)
    strong = norms > 1e-3 * norms.max()
    np.testing.assert_allclose(
        pull[strong], 0.5 * model.coef_[strong] / norms[strong, None], atol=0.02 * 0.5
    )
    assert np.all(np.linalg.norm(pull[norms == 0], axis=1) <= 0.5 * (1 + 1e-4))
    assert np.sum(norms == 0) > 5
    assert set(model.selected_[:3].tolist()) == {5, 6, 7}
    assert model.selected_.tolist().count(4) == 0  # the constant column, which is smooth


def weighted_problem(seed=0):
    """A hypergraph of 12 hyperedges over 20 samples, P (20 × 3), and weights with some zeros."""
    rng = np.random.default_rng(seed)
    H = (rng.random((20, 12)) < 0.25).astype(float)
    H[3] = 0  # in no hyperedge
    H[4], H[4, 7] = 0, 1  # in one
    H[0, H.sum(axis=0) == 0] = 1
    w = rng.dirichlet(np.ones(12))
    return H, rng.normal(size=(20, 3)), w


@pytest.mark.parametrize("degrees", ["weighted", "incidence"])
def test_the_gradient_of_the_smoothness_is_that_of_finite_differences(degrees):
    H, P, w = weighted_problem()
    smoothness = Smoothness(Hypergraph.of(H), degrees)

    def dense(w):
        return np.trace(P.T @ dense_laplacian(H, w, degrees) @ P)

    trace = smoothness.trace(P, w)
    value, gradient = trace.value, trace.gradient
    assert value == pytest.approx(dense(w), rel=1e-12)
    steps = 1e-6 * np.eye(12)
    slopes = [(dense(w + step) - dense(w - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(gradient, slopes, atol=1e-6)
    without = np.where(np.arange(12) % 3, w, 0)  # isolates some samples
    assert smoothness.trace(P, without).value == pytest.approx(dense(without), rel=1e-12)
    M = HypergraphOperator.of(smoothness, np.arange(20), 0.7, without)
    L = np.diag(np.arange(20)) + 0.7 * dense_laplacian(H, without, degrees)
    np.testing.assert_allclose(M.dense(20), L, atol=1e-12)
    np.testing.assert_allclose(M.apply(P), L @ P, atol=1e-12)
    assert M.factor().shape[1] == 8
    assert M.entries == M.factor().nnz


@pytest.mark.parametrize("repeated", [False, True])
def test_the_hypergraph_is_applied_to_any_columns_with_the_same_bits(repeated, rng):
    H = sp.random_array((300, 200), density=0.03, format="csr", rng=rng)
    H = H[:, np.flatnonzero(H.astype(bool).sum(axis=0))]
    H = H[:, np.r_[: H.shape[1], :5]] if repeated else H
    smoothness = Smoothness(Hypergraph.of(H.astype(bool).astype(float)))
    w = rng.dirichlet(np.ones(H.shape[1]))
    M = HypergraphOperator.of(smoothness, np.ones(300), 0.5, w)
    P = rng.normal(size=(300, 19))
    alone = M.apply(P)
    by_columns = np.hstack([M.apply(P[:, :2]), M.apply(P[:, 2:])])
    np.testing.assert_array_equal(by_columns, alone)
    np.testing.assert_allclose(alone, M.dense(300) @ P, atol=1e-12)
    assert M.apply(P, overwrite=True) is P
    np.testing.assert_array_equal(P, alone)


@pytest.mark.parametrize("degrees", ["weighted", "incidence"])
def test_equal_hyperedges_are_computed_once_and_weighed_apart(degrees):
    H, P, _ = weighted_problem()
    twice = H[:, [0, 1, 0, 2, 1, 3, 0]]
    w = np.random.default_rng(1).dirichlet(np.ones(7))
    hypergraph = Hypergraph.of(twice)
    distinct = hypergraph.members
    assert len(distinct.sizes) == 4
    np.testing.assert_array_equal(distinct.matrix().toarray()[:, distinct.number], twice)
    smoothness = Smoothness(hypergraph, degrees)
    L = dense_laplacian(twice, w, degrees)
    trace = smoothness.trace(P, w)
    assert trace.value == pytest.approx(np.trace(P.T @ L @ P), rel=1e-12)
    M = HypergraphOperator.of(smoothness, np.zeros(20), 1.0, w)
    assert M.factor().shape[1] == 4
    np.testing.assert_allclose(M.dense(20), L, atol=1e-12)
    np.testing.assert_allclose(M.apply(P), L @ P, atol=1e-12)
    slopes = [
        np.trace(P.T @ (dense_laplacian(twice, w + step, degrees) - L) @ P) / 1e-7
        for step in 1e-7 * np.eye(7)
    ]
    np.testing.assert_allclose(trace.gradient, slopes, atol=1e-5)


@pytest.mark.parametrize("degrees", ["weighted", "incidence"])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_smoothness_of_strips_is_that_of_the_dense_formula(degrees, width):
    """With equal hyperedges, hyperedges of one sample, isolated samples, and weights of zero."""
    H, P, _ = weighted_problem()
    H = np.hstack([H, H[:, :3], np.eye(20)[:, :2], np.ones((20, 1))])
    H[3] = 0
    w = np.random.default_rng(2).dirichlet(np.ones(18))
    w[[1, 5]] = 0
    smoothness = Smoothness(Hypergraph.of(H), degrees)
    assert len(smoothness.hypergraph.members.sizes) == 15
    with ColumnStrips.of(P, width) as strips:
        trace = smoothness.trace(strips, w)
    L = dense_laplacian(H, w, degrees)
    assert trace.value == pytest.approx(np.trace(P.T @ L @ P), rel=1e-12)
    whole = smoothness.trace(P, w)
    scale = np.abs(whole.gradient).max()
    np.testing.assert_allclose(trace.gradient, whole.gradient, rtol=1e-12, atol=1e-12 * scale)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mean", [0, 2])  # 0: samples of a hyperedge differ as much as any two
def test_weights_with_weighted_degrees_are_as_low_as_a_constrained_solver_gets(mean, seed):
    H, P, w = weighted_problem(seed)
    P += mean

    def dense(w):
        w = np.maximum(w, 0)  # SLSQP may step outside
        return np.trace(P.T @ dense_laplacian(H, w, "weighted") @ P) + 5.0 * w @ w

    simplex = {"type": "eq", "fun": lambda w: w.sum() - 1}
    best = scipy.optimize.minimize(
        dense, w, bounds=[(0, 1)] * 12, constraints=simplex, method="SLSQP"
    )
    values, smoothness = [dense(w)], Smoothness(Hypergraph.of(H))
    for _ in range(10):
        step = choose_weights(smoothness, ColumnStrips.of(P), w, mu=1.0, gamma=5.0, promise=1e-8)
        w = step.w
        values.append(dense(w))
    assert step.promise <= (1e-2 if mean == 0 else 1e-7) * values[-1]
    assert w.sum() == pytest.approx(1)
    assert w.min() >= 0
    assert np.all(np.diff(values) <= 1e-12 * values[0])
    assert step.smoothness == pytest.approx(values[-1] - 5.0 * w @ w, rel=1e-10)
    if mean:  # otherwise the local optima are too many for two solvers to end at the same one
        assert values[-1] <= best.fun * (1 + 1e-6)


@pytest.mark.parametrize("share", [1e-6, 1e-16])
def test_samples_of_tiny_degree_stop_no_step(share):
    """Only the ratios around a sample matter, so a component of small weights counts like others.

    Its slopes are 1/share as large, and its weights may move 1/share less.
    """
    H, P, w = weighted_problem()
    rng = np.random.default_rng(1)
    both = scipy.linalg.block_diag(H, H)
    weights = np.concatenate([w, share * w])
    weights /= weights.sum()
    weights[-1] = 0  # it adds to degrees that are tiny
    smoothness, P = Smoothness(Hypergraph.of(both)), np.vstack([P, rng.normal(size=P.shape)]) + 2
    traces, trace = [], Smoothness.trace

    def watch(self, P, w):
        traces.append(w)
        return trace(self, P, w)

    first = smoothness.trace(P, weights).value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Smoothness, "trace", watch)
        step = choose_weights(
            smoothness, ColumnStrips.of(P), weights, mu=1.0, gamma=1e-3, promise=1e-2 * first
        )
    assert step.promise <= 1e-2 * first
    assert step.smoothness < 0.9 * first
    assert len(traces) <= 2 * 21  # two evaluations a step


def test_the_scale_of_the_weights_does_not_matter_to_weighted_degrees():
    H, P, w = weighted_problem()
    smoothness = Smoothness(Hypergraph.of(H))
    traces = [smoothness.trace(P, scale * w) for scale in (1, 7)]
    one, other = (trace.value for trace in traces)
    slope, other_slope = (trace.gradient for trace in traces)
    assert one == pytest.approx(other, rel=1e-12)
    assert slope @ w == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(slope, 7 * other_slope, rtol=1e-10, atol=1e-12)


def test_weighted_degrees_set_joint_apart_from_hyper():
    """With incidence degrees L_H is nearly I where hyperedges are many, whatever w is."""
    X, y, _ = data(60, 40, labeled=5)
    far = {}
    for degrees in ("weighted", "incidence"):
        joint, hyper = (
            fit(
                *(X, y),
                variant=variant,
                degrees=degrees,
                hyperedges="knn",
                n_neighbors=5,
                mu=5.0,
                gamma=1e-3,
                max_iter=10,
                tol=0,
            )
            for variant in ("joint", "hyper")
        )
        far[degrees] = np.linalg.norm(joint.coef_ - hyper.coef_) / np.linalg.norm(hyper.coef_)
        L = dense_laplacian(hyper.hypergraph_.H.toarray(), hyper.hyperedge_weights_, degrees)
        distance = np.linalg.norm(np.eye(60) - L, 2)
        assert distance == pytest.approx(1) if degrees == "weighted" else distance < 0.1
    assert far["weighted"] > 5 * far["incidence"]


@pytest.mark.parametrize("degrees", ["weighted", "incidence"])
def test_the_weights_of_hyperedges_follow_gamma(degrees):
    X, y, H = data()
    few, many = (
        fit(X, y, gamma=g, hyperedges=H, degrees=degrees, max_iter=20, tol=0).hyperedge_weights_
        for g in (1e-4, 1e3)
    )
    assert few @ few > 1.3 * (many @ many)
    assert np.sum(many > 0) == 9
    if degrees == "incidence":
        assert np.sum(few > 0) < 9
    np.testing.assert_allclose(many, 1 / 9, atol=1e-3)
    assert few.sum() == pytest.approx(1)


def test_the_graph_variant_uses_half_the_normalized_laplacian():
    X, y, _ = data()
    model = fit(X, y, variant="graph", n_neighbors=4, max_iter=3, tol=0)
    H = model.hypergraph_.H
    A = (H @ H.T).toarray()
    np.fill_diagonal(A, 0)
    D = A.sum(axis=1)
    half = (np.eye(30) - A / np.sqrt(np.outer(D, D))) / 2
    G = np.asarray(H.toarray() * model.hypergraph_.root[:, None], dtype=float)
    L = np.eye(30) - G * (model.hyperedge_weights_ / 2) @ G.T
    np.testing.assert_allclose(L, half, atol=1e-12)
    assert set(np.asarray(H.sum(axis=0))) == {2.0}
    assert np.all(D >= 4)


@pytest.mark.parametrize("hyperedges", ["lasso", "knn", "labels"])
def test_hyperedges_by_name(hyperedges):
    # JHLSR has no intercept: a constant column would stand in for it
    X, y, _ = data(90, 12, labeled=20, constant=0)
    model = JHLSR(hyperedges=hyperedges, n_neighbors=5, n_features_to_select=3, tol=0.1).fit(X, y)
    assert set(model.get_support(indices=True)) == {5, 6, 7}
    assert model.hyperedge_weights_.sum() == pytest.approx(1)


def test_without_labels_the_kernel_is_explained():
    X, _, _ = data(60, 12, constant=0)
    for labels in (None, np.full(60, -1)):
        model = JHLSR(
            hyperedges="knn",
            n_neighbors=5,
            n_components=20,
            lam=0.5,
            n_features_to_select=3,
            tol=0.1,
        ).fit(X, labels)
        assert model.mode_ == "unsupervised"
        assert model.coef_.shape == (12, 20)
        assert set(model.get_support(indices=True)) == {5, 6, 7}


def test_the_gaussian_factor_is_exact_with_all_landmarks_and_close_with_some():
    X, _, _ = data(40, 12)
    dense_X = X.toarray()
    squares = ((dense_X[:, None] - dense_X[None]) ** 2).sum(axis=2)
    K = np.exp(-squares / (2 * 1.5**2))
    tiled = Matrix.from_array(X, tile_rows=7, tile_columns=5)
    full, half = (factors.gaussian_factor(tiled, r, sigma=1.5) for r in (40, 20))
    np.testing.assert_allclose(full @ full.T, K, atol=1e-7)
    assert half.shape[1] <= 20
    left = np.linalg.eigvalsh(K - half @ half.T)
    assert left.min() > -1e-7  # Nyström never overshoots
    assert left.sum() < 0.5 * np.trace(K)


def test_same_class_factor_is_the_kernel():
    code = np.array([0, 1, 1, -1, 0, 1])
    Phi = factors.same_class_factor(code, 2).toarray()
    K = np.array([[(a == b >= 0) / max(np.sum(code == a), 1) for b in code] for a in code])
    np.testing.assert_allclose(Phi @ Phi.T, K, atol=1e-15)


@pytest.mark.parametrize("degrees", ["weighted", "incidence"])
@pytest.mark.parametrize(
    "layout", daily(["array", "both", "rows", "columns", "unseen file"], "both", "rows")
)
def test_strips_of_columns_give_the_same_answer(degrees, layout, monkeypatch, change):
    X, y, H = data(labeled=4)
    parameters = {"degrees": degrees, "solver": "cg", "solver_tol": 1e-12, "tol": 1e-3}
    parameters |= {"hyperedges": H, "lam": 0.4, "max_iter": 12}
    tiles = Matrix.from_array(X, tile_rows=7, tile_columns=4)
    rows = () if layout == "columns" else tiles.row_tiles
    columns = () if layout == "rows" else tiles.column_tiles
    matrix = X if layout == "array" else Matrix(X.shape, rows=rows, columns=columns)
    change(engine.SHARES, Shares(active_columns=0))  # gather nothing
    whole = fit(copy.copy(matrix), y, **parameters)
    assert whole.result_.stats["plans"]
    change(engine.SHARES, Shares(active_columns=0, column_strip=1e-12))  # one column per strip
    if layout == "unseen file":
        monkeypatch.setattr(ColumnStrips, "is_shared_by_tasks", lambda self, X: False)
    files, write = set(), ColumnStrips.write

    def watch(self, *rows):
        files.add(self.path)
        write(self, *rows)

    monkeypatch.setattr(ColumnStrips, "write", watch)
    strips = fit(copy.copy(matrix), y, **parameters)
    assert len(files) >= strips.n_iter_
    assert not any(Path(path).exists() for path in files)
    assert strips.n_iter_ == whole.n_iter_
    if layout in ("both", "rows"):  # a strip costs no pass
        assert strips.result_.stats["passes"] == whole.result_.stats["passes"] > 2 * strips.n_iter_
    np.testing.assert_allclose(strips.coef_, whole.coef_, atol=1e-9)
    np.testing.assert_allclose(strips.hyperedge_weights_, whole.hyperedge_weights_, atol=1e-9)


@pytest.mark.parametrize("mu", [1e-3, 1.0])
def test_a_round_starts_from_the_product_of_the_last_one(mu):
    """The state holds XᵀMXS of the active features: CG needs no product for its first residual."""
    X, y, H = data(labeled=4)
    given = {"hyperedges": H, "mu": mu, "lam": 0.4, "solver": "cg", "tol": 1e-3}
    checkpoint = MemoryCheckpoint()
    with observe(checkpoint=checkpoint):
        model = fit(X, y, **given, max_iter=60)
    theta, S, product, w, *_ = next(iter(checkpoint.saved.values()))[0]
    M = np.diag((y >= 0).astype(float)) + mu * dense_laplacian(H, w, "weighted")
    active = theta > 0
    assert 0 < np.sum(active) < 12
    np.testing.assert_allclose(
        product[active], (X.T @ M @ X @ S)[active], atol=1e-12 * np.abs(product).max()
    )
    assert model.result_.converged


def text_data(seed=0):
    """200 samples of four classes, 80 sparse columns of which 8 tell the classes apart, and groups
    of four samples of a class as hyperedges.
    """
    rng = np.random.default_rng(seed)
    n, d, y = 200, 80, np.arange(200) % 4
    X = sp.random_array((n, d), density=0.05, format="lil", rng=rng)
    for k in range(8):
        X[:, k] = ((y == k % 4) & (rng.random(n) < 0.7))[:, None].astype(float)
    H = sp.csr_array((np.ones(n), (np.argsort(y, kind="stable"), np.arange(n) // 4)))
    return sp.csr_array(X), np.where(rng.random(n) < 0.3, y, -1), H


@pytest.mark.parametrize("variant", ["hyper", "joint"])
def test_accelerated_rounds_reach_the_answer_of_plain_ones_sooner(variant):
    X, y, H = text_data()
    given = {"hyperedges": H, "variant": variant, "lam": 0.5, "tol": 1e-3, "max_iter": 2000}
    plain, fast = (JHLSR(accelerate=a, **given).fit(X, y) for a in (False, True))
    assert plain.result_.converged
    assert fast.result_.converged
    objectives = [np.array([r["objective"] for r in m.result_.history]) for m in (plain, fast)]
    assert np.all(np.diff(objectives[1]) <= 1e-9 * objectives[1][:-1])
    assert objectives[1][-1] <= objectives[0][-1] * (1 + 1e-3)
    if variant == "hyper":  # convex: the same answer
        scale = np.abs(plain.coef_).max()
        np.testing.assert_allclose(fast.coef_, plain.coef_, atol=0.02 * scale)
    assert fast.n_iter_ < plain.n_iter_
    features = [[r["features"] for r in m.result_.history] for m in (plain, fast)]
    assert sum(features[1]) <= 0.5 * sum(features[0])


def test_features_that_left_too_early_return_with_the_weight_they_would_have(monkeypatch):
    """All features but one leave after the first round, so that the check must bring some back."""
    X, y, H = text_data()
    given = {"hyperedges": H, "lam": 0.5, "tol": 1e-4, "max_iter": 2000}
    whole = JHLSR(**given, variant="hyper").fit(X, y)

    def leaving(self, state, S):
        left = np.arange(80) > 0
        return left & np.isinf(state.gap) & (len(rounds) < 3) & np.isfinite(state.objective)

    rounds, step = [], JHLSRProblem.step

    def count(self, state):
        rounds.append(state)
        return step(self, state._replace(objective=min(state.objective, 1e9)))

    monkeypatch.setattr(JHLSRProblem, "leaving", leaving)
    monkeypatch.setattr(JHLSRProblem, "step", count)
    again = JHLSR(**given, variant="hyper", accelerate=True).fit(X, y)
    features = [r["features"] for r in again.result_.history]
    assert min(features) == 1 < features[-1]
    scale = np.abs(whole.coef_).max()
    np.testing.assert_allclose(again.coef_, whole.coef_, atol=0.02 * scale)
    # rows that return with next to nothing would take rounds to grow, and hardly count until then
    rounds.clear()
    loose = JHLSR(**given | {"tol": 1e-2}, variant="hyper", accelerate=True).fit(X, y)
    best = whole.result_.history[-1]["objective"]
    assert loose.result_.converged
    assert loose.result_.history[-1]["objective"] <= 1.01 * best


def test_a_round_takes_back_what_raises_the_objective(monkeypatch):
    X, y, H = text_data()
    given = {"hyperedges": H, "lam": 0.5, "tol": 0, "max_iter": 6}
    plain = fit(X, y, **given)
    asked = []

    def leaving(self, state, S):
        asked.append(state.objective)
        return (np.arange(80) < 8) & np.isfinite(state.objective)

    monkeypatch.setattr(JHLSRProblem, "leaving", leaving)
    monkeypatch.setattr(rows, "next_momentum", lambda age: (age, 0.0))
    taken_back = fit(X, y, **given, accelerate=True)
    assert len(asked) == 6
    np.testing.assert_allclose(taken_back.coef_, plain.coef_, atol=1e-12)


def test_weights_that_are_taken_back_are_freed_before_the_next_solve(monkeypatch):
    X, y, H = text_data()
    ends, alive = [], []
    complete, solve = JHLSRProblem.complete, JHLSRProblem.solve

    def complete_and_rise(self, state, S, residual):
        end = complete(self, state, S, residual)
        ends.append(weakref.ref(end.S))
        return end._replace(objective=float(len(ends)))

    def count(self, state):
        alive.append(sum(end() is not None and end() is not state.S for end in ends))
        return solve(self, state)

    monkeypatch.setattr(JHLSRProblem, "complete", complete_and_rise)
    monkeypatch.setattr(JHLSRProblem, "solve", count)
    monkeypatch.setattr(JHLSRProblem, "leaving", lambda self, state, S: np.arange(80) < 8)
    fit(X, y, hyperedges=H, lam=0.5, tol=0, max_iter=4, accelerate=True)
    assert len(alive) > 8
    assert not any(alive)


def test_nothing_of_samples_by_classes_is_made(rng):
    """40 classes and 6,000 samples: T, XS, their residual and products would take 1.9 MB each."""
    n, c = 6_000, 40
    codes = np.arange(n) % c
    X = sp.csr_array((np.ones(n), codes, np.arange(n + 1)), shape=(n, c))
    X.data += rng.random(n)
    H = sp.csr_array((np.ones(n), (np.arange(n), np.arange(n) // 30)))
    y = np.where(np.arange(n) < n // 10, codes, -1)
    tiled = Matrix.from_array(X, tile_rows=1000)
    given = {"hyperedges": H, "tol": 0, "solver": "cg", "max_iter": 2}
    few = Matrix.from_array(X[:1200], tile_rows=600)
    fit(few, y[:1200], **given | {"hyperedges": H[:1200, :40]})  # compile
    with engine.limit_memory(3 << 20):
        tracemalloc.start()
        fit(tiled, y, **given)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 8 * n * c


def test_a_hypergraph_that_does_not_fit_is_refused_before_the_graph():
    X, y, _ = data()
    seen = Matrix.from_array(X)
    with (
        engine.limit_memory(7_000),
        pytest.raises(MemoryLimitError, match=r"JHLSR on 30 samples, .* 240 members, needs"),
    ):
        JHLSR(hyperedges="knn", n_neighbors=7).fit(seen, y)
    assert seen.passes <= 2  # the statistics and the product with the labels


def test_bad_input_is_named():
    X, y, H = data()
    with pytest.raises(
        ValueError,
        match=r"mode='supervised' needs more labels than y has \(50% of the samples are labeled\)",
    ):
        JHLSR(mode="supervised", hyperedges=H).fit(X, np.where(np.arange(30) < 15, y, -1))
    with pytest.raises(ValueError, match="29 rows, but X has 30 samples"):
        JHLSR(hyperedges=H[1:]).fit(X, y)
    with pytest.raises(ValueError, match="needs labeled samples"):
        JHLSR(hyperedges="labels").fit(X)


def test_the_samples_in_no_hyperedge_are_counted(rng):
    X = np.abs(rng.normal(size=(40, 6)))
    y = np.arange(40) % 2
    few = np.where(np.arange(40) < 30, y, -1)
    fit = JHLSR(hyperedges="labels", n_features_to_select=2).fit(X, few)
    assert fit.result_.stats["n_without_hyperedge"] == 10
    X[::10] = 0
    assert GLSPFS(n_features_to_select=2).fit(X).result_.stats["n_without_hyperedge"] == 4


@pytest.mark.parametrize("variant", ["hyper", "joint"])
@pytest.mark.parametrize(("seed", "lam"), [(5, 1.0), (8, 1.0), (10, 0.5), (10, 1.5)])
def test_near_copies_neither_cycle_nor_raise_the_objective(seed, lam, variant):
    """Many copies that return together overshoot. They left again in turn, for ever."""
    rng = np.random.default_rng(seed)
    y = np.arange(60) % 3
    B = rng.normal(size=(60, 8))
    B[:, :3] += np.arange(3) == y[:, None]
    X = np.repeat(B, 12, axis=1) + 0.02 * rng.normal(size=(60, 96))
    given = {"hyperedges": "knn", "n_neighbors": 5, "metric": "euclidean", "lam": lam}
    fast = JHLSR(accelerate=True, variant=variant, **given).fit(X, y)
    plain = JHLSR(variant=variant, **given).fit(X, y)
    assert fast.result_.status is Status.CONVERGED
    objective = np.array([record["objective"] for record in fast.result_.history])
    assert (np.diff(objective) <= 1e-9 * objective[:-1]).all()
    assert objective[-1] <= plain.result_.history[-1]["objective"] * (1 + 1e-2)
    assert len(objective) < len(plain.result_.history)
