"""Ctrl-C, `kill` and `kill -9` of a command: one line, the documented status, no process left
behind.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from bigfs.flows.cli import signals
from tests.helpers import stages
from tests.helpers.processes import environment, give_database, until, write_corpus

pytestmark = pytest.mark.process

BIGFS = [sys.executable, "-m", "bigfs"]
METHOD = [
    "--method",
    "sparge-lda",
    "--features",
    "12",
    "--set",
    "tol=1e-9",
    "--workers",
    "1",
    "--memory-limit",
    "600MB",
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a corpus and its store."""
    home = tmp_path_factory.mktemp("signals")
    give_database(home / "prefect")
    stages.stage(
        write_corpus(home / "corpus.svm", seed=3, rows=9000),
        str(home / "s.zarr"),
        {"tile_rows": 1500},
    )
    return home


def interrupted(home, command, send, working):
    """Send a signal to a command at work. Returns its exit status, its output and error."""
    with subprocess.Popen(
        [*BIGFS, *command],
        cwd=home,
        env=environment(home / "prefect"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            parent = psutil.Process(process.pid)
            tree = until(
                lambda: (
                    process.poll() is not None or (working() and parent.children(recursive=True))
                ),
                "the method's work",
                200,
                every=0.01,
            )
            assert process.poll() is None, process.communicate()
            send(process.pid)
            # also the end of its children that hold the pipes
            out, err = process.communicate(timeout=60)
            alive = psutil.wait_procs(tree, timeout=30)[1]
        finally:
            process.kill()
    assert not alive, [left.cmdline() for left in alive]
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("command", "send", "status", "said"),
    [
        ("run", lambda pid: os.kill(pid, signal.SIGTERM), 143, "bigfs: terminated"),
        ("run", lambda pid: os.kill(pid, signal.SIGKILL), -9, None),
        ("select", lambda pid: os.killpg(pid, signal.SIGINT), 130, "bigfs: interrupted"),
    ],
    ids=["SIGTERM", "SIGKILL", "SIGINT"],
)
def test_signal_ends_every_process_with_one_line(home, command, send, status, said):
    out = f"r-{command}-{status}"
    words = (
        ["run", "corpus.svm", "--store", "s.zarr", "--tile-rows", "1500"]
        if command == "run"
        else ["select", "s.zarr"]
    )
    code, printed, err = interrupted(
        home,
        [*words, *METHOD, "--out", out, "--json"],
        send,
        lambda: any(home.glob(f".{out}/*/checkpoints/*.npz")),
    )
    assert code == status
    assert printed == ""
    if said:  # after kill -9 nobody is left to keep the workers' last words back
        lines = [line for line in err.splitlines() if line and not line.startswith("read: ")]
        assert lines == [said]
    assert not (home / out).exists()
    assert any(home.glob(f".{out}/*/checkpoints/*.npz"))


# --- in this process ------------------------------------------------------------------------------


@signals.handle_signals()
def wait_for(number, swallowed=()):
    with contextlib.suppress(*swallowed):
        os.kill(os.getpid(), number)
        time.sleep(30)


@pytest.fixture
def loud(monkeypatch):
    """A process that logs again afterwards, and keeps the servers that other tests use."""
    others, ends_last = psutil.Process().children(recursive=True), signals._ends_last
    monkeypatch.setattr(signals, "_ends_last", lambda child: child in others or ends_last(child))
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
        (signal.SIGHUP, 129, "the terminal was closed"),
    ],
)
def test_signal_is_one_line_and_the_handlers_return(loud, capsys, number, status, said):
    outer = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit, match=str(status)):
            wait_for(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, outer)
    assert capsys.readouterr().err == f"bigfs: {said}\n"
    # the deadline is off: it would end this process later
    assert not [
        t
        for t in threading.enumerate()
        if isinstance(t, threading.Timer) and not t.finished.is_set()
    ]


def test_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with signals.handle_signals():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


END_AT_ONCE = """
import signal
from bigfs import engine
from bigfs.flows.cli import signals
if __name__ == "__main__":
    with engine.cluster(workers=1, memory_limit="600MB"):
        signals.note(signal.SIGTERM)
        signals._exit_now()
"""


def test_process_that_ends_at_once_says_nothing_of_leaks(tmp_path):
    script = tmp_path / "ends.py"
    script.write_text(END_AT_ONCE)
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment(tmp_path)
    )
    assert (ended.returncode, ended.stderr) == (143, "bigfs: terminated\n")


def test_signal_counts_where_a_library_swallows_it(loud):
    with pytest.raises(SystemExit, match="143"):
        wait_for(signal.SIGTERM, swallowed=[KeyboardInterrupt])


def test_signal_ends_children_that_ignore_it(loud):
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        with pytest.raises(SystemExit, match="143"):
            wait_for(signal.SIGTERM)
        assert not psutil.pid_exists(child.pid)
