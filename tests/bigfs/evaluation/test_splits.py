"""Splits by group, by time and by neither, on targets of all kinds."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import KFold, StratifiedKFold

from bigfs.engine import MemoryLimitError, limit_memory
from bigfs.evaluation import splits
from bigfs.evaluation.splits import (
    Samples,
    fold_rows,
    group_codes,
    held_out_split,
    most_folds,
    samples_of,
    split_at,
    stratified_folds,
)
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


def test_many_groups_are_not_stratified_but_whole(change):
    change(splits.MOST_STRATIFIED, 10)
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
    in_time = ROWS, np.arange(N) // 45 % 2, 2, Samples(None, np.arange(N))
    folds, left_out = splits.folds_to_score(*in_time, with_auc=False)
    assert len(folds) == 1
    assert left_out == ["its training samples have one class only, or none"]
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


# --- without groups or times ----------------------------------------------------------------------


def test_plain_folds_are_those_of_scikit_learn():
    y = targets()["few"]
    rows = np.flatnonzero((y >= 0) & (y < 3))  # the only sample of class 3 is never tested
    made = fold_rows(y, 4, seed=3)
    expected = StratifiedKFold(4, shuffle=True, random_state=3).split(np.zeros(len(rows)), y[rows])
    for (train, test), (_, others) in zip(made, expected, strict=True):
        np.testing.assert_array_equal(test, rows[others])
        np.testing.assert_array_equal(train, np.setdiff1d(np.arange(N), test))
    real = targets()["real"]
    known = np.flatnonzero(~np.isnan(real))
    expected = KFold(3, shuffle=True, random_state=0).split(known)
    for (_, test), (_, others) in zip(fold_rows(real, 3), expected, strict=True):
        np.testing.assert_array_equal(test, known[others])


def test_the_number_of_folds_is_that_of_the_largest_class_or_of_the_samples_at_most():
    y = np.array([0, 0, 0, 1, 1, -1, 2])
    assert most_folds(y) == 3
    assert len(fold_rows(y, 9)) == 3
    assert most_folds(np.array([0.5, 1.5, np.nan, 2.0])) == 3
    assert most_folds(np.arange(6) % 2, Samples(np.array([0, 0, 1, 1, 2, 2]))) == 3
    assert most_folds(np.arange(6) % 2, Samples(np.array([0, 0, 1, 1, 2, 2]), np.arange(6))) == 5
    assert most_folds(np.arange(6) % 2, Samples(None, np.array([4, 4, 1, 1, 2, 2]))) == 2


def test_a_split_has_all_of_its_parts():
    y, weights = targets()["few"], np.arange(N) / N
    samples = Samples(np.arange(N) % 9, np.arange(N), weights)
    split = split_at(ROWS, y, np.arange(5, 40), np.arange(50, 60), samples)
    np.testing.assert_array_equal(rows_of(split.X_train), np.arange(5, 40))
    np.testing.assert_array_equal(rows_of(split.X_test), np.arange(50, 60))
    np.testing.assert_array_equal(split.y_train, y[5:40])
    np.testing.assert_array_equal(split.y_test, y[50:60])
    np.testing.assert_array_equal(split.samples.weights, weights[5:40])
    np.testing.assert_array_equal(split.samples.times, np.arange(5, 40))
    assert split.n_classes == 4  # of the whole: class 3 may be in neither part
    np.testing.assert_array_equal(split.train, np.arange(5, 40))
    np.testing.assert_array_equal(split.test, np.arange(50, 60))
    assert split_at(ROWS, np.full(N, -1), [0], [1]).n_classes == 0
    assert split_at(ROWS, targets()["real"], [0], [1]).n_classes == 0


def test_a_held_out_share_is_stratified_and_rounded_up():
    y = np.where(np.arange(N) < 90, 0, 1)
    y[[0, 100]] = -1
    split = held_out_split(ROWS, y, 0.2, seed=1)
    test = rows_of(split.X_test)
    assert len(test) == 24  # of 118
    assert np.bincount(split.y_test).tolist() == [18, 6]
    np.testing.assert_array_equal(test, np.sort(test))
    np.testing.assert_array_equal(rows_of(split.X_train), np.setdiff1d(np.arange(N), test))
    assert len(held_out_split(ROWS, targets()["real"], 0.25).y_test) == 24
    few = Matrix.from_array(np.arange(8.0)[:, None])
    codes = np.arange(8) // 2
    assert len(held_out_split(few, codes, 0.5).y_test) == 4
    for share, n_test in ((0.3, 3), (0.6, 5)):
        with pytest.raises(ValueError, match=f"leaves {n_test} of 8 samples for the test: .* 4 or"):
            held_out_split(few, codes, share)


def test_facts_that_are_not_there_for_each_sample_are_refused():
    assert group_codes(None, 3) is None
    np.testing.assert_array_equal(group_codes(["b", "a", "b"], 3), [1, 0, 1])
    for missing in (None, np.nan):
        with pytest.raises(ValueError, match="a group for every sample; got a missing one"):
            group_codes(np.array(["a", missing, "b"], dtype=object), 3)
    with pytest.raises(ValueError, match=r"a group for each of 3 samples; got \(2,\)"):
        group_codes([0, 1], 3)
    with pytest.raises(ValueError, match=r"a time for each of 3 samples; got \(2,\)"):
        samples_of(3, times=[0, 1])
    assert samples_of(3) == Samples(None, None, None)
    known = samples_of(2, ["x", "y"], [2.0, 1.0])
    np.testing.assert_array_equal(known.groups, [0, 1])
    np.testing.assert_array_equal(known.times, [2.0, 1.0])


def test_targets_that_no_fold_can_test_are_refused():
    for y, message in (
        (np.array([0, 0, 1]), "two classes with two samples each"),
        (np.array([1.0, 1.0, np.nan]), "a target that varies"),
        (
            sp.csr_array(np.array([[1, 0], [1, 0]])),
            "a label that some samples have and others do not",
        ),
    ):
        with pytest.raises(ValueError, match=f"folds need .*{message}: give test samples, or more"):
            most_folds(y)
    with pytest.raises(ValueError, match="5 folds by group need as many groups; got 4"):
        splits.split_rows(5, 8, None, np.arange(8) // 2)
    y, rows = sp.csr_array(np.array([[1, 0], [0, 0], [1, 0]])), np.array([0, 2])
    assert splits.varies(y, np.arange(3))
    assert not splits.varies(y, rows)
    assert not splits.varies(y, np.array([1]))
    assert splits.varies(np.array([0, 1, 1]), np.array([0, 1]))
    assert splits.varies(sp.csr_array(np.array([[1], [0]])), np.arange(2))
    assert splits.target_kind(np.array([[1, 0], [0, 1]])) == "multilabel"
    for values, answer in (([[1.0, 2.0]] * 2, False), ([[1.0, 2.0], [1.0, 3.0]], True)):
        assert splits.varies(np.array(values), np.arange(2)) is answer


def test_folds_of_many_groups_and_classes_ask_for_their_memory():
    codes, groups = np.arange(N) % 3, np.arange(N) // 3
    with limit_memory(24 * 40 * 3 - 1), pytest.raises(MemoryLimitError, match="folds by 40 groups"):
        splits.split_rows(4, N, codes, groups)
    with limit_memory(24 * 40 * 3):
        assert len(splits.split_rows(4, N, codes, groups)) == 4


def test_times_are_cut_between_equal_shares_of_the_rows():
    y = np.arange(12) % 2
    made = fold_rows(y, 3, samples=Samples(None, np.arange(12)))
    assert [test.tolist() for _, test in made] == [[3, 4, 5], [6, 7, 8], [9, 10, 11]]
    # the first sample, of a class of its own, trains with the second one and is never tested
    made = fold_rows(np.array([2, 0, 1, 0, 1]), 3, samples=Samples(None, np.arange(5)))
    assert [test.tolist() for _, test in made] == [[2], [3], [4]]
    one_time = Samples(None, np.repeat([0, 1], 6))  # a first time that is as long as three parts
    assert [test.tolist() for _, test in fold_rows(y, 3, samples=one_time)] == [
        [6, 7, 8, 9, 10, 11]
    ]


@pytest.mark.parametrize("kind", ["class", "real", "sets"])
def test_a_sample_of_many_rows_trains_a_model(kind, change):
    y = targets()["few" if kind == "class" else kind]
    labeled = splits.labeled_rows(y)
    n_models = {"class": 4, "real": 1, "sets": 4}[kind]
    change(splits.MOST_TRAINING, labeled.sum() * n_models)
    assert splits.training_sample(ROWS, y)[0] is ROWS
    change(splits.MOST_TRAINING, labeled.sum() * n_models / 2)
    X, part = splits.training_sample(ROWS, y)
    rows = rows_of(X)
    assert labeled[rows].all()
    np.testing.assert_array_equal(np.unique(rows), rows)
    if kind == "class":
        expected = [max(round(count / 2), 1) for count in np.bincount(y[labeled])]
        assert np.bincount(part).tolist() == expected
    else:
        assert len(rows) == round(labeled.sum() / 2)
    assert (part != y[rows]).sum() == 0


def test_the_sample_that_trains_a_model_is_always_the_same(change):
    change(splits.MOST_TRAINING, 60)
    rows = next(splits.draw_subsamples(np.zeros(N, dtype=int), 1, 0.5, 0))
    np.testing.assert_array_equal(rows_of(splits.training_sample(ROWS, np.arange(N) / N)[0]), rows)


def test_a_fold_that_tests_all_groups_of_a_class_is_left_out(change):
    change(splits.MOST_STRATIFIED, 1)
    groups = np.repeat([0, 1, 2, 3], [30, 1, 20, 11])  # one fold tests groups 0 and 1
    y = (groups >= 2).astype(int)
    with pytest.raises(ValueError, match="no folds can be made"):
        fold_rows(y, 2, samples=Samples(groups))


def test_a_sample_that_lacks_one_of_its_real_targets_is_unlabeled():
    y = np.array([[0.0, np.nan], [1.0, 2.0]])
    np.testing.assert_array_equal(splits.labeled_rows(y), [False, True])


def test_subsamples_draw_a_share_of_each_group_without_replacement():
    groups = np.repeat([5, 7, 9], [10, 20, 1])
    drawn = list(splits.draw_subsamples(groups, 3, 0.3, seed=4))
    assert len(drawn) == 3
    for rows in drawn:
        assert np.bincount(groups[rows], minlength=10)[[5, 7, 9]].tolist() == [3, 6, 1]
        np.testing.assert_array_equal(np.unique(rows), rows)
    assert len({tuple(rows) for rows in drawn}) == 3
    again = splits.draw_subsamples(groups, 1, 0.3, seed=4)
    np.testing.assert_array_equal(next(again), drawn[0])


def test_the_halves_of_a_pair_share_no_row_and_have_half_of_each_group():
    groups = np.repeat([5, 7, 9], [10, 3, 1])
    drawn = list(splits.draw_halves(groups, 3, seed=4))
    for one, other in zip(drawn[::2], drawn[1::2], strict=True):
        assert set(one) & set(other) == {13}  # the only row of its group
        for rows in (one, other):
            assert np.bincount(groups[rows], minlength=10)[[5, 7, 9]].tolist() == [5, 1, 1]
            np.testing.assert_array_equal(np.unique(rows), rows)
    assert len({tuple(rows) for rows in drawn}) == 6
    np.testing.assert_array_equal(next(splits.draw_halves(groups, 1, seed=4)), drawn[0])
