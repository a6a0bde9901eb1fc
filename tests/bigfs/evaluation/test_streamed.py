"""A linear SVM on all features where the samples do not fit in memory, and dask-ml beside it."""

import contextlib
import errno
import os
from functools import partial

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from bigfs import ANOVA, Matrix, engine, storage
from bigfs.evaluation import large_model, linear_model, scoring, splits
from bigfs.evaluation.curves import choose_full_strategy, count_split, measure, pool
from bigfs.evaluation.metrics import Scorer
from bigfs.evaluation.scoring import score_sets
from bigfs.evaluation.splits import Split
from bigfs.matrix.view import ColumnSet, ViewTile
from bigfs.result import NotConvergedWarning


def parts(text, tile_rows=25, classes=3):
    """A split of the texts, whose test is every third of them."""
    X, y = text
    y = y % classes
    test = np.arange(len(y)) % 3 == 0
    matrix = Matrix.from_array(X, tile_rows=tile_rows)
    split = Split(matrix.take_rows(~test), y[~test], matrix.take_rows(test), y[test])
    return split, X[~test], X[test]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("limit", [10**9, 90_000])
def test_classifiers_are_those_of_linear_svc(text, classes, limit):
    """With the smaller limit one class is trained after the other."""
    split, X_train, X_test = parts(text, classes=classes)
    expected = LinearSVC(random_state=0, tol=1e-8, max_iter=100_000).fit(X_train, split.y_train)
    with engine.limit_memory(limit):
        model = large_model.fit(split.X_train, split.y_train, "svm")
    np.testing.assert_allclose(model.coef, expected.coef_, atol=0.02)
    decision = large_model.decide(split.X_test, model)
    np.testing.assert_allclose(decision, expected.decision_function(X_test), atol=0.02)
    assert decision.shape == expected.decision_function(X_test).shape


def test_all_features_are_scored_in_memory_and_by_tiles_alike(text):
    split, _, _ = parts(text)
    sets = {"a": {3: np.array([0, 3, 6])}}
    (_, inside), (_, tiled) = (
        pool(
            [count_split(split, lambda: sets, with_all=way, scorer=Scorer(with_auc=True))],
            "class",
            scorer=Scorer(with_auc=True),
        )
        for way in (True, "svm")
    )
    assert (tiled.method, tiled.n_features) == (inside.method, inside.n_features)
    assert tiled.scores == pytest.approx(inside.scores, abs=0.01)


def test_chosen_features_beyond_the_memory_are_scored_by_tiles(text, monkeypatch, change):
    """A set that fits is scored in memory beside it."""
    split, X_train, _ = parts(text)
    sets = {"one": np.array([3]), "many": np.arange(0, 60, 2)}
    inside = score_sets(split, sets)
    tiled = []
    score_tiles = scoring.score_streamed
    monkeypatch.setattr(
        scoring,
        "score_streamed",
        lambda split, way, index, **more: (
            tiled.append(len(index)) or score_tiles(split, way, index, **more)
        ),
    )
    change(linear_model.BYTES_PER_VALUE, 10_000)
    with engine.limit_memory(2_000_000):
        by_tiles = score_sets(split, sets)
    assert tiled == [30]
    assert [len(answer.losses) for answer in by_tiles.values()] == [len(split.y_test)] * 2
    np.testing.assert_array_equal(by_tiles["one"].losses, inside["one"].losses)
    assert (
        np.mean(by_tiles["many"].losses != inside["many"].losses) <= 0.025
    )  # one of 40 at the border
    model = large_model.fit(split.X_train, split.y_train, "svm", sets["many"])
    expected = LinearSVC(random_state=0, tol=1e-8, max_iter=100_000)
    expected.fit(X_train[:, sets["many"]], split.y_train)
    np.testing.assert_allclose(model.coef, expected.coef_, atol=0.02)


def stored(text, tmp_path):
    """The texts as a store, some of whose rows train."""
    X, y = text
    kept = [f"c{k % 3}" for k in y]
    matrix = storage.open(storage.stage(X, tmp_path / "a.zarr", y=kept, tile_rows=10)).X
    train = np.arange(len(y)) % 3 != 0
    return matrix.take_rows(train), y[train] % 3


