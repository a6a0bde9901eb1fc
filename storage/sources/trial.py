"""A child process that tries what a library does with a foreign file before this one does it.

A damaged file can end the process that reads it, or keep it for ever.
"""

from __future__ import annotations

import atexit
import os
import select
import subprocess
import sys
import threading
from functools import cache

# tries each file that is sent as its length and its bytes; the last line of its output answers
LOOP = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
most, hard = 1 << 33, resource.getrlimit(resource.RLIMIT_AS)[1]
if sys.platform == "linux" and not 0 <= hard < most:  # a part of a file may claim any size
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
while size := sys.stdin.buffer.read(8):
    try:
        answer = tried(sys.stdin.buffer.read(int.from_bytes(size, "little")))
    except Exception:
        answer = "error"
    print("answer", answer, flush=True)
"""


class Trial:
    """A child process that tries one thing after the other, for the time of this process.

    Parameters
    ----------
    script : str
        Defines ``tried(raw)``, which returns the words of an answer. A line that it prints is a
        sign that it works.
    patience : float, default=60
        Seconds without a sign, after which the child is given up.
    """

    def __init__(self, script: str, patience: float = 60.0) -> None:
        self.script, self.patience = script, patience
        self.child: subprocess.Popen[bytes] | None = None
        self.lock = threading.Lock()  # of the pipes

    def ask(self, raw: bytes) -> list[str] | None:
        """Return the answer, or None where the child ends or hangs."""
        with self.lock:
            return self._ask(raw)

    def _ask(self, raw: bytes) -> list[str] | None:
        if self.child is not None and self.child.poll() is not None:
            self.close()
        if self.child is None:
            pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
            command = [sys.executable, "-c", self.script + LOOP]
            self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing)
        assert self.child.stdin
        assert self.child.stdout
        try:
            self.child.stdin.write(len(raw).to_bytes(8, "little") + raw)
            self.child.stdin.flush()
            line, out, signs = b"", self.child.stdout.fileno(), select.poll()
            signs.register(out, select.POLLIN)
            while signs.poll(1000 * self.patience):
                if not (block := os.read(out, 1 << 16)):
                    break
                line = (line.rpartition(b"\n")[2] if line.endswith(b"\n") else line) + block
                *_, last = line.rstrip(b"\n").rsplit(b"\n", 1)
                if line.endswith(b"\n") and last.startswith(b"answer "):
                    return last.decode().split()[1:]
        except BrokenPipeError:
            pass
        self.close()
        return None

    def close(self) -> None:
        """End the child, if there is one."""
        if self.child is not None:
            self.child.kill()
            self.child.communicate()
            self.child = None


def trial(script: str) -> Trial:
    """Return the trial of a script in this process."""
    return _trial(script, os.getpid())


@cache
def _trial(script: str, process: int) -> Trial:
    made = Trial(script)
    atexit.register(made.close)
    return made
