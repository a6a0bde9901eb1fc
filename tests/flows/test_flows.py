"""The flows against a real Prefect server: what is cached, what is tried again, what waits, what is
shown.
"""

import csv
import json
import re
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import storage.graphs
from flows import stages, tasks
from flows.locks import AlreadyRunning, exclusive
from flows.options import Engine, Scoring, Staging
from storage.errors import StoreError
from storage.runs import Run
from tests.helpers.processes import PREFECT_WARNS, artifacts, write_corpus

pytestmark = PREFECT_WARNS
SERIAL = Engine(workers=0)
FEATURES = 12
ALL = ["stage", "select", "evaluate", "finish"]


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus.jsonl", seed=3)


@pytest.fixture
def worked(monkeypatch):
    """The stages that did their work, in order."""
    names = []

    def counted(name, real):
        def stage(*given, **more):
            names.append(name)
            return real(*given, **more)

        return stage

    for name in ALL:
        monkeypatch.setattr(stages, name, counted(name, getattr(stages, name)))
    return names


def run(source, **more):
    """The pipeline's state, run here and serially."""
    from flows.pipeline import pipeline

    given = {
        "features": FEATURES,
        "settings": Staging(tile_rows=50),
        "engine": SERIAL,
        "out": "runs/r",
    } | more
    return pipeline(source, **given, return_state=True)


# --- what a run leaves ----------------------------------------------------------------------------


def test_a_run_is_seen_through_the_api(prefect, corpus):
    state = run(corpus)
    assert state.is_completed()
    shown = artifacts(state)
    assert {"selected", "accuracy", "accuracy-curve", "objective-curve", "summary"} <= set(shown)
    table = json.loads(shown["selected"]["data"])
    assert [int(row["index"]) for row in table] == Run.open("runs/r").selected.tolist()
    assert shown["accuracy-curve"]["data"].startswith("data:image/svg+xml;base64,")
    own = Run.open("runs/r").metadata["prefect"]
    assert own["flow_run_id"] == str(state.state_details.flow_run_id)
    assert own["flow_run_name"] == f"{FEATURES} features of {corpus} by sparge-lda"
    assert set(Run.open("runs/r").selected) == set(range(FEATURES))


def test_a_second_run_skips_what_is_done_and_a_changed_one_does_not(prefect, corpus, worked):
    run(corpus)
    assert worked == ALL
    before = Run.open("runs/r").metadata
    assert run(corpus).result() == "runs/r"
    assert worked == ALL
    assert Run.open("runs/r").metadata == before
    run(corpus, features=6)
    assert worked == [*ALL, *ALL[1:]]
    write_corpus(Path(corpus), seed=4)
    run(corpus, features=6)
    assert worked == [*ALL, *ALL[1:], *ALL]


def test_constraints_modes_and_the_metric_of_auto_are_choices_of_a_flow(prefect, corpus, worked):
    given = {"method": "anova", "features": "fdr", "parameters": {"forbid": [0], "param": 0.01}}
    assert run(corpus, **given).is_completed()
    about = Run.open("runs/r").metadata
    assert about["n_features"] == len(Run.open("runs/r").selected) > 0
    assert 0 not in Run.open("runs/r").selected
    run(corpus, **given)
    assert worked == ALL
    by_metric = given | {"features": "auto", "parameters": {}}
    run(corpus, **by_metric, scoring=Scoring(metric="macro_f1"))
    assert Run.open("runs/r").metadata["parameters"]["metric"] == "macro_f1"
    run(corpus, **by_metric, scoring=Scoring(metric="accuracy"))
    assert Run.open("runs/r").metadata["parameters"]["metric"] == "accuracy"
    assert worked == [*ALL, *ALL[1:], *ALL[1:]]


def test_a_fresh_run_does_it_all_again(prefect, corpus, worked):
    run(corpus)
    first = Run.open("runs/r").metadata["prefect"]["flow_run_id"]
    run(corpus, fresh=True)
    assert worked == [*ALL, *ALL]
    assert Run.open("runs/r").metadata["prefect"]["flow_run_id"] != first


def test_what_was_removed_is_made_again(prefect, corpus, worked):
    run(corpus)
    first = Run.open("runs/r").selected
    shutil.rmtree("runs/r")
    run(corpus)
    assert worked == [*ALL, *ALL[1:]]
    np.testing.assert_array_equal(Run.open("runs/r").selected, first)
    shutil.rmtree(".bigfs")
    run(corpus)
    assert worked[7:] == ["stage"]


CLIENT_ERROR = type(
    "ClientConnectionError", (Exception,), {"__module__": "aiohttp.client_exceptions"}
)()  # as an object store's client raises


