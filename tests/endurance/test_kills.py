"""`bigfs run` on local workers, killed at random moments and given again.

The second command selects the same features as one that nobody killed, and no process and no file
is left. A kill is drawn from its number, which the name of its test holds.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid

import psutil
import pytest

from bigfs.storage.runs.runs import Run
from tests.helpers.processes import environment, start, until, write_corpus

KILLS = int(os.environ.get("BIGFS_KILLS", "8"))
COMMAND = [sys.executable, "-m", "bigfs", "run", "corpus.jsonl", "--method", "sparge-lpp"]
COMMAND += ["--features", "12", "--set", "tol=1e-3", "--workers", "2", "--out", "runs/r"]
pytestmark = [pytest.mark.process, pytest.mark.nightly]


class Runs:
    """A folder in which a command is called, by processes that carry a mark."""

    def __init__(self, home):
        self.home, self.mark = home, uuid.uuid4().hex
        (home / "temporary").mkdir()
        marks = {"TMPDIR": str(home / "temporary"), "BIGFS_TEST_MARK": self.mark}
        self.env = environment(home / "prefect", **marks)
        write_corpus(home / "corpus.jsonl", seed=3, rows=3000)

    def start(self):
        return start(COMMAND, self.home / "log", self.env, self.home)

    def processes(self):
        """Return the living processes that carry the mark."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("BIGFS_TEST_MARK") == self.mark:
                    found += [process] * (process.status() != psutil.STATUS_ZOMBIE)
        return found

    def finish(self, process):
        """Wait for a command and for all that it started."""
        process.wait(300)
        try:
            until(lambda: not self.processes(), "the end of all processes", 60)
        finally:
            for left in self.processes():
                left.kill()

    def left(self):
        """Return the files, but for what stores, results and counts hold. Of a killed process the
        folder of its sockets stays, which Python's multiprocessing made.
        """
        files = [str(path.relative_to(self.home)) for path in self.home.rglob("*")]
        others = (".zarr/", "/.r/", ".counts/", "temporary/pymp-")
        return {file for file in files if not any(other in file for other in others)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run that nobody kills, and the seconds that it took."""
    runs, began = Runs(tmp_path_factory.mktemp("whole")), time.monotonic()
    runs.finish(process := runs.start())
    assert process.returncode == 0, (runs.home / "log").read_text()
    return runs, time.monotonic() - began


@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_run_is_given_again(number, undisturbed, tmp_path):
    whole, seconds = undisturbed
    chosen, runs = random.Random(number), Runs(tmp_path)
    process = runs.start()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(chosen.uniform(0, seconds))
    with contextlib.suppress(psutil.Error):
        struck = [psutil.Process(process.pid)]
        if number % 2:
            children = struck.pop().children()
            struck = [c for c in children if "spawn_main" in " ".join(c.cmdline())]
        if struck:
            sign = (signal.SIGKILL, signal.SIGTERM)[number // 2 % 2]
            chosen.choice(struck).send_signal(sign)
    runs.finish(process)
    runs.finish(again := runs.start())
    assert again.returncode == 0, (tmp_path / "log").read_text()
    found, expected = (Run.open(one.home / "runs/r") for one in (runs, whole))
    assert found.selected.tolist() == expected.selected.tolist()
    assert found.scores.tolist() == expected.scores.tolist()
    assert runs.left() == whole.left()
