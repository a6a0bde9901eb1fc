"""SPEC, LSDF and sSelect against their formulas with dense graphs."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import normalized_mutual_info_score

from bigfs import LSDF, SPEC, LaplacianScore, Matrix, SSelect, engine
from bigfs.graph import affinity, knn
from bigfs.selectors.scores import graph as graph_scores
from bigfs.selectors.scores import llfs

K = 6


@pytest.fixture
def sample(rng):
    """70 × 15 with zeros, every third sample in one of three classes."""
    y = rng.integers(0, 3, 70)
    X = rng.normal(size=(70, 15)) + np.linspace(0, 1.5, 15) * y[:, None]
    X *= rng.random((70, 15)) < 0.8
    X[:, 4] = 2
    return X, np.where(np.arange(70) % 3, -1, y)


def graph_of(X, weights="heat"):
    return affinity(knn(Matrix.from_array(X), K, metric="euclidean"), weights).toarray()


def spectrum(A):
    root = np.sqrt(A.sum(axis=1))
    return root, np.eye(len(A)) - A / np.outer(root, root)


def dense_spec(X, A, ranking, k):
    root, L = spectrum(A)
    values, vectors = np.linalg.eigh(L)
    F = root[:, None] * X
    F /= np.linalg.norm(F, axis=0)
    alpha = (vectors.T @ F) ** 2
    if ranking == "phi1":
        return 1 - values @ alpha
    if ranking == "phi2":
        return 1 - values @ alpha / np.where(1 - alpha[0] > 1e-9, 1 - alpha[0], np.inf)
    return (2 - values[1 : k + 1]) @ alpha[1 : k + 1]


@pytest.mark.parametrize("ranking", ["phi1", "phi2", "phi3"])
def test_spec_is_its_spectral_formula(sample, ranking):
    X, _ = sample
    expected = dense_spec(X, graph_of(X), ranking, 4)
    selector = SPEC(ranking=ranking, n_components=4, n_neighbors=K, metric="euclidean")
    scores = selector.fit(sp.csr_array(X)).scores_
    varies = np.arange(15) != 4
    np.testing.assert_allclose(scores[varies], expected[varies], rtol=1e-6)
    assert scores[4] == min(scores[varies].min(), {"phi1": 1, "phi2": -1, "phi3": 0}[ranking])


def test_phi2_is_the_laplacian_score(sample):
    X, _ = sample
    np.testing.assert_array_equal(
        SPEC(ranking="phi2").fit(X).scores_, LaplacianScore().fit(X).scores_
    )


def laplacian(A):
    return np.diag(A.sum(axis=1)) - A


@pytest.mark.parametrize("gamma", [100.0, 0.5])
def test_lsdf_is_its_formula_with_both_graphs(sample, gamma):
    X, y = sample
    known = y >= 0
    pairs = np.outer(known, known)
    same = pairs & (y[:, None] == y)
    W = np.where(pairs, gamma * same, graph_of(X, "binary"))
    np.fill_diagonal(W, 0)
    B = (pairs & ~same).astype(float)
    within = np.einsum("ij,ik,kj->j", X, laplacian(W), X)
    within[within < 1e-9] = np.inf
    expected = np.einsum("ij,ik,kj->j", X, laplacian(B), X) / within
    selector = LSDF(gamma=gamma, n_neighbors=K, metric="euclidean")
    np.testing.assert_allclose(selector.fit(Matrix.from_array(X), y).scores_, expected, rtol=1e-9)


def test_lsdf_of_labels_alone_has_no_graph(sample, monkeypatch):
    X, y = sample
    known = y >= 0
    monkeypatch.setattr("bigfs.selectors.base.sample_graph.knn", None)
    assert LSDF().fit(X[known], y[known]).scores_.argmax() > 7


@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shift", [0, -3])
def test_sselect_is_its_formula(sample, lam, shift):
    X, y = sample
    X = np.where(X, X + shift, 0)
    known, A = y >= 0, graph_of(X)
    degree, expected = A.sum(axis=1), []
    for f in X.T:
        g = f - (f @ degree) / degree.sum()
        smooth = -1.0 if f[0] == f.mean() else 1 - (g @ laplacian(A) @ g) / (g @ (degree * g))
        nmi = normalized_mutual_info_score(y[known], g[known] > 1e-12, average_method="geometric")
        expected.append(lam * smooth + (1 - lam) * nmi)
    selector = SSelect(lam=lam, n_neighbors=K, metric="euclidean").fit(Matrix.from_array(X), y)
    varies = np.arange(15) != 4
    np.testing.assert_allclose(selector.scores_[varies], np.array(expected)[varies], atol=1e-9)


SELECTORS = [
    SPEC(),
    SPEC(ranking="phi1"),
    LSDF(),
    SSelect(),
    LaplacianScore(),
]


@pytest.mark.parametrize("selector", SELECTORS, ids=str)
class TestOnGraph:
    def test_a_given_graph_is_used(self, sample, selector):
        X, y = sample
        X = Matrix.from_array(np.abs(X))
        neighbors = knn(X.take_columns(np.delete(np.arange(15), 4)), 3)  # without the constant one
        expected = clone(selector).set_params(n_neighbors=3).fit(X, y).scores_
        for graph in (neighbors, affinity(neighbors, getattr(selector, "weights", "binary"))):
            given = clone(selector).set_params(graph=graph).fit(X, y).scores_
            np.testing.assert_allclose(given, expected, rtol=1e-9)

    def test_a_graph_of_other_samples_is_refused(self, sample, selector):
        X, y = sample
        X = Matrix.from_array(np.abs(X))
        neighbors = knn(X.take_rows(np.arange(20)), 3)
        for graph in (neighbors, affinity(neighbors)):
            with pytest.raises(ValueError, match=r"graph has .*20.*, but X has 70"):
                clone(selector).set_params(graph=graph).fit(X, y)


def test_a_tile_of_a_tall_matrix_takes_no_more_than_a_task(rng):
    """Its 512 columns were averaged over their neighbors at once. LLFS took 64 anchors at once."""
    n, d = 20_000, 300
    F = sp.csc_array(sp.random_array((n, d), density=25 / d, rng=rng))
    A = sp.csr_array((np.ones(10 * n), rng.integers(0, n, 10 * n), np.arange(n + 1) * 10), (n, n))
    anchors = np.arange(64)
    squares = np.asarray(F[anchors].power(2).sum(axis=1)).ravel()
    operands = F.tocsr()[anchors], squares, anchors, np.arange(n) % 2, 3, False
    for fn, block, stop, shared in (
        (graph_scores._forms, F, d, (A, np.ones(n))),
        (llfs._nearest, F.tocsr(), n, operands),
    ):
        tracemalloc.start()
        fn(block, 0, stop, *shared)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < engine.TILE_TASK
    whole = graph_scores._forms(F, 0, d, A, np.ones(n))
    parts = [graph_scores._forms(F[:, [j]], j, j + 1, A, np.ones(n)) for j in range(0, d, 40)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole[:, ::40])
