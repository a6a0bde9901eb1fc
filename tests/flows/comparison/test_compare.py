"""The comparison as a flow and as a command: one store, one graph, and rows for what fails."""

import contextlib
import csv
import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bigfs import SparGE, storage
from bigfs.engine import ClusterLostError
from bigfs.flows import run as runs
from bigfs.flows.cli import comparisons
from bigfs.flows.comparison import bench, files
from bigfs.flows.comparison.audit import audit
from bigfs.flows.comparison.compare import compare, require_result
from bigfs.flows.comparison.files import (
    AUDIT,
    COMPARISON,
    holding,
    read_comparison,
    require_folder,
    write_record,
)
from bigfs.flows.comparison.outcomes import read_outcome
from bigfs.flows.comparison.request import Audit, Comparison
from bigfs.flows.options import ClusterOptions, Scoring, SourceOptions
from bigfs.storage import atomic
from bigfs.storage import graphs as stored_graphs
from bigfs.storage.errors import StoreError
from bigfs.storage.runs.checkpoints import digest
from bigfs.storage.runs.runs import RunError
from bigfs.storage.staging import stage as staging
from tests.helpers.commands import fails
from tests.helpers.processes import PREFECT_WARNS, artifacts, write_corpus

pytestmark = PREFECT_WARNS
SERIAL = ClusterOptions(workers=0)


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
    scoring=None,
    **more,
):
    """Compare in this process, and return compare.json."""
    request = Comparison(
        source=source,
        methods=methods,
        sizes=[4, 12],
        out=out,
        scoring=Scoring(metrics=metrics or None, **(scoring or {})),
        settings=SourceOptions(tile_rows=100),
        engine=SERIAL,
        timeout=timeout,
        **more,
    )
    folder = compare(request)
    require_result(folder)
    return json.loads(Path(folder, "compare.json").read_text())


def run_flow(source, methods, **more):
    from bigfs.flows.prefect_flows import compare

    given = {"settings": SourceOptions(tile_rows=100), "engine": SERIAL, "out": "out"} | more
    return compare(source, methods, [4, 12], **given, return_state=True)


