"""The commands: what is refused before any work, who waits for whom, and that nothing foreign is
touched.
"""

import json
import os
import re
import subprocess
import sys
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bigfs import storage
from bigfs.storage import locks
from bigfs.storage.graphs import graph_uri
from bigfs.storage.locks import lock
from bigfs.storage.runs.runs import Run
from tests.helpers.commands import fails
from tests.helpers.daily import daily
from tests.helpers.listing import is_lock, names_in
from tests.helpers.processes import ROOT, write_corpus

pytestmark = pytest.mark.slow

SERIAL = ("--workers", 0)


@pytest.fixture
def store(tmp_path):
    write_corpus(tmp_path / "corpus.svm", seed=3)
    storage.stage(tmp_path / "corpus.svm", tmp_path / "c.zarr")
    return "c.zarr"


@pytest.fixture
def no_work(monkeypatch):
    """Fails where a cluster would be started."""

    def started(*_, **__):
        raise AssertionError("a cluster was started")

    monkeypatch.setattr("bigfs.engine.cluster", started)


def listing(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not is_lock(p.name))


# --- refused before any work ----------------------------------------------------------------------

BAD = [
    (("--set", "gama=1"), "has no parameter gama; it has"),
    (("--set", "gamma=-1"), "'gamma' parameter"),
    (("--set", "gamma=abc"), "'gamma' parameter"),
    (("--set", "n_features_to_select=5"), "leave out the parameter n_features_to_select"),
    (("--set", "embedding=pca"), "sparge-lda fixes embedding='lda'"),
    (("--set", "gamma=1", "--set", "gamma=2"), "--set gamma is given twice"),
    (("--set", "gamma"), "name=value"),
    (("--method", "magic"), "unknown method 'magic'"),
    (
        ("--method", "sparge-lda-cv", "--set", "gammas=[-1]"),
        "gammas must hold one or more positive numbers; got [-1]",
    ),
]


@pytest.mark.parametrize(("words", "text"), BAD, ids=[" ".join(words) for words, _ in BAD])
@pytest.mark.parametrize("command", ["run", "select", "serve"])
def test_bad_parameters_are_refused_before_any_work(
    bigfs, store, tmp_path, no_work, monkeypatch, command, words, text
):
    monkeypatch.setattr(
        "bigfs.flows.cli.servers.require_api", lambda *_: pytest.fail("a server was asked")
    )
    before = listing(tmp_path)
    place = {"run": ("corpus.svm",), "select": (store, "--out", "r"), "serve": ("corpus.svm",)}[
        command
    ]
    fails(bigfs(command, *place, "--features", 3, *words), text)
    assert listing(tmp_path) == before


def test_a_good_value_of_a_named_parameter_is_not_refused():
    from bigfs.flows.evaluation.selection import require_parameters

    require_parameters("sparge-lda", 3, {"embedding": "lda", "gamma": 0.5, "class_weight": None})
    require_parameters("jgsc", 3, {"n_features_to_select": 5})  # counts atoms there
    with pytest.raises(ValueError, match="the number of features must be at least 1; got 0"):
        require_parameters("anova", 0, {})


@pytest.mark.parametrize("out", ["file", "file/r", "x" * 300, "folder", "r[/red]/" + "y" * 250])
def test_a_bad_out_is_refused_before_any_work(bigfs, store, tmp_path, no_work, out):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    before = listing(tmp_path)
    fails(
        bigfs("select", store, "--out", out, "--method", "anova", "--features", 3), "give another"
    )
    fails(
        bigfs("run", "corpus.svm", "--out", out, "--method", "anova", "--features", 3),
        "give another",
    )
    assert listing(tmp_path) == before


def test_too_many_features_and_a_missing_source_start_no_cluster(bigfs, store, tmp_path, no_work):
    before = listing(tmp_path)
    fails(
        bigfs("select", store, "--out", "r", "--features", 1000),
        "the number of features must be at most 60",
        "got 1000",
    )
    fails(bigfs("stage", "nowhere", "d.zarr"), "nowhere does not exist")
    fails(bigfs("append", "nowhere", store), "nowhere does not exist")
    assert listing(tmp_path) == before


# --- options --------------------------------------------------------------------------------------


