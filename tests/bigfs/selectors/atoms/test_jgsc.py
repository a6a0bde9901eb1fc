"""JGSC and RJGSC against dense formulas, optimality conditions and limits."""

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp

from bigfs import GSC, JGSC, RJGSC, engine
from bigfs.coding import codes
from bigfs.coding.codes import L21Loss, SquaredLoss
from bigfs.graph import affinity, knn, laplacian
from bigfs.matrix import Matrix
from bigfs.result import Status
from tests.helpers.fitting import fit_few_steps

BOTH = pytest.mark.parametrize("Method", [JGSC, RJGSC])


@pytest.fixture
def data(rng):
    """60 × 14 sparse rows made of 5 bases; 9 unit atoms to code them on; the Laplacian of a 4-NN
    graph.
    """
    bases = np.maximum(rng.random((5, 14)) - 0.4, 0) + 0.6 * np.eye(5, 14)
    X = rng.random((60, 5)) @ bases + 0.05 * rng.random((60, 14))
    atoms = np.vstack([bases, rng.standard_normal((4, 14))])
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    X = sp.csr_array(X)
    L = laplacian(affinity(knn(Matrix.from_array(X), 4), "heat"))
    return X, atoms, L


def fit(Method, X, atoms, **parameters):
    settings = {
        "dictionary": atoms,
        "n_neighbors": 4,
        "alpha": 0.5,
        "lam": 1.0,
        "n_features_to_select": len(atoms),
    }
    return fit_few_steps(Method(**{**settings, **parameters}), X)


def dense_sylvester(H, L, alpha, R):
    """The paper's way: both sides diagonalized, S̃ = R̃ / (σ_i + αλ_j).

    Here S is n × m, SH + αLS = R.
    """
    sigma, U = scipy.linalg.eigh(H)
    ell, V = scipy.linalg.eigh(L)
    return V @ ((V.T @ R @ U) / (sigma + alpha * ell[:, None])) @ U.T


def dense_irls(X, B, L, alpha, lam, steps, robust, epsilon, epsilon_loss):
    """METHODS' IRLS with S m × n as printed, residuals formed, Kronecker-free but dense; and its
    objectives.
    """
    Xt, L, c = X.toarray().T, L.toarray(), np.ones(B.shape[1])
    d = 0.5 / np.sqrt((Xt**2).sum(axis=1) + epsilon_loss) if robust else np.ones(len(Xt))
    history = []
    for _ in range(steps):
        H, R = B.T @ (d[:, None] * B) + lam * np.diag(c), B.T @ (d[:, None] * Xt)
        S = scipy.linalg.solve_sylvester(H, alpha * L, R)
        residual, norms = Xt - B @ S, np.sqrt((S**2).sum(axis=1) + epsilon)
        loss = np.sqrt((residual**2).sum(axis=1) + epsilon_loss)
        c = 0.5 / norms
        d = 0.5 / loss if robust else d
        value = loss.sum() if robust else np.sum(residual**2)
        history.append(value + alpha * np.trace(S @ L @ S.T) + lam * norms.sum())
    return S, history


def smoothing(X, B, robust):
    """ε and ε', as `JointCoding` and `L21Loss` set them."""
    matrix = Matrix.from_array(X)
    first = (L21Loss if robust else SquaredLoss)(matrix, B).terms(None)
    typical = np.linalg.norm(first.R) / np.sqrt(B.shape[1]) / (np.trace(first.H) / B.shape[1])
    return (codes.SMOOTHING * typical) ** 2, codes.SMOOTHING**2 * np.mean(
        matrix.stats.sums_of_squares
    )


@BOTH
@pytest.mark.parametrize(("alpha", "lam"), [(0.5, 1.0), (5.0, 0.1), (0.0, 3.0)])
def test_steps_are_the_dense_formulas(data, Method, alpha, lam):
    X, atoms, L = data
    robust = Method is RJGSC
    model = fit(Method, X, atoms, alpha=alpha, lam=lam, max_iter=8, tol=1e-15)
    S, history = dense_irls(X, atoms.T, L, alpha, lam, 8, robust, *smoothing(X, atoms.T, robust))
    np.testing.assert_allclose(model.codes_, S.T, atol=1e-6 * np.abs(S).max())
    np.testing.assert_allclose([r["objective"] for r in model.result_.history], history, rtol=1e-6)
    np.testing.assert_allclose(
        model.scores_, np.linalg.norm(S, axis=1), atol=1e-6 * np.abs(S).max()
    )


@pytest.mark.parametrize("alpha", [0.0, 0.7, 30.0])
def test_sylvester_is_the_double_eigendecomposition(data, rng, alpha):
    _, _, L = data
    Q, R = rng.standard_normal((9, 9)), rng.standard_normal((60, 9))
    # weights of atoms on their way out are large
    H = Q @ Q.T + np.diag(10.0 ** rng.uniform(-2, 4, 9))
    S, residual = codes.solve_sylvester(H, L, alpha, R, np.zeros_like(R))
    exact = dense_sylvester(H, L.toarray(), alpha, R)
    np.testing.assert_allclose(S, exact, atol=1e-7 * np.abs(exact).max())
    assert residual <= 1e-8


