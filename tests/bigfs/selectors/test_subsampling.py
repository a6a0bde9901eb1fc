"""How often each feature is chosen from subsamples."""

from typing import ClassVar

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_selection import f_classif

from bigfs import ANOVA, JGSC, FRegression, Matrix, SparGE, Variance, stability
from bigfs.evaluation.significance import stability_index


class Noted(ANOVA):
    """Keeps the samples of each fit."""

    seen: ClassVar[list] = []

    def _fit(self, X, y):
        Noted.seen.append((X.rows(np.arange(X.shape[0])), y.classes[y.codes]))
        super()._fit(X, y)


@pytest.fixture
def data(rng):
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 20))
    X[:, :2] += 1.5 * np.eye(3)[y][:, :2]
    return X, y


def test_frequencies_are_those_of_dense_choices(data):
    X, y = data
    X[:, 19] = np.arange(60)  # names the samples
    Noted.seen = []
    found = stability(Noted(n_features_to_select=4), X, y, n_subsamples=7, train_size=0.4)
    counts, sets = np.zeros(20), []
    for rows, labels in Noted.seen:
        names = rows[:, 19].astype(int)
        assert (np.diff(names) > 0).all()  # without replacement
        np.testing.assert_array_equal(labels, y[names])
        assert np.bincount(labels).tolist() == [8, 8, 8]  # a share of each class
        chosen = np.argsort(-f_classif(rows, labels)[0], kind="stable")[:4]
        counts[chosen] += 1
        sets.append(frozenset(chosen))
    assert len(sets) == 7
    assert len(set(sets)) > 1
    np.testing.assert_array_equal(found.frequencies, counts / 7)
    # of sets of one size, the index is the mean of Kuncheva's index of all pairs
    pairs = [len(a & b) for i, a in enumerate(sets) for b in sets[:i]]
    expected = np.mean([(r - 4**2 / 20) / (4 - 4**2 / 20) for r in pairs])
    assert found.index == pytest.approx(expected)


def test_index_of_the_same_and_of_random_choices(rng):
    assert stability_index(np.repeat([1.0, 0.0], [3, 7]), 3.0, 10) == 1.0
    assert stability_index(np.ones(5), 5.0, 10) == 1.0
    random = np.mean([rng.permuted(np.repeat([1.0, 0.0], [5, 95])) for _ in range(400)], axis=0)
    assert abs(stability_index(random, 5.0, 400)) < 0.01


def test_same_whatever_x_comes_as_and_for_the_same_seed(data):
    X, y = data
    X[np.abs(X) < 0.3] = 0
    selector = ANOVA(n_features_to_select=3)
    found = [
        stability(selector, form, y, n_subsamples=5).frequencies
        for form in (X, sp.csr_array(X), Matrix.from_array(X, tile_rows=7))
    ]
    found.append(
        stability(selector, da.from_array(X, chunks=(25, 20)), y, n_subsamples=5).frequencies
    )
    assert all(np.array_equal(found[0], other) for other in found[1:])
    other = stability(selector, X, y, n_subsamples=5, random_state=1).frequencies
    assert not np.array_equal(found[0], other)
    assert not hasattr(selector, "scores_")


def test_real_targets_label_sets_and_no_labels(data):
    X, y = data
    for selector, target in (
        (FRegression(n_features_to_select=2), X[:, 3] + 0.1 * X[:, 4]),
        (SparGE(embedding="cca", n_features_to_select=2), X[:, 3:5] > 0),
        (Variance(n_features_to_select=2), None),
    ):
        found = stability(selector, X, target, n_subsamples=3)
        assert found.frequencies.sum() == pytest.approx(2)
    names = np.array(["a", "b", "c"])[y]
    np.testing.assert_array_equal(
        stability(ANOVA(), X, names, n_subsamples=3).frequencies,
        stability(ANOVA(), X, y, n_subsamples=3).frequencies,
    )


def test_every_class_is_in_every_subsample(data):
    X, y = data
    y = np.where(np.arange(60) == 7, 9, y)  # a class of one sample
    Noted.seen = []
    stability(Noted(), X, y, n_subsamples=4, train_size=0.1)
    assert all(9 in labels for _, labels in Noted.seen)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_subsamples": 1}, "n_subsamples"),
        ({"train_size": 1.0}, "train_size"),
        ({"pairs": True, "n_subsamples": 5}, "even n_subsamples"),
        ({"pairs": True, "train_size": 0.4}, "train_size=0.5"),
        ({"selector": JGSC()}, "selector"),
    ],
)
def test_bad_parameters_are_refused(changes, message, data):
    X, y = data
    with pytest.raises(ValueError, match=message):
        stability(**({"selector": ANOVA(), "X": X, "y": y} | changes))


def test_pairs_are_complementary_halves_of_each_class(data):
    X, y = data
    X[:, 19] = np.arange(60)  # names the samples
    Noted.seen = []
    found = stability(Noted(n_features_to_select=4), X, y, n_subsamples=6, pairs=True)
    names = [rows[:, 19].astype(int) for rows, _ in Noted.seen]
    for first, second in zip(names[::2], names[1::2], strict=True):
        np.testing.assert_array_equal(np.sort(np.append(first, second)), np.arange(60))
        assert np.bincount(y[first]).tolist() == [10, 10, 10]
    assert len({tuple(one) for one in names}) == 6
    assert found.mean_size == pytest.approx(4)
    # Shah and Samworth, Theorem 1, with θ = 4/20: θ/(2τ − 1) · 4
    assert found.false_choices(0.75) == pytest.approx(0.2 / 0.5 * 4)
    assert set(found.chosen(0.5)) == set(np.flatnonzero(found.frequencies >= 0.5))
    with pytest.raises(ValueError, match="must be above"):
        found.false_choices(0.5)
    with pytest.raises(ValueError, match="pairs=True"):
        stability(ANOVA(), X, y, n_subsamples=2).false_choices(0.9)


def test_near_copies_are_one_group_that_is_surer_than_each(data, rng):
    X, y = data
    X[:, 0] += 3 * (y == 0)
    X[:, 5] = X[:, 0] + 0.2 * rng.normal(size=60)
    found = stability(ANOVA(n_features_to_select=1), X, y, n_subsamples=20, pairs=True)
    (group,) = found.groups
    np.testing.assert_array_equal(group.features, [0, 5])
    assert group.frequency == 1
    assert found.frequencies[[0, 5]].max() < 1


@pytest.mark.nightly
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_the_bound_on_false_choices_holds(correlation):
    """Draws of planted features: no more false choices than the bound says. At a correlation of .9
    the features share their subsamples, and few are chosen in most of them.
    """
    n, d, planted = 100, 100, 5
    false, bounds, power = [], [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        noise = rng.normal(size=(n, d))
        X = np.sqrt(1 - correlation) * noise + np.sqrt(correlation) * rng.normal(size=(n, 1))
        target = X[:, :planted].sum(axis=1) + rng.normal(size=n)
        selector = SparGE(n_features_to_select=8, embedding="cca", target="real")
        found = stability(selector, X, target, n_subsamples=50, pairs=True, random_state=seed)
        chosen = found.chosen(0.8)
        false.append(np.count_nonzero(chosen >= planted))
        power.append(np.count_nonzero(chosen < planted) / planted)
        bounds.append(found.false_choices(0.8))
    assert np.mean(false) <= np.mean(bounds)
    assert np.mean(power) > (0.5 if correlation < 0.9 else 0)
