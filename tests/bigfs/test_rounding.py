"""Variances of columns far from zero, against the same columns moved to zero."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import f_oneway, ttest_ind
from sklearn.feature_selection import f_classif, f_regression

from bigfs import (
    ANOVA,
    LSDF,
    MRMR,
    RRPC,
    TRCFS,
    Fisher,
    FRegression,
    LaplacianScore,
    Matrix,
    MultiTaskLasso,
    SparGE,
    SSelect,
    TraceRatio,
    TScore,
    Variance,
)
from bigfs.evaluation.quality import (
    absolute_correlations,
    class_profile,
    redundancy_rate,
)
from bigfs.rounding import variance_or_zero

# the columns differ in scale on purpose
pytestmark = pytest.mark.filterwarnings("ignore::bigfs.validation.UnequalScalesWarning")
N = 90


@pytest.fixture
def near(rng):
    """Columns near zero: classes that differ, less, not at all, twice the same, and a constant."""
    y = np.arange(N) % 3
    noise = rng.standard_normal((N, 5))
    X = np.column_stack([1000 * y + 300 * noise[:, 0], 2 * y + noise[:, 1], noise[:, 2:4]])
    return np.column_stack([X, X[:, 2] + 0.1 * noise[:, 4], np.zeros(N)]), y


@pytest.fixture
def far(near):
    """The same columns at 1.5e9, a Unix timestamp, in 64ths so that nothing is rounded."""
    X, y = near
    X = np.round(X * 64) / 64
    return X, X + 1.5e9, y


def kinds(X):
    rows = Matrix.from_array(X, tile_rows=17).row_tiles
    return {
        "array": X,
        "sparse": sp.csr_array(X),
        "tiles": Matrix.from_array(sp.csr_array(X), tile_rows=17, tile_columns=2),
        "rows": Matrix(X.shape, rows=rows, local=True),
        "Dask": da.from_array(X, chunks=(23, -1)),
    }


KINDS = list(kinds(np.eye(2)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_timestamp_has_the_f_statistic_of_scikit_learn(far, kind):
    near, X, y = far
    X = kinds(X)[kind]
    F, p = f_classif(near[:, :5], y)
    anova = ANOVA(n_features_to_select=2).fit(X, y)
    np.testing.assert_allclose(anova.scores_[:5], F, rtol=1e-9)
    np.testing.assert_allclose(anova.pvalues_[:5], p, rtol=1e-8)
    assert anova.scores_[5] == 0
    np.testing.assert_allclose(
        anova.scores_[0], f_oneway(*(near[y == c, 0] for c in range(3))).statistic, rtol=1e-9
    )
    np.testing.assert_allclose(Fisher().fit(X, y).scores_[:5], F * 2 / (N - 3), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_variance_of_a_column_does_not_depend_on_its_mean(rng, kind):
    near = np.round(100 * rng.standard_normal((N, 3)))
    X = np.column_stack([near + np.array([1e9, 0, -1e12]), np.full(N, 1e9 / 3)])
    scores = Variance().fit(kinds(X)[kind]).scores_
    np.testing.assert_allclose(scores[:3], near.var(axis=0), rtol=1e-12)
    assert scores[3] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_welchs_t_and_the_f_of_a_regression_do_not_depend_on_the_mean(far, kind):
    near, X, y = far
    two = kinds(X)[kind]
    t = TScore().fit(two, np.minimum(y, 1))
    expected = ttest_ind(near[y == 0], near[y > 0], equal_var=False)
    np.testing.assert_allclose(t.scores_[:5], np.abs(expected.statistic)[:5], rtol=1e-9)
    target = near[:, 1] + 3e9
    F = f_regression(near[:, :5], near[:, 1] - near[:, 1].mean())[0]
    np.testing.assert_allclose(FRegression().fit(two, target).scores_[2:5], F[2:5], rtol=1e-5)


@pytest.mark.parametrize("method", [ANOVA, Variance, FRegression])
def test_weights_and_parts_keep_the_digits(far, method):
    near, X, y = far
    w = np.arange(N) % 4
    target = near[:, 3] if method is FRegression else y
    expected = method().fit(near, target, sample_weight=w).scores_
    np.testing.assert_allclose(method().fit(X, target, sample_weight=w).scores_, expected, 1e-7)
    by_parts = method()
    for part in np.split(np.arange(N), [2, 40]):
        by_parts.partial_fit(X[part], target[part], sample_weight=w[part])
    np.testing.assert_allclose(by_parts.scores_, expected, rtol=1e-6)


def test_several_labels_per_sample_keep_the_digits(far):
    near, X, y = far
    labels = np.column_stack([y == 0, y > 1]).astype(int)
    np.testing.assert_allclose(
        ANOVA().fit(X, labels).scores_, ANOVA().fit(near, labels).scores_, rtol=1e-9
    )


FEW = np.where(np.arange(N) % 4, -1, np.arange(N) % 3)
GRAPH = sp.csr_array(np.kron(np.eye(N // 6), np.ones((6, 6)) - np.eye(6)))


@pytest.mark.parametrize(
    ("method", "labels"),
    [
        (MRMR(relevance="f", n_features_to_select=3), "all"),
        (RRPC(n_features_to_select=3), "few"),
        (TraceRatio(n_features_to_select=3), "all"),
        (TraceRatio(form="laplacian", graph=GRAPH, n_features_to_select=3), "none"),
        (LaplacianScore(graph=GRAPH, n_features_to_select=3), "none"),
        (LSDF(graph=GRAPH, n_features_to_select=3), "few"),
        (SSelect(graph=GRAPH, n_features_to_select=3), "few"),
        (TRCFS(graph=GRAPH, n_features_to_select=3), "few"),
        (MultiTaskLasso(n_features_to_select=1), "all"),
        (SparGE(n_features_to_select=3), "all"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_method_chooses_the_same_of_columns_far_from_zero(far, method, labels):
    near, X, y = far
    y = {"all": y, "few": FEW, "none": None}[labels]
    expected, fitted = (method.fit(Z, y).scores_.copy() for Z in (near, X))
    np.testing.assert_allclose(fitted, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


def test_the_properties_of_a_selection_do_not_depend_on_the_mean(far):
    near, X, y = far
    assert redundancy_rate(X) == pytest.approx(redundancy_rate(near), rel=1e-9)
    assert redundancy_rate(sp.csr_array(X)) == pytest.approx(redundancy_rate(near), rel=1e-9)
    index = np.array([0, 2])
    profiles = (class_profile(Matrix.from_array(Z), y, index, 3) for Z in (near, X))
    np.testing.assert_allclose(*profiles, rtol=1e-9)
    tiled = Matrix.from_array(sp.csr_array(X), tile_rows=7)
    np.testing.assert_allclose(
        absolute_correlations(tiled)[:5, :5], np.abs(np.corrcoef(near[:, :5].T)), rtol=1e-6
    )


def test_the_redundancy_rate_does_not_depend_on_the_units(rng):
    a = rng.standard_normal(50)
    assert redundancy_rate(np.column_stack([1e9 * a, a])) == pytest.approx(1)
    assert redundancy_rate(np.column_stack([1e-9 * a, a, np.full(50, 1e9)])) == pytest.approx(1 / 3)


@pytest.mark.parametrize("value", [0.1, 0.3, 0.7, 1.1, 1e9 / 3])
def test_a_long_constant_column_is_constant(value):
    X = np.full((1_000_003, 1), value)
    for kind in (X, Matrix.from_array(X, tile_rows=100_000)):
        matrix = kind if isinstance(kind, Matrix) else Matrix.from_array(kind)
        assert matrix.deviations.tolist() == [0]


def test_the_rule_for_a_constant_column_is_that_of_scikit_learn():
    means, n = np.array([1.0, 1e9, 1e9]), 1000
    bound = (n * means * np.finfo(float).eps) ** 2
    np.testing.assert_array_equal(
        variance_or_zero(bound * [0.9, 0.9, 1.1], means, n) > 0, [False, False, True]
    )


def test_columns_far_from_zero_are_no_pass_more(far):
    _, X, y = far
    matrix = Matrix.from_array(X, tile_rows=20, tile_columns=2)
    ANOVA().fit(matrix, y)
    assert matrix.passes == 1
