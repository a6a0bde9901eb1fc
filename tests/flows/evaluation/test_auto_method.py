"""`--method auto`: in a run, in a comparison, and the metric that decides."""

import json

import numpy as np
import pandas as pd
import pytest

from bigfs import AutoSelector, SparGECV, storage
from bigfs.flows.job import Job
from bigfs.storage.runs.runs import Run
from tests.helpers.commands import fails
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


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Two classes of which 60 of 150 samples have one, so that folds decide between two methods."""
    folder = tmp_path_factory.mktemp("few")
    return storage.stage(
        f"{write_table(folder / 'u.csv', 60)}?columns=x*&label=kind", folder / "u.zarr"
    )


def write_table(path, n_labeled=150):
    """The same samples as a table, with the donor and the day of each."""
    X, y = unbalanced()
    kinds = np.where(np.arange(150) % 5 < n_labeled // 30, np.array(["a", "b"])[y], "")
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(30)])
    table = table.assign(kind=kinds, donor=np.arange(150) // 5, day=np.arange(150) % 40)
    table.to_csv(path, index=False)
    return path


def run_of(answer):
    status, out, err = answer
    assert status == 0, err
    return Run.open(json.loads(out)["run"])


@pytest.mark.slow
def test_the_first_metric_of_a_run_decides(bigfs, store):
    corpus, chosen = storage.open(store), {}
    method = "--method", "sparge-lda-cv", "--features", 4
    for metric in ("accuracy", "balanced_accuracy"):
        words = *method, "--cv", 2, "--json", *SERIAL
        run = run_of(bigfs("run", store, "--metric", f"{metric},macro_f1", *words))
        expected = SparGECV(n_features_to_select=4, scoring=metric).fit(corpus.X, corpus.y)
        np.testing.assert_array_equal(run.selected, expected.selected_)
        assert run.metadata["parameters"]["parameters"] == {"scoring": metric}
        chosen[metric] = sorted(run.selected.tolist())
    assert chosen["accuracy"] != chosen["balanced_accuracy"]
    select = ("select", store, "--out", "s", *method, *SERIAL)
    run = run_of(bigfs(*select, "--metric", "balanced_accuracy", "--json"))
    assert sorted(run.selected.tolist()) == chosen["balanced_accuracy"]


def test_a_run_of_classes_says_that_nothing_was_to_be_decided(bigfs, store):
    status, out, err = bigfs("run", store, "--method", "auto", *FOUR, "--cv", 2, "--out", "r")
    assert status == 0, err
    assert "auto: sparge-lda, the only candidate for classes" in " ".join(out.split())


def test_a_run_tells_what_was_tried(bigfs, few):
    words = "run", few, "--method", "auto", "--features", 4, "--cv", 2, "--out", "r", *SERIAL
    status, out, err = bigfs(*words)
    assert status == 0, err
    choice = Run.open("r").metadata["choice"]
    names = [trial["candidate"] for trial in choice["tried"]]
    assert names == ["sparge-lda", "sparge-sda"]
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
def test_a_comparison_has_it_as_a_row(bigfs, few):
    sizes = "--methods", "anova,auto", "--sizes", "2,4", "--cv", 2, *SERIAL
    status, out, err = bigfs("compare", few, "--out", "c", *sizes, "--metric", "balanced_accuracy")
    assert status == 0, err
    with open("c/compare.json") as file:
        rows = {row["method"]: row for row in json.load(file)["rows"]}
    assert not rows["auto"]["error"]
    assert rows["auto"]["choice"]["metric"] == "balanced_accuracy"
    taken = [k for k, trial in enumerate(rows["auto"]["choice"]["tried"]) if trial["is_chosen"]]
    name = rows["auto"]["choice"]["tried"][taken[0]]["candidate"]
    assert f"auto: {name}, the first of 2 candidates" in " ".join(out.split())
    corpus = storage.open(few)
    path = AutoSelector(scoring="balanced_accuracy").fit_path(corpus.X, corpus.y, [2, 4])
    assert [path[2].best_index_, path[4].best_index_] == taken * 2


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

    def noted(self, n, target, make=SparGECV._folds):
        given.append((n, target.samples))
        return make(self, n, target)

    monkeypatch.setattr(SparGECV, "_folds", noted)
    source = "t.csv?columns=x*&label=kind&group=donor&time=day"
    words = "--features", 3, "--method", "sparge-lda-cv", "--test-size", 0.3, *SERIAL
    status, _, err = bigfs("run", source, *words)
    assert status == 0, err
    assert len(given) == 2  # all samples, and those that are not held out
    for n, known in given:
        assert [len(known.groups), len(known.times)] == [n, n]
