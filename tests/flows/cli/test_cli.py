"""The command line: what it prints, and one plain line for whatever goes wrong."""

import errno
import json
import os
import shlex
import subprocess
import sys
import time

import numpy as np
import pytest
import typer

from bigfs import __version__ as bigfs_version
from bigfs.engine import clusters
from bigfs.flows import options
from bigfs.flows.cli import servers
from bigfs.flows.cli.app import app
from bigfs.storage.runs.runs import Run
from tests.helpers.commands import fails
from tests.helpers.listing import names_in
from tests.helpers.processes import environment, give_database, write_corpus

WORDS = {"sport": "goal team match player score", "money": "bank rate share profit market"}


@pytest.fixture
def corpus(tmp_path):
    """A folder of documents in two classes, with train and test halves."""
    rng = np.random.default_rng(0)
    for half, count in (("train", 20), ("test", 8)):
        for name, words in WORDS.items():
            folder = tmp_path / "corpus" / f"news-{half}" / name
            folder.mkdir(parents=True)
            for i in range(count):
                common = " ".join(f"word{k}" for k in rng.integers(0, 30, 12))
                (folder / f"{i}.txt").write_text(
                    f"{common} {' '.join(rng.choice(words.split(), 3))}"
                )
    return tmp_path / "corpus"


def test_stage_select_evaluate_transform(bigfs, corpus, tmp_path):
    status, out, _ = bigfs("stage", corpus, "c.zarr", "--workers", 0)
    assert status == 0
    assert "staged" in out
    assert "reused" in bigfs("stage", corpus, "c.zarr", "--workers", 0)[1]
    status, out, _ = bigfs("select", "c.zarr", "--out", "r", "--features", 10, "--workers", 0)
    assert status == 0
    assert "converged" in out
    run = Run.open("r")
    names = {row["name"] for row in run.read_table("selected.csv")}
    assert names == set(" ".join(WORDS.values()).split())
    status, out, _ = bigfs("evaluate", "r", "--workers", 0, "--json")
    curves = {(p["method"], p["n_features"]): p["accuracy"] for p in json.loads(out)["curves"]}
    assert curves["sparge-lda", 10] == 1.0
    assert {"anova", "chi2", "all features"} <= {method for method, _ in curves}
    assert (tmp_path / "r" / "report.html").read_text().count("<svg") == 2
    assert bigfs("transform", "r", "c.zarr", "chosen.npz")[0] == 0
    import scipy.sparse as sp

    assert sp.load_npz("chosen.npz").shape == (56, 10)


def test_methods_and_parameters(bigfs, corpus):
    listed = json.loads(bigfs("methods", "--json")[1])
    assert listed["sparge-lda"]["for"] == ["class"]
    assert listed["anova"]["passes"] == "0"
    printed = bigfs("methods")[1]
    assert all(printed.count(f"\n  {name} ") == len(listed[name]["for"]) for name in listed)
    assert printed.count("passes: ") == sum(len(method["for"]) for method in listed.values())
    bigfs("stage", corpus, "c.zarr", "--workers", 0)
    status, out, _ = bigfs(
        "select",
        "c.zarr",
        "--out",
        "r",
        "--features",
        4,
        "--set",
        "gamma=0.5",
        "--set",
        "tol=0.02",
        "--workers",
        0,
        "--json",
    )
    assert status == 0
    assert json.loads(out)["parameters"]["parameters"] == {"gamma": 0.5, "tol": 0.02}


def test_a_killed_selection_goes_on_from_its_checkpoint(bigfs, corpus, monkeypatch):
    from bigfs.storage.runs.runs import Checkpoint

    bigfs("stage", corpus, "c.zarr", "--workers", 0)
    words = ("select", "c.zarr", "--features", 4, "--set", "tol=1e-4", "--workers", 0)
    bigfs(*words, "--out", "whole")
    saved = Checkpoint.save

    def dies(self, name, state, history):
        saved(self, name, state, history)
        if len(history) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", dies)
    status, _, err = bigfs(*words, "--out", "killed")
    assert (status, err.strip().splitlines()[-1]) == (130, "bigfs: interrupted")
    assert not os.path.exists("killed")
    monkeypatch.setattr(Checkpoint, "save", saved)
    assert bigfs(*words, "--out", "killed")[0] == 0
    np.testing.assert_array_equal(Run.open("killed").scores, Run.open("whole").scores)
    assert len(os.listdir(".killed")) == 3  # the marker, the result, and that it was cancelled
    assert "cancelled" in bigfs("history", "killed")[1]


