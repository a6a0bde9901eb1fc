"""Variance, t and F of a regression against scikit-learn and SciPy."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import ttest_ind
from sklearn.base import clone
from sklearn.feature_selection import VarianceThreshold, f_regression

from bigfs import FRegression, Matrix, TScore, Variance, storage
from tests.helpers.stores import write_mat


@pytest.fixture
def sample(rng):
    """60 × 12 with zeros and negative values, a real target, and two unequal classes."""
    X = rng.normal(2, 1, (60, 12)) * (rng.random((60, 12)) < 0.7)
    y = X[:, 2] - 0.5 * X[:, 5] + rng.normal(size=60)
    return X, y, (y > 1.5).astype(int)


def test_variance_is_scikit_learns(sample):
    X, *_ = sample
    expected = X.var(axis=0)
    assert np.allclose(Variance().fit(X).scores_, expected, rtol=1e-12)
    assert np.allclose(VarianceThreshold().fit(X).variances_, expected, rtol=1e-12)


def test_t_is_welchs(sample):
    X, _, y = sample
    expected = np.abs(ttest_ind(X[y == 0], X[y == 1], equal_var=False).statistic)
    assert np.allclose(TScore().fit(sp.csr_array(X), y).scores_, expected, rtol=1e-10)


def test_f_regression_is_scikit_learns(sample):
    X, y, _ = sample
    selector = FRegression(n_features_to_select=2).fit(X, y)
    assert np.allclose(selector.scores_, f_regression(X, y)[0], rtol=1e-10)
    assert selector.selected_[0] == 2


def test_constant_and_perfect_features():
    X = np.array([[0.1, 0.0, 3.0], [0.1, 0.0, 2.0], [0.1, 3.0, 3.0], [0.1, 3.0, 1.5]])
    assert TScore().fit(X, [0, 0, 1, 1]).scores_[:2].tolist() == [0, np.inf]
    assert FRegression().fit(X, [-1.0, -1.0, 5.0, 5.0]).scores_[:2].tolist() == [0, np.inf]
    assert Variance().fit(X).scores_[:2].tolist() == [0, 2.25]


def test_a_store_answers_without_a_pass(sample, tmp_path):
    X, _, classes = sample
    X = X.astype(np.float32).astype(np.float64)  # as stores hold it
    source = write_mat(tmp_path / "X.mat", X, classes)
    corpus = storage.open(storage.stage(source, str(tmp_path / "X.zarr")))
    for selector in (TScore(), Variance()):
        assert selector.fit(corpus.X, corpus.y).result_.stats["passes"] == 0
        expected = clone(selector).fit(X, classes).scores_
        assert np.allclose(selector.scores_, expected, rtol=1e-10)


def test_unlabeled_samples_are_left_out(sample):
    X, _, classes = sample
    known = np.arange(60) % 5 > 0
    assert np.allclose(
        TScore().fit(Matrix.from_array(X), np.where(known, classes, -1)).scores_,
        TScore().fit(X[known], classes[known]).scores_,
        rtol=1e-10,
    )


@pytest.mark.parametrize("factor", [1e-200, 1e200])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_values_out_of_range_are_refused(sample, factor, make):
    X, y, classes = sample
    word = "large" if factor > 1 else "small"
    for selector, target in ((TScore(), classes), (Variance(), classes), (FRegression(), y)):
        with pytest.raises(ValueError, match=f"values of X are too {word}"):
            selector.fit(make(X * factor), target)


def test_what_cannot_be_scored_is_refused(sample):
    X, *_ = sample
    with pytest.raises(ValueError, match="two classes, but y holds 3: use ANOVA"):
        TScore().fit(X, np.arange(60) % 3)
    with pytest.raises(ValueError, match="y is constant"):
        FRegression().fit(X, np.full(60, 0.1))