@pytest.mark.parametrize("kind", ["class", "multilabel", "real"])
def test_chosen_columns_are_read_once(text, tmp_path, monkeypatch, kind):
    """Each pass reads them from a temporary file. A classifier of classes or labels is the same to
    the bit, and a ridge regression on a matrix of this process may be solved in another way."""
    X, y = stored(text, tmp_path)
    if kind != "class":
        y = sp.csr_array(np.eye(3, dtype=np.int8)[y]) if kind == "multilabel" else y + 0.5
    index, reads = np.arange(0, 80, 2), []
    assert X.deviations.any()  # a pass of its own
    load = ViewTile.load

    def count(tile):
        if isinstance(engine.unshare(tile.view), ColumnSet):
            reads.append(tile.start)
        return load(tile)

    monkeypatch.setattr(ViewTile, "load", count)
    way = "ridge" if kind == "real" else "svm"
    on_disk = large_model.fit(X, y, way, index)
    assert sorted(reads) == [tile.start for tile in X.row_tiles]

    def by_rows(X):
        X.column_tiles = ()
        return contextlib.nullcontext(X)

    monkeypatch.setattr(large_model, "rows_on_disk", by_rows)
    streamed = large_model.fit(X, y, way, index)
    assert len(reads) > (3 if kind == "real" else 5) * len(X.row_tiles)  # a ridge takes few passes
    tol = 1e-9 if kind == "real" else 0
    np.testing.assert_allclose(streamed.coef, on_disk.coef, rtol=0, atol=tol)
    np.testing.assert_allclose(streamed.intercept, on_disk.intercept, rtol=0, atol=tol)


def test_a_ridge_regression_that_ends_early_says_so(text, monkeypatch):
    X, y = text
    given = {"solver": "cg", "max_iter": 1}
    monkeypatch.setattr(large_model, "Ridge", partial(large_model.Ridge, **given))
    with pytest.warns(
        NotConvergedWarning, match=r"the ridge regression by tiles .* tolerance 1e-04"
    ):
        large_model.fit(Matrix.from_array(X), y + 0.5, "ridge")


def test_as_many_classifiers_are_trained_at_a_time_as_fit(text, tmp_path, monkeypatch):
    X, y = stored(text, tmp_path)
    index, sizes = np.arange(0, 80, 2), []
    fit_svm = large_model.fit_svm

    def counted(*parts, positive, **options):
        sizes.append(len(positive))
        return fit_svm(*parts, positive=positive, **options)

    monkeypatch.setattr(large_model, "fit_svm", counted)
    together = large_model.fit(X, y, "svm", index)
    classifier = large_model._bytes_of_classifiers(X.shape[0], len(index), 1)
    with engine.limit_memory(2 * (2 * classifier)):
        in_turn = large_model.fit(X, y, "svm", index)
    assert sizes == [3, 2, 1]
    np.testing.assert_allclose(in_turn.coef, together.coef, atol=1e-3)


def test_label_sets_have_a_classifier_of_linear_svc_each(text):
    """A label that all rows agree on has none."""
    split, X_train, _ = parts(text)
    y = split.y_train
    Y = sp.csr_array(np.column_stack([y == 1, y != 1, np.ones(len(y))]).astype(np.int8))
    for index in (None, np.arange(0, 80, 2)):
        model = large_model.fit(split.X_train, Y, "svm", index)
        columns = np.arange(80) if index is None else index
        expected = linear_model.fit(X_train[:, columns], Y)
        np.testing.assert_allclose(model.coef, expected.coef, atol=0.02)
        decision = large_model.decide(split.X_test.take_columns(columns), model)
        inside = expected.decision(split.X_test.columns(columns).tocsr())
        np.testing.assert_allclose(decision, inside, atol=0.02)
        assert (model.answer(decision) != expected.answer(inside)).nnz <= 1  # at the border
    descended = large_model.fit(split.X_train, Y[:, [0, 2]], "sgd")
    wrong = descended.answer(large_model.decide(split.X_train, descended)) != Y[:, [0, 2]]
    assert wrong.nnz <= 0.05 * Y.shape[0]


