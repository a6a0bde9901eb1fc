"""Linear SVMs of many classes that are trained together, against scikit-learn's one by one."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from bigfs.evaluation import linear_model
from bigfs.linalg import dual_svm


@pytest.fixture
def text(rng):
    """200 × 60, a tenth of it non-zero, one row and one column empty, in five classes."""
    y = np.arange(200) % 5
    X = sp.random_array((200, 60), density=0.1, rng=rng).toarray()
    X[np.arange(200), y] += 0.5
    X[7], X[:, 9] = 0, 0
    return sp.csr_array(X), y[:, None] == np.arange(5)


def objective(X, labels, U, C):
    """P of each classifier, by the dense formula."""
    dense = np.column_stack([X.toarray(), np.ones(X.shape[0])])
    slack = np.maximum(1 - np.where(labels, 1, -1) * (dense @ U), 0)
    return (U**2).sum(axis=0) / 2 + C * (slack**2).sum(axis=0)


def peers(X, labels, C):
    """U of scikit-learn's classifiers, each trained to a tight tolerance."""
    fits = [
        LinearSVC(C=C, dual=False, tol=1e-10, max_iter=10_000).fit(X, label) for label in labels.T
    ]
    return np.column_stack([np.append(svm.coef_, svm.intercept_) for svm in fits])


def watch_sweeps(monkeypatch):
    """A list that gets the number of classifiers of each sweep."""
    widths, sweep = [], dual_svm._sweep
    monkeypatch.setattr(
        dual_svm, "_sweep", lambda *rest: widths.append(len(rest[-1])) or sweep(*rest)
    )
    return widths


@pytest.mark.parametrize("C", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_classifiers_are_scikit_learns(text, C, dtype, change):
    change(dual_svm.MAX_SWEEPS, 10**6)
    X, labels = text[0].astype(dtype), text[1]
    U, gap = dual_svm.train(X, labels, C=C, tol=1e-12)
    assert (gap <= 1e-12).all()
    np.testing.assert_allclose(U, peers(X.astype(np.float64), labels, C), atol=2e-6)


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
def test_the_gap_bounds_the_distance_to_the_optimum(text, tol):
    X, labels = text
    U, gap = dual_svm.train(X, labels, tol=tol)
    reached, least = (objective(X, labels, V, 1.0) for V in (U, peers(X, labels, 1.0)))
    assert (gap <= tol).all()
    assert (reached - least <= gap * reached + 1e-12 * least).all()
    assert (reached - least > 0).all()  # the optimum is not reached before the tolerance


def test_a_classifier_does_not_depend_on_the_others(text):
    X, labels = text
    together = dual_svm.train(X, labels)
    for lanes in ([0], [3, 1], [4, 2, 0]):
        U, gap = dual_svm.train(X, labels[:, lanes])
        np.testing.assert_array_equal(U, together.U[:, lanes])
        np.testing.assert_array_equal(gap, together.gap[lanes])


def test_a_classifier_that_rests_early_is_kept(text, monkeypatch, change):
    """The others go on without it."""
    change(dual_svm.SWEEPS, 1)
    change(dual_svm.MAX_SWEEPS, 10**6)
    widths = watch_sweeps(monkeypatch)
    X, labels = text
    labels = np.column_stack([labels, np.arange(200) == 7])
    U, gap = dual_svm.train(X, labels, tol=1e-10)
    assert widths[0] == 6 > widths[-1]
    assert (gap <= 1e-10).all()
    np.testing.assert_allclose(U, peers(X, labels, 1.0), atol=2e-5)


def test_liblinear_trains_the_classifiers_that_a_badly_scaled_column_keeps_from_the_optimum(text):
    X, labels = text
    X = sp.csr_array(X @ sp.diags_array(np.where(np.arange(60) == 20, 1e4, 1.0)))
    assert not (dual_svm.train(X, labels).gap <= linear_model.TOLERANCE).any()
    model = linear_model.fit(X, labels.argmax(axis=1))
    for k, label in enumerate(labels.T):
        svm = LinearSVC(random_state=0, max_iter=10_000).fit(X, label)
        np.testing.assert_array_equal(model.coef[[k]], svm.coef_)
        np.testing.assert_array_equal(model.intercept[[k]], svm.intercept_)


def test_a_classifier_that_falls_behind_is_given_up_early(text, monkeypatch):
    widths = watch_sweeps(monkeypatch)
    X, labels = text
    badly = sp.csr_array(X @ sp.diags_array(np.where(np.arange(60) == 20, 1e4, 1.0)))
    assert not (dual_svm.train(badly, labels).gap <= linear_model.TOLERANCE).any()
    assert len(widths) < dual_svm.MAX_SWEEPS.value / 4
    widths.clear()
    assert (dual_svm.train(X, labels).gap <= linear_model.TOLERANCE).all()
    assert len(widths) < dual_svm.MAX_SWEEPS.value


def test_groups_of_labels_have_the_classifiers_of_all_together(text, change):
    X, labels = text
    whole = linear_model.fit(X, labels.argmax(axis=1))
    change(dual_svm.LANES, 2)
    for y in (labels.argmax(axis=1), sp.csr_array(labels.astype(np.int8))):
        parts = linear_model.fit(X, y)
        np.testing.assert_array_equal(parts.coef, whole.coef)
        np.testing.assert_array_equal(parts.intercept, whole.intercept)
