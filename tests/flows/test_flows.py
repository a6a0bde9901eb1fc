"""The flows against a real Prefect server: what is done again, what is tried again, what waits, and
what is shown.
"""

import json
import logging
import os
import re
import shutil
import threading
import time
from pathlib import Path
from unittest import mock

import httpx
import numpy as np
import pytest
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging.handlers import APILogWorker

from bigfs import storage
from bigfs.flows import run as runs
from bigfs.flows import steps
from bigfs.flows.cli.servers import result_of_flow
from bigfs.flows.comparison.request import Comparison
from bigfs.flows.job import Job
from bigfs.flows.options import ClusterOptions, RunScoring, SourceOptions
from bigfs.flows.report import artifacts
from bigfs.flows.report.history import history
from bigfs.storage import locks
from bigfs.storage.errors import BusyError, StoreError, may_pass
from bigfs.storage.runs.runs import Run, lock_run, results_of
from bigfs.storage.staging import stage as staging
from tests.helpers.daily import daily
from tests.helpers.processes import PREFECT_WARNS, client, write_corpus
from tests.helpers.processes import artifacts as artifacts_of

pytestmark = PREFECT_WARNS
SERIAL = ClusterOptions(workers=0)
FEATURES = 12
WORK = {  # what a step calls that does its work, or looks for the store
    "stage": (staging, "carry_out"),
    "select": (steps, "_write_selection"),
    "evaluate": (steps, "score"),
    "report": (steps, "write_page"),
}
ALL = list(WORK)


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

    for name, (owner, work) in WORK.items():
        monkeypatch.setattr(owner, work, counted(name, getattr(owner, work)))
    return names


def run(source, **more):
    """The pipeline's state, run here and serially."""
    from bigfs.flows.prefect_flows import run as flow_of_run

    given = {
        "features": FEATURES,
        "settings": SourceOptions(tile_rows=50),
        "engine": SERIAL,
        "out": "runs/r",
    } | more
    return flow_of_run(source, **given, return_state=True)


# --- what a run leaves ----------------------------------------------------------------------------


def test_a_run_is_seen_through_the_api(prefect, corpus):
    state = run(corpus)
    assert state.is_completed()
    shown = artifacts_of(state)
    assert {"selected", "accuracy", "accuracy-curve", "objective-curve", "summary"} <= set(shown)
    table = json.loads(shown["selected"]["data"])
    assert [int(row["index"]) for row in table] == Run.open("runs/r").selected.tolist()
    assert shown["accuracy-curve"]["data"].startswith("data:image/svg+xml;base64,")
    own = Run.open("runs/r").metadata["prefect"]
    assert own["flow_run_id"] == str(state.state_details.flow_run_id)
    assert own["flow_run_name"] == f"{FEATURES} features of {corpus} by SparGE"
    assert set(Run.open("runs/r").selected) == set(range(FEATURES))


def test_a_second_run_skips_what_is_done_and_a_changed_one_does_not(prefect, corpus, worked):
    run(corpus)
    assert worked == ALL
    before = Run.open("runs/r").metadata
    assert run(corpus).result() == "runs/r"
    assert worked == ALL
    assert Run.open("runs/r").metadata == before
    run(corpus, features=6, fresh=True)
    assert worked == 2 * ALL
    assert len(results_of("runs/r")) == 2
    before = Run.open("runs/r").metadata
    write_corpus(Path(corpus), seed=4)
    run(corpus, features=6)
    assert worked == 3 * ALL
    nights = history("runs/r")
    assert [night["run"] for night in nights] == ["runs/r"] * 3
    assert Run.open(nights[1]["folder"]).metadata == before
    assert len(nights[2]["added"]) == len(nights[2]["removed"])


def test_the_disk_alone_says_what_is_done(prefect, corpus, worked, tmp_path):
    """Not results that Prefect keeps, which a pod or a container loses."""
    assert run(corpus).is_completed()
    shutil.rmtree(tmp_path / "results", ignore_errors=True)
    assert run(corpus).result() == "runs/r"
    job = Job(source=corpus, features=6, out="runs/other", settings=SourceOptions(tile_rows=50))
    runs.run(runs.prepare(job.model_copy(update={"engine": SERIAL})))
    assert worked == 2 * ALL
    state = run(corpus, features=6, out="runs/other")  # in process before, and now as a flow
    assert state.is_completed()
    assert worked == 2 * ALL


