"""SparGECV: parameters chosen together by a score of the folds."""

import numpy as np
import pytest
from sklearn import metrics
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC

from bigfs import Matrix, SparGE, SparGECV
from bigfs.matrix import gathering
from bigfs.selectors.sparge import cross_validation
from bigfs.selectors.sparge.cross_validation import EndOfGridWarning

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::bigfs.selectors.sparge.cross_validation.EndOfGridWarning"),
]


@pytest.fixture
def noisy(text):
    """`text` with a sixth of the labels drawn anew, so that candidates differ."""
    X, y = text
    rng = np.random.default_rng(1)
    return X, np.where(rng.random(120) < 1 / 6, rng.integers(0, 4, 120), y)


def test_the_scores_are_those_of_fits_on_the_folds(noisy):
    """Each candidate is fitted by itself on the training samples, in the units of all samples."""
    X, y = noisy
    selector = SparGECV(n_features_to_select=3, cv=2, tol=1e-3, class_weight="balanced").fit(X, y)
    results = selector.cv_results_
    assert len(results["params"]) == 3

    def unit(A):
        dense = A.toarray().astype(float)
        return np.mean(np.sum((dense - dense.mean(axis=0)) ** 2, axis=1))

    # the class weights are those of all samples
    weights = dict(enumerate(120 / (4 * np.bincount(y))))
    folds = StratifiedKFold(2, shuffle=True, random_state=0).split(np.zeros(120), y)
    for k, (train, test) in enumerate(folds):
        for parameters, found in zip(
            results["params"], results[f"split{k}_test_score"], strict=True
        ):
            alone = SparGE(n_features_to_select=3, tol=1e-3, **parameters)
            alone.set_params(gamma=unit(X) / unit(X[train]), class_weight=weights)
            chosen = np.sort(alone.fit(X[train], y[train]).selected_)
            classifier = LinearSVC(random_state=0, max_iter=10_000).fit(
                X[train][:, chosen], y[train]
            )
            assert found == pytest.approx(classifier.score(X[test][:, chosen], y[test])), parameters
    np.testing.assert_allclose(
        results["mean_test_score"],
        (results["split0_test_score"] + results["split1_test_score"]) / 2,
    )


@pytest.mark.parametrize("scoring", [None, "accuracy"])
def test_the_largest_gamma_within_one_standard_error_is_fitted_on_all_samples(noisy, scoring):
    X, y = noisy
    gammas = (0.03, 3.0, 0.3)
    selector = SparGECV(
        n_features_to_select=5, gammas=gammas, cv=3, loss="squared_hinge", scoring=scoring
    ).fit(X, y)
    results = selector.cv_results_
    scores = np.stack([results[f"split{k}_test_score"] for k in range(3)], axis=1)
    differences = scores - scores[scores.mean(axis=1).argmax()]
    error = differences.std(axis=1, ddof=1) / np.sqrt(3)
    near = differences.mean(axis=1) >= -error
    assert selector.gamma_ == max(np.array(gammas)[near])
    assert selector.best_params_ == results["params"][gammas.index(selector.gamma_)]
    same = SparGE(n_features_to_select=5, **selector.best_params_).fit(X, y)
    np.testing.assert_array_equal(selector.scores_, same.scores_)
    tiled = clone(selector).fit(Matrix.from_array(X, tile_rows=17, tile_columns=11), y)
    np.testing.assert_array_equal(tiled.scores_, selector.scores_)


def test_a_path_makes_one_choice(noisy):
    X, y = noisy
    selector = SparGECV(gammas=(0.1, 3.0), cv=2)
    path = selector.fit_path(X, y, [2, 9])
    assert path[2].best_params_ == path[9].best_params_
    for m in (2, 9):
        same = SparGE(n_features_to_select=m, **path[m].best_params_).fit(X, y)
        np.testing.assert_array_equal(path[m].selected_, same.selected_)
    with pytest.raises(ValueError, match="give one or more"):
        selector.fit_path(X, y, [])
    with pytest.raises(ValueError, match="give one or more"):
        SparGE().fit_path(X, y, [])


