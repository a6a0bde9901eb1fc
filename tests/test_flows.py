"""The flows against a real Prefect server: what is cached, what is tried again, what waits, what is shown."""

import csv
import json
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from processes import until

from flows import stages, tasks
from flows.locks import Busy, alone
from flows.options import Engine, Staging
from storage.runs import Run

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:prefect", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
SERIAL = Engine(workers=0)
FEATURES = 12


@pytest.fixture
def corpus(tmp_path):
    """200 documents of 60 terms in svmlight's format; in each of 3 classes 4 terms are frequent."""
    return write_corpus(tmp_path / "corpus.svm", seed=3)


def write_corpus(path, seed, rows=200):
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 3
    rate = np.full((3, 60), 0.2)
    for c in range(3):
        rate[c, 4 * c : 4 * c + 4] = 2.0
    counts = rng.poisson(rate[y])
    lines = (f"{c} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row) if v) for c, row in zip(y, counts, strict=True))
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def run(source, **more):
    """The pipeline's state, run here and serially."""
    from flows.pipeline import pipeline

    given = {"features": FEATURES, "settings": Staging(tile_rows=50), "engine": SERIAL, "out": "runs/r"} | more
    return pipeline(source, **given, return_state=True)


def client():
    from prefect.client.orchestration import get_client

    return get_client(sync_client=True)


def task_states(state):
    """{task: the state it ended in}, as the server tells; it learns of task runs a moment later."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    def ended():
        with client() as api:
            found = api.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[state.state_details.flow_run_id])))
        whole = state.is_failed() or any(r.name.startswith("report") for r in found)
        return whole and all(r.state is not None and r.state.is_final() for r in found) and found

    return {r.name.split("-")[0].split(" ")[0]: r.state.name for r in until(ended, "the end of every task run")}


def artifacts(state):
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    with client() as api:
        asked = {"flow_runs": FlowRunFilter(id=FlowRunFilterId(any_=[state.state_details.flow_run_id])).model_dump(mode="json")}
        return {a["key"]: a for a in api._client.post("/artifacts/filter", json=asked).json()}


# --- what a run leaves ----------------------------------------------------------------------------


def test_a_run_is_seen_through_the_api(prefect, corpus):
    state = run(corpus)
    assert state.is_completed()
    shown = artifacts(state)
    assert {"selected", "accuracy", "accuracy-curve", "objective-curve", "summary"} <= set(shown)
    table = json.loads(shown["selected"]["data"])
    assert [int(row["index"]) for row in table] == Run.open("runs/r").selected.tolist()
    assert shown["accuracy-curve"]["data"].startswith("data:image/svg+xml;base64,")
    own = Run.open("runs/r").about["prefect"]
    assert own["flow_run_id"] == str(state.state_details.flow_run_id)
    assert own["flow_run_name"] == f"{FEATURES} features of {corpus} by sparge-lda"
    assert set(Run.open("runs/r").selected) == set(range(FEATURES))


def test_a_second_run_skips_what_is_done_and_a_changed_one_does_not(prefect, corpus):
    assert set(task_states(run(corpus)).values()) == {"Completed"}
    before = Run.open("runs/r").about
    again = run(corpus)
    assert task_states(again) == dict.fromkeys(("stage", "select", "evaluate", "report"), "Cached")
    assert again.result() == "runs/r"
    assert Run.open("runs/r").about == before
    fewer = task_states(run(corpus, features=6))
    assert (fewer["stage"], fewer["select"]) == ("Cached", "Completed")
    write_corpus(Path(corpus), seed=4)
    assert set(task_states(run(corpus, features=6)).values()) == {"Completed"}


def test_what_was_removed_is_made_again(prefect, corpus):
    run(corpus)
    first = Run.open("runs/r").selected
    shutil.rmtree("runs/r")
    assert task_states(run(corpus)) == {"stage": "Cached", "select": "Completed", "evaluate": "Completed", "report": "Completed"}
    np.testing.assert_array_equal(Run.open("runs/r").selected, first)
    shutil.rmtree(".bigfs")
    assert task_states(run(corpus))["stage"] == "Completed"


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
    ],
)
def test_only_errors_that_go_away_are_tried_again(error, again):
    from prefect.states import Failed

    assert tasks.transient(None, None, Failed(data=error)) is again


@pytest.mark.parametrize(("error", "tries"), [(ConnectionResetError("the store hung up"), 3), (ValueError("a bad value"), 1)])
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
    assert task_states(state)["select"] == "TimedOut"
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
    monkeypatch.setattr(Checkpoint, "load", lambda self, name, load=Checkpoint.load: seen.append(load(self, name)) or seen[-1])
    assert run(corpus, parameters={"tol": 1e-9}).is_completed()
    assert len(seen[0][1]) == 1  # went on after the one step that was saved


# --- one at a time --------------------------------------------------------------------------------


def test_a_run_skips_or_waits_while_another_works(prefect, corpus, tmp_path):
    held, go = threading.Event(), threading.Event()

    def other():
        with alone([str(tmp_path / "runs" / "r")], wait=False):
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


def test_two_runs_never_hold_one_place(tmp_path):
    places = [str(tmp_path / "a"), str(tmp_path / "b")]
    with alone(places, wait=False), pytest.raises(Busy, match="another run works on"), alone(places[1:], wait=False):
        raise AssertionError("not reached")
    with alone(places, wait=False):
        pass


# --- the sweep ------------------------------------------------------------------------------------


def test_a_sweep_compares_its_runs_on_one_store(prefect, corpus):
    from flows.sweep import sweep

    given = {"methods": ["sparge-lda", "anova"], "features": [6], "grid": {"sparge-lda": {"gamma": [0.5, 1.0]}}}
    state = sweep(corpus, **given, engine=SERIAL, out="runs/sweep", return_state=True)
    assert state.is_completed()
    with open("runs/sweep/sweep.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["method"], r["features"]) for r in rows] == [("sparge-lda", "6")] * 2 + [("anova", "6")]
    for row in rows:
        assert len(Run.open(f"runs/sweep/{row['run']}").selected) == int(row["features"])
        assert 1 / 3 < float(row["accuracy"]) <= 1.0
    assert "sweep" in artifacts(state)


def test_a_cell_that_cant_be_done_is_a_row_and_fails_the_sweep(prefect, corpus):
    from flows.sweep import sweep

    state = sweep(corpus, ["anova"], [5, 1000], engine=SERIAL, out="runs/sweep", return_state=True)
    assert state.is_failed()
    assert "1 of 2 runs failed: anova-1000: 1000 features were asked for" in state.message
    with open("runs/sweep/sweep.csv", newline="") as file:
        assert [bool(r["error"]) for r in csv.DictReader(file)] == [False, True]
