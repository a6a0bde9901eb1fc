"""JELSR and NDFS against the conditions that their papers' problems set, on dense data."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from bigfs import JELSR, NDFS, Matrix
from bigfs.engine import MemoryLimitError, limit_memory
from bigfs.graph import affinity, knn
from bigfs.result import Status, observe
from tests.helpers.fitting import MemoryCheckpoint, fit_few_steps


@pytest.fixture
def X(rng):
    """45 × 18 in three clusters, an empty and a constant column."""
    y = np.arange(45) % 3
    X = rng.normal(size=(45, 18)) * (rng.random((45, 18)) < 0.6)
    for k, j in enumerate((5, 6, 7)):
        X[:, j] += 2.5 * (y == k)
    X[:, 3], X[:, 4] = 0, 2
    return X


def dense_parts(X):
    """The normalized Laplacian, the centering matrix and the trivial vectors, from the formulas."""
    A = affinity(knn(Matrix.from_array(X), 5, metric="euclidean"), "heat").toarray()
    root = np.sqrt(A.sum(axis=1))
    L = np.eye(45) - A / np.outer(root, root)
    values, vectors = np.linalg.eigh(L)
    return L, np.eye(45) - 1 / 45, vectors[:, np.abs(values) < 1e-10]


def dense_weights(X, H, Y, W, penalty):
    """W from the norms of its own rows, as the papers print it."""
    on = np.linalg.norm(W, axis=1) > 0
    D = np.diag(1 / (2 * np.linalg.norm(W[on], axis=1)))
    solved = np.zeros_like(W)
    solved[on] = np.linalg.solve(X[:, on].T @ H @ X[:, on] + penalty * D, X[:, on].T @ H @ Y)
    return solved


@pytest.mark.filterwarnings("ignore::bigfs.validation.UnequalScalesWarning")
@pytest.mark.parametrize("kind", [JELSR, NDFS])
def test_a_run_whose_systems_are_not_solved_has_not_converged(rng, kind):
    """Where CG stops early W hardly moves, and is still far from stationary."""
    X = rng.normal(size=(40, 12)) * np.logspace(-2, 1.5, 12)
    early = {"metric": "euclidean", "solver": "cg", "solver_max_iter": 1}
    selector = fit_few_steps(kind(**early), X)
    W, Y, penalty = selector.coef_, selector.embedding_, selector.result_.stats["penalty"]
    norms = np.linalg.norm(W, axis=1)
    on = norms > 0
    slopes = 2 * X.T @ (Y - X @ W - selector.intercept_) - penalty * np.divide(
        W, norms[:, None], out=np.zeros_like(W), where=on[:, None]
    )
    true = norms[on] @ np.linalg.norm(slopes[on], axis=1) / (penalty * norms.sum())
    assert selector.result_.history[-1]["violation"] >= true * (1 - 1e-6)
    assert not selector.result_.converged or true <= 1e-2


TIGHT = {"n_components": 3, "metric": "euclidean", "tol": 1e-6, "max_iter": 3000}


def test_jelsr_meets_both_equations_of_the_paper(X):
    selector = JELSR(alpha=0.1, beta=2.0, **TIGHT).fit(sp.csr_array(X))
    L, H, trivial = dense_parts(X)
    W, Y = selector.coef_, selector.embedding_
    penalty = selector.result_.stats["penalty"]
    np.testing.assert_allclose(dense_weights(X, H, Y, W, penalty), W, atol=1e-5)
    on = np.linalg.norm(W, axis=1) > 0
    HX = H @ X[:, on]
    D = np.diag(1 / (2 * np.linalg.norm(W[on], axis=1)))
    E = L + 2.0 * (H - HX @ np.linalg.solve(HX.T @ HX + penalty * D, HX.T))
    off = np.eye(45) - trivial @ trivial.T
    smallest = np.linalg.eigh(off @ E @ off + 10 * trivial @ trivial.T)[1][:, :3]
    np.testing.assert_allclose(Y @ Y.T, smallest @ smallest.T, atol=1e-4)
    norms = np.linalg.norm(W, axis=1)
    residual = Y - X @ W - selector.intercept_
    objective = np.trace(Y.T @ L @ Y) + 2 * ((residual**2).sum() + penalty * norms.sum())
    assert objective == pytest.approx(selector.result_.history[-1]["objective"])
    assert 3 <= on.sum() < 16
    assert np.all(2 * np.linalg.norm(X.T @ residual, axis=1) <= penalty * (1 + 1e-5))


def test_jelsrs_penalty_is_a_share_of_the_one_that_empties_the_model(X):
    L, H, trivial = dense_parts(X)
    _, vectors = np.linalg.eigh(L)
    Y = vectors[:, trivial.shape[1] : trivial.shape[1] + 3]
    largest = 2 * np.linalg.norm(X.T @ H @ Y, axis=1).max()
    selector = fit_few_steps(JELSR(alpha=0.25, n_components=3, metric="euclidean", max_iter=1), X)
    assert selector.result_.stats["penalty"] == pytest.approx(0.25 * largest)


def test_ndfs_meets_the_conditions_of_the_printed_problem(X):
    alpha, gamma = 2.0, 10.0
    selector = NDFS(alpha=alpha, gamma=gamma, **TIGHT | {"tol": 1e-9}).fit(sp.csr_array(X))
    L, H, _ = dense_parts(X)
    W, F = selector.coef_, selector.embedding_
    penalty = selector.result_.stats["penalty"]
    np.testing.assert_allclose(dense_weights(X, H, F, W, penalty), W, atol=1e-5)
    residual = F - X @ W - selector.intercept_
    gram = F.T @ F
    gradient = 2 * (L @ F + alpha * residual + gamma * F @ (gram - np.eye(3)))
    assert F.min() >= 0
    assert np.abs(F * gradient).max() <= 1e-5
    assert gradient.min() >= -1e-3
    norms = np.linalg.norm(W, axis=1)
    objective = (
        np.trace(F.T @ L @ F)
        + alpha * ((residual**2).sum() + penalty * norms.sum())
        + gamma / 2 * ((gram - np.eye(3)) ** 2).sum()
    )
    assert objective == pytest.approx(selector.result_.history[-1]["objective"])
    assert np.abs(gram - np.eye(3)).max() < 0.2
    assert adjusted_rand_score(np.arange(45) % 3, F.argmax(axis=1)) > 0.7


SELECTORS = [
    JELSR(n_components=2, metric="euclidean", n_features_to_select=3),
    NDFS(n_components=3, metric="euclidean", n_features_to_select=3),
]


@pytest.mark.parametrize("selector", SELECTORS, ids=["JELSR", "NDFS"])
class TestBoth:
    def test_objective_falls_and_the_planted_features_win(self, X, selector):
        found = clone(selector).fit(X)
        objective = [record["objective"] for record in found.result_.history]
        assert np.all(np.diff(objective[1:]) <= 1e-12 * objective[1])
        assert found.result_.status is Status.CONVERGED
        assert set(found.selected_) == {5, 6, 7}
        residual = found.embedding_ - X @ found.coef_ - found.intercept_
        correlations = np.linalg.norm(X.T @ residual, axis=1)
        out = found.scores_ <= 0
        assert out[[3, 4]].all()
        expected = correlations / correlations.max() - 1
        np.testing.assert_allclose(found.scores_[out], expected[out], atol=1e-9)

    def test_solvers_tiles_and_layouts_do_not_matter(self, X, selector):
        graph = knn(Matrix.from_array(X), 5, metric="euclidean")  # it needs rows
        expected = clone(selector).set_params(solver="woodbury", graph=graph).fit(X).scores_
        both = Matrix.from_array(sp.csr_array(X), tile_rows=11, tile_columns=4)
        rows = Matrix(both.shape, rows=both.row_tiles, local=True)
        columns = Matrix(both.shape, columns=both.column_tiles, local=True)
        exact = {"graph": graph, "solver_tol": 1e-12, "solver_max_iter": 500}
        for matrix, solver in ((both, "primal"), (rows, "cg"), (columns, "woodbury")):
            found = clone(selector).set_params(solver=solver, **exact).fit(matrix).scores_
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)

    def test_a_feature_that_left_returns(self, X, selector):
        whole = clone(selector).set_params(tol=1e-4, max_iter=2000).fit(X).result_
        left = whole.value._replace(theta=np.where(np.arange(18) == 5, 0, whole.value.theta))
        checkpoint = MemoryCheckpoint()
        checkpoint.save(type(selector).__name__, left, [{"gap": 1.0}])
        with observe(checkpoint=checkpoint):
            resumed = clone(selector).set_params(tol=1e-4, max_iter=2000).fit(X)
        assert resumed.scores_[5] > 0
        last = resumed.result_.history[-1]["objective"]
        assert last == pytest.approx(whole.history[-1]["objective"], rel=1e-2)

    def test_a_given_graph_is_used(self, X, selector):
        varies = np.ptp(X, axis=0) > 0
        graph = knn(Matrix.from_array(X[:, varies]), 5, metric="euclidean")
        expected = clone(selector).fit(X).scores_
        found = clone(selector).set_params(graph=graph, n_neighbors=9).fit(X).scores_
        np.testing.assert_array_equal(found, expected)

    def test_what_does_not_fit_is_refused(self, X, selector):
        wide, graph = np.hstack([X] * 5), sp.csr_array(np.kron(np.eye(3), np.ones((15, 15))))
        with (
            limit_memory(110_000),
            pytest.raises(MemoryLimitError, match=r"by primal needs 189\.84 kiB"),
        ):
            clone(selector).set_params(solver="primal", graph=graph).fit(wide)

    def test_constant_features_are_refused(self, selector):
        graph = sp.csr_array(np.kron(np.eye(3), np.ones((15, 15))))
        with pytest.raises(ValueError, match="every feature of X that may be chosen is constant"):
            clone(selector).set_params(graph=graph).fit(np.ones((45, 3)))
