"""Samples that come in parts give the scores of one fit on all of them."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from bigfs import ANOVA, Chi2, Fisher, FRegression, Matrix, TScore, Variance

SELECTORS = [ANOVA(), Fisher(), Chi2(), TScore(), FRegression(), Variance()]
every_selector = pytest.mark.parametrize("selector", SELECTORS, ids=lambda s: type(s).__name__)
PARTS = np.split(np.arange(60), [7, 20, 43])


@pytest.fixture
def data(rng):
    """60 counts of 12 features, of which the first two follow the classes."""
    y = np.arange(60) % 2
    return rng.poisson(1.5, (60, 12)) + 2.0 * (y[:, None] == np.arange(12)), y


def target_of(selector, X, y):
    return 1000.0 + X[:, 3] + y if isinstance(selector, FRegression) else y


@every_selector
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, Matrix.from_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_parts_give_the_scores_of_one_fit(selector, form, weighted, data, rng):
    X, y = data
    target = target_of(selector, X, y)
    w = rng.integers(0, 4, 60) if weighted else None
    expected = selector.set_params(n_features_to_select=5).fit(X, target, sample_weight=w)
    scores, chosen = expected.scores_, expected.selected_
    p = getattr(expected, "pvalues_", None)
    selector.fit(X[:30], target[:30])  # is forgotten
    for part in PARTS:
        selector.partial_fit(form(X[part]), target[part], None if w is None else w[part])
    np.testing.assert_allclose(selector.scores_, scores, rtol=1e-9)
    np.testing.assert_array_equal(selector.selected_, chosen)
    if p is not None:
        np.testing.assert_allclose(selector.pvalues_, p, rtol=1e-7)
    selector.fit(X[:30], target[:30])
    assert not np.allclose(selector.scores_, scores)


@pytest.mark.parametrize("selector", [ANOVA(), Fisher(), Chi2()])
def test_classes_may_come_later(selector, data):
    X, _ = data
    y = np.repeat(["a", "c", "b"], 20)
    expected = selector.fit(X, y).scores_
    fresh = type(selector)().fit(X, y)  # is forgotten
    fresh.partial_fit(X[:20], y[:20])
    with pytest.raises(NotFittedError):
        fresh.transform(X)
    for first in (20, 40):
        fresh.partial_fit(X[first : first + 20], y[first : first + 20])
    np.testing.assert_allclose(fresh.scores_, expected, rtol=1e-9)


def test_a_third_class_is_refused_by_t(data):
    X, y = data
    selector = TScore().partial_fit(X[:40], y[:40])
    with pytest.raises(ValueError, match="compares two classes, but y holds 3"):
        selector.partial_fit(X[40:], np.full(20, 2))


def test_a_constant_target_has_no_scores_yet(data):
    X, y = data
    selector = FRegression().partial_fit(X[:20], np.full(20, 0.1))
    assert not hasattr(selector, "scores_")
    selector.partial_fit(X[20:], y[20:] * 1.0)
    every = np.append(np.full(20, 0.1), y[20:])
    np.testing.assert_allclose(selector.scores_, FRegression().fit(X, every).scores_, rtol=1e-9)


def test_kept_features_hold_in_parts(data):
    X, y = data
    selector = ANOVA(n_features_to_select=3, keep=[9], forbid=[0])
    for part in PARTS:
        selector.partial_fit(X[part], y[part])
    assert selector.selected_[0] == 9
    assert 0 not in selector.selected_


def test_other_features_and_label_sets_are_refused(data):
    X, y = data
    selector = ANOVA().partial_fit(X[:20], y[:20])
    for wrong in (X[:, :5], Matrix.from_array(X[:, :5])):
        with pytest.raises(ValueError, match="X has 5 features, but ANOVA is expecting 12"):
            selector.partial_fit(wrong, y)
    with pytest.raises(ValueError, match="partial_fit takes one class per sample"):
        ANOVA().partial_fit(X, np.column_stack([y, 1 - y]))
    frame = pd.DataFrame(X, columns=[f"a{j}" for j in range(12)])
    selector = ANOVA().partial_fit(frame, y)
    with pytest.raises(ValueError, match="feature names"):
        selector.partial_fit(frame[frame.columns[::-1]], y)