def test_real_targets_have_the_ridge_regression_of_the_dense_formula(text, rng):
    split, X_train, _ = parts(text)
    dense = X_train.toarray().astype(float)
    y = 3 + dense[:, :5] @ rng.normal(size=5) + 0.01 * rng.normal(size=len(dense))
    for index in (None, np.arange(0, 80, 2)):
        model = large_model.fit(split.X_train, y, "ridge", index)
        columns = np.arange(80) if index is None else index
        Z = dense[:, columns] / dense[:, columns].std(axis=0)
        Zc = Z - Z.mean(axis=0)
        w = np.linalg.solve(Zc.T @ Zc + np.eye(len(columns)), Zc.T @ y)
        np.testing.assert_allclose(model.coef[0], w, atol=1e-8)
        taken = split.X_train.take_columns(columns)
        for predict in (large_model.decide, large_model.predict):
            np.testing.assert_allclose(predict(taken, model), Zc @ w + y.mean(), atol=1e-8)
        inside = linear_model.fit(X_train[:, columns], y)
        np.testing.assert_allclose(model.coef[0], inside.coef[0], atol=2e-3)
    exact, descended = (large_model.fit(split.X_train, y, way) for way in ("ridge", "sgd"))
    errors = [
        np.sum((large_model.decide(split.X_train, model) - y) ** 2) / np.sum((y - y.mean()) ** 2)
        for model in (exact, descended)
    ]
    assert errors[0] < 0.1
    assert errors[1] < 0.4


def test_the_model_of_chosen_columns_is_fitted_by_tiles_if_they_do_not_fit(text, monkeypatch):
    split, _, _ = parts(text)
    X, index = split.X_train, np.arange(0, 80, 2)
    for y in (split.y_train, split.y_train / 3):
        inside = large_model.fit_columns(X, y, index)
        with linear_model.BYTES_PER_VALUE.during(10_000), monkeypatch.context() as patch:
            patch.setattr(linear_model, "fit", None)
            with engine.limit_memory(2_000_000):
                by_tiles = large_model.fit_columns(X, y, index)
            with engine.limit_memory(20_000), pytest.raises(engine.MemoryLimitError) as refused:
                large_model.fit_columns(X, y, index)
        assert "a linear model on 40 of the features needs" in str(refused.value)
        assert by_tiles.scale.shape == inside.scale.shape
        np.testing.assert_allclose(by_tiles.coef, inside.coef, atol=0.02)


@pytest.mark.parametrize("way", ["svm", "sgd"])
def test_rows_without_a_class_are_left_out(text, way):
    split, _, _ = parts(text)
    hidden = np.where(np.arange(len(split.y_train)) % 4, split.y_train, -1)
    known = np.flatnonzero(hidden >= 0)
    some = large_model.fit(split.X_train, hidden, way)
    fewer = large_model.fit(split.X_train.take_rows(known), hidden[known], way)
    np.testing.assert_array_equal(some.coef, fewer.coef)


def test_way_follows_the_memory(text, monkeypatch):
    split, _, _ = parts(text)
    X, y = split.X_train, split.y_train
    n, d = X.shape
    classifier = 2 * 8 * (12 * n + 9 * d)
    model = 2 * 8 * 6 * d * 3
    assert model < classifier
    for limit, way in ((classifier + 1, "svm"), (classifier, "sgd"), (model, None)):
        with engine.limit_memory(limit):
            assert large_model.choose_strategy(X, y) == way
            assert choose_full_strategy(X, y) == (way or False)
    with engine.limit_memory(classifier + 1):
        assert large_model.choose_strategy(X, y / 3) == "ridge"
    labels = sp.csr_array(np.ones((n, 3)))
    with engine.limit_memory(classifier):
        assert (
            large_model.choose_strategy(X, labels) == large_model.choose_strategy(X, y / 3) == "sgd"
        )
    assert choose_full_strategy(X, y) is True
    monkeypatch.setattr(large_model, "find_spec", lambda name: None)
    with engine.limit_memory(classifier):
        assert large_model.choose_strategy(X, y) is None


# --- dask-ml: where it breaks, these say so -------------------------------------------------------


def test_incremental_passes_each_block_to_partial_fit(text):
    split, X_train, _ = parts(text)
    X_train, y, n = X_train.astype(np.float64), split.y_train, len(split.y_train)
    model = large_model.fit(split.X_train, y, "sgd")
    by_hand = SGDClassifier(loss="hinge", alpha=1 / n, average=n, random_state=0)
    blocks = [slice(t.start, t.stop) for t in split.X_train.row_tiles]
    order = np.arange(len(blocks))
    np.random.RandomState(0).shuffle(order)
    for _ in range(large_model.PASSES):
        for i in order:
            by_hand.partial_fit(X_train[blocks[i]], y[blocks[i]], classes=np.arange(3))
    np.testing.assert_array_equal(model.coef, by_hand.coef_)
    np.testing.assert_array_equal(model.intercept, by_hand.intercept_)