def test_a_flow_of_another_question_does_not_take_the_directory(prefect, corpus, worked):
    run(corpus)
    state = run(corpus, features=6)
    assert state.is_failed()
    assert "runs/r holds another result (12 features of" in state.message
    assert worked == ALL
    assert len(Run.open("runs/r").selected) == FEATURES


@pytest.mark.parametrize("kind", daily(["progress", "table", "image", "markdown"], "markdown"))
def test_a_server_that_takes_no_artifact_costs_a_line_of_the_log(
    prefect, corpus, monkeypatch, caplog, kind
):
    tried = []

    def refuse(*_, **__):
        tried.append(kind)
        raise httpx.ConnectError("All connection attempts failed")

    monkeypatch.setattr(artifacts, f"create_{kind}_artifact", refuse)
    assert run(corpus).is_completed()
    assert tried
    assert Run.open("runs/r").metadata["curves"]
    lines = [r.getMessage() for r in caplog.records if "is not shown" in r.getMessage()]
    assert len(lines) == len(tried)
    assert all("All connection attempts failed" in line for line in lines)
    if kind == "progress":
        assert len(tried) == 1  # and the work does not wait for it again


def test_select_and_evaluate_mean_what_the_commands_do(prefect, corpus, worked, monkeypatch):
    from bigfs.flows.prefect_flows import evaluate, select

    store = storage.stage(corpus, tile_rows=50)
    worked.clear()
    given = {"features": FEATURES, "engine": SERIAL}
    assert select(store, "runs/r", **given, return_state=True).is_completed()
    assert worked == ["select", "report"]
    assert "curves" not in Run.open("runs/r").metadata
    with monkeypatch.context() as patched:
        fault = ValueError("no page can be written")
        patched.setattr(steps, "write_page", mock.Mock(side_effect=fault))
        assert evaluate("runs/r", engine=SERIAL, return_state=True).is_failed()
    assert "curves" not in Run.open("runs/r").metadata  # all of it, or none
    assert evaluate("runs/r", engine=SERIAL, return_state=True).is_completed()
    assert Run.open("runs/r").metadata["curves"]
    assert run(corpus).is_completed()  # takes the run up
    assert worked.count("select") == 1


def test_a_night_appends_selects_and_deletes_what_is_old(prefect, tmp_path, worked):
    from bigfs.flows.prefect_flows import nightly, predict

    given = {"features": FEATURES, "method": "anova", "engine": SERIAL}
    for night, new in enumerate(("monday", "monday", "tuesday", "tuesday")):
        write_corpus(tmp_path / f"{new}.jsonl", seed=len(new))
        if night == 2:  # what the first night leaves is old
            (made,) = results_of("runs/r")
            os.utime(made / "run.json", (0, 0))
        assert nightly(f"{new}.jsonl", "corpus.zarr", "runs/r", **given) == "runs/r"
        assert storage.open("corpus.zarr").X.shape[0] == (400 if night > 1 else 200)
    assert worked == ["stage", *ALL[1:], *ALL[1:]]
    (latest,) = results_of("runs/r")  # that of the first night is deleted
    assert Run.open(latest).metadata["content"] == storage.open("corpus.zarr").spec["content"]
    assert predict("runs/r", "monday.jsonl", "guesses.csv", engine=SERIAL) == "guesses.csv"
    assert len(Path("guesses.csv").read_text().splitlines()) == 201


def test_a_flow_refuses_to_delete_by_an_age_that_is_none(prefect):
    from bigfs.flows.prefect_flows import prune

    state = prune(keep="a month", return_state=True)
    assert state.is_failed()
    assert "must be a number of hours, days or weeks" in state.message


SIGNED = "https://data.example.org/x.parquet?X-Amz-Signature=canary&a=b#columns=*"


