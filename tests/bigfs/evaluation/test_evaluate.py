import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from bigfs import Matrix, engine
from bigfs.evaluation import linear_model, splits
from bigfs.evaluation.curves import count_split, is_non_negative, measure, pool
from bigfs.evaluation.metrics import METRICS
from bigfs.evaluation.quality import class_profile
from bigfs.evaluation.scoring import FittedModel, score_sets
from bigfs.evaluation.splits import Split, stratified_folds, target_kind, varies
from bigfs.result import warn_early_end
from tests.helpers.threads import threads


@pytest.fixture
def split(text):
    X, y = text
    test = np.arange(len(y)) % 3 == 0
    matrix = Matrix.from_array(X, tile_rows=25, tile_columns=11)
    return Split(matrix.take_rows(~test), y[~test], matrix.take_rows(test), y[test])


def test_accuracy_is_a_linear_svm_on_those_columns(text, split):
    X, y = text
    test = np.arange(len(y)) % 3 == 0
    chosen = {"a": {3: np.array([0, 6, 3]), 6: np.arange(6)}, "b": {3: np.array([6, 3, 0])}}
    points = {
        (p.method, p.n_features): p.scores["accuracy"]
        for p in pool([count_split(split, lambda: chosen)], "class")
    }
    for index in (np.array([0, 3, 6]), np.arange(6)):
        expected = (
            LinearSVC(random_state=0)
            .fit(X[~test][:, index], y[~test])
            .score(X[test][:, index], y[test])
        )
        assert points["a", len(index)] == expected
    assert points["b", 3] == points["a", 3]
    assert ("all features", 80) in points


def test_the_svm_never_takes_unlabeled_rows_for_a_class(text, split):
    chosen = {"a": {6: np.arange(6)}}
    hidden = split._replace(
        y_train=np.where(np.arange(80) % 4, split.y_train, -1),
        y_test=np.where(np.arange(40) % 4, split.y_test, -1),
    )
    known, tested = hidden.y_train >= 0, hidden.y_test >= 0
    fewer = Split(
        split.X_train.take_rows(known),
        split.y_train[known],
        split.X_test.take_rows(tested),
        split.y_test[tested],
    )
    assert pool([count_split(hidden, lambda: chosen)], "class") == pool(
        [count_split(fewer, lambda: chosen)], "class"
    )


def test_a_part_of_many_rows_trains_the_models(text, split, change):
    X, y = text
    hidden = split._replace(y_train=np.where(np.arange(80) % 8, split.y_train, -1))
    change(splits.MOST_TRAINING, 35 * 4)
    sample, of_sample = splits.training_sample(hidden.X_train, hidden.y_train)
    assert 30 <= len(of_sample) <= 37
    assert set(of_sample) == set(range(4))
    index = np.arange(6)
    model = LinearSVC(random_state=0).fit(sample.columns(index).tocsr(), of_sample)
    test = np.arange(len(y)) % 3 == 0
    (point,) = pool([count_split(hidden, lambda: {"a": {6: index}}, with_all=False)], "class")
    assert point.scores["accuracy"] == model.score(X[test][:, index], y[test])


@pytest.mark.parametrize("kind", ["multilabel", "real"])
def test_a_part_of_many_rows_is_drawn_for_every_kind_of_target(text, kind, change):
    X = Matrix.from_array(text[0])
    n = X.shape[0]
    y = sp.csr_array(np.eye(3)[np.arange(n) % 3]) if kind == "multilabel" else np.arange(n) / 7
    assert splits.training_sample(X, y)[0] is X
    change(splits.MOST_TRAINING, 60)
    sample, of_sample = splits.training_sample(X, y)
    assert sample.shape[0] == of_sample.shape[0] == (20 if kind == "multilabel" else 60)


def test_folds_are_stratified_and_never_test_what_they_cannot_learn(text):
    X, y = text
    y = y.copy()
    y[:5] = -1
    y[5] = 4  # a class of one
    y[6:9] = 5  # a class with fewer samples than folds
    folds = stratified_folds(Matrix.from_array(X), y, n_splits=5)
    assert len(folds) == 5
    tested = np.concatenate([fold.y_test for fold in folds])
    assert np.bincount(tested).tolist() == [21, 30, 30, 30, 0, 3]
    for fold in folds:
        assert fold.X_train.shape[0] + fold.X_test.shape[0] == 120
        assert (fold.y_train < 0).sum() == 5
        assert (fold.y_train == 4).sum() == 1
        assert (fold.y_train == 5).sum() >= 2
        assert np.bincount(fold.y_test, minlength=6)[:4].min() >= 4
    assert [fold.y_test.tolist() for fold in folds] == [
        fold.y_test.tolist() for fold in stratified_folds(Matrix.from_array(X), y)
    ]
    with pytest.raises(ValueError, match="two classes with two samples"):
        stratified_folds(Matrix.from_array(X), np.where(np.arange(120) < 1, 1, 0))


