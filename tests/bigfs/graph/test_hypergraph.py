"""Hypergraphs against dense formulas; ℓ1 hyperedges against coordinate descent on the full
problem.
"""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Lasso

from bigfs import engine
from bigfs.graph import Neighbors, knn
from bigfs.graph.hypergraph.hypergraph import Hypergraph, label_hyperedges, neighbor_hyperedges
from bigfs.graph.hypergraph.lasso import DENSE_SHARE, lasso_hyperedges, lasso_supports
from bigfs.matrix import Matrix
from bigfs.selectors.row_sparse.jhlsr import HYPEREDGE_BYTES, MAKING_BYTES


@pytest.fixture
def hypergraph(rng):
    H = (rng.random((40, 13)) < 0.2).astype(float)
    H[7] = 0  # a sample in no hyperedge
    H[0] = 1
    w = rng.random(13)
    return Hypergraph.of(H, w / w.sum())


def dense_laplacian(H, w):
    degree = H.sum(axis=1)
    root = np.diag([d**-0.5 if d else 0.0 for d in degree])
    return np.eye(len(H)) - root @ H @ np.diag(w) @ np.diag(1 / H.sum(axis=0)) @ H.T @ root


def laplacian_times(hypergraph, w, V):
    """L_H(w) V, by the products of the distinct hyperedges."""
    weights = hypergraph.members.total_weights(w / hypergraph.edge_degrees)
    root, LV = hypergraph.root, V.copy()
    Z = hypergraph.edge_rows(root, weights, V)
    hypergraph.subtract_edge_rows(root, np.ones(len(V)), Z, LV)
    return LV


def test_the_laplacian_equals_its_formula(hypergraph, rng):
    V = rng.normal(size=(40, 3))
    for w in (hypergraph.w, rng.random(13)):
        L = dense_laplacian(hypergraph.H.toarray(), w)
        np.testing.assert_allclose(laplacian_times(hypergraph, w, V), L @ V, atol=1e-14)


def test_the_laplacian_is_semi_definite_on_the_simplex(hypergraph, rng):
    for w in np.vstack([rng.dirichlet(np.ones(13), size=5), np.eye(13)[:3]]):
        L = laplacian_times(hypergraph, w, np.eye(40))
        assert np.linalg.eigvalsh(L).min() > -1e-12


def test_label_hyperedges():
    labels = label_hyperedges(np.array([2, -1, 0, 2, 0]))
    np.testing.assert_array_equal(labels.H.toarray(), [[0, 1], [0, 0], [1, 0], [0, 1], [1, 0]])


def test_neighbor_hyperedges(text):
    X = sp.csr_array(sp.vstack([text[0], sp.csr_array((1, 80))]))  # an empty last row
    found = knn(Matrix.from_array(X), 5)
    edges = neighbor_hyperedges(found).H.toarray()
    assert edges.shape == (121, 120)
    for i in range(120):
        np.testing.assert_array_equal(
            np.flatnonzero(edges[:, i]), np.sort(np.append(found.index[i], i))
        )


def test_neighbor_hyperedges_take_few_bytes_per_member(rng):
    n, k = 20_000, 10
    neighbors = Neighbors(rng.integers(0, n, (n, k)).astype(np.int32), np.ones((n, k)), "cosine")
    neighbor_hyperedges(neighbors)  # compile
    tracemalloc.start()
    hypergraph = neighbor_hyperedges(neighbors)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    entries = hypergraph.H.nnz
    assert peak <= MAKING_BYTES * entries
    held = [hypergraph.H.data, hypergraph.H.indices, hypergraph.H.indptr, *hypergraph.members[1:]]
    assert sum(array.nbytes for array in held) <= HYPEREDGE_BYTES * entries


def test_lasso_hyperedges_take_few_bytes_per_member(text, monkeypatch):
    X, found = Matrix.from_array(text[0]), knn(Matrix.from_array(text[0]), 12)
    whole = lasso_hyperedges(X, found)
    computed = engine.map_tiles

    def compute(*arguments, **options):
        parts = computed(*arguments, **options) * 200
        tracemalloc.start()
        return [tuple(array.copy() for array in part) for part in parts]

    monkeypatch.setattr(engine, "map_tiles", compute)
    made = lasso_hyperedges(X, found)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made.H.nnz == 200 * whole.H.nnz
    assert peak <= MAKING_BYTES * made.H.nnz


def full_support(X, i, share):
    """The lasso of row i on all others, by coordinate descent; scikit-learn divides the loss by
    d.
    """
    others = np.delete(np.arange(len(X)), i)
    A, x = X[others].T, X[i]
    alpha = share * np.abs(A.T @ x).max() / X.shape[1]
    beta = Lasso(alpha=alpha, fit_intercept=False, tol=1e-10, max_iter=100_000).fit(A, x).coef_
    return np.sort(np.append(others[beta != 0], i))


def test_lasso_hyperedges_with_all_candidates_are_the_full_lasso(text):
    X = text[0][::3]
    dense, n = X.toarray().astype(float), X.shape[0]
    everyone = knn(Matrix.from_array(X), n - 1, metric="euclidean")
    made = lasso_hyperedges(Matrix.from_array(X, tile_rows=7), everyone, (0.8, 0.4, 0.1))
    edges = made.H.toarray()
    assert edges.shape == (n, 3 * n)
    for i in range(n):
        for m, share in enumerate((0.8, 0.4, 0.1)):
            np.testing.assert_array_equal(
                np.flatnonzero(edges[:, 3 * i + m]), full_support(dense, i, share)
            )


