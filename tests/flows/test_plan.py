"""A run that was killed, and what it reads changed: the same command gives what a fresh run gives,
or goes on from the same content.
"""

import contextlib
import errno
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from prefect.exceptions import TerminationSignal

from bigfs import storage
from bigfs.flows import main_job, reuse, steps
from bigfs.flows import run as runs
from bigfs.flows.evaluation import curves
from bigfs.flows.evaluation.plan import FOLDS
from bigfs.flows.job import Job
from bigfs.flows.options import ClusterOptions
from bigfs.flows.plan import Plan
from bigfs.selectors.registry import METHODS, groups_of
from bigfs.storage import atomic, locks
from bigfs.storage.errors import BusyError, RunError
from bigfs.storage.format import manifest, verified
from bigfs.storage.runs.checkpoints import Checkpoint
from bigfs.storage.runs.runs import Run, failures_of, results_of
from tests.helpers.daily import daily
from tests.helpers.listing import names_in
from tests.helpers.stores import write_svmlight

pytestmark = pytest.mark.filterwarnings("ignore")  # of a few steps on little data
CLASSES = [name for name, method in METHODS.items() if groups_of(method) != ["real"]]
CHANGED = ("nothing", "grown", "shrunk", "moved", "upgraded")
KILLED = (("report", 0), ("select", 1), ("select", 2), ("evaluate", 1), ("evaluate", 2))
# every day one method for each change and each of the main kills, and each method three times
DAILY = ("sparge-lda", "rlsr", "multitask-lasso", "mrmr", "anova")
DAILY_KILLS = (("report", 0), ("select", 1), ("evaluate", 2))
ENGINE = ClusterOptions(workers=0)


