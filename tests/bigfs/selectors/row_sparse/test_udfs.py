"""UDFS against the matrices and the eigenproblem that its paper prints, on dense data."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from bigfs import UDFS, Matrix, engine
from bigfs.engine import MemoryLimitError
from bigfs.engine.budget import Shares
from bigfs.graph import knn
from bigfs.graph.discriminant import local_discriminant
from bigfs.linalg.ridge import Ridge
from bigfs.linalg.ridge.operator import SampleOperator
from bigfs.result import Status, observe
from bigfs.selectors.row_sparse.udfs import UDFSProblem
from tests.helpers.fitting import MemoryCheckpoint

SELECTOR = UDFS(n_components=3, metric="euclidean", n_features_to_select=3)


@pytest.fixture
def X(rng):
    """45 × 18 in three clusters, an empty and a constant column."""
    y = np.arange(45) % 3
    X = rng.normal(size=(45, 18)) * (rng.random((45, 18)) < 0.6)
    for k, j in enumerate((5, 6, 7)):
        X[:, j] += 3 * (y == k)
    X[:, 3], X[:, 4] = 0, 2
    return X


def printed_matrix(X, neighbors, lam):
    """λ Σ S_i H (X̃_iᵀX̃_i + λI)⁻¹ H S_iᵀ, with samples as the columns of X̃_i."""
    M = np.zeros((len(X), len(X)))
    for i, row in enumerate(neighbors.index):
        group = np.append(i, row[row >= 0])
        H = np.eye(len(group)) - 1 / len(group)
        local = X[group].T @ H
        B = np.linalg.inv(local.T @ local + lam * np.eye(len(group)))
        M[np.ix_(group, group)] += lam * H @ B @ H
    return M


def of_cosine(X):
    """Neighbors of which some are missing."""
    return knn(Matrix.from_array(np.where(X > 3, X, 0)), 5, metric="cosine")


@pytest.mark.parametrize("missing", [False, True])
def test_local_discriminant_is_the_printed_matrix(X, missing):
    neighbors = of_cosine(X) if missing else knn(Matrix.from_array(X), 5, metric="euclidean")
    assert (neighbors.index < 0).any() == missing
    for tile_rows in (45, 8):
        found = local_discriminant(Matrix.from_array(X, tile_rows=tile_rows), neighbors, 0.5)
        dense = SampleOperator(found.m, found.F).dense(45)
        np.testing.assert_allclose(dense, printed_matrix(X, neighbors, found.lam), atol=1e-10)
    assert 0.1 < found.lam < 10


@pytest.mark.parametrize("standardize", [True, False])
def test_weights_solve_the_papers_eigenproblem(X, standardize):
    selector = clone(SELECTOR).set_params(tol=1e-7, max_iter=2000, standardize=standardize)
    selector.fit(sp.csr_array(X))
    stats, W = selector.result_.stats, selector.coef_
    M = printed_matrix(X, knn(Matrix.from_array(X), 5, metric="euclidean"), stats["lam"])
    varies = X.std(axis=0) > 0
    spread = X[:, varies].std(axis=0) if standardize else np.ones(varies.sum())
    Z = X[:, varies] / spread
    XMX = Z.T @ M @ Z
    assert stats["gamma"] == pytest.approx(0.1 * np.diag(XMX).mean())
    np.testing.assert_allclose(X @ W, Z @ (W[varies] * spread[:, None]))  # in the subspace
    W = W[varies] * spread[:, None]
    norms = np.linalg.norm(W, axis=1)
    on = norms > 0
    P = XMX[np.ix_(on, on)] + stats["gamma"] * np.diag(1 / (2 * norms[on]))
    smallest = np.linalg.eigh(P)[1][:, :3]
    np.testing.assert_allclose(W[on] @ W[on].T, smallest @ smallest.T, atol=1e-4)
    objective = np.trace(W.T @ XMX @ W) + stats["gamma"] * norms.sum()
    assert objective == pytest.approx(selector.result_.history[-1]["objective"])
    slopes = np.linalg.norm(XMX @ W, axis=1)
    assert np.all(2 * slopes[~on] <= stats["gamma"] * (1 + 1e-6))
    np.testing.assert_allclose(selector.scores_[varies][~on], slopes[~on] / slopes.max() - 1)


def test_objective_falls_to_a_stationary_point(X):
    selector = clone(SELECTOR).fit(X)
    objective = [record["objective"] for record in selector.result_.history]
    assert np.all(np.diff(objective[1:]) <= 1e-12 * objective[1])
    assert selector.result_.status is Status.CONVERGED
    W = selector.coef_ * X.std(axis=0)[:, None]  # at unit variance
    np.testing.assert_allclose(W.T @ W, np.eye(3), atol=1e-6)
    assert (selector.scores_[[3, 4]] == -1).all()


def test_a_large_gamma_leaves_one_feature_per_dimension(X):
    selector = clone(SELECTOR).set_params(gamma=30.0, tol=1e-8).fit(X)
    assert selector.result_.history[-1]["features"] == 3
    assert np.count_nonzero(selector.scores_ > 0.99) == 3


def test_solvers_tiles_and_layouts_do_not_matter(X):
    graph = knn(Matrix.from_array(X), 5, metric="euclidean")
    expected = clone(SELECTOR).set_params(solver="woodbury", graph=graph).fit(X).scores_
    both = Matrix.from_array(sp.csr_array(X), tile_rows=11, tile_columns=4)
    rows = Matrix(both.shape, rows=both.row_tiles, local=True)
    exact = {"graph": graph, "solver_tol": 1e-12, "solver_max_iter": 500}
    for matrix, solver in ((both, "primal"), (both, "cg"), (rows, "primal")):
        found = clone(SELECTOR).set_params(solver=solver, **exact).fit(matrix).scores_
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_a_feature_that_left_returns(X):
    selector = clone(SELECTOR).set_params(gamma=0.02)
    whole = selector.fit(X).result_
    j = int(selector.selected_[0])
    theta, W = whole.value.theta.copy(), whole.value.W.copy()
    theta[j], W[j] = 0, 0
    checkpoint = MemoryCheckpoint()
    checkpoint.save("UDFS", whole.value._replace(theta=theta, W=W), [{"gap": 1.0}])
    with observe(checkpoint=checkpoint):
        resumed = clone(selector).fit(X)
    assert resumed.result_.status is Status.CONVERGED
    assert resumed.scores_[j] > 0


def test_bad_input_is_refused_in_one_line(X):
    graph = knn(Matrix.from_array(X), 5, metric="euclidean")
    wide = Matrix.from_array(np.hstack([X] * 3))
    ridge = {"solver": "primal"}
    M = local_discriminant(wide, graph, 1.0)
    problem = UDFSProblem(wide, M, 3, 0.1, True, tol=1e-2, ridge=ridge)
    refused = pytest.raises(MemoryLimitError, match=r"primal needs 68\.34 kiB")
    with engine.limit_memory(60_000), refused:
        problem.step(problem.start())
    with pytest.raises(ValueError, match="every feature of X that may be chosen is constant"):
        clone(SELECTOR).fit(np.ones((20, 3)))
    with pytest.raises(ValueError, match="n_components=17 but only 16 features vary"):
        clone(SELECTOR).set_params(n_components=17).fit(X)
    with pytest.raises(ValueError, match="graph has 20 samples, but X has 45"):
        clone(SELECTOR).set_params(graph=knn(Matrix.from_array(X[:20]), 3)).fit(X)


def test_gram_matrix_takes_a_wide_factor_in_strips(X, rng, change):
    F = sp.csr_array(rng.normal(size=(45, 70)) * (rng.random((45, 70)) < 0.2)) / 10
    M = SampleOperator(np.full(45, 2.0), F)
    expected = X.T @ M.dense(45) @ X
    change(engine.SHARES, Shares(ridge_strip=0))
    matrix = Matrix.from_array(X, tile_rows=20)
    np.testing.assert_allclose(Ridge(matrix, M, solver="primal").gram, expected, atol=1e-10)
    assert matrix.passes == 2 + 4  # the statistics, the squares, and strips of 18 columns