def test_all_features_of_the_part_that_trains_decide(text, change):
    X, y = Matrix.from_array(text[0]), text[1]
    with engine.limit_memory(2 * linear_model.projected_memory(X, y)):
        assert choose_full_strategy(X, y) is not True
        change(splits.MOST_TRAINING, 30 * 4)
        assert choose_full_strategy(X, y) is True


def test_too_much_work_for_the_exact_classifiers_is_descended(text, monkeypatch, change):
    X, y = Matrix.from_array(text[0], tile_rows=20), text[1]
    monkeypatch.setattr(linear_model, "projected_memory", lambda *parts, **options: 1 << 60)
    with engine.limit_memory(1_000_000):
        assert large_model.choose_strategy(X, y) == "svm"
        change(large_model.MOST_WORK, X.nnz * 4 * large_model.EXACT_PASSES - 1)
        assert large_model.choose_strategy(X, y) == "sgd"


def test_a_descent_in_a_worker_leaves_room_for_a_tile(text, monkeypatch, change):
    X, y = Matrix.from_array(text[0], tile_rows=20), text[1]
    monkeypatch.setattr(linear_model, "projected_memory", lambda *parts, **options: 1 << 60)
    change(large_model.MOST_WORK, 0)
    monkeypatch.setattr(large_model.engine, "client", lambda: True)
    size = 8 * 6 * X.shape[1] * 4 + engine.TILE_TASK
    for limit, way in ((2 * size + 2, "sgd"), (2 * size, None)):
        with engine.limit_memory(limit):
            assert large_model.choose_strategy(X, y) == way


def test_sgd_comes_close_to_the_exact_classifiers(text):
    split, _, _ = parts(text)
    scores = [
        measure([split], lambda *_: {"a": {1: np.arange(1)}}, with_all=way).points[-1].scores
        for way in ("svm", "sgd")
    ]
    assert scores[1]["accuracy"] == pytest.approx(scores[0]["accuracy"], abs=0.05)


def test_post_fit_predicts_the_blocks_of_a_matrix(text):
    from dask_ml.wrappers import ParallelPostFit

    split, X_train, X_test = parts(text)
    pipeline = make_pipeline(ANOVA(n_features_to_select=6), LinearSVC(random_state=0))
    predicted = ParallelPostFit(pipeline.fit(X_train, split.y_train)).predict(
        split.X_test.to_dask()
    )
    assert isinstance(predicted, da.Array)
    np.testing.assert_array_equal(engine.compute(predicted), pipeline.predict(X_test))


def test_grid_of_a_pipeline_fits_the_selector_once_per_fold(text, monkeypatch):
    """scikit-learn fits it 13 times, for each C of each fold and once at the end."""
    from dask_ml.model_selection import GridSearchCV
    from sklearn import model_selection

    X, y = text
    fits = []
    fit = ANOVA.fit
    monkeypatch.setattr(ANOVA, "fit", lambda self, *args: fits.append(1) or fit(self, *args))
    pipeline = make_pipeline(ANOVA(n_features_to_select=6), LogisticRegression())
    grid = {"logisticregression__C": [0.01, 0.1, 1, 10]}
    ours = GridSearchCV(pipeline, grid, cv=3, scheduler="sync").fit(X, y)
    assert len(fits) == 4
    theirs = model_selection.GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    assert len(fits) == 4 + 13
    assert ours.best_params_ == theirs.best_params_
    assert ours.best_score_ == pytest.approx(theirs.best_score_, abs=1e-12)


def test_a_full_disk_and_a_broken_store_are_told_apart(text, tmp_path, monkeypatch):
    X, y = stored(text, tmp_path)
    index = np.arange(5)

    def fill(file, part):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", fill)
        with pytest.raises(OSError, match=r"temporary file .* cannot be written .*No space"):
            large_model.fit(X, y, "svm", index)

    def gone(tile):
        raise FileNotFoundError("the store is gone")

    monkeypatch.setattr(ViewTile, "load", gone)
    with pytest.raises(FileNotFoundError, match="the store is gone"):
        large_model.fit(X, y, "svm", index)
