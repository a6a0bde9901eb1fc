"""Locks: at most one run per corpus and per directory, across processes and flows."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from storage.ownership import require_lock_file
from storage.replacing import writing


class AlreadyRunning(RuntimeError):
    """Another run works on the same corpus or directory, and the caller does not wait."""


@contextlib.contextmanager
def exclusive(
    paths: Iterable[str], *, wait: bool, say: Callable[[str], None] = print
) -> Iterator[None]:
    """Lock `paths` for the block. The system releases the locks of a killed process.

    A path in a read-only folder needs no lock, because nothing is written there.

    Parameters
    ----------
    paths : iterable of str
        Stores, run directories or files: paths or fsspec URLs.
    wait : bool
        Whether to wait for a lock that another process holds.
    say : callable, default=print
        Called with a sentence that names the path if another process holds its lock.

    Raises
    ------
    AlreadyRunning
        Another process holds a lock and `wait` is False.
    """
    with contextlib.ExitStack() as stack:
        files = {_lock_file(path): path for path in paths}
        for file in sorted(files):  # the same order everywhere, so that no two processes deadlock
            stack.enter_context(_temporary_folder(file.parent))
            if not os.access(file.parent, os.W_OK | os.X_OK):
                continue
            require_lock_file(file)
            lock = _acquire(file, files[file], wait, say)
            stack.callback(lock.release)
            # removed while held: a waiting process sees that the file is gone and locks a new one
            stack.callback(file.unlink, missing_ok=True)
        yield


def _acquire(file: Path, path: str, wait: bool, say: Callable[[str], None]) -> FileLock:
    lock, waited = FileLock(file), False
    while True:
        # the last holder may have removed the folder: make it again
        with contextlib.suppress(FileNotFoundError):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=1 if waited else 0)
                return lock
            except Timeout:
                if not wait:
                    raise AlreadyRunning(f"another run works on {path}") from None
            if not waited:
                say(f"another run works on {path}: waiting for it to end")
            waited = True


def _lock_file(path: str) -> Path:
    """Return the lock file: beside a local path, or in .bigfs here for a remote one."""
    if "://" in path:
        return (
            Path(".bigfs").absolute()
            / f".{hashlib.sha256(path.encode()).hexdigest()[:16]}.run.lock"
        )
    target = Path(os.path.realpath(path))
    return target.with_name(f".{target.name}.run.lock")


@contextlib.contextmanager
def _temporary_folder(folder: Path) -> Iterator[None]:
    """Make a folder for the block, and remove it afterwards if it is empty."""
    missing = [parent for parent in (folder, *folder.parents) if not os.path.lexists(parent)]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # not empty, or gone
            for parent in missing:
                parent.rmdir()
