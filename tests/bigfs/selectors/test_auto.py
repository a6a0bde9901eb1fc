"""AutoSelector: the candidates of each kind of target, the folds that decide, and what is told."""

import pickle

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import Ridge
from sklearn.metrics import f1_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bigfs import MRMR, AutoSelector, Matrix, SelectorCV, SparGE, engine
from bigfs.evaluation.choosing import Scores, recorded_scores
from bigfs.selectors import auto
from bigfs.selectors.auto import CANDIDATES
from bigfs.selectors.registry import decided_by
from bigfs.selectors.trials import trials
from tests.helpers.daily import daily

# the automatic choice says so where −1 stands beside arrays
pytestmark = pytest.mark.filterwarnings("ignore:.* samples have the label -1:UserWarning")


def columns_of(result):
    """The scores of the candidates by fold."""
    return recorded_scores(result)


def first_near_best(scores):
    """The rule of one standard error, of the difference on the same folds."""
    differences = scores - scores[scores.mean(axis=1).argmax()]
    errors = differences.std(axis=1, ddof=1) / np.sqrt(scores.shape[1])
    return next(k for k, d in enumerate(differences) if d.mean() >= -errors[k])


@pytest.fixture
def classes():
    """150 × 20 in three classes."""
    rng = np.random.default_rng(1)
    y = np.arange(150) % 3
    X = rng.normal(size=(150, 20))
    X[:, :3] += 1.5 * np.eye(3)[y]
    X[:, 3:6] += np.eye(3)[y]
    return X, y


@pytest.fixture
def few(classes):
    X, y = classes
    return X, np.where(np.random.default_rng(2).random(150) < 0.3, y, -1)


@pytest.fixture
def real():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(90, 12))
    X[:, 5] = X[:, 4] + 0.3 * rng.normal(size=90)
    return X, X[:, 4] - 0.5 * X[:, 7] + rng.normal(size=90)


@pytest.fixture
def labels():
    return make_multilabel_classification(120, 16, n_classes=4, random_state=0)


# --- the candidates of each target ----------------------------------------------------------------


def test_classes_take_the_default_without_folds(classes):
    X, y = classes
    selector = AutoSelector(n_features_to_select=4, scoring="macro_f1").fit(X, y)
    expected = SparGE(n_features_to_select=4).fit(X, y)
    assert selector.cv_results_["method"] == [selector.method_] == ["sparge-lda"]
    assert selector.reason_.startswith("the only candidate for classes")
    np.testing.assert_array_equal(selector.scores_, expected.scores_)
    np.testing.assert_array_equal(selector.selected_, expected.selected_)
    assert selector.result_.converged


def test_few_labels_are_decided_between_the_labeled_part_and_all(few):
    X, y = few
    selector = AutoSelector(n_features_to_select=4).fit(X, y)
    assert selector.cv_results_["method"] == ["sparge-lda", "sparge-sda"]
    labeled = np.flatnonzero(y >= 0)
    folds = StratifiedKFold(3, shuffle=True, random_state=0).split(labeled, y[labeled])
    expected = []
    for _, test in folds:
        hidden = y.copy()
        hidden[labeled[test]] = -2
        train = hidden != -2  # the unlabeled samples stay
        right = []
        for one in (SparGE(), SparGE(embedding="sda")):
            part = Matrix.from_array(X[train]), y[train]
            chosen = one.set_params(n_features_to_select=4).fit(*part).selected_
            use = np.flatnonzero(hidden >= 0)
            classifier = LinearSVC(random_state=0, max_iter=10_000).fit(X[use][:, chosen], y[use])
            rows = labeled[test]
            right.append(np.mean(classifier.predict(X[rows][:, chosen]) == y[rows]))
        expected.append(right)
    np.testing.assert_allclose(columns_of(selector.cv_results_), np.transpose(expected))
    assert selector.best_index_ == first_near_best(np.transpose(expected))
    fitted = CANDIDATES["few"][selector.best_index_].make(n_features_to_select=4)
    fitted.fit(Matrix.from_array(X), y)
    np.testing.assert_array_equal(selector.selected_, fitted.selected_)
    # with labels for half of the samples or more it is a matter of classes
    most = np.where(np.arange(150) % 4 == 0, -1, np.arange(150) % 3)
    assert AutoSelector(n_features_to_select=4).fit(X, most).method_ == "sparge-lda"