@pytest.mark.parametrize("limit", ["-5", "0", "abc", "100MB"])
def test_memory_limit_is_refused_in_one_line_before_anything_starts(bigfs, tmp_path, limit):
    (tmp_path / "a.svm").write_text("1 1:2\n2 1:3\n")
    for words in (
        ("stage", "a.svm", "s.zarr"),
        ("run", "a.svm"),
        ("select", "s.zarr", "--out", "r"),
    ):
        fails(bigfs(*words, f"--memory-limit={limit}"), "--memory-limit", limit)
    assert names_in() == ["a.svm"]


def test_workers_that_stage_are_forked_from_a_process_with_arrow(bigfs, monkeypatch):
    """Each imported it for itself, for the labels of its first piece."""
    modules = []
    monkeypatch.setattr(options, "prepare_workers", lambda *given: modules.extend(given))
    fails(bigfs("stage", "missing.svm", "c.zarr", "--workers", 2), "missing.svm")
    assert "pyarrow" in modules


def test_bad_sources_are_one_line_and_leave_nothing(bigfs, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.tar.gz").write_bytes(b"\x1f\x8b\x08 not really an archive")
    before = sorted(p.name for p in tmp_path.iterdir())
    for command in (("stage", "c.zarr"), ("run",)):
        for source, word in (
            ("nowhere", "does not exist"),
            ("empty", "empty"),
            ("broken.tar.gz", "broken.tar.gz is broken"),
        ):
            fails(
                bigfs(
                    command[0],
                    source,
                    *command[1:],
                    *(["--workers", 0] if command[0] == "stage" else []),
                ),
                word,
            )
    assert names_in(tmp_path) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 1:0.5 2:x\n2 1:1\n", "line 1"),
        ("1 1:0.5\n2 3:2 3:1\n", "line 2"),
        ("1 1:0.5\n2 a:1\n", "line 2"),
        ("1 1:nan\n2 1:1\n", "line 1"),
        ("1 1:1\n2 1:inf\n", "line 2"),
    ],
    ids=["bad number", "an index twice", "bad index", "NaN", "infinity"],
)
def test_a_bad_svmlight_line_is_named(bigfs, tmp_path, text, said):
    (tmp_path / "bad.svm").write_text(text)
    fails(bigfs("stage", "bad.svm", "c.zarr", "--workers", 0), "bad.svm", said)
    assert [p.name for p in tmp_path.iterdir() if "zarr" in p.name and "lock" not in p.name] == []


@pytest.mark.process
def test_a_bad_line_on_a_cluster_is_one_line_on_stderr(tmp_path):
    (tmp_path / "bad.svm").write_text("1 1:0.5\n2 1:x\n")
    command = [
        sys.executable,
        "-m",
        "bigfs",
        "stage",
        "bad.svm",
        "c.zarr",
        "--workers",
        "1",
        "--json",
    ]
    env = {
        key: value for key, value in environment(tmp_path).items() if not key.startswith("DASK_")
    }
    ended = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    fails(
        (ended.returncode, ended.stdout, ended.stderr),
        "bad.svm, line 2: a value must be a finite number; got '1:x'",
    )
    assert "Compute Failed" not in ended.stderr  # a busy machine may make Dask say other things
    assert names_in(tmp_path) == ["bad.svm"]


@pytest.mark.slow
def test_bad_requests_are_one_line(bigfs, corpus, monkeypatch):
    connect = clusters._connect
    monkeypatch.setattr(  # it waits for 20 seconds otherwise
        clusters, "_connect", lambda at, **given: connect(at, **given | {"timeout": "1s"})
    )
    fails(bigfs("frobnicate"), "frobnicate")
    fails(bigfs("select", "nothing.zarr", "--out", "r"), "nothing.zarr")
    bigfs("stage", corpus, "c.zarr", "--workers", 0)
    fails(
        bigfs("select", "c.zarr", "--out", "r", "--method", "magic"),
        "magic",
        "sparge-lda",
        "anova",
    )
    fails(
        bigfs("select", "c.zarr", "--out", "r", "--features", 10_000, "--workers", 0),
        "10000",
        "at most 40",
    )
    fails(
        bigfs("select", "c.zarr", "--out", "r", "--features", 3, "--set", "gamma", "--workers", 0),
        "name=value",
    )
    fails(
        bigfs("select", "c.zarr", "--out", "r", "--features", 3, "--set", "gama=1", "--workers", 0),
        "gama",
    )
    fails(
        bigfs(
            "select", "c.zarr", "--out", "r", "--features", 3, "--set", "gamma=-1", "--workers", 0
        ),
        "gamma",
    )
    fails(bigfs("evaluate", "r"), "r is not a run directory")
    fails(
        bigfs(
            "select", "c.zarr", "--out", "r", "--features", 3, "--scheduler", "tcp://127.0.0.1:1"
        ),
        "no Dask scheduler answers",
    )
    assert not os.path.exists("r")
    assert not os.path.exists(".r")


