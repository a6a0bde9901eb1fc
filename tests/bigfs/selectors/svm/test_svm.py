"""Linear SVMs and recursive elimination against scikit-learn's, out of core and in memory."""

import warnings

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_selection import RFE
from sklearn.svm import LinearSVC

from bigfs import L2SVM, SVMRFE, Matrix
from bigfs.engine import MemoryLimitError, limit_memory
from bigfs.linalg import svm
from bigfs.linalg.prox import column_dots
from bigfs.linalg.svm import line_search
from bigfs.result import NotConvergedWarning
from bigfs.selectors.svm.elimination import elimination_sizes
from tests.helpers.fitting import fit_and_resume


def linear_svc(C):
    return LinearSVC(C=C, dual=False, tol=1e-10, max_iter=10_000)


def assert_goes_on_when_killed(selector, X, y):
    expected, resumed = fit_and_resume(selector, X, y, die_after=3)
    assert len(expected.result_.history) > 4
    assert np.array_equal(resumed.scores_, expected.scores_)
    assert resumed.result_.history == expected.result_.history


@pytest.fixture
def noisy(rng):
    """60 × 25, half of it zero, and three classes that overlap."""
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 25)) * (rng.random((60, 25)) < 0.5)
    X[:, 4] += y
    X[:, 11] += y == 1
    X[:, 7] = 0
    return X, y


@pytest.mark.parametrize("C", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifiers_are_scikit_learns(noisy, C, n_classes):
    X, y = noisy
    y = np.minimum(y, n_classes - 1)
    selector = L2SVM(C=C, tol=1e-12).fit(sp.csr_array(X), y)
    expected = linear_svc(C).fit(X, y)
    np.testing.assert_allclose(selector.coef_, expected.coef_.T, atol=1e-5)
    np.testing.assert_allclose(selector.intercept_, expected.intercept_, atol=1e-5)
    np.testing.assert_allclose(selector.scores_, np.linalg.norm(expected.coef_, axis=0), atol=1e-5)


@pytest.mark.parametrize("features", [None, np.arange(25) % 2 > 0])
def test_one_pass_per_iteration_finds_the_same_classifiers(noisy, features):
    X, y = noisy
    fits = []
    for one_pass in (False, True):
        matrix = Matrix.from_array(sp.csr_array(X), tile_rows=17)
        settings = {"C": 1.0, "tol": 1e-12, "max_iter": 50, "name": "SVM"}
        result = svm.fit_svm(matrix, y, 3, features=features, one_pass=one_pass, **settings)
        fits.append((result.value, matrix.passes, len(result.history)))
    (two, passes, steps), (one, fewer, same_steps) = fits
    np.testing.assert_allclose(one.W, two.W, atol=1e-10)
    np.testing.assert_allclose(one.F, two.F, atol=1e-10)
    assert steps == same_steps
    # per step: a pass less per iteration, and one for the decision values of the direction
    iterations = (passes - 1 - steps) / 2
    assert fewer == 1 + steps + iterations + steps


@pytest.mark.parametrize(("n_classes", "one_pass"), [(2, False), (3, False), (3, True)])
def test_weighted_classifiers_are_scikit_learns(noisy, rng, n_classes, one_pass):
    X, y = noisy
    y, s = np.minimum(y, n_classes - 1), rng.gamma(1.0, size=60)
    state = svm.fit_svm(
        *(Matrix.from_array(sp.csr_array(X), tile_rows=17), y, n_classes),
        **{"C": 2.0, "tol": 1e-12, "max_iter": 100, "name": "SVM", "sample_weight": s},
        one_pass=one_pass,
    ).value
    classifier = LinearSVC(C=2.0, tol=1e-10, max_iter=100_000, random_state=0)
    expected = classifier.fit(X, y, sample_weight=s)
    np.testing.assert_allclose(state.W, expected.coef_.T, atol=1e-5)
    np.testing.assert_allclose(state.b, expected.intercept_, atol=1e-5)


@pytest.fixture
def few(noisy, rng):
    """24 × 60 of `noisy` and other columns, and three classes."""
    X, y = noisy
    return np.hstack([X[:24], rng.normal(size=(24, 35))]), y[:24]


@pytest.mark.parametrize("C", [0.01, 30.0])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("tile_columns", [60, 13])
def test_few_samples_go_by_their_kernel(few, C, n_classes, tile_columns):
    X, y = few
    y = np.minimum(y, n_classes - 1)
    matrix = Matrix.from_array(sp.csr_array(X), tile_columns=tile_columns)
    selector = L2SVM(C=C, tol=1e-12).fit(matrix, y)
    expected = linear_svc(C).fit(X, y)
    np.testing.assert_allclose(selector.coef_, expected.coef_.T, atol=1e-6)
    np.testing.assert_allclose(selector.intercept_, expected.intercept_, atol=1e-6)
    assert selector.result_.converged
    assert matrix.passes == 3  # statistics, kernel and weights


@pytest.mark.filterwarnings("ignore::scipy.linalg.LinAlgWarning")
@pytest.mark.parametrize("method", [L2SVM, SVMRFE])
def test_columns_far_from_zero_are_a_kernel_without_digits_in_one_line(rng, method):
    """The penalty of the intercept, which scikit-learn has too, leaves no room to move them."""
    X, y = rng.normal(size=(60, 100)), np.arange(60) % 3
    X[:, :2] += 1e9
    with pytest.raises(ValueError, match="scale X to values near 1") as caught:
        method(n_features_to_select=5).fit(X, y)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, np.linalg.LinAlgError)