def test_real_targets_are_decided_by_the_ridge_that_scores(real):
    X, y = real
    selector = AutoSelector(n_features_to_select=2).fit(X, y)
    expected = []
    for train, test in KFold(3, shuffle=True, random_state=0).split(X):
        scores = []
        for one in (SparGE(embedding="cca"), MRMR(relevance="f")):
            chosen = one.set_params(n_features_to_select=2).fit(X[train], y[train]).selected_
            ridge = make_pipeline(StandardScaler(with_mean=False), Ridge())
            ridge.fit(X[train][:, chosen], y[train])
            residual = np.sum((y[test] - ridge.predict(X[test][:, chosen])) ** 2)
            scores.append(1 - residual / np.sum((y[test] - y[train].mean()) ** 2))
        expected.append(scores)
    np.testing.assert_allclose(columns_of(selector.cv_results_), np.transpose(expected))
    assert selector.best_index_ == first_near_best(np.transpose(expected))
    assert selector.scoring_ == "r2"
    assert selector.result_.stats["target"] == "real"
    rounded = AutoSelector(n_features_to_select=2, target="real").fit(X, np.round(3 * y))
    assert rounded.cv_results_["method"] == ["sparge-cca", "mrmr-f"]


def test_label_sets_are_decided_by_the_f1_of_their_classifiers(labels):
    X, Y = labels
    selector = AutoSelector(n_features_to_select=5, scoring="macro_f1").fit(X, Y)
    expected = []
    for train, test in KFold(3, shuffle=True, random_state=0).split(X):
        scores = []
        for embedding in ("cca", "hsl"):
            one = SparGE(embedding=embedding, n_features_to_select=5).fit(X[train], Y[train])
            classifiers = OneVsRestClassifier(LinearSVC(random_state=0, max_iter=100_000))
            chosen = np.sort(one.selected_)
            classifiers.fit(X[train][:, chosen], Y[train])
            scores.append(
                f1_score(Y[test], classifiers.predict(X[test][:, chosen]), average="macro")
            )
        expected.append(scores)
    np.testing.assert_allclose(columns_of(selector.cv_results_), np.transpose(expected), atol=0.02)
    assert selector.cv_results_["method"] == ["sparge-cca", "sparge-hsl"]
    assert selector.best_index_ == first_near_best(columns_of(selector.cv_results_))
    in_csr = AutoSelector(n_features_to_select=5, scoring="macro_f1").fit(X, sp.csr_array(Y))
    np.testing.assert_array_equal(in_csr.selected_, selector.selected_)


@pytest.mark.parametrize("y", [None, np.full(150, -1)])
def test_nothing_is_decided_without_a_target(classes, y):
    X, _ = classes
    selector = AutoSelector(n_features_to_select=4).fit(X, y)
    expected = SparGE(embedding="lpp", n_features_to_select=4).fit(X)
    np.testing.assert_array_equal(selector.selected_, expected.selected_)
    assert selector.method_ == "sparge-lpp"
    assert selector.scoring_ is None
    assert selector.reason_ == "the only candidate, because no sample has a label to decide by"
    (only,) = trials(selector)
    assert (only.candidate, only.score, only.is_chosen) == ("sparge-lpp", None, True)


# --- what decides ---------------------------------------------------------------------------------


def test_the_score_that_is_asked_for_decides(few):
    found = {}
    for scoring in ("accuracy", "balanced_accuracy"):
        selector = AutoSelector(n_features_to_select=4, scoring=scoring).fit(*few)
        found[scoring] = columns_of(selector.cv_results_)
        assert selector.best_index_ == first_near_best(found[scoring])
        assert scoring.replace("_", " ") in selector.reason_
    assert not np.array_equal(*found.values())


@pytest.mark.parametrize("scoring", ["auc", "neg_log_loss"])
def test_scores_of_decision_values_decide_too(few, scoring):
    selector = AutoSelector(n_features_to_select=4, scoring=scoring).fit(*few)
    scores = columns_of(selector.cv_results_)
    low, high = (0.5, 1) if scoring == "auc" else (-2, 0)
    assert ((low < scores) & (scores <= high)).all()
    assert selector.best_index_ == first_near_best(scores)


