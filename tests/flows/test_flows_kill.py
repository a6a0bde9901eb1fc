"""`bigfs run` killed −9 in a stage, then run again: it goes on from where it was, to the same
answer, and says so.
"""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from bigfs.storage.runs.runs import Run
from tests.helpers import stages
from tests.helpers.processes import CANARY, assert_no_secrets, kill, start, until, write_corpus

pytestmark = pytest.mark.process

COMMAND = [
    sys.executable,
    "-m",
    "bigfs",
    "run",
    "corpus.jsonl",
    "--method",
    "sparge-lpp",
    "--features",
    "12",
    "--set",
    "tol=1e-3",
]
COMMAND += ["--workers", "0", "--tile-rows", "1500", "--out", "runs/r"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The answer of a run that nobody kills."""
    home = tmp_path_factory.mktemp("whole")
    store = stages.stage(
        write_corpus(home / "corpus.jsonl", seed=3, rows=9000),
        str(home / "s.zarr"),
        {"tile_rows": 1500},
    )["store"]
    return stages.select(
        store, home / "run", method="sparge-lpp", features=12, parameters={"tol": 1e-3}
    )


def in_staging(home):
    return any(home.glob(".bigfs/.*.staging/spills/*"))


def in_the_graph(home):
    return any(home.glob(".bigfs/*.graphs/.*.staging"))


def in_the_method(home):
    return any(home.glob("runs/.r/*/checkpoints/*.npz"))


def made(home):
    """When the stores and the graphs of a folder were made."""
    roots = [*home.glob(".bigfs/*.zarr"), *home.glob(".bigfs/*.graphs/*")]
    files = [root / "zarr.json" for root in roots if (root / "zarr.json").exists()]
    return {str(file): file.stat().st_mtime_ns for file in files}


@pytest.mark.parametrize(
    ("there", "n_whole"),
    [
        pytest.param(in_staging, 0, marks=pytest.mark.nightly),
        pytest.param(in_the_graph, 1, marks=pytest.mark.nightly),
        (in_the_method, 2),
    ],
)
def test_a_killed_run_goes_on(prefect_server, uninterrupted, tmp_path, there, n_whole):
    env = prefect_server.env | {"PREFECT_LOGGING_LEVEL": "INFO", "AWS_SECRET_ACCESS_KEY": CANARY}
    env["PREFECT_LOCAL_STORAGE_PATH"] = str(tmp_path / "results")
    write_corpus(tmp_path / "corpus.jsonl", seed=3, rows=9000)
    first = start(COMMAND, tmp_path / "first.log", env, tmp_path)
    until(
        lambda: there(tmp_path) or first.poll() is not None,
        "the stage to kill in",
        240,
        every=0.002,
    )
    os.kill(first.pid, signal.SIGSTOP)  # so that it does not end before it is killed
    assert first.poll() is None, (tmp_path / "first.log").read_text()
    assert not (tmp_path / "runs" / "r").exists()
    kill(first)
    whole = made(tmp_path)
    assert len(whole) == n_whole
    again = subprocess.run(
        COMMAND, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400
    )
    log = again.stdout + again.stderr
    assert again.returncode == 0, log
    assert made(tmp_path).items() >= whole.items()  # none was made again
    run = Run.open(tmp_path / "runs" / "r")
    assert bool(run.metadata["resumed"]) is (there is in_the_method)
    np.testing.assert_array_equal(run.selected, uninterrupted.selected)
    np.testing.assert_array_equal(run.scores, uninterrupted.scores)
    assert len(run.metadata["history"]) == len(uninterrupted.metadata["history"])
    assert_no_secrets(tmp_path, log)
