"""JHLSR against a dense loop written from the formulas of docs/methods/jhlsr.md with hand-made
hypergraphs.
"""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs.embedding import kernels
from bigfs.graph.hypergraph import Hypergraph
from bigfs.linalg.ridge import SOLVERS
from bigfs.matrix import Matrix
from bigfs.result import Status, observed
from bigfs.selectors.jhlsr import EPSILON, JHLSR
from tests.helpers.fitting import MemoryCheckpoint, fit_few_steps


def data(n=30, d=12, seed=0, labeled=None, constant=1.0):
    """Three classes with one informative column each (5, 6, 7); column 3 empty, column 4 constant;
    and an incidence H (n × 9).
    """
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = sp.random_array((n, d), density=0.4, format="lil", rng=rng)
    X[np.arange(n), 5 + y] = 2.0
    X[:, 3] = 0
    X[:, 4] = constant
    H = (rng.random((n, 9)) < 0.3).astype(float)
    H[:, 0] = 1
    if labeled is not None:
        y = np.where(np.arange(n) < 3 * labeled, y, -1)
    return sp.csr_array(X), y, H


def pairwise_descent(q, mu, gamma):
    """The paper's w-step: move weight between two hyperedges at a time until nothing moves."""
    w = np.full(len(q), 1 / len(q))
    for _ in range(2000):
        moved = 0.0
        for i in range(len(q)):
            for j in range(i):
                best = (w[i] + w[j]) / 2 + mu * (q[i] - q[j]) / (4 * gamma)
                best = np.clip(best, 0, w[i] + w[j])
                moved, w[j], w[i] = max(moved, abs(best - w[i])), w[i] + w[j] - best, best
        if moved < 1e-13:
            break
    return w


def dense_jhlsr(X, y, H, mu, lam, gamma, rounds, learn=True):
    """The loop with dense matrices, explicit L_H and no working set."""
    X = X.toarray()
    n, d = X.shape
    classes = np.unique(y[y != -1])
    Phi = (y[:, None] == classes) / np.sqrt([(y == k).sum() for k in classes])
    A = np.diag((y != -1).astype(float))
    Dv, De = H.sum(axis=1), H.sum(axis=0)
    F = H / np.sqrt(Dv)[:, None]
    w, u, objective = np.full(H.shape[1], 1 / H.shape[1]), np.full(d, lam), []
    for _ in range(rounds):
        L = np.eye(n) - F @ np.diag(w / De) @ F.T
        S = np.linalg.solve(X.T @ (A + mu * L) @ X + np.diag(u), X.T @ A @ Phi)
        q = ((F.T @ X @ S) ** 2).sum(axis=1) / De
        w = pairwise_descent(q, mu, gamma) if learn else w
        L = np.eye(n) - F @ np.diag(w / De) @ F.T
        smooth = np.sqrt((S**2).sum(axis=1) + EPSILON)
        loss = np.sum((A @ X @ S - Phi) ** 2) + mu * np.trace(S.T @ X.T @ L @ X @ S)
        objective.append(loss + lam * smooth.sum() + gamma * w @ w)
        u = lam / (2 * smooth)
    return S, w, objective


def fit(X, y, **parameters):
    return fit_few_steps(JHLSR(**parameters), X, y)


@pytest.mark.parametrize("variant", ["joint", "hyper"])
@pytest.mark.parametrize(
    ("n", "d", "labeled"), [(30, 12, None), (30, 12, 1), (15, 40, 3), (15, 40, 1)]
)
@pytest.mark.parametrize("solver", [*SOLVERS, "auto"])
def test_equals_the_dense_loop(solver, n, d, labeled, variant):
    X, y, H = data(n, d, labeled=labeled)
    S, w, objective = dense_jhlsr(X, y, H, 0.8, 0.3, 0.05, 6, learn=variant == "joint")
    exact = {"solver": solver, "solver_tol": 1e-13, "solver_max_iter": 500, "max_iter": 6, "tol": 0}
    model = fit(X, y, mu=0.8, lam=0.3, gamma=0.05, hyperedges=H, variant=variant, **exact)
    np.testing.assert_allclose(model.coef_, S, atol=1e-6 * np.abs(S).max())
    np.testing.assert_allclose(model.hyperedge_weights_, w, atol=1e-6)
    np.testing.assert_allclose(
        [r["objective"] for r in model.result_.history], objective, rtol=1e-6
    )
    assert not model.coef_[3].any()
    assert model.mode_ == ("supervised" if labeled is None or 3 * labeled >= n else "semi")
    assert model.result_.stats["zero_hyperedges"] == np.sum(model.hyperedge_weights_ == 0)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_objective_never_rises_after_the_first_round(solver):
    for seed in range(2):
        X, y, H = data(20, 40, seed=seed, labeled=3)
        history = fit(
            X, y, mu=2.0, lam=0.2, gamma=0.02, hyperedges=H, solver=solver, max_iter=40, tol=0
        ).result_.history
        values = np.array([r["objective"] for r in history])
        # a feature that is left out may cost √ε
        assert np.all(np.diff(values) <= 1e-6 * values[:-1])


def test_converged_means_stationary_and_left_out_means_at_zero():
    X, y, H = data(60, 30)
    model = JHLSR(mu=0.5, lam=0.5, gamma=0.1, hyperedges=H, tol=1e-4, max_iter=5000).fit(X, y)
    assert model.result_.status is Status.CONVERGED
    M = (
        np.diag(np.ones(60))
        + 0.5 * Hypergraph.of(H).sparse_laplacian(model.hyperedge_weights_).toarray()
    )
    T = kernels.same_class_factor(y, 3)
    pull = 2 * X.T @ (T - M @ (X @ model.coef_))
    norms = np.linalg.norm(model.coef_, axis=1)
    strong = norms > 1e-3 * norms.max()
    np.testing.assert_allclose(
        pull[strong], 0.5 * model.coef_[strong] / norms[strong, None], atol=0.02 * 0.5
    )
    assert np.all(np.linalg.norm(pull[norms == 0], axis=1) <= 0.5 * (1 + 1e-4))
    assert np.sum(norms == 0) > 5
    assert set(model.selected_[:3]) == {5, 6, 7}


