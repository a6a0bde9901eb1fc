"""The number of features chosen by folds of the training samples, and nothing else."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_selection import f_classif
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import LinearSVC

import bigfs.selectors.selector_cv
from bigfs import ANOVA, JGSC, MRMR, FRegression, Matrix, SelectorCV, SparGE, Variance
from bigfs.evaluation.choosing import default_sizes, first_within_one_error
from bigfs.evaluation.metrics import scores_of
from bigfs.evaluation.splits import stratified_folds


def planted(rng, n=90, d=60, informative=3, strength=2.5):
    """Classes that each stand out in one feature."""
    y = np.arange(n) % informative
    X = rng.normal(size=(n, d))
    X[:, :informative] += strength * np.eye(informative)[y]
    return X, y


# --- the rule -------------------------------------------------------------------------------------


def test_smallest_number_within_one_standard_error_of_the_best():
    # The best mean is 0.80 ± 0.06. With 10 features the differences to it are −0.04 and −0.06, in
    # the mean −0.05 ± 0.01.
    scores = np.array([[0.5, 0.6], [0.70, 0.80], [0.74, 0.86], [0.72, 0.80]])
    assert [5, 10, 20, 50][first_within_one_error(scores)] == 20
    scores[1] = [0.66, 0.90]  # −0.02 ± 0.06
    assert [5, 10, 20, 50][first_within_one_error(scores)] == 10
    assert [5, 10, 20, 50][first_within_one_error(np.tile(scores.mean(axis=1)[:, None], 4))] == 20


def test_equal_scores_take_the_smallest_number():
    assert [1, 2, 5][first_within_one_error(np.ones((3, 4)))] == 1


@pytest.mark.parametrize(
    ("d", "expected"),
    [
        (1, [1]),
        (4, [1, 2, 4]),
        (60, [1, 2, 5, 10, 20, 50, 60]),
        (500, [1, 2, 5, 10, 20, 50, 100, 200, 500]),
        (10**6, [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]),
    ],
)
def test_default_sizes_end_at_all_features_or_the_limit(d, expected):
    assert default_sizes(d, 1000) == expected
    assert default_sizes(d, 1000, 1) == expected


def test_default_sizes_start_at_the_least_number():
    assert default_sizes(60, 1000, 3) == [3, 5, 10, 20, 50, 60]
    assert default_sizes(4, 1000, 4) == [4]


@pytest.mark.parametrize(
    ("selector", "largest"), [(ANOVA(), 20_000), (SparGE(), 2000), (MRMR(), 500)]
)
def test_the_limit_follows_from_the_work_of_a_larger_number(selector, largest):
    X = Matrix.from_array(sp.csr_array((4, 20_000)))
    assert SelectorCV(selector)._sizes(X)[-1] == largest


# --- against scikit-learn -------------------------------------------------------------------------


def test_scores_are_those_of_dense_folds(rng):
    X, y = planted(rng)
    sizes, folds = [1, 2, 3, 10, 60], StratifiedKFold(4, shuffle=True, random_state=0)
    expected = np.empty((len(sizes), 4))
    for fold, (train, test) in enumerate(folds.split(X, y)):
        order = np.argsort(-f_classif(X[train], y[train])[0], kind="stable")
        for row, m in enumerate(sizes):
            index = np.sort(order[:m])
            svm = LinearSVC(random_state=0, max_iter=10_000).fit(X[train][:, index], y[train])
            expected[row, fold] = svm.score(X[test][:, index], y[test])
    selector = SelectorCV(ANOVA(), sizes=sizes, cv=4).fit(X, y)
    found = [selector.cv_results_[f"split{fold}_test_score"] for fold in range(4)]
    np.testing.assert_allclose(np.transpose(found), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(selector.cv_results_["n_features"], sizes)
    np.testing.assert_allclose(selector.cv_results_["mean_test_score"], expected.mean(axis=1))
    np.testing.assert_allclose(selector.cv_results_["std_test_score"], expected.std(axis=1))
    assert selector.n_features_ == sizes[first_within_one_error(expected)] == 3
    whole = ANOVA(n_features_to_select=3).fit(X, y)
    np.testing.assert_array_equal(selector.selected_, whole.selected_)
    np.testing.assert_array_equal(selector.scores_, whole.scores_)
    assert selector.selector_.n_features_to_select == 3
    np.testing.assert_array_equal(selector.transform(X), whole.transform(X))


def test_model_on_the_chosen_features_predicts_and_scores(rng):
    X, codes = planted(rng, n=240)
    y = np.array(["red", "green", "blue"])[codes]
    selector = SelectorCV(ANOVA(), sizes=[1, 3, 20], cv=3).fit(X[:120], y[:120])
    svm = LinearSVC(random_state=0, max_iter=10_000).fit(X[:120][:, selector.support_], y[:120])
    expected = svm.predict(X[120:][:, selector.support_])
    np.testing.assert_array_equal(selector.predict(X[120:]), expected)
    assert selector.score(X[120:], y[120:]) == np.mean(expected == y[120:]) > 0.8
    assert selector.classes_.tolist() == ["blue", "green", "red"]
    renamed = np.where(y[120:] == "red", "purple", y[120:])  # a class that fit did not see
    assert selector.score(X[120:], renamed) == np.mean(expected == renamed) < 0.8


# --- nothing sees the test part -------------------------------------------------------------------


def test_every_fit_of_the_folds_sees_their_training_rows_only(rng, monkeypatch):
    X, y = planted(rng)
    seen = []

    class Watched(ANOVA):
        def _fit(self, X, y):
            seen.append((self.n_features_to_select, X.shape[0], X.rows(np.arange(X.shape[0]))))
            super()._fit(X, y)

    SelectorCV(Watched(), sizes=[2, 8], cv=3).fit(X, y)
    tests = [test for _, test in StratifiedKFold(3, shuffle=True, random_state=0).split(X, y)]
    assert [(m, n) for m, n, _ in seen] == [(8, 60)] * 3 + [(seen[-1][0], 90)]
    for (_, _, rows), test in zip(seen, tests, strict=False):
        np.testing.assert_array_equal(rows, np.delete(X, test, axis=0))


def test_noise_scores_as_chance_with_the_number_chosen_by_itself():
    """The benchmark benchmarks/noise.py does so at full size."""
    reached = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(100, 400)), rng.permutation(np.arange(100) % 2)
        selector = SelectorCV(ANOVA(), sizes=[1, 5, 20, 100], cv=3)
        reached.append(selector.fit(X[:50], y[:50]).score(X[50:], y[50:]))
    assert abs(np.mean(reached) - 0.5) < 4 * 0.5 / np.sqrt(12 * 50)


# --- whatever X and y come as ---------------------------------------------------------------------


def test_same_choice_whatever_x_comes_as(rng):
    X, y = planted(rng)
    X[np.abs(X) < 0.5] = 0
    forms = [
        X,
        sp.csr_array(X),
        Matrix.from_array(X, tile_rows=20),
        da.from_array(X, chunks=(30, 20)),
    ]
    fitted = [SelectorCV(ANOVA(), sizes=[1, 3, 12], cv=3).fit(form, y) for form in forms]
    for form, selector in zip(forms, fitted, strict=True):
        assert selector.selected_.tolist() == fitted[0].selected_.tolist()
        assert selector.cv_results_["mean_test_score"] == pytest.approx(
            fitted[0].cv_results_["mean_test_score"], abs=1e-12
        )
        assert selector.score(form, y) == fitted[0].score(X, y)


def test_nested_scores_are_scikit_learns(rng):
    X, y = planted(rng)
    selector = SelectorCV(ANOVA(), sizes=[1, 3, 12], cv=3)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    scores = selector.cross_val_score(X, y, cv=3)
    np.testing.assert_array_equal(scores, cross_val_score(selector, X, y, cv=folds))
    matrix = Matrix.from_array(X, tile_rows=20)
    np.testing.assert_allclose(scores, cross_val_score(selector, matrix, y, cv=folds))
    assert scores.mean() > 0.8
    assert not hasattr(selector, "selected_")


def test_real_targets_and_label_sets(rng):
    X = rng.normal(size=(80, 30))
    target = X[:, :2] @ [2.0, -2.0] + rng.normal(size=80)
    real = SelectorCV(FRegression(), sizes=[1, 2, 10], cv=4).fit(X, target)
    assert sorted(real.selected_.tolist()) == [0, 1]
    assert real.score(X, target) > 0.8
    assert real.predict(X).shape == (80,)
    assert SelectorCV(SparGE(embedding="cca"), sizes=[2], cv=4).fit(X, target).n_features_ == 2
    sets = sp.csr_array(X[:, :2] > 0)
    labels = SelectorCV(SparGE(embedding="cca"), sizes=[1, 2], cv=4).fit(X, sets)
    assert sorted(labels.selected_.tolist()) == [0, 1]
    assert labels.predict(X).shape == (80, 2)
    assert labels.score(X, sets) > 0.8


def test_unsupervised_methods_are_scored_with_y(rng):
    X, y = planted(rng, strength=8.0)
    selector = SelectorCV(Variance(), sizes=[1, 3, 10], cv=3).fit(X, y)
    assert sorted(selector.selected_.tolist()) == [0, 1, 2]


def test_metric_chooses_and_scores(rng):
    X = rng.normal(size=(100, 20))
    y = (np.arange(100) % 10 == 0).astype(int)
    X[:, 0] += 2 * y
    selector = SelectorCV(ANOVA(), sizes=[1, 20], cv=5, metric="balanced_accuracy").fit(X, y)
    recalls = [np.mean(selector.predict(X)[y == c] == c) for c in (0, 1)]
    assert selector.score(X, y) == pytest.approx(np.mean(recalls))
    area = SelectorCV(ANOVA(), sizes=[1, 20], cv=5, metric="auc").fit(X, y)
    decision = X[:, area.support_] @ area.model_.coef[0]
    assert area.score(X, y) == pytest.approx(roc_auc_score(y, decision), abs=1e-12)
    assert area.score(X, y) > 0.8


def test_names_and_parameters(rng):
    pd = pytest.importorskip("pandas")
    X, y = planted(rng)
    frame = pd.DataFrame(X, columns=[f"gene{j}" for j in range(60)])
    selector = SelectorCV(SparGE(), sizes=[3, 9], cv=3).set_params(selector__gamma=0.5)
    selector.fit(frame, y)
    assert selector.get_feature_names_out().tolist() == ["gene0", "gene1", "gene2"]
    assert selector.selector_.gamma == 0.5
    assert selector.result_.converged
    assert "3 of 60 features" in selector._repr_html_()


def test_card_says_that_the_number_lies_at_the_end(rng):
    X, y = planted(rng)
    for sizes, is_said in (([1, 3], True), ([1, 3, 50], False)):
        selector = SelectorCV(ANOVA(), sizes=sizes, cv=3).fit(X, y)
        assert selector.n_features_ == 3
        assert ("the largest that was tried" in selector._repr_html_()) is is_said


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (SelectorCV(ANOVA(), sizes=[5, 61]), "sizes must be whole numbers from 1 to 60"),
        (SelectorCV(ANOVA(), sizes=[0]), "sizes must be whole numbers from 1 to 60"),
        (SelectorCV(ANOVA(), sizes=[]), "sizes must be whole numbers from 1 to 60"),
        (SelectorCV(ANOVA(), sizes=[2.5]), "sizes must be whole numbers from 1 to 60"),
        (SelectorCV(JGSC()), "must be a selector of bigfs that chooses columns, .* Got JGSC"),
        (SelectorCV(ANOVA(), metric="r2"), "r2 is no metric of one class per sample"),
        (SelectorCV(ANOVA(), metric="speed"), "metric"),
        (SelectorCV(ANOVA(), cv=1), "cv"),
    ],
)
def test_bad_parameters_are_one_clear_line(selector, message, rng):
    with pytest.raises(ValueError, match=message):
        selector.fit(*planted(rng))


def test_too_few_samples_of_the_classes_are_refused(rng):
    with pytest.raises(ValueError, match="at least two classes with two samples"):
        SelectorCV(ANOVA()).fit(rng.normal(size=(4, 3)), [0, 0, 0, 1])


def test_the_grid_takes_no_more_fits_than_folds_and_one(rng, monkeypatch):
    """Every size of a fold comes from one nested path."""
    X, y = planted(rng)
    fits = []

    class Counted(ANOVA):
        def _fit(self, X, y):
            fits.append(X.shape)
            super()._fit(X, y)

    selector = SelectorCV(Counted(), cv=5).fit(X, y)
    assert len(fits) == 6
    assert selector.cv_results_["n_features"].tolist() == bigfs.selectors.selector_cv.default_sizes(
        60, 60
    )


def test_more_kept_features_than_are_tried_by_default_are_the_only_size():
    assert default_sizes(2000, 500, least=600) == [600]
    assert default_sizes(2000, 1000, least=600) == [600, 1000]


@pytest.mark.parametrize(
    ("y", "required"),
    [
        (np.full(9, 2.5), "a target that varies"),
        (np.zeros((9, 2), dtype=int), "a label that some samples have"),
        (np.arange(9), "at least two classes with two samples"),
    ],
    ids=["real", "labels", "classes"],
)
def test_folds_say_what_they_need_of_each_kind_of_target(rng, y, required):
    with pytest.raises(ValueError, match=f"folds need {required}"):
        stratified_folds(Matrix.from_array(rng.random((9, 2))), y)


def test_without_a_labeled_test_sample_the_scores_are_missing_without_a_warning():
    scores = scores_of(np.zeros((3, 4)), "class")
    assert len(scores) == 4
    assert np.isnan(list(scores.values())).all()


def test_samples_before_those_that_are_tested_train_a_fold(rng, monkeypatch):
    """The first feature is the time, so that a fold tells it."""
    times, y = rng.permutation(90).astype(float), np.arange(90) % 2
    X = np.column_stack([times, rng.random((90, 6)) + y[:, None]])
    module = bigfs.selectors.selector_cv
    seen, choose = [], module.choose_size
    monkeypatch.setattr(
        module, "choose_size", lambda folds, *rest: seen.extend(folds) or choose(folds, *rest)
    )
    model = SelectorCV(ANOVA(), sizes=[1, 3], cv=3)
    model.fit(X, y, times=times)
    assert len(seen) == 3
    assert len(model.cross_val_score(X, y, cv=2, times=times)) == 2
    assert len(seen) == 3 + 2 * 3
    for fold in seen:
        before, after = (part @ np.eye(7)[0] for part in (fold.X_train, fold.X_test))
        assert before.max() < after.min()
    with pytest.raises(ValueError, match="a time for each of 90 samples"):
        model.fit(X, y, times=times[1:])
