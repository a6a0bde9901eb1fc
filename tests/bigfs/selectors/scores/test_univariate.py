import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_selection import chi2, f_classif

from bigfs import ANOVA, LSDF, Chi2, Fisher, FRegression, Matrix, TScore, storage
from bigfs.matrix import ClassStats, class_sums
from bigfs.result import Status
from bigfs.selectors.scores import classes


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


@pytest.mark.parametrize("as_labels", [lambda y: y.astype(float), lambda y: y > 0])
@pytest.mark.parametrize("selector", [ANOVA(), Fisher(), Chi2()])
def test_the_sums_of_a_store_serve_labels_of_any_dtype(text, tmp_path, selector, as_labels):
    X, y = text[0], np.minimum(text[1], 1)
    matrix = storage.open(storage.stage(X, tmp_path / "a.zarr", y=y)).X
    expected = clone(selector).fit(X, y).scores_
    selector = clone(selector).fit(matrix, as_labels(y))
    np.testing.assert_allclose(selector.scores_, expected, rtol=1e-9)


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


def test_chi2_refuses_negative_values():
    with pytest.raises(ValueError, match="non-negative"):
        Chi2().fit(np.array([[-1.0, 2], [1, 1]]), [0, 1])


# --- several labels per sample --------------------------------------------------------------------


def label_sets(rng, n, q):
    Y = (rng.random((n, q)) < 0.3).astype(int)
    Y[:, 1], Y[:, 2] = 0, 1  # labels that say nothing
    return Y


@pytest.mark.parametrize("method", [ANOVA, Chi2, LSDF], ids=lambda m: m.__name__)
def test_memory_does_not_grow_with_samples_times_classes(method, rng):
    n, c = 60_000, 100
    X = sp.random_array((n, 20), density=0.02, rng=rng, format="csr")
    tracemalloc.start()
    method(n_features_to_select=5).fit(X, np.arange(n) % c)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n * c / 4


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_whole_numbers_are_checked_without_a_copy(change, dtype):
    change(class_sums.COUNTED_ROWS, 10_000)
    n = 300_000
    X, y = Matrix.from_array(sp.csr_array((n, 2))), (np.arange(n) % 3).astype(dtype)
    ANOVA()._as_matrix(X, y)  # with what it imports
    tracemalloc.start()
    ANOVA()._as_matrix(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n


def test_scikit_learn_warns_of_whole_numbers_of_many_values():
    n = 40
    X = Matrix.from_array(sp.csr_array(np.eye(n)))
    with pytest.warns(UserWarning, match="unique classes is greater than 50%"):
        ANOVA()._as_matrix(X, np.arange(n))


@pytest.mark.parametrize("per_pass", [64, 2])
def test_anova_of_label_sets_is_the_mean_of_the_labels(text, rng, change, per_pass):
    change(classes.LABELS_PER_PASS, per_pass)
    X, _ = text
    Y = label_sets(rng, X.shape[0], 6)
    single = [f_classif(X.toarray().astype(float), Y[:, k]) for k in (0, 3, 4, 5)]
    expected = np.mean([F for F, _ in single], axis=0)
    p = np.minimum(4 * np.min([p for _, p in single], axis=0), 1)
    for form in (X, X.toarray(), Matrix.from_array(X, tile_rows=17, tile_columns=9)):
        for target in (Y, sp.csr_array(Y)):
            selector = ANOVA(n_features_to_select=5).fit(form, target)
            np.testing.assert_allclose(selector.scores_, expected, rtol=1e-5)
            np.testing.assert_allclose(selector.pvalues_, p, rtol=1e-5)
    assert selector.result_.stats["passes"] == 4 // min(per_pass, 4)


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (np.full((80, 2), 3), "0 and 1 for several labels per sample; got several real targets"),
        (np.ones((80, 2), dtype=int), "a label that some samples have and others do not"),
    ],
)
def test_targets_that_are_no_label_sets_are_refused(rng, Y, message):
    with pytest.raises(ValueError, match=message):
        ANOVA().fit(rng.normal(size=(80, 3)), Y)


class Stored:
    """A matrix with class sums, as a store has them, that says or does not say its minima."""

    def __init__(self, X, y, minima):
        self.X = Matrix.from_array(X)
        Y = np.eye(int(y.max()) + 1)[y]
        stats = ClassStats(X.T @ Y, (X**2).T @ Y, (X != 0).T @ Y, minima)
        self.X.class_stats = lambda codes: stats


def test_chi2_refuses_negative_values_that_the_sums_of_a_store_hide(rng):
    X, y = rng.normal(2, 1, (60, 4)), np.arange(60) % 3
    assert X.min() < 0 < X.sum(axis=0).min()
    for minima in (None, X.min(axis=0)):
        with pytest.raises(ValueError, match="Negative values"):
            Chi2().fit(Stored(X, y, minima).X, y)
    X = np.abs(X)
    for minima, passes in ((None, 1), (X.min(axis=0), 0)):
        fitted = Chi2().fit(Stored(X, y, minima).X, y)
        np.testing.assert_allclose(fitted.scores_, chi2(X, y)[0])
        assert fitted.result_.stats["passes"] == passes


@pytest.mark.parametrize("selector", [ANOVA, TScore, FRegression], ids=lambda s: s.__name__)
def test_without_a_degree_of_freedom_there_is_no_p_value(rng, selector):
    X, y = rng.random((2, 6)), np.array([0.5, 1]) if selector is FRegression else np.arange(2)
    for mode in ("fpr", "fdr", "fwe", "k_best", "percentile"):
        with pytest.raises(ValueError, match=r"more (labeled )?samples than classes"):
            selector(mode=mode).fit(X, y)


def test_one_sample_per_class_has_no_p_value_as_in_scikit_learn(rng):
    X, y = rng.random((3, 6)), np.arange(3)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isnan(f_classif(X, y)[1]).all()
    labels = np.eye(3, dtype=int)[:2]
    for target in (y, labels):
        with pytest.raises(ValueError, match="every score is infinite"):
            ANOVA().fit(X[: len(target)], target)


@pytest.mark.parametrize("selector", [ANOVA, TScore, FRegression], ids=lambda s: s.__name__)
def test_weights_that_sum_to_one_are_named(rng, selector):
    X, y = rng.random((30, 4)), np.arange(30) % 2
    y = y + 0.5 * rng.random(30) if selector is FRegression else y
    with pytest.warns(UserWarning, match="sample_weight sums to 1, so it counts as so few samples"):
        fitted = selector().fit(X, y, sample_weight=np.full(30, 1 / 30))
    expected = selector().fit(X, y)
    np.testing.assert_array_equal(np.argsort(fitted.scores_), np.argsort(expected.scores_))
    np.testing.assert_allclose(
        selector().fit(X, y, sample_weight=np.ones(30)).pvalues_, expected.pvalues_
    )
