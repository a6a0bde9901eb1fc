import numpy as np
import pytest
from sklearn.svm import LinearSVC

from bigfs import Matrix
from bigfs.evaluate import Split, accuracy_curves, class_profile, mean_curves, stratified_folds


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
    points = {(p.method, p.n_features): p.accuracy for p in accuracy_curves(split, chosen)}
    for index in (np.array([0, 3, 6]), np.arange(6)):
        expected = LinearSVC(random_state=0).fit(X[~test][:, index], y[~test]).score(X[test][:, index], y[test])
        assert points["a", len(index)] == expected
    assert points["b", 3] == points["a", 3]
    assert ("all features", 80) in points


def test_folds_are_stratified_and_leave_out_what_they_cannot_use(text):
    X, y = text
    y = y.copy()
    y[:5] = -1
    y[5] = 4  # a class of one
    folds = stratified_folds(Matrix.from_array(X), y, n_splits=5)
    assert len(folds) == 5
    assert sum(f.X_test.shape[0] for f in folds) == 120 - 6
    assert all(np.bincount(f.y_test, minlength=4).min() >= 4 for f in folds)
    with pytest.raises(ValueError, match="two classes of two samples"):
        stratified_folds(Matrix.from_array(X), np.where(np.arange(120) < 1, 1, 0))


def test_mean_of_curves(split):
    curve = accuracy_curves(split, {"a": {2: np.array([0, 3])}}, with_all=False)
    other = [curve[0]._replace(accuracy=0.0)]
    assert mean_curves([curve, other])[0].accuracy == curve[0].accuracy / 2


def test_class_profile_is_the_standardized_class_mean(text):
    X, y = text
    index = np.array([0, 7, 79])
    dense = X.toarray().astype(float)[:, index]
    expected = np.column_stack([dense[y == c].mean(axis=0) - dense.mean(axis=0) for c in range(4)]) / dense.std(axis=0)[:, None]
    np.testing.assert_allclose(class_profile(Matrix.from_array(X), y, index, 4), expected, atol=1e-5)
