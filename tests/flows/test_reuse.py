"""A run whose result is there: found again without any work, and not where anything has changed."""

import json
from pathlib import Path

import pytest

from bigfs.flows import reuse, steps
from bigfs.flows import run as runs
from bigfs.flows.job import Job
from bigfs.flows.options import ClusterOptions, SourceOptions
from bigfs.flows.plan import Plan
from bigfs.result import Status
from bigfs.storage.errors import CorruptStoreError
from bigfs.storage.runs.runs import Run
from bigfs.storage.staging.stage import make_plan
from tests.helpers import stages
from tests.helpers.commands import fails
from tests.helpers.processes import write_corpus

JOB = {"method": "anova", "features": 12, "parameters": {}}


@pytest.fixture
def done(tmp_path, monkeypatch):
    """A finished run, as a flow leaves it. Gives the source's path."""
    monkeypatch.chdir(tmp_path)
    source = write_corpus(tmp_path / "corpus.jsonl", seed=3)
    plan = make_plan(source, None, **SourceOptions().model_dump())
    stages.stage(source, plan.uri)
    run = stages.select(plan.uri, "runs/r", source=source, **JOB)
    stages.evaluate(run)
    stages.finish(run)
    return source


@pytest.fixture(autouse=True)
def no_work(monkeypatch):
    def refuse(*_, **__):
        raise ValueError("a job was asked for")

    monkeypatch.setattr(runs, "run", refuse)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


def selects_again(source):
    """Whether the step selects, or takes the selection of the run."""
    plan = Plan.of(
        runs.prepare(Job(source=source, out="runs/r", engine=ClusterOptions(workers=0), **JOB))
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Run, "begin", lambda *_: pytest.fail("selected"))
        try:
            steps.select(plan, [], runs.find_result(plan, scored=True))
        except pytest.fail.Exception:
            return True
    return False


def test_the_same_run_again_does_no_work(done, bigfs):
    command = ("run", done, "--method", "anova", "--features", 12, "--out", "runs/r")
    status, out, err = bigfs(*command)
    assert status == 0
    assert out.startswith("accuracy with")
    assert err.strip() == "bigfs: runs/r has this result already (--fresh repeats it)"
    status, out, _ = bigfs(*command, "--json")
    assert status == 0
    assert json.loads(out)["run"] == "runs/r"
    fails(bigfs(*command, "--fresh"), "a job was asked for")


def test_what_has_changed_is_done_again(done, bigfs, tmp_path):
    command = ("run", done, "--out", "runs/r", "--method")
    for words in (
        ("anova", "--features", 11),
        ("fisher", "--features", 12),
        ("anova", "--features", 12, "--tile-rows", 50),
    ):
        fails(bigfs(*command, *words), "runs/r holds another result")
        fails(bigfs(*command, *words, "--fresh"), "a job was asked for")
    (tmp_path / "runs" / "r" / "report.html").rename(tmp_path / "report.html")
    fails(bigfs(*command, "anova", "--features", 12), "a job was asked for")
    (tmp_path / "report.html").rename(tmp_path / "runs" / "r" / "report.html")
    assert bigfs(*command, "anova", "--features", 12)[0] == 0
    write_corpus(tmp_path / "corpus.jsonl", seed=4)
    fails(bigfs(*command, "anova", "--features", 12), "a job was asked for")


@pytest.mark.parametrize("name", ["selected.csv", "scores.npy", "curves.csv", "report.html"])
def test_a_result_with_an_empty_or_missing_file_is_made_again(done, bigfs, name):
    command = ("run", done, "--method", "anova", "--features", 12, "--out", "runs/r")
    file = Path("runs/r", name)
    content = file.read_bytes()
    for spoil in (lambda: file.write_bytes(b""), file.unlink):
        spoil()
        fails(bigfs(*command), "a job was asked for")
        file.write_bytes(content)
        assert bigfs(*command)[0] == 0
    file.unlink()
    assert selects_again(done) is (name in ("selected.csv", "scores.npy"))


def test_a_damaged_store_is_not_reused(done, bigfs):
    next(Path(".bigfs").glob("*.zarr/X/data/c/0")).write_bytes(b"")
    command = ("run", done, "--method", "anova", "--features", 12, "--out", "runs/r")
    fails(bigfs(*command), "chunk 0 of array X/data is damaged: restore it or remove it")
    job = runs.prepare(Job(source=done, out="runs/new", **JOB))
    with pytest.raises(CorruptStoreError, match="chunk 0 of array X/data is damaged"):
        steps.stage(job)


def test_a_selection_that_lacked_memory_is_made_again(done, bigfs):
    command = ("run", done, "--method", "anova", "--features", 12, "--out", "runs/r")
    run = Run.open("runs/r")
    run.update_metadata(status=str(Status.MEMORY))
    fails(bigfs(*command), "a job was asked for")
    assert selects_again(done)
    run.update_metadata(status=str(Status.MAX_ITER))  # the same again, with whatever memory
    assert bigfs(*command)[0] == 0
    assert not selects_again(done)


def test_an_unfinished_run_of_the_same_job_is_gone_on_with(done, bigfs):
    plan = make_plan(done, None, **SourceOptions().model_dump())
    again = stages.select(plan.uri, "runs/new", source=done, **JOB)
    stages.evaluate(again)
    steps.write_page(again)  # and it is killed before it gets its name
    assert not reuse.is_reported(again)
    command = ("run", done, "--method", "anova", "--features", 12, "--out", "runs/new")
    fails(bigfs(*command), "a job was asked for")


def test_a_checkpoint_of_another_version_is_not_resumed(done, monkeypatch):
    """Its states may have other fields."""
    plan = make_plan(done, None, **SourceOptions().model_dump())
    job = {"method": "sparge-lda", "features": 12, "parameters": {"tol": 1e-6}}

    def is_killed(*_):
        raise KeyboardInterrupt

    def kept():
        return len(list(Path("runs").glob(".other/*/checkpoints/sparge-*.npz")))

    for version in ("this version", "another version"):
        with monkeypatch.context() as patched:
            patched.setattr(reuse, "source_hash", lambda version=version: version)
            patched.setattr(steps, "_write_selection", is_killed)
            with pytest.raises(KeyboardInterrupt):
                stages.select(plan.uri, "runs/other", **job)
            assert kept() == 1
    with monkeypatch.context() as patched:
        patched.setattr(reuse, "source_hash", lambda: "another version")
        assert stages.select(plan.uri, "runs/other", **job).metadata["resumed"]
    assert not stages.select(plan.uri, "runs/other", **job).metadata["resumed"]
