"""Constant, empty, tiny and huge data: the right answer, or one clear line."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from bigfs import (
    ANOVA,
    CMIM,
    DLSR,
    GLSPFS,
    GSC,
    JELSR,
    JFS,
    JGSC,
    JHLSR,
    JMI,
    L1SVM,
    L2SVM,
    LLFS,
    LSDF,
    MCFS,
    MRMR,
    MRSF,
    NDFS,
    RFS,
    RJGSC,
    RLSR,
    RRPC,
    SMR,
    SPEC,
    SPFS,
    SRLSR,
    SVMRFE,
    TRCFS,
    UDFS,
    Chi2,
    Fisher,
    HighlyVariable,
    LaplacianScore,
    Matrix,
    MultiTaskLasso,
    MutualInformation,
    ReliefF,
    SparGE,
    SparGECV,
    SSelect,
    TraceRatio,
    Variance,
)
from bigfs.cutting_plane.columns import GatheredColumns
from bigfs.cutting_plane.loop import cutting_plane
from bigfs.cutting_plane.relaxation import Relaxation
from bigfs.embedding.factors import gaussian_factor
from bigfs.embedding.targets import pca
from bigfs.graph import knn
from bigfs.graph.hypergraph.lasso import lasso_supports
from bigfs.linalg.prox import project_simplex
from bigfs.result import NotConvergedWarning
from bigfs.selectors.row_sparse.label_sums import LabelSums
from bigfs.selectors.row_sparse.srlsr import SRLSRProblem
from bigfs.selectors.sparge.sparge import column_scale
from tests.helpers.daily import daily

ATOMS = np.eye(6)[:4] + 0.1
SCALE_FREE = [
    ANOVA(),
    Fisher(),
    LaplacianScore(),
    MRMR(relevance="f"),
    RRPC(),
    JMI(n_bins=3),
    CMIM(n_bins=3),
    ReliefF(n_neighbors=3),
    SPEC(ranking="phi1"),
    SPEC(n_components=3),
    LSDF(),
    SSelect(),
    TRCFS(),
    *(SparGE(embedding=e) for e in ("lda", "cca", "hsl", "sda", "lpp", "pca")),
]
OTHERS = [
    Chi2(),
    TraceRatio(),
    TraceRatio(form="laplacian"),
    Variance(),
    HighlyVariable(),
    MRMR(scheme="quotient"),
    MutualInformation(),
    SparGECV(gammas=(1.0, 2.0), cv=2),
    SRLSR(),
    RLSR(),
    JHLSR(metric="euclidean", hyperedges="knn"),
    JHLSR(),
    JHLSR(variant="graph"),
    JGSC(dictionary=ATOMS),
    RJGSC(dictionary=ATOMS),
    SMR(),
    L1SVM(),
    MultiTaskLasso(),
    MCFS(),
    MRSF(),
    DLSR(),
    SPFS(),
    JELSR(tol=0.5),
    NDFS(tol=0.5),
    UDFS(tol=0.5),
    GLSPFS(tol=0.5),
    JFS(max_iter=20),
    GSC(dictionary=ATOMS),
    LLFS(lam=0.1),
    RFS(max_iter=20),
    L2SVM(),
    SVMRFE(step=0.5, max_iter=10),
]


def name(selector):
    parts = (
        getattr(selector, p, "") for p in ("embedding", "variant", "hyperedges", "ranking", "form")
    )
    return " ".join([type(selector).__name__, *(p for p in parts if p)])


@pytest.fixture(autouse=True)
def few_rounds():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # the data are noise
        yield


@pytest.fixture
def sample(rng):
    X = rng.random((24, 6))
    y = np.arange(24) % 3
    X[:, 1] += y
    return X, y


@pytest.mark.parametrize("selector", SCALE_FREE, ids=name)
@pytest.mark.parametrize("power", [-190, -40, 40, 190])
def test_scale_of_the_data_does_not_show(selector, power, sample):
    X, y = sample
    expected = clone(selector).fit(X, y)
    np.testing.assert_allclose(
        clone(selector).fit(X * 2.0**power, y).scores_, expected.scores_, rtol=1e-6, atol=1e-12
    )


def outcome(selector, X, y):
    """Its scores, or its refusal."""
    try:
        return clone(selector).fit(X, y).scores_
    except ValueError as error:
        return str(error)


@pytest.mark.slow
@pytest.mark.parametrize("selector", [*SCALE_FREE, *OTHERS], ids=name)
@pytest.mark.parametrize("factor", daily([1e-300, 1e-100, 1e20, 1e100, 1e300], 1e-300, 1e100))
def test_values_out_of_range_are_refused_in_one_line(selector, factor, sample):
    X, y = sample
    ended = outcome(selector, X * factor, y)
    if isinstance(ended, str):
        assert (
            "scale X to values near 1" if factor == 1e20 else "the values of X are too"
        ) in ended
        assert "\n" not in ended
    else:
        assert factor == 1e20
        assert np.isfinite(ended).all()


REFUSALS = (
    "are equal up to rounding",
    "no eigenvector separates the samples",
    "every feature of X that may be chosen is constant",
    "every score is",
    "nothing separates the samples",
    "shares a feature",
    "samples share a feature",
    "singular in double",
    "components have 0",
    "set aside, have 0",
    "takes the logarithms of normalized counts",
)


@pytest.mark.parametrize("selector", [*SCALE_FREE, *OTHERS], ids=name)
@pytest.mark.parametrize("value", [0.0, 0.1, 1.0, 1e8 / 3])
def test_constant_data_have_a_score_or_a_clear_error(selector, value):
    ended = outcome(selector, np.full((12, 6), value), np.arange(12) % 3)
    if isinstance(ended, str):
        assert any(said in ended for said in REFUSALS)
        assert "\n" not in ended
    else:
        assert np.isfinite(ended).all()


def test_constant_column_of_large_value_gets_no_weight(sample):
    X, y = sample
    expected = SparGE(n_features_to_select=3).fit(X, y)
    for large in (1e6 / 3, 1e9 / 3):
        wide = SparGE(n_features_to_select=3).fit(np.column_stack([X, np.full(24, large)]), y)
        assert wide.scores_[6] == 0
        np.testing.assert_array_equal(wide.selected_, expected.selected_)


def test_rows_of_tiny_values_have_their_cosines(rng):
    X = rng.random((12, 3))
    expected = knn(Matrix.from_array(X), 3)
    X[::2] *= 2.0**-400
    found = knn(Matrix.from_array(X), 3)
    np.testing.assert_array_equal(found.index, expected.index)
    np.testing.assert_allclose(found.distance, expected.distance, atol=1e-12)
    X[0] *= 2.0**-600  # below what a square can tell from zero: as an empty row
    assert (knn(Matrix.from_array(X), 3).index[0] == -1).all()


def test_projection_on_the_simplex_of_large_values():
    np.testing.assert_allclose(project_simplex(np.array([3e30, 1e30, 3e30])), [0.5, 0, 0.5])
    np.testing.assert_allclose(project_simplex(np.array([1e18, -1e18])), [1, 0])


def test_lasso_supports_do_not_depend_on_the_scale(rng):
    A = rng.normal(size=(20, 9))
    K = A.T @ A
    for factor in (1e-60, 1e60):
        for found, expected in zip(
            lasso_supports(K * factor, [0.5, 0.1]),
            lasso_supports(K, [0.5, 0.1]),
            strict=True,
        ):
            np.testing.assert_array_equal(found, expected)


# --- how exact, and what is said ------------------------------------------------------------------


def test_bounds_of_pca_hold_for_the_true_singular_vectors(text):
    X = text[0]
    dense = X.toarray().astype(float)
    U = np.linalg.svd(dense - dense.mean(axis=0), full_matrices=False)[0][:, :5]
    matrix, tol = Matrix.from_array(X), 1e-6
    exact = cutting_plane(
        Relaxation(GatheredColumns(matrix, U), 9, column_scale(matrix)),
        tol=1e-9,
        max_iter=500,
    ).value
    T = pca(matrix, 5, tol=tol / 4).value.vectors
    found = cutting_plane(
        Relaxation(GatheredColumns(matrix, T), 9, column_scale(matrix)),
        tol=tol,
        max_iter=500,
    ).value
    assert found.gap <= tol
    assert found.lower <= exact.upper * (1 + tol)
    assert found.upper >= exact.lower * (1 - tol)
    assert np.linalg.norm(T - U @ (U.T @ T)) < tol
    selector = SparGE(
        embedding="pca", n_components=5, n_features_to_select=9, tol=tol, max_iter=500
    ).fit(X)
    assert selector.result_.history[-1]["lower"] == pytest.approx(exact.lower, rel=2 * tol)


def test_the_unit_of_gamma_is_a_mean_of_the_centered_squares(rng):
    X = rng.normal(size=(20, 30))
    X[:, 4:9] = 3.0  # constant columns, at an end and inside of a part
    s = ((X - X.mean(axis=0)) ** 2).sum(axis=0)
    expected = min(s.sum() / 20, 2 * 0.5 * (s**2).sum() / s.sum())
    assert column_scale(Matrix.from_array(X), 0.5) == pytest.approx(expected)
    X[:] = X[0]
    s = (X**2).sum(axis=0)
    expected = min(s.sum() / 20, 2 * (s**2).sum() / s.sum())
    assert column_scale(Matrix.from_array(X)) == pytest.approx(expected)
    assert column_scale(Matrix.from_array(np.zeros((20, 30)))) == 1.0


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        (RLSR(max_iter=2, tol=1e-8), "RLSR .*violation [0-9.]+e"),
        (SRLSR(max_iter=2, tol=1e-8), "SRLSR .*violation [0-9.]+e"),
        (JHLSR(max_iter=1, metric="euclidean"), "JHLSR .*violation [0-9.]+e"),
        (SMR(max_iter=1), "SMR .*change not yet known"),
        (SMR(max_iter=2), "SMR .*change [0-9.]+e"),
        (SparGE(max_iter=1, tol=1e-9, gamma=0.01), "SparGE .*gap [0-9.]+e"),
        (JGSC(max_iter=1, dictionary=ATOMS), "JGSC .*violation [0-9.]+e"),
    ],
    ids=lambda value: None if isinstance(value, str) else name(value),
)
def test_iteration_limit_says_what_is_left(selector, said, sample):
    X, y = sample
    with pytest.warns(NotConvergedWarning, match=said) as warned:
        clone(selector).fit(sp.csr_array(X), y)
    assert not any("inf" in str(one.message).split("(")[-1] for one in warned)


def test_gaussian_factor_refuses_values_whose_squares_overflow(rng):
    X = Matrix.from_array(rng.random((12, 4)) * 1e200)
    with pytest.raises(ValueError, match="too large"):
        gaussian_factor(X, 3)


def test_duality_gap_of_a_dual_point_at_zero_is_one():
    """V = 0 bounds the objective by 0, although its best scaling is 0/0."""
    problem = SimpleNamespace(class_sizes=np.ones(3), n_labeled=3, gamma=1.0)
    sums = LabelSums(*np.zeros((2, 3)), 0.0, 0.0, 0.0, np.zeros((4, 3)))
    assert SRLSRProblem.duality_gap(problem, 0.0, sums, 2.0) == 1.0
