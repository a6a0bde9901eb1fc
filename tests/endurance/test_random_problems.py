"""Small and odd problems with random parameters, for every method: an answer or one clear refusal.

A problem is drawn from its number, which a failure names. BIGFS_PROBLEMS is their number per
method. The parameters come from the constraints that a method declares.
"""

import os
import warnings
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning

from bigfs.result import NotConvergedWarning
from bigfs.selectors.registry import METHODS

PROBLEMS = int(os.environ.get("BIGFS_PROBLEMS", "40"))
# what a message of a library says, and no message of bigfs
INTERNALS = ("leading minor", "broadcast", "lapack", "singular matrix", "must not contain infs")
INTERNALS += ("zero-size", "shapes (", "out of bounds", "eigenvalues did")
OF_SCIKIT_LEARN = ("The number of unique classes", "The least populated class")
INFINITE = (
    "anova",
    "fisher",
    "lsdf",
    "t-score",
    "f-regression",
    "hvg",
)  # document an infinite score
CODED = ("jgsc", "rjgsc", "gsc")  # rank features by atoms
FEW = {
    "max_iter": 8,
    "cv": 3,
    "epochs": 1,
    "n_atoms": 6,
    "n_neighbors": 6,
    "n_features_to_select": 3,
}


def duplicates(X):
    """Return X with each real entry in two parts."""
    Z = sp.coo_array(X)
    if Z.data.dtype.kind != "f":
        return Z
    i, j = (np.tile(coords, 2) for coords in Z.coords)
    return sp.coo_array((np.tile(Z.data / 2, 2), (i, j)), shape=X.shape)


