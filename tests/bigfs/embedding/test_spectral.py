"""Spectral results against dense eigen- and singular value decompositions."""

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import subspace_angles

from bigfs import engine
from bigfs.embedding import spectral
from bigfs.embedding.spectral import (
    MAX_DENSE_VERTICES,
    fix_signs,
    graph_embedding,
    graph_parts,
    hypergraph_embedding,
    hypergraph_parts,
    randomized_svd,
    require_width,
)
from bigfs.graph import affinity, components, knn, laplacian
from bigfs.graph.hypergraph.hypergraph import Hypergraph, neighbor_hyperedges
from bigfs.linalg import lanczos
from bigfs.matrix import Centered, Matrix
from bigfs.result import NotConvergedWarning, Status


@pytest.fixture(params=["dense", "lanczos"])
def algorithm(request, change):
    change(MAX_DENSE_VERTICES, 10_000 if request.param == "dense" else 0)
    return request.param


def ring(n, chord):
    """A circulant graph: every eigenvalue is a sum of cosines."""
    i = np.arange(n)
    A = sp.coo_array(
        (np.ones(2 * n), (np.tile(i, 2), np.concatenate([(i + 1) % n, (i + chord) % n]))),
        shape=(n, n),
    )
    return sp.csr_array(A + A.T)


def two_parts(text):
    """A kNN affinity whose graph falls apart: two corpora that share no term, and an isolated
    vertex.
    """
    X = sp.csr_array(sp.block_diag([text[0], text[0][:50], sp.csr_array((1, 1))]))
    return affinity(knn(Matrix.from_array(X), 5), "cosine")


def test_graph_embedding_equals_the_dense_one(text, algorithm):
    A = affinity(knn(Matrix.from_array(text[0]), 8), "heat")
    assert components(A).count == 1
    values, vectors = np.linalg.eigh(laplacian(A, "normalized").toarray())
    result = graph_embedding(A, 5)
    np.testing.assert_allclose(1 - result.value.values, values[1:6], atol=1e-9)
    np.testing.assert_allclose(
        np.abs(vectors[:, 1:6].T @ result.value.vectors), np.eye(5), atol=1e-5
    )
    assert result.status is Status.CONVERGED
    assert result.stats["residual"] < 1e-8
    assert not result.stats["degenerate"]


def test_one_direction_of_the_null_space_is_trivial(text, algorithm):
    """The isolated vertex is set aside. The contrast of the two parts comes first."""
    A = two_parts(text)
    parts = components(A)
    assert (parts.count, parts.isolated) == (3, 1)
    values = np.sort(np.linalg.eigvalsh(laplacian(A, "normalized").toarray()))
    assert np.sum(values < 1e-9) == 3
    result = graph_embedding(A, 6)
    vectors = result.value.vectors
    np.testing.assert_allclose(1 - result.value.values, values[2:8], atol=1e-9)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-8)
    assert (result.stats["n_set_aside"], result.stats["contrasts"]) == (1, 1)
    root = np.sqrt(A.sum(axis=1))
    np.testing.assert_allclose(vectors.T @ root, 0, atol=1e-8)
    np.testing.assert_array_equal(vectors[-1], 0)
    of_first = np.divide(vectors[:-1, 0], root[:-1])
    for part in range(2):
        inside = of_first[parts.labels[:-1] == part]
        np.testing.assert_allclose(inside, inside[0], rtol=1e-12)
    assert np.sign(of_first[0]) != np.sign(of_first[-1])


def test_contrasts_are_orthonormal_and_begin_with_the_largest_parts(rng):
    """Parts of 9, 7, 5 and 4 samples, with random weights, and a pair that is set aside."""
    sizes = [4, 9, 2, 5, 7]
    A = sp.block_diag([sp.coo_array(np.triu(rng.random((n, n)), 1)) for n in sizes])
    A = sp.csr_array(A + A.T)
    label, root = np.repeat(np.arange(5), sizes), np.sqrt(A.sum(axis=1))
    parts = graph_parts(A, 3)
    result = graph_embedding(A, 3, parts)
    vectors = result.value.vectors
    assert (result.stats["n_set_aside"], result.stats["contrasts"]) == (2, 3)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(vectors.T @ np.where(label == 2, 0, root), 0, atol=1e-14)
    np.testing.assert_array_equal(vectors[label == 2], 0)
    level = np.array([vectors[label == c] / root[label == c, None] for c in (1, 4, 3, 0)], object)
    level = np.array([part[0] for part in level])  # constant in each part
    for c in range(3):  # a part against all smaller ones
        np.testing.assert_array_equal(level[:c, c], 0)
        np.testing.assert_allclose(level[c + 1 :, c], level[c + 1, c])
        assert level[c, c] * level[c + 1, c] < 0
    np.testing.assert_array_equal(graph_embedding(A, 2, parts).value.vectors, vectors[:, :2])


