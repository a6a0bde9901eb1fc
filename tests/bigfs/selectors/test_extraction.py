"""PCA, LPP and 2DLDA against scikit-learn and dense eigenproblems."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from sklearn import decomposition
from sklearn.svm import LinearSVC

from benchmarks import extraction
from bigfs import Matrix
from bigfs.engine import MemoryLimitError, limit_memory
from bigfs.evaluation.splits import Split
from bigfs.graph import affinity, knn
from bigfs.selectors.base.labels import Labels


@pytest.fixture
def X(rng):
    return rng.normal(size=(40, 12)) * (rng.random((40, 12)) < 0.6) * np.arange(1, 13)


def tiled(X):
    return Matrix.from_array(sp.csr_array(X), tile_rows=11, tile_columns=5)


def test_pca_is_that_of_scikit_learn(X):
    expected = decomposition.PCA(3).fit(X[:30])
    for matrix in (Matrix.from_array(X[:30]), tiled(X[:30])):
        found = extraction.pca(matrix, 3, tol=1e-9)
        Z, reference = found.embed(tiled(X[30:])), expected.transform(X[30:])
        signs = np.sign(np.sum(Z * reference, axis=0))
        np.testing.assert_allclose(Z * signs, reference, atol=1e-6)


def test_lpp_solves_its_eigenproblem_where_features_are_many(rng):
    """With d > n the projections meet XᵀLXw = λXᵀDXw, off the constant, as the paper has it."""
    X = rng.normal(size=(25, 60))
    A = affinity(knn(Matrix.from_array(X), 5), "cosine").toarray()
    found = extraction.lpp(tiled(X), 3, reg=1e-12)
    D = np.diag(A.sum(axis=1))
    values, vectors = scipy.linalg.eigh(D - A, D)
    Z, T = found.embed(Matrix.from_array(X)), vectors[:, 1:4]
    T = T - T.mean(axis=0)
    signs = np.sign(np.sum(Z * T, axis=0))
    np.testing.assert_allclose(Z * signs, T, atol=1e-6)
    w, L = found.components, D - A
    shift = Z - (np.diag(D) @ Z) / np.trace(D)  # 1 is the trivial eigenvector
    quotients = np.sum(Z * (L @ Z), axis=0) / np.sum(shift * (D @ shift), axis=0)
    np.testing.assert_allclose(quotients, values[1:4], rtol=1e-6)
    assert w.shape == (60, 3)


def test_lpp_is_a_ridge_regression_on_the_eigenvectors(X):
    A = affinity(knn(Matrix.from_array(X), 4, metric="euclidean"), "heat")
    found = extraction.lpp(tiled(X), 2, n_neighbors=4, metric="euclidean", reg=0.1)
    D = np.diag(A.toarray().sum(axis=1))
    T = scipy.linalg.eigh(D - A.toarray(), D)[1][:, 1:3]
    Xc, rho = X - X.mean(axis=0), 0.1 * (X**2).sum(axis=0).mean()
    W = np.linalg.solve(Xc.T @ Xc + rho * np.eye(12), Xc.T @ T)
    signs = np.sign(np.sum(W * found.components, axis=0))
    np.testing.assert_allclose(found.components * signs, W, atol=1e-8)
    given = extraction.lpp(Matrix.from_array(X), 2, graph=A, reg=0.1)
    np.testing.assert_allclose(given.components, found.components, atol=1e-8)


def test_lda2d_solves_the_printed_eigenproblem(rng):
    y = np.arange(30) % 3
    images = rng.normal(size=(30, 4, 5))
    images[:, :, 2] += 3 * y[:, None]
    X = images.reshape(30, 20)
    labels = Labels(np.arange(3), np.where(np.arange(30) < 27, y, -1))
    found = extraction.lda2d(tiled(X), labels, (4, 5), 2)
    S_b, S_w, every = np.zeros((5, 5)), np.zeros((5, 5)), images[:27]
    for k in range(3):
        mine = every[y[:27] == k]
        apart = mine.mean(axis=0) - every.mean(axis=0)
        S_b += len(mine) * apart.T @ apart
        S_w += sum((a - mine.mean(axis=0)).T @ (a - mine.mean(axis=0)) for a in mine)
    V = scipy.linalg.eigh(S_b, S_w)[1][:, ::-1][:, :2]
    V /= np.linalg.norm(V, axis=0)
    Z = found.embed(Matrix.from_array(X)).reshape(30, 4, 2)
    signs = np.sign(np.sum(Z * (images @ V), axis=(0, 1)))
    np.testing.assert_allclose(Z * signs, images @ V, atol=1e-4)
    assert np.abs(V[:, 0]).argmax() == 2


def test_embeddings_are_scored_by_the_model_of_a_selection(X):
    y = (X[:, 11] > 0).astype(int)
    split = Split(tiled(X[:30]), y[:30], tiled(X[30:]), y[30:])
    found = extraction.pca(split.X_train, 4)
    train, test = found.embed(split.X_train), found.embed(split.X_test)
    svm = LinearSVC(random_state=0, max_iter=10_000).fit(train, y[:30])
    scores = extraction.score(found, split)
    assert scores["accuracy"] == pytest.approx(svm.score(test, y[30:]))
    assert scores["accuracy"] > 0.6


def test_bad_input_is_refused_in_one_line(X):
    labels = Labels(np.arange(2), np.arange(40) % 2)
    with pytest.raises(ValueError, match="images of 3 × 5 pixels and 2 directions need 15 f"):
        extraction.lda2d(Matrix.from_array(X), labels, (3, 5), 2)
    with (
        limit_memory(1000),
        pytest.raises(MemoryLimitError, match="a map of 3 × 4 pixels to 3 × 4"),
    ):
        extraction.lda2d(Matrix.from_array(X), labels, (3, 4), 4)
    with limit_memory(1000), pytest.raises(MemoryLimitError, match="2 singular vectors"):
        extraction.pca(Matrix.from_array(X), 2)
    with pytest.raises(ValueError, match="number of singular vectors must be at most 12"):
        extraction.pca(Matrix.from_array(X), 20)
