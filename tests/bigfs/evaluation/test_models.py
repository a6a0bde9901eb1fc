"""The linear models and their metrics against scikit-learn's own."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import metrics as oracle
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bigfs import Matrix
from bigfs.evaluation import linear_model, metrics
from bigfs.evaluation.curves import pool, tally_split
from bigfs.evaluation.linear_model import LinearModel
from bigfs.evaluation.scoring import score_predictions
from bigfs.evaluation.splits import Split


@pytest.fixture
def columns(rng):
    return sp.random_array((90, 7), density=0.5, format="csr", rng=rng, dtype=np.float32)


def again(model):
    """The model from copies of its arrays."""
    return LinearModel(model.kind, *(np.array(part) for part in model[1:]))


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
    tally = tally_split(split, lambda: {"a": {7: np.arange(7)}}, with_all=False, with_auc=True)
    [point] = pool([tally], "class", with_auc=True)
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
    assert set(point.scores) == set(metrics.METRICS["class"])
    assert point.scores == pytest.approx(expected, rel=1e-12)
    assert score_predictions(model, answer, truth)["macro_f1"] == point.scores["macro_f1"]


def test_scores_of_folds_add_up(columns):
    """Two folds of one class each have no AUC; the counts are pooled."""
    y = np.repeat([0, 1], 45)
    X = Matrix.from_array(columns)
    folds = [Split(X, y, X[np.flatnonzero(y == c)[:20]], np.full(20, c)) for c in (0, 1)]
    tallies = [
        tally_split(f, lambda: {"a": {7: np.arange(7)}}, with_all=False, with_auc=True)
        for f in folds
    ]
    [point] = pool(tallies, "class", with_auc=True)
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