def test_both_ways_tell_the_same_gap_and_gradient(few):
    X, y = few
    matrix, mask = Matrix.from_array(sp.csr_array(X)), np.arange(60) % 5 > 0
    settings = {"C": 2.0, "tol": 1e-14, "max_iter": 1, "name": "SVM"}
    settings |= {"features": mask, "sample_weight": np.where(np.arange(24) % 7 == 3, 0, 1.5)}
    with pytest.warns(NotConvergedWarning):
        found = svm.fit_svm(matrix, y, 3, **settings).value
    Y = np.where(y[:, None] == np.arange(3), 1, -1).astype(np.int8)
    weights = settings["sample_weight"]
    problem = svm.SVMProblem(matrix, Y, 2.0, 1e-14, mask, sample_weight=weights)
    expected = problem.start(found.W, found.b)
    np.testing.assert_allclose(found.F, expected.F, atol=1e-10)
    np.testing.assert_allclose(found.gradient, expected.gradient, atol=1e-10)
    np.testing.assert_allclose(found.gap, expected.gap, rtol=1e-6, atol=1e-14)
    assert found.gap.max() > 1e-10
    assert not found.W[~mask].any()


def test_elimination_among_few_samples_is_scikit_learns(few):
    X, y = few
    selector = SVMRFE(n_features_to_select=6, step=4, tol=1e-12).fit(sp.csr_array(X), y)
    expected = RFE(linear_svc(1.0), n_features_to_select=6, step=4).fit(X, y)
    assert np.array_equal(selector.support_, expected.support_)


def test_a_killed_run_by_the_kernel_goes_on(rng):
    X, y = rng.normal(size=(60, 61)), np.arange(60) % 3
    selector = L2SVM(C=1e3, tol=1e-12)
    assert_goes_on_when_killed(selector, X, y)


def test_many_samples_do_not_go_by_the_kernel(few, noisy, monkeypatch, change):
    both = Matrix.from_array(few[0])
    monkeypatch.setattr(svm, "kernel", None)  # to use it would fail
    assert L2SVM().fit(*noisy).result_.converged
    change(svm.MOST_WORK, 24**3 * 3 - 1)
    assert L2SVM().fit(both, few[1]).result_.converged


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rows_alone_have_the_kernel_where_they_fit(few, form, monkeypatch):
    """The scores differed by 0.3 % between an array and a Dask array of its rows."""
    X, y = form(few[0] * (np.arange(24) % 2 > 0)[:, None]), few[1]
    tiles = Matrix.from_array(X, tile_rows=7).row_tiles
    expected = L2SVM().fit(X, y)
    for rows in (da.from_array(X, chunks=(7, 60)), Matrix(X.shape, rows=tiles)):
        found = L2SVM().fit(rows, y)
        np.testing.assert_allclose(found.scores_, expected.scores_, rtol=1e-10)
        np.testing.assert_array_equal(found.selected_, expected.selected_)
        assert len(found.result_.history) == len(expected.result_.history)
    monkeypatch.setattr(svm.ActiveColumns, "has_room", lambda *arguments: False)
    monkeypatch.setattr(svm, "kernel", None)
    found = L2SVM(tol=1e-10).fit(Matrix(X.shape, rows=tiles), y)
    np.testing.assert_allclose(found.scores_, expected.scores_, rtol=1e-2)


@pytest.mark.parametrize("weighted", [False, True])
def test_gap_is_that_of_the_dual_objective(noisy, rng, weighted):
    X, y = noisy
    Y = np.where(y[:, None] == np.arange(3), 1, -1)
    weights = rng.gamma(2.0, size=60) if weighted else None
    with pytest.warns(NotConvergedWarning):
        state = svm.fit_svm(
            *(Matrix.from_array(X), y, 3),
            **{"C": 2.0, "tol": 1e-12, "max_iter": 2, "name": "SVM", "sample_weight": weights},
        ).value
    hat = np.column_stack([X, np.ones(60)])
    U = np.vstack([state.W, state.b])
    slack = np.maximum(1 - Y * (hat @ U), 0)
    s = weights[:, None] if weighted else np.ones((60, 1))
    alpha = 4.0 * s * slack  # 2C s ξ
    dual = (
        alpha.sum(axis=0)
        - ((hat.T @ (alpha * Y)) ** 2).sum(axis=0) / 2
        - (alpha**2 / s).sum(axis=0) / 8
    )
    primal = (U**2).sum(axis=0) / 2 + 2.0 * (s * slack**2).sum(axis=0)
    np.testing.assert_allclose(state.objective, primal)
    np.testing.assert_allclose(state.gap, (primal - dual) / primal, rtol=1e-8)
    assert (state.gap > 1e-6).all()


