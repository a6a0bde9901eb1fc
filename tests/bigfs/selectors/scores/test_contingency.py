"""Mutual information and Gini gain against scikit-learn and against the formulas."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_selection import mutual_info_classif
from sklearn.preprocessing import KBinsDiscretizer
from sklearn.tree import DecisionTreeClassifier

from bigfs import Gini, Matrix, MutualInformation
from bigfs.selectors.base import estimator


def information(X, y, n_bins):
    """Of each column: zero is a bin, the other values are cut by scikit-learn."""
    scores = []
    for x in X.T:
        binned, present = np.zeros(len(x)), x != 0
        if len(np.unique(x[present])) > 1 and n_bins > 1:
            cut = KBinsDiscretizer(n_bins, encode="ordinal", strategy="uniform", dtype=np.float64)
            binned[present] = 1 + cut.fit_transform(x[present, None].astype(np.float64))[:, 0]
        else:
            binned[present] = 1
        scores += list(mutual_info_classif(binned[:, None], y, discrete_features=True))
    return np.array(scores)


def gain(X, y):
    """Of each column: the decrease of impurity of a tree with one split."""
    scores = []
    for x in X.T:
        tree = DecisionTreeClassifier(max_depth=1).fit(x[:, None], y).tree_
        share = tree.n_node_samples / len(y)
        leaves = tree.children_left < 0
        scores.append(tree.impurity[0] - (share * tree.impurity)[leaves].sum())
    return np.array(scores)


@pytest.fixture
def signed(rng):
    """90 × 25 of negative, zero and positive values with many ties, and y; two columns are
    constant.
    """
    y = rng.integers(0, 3, 90)
    X = np.round(rng.normal(size=(90, 25)) + 0.5 * y[:, None], 1) * (rng.random((90, 25)) < 0.6)
    X[:, 3], X[:, 4] = 0, 2
    return X, y


@pytest.mark.parametrize("n_bins", [1, 2, 7])
def test_mutual_information_is_scikit_learns(signed, n_bins):
    X, y = signed
    selector = MutualInformation(n_bins=n_bins).fit(sp.csr_array(X), y)
    assert np.allclose(selector.scores_, information(X, y, n_bins), rtol=1e-12, atol=1e-14)
    assert selector.result_.stats["passes"] == 2  # the first one for the statistics


def test_auto_bins_follow_the_share_of_non_zeros(signed):
    X, y = signed
    assert np.array_equal(
        MutualInformation().fit(X, y).scores_, MutualInformation(n_bins=10).fit(X, y).scores_
    )
    X = X * (np.arange(90) % 3 == 0)[:, None]
    assert np.array_equal(
        MutualInformation().fit(X, y).scores_, MutualInformation(n_bins=1).fit(X, y).scores_
    )


def test_gini_is_the_gain_of_a_stump(signed):
    X, y = signed
    selector = Gini().fit(sp.csr_array(X), y)
    assert np.allclose(selector.scores_, gain(X, y), atol=1e-14)
    assert selector.result_.stats["passes"] == 1


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_gini_only_compares_values(signed, factor):
    X, y = signed
    assert np.array_equal(Gini().fit(X * factor, y).scores_, Gini().fit(X, y).scores_)


@pytest.mark.parametrize("selector", [MutualInformation(n_bins=4), Gini()])
class TestByColumn:
    def test_tiles_and_layouts_do_not_matter(self, signed, selector, change):
        X, y = signed
        expected = selector.fit(X, y).scores_
        both = Matrix.from_array(sp.csr_array(X), tile_columns=4, tile_rows=11)
        rows = Matrix(both.shape, rows=both.row_tiles, local=True)
        change(estimator.MEMORY_SHARE, 1e-9)  # a column at a time
        for matrix in (both, rows, da.from_array(X, chunks=(30, 25))):
            assert np.array_equal(selector.fit(matrix, y).scores_, expected)
