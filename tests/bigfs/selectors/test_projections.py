"""Steps that take much memory say so before they take it."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import engine
from bigfs.evaluation import large_model
from bigfs.evaluation.linear_model import LinearModel
from bigfs.evaluation.quality import redundancy_rate
from bigfs.graph import Neighbors, knn
from bigfs.graph.discriminant import local_discriminant
from bigfs.graph.hypergraph.lasso import lasso_hyperedges
from bigfs.matrix import Matrix


def wide(n, d, a_row=3):
    rng = np.random.default_rng(0)
    columns = rng.integers(0, d, n * a_row)
    return sp.csr_array((np.ones(n * a_row), columns, np.arange(0, n * a_row + 1, a_row)), (n, d))


def refused(limit, what, step):
    with engine.limit_memory(limit), pytest.raises(engine.MemoryLimitError, match=what):
        step()


def test_neighborhoods_count_the_eigenvectors_of_all_samples():
    X = Matrix.from_array(wide(2000, 50, 10))
    neighbors = knn(X, 40)
    refused(130_000_000, "neighborhoods of 2000", lambda: local_discriminant(X, neighbors, 0.1))


def test_hyperedges_among_all_samples_count_their_gram_matrix():
    X = Matrix.from_array(wide(2000, 50))
    everyone = Neighbors(np.full((2000, 1999), -1), np.empty(0), "cosine")
    refused(120_000_000, "one sample with 1999", lambda: lasso_hyperedges(X, everyone))


def test_neighbors_count_the_tables_by_column():
    X = Matrix.from_array(wide(100, 2_000_000))
    refused(39_000_000, "neighbors of 100 rows", lambda: knn(X, 5))


def test_gathered_columns_are_counted_as_they_come():
    whole = Matrix.from_array(wide(5000, 100), tile_columns=1)
    X = Matrix(whole.shape, columns=whole.column_tiles, stats=whole.stats)
    refused(200_000, "100 columns needs", lambda: X.columns(np.arange(100)))


def test_the_second_layout_is_counted():
    X = wide(5000, 100)
    refused(170_000, "by rows and by columns", lambda: Matrix.from_array(X))


def test_decision_values_are_counted():
    X = Matrix.from_array(wide(5000, 100))
    empty = np.ones(0)
    model = LinearModel("class", np.arange(50), np.ones((50, 100)), np.ones(50), empty, empty)
    refused(1_900_000, "50 decision values of 5000", lambda: large_model.decide(X, model))


def test_correlations_count_their_copies():
    refused(30_000, "the 31 × 31 correlations", lambda: redundancy_rate(np.eye(50)[:, :31]))