def test_three_candidates_are_tried_for_classes_where_nothing_is_asked_for(noisy):
    X, y = noisy
    selector = SparGECV(n_features_to_select=5).fit(X, y)
    results = selector.cv_results_
    pairs = [(one["loss"], one["ranking"]) for one in results["params"]]
    short = [("squared", "elimination"), ("squared_hinge", "elimination"), ("squared", "svm")]
    assert pairs == short
    assert {one["gamma"] for one in results["params"]} == {selector.gamma_} == {1.0}
    scores = np.stack([results[f"split{k}_test_score"] for k in range(3)], axis=1)
    differences = scores - scores[scores.mean(axis=1).argmax()]
    error = differences.std(axis=1, ddof=1) / np.sqrt(3)
    first = int(np.flatnonzero(differences.mean(axis=1) >= -error)[0])
    assert selector.best_params_ == results["params"][first]
    same = SparGE(n_features_to_select=5, **selector.best_params_).fit(X, y)
    np.testing.assert_array_equal(selector.scores_, same.scores_)
    assert isinstance(selector, SparGECV)
    assert not isinstance(selector, SparGE)
    for asked in ({"loss": "squared_hinge"}, {"ranking": "svm"}, {"ranking": "weights"}):
        assert len(SparGECV(n_features_to_select=5, **asked).fit(X, y).losses_) == 1


@pytest.mark.parametrize("scoring", [None, "balanced_accuracy", "macro_f1", "auc"])
def test_the_score_chooses_one_candidate_for_all_sizes_of_a_path(noisy, scoring):
    X, y = noisy
    path = SparGECV(cv=2, scoring=scoring).fit_path(X, y, [9, 2])
    assert path[2].best_params_ == path[9].best_params_
    folds = StratifiedKFold(2, shuffle=True, random_state=0).split(np.zeros(120), y)
    expected = []
    for train, test in folds:  # of the first candidate, in the units of all samples
        data = X[train].toarray().astype(float), X.toarray().astype(float)
        units = [np.mean(np.sum((A - A.mean(axis=0)) ** 2, axis=1)) for A in data]
        sizes = np.bincount(y)
        weights = dict(enumerate(sizes**-0.5 * 120 / np.sqrt(sizes).sum()))
        one = SparGE(n_features_to_select=9, gamma=units[1] / units[0], class_weight=weights)
        order = one.fit(X[train], y[train]).selected_
        for m in (2, 9):
            Z = X[:, np.sort(order[:m])]
            classifier = LinearSVC(random_state=0, max_iter=10_000).fit(Z[train], y[train])
            decision, answer = classifier.decision_function(Z[test]), classifier.predict(Z[test])
            expected.append(
                {
                    None: lambda t, p, _: metrics.accuracy_score(t, p),
                    "balanced_accuracy": lambda t, p, _: metrics.balanced_accuracy_score(t, p),
                    "macro_f1": lambda t, p, _: metrics.f1_score(t, p, average="macro"),
                    "auc": lambda t, _, f: np.mean(
                        [metrics.roc_auc_score(t == c, f[:, c]) for c in range(4)]
                    ),
                }[scoring](y[test], answer, decision)
            )
    found = path[9].cv_results_["mean_test_score"][0]
    assert found == pytest.approx(np.mean(expected), rel=1e-9)


@pytest.mark.parametrize("ranking", ["weights", "svm"])
def test_the_held_out_loss_scores_the_features_of_the_ranking(noisy, ranking, change):
    X, y = noisy
    selector = SparGECV(n_features_to_select=6, gammas=(0.3, 3.0), cv=2, ranking=ranking)
    found = clone(selector).fit(X, y)
    other = clone(selector).set_params(ranking="elimination").fit(X, y)
    assert (found.losses_ != other.losses_).any()
    change(cross_validation.LARGE_FOLDS, 0)
    one_by_one = clone(selector).fit(X, y).losses_
    tried = np.isfinite(one_by_one)
    np.testing.assert_array_equal(one_by_one[tried], found.losses_[tried])


