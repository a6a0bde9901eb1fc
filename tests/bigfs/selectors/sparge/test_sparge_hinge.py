"""SparGE with the squared hinge loss against dense solvers of its own objective."""

import itertools

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC
from sklearn.utils import compute_sample_weight

from bigfs import Matrix, SparGE, SparGECV
from bigfs.cutting_plane import hinge
from bigfs.cutting_plane.columns import GatheredColumns
from bigfs.cutting_plane.hinge import SquaredHinge
from bigfs.cutting_plane.loop import cutting_plane
from bigfs.cutting_plane.relaxation import Relaxation
from bigfs.result import Status
from tests.helpers.fitting import fit_and_resume
from tests.helpers.master_solvers import apg, simplex


def signs(y):
    classes = np.unique(y)
    return np.where(y[:, None] == (classes[1:] if len(classes) == 2 else classes), 1.0, -1.0)


def dense_svm(X, Y, penalty, v, start=None):
    """min ½ Σ v ξ² + ½ Σ_j penalty_j ‖w_j‖², the intercepts free, by L-BFGS on dense arrays."""
    d, r = X.shape[1], Y.shape[1]

    def objective(u):
        W, b = u[: d * r].reshape(d, r), u[d * r :]
        slack = np.maximum(1 - Y * (X @ W + b), 0)
        value = 0.5 * np.sum(v[:, None] * slack**2) + 0.5 * np.sum(penalty[:, None] * W**2)
        pull = -v[:, None] * Y * slack
        gradient = np.concatenate([(X.T @ pull + penalty[:, None] * W).ravel(), pull.sum(axis=0)])
        return value, gradient

    found = scipy.optimize.minimize(
        objective,
        np.zeros(d * r + r) if start is None else start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-8},
    )
    return found.fun, found.x[: d * r].reshape(d, r), found.x


def dense_relaxation(X, Y, gamma, v, m):
    """The relaxation without sets: min over 0 ≤ d ≤ 1, Σd = m of the SVM with the penalties γ/d."""
    n_features, starts = X.shape[1], [None]

    def objective(d):
        value, W, starts[0] = dense_svm(X, Y, gamma / d, v, starts[0])
        return value, -gamma / 2 * np.sum(W**2, axis=1) / d**2

    found = scipy.optimize.minimize(
        objective,
        np.full(n_features, m / n_features),
        jac=True,
        bounds=[(1e-9, 1)] * n_features,
        constraints={"type": "eq", "fun": lambda d: d.sum() - m},
        method="SLSQP",
        options={"maxiter": 100, "ftol": 1e-10},
    )
    return found.fun


@pytest.fixture
def data(text, request):
    """Samples, signs and labels of the first classes, the first ones thinned."""
    X, y = text
    kept = (y < request.param) & ((y > 0) | (np.arange(120) % 3 == 0))
    return X[kept], signs(y[kept]), y[kept]


def problem_of(X, Y, v, m, gamma):
    omega = None if v is None else np.sqrt(v)
    T = Y if v is None else omega[:, None] * Y
    columns = GatheredColumns(Matrix.from_array(X), T, omega)
    return Relaxation(columns, m, gamma, loss=SquaredHinge(columns))


@pytest.mark.parametrize(
    ("data", "class_weight"), [(2, None), (2, "balanced"), (3, "balanced")], indirect=["data"]
)
def test_the_bounds_bracket_the_dense_optimum_of_the_relaxation(data, class_weight):
    X, Y, y = data
    X = X[:, [0, 3, 4, 6, 20]]
    v = compute_sample_weight(class_weight, y)
    given = None if class_weight is None else v
    result = cutting_plane(problem_of(X, Y, given, 2, 0.5), tol=1e-7, max_iter=200)
    assert result.status is Status.CONVERGED
    optimum = dense_relaxation(X.toarray().astype(float), Y, 0.5, v, 2)
    assert result.value.upper == pytest.approx(optimum, rel=1e-6)
    assert all(r["lower"] <= optimum * (1 + 1e-9) for r in result.history)
    assert all(r["upper"] >= optimum * (1 - 1e-6) for r in result.history)
    assert all(b["upper"] <= a["upper"] * (1 + 1e-9) for a, b in itertools.pairwise(result.history))


