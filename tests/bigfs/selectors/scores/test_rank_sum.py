"""The rank-sum test against SciPy's, one feature and class at a time."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import kstest, mannwhitneyu

from bigfs import Matrix, RankSum
from bigfs.engine import MemoryLimitError
from bigfs.selectors.base import estimator


def by_scipy(X, y):
    """SciPy's AUC and p-values (n_classes × n_features).

    A column of one value has p = 1, where SciPy from 1.18 on has NaN.
    """
    auc, p = [], []
    for code in np.unique(y):
        own, rest = X[y == code], X[y != code]
        found = mannwhitneyu(own, rest, use_continuity=True, method="asymptotic")
        auc.append(found.statistic / (len(own) * len(rest)))
        p.append(np.where(np.ptp(X, axis=0) > 0, found.pvalue, 1))
    return np.array(auc), np.array(p)


def assert_is_scipys(selector, X, y):
    auc, p = by_scipy(X, y)
    np.testing.assert_allclose(selector.auc_, auc, rtol=1e-12)
    np.testing.assert_allclose(selector.pvalues_, p, rtol=1e-12, atol=1e-300)
    score = np.abs(auc - 0.5).max(axis=0)
    np.testing.assert_allclose(selector.scores_, score, rtol=1e-12, atol=1e-15)


def samples(rng, n_classes, n=120):
    """Counts of many ties and zeros, negative values, values without ties, and columns of one
    value, of which one is empty."""
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, n - n_classes))
    counts = rng.poisson(0.4 + 0.3 * (y[:, None] == np.arange(6) % n_classes))
    signed = np.round(rng.normal(size=(n, 6)), 1) * (rng.random((n, 6)) < 0.5)
    smooth = rng.normal(size=(n, 6)) + 2 * (y[:, None] == 0)
    constant = np.full((n, 2), [0.0, 3.0])
    return np.hstack([constant, counts, signed, smooth]), y


@pytest.mark.parametrize("n_classes", [2, 3, 40])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array])
def test_it_is_scipys_test(rng, n_classes, form):
    X, y = samples(rng, n_classes)
    selector = RankSum(n_features_to_select=20).fit(form(X), y)
    assert_is_scipys(selector, X, y)
    assert selector.auc_.shape == selector.pvalues_.shape == (n_classes, 20)
    assert set(selector.selected_[-2:]) == {0, 1}  # of one value, also behind a score of zero
    assert selector.result_.stats["passes"] == 1


def test_small_p_values_are_scipys(rng):
    y = np.repeat([0, 1], 2_000)
    X = rng.poisson(np.where(y, 3.0, 1.0)[:, None], (4_000, 3)).astype(float)
    selector = RankSum().fit(sp.csr_array(X), y)
    assert selector.pvalues_.max() < 1e-200
    assert_is_scipys(selector, X, y)


def test_a_column_of_one_value_has_no_variance_whatever_the_number_of_samples(rng):
    y = rng.integers(0, 2, 300_001)
    X = np.full((len(y), 2), 2.0)
    X[::2, 1] = 1
    selector = RankSum(n_features_to_select=2).fit(X, y)
    np.testing.assert_array_equal(selector.selected_, [1, 0])
    np.testing.assert_array_equal(selector.pvalues_[:, 0], 1)
    np.testing.assert_array_equal(selector.auc_[:, 0], 0.5)


def test_tiles_and_layouts_do_not_matter(rng, change):
    X, y = samples(rng, 4)
    expected = RankSum().fit(X, y)
    both = Matrix.from_array(sp.csr_array(X), tile_columns=4, tile_rows=11)
    rows = Matrix(both.shape, rows=both.row_tiles, local=True)
    change(estimator.MEMORY_SHARE, 1e-9)  # a column at a time
    for matrix in (
        both,
        rows,
        da.from_array(X, chunks=(30, 20)),
        da.from_array(X, chunks=(120, 5)),
    ):
        selector = RankSum().fit(matrix, y)
        for name in ("auc_", "pvalues_", "scores_"):
            np.testing.assert_array_equal(getattr(selector, name), getattr(expected, name))


def test_names_of_the_classes_are_kept(rng):
    X, y = samples(rng, 3)
    selector = RankSum().fit(X, np.array(["b", "a", "c"])[y])
    np.testing.assert_array_equal(selector.classes_, ["a", "b", "c"])
    np.testing.assert_array_equal(selector.auc_[[1, 0, 2]], RankSum().fit(X, y).auc_)


def test_p_values_of_noise_are_uniform(rng):
    y = rng.integers(0, 2, 400)
    X = rng.normal(size=(400, 500))
    assert kstest(RankSum().fit(X, y).pvalues_[0], "uniform").pvalue > 0.01


def test_more_classes_and_features_than_fit_are_refused(rng, allow_memory):
    X, y = samples(rng, 40)
    allow_memory(20_000)
    with pytest.raises(MemoryLimitError, match="the AUC of 20 features and 40 classes"):
        RankSum().fit(X, y)
