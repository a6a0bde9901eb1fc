"""SparGE for classification: the weights of the classes, and the ranking by an SVM."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.svm import LinearSVC
from sklearn.utils import compute_class_weight, compute_sample_weight

from bigfs import Matrix, SparGE, SparGECV
from bigfs.embedding.targets import lda_factor, one_hot
from bigfs.linalg.prox import row_norms
from bigfs.selectors.sparge import sparge

WEIGHTS = ["balanced", "root", None, {0: 3.0, 2: 0.5}]


def weigh(class_weight, y):
    """Return the weight of each of the four classes."""
    if class_weight != "root":
        return compute_class_weight(class_weight, classes=np.arange(4), y=y)
    sizes = np.bincount(y)
    weights = 1 / np.sqrt(sizes)
    return weights * sizes.sum() / (sizes @ weights)


@pytest.fixture
def uneven(text):
    """The four classes of `text`, thinned to 30, 30, 12 and 4 samples."""
    X, y = text
    kept = np.sort(
        np.concatenate([np.flatnonzero(y == c)[:n] for c, n in enumerate((30, 30, 12, 4))])
    )
    return X[kept], y[kept]


@pytest.mark.parametrize("class_weight", WEIGHTS)
def test_the_targets_weigh_the_centered_indicators(uneven, class_weight):
    _, y = uneven
    v = weigh(class_weight, y)
    T = lda_factor(y, 4, v)[y]
    assert T.shape == (76, 3)
    Y = one_hot(y, 4)
    Yc = Y - Y.mean(axis=0)
    np.testing.assert_allclose(T @ T.T, Yc @ np.diag(v) @ Yc.T, atol=1e-12)
    if class_weight == "balanced":  # the targets without weights, scaled
        balanced = lda_factor(y, 4)[y]
        np.testing.assert_allclose(T @ T.T, 76 / 4 * balanced @ balanced.T, atol=1e-12)


@pytest.mark.parametrize("class_weight", WEIGHTS)
def test_the_objective_is_that_of_a_dense_ridge_on_weighted_indicators(uneven, class_weight):
    X, y = uneven
    selector = SparGE(n_features_to_select=9, class_weight=class_weight).fit(X, y)
    v = weigh(class_weight, y)
    scale = 4 / 76 if class_weight == "balanced" else 1.0
    Y, Z = one_hot(y, 4), X.toarray()[:, selector.selected_]
    T, Z = np.sqrt(scale * v) * (Y - Y.mean(axis=0)), Z - Z.mean(axis=0)
    gamma = selector.result_.stats["gamma"]
    W = np.linalg.solve(Z.T @ Z + gamma * np.eye(9), Z.T @ T)
    value = 0.5 * np.sum((T - Z @ W) ** 2) + gamma / 2 * np.sum(W**2)
    assert selector.result_.stats["objective"] == pytest.approx(value, rel=1e-8)
    assert selector.result_.history[-1]["lower"] <= value


def test_weights_change_the_choice_and_labels_name_the_classes(uneven):
    X, y = uneven
    names = np.array(["a", "b", "c", "d"])[y]
    chosen = {}
    for key, class_weight in (("balanced", "balanced"), ("none", None), ("d", {"d": 100.0})):
        selector = SparGE(n_features_to_select=6, class_weight=class_weight).fit(X, names)
        chosen[key] = set(selector.selected_.tolist())
        numbers = {3: 100.0} if key == "d" else class_weight
        for given in (X.toarray(), Matrix.from_array(X, tile_rows=17, tile_columns=11)):
            same = clone(selector).set_params(class_weight=numbers).fit(given, y)
            np.testing.assert_array_equal(same.selected_, selector.selected_)
    assert chosen["balanced"] != chosen["none"]
    # of the features 3k, 3k + 1, 3k + 2 that stand for class k
    assert len(chosen["d"] & {9, 10, 11}) > len(chosen["none"] & {9, 10, 11})


def test_paths_and_folds_take_the_weights(uneven):
    X, y = uneven
    one = SparGE(n_features_to_select=6, class_weight=None).fit(X, y)
    path = SparGE(class_weight=None).fit_path(X, y, [3, 6])
    np.testing.assert_array_equal(path[6].scores_, one.scores_)
    folds = SparGECV(n_features_to_select=6, class_weight=None, gammas=[1.0], cv=2).fit(X, y)
    np.testing.assert_array_equal(folds.scores_, one.scores_)


def rfe(X, y, features, m, C, sample_weight=None):
    """Guyon's elimination with scikit-learn's classifiers: a fifth per round, exactly m on the
    way."""
    kept, removed = np.sort(features), []
    while len(kept) > 1:
        classifier = LinearSVC(C=C, tol=1e-8, max_iter=100_000)
        classifier.fit(X[:, kept], y, sample_weight=sample_weight)
        least = np.argsort(np.sum(classifier.coef_**2, axis=0), kind="stable")
        size = len(kept) - max(int(0.2 * len(kept)), 1)
        out = least[: len(kept) - max(size, m if len(kept) > m else 1)]
        removed += kept[out].tolist()
        kept = np.delete(kept, out)
    return [*kept.tolist(), *removed[::-1]]


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 4])
def test_ranking_by_svm_is_recursive_elimination_from_the_union(text, classes, change):
    change(sparge.SVM_TOL, 1e-8)  # as the classifiers of the oracle
    X, y = text
    X, y = X[y < classes], y[y < classes]
    selector = SparGE(n_features_to_select=5, gamma=0.05, ranking="svm").fit(X, y)
    wide = clone(selector).set_params(ranking="elimination").fit(X, y)
    assert selector.result_.history == wide.result_.history
    heaviest = wide.union_[np.argsort(-row_norms(wide.coef_))[:20]]  # 4m of the union, or all
    expected = rfe(X.toarray(), y, heaviest, 5, 1 / (2 * wide.result_.stats["gamma"]))
    assert len(expected) > 5
    best_first = np.argsort(-selector.scores_)[: len(expected)]
    np.testing.assert_array_equal(best_first, expected)
    np.testing.assert_array_equal(selector.selected_, best_first[:5])
    path = SparGE(gamma=0.05, ranking="svm").fit_path(X, y, [2, 5, 3])  # of one run
    for m, one in path.items():
        np.testing.assert_array_equal(one.scores_, selector.scores_)
        np.testing.assert_array_equal(one.selected_, best_first[:m])
    tiled = Matrix.from_array(X, tile_rows=17, tile_columns=11)
    np.testing.assert_array_equal(clone(selector).fit(tiled, y).scores_, selector.scores_)


@pytest.mark.parametrize("class_weight", [None, "balanced", {3: 50.0}])
def test_classifiers_of_the_ranking_take_the_class_weights(uneven, class_weight, change):
    change(sparge.SVM_TOL, 1e-8)
    X, y = uneven
    given = {"gamma": 0.01, "class_weight": class_weight}
    wide = SparGE(n_features_to_select=3, **given).fit(X, y)
    heaviest = wide.union_[np.argsort(-row_norms(wide.coef_))[:12]]
    selector = SparGE(n_features_to_select=3, ranking="svm", **given).fit(X, y)
    weights = compute_sample_weight(class_weight, y)
    C = 1 / (2 * wide.result_.stats["gamma"])
    expected = rfe(X.toarray(), y, heaviest, 3, C, weights)
    np.testing.assert_array_equal(np.argsort(-selector.scores_)[: len(expected)], expected)
    if class_weight is not None:
        assert expected != rfe(X.toarray(), y, heaviest, 3, C)


def test_ranking_by_svm_of_all_features_starts_from_all(text):
    X, y = text
    selector = SparGE(n_features_to_select=80, ranking="svm")
    selector.fit(Matrix.from_array(X), np.where(y == 3, -1, y))
    assert np.all(selector.scores_ > 0)
    assert len(selector.selected_) == 80


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"class_weight": {9: 1.0}}, "not in class_weight"),
        ({"class_weight": {0: -1.0}}, "class_weight must hold positive numbers"),
        ({"class_weight": "even"}, "class_weight"),
        ({"ranking": "svm", "embedding": "cca"}, "ranking='svm' needs embedding='lda'"),
        ({"class_weight": None, "embedding": "pca"}, "class_weight=None needs embedding='lda'"),
    ],
)
def test_weights_that_make_no_sense_are_refused(text, parameters, message):
    X, y = text
    with pytest.raises(ValueError, match=message):
        SparGE(**parameters).fit(X, y)