def test_the_weights_of_hyperedges_follow_gamma():
    X, y, H = data()
    few, many = (
        fit(X, y, gamma=g, hyperedges=H, max_iter=20, tol=0).hyperedge_weights_ for g in (1e-4, 1e3)
    )
    assert np.sum(few > 0) < np.sum(many > 0) == 9
    np.testing.assert_allclose(many, 1 / 9, atol=1e-3)
    assert few.sum() == pytest.approx(1)


def test_the_graph_variant_uses_half_the_normalized_laplacian():
    X, y, _ = data()
    model = fit(X, y, variant="graph", n_neighbors=4, max_iter=3, tol=0)
    H = model.hypergraph_.H
    A = (H @ H.T).toarray()
    np.fill_diagonal(A, 0)
    D = A.sum(axis=1)
    half = (np.eye(30) - A / np.sqrt(np.outer(D, D))) / 2
    np.testing.assert_allclose(
        model.hypergraph_.laplacian(model.hyperedge_weights_) @ np.eye(30), half, atol=1e-12
    )
    assert set(np.asarray(H.sum(axis=0))) == {2.0}
    assert np.all(D >= 4)


@pytest.mark.parametrize("hyperedges", ["lasso", "knn", "labels"])
def test_hyperedges_by_name(hyperedges):
    # JHLSR has no intercept: a constant column would stand in for it
    X, y, _ = data(90, 12, labeled=20, constant=0)
    model = JHLSR(hyperedges=hyperedges, n_neighbors=5, n_features_to_select=3, tol=0.1).fit(X, y)
    assert set(model.get_support(indices=True)) == {5, 6, 7}
    assert model.hyperedge_weights_.sum() == pytest.approx(1)


def test_without_labels_the_kernel_is_explained():
    X, _, _ = data(60, 12, constant=0)
    for labels in (None, np.full(60, -1)):
        model = JHLSR(
            hyperedges="knn",
            n_neighbors=5,
            n_components=20,
            lam=0.5,
            n_features_to_select=3,
            tol=0.1,
        ).fit(X, labels)
        assert model.mode_ == "unsupervised"
        assert model.coef_.shape == (12, 20)
        assert set(model.get_support(indices=True)) == {5, 6, 7}


def test_the_gaussian_factor_is_exact_with_all_landmarks_and_close_with_some():
    X, _, _ = data(40, 12)
    dense_X = X.toarray()
    squares = ((dense_X[:, None] - dense_X[None]) ** 2).sum(axis=2)
    K = np.exp(-squares / (2 * 1.5**2))
    tiled = Matrix.from_array(X, tile_rows=7, tile_columns=5)
    full, half = (kernels.gaussian_factor(tiled, r, sigma=1.5) for r in (40, 20))
    np.testing.assert_allclose(full @ full.T, K, atol=1e-7)
    assert half.shape[1] <= 20
    left = np.linalg.eigvalsh(K - half @ half.T)
    assert left.min() > -1e-7  # Nyström never overshoots
    assert left.sum() < 0.5 * np.trace(K)


def test_same_class_factor_is_the_kernel():
    code = np.array([0, 1, 1, -1, 0, 1])
    Phi = kernels.same_class_factor(code, 2)
    K = np.array([[(a == b >= 0) / max(np.sum(code == a), 1) for b in code] for a in code])
    np.testing.assert_allclose(Phi @ Phi.T, K, atol=1e-15)


def test_resumes_from_a_checkpoint():
    X, y, H = data()
    whole = fit(X, y, hyperedges=H, max_iter=9, tol=0)
    with observed(checkpoint=MemoryCheckpoint()):
        fit(X, y, hyperedges=H, max_iter=4, tol=0)
        resumed = fit(X, y, hyperedges=H, max_iter=9, tol=0)
    assert len(resumed.result_.history) == 9
    np.testing.assert_allclose(resumed.scores_, whole.scores_, rtol=1e-9)


def test_permuting_features_permutes_scores_and_tiles_do_not_matter(rng):
    X, y, H = data(30, 20, labeled=5)
    order = rng.permutation(20)
    parameters = {"hyperedges": H, "solver_tol": 1e-12, "max_iter": 10, "tol": 0}
    a = fit(X, y, **parameters)
    b = fit(X[:, order], y, **parameters)
    c = fit(Matrix.from_array(X, tile_rows=7, tile_columns=3), y, **parameters)
    np.testing.assert_allclose(b.scores_, a.scores_[order], atol=1e-8)
    np.testing.assert_allclose(c.scores_, a.scores_, atol=1e-8)


def test_bad_input_is_named():
    X, y, H = data()
    with pytest.raises(
        ValueError,
        match=r"mode='supervised' needs more labels than y has \(50% of the samples are labeled\)",
    ):
        JHLSR(mode="supervised", hyperedges=H).fit(X, np.where(np.arange(30) < 15, y, -1))
    with pytest.raises(ValueError, match="29 rows, but X has 30 samples"):
        JHLSR(hyperedges=H[1:]).fit(X, y)
    with pytest.raises(ValueError, match="needs labeled samples"):
        JHLSR(hyperedges="labels").fit(X)