@pytest.mark.parametrize("scoring", [None, "accuracy"])
def test_a_choice_at_an_end_of_the_grid_is_said(text, scoring):
    X, y = text
    selector = SparGECV(n_features_to_select=8, gammas=(1e4, 1e5, 1e6), cv=2, scoring=scoring)
    with pytest.warns(
        EndOfGridWarning, match=r"is the (least|largest) of gammas=\[10000.0, .* add"
    ):
        selector.fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": ["squared", "squared_hinge"]}, "loss"),
        ({"scoring": "exactness"}, "scoring"),
        ({"scoring": "accuracy", "embedding": "pca"}, "scoring needs embedding='lda'"),
        ({"ranking": "svm", "embedding": "pca"}, "ranking=.* needs embedding='lda'"),
        ({"gammas": []}, "one or more positive numbers"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(text, parameters, message):
    X, y = text
    with pytest.raises(ValueError, match=message):
        SparGECV(**parameters).fit(X, y)


def test_cv_is_what_scikit_learn_takes(noisy):
    X, y = noisy
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, y))
    expected = SparGECV(n_features_to_select=3, gammas=(0.3, 1.0), cv=3).fit(X, y)
    for cv in (np.int64(3), folds, StratifiedKFold(3, shuffle=True, random_state=0)):
        fitted = SparGECV(n_features_to_select=3, gammas=(0.3, 1.0), cv=cv).fit(X, y)
        np.testing.assert_array_equal(fitted.losses_, expected.losses_)
    assert SparGECV(n_features_to_select=3, gammas=(1.0,), cv=None).fit(X, y).losses_.shape[1] == 5


def test_candidates_of_two_losses_share_one_matrix(noisy, change):
    """With unlabeled samples, and with a small matrix that is not in this process."""
    X, y = noisy
    few = np.where(np.arange(120) % 3 == 0, -1, y)
    labeled = few >= 0
    found = SparGECV(n_features_to_select=5).fit(Matrix.from_array(X), few)
    expected = SparGECV(n_features_to_select=5).fit(X[labeled], few[labeled])
    np.testing.assert_array_equal(found.selected_, expected.selected_)
    expected = SparGECV(n_features_to_select=5).fit(X, y)
    change(gathering.MIN_NNZ, 0)
    matrix = Matrix.from_array(X, tile_rows=40)
    matrix.local = False
    found = SparGECV(n_features_to_select=5).fit(matrix, y)
    assert found.best_params_ == expected.best_params_
    np.testing.assert_array_equal(found.selected_, expected.selected_)


def test_the_log_loss_is_that_of_a_logistic_regression(noisy):
    X, y = noisy
    selector = SparGECV(n_features_to_select=4, cv=2, gammas=(1.0,), scoring="neg_log_loss")
    (found,) = selector.fit(X, y).cv_results_["mean_test_score"]
    assert -np.log(4) < found < 0


def test_samples_before_those_that_are_tested_train_a_fold(noisy):
    X, y = noisy
    folds, times = [], np.random.default_rng(0).permutation(120)

    class Noted(SparGECV):
        def _folds(self, *given):
            folds[:] = super()._folds(*given)
            return folds

    selector = Noted(n_features_to_select=4, gammas=[0.3, 1.0], cv=3)
    selector.fit(X, y, times=times)
    assert len(folds) == 3
    for train, test in folds:
        assert times[train].max() < times[test].min()
    path = selector.fit_path(X, y, [4], times=times)
    np.testing.assert_array_equal(path[4].losses_, selector.losses_)
    with pytest.raises(ValueError, match="a time for each of 120 samples"):
        selector.fit(X, y, times=times[1:])
