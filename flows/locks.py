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


class Busy(RuntimeError):
    """Another run works on the same corpus or directory, and the caller does not wait."""


@contextlib.contextmanager
def alone(
    places: Iterable[str], *, wait: bool, say: Callable[[str], None] = print
) -> Iterator[None]:
    """Lock `places` for the block. The system releases the locks of a killed process.

    A place in a read-only folder needs no lock, because nothing is written there.

    Parameters
    ----------
    places : iterable of str
        Stores, run directories or files: paths or fsspec URLs.
    wait : bool
        Whether to wait for a place that another process holds.
    say : callable, default=print
        Called with a sentence that names the place when the lock is held.

    Raises
    ------
    Busy
        A place is held and `wait` is False.
    """
    with contextlib.ExitStack() as held:
        files = {_file(place): place for place in places}
        for file in sorted(files):  # the same order everywhere, so that no two processes deadlock
            held.enter_context(_folder(file.parent))
            if not os.access(file.parent, os.W_OK | os.X_OK):
                continue
            require_lock_file(file)
            lock = _acquired(file, files[file], wait, say)
            held.callback(lock.release)
            # removed while held: a waiting process sees that the file is gone and locks a new one
            held.callback(file.unlink, missing_ok=True)
        yield


def _acquired(file: Path, place: str, wait: bool, say: Callable[[str], None]) -> FileLock:
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
                    raise Busy(f"another run works on {place}") from None
            if not waited:
                say(f"another run works on {place}: waiting for it to end")
            waited = True


def _file(place: str) -> Path:
    """Return the lock file: beside a local place, or in .bigfs here for a remote one."""
    if "://" in place:
        return (
            Path(".bigfs").absolute()
            / f".{hashlib.sha256(place.encode()).hexdigest()[:16]}.run.lock"
        )
    path = Path(os.path.realpath(place))
    return path.with_name(f".{path.name}.run.lock")


@contextlib.contextmanager
def _folder(folder: Path) -> Iterator[None]:
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
