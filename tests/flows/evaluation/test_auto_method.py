"""`--method auto`: in a run, in a comparison, and the metric that decides."""

import json

import numpy as np
import pytest

from bigfs import AutoSelector, SparGECV, storage
from bigfs.flows.job import Job
from bigfs.storage.runs.runs import Run
from tests.helpers.commands import fails
from tests.helpers.daily import daily
from tests.helpers.fitting import unbalanced

SERIAL = ("--workers", 0)
FOUR = ("--features", 4, *SERIAL)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two classes, on which accuracy and balanced accuracy choose differently."""
    folder = tmp_path_factory.mktemp("auto")
    return storage.stage(
        f"{write_table(folder / 'u.csv')}?columns=x*&label=kind", folder / "u.zarr"
    )


def write_table(path):
    """The same samples as a table, with the donor and the day of each."""
    X, y = unbalanced()
    rows = np.column_stack([X, y, np.arange(150) // 5, np.arange(150) % 40])
    names = [*(f"x{j}" for j in range(30)), "kind", "donor", "day"]
    np.savetxt(path, rows, "%.9g", delimiter=",", header=",".join(names), comments="")
    return path


def run_of(answer):
    status, out, err = answer
    assert status == 0, err
    return Run.open(json.loads(out)["run"])


@pytest.mark.slow
@pytest.mark.parametrize("method", daily(["auto", "sparge-lda-cv"], "auto"))
def test_the_first_metric_of_a_run_decides(bigfs, store, method):
    corpus, chosen = storage.open(store), {}
    for metric in ("accuracy", "balanced_accuracy"):
        words = "--method", method, "--features", 4, "--cv", 2, "--json", *SERIAL
        run = run_of(bigfs("run", store, "--metric", f"{metric},macro_f1", *words))
        make = AutoSelector if method == "auto" else SparGECV
        expected = make(n_features_to_select=4, scoring=metric).fit(corpus.X, corpus.y)
        np.testing.assert_array_equal(run.selected, expected.selected_)
        assert run.metadata["parameters"]["parameters"] == {"scoring": metric}
        chosen[metric] = sorted(run.selected.tolist())
    assert chosen["accuracy"] != chosen["balanced_accuracy"]
    select = ("select", store, "--out", "s", "--method", method, "--features", 4, *SERIAL)
    run = run_of(bigfs(*select, "--metric", "balanced_accuracy", "--json"))
    assert sorted(run.selected.tolist()) == chosen["balanced_accuracy"]


def test_a_run_tells_what_was_tried(bigfs, store):
    words = "run", store, "--method", "auto", "--features", 4, "--cv", 2, "--out", "r", *SERIAL
    status, out, err = bigfs(*words)
    assert status == 0, err
    choice = Run.open("r").metadata["choice"]
    names = ["sparge-lda", "sparge-lda loss=squared_hinge", "sparge-lda ranking=svm"]
    assert [trial["candidate"] for trial in choice["tried"]] == names
    assert sum(trial["is_chosen"] for trial in choice["tried"]) == 1
    assert all(trial["seconds"] > 0 for trial in choice["tried"])
    assert choice["metric"] == "accuracy"
    page = (Run.open("r").path / "report.html").read_text().replace("\xa0", " ")
    for text in (out, page):
        assert "to the best" in text
        assert choice["why"] in " ".join(text.split())
        for trial in choice["tried"]:
            assert trial["candidate"] in text
            assert f"{trial['score']:.4f} ± {trial['error']:.4f}" in text
    again = bigfs(*words)
    assert again[0] == 0
    assert "has this result already" in again[2]


def test_a_corpus_without_labels_has_one_candidate(bigfs, tmp_path):
    X, _ = unbalanced()
    source = tmp_path / "bare.npy"
    np.save(source, X)
    status, out, err = bigfs(
        "run", source, "--method", "auto", "--features", 4, "--out", "r", *SERIAL
    )
    assert status == 0, err
    assert "auto: sparge-lpp, the only candidate, because no sample has a label" in out
    assert "sparge-lpp, the only candidate" in (Run.open("r").path / "report.html").read_text()


@pytest.mark.slow
def test_a_comparison_has_it_as_a_row(bigfs, store):
    sizes = "--methods", "anova,auto,sparge-lda-cv", "--sizes", "2,4", "--cv", 2, *SERIAL
    status, out, err = bigfs(
        "compare", store, "--out", "c", *sizes, "--metric", "balanced_accuracy"
    )
    assert status == 0, err
    with open("c/compare.json") as file:
        rows = {row["method"]: row for row in json.load(file)["rows"]}
    assert not rows["auto"]["error"]
    assert rows["auto"]["choice"]["metric"] == "balanced_accuracy"
    taken = [trial["candidate"] for trial in rows["auto"]["choice"]["tried"] if trial["is_chosen"]]
    assert f"auto: {taken[0]}, the first of 3 candidates" in " ".join(out.split())
    # both are decided alike for classes
    for point, other in zip(rows["auto"]["points"], rows["sparge-lda-cv"]["points"], strict=True):
        assert point["balanced_accuracy"] == other["balanced_accuracy"]
    corpus = storage.open(store)
    path = AutoSelector(scoring="balanced_accuracy").fit_path(corpus.X, corpus.y, [2, 4])
    assert [path[2].best_index_] * 2 == [
        next(k for k, t in enumerate(rows["auto"]["choice"]["tried"]) if t["is_chosen"]),
        path[4].best_index_,
    ]


def test_a_metric_for_nothing_is_refused(bigfs, store):
    fails(
        bigfs("select", store, "--out", "r", "--method", "anova", "--metric", "auc", *FOUR),
        "--metric says what --features auto and --method auto choose by",
    )
    fails(
        bigfs("select", store, "--out", "r", "--method", "auto", "--metric", "r2", *FOUR),
        "r2 is no metric of one class per sample",
    )


def test_another_metric_is_another_question():
    asked = [
        Job(source="s", method="auto", scoring={"metrics": metrics}).question
        for metrics in (None, ["auc", "accuracy"], ["accuracy"])
    ]
    assert [one["parameters"] for one in asked] == [{}, {"scoring": "auc"}, {"scoring": "accuracy"}]
    plain = Job(source="s", method="anova", scoring={"metrics": ["auc"]}).question
    assert plain["parameters"] == {}


def test_groups_and_times_of_a_corpus_reach_the_folds_inside(bigfs, tmp_path, monkeypatch):
    write_table(tmp_path / "t.csv")
    given = []

    def noted(self, n, y, samples, make=SparGECV._folds):
        given.append((n, samples))
        return make(self, n, y, samples)

    monkeypatch.setattr(SparGECV, "_folds", noted)
    source = "t.csv?columns=x*&label=kind&group=donor&time=day"
    words = "--features", 3, "--method", "auto", "--test-size", 0.3, *SERIAL
    status, _, err = bigfs("run", source, *words)
    assert status == 0, err
    assert len(given) == 2  # all samples, and those that are not held out
    for n, known in given:
        assert [len(known.groups), len(known.times)] == [n, n]