def test_one_class_only(bigfs, corpus):
    import shutil

    for half in ("train", "test"):
        shutil.rmtree(corpus / f"news-{half}" / "money")
    bigfs("stage", corpus, "c.zarr", "--workers", 0)
    fails(bigfs("select", "c.zarr", "--out", "r", "--features", 3, "--workers", 0), "1 class")
    assert not os.path.exists(".r")


def test_a_full_disk_is_said_and_leaves_no_run(bigfs, corpus, monkeypatch):
    bigfs("stage", corpus, "c.zarr", "--workers", 0)

    def full(self, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Run, "write_scores", full)
    fails(
        bigfs(
            "select", "c.zarr", "--out", "r", "--features", 3, "--workers", 0, "--method", "anova"
        ),
        "No space left on device",
    )
    assert not os.path.exists(".r")


HEAVY = ("prefect", "sklearn", "pandas", "pyarrow", "requests", "matplotlib")


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        # the script of a command, which its workers import
        ("bigfs.flows.cli", ("typer", "pydantic", "numpy", "bigfs.engine")),
        ("bigfs.flows.cli.app", ("prefect", "zarr", "sklearn", "numba", "matplotlib")),
        # what `bigfs run` needs to find and print a result that is there
        (
            "bigfs.flows.cli.app, bigfs.flows.reuse, bigfs.flows.report.summary",
            ("prefect", "sklearn", "numba", "matplotlib"),
        ),
        # what `bigfs stage` needs for any source
        ("bigfs.flows.cli.app, bigfs.flows.staging, bigfs.storage.staging.stage", HEAVY),
    ],
)
def test_commands_without_work_load_no_heavy_library(modules, unwanted):
    code = f"import sys, {modules}; print([m for m in {unwanted} if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_append_joins_once_and_refuses_in_one_line(bigfs, corpus, tmp_path):
    bigfs("stage", corpus, "c.zarr", "--workers", 0)
    for name in WORDS:
        (tmp_path / "later" / name).mkdir(parents=True)
        (tmp_path / "later" / name / "x.txt").write_text("goal bank word1 word2 zebra")
    append = ("append", tmp_path / "later", "c.zarr", "--split", "test", "--workers", 0)
    status, out, _ = bigfs(*append, "--json")
    assert status == 0
    assert {k: v for k, v in json.loads(out).items() if k != "store"} == {"added": 2, "samples": 58}
    assert "already" in bigfs(*append)[1]
    assert json.loads(bigfs("info", "c.zarr", "--json")[1])["splits"] == {"train": 40, "test": 18}
    (tmp_path / "bad.svm").write_text("1 1:2\n-1 1:x\n")
    fails(
        bigfs("append", "bad.svm", "c.zarr", "--workers", 0),
        "is a matrix, but the store was staged from text",
    )
    fails(bigfs("append", "nowhere", "c.zarr", "--workers", 0), "nowhere does not exist")
    fails(
        bigfs("append", "later", "c.zarr", "--split", "dev", "--workers", 0),
        "dev",
    )
    fails(
        bigfs("append", "later", "none.zarr", "--workers", 0),
        "does not exist: stage a source there first",
    )
    fails(
        bigfs("append", corpus, "c.zarr", "--workers", 0, "--memory-limit", "300MB"),
        "appending needs",
        "286.10 MiB is allowed",
    )
    bigfs("stage", "bad.svm", "m.zarr", "--workers", 0)
    (tmp_path / "good.svm").write_text("1 1:2\n-1 1:3\n")
    bigfs("stage", "good.svm", "m.zarr", "--workers", 0)
    fails(
        bigfs("append", "bad.svm", "m.zarr", "--workers", 0),
        "bad.svm, line 2: a value must be a finite number; got '1:x'",
    )
    fails(bigfs("append", "good.svm", "memory://m.zarr", "--workers", 0), "does not exist")