def because(error, cause):
    error.__cause__ = cause
    return error


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConnectionResetError("reset"), True),
        (TimeoutError("slow network"), True),
        (OSError(5, "Input/output error"), True),
        (OSError(28, "No space left on device"), False),
        (FileNotFoundError("gone"), False),
        (PermissionError("not yours"), False),
        (ValueError("bad value"), False),
        (MemoryError("too large"), False),
        (because(StoreError("s3://there can't be reached"), CLIENT_ERROR), True),
        (because(StoreError("the disk is full"), OSError(28, "No space left on device")), False),
        (because(StoreError("the chunk is gone"), FileNotFoundError()), False),
        (StoreError("no store"), False),
    ],
)
def test_only_errors_that_go_away_are_tried_again(error, again):
    from prefect.states import Failed

    assert tasks.is_transient(None, None, Failed(data=error)) is again


@pytest.mark.parametrize(
    ("error", "tries"),
    [(ConnectionResetError("the store hung up"), 3), (ValueError("a bad value"), 1)],
)
def test_a_stage_is_tried_again(prefect, corpus, monkeypatch, error, tries):
    real, calls = stages.stage, []

    def flaky(*given):
        calls.append(given)
        if len(calls) < 3:
            raise error
        return real(*given)

    monkeypatch.setattr(stages, "stage", flaky)
    monkeypatch.setattr(tasks.stage, "retry_delay_seconds", [0.0])
    state = run(corpus)
    assert len(calls) == tries
    assert state.is_completed() is (tries == 3)
    if tries == 1:
        assert "a bad value" in state.message


def test_a_stage_that_takes_too_long_ends(prefect, corpus, monkeypatch):
    run(corpus)  # staged
    monkeypatch.setattr(stages, "select", lambda *a, **k: time.sleep(60))
    began = time.monotonic()
    state = run(corpus, features=5, timeout=1.0)
    assert state.is_failed()
    assert re.search(r"timeout of 1.0 second|timed out after 1.0 second", state.message)
    assert time.monotonic() - began < 50


def test_a_full_disk_is_one_plain_error_and_the_next_run_goes_on(prefect, corpus, monkeypatch):
    from storage.runs import Checkpoint

    save, saved = Checkpoint.save, []

    def full(self, name, state, history):
        saved.append(len(history))
        if len(saved) > 1:
            raise OSError(28, "No space left on device", str(self.folder))
        save(self, name, state, history)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "save", full)
        state = run(corpus, parameters={"tol": 1e-9})
    assert state.is_failed()
    assert "No space left on device" in state.message
    assert len(saved) == 2  # not tried again
    seen = []
    monkeypatch.setattr(
        Checkpoint,
        "load",
        lambda self, name, load=Checkpoint.load: seen.append(load(self, name)) or seen[-1],
    )
    assert run(corpus, parameters={"tol": 1e-9}).is_completed()
    assert len(seen[0][1]) == 1  # went on after the one step that was saved


def test_a_store_that_vanishes_is_one_plain_error_and_the_next_run_makes_it_anew(
    prefect, corpus, monkeypatch
):
    def vanishes(*given, select=stages.select, **more):
        run = select(*given, **more)
        shutil.rmtree(".bigfs")
        return run

    with monkeypatch.context() as patched:
        patched.setattr(stages, "select", vanishes)
        state = run(corpus)
    assert state.is_failed()
    assert re.search(
        r"\.bigfs/corpus-\w+\.zarr does not exist: stage " r"a source there first", state.message
    )
    assert not Path("runs/r").exists()
    assert run(corpus).is_completed()
    assert set(Run.open("runs/r").selected) == set(range(FEATURES))


# --- one at a time --------------------------------------------------------------------------------


def test_a_run_skips_or_waits_while_another_works(prefect, corpus, tmp_path):
    held, go = threading.Event(), threading.Event()

    def other():
        with exclusive([str(tmp_path / "runs" / "r")], wait=False):
            held.set()
            go.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert held.wait(10)
    state = run(corpus, overlap="skip")
    assert (state.name, state.is_completed()) == ("Skipped", True)
    assert not (tmp_path / "runs" / "r").exists()
    threading.Timer(1.0, go.set).start()
    assert run(corpus, overlap="wait").is_completed()
    thread.join()
    assert (tmp_path / "runs" / "r" / "report.html").exists()


def test_a_waiting_run_says_so_where_the_log_is_quiet(
    prefect, corpus, tmp_path, capsys, monkeypatch
):
    import logging

    from flows import pipeline

    monkeypatch.setattr(logging.getLogger("prefect.flow_runs"), "level", logging.CRITICAL)
    logging.getLogger("prefect.flow_runs").manager._clear_cache()
    held, go = threading.Event(), threading.Event()

    def other():
        with exclusive([str(tmp_path / "runs" / "r")], wait=False):
            held.set()
            go.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert held.wait(10)
    say = pipeline._say
    monkeypatch.setattr(pipeline, "_say", lambda text: (say(text), go.set()))
    assert run(corpus, method="anova").is_completed()
    thread.join()
    assert "bigfs: another run works on runs/r: waiting for it to end" in capsys.readouterr().err


