"""A feature that says nothing ranks behind all others, in every method of the registry."""

import numpy as np
import pytest

from bigfs import Matrix
from bigfs.selectors.registry import METHODS

SIZES = [1.0, 1e-3, 1e9, 0.0]  # of the constant columns, of which the last one is empty
FAST = {
    "auto": {"cv": 2},
    "sparge-lda-cv": {"cv": 2, "gammas": [0.1, 1.0]},
    "hvg": {"flavor": "seurat"},
}


def dense():
    """72 samples of three classes on ten non-negative features, four of them informative."""
    rng = np.random.default_rng(3)
    y = np.arange(72) % 3
    X = rng.normal(size=(72, 10)) + 1.5 * (np.arange(10) // 2 == y[:, None])
    return np.exp(X / 3), y


def counts():
    """Counts of twenty words in 90 texts of three classes, which differ in their lengths."""
    rng = np.random.default_rng(4)
    y = np.arange(90) % 3
    X = rng.poisson(0.4 + 1.5 * (np.arange(20) // 3 == y[:, None]))
    return X * rng.uniform(0.5, 1.5, (90, 1)), y


def target_of(method, y):
    """Return the target that a method learns from."""
    if method == "t-score":
        return np.minimum(y, 1)
    if not METHODS[method].targets:
        return None
    return y if "class" in METHODS[method].targets else y + 0.01 * np.arange(len(y))


def make(method, X):
    """Return the estimator of a method, with few rounds of folds and given atoms."""
    options = {"dictionary": X[::9]} if method.endswith("gsc") else FAST.get(method, {})
    selector = METHODS[method].make(**options)
    if "metric" in selector.get_params():
        selector.set_params(metric="euclidean")
    return selector


def ranking(method, X, y, m):
    """Return the features from the best one on."""
    selector = make(method, X)
    if METHODS[method].scores == "column_importance_":
        return np.argsort(-selector.fit(X, y).column_importance_, kind="stable")[:m]
    return selector.set_params(n_features_to_select=m).fit(X, y).selected_


@pytest.mark.filterwarnings("ignore::bigfs.result.NotConvergedWarning")
@pytest.mark.parametrize("data", [dense, counts])
@pytest.mark.parametrize("method", METHODS)
def test_what_says_nothing_comes_last_and_changes_nothing(method, data):
    """Constant columns of any size and an empty one come first in X and last in the ranking, and
    the others are ranked as without them."""
    X, y = data()
    d, n_constant = X.shape[1], len(SIZES)
    # the largest is too large for the exponential of hvg, whose bins see constant genes
    sizes = np.minimum(SIZES, 5.0) if method == "hvg" else SIZES
    Z = np.column_stack([np.tile(sizes, (len(X), 1)), X])
    for m in (3, d, d + 2):
        chosen = ranking(method, Z, target_of(method, y), m)
        first, last = chosen[: min(m, d)], chosen[d:]
        assert (first >= n_constant).all()
        assert (last < n_constant).all()
        if m < d and method != "hvg" and METHODS[method].scores == "scores_":
            alone = ranking(method, X, target_of(method, y), m)
            np.testing.assert_array_equal(first - n_constant, alone)


LABELED = [m for m, e in METHODS.items() if "class" in e.targets and m != "auto"]


@pytest.mark.filterwarnings("ignore::bigfs.result.NotConvergedWarning")
@pytest.mark.parametrize("method", [m for m in LABELED if not make(m, None)._semi_supervised])
def test_what_is_constant_among_the_labeled_samples_comes_last(method):
    """The methods that leave unlabeled samples out do not see that it varies."""
    X, y = dense()
    Z = np.column_stack([np.full((len(X), 2), [7.0, 0.0]), X])
    unlabeled = np.arange(len(X)) % 4 == 0
    Z[unlabeled, :2] = np.random.default_rng(0).uniform(size=(unlabeled.sum(), 2))
    for m in (3, X.shape[1]):
        target = np.where(unlabeled, -1, target_of(method, y))
        chosen = ranking(method, Matrix.from_array(Z), target, m)
        np.testing.assert_array_equal(chosen[chosen < 2], [])