# --- Prefect --------------------------------------------------------------------------------------


ASK = "from bigfs.flows.cli.servers import api_address; print(api_address() is not None)"
API = "http://127.0.0.1:9/api"
PROFILE = f"""
active = "mine"

[profiles.mine]
PREFECT_API_URL = "{API}"
"""
OTHER_PROFILE = PROFILE.replace('active = "mine"', 'active = "other"')
TOML = f'[api]\nurl = "{API}"\n'


@pytest.mark.parametrize(
    ("name", "text", "answer"),
    [
        (None, None, "False"),
        ("home/profiles.toml", PROFILE, "True"),
        pytest.param("home/profiles.toml", OTHER_PROFILE, "False", marks=pytest.mark.nightly),
        pytest.param("prefect.toml", TOML, "True", marks=pytest.mark.nightly),
        pytest.param(".env", f"PREFECT_API_URL={API}\n", "True", marks=pytest.mark.nightly),
    ],
)
def test_a_profile_or_a_file_of_prefect_says_whether_a_run_is_a_flow(tmp_path, name, text, answer):
    (tmp_path / "home").mkdir()
    if name is not None:
        (tmp_path / name).write_text(text)
    asked = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=tmp_path,
        env=environment(tmp_path / "home"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout.strip() == answer


@pytest.mark.parametrize(
    "words",
    [
        ("run", "corpus.jsonl", "--method", "anova", "--features", 5),
        ("compare", "corpus.jsonl", "--out", "out", "--methods", "anova", "--sizes", 5),
        ("serve", "corpus.jsonl", "--timezone", "UTC"),
    ],
)
def test_an_api_that_is_down_is_one_line(bigfs, tmp_path, words, monkeypatch):
    from prefect import settings

    write_corpus(tmp_path / "corpus.jsonl", seed=3)
    down = {settings.PREFECT_API_URL: API, settings.PREFECT_CLIENT_MAX_RETRIES: 0}
    with settings.temporary_settings(down):
        fails(bigfs(*words, "--workers", 0), f"{API}, which Prefect's settings name,", "no-prefect")
    assert not (tmp_path / ".bigfs").exists()


QUIET = """
import logging
from bigfs.flows.cli import servers
servers.require_api = lambda *_: None
assert servers.uses_prefect(None)
import bigfs.flows.prefect_flows
print([handler.level for handler in logging.getLogger().handlers])
print(logging.getLogger("prefect.flow_runs").isEnabledFor(logging.INFO))
"""


def test_a_flow_of_a_command_tells_the_server_and_not_the_terminal(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", QUIET],
        cwd=tmp_path,
        env=environment(tmp_path / "home", PREFECT_API_URL=API),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split("\n")[:2] == ["[50]", "True"]


@pytest.mark.process
def test_a_run_with_prefect_and_no_server_is_a_flow_on_a_server_of_its_own(tmp_path):
    write_corpus(tmp_path / "corpus.jsonl", seed=3)
    give_database(tmp_path / "home")
    command = [sys.executable, "-m", "bigfs", "run", "corpus.jsonl", "--prefect", "--json"]
    ended = subprocess.run(
        [*command, "--method", "anova", "--features", "5", "--workers", "0", "--out", "r"],
        cwd=tmp_path,
        env=environment(tmp_path / "home"),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    about = json.loads(ended.stdout)
    assert about["prefect"]["flow"] == "bigfs"
    assert len(Run.open(tmp_path / "r").selected) == 5


# --- bigfs serve ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "nowhere does not exist"),
        (("corpus", "--cron", "every day"), 'Invalid cron string: "every day"'),
        (("corpus", "--timezone", "Mars/Base"), 'Invalid timezone: "Mars/Base"'),
        (("corpus", "--out", "corpus"), "corpus exists and is not a run directory"),
    ],
)
def test_serve_refuses_what_would_fail_in_the_night(bigfs, corpus, words, said, monkeypatch):
    monkeypatch.setattr(servers, "api_address", lambda: API)
    monkeypatch.setattr(servers, "require_api", lambda *_: pytest.fail("a server was asked"))
    fails(bigfs("serve", *words), said)


def test_serve_needs_a_server(bigfs, corpus, monkeypatch):
    monkeypatch.setattr(servers, "api_address", lambda: None)
    fails(bigfs("serve", "corpus"), "prefect server start", "PREFECT_API_URL", "`bigfs run`")


@pytest.fixture
def set_clock():
    """A function that sets the time zone of this process."""
    before = os.environ.get("TZ")

    def set_zone(name):
        os.environ.pop("TZ", None) if name is None else os.environ.__setitem__("TZ", name)
        time.tzset()

    yield set_zone
    set_zone(before)


def test_the_time_zone_is_that_of_the_clock(monkeypatch, set_clock):
    set_clock("Asia/Kolkata")
    assert servers.local_timezone() == "Asia/Kolkata"
    monkeypatch.delenv("TZ")  # the C library keeps the clock, and only the link is asked
    monkeypatch.setattr(os.path, "realpath", lambda _: "/usr/share/zoneinfo/Asia/Kolkata")
    assert servers.local_timezone() == "Asia/Kolkata"
    monkeypatch.setattr(os.path, "realpath", lambda path: path)  # a copy of the file of its zone
    with pytest.raises(ValueError, match="give the zone of the schedule"):
        servers.local_timezone()
    set_clock("CET-1CEST,M3.5.0,M10.5.0/3")
    with pytest.raises(ValueError, match="give the zone of the schedule"):
        servers.local_timezone()


# --- plain words ----------------------------------------------------------------------------------


def test_no_word_of_pydantic_or_typer_reaches_the_user(bigfs, corpus):
    for words in (
        ("compare", "corpus", "--out", "out", "--methods", "anova,spargo", "--sizes", 3),
        ("run", "corpus", "--scale", "foo"),
        ("run", "corpus", "--min-df", "-1"),
        ("run", "corpus", "--tile-rows", "0"),
        ("run", "corpus", "--features", "0"),
        ("run", "corpus", "--overlap", "no"),
        ("run", "corpus", "--tls", "certificates"),
    ):
        answer = bigfs(*words)
        fails(answer)
        for word in ("validation error", "pydantic", "Value error", "type=", "input_value"):
            assert word not in answer[2]


def test_the_command_alone_prints_its_help_and_nothing_else(bigfs):
    status, out, err = bigfs()
    assert (status, err) == (0, "")
    assert out.count("Usage:") == 1


def test_the_version_and_the_short_help(bigfs):
    assert bigfs("--version") == (0, f"bigfs {bigfs_version}\n", "")
    for words in (("-h",), ("run", "-h")):
        status, out, _ = bigfs(*words)
        assert status == 0
        assert "Usage:" in out


def test_python_m_bigfs_is_the_command_line():
    ended = subprocess.run(
        [sys.executable, "-m", "bigfs", "--version"], capture_output=True, text=True, check=True
    )
    assert ended.stdout == f"bigfs {bigfs_version}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_complete_commands_and_options(bigfs, monkeypatch, shell):
    monkeypatch.setenv("_BIGFS_COMPLETE", "complete_" + shell)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    for line, found in (("bigfs comp", "compare"), ("bigfs stage --min", "--min-df")):
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
        assert found in bigfs()[1]
    line = "bigfs run a --method sparge-lda-"
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", "4")
    assert "sparge-lda-cv" in bigfs()[1]
    line = "bigfs compare a --methods anova,sparge-lda-"
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("COMP_WORDS", line)
    assert "anova,sparge-lda-cv" in bigfs()[1]


def test_a_shell_completes_the_options_that_the_help_leaves_out(bigfs):
    help_text = bigfs("run", "--help")[1]
    assert "--workers" in help_text
    assert not {"--min-df", "--scheduler"} & set(help_text.split())
    assert {"--min-df", "--scheduler", "--workers"} <= set(bigfs("run", "--help-all")[1].split())
    line = {"_TYPER_COMPLETE_ARGS": "bigfs run --min", "COMP_WORDS": "bigfs run --min"}
    env = os.environ | line | {"_BIGFS_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    command = "import sys; sys.argv = ['bigfs']; from bigfs.flows import cli; cli.main()"
    asked = subprocess.run(
        [sys.executable, "-c", command], env=env, capture_output=True, text=True, check=True
    )
    assert asked.stdout.split() == ["--min-df"]


COMMAND_NAMES = sorted(typer.main.get_command(app).commands)


@pytest.mark.parametrize("name", COMMAND_NAMES)
def test_a_help_fits_80_columns_and_its_examples_are_commands(bigfs, monkeypatch, name):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    status, out, _ = bigfs(name, "-h")
    assert status == 0
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "--quiet" in out
    assert "Annotated" not in out
    examples = out.partition("Examples:")[2].split("\n bigfs ")[1:]
    assert len(examples) >= 2
    group = typer.main.get_command(app)
    for example in examples:
        command, *words = shlex.split(example)
        group.commands[command].make_context(command, words)  # refuses unknown options


def test_a_log_for_programs_is_json_to_the_last_line(bigfs, corpus):
    words = ("run", corpus, "--method", "anova", "--features", "5", "--workers", "0", "--json")
    status, out, err = bigfs(*words, "--out", "r", "--log-json")
    assert (status, json.loads(out)["run"]) == (0, "r")
    lines = [json.loads(line) for line in err.splitlines()]
    assert {"step", "event", "seconds", "time"} <= set(lines[0])
    _, _, err = bigfs(*words, "--out", "r", "--log-json")
    assert "has this result already" in json.loads(err)["message"]
    status, _, err = bigfs("check", "nowhere", "--log-json")
    assert (status, json.loads(err)["level"]) == (1, "error")


def test_a_performance_report_needs_workers_and_bokeh(bigfs, corpus, monkeypatch):
    words = ("run", corpus, "--performance-report", "p.html")
    fails(bigfs(*words, "--workers", "0"), "a performance report is about workers")
    monkeypatch.setattr(options, "find_spec", lambda name: None)
    fails(bigfs(*words), "drawn by bokeh: pip install")


def test_quiet_leaves_the_result_alone(bigfs, corpus):
    words = ("run", corpus, "--features", 4, "--method", "anova", "--workers", 0)
    assert bigfs(*words, "--quiet")[::2] == (0, "")
    assert bigfs(*words, "-q")[::2] == (0, "")
    _, out, err = bigfs(*words)
    assert "has this result already" in err
    assert "report: " in out
    assert bigfs(*words, "-q")[1] == out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "20newsgroup"), "20newsgroup does not exist: did you mean 20newsgroups"),
        (("run", "synthetic:phrase"), "did you mean phrases?"),
        (("run", "corpus", "--method", "anovva"), "unknown method 'anovva': did you mean anova"),
        (("run", "corpus", "--against", "chi3"), "unknown method 'chi3': did you mean chi2"),
        (("run", "corpus", "--metric", "acuracy"), "did you mean accuracy"),
        (("stage", "a.csv?colums=x", "a.zarr"), "csv has no option colums: did you mean columns?"),
    ],
)
def test_a_misspelled_name_is_answered_with_the_name_that_is_meant(bigfs, corpus, words, said):
    (corpus.parent / "a.csv").write_text("x,label\n1,a\n2,b\n")
    fails(bigfs(*words), said)


def test_what_is_no_store_is_called_what_it_is(bigfs, corpus, tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:2\n2 1:3\n")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "run.json").write_text("{}")
    (tmp_path / "half.zarr").mkdir()
    for name, said in (
        ("rows.svm", "is a file and no store: `bigfs stage` puts a source in one"),
        ("r", "is the directory of a run and no store"),
        ("half.zarr", "is not a finished store: stage it again"),
        ("nothing.zarr", "does not exist: stage a source there first"),
    ):
        fails(bigfs("info", name), said)


def test_the_words_of_pydantic_in_typers_messages_are_plain(bigfs, corpus):
    answer = bigfs("run", "corpus", "--cv", 1)
    fails(answer, "'--cv'", "must be greater than or equal to 2")
    assert "Input should" not in answer[2]


def test_a_corpus_without_labels_is_answered_with_how_to_name_them(bigfs, tmp_path):
    lines = [{"text": f"goal bank word{i % 3}", "topics": ["a"]} for i in range(12)]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, lines)))
    answer = bigfs("run", "m.jsonl", "--method", "anova", "--features", 2, "--workers", 0)
    fails(answer, "has no labels: name the column of the labels, SOURCE?label=COLUMN, or use --")
