"""The comparison as a flow and as a command: one store, one graph, and rows for what fails."""

import csv
import inspect
import json
import sys
import time
from pathlib import Path

import pytest

import storage.graphs
from bigfs.engine import ClusterLost
from flows import bench, stages
from flows.cli import comparisons
from flows.compare import compare
from flows.comparison_job import Choices, plan_comparison, run_comparison
from flows.options import Engine, Staging
from flows.standings import require_folder
from storage.errors import StoreError
from tests.helpers.commands import fails
from tests.helpers.processes import PREFECT_WARNS, artifacts, write_corpus

pytestmark = PREFECT_WARNS
SERIAL = Engine(workers=0)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus.jsonl", seed=3, rows=300)


def run(
    source,
    methods,
    *,
    timeout=600,
    out="out",
    metrics=(),
    folds=None,
    test_size=None,
    constraints=None,
):
    """Compare in this process, and return compare.json."""
    scoring = (list(metrics), folds, test_size, None)
    choices = Choices(methods, [4, 12], *scoring, constraints=constraints)
    plan = plan_comparison(source, None, out, Staging(tile_rows=100), choices)
    folder = run_comparison(plan, SERIAL, timeout=timeout)
    return json.loads(Path(folder, "compare.json").read_text())


def run_flow(source, methods, **more):
    given = {"settings": Staging(tile_rows=100), "engine": SERIAL, "out": "out"} | more
    return compare(source, methods, [4, 12], **given, return_state=True)


def test_a_comparison_goes_on_after_failures_and_reuses_what_is_done(prefect, corpus, monkeypatch):
    graphs, staged, ran = [], [], []
    monkeypatch.setattr(
        storage.graphs,
        "stream_knn",
        lambda *a, knn=storage.graphs.stream_knn, **k: graphs.append(k["k"]) or knn(*a, **k),
    )
    monkeypatch.setattr(
        stages, "stage", lambda *a, stage=stages.stage: staged.append(a) or stage(*a)
    )
    monkeypatch.setattr(
        bench.Bench, "run", lambda self, m, run=bench.Bench.run: ran.append(m) or run(self, m)
    )
    methods = ["laplacian", "f-regression", "information-gain", "lsdf"]
    state = run_flow(corpus, methods)
    assert state.is_completed()
    assert (len(graphs), len(staged)) == (1, 1)
    about = json.loads(Path("out/compare.json").read_text())
    by_name = {row["method"]: row for row in about["rows"]}
    assert about["rows"][-1] == by_name["f-regression"]
    assert by_name["f-regression"]["error"] == "it cannot learn from one class per sample"
    assert set(by_name) == {"laplacian", "f-regression", "mutual-info", "lsdf"}
    assert about["all features"]["n_features"] == 60
    for name in ("laplacian", "mutual-info", "lsdf"):
        assert [point["n_features"] for point in by_name[name]["points"]] == [4, 12]
        assert by_name[name]["processor_seconds"] > 0
    with open("out/compare.csv", newline="", encoding="utf-8-sig") as file:
        assert len(list(csv.DictReader(file))) == 3 * 2 + 1
    assert {p.name for p in Path("out").iterdir()} == {
        "compare.csv",
        "compare.json",
        "compare.md",
        "report.html",
        "results",
    }
    assert "| --- | --: |" in artifacts(state)["comparison"]["data"]

    ran.clear()
    store = about["corpus"]["store"]
    # the store itself is a source too, and two tasks run at once
    assert run_flow(store, [*methods, "chi2"], at_once=2).is_completed()
    assert sorted(ran) == ["chi2", "f-regression"]
    again = json.loads(Path("out/compare.json").read_text())
    assert again["reused"] == ["laplacian", "mutual-info", "lsdf", "all features"]
    kept = {row["method"]: row for row in again["rows"]}
    for name in ("laplacian", "mutual-info", "lsdf"):
        assert [p["accuracy"] for p in kept[name]["points"]] == [
            p["accuracy"] for p in by_name[name]["points"]
        ]
        assert kept[name]["seconds"] == by_name[name]["seconds"]


def test_a_late_method_and_one_without_memory_or_workers_are_rows(corpus, home, monkeypatch):
    def choose(selector, method, *given, choose=bench.choose):
        if method == "chi2":
            time.sleep(60)
        if method == "variance":
            raise MemoryError("it needs 5 GB\nand 1 GB is allowed")
        if method == "l2-svm":
            raise ClusterLost("the step scores killed every worker that ran it")
        return choose(selector, method, *given)

    monkeypatch.setattr(bench, "choose", choose)
    rows = run(corpus, ["chi2", "variance", "l2-svm", "anova"], timeout=4)["rows"]
    assert [row["method"] for row in rows] == ["anova", "chi2", "variance", "l2-svm"]
    assert rows[1]["error"].startswith("it took longer than 4 s")
    assert rows[2]["error"] == "it needs 5 GB and 1 GB is allowed"
    assert rows[3]["error"] == "the step scores killed every worker that ran it"


def test_a_comparison_without_any_result_fails(corpus, home):
    with pytest.raises(ValueError, match="no method finished: f-regression: it cannot learn from"):
        run(corpus, ["f-regression"])
    assert "f-regression" in Path("out/compare.md").read_text()


