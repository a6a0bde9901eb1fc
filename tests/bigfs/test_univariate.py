import numpy as np
import pytest
from sklearn.feature_selection import chi2, f_classif

from bigfs import ANOVA, Chi2, Fisher, Matrix
from bigfs.result import Status


@pytest.mark.parametrize(
    "tiles", [{}, {"tile_rows": 17, "tile_columns": 9}], ids=["one tile", "small tiles"]
)
def test_anova_and_chi2_equal_scikit_learn(text, tiles):
    X, y = text
    matrix = Matrix.from_array(X, **tiles)
    np.testing.assert_allclose(
        ANOVA().fit(matrix, y).scores_, f_classif(X.astype(float), y)[0], rtol=1e-5
    )
    np.testing.assert_allclose(
        Chi2().fit(matrix, y).scores_, chi2(X.astype(float), y)[0], rtol=1e-5
    )
    assert matrix.passes == 2


def test_rows_alone_give_the_same(text):
    X, y = text
    rows = Matrix(X.shape, rows=Matrix.from_array(X, tile_rows=13).row_tiles, local=True)
    np.testing.assert_allclose(
        Fisher().fit(rows, y).scores_, Fisher().fit(X, y).scores_, rtol=1e-10
    )


def test_fisher_is_between_over_within(text):
    X, y = text
    dense = X.toarray().astype(float)
    between = sum(
        (y == c).sum() * (dense[y == c].mean(axis=0) - dense.mean(axis=0)) ** 2 for c in range(4)
    )
    within = sum(((dense[y == c] - dense[y == c].mean(axis=0)) ** 2).sum(axis=0) for c in range(4))
    selector = Fisher(n_features_to_select=12).fit(X, y)
    np.testing.assert_allclose(selector.scores_, between / within, rtol=1e-5)
    assert set(selector.selected_) == set(range(12))
    assert selector.result_.status is Status.EXACT


def test_constant_and_perfect_features():
    X = np.array([[1.0, 0.0, 2.0], [1.0, 0.0, 1.0], [1.0, 3.0, 2.0], [1.0, 3.0, 0.5]])
    np.testing.assert_array_equal(Fisher().fit(X, [0, 0, 1, 1]).scores_[:2], [0, np.inf])


def test_unlabelled_samples_of_a_matrix_are_left_out(text):
    X, y = text
    half = np.where(np.arange(len(y)) % 2, y, -1)
    expected = ANOVA().fit(X[half >= 0], half[half >= 0])
    np.testing.assert_allclose(
        ANOVA().fit(Matrix.from_array(X), half).scores_, expected.scores_, rtol=1e-8
    )


def test_chi2_refuses_negative_values():
    with pytest.raises(ValueError, match="non-negative"):
        Chi2().fit(np.array([[-1.0, 2], [1, 1]]), [0, 1])
