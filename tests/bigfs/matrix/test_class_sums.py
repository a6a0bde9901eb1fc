"""Sums by class: a code per sample stands for the n × c weights."""

import pickle
import tracemalloc

import numpy as np
import pytest

from bigfs import Matrix
from bigfs.matrix.class_sums import COUNTED_ROWS, ClassWeights, class_indicator, column_sums


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
    n = 5 * COUNTED_ROWS // 2
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