def test_line_search_finds_the_least_objective(rng):
    U, S = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    F, XS = rng.normal(size=(30, 3)), 5 * rng.normal(size=(30, 3))
    Y = np.where(rng.random((30, 3)) < 0.5, 1, -1)
    sign = np.sign(column_dots(U, S) - 2 * column_dots(np.maximum(1 - Y * F, 0) * Y, XS))
    S, XS = -sign * S, -sign * XS  # downhill
    t = line_search(column_dots(U, S), column_dots(S, S), F, XS, Y, 1.0)

    def objective(t):
        slack = np.maximum(1 - Y * (F + t * XS), 0)
        return ((U + t * S) ** 2).sum(axis=0) / 2 + (slack**2).sum(axis=0)

    assert (t > 0).all()
    for factor in (0.999, 1.001):
        assert (objective(t) < objective(factor * t)).all()


@pytest.mark.parametrize(("step", "m"), [(1, 6), (4, 6), (7, 25)])
def test_elimination_is_scikit_learns(noisy, step, m):
    X, y = noisy
    selector = SVMRFE(n_features_to_select=m, step=step, tol=1e-10).fit(sp.csr_array(X), y)
    expected = RFE(linear_svc(1.0), n_features_to_select=m, step=step).fit(X, y)
    assert np.array_equal(selector.support_, expected.support_)
    for k in range(1, m):  # the choice of k is the prefix
        own = RFE(linear_svc(1.0), n_features_to_select=k, step=step).fit(X, y)
        assert np.array_equal(np.sort(selector.selected_[:k]), np.flatnonzero(own.support_))


def test_share_is_of_the_features_that_are_left(noisy):
    X, y = noisy
    left, order = np.arange(25), []
    while len(left) > 1:
        weights = (linear_svc(1.0).fit(X[:, left], y).coef_ ** 2).sum(axis=0)
        worst = np.lexsort((-left, weights))[: max(len(left) // 4, 1)]
        order += left[worst].tolist()
        left = np.delete(left, worst)
    selector = SVMRFE(n_features_to_select=8, step=0.25, tol=1e-10).fit(X, y)
    assert np.argsort(-selector.ranking_).tolist() == [*order, left[0]]
    assert elimination_sizes(25, 0.25)[:6] == [25, 19, 15, 12, 9, 7]


def test_columns_are_streamed_until_they_fit(noisy):
    X, y = noisy
    expected = SVMRFE(step=2, tol=1e-8).fit(X, y)
    matrix = Matrix.from_array(sp.csr_array(X), tile_rows=17, tile_columns=4)
    with limit_memory(36_000):
        selector = SVMRFE(step=2, tol=1e-8).fit(matrix, y)
    assert np.array_equal(selector.ranking_, expected.ranking_)
    assert selector.result_.stats["passes"] > 50
    assert expected.result_.stats["passes"] == 1  # the statistics: everything fits at once


@pytest.mark.parametrize("selector", [L2SVM(tol=1e-9), SVMRFE(step=0.3, tol=1e-9)])
class TestBoth:
    def test_too_little_memory_is_refused_before_training(self, noisy, selector):
        X, y = noisy
        matrix = Matrix.from_array(X, tile_rows=20)
        with limit_memory(20_000), pytest.raises(MemoryLimitError, match="3 linear SVMs on 60"):
            selector.fit(matrix, y)
        assert matrix.passes <= 1  # the statistics


def test_equal_columns_leave_by_their_index(noisy):
    X, y = noisy
    X[:, [3, 18, 21]] = X[:, [4]]
    for matrix in (X, Matrix.from_array(X, tile_columns=4, tile_rows=9)):
        ranking = SVMRFE(step=1).fit(matrix, y).ranking_[[3, 4, 18, 21]]
        assert ranking.tolist() == sorted(ranking)


def test_step_limit_warns_with_the_gap(noisy):
    X, y = noisy
    with pytest.warns(NotConvergedWarning, match="gap"):
        selector = L2SVM(max_iter=1, tol=1e-9).fit(X, y)
    assert selector.result_.status.name == "MAX_ITER"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert L2SVM().fit(X, y).result_.converged


def test_no_feature_is_eliminated_by_its_index_alone(rng):
    X, y = rng.normal(size=(60, 20)), np.arange(60) % 3
    X[:, 4] += y
    X /= np.linalg.norm(X, axis=1)[:, None]
    message = r"SVMRFE tells no feature from another, .* zero at C=1e-06: weaken"
    with pytest.raises(ValueError, match=message):
        SVMRFE(C=1e-6).fit(X, y)
    assert SVMRFE(C=1e-6).fit(X[:, 4:5], y).selected_.tolist() == [0]  # there is nothing to tell
