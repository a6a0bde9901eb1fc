"""GSC against its optimality conditions, the lasso, and the rule by which it scores."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Lasso

from bigfs import GSC
from bigfs.coding.sparse_codes import lasso_codes
from bigfs.engine import MemoryLimitError, limit_memory
from bigfs.graph import affinity, knn, laplacian
from bigfs.matrix import Matrix
from bigfs.result import NotConvergedWarning, Status


@pytest.fixture
def data(rng):
    """60 × 14 sparse rows made of 5 bases; 8 unit atoms to code them on; the Laplacian of a 4-NN
    graph.
    """
    bases = np.maximum(rng.random((5, 14)) - 0.4, 0) + 0.6 * np.eye(5, 14)
    X = rng.random((60, 5)) @ bases * (rng.random((60, 14)) < 0.8)
    atoms = np.vstack([bases, rng.standard_normal((3, 14))])
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    return X, atoms, laplacian(affinity(knn(Matrix.from_array(X), 4), "heat")).toarray()


def gsc(atoms, **parameters):
    settings = {"n_neighbors": 4, "alpha": 0.5, "lam": 0.3, "tol": 1e-7, "max_iter": 1000}
    keep = {"n_features_to_select": len(atoms)}
    return GSC(dictionary=atoms, **{**settings, **keep, **parameters})


@pytest.mark.parametrize(("alpha", "lam"), [(0.5, 0.3), (20.0, 2.0)])
def test_codes_are_optimal_for_the_printed_problem(data, alpha, lam):
    X, atoms, L = data
    model = gsc(atoms, alpha=alpha, lam=lam).fit(sp.csr_array(X))
    S = model.codes_
    gradient = 2 * (S @ atoms - X) @ atoms.T + 2 * alpha * L @ S
    on = S != 0
    np.testing.assert_allclose(gradient[on], -lam * np.sign(S[on]), atol=1e-4)
    assert np.abs(gradient).max() <= lam + 1e-4
    assert 0.1 < on.mean() < 0.9
    objective = ((X - S @ atoms) ** 2).sum() + alpha * np.trace(S.T @ L @ S) + lam * np.abs(S).sum()
    history = model.result_.history
    assert objective == pytest.approx(history[-1]["objective"])
    assert np.all(np.diff([r["objective"] for r in history]) <= 1e-12 * history[0]["objective"])
    assert history[-1]["codes"] == on.sum()
    assert model.result_.status is Status.CONVERGED


def test_without_the_graph_each_sample_has_a_lasso(data):
    X, atoms, _ = data
    expected = Lasso(alpha=0.3 / (2 * 14), fit_intercept=False, tol=1e-10, max_iter=10_000)
    expected = expected.fit(atoms.T, X.T).coef_
    model = gsc(atoms, alpha=0.0).fit(X)
    np.testing.assert_allclose(model.codes_, expected, atol=1e-5)
    smooth = gsc(atoms, alpha=5.0, n_features_to_select=3).fit(X)
    new = smooth.transform(sp.csr_array(X[:20]))
    np.testing.assert_allclose(new, expected[:20, smooth.support_], atol=1e-5)


def test_codes_of_new_samples_that_end_early_say_so(data):
    X, atoms, _ = data
    H, R = atoms @ atoms.T, X @ atoms.T
    with pytest.warns(NotConvergedWarning, match="the codes of 60 samples stopped"):
        lasso_codes(H, R, 0.1, 1e-12, 1)
    every = lasso_codes(H, R, 0.1, 1e-3, 100)
    np.testing.assert_allclose(lasso_codes(H, R[7:9], 0.1, 1e-3, 100), every[7:9], rtol=1e-12)


def test_atoms_are_scored_by_their_largest_code(data):
    X, atoms, _ = data
    every = gsc(atoms).fit(X)
    np.testing.assert_allclose(every.scores_, np.abs(every.codes_).max(axis=0))
    model = gsc(atoms, n_features_to_select=3).fit(X)
    best = np.argsort(-every.scores_)[:3]
    np.testing.assert_array_equal(model.selected_, best)
    rebuilt = every.codes_[:, np.sort(best)] @ atoms[np.sort(best)]
    dense = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
    expected = 1 - (dense - rebuilt).var(axis=0) / dense.var(axis=0)
    np.testing.assert_allclose(model.column_importance_, expected)


def test_what_can_not_be_coded_is_refused(data):
    X, atoms, _ = data
    with (
        limit_memory(20_000),
        pytest.raises(MemoryLimitError, match=r"8 atoms .* needs 41\.00 kiB"),
    ):
        gsc(atoms).fit(X)
    with pytest.raises(ValueError, match="every code is zero"):
        gsc(np.eye(14)[:3]).fit(np.eye(14)[5:])
