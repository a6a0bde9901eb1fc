"""Features that must be chosen, and features that must not be, against dense computations."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from bigfs import (
    ANOVA,
    MRMR,
    Matrix,
    SelectorCV,
    SparGE,
    SparGECV,
    TraceRatio,
)
from bigfs.constraints import Constraints
from bigfs.cutting_plane import relaxation
from bigfs.cutting_plane.columns import GatheredColumns
from bigfs.cutting_plane.hinge import SquaredHinge
from bigfs.cutting_plane.loop import cutting_plane
from bigfs.cutting_plane.relaxation import Relaxation
from bigfs.embedding.targets import lda_factor
from bigfs.selectors.registry import METHODS
from tests.helpers.daily import daily
from tests.helpers.master_solvers import dense_objective

KEEP, FORBID = [11, 4], [0, 7]
CONSTRAINTS = Constraints(np.array([4, 11]), np.array([0, 7]))


@pytest.fixture
def data(rng):
    """60 samples of three classes that features 0 to 8 follow, of 14."""
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 14)) + 1.2 * (np.arange(14) // 3 == y[:, None])
    return X, y


# --- the certificate of SparGE --------------------------------------------------------------------


def dense_minimum(X, T, gamma, m, value):
    """The relaxation over d ∈ [0, 1]^d with Σ d = m, d = 1 on the kept and 0 on the forbidden."""
    bounds = [(0, 0) if j in FORBID else (1, 1) if j in KEEP else (0, 1) for j in range(X.shape[1])]
    start = np.array([(a + b) / 2 for a, b in bounds])
    free = np.array([a < b for a, b in bounds])
    start[free] = (m - len(KEEP)) / free.sum()
    return minimize(
        lambda d: value(X, T, gamma, np.clip(d, 0, 1)),
        start,
        jac=True,
        method="SLSQP",
        bounds=bounds,
        constraints={"type": "eq", "fun": lambda d: d.sum() - m, "jac": np.ones_like},
        options={"ftol": 1e-14, "maxiter": 500},
    ).fun


def squared_value(X, T, gamma, d):
    """½ tr Tᵀ(I + Xc diag(d) Xcᵀ/γ)⁻¹T and its gradient −(1/2γ)‖x_jᵀV‖²."""
    Xc = X - X.mean(axis=0)
    V = np.linalg.solve(np.eye(len(X)) + Xc * d @ Xc.T / gamma, T)
    return 0.5 * np.vdot(T, V), -np.sum((Xc.T @ V) ** 2, axis=1) / (2 * gamma)


@pytest.mark.parametrize("m", [2, 5, 12])
@pytest.mark.parametrize("inside", [False, True])
def test_bounds_meet_at_the_dense_minimum(data, m, inside, change):
    if inside:  # cuts on the gathered columns alone
        change(relaxation.MIN_PASS_NNZ, 0)
    X, y = data
    T = lda_factor(y, 3)[y]
    matrix = Matrix.from_array(X, tile_columns=5)
    problem = Relaxation(GatheredColumns(matrix, T), m, 2.0, CONSTRAINTS)
    result = cutting_plane(problem, tol=1e-8, max_iter=200)
    expected = dense_minimum(X, T, 2.0, m, squared_value)
    assert result.converged
    assert result.value.upper == pytest.approx(expected, rel=1e-6)
    assert result.value.lower == pytest.approx(expected, rel=1e-6)
    for one in result.value.sets:
        assert set(KEEP) <= set(one.tolist())
        assert not set(FORBID) & set(one.tolist())
        assert len(set(one.tolist())) == m


def test_bound_holds_for_every_choice_that_obeys(data):
    X, y = data
    selector = SparGE(
        n_features_to_select=4, keep=KEEP, forbid=FORBID, tol=1e-6, class_weight="balanced"
    ).fit(X, y)
    Xc, T, gamma = X - X.mean(axis=0), lda_factor(y, 3)[y], selector.result_.stats["gamma"]

    def objective(index):
        return dense_objective(Xc, T, gamma, index)

    free = [j for j in range(14) if j not in KEEP + FORBID]
    values = [objective([*KEEP, *pair]) for pair in itertools.combinations(free, 2)]
    stats, lower = selector.result_.stats, selector.result_.value.lower
    assert lower <= min(values) * (1 + 1e-9)
    assert stats["objective"] == pytest.approx(objective(selector.selected_), rel=1e-9)
    assert min(values) <= stats["objective"] * (1 + 1e-9)
    assert stats["objective_gap"] == pytest.approx(1 - lower / stats["objective"])
    unbound = SparGE(n_features_to_select=4, tol=1e-6, class_weight="balanced").fit(X, y)
    assert lower > unbound.result_.value.upper  # the constraints cost something


def test_squared_hinge_bounds_meet_and_obey(data):
    X, y = data
    Y = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    columns = GatheredColumns(Matrix.from_array(X), Y, None)
    problem = Relaxation(columns, 5, 2.0, CONSTRAINTS, SquaredHinge(columns))
    result = cutting_plane(problem, tol=1e-5, max_iter=200)
    assert result.converged

    def value(X, Y, gamma, d):
        """½ Σ max(0, 1 − Y(F + b))² + γ/2 Σ ‖w_j‖²/d_j at its W and b, by L-BFGS."""
        root = np.sqrt(d)

        def f(z):
            U, b = z[:-3].reshape(-1, 3), z[-3:]
            slack = np.maximum(1 - Y * ((X * root) @ U + b), 0)
            V = -Y * slack
            gradient = np.append(((X * root).T @ V + gamma * U).ravel(), V.sum(axis=0))
            return 0.5 * np.sum(slack**2) + gamma / 2 * np.sum(U**2), gradient

        best = minimize(
            f, np.zeros(45), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9}
        )
        U = best.x[:-3].reshape(-1, 3)
        V = Y * np.maximum(1 - Y * ((X * root) @ U + best.x[-3:]), 0)
        return best.fun, -np.sum((X.T @ V) ** 2, axis=1) / (2 * gamma)

    expected = dense_minimum(X, Y, 2.0, 5, value)
    assert result.value.lower <= expected * (1 + 1e-6)
    assert result.value.upper >= expected * (1 - 1e-6)
    assert all(set(KEEP) <= set(one.tolist()) for one in result.value.sets)


@pytest.mark.parametrize(
    "selector",
    [
        SparGE(),
        SparGE(ranking="weights"),
        SparGE(ranking="svm"),
        SparGE(loss="squared_hinge"),
        SparGECV(gammas=[0.1, 1.0]),
        SparGECV(gammas=[0.1, 1.0], scoring="accuracy", ranking="svm"),
    ],
    ids=["elimination", "weights", "svm", "hinge", "cv", "score"],
)
def test_every_ranking_keeps_and_forbids(data, selector):
    X, y = data
    selector.set_params(n_features_to_select=4, keep=KEEP, forbid=FORBID).fit(X, y)
    assert set(selector.selected_[:2]) == set(KEEP)
    assert not set(FORBID) & set(selector.selected_)
    assert len(selector.selected_) == 4
    assert (selector.scores_[selector.selected_] > 0).all()


def test_path_equals_fits(data):
    X, y = data
    template = SparGE(keep=KEEP, forbid=FORBID)
    for m, selector in template.fit_path(X, y, sizes=[3, 6]).items():
        alone = SparGE(n_features_to_select=m, keep=KEEP, forbid=FORBID).fit(X, y)
        np.testing.assert_array_equal(selector.selected_, alone.selected_)


# --- the other methods ----------------------------------------------------------------------------


def test_scores_stay_and_only_the_choice_changes(data):
    X, y = data
    free, bound = ANOVA(n_features_to_select=14).fit(X, y), ANOVA(n_features_to_select=5)
    bound.set_params(keep=KEEP, forbid=FORBID).fit(X, y)
    np.testing.assert_array_equal(bound.scores_, free.scores_)
    others = [j for j in free.selected_ if j not in KEEP + FORBID]
    kept = [j for j in free.selected_ if j in KEEP]
    assert bound.selected_.tolist() == [*kept, *others[:3]]


def test_modes_test_the_features_that_may_be_chosen(data):
    X, y = data
    bound = ANOVA(mode="fdr", param=0.2, keep=KEEP, forbid=FORBID).fit(X, y)
    allowed = np.delete(np.arange(14), FORBID)
    alone = ANOVA(mode="fdr", param=0.2).fit(X[:, allowed], y)
    assert set(bound.selected_) == set(allowed[alone.selected_]) | set(KEEP)
    assert set(bound.selected_[:2]) == set(KEEP)


def test_greedy_choice_starts_from_the_kept(data):
    """The next features are those of a dense mRMR that starts from the kept ones."""
    X, y = data
    selector = MRMR(n_features_to_select=5, relevance="f", scheme="quotient")
    selector.set_params(keep=KEEP, forbid=FORBID).fit(X, y)
    relevance, r = ANOVA().fit(X, y).scores_, np.abs(np.corrcoef(X.T))
    chosen = sorted(KEEP, key=lambda j: -relevance[j])
    while len(chosen) < 5:
        redundancy = r[:, chosen].mean(axis=1)
        score = relevance / redundancy
        score[[*chosen, *FORBID]] = -np.inf
        chosen.append(int(score.argmax()))
    assert selector.selected_.tolist() == chosen


# every method that chooses columns, on few samples and with what the defaults do not fit
OPTIONS = {
    "sparge-lda-cv": {"cv": 2, "gammas": [0.1, 1.0]},
    "jhlsr": {"lam": 1.0, "tol": 1e-4, "max_iter": 1000},
    "glspfs": {"lam": 1.0, "tol": 1e-4, "max_iter": 1000},
    "srlsr": {"gamma": 1e-3, "tol": 1e-4, "max_iter": 1000},
    "rlsr": {"gamma": 0.1, "tol": 1e-4, "max_iter": 2000},
    "rfs": {"tol": 1e-3, "max_iter": 2000},
    "jfs": {"gamma": 10.0, "tol": 1e-3, "max_iter": 2000},
    "jelsr": {"tol": 1e-4, "max_iter": 2000},
    "ndfs": {"tol": 1e-3, "max_iter": 5000},
    "udfs": {"tol": 1e-5, "max_iter": 2000},
    "llfs": {"lam": 0.1, "sigma": 20.0},
}
COLUMN_METHODS = [name for name, entry in METHODS.items() if entry.scores == "scores_"]
DAILY = ("anova", "mrmr", "sparge-lda", "srlsr", "jhlsr", "mcfs", "l2-svm")


def registered(name, **parameters):
    """Return the method and the target that it takes, with a distance that needs no text."""
    selector = METHODS[name].make(**OPTIONS.get(name, {}), **parameters)
    if "metric" in selector.get_params():
        selector.set_params(metric="euclidean")
    return selector


def target_of(name, y):
    if name == "t-score":
        return np.minimum(y, 1)
    if "class" in METHODS[name].targets:
        return y
    return None if not METHODS[name].targets else y + 0.5 * np.arange(len(y)) / len(y)


@pytest.mark.parametrize("name", daily(COLUMN_METHODS, *DAILY))
def test_forbidding_a_column_gives_what_dropping_it_gives(data, name):
    """The forbidden feature is the best one, and another one follows it."""
    X, y = data
    X = np.abs(X)  # as χ² asks for
    X[:, 1] = X[:, 0] + 0.3 * np.abs(np.sin(np.arange(60)))
    target = target_of(name, y)
    first = registered(name, n_features_to_select=5).fit(X, target).selected_[0]
    forbid = [int(first), 7]
    allowed = np.delete(np.arange(14), forbid)
    dropped = registered(name, n_features_to_select=5).fit(X[:, allowed], target)
    found = registered(name, n_features_to_select=5, forbid=forbid).fit(X, target)
    np.testing.assert_allclose(
        found.scores_[allowed], dropped.scores_, rtol=1e-5, atol=1e-7 * np.abs(found.scores_).max()
    )
    np.testing.assert_array_equal(found.selected_, allowed[dropped.selected_])
    assert not set(forbid) & set(found.selected_)
    assert found.result_.status == dropped.result_.status


@pytest.mark.parametrize("name", daily(COLUMN_METHODS, *DAILY))
def test_a_kept_feature_is_always_among_the_selected(data, name):
    X, y = data
    X, target = np.abs(X), target_of(name, y)
    last = registered(name, n_features_to_select=14).fit(X, target).selected_[-2:]
    found = registered(name, n_features_to_select=4, keep=last).fit(X, target)
    assert set(found.selected_[:2]) == set(last)
    assert len(found.selected_) == 4


def test_trace_ratio_is_the_best_that_obeys(data):
    X, y = data
    selector = TraceRatio(n_features_to_select=4, keep=KEEP, forbid=FORBID).fit(X, y)
    means = np.array([X[y == c].mean(axis=0) for c in range(3)])
    w = sum(np.sum((X[y == c] - means[c]) ** 2, axis=0) for c in range(3))
    b = np.sum((X - X.mean(axis=0)) ** 2, axis=0) - w
    free = [j for j in range(14) if j not in KEEP + FORBID]
    best = max(b[[*KEEP, *p]].sum() / w[[*KEEP, *p]].sum() for p in itertools.combinations(free, 2))
    assert selector.ratio_ == pytest.approx(best, rel=1e-9)


def test_every_method_that_keeps_columns_has_both():
    for name, entry in METHODS.items():
        if entry.scores == "scores_":
            assert {"keep", "forbid"} <= set(entry.make().get_params()), name


def test_cross_validation_tries_no_fewer_than_the_kept(data):
    X, y = data
    frame = pd.DataFrame(X, columns=[f"gene {j}" for j in range(14)])
    names = ["gene 11", "gene 4", "gene 8"]
    selector = SelectorCV(ANOVA(keep=names, forbid=["gene 0"]), cv=2).fit(frame, y)
    assert selector.cv_results_["n_features"].tolist() == [3, 5, 10, 13]
    assert set(selector.selected_[:3]) == {11, 4, 8}
    with pytest.raises(ValueError, match="sizes must be whole numbers from 3 to 13"):
        SelectorCV(ANOVA(keep=names, forbid=["gene 0"]), sizes=[2], cv=2).fit(frame, y)


# --- names and errors -----------------------------------------------------------------------------


def test_names_of_frames_and_matrices_stand_for_indices(data):
    X, y = data
    names = [f"gene {j}" for j in range(14)]
    selector = ANOVA(n_features_to_select=4, keep=["gene 11", "gene 4"], forbid=["gene 0"])
    matrix = Matrix.from_array(X)
    matrix.feature_names = np.array(names, dtype=object)
    expected = ANOVA(n_features_to_select=4, keep=[4, 11], forbid=[0]).fit(X, y).selected_
    for form in (pd.DataFrame(X, columns=names), matrix):
        np.testing.assert_array_equal(selector.fit(form, y).selected_, expected)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"keep": [14]}, "keep must hold indices from 0 to 13; got 14"),
        ({"forbid": [-1]}, "forbid must hold indices from 0 to 13; got -1"),
        ({"keep": ["a"]}, "keep: no feature is named 'a'"),
        ({"keep": ["a", "b"]}, "keep: no feature is named 'a' and 1 others"),
        ({"forbid": ["twice"]}, "forbid: 2 features are named 'twice': give indices, such as 12"),
        ({"keep": [1, 2], "forbid": [2]}, "share 1 features, such as 'n2': take them out of one"),
        ({"keep": [1, 2, 3, 4]}, "keep holds 4 features, but only 3 are to be selected"),
        ({"forbid": range(12)}, "3 of 14 features are to be selected, but forbid leaves only 2"),
        ({"keep": [1.5]}, r"keep must hold indices alone or names alone; got \[1.5\]"),
        ({"keep": [[1]]}, "keep must be a list of indices or names"),
        ({"keep": "n1"}, "The 'keep' parameter of ANOVA must be"),
    ],
)
def test_bad_constraints_are_named(data, parameters, message):
    X, y = data
    matrix = Matrix.from_array(X)
    matrix.feature_names = np.array([f"n{j}" for j in range(12)] + ["twice"] * 2, dtype=object)
    with pytest.raises(ValueError, match=message):
        ANOVA(n_features_to_select=3, **parameters).fit(matrix, y)


def test_names_need_features_with_names(data):
    with pytest.raises(ValueError, match="keep holds names, but the features have none"):
        ANOVA(n_features_to_select=3, keep=["n1"]).fit(*data)