@BOTH
def test_the_objective_never_rises_and_every_equation_is_solved(data, Method):
    X, atoms, _ = data
    history = fit(Method, X, atoms, max_iter=80, tol=1e-15).result_.history
    values = np.array([r["objective"] for r in history])
    assert np.all(np.diff(values) <= 1e-9 * values[0])  # the solves' tolerance
    assert max(r["sylvester"] for r in history) <= 1e-8


@BOTH
def test_the_violation_is_the_gradient_of_the_objective(data, Method):
    """By finite differences of the objective written out densely, in random directions."""
    X, atoms, L = data
    robust, B = Method is RJGSC, atoms.T
    model = fit(Method, X, atoms, max_iter=3)
    epsilon, epsilon_loss = smoothing(X, B, robust)

    def objective(S):
        residual = X.toarray().T - B @ S.T
        loss = (
            np.sum(np.sqrt((residual**2).sum(axis=1) + epsilon_loss))
            if robust
            else np.sum(residual**2)
        )
        return (
            loss
            + 0.5 * np.trace(S.T @ L.toarray() @ S)
            + np.sum(np.sqrt((S**2).sum(axis=0) + epsilon))
        )

    S = model.codes_
    gradient = scipy.optimize.approx_fprime(
        S.ravel(), lambda s: objective(s.reshape(S.shape)), 1e-6
    )
    state = model.result_.value
    violation = np.linalg.norm(gradient / 2) / np.linalg.norm(state.R)
    assert state.violation == pytest.approx(violation, rel=1e-2, abs=1e-5)  # forward differences


def test_convex_so_another_solver_finds_the_same_codes(data):
    """L-BFGS on the smoothed objective, from another start."""
    X, atoms, L = data
    model = fit(JGSC, X, atoms, max_iter=2000, tol=1e-9)
    epsilon, _ = smoothing(X, atoms.T, False)
    X, L = X.toarray(), L.toarray()

    def value_and_gradient(s):
        S = s.reshape(60, 9)
        residual, norms = S @ atoms - X, np.sqrt((S**2).sum(axis=0) + epsilon)
        value = np.sum(residual**2) + 0.5 * np.sum(S * (L @ S)) + norms.sum()
        return value, (2 * residual @ atoms.T + L @ S + S / norms).ravel()

    start = np.random.default_rng(1).standard_normal(540)
    found = scipy.optimize.minimize(
        value_and_gradient,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 20000, "ftol": 1e-16, "gtol": 1e-8, "maxfun": 40000},
    )
    assert model.result_.status is Status.CONVERGED
    assert model.result_.history[-1]["objective"] == pytest.approx(found.fun, rel=1e-6)
    np.testing.assert_allclose(
        model.codes_, found.x.reshape(60, 9), atol=1e-4 * np.abs(model.codes_).max()
    )


@BOTH
def test_past_the_largest_lambda_every_code_is_zero(data, Method):
    X, atoms, _ = data
    first = (L21Loss if Method is RJGSC else SquaredLoss)(Matrix.from_array(X), atoms.T).terms(None)
    largest = 2 * np.linalg.norm(first.R, axis=0).max()
    assert fit(
        Method, X, atoms, lam=1.5 * largest, max_iter=300, tol=1e-6
    ).scores_.max() <= 1e-3 * np.linalg.norm(X.toarray())
    assert fit(
        Method, X, atoms, lam=0.5 * largest, max_iter=300, tol=1e-6
    ).scores_.max() >= 1e-2 * np.linalg.norm(X.toarray())


def test_without_graph_and_penalty_it_is_least_squares(data):
    X, atoms, _ = data
    model = fit(JGSC, X, atoms[:5], alpha=0.0, lam=1e-9)
    exact = np.linalg.lstsq(atoms[:5].T, X.toarray().T, rcond=None)[0].T
    np.testing.assert_allclose(model.codes_, exact, atol=1e-6 * np.abs(exact).max())
    np.testing.assert_allclose(model.transform(X), exact, atol=1e-6 * np.abs(exact).max())


def test_new_samples_solve_the_ridge_system_and_inverse_transform_reconstructs(data):
    X, atoms, _ = data
    model = fit(RJGSC, X, atoms, n_features_to_select=4)
    state, kept = model.result_.value, np.flatnonzero(model.support_)
    D, C = np.diag(state.d), np.diag(state.c)
    x = X.toarray()[7]
    s = np.linalg.solve(atoms @ D @ atoms.T + 1.0 * C, atoms @ D @ x)
    np.testing.assert_allclose(model.transform(X)[7], s[kept], atol=1e-8)
    np.testing.assert_allclose(
        model.inverse_transform(model.transform(X))[7], s[kept] @ atoms[kept], atol=1e-8
    )
    assert list(model.get_feature_names_out()) == [f"atom{i}" for i in kept]
    assert set(model.selected_) == set(kept)
    assert np.all(np.diff(model.scores_[model.selected_]) <= 0)


