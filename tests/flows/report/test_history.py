"""`bigfs history`: the runs of a folder in order, with the changes of their choice."""

import json

from bigfs.storage.runs.runs import Run, results_of
from tests.helpers.commands import fails
from tests.helpers.processes import write_corpus

NIGHTS = {  # key: day, chosen names, accuracy, gap
    "a": (1, ["goal", "bank", "rate"], 0.5, 0.02),
    "b": (2, ["bank", "goal", "team"], 0.75, 0.01),
    "c": (3, ["bank", "match", "score"], None, None),
}


def make(out, key, method="anova"):
    day, names, accuracy, gap = NIGHTS[key]
    parameters = {"store": f"{key}.zarr", "method": method, "features": 3, "parameters": {}}
    run = Run.begin(out, parameters, key)
    rows = [(i + 1, i, name, 3.0 - i) for i, name in enumerate(names)]
    run.write_table("selected.csv", ["rank", "index", "name", "score"], rows)
    curves = [] if accuracy is None else [{"method": method, "n_features": 3, "accuracy": accuracy}]
    run.update_metadata(
        key=key,
        made=f"2026-11-0{day}T03:00:00+01:00",
        status="converged",
        curves=curves,
        stats={} if gap is None else {"objective_gap": gap},
    )
    return run.finish()


def test_the_nights_of_a_run_are_listed_in_order(bigfs, tmp_path):
    for key in NIGHTS:
        make(tmp_path / "runs" / "nightly", key)
    status, out, err = bigfs("history", "runs/nightly", "--json")
    assert (status, err) == (0, "")
    answer = json.loads(out)
    assert [night["made"][8:10] for night in answer["runs"]] == ["01", "02", "03"]
    assert [night["added"] for night in answer["runs"]] == [None, ["team"], ["match", "score"]]
    assert [night["removed"] for night in answer["runs"]] == [None, ["rate"], ["goal", "team"]]
    assert [night["score"] for night in answer["runs"]] == [0.5, 0.75, None]
    assert [night["gap"] for night in answer["runs"]] == [0.02, 0.01, None]
    assert answer["runs"][-1]["run"] == "runs/nightly"
    head, *lines = bigfs("history", "runs/nightly")[1].splitlines()
    assert head.split() == ["when", "method", "features", "added", "removed", "gap", "accuracy"]
    assert [line.split() for line in lines[1:3]] == [
        ["2026-11-02", "03:00", "anova", "3", "+1", "−1", "1.00", "%", "0.7500"],
        ["2026-11-03", "03:00", "anova", "3", "+2", "−2", "–", "–"],
    ]
    assert lines[3:] == ["added last: match, score", "removed last: goal, team"]
    assert max(map(len, lines)) <= 80


def test_runs_of_a_folder_are_in_order_and_an_unfinished_one_is_none(bigfs, tmp_path):
    make(tmp_path / "runs" / "two", "b", "chi2")
    make(tmp_path / "runs" / "one", "a")
    Run.begin(
        tmp_path / "runs" / "three", Run.open(tmp_path / "runs" / "two").metadata["parameters"]
    )
    runs = json.loads(bigfs("history", "--json")[1])["runs"]
    assert [(run["run"], run["method"]) for run in runs] == [
        ("runs/one", "anova"),
        ("runs/two", "chi2"),
    ]
    lines = bigfs("history")[1].splitlines()
    assert lines[0].split()[:2] == ["when", "run"]
    assert "two" in lines[2]
    assert [run["added"] for run in runs] == [None, None]  # of a directory of its own


def test_a_folder_without_runs_and_a_damaged_run_are_one_line(bigfs, tmp_path):
    fails(bigfs("history", "nowhere"), "nowhere holds no run")
    for key in NIGHTS:
        make(tmp_path / "runs" / "r", key)
    damaged = results_of(tmp_path / "runs" / "r")[1]
    (damaged / "run.json").write_text("{")
    runs = json.loads(bigfs("history", "--json")[1])["runs"]
    assert "run.json is damaged" in next(run["error"] for run in runs if run["error"])
    good = [run for run in runs if run["error"] is None]
    assert [run["added"] for run in good] == [None, ["match", "score"]]
    for folder in ((), (".",)):
        assert bigfs("history", *folder)[1].count("run.json is damaged") == 1
    latest = results_of(tmp_path / "runs" / "r")[-1]
    (latest / "run.json").unlink()
    runs = json.loads(bigfs("history", "runs/r", "--json")[1])["runs"]
    assert "run.json is missing" in runs[-1]["error"]


def test_a_night_that_failed_is_a_row_with_its_reason(bigfs, tmp_path, monkeypatch):
    write_corpus(tmp_path / "corpus.jsonl", seed=3)
    words = ("run", "corpus.jsonl", "--method", "anova", "--features", 3, "--workers", 0)
    assert bigfs(*words, "--out", "runs/nightly")[0] == 0
    (tmp_path / "corpus.jsonl").rename(tmp_path / "away.jsonl")
    fails(bigfs(*words, "--out", "runs/nightly"), "corpus.jsonl does not exist")
    runs = json.loads(bigfs("history", "--json")[1])["runs"]
    assert [run["error"] is None for run in runs] == [True, False]
    assert f"(in {tmp_path})" in runs[1]["error"]
    assert "failed: corpus.jsonl does not exist" in " ".join(bigfs("history")[1].split())
    fails(bigfs(*words[:1], "nowhere", *words[2:], "--out", "runs/typo"), "nowhere does not exist")
    assert not (tmp_path / "runs" / ".typo").exists()


def test_names_with_escape_codes_are_escaped(bigfs, tmp_path):
    make(tmp_path / "runs" / "r", "a")
    for name in ("\x1b]0;owned\x07\x1b[31mred", "two\nlines", "\u202eright"):
        NIGHTS["x"] = (4, ["goal", name], None, None)
        make(tmp_path / "runs" / "r", "x")
        out = bigfs("history", "runs/r")[1]
        assert not {"\x1b", "\x07", "\u202e"} & set(out)
        assert "\\x1b" in out or "\\n" in out or "\\u202e" in out
    del NIGHTS["x"]


def test_prefect_is_told_when_the_choice_has_changed(tmp_path, monkeypatch):
    from bigfs.flows.report import artifacts

    told = []
    monkeypatch.setattr(artifacts, "emit_event", lambda event, **more: told.append((event, more)))
    for key, names in (("a", None), ("b", ["team"]), ("b", ["team"])):
        artifacts.tell_change(Run.open(make(tmp_path / "nightly", key)))
        assert (told[-1][1]["payload"]["added"] if told else None) == names
    event, more = told[0]
    assert event == "bigfs.selection.changed"
    assert more["resource"]["prefect.resource.id"] == f"bigfs.run.{tmp_path}/nightly"
    assert more["payload"]["removed"] == ["rate"]
    make(tmp_path / "nightly", "c")
    (results_of(tmp_path / "nightly")[0] / "run.json").write_text("{")
    artifacts.tell_change(Run.open(tmp_path / "nightly"))  # a damaged night ends no later one
    assert told[-1][1]["payload"]["added"] == ["match", "score"]
