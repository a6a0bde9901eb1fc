"""What folds and subsamples hand to a selector: labels and not codes, and rows of all samples."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from bigfs import (
    ANOVA,
    JHLSR,
    RLSR,
    AutoSelector,
    SelectorCV,
    SparGE,
    SparGECV,
    stability,
)
from bigfs.evaluation.choosing import first_within_one_error, record, score_orders
from bigfs.evaluation.splits import stratified_folds
from bigfs.matrix import Matrix
from bigfs.selectors import auto


@pytest.fixture
def three(rng):
    """Classes 1, 2 and 3, of which feature 4 shows the second and feature 9 the third."""
    y = np.repeat([1, 2, 3], 30)
    X = rng.normal(size=(90, 12))
    X[:, 4] += (y == 2) * 3
    X[:, 9] += (y == 3) * 3
    return X, y


@pytest.mark.parametrize("chooser", [SelectorCV, SparGECV])
def test_a_fold_without_the_last_class_is_counted(rng, chooser):
    y = rng.integers(0, 2, 90)
    X = rng.normal(size=(90, 8))
    X[:, 2] += 2 * y
    groups = np.arange(90) // 15
    y[:5] = 2  # in the first group alone
    arguments = {"sizes": [1, 2], "cv": 3} if chooser is SelectorCV else {"n_features_to_select": 1}
    selector = chooser(**({"selector": ANOVA()} if chooser is SelectorCV else {}), **arguments)
    assert selector.fit(X, y, groups=groups).selected_[0] == 2
    times = np.arange(90)
    y = np.where(times < 75, y % 2, 2)  # a class that begins late
    assert selector.fit(X, y, times=times).selected_[0] == 2


@pytest.mark.parametrize("names", [[1, 2, 3], ["a", "b", "c"]])
def test_class_weights_are_by_label_in_folds_and_subsamples(three, names):
    X, y = three
    y = np.array(names)[y - 1]
    selector = SparGE(n_features_to_select=1, class_weight={names[1]: 1000.0})
    assert selector.fit(X, y).selected_ == [4]
    assert SelectorCV(selector, sizes=[1]).fit(X, y).selected_ == [4]
    assert np.argmax(stability(selector, X, y, n_subsamples=6).frequencies) == 4
    assert SelectorCV(selector, sizes=[1]).cross_val_score(X, y, cv=3).shape == (3,)


def test_the_selector_of_a_choice_knows_the_labels(three):
    X, y = three
    y = np.array(["egg", "ham", "spam"])[y - 1]
    chooser = SelectorCV(RLSR(), sizes=[2], cv=3).fit(X, y)
    assert chooser.selector_.classes_.tolist() == ["egg", "ham", "spam"]
    assert set(chooser.selector_.predict(X)) <= set(y)


def test_cv_groups_and_times_are_those_of_all_samples(three):
    X, y = three
    y = np.where(np.arange(90) % 4 == 0, -1, y)
    half = np.arange(90) % 2
    cv = [(np.flatnonzero(half == a), np.flatnonzero(half != a)) for a in (0, 1)]
    labeled = y > 0
    number = np.cumsum(labeled) - 1
    expected = SparGECV(
        n_features_to_select=2,
        gammas=[1.0],
        cv=[tuple(number[rows[labeled[rows]]] for rows in fold) for fold in cv],
    ).fit(X[labeled], y[labeled])
    X = Matrix.from_array(X)
    found = SparGECV(n_features_to_select=2, gammas=[1.0], cv=cv).fit(X, y)
    np.testing.assert_array_equal(found.losses_, expected.losses_)
    for embedding in ("cca", "hsl", "sda", "lda"):
        selector = SparGECV(n_features_to_select=2, embedding=embedding, gammas=[0.5, 1.0])
        assert selector.fit(X, y, groups=np.arange(90) % 9).losses_.shape == (2, 3)
        assert np.isfinite(selector.fit(X, y, times=np.arange(90) % 30).losses_).all()


@pytest.mark.parametrize(
    ("y", "groups", "message"),
    [
        ([0] * 8 + [1], None, "two classes with two samples each"),
        ([0, 1] * 4 + [1], [0, 1] * 4 + [1], "samples in two groups each"),
    ],
)
def test_a_target_without_folds_is_refused_in_a_sentence(rng, y, groups, message):
    X = rng.normal(size=(9, 4))
    with pytest.raises(ValueError, match=message):
        SparGECV(n_features_to_select=2).fit(X, np.array(y), groups=groups)


def test_few_samples_have_fewer_folds(rng):
    selector = SparGECV(n_features_to_select=1).fit(rng.normal(size=(4, 3)), [0, 0, 1, 1])
    assert "split1_test_score" in selector.cv_results_
    assert "split2_test_score" not in selector.cv_results_


def test_a_fold_that_cannot_be_scored_does_not_count(rng):
    """Two of the three groups are of one class, so that they have no AUC."""
    y = np.array([0] * 20 + [1] * 20 + [0, 1] * 20)
    X = rng.normal(size=(80, 6)) + 2 * y[:, None] * (np.arange(6) == 1)
    groups = np.repeat([0, 1, 2, 2], 20)
    chooser = SelectorCV(ANOVA(), sizes=[1, 2], cv=3, metric="auc").fit(X, y, groups=groups)
    assert np.isfinite(chooser.cv_results_["mean_test_score"]).all()
    by_folds = SparGECV(n_features_to_select=1, scoring="auc").fit(X, y, groups=groups)
    assert np.isfinite(by_folds.best_score_)


def test_a_candidate_that_fails_in_a_fold_is_out(three, monkeypatch):
    X, y = three
    splits = stratified_folds(Matrix.from_array(X), y - 1, 3)

    def fails(number, split):
        if number == 2:
            raise ValueError("the embedding is empty")
        return np.array([4, 9])

    found = score_orders([fails, lambda *_: np.array([4, 9])], splits, [1, 2], "accuracy")
    assert np.isnan(found.values[0]).all()
    assert np.isfinite(found.values[1]).all()
    assert found.failures == {0: "the embedding is empty"}
    assert first_within_one_error(found.values.mean(axis=1)) == 1
    assert np.isnan(record(found.values.mean(axis=1), {})["mean_test_score"][0])
    for orders in ([fails], [fails, fails]):  # there is no other, so the fold is out
        values = score_orders(orders, splits, [1, 2], "accuracy").values[-1]
        assert np.isnan(values).all(axis=0).tolist() == [False, True, False]

    def never(number, split):
        raise ValueError("the embedding is empty")

    with pytest.raises(ValueError, match="the embedding is empty"):
        score_orders([never, never], splits, [1, 2], "accuracy")


def test_auto_goes_on_where_a_candidate_fails(rng, monkeypatch):
    Y = rng.random((60, 3)) < 0.4
    X = rng.normal(size=(60, 8)) + 3 * np.pad(Y, ((0, 0), (0, 5)))
    monkeypatch.setitem(
        auto.CANDIDATES,
        "multilabel",
        (auto.Candidate("sparge-cca", {}), auto.Candidate("anova", {"n_features_to_select": 0})),
    )
    original = auto.Candidate.make

    def make(self, **shared):
        made = original(self, **shared)
        return made.set_params(n_features_to_select=0) if self.method == "anova" else made

    monkeypatch.setattr(auto.Candidate, "make", make)
    selector = AutoSelector(n_features_to_select=3).fit(X, Y.astype(int))
    assert selector.method_ == "sparge-cca"
    first, second = selector.cv_results_["failures"]
    assert first == ""
    assert "The 'n_features_to_select' parameter of ANOVA must be" in second


@pytest.mark.parametrize("what", [stability, lambda one, X, y: SelectorCV(one).fit(X, y)])
def test_a_graph_of_all_samples_is_refused_for_parts(three, what):
    X, y = three
    A = sp.csr_array((y[:, None] == y).astype(float))
    with pytest.raises(ValueError, match="graph is that of all samples"):
        what(SparGE(embedding="lpp", graph=A), X, y)


def test_a_fit_leaves_nothing_of_the_fit_before(three):
    X, y = three
    selector = JHLSR(n_features_to_select=2).fit(X, y)
    assert hasattr(selector, "classes_")
    selector.set_params(mode="unsupervised").fit(X)
    assert not hasattr(selector, "classes_")
    chooser = SparGECV(n_features_to_select=2, gammas=[1.0]).fit(X, y)
    assert hasattr(chooser, "losses_")
    assert not hasattr(chooser.set_params(gammas=None).fit(X, y), "losses_")
    assert clone(chooser).get_params() == chooser.get_params()
