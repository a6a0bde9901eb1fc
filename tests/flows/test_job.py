"""The main job in this process, without Prefect."""

import functools
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from bigfs import storage
from bigfs.flows import run as runs
from bigfs.flows import steps
from bigfs.flows.job import Job
from bigfs.flows.options import ClusterOptions, SourceOptions
from bigfs.storage.errors import StoreError, may_pass
from bigfs.storage.locks import lock
from bigfs.storage.runs.runs import Run
from bigfs.storage.staging import stage as staging
from tests.helpers.commands import fails
from tests.helpers.processes import write_corpus

SERIAL = ClusterOptions(workers=0)
WORK = {  # what a step calls only if its result is not on disk
    "stage": (staging, "build"),
    "select": (steps, "_write_selection"),
    "evaluate": (steps, "score"),
    "report": (steps, "write_page"),
}


@pytest.fixture
def source(tmp_path, monkeypatch):
    """The path of a corpus, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return str(write_corpus(tmp_path / "corpus.jsonl", seed=3))


def run(source, **choices):
    given = {"method": "anova", "features": 12, "out": "runs/r", "engine": SERIAL} | choices
    return runs.run(runs.prepare(Job(source=source, **given)))


@pytest.fixture
def done(monkeypatch):
    """The stages that did their work, in order."""
    names = []

    def counted(name, real):
        return lambda *given, **more: names.append(name) or real(*given, **more)

    for name, (owner, work) in WORK.items():
        monkeypatch.setattr(owner, work, counted(name, getattr(owner, work)))
    return names


def test_each_step_is_done_once(source, done, caplog):
    caplog.set_level("INFO", logger="bigfs.flows")
    assert run(source) == "runs/r"
    assert done == list(WORK)
    first = Run.open("runs/r")
    names = [record["stage"] for record in first.metadata["stages"]]
    assert names == ["start-up (Python, Dask)", "stage", "select", "evaluate"]
    assert len(first.selected) == 12

    done.clear()
    run(source)
    assert not done
    for step in ("stage", "select", "evaluate", "report"):
        assert f"{step}: reused the result of an earlier run" in caplog.messages
    run(source, fresh=True)
    assert done == ["select", "evaluate", "report"]


def test_a_step_is_tried_again_only_after_an_error_that_may_pass(source, monkeypatch, capsys):
    waits, real, errors = [], steps.select, []

    @functools.wraps(real)
    def flaky(*arguments, **choices):
        if errors:
            raise errors.pop()
        return real(*arguments, **choices)

    monkeypatch.setattr(steps, "select", flaky)
    monkeypatch.setattr(runs, "time", SimpleNamespace(sleep=waits.append))
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


def test_the_command_needs_no_server_and_loads_no_prefect(source, bigfs, monkeypatch, tmp_path):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "prefect"]:
        monkeypatch.delitem(sys.modules, name)
    command = ("run", source, "--method", "anova", "--features", 12, "--workers", 0)
    status, out, _ = bigfs(*command, "--out", "runs/c")
    assert status == 0
    assert out.startswith("accuracy with")
    assert "prefect" not in sys.modules
    fails(bigfs(*command, "--out", "corpus.jsonl"), "corpus.jsonl")


# --- one at a time --------------------------------------------------------------------------------


def test_a_store_is_locked_only_while_it_is_staged(source, monkeypatch):
    """So two runs on one store go side by side."""
    store = storage.find_store(source) or storage.stage(source)
    free = {}

    def is_free(name, real):
        def call(*given, **more):
            with lock(store, wait=0):
                free[name] = True
            return real(*given, **more)

        return call

    for name in ("select", "evaluate", "report"):
        owner, work = WORK[name]
        monkeypatch.setattr(owner, work, is_free(name, getattr(owner, work)))
    run(source, settings=SourceOptions())
    assert free == {"select": True, "evaluate": True, "report": True}


# --- directories ----------------------------------------------------------------------------------


def test_every_question_has_a_directory_of_its_own(source, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "corpus.jsonl").write_bytes(Path(source).read_bytes())
    questions = [
        {"source": source},
        {"source": "other/corpus.jsonl"},
        {"source": source, "parameters": {"gamma": 0.5}},
        {"source": source, "settings": SourceOptions(tile_rows=50)},
        {"source": source, "settings": SourceOptions(weight="tfidf")},
        {"source": source, "features": 12},
        {"source": source, "method": "anova"},
        {"source": source, "features": "auto"},
        {"source": source, "features": "auto", "scoring": {"metrics": ["macro_f1"]}},
    ]
    names = [Job(**question).with_out().out for question in questions]
    assert len(set(names)) == len(questions)
    assert all(re.fullmatch(r"runs/corpus.jsonl-([\w-]+-)?[0-9a-f]{8}", name) for name in names)
    spelled = [Job(source=way).with_out().out for way in ("corpus.jsonl", "./corpus.jsonl", source)]
    assert spelled == [names[0]] * 3
    # how it is scored and where the work is done is no other question
    same = Job(source=source, scoring={"sizes": [3]}, engine=SERIAL, fresh=True)
    assert same.with_out().out == names[0]


def test_a_directory_with_another_result_is_refused_unless_fresh(source, bigfs):
    command = ("run", source, "--method", "anova", "--workers", 0, "--out", "r", "--features")
    assert bigfs(*command, 12)[0] == 0
    said = "r holds another result (12 features of corpus.jsonl by anova): give another --out"
    fails(bigfs(*command, 11), said)
    write_corpus(Path("other.jsonl"), seed=4)
    fails(bigfs("run", "other.jsonl", *command[2:], 12), said)
    fails(bigfs("select", storage.find_store("corpus.jsonl"), *command[2:], 11), said)
    assert len(Run.open("r").selected) == 12
    assert bigfs(*command, 11, "--fresh")[0] == 0
    assert len(Run.open("r").selected) == 11


def test_a_corpus_that_has_changed_keeps_its_directory_and_the_command_says_so(source, bigfs):
    command = ("run", "corpus.jsonl", "--method", "anova", "--features", 12, "--workers", 0)
    *_, out, _ = bigfs(*command)[1].splitlines()  # the report, and the verdict
    write_corpus(Path("corpus.jsonl"), seed=4)
    status, again, err = bigfs(*command)
    assert (status, again.splitlines()[-2]) == (0, out)
    assert "holds the result of an earlier state of corpus.jsonl or of bigfs: it is kept" in err
    status, _, err = bigfs(*command, "--sizes", "3")
    assert status == 0
    assert "is scored again, by other choices" in err


def test_a_selection_is_taken_up_by_a_run(source, bigfs, done):
    store = storage.stage("corpus.jsonl")
    done.clear()
    words = ("--method", "anova", "--features", 12, "--workers", 0, "--out", "r")
    assert bigfs("select", store, *words)[0] == 0
    assert done == ["select", "report"]
    assert "curves" not in Run.open("r").metadata
    assert "has this result already" in bigfs("select", store, *words)[2]
    assert bigfs("run", "corpus.jsonl", *words)[0] == 0
    assert done == ["select", "report", "evaluate", "report"]
    assert Run.open("r").metadata["curves"]
    # the store is a source too
    assert "has this result already" in bigfs("run", store, *words)[2]
    fails(bigfs("run", store, *words, "--min-df", 3), "min_df is for staging: leave it out")


# --- errors ---------------------------------------------------------------------------------------


def client_error(module, names, **attributes):
    """Return an error as a client of an object store raises it: of a class with these bases."""
    kind = Exception
    for name in reversed(names):
        kind = type(name, (kind,), {"__module__": module})
    error = kind("refused")
    vars(error).update(attributes)
    return error


def answered(status):
    return {"response": {"ResponseMetadata": {"HTTPStatusCode": status}}}


BOTOCORE, AIOHTTP = "botocore.exceptions", "aiohttp.client_exceptions"


@pytest.mark.parametrize(
    ("module", "names", "attributes", "again"),
    [
        (BOTOCORE, ["NoCredentialsError", "BotoCoreError"], {}, False),
        (BOTOCORE, ["ParamValidationError", "BotoCoreError"], {}, False),
        (BOTOCORE, ["EndpointConnectionError", "ConnectionError", "BotoCoreError"], {}, True),
        (BOTOCORE, ["ReadTimeoutError", "HTTPClientError", "BotoCoreError"], {}, True),
        (BOTOCORE, ["ClientError"], answered(403), False),
        (BOTOCORE, ["ClientError"], answered(404), False),
        (BOTOCORE, ["ClientError"], answered(429), True),
        (BOTOCORE, ["ClientError"], answered(503), True),
        (AIOHTTP, ["ClientResponseError", "ClientError"], {"status": 401}, False),
        (AIOHTTP, ["ClientResponseError", "ClientError"], {"status": 502}, True),
        (AIOHTTP, ["ServerDisconnectedError", "ClientConnectionError", "ClientError"], {}, True),
        (AIOHTTP, ["ClientPayloadError", "ClientError"], {}, True),
    ],
)
def test_only_a_broken_connection_or_a_busy_object_store_is_asked_again(
    module, names, attributes, again
):
    error = client_error(module, names, **attributes)
    assert may_pass(error) is again
    wrapped = StoreError("s3://there cannot be reached")
    wrapped.__cause__ = error
    assert may_pass(wrapped) is again


# --- time -----------------------------------------------------------------------------------------


def test_the_age_of_a_process_is_what_its_parent_measures():
    """psutil's own time of the start is off where the clock was corrected after the boot."""
    began = time.perf_counter()
    code = "from bigfs.flows.report.provenance import process_age; print(process_age())"
    age = float(subprocess.check_output([sys.executable, "-c", code]))
    longest = time.perf_counter() - began
    assert longest / 2 < age < longest + 0.02  # the kernel counts in hundredths of a second


def test_without_a_number_half_of_the_features_of_a_small_corpus_are_selected(bigfs):
    source = write_corpus(Path("corpus.jsonl"), seed=3)  # of 60 features
    words = ("run", source, "-m", "anova", "--workers", 0, "--out", "r")
    status, _, err = bigfs(*words)
    assert status == 0
    assert "bigfs: 30 of 60 features are selected: --features gives another number" in err
    assert len(Run.open("r").selected) == Run.open("r").metadata["n_features"] == 30
    assert "has this result already" in bigfs(*words)[2]
    fails(bigfs(*words, "-n", 20), "r holds another result (30 features of")
    assert bigfs("evaluate", "r", "--workers", 0)[0] == 0
    assert bigfs("stability", Run.open("r").store, "s.csv", "-m", "anova", "--workers", 0)[0] == 0