def test_min_df_is_a_count_or_a_share(bigfs, tmp_path):
    rows = [
        {
            "text": f"common {'half' if i % 2 else 'other'} {'rare' if i < 2 else 'plain'}",
            "label": i % 2,
        }
        for i in range(20)
    ]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    widths = {}
    for value in ("1", "2", "3", "0.2", "0.6", "1.0"):
        assert bigfs("stage", "t.jsonl", f"{value}.zarr", "--min-df", value, *SERIAL)[0] == 0
        widths[value] = storage.open(f"{value}.zarr").X.shape[1]
    assert widths == {"1": 5, "2": 5, "3": 4, "0.2": 4, "0.6": 2, "1.0": 1}
    for value in ("0", "-1", "1.5", "0.0", "many", "nan"):
        fails(
            bigfs("stage", "t.jsonl", "x.zarr", "--min-df", value),
            "a whole number of at least 1 or a share in (0, 1]",
        )


def test_text_options_are_those_of_the_library(bigfs, tmp_path):
    rows = [{"text": f"the cat sat {'far' if i % 2 else 'near'} away", "label": i} for i in (0, 1)]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "stop.txt").write_text("cat\n")
    expected = {
        ("--ngram-range", 1, 2): ["away", "cat", "cat sat", "sat", "the", "the cat"],
        ("--ngram-range", 2, 2, "--stop-words", "stop.txt"): ["the sat"],
        ("--stop-words", "english"): ["away", "cat", "sat"],
        ("--min-df", 1, "--max-df", 1): ["far", "near"],
        ("--min-df", 1, "--max-df", "0.5"): ["far", "near"],
    }
    for i, (options, terms) in enumerate(expected.items()):
        assert bigfs("stage", "t.jsonl", f"{i}.zarr", *options, *SERIAL)[0] == 0
        assert list(storage.open(f"{i}.zarr").feature_names[:]) == terms
    for options, message in (
        (("--ngram-range", 2, 1), "ngram_range must be two whole numbers from 1 on"),
        (("--stop-words", "no.txt"), "must be english, or a file with one word per line"),
        (("--max-df", 0), "a whole number of at least 1 or a share in (0, 1]"),
    ):
        fails(bigfs("stage", "t.jsonl", "x.zarr", *options), message)


# --- what is printed ------------------------------------------------------------------------------


def test_a_warning_is_one_line_without_its_code(bigfs):
    bigfs("methods")
    said = warnings.formatwarning(UserWarning("it is\nslow"), UserWarning, "file.py", 7, "code()")
    assert said == "warning: it is slow\n"


@pytest.mark.parametrize("name", daily(["r[/red]", "[bold]r", "r[link=x]", ":smile:"], "r[/red]"))
def test_brackets_in_names_are_printed_as_they_are(bigfs, store, tmp_path, name):
    os.renames(store, f"{name}.zarr")
    status, out, err = bigfs(
        "select", f"{name}.zarr", "--out", name, "--method", "anova", "--features", 3, *SERIAL
    )
    assert (status, f"report: {name}/report.html" in out) == (0, True), err
    info = bigfs("info", f"{name}.zarr")[1]
    assert f"{name}.zarr" in "".join(info.split())  # a long path goes on in the next line
    assert f"{name}.zarr is intact" in bigfs("check", f"{name}.zarr", *SERIAL)[1]
    assert f"{name}.zarr" in bigfs("stage", "corpus.svm", f"{name}.zarr", *SERIAL)[1]
    assert f"{name}.graphs" in bigfs("graph", f"{name}.zarr", "-k", 2, *SERIAL)[1]
    assert bigfs("evaluate", name, *SERIAL)[0] == 0
    assert bigfs("transform", name, f"{name}.zarr", f"{name}.npz")[1].strip() == f"{name}.npz"
    fails(
        bigfs("select", f"{name}.zarr", "--out", f"{name}.zarr", *SERIAL, "--features", 3),
        f"{name}.zarr exists",
    )


def test_progress_shows_labels_as_they_are(capsys):
    from bigfs import engine
    from bigfs.flows.cli.output import show_progress

    with show_progress(as_json=False):
        engine.map_tiles(abs, [1, 2], label="read [/red]")
    assert "read [/red]" in capsys.readouterr().err


