"""The linear models and their metrics against scikit-learn's own."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.special
from sklearn import metrics as oracle
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bigfs import ANOVA, Matrix, SelectorCV, engine
from bigfs.evaluation import large_model, linear_model, metrics, scoring
from bigfs.evaluation.curves import choose_full_strategy, count_split, pool
from bigfs.evaluation.linear_model import LinearModel
from bigfs.evaluation.metrics import Scorer
from bigfs.evaluation.scoring import score_predictions
from bigfs.evaluation.splits import Split


@pytest.fixture
def columns(rng):
    return sp.random_array((90, 7), density=0.5, format="csr", rng=rng, dtype=np.float32)


def again(model):
    """The model from copies of its arrays."""
    return LinearModel(model.kind, *map(np.array, model[1:6]), model.is_logistic)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_are_those_of_the_svm(columns, n_classes):
    y = np.where(np.arange(90) % 11 == 0, -1, np.arange(90) % n_classes)
    y[y == 1] = 5  # codes with gaps
    tol = 1e-4 if n_classes == 2 else 1e-10
    svm = LinearSVC(random_state=0, tol=tol, max_iter=100_000).fit(columns[y >= 0], y[y >= 0])
    model = again(linear_model.fit(columns, y))
    np.testing.assert_array_equal(model.predict(columns), svm.predict(columns))
    # two classes are LinearSVC's to the last bit. A gap g bounds ‖Δu‖² by 2gP, and P is below 90
    longest = np.sqrt(1 + columns.power(2).sum(axis=1).max())
    error = 0 if n_classes == 2 else np.sqrt(2 * linear_model.TOLERANCE * 90) * longest
    expected = svm.decision_function(columns)
    np.testing.assert_allclose(model.decision(columns), expected, rtol=0, atol=error)
    names = np.array([f"class {c}" for c in range(6)])
    named = model.estimator(names).predict(columns)
    np.testing.assert_array_equal(named, names[svm.predict(columns)])


def test_indices_of_64_bits_give_the_same_model(columns):
    """A Dask array or a `Matrix` of the user's own may hold them, and liblinear takes none."""
    wide = columns.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    targets = (np.arange(90) % 3, sp.csr_array(np.eye(3, dtype=np.int8)[np.arange(90) % 3]))
    for y in targets:
        np.testing.assert_array_equal(
            linear_model.fit(wide, y).coef, linear_model.fit(columns, y).coef
        )


def test_real_values_are_those_of_the_ridge(columns, rng):
    y = rng.random(90)
    y[:4] = np.nan
    X = columns.astype(np.float64)
    ridge = make_pipeline(StandardScaler(with_mean=False), Ridge()).fit(X[4:], y[4:])
    model = again(linear_model.fit(columns, y))
    np.testing.assert_array_equal(model.predict(columns), ridge.predict(X))
    np.testing.assert_array_equal(model.estimator().predict(X), ridge.predict(X))
    assert model.target_mean == y[4:].mean()


def test_several_real_targets_are_those_of_the_ridge(columns, rng):
    Y = rng.random((90, 3)) * [1, 10, 100]
    Y[:4] = np.nan
    X = columns.astype(np.float64)
    ridge = make_pipeline(StandardScaler(with_mean=False), Ridge()).fit(X[4:], Y[4:])
    model = again(linear_model.fit(columns, Y))
    np.testing.assert_allclose(model.predict(columns), ridge.predict(X), rtol=1e-12)
    np.testing.assert_array_equal(model.estimator().predict(X), ridge.predict(X))
    np.testing.assert_array_equal(model.target_mean, Y[4:].mean(axis=0))
    whole = Matrix.from_array(columns, tile_rows=13)
    for way in ("ridge", "sgd"):
        tiled, single = (large_model.fit(whole, y, way) for y in (Y, Y[:, 1]))
        np.testing.assert_allclose(tiled.coef[1], single.coef[0], rtol=1e-9)
        assert large_model.predict(whole, tiled).shape == (90, 3)
    expected = [oracle.r2_score(Y[4:, k], ridge.predict(X)[4:, k]) for k in range(3)]
    assert score_predictions(model, model.predict(columns), Y)["r2"] == pytest.approx(
        np.mean(expected)
    )
    losses = metrics.losses_of(ridge.predict(X)[4:], Y[4:], "multioutput")
    assert losses.mean() == pytest.approx(1 - np.mean(expected))


