"""Sums by class: a code per sample stands for the n × c weights."""

import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import ANOVA, LSDF, TRCFS, Chi2, Fisher, Matrix, SSelect, TraceRatio
from bigfs.engine import SHARES, limit_memory
from bigfs.matrix.class_sums import (
    COUNTED_ROWS,
    ClassWeights,
    class_indicator,
    column_sums,
    weighted_sums,
)


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("by_class", [False, True])
def test_codes_sum_as_the_indicator_does(matrix, rng, weighed, by_class):
    codes = rng.integers(-1, 3, 23)
    w = rng.random(23) if weighed else np.ones(23)
    dense, Y = matrix.toarray(), (codes[:, None] == np.arange(3)) * w[:, None]
    weights = ClassWeights(codes, 3, w if weighed else None, by_class=by_class)
    np.testing.assert_array_equal(class_indicator(codes, 3, w).toarray(), Y)
    np.testing.assert_allclose(weights.sizes, Y.sum(axis=0))
    assert weights.total == pytest.approx(Y.sum())
    S = Y if by_class else Y.sum(axis=1, keepdims=True)
    expected = np.column_stack([dense.T @ Y, (dense**2).T @ S])
    by_rows = Matrix.from_array(dense, tile_rows=5)
    for X in (by_rows, Matrix.from_array(matrix, tile_columns=4)):
        np.testing.assert_allclose(column_sums(X, weights), expected, rtol=1e-12)
        few = column_sums(X.take_columns([2, 11, 12]), weights)
        np.testing.assert_allclose(few, expected[[2, 11, 12]], rtol=1e-12)


def test_a_code_takes_a_byte_where_classes_are_few():
    n, codes = 100_000, np.arange(100_000) % 20
    assert len(pickle.dumps(ClassWeights(codes, 20)[0:n])) < 1.01 * n
    assert len(pickle.dumps(ClassWeights(codes, 1000)[0:n])) < 2.01 * n


def test_the_sizes_of_the_classes_take_little_beside_their_codes(rng):
    n = 5 * COUNTED_ROWS.value // 2
    codes, weights = rng.integers(-1, 3, n), rng.random(n)
    whole, weighted = ClassWeights(codes, 3), ClassWeights(codes, 3, weights)
    tracemalloc.start()
    sizes, total = whole.sizes, whole.total
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * n
    assert total == sizes.sum()
    np.testing.assert_array_equal(sizes, np.bincount(codes[codes >= 0]))
    expected = np.bincount(codes[codes >= 0], weights[codes >= 0])
    np.testing.assert_allclose(weighted.sizes, expected, rtol=1e-12)


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("method", [Chi2, ANOVA, Fisher, LSDF, SSelect, TRCFS, TraceRatio])
def test_scores_of_many_classes_take_a_block_of_columns_at_a_time(method, layout):
    n, d, c, limit = 600, 3000, 300, 10_000_000
    array = sp.random_array((n, d), density=0.02, format="csr", rng=0)
    X, y = Matrix.from_array(array, tile_rows=200, tile_columns=700), np.arange(n) % c
    if layout == "rows":
        X.column_tiles = ()
    options = {"graph": sp.eye_array(n, format="csr")} if method is SSelect else {}
    whole = method(n_features_to_select=5, **options).fit(X, y)
    X.passes = 0
    tracemalloc.start()
    with limit_memory(limit):
        blocks = method(n_features_to_select=5, **options).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(blocks.scores_, whole.scores_)
    np.testing.assert_array_equal(blocks.selected_, whole.selected_)
    assert X.passes == 1 + (method is SSelect) if layout == "columns" else X.passes > 10
    beside = 2 * 8 * n * c * (method is TRCFS)  # its own n × c
    assert peak < 2 * SHARES.value.column_block * limit + beside + 200 * d < 8 * d * c


def test_the_weights_of_many_classes_stay_sparse_beside_a_dense_block(rng):
    n, c = 3000, 2000
    block, Y = rng.random((n, 5)), class_indicator(codes := np.arange(n) % c, c)
    tracemalloc.start()
    sums = weighted_sums(block, Y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n * c / 10
    np.testing.assert_allclose(sums[:, 7], block[codes == 7].sum(axis=0), rtol=1e-12)


def test_many_labels_per_sample_take_a_block_of_columns_at_a_time(rng):
    n, d, limit = 400, 4000, 5_000_000
    X, Y = sp.random_array((n, d), density=0.02, format="csr", rng=0), rng.random((n, 200)) < 0.1
    whole = ANOVA(n_features_to_select=5).fit(X, Y)
    tracemalloc.start()
    with limit_memory(limit):
        blocks = ANOVA(n_features_to_select=5).fit(X, Y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(blocks.scores_, whole.scores_)
    np.testing.assert_array_equal(blocks.pvalues_, whole.pvalues_)
    assert peak < 2 * SHARES.value.column_block * limit + 8 * Y.size + 400 * d < 8 * d * 66 * 2