# --- one at a time --------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("command", ["stage", "append", "graph", "select", "evaluate"])
def test_a_command_waits_for_another_and_says_so(bigfs, store, tmp_path, monkeypatch, command):
    write_corpus(tmp_path / "more.svm", seed=4, rows=30)
    select = ("select", store, "--out", "r", "--method", "anova", "--features", 3, *SERIAL)
    bigfs(*select)
    settings = {"k": 2, "metric": "cosine", "method": "auto", "recall": 0.95, "candidates": None}
    graph = graph_uri(storage.open(store), settings)
    commands = {
        "stage": ("d.zarr", ("stage", "corpus.svm", "d.zarr", *SERIAL)),
        "append": (store, ("append", "more.svm", store, *SERIAL)),
        "graph": (graph, ("graph", store, "-k", 2, *SERIAL)),
        "select": ("r", (*select, "--fresh")),
        "evaluate": ("r", ("evaluate", "r", *SERIAL)),
    }
    place, words = commands[command]
    holds, go = threading.Event(), threading.Event()

    def other():
        with lock(tmp_path / place, wait=0):
            holds.set()
            go.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert holds.wait(10)
    monkeypatch.setattr(locks.time, "sleep", lambda _: go.set())  # it is asked while it waits
    status, _, err = bigfs(*words)
    assert go.is_set()
    thread.join()
    assert status == 0, err
    assert re.search(rf"bigfs: another process works on \S*{place}: waiting for it to end", err)
    assert not [name for name in listing(tmp_path) if "lock" in name]


def test_two_selections_at_once_both_end_well(store, tmp_path):
    command = [
        sys.executable,
        "-m",
        "bigfs",
        "select",
        store,
        "--out",
        "runs/r",
        "--features",
        "12",
        "--workers",
        "0",
    ]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in "ab"
    ]
    ends = [process.communicate(timeout=200) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert Run.open(tmp_path / "runs" / "r").selected.tolist() != []
    assert names_in(tmp_path / "runs") == [".r", "r"]
    marker_and_result = names_in(tmp_path / "runs" / ".r")
    assert len(marker_and_result) == 2


# --- nothing foreign is touched -------------------------------------------------------------------


def test_select_keeps_folders_that_look_like_its_own(bigfs, store, tmp_path):
    for name in ("mine.old", "mine.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("mine")
    for _ in range(2):
        assert (
            bigfs("select", store, "--out", "mine", "--method", "anova", "--features", 2, *SERIAL)[
                0
            ]
            == 0
        )
    assert (tmp_path / "mine.old" / "thesis.txt").exists()
    assert (tmp_path / "mine.partial" / "thesis.txt").exists()


def test_transform_replaces_its_own_file_and_no_other(bigfs, store, tmp_path):
    bigfs("select", store, "--out", "r", "--method", "anova", "--features", 3, *SERIAL)
    (tmp_path / "x.npz.part.npz").write_text("mine")
    for _ in range(2):
        assert bigfs("transform", "r", store, "x.npz")[0] == 0
    assert sp.load_npz("x.npz").shape == (200, 3)
    fails(bigfs("transform", "r", store, "x.v2"), "x.v2 must end in .npz or .h5ad or .parquet")
    assert (tmp_path / "x.npz.part.npz").read_text() == "mine"
    np.savez("other.npz", a=[1])
    (tmp_path / "text.npz").write_text("mine")
    (tmp_path / "folder.npz").mkdir()
    for name in ("other.npz", "text.npz", "folder.npz"):
        fails(bigfs("transform", "r", store, name), f"{name} is in the way")
    assert (tmp_path / "text.npz").read_text() == "mine"
    assert np.load("other.npz").files == ["a"]


def test_names_that_look_like_formulas_are_written_as_they_are(bigfs, store, tmp_path, monkeypatch):
    names = np.array(
        [
            f"{start}x{i}"
            for i, start in zip(range(60), ["=", "'", "@", "-", "+", "plain"] * 10, strict=True)
        ],
        dtype=object,
    )
    monkeypatch.setattr(
        "bigfs.storage.corpus.FeatureNames.__getitem__", lambda self, index: names[index]
    )
    assert (
        bigfs("select", store, "--out", "r", "--method", "anova", "--features", 60, *SERIAL)[0] == 0
    )
    assert {row["name"] for row in Run.open("r").read_table("selected.csv")} == set(names)
    assert set(pd.read_csv(tmp_path / "r" / "selected.csv")["name"]) == set(names)
    assert bigfs("transform", "r", store, "x.npz")[0] == 0