def test_a_comparison_goes_on_after_failures_and_reuses_what_is_done(prefect, corpus, monkeypatch):
    graphs, staged, ran = [], [], []
    monkeypatch.setattr(
        stored_graphs,
        "stream_knn",
        lambda *a, knn=stored_graphs.stream_knn, **k: graphs.append(k["k"]) or knn(*a, **k),
    )
    monkeypatch.setattr(
        *(staging, "build"),
        lambda *a, real=staging.build, **k: staged.append(a) or real(*a, **k),
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
    # the store itself is a source too
    assert run_flow(store, [*methods, "chi2"], settings=SourceOptions()).is_completed()
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
    def choose(chooser, *given, choose=bench.Chooser.sets):
        method = chooser.method
        if method == "chi2":
            time.sleep(60)
        if method == "variance":
            raise MemoryError("it needs 5 GB\nand 1 GB is allowed")
        if method == "l2-svm":
            raise ClusterLostError("the step scores killed every worker that ran it")
        return choose(chooser, *given)

    monkeypatch.setattr(bench.Chooser, "sets", choose)
    rows = run(corpus, ["chi2", "variance", "l2-svm", "anova"], timeout=4)["rows"]
    assert [row["method"] for row in rows] == ["anova", "chi2", "variance", "l2-svm"]
    assert rows[1]["error"].startswith("it took longer than 4 s")
    assert rows[2]["error"] == "it needs 5 GB and 1 GB is allowed"
    assert rows[3]["error"] == "the step scores killed every worker that ran it"


def test_an_error_of_the_network_is_not_told_as_lateness(corpus, home, monkeypatch):
    def choose(chooser, *given, choose=bench.Chooser.sets):
        method = chooser.method
        if method == "chi2":
            raise TimeoutError("the read operation timed out")
        return choose(chooser, *given)

    waits = []
    monkeypatch.setattr(runs.time, "sleep", waits.append)
    monkeypatch.setattr(bench.Chooser, "sets", choose)
    rows = run(corpus, ["chi2", "anova"])["rows"]
    assert rows[1]["error"] == "the read operation timed out"
    assert len(waits) == runs.RETRIES.value  # it may pass


def test_a_grid_compares_the_values_of_parameters(corpus, home, monkeypatch):
    ran = []
    monkeypatch.setattr(
        bench.Bench, "run", lambda self, m, run=bench.Bench.run: ran.append(m) or run(self, m)
    )
    grid = {"sparge-lda": {"gamma": [0.5, 1.0]}}
    about = run(corpus, ["sparge-lda", "anova"], grid=grid)
    assert ran == ["sparge-lda gamma=0.5", "sparge-lda gamma=1.0", "anova", "all features"]
    by_name = {row["method"]: row for row in about["rows"]}
    assert set(by_name) == set(ran[:3])
    assert by_name["sparge-lda gamma=0.5"]["parameters"] == {"gamma": 0.5}
    train = storage.open(about["corpus"]["store"]).part("train")
    for gamma in (0.5, 1.0):
        chosen = SparGE(n_features_to_select=12, gamma=gamma).fit(train.X, train.y).selected_
        [file] = Path("out/results").glob(f"sparge-lda-{digest({'gamma': gamma})[:8]}.npz")
        assert set(read_outcome(file)[0].sets[12]) == set(chosen)
    ran.clear()
    # a value more is chosen by, and the rest is there
    run(corpus, ["sparge-lda", "anova"], grid={"sparge-lda": {"gamma": [0.5, 1.0, 2.0]}})
    assert ran == ["sparge-lda gamma=2.0"]


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ({"anova": {"gama": [1]}}, "anova has no parameter gama"),
        ({"anova": {"param": [-1]}}, "'param'"),
        ({"fisher": {"param": [1]}}, "the grid names fisher, which is not among"),
    ],
)
def test_a_grid_with_a_bad_value_leaves_nothing(corpus, home, grid, said):
    with pytest.raises(ValueError, match=said):
        run(corpus, ["anova"], grid=grid)
    assert {p.name for p in home.iterdir()} == {"corpus.jsonl"}