def test_a_signed_link_is_no_parameter_but_its_variable_is(prefect, corpus, monkeypatch):
    from bigfs.flows.prefect_flows import run as flow_of_run

    with client() as api:
        flow = api.create_flow(flow_of_run)
        made = api.create_deployment(
            flow,
            name="signed",
            parameters={},
            parameter_openapi_schema=flow_of_run.parameters.model_dump(),
            enforce_parameter_schema=True,
        )
        for given in ({"source": SIGNED}, {"source": corpus, "settings": {"test": SIGNED}}):
            with pytest.raises(PrefectHTTPStatusError, match="should not be valid"):
                api.create_flow_run_from_deployment(made, parameters=given)
        kept = api._client.post("/flow_runs/filter", json={}).text
    assert "canary" not in kept
    for job in (Job(source=SIGNED), Job(source=corpus, settings={"test": SIGNED})):
        with pytest.raises(ValueError, match=r"x\.parquet holds credentials, which Prefect's"):
            result_of_flow("run", job)
    for given in ({}, {"settings": SourceOptions(test="$BIGFS_NO_SUCH")}):
        assert run(corpus if given else "$BIGFS_NO_SUCH", **given).is_failed()
    monkeypatch.setenv("BIGFS_CORPUS", corpus)
    state = run("$BIGFS_CORPUS")
    assert state.is_completed()
    with client() as api:
        shown = api.read_flow_run(state.state_details.flow_run_id)
    assert shown.parameters["source"] == "$BIGFS_CORPUS"


def test_the_setting_of_prefect_shows_the_log_of_bigfs(prefect, corpus):
    """The handler is the one that Prefect gives the loggers of PREFECT_LOGGING_EXTRA_LOGGERS."""
    log, handlers = logging.getLogger("bigfs"), logging.getLogger("prefect.extra").handlers
    before = log.level
    for handler in handlers:
        log.addHandler(handler)
    try:
        state = run(corpus)
        APILogWorker.instance().drain()
    finally:
        for handler in handlers:
            log.removeHandler(handler)
    assert log.level == before
    of_run = {"logs": {"flow_run_id": {"any_": [str(state.state_details.flow_run_id)]}}}
    with client() as api:
        lines = api._client.post("/logs/filter", json=of_run).json()
    names = {line["name"] for line in lines}
    assert {"bigfs.flows", "bigfs.result", "bigfs.storage"} <= names


def test_constraints_modes_and_the_metric_of_auto_are_choices_of_a_flow(prefect, corpus, worked):
    given = {"method": "anova", "features": "fdr", "parameters": {"forbid": [0], "param": 0.01}}
    assert run(corpus, **given).is_completed()
    about = Run.open("runs/r").metadata
    assert about["n_features"] == len(Run.open("runs/r").selected) > 0
    assert 0 not in Run.open("runs/r").selected
    run(corpus, **given)
    assert worked == ALL
    by_metric = given | {"features": "auto", "parameters": {}, "fresh": True}
    run(corpus, **by_metric, scoring=RunScoring(metrics=["macro_f1"]))
    assert Run.open("runs/r").metadata["parameters"]["metric"] == "macro_f1"
    run(corpus, **by_metric, scoring=RunScoring(metrics=["accuracy"]))
    assert Run.open("runs/r").metadata["parameters"]["metric"] == "accuracy"
    assert worked == 3 * ALL


def test_a_fresh_run_does_it_all_again(prefect, corpus, worked):
    run(corpus)
    first = Run.open("runs/r").metadata["prefect"]["flow_run_id"]
    run(corpus, fresh=True)
    assert worked == [*ALL, *ALL]
    assert Run.open("runs/r").metadata["prefect"]["flow_run_id"] != first


def test_what_was_removed_is_made_again(prefect, corpus, worked):
    run(corpus)
    first = Run.open("runs/r").selected
    Path("runs/r").unlink()
    run(corpus)
    assert worked == 2 * ALL
    np.testing.assert_array_equal(Run.open("runs/r").selected, first)
    shutil.rmtree(".bigfs")
    run(corpus)
    assert worked[8:] == ["stage"]


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
    assert may_pass(error) is again


@pytest.mark.parametrize(
    ("error", "tries"),
    [(ConnectionResetError("the store hung up"), 3), (ValueError("a bad value"), 1)],
)
def test_a_stage_is_tried_again(prefect, corpus, monkeypatch, error, tries):
    real, calls = staging.carry_out, []

    def flaky(*given, **settings):
        calls.append(given)
        if len(calls) < 3:
            raise error
        return real(*given, **settings)

    from bigfs.flows.prefect_flows import TASKS

    monkeypatch.setattr(staging, "carry_out", flaky)
    monkeypatch.setattr(TASKS[steps.stage], "retry_delay_seconds", [0.0])
    state = run(corpus)
    assert len(calls) == tries
    assert state.is_completed() is (tries == 3)
    if tries == 1:
        assert "a bad value" in state.message


