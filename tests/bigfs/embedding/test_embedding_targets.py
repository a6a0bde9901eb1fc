"""Each T against the leading eigenvectors of the paper's S (Table 1), formed densely."""

import numpy as np
import pytest

from bigfs import DLSR, L1SVM, RFS, TRCFS, Matrix, MultiTaskLasso, engine
from bigfs.embedding import spectral, targets
from bigfs.graph import affinity, knn


def projector(T):
    Q = np.linalg.qr(T)[0]
    return Q @ Q.T


def leading(S, r):
    values, vectors = np.linalg.eigh(S)
    return vectors[:, ::-1][:, :r], values[::-1][:r]


@pytest.fixture
def graph(text):
    X, _ = text
    return affinity(knn(Matrix.from_array(X), 8), weights="cosine")


def test_pca(text):
    X, _ = text
    Xc = X.toarray().astype(float) - X.toarray().mean(axis=0, dtype=float)
    T = targets.pca(Matrix.from_array(X), 3).value.vectors
    np.testing.assert_allclose(T.T @ T, np.eye(3), atol=1e-10)
    values = leading(Xc @ Xc.T, 3)[1]
    # the SVD's in_class tolerance
    np.testing.assert_allclose(np.sum((Xc.T @ T) ** 2, axis=0), values, rtol=1e-3)


def test_cca_is_the_projection_on_the_centered_targets(rng):
    Y = rng.normal(size=(40, 3))
    Y = np.column_stack([Y, Y[:, 0] - Y[:, 1]])  # rank 3
    Yc = Y - Y.mean(axis=0)
    T = targets.cca(Y)
    assert T.shape == (40, 3)
    np.testing.assert_allclose(T @ T.T, Yc @ np.linalg.pinv(Yc.T @ Yc) @ Yc.T, atol=1e-10)
    with pytest.raises(ValueError, match="constant"):
        targets.cca(np.ones((5, 2)))


def test_cca_of_class_indicators_is_lda(text):
    _, y = text
    np.testing.assert_allclose(
        projector(targets.cca(targets.one_hot(y, 4))),
        projector(targets.lda_factor(y, 4)[y]),
        atol=1e-10,
    )


def test_lpp(graph):
    root = 1 / np.sqrt(graph.sum(axis=1))
    S = root[:, None] * graph.toarray() * root
    vectors, values = leading(S, 4)
    assert values[0] == pytest.approx(1)  # the trivial one
    found = spectral.graph_embedding(graph, 3).value.vectors
    np.testing.assert_allclose(projector(found), projector(vectors[:, 1:]), atol=1e-6)


def test_hsl_with_one_hyperedge_per_label(rng):
    Y = (rng.random((30, 4)) < 0.4).astype(float)
    Y[:4] = np.eye(4)
    Y[5] = 0  # an unlabeled sample
    Dv, De = Y.sum(axis=1), Y.sum(axis=0)
    root = np.where(Dv > 0, 1 / np.sqrt(np.maximum(Dv, 1)), 0)
    S = root[:, None] * (Y / De) @ Y.T * root
    vectors, values = leading(S, 4)
    assert values[0] == pytest.approx(1)
    T = targets.hsl_labels(Y)
    np.testing.assert_allclose(projector(T), projector(vectors[:, 1:]), atol=1e-8)
    assert not T[5].any()


@pytest.mark.parametrize("share", [1.0, 0.3], ids=["all labeled", "few labeled"])
def test_sda(text, graph, share):
    _, y = text
    rng = np.random.default_rng(0)
    codes = np.where(rng.random(120) < share, y, -1)
    beta, A = 0.7, graph.toarray()
    Wb = np.zeros((120, 120))
    for c in range(4):
        in_class = codes == c
        Wb[np.ix_(in_class, in_class)] = 1 / in_class.sum()
    scale = np.sqrt(1 + beta * A.sum(axis=1))
    S = (Wb + beta * A) / np.outer(scale, scale)
    constant = scale / np.linalg.norm(scale)
    off = np.eye(120) - np.outer(constant, constant)
    vectors, _ = leading(off @ S @ off, 3)
    assert np.linalg.eigvalsh(S)[-1] <= 1 + 1e-12
    np.testing.assert_allclose(
        projector(targets.sda(graph, codes, 4, 3, beta).value.vectors),
        projector(vectors),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    "selector", [L1SVM(), MultiTaskLasso(), RFS(), DLSR(), TRCFS()], ids=lambda s: type(s).__name__
)
def test_targets_that_do_not_fit_are_refused_before_they_are_made(text, selector):
    X, _ = text
    matrix, y = Matrix.from_array(X), np.arange(X.shape[0]) // 2
    size = 8 * len(y) * (len(y) // 2)
    with (
        engine.limit_memory(size),
        pytest.raises(engine.MemoryLimitError, match=r"classes each|60 sparse"),
    ):
        selector.fit(matrix, y)


@pytest.mark.parametrize(
    ("sizes", "weighting"),
    [
        ((10, 15, 5), "balanced"),
        ((2, 3, 1), "balanced"),
        ((9, 52, 16, 36, 4), "root"),
        ((100, 225, 25), "root"),
    ],
)
def test_no_contrast_of_classes_is_lost(sizes, weighting):
    """Sizes of which a diagonal entry of the basis is −½."""
    y, c = np.repeat(np.arange(len(sizes)), sizes), len(sizes)
    weights = None
    if weighting == "root":
        weights = np.sqrt(1 / np.array(sizes)) * len(y) / np.sqrt(sizes).sum()
    T = targets.lda_factor(y, c, weights)[y]
    Y = targets.one_hot(y, c)
    S = Y @ np.diag(1 / np.array(sizes) if weights is None else weights) @ Y.T
    centering = np.eye(len(y)) - 1 / len(y)
    np.testing.assert_allclose(T @ T.T, centering @ S @ centering, atol=1e-12)


def test_the_signs_of_contrasts_do_not_depend_on_lapack(monkeypatch, rng):
    y = rng.integers(0, 6, 40)
    C, qr = targets.lda_factor(y, 6), np.linalg.qr
    signs = np.array([1, -1, 1, -1, -1, 1])
    monkeypatch.setattr(np.linalg, "qr", lambda A: (qr(A)[0] * signs, None))
    np.testing.assert_array_equal(targets.lda_factor(y, 6), C)


def test_hsl_refuses_counts_and_real_values(rng):
    for Y in (rng.integers(0, 4, (20, 3)).astype(float), rng.normal(size=(20, 2))):
        with pytest.raises(ValueError, match="indicator of label sets"):
            targets.hsl_labels(Y)