def test_folds_of_label_sets_and_real_values_test_every_row_once(text):
    X, y = text
    labels, values = sp.csr_array(np.eye(4)[y]), np.where(np.arange(120) % 7, y + 0.5, np.nan)
    assert (target_kind(labels), target_kind(values)) == ("multilabel", "real")
    assert (
        sum(fold.X_test.shape[0] for fold in stratified_folds(Matrix.from_array(X), labels)) == 120
    )
    folds = stratified_folds(Matrix.from_array(X), values)
    assert not any(np.isnan(fold.y_test).any() for fold in folds)
    assert sum(len(fold.y_test) for fold in folds) == np.isfinite(values).sum()
    assert not varies(sp.csr_array(np.ones((5, 1))), np.arange(5))


@pytest.mark.parametrize("kind", METRICS)
def test_folds_are_pooled_by_what_they_got_right(text, kind):
    X, y = text
    target = {
        "class": y,
        "multilabel": sp.csr_array(np.eye(4, dtype=np.int8)[y]),
        "real": y.astype(float),
        "multioutput": np.column_stack([y, -2 * y]).astype(float),
    }[kind]
    folds = stratified_folds(Matrix.from_array(X), target, n_splits=4)
    seen = []
    found = measure(
        folds,
        lambda number, split: seen.append((number, split)) or {"a": {12: np.arange(12)}},
        with_all=False,
    )
    assert [number for number, _ in seen] == [1, 2, 3, 4]
    assert found.not_converged == 0
    total = np.sum(
        [
            count_split(fold, lambda: {"a": {12: np.arange(12)}}, with_all=False).counts[0]
            for fold in folds
        ],
        axis=0,
    )
    [point] = found.points
    assert tuple(point.scores) == tuple(
        name for name in METRICS[kind] if name not in ("auc", "neg_log_loss")
    )
    if kind == "class":
        assert point.scores["accuracy"] == total[0].sum() / 120
    elif kind == "multilabel":
        assert point.scores["micro_f1"] == pytest.approx(
            2 * total[0].sum() / (2 * total[0] + total[1] + total[2]).sum()
        )
        assert point.scores["macro_f1"] == pytest.approx(
            np.mean(2 * total[0] / (2 * total[0] + total[1] + total[2]))
        )
    else:
        assert point.scores["r2"] == pytest.approx(np.mean(1 - total[0] / total[1]))
    assert min(point.scores.values()) > 0.5


def test_selections_that_stop_early_are_counted_and_other_warnings_pass(split):
    def rank(number, split):
        warn_early_end("stopped at the iteration limit")
        warnings.warn("something else", UserWarning, stacklevel=1)
        return {"a": {2: np.array([0, 3])}}

    with pytest.warns(UserWarning, match="something else") as caught:
        assert measure([split], rank, with_all=False).not_converged == 1
    assert len(caught) == 1


def test_selections_of_two_threads_are_counted_apart(split):
    """Filters of warnings are the process's, and each thread would see those of the other."""
    inside, go_on = threading.Event(), threading.Event()

    def converges(number, split):
        inside.set()
        assert go_on.wait(20)
        return {"a": {2: np.array([0, 3])}}

    def stops(number, split):
        warn_early_end("stopped at the iteration limit")
        return {"a": {2: np.array([0, 3])}}

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(measure, [split], converges, with_all=False)
        assert inside.wait(20)
        assert measure([split], stops, with_all=False).not_converged == 1
        go_on.set()
        assert other.result().not_converged == 0


def test_only_non_negative_features_are_called_so(text):
    X, _ = text
    for sign in (1, -1):
        assert is_non_negative(Matrix.from_array(sign * X)) is (sign == 1)
        assert is_non_negative(Matrix.from_array(sign * X.toarray())) is (sign == 1)
    mixed = X.toarray()
    mixed[3, 4] = -1e-3  # its column's sum stays positive
    assert not is_non_negative(Matrix.from_array(mixed, tile_columns=30))
    assert not is_non_negative(
        Matrix((120, 80), rows=Matrix.from_array(mixed, tile_rows=50).row_tiles, local=True)
    )


def test_class_profile_is_the_standardized_class_mean(text):
    X, y = text
    index = np.array([0, 7, 79])
    dense = X.toarray().astype(float)[:, index]
    expected = (
        np.column_stack([dense[y == c].mean(axis=0) - dense.mean(axis=0) for c in range(4)])
        / dense.std(axis=0)[:, None]
    )
    np.testing.assert_allclose(
        class_profile(Matrix.from_array(X), y, index, 4), expected, atol=1e-5
    )