def test_all_parts_are_kept_where_all_are_small():
    A = sp.csr_array(sp.kron(sp.eye_array(4), 1 - np.eye(3)))
    assert graph_parts(A, 5).n_parts == 4


@pytest.mark.parametrize("bridge", [0, 1e-12])
def test_equal_components_have_their_eigenvalues_as_often(rng, change, bridge):
    """One space of Lanczos iterations holds one of six equal eigenvalues. The check finds all."""
    change(MAX_DENSE_VERTICES, 0)
    X = np.random.default_rng(0).normal(size=(100, 5))
    one = affinity(knn(Matrix.from_array(X), 5, metric="euclidean"), "heat")
    A = sp.block_diag([one] * 6, format="lil")
    for first in range(0, 500, 100):
        A[first, first + 100] = A[first + 100, first] = bridge
    A = sp.csr_array(A)
    A.eliminate_zeros()
    values = np.linalg.eigvalsh(laplacian(A, "normalized").toarray())[1:13]
    result = graph_embedding(A, 12)
    np.testing.assert_allclose(1 - result.value.values, values, atol=1e-8)
    assert result.stats["degenerate"]
    assert result.converged


def test_equal_eigenvalues_are_degenerate(algorithm):
    A = ring(60, 7)
    angle = 2 * np.pi * np.arange(60) / 60
    values = np.sort((np.cos(angle) + np.cos(7 * angle)) / 2)[::-1]
    result = graph_embedding(A, 4)
    np.testing.assert_allclose(result.value.values, values[1:5], atol=1e-9)
    assert result.stats["degenerate"]


def test_hypergraph_embedding_equals_the_dense_one(text, algorithm, rng):
    hypergraph = neighbor_hyperedges(knn(Matrix.from_array(text[0]), 6))
    G = hypergraph.H.toarray() * hypergraph.root[:, None]
    L = np.eye(len(G)) - G * (hypergraph.w / hypergraph.edge_degrees) @ G.T
    values = np.sort(np.linalg.eigvalsh(L))
    result = hypergraph_embedding(hypergraph, 4)
    np.testing.assert_allclose(1 - result.value.values, values[1:5], atol=1e-9)
    w = rng.random(hypergraph.shape[1])
    H = hypergraph.H.toarray()
    root = np.diag((H @ w) ** -0.5)
    weighted = root @ H @ np.diag(w / H.sum(axis=0)) @ H.T @ root
    result = hypergraph_embedding(Hypergraph.of(H, w), 4)
    np.testing.assert_allclose(
        result.value.values, np.sort(np.linalg.eigvalsh(weighted))[::-1][1:5], atol=1e-9
    )


def test_a_hyperedge_of_no_weight_joins_nothing(rng):
    H = np.zeros((20, 5))
    H[:10, :2] = rng.random((10, 2)) < 0.7
    H[10:, 2:4] = rng.random((10, 2)) < 0.7
    H[[0, 10], 0], H[[0, 19], 4] = [1, 0], 1
    joined, parted = Hypergraph.of(H), Hypergraph.of(H, [1, 1, 1, 1, 0])
    assert hypergraph_parts(parted, 1).n_parts == hypergraph_parts(joined, 1).n_parts + 1


def test_the_embedding_is_the_same_every_time(text):
    A = affinity(knn(Matrix.from_array(text[0]), 8), "heat")
    np.testing.assert_array_equal(
        graph_embedding(A, 5).value.vectors, graph_embedding(A, 5).value.vectors
    )
    flipped = fix_signs(-graph_embedding(A, 5).value.vectors)
    np.testing.assert_array_equal(flipped, graph_embedding(A, 5).value.vectors)


def test_iteration_limit_warns_with_the_residual(rng, change):
    change(MAX_DENSE_VERTICES, 0)
    A = ring(2000, 2)  # a long ring: eigenvalues crowd at 1
    with pytest.warns(NotConvergedWarning, match="graph embedding stopped"):
        result = graph_embedding(A, 4, max_iter=1)
    assert result.status is Status.MAX_ITER
    gram = result.value.vectors.T @ result.value.vectors
    np.testing.assert_allclose(gram, np.eye(4), atol=1e-8)


def test_a_space_that_ends_is_left(algorithm):
    """A clique: all eigenvalues but one are equal, so two steps see all that one vector reaches."""
    A = sp.csr_array(1 - np.eye(120))
    result = graph_embedding(A, 7, positive=False)
    np.testing.assert_allclose(result.value.values, -1 / 119, atol=1e-12)
    np.testing.assert_allclose(result.value.vectors.T @ result.value.vectors, np.eye(7), atol=1e-8)
    assert result.converged
    assert result.stats["degenerate"]