def test_the_columns_of_a_comparison_are_those_of_its_metrics(home):
    """Of several labels and of real targets too."""
    rng = np.random.default_rng(0)
    for kind, metrics in (("labels", ["micro_f1", "macro_f1"]), ("real", ["r2"])):
        with open(f"{kind}.jsonl", "w") as file:
            for i in range(60):
                row = rng.poisson(1.0, 20) + np.eye(20)[i % 3] * 5
                label = ["a", "b"][: 1 + i % 2] if kind == "labels" else float(row[0]) + i / 100
                features = {str(j): float(v) for j, v in enumerate(row) if v}
                record = {"features": features, "label": label}
                record["split"] = "test" if i % 5 == 4 else "train"
                file.write(json.dumps(record) + "\n")
        method = "sparge-cca" if kind == "labels" else "f-regression"
        about = run(f"{kind}.jsonl", [method], out=kind)
        assert about["metrics"] == metrics
        with open(f"{kind}/compare.csv", newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
        for row, point in zip(rows, about["rows"][0]["points"], strict=False):
            assert [float(row[name]) for name in metrics] == [point[name] for name in metrics]
            assert (row["status"], row["error"]) == ("finished", "")
            assert float(row["seconds"]) == about["rows"][0]["seconds"]


def test_a_folder_with_a_comparison_on_another_corpus_is_refused_unless_fresh(corpus, home):
    run(corpus, ["anova"])
    write_corpus(home / "other.jsonl", seed=4)
    with pytest.raises(RunError, match=r"out holds a result on .*corpus.jsonl: give another"):
        run("other.jsonl", ["anova"])
    assert run("other.jsonl", ["anova"], fresh=True)["corpus"]["name"] == "other.jsonl"


@pytest.mark.parametrize("file", ["compare.csv", "compare.md", "compare.json"])
def test_the_files_of_a_comparison_are_one(tmp_path, monkeypatch, file):
    """An interrupt at the renaming of any of them is made good by whoever reads."""

    def write(state):
        about = {"corpus": {"store": "nowhere"}, "rows": [], "state": state}
        table, texts = (["state"], [{"state": state}]), {"compare.md": state}
        write_record(tmp_path, COMPARISON, about, table, texts)

    def interrupt(operation, path):
        if operation == "rename" and Path(path).name == file:
            raise KeyboardInterrupt

    write("old")
    with monkeypatch.context() as patched:
        patched.setattr(atomic, "fault_point", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write("new")
    assert read_comparison(tmp_path)["state"] == "new"
    assert (tmp_path / "compare.md").read_text() == "new"
    assert (tmp_path / "compare.csv").read_text() == "state\nnew\n"


@pytest.mark.parametrize("kind", [COMPARISON, AUDIT], ids=lambda kind: kind.name)
def test_a_damaged_record_is_believed_by_nobody_and_made_again(home, caplog, kind):
    about = {"format": kind.format, "corpus": {"store": "s.zarr", "source": "s"}, "rows": []}
    asked = Audit if kind is AUDIT else Comparison
    request = asked(
        source="s", store="s.zarr", out="o", **({"lists": ["l"]} if kind is AUDIT else {})
    )
    file = Path("o", f"{kind.name}.json")

    def write():
        with holding(request, kind):
            write_record(Path("o"), kind, about, (["a"], []), {})

    write()
    whole = file.read_text()
    file.write_text(whole.replace("s.zarr", "t.zarr"))  # it is JSON still
    if kind is COMPARISON:
        with pytest.raises(RunError, match=r"o/compare\.json is damaged: repeat the comparison"):
            read_comparison("o")
    write()
    assert caplog.messages == [f"o/{kind.name}.json is damaged: it is made again"]
    assert file.read_text() == whole


@pytest.mark.parametrize("kind", [COMPARISON, AUDIT], ids=lambda kind: kind.name)
def test_a_folder_that_another_corpus_took_meanwhile_is_refused(home, monkeypatch, kind):
    """What a folder holds is asked once its name is held."""
    about = {"format": kind.format, "corpus": {"store": "other.zarr", "source": "other"}}

    @contextlib.contextmanager
    def wait_for_another(name, *, waits):
        write_record(Path(name), kind, about, (["a"], []), {})
        yield

    monkeypatch.setattr(files, "lock_run", wait_for_another)
    write_corpus(home / "c.jsonl", seed=3, rows=30)
    given = {"source": "c.jsonl", "lists": ["l"], "out": "o"}
    work = partial(compare, Comparison(**given))
    if kind is AUDIT:
        work = partial(audit, Audit(**given))
    with pytest.raises(RunError, match="o holds a result on other: give another --out"):
        work()


def test_every_comparison_has_a_directory_of_its_own(corpus, home):
    given = {"source": corpus, "methods": ["anova"], "sizes": [3]}
    other = [{}, {"sizes": [4]}, {"scoring": {"cv": 3}}, {"settings": SourceOptions(tile_rows=50)}]
    names = {Comparison(**given | more).with_out().out for more in other}
    assert len(names) == 4
    assert all(name.startswith("runs/corpus.jsonl-comparison-") for name in names)
    more = Comparison(**given | {"methods": ["anova", "chi2"]})  # takes the results that are there
    assert more.with_out().out == Comparison(**given).with_out().out


def test_a_comparison_without_any_result_fails(corpus, home):
    with pytest.raises(ValueError, match="no method finished: f-regression: it cannot learn from"):
        run(corpus, ["f-regression"])
    assert "f-regression" in Path("out/compare.md").read_text()


def test_bad_choices_leave_nothing(corpus, home):
    for given, said in (
        ({"methods": ["anowa"]}, "anowa"),
        ({"metrics": ["speed"]}, "unknown metric 'speed'; the metrics are accuracy"),
        ({"out": "corpus.jsonl"}, "corpus.jsonl is in the way"),
        ({"scoring": {"cv": 3, "test_size": 0.2}}, "cv and test_size exclude one another"),
        ({"constraints": {"kept": [1]}}, "Input should be 'keep' or 'forbid'"),
    ):
        with pytest.raises((ValueError, StoreError), match=said):
            run(corpus, **({"methods": ["anova"]} | given))
    assert {p.name for p in home.iterdir()} == {"corpus.jsonl"}


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def no_work(monkeypatch):
    monkeypatch.setattr(
        "bigfs.flows.comparison.compare.compare", lambda *_: pytest.fail("work began")
    )


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
        (("--methods", "anova", "--sizes", "5,x"), "--sizes: it must be a valid integer; got 'x'"),
        (("--methods", "anova", "--sizes", "5", "--metric", "speed"), "unknown metric 'speed'"),
        (
            ("--methods", "anova", "--sizes", "5", "--cv", "3", "--test-size", "0.2"),
            "cv and test_size exclude one another",
        ),
    ],
)
def test_command_refuses_bad_words_before_any_work(bigfs, no_work, words, said):
    fails(bigfs("compare", "x", "--out", "out", *words), said)


