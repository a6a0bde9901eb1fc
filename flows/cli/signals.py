"""Handling of Ctrl-C and `kill`: the command ends within seconds with one line, a documented exit
status, and no process left behind.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import psutil

# the exit status is 128 plus the signal's number
SIGNAL_WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "the terminal was closed",
}
SECONDS = 15.0  # in which the command ends by itself, with its flow's state and its cluster
CHILD_SECONDS = 2.0

_received: list[int] = []
_deadlines: list[threading.Timer] = []  # of the signals received


@contextlib.contextmanager
def handle_signals() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into `KeyboardInterrupt` for the block, then exit with the
    status of the signal. SIGHUP stays ignored under `nohup`.

    A second signal exits at once, and so does a block that has not ended after `SECONDS`.
    """
    previous = {
        end: signal.signal(end, _handle_signal)
        for end in SIGNAL_WORDS
        if not (end == signal.SIGHUP and signal.getsignal(end) == signal.SIG_IGN)
    }
    try:
        yield
    except KeyboardInterrupt:
        note(signal.SIGINT)
    finally:
        for end, handler in previous.items():
            signal.signal(end, handler)
    if _received:
        number = _received[0]
        while _deadlines:
            _deadlines.pop().cancel()
        end_children()
        _say(number)
        _received.clear()
        sys.exit(128 + number)


def note(number: int) -> None:
    """Remember a signal that another handler took."""
    if not _received:
        logging.disable()  # errors of interrupted work are expected
        _received.append(number)


def end_children() -> None:
    """End every process that this one started, with their own children."""
    children = [
        child for child in psutil.Process().children(recursive=True) if not _ends_last(child)
    ]
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                end(child)
        children = psutil.wait_procs(children, timeout=CHILD_SECONDS)[1]


def _ends_last(child: psutil.Process) -> bool:
    """Return whether this is Python's resource tracker, which ignores signals and cleans up after
    this process.
    """
    try:
        return "multiprocessing.resource_tracker" in " ".join(child.cmdline())
    except psutil.NoSuchProcess:
        return True


def _handle_signal(number: int, _frame: Any) -> NoReturn:
    if _received:
        _exit_now()
    note(number)
    deadline = threading.Timer(SECONDS, _exit_now)
    deadline.daemon = True
    _deadlines.append(deadline)
    deadline.start()
    raise KeyboardInterrupt


def _exit_now() -> NoReturn:
    number = _received[0]
    end_children()
    _say(number)
    os._exit(128 + number)


def _say(number: int) -> None:
    print(f"bigfs: {SIGNAL_WORDS[signal.Signals(number)]}", file=sys.stderr, flush=True)
