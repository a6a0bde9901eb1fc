"""Every method takes the kinds of target that the registry says, or names some that do."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_selection import chi2, mutual_info_classif
from sklearn.linear_model import MultiTaskLasso as DenseLasso

import bigfs
from bigfs import ANOVA, L1SVM, Chi2, FRegression, Matrix, MultiTaskLasso, MutualInformation
from bigfs.selectors.registry import ALTERNATIVES, METHODS, who_takes
from tests.bigfs.selectors.test_no_information import make

N = 48
KINDS = {
    "class": np.arange(N) % 2,
    "multilabel": np.column_stack([np.arange(N) % 2, np.arange(N) % 3 == 0]).astype(int),
    "real": np.arange(N) % 2 + np.arange(N) / N,
    "multioutput": np.column_stack([np.arange(N) % 2, np.arange(N) % 3])
    + np.arange(N)[:, None] / N,
    "none": None,
}
FEW = {"jhlsr": {"tol": 0.5}, "smr": {"max_iter": 20}, "llfs": {"n_neighbors": 3, "lam": 0.1}}

OWN_WORDS = {"sparge-hsl": "embedding='cca' takes real targets and counts"}


@pytest.fixture
def X(rng):
    X = rng.normal(size=(N, 8)) + 0.9 * KINDS["multioutput"][:, [0, 1] * 4]
    return np.exp(X / 3)


def takes(method, kind):
    """Return whether a method learns from a kind of target, or does without one."""
    entry = METHODS[method]
    if not entry.targets:
        return True
    if kind == "none":
        return not make(method, np.ones((9, 1))).__sklearn_tags__().target_tags.required
    # a number is a class of its own where whole numbers may be classes, and no class elsewhere
    return kind in entry.targets or (kind == "class" and entry.targets == ("real",))


@pytest.mark.filterwarnings("ignore::bigfs.result.NotConvergedWarning", "ignore::UserWarning")
@pytest.mark.parametrize("method", METHODS)
def test_a_target_is_taken_or_answered_with_a_line_to_type(method, X):
    for kind, y in KINDS.items():
        selector = make(method, X).set_params(**FEW.get(method, {}))
        if METHODS[method].scores == "scores_":
            selector.set_params(n_features_to_select=2)
        if takes(method, kind):
            selector.fit(X, y)
            continue
        said = "requires y to be passed, but the target y is None"
        if kind != "none":
            said = OWN_WORDS.get(method, who_takes(kind))
        with pytest.raises(ValueError, match=rf"^.*{re.escape(said)}\Z"):  # one line
            selector.fit(X, y)


@pytest.mark.parametrize("kind", ALTERNATIVES)
def test_the_line_to_type_fits(kind, X):
    y = KINDS[kind]
    calls = re.findall(r"\w+\([^)]*\)", who_takes(kind))
    assert len(calls) == len(ALTERNATIVES[kind])
    for call in calls:
        name = call.partition("(")[0]
        selector = eval(call, {name: getattr(bigfs, name)}).set_params(n_features_to_select=2)
        assert len(selector.fit(X, y).selected_) == 2


def label_sets(rng, n, q):
    Y = (rng.random((n, q)) < 0.3).astype(int)
    Y[:, 1], Y[:, 2] = 0, 1  # labels that say nothing
    return Y


def test_chi2_of_label_sets_is_the_mean_of_the_labels(rng):
    Y = label_sets(rng, 60, 5)
    X = rng.poisson(1 + Y[:, [0, 3, 4]] @ rng.random((3, 20)))
    single = [chi2(X, Y[:, k]) for k in (0, 3, 4)]
    for form in (X, Matrix.from_array(sp.csr_array(X, dtype=float), tile_rows=17, tile_columns=6)):
        found = Chi2(n_features_to_select=5).fit(form, Y)
        np.testing.assert_allclose(found.scores_, np.mean([s for s, _ in single], axis=0))
        least = np.minimum(3 * np.min([p for _, p in single], axis=0), 1)
        np.testing.assert_allclose(found.pvalues_, least)
    with pytest.raises(ValueError, match="Negative values"):
        Chi2().fit(-X, Y)


def test_mutual_information_of_label_sets_is_the_mean_of_the_labels(rng):
    Y = label_sets(rng, 60, 5)
    X = rng.poisson(0.4 + Y[:, [0, 3, 4]] @ rng.random((3, 12)))
    there = X > 0
    each = [mutual_info_classif(there, Y[:, k], discrete_features=True) for k in range(5)]
    for form in (X, Matrix.from_array(sp.csr_array(X, dtype=float), tile_rows=17, tile_columns=5)):
        for target in (Y, sp.csr_array(Y)):
            found = MutualInformation(n_features_to_select=5, n_bins=1).fit(form, target)
            np.testing.assert_allclose(found.scores_, np.mean(each, axis=0), atol=1e-12)
    assert found.result_.stats["passes"] == 1


@pytest.mark.parametrize("kind", ["multilabel", "real", "multioutput"])
def test_multi_task_lasso_of_targets_is_scikit_learns(kind, X):
    Y = np.asarray(KINDS[kind], dtype=float).reshape(N, -1)
    found = MultiTaskLasso(alpha=0.02, tol=1e-9, max_iter=500).fit(X, Y)
    dense = DenseLasso(alpha=0.02, tol=1e-12, max_iter=10**5).fit(X, Y)
    np.testing.assert_allclose(found.coef_, dense.coef_.T, atol=1e-6)
    assert found.classes_ is None
    assert found.result_.stats.get("target") == ("real" if kind == "real" else None)


def test_multi_task_lasso_takes_whole_numbers_as_it_is_told(X):
    ages = np.arange(N) % 4
    assert len(MultiTaskLasso(n_features_to_select=2).fit(X, ages).classes_) == 4
    assert MultiTaskLasso(n_features_to_select=2, target="real").fit(X, ages).coef_.shape == (8, 1)


def test_l1_svm_of_label_sets_has_a_machine_per_label(X):
    Y = np.column_stack([KINDS["multilabel"], np.ones(N, dtype=int)])
    found = L1SVM(C=0.3, tol=1e-6, max_iter=500).fit(X, Y)
    for k in range(2):
        alone = L1SVM(C=0.3, tol=1e-6, max_iter=500).fit(X, Y[:, k])
        np.testing.assert_allclose(found.coef_[:, k], alone.coef_[:, 0], atol=1e-5)
    np.testing.assert_array_equal(found.coef_[:, 2], 0)


def test_weights_of_label_sets_are_repetitions(rng):
    Y, w = label_sets(rng, 40, 4), rng.integers(0, 4, 40)
    X, rows = rng.poisson(1.0, size=(40, 6)), np.repeat(np.arange(40), w)
    weighed, repeated = Chi2().fit(X, Y, sample_weight=w), Chi2().fit(X[rows], Y[rows])
    np.testing.assert_allclose(weighed.scores_, repeated.scores_)


def test_a_fit_on_classes_forgets_the_labels(X):
    for selector in (ANOVA(), Chi2()):
        alone = type(selector)().fit(X, KINDS["class"]).pvalues_
        again = selector.fit(X, KINDS["multilabel"]).fit(X, KINDS["class"])
        np.testing.assert_array_equal(again.pvalues_, alone)
        parts = selector.fit(X, KINDS["multilabel"]).partial_fit(X, KINDS["class"])
        np.testing.assert_allclose(parts.pvalues_, alone)


def test_texts_are_no_real_target(X):
    with pytest.raises(ValueError, match=r"not texts: for a class per sample use SparGE\("):
        FRegression().fit(X, np.array(["ham", "spam"])[KINDS["class"]])