def explained_shares(X, rebuilt):
    """1 − ‖residual‖² / ‖column‖², of centered columns, and the least one for a constant."""
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
    Xc, residual = X - X.mean(axis=0), X - rebuilt
    varies = Xc.any(axis=0)
    shares = np.zeros(X.shape[1])
    shares[varies] = 1 - residual.var(axis=0)[varies] / X.var(axis=0)[varies]
    shares[~varies] = shares.min()
    return shares


def test_column_importance_is_the_explained_share_of_the_variance(data):
    X, atoms, _ = data
    model = fit(JGSC, X, atoms, n_features_to_select=4)
    rebuilt = model.inverse_transform(model.codes_)
    np.testing.assert_allclose(model.column_importance_, explained_shares(X, rebuilt), atol=1e-9)


@pytest.mark.parametrize("Method", [JGSC, RJGSC, GSC])
def test_a_constant_column_is_the_least_important(rng, Method):
    signal = np.column_stack([np.linalg.qr(rng.normal(size=(5, 2)))[0].T, np.zeros((2, 2))])
    X = 5 + 3 * rng.normal(size=(60, 2)) @ signal
    X[:, 5], X[:, 6] = 7 + rng.normal(size=60), 50  # noise, and a constant of the largest norm
    atoms = np.vstack([signal, X.mean(axis=0) / 50])
    given = {"dictionary": atoms, "metric": "euclidean", "alpha": 0.01, "lam": 0.01}
    model = fit_few_steps(Method(n_features_to_select=3, **given), X)
    importance = model.column_importance_
    assert importance[6] == importance.min()
    assert importance[:5].min() > max(importance[5], 0.8)


def test_robust_weighs_spoiled_features_less(data, rng):
    """Noise on one feature bends JGSC's reconstruction of the others more than RJGSC's."""
    _, atoms, _ = data
    # in the span of the atoms, so a perfect fit exists
    clean = (rng.random((60, 4)) @ atoms[:4]).astype(np.float64)
    spoiled = clean.copy()
    spoiled[:, 3] += 10 * rng.standard_normal(60)
    others = np.arange(14) != 3

    def harm(Method):
        model = fit(Method, spoiled, atoms[:4], max_iter=300, alpha=1e-3, lam=1e-3)
        return np.linalg.norm((model.inverse_transform(model.codes_) - clean)[:, others])

    assert harm(RJGSC) < 0.2 * harm(JGSC)


@BOTH
def test_permuting_samples_permutes_codes(data, Method, rng):
    X, atoms, _ = data
    order = rng.permutation(60)
    np.testing.assert_allclose(
        fit(Method, X[order], atoms).codes_, fit(Method, X, atoms).codes_[order], atol=1e-7
    )


def test_passes_over_the_data(data):
    """JGSC: statistics and XB, and the graph's own; RJGSC: two a step more."""
    X, atoms, _ = data
    passes = {}
    for Method in (JGSC, RJGSC):
        matrix = Matrix.from_array(X)
        fit(Method, matrix, atoms, max_iter=5, tol=1e-15)
        passes[Method] = matrix.passes
    assert passes[RJGSC] - passes[JGSC] == 2 * 5


def test_atoms_are_learned_where_none_are_given(data):
    pytest.importorskip("spams", reason="the extra bigfs[jgsc] is not installed")
    X, _, _ = data
    model = JGSC(n_atoms=6, tol=1e-2).fit(X)
    assert model.components_.shape == (6, 14)
    assert model.dictionary_result_.converged
    assert model.transform(X).shape == (60, 3)
    again = JGSC(n_atoms=6, tol=1e-2).fit(Matrix.from_array(X, tile_rows=13))
    np.testing.assert_allclose(again.components_, model.components_, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dictionary": np.ones((3, 5))}, r"dictionary must have shape \(m, 14\)"),
        ({"lam": 0.0}, "'lam' parameter of JGSC"),
    ],
)
def test_bad_parameters_say_what_to_do(data, change, message):
    X, atoms, _ = data
    with pytest.raises(ValueError, match=message):
        fit(JGSC, X, atoms, **change)


def test_more_atoms_than_there_are_are_all_of_them(data):
    X, atoms, _ = data
    with pytest.warns(UserWarning, match="the dictionary has only 9 atoms: all of them are chosen"):
        assert len(fit(JGSC, X, atoms, n_features_to_select=10).selected_) == 9


def test_dense_results_are_projected(data, allow_memory):
    X, atoms, _ = data
    model = fit(JGSC, X, atoms)
    allow_memory(5_000)
    with pytest.raises(engine.MemoryLimitError, match="a dense reconstruction of 60 × 14"):
        model.inverse_transform(model.codes_)
