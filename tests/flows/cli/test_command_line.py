"""The command line as other tools have taught it: one place for the output, lists both ways, tables
for pipes, variables, and exits that tell what happened.
"""

import csv
import json
import os
import signal
import subprocess
import sys

import pytest

from bigfs.flows.cli import app as command_line
from bigfs.storage.runs.runs import Run, lock_run
from tests.helpers.commands import fails
from tests.helpers.processes import environment, write_corpus

SERIAL = ("--workers", 0, "--no-prefect", "-q")
ANOVA = ("-m", "anova", "-n", 5, *SERIAL)


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus.jsonl", seed=3)


@pytest.fixture
def run(bigfs, corpus):
    """A run in the folder r."""
    assert bigfs("run", corpus, "-o", "r", *ANOVA)[0] == 0
    return "r"


# --- exits ----------------------------------------------------------------------------------------

WRONG = [
    ("run", "c", "--features", "abc"),
    ("run", "c", "--memory-limit", "foo"),
    ("run", "c", "--test-size", "2"),
    ("run", "c", "--set", "gamma"),
    ("run", "c", "--method", "nope"),
    ("run", "c", "--sizes", "x"),
    ("run", "c", "--scale", "foo"),
    ("run", "c", "--highly-variable"),
    ("run", "c", "--out", "s3://bucket/nightly"),
    ("select", "c.zarr", "--out", "gs://bucket/x"),
    ("compare", "c", "--out", "s3://bucket/c"),
    ("compare", "c", "--grid", "anova"),
    ("audit", "c", "list.txt", "--out", "s3://bucket/c"),
    ("stability", "c.zarr", "o.csv", "--share", "2"),
    ("stability", "c.zarr", "o.csv", "--features", "auto"),
    ("prune", "--older-than", "3x"),
    ("graph", "c.zarr", "--metric", "l1"),
    ("append", "c", "c.zarr", "--split", "dev"),
    ("predict", "r", "c.zarr", "p.csv", "--part", "dev"),
    ("predict", "r", "c.zarr", "-", "--json"),
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_usage_is_status_2(bigfs, tmp_path, words):
    answer = bigfs(*words)
    fails(answer)
    assert answer[0] == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [("predict", "r", "corpus.jsonl"), ("transform", "r", "c.zarr"), ("export", "r")]
)
def test_a_url_is_no_file(bigfs, run, tmp_path, words):
    before = sorted(tmp_path.iterdir())
    fails(bigfs(*words, "s3://bucket/x.csv"), "s3://bucket/x.csv is a URL", "local disk")
    assert sorted(tmp_path.iterdir()) == before


def test_a_command_that_does_not_wait_has_a_status_of_its_own(bigfs, run, corpus):
    asked = ("run", corpus, "-o", "r", *ANOVA, "-n", 3, "--fresh", "--overlap", "skip")
    with lock_run("r"):
        status, out, err = bigfs(*asked)
    assert status == command_line.BUSY == 75
    assert out == ""  # nothing of the run that lies there
    assert err.count("bigfs: ") == 1
    assert "Traceback" not in err
    assert bigfs(*asked)[0] == 0