def test_first_weights(text):
    X = text[0][:30]
    dense = X.toarray().astype(float)
    made = lasso_hyperedges(Matrix.from_array(X), knn(Matrix.from_array(X), 8))
    edges = [np.flatnonzero(e) for e in made.H.toarray().T]
    heads = np.repeat(np.arange(30), 9)
    distances = [
        np.linalg.norm(dense[e] - dense[i], axis=1) for e, i in zip(edges, heads, strict=True)
    ]
    sigma = np.concatenate(
        [d[e != i] for d, e, i in zip(distances, edges, heads, strict=True)]
    ).mean()
    w = np.array([np.exp(-(d**2) / sigma**2).sum() for d in distances])
    # float32 rows: a squared distance of 1e-7 has an error of that order
    np.testing.assert_allclose(made.w, w / w.sum(), rtol=1e-6)
    assert made.w.sum() == pytest.approx(1)


def test_candidates_are_the_only_members_and_the_tiles_do_not_matter(text):
    X = text[0]
    found = knn(Matrix.from_array(X), 12)
    made = lasso_hyperedges(Matrix.from_array(X), found)
    again = lasso_hyperedges(Matrix.from_array(X, tile_rows=17), found)
    np.testing.assert_array_equal(made.H.toarray(), again.H.toarray())
    np.testing.assert_array_equal(made.w, again.w)
    for i, column in zip(np.repeat(np.arange(120), 9), made.H.toarray().T, strict=True):
        assert set(np.flatnonzero(column)) <= {i, *found.index[i]}
        assert column.sum() >= 2


def test_dense_rows_give_the_same_hyperedges_whatever_the_tiles(rng, change):
    X = rng.random((60, 25))
    found = knn(Matrix.from_array(X), 12)
    dense = lasso_hyperedges(Matrix.from_array(X), found)
    again = lasso_hyperedges(Matrix.from_array(X, tile_rows=7), found)
    np.testing.assert_array_equal(dense.w, again.w)
    change(DENSE_SHARE, 1.0)
    sparse = lasso_hyperedges(Matrix.from_array(X), found)
    for made in (again, sparse):
        np.testing.assert_array_equal(dense.H.toarray(), made.H.toarray())
    np.testing.assert_allclose(dense.w, sparse.w, rtol=1e-12)


def test_duplicates_and_empty_rows(text):
    X = text[0][:20].toarray()
    X[4], X[9] = X[3], 0
    X = Matrix.from_array(sp.csr_array(X))
    made = lasso_hyperedges(X, knn(X, 19, metric="euclidean"))
    assert made.shape == (20, 9 * 19)
    assert made.vertex_degrees[9] == 0
    assert np.isfinite(made.w).all()


def test_bad_requests_are_refused(text, allow_memory):
    X = Matrix.from_array(text[0])
    apart = Matrix.from_array(sp.csr_array(np.eye(5)))
    with pytest.raises(ValueError, match="no hyperedges"):
        lasso_hyperedges(apart, knn(apart, 4, metric="euclidean"))
    with pytest.raises(ValueError, match="13 finite weights"):
        Hypergraph.of(np.ones((4, 13)), np.ones(3))
    with pytest.raises(ValueError, match="empty columns"):
        Hypergraph.of(np.zeros((4, 2)))
    everyone = knn(X, 119)
    allow_memory(10_000)
    with pytest.raises(engine.MemoryLimitError, match="119 neighbors"):
        lasso_hyperedges(X, everyone)


def of_zeros_and_ones(rng):
    return rng.integers(0, 2, (15, 34)).astype(float), rng.integers(0, 2, 34).astype(float)


def of_whole_numbers(rng):
    k, d = int(rng.integers(3, 30)), int(rng.integers(2, 12))
    X = np.round(rng.normal(size=(k, d)) * rng.integers(1, 3))
    x = np.round(rng.normal(size=d))
    if rng.random() < 0.5:
        X[k // 2 :] = X[: k - k // 2] * (1 + 1e-9 * rng.normal(size=(k - k // 2, 1)))
    return X, x


@pytest.mark.parametrize(
    ("make", "seed"),
    [
        *((of_zeros_and_ones, seed) for seed in range(4)),
        *((of_whole_numbers, seed) for seed in (56, 76, 108, 133)),
    ],
)
def test_among_ties_the_members_still_reach_the_optimum(make, seed):
    """LARS enters one of several equal correlations, and keeps the others out too long."""
    X, x = make(np.random.default_rng(seed))
    largest = np.abs(X @ x).max()
    penalties = [0.9, 0.7, 0.5, 0.3, 0.1]

    def optimum(rho, columns):
        model = Lasso(alpha=rho * largest / len(x), fit_intercept=False, tol=1e-14, max_iter=10**6)
        residual = x - X[columns].T @ model.fit(X[columns].T, x).coef_
        return residual @ residual / 2 + rho * largest * np.abs(model.coef_).sum()

    both = np.vstack([X, x])
    for rho, support in zip(penalties, lasso_supports(both @ both.T, penalties), strict=True):
        assert optimum(rho, support) == pytest.approx(optimum(rho, np.arange(len(X))), rel=1e-9)
