"""The audit of lists as a command: its certificate, its scores and its files."""

import csv
import json

import numpy as np
import pytest

import bigfs as package
from bigfs import SparGE, storage
from bigfs.flows.comparison import audit
from bigfs.flows.options import ClusterOptions
from tests.helpers import stages
from tests.helpers.commands import fails
from tests.helpers.processes import write_corpus
from tests.helpers.stores import write_svmlight


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first.txt").write_text("0\n1\n2\n3\n")
    (tmp_path / "second.txt").write_text("5\n3\n")
    return tmp_path


@pytest.fixture
def store(home):
    return stages.stage(write_corpus(home / "corpus.jsonl", seed=3, rows=300), "c.zarr")["store"]


def test_the_files_hold_the_certificate_and_the_scores(bigfs, store, home):
    words = ("first.txt", "second.txt", "--workers", 0, "--set", "gamma=0.5")
    status, out, _ = bigfs("audit", store, "--out", "done", *words, "--json")
    assert status == 0
    about = json.loads(out)
    train = storage.open(store).part("train")
    lists = {"first": [0, 1, 2, 3], "second": [3, 5]}
    expected = package.audit(train.X, train.y, lists, estimator=SparGE(gamma=0.5))
    rows = {(row["list"], row["n_features"]): row for row in about["rows"]}
    assert list(rows) == [("first", 4), ("second", 2), ("SparGE", 2), ("SparGE", 4)]
    for name, one in expected.lists.items():
        row = rows[name, len(one.features)]
        assert row["objective"] == one.objective
        assert row["most_better"] == one.most_better
        assert row["least_worse"] == one.least_worse
        assert len(row["exchanges"]) == len(one.exchanges)
        assert 0 < row["accuracy"] <= 1
    best = SparGE(gamma=0.5, n_features_to_select=4).fit(train.X, train.y)
    assert rows["SparGE", 4]["most_better"] == best.result_.stats["objective_gap"]
    assert {file.name for file in (home / "done").iterdir()} == {
        "audit.csv",
        "audit.json",
        "report.html",
    }
    with (home / "done" / "audit.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [float(row["most_better"]) for row in written] == [
        row["most_better"] for row in about["rows"]
    ]
    page = (home / "done" / "report.html").read_text()
    assert "2 lists of features" in page
    assert page.count("What would help") == sum(bool(row.get("exchanges")) for row in about["rows"])
    status, out, _ = bigfs("audit", store, "--out", "done", *words)  # it replaces its own files
    assert status == 0
    assert out.splitlines()[0].split()[:2] == ["list", "features"]


def test_the_lists_as_good_are_written_and_drawn(bigfs, store, home):
    words = ("first.txt", "--workers", 0, "--set", "gamma=0.5")
    status, out, _ = bigfs(
        "audit", store, "--out", "near", *words, "--alternatives", 0.01, "--json"
    )
    assert status == 0
    (one,), rows = (json.loads(out)[name] for name in ("alternatives", "rows"))
    own = next(row for row in rows if row["list"] == "SparGE")
    exact = pytest.approx(1 - one["objectives"][0] / own["objective"], abs=1e-9)
    assert (own["most_better"], own["least_worse"]) == (exact, exact)
    train = storage.open(store).part("train")
    asked = {"estimator": SparGE(gamma=0.5), "alternatives": 0.01}
    expected = package.audit(train.X, train.y, {"first": [0, 1, 2, 3]}, **asked).alternatives[4]
    names = storage.open(store).feature_names
    assert one["is_complete"]
    assert one["lists"] == [[str(names[j]) for j in some] for some in expected.lists]
    assert one["objectives"] == expected.objectives.tolist()
    assert one["always"] == [str(names[j]) for j in expected.always]
    page = (home / "near" / "report.html").read_text()
    assert "Lists of 4 within 0.01 of the best" in page
    assert one["summary"] in page
    assert page.count("<svg") == 1


def test_in_folds_sparge_chooses_again_and_the_list_does_not(home, monkeypatch):
    store = stages.stage(str(write_svmlight(home / "c.svm", 60)))["store"]
    seen = []
    fit_path = SparGE.fit_path

    def noted(self, X, y, sizes):
        seen.append(X.shape[0])
        return fit_path(self, X, y, sizes)

    monkeypatch.setattr(SparGE, "fit_path", noted)
    asked = audit.Audit(
        source=store, out="o", lists=["second.txt"], engine=ClusterOptions(workers=0)
    )
    about = audit.audit(asked)
    assert seen == [48] * 5
    assert "5 folds" in about["evaluation"]


def test_targets_choose_the_objective(home):
    rng = np.random.default_rng(0)
    lines = [
        f"{rng.normal():.3f} " + " ".join(f"{j}:{rng.normal():.3f}" for j in range(1, 9))
        for _ in range(40)
    ]
    (home / "real.svm").write_text("\n".join(lines))
    asked = audit.Audit(
        source="real.svm", out="o", lists=["second.txt"], engine=ClusterOptions(workers=0)
    )
    about = audit.audit(asked)
    assert about["method"] == "sparge-cca"
    assert "r2" in about["rows"][0]


def test_an_audit_of_another_corpus_is_replaced_only_where_that_is_asked(bigfs, store, home):
    write_svmlight(home / "rows.svm", rows=40)
    words = ("first.txt", "--workers", 0, "--out", "au")
    assert bigfs("audit", store, *words)[0] == 0
    first = json.loads((home / "au" / "audit.json").read_text())
    fails(bigfs("audit", "rows.svm", *words), "au holds a result on", "--fresh to replace it")
    assert json.loads((home / "au" / "audit.json").read_text()) == first
    assert bigfs("audit", "rows.svm", *words, "--fresh")[0] == 0
    assert json.loads((home / "au" / "audit.json").read_text())["asked"] != first["asked"]


def test_what_is_refused(bigfs, store, home):
    words = ("first.txt", "--workers", 0)
    fails(bigfs("audit", store, *words, "--method", "anova"), "SparGE's objective", "anova")
    fails(bigfs("audit", store, "no.txt", "--workers", 0), "no.txt does not exist")
    fails(bigfs("audit", store, *words, "--set", "loss=hinge"), "loss")
    (home / "taken").mkdir()
    (home / "taken" / "mine.txt").write_text("mine")
    fails(bigfs("audit", store, *words, "--out", "taken"), "taken")
    assert (home / "taken" / "mine.txt").read_text() == "mine"