@pytest.mark.slow
@pytest.mark.parametrize("solver", [simplex, apg])
@pytest.mark.parametrize("data", [4], indirect=True)
def test_every_master_solver_ends_at_the_same_optimum(data, solver, monkeypatch):
    X, Y, _ = data
    found = [cutting_plane(problem_of(X, Y, None, 5, 0.5), tol=1e-3, max_iter=100).value]
    monkeypatch.setattr(hinge, "newton", lambda *problem: solver(*problem[:3]))
    found.append(cutting_plane(problem_of(X, Y, None, 5, 0.5), tol=1e-3, max_iter=100).value)
    assert found[0].upper == pytest.approx(found[1].upper, rel=1e-3)
    assert max(found[0].lower, found[1].lower) <= min(found[0].upper, found[1].upper)


@pytest.mark.parametrize("data", [2], indirect=True)
def test_the_relaxation_bounds_every_subset(data):
    X, Y, _ = data
    X = X[:, [0, 3, 6, 20, 21, 22]]
    dense, v = X.toarray().astype(float), np.ones(len(Y))
    result = cutting_plane(problem_of(X, Y, None, 2, 0.3), tol=1e-7, max_iter=100)
    values = [
        dense_svm(dense[:, pair], Y, np.full(2, 0.3), v)[0]
        for pair in itertools.combinations(range(6), 2)
    ]
    assert result.value.lower <= min(values) * (1 + 1e-9)
    assert result.value.upper <= min(values) * (1 + 1e-7)


@pytest.mark.parametrize("data", [2, 4], indirect=True)
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_all_features_give_the_objective_of_linear_svc(data, class_weight):
    X, Y, y = data
    dense = X.toarray().astype(float)
    v = compute_sample_weight(class_weight, y)
    selector = SparGE(
        n_features_to_select=80, loss="squared_hinge", class_weight=class_weight, tol=1e-7
    ).fit(X, y)
    gamma = selector.result_.stats["gamma"]
    exact, _, _ = dense_svm(dense, Y, np.full(80, gamma), v)
    assert selector.result_.stats["objective"] == pytest.approx(exact, rel=1e-6)
    assert selector.result_.history[-1]["upper"] == pytest.approx(exact, rel=1e-6)
    by_classifier = 0.0
    for column in Y.T:  # a large intercept_scaling leaves the intercept free
        classifier = LinearSVC(
            C=1 / (2 * gamma), dual=False, tol=1e-10, max_iter=100_000, intercept_scaling=1e3
        ).fit(dense, column, sample_weight=v)
        slack = np.maximum(1 - column * classifier.decision_function(dense), 0)
        by_classifier += 0.5 * np.sum(v * slack**2) + gamma / 2 * np.sum(classifier.coef_**2)
    assert selector.result_.stats["objective"] == pytest.approx(by_classifier, rel=1e-5)


@pytest.mark.parametrize("data", [2, 4], indirect=True)
@pytest.mark.parametrize("class_weight", ["root", "balanced"])
def test_the_objective_of_the_choice_is_that_of_a_dense_svm(data, class_weight):
    X, Y, y = data
    weighted = {"loss": "squared_hinge", "class_weight": class_weight}
    selector = SparGE(n_features_to_select=6, gamma=0.3, **weighted).fit(X, y)
    stats, v = selector.result_.stats, compute_sample_weight("balanced", y)
    if class_weight == "root":
        v = np.sqrt(v) * (len(y) / np.sqrt(v).sum())
    dense = X.toarray().astype(float)[:, selector.selected_]
    exact, _, _ = dense_svm(dense, Y, np.full(6, stats["gamma"]), v)
    assert stats["objective"] == pytest.approx(exact, rel=1e-5)
    assert selector.result_.history[-1]["lower"] <= exact
    assert 0 <= stats["objective_gap"] < 1