@pytest.mark.parametrize(
    ("later", "best"), [([0.8, 0.7, 0.9], 0), ([0.85, 0.75, 0.95], 1), ([0.95, 0.6, 0.95], 0)]
)
def test_the_first_within_one_error_is_taken(real, monkeypatch, later, best):
    """The first scores 0.8, 0.7 and 0.9. A later one must be better by more than an error."""
    values = np.array([[0.8, 0.7, 0.9], later])[:, None]
    found = Scores(values, np.zeros(2), {}, 0)
    monkeypatch.setattr(auto, "score_orders", lambda *_, **__: found)
    selector = AutoSelector(n_features_to_select=2).fit(*real)
    assert (selector.best_index_, selector.method_) == (best, ["sparge-cca", "mrmr-f"][best])


def test_all_numbers_have_one_method(real, classes):
    for X, y in (real, classes):
        path = AutoSelector().fit_path(X, y, [9, 2])
        assert list(path) == [9, 2]
        assert path[9].method_ == path[2].method_
        for m, one in path.items():
            assert len(one.selected_) == one.support_.sum() == one.n_features_to_select == m
            chosen = CANDIDATES["real" if y is real[1] else "class"][one.best_index_]
            expected = chosen.make(n_features_to_select=m).fit(X, y)
            np.testing.assert_array_equal(one.selected_, expected.selected_)


def test_costs_and_errors_are_told(few):
    selector = AutoSelector(n_features_to_select=4).fit(*few)
    scores, told = columns_of(selector.cv_results_), trials(selector)
    assert [one.candidate for one in told] == ["sparge-lda", "sparge-sda"]
    assert all(one.seconds > 0 for one in told)
    assert [one.score for one in told] == scores.mean(axis=1).tolist()
    np.testing.assert_allclose(
        [one.error for one in told], scores.std(axis=1, ddof=1) / np.sqrt(scores.shape[1])
    )
    assert max(one.difference for one in told) == 0
    card = selector._repr_html_()
    assert selector.reason_ in card
    assert f"sparge-sda: {told[1].score:.4f} ± {told[1].error:.4f} in " in card


# --- where the first is taken without folds -------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "limit", "words"),
    [
        ("labels", auto.LARGE_TARGETS, "the embedding of the samples takes"),
        ("real", auto.LARGE_GATHERED, "the columns of each fold take"),
        ("few", auto.LARGE_GRAPH, "the neighbor graph of 150 samples takes long"),
    ],
)
def test_what_costs_much_is_not_searched(request, change, kind, limit, words):
    X, y = request.getfixturevalue(kind)
    change(limit, 100)
    selector = AutoSelector(n_features_to_select=4).fit(X, y)
    assert selector.reason_.startswith(f"the first candidate, without folds, because {words}")
    first = CANDIDATES[{"labels": "multilabel"}.get(kind, kind)][0]
    expected = first.make(n_features_to_select=4).fit(Matrix.from_array(X), y)
    np.testing.assert_array_equal(selector.selected_, expected.selected_)
    assert len(trials(selector)) == 1


def test_too_few_samples_for_folds_are_told(classes):
    X, _ = classes
    y = np.full(150, -1)
    y[:3] = [0, 1, 2]
    selector = AutoSelector(n_features_to_select=4).fit(X, y)
    assert (
        selector.reason_
        == "the first candidate, because too few samples have a label for two folds"
    )
    assert selector.method_ == "sparge-lda"


# --- groups, times, and what is shared with the other selectors -----------------------------------