def test_a_hook_of_a_flow_hears_of_its_failure(prefect, tmp_path):
    from bigfs.flows.prefect_flows import run as flow_of_run

    heard = []

    def hook(flow, flow_run, state):
        heard.append((flow.name, flow_run.state_type.value, state.message))

    missing = str(tmp_path / "missing.jsonl")
    flow_of_run.with_options(on_failure=[hook])(missing, engine=SERIAL, return_state=True)
    (name, kind, message), *more = heard
    assert (name, kind, more) == ("bigfs", "FAILED", [])
    assert "missing.jsonl" in message


def test_the_time_of_a_method_limits_no_staging(monkeypatch):
    from bigfs.flows import prefect_flows

    limits = []
    monkeypatch.setattr(prefect_flows, "_call", lambda *_, limit, **__: limits.append(limit))
    for model in (Comparison, Job):
        prefect_flows.as_task(steps.stage, model(source="corpus.jsonl", timeout=1))
    assert limits == [None, 1]


def test_a_stage_that_takes_too_long_ends(prefect, corpus, monkeypatch):
    run(corpus)  # staged
    monkeypatch.setattr(Run, "begin", lambda *a, **k: time.sleep(60))
    began = time.monotonic()
    state = run(corpus, features=5, timeout=1.0, fresh=True)
    assert state.is_failed()
    assert state.name == "TimedOut"
    assert "select 5 by sparge-lda took longer than 1 s, its time limit" in state.message
    assert time.monotonic() - began < 50


def test_a_full_disk_is_one_plain_error_and_the_next_run_goes_on(prefect, corpus, monkeypatch):
    from bigfs.storage.runs.runs import Checkpoint

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
    def vanishes(*given, write=steps._write_selection):
        write(*given)
        shutil.rmtree(".bigfs")

    with monkeypatch.context() as patched:
        patched.setattr(steps, "_write_selection", vanishes)
        state = run(corpus)
    assert state.is_failed()
    assert re.search(
        r"\.bigfs/corpus-\w+\.zarr was removed while it was in use: stage it again", state.message
    )
    assert not Path("runs/r").exists()
    assert run(corpus).is_completed()
    assert set(Run.open("runs/r").selected) == set(range(FEATURES))


# --- one at a time --------------------------------------------------------------------------------


def test_a_run_skips_or_waits_while_another_works(prefect, corpus, tmp_path):
    held, go = threading.Event(), threading.Event()

    def other():
        with lock_run(tmp_path / "runs" / "r", waits=False):
            held.set()
            go.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert held.wait(10)
    state = run(corpus, overlap="skip")
    assert (state.name, state.is_completed()) == ("Skipped", True)
    assert not (tmp_path / "runs" / "r").exists()
    with pytest.raises(BusyError, match="another run works on the same directory"):
        result_of_flow("run", Job(source=corpus, features=FEATURES, out="runs/r", overlap="skip"))
    threading.Timer(1.0, go.set).start()
    assert run(corpus, overlap="wait").is_completed()
    thread.join()
    assert (tmp_path / "runs" / "r" / "report.html").exists()


def test_a_waiting_run_says_so(prefect, corpus, tmp_path, caplog, monkeypatch):
    held, go = threading.Event(), threading.Event()

    def other():
        with lock_run(tmp_path / "runs" / "r", waits=False):
            held.set()
            go.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert held.wait(10)
    monkeypatch.setattr(locks.time, "sleep", lambda _: go.set())
    assert run(corpus, method="anova").is_completed()
    thread.join()
    assert "another process works on runs/r: waiting for it to end" in caplog.messages


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


def test_too_many_features_are_refused_after_staging(prefect, corpus, worked):
    state = run(corpus, method="sparge-lpp", features=1000)
    assert state.is_failed()
    assert "the number of features must be at most" in state.message
    assert worked == ["stage"]
    assert not list(Path(".bigfs").glob("*.graphs"))