def test_label_sets_have_an_svm_per_label_and_a_constant_where_all_agree(columns, rng):
    Y = (rng.random((90, 4)) < 0.3).astype(np.int8)
    Y[:, 1], Y[:, 2] = 0, 1
    model = again(linear_model.fit(columns, sp.csr_array(Y)))
    answer = model.predict(columns).toarray()
    for j in (0, 3):
        svm = LinearSVC(random_state=0, max_iter=10_000).fit(columns, Y[:, j])
        np.testing.assert_array_equal(answer[:, j], svm.predict(columns))
    assert not answer[:, 1].any()
    assert answer[:, 2].all()
    np.testing.assert_array_equal(model.estimator().predict(columns).toarray(), answer)


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_a_matrix_is_predicted_by_tiles(columns, layout):
    y = np.arange(90) % 3
    whole = Matrix.from_array(columns, tile_rows=13, tile_columns=2)
    X = Matrix(
        (90, 7),
        **{layout: whole.row_tiles if layout == "rows" else whole.column_tiles},
        local=True,
    )
    index = np.array([1, 4, 6])
    model = linear_model.fit_columns(X, y, index)
    expected = linear_model.fit(columns[:, index], y)
    np.testing.assert_array_equal(model.coef, expected.coef)
    np.testing.assert_array_equal(
        linear_model.map_rows(model.predict, X, index), expected.predict(columns[:, index])
    )


# --- metrics --------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [(0, 1), (0, 1, 2, 4)])
def test_scores_of_classes_are_scikit_learns(columns, classes, rng):
    codes = np.array(classes)
    y = codes[
        rng.choice(len(codes), 90, p=np.arange(1, len(codes) + 1) / sum(range(len(codes) + 1)))
    ]
    train = np.arange(90) % 3 > 0
    X = Matrix.from_array(columns, tile_rows=20)
    split = Split(X[train], y[train], X[~train], y[~train])
    counts = count_split(
        split, lambda: {"a": {7: np.arange(7)}}, with_all=False, scorer=Scorer(with_auc=True)
    )
    [point] = pool([counts], "class", scorer=Scorer(with_auc=True))
    model = linear_model.fit(columns[train], y[train])
    answer, truth = model.predict(columns[~train]), y[~train]
    decision = model.decision(columns[~train])
    areas = [
        oracle.roc_auc_score(truth == c, decision if len(codes) == 2 and k else -decision)
        if len(codes) == 2
        else oracle.roc_auc_score(truth == c, decision[:, k])
        for k, c in enumerate(codes)
        if (truth == c).any()
    ]
    expected = {
        "accuracy": oracle.accuracy_score(truth, answer),
        "balanced_accuracy": oracle.recall_score(
            truth, answer, labels=np.unique(truth), average="macro", zero_division=0
        ),
        "micro_f1": oracle.f1_score(truth, answer, average="micro"),
        "macro_f1": oracle.f1_score(
            truth, answer, labels=np.unique(truth), average="macro", zero_division=0
        ),
        "auc": np.mean(areas),
    }
    assert {*point.scores, "neg_log_loss"} == set(metrics.METRICS["class"])
    assert point.scores == pytest.approx(expected, rel=1e-12)
    assert score_predictions(model, answer, truth)["macro_f1"] == point.scores["macro_f1"]


def test_scores_of_folds_add_up(columns):
    """Two folds of one class each have no AUC; the counts are pooled."""
    y = np.repeat([0, 1], 45)
    X = Matrix.from_array(columns)
    folds = [Split(X, y, X[np.flatnonzero(y == c)[:20]], np.full(20, c)) for c in (0, 1)]
    folds = [
        count_split(
            f, lambda: {"a": {7: np.arange(7)}}, with_all=False, scorer=Scorer(with_auc=True)
        )
        for f in folds
    ]
    [point] = pool(folds, "class", scorer=Scorer(with_auc=True))
    model = linear_model.fit(columns, y)
    rows = np.concatenate([np.arange(20), 45 + np.arange(20)])
    assert point.scores["accuracy"] == np.mean(model.predict(columns[rows]) == y[rows])
    assert np.isnan(point.scores["auc"])