@pytest.mark.parametrize("kind", ["few", "real"])
def test_groups_and_times_shape_the_folds(request, kind):
    X, y = request.getfixturevalue(kind)
    known = {"groups": np.arange(len(y)) // 6, "times": np.arange(len(y)) // 2}
    plain = columns_of(AutoSelector(n_features_to_select=3).fit(X, y).cv_results_)
    for name, values in known.items():
        selector = AutoSelector(n_features_to_select=3)
        found = columns_of(selector.fit(X, y, **{name: values}).cv_results_)
        assert found.shape == plain.shape
        assert not np.array_equal(found, plain)
        path = AutoSelector().fit_path(X, y, [3], **{name: values})
        np.testing.assert_array_equal(columns_of(path[3].cv_results_), found)
        with pytest.raises(ValueError, match=f"{name} must hold"):
            selector.fit(X, y, **{name: values[1:]})


def test_the_number_of_features_may_be_chosen_around_it(classes):
    X, y = classes
    selector = SelectorCV(AutoSelector(), sizes=[1, 3, 6], cv=3).fit(X, y)
    assert selector.selector_.method_ == "sparge-lda"
    assert len(selector.selected_) == selector.n_features_
    assert selector.score(X, y) > 0.7


def test_kept_and_forbidden_features_hold_for_every_candidate(few):
    X, y = few
    selector = AutoSelector(n_features_to_select=4, keep=[19], forbid=[0, 1]).fit(X, y)
    assert selector.selected_[0] == 19
    assert not {0, 1} & set(selector.selected_)


@pytest.mark.parametrize("kind", daily(["classes", "few", "real", "labels"], "classes", "real"))
def test_tiles_and_workers_decide_nothing(request, kind):
    X, y = request.getfixturevalue(kind)
    X = np.asarray(X, dtype=np.float64)
    expected = AutoSelector(n_features_to_select=4).fit(X, y)
    tiled = AutoSelector(n_features_to_select=4).fit(Matrix.from_array(X, tile_rows=17), y)
    lazy = AutoSelector(n_features_to_select=4).fit(da.from_array(X, chunks=(40, 5)), y)
    for found in (tiled, lazy):
        assert found.method_ == expected.method_
        assert found.best_params_ == expected.best_params_
        np.testing.assert_array_equal(found.selected_, expected.selected_)
        np.testing.assert_allclose(
            columns_of(found.cv_results_), columns_of(expected.cv_results_), atol=1e-9
        )


@pytest.mark.process
def test_workers_decide_nothing(few):
    X, y = few
    expected = AutoSelector(n_features_to_select=4).fit(X, y)
    with engine.cluster(workers=2):
        found = AutoSelector(n_features_to_select=4).fit(da.from_array(X, chunks=(40, 20)), y)
    np.testing.assert_array_equal(found.selected_, expected.selected_)
    np.testing.assert_allclose(
        columns_of(found.cv_results_), columns_of(expected.cv_results_), atol=1e-9
    )


def test_a_fitted_one_is_pickled(real):
    selector = AutoSelector(n_features_to_select=2).fit(*real)
    again = pickle.loads(pickle.dumps(selector))  # noqa: S301, our own
    np.testing.assert_array_equal(again.transform(real[0]), selector.transform(real[0]))
    assert again.reason_ == selector.reason_


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"scoring": "r2"}, "r2 is no metric of one class per sample"),
        ({"scoring": "speed"}, "scoring"),
        ({"cv": 1}, "cv"),
        ({"target": "few"}, "target"),
    ],
)
def test_wrong_parameters_are_named(classes, parameters, message):
    with pytest.raises(ValueError, match=message):
        AutoSelector(n_features_to_select=2, **parameters).fit(*classes)


def test_several_real_targets_have_one_candidate(classes):
    X, _ = classes
    selector = AutoSelector(n_features_to_select=2).fit(X, X[:, :2])
    assert selector.method_ == "sparge-cca"
    assert set(selector.selected_) == {0, 1}
    assert selector.reason_ == "the only candidate for several real targets"


def test_a_metric_reaches_the_methods_that_decide_by_one():
    assert decided_by("auto", {}, "auc") == {"scoring": "auc"}
    assert decided_by("sparge-lda-cv", {"cv": 2}, "auc") == {"cv": 2, "scoring": "auc"}
    assert decided_by("sparge-lda-cv", {"gammas": [1.0]}, "auc") == {"gammas": [1.0]}
    assert decided_by("auto", {"scoring": "accuracy"}, "auc") == {"scoring": "accuracy"}
    assert decided_by("anova", {}, "auc") == decided_by("auto", {}, None) == {}


@pytest.mark.filterwarnings("ignore::bigfs.validation.UnequalScalesWarning")
@pytest.mark.parametrize("as_dask", [False, True])
def test_a_table_in_several_units_is_tried_standardized_first(as_dask):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    X = rng.normal(size=(300, 12))
    X[:, :3] += 2 * y[:, None]
    alike = AutoSelector(n_features_to_select=3).fit(X, y)
    X[:, 6:] *= 1000
    given = da.from_array(X, chunks=(100, 12)) if as_dask else X
    fitted = AutoSelector(n_features_to_select=3).fit(given, y)
    assert sorted(fitted.selected_) == sorted(alike.selected_) == [0, 1, 2]
    assert "scale" not in alike.best_params_
    assert fitted.best_params_["scale"] == "standard"
    assert "on standardized columns" in fitted.reason_
    scales = [parameters["scale"] for parameters in fitted.cv_results_["params"]]
    assert scales == ["standard", "none"]
    scores = fitted.cv_results_["mean_test_score"]
    assert scores[0] > scores[1] + 0.2
    assert "scale=standard" in str(trials(fitted)[0])
