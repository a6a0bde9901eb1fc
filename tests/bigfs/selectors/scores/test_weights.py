"""A sample of weight w counts as w equal samples."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import ANOVA, Chi2, Fisher, FRegression, Matrix, TScore, Variance, storage
from tests.helpers.stores import write_svmlight

SELECTORS = [ANOVA(), Fisher(), Chi2(), TScore()]
every_selector = pytest.mark.parametrize("selector", SELECTORS, ids=lambda s: type(s).__name__)


@pytest.fixture
def data(rng):
    y = np.arange(50) % 2
    X = rng.poisson(1.5, (50, 12)) + 2.0 * (y[:, None] == np.arange(12))
    return X, y, rng.integers(0, 4, 50)


@every_selector
def test_weights_are_repetitions(selector, data):
    X, y, w = data
    expected = selector.fit(np.repeat(X, w, axis=0), np.repeat(y, w)).scores_
    p = getattr(selector, "pvalues_", None)
    for form in (
        X,
        sp.csr_array(X),
        Matrix.from_array(X, tile_rows=9, tile_columns=5),
        da.from_array(X, chunks=(20, 12)),
    ):
        np.testing.assert_allclose(
            selector.fit(form, y, sample_weight=w).scores_, expected, rtol=1e-9
        )
        if p is not None:
            np.testing.assert_allclose(selector.pvalues_, p, rtol=1e-8)
    np.testing.assert_array_equal(
        selector.fit(X, y, sample_weight=np.ones(50)).scores_, selector.fit(X, y).scores_
    )


@pytest.mark.parametrize("selector", [FRegression(), Variance(), ANOVA()])
def test_weights_of_other_targets_are_repetitions(selector, data):
    X, y, w = data
    target = (
        np.column_stack([y, X[:, 4] > 2]) if isinstance(selector, ANOVA) else y + 100.0 * X[:, 3]
    )
    expected = selector.fit(np.repeat(X, w, axis=0), np.repeat(target, w, axis=0)).scores_
    p = getattr(selector, "pvalues_", None)
    for form in (X, sp.csr_array(X), Matrix.from_array(X, tile_rows=9, tile_columns=5)):
        found = selector.fit(form, target, sample_weight=w)
        np.testing.assert_allclose(found.scores_, expected, rtol=1e-9)
        if p is not None:
            np.testing.assert_allclose(found.pvalues_, p, rtol=1e-8)
    np.testing.assert_allclose(
        selector.fit(X, target, sample_weight=np.ones(50)).scores_,
        selector.fit(X, target).scores_,
        rtol=1e-9,
    )
    with pytest.raises(ValueError, match="at least one non-zero"):
        selector.fit(X, target, sample_weight=np.zeros(50))


@every_selector
def test_class_without_weight_is_no_class(selector, data):
    X, y, w = data
    three = np.where(np.arange(50) < 6, 7, y)
    weights = np.where(three == 7, 0, w)
    kept = weights > 0
    expected = selector.fit(X[kept], y[kept], sample_weight=weights[kept]).scores_
    np.testing.assert_allclose(
        selector.fit(X, three, sample_weight=weights).scores_, expected, rtol=1e-12
    )


def test_sums_of_a_store_are_not_taken_for_weighted_ones(tmp_path):
    corpus = storage.open(
        storage.stage(write_svmlight(tmp_path / "a.svm", 40), tmp_path / "a.zarr")
    )
    X, w = corpus.X.rows(np.arange(40)), np.arange(40) % 3
    weighted = ANOVA().fit(corpus.X, corpus.y, sample_weight=w).scores_
    repeated = np.repeat(np.arange(40), w)
    np.testing.assert_allclose(
        weighted, ANOVA().fit(X[repeated], corpus.y[repeated]).scores_, rtol=1e-9
    )
    assert not np.allclose(weighted, ANOVA().fit(corpus.X, corpus.y).scores_)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-np.ones(50), "(?i)negative values"),
        (np.ones(49), "a number for each of 50 samples; got the shape .49"),
        (np.full(50, np.nan), "NaN"),
        (np.arange(50) % 2, "at least two classes"),
    ],
)
def test_bad_weights_are_refused(weights, message, data):
    X, y, _ = data
    with pytest.raises(ValueError, match=message):
        ANOVA().fit(X, y, sample_weight=weights)
