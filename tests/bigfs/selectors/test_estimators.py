"""scikit-learn's contract, and the same answers and refusals whatever X comes as, for every public
selector.
"""

import warnings

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_selection import f_classif
from sklearn.utils.estimator_checks import parametrize_with_checks

import bigfs
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
    AutoSelector,
    Chi2,
    Fisher,
    FRegression,
    Gini,
    HighlyVariable,
    LaplacianScore,
    Matrix,
    MultiTaskLasso,
    MutualInformation,
    RankSum,
    ReliefF,
    SelectorCV,
    SparGE,
    SparGECV,
    SSelect,
    TraceRatio,
    TScore,
    Variance,
)
from bigfs.matrix.statistics import scale_hint
from bigfs.result import NotConvergedWarning
from bigfs.selectors.base.estimator import Selector
from bigfs.selectors.base.labels import labels_of
from bigfs.selectors.registry import METHODS
from bigfs.validation import UnequalScalesWarning
from tests.bigfs.selectors.test_no_information import LABELED, dense, target_of
from tests.bigfs.selectors.test_no_information import make as selector_of
from tests.helpers.daily import daily

VARIANTS = (
    "embedding",
    "variant",
    "relevance",
    "ranking",
    "form",
)  # parameters that tell methods apart
EMBEDDINGS = ("lda", "cca", "hsl", "sda", "lpp", "pca")
SELECTORS = [
    ANOVA(),
    Fisher(),
    Chi2(),
    MutualInformation(),
    Gini(),
    RankSum(),
    TScore(),
    FRegression(),
    Variance(),
    HighlyVariable(),
    MRMR(n_bins=3),
    MRMR(relevance="f"),
    RRPC(),
    JMI(n_bins=3),
    CMIM(n_bins=3),
    ReliefF(n_neighbors=3),
    LSDF(),
    SSelect(),
    SPEC(n_components=2),
    SPEC(ranking="phi1"),
    TraceRatio(),
    TraceRatio(form="laplacian"),
    TRCFS(),
    LaplacianScore(),
    *(SparGE(embedding=embedding) for embedding in EMBEDDINGS),
    SparGECV(gammas=(0.5, 2.0), cv=2),
    SRLSR(tol=0.5),
    RLSR(tol=0.5),
    JHLSR(hyperedges="knn", metric="euclidean", tol=0.5),
    JHLSR(variant="graph", metric="euclidean", tol=0.5),
    JGSC(tol=0.05),
    RJGSC(tol=0.05),
    SMR(max_iter=300),
    L1SVM(tol=0.1),
    MultiTaskLasso(),
    MCFS(),
    MRSF(),
    DLSR(tol=0.1),
    SPFS(),
    JELSR(tol=0.5),
    NDFS(tol=0.5),
    UDFS(tol=0.5),
    GLSPFS(tol=0.5),
    JFS(tol=0.5),
    GSC(tol=0.05),
    LLFS(n_neighbors=3, lam=0.1),
    RFS(tol=0.5),
    L2SVM(),
    SVMRFE(step=0.5),
    SelectorCV(ANOVA(), cv=2),
    AutoSelector(cv=2),
]
NAMES = [
    " ".join([type(s).__name__] + [getattr(s, name) for name in VARIANTS if hasattr(s, name)])
    for s in SELECTORS
]
# One of each base class, and the five methods. The others are tested by night.
DAILY = (ANOVA, Chi2, MutualInformation, MRMR, ReliefF, LaplacianScore, SparGE, SparGECV)
DAILY += (SRLSR, JHLSR, JGSC, SMR, L2SVM, MultiTaskLasso, AutoSelector)
DERIVED = (GLSPFS, GSC)
FIRST_OF_EACH = list({type(s): s for s in reversed(SELECTORS)}.values())


def is_daily(selector):
    is_base = isinstance(selector, DAILY) and not isinstance(selector, DERIVED)
    return is_base and selector in FIRST_OF_EACH