def test_two_runs_never_hold_one_place(tmp_path):
    places = [str(tmp_path / "a"), str(tmp_path / "b")]
    with (
        exclusive(places, wait=False),
        pytest.raises(AlreadyRunning, match="another run works on"),
        exclusive(places[1:], wait=False),
    ):
        raise AssertionError("not reached")
    with exclusive(places, wait=False):
        pass


# --- the sweep ------------------------------------------------------------------------------------


def test_a_sweep_compares_its_runs_on_one_store_and_one_graph(prefect, corpus, worked, monkeypatch):
    from flows.sweep import sweep

    graphs = []
    monkeypatch.setattr(
        storage.graphs,
        "stream_knn",
        lambda *a, knn=storage.graphs.stream_knn, **k: graphs.append(k["k"]) or knn(*a, **k),
    )
    methods = ["sparge-lpp", "sparge-sda", "anova"]
    state = sweep(
        corpus,
        methods,
        [6],
        {"sparge-lpp": {"gamma": [0.5, 1.0]}},
        engine=SERIAL,
        out="runs/sweep",
        return_state=True,
    )
    assert state.is_completed()
    assert (len(graphs), worked.count("stage"), worked.count("select")) == (1, 1, 4)
    with open("runs/sweep/sweep.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["method"] for r in rows] == ["sparge-lpp", *methods]
    for row in rows:
        assert len(Run.open(f"runs/sweep/{row['run']}").selected) == int(row["features"]) == 6
        assert 1 / 3 < float(row["accuracy"]) <= 1.0
    assert "sweep" in artifacts(state)


def test_a_cell_that_cant_be_done_is_a_row_and_fails_the_sweep(prefect, corpus):
    from flows.sweep import sweep

    state = sweep(corpus, ["anova"], [5, 1000], engine=SERIAL, out="runs/sweep", return_state=True)
    assert state.is_failed()
    assert "1 of 2 runs failed: anova-1000: the number of features must be at most" in state.message
    with open("runs/sweep/sweep.csv", newline="") as file:
        assert [bool(r["error"]) for r in csv.DictReader(file)] == [False, True]


# --- refused before any work ----------------------------------------------------------------------


@pytest.fixture
def nothing_left(tmp_path, monkeypatch):
    """Fails if a cluster is started; at the end nothing but the source is there."""
    monkeypatch.setattr(
        "bigfs.engine.cluster", lambda *_, **__: pytest.fail("a cluster was started")
    )
    yield
    assert {p.name for p in tmp_path.iterdir()} <= {"corpus.jsonl", "results", "runs"}
    assert [p.name for p in tmp_path.glob("runs/*")] in ([], ["taken"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"parameters": {"gama": 1}}, "sparge-lda has no parameter gama; it has"),
        ({"parameters": {"gamma": -1}}, "'gamma' parameter"),
        (
            {"parameters": {"n_features_to_select": 3}},
            "leave out the parameter n_features_to_select",
        ),
        ({"out": "runs/taken"}, "runs/taken exists and is not a run directory"),
    ],
)
def test_a_form_with_a_bad_value_leaves_nothing(prefect, corpus, nothing_left, given, said):
    if "out" in given:
        Path("runs/taken").mkdir(parents=True)
    state = run(corpus, **given)
    assert state.is_failed()
    assert said in state.message


def test_a_sweep_with_one_bad_cell_in_its_grid_leaves_nothing(prefect, corpus, nothing_left):
    from flows.sweep import sweep

    for grid, said in (
        ({"sparge-lda": {"gamma": [1, 0]}}, "'gamma' parameter"),
        ({"anova": {"gama": [1]}}, "anova has no parameter gama"),
    ):
        state = sweep(
            corpus,
            ["anova", "sparge-lda"],
            [5],
            grid,
            engine=SERIAL,
            out="runs/sweep",
            return_state=True,
        )
        assert state.is_failed()
        assert said in state.message
    Path("runs/taken").mkdir(parents=True)
    Path("runs/taken/sweep.csv").write_text("mine")
    state = sweep(corpus, ["anova"], [5], engine=SERIAL, out="runs/taken", return_state=True)
    assert "sweep.csv is in the way" in state.message
    assert Path("runs/taken/sweep.csv").read_text() == "mine"


def test_too_many_features_are_refused_after_staging(prefect, corpus, worked):
    state = run(corpus, method="sparge-lpp", features=1000)
    assert state.is_failed()
    assert "the number of features must be at most" in state.message
    assert worked == ["stage"]
    assert not list(Path(".bigfs").glob("*.graphs"))