def test_class_profile_of_label_sets_is_that_of_each_label(text):
    X, y = text
    index = np.array([0, 7, 79])
    single, matrix = class_profile(Matrix.from_array(X), y, index, 4), Matrix.from_array(X)
    labels = np.eye(4)[y]
    labels[:, 3] += labels[:, 0]  # the first class has both labels
    profile = class_profile(matrix, sp.csr_array(labels), index, 4)
    np.testing.assert_allclose(profile[:, :3], single[:, :3])
    np.testing.assert_allclose(profile[:, 3], (single[:, 0] + single[:, 3]) / 2)


@pytest.mark.parametrize("kind", METRICS)
def test_losses_per_sample_are_those_that_the_counts_sum(text, split, kind):
    """Wrong answers, wrong labels and squared residuals, from the model's own predictions."""
    if kind == "multilabel":
        split = split._replace(
            y_train=sp.csr_array(np.eye(4)[split.y_train]),
            y_test=sp.csr_array(np.eye(4)[split.y_test]),
        )
    elif kind == "real":
        split = split._replace(
            y_train=split.y_train + 0.25, y_test=np.where(np.arange(40) % 5, split.y_test, np.nan)
        )
    index = np.arange(4)
    set_score = score_sets(split, {"a": index})["a"]
    assert len(set_score.losses) == (32 if kind == "real" else 40)
    model = linear_model.fit(split.X_train.columns(index).tocsr(), split.y_train)
    predicted = model.predict(split.X_test.columns(index).tocsr())
    if kind == "multilabel":
        wrong = predicted.toarray() != split.y_test.toarray()
        np.testing.assert_array_equal(set_score.losses, wrong.sum(axis=1))
        assert set_score.counts[1:].sum() == set_score.losses.sum() > 0
    elif kind == "real":
        known = np.isfinite(split.y_test)
        np.testing.assert_allclose(set_score.losses, ((predicted - split.y_test) ** 2)[known])
        assert set_score.counts[0] == pytest.approx(set_score.losses.sum())
    else:
        np.testing.assert_array_equal(set_score.losses, predicted != split.y_test)
        assert set_score.counts[1].sum() == set_score.losses.sum() > 0


@pytest.fixture
def wide():
    """Three classes of 90 rows in 1,200 sparse columns, as of a matrix that tasks can read."""
    rng = np.random.default_rng(0)
    X = sp.random_array((90, linear_model.WIDE_FROM + 200), density=0.02, rng=rng, dtype=np.float32)
    y = np.arange(90) % 3
    X = sp.csr_array(X + sp.csr_array(np.eye(3, X.shape[1], dtype=np.float32)[y] / 4))
    split = Split(Matrix.from_array(X[::2]), y[::2], Matrix.from_array(X[1::2]), y[1::2])
    split.X_train.local = split.X_test.local = False
    return split


def test_a_wide_model_has_the_classifiers_of_linear_svc(wide):
    Z, y = wide.X_train.columns(np.arange(wide.X_train.shape[1])).tocsr(), wide.y_train
    model = linear_model.fit(Z, y)
    svm = LinearSVC(dual=True, random_state=0, tol=1e-8, max_iter=100_000).fit(Z, y)
    np.testing.assert_allclose(model.coef, svm.coef_, atol=1e-3 * abs(svm.coef_).max())
    np.testing.assert_array_equal(model.predict(Z), svm.predict(Z))


def test_a_model_that_is_fitted_elsewhere_is_not_fitted_again(split, monkeypatch):
    sets = {"a": {3: np.array([6, 0, 3]), 6: np.arange(6)}}
    expected = count_split(split, lambda: sets)
    columns = np.array([0, 3, 6])
    model = linear_model.fit(split.X_train.columns(columns).tocsr(), split.y_train)
    widths = []
    monkeypatch.setattr(
        linear_model,
        "fit",
        lambda Z, y, fit=linear_model.fit, **more: widths.append(Z.shape[1]) or fit(Z, y, **more),
    )
    fitted = FittedModel(columns, lambda: model)
    counts = count_split(split, lambda: sets, fitted=fitted)
    assert sorted(widths) == [6, split.X_train.shape[1]]
    assert (counts.methods, counts.sizes) == (expected.methods, expected.sizes)
    for one, other in zip(counts.counts, expected.counts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_all_features_are_scored_beside_the_ranking(wide, monkeypatch):
    began = threading.Event()

    def fit_labels(Z, labels, fit=linear_model._fit_labels):
        began.set()
        return fit(Z, labels)

    def rank():
        assert began.wait(20)
        return {"a": {50: np.arange(50)}}

    serial = count_split(wide, lambda: {"a": {50: np.arange(50)}})
    monkeypatch.setattr(linear_model, "_fit_labels", fit_labels)
    with threads(1, set_as_default=False) as client, engine.cluster(client):
        counts = count_split(wide, rank)
    for one, other in zip(counts.counts, serial.counts, strict=True):
        np.testing.assert_array_equal(one, other)