@pytest.mark.parametrize("data", [4], indirect=True)
def test_a_removal_costs_at_most_what_the_elimination_says(data):
    """The targets stand still while a cost is computed, so the cost is an upper bound."""
    X, Y, _ = data
    problem, v = problem_of(X, Y, None, 6, 0.3), np.ones(len(Y))
    state = cutting_plane(problem, tol=0.01, max_iter=50).value
    features, elimination = problem.eliminate_to_m(state)
    chosen = features[elimination.order[:6]]
    dense = X.toarray().astype(float)[:, chosen]
    exact, _, _ = dense_svm(dense, Y, np.full(6, 0.3), v)
    assert elimination.objectives[6] == pytest.approx(exact, rel=1e-5)
    without, _, _ = dense_svm(dense[:, :5], Y, np.full(5, 0.3), v)
    assert 0 < without - exact <= elimination.costs[5] * (1 + 1e-4)


@pytest.mark.parametrize("data", [4], indirect=True)
def test_the_residual_is_sign_feasible_and_centered(data, rng):
    X, Y, y = data
    v = compute_sample_weight("balanced", y)
    problem = problem_of(X, Y, v, 3, 1.0)
    for scale in (0, 1, 100):
        V, _ = problem.loss.slack(scale * rng.normal(size=Y.shape))
        assert np.all(Y * V >= 0)
        np.testing.assert_allclose(np.sqrt(v) @ V, 0, atol=1e-10 * max(np.abs(V).max(), 1))


def test_a_constant_column_counts_as_zeros(rng):
    X = sp.csr_array(np.c_[np.full(12, 3.0), rng.normal(size=12)])
    problem = problem_of(X, signs(np.arange(12) % 2), None, 1, 1.0)
    problem.data.add(np.arange(2))
    Z = problem.loss.columns(np.arange(2))
    np.testing.assert_allclose(Z, X.toarray() * [0, 1], rtol=1e-6)


def test_paths_tiles_and_order_do_not_change_the_choice(text, rng):
    X, y = text
    selector = SparGE(n_features_to_select=9, loss="squared_hinge", tol=1e-3)
    whole = clone(selector).fit(X, y)
    assert set(whole.selected_) <= set(range(12))
    tiled = clone(selector).fit(Matrix.from_array(X, tile_rows=17, tile_columns=11), y)
    np.testing.assert_array_equal(tiled.scores_, whole.scores_)
    path = clone(selector).fit_path(X, y, [4, 9])
    np.testing.assert_array_equal(path[9].scores_, whole.scores_)
    order = rng.permutation(80)
    permuted = clone(selector).fit(X[:, order], y)
    np.testing.assert_allclose(permuted.scores_, whole.scores_[order], rtol=1e-6, atol=1e-12)
    dense = clone(selector).fit(X.toarray(), y)  # its columns are multiplied as a dense array
    np.testing.assert_array_equal(dense.selected_, whole.selected_)


def test_the_held_out_loss_is_that_of_a_dense_svm(text):
    """m = d leaves no choice of features."""
    X, y = text
    dense, Y = X.toarray().astype(float), signs(y)
    selector = SparGECV(
        n_features_to_select=80, loss="squared_hinge", class_weight=None, gammas=(0.7, 9.0), cv=2
    ).fit(X, y)
    unit = np.mean(np.sum((dense - dense.mean(axis=0)) ** 2, axis=1))
    folds = StratifiedKFold(2, shuffle=True, random_state=0).split(dense, y)
    for found, (a, b) in zip(selector.losses_[0], folds, strict=True):
        losses = []
        for penalties in (np.full(80, 0.7 * unit), np.full(80, 9.0 * unit), np.full(80, 1e9)):
            u = dense_svm(dense[a], Y[a], penalties, np.ones(len(a)))[2]
            F = dense[b] @ u[:320].reshape(80, 4) + u[320:]
            losses.append(np.sum(np.maximum(1 - Y[b] * F, 0) ** 2))
        assert found == pytest.approx(min(losses[:2]) / losses[2], rel=1e-3)


@pytest.mark.parametrize("after", [1, 2])
def test_killed_run_resumes_to_the_same_answer(text, after):
    X, y = text
    selector = SparGE(n_features_to_select=5, loss="squared_hinge", tol=1e-3)
    whole, resumed = fit_and_resume(selector, X, y, die_after=after)
    np.testing.assert_array_equal(resumed.scores_, whole.scores_)
    assert resumed.result_.history == whole.result_.history


def test_the_loss_needs_classes(text):
    X, _ = text
    with pytest.raises(ValueError, match="loss='squared_hinge' needs embedding='lda'"):
        SparGE(embedding="pca", loss="squared_hinge").fit(X)