def stage(path, seed, informative, rows=48):
    """Stage counts of two classes, of which three columns say something."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 2
    X = rng.poisson(1.0, (rows, 16)).astype(np.float64)
    X[:, informative : informative + 3] += 3 * y[:, None]
    return storage.stage(X, path, y=[f"class {c}" for c in y])


def grow(store):
    rng = np.random.default_rng(5)
    y = np.arange(160) % 2
    X = rng.poisson(1.0, (160, 16)).astype(np.float64)
    X[:, 9:12] += 4 * y[:, None]
    storage.append(X, store, y=[f"class {c}" for c in y])


def shrink(store):
    shutil.rmtree(store)
    stage(store, seed=6, informative=6, rows=40)


CHANGES = {"nothing": lambda store: None, "grown": grow, "shrunk": shrink}


def run(store, out, method, **choices):
    job = Job(source=str(store), method=method, features=3, out=str(out), engine=ENGINE, **choices)
    runs.run(runs.prepare(job))
    return Run.open(out)


class Killed(BaseException):
    """What no code catches."""


def kill_after(monkeypatch, place, times):
    """End the run after a number of steps of its selection or of folds of its evaluation, or in its
    report.
    """
    saves = []

    def save(self, name, *state, real=Checkpoint.save):
        real(self, name, *state)
        is_selected = (self.folder.parent / "selected.csv").exists()
        is_fold = is_selected and name.startswith("evaluate fold")
        saves.append(is_fold if place == "evaluate" else not is_selected)
        if sum(saves) == times:
            raise Killed

    def fail(*_, **__):
        raise Killed

    if place == "report":
        monkeypatch.setattr(steps, "write_page", fail)
    else:
        monkeypatch.setattr(Checkpoint, "save", save)


@pytest.mark.parametrize(
    ("change", "place", "times", "method"),
    daily(
        [(c, *k, m) for c in CHANGED for k in KILLED for m in CLASSES],
        *[
            (change, *kill, DAILY[(i + j) % len(DAILY)])
            for i, change in enumerate(CHANGED)
            for j, kill in enumerate(DAILY_KILLS)
        ],
    ),
)
def test_a_killed_run_is_resumed_on_the_same_content_only(
    tmp_path, monkeypatch, method, place, times, change
):
    home = tmp_path / "here"
    home.mkdir()
    monkeypatch.chdir(home)
    stage("s.zarr", seed=1, informative=0)
    with monkeypatch.context() as patched:
        kill_after(patched, place, times)
        with contextlib.suppress(Killed):
            run("s.zarr", "r", method)
    was_killed = not (home / "r").exists()
    assert was_killed or place == "select"  # it has no step after which it was killed
    is_kept = any(home.glob(".r/*/checkpoints/*.npz")) or any(home.glob(".r/*/selected.csv"))
    if change == "moved":
        monkeypatch.chdir(tmp_path)
        home = home.rename(tmp_path / "there")
        monkeypatch.chdir(home)
    elif change == "upgraded":
        monkeypatch.setattr(reuse, "source_hash", lambda: "another version")
    else:
        CHANGES[change]("s.zarr")
    done, chosen = [], []
    select, choose = steps._write_selection, curves.Choices.best
    monkeypatch.setattr(
        steps, "_write_selection", lambda run, *more: (done.append(run), select(run, *more))
    )
    monkeypatch.setattr(
        curves.Choices, "best", lambda *given: chosen.append(given) or choose(*given)
    )
    again = run("s.zarr", "r", method)
    chosen_again = len(chosen)
    is_same = change in ("nothing", "moved")
    if place != "select":
        assert bool(done) != is_same  # a selection of the same content is made once
    elif not is_same:
        assert again.metadata["resumed"] == {}
        assert done
    elif is_kept and was_killed:
        assert again.metadata["resumed"]
    fresh = run("s.zarr", "fresh", method)
    whole = {"select": 0, "evaluate": times, "report": FOLDS}[place] if was_killed else FOLDS
    in_all = len(chosen) - chosen_again
    # a fold of the same content is scored once
    assert chosen_again * FOLDS == in_all * (FOLDS - whole * is_same)
    assert again.selected.tolist() == fresh.selected.tolist()
    np.testing.assert_array_equal(again.scores, fresh.scores)
    assert again.metadata["curves"] == fresh.metadata["curves"]
    assert again.metadata["status"] == fresh.metadata["status"]
    if again.metadata["resumed"]:  # what was gathered before is not counted again
        assert len(again.metadata["history"]) == len(fresh.metadata["history"])
    else:
        np.testing.assert_equal(again.metadata["history"], fresh.metadata["history"])


def test_fresh_discards_the_checkpoints_of_a_killed_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stage("s.zarr", seed=1, informative=0)
    with monkeypatch.context() as patched, pytest.raises(Killed):  # noqa: PT012
        kill_after(patched, "select", 1)
        run("s.zarr", "r", "rlsr")
    assert any(tmp_path.glob(".r/*/checkpoints/*.npz"))
    assert run("s.zarr", "r", "rlsr", fresh=True).metadata["resumed"] == {}


def test_a_model_and_curves_are_of_the_selection_beside_them(tmp_path, monkeypatch):
    """A run that was killed after its evaluation leaves no file to another selection."""
    monkeypatch.chdir(tmp_path)
    stage("s.zarr", seed=1, informative=0)
    with monkeypatch.context() as patched, pytest.raises(Killed):  # noqa: PT012
        kill_after(patched, "report", 0)
        run("s.zarr", "r", "anova")
    grow("s.zarr")
    job = Job(source="s.zarr", method="anova", features=3, out="r", engine=ENGINE)
    runs.run(runs.prepare(job), scored=False)
    assert sorted(path.name for path in Path("r").iterdir()) == [
        *("classes.csv", "report.html", "run.json", "scores.npy", "selected.csv"),
    ]


PASSES, FULL = OSError(errno.EIO, "Input/output error"), OSError(errno.ENOSPC, "No space left")
CANCELLED = TerminationSignal(signal.SIGTERM)  # what Prefect raises in the process of a flow


FAULTS = (PASSES, FULL, KeyboardInterrupt(), CANCELLED, signal.SIGTERM, Killed())
SEAMS = ("evaluate", "report", "publish")


@pytest.mark.parametrize(
    ("fault", "seam"),
    daily(
        [(fault, seam) for fault in FAULTS for seam in SEAMS],
        *[(fault, SEAMS[i % len(SEAMS)]) for i, fault in enumerate(FAULTS)],
    ),
    ids=repr,
)
def test_no_failure_after_a_selection_deletes_it(
    request, tmp_path, monkeypatch, change, fault, seam
):
    monkeypatch.chdir(tmp_path)
    change(runs.FIRST_WAIT, 0.0)
    stage("s.zarr", seed=1, informative=0)
    kept = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as that of the command line
    request.addfinalizer(lambda: signal.signal(signal.SIGTERM, kept))
    failures = [fault]

    def fails_once(real):
        def call(*given, **more):
            if failures and isinstance(fault, signal.Signals):
                signal.raise_signal(failures.pop())
            if failures:
                raise failures.pop()
            return real(*given, **more)

        return call

    owner, name = {
        "evaluate": (steps, "score"),
        "report": (steps, "write_page"),
        "publish": (atomic, "point"),
    }[seam]
    monkeypatch.setattr(owner, name, fails_once(getattr(owner, name)))
    begun = []
    monkeypatch.setattr(
        Run, "begin", lambda *given, real=Run.begin: begun.append(given) or real(*given)
    )
    if fault is PASSES:  # it is tried again
        run("s.zarr", "r", "anova")
    else:
        kind = KeyboardInterrupt if fault is signal.SIGTERM else type(fault)
        with pytest.raises((kind, RunError)):
            run("s.zarr", "r", "anova")
        assert len(Run.open_unfinished("r").selected) == 3
        reason = "space" if fault is FULL else "^cancelled$"  # a row of the history
        assert re.search(reason, failures_of("r")[-1]["reason"])
        run("s.zarr", "r", "anova")
    assert len(begun) == 1


def test_an_evaluation_of_a_store_that_has_grown_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stage("s.zarr", seed=1, informative=0)
    before = run("s.zarr", "r", "anova").metadata
    grow("s.zarr")
    with pytest.raises(RunError, match=r"s\.zarr has changed since r selected from it"):
        steps.evaluate_again("r", {})
    assert Run.open("r").metadata == before
    assert run("s.zarr", "r", "anova").metadata["key"] != before["key"]
    assert Run.open(results_of("r")[0]).metadata["key"] == before["key"]


def test_a_second_run_of_a_name_asks_under_the_lock(tmp_path, monkeypatch):
    """It was prepared before the first one had its result, which stays."""
    monkeypatch.chdir(tmp_path)
    stage("s.zarr", seed=1, informative=0)
    second = runs.prepare(Job(source="s.zarr", method="chi2", features=3, out="r", engine=ENGINE))
    first = run("s.zarr", "r", "anova")
    with pytest.raises(RunError, match=r"r holds another result \(3 features of .* by anova\)"):
        runs.run(second)
    assert Run.open("r").metadata == first.metadata


def test_a_plan_has_what_its_job_says():
    job = Job(source="s.zarr", method="anova", features=3, out="r", timeout=7.5)
    plan = Plan(job, None, "key")
    assert (plan.folder, plan.timeout, plan.method, plan.features) == (job.folder, 7.5, "anova", 3)
    corpus = SimpleNamespace(spec={"content": "c"})  # which is not opened again
    assert Plan.of(job, corpus).corpus is corpus


def test_a_key_holds_the_question_and_nothing_else():
    def key(content="c", **given):
        return Job(source="s", **given).key({"content": content})

    questions = [{}, {"content": "other"}, {"method": "anova"}, {"method": "chi2"}, {"features": 7}]
    questions += [{"features": "auto"}, {"features": "auto", "scoring": {"metrics": ["auc"]}}]
    questions += [{"parameters": {name: [1]}} for name in ("keep", "forbid")]
    questions += [{"method": "rlsr", "parameters": {"gamma": g}} for g in (1, 2)]
    assert len({key(**question) for question in questions}) == len(questions)
    others = [{"store": "s.zarr"}, {"out": "r"}, {"settings": {"tile_rows": 9}}, {"fresh": True}]
    others += [{"engine": {"workers": 3}}, {"timeout": 9}, {"overlap": "skip"}]
    others += [{"scoring": {"metrics": ["auc"], "cv": 3}}]
    assert {key(**other) for other in others} == {key()}


def test_arrays_of_more_than_a_thousand_entries_are_told_apart():
    spec = {"content": "c"}
    a = np.arange(2000)
    b = a.copy()
    b[1000] = 7
    first, second = (Job(source="s", parameters={"forbid": index}) for index in (a, b))
    assert first.key(spec) != second.key(spec)
    assert first.with_out().out != second.with_out().out


def test_what_a_first_run_asks_is_asked_once(tmp_path, monkeypatch):
    """The calls of one process, counted."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    rows = "".join(f"{i % 2},{','.join(map(str, rng.poisson(2.0, 6)))}\n" for i in range(40))
    Path("d.csv").write_text("label,a,b,c,d,e,f\n" + rows)
    job = Job(source="d.csv?columns=*&label=label", method="anova", features=2, out="r")
    job = job.model_copy(update={"engine": ENGINE})
    wanted = {
        ("storage/runs/metadata.py", "read_metadata"): 1,
        ("storage/atomic.py", "recover"): 1,
        ("storage/opening.py", "open"): 2,
        ("storage/sources/__init__.py", "find"): 1,
        # of the name of the run; of the store while it is made; of the folder in which it is made,
        # which a sweep asks whether its process lives; of the state that is read, which is shared
        ("storage/locks.py", "require_lock_file"): 4,
    }
    counts = dict.fromkeys(wanted, 0)

    def count(frame, event, _):
        code, caller = frame.f_code, frame.f_back
        if event != "call" or (caller is not None and caller.f_code is code):
            return
        for file, name in wanted:
            if code.co_name == name and code.co_filename.endswith(file):
                counts[file, name] += 1

    sys.setprofile(count)
    try:
        if not runs.is_done(job):
            runs.run(runs.prepare(job))
        Run.open("r")
    finally:
        sys.setprofile(None)
    assert counts == wanted