@pytest.mark.parametrize("kind", metrics.METRICS)
def test_a_metric_that_does_not_suit_is_refused(kind):
    assert metrics.require_metrics(kind, []) == metrics.DEFAULT_METRICS[kind]
    best = metrics.METRICS[kind][-1]
    assert metrics.require_metrics(kind, [best, best]) == (best,)
    with pytest.raises(ValueError, match=f"rmse is no metric .* {best}$"):
        metrics.require_metrics(kind, ["rmse"])


# --- the logistic scorer --------------------------------------------------------------------------

LOGISTIC = Scorer("logistic", with_auc=True)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_logistic_classifier_is_scikit_learns(columns, rng, n_classes):
    y = rng.integers(0, n_classes, 90)
    train, test = np.arange(60), np.arange(60, 90)
    X = [Matrix.from_array(columns[rows]) for rows in (train, test)]
    split = Split(X[0], y[train], X[1], y[test])
    counts = count_split(split, lambda: {"a": {7: np.arange(7)}}, with_all=False, scorer=LOGISTIC)
    [point] = pool([counts], "class", LOGISTIC)
    model = LogisticRegression(max_iter=10_000).fit(columns[train], y[train])
    p = model.predict_proba(columns[test])
    assert point.scores["accuracy"] == model.score(columns[test], y[test])
    assert point.scores["neg_log_loss"] == pytest.approx(-oracle.log_loss(y[test], p), rel=1e-6)
    areas = [oracle.roc_auc_score(y[test] == c, p[:, c]) for c in range(n_classes)]
    assert point.scores["auc"] == pytest.approx(np.mean(areas))
    fitted = linear_model.fit(columns[train], y[train], logistic=True)
    names = np.array(["a", "b", "c"])[:n_classes]
    exported = again(fitted).estimator(names)
    np.testing.assert_allclose(exported.predict_proba(columns[test]), p, rtol=1e-6)
    assert (exported.predict(columns[test]) == names[model.predict(columns[test])]).all()


def test_folds_pool_the_log_loss_by_samples(columns, rng):
    y = rng.integers(0, 3, 90)
    folds = [np.arange(0, 20), np.arange(20, 90)]
    splits = []
    for test in folds:
        train = np.setdiff1d(np.arange(90), test)
        X = [Matrix.from_array(columns[rows]) for rows in (train, test)]
        splits.append(Split(X[0], y[train], X[1], y[test]))
    folds = [
        count_split(s, lambda: {"a": {7: np.arange(7)}}, with_all=False, scorer=Scorer("logistic"))
        for s in splits
    ]
    [whole] = pool(folds, "class", Scorer("logistic"))
    parts = [pool([fold], "class", Scorer("logistic"))[0].scores["neg_log_loss"] for fold in folds]
    assert whole.scores["neg_log_loss"] == pytest.approx((20 * parts[0] + 70 * parts[1]) / 90)


def test_a_class_that_the_model_has_not_seen_has_the_least_probability():
    decision, classes = np.array([[0.0, 0.0], [0.0, 0.0]]), np.array([0, 2])
    total, n = metrics.sum_log_loss(decision, np.array([0, 1]), classes)
    assert n == 2
    assert total == pytest.approx(np.log(0.5) + np.log(np.finfo(float).eps))


def test_labels_are_scored_by_a_logistic_regression_each(columns, rng):
    Y = sp.csr_array(rng.integers(0, 2, (90, 3)))
    Y = sp.csr_array(np.column_stack([Y.toarray(), np.ones(90, dtype=int)]))  # one that all have
    model = linear_model.fit(columns, Y, logistic=True)
    predicted = model.predict(columns).toarray()
    for j in range(3):
        expected = LogisticRegression(max_iter=10_000).fit(columns, Y.toarray()[:, j])
        np.testing.assert_array_equal(predicted[:, j], expected.predict(columns))
    assert predicted[:, 3].all()
    exported = model.estimator().predict(columns)
    np.testing.assert_array_equal(sp.csr_array(exported).toarray(), predicted)