KINDS = {
    "dense": lambda X: X,
    "csr": sp.csr_array,
    "csc": sp.csc_array,
    "duplicates": duplicates,
    "dask": lambda X: da.from_array(X, chunks=(max(1, len(X) // 2), max(1, X.shape[1] // 2))),
}


def pick(rng, *values):
    return values[rng.integers(len(values))]


def draw_parameter(rng, name, allowed, default):
    """Return a value that a constraint allows, or the default."""
    one = pick(rng, *allowed)
    if one is None or one == "boolean":
        return None if one is None else bool(rng.integers(2))
    if hasattr(one, "options"):
        return pick(rng, *sorted(one.options))
    if not hasattr(one, "closed") or one.type.__name__ not in ("Integral", "Real"):
        return default
    low, high = (-np.inf if one.left is None else one.left), one.right or np.inf
    if one.type.__name__ == "Integral":
        value = int(rng.integers(1, 1 + FEW.get(name, 4)))
    else:
        middle = default if isinstance(default, float) and default > 0 else 0.3
        value = float(middle * 10 ** rng.uniform(-2, 2))
    return value if low < value < high else default


def draw_selector(rng, name):
    """Return a method of which some parameters are drawn, and the others have their defaults."""
    selector = METHODS[name].make()
    defaults, fixed = selector.get_params(), METHODS[name].parameters
    few = {key: int(rng.integers(1, 1 + most)) for key, most in FEW.items() if key in defaults}
    few["n_features_to_select"] = pick(rng, None, 1, 0.3)
    drawn = {
        key: draw_parameter(rng, key, allowed, defaults[key])
        for key, allowed in selector._parameter_constraints.items()
        if key in defaults and key not in (*fixed, *few) and rng.random() < 0.15
    }
    return selector.set_params(**{**few, "cv": max(2, few["cv"])} if "cv" in few else few, **drawn)


def not_finite(rng, X):
    X[rng.integers(len(X)), rng.integers(X.shape[1])] = pick(rng, np.nan, np.inf, -np.inf)
    return X


def constant_columns(rng, X):
    X[:, rng.random(X.shape[1]) < rng.random()] = pick(rng, 0.0, 1.0, 0.1, 1e7 / 3)
    return X


def zero_rows(rng, X):
    X[rng.random(len(X)) < rng.random()] = 0
    return X


CHANGES = {
    constant_columns: 0.15,
    lambda rng, X: X[rng.integers(0, max(1, len(X) // 2), len(X))]: 0.15,  # rows repeat
    lambda rng, X: X[:, rng.integers(0, max(1, X.shape[1] // 2), X.shape[1])]: 0.1,
    zero_rows: 0.1,
    lambda rng, X: X[:, :1]: 0.05,
    lambda rng, X: X[:3]: 0.05,
    lambda rng, X: X * 10.0 ** pick(rng, -300, -100, -20, -6, 6, 20, 100, 300): 0.15,
    lambda rng, X: X * 10.0 ** rng.integers(-12, 13, X.shape[1]): 0.05,
    lambda rng, X: X * 10.0 ** rng.integers(-12, 13, (len(X), 1)): 0.05,
    not_finite: 0.03,
    lambda rng, X: np.clip(np.nan_to_num(np.round(X * 3)), -100, 100).astype(
        pick(rng, np.int8, np.int16, np.int64, np.bool_)
    ): 0.1,
    lambda rng, X: X.astype(np.float32): 0.15,
}


def draw_problem(number, name):
    """Return a selector, X, y, the kind of input, and whether every kind has the same answer."""
    rng = np.random.default_rng([number, *name.encode()])
    odd = rng.random() < 0.5
    n, d = (int(rng.integers(1 if odd else least, 61)) for least in (12, 4))
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < rng.uniform(0.1, 1))
    X = np.abs(X) if name == "chi2" or rng.random() < 0.5 else X
    with np.errstate(all="ignore"):
        for change, share in CHANGES.items() if odd else ():
            X = change(rng, X) if rng.random() < share else X
    n = len(X)
    y = rng.permutation(np.arange(n) % (2 if name == "t-score" else int(rng.integers(2, 5))))
    targets = METHODS[name].targets
    if "multilabel" in targets and rng.random() < 0.3:
        y = (rng.random((n, int(rng.integers(1, 5)))) < 0.4).astype(float)
    elif ("real" in targets and rng.random() < 0.3) or targets == ("real",):
        y = rng.normal(size=n)
    elif odd:
        text = np.array([f"class {c}" for c in y])
        some = np.where(rng.random(n) < 0.5, y, -1)
        same = np.zeros(n, dtype=int), np.full(n, -1), np.arange(n)
        y = pick(rng, y, y - 1, np.where(y > 0, 1, -1), text, y.astype(float), some, y > 0, *same)
    return draw_selector(rng, name), X, y, pick(rng, *KINDS), not odd


def fit(selector, X, y):
    """Return the fitted selector, or its refusal as a string."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = clone(selector).fit(X, y)
        except ValueError as error:
            result = str(error)
            assert "\n" not in result
            assert not any(said in result.lower() for said in INTERNALS), result
    for one in caught:
        if not str(one.message).startswith(OF_SCIKIT_LEARN):
            ours = issubclass(
                one.category, (NotConvergedWarning, DataConversionWarning, UserWarning)
            )
            ours &= not issubclass(one.category, (RuntimeWarning, DeprecationWarning))
            assert ours, f"{one.message} ({Path(one.filename).name}:{one.lineno})"
            assert "(gap inf" not in str(one.message)
    return result


def assert_equal(one, other):
    """Compare two fits of one problem."""
    assert isinstance(one, str) == isinstance(other, str), f"{one} / {other}"
    if not isinstance(one, str):
        scale = np.abs(one.scores_[np.isfinite(one.scores_)]).max(initial=0)
        np.testing.assert_allclose(one.scores_, other.scores_, rtol=1e-4, atol=1e-6 * scale)


def solve(number, name):
    """Solve a problem, and return whether it has an answer."""
    selector, X, y, kind, regular = draw_problem(number, name)
    before = X.copy()
    model = fit(selector, KINDS[kind](X), y)
    np.testing.assert_array_equal(before, X)
    if not isinstance(model, str):
        assert not np.isnan(model.scores_).any()
        assert name in INFINITE or not np.isinf(model.scores_).any()
        assert len(np.unique(model.selected_)) == len(model.selected_) == model.support_.sum()
        assert name in CODED or len(model.scores_) == X.shape[1]
    if regular and number % 10 == 0:
        assert_equal(model, fit(selector, sp.csr_array(X), y))
    return not isinstance(model, str)


@pytest.mark.nightly
@pytest.mark.parametrize("name", METHODS)
def test_an_odd_problem_has_an_answer_or_one_clear_refusal(name):
    solved, failures = 0, []
    for number in range(PROBLEMS):
        try:
            solved += solve(number, name)
        except Exception as error:  # every failure is named
            failures.append(f"{name}, {number}: {type(error).__name__}: {error}")
    assert not failures, "\n".join(failures)
    assert solved >= PROBLEMS / 4
