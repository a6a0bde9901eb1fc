"""The main job in this process, without Prefect."""

import subprocess
import sys
import time

import pytest

from flows import job, stages
from flows.options import Engine, Scoring, Staging
from storage.runs import Run
from tests.helpers.commands import fails
from tests.helpers.processes import write_corpus

SERIAL = Engine(workers=0)


@pytest.fixture
def source(tmp_path, monkeypatch):
    """The path of a corpus, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return str(write_corpus(tmp_path / "corpus.jsonl", seed=3))


def run(source, **options):
    return job.run_job(
        source, "anova", 12, None, "runs/r", Staging(), {}, SERIAL, scoring=Scoring(), **options
    )


def test_each_step_is_done_once(source, monkeypatch, caplog):
    caplog.set_level("INFO", logger="bigfs.flows")
    done = []
    for name, step in job.STEPS.items():
        monkeypatch.setitem(
            job.STEPS, name, lambda *a, name=name, step=step: done.append(name) or step(*a)
        )
    assert run(source) == "runs/r"
    assert done == ["stage", "select", "evaluate", "report"]
    first = Run.open("runs/r")
    steps = [record["stage"] for record in first.metadata["stages"]]
    assert steps == ["start-up (Python, Dask)", "stage", "select", "evaluate"]
    assert len(first.selected) == 12

    done.clear()
    run(source)
    assert done == []
    assert "select: reused the result of an earlier run" in caplog.messages
    run(source, fresh=True)
    assert done == ["stage", "select", "evaluate", "report"]


def test_a_step_is_tried_again_only_after_an_error_that_may_pass(source, monkeypatch, capsys):
    waits, real, errors = [], stages.select, []

    def flaky(*arguments, **choices):
        if errors:
            raise errors.pop()
        return real(*arguments, **choices)

    monkeypatch.setattr(stages, "select", flaky)
    monkeypatch.setattr(job.time, "sleep", waits.append)
    errors += [ConnectionResetError("the store hung up")] * 3
    run(source)
    assert capsys.readouterr().err.count("select: the store hung up; trying again in ") == 3
    assert all(5 * 2**k <= wait <= 7.5 * 2**k for k, wait in enumerate(waits))

    errors += [ValueError("a bad value")]
    with pytest.raises(ValueError, match="a bad value"):
        run(source, fresh=True)
    errors += [ConnectionResetError("the store hung up")] * 9
    with pytest.raises(ConnectionResetError):
        run(source, fresh=True)
    assert len(errors) == 4
    assert len(waits) == 3 + 4


def test_the_command_needs_no_server_and_loads_no_prefect(source, bigfs, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "prefect"]:
        monkeypatch.delitem(sys.modules, name)
    command = ("run", source, "--method", "anova", "--features", 12, "--workers", 0)
    status, out, _ = bigfs(*command, "--out", "runs/c")
    assert status == 0
    assert out.startswith("accuracy with")
    assert "prefect" not in sys.modules
    fails(bigfs(*command, "--out", "corpus.jsonl"), "corpus.jsonl")


def test_the_age_of_a_process_is_what_its_parent_measures():
    """psutil's own time of the start is off where the clock was corrected after the boot."""
    began = time.perf_counter()
    code = "from flows.stages import process_age; print(process_age())"
    age = float(subprocess.check_output([sys.executable, "-c", code]))
    longest = time.perf_counter() - began
    assert longest / 2 < age < longest + 0.02  # the kernel counts in hundredths of a second
