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

from benchmarks import choosing, choosing_page
from benchmarks.papers import results
from benchmarks.papers.results import Key, Results
from bigfs import SVMRFE


@pytest.fixture
def folder(tmp_path, change):
    """Two small sets: values under the name of the colon data, and words under that of PCMAC."""
    change(results.FOLDER, tmp_path)
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
def test_anova_is_scored_as_scikit_learn_would(folder, name):
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


@pytest.mark.nightly
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


def test_the_page_counts_sets_in_the_mean_of_complete_splits(tmp_path, change):
    """Cells that decided by the other metric, and splits that one method lacks, do not count."""
    change(results.FOLDER, tmp_path)
    store = Results(tmp_path / "choosing.tsv")

    def add(data, method, accuracy, split=0, seconds=1.0, by=""):
        balanced = [accuracy[0] - 0.1, accuracy[1] - 0.1]
        values = {"accuracy": accuracy, "balanced_accuracy": balanced, "seconds": seconds}
        store.add(Key(data, method, by, split), values)

    for data, ours, chosen, peer in (("ORL", 0.8, 0.82, 0.7), ("colon", 0.6, 0.6, 0.6002)):
        add(data, "sparge-lda", [ours - 0.1, ours + 0.1])
        add(data, "sparge-lda-cv", [chosen, chosen], seconds=4.0, by="by=accuracy")
        add(data, "sparge-lda-cv", [0.1, 0.1], by="by=balanced_accuracy")
        add(data, "chi2", [peer, peer], seconds=0.5)
    add("ORL", "sparge-lda", [0.0, 0.0], split=1)
    for data in ("PCMAC", "BASEHOCK"):
        add(data, "sparge-lda", [0.9, 0.9])
        add(data, "sparge-lda-cv", [0.9, 0.9], by="by=accuracy")
        add(data, "chi2", [0.95, 0.95])
    choosing_page.write(tmp_path)
    page = (tmp_path / "choosing.md").read_text()
    accuracy = page.split("## Accuracy, dense, 2 sets")[1]
    # differences 0.1 and −0.0002: mean 0.0499, standard error 0.0501
    assert "| χ² | 0.6501 | +0.0499 ± 0.0501, 1/1/0 | +0.0599 ± 0.0601, 1/1/0 |" in accuracy
    assert "| SparGE | 0.7000 |  | +0.0100 ± 0.0100, 1/1/0 |" in accuracy
    assert "| χ² | 0.9500 | -0.0500 ± 0.0000, 0/0/2 |" in page.split("## Accuracy, text, 2 sets")[1]
    assert "| SparGECV | 1 | 4 |" in page.split("## Cost")[1]
    assert "| ORL | dense | 1 | 0.800 | 0.820 | 0.700 |" in page.split("## Every set")[1]
    assert "SVM-RFE" not in page.split("## Accuracy, text")[1]
    assert (tmp_path / "choosing.svg").exists()


def test_the_page_is_written_from_the_stored_cells(tmp_path):
    choosing_page.write(tmp_path)
    stored = choosing_page.DOCS / "choosing.md"
    assert (tmp_path / "choosing.md").read_text() == stored.read_text()