def test_one_path_for_a_run_and_its_store_is_refused(bigfs, corpus, tmp_path):
    answer = bigfs("run", corpus, "-o", "x", "--store", "x", *ANOVA)
    fails(answer, "--out and --store are one path, x: give two")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("limit", "said"), [("-f 4", "File too large"), ("-n 12", "Too many open")]
)
def test_a_limit_of_the_process_is_one_line_at_once(tmp_path, limit, said):
    write_corpus(tmp_path / "rows.svm", seed=3)
    command = [sys.executable, "-m", "bigfs", "run", "rows.svm", *ANOVA, "--no-prefect", "-o", "r"]
    ended = subprocess.run(
        ["bash", "-c", f'ulimit {limit}; exec "$@"', "bash", *map(str, command)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(tmp_path),
    )
    told = (said, f"raise the limit of the shell, ulimit {limit[:2]}")
    fails((ended.returncode, ended.stdout, ended.stderr), *told)
    assert "trying again" not in ended.stderr


def test_a_process_that_may_start_no_thread_says_so_in_one_line(bigfs, monkeypatch):
    def start(*_, **__):
        raise RuntimeError("can't start new thread")  # as Python does under ulimit -v and -u

    monkeypatch.setattr("bigfs.storage.find_unused", start)
    fails(bigfs("prune"), "no thread can be started: raise the limits of the shell, ulimit -v")


INTERRUPTED = """
import signal, sys
from bigfs.flows import cli

class Interrupt:
    def find_spec(self, name, *_):
        if name == "bigfs.flows.cli.app":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
cli.main()
"""


def test_ctrl_c_in_the_imports_ends_without_a_traceback():
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == ""


# --- options --------------------------------------------------------------------------------------


def test_lists_are_given_by_commas_and_by_repetition(bigfs, corpus):
    words = ("compare", corpus, "--sizes", "3,5", *SERIAL, "--json")
    by_commas = bigfs(*words, "--methods", "anova,chi2", "--metric", "accuracy,macro_f1")
    repeated = ("--methods", "anova", "--methods", "chi2", "--metric", "accuracy")
    again = bigfs(*words, *repeated, "--metrics", "macro_f1")
    assert json.loads(by_commas[1])["reused"] == []
    assert json.loads(again[1])["reused"] == ["anova", "chi2", "all features"]


def test_variables_give_options(bigfs, corpus, monkeypatch):
    for name, value in {"WORKERS": 0, "FEATURES": 4, "METHOD": "anova", "PREFECT": "0"}.items():
        monkeypatch.setenv(f"BIGFS_{name}", str(value))
    assert bigfs("run", corpus, "-o", "r")[0] == 0
    assert len(Run.open("r").selected) == 4
    assert bigfs("run", corpus, "-o", "r", "-n", 3, "--fresh")[0] == 0
    assert len(Run.open("r").selected) == 3
    monkeypatch.setenv("BIGFS_YES", "1")  # nothing is deleted by a variable
    monkeypatch.setenv("BIGFS_FRESH", "1")
    assert "has this result already" in bigfs("run", corpus, "-o", "r", "-n", 3)[2]


def test_a_comparison_and_a_selection_need_no_more_than_a_corpus(bigfs, corpus):
    status, out, _ = bigfs("compare", corpus, *SERIAL, "--json")
    assert status == 0
    about = json.loads(out)
    assert [row["method"] for row in about["rows"] if not row["error"]]
    assert {row["method"] for row in about["rows"]} == {"sparge-lda", "anova", "chi2"}
    d = about["corpus"]["d"]
    assert about["sizes"] == sorted({round(share * d) for share in (0.1, 0.2, 0.5, 1.0)})
    status, out, _ = bigfs("select", about["corpus"]["store"], "-m", "anova", "-n", 3, "-w", 0)
    assert status == 0
    assert "report: runs/" in out


def test_two_runs_of_one_source_are_two_lists(bigfs, corpus):
    for method in ("anova", "chi2"):
        assert bigfs("run", corpus, "-m", method, "-n", 4, *SERIAL)[0] == 0
    runs = [f"runs/{name}" for name in sorted(os.listdir("runs")) if not name.startswith(".")]
    status, out, err = bigfs("audit", corpus, *runs, "-w", 0, "-q", "--json")
    assert status == 0, err
    assert len(runs) == 2
    names = {row["list"] for row in json.loads(out)["rows"]}
    assert names >= {name.removeprefix("runs/") for name in runs}


# --- results --------------------------------------------------------------------------------------


def test_a_dash_is_stdout(bigfs, run, corpus, tmp_path):
    bigfs("predict", run, corpus, "p.csv", "-w", 0)
    before = sorted(tmp_path.iterdir())
    status, out, err = bigfs("predict", run, corpus, "-", "-w", 0)
    assert status == 0
    assert out == (tmp_path / "p.csv").read_text()
    assert "samples" in err
    store = Run.open(run).metadata["parameters"]["store"]
    status, out, _ = bigfs("stability", store, "-", "-n", 3, "-w", 0, "--subsamples", 2)
    assert status == 0
    assert next(csv.reader(out.splitlines())) == ["rank", "index", "name", "frequency"]
    assert sorted(tmp_path.iterdir()) == before


def test_an_empty_file_is_not_in_the_way(bigfs, run, corpus, tmp_path):
    (tmp_path / "p.csv").touch()  # as mktemp does
    assert bigfs("predict", run, corpus, "p.csv", "-w", 0)[0] == 0
    (tmp_path / "p.csv").write_text("mine")
    fails(bigfs("predict", run, corpus, "p.csv", "-w", 0), "in the way")


def test_tables_end_their_lines_as_unix_does(bigfs, run, tmp_path):
    for name in ("selected.csv", "curves.csv", "classes.csv"):
        assert b"\r" not in (tmp_path / run / name).read_bytes()


def test_nothing_is_wrapped_where_no_terminal_is(bigfs, corpus):
    out = "a-name-that-is-far-longer-than-any-column-of-eighty-characters-" * 2
    assert bigfs("run", corpus, "-o", f"runs/{out}", *ANOVA)[0] == 0
    assert bigfs("run", corpus, "-o", "runs/b", *ANOVA)[0] == 0
    for words in (("history", "runs"), ("methods",), ("info", ".bigfs"), ("datasets",)):
        lines = bigfs(*words)[1].splitlines()
        assert all(line == line.rstrip() for line in lines)
    assert any(out in line for line in bigfs("history", "runs")[1].splitlines())


def test_names_of_a_corpus_send_a_terminal_no_codes(bigfs, tmp_path):
    rows = [{"features": {"a": 1, "\x1b]0;owned\x07": i}, "label": "\x1b[31mred"} for i in (1, 2)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for words in (("look", "rows.jsonl"), ("stage", "rows.jsonl", "s.zarr"), ("info", "s.zarr")):
        status, out, _ = bigfs(*words)
        assert (status, "\\x1b[31mred" in out) == (0, True)
        assert not {"\x1b", "\x07"} & set(out)


def test_a_terminal_without_the_letters_gets_others(run, tmp_path):
    command = [sys.executable, "-m", "bigfs", "history", run]
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