def test_a_vector_in_the_span_of_the_basis_is_replaced(rng):
    V = np.linalg.qr(rng.normal(size=(50, 4)))[0].T.copy()
    for row in (np.zeros(50), V[0] + 2 * V[2]):
        V[3] = row
        products, rest = lanczos._make_orthonormal(V, 3, rng)
        np.testing.assert_allclose(products, V[:3] @ row, atol=1e-14)
        assert rest < 1e-14
        np.testing.assert_allclose(V @ V.T, np.eye(4), atol=1e-14)


def test_eigenvectors_take_what_is_projected(rng):
    n, r = 40_000, 10
    A = sp.random_array((n, n), density=4 / n, rng=rng, format="csr")
    A = sp.csr_array(A + A.T)
    with pytest.warns(NotConvergedWarning):
        graph_embedding(A, r, max_iter=2)  # with what it imports
    tracemalloc.start()
    with pytest.warns(NotConvergedWarning):
        graph_embedding(A, r, max_iter=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    projected = 8 * n * (lanczos.basis_size(r + 1) + r + 1 + spectral.VECTORS_BESIDE)
    assert 0.7 * projected < peak < projected
    with engine.limit_memory(projected - 1), pytest.raises(engine.MemoryLimitError, match="10 eig"):
        graph_embedding(A, r)


def test_too_many_vectors_are_refused(text):
    A = two_parts(text)
    with pytest.raises(ValueError, match="non-trivial"):
        graph_embedding(A, A.shape[0] - 1)


@pytest.mark.parametrize("tile", [None, 7], ids=["whole", "tiles"])
@pytest.mark.parametrize("wide", [False, True], ids=["tall", "wide"])
def test_randomized_svd_equals_the_dense_one(text, tile, wide):
    S = sp.csr_array(text[0].T) if wide else text[0]
    assert wide == (S.shape[0] < S.shape[1])
    X = Matrix.from_array(S, tile_rows=tile, tile_columns=tile)
    result = randomized_svd(Centered(X), 3, tol=1e-8, max_iter=200)
    dense = S.toarray().astype(float)
    U, s, _ = np.linalg.svd(dense - dense.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(result.value.values, s[:3], rtol=1e-9)
    assert np.sin(subspace_angles(result.value.vectors, U[:, :3])).max() < 1e-6
    assert result.converged
    steps = len(result.history)
    assert result.stats["passes"] == (2 * steps if wide else steps + 1)


@pytest.mark.parametrize("shape", [(90, 30), (30, 90)])
def test_the_error_bounds_the_angle_of_the_singular_vectors(rng, shape):
    X = rng.normal(size=shape) * np.linspace(2, 1, shape[1]) + 5.0
    matrix = Matrix.from_array(X)
    U = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[0][:, :4]
    for steps in range(2, 40, 4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)
            found = randomized_svd(Centered(matrix), 4, tol=0, max_iter=steps)
        sine = np.sin(subspace_angles(found.value.vectors, U)).max()
        if found.stats["error"] < 0.1:  # it bounds once the space is about the true one
            assert sine <= found.stats["error"] + 1e-7
    assert found.stats["error"] < 0.1


def test_singular_vectors_of_far_columns_are_not_rounding(rng):
    X = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 20)) + 1e4
    matrix = Matrix.from_array(X)
    found = randomized_svd(Centered(matrix), 5).value
    s = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    assert found.vectors.shape == (200, 2)
    np.testing.assert_allclose(found.values, s[:2], rtol=1e-8)


def test_randomized_svd_of_low_rank_returns_the_rank(rng):
    X = Matrix.from_array(rng.normal(size=(50, 2)) @ rng.normal(size=(2, 20)))
    result = randomized_svd(Centered(X), 5)
    assert result.value.vectors.shape == (50, 2)
    with pytest.raises(ValueError, match="centered 50 × 20"):
        randomized_svd(Centered(X), 21)


def test_vectors_of_negative_eigenvalue_are_left_out():
    """Three cliques of 20: two contrasts, and else the eigenvalue −1/19."""
    A = sp.csr_array(np.kron(np.eye(3), np.ones((20, 20))) - np.eye(60))
    A = A + 1e-3 * (1 - np.eye(60))
    result = graph_embedding(sp.csr_array(A), 10)
    assert result.value.vectors.shape == (60, 2)
    assert result.stats["gap"] > 0.9
    with pytest.raises(ValueError, match="choose 2 or fewer"):
        require_width(result, 3)
    with pytest.raises(ValueError, match="no eigenvector separates"):
        graph_embedding(sp.csr_array(1 - np.eye(30)), 3)