every_selector = pytest.mark.parametrize(
    "selector",
    [pytest.param(s, marks=[] if is_daily(s) else pytest.mark.nightly) for s in SELECTORS],
    ids=NAMES,
)


@pytest.fixture(autouse=True)
def few_rounds():
    """The data here are noise: not every loop ends at its tolerance."""
    pytest.importorskip("spams", reason="the extra bigfs[jgsc] is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        yield


@pytest.mark.slow
@parametrize_with_checks([s for s in SELECTORS if is_daily(s)])
def test_selector_keeps_scikit_learns_contract(estimator, check):
    check(estimator)


@pytest.mark.nightly
@parametrize_with_checks([s for s in SELECTORS if not is_daily(s)])
def test_every_other_selector_keeps_scikit_learns_contract(estimator, check):
    check(estimator)


# --- what X comes as ------------------------------------------------------------------------------


@pytest.fixture
def sample():
    """24 × 7 with zeros, and three classes."""
    rng = np.random.default_rng(3)
    X = np.where(rng.random((24, 7)) < 0.6, rng.integers(1, 9, (24, 7)) / 8, 0.0)
    y = np.arange(24) % 3
    X[:, 2] += y
    return X, y


class Tile:
    """A tile of a user's own."""

    def __init__(self, start, stop, block):
        self.start, self.stop, self.block = start, stop, block

    def load(self):
        return self.block


def target_for(selector, y):
    """The classes, or whether it is the first one for a method of two classes."""
    return np.minimum(y, 1) if isinstance(selector, TScore) else y


def own_tiles(X):
    return Matrix(
        X.shape, rows=[Tile(0, 10, X[:10]), Tile(10, 24, X[10:])], columns=[Tile(0, 7, X)]
    )


def duplicated(X, make):
    """X with every entry split in two."""
    Z = sp.coo_array(X)
    i, j = Z.coords
    halves = sp.coo_array((np.tile(Z.data / 2, 2), (np.tile(i, 2), np.tile(j, 2))), shape=X.shape)
    if make is sp.coo_array:
        return halves
    major = np.tile(i if make is sp.csr_array else j, 2)
    order = np.argsort(major, kind="stable")
    indptr = np.searchsorted(major[order], np.arange(X.shape[0 if make is sp.csr_array else 1] + 1))
    minor = np.tile(j if make is sp.csr_array else i, 2)[order]
    return make((np.tile(Z.data / 2, 2)[order], minor, indptr), shape=X.shape)


KINDS = {
    "csr": sp.csr_array,
    "csc matrix": sp.csc_matrix,
    "duplicates in coo": lambda X: duplicated(X, sp.coo_array),
    "duplicates in csr": lambda X: duplicated(X, sp.csr_array),
    "duplicates in csc": lambda X: duplicated(X, sp.csc_array),
    "dask": lambda X: da.from_array(X, chunks=(10, 4)),
    "dask of csr": lambda X: da.from_array(sp.csr_matrix(X), chunks=(10, 7), asarray=False),
    "dask of duplicates": lambda X: da.from_array(
        sp.csr_matrix(duplicated(X, sp.csr_array)), chunks=(24, 7), asarray=False
    ),
    "own tiles": own_tiles,
    "own tiles with duplicates": lambda X: Matrix(
        X.shape,
        rows=[Tile(0, 24, duplicated(X, sp.csr_array))],
        columns=[Tile(0, 7, duplicated(X, sp.csc_array))],
    ),
}


@pytest.mark.slow
@every_selector
def test_every_kind_of_input_gives_the_same_scores_and_is_left_as_it_was(selector, sample):
    X, y = sample
    y = target_for(selector, y)
    selector = clone(selector).set_params(
        **{name: 5 for name in ("max_iter",) if name in selector.get_params()}
    )
    expected = clone(selector).fit(X, y)
    for kind, make in KINDS.items():
        given = make(X)
        before = given.data.copy() if sp.issparse(given) else None
        found = clone(selector).fit(given, y)
        np.testing.assert_allclose(
            found.scores_, expected.scores_, rtol=1e-6, atol=1e-9, err_msg=kind
        )
        np.testing.assert_array_equal(found.selected_, expected.selected_, err_msg=kind)
        np.testing.assert_allclose(
            as_dense(found.transform(given)),
            expected.transform(X),
            rtol=1e-6,
            atol=1e-9,
            err_msg=kind,
        )
        if before is not None:
            np.testing.assert_array_equal(given.data, before, err_msg=kind)


def as_dense(Z):
    Z = Z.compute() if hasattr(Z, "compute") else Z
    return Z.toarray() if sp.issparse(Z) else Z


@every_selector
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_nan_and_infinity_are_refused_in_every_kind_of_input(selector, bad, sample):
    X, y = sample
    X[5, 2], y = bad, target_for(selector, y)
    word = "NaN" if np.isnan(bad) else "infinity"
    for kind, make in {
        "numpy": np.asarray,
        **{k: m for k, m in KINDS.items() if "duplicates" not in k},
    }.items():
        given, failing = make(X), clone(selector)
        with pytest.raises(ValueError, match=f"(?i){word}"):
            failing.fit(given, y)
        assert not hasattr(failing, "scores_"), kind


def test_integers_of_eight_bits_do_not_overflow(sample):
    X, y = sample
    X = np.round(X * 80)
    blocks = da.from_array(X.astype(np.uint8), chunks=(10, 4))
    np.testing.assert_allclose(ANOVA().fit(blocks, y).scores_, ANOVA().fit(X, y).scores_)
    np.testing.assert_allclose(SparGE().fit(blocks, y).scores_, SparGE().fit(X, y).scores_)


def test_dask_array_of_one_dimension_is_refused():
    with pytest.raises(ValueError, match="two dimensions"):
        ANOVA().fit(da.zeros(8, chunks=4), np.arange(8) % 2)


def test_laplacian_score_of_rows_takes_as_many_columns_as_fit(sample, monkeypatch):
    X, _ = sample
    rows = da.from_array(X, chunks=(10, 7))
    expected = LaplacianScore().fit(rows)
    monkeypatch.setattr(
        "bigfs.selectors.base.estimator.engine.planned_memory", lambda: 12 * 20 * 20
    )
    matrix = Matrix.from_dask(rows)
    before = matrix.passes
    np.testing.assert_array_equal(LaplacianScore().fit(matrix).scores_, expected.scores_)
    assert matrix.passes - before > 4


# --- what y is ------------------------------------------------------------------------------------

UNSUPERVISED = [
    JFS(tol=0.5),
    GLSPFS(tol=0.5),
    UDFS(tol=0.5),
    NDFS(tol=0.5),
    JELSR(tol=0.5),
    Variance(),
    HighlyVariable(),
    LaplacianScore(),
    SPEC(ranking="phi1"),
    TraceRatio(form="laplacian"),
    SparGE(embedding="lpp"),
    SparGE(embedding="pca"),
    MCFS(),
    MRSF(),
]


@pytest.mark.parametrize("selector", UNSUPERVISED, ids=lambda s: type(s).__name__)
def test_unsupervised_methods_ignore_any_y(selector, sample):
    X, y = sample
    expected = clone(selector).fit(X).scores_
    matrix = Matrix.from_array(X)
    for ignored in (y + 0.25, np.column_stack([y, y / 3]), np.full(24, None), y[:5], "none"):
        np.testing.assert_array_equal(clone(selector).fit(X, ignored).scores_, expected)
        np.testing.assert_array_equal(clone(selector).fit(matrix, ignored).scores_, expected)


# --- what −1 means --------------------------------------------------------------------------------

SUPERVISED = [
    ANOVA(),
    Fisher(),
    Chi2(),
    MutualInformation(),
    Gini(),
    RankSum(),
    MRMR(n_bins=3),
    JMI(n_bins=3),
    CMIM(n_bins=3),
    ReliefF(n_neighbors=3),
    TraceRatio(),
    SparGE(),
    SparGE(embedding="cca"),
    SparGE(embedding="hsl"),
    SparGECV(gammas=(1.0,), cv=2),
    SMR(),
    L1SVM(tol=0.1),
    MultiTaskLasso(),
    L2SVM(),
    DLSR(tol=0.1),
    SPFS(),
    LLFS(n_neighbors=3, lam=0.1),
    RFS(tol=0.5),
    SVMRFE(),
]
SEMI = [
    RRPC(),
    TRCFS(),
    LSDF(),
    SSelect(),
    SRLSR(tol=0.5),
    RLSR(tol=0.5),
    SparGE(embedding="sda"),
    JHLSR(hyperedges="labels", metric="euclidean", tol=0.5),
]


FORMS = {
    "numpy": np.asarray,
    "dask": lambda X: da.from_array(X, chunks=(10, 7)),
    "csr": sp.csr_array,
    "matrix": Matrix.from_array,
}


ARRAYS = [form for form in FORMS if form != "matrix"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "selector", SUPERVISED, ids=lambda s: f"{type(s).__name__} {getattr(s, 'embedding', '')}"
)
def test_a_supervised_method_leaves_minus_one_out_beside_a_matrix(selector, sample):
    X, y = sample
    partly = np.where(np.arange(24) < 18, y, -1)
    expected = clone(selector).fit(Matrix.from_array(X[:18]), y[:18])
    for labels in (partly, partly.astype(float)):
        fitted = clone(selector).fit(Matrix.from_array(X), labels)
        np.testing.assert_allclose(fitted.scores_, expected.scores_, rtol=1e-9, atol=1e-12)
        assert fitted.result_.stats["unlabeled"] == 6


@pytest.mark.filterwarnings("ignore::bigfs.result.NotConvergedWarning")
@pytest.mark.parametrize(
    "method", [m for m in LABELED if not selector_of(m, None)._semi_supervised]
)
def test_minus_one_beside_arrays_is_a_class_of_a_supervised_method(method):
    X, y = dense()
    number = target_of(method, y)  # two classes for the t-score, and three for the others
    expected = selector_of(method, X).fit(X, np.array(["a", "b", "c"])[number])
    for labels in (number - 1, number - 1.0, np.array(["-1", "0", "1"])[number]):
        fitted = selector_of(method, X).fit(X, labels)
        np.testing.assert_array_equal(fitted.scores_, expected.scores_)
        assert "unlabeled" not in fitted.result_.stats


@pytest.mark.parametrize("form", ARRAYS)
def test_labels_minus_one_zero_and_one_give_the_f_of_all_samples(form, sample):
    X, y = sample
    expected = f_classif(X, y - 1)[0]
    np.testing.assert_allclose(ANOVA().fit(FORMS[form](X), y - 1).scores_, expected)
    stray = np.where(np.arange(24) == 5, 0, np.where(y > 0, 1, -1))  # one 0 among −1 and 1
    np.testing.assert_allclose(ANOVA().fit(FORMS[form](X), stray).scores_, f_classif(X, stray)[0])


def test_minus_one_is_a_class_wherever_a_selector_is_wrapped(sample):
    X, y = sample
    names = np.array(["a", "b", "c"])[y]
    for one in (SelectorCV(ANOVA(), sizes=[1, 3], cv=2), SparGECV(gammas=(1.0,), cv=2)):
        fitted, expected = clone(one).fit(X, y - 1), clone(one).fit(X, names)
        np.testing.assert_array_equal(fitted.scores_, expected.scores_)
    chosen = SelectorCV(ANOVA(), sizes=[1, 3], cv=2)
    assert chosen.fit(X, y - 1).score(X, y - 1) == chosen.fit(X, names).score(X, names)
    np.testing.assert_array_equal(
        chosen.cross_val_score(X, y - 1, cv=2), chosen.cross_val_score(X, names, cv=2)
    )
    found, expected = (
        bigfs.stability(ANOVA(), X, labels, n_subsamples=4) for labels in (y - 1, names)
    )
    np.testing.assert_array_equal(found.frequencies, expected.frequencies)
    found, expected = (bigfs.audit(X, labels, {"two": [0, 1]}) for labels in (y - 1, names))
    assert found.lists["two"].most_better == expected.lists["two"].most_better


def test_a_choice_of_the_number_takes_minus_one_as_its_selector_does(sample):
    X, y = sample
    partly = np.where(np.arange(24) < 18, y, -1)
    few = SelectorCV(RRPC(), sizes=[1, 3], cv=2).fit(X, partly)
    np.testing.assert_array_equal(few.classes_, [0, 1, 2])
    assert few.score(X, partly) == few.score(X[:18], y[:18])
    number = SelectorCV(ANOVA(), sizes=[1, 3], cv=2).fit(Matrix.from_array(X), partly)
    assert number.score(Matrix.from_array(X), partly) == number.score(X[:18], y[:18])


def test_the_automatic_choice_says_that_it_takes_minus_one_as_unlabeled(sample):
    X, y = sample
    with pytest.warns(UserWarning, match="8 of 24 samples have the label -1 and are taken as unl"):
        found = AutoSelector(cv=2).fit(X, y - 1)
    assert found.result_.stats["unlabeled"] == 8
    expected = AutoSelector(cv=2).fit(Matrix.from_array(X), y - 1)  # class numbers: no warning
    np.testing.assert_array_equal(found.selected_, expected.selected_)


def test_missing_labels_are_refused_with_what_the_method_takes(sample):
    X, y = sample
    gone = np.where(np.arange(24) < 18, y, np.nan)
    with pytest.raises(ValueError, match=r"\(NaN\): leave these samples out"):
        ANOVA().fit(X, gone)
    with pytest.raises(ValueError, match=r"\(NaN\): mark these samples by -1"):
        RLSR().fit(X, gone)


@pytest.mark.slow
@pytest.mark.parametrize(
    "selector",
    [*SUPERVISED, *SEMI],
    ids=lambda s: f"{type(s).__name__} {getattr(s, 'embedding', '')}",
)
@pytest.mark.parametrize("form", daily(FORMS, "dask", "csr"))
def test_minus_one_and_one_alone_are_two_classes_in_every_input(selector, form, sample):
    X, y = sample
    expected = clone(selector).fit(FORMS[form](X), np.where(y > 0, 1, 0))
    for labels in (np.where(y > 0, 1, -1), np.where(y > 0, "1", "-1")):
        fitted = clone(selector).fit(FORMS[form](X), labels)
        np.testing.assert_allclose(fitted.scores_, expected.scores_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_one_class_beside_unlabeled_samples_is_refused_in_every_input(form, sample):
    X, y = sample
    selector = ANOVA() if form == "matrix" else RRPC()
    with pytest.raises(ValueError, match="got 1 class in addition to -1, which means unlabeled"):
        selector.fit(FORMS[form](X), np.where(y > 0, 0, -1))


def test_parts_of_two_signs_are_those_of_the_whole(sample):
    X, y = sample
    y = np.where(y > 0, 1, -1)
    expected = ANOVA().fit(X, y).scores_
    order = np.argsort(y, kind="stable")
    for form in (np.asarray, Matrix.from_array):
        for parts in (np.split(order, 3), np.split(order[::-1], 3)):
            selector = ANOVA()
            for part in parts:
                selector.partial_fit(form(X[part]), y[part])
            np.testing.assert_allclose(selector.scores_, expected)
    with pytest.raises(ValueError, match="give the class -1 another name"):
        selector.partial_fit(form(X[:3]), [2, 1, -1])


def test_minus_one_is_a_class_in_every_part_of_an_array(sample):
    X, y = sample
    y = y - 1
    selector = ANOVA()
    for part in np.split(np.argsort(y == 0, kind="stable"), 3):  # −1 and 1 alone come first
        selector.partial_fit(X[part], y[part])
    np.testing.assert_allclose(selector.scores_, f_classif(X, y)[0])


def test_minus_one_of_a_part_is_unlabeled_where_the_parts_before_have_other_classes(sample):
    X, y = sample
    partly = np.where(np.arange(24) < 18, y, -1)
    order = np.argsort(np.abs(partly) == 1, kind="stable")  # the last ones are of −1 and 1 alone
    selector = ANOVA()
    for part in np.split(order, 3):
        selector.partial_fit(Matrix.from_array(X[part]), partly[part])
    expected = ANOVA().fit(Matrix.from_array(X), partly).scores_
    np.testing.assert_allclose(selector.scores_, expected)


@pytest.mark.parametrize("selector", SEMI, ids=lambda s: type(s).__name__)
def test_minus_one_is_unlabelled_where_the_method_is_semi_supervised(selector, sample):
    X, y = sample
    partly = np.where(np.arange(24) < 18, y, -1)
    expected = clone(selector).fit(X, partly)
    names = np.where(partly < 0, "-1", np.array(["a", "b", "c"])[partly])
    for labels in (names, names.astype(object), partly.astype(float)):
        np.testing.assert_array_equal(clone(selector).fit(X, labels).scores_, expected.scores_)
    other = clone(selector).fit(X, np.where(partly < 0, 3, partly))
    assert not np.allclose(other.scores_, expected.scores_)


@pytest.mark.parametrize(
    "y", [[2, 0, 1, 1], [0, 2, 2, 0], [-1, 0, 1, -1], list("baca"), [2.5, 1, 1, 7]]
)
def test_labels_are_coded_in_the_order_of_the_classes(y):
    y = np.array(y)
    labels = labels_of(y, has_unlabeled=True)
    labeled = y != -1 if y.dtype.kind in "if" else np.ones(4, dtype=bool)
    np.testing.assert_array_equal(labels.is_labeled, labeled)
    np.testing.assert_array_equal(labels.classes, np.unique(y[labeled]))
    np.testing.assert_array_equal(labels.classes[labels.codes[labeled]], y[labeled])
    assert labels.codes is y or labels.codes.dtype == np.int32
    assert np.shares_memory(labels.codes, y) == (y.tolist() == [2, 0, 1, 1])  # codes already


# --- what whole numbers mean ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "selector", [SparGE(embedding="cca"), MRMR(relevance="f")], ids=lambda s: type(s).__name__
)
def test_the_result_says_whether_whole_numbers_are_classes(selector, sample):
    X, _ = sample
    ages = np.array([20.0, 31, 45, 60])[np.arange(24) % 4]

    def fitted(y, **parameters):
        made = clone(selector).set_params(**parameters).fit(X, y)
        return made.scores_, made.result_.stats["target"]

    classes, real = fitted(ages), fitted(ages, target="real")
    assert (classes[1], real[1]) == ("classes", "real")
    np.testing.assert_array_equal(fitted(ages, target="classes")[0], classes[0])
    np.testing.assert_array_equal(fitted(ages.astype(str))[0], classes[0])
    moved, kind = fitted(ages + 0.5)
    assert kind == "real"
    np.testing.assert_allclose(moved, real[0], rtol=1e-6, atol=1e-9)
    assert not np.allclose(classes[0], real[0])


@pytest.mark.parametrize(
    ("selector", "other"),
    [(SparGE(target="real"), "'cca' or 'hsl'"), (MRMR(target="real"), "relevance='f'")],
    ids=["SparGE", "MRMR"],
)
def test_a_kind_of_target_that_does_nothing_is_refused(selector, other, sample):
    with pytest.raises(ValueError, match=f"target='real' needs .*{other}"):
        selector.fit(*sample)


def test_a_choice_of_the_number_takes_the_kind_of_target_of_its_selector(sample):
    X, _ = sample
    ages = np.array([20, 31, 45, 60])[np.arange(24) % 4]
    selector = MRMR(relevance="f", target="real")
    assert SelectorCV(selector, sizes=[1, 2], cv=2).fit(X, ages).classes_ is None


@pytest.mark.parametrize("method", [ANOVA, SparGE, MRMR, SparGECV])
def test_a_number_above_that_of_the_features_takes_all(method, sample):
    """As in scikit-learn, so that a pipeline goes on where a step before it has left fewer."""
    X, y = sample
    d = X.shape[1]
    with pytest.warns(UserWarning, match=f"={d + 7} but X has only {d} features: all of") as said:
        selector = method(n_features_to_select=d + 7).fit(X, y)
    assert len(said) == 1
    assert sorted(selector.selected_) == list(range(d))


def test_columns_of_a_far_larger_scale_are_named(rng):
    X = rng.standard_normal((60, 8))
    assert scale_hint(Matrix.from_array(X)) is None
    X[:, 3] *= 1e4
    X[:, 5] *= 500
    y = np.arange(60) % 2
    for selector in (SparGE(), SelectorCV(SparGE(), sizes=[2, 4], cv=3), SparGECV(cv=3)):
        with pytest.warns(
            UnequalScalesWarning, match="the deviation of x3, x5 is up to .* times"
        ) as said:
            selector.fit(X, y)
        assert len(said) == 1
        assert "StandardScaler, or --scale standard" in str(said[0].message)
        assert said[0].filename == __file__ or isinstance(selector, SelectorCV)
    ANOVA(n_features_to_select=3).fit(X, y)


def test_columns_without_a_unit_do_not_count(rng):
    X = rng.standard_normal((60, 6))
    flags = (rng.random((60, 9)) < 0.7).astype(float)
    rare = 1e4 * rng.random((60, 3)) * (rng.random((60, 3)) < 0.3)
    assert scale_hint(Matrix.from_array(np.hstack([1e3 * X, flags, rare]))) is None
    assert scale_hint(Matrix.from_array(np.hstack([1e3 * flags[:, :1], X, rare]))) is not None
    assert scale_hint(Matrix.from_array(np.hstack([X[:, :1], 1e3 * X[:, 1:2]]))) is not None


# VarianceThreshold and χ² ask for the sizes themselves, and hvg for counts
@pytest.mark.parametrize("name", sorted(set(METHODS) - {"variance", "chi2", "hvg", "t-score"}))
def test_a_method_that_does_not_warn_chooses_the_same_in_other_units(name):
    selector = METHODS[name].make()
    if not isinstance(selector, Selector) or selector._needs_one_scale:
        return
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = 0.5 + rng.random((120, 12))
    X[:, :4] += 0.8 * rng.random((3, 4))[y]
    selector.set_params(n_features_to_select=4)
    np.testing.assert_array_equal(
        clone(selector).fit(X, y).get_support(),
        clone(selector).fit(X * 10.0 ** rng.integers(-3, 4, 12), y).get_support(),
    )


def test_a_target_of_another_kind_is_answered_with_who_takes_it():
    X, rng = np.random.default_rng(0).random((30, 5)), np.random.default_rng(1)
    sets, real = rng.integers(0, 2, (30, 3)), rng.random(30)
    for y, said in ((sets, r"1d array.*embedding='cca'.*ANOVA"), (real, "continuous.*FRegression")):
        with pytest.raises(ValueError, match=said):
            bigfs.SparGE(n_features_to_select=2).fit(X, y)
    bigfs.ANOVA(n_features_to_select=2).fit(X, sets)
    for selector in (
        bigfs.FRegression(n_features_to_select=2),
        bigfs.MRMR(n_features_to_select=2, relevance="f"),
        bigfs.SparGE(n_features_to_select=2, embedding="cca"),
    ):
        selector.fit(X, real)
