"""The race of the choosers: what is measured, and that it goes on where it was cut off."""

import numpy as np
import pytest
import scipy.io
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.feature_selection import RFE, f_classif
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks import choosing
from benchmarks.papers import results
from benchmarks.papers.results import Key, Results
from bigfs import SVMRFE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two small sets: values under the name of the colon data, and words under that of PCMAC."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    rng = np.random.default_rng(3)
    y = np.repeat([1, 2, 3], [40, 30, 20])
    X = rng.normal(size=(90, 110))
    X[:, :12] += y[:, None] * rng.uniform(0.2, 0.8, 12)
    words = rng.poisson(0.3 + 0.6 * (y[:, None] == 1 + np.arange(110) % 4)).astype(np.uint8)
    scipy.io.savemat(tmp_path / "colon.mat", {"X": X, "Y": y[:, None]})
    scipy.io.savemat(tmp_path / "PCMAC.mat", {"X": words, "Y": y[:, None]})
    choosing.read.cache_clear()
    choosing.split.cache_clear()
    return tmp_path


@pytest.mark.parametrize("name", ["colon", "PCMAC"])
def test_anova_is_judged_as_scikit_learn_would(folder, name):
    """Features and models see the training part alone, and sizes stop below half of all."""
    choosing.run(folder, name, "anova")
    found = Results(folder / "choosing.tsv").cells[Key(name, "anova", "", 1)]
    file = scipy.io.loadmat(folder / f"{name}.mat")
    X, y = file["X"].astype(float), file["Y"].ravel()
    train, test = next(StratifiedShuffleSplit(1, test_size=0.3, random_state=1).split(X, y))
    if name == "PCMAC":
        X = X[:, np.count_nonzero(X[train], axis=0) >= 2]
        X = TfidfTransformer(sublinear_tf=True).fit(X[train]).transform(X).toarray()
    else:
        X = StandardScaler().fit(X[train]).transform(X)
    order = np.argsort(-f_classif(X[train], y[train])[0], kind="stable")
    for i, m in enumerate([20, 50]):
        Z = X[:, np.sort(order[:m])]
        predicted = LinearSVC(tol=1e-6, max_iter=100_000).fit(Z[train], y[train]).predict(Z[test])
        assert found["accuracy"][i] == pytest.approx(accuracy_score(y[test], predicted), abs=1e-5)
        balanced = balanced_accuracy_score(y[test], predicted)
        assert found["balanced_accuracy"][i] == pytest.approx(balanced, abs=1e-5)
    assert len(found["accuracy"]) == 2


def test_a_second_start_goes_on(folder, capsys):
    choosing.run(folder, "colon,PCMAC", "chi2")
    assert len(Results(folder / "choosing.tsv")) == 5  # three splits of values, two of words
    capsys.readouterr()
    choosing.run(folder, "colon,PCMAC", "chi2,sparge-lda-cv")
    assert "repetition 0: 2 cells" in capsys.readouterr().out
    cells = Results(folder / "choosing.tsv").cells
    by = {key.parameters for key in cells if key.method == "sparge-lda-cv"}
    assert (len(cells), by) == (15, {"by=accuracy", "by=balanced_accuracy"})
    choosing.run(folder, "colon,PCMAC", "chi2,sparge-lda-cv")
    assert capsys.readouterr().out == ""


def test_svm_rfe_is_the_one_of_scikit_learn(folder):
    """One feature per round, so that both remove the same in every round."""
    X, y, *_ = choosing.split(folder, "colon", 0)
    theirs = RFE(LinearSVC(tol=1e-8, max_iter=100_000), n_features_to_select=20, step=1).fit(X, y)
    ours = SVMRFE(n_features_to_select=20, step=1, tol=1e-8).fit(X, y)
    np.testing.assert_array_equal(theirs.support_, ours.support_)