@pytest.mark.parametrize("seam", daily(["_write_selection", "score", "write_page"], "write_page"))
def test_a_run_keeps_the_segments_that_it_began_with(tmp_path, monkeypatch, seam):
    """An append beside it neither ends it nor changes what it sees."""
    monkeypatch.chdir(tmp_path)
    stage("s.zarr", seed=1, informative=0)
    alone = run("s.zarr", "alone", "sparge-lda")
    real = getattr(steps, seam)

    def meanwhile(*given, **more):
        grow("s.zarr")
        for cached in (verified.array, verified.root, manifest.checksums_of):
            cached.cache_clear()  # as in another process
        return real(*given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(steps, seam, meanwhile)
        beside = run("s.zarr", "r", "sparge-lda")
    np.testing.assert_array_equal(beside.scores, alone.scores)
    for name in ("key", "content", "curves"):
        assert beside.metadata[name] == alone.metadata[name]
    assert storage.open("s.zarr").X.shape[0] == 48 + 160
    assert names_in(tmp_path) == [".alone", ".r", "alone", "r", "s.counts", "s.runs", "s.zarr"]
    assert run("s.zarr", "r", "sparge-lda").metadata["key"] != alone.metadata["key"]


def test_a_run_that_skips_where_its_name_is_taken_waits_for_its_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_svmlight(tmp_path / "rows.svm", rows=20)
    job = Job(source="rows.svm", method="chi2", features=2, out="r", engine=ENGINE, overlap="skip")
    prepared, waits = runs.prepare(job), []
    with contextlib.ExitStack() as other:
        other.enter_context(locks.lock(prepared.store))
        clock = {"sleep": lambda _: waits.append(other.close()), "monotonic": time.monotonic}
        monkeypatch.setattr(locks, "time", SimpleNamespace(**clock))
        runs.run(prepared)
    assert len(waits) == 1
    with locks.lock("r"), pytest.raises(BusyError, match="another process works on r"):
        runs.run(prepared)


def test_a_source_that_changes_in_the_first_try_gets_a_store_of_its_own(
    tmp_path, monkeypatch, change
):
    """The name of the store stands for what was staged."""
    from bigfs.storage.staging import stage as staging

    monkeypatch.chdir(tmp_path)
    change(runs.FIRST_WAIT, 0.0)
    write_svmlight(tmp_path / "rows.svm", rows=20)
    build = staging.build

    def build_and_change(*given):
        monkeypatch.setattr(staging, "build", build)
        write_svmlight(tmp_path / "rows.svm", rows=30)
        return build(*given)

    monkeypatch.setattr(staging, "build", build_and_change)
    found = main_job.run("rows.svm", "anova", 2, out="r", engine={"workers": 0})
    assert storage.open(found.store).X.shape[0] == 30
    assert storage.find_store("rows.svm") == found.store