def test_bad_choices_leave_nothing(corpus, home):
    for given, said in (
        ({"methods": ["anowa"]}, "anowa"),
        ({"metrics": ["speed"]}, "unknown metric 'speed'; the metrics are accuracy"),
        ({"out": "corpus.jsonl"}, "corpus.jsonl is in the way"),
        ({"folds": 3, "test_size": 0.2}, "folds and test_size exclude one another"),
        ({"constraints": {"kept": [1]}}, "constraints are keep and forbid; got 'kept'"),
    ):
        with pytest.raises((ValueError, StoreError), match=said):
            run(corpus, **({"methods": ["anova"]} | given))
    assert {p.name for p in home.iterdir()} == {"corpus.jsonl"}


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def no_work(monkeypatch):
    for name in ("bench.Bench", "job.plan_store"):
        monkeypatch.setattr(f"flows.{name}", lambda *_, **__: pytest.fail("work began"))


def test_a_folder_of_others_is_in_the_way(tmp_path):
    require_folder(tmp_path / "new")
    require_folder(tmp_path)
    (tmp_path / "compare.json").write_text('{"mine": 1}')
    with pytest.raises(StoreError, match="is in the way and bigfs did not make it"):
        require_folder(tmp_path)
    (tmp_path / "compare.json").write_text('{\n "format": "bigfs comparison 1"}')
    require_folder(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--methods", "anova,nope", "--sizes", "5"), "unknown method 'nope'"),
        (("--methods", "anova", "--sizes", "5,x"), "sizes must be whole numbers"),
        (("--methods", "anova", "--sizes", "5", "--metric", "speed"), "unknown metric 'speed'"),
        (("--methods", "anova,fisher", "--sizes", "5"), "anova and fisher rank features alike"),
        (
            ("--methods", "anova", "--sizes", "5", "--cv", "3", "--test-size", "0.2"),
            "--cv and --test-size exclude one another",
        ),
    ],
)
def test_command_refuses_bad_words_before_any_work(bigfs, no_work, words, said):
    fails(bigfs("compare", "x", "out", *words), said)


def test_command_refuses_paths_before_any_work(bigfs, no_work, tmp_path, corpus):
    words = ("--methods", "anova", "--sizes", "5")
    fails(bigfs("compare", "missing.svm", "out", *words), "missing.svm")
    fails(bigfs("compare", corpus, tmp_path, *words), "is in the way and bigfs did not make it")
    assert {p.name for p in tmp_path.iterdir()} == {"corpus.jsonl"}


def test_command_is_a_flow_where_the_environment_names_a_server(bigfs, corpus, monkeypatch):
    compared = []
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr("flows.compare.compare", lambda *given: compared.append(given))
    monkeypatch.setattr(comparisons, "quiet_prefect", lambda debug: None)
    monkeypatch.setattr(comparisons, "print_comparison", lambda *_: None)
    words = ("--methods", "anova,chi2", "--sizes", "12,4", "--test-size", 0.2, "--timeout", 7)
    words = (*words, "--at-once", 2, "--keep", "7,8", "--forbid", "a")
    assert bigfs("compare", corpus, "out", *words, "--fresh", "--workers", 0)[0] == 0
    expected = inspect.signature(compare.fn).bind(*compared[0]).arguments
    assert expected["methods"] == ["anova", "chi2"]
    assert expected["sizes"] == [4, 12]
    assert (expected["test_size"], expected["timeout"], expected["fresh"]) == (0.2, 7, True)
    assert (expected["engine"].workers, expected["at_once"]) == (0, 2)
    assert expected["constraints"] == {"keep": [7, 8], "forbid": ["a"]}


def test_command_prints_aligned_tables_without_prefect(bigfs, corpus, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "prefect"]:
        monkeypatch.delitem(sys.modules, name)
    words = ("--methods", "anova,chi2,t-score", "--sizes", "12,4", "--workers", 0)
    status, out, _ = bigfs("compare", corpus, "out", *words)
    assert status == 0
    lines = out.splitlines()
    assert lines[0].split() == ["accuracy", "with", "4", "12", "mean"]
    starts = {line.rindex(line.split()[-1]) + len(line.split()[-1]) for line in lines[:4]}
    assert len(starts) == 1
    assert any(line.startswith("t-score: the t score compares two classes") for line in lines)
    assert max(map(len, lines[:12])) <= 80
    status, out, _ = bigfs("compare", corpus, "out", *words, "--json")
    assert status == 0
    assert json.loads(out)["reused"] == ["anova", "chi2", "all features"]
    bound = ("--methods", "anova", *words[2:], "--keep", "7,8", "--forbid", "3")
    status, out, _ = bigfs("compare", corpus, "out", *bound, "--json")
    assert status == 0
    about = json.loads(out)
    assert about["constraints"] == {"keep": [7, 8], "forbid": [3]}
    assert about["reused"] == ["all features"]
    assert about["evaluation"].endswith("must hold 2 given features and must not hold any of 1.")
    assert "prefect" not in sys.modules
