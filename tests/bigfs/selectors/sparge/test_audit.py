"""The certificate of a list of features, against the enumeration of all lists."""

from itertools import combinations

import numpy as np
import pytest

import bigfs
from bigfs import ANOVA, Matrix, SparGE, SparGECV
from bigfs.embedding.targets import lda_factor
from tests.helpers.master_solvers import dense_objective


@pytest.fixture
def small():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 9))
    X[:, :3] += 1.5 * np.eye(3)[y]
    X[:, 3:6] += X[:, :3]  # they repeat the first three
    return X, y


def objective(X, y, gamma, features):
    T = lda_factor(y, 3, np.ones(3))[y]  # the classes are of equal size
    return dense_objective(X - X.mean(axis=0), T, gamma, list(features))


@pytest.mark.parametrize("m", [2, 4])
def test_the_certificate_holds_for_every_list(small, m):
    X, y = small
    every = list(combinations(range(9), m))
    found = bigfs.audit(X, y, {str(one): one for one in every})
    gamma = found.best[m].result_.stats["gamma"]
    values = {str(one): objective(X, y, gamma, one) for one in every}
    least = min(values.values())
    for name, one in found.lists.items():
        assert one.objective == pytest.approx(values[name], rel=1e-9)
        assert least >= one.objective * (1 - one.most_better) * (1 - 1e-12)
        assert least <= one.objective * (1 - one.least_worse) * (1 + 1e-12)
        for exchange in one.exchanges:
            others = [*set(one.features.tolist()) - {exchange.leaves}, exchange.enters]
            after = objective(X, y, gamma, others)
            assert exchange.gain == pytest.approx((values[name] - after) / values[name], rel=1e-6)
    best = min(found.lists.values(), key=lambda one: one.objective)
    assert best.least_worse == 0
    assert not best.exchanges


def test_the_certificate_of_sparges_own_choice_is_its_gap(small):
    X, y = small
    own = SparGE(n_features_to_select=3, tol=1e-4).fit(X, y)
    lists = {"own": own.selected_, "anova": ANOVA(n_features_to_select=3).fit(X, y).selected_}
    lists["noise"] = [6, 7, 8]
    found = bigfs.audit(X, y, lists, estimator=SparGE(tol=1e-4)).lists
    gap = own.result_.stats["objective_gap"]
    assert found["own"].most_better == pytest.approx(gap, rel=1e-9)
    assert found["own"].least_worse == 0
    assert found["noise"].most_better > found["anova"].most_better >= gap
    assert found["noise"].least_worse > found["anova"].least_worse
    assert found["noise"].redundancy < 0.3


def test_lists_of_names_and_of_several_lengths_are_audited_in_the_passes_of_the_longest(small):
    X, y = small
    names = np.array([f"f{j}" for j in range(9)])
    matrix = Matrix.from_array(X, tile_rows=17, tile_columns=4)
    matrix.feature_names = names
    lists = {"two": ["f0", "f7"], "three": ["f8", "f1", "f2"]}
    before = matrix.passes
    found = bigfs.audit(matrix, y, lists)
    passes = matrix.passes - before
    np.testing.assert_array_equal(found.lists["three"].features, [1, 2, 8])
    by_index = bigfs.audit(X, y, {"two": [0, 7], "three": [8, 1, 2]})
    assert found.lists["two"].objective == pytest.approx(by_index.lists["two"].objective)
    fresh = Matrix.from_array(X, tile_rows=17, tile_columns=4)
    SparGE().fit_path(fresh, y, [2, 3])
    # and the columns of each list: to gather them, and for their redundancy
    assert passes <= fresh.passes + 2 * len(lists)
    lines = str(found).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].startswith("two  ")


@pytest.mark.parametrize(
    ("lists", "estimator", "message"),
    [
        ({}, None, "holds no list"),
        (["c0", "c1"], None, "holds no list: give a dict such as {'mine': "),
        ({"a": []}, None, "the list 'a' is empty"),
        ({"a": [1, 1]}, None, "names a feature twice"),
        ({"a": [1, 9]}, None, "indices from 0 to 8; got 9"),
        ({"a": ["x"]}, None, "the features have none"),
        ({"a": [1]}, SparGE(loss="squared_hinge"), "loss='squared'"),
        ({"a": [1]}, SparGE(ranking="svm"), "another ranking than 'svm'"),
        ({"a": [1]}, SparGE(keep=[2]), "keep and forbid"),
    ],
)
def test_bad_lists_and_objectives_are_refused(small, lists, estimator, message):
    with pytest.raises(ValueError, match=message):
        bigfs.audit(*small, lists, estimator=estimator)


def test_what_may_stand_for_what_is_read_from_the_lists(small):
    X, y = small
    found = bigfs.audit(X, y, {"own": [0, 1, 2]}, alternatives=0.2)
    near = found.alternatives[3]
    best = set(near.lists[0].tolist())
    assert len(near.lists) > 3
    for exchange in near.exchanges:
        one = sorted(best - {exchange.leaves} | {exchange.enters})
        (number,) = np.flatnonzero((near.lists == one).all(axis=1))
        assert near.objectives[number] == pytest.approx(near.objectives[0] * (1 - exchange.gain))
    assert set(near.always.tolist()) == set.intersection(*map(set, near.lists.tolist()))
    assert str(near) in str(found)
    # the list is as far from the best as it is said to be, exactly
    own = found.lists["own"]
    assert own.most_better == pytest.approx(own.least_worse, abs=1e-8)
    with pytest.raises(ValueError, match="alternatives must be a share"):
        bigfs.audit(X, y, {"own": [0]}, alternatives=1)


def test_the_estimator_is_a_sparge_and_is_not_fitted(small):
    X, y = small
    estimator = SparGE(gamma=0.3)
    bigfs.audit(X, y, {"own": [0, 1, 2]}, estimator=estimator)
    assert not [name for name in vars(estimator) if name.endswith("_")]
    with pytest.raises(ValueError, match="estimator must be a SparGE; got SparGECV"):
        bigfs.audit(X, y, {"own": [0, 1, 2]}, estimator=SparGECV())
