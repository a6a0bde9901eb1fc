"""Lists that others chose and selectors of other packages, beside the methods of bigfs."""

import csv
import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_selection import SelectKBest, f_classif

from bigfs.flows.comparison.bench import Bench
from bigfs.flows.comparison.external import ExternalSelector
from bigfs.flows.comparison.lists import read_lists
from bigfs.flows.comparison.request import Comparison
from bigfs.storage.errors import SourceError
from tests.helpers import stages
from tests.helpers.daily import daily
from tests.helpers.processes import write_corpus
from tests.helpers.stores import write_svmlight

KBEST = "sklearn.feature_selection:SelectKBest"
OWN = """
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectFromModel, SelectKBest, SelectPercentile
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

def tree():
    return SelectFromModel(DecisionTreeClassifier(random_state=0))

class Scores(BaseEstimator):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
    def fit(self, X, y):
        assert X.format == "csr" and X.dtype == np.float64
        self.scores_ = np.asarray(X.sum(axis=0)).ravel()
        return self

class Dense(SelectKBest):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags
    def fit(self, X, y):
        assert isinstance(X, np.ndarray)
        return super().fit(X, y)

class Hungry(SelectKBest):
    def fit(self, X, y):
        np.ones(10**11)

class Killed(SelectKBest):
    def fit(self, X, y):
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)

class Numberless(BaseEstimator):
    def fit(self, X, y):
        return self

class Fewer(SelectKBest):
    def get_support(self, indices=False):
        return super().get_support(indices) & False

class Fixed:
    pass
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


@pytest.fixture
def store(home):
    return stages.stage(write_corpus(home / "corpus.jsonl", seed=3, rows=600), "c.zarr")["store"]


def bench_of(store, sizes=(3, 6), methods=("anova",), **more):
    return Bench(
        Comparison(source=store, store=store, out="out", methods=methods, sizes=sizes, **more)
    )


def test_anova_in_disguise_gets_anovas_row_to_the_digit(store):
    own = bench_of(store, selectors=[KBEST])
    anova, other = own.run("anova"), own.run("SelectKBest")
    for m, index in anova.sets.items():
        assert sorted(index) == other.sets[m].tolist()
    assert other.points == anova.points
    np.testing.assert_array_equal(other.losses, anova.losses)
    assert other.figures["fits"] == 2
    assert other.figures["peak_memory"] > 1e7


@pytest.mark.slow
def test_in_folds_a_selector_sees_the_training_samples_only(home):
    store = stages.stage(str(write_svmlight(home / "c.svm", 60)))["store"]
    own = bench_of(store, selectors=[KBEST], sizes=[4], scoring={"cv": 2})
    outcome = own.run("SelectKBest")
    for split, sets in zip(own.splits, outcome.again, strict=True):
        X = split.X_train.columns(slice(None)).astype(float)
        expected = SelectKBest(f_classif, k=4).fit(X, split.y_train).get_support(indices=True)
        assert sets[4].tolist() == expected.tolist()


@pytest.mark.nightly
def test_other_shapes_of_selectors(store):
    names = ["tree", "Scores", "Dense"]
    own = bench_of(store, selectors=[f"own.py:{name}" for name in names])
    outcomes = {name: own.run(name) for name in names}
    assert all(len(o.sets[m]) == m for o in outcomes.values() for m in (3, 6))
    assert outcomes["Scores"].figures["fits"] == 1
    sums = np.asarray(own.train.X.columns(slice(None)).astype(float).sum(axis=0)).ravel()
    best = np.argsort(-sums, kind="stable")[:6]
    assert outcomes["Scores"].sets[6].tolist() == best.tolist()


@pytest.mark.parametrize(
    ("name", "reason"),
    daily(
        [
            ("Killed", "its process ended with status -9"),
            ("Fewer", "it kept 0 features with k=3"),
            ("Hungry", "MemoryError"),
            ("Numberless", "it has no parameter for the number of features"),
            ("Fixed", "made Fixed, which is no selector"),
            ("Missing", "has no attribute 'Missing'"),
        ],
        ("Killed", "its process ended with status -9"),
        ("Fewer", "it kept 0 features with k=3"),
    ),
)
def test_what_a_selector_does_wrong_is_its_row(store, name, reason):
    with pytest.raises(ValueError, match=reason):
        bench_of(store, selectors=[f"own.py:{name}"]).run(name)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("SelectKBest", "package.module:Class"),
        ("no.such:Thing", "no module no.such"),
        ("sklearn.no_such:Thing", "no module sklearn.no_such"),
        ("missing.py:Thing", r"file.py:Class; got 'missing.py:Thing'"),
    ],
)
def test_a_wrong_place_is_refused_at_once(home, place, reason):
    with pytest.raises(ValueError, match=reason):
        ExternalSelector(place).identity()


def test_a_selector_runs_again_after_its_code_changed(store, home):
    own = bench_of(store, selectors=["own.py:Scores"])
    own.run("Scores")
    assert own.find("Scores") is not None
    (home / "own.py").write_text(OWN + "# changed\n")
    assert own.find("Scores") is None


# --- lists ----------------------------------------------------------------------------------------


def test_a_list_is_its_first_features(store, home):
    (home / "mine.txt").write_text("\n".join(map(str, [5, 1, 9, 2, 0, 7, 3])))
    own = bench_of(store, lists=["mine.txt"])
    outcome = own.run("list mine")
    assert {m: index.tolist() for m, index in outcome.sets.items()} == {
        3: [5, 1, 9],
        6: [5, 1, 9, 2, 0, 7],
    }
    assert outcome.figures["fits"] == 0


def test_a_list_that_is_too_short_or_meets_constraints_is_a_row(store, home):
    (home / "mine.txt").write_text("1\n2\n3\n4\n")
    with pytest.raises(ValueError, match="it holds 4 features, and the sizes go up to 6"):
        bench_of(store, lists=["mine.txt"]).run("list mine")
    with pytest.raises(ValueError, match="it takes no features to keep"):
        bench_of(store, lists=["mine.txt"], constraints={"keep": [1]}).run("list mine")


def test_equal_names_are_refused(home):
    request = Comparison(
        source="c", out="o", methods=["anova"], sizes=[2], lists=["a/x.txt", "b/x.txt"]
    )
    with pytest.raises(ValueError, match="two of the compared are called 'list x'"):
        request.names()


NAMES = np.array(["ant", "bee", "cat", "dog", "eel"], dtype=object)


def read(given):
    (index,) = read_lists([given], 5, NAMES).values()
    return index.tolist()


def test_lists_of_text_and_tables(home):
    (home / "names.txt").write_text("dog\n\nant\n")
    assert read("names.txt") == [3, 0]
    (home / "numbers.txt").write_text("4\n2\n")
    assert read("numbers.txt") == [4, 2]
    rows = [["rank", "index", "name", "score"], [1, 4, "eel", 2.5], [2, 1, "bee", 1.0]]
    for file, delimiter in (("t.csv", ","), ("t.tsv", "\t")):
        with (home / file).open("w", newline="") as out:
            csv.writer(out, delimiter=delimiter).writerows(rows)
        assert read(file) == [4, 1]
        assert read(f"{file}?column=index") == [4, 1]


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("a.txt", "", "a.txt holds no feature"),
        ("a.txt", "dog\ndog\n", "names a feature twice"),
        ("a.txt", "dog\nfox\n", "no feature is named 'fox'"),
        ("a.txt", "7\n", "must hold indices from 0 to 4; got 7"),
        ("a.csv", "symbol,p\nant,0.1\n", r"has the columns symbol, p: say which"),
        ("a.csv", "", "has the columns none"),
    ],
)
def test_a_wrong_list_is_refused(home, file, text, reason):
    (home / file).write_text(text)
    with pytest.raises(ValueError, match=reason):
        read(file)


def test_a_missing_list_is_refused(home):
    with pytest.raises(ValueError, match=r"no\.txt does not exist: give the file of a list"):
        read("no.txt")


def test_a_column_of_var_and_a_selector_of_scikit_learn(home):
    h5py, skops = pytest.importorskip("h5py"), pytest.importorskip("skops.io")
    with h5py.File("cells.h5ad", "w") as file:
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        var = file.create_group("var")
        var.attrs.update({"encoding-type": "dataframe", "_index": "_index"})
        var["_index"] = NAMES.astype("S3")
        var["highly_variable"] = np.array([True, False, True, False, False])
        var["symbol"] = NAMES.astype("S3")
        var["rank"] = np.array([np.nan, 1.0, np.nan, 0.0, 2.0])
    assert read("cells.h5ad") == [0, 2]
    assert read("cells.h5ad?column=rank") == [3, 1, 4]
    with pytest.raises(SourceError, match=r"has no var\['none'\], only highly_variable, rank"):
        read("cells.h5ad?column=none")
    with pytest.raises(ValueError, match="must hold marks"):
        read("cells.h5ad?column=symbol")
    X = sp.random_array((30, 5), density=0.6, rng=np.random.default_rng(0)).toarray()
    y = (X[:, 2] > 0).astype(int)
    fitted = SelectKBest(k=2).fit(X, y)
    skops.dump(fitted, "k.skops")
    assert read("k.skops") == fitted.get_support(indices=True).tolist()
    skops.dump({"a": 1}, "dict.skops")
    with pytest.raises(ValueError, match="holds dict, which selects no features"):
        read("dict.skops")


@pytest.mark.slow
def test_the_command_compares_them_all(bigfs, store, home):
    (home / "mine.txt").write_text("\n".join(map(str, range(8))))
    words = ("--methods", "anova", "--sizes", "3,6", "--workers", 0, "--no-prefect", "--json")
    others = ("--lists", "mine.txt", "--with", KBEST, "--with", "own.py:Killed")
    status, out, _ = bigfs("compare", store, "--out", "out", *words, *others)
    assert status == 0
    rows = {row["method"]: row for row in json.loads(out)["rows"]}
    assert set(rows) == {"anova", "list mine", "SelectKBest", "Killed"}
    assert rows["Killed"]["error"] == "its process ended with status -9"
    assert rows["SelectKBest"]["points"][0]["accuracy"] == rows["anova"]["points"][0]["accuracy"]