def test_command_refuses_paths_before_any_work(bigfs, no_work, tmp_path, corpus):
    words = ("--methods", "anova", "--sizes", "5")
    fails(bigfs("compare", "missing.svm", "--out", "out", *words), "missing.svm")
    fails(
        bigfs("compare", corpus, "--out", tmp_path, *words),
        "is in the way and bigfs did not make it",
    )
    assert {p.name for p in tmp_path.iterdir()} == {"corpus.jsonl"}


def test_command_is_a_flow_where_the_settings_of_prefect_name_a_server(bigfs, corpus, monkeypatch):
    from prefect.settings import PREFECT_API_URL, temporary_settings
    from prefect.states import Completed

    from bigfs.flows import prefect_flows

    compared = []

    def compare_as_flow(return_state, **given):
        compared.append(given)
        return Completed()

    monkeypatch.setattr(prefect_flows, "compare", compare_as_flow)
    monkeypatch.setattr("bigfs.flows.cli.servers.require_api", lambda *_: None)
    monkeypatch.setattr(comparisons, "print_comparison", lambda *_: None)
    words = ("--methods", "sparge-lda,chi2", "--sizes", "12,4", "--test-size", 0.2, "--timeout", 7)
    words = (*words, "--keep", "7,8", "--forbid", "a")
    words = (*words, "--grid", "sparge-lda.gamma=[0.5,1]", "--fresh", "--workers", 0)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert bigfs("compare", corpus, "--out", "out", *words)[0] == 0
    [expected] = compared
    assert expected["methods"] == ["sparge-lda", "chi2"]
    assert expected["sizes"] == [4, 12]
    assert (expected["scoring"].test_size, expected["timeout"], expected["fresh"]) == (0.2, 7, True)
    assert expected["engine"].workers == 0
    assert expected["grid"] == {"sparge-lda": {"gamma": [0.5, 1]}}
    assert expected["constraints"] == {"keep": [7, 8], "forbid": ["a"]}


def test_command_prints_aligned_tables_without_prefect(bigfs, corpus, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "prefect"]:
        monkeypatch.delitem(sys.modules, name)
    words = ("--methods", "anova,chi2,t-score", "--sizes", "12,4", "--workers", 0)
    status, out, _ = bigfs("compare", corpus, "--out", "out", *words)
    assert status == 0
    lines = out.splitlines()
    assert lines[0].split() == ["accuracy", "with", "4", "12", "mean"]
    starts = {line.rindex(line.split()[-1]) + len(line.split()[-1]) for line in lines[:4]}
    assert len(starts) == 1
    assert any(line.startswith("t-score: the t score compares two classes") for line in lines)
    assert max(map(len, lines[:12])) <= 80
    status, out, _ = bigfs("compare", corpus, "--out", "out", *words, "--json")
    assert status == 0
    assert json.loads(out)["reused"] == ["anova", "chi2", "all features"]
    bound = ("--methods", "anova", *words[2:], "--keep", "7,8", "--forbid", "3")
    status, out, _ = bigfs("compare", corpus, "--out", "out", *bound, "--json")
    assert status == 0
    about = json.loads(out)
    assert about["constraints"] == {"keep": [7, 8], "forbid": [3]}
    assert about["reused"] == ["all features"]
    assert about["evaluation"].endswith("must hold 2 given features and must not hold any of 1.")
    assert "prefect" not in sys.modules