def test_a_logistic_classifier_needs_classes_and_memory(columns, rng, monkeypatch, change):
    with pytest.raises(ValueError, match="the targets are real"):
        metrics.require_metrics("real", (), "logistic")
    with pytest.raises(ValueError, match="give --classifier logistic too"):
        metrics.require_metrics("class", ("neg_log_loss",), "svm")
    assert metrics.require_metrics("class", (), "logistic") == ("accuracy", "auc", "neg_log_loss")
    y = rng.integers(0, 2, 90)
    X = Matrix.from_array(columns)
    split, index = Split(X, y, X, y), np.arange(7)
    size = linear_model.projected_memory(X, y, logistic=True)
    with engine.limit_memory(2 * size + 2):
        assert choose_full_strategy(X, y, LOGISTIC) is True
        scoring.score_sets(split, {"a": index}, scorer=LOGISTIC)
    monkeypatch.setattr(linear_model, "fit", None)
    change(linear_model.BYTES_PER_VALUE, 10_000)
    with engine.limit_memory(2 * size):
        assert choose_full_strategy(X, y) is not True
        assert choose_full_strategy(X, y, LOGISTIC) is False
        for fit in (
            lambda: scoring.score_sets(split, {"a": index}, scorer=LOGISTIC),
            lambda: large_model.fit_columns(X, y, index, logistic=True),
        ):
            with pytest.raises(engine.MemoryLimitError) as refused:
                fit()
            assert "on 7 features of 90 samples is fitted in memory. It needs" in str(refused.value)
            assert str(refused.value).endswith("choose fewer features, or score by svm")


@pytest.mark.parametrize("classes", [2, 20])
def test_a_logistic_regression_takes_at_most_what_is_projected(rng, classes):
    X = Matrix.from_array(sp.random(20_000, 300, 0.02, "csr", rng=rng, dtype=np.float32))
    y = rng.integers(0, classes, X.shape[0])
    index = np.arange(0, 300, 2)
    Z = X.columns(index).tocsr()
    tracemalloc.start()
    linear_model.fit(Z, y, logistic=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak + 8 * Z.nnz <= linear_model.projected_memory(X, y, index, logistic=True)


@pytest.mark.parametrize("scorer", [Scorer(), LOGISTIC, Scorer(with_auc=True)], ids=str)
def test_decision_values_of_all_rows_are_held_only_where_they_are_compared(
    columns, rng, monkeypatch, change, scorer
):
    """And projected before a model is trained."""
    X, y = Matrix.from_array(columns, tile_rows=20), rng.integers(0, 3, 90)
    split, sets, sizes = Split(X, y, X, y), {"a": np.arange(7)}, []
    expected = scoring.score_sets(split, sets, scorer=scorer)["a"]
    is_needed = scorer.is_logistic or scorer.with_auc
    decide = linear_model.LinearModel.decision

    def decision(model, Z):
        sizes.append(Z.shape[0])
        return decide(model, Z)

    monkeypatch.setattr(linear_model.LinearModel, "decision", decision)
    change(linear_model.ROWS, 40)
    found = scoring.score_sets(split, sets, scorer=scorer)["a"]
    assert sizes == ([90] if is_needed else [40, 40, 10])
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_array_equal(found.losses, expected.losses)
    if is_needed:
        monkeypatch.setattr(linear_model, "projected_memory", lambda *parts, **options: 0)
        monkeypatch.setattr(linear_model, "fit", None)
        with engine.limit_memory(2 * 16 * 3 * 90 - 1), pytest.raises(engine.MemoryLimitError) as no:
            scoring.score_sets(split, sets, scorer=scorer)
        assert "scoring 90 test samples of 3 classes by all their decision values" in str(no.value)


def test_probabilities_are_those_of_all_rows(rng, change):
    logits = rng.normal(size=(50, 4))
    change(metrics.ROWS, 7)
    np.testing.assert_array_equal(
        metrics.log_probabilities(logits), scipy.special.log_softmax(logits, axis=1)
    )


def test_selector_cv_chooses_by_the_log_loss(columns, rng):
    y = (columns[:, [0]].toarray().ravel() > 0).astype(int)
    selector = SelectorCV(ANOVA(), metric="neg_log_loss").fit(columns, y)
    model = LogisticRegression(max_iter=10_000).fit(columns[:, selector.support_], y)
    p = model.predict_proba(columns[:, selector.support_])
    assert selector.score(columns, y) == pytest.approx(-oracle.log_loss(y, p), rel=1e-4)
