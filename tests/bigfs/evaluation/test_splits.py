"""Splits by group and by time, on targets of all kinds."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs.evaluation import splits
from bigfs.evaluation.splits import Samples, held_out_split, most_folds, stratified_folds
from bigfs.matrix import Matrix

N = 120
ROWS = Matrix.from_array(np.arange(1.0, N + 1)[:, None])  # a row is its number, from 1


def rows_of(X):
    return X.columns(np.array([0])).toarray().ravel().astype(int) - 1


def targets():
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, N)
    few = classes.copy()
    few[::4] = -1
    few[7] = 3  # the only sample of its class
    real = rng.normal(size=N)
    real[::5] = np.nan
    sets = sp.csr_array(rng.random((N, 4)) < 0.3, dtype=np.int8)
    return {"class": classes, "few": few, "real": real, "sets": sets}


@pytest.mark.parametrize("kind", ["class", "few", "real", "sets"])
@pytest.mark.parametrize("n_splits", [2, 5])
def test_folds_test_whole_groups(kind, n_splits):
    y, groups = targets()[kind], np.random.default_rng(1).integers(0, 17, N)
    made = stratified_folds(ROWS, y, n_splits, samples=Samples(groups))
    tested = np.concatenate([rows_of(split.X_test) for split in made])
    np.testing.assert_array_equal(np.sort(tested), splits.testable_rows(y, groups))
    for split in made:
        train, test = rows_of(split.X_train), rows_of(split.X_test)
        assert not set(groups[train]) & set(groups[test])
        # all of the other groups train, labeled or not
        assert len(train) == np.isin(groups, groups[test], invert=True).sum()
        np.testing.assert_array_equal(split.samples.groups, groups[train])
    assert len(made) == n_splits


def test_pairs_of_many_classes_and_many_groups_are_counted():
    many = 60_000  # classes times groups is above 2³¹
    y = np.array([0, 0, many, many, many - 1, many - 1], dtype=np.int32)
    groups = np.array([0, many, 1, 1, 2, 3], dtype=np.int32)
    np.testing.assert_array_equal(splits.testable_rows(y, groups), [0, 1, 4, 5])


def test_folds_by_group_keep_the_shares_of_the_classes():
    groups = np.arange(N) // 2
    y = (groups % 5 == 0).astype(int)  # one of five
    for split in stratified_folds(ROWS, y, 4, samples=Samples(groups)):
        assert split.y_test.sum() == 6


def test_many_groups_are_not_stratified_but_whole(monkeypatch):
    monkeypatch.setattr(splits, "MOST_STRATIFIED", 10)
    groups = np.arange(N) // 3
    made = stratified_folds(ROWS, targets()["class"], 4, samples=Samples(groups))
    assert [split.X_test.shape[0] for split in made] == [30] * 4
    for split in made:
        assert not set(split.samples.groups) & set(groups[rows_of(split.X_test)])


def test_a_class_of_one_group_is_never_tested():
    groups = np.arange(N) % 6
    y = np.where(groups == 5, 2, np.arange(N) // 60)
    made = stratified_folds(ROWS, y, 3, samples=Samples(groups))
    assert 2 not in np.concatenate([split.y_test for split in made])
    assert most_folds(y, Samples(groups)) == 5
    with pytest.raises(ValueError, match="two classes with samples in two groups each"):
        stratified_folds(ROWS, groups % 2, 3, samples=Samples(groups % 2))


def test_folds_that_would_train_on_one_class_are_left_out():
    groups, y = np.repeat(np.arange(4), 30), np.repeat([0, 0, 1, 1], 30)
    for split in stratified_folds(ROWS, y, 4, samples=Samples(groups)):
        assert set(split.y_train) == {0, 1}
    # the earliest third has one class
    made = stratified_folds(ROWS, np.arange(N) // 45 % 2, 2, samples=Samples(None, np.arange(N)))
    assert [rows_of(split.X_test).tolist() for split in made] == [list(range(80, N))]
    with pytest.raises(ValueError, match="one class only"):
        stratified_folds(
            ROWS,
            (np.arange(N) == N - 1) + (np.arange(N) == N - 2) + 0,
            2,
            samples=Samples(None, np.arange(N)),
        )


@pytest.mark.parametrize("kind", ["class", "few", "real", "sets"])
@pytest.mark.parametrize("dates", [False, True])
def test_folds_go_forward_and_cut_no_time(kind, dates):
    y, times = targets()[kind], np.random.default_rng(2).integers(0, 13, N).astype(float)
    if dates:
        times = times.astype("datetime64[us]")
    made = stratified_folds(ROWS, y, 4, samples=Samples(None, times))
    assert len(made) == 4
    testable, earlier = splits.testable_rows(y, None), np.array([], dtype=int)
    for split in made:
        train, test = rows_of(split.X_train), rows_of(split.X_test)
        assert times[train].max() < times[test].min()
        assert set(earlier) <= set(train)
        np.testing.assert_array_equal(train, np.flatnonzero(times < times[test].min()))
        earlier = test
    assert times[earlier].max() == times[testable].max()


def test_with_groups_and_times_both_hold():
    rng = np.random.default_rng(4)
    groups, times = rng.integers(0, 40, N), rng.integers(0, 30, N).astype(float)
    for split in stratified_folds(ROWS, targets()["class"], 3, samples=Samples(groups, times)):
        train, test = rows_of(split.X_train), rows_of(split.X_test)
        assert times[train].max() < times[test].min()
        assert not set(groups[train]) & set(groups[test])


@pytest.mark.parametrize("kind", ["class", "few", "real", "sets"])
def test_held_out_share(kind):
    y, rng = targets()[kind], np.random.default_rng(1)
    groups, times = rng.integers(0, 20, N), rng.integers(0, 50, N).astype(float)
    split = held_out_split(ROWS, y, 0.25, samples=Samples(groups))
    assert not set(groups[rows_of(split.X_train)]) & set(groups[rows_of(split.X_test)])
    assert len(set(groups[rows_of(split.X_test)])) == 5
    split = held_out_split(ROWS, y, 0.25, samples=Samples(None, times))
    test, testable = rows_of(split.X_test), splits.testable_rows(y, None)
    latest = np.sort(times[testable])[-int(np.ceil(0.25 * len(testable)))]
    np.testing.assert_array_equal(test, testable[times[testable] >= latest])
    np.testing.assert_array_equal(rows_of(split.X_train), np.flatnonzero(times < latest))
