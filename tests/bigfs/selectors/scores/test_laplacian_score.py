"""The Laplacian score against its definition with dense matrices."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs.graph import affinity, knn
from bigfs.matrix import Matrix
from bigfs.selectors.scores.graph import LaplacianScore


def dense_laplacian_score(X, A):
    """L_j = f̃ᵀLf̃ / f̃ᵀDf̃ with every matrix formed."""
    D, one = np.diag(A.sum(axis=1)), np.ones(len(A))
    scores = []
    for f in X.T:
        g = f - (f @ D @ one) / (one @ D @ one) * one
        scores.append((g @ (D - A) @ g) / (g @ D @ g))
    return np.array(scores)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_is_the_definition(text, metric):
    X, _ = text
    A = affinity(knn(Matrix.from_array(X), 6, metric=metric), "heat").toarray()
    expected = 1 - dense_laplacian_score(X.toarray().astype(float), A)
    for form in (X, X.toarray(), Matrix.from_array(X, tile_rows=50, tile_columns=33)):
        model = LaplacianScore(n_neighbors=6, metric=metric).fit(form)
        # X is float32; kNN squares it
        np.testing.assert_allclose(model.scores_, expected, atol=1e-6)


def test_informative_features_come_first(text):
    X, _ = text
    assert set(LaplacianScore(n_features_to_select=12).fit(X).selected_) == set(range(12))


def test_a_constant_column_is_last(text):
    X = sp.hstack([text[0], np.full((120, 1), 0.3)], format="csr")
    model = LaplacianScore().fit(X)
    assert model.scores_[80] == -1
    assert model.scores_.argmin() == 80
