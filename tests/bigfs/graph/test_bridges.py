"""Bridges between the components of a kNN graph against scipy's minimum spanning tree."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import minimum_spanning_tree
from sklearn.metrics import pairwise_distances

from bigfs import engine
from bigfs.graph import affinity, components, knn, spanning_tree, with_bridges
from bigfs.graph.hypergraph.hypergraph import neighbor_hyperedges
from bigfs.matrix import Matrix


@pytest.fixture(params=["cosine", "euclidean"])
def metric(request):
    return request.param


def clusters(metric, seed):
    """Samples around eight centers, without a negative value and with empty rows for cosines."""
    rng = np.random.default_rng(seed)
    X = 6 * rng.normal(size=(8, 6))[rng.integers(0, 8, 150)] + 0.3 * rng.normal(size=(150, 6))
    if metric == "cosine":
        X = np.abs(X) * (rng.random(X.shape) < 0.4)
        X[::30] = 0
    return sp.csr_array(X)


def nearest_pairs(X, label, metric):
    """The least distance between each two components, 0 where there is no positive cosine."""
    D = pairwise_distances(X.toarray(), metric=metric)
    k = label.max() + 1
    nearest = np.zeros((k, k))
    for a in range(k):
        for b in range(a):
            nearest[a, b] = D[np.ix_(label == a, label == b)].min()
    return np.where(nearest > 1 - 1e-12, 0, nearest) if metric == "cosine" else nearest


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bridges_are_a_minimum_spanning_tree_of_the_nearest_pairs(metric, seed):
    X = clusters(metric, seed)
    neighbors = knn(Matrix.from_array(X), 3, metric=metric)
    parts = components(affinity(neighbors))
    joined = with_bridges(Matrix.from_array(X), neighbors)
    tree = minimum_spanning_tree(sp.csr_array(nearest_pairs(X, parts.labels, metric)))
    samples, distance, n_components = joined.bridges
    np.testing.assert_allclose(distance, np.sort(tree.data), atol=1e-12)
    assert tree.nnz > 0
    assert n_components == parts.count
    D = pairwise_distances(X.toarray(), metric=metric)
    np.testing.assert_allclose(distance, D[samples[:, 0], samples[:, 1]], atol=1e-12)
    assert np.all(samples[:, 0] < samples[:, 1])
    left = components(affinity(joined))
    assert left.count == parts.count - len(distance)
    if metric == "euclidean":
        assert left.count == 1
    else:
        assert left.isolated == parts.isolated >= 5


def test_blocks_and_equal_distances_do_not_matter(metric, monkeypatch):
    X = sp.csr_array(np.round(clusters(metric, 3).toarray()))
    neighbors = knn(Matrix.from_array(X), 2, metric=metric)
    expected = with_bridges(Matrix.from_array(X), neighbors).bridges
    assert len(np.unique(expected.distance)) < len(expected.distance)
    monkeypatch.setattr(spanning_tree, "block_size", lambda n, list_bytes, cost: 16)
    found = with_bridges(Matrix.from_array(X, tile_rows=37), neighbors).bridges
    for array, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(array, other)


def test_a_component_that_outgrows_the_first_one_is_joined_to_it():
    """The largest component never asks, and small ones that join first become larger than it."""
    x = np.concatenate([np.linspace(0, 0.9, 10), 100 + 2.0 * np.arange(12).repeat(2)])
    X = np.column_stack([x, np.tile([0, 0.1], 17)])
    neighbors = knn(Matrix.from_array(X), 1, metric="euclidean")
    joined = with_bridges(Matrix.from_array(X), neighbors)
    assert components(affinity(joined)).count == 1
    assert joined.bridges.distance[-1] == pytest.approx(99.1, abs=0.1)


def test_a_connected_graph_is_not_read_again(text):
    X = Matrix.from_array(text[0])
    neighbors = knn(X, 8)
    before = X.passes
    joined = with_bridges(X, neighbors)
    assert X.passes == before
    assert joined.bridges.n_components == 1
    np.testing.assert_array_equal(affinity(joined).toarray(), affinity(neighbors).toarray())
    assert with_bridges(X, joined) is joined


def test_few_samples_ask_where_the_graph_is_approximate(monkeypatch, change):
    X = Matrix.from_array(clusters("euclidean", 0))
    neighbors = knn(X, 3, metric="euclidean")
    exact = with_bridges(X, neighbors).bridges
    asked = []
    change(spanning_tree.EXACT_BELOW, 0.0)  # one sample per component
    nearest = spanning_tree._nearest_outside
    monkeypatch.setattr(
        spanning_tree,
        "_nearest_outside",
        lambda X, blocks, rows, *rest: asked.append(len(rows)) or nearest(X, blocks, rows, *rest),
    )
    neighbors.info["method"] = "approx"
    found = with_bridges(X, neighbors)
    assert components(affinity(found)).count == 1
    assert asked[0] == exact.n_components - 1
    assert np.all(found.bridges.distance >= exact.distance - 1e-12)


@pytest.mark.process
def test_workers_find_the_same_bridges(metric):
    X = clusters(metric, 1)
    expected = with_bridges(Matrix.from_array(X), knn(Matrix.from_array(X), 3, metric=metric))
    with engine.cluster(workers=2, memory_limit="1GB"):
        matrix = Matrix.from_array(X, tile_rows=40)
        matrix = Matrix(matrix.shape, rows=matrix.row_tiles)
        found = with_bridges(matrix, knn(matrix, 3, metric=metric))
    for array, other in zip(found.bridges, expected.bridges, strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize("weights", ["binary", "cosine", "heat"])
def test_a_bridge_has_the_weight_of_an_edge_of_its_length(weights):
    X = clusters("cosine", 0)
    neighbors = knn(Matrix.from_array(X), 3)
    joined = with_bridges(Matrix.from_array(X), neighbors)
    (i, j), d = joined.bridges.samples.T, joined.bridges.distance
    width = neighbors.distance[neighbors.index >= 0].mean()
    expected = {"binary": 1.0, "cosine": 1 - d, "heat": np.exp(-(d**2) / (2 * width**2))}
    A = affinity(joined, weights)
    np.testing.assert_allclose(A[i, j], expected[weights], rtol=1e-12)
    np.testing.assert_allclose(A[j, i], expected[weights], rtol=1e-12)
    without = A.tolil()
    without[i, j] = without[j, i] = 0
    np.testing.assert_array_equal(without.toarray(), affinity(neighbors, weights).toarray())


def test_a_bridge_that_rounding_would_lose_is_left_out(rng):
    X = rng.normal(size=(40, 3))
    X[:20] += 30
    joined = with_bridges(Matrix.from_array(X), knn(Matrix.from_array(X), 4, metric="euclidean"))
    assert len(joined.bridges.distance) == 1
    assert components(affinity(joined, "heat")).count == 2
    assert components(affinity(joined, "binary")).count == 1


def test_a_bridge_is_a_hyperedge_of_two_samples():
    X = clusters("euclidean", 0)
    neighbors = knn(Matrix.from_array(X), 3, metric="euclidean")
    joined = with_bridges(Matrix.from_array(X), neighbors)
    H = neighbor_hyperedges(joined).H.toarray()
    b = len(joined.bridges.distance)
    np.testing.assert_array_equal(H[:, :-b], neighbor_hyperedges(neighbors).H.toarray())
    members = [np.flatnonzero(edge) for edge in H[:, -b:].T]
    np.testing.assert_array_equal(members, joined.bridges.samples)
