"""ReliefF against its formula, sample by sample."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import pairwise_distances

from bigfs import Matrix, ReliefF, engine
from bigfs.engine import MemoryLimitError
from bigfs.graph import class_neighbors

K = 4


@pytest.fixture
def sample(rng):
    """61 × 13, non-negative with zeros, in three classes of which one has three samples."""
    y = np.r_[rng.integers(0, 2, 58), 2, 2, 2]
    X = rng.random((61, 13)) + np.linspace(0, 0.6, 13) * y[:, None]
    X *= rng.random((61, 13)) < 0.7
    X[:, 5] = 0.3
    return X, y


def relieff(X, y, k, metric):
    distance = pairwise_distances(X, metric=metric)
    if metric == "cosine":
        distance[X @ X.T == 0] = np.inf
    np.fill_diagonal(distance, np.inf)
    share = np.bincount(y) / len(y)
    spread = np.where(np.ptp(X, axis=0) > 0, np.ptp(X, axis=0), np.inf)
    W = np.zeros(X.shape[1])
    for i in range(len(y)):
        for c in np.unique(y):
            rows = np.flatnonzero(y == c)
            order = rows[np.argsort(distance[i, rows], kind="stable")]
            near = [int(m) for m in order[:k] if np.isfinite(distance[i, m])]
            weight = -1 if c == y[i] else share[c] / (1 - share[y[i]])
            if near:
                W += weight * (np.abs(X[i] - X[near]) / spread).mean(axis=0) / len(y)
    return W


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_is_the_formula(sample, metric):
    X, y = sample
    selector = ReliefF(n_neighbors=K, metric=metric).fit(sp.csr_array(X), y)
    expected = relieff(X[:, np.arange(13) != 5], y, K, metric)
    np.testing.assert_allclose(np.delete(selector.scores_, 5), expected, atol=1e-12)
    assert selector.scores_[5] == selector.scores_.min()  # constant


def test_negative_values(sample):
    X, y = sample
    X = np.delete(np.where(X, X - 0.8, 0), 5, axis=1)
    found = ReliefF(n_neighbors=K, metric="euclidean").fit(X, y).scores_
    np.testing.assert_allclose(found, relieff(X, y, K, "euclidean"), atol=1e-12)


def test_features_that_help_only_together(rng):
    X = rng.integers(0, 2, (200, 8)) + 0.01 * rng.random((200, 8))
    y = X[:, 2].astype(int) ^ X[:, 6].astype(int)
    selector = ReliefF(n_features_to_select=2, metric="euclidean").fit(X, y)
    assert set(selector.selected_) == {2, 6}


def test_tiles_blocks_and_layouts_do_not_matter(sample, monkeypatch):
    X, y = sample
    expected = ReliefF(n_neighbors=K).fit(X, y).scores_
    both = Matrix.from_array(sp.csr_array(X), tile_columns=4, tile_rows=7)
    monkeypatch.setattr(class_neighbors, "block_size", lambda *_: 9)
    for matrix in (
        both,
        Matrix(both.shape, rows=both.row_tiles, local=True),
        da.from_array(X, chunks=(20, 13)),
    ):
        np.testing.assert_array_equal(ReliefF(n_neighbors=K).fit(matrix, y).scores_, expected)


def test_lists_that_do_not_fit_are_refused(sample):
    X, y = sample
    with (
        engine.limit_memory(20_000),
        pytest.raises(MemoryLimitError, match="61 × 4 neighbors in each of 3 classes"),
    ):
        ReliefF(n_neighbors=K).fit(X, y)
