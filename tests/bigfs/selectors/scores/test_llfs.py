"""LLFS against its paper's formulas over all pairs of samples, on dense data."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

from bigfs import LLFS, Matrix
from bigfs.engine import MemoryLimitError, limit_memory
from bigfs.result import Status
from bigfs.selectors.scores import llfs
from bigfs.selectors.scores.llfs import nearest_hits_and_misses
from tests.helpers.fitting import fit_few_steps

EVERY = {"n_neighbors": 100, "metric": "euclidean"}


@pytest.fixture
def data(rng):
    """42 × 16 in three classes of 20, 12 and 10 samples, an empty and a constant column."""
    y = np.repeat(np.arange(3), (20, 12, 10))
    X = rng.normal(size=(42, 16)) * (rng.random((42, 16)) < 0.7)
    X[:, 5] += 3 * (y == 1)
    X[:, 6] += 3 * (y == 2)
    X[:, 3], X[:, 4] = 0, 2
    return X, y


def printed_margins(X, y, w, sigma):
    """z of every sample, by loops over all pairs."""
    ranges = np.ptp(X, axis=0)
    U = X / np.where(ranges > 0, ranges, 1)
    rows = []
    for i in range(len(X)):
        z = np.zeros(X.shape[1])
        for is_hit in (False, True):
            others = [m for m in range(len(X)) if m != i and (y[m] == y[i]) == is_hit]
            D = np.abs(U[i] - U[others])
            p = np.exp(-D @ w / sigma)
            z += (-1 if is_hit else 1) * (p / p.sum()) @ D
        rows.append(z)
    return np.array(rows)


def test_weights_are_a_fixed_point_of_the_printed_rounds(data):
    X, y = data
    lam, sigma = 0.7, 0.5
    selector = LLFS(lam=lam, sigma=sigma, tol=1e-7, max_iter=200, **EVERY).fit(sp.csr_array(X), y)
    w = np.maximum(selector.scores_, 0)
    Z = printed_margins(X, y, w, sigma)
    slope = lam - Z.T @ expit(-Z @ w)
    assert 2 <= np.count_nonzero(w) < 14
    np.testing.assert_allclose(slope[w > 0], 0, atol=1e-4)
    assert slope.min() >= -1e-4
    objective = np.log1p(np.exp(-Z @ w)).sum() + lam * w.sum()
    last = selector.result_.history[-1]
    assert last["objective"] == pytest.approx(objective)
    assert last["violation"] <= 1e-5
    assert selector.result_.status is Status.FINISHED
    out = selector.scores_ <= 0
    pull = Z.T @ expit(-Z @ w)
    expected = (pull - lam) / (lam + np.abs(pull).max())
    out &= np.ptp(X, axis=0) > 0
    np.testing.assert_allclose(selector.scores_[out], np.minimum(expected[out], 0), atol=1e-4)
    assert (selector.scores_[np.ptp(X, axis=0) == 0] == selector.scores_.min()).all()
    assert set(selector.selected_[:2]) == {5, 6}


def test_first_round_has_equal_weights(data):
    X, y = data
    w = fit_few_steps(LLFS(lam=0.7, max_iter=1, **EVERY), X, y).result_.value.w
    Z = printed_margins(X, y, np.ones(16), 5.0)
    slope = 0.7 - Z.T @ expit(-Z @ w)
    assert np.count_nonzero(w) > 1
    np.testing.assert_allclose(slope[w > 0], 0, atol=1e-5)
    assert slope.min() >= -1e-5


def test_features_join_until_none_would_get_weight(rng, change):
    X, y = rng.random((60, 90)), np.arange(60) % 3
    expected = LLFS(lam=0.3, tol=1e-4, **EVERY).fit(X, y)
    change(llfs.FIRST_FEATURES, 2)
    found = LLFS(lam=0.3, tol=1e-4, **EVERY).fit(sp.csr_array(X), y)
    assert np.count_nonzero(found.scores_ > 0) > 8  # more than two rounds of joining
    np.testing.assert_allclose(found.scores_, expected.scores_, atol=1e-5)
    assert max(record["violation"] for record in found.result_.history) <= 1e-5


def test_a_large_penalty_ranks_by_the_pull_of_the_margins(data):
    X, y = data
    selector = LLFS(lam=50.0, **EVERY).fit(X, y)
    pull = printed_margins(X, y, np.zeros(16), 5.0).sum(axis=0) / 2
    expected, varies = (pull - 50) / (50 + np.abs(pull).max()), np.ptp(X, axis=0) > 0
    np.testing.assert_allclose(selector.scores_[varies], expected[varies])
    assert set(selector.selected_[:2]) == {5, 6}


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_candidates_are_the_nearest_of_each_kind(data, metric):
    X, y = data
    anchors = np.array([0, 7, 21, 33, 41])
    norms = np.linalg.norm(X, axis=1)
    distance = np.linalg.norm(X[:, None] - X, axis=2) ** 2
    if metric == "cosine":
        distance = -(X @ X.T) / np.outer(norms, norms)
    for tile_rows in (42, 9):
        matrix = Matrix.from_array(X, tile_rows=tile_rows)
        pairs = nearest_hits_and_misses(matrix, y, anchors, 4, metric)
        for number, i in enumerate(anchors):
            for is_miss in (False, True):
                mine = (pairs.anchor == number) & (pairs.is_miss == is_miss)
                others = np.flatnonzero(((y != y[i]) == is_miss) & (np.arange(42) != i))
                expected = others[np.argsort(distance[i, others], kind="stable")[:4]]
                np.testing.assert_array_equal(pairs.other[mine], expected)


def test_there_are_as_many_anchors_as_asked_for(data):
    assert len(LLFS(n_neighbors=4, n_anchors=30, metric="euclidean").fit(*data).anchors_) == 30


def test_bad_input_is_refused_in_one_line(data):
    X, y = data
    with limit_memory(20_000), pytest.raises(MemoryLimitError, match=r"830 pairs .* 659\.62 kiB"):
        LLFS().fit(X, y)
    with pytest.raises(ValueError, match="no anchor has another sample of its class"):
        LLFS().fit(X[:5], np.arange(5))
