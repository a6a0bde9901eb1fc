"""Locks: at most one run per corpus and per directory, across processes and flows."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from bigfs.storage.atomic import explain_write_errors, require_lock_file
from filelock import FileLock, Timeout

from bigfs.engine.display import json_line

log = logging.getLogger("bigfs.flows")
# whether `inform` only logs, and whether lines on stderr are JSON objects
notes = {"silent": False, "json": False}


class AlreadyRunning(RuntimeError):
    """Another run works on the same corpus or directory, and the caller does not wait."""


def inform(text: str) -> None:
    """Print a line of this program on stderr, and log it, so that Prefect shows it too."""
    if not notes["silent"]:
        say(text)
    log.info(text)


def say(text: str, level: str = "info") -> None:
    """Print a line of this program on stderr, as text or as a JSON object."""
    line = json_line(level=level, message=text) if notes["json"] else f"bigfs: {text}"
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def exclusive(paths: Iterable[str], *, wait: bool) -> Iterator[None]:
    """Lock `paths` for the block. The system releases the locks of a killed process.

    The lock files stay: if one were removed, a process that waits for it and one that comes later
    could both hold the lock. A path in a read-only folder needs no lock, because nothing is written
    there.
    """
    with contextlib.ExitStack() as stack:
        files = {_lock_file(path): path for path in paths}
        for file in sorted(files):  # the same order everywhere, so that no two processes deadlock
            with explain_write_errors(file.parent):
                file.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(file.parent, os.W_OK | os.X_OK):
                continue
            require_lock_file(file)
            lock = FileLock(file)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                if not wait:
                    raise AlreadyRunning(f"another run works on {files[file]}") from None
                inform(f"another run works on {files[file]}: waiting for it to end")
                lock.acquire()
            stack.callback(lock.release)
        yield


def _lock_file(path: str) -> Path:
    """Return the lock file: beside a local path, or in .bigfs here for a remote one."""
    if "://" in path:
        return (
            Path(".bigfs").absolute()
            / f".{hashlib.sha256(path.encode()).hexdigest()[:16]}.run.lock"
        )
    target = Path(os.path.realpath(path))
    return target.with_name(f".{target.name}.run.lock")
