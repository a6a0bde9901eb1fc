"""One run at a time on one corpus and in one directory, between processes and between flows."""

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
    """Another run works on the same corpus or directory, and we were told not to wait."""


@contextlib.contextmanager
def alone(
    places: Iterable[str], *, wait: bool, say: Callable[[str], None] = print
) -> Iterator[None]:
    """Hold `places` for the block. The locks of a killed process fall open by themselves.

    A place in a folder that this process can't write needs no lock: nothing is written there.

    Parameters
    ----------
    places : iterable of str
        Stores, run directories or files: paths or fsspec URLs.
    wait : bool
        Whether to wait for a place that another process holds.
    say : callable, default=print
        Called with a sentence that says what is waited for.

    Raises
    ------
    Busy
        A place is held and `wait` is False.
    """
    with contextlib.ExitStack() as held:
        files = {_file(place): place for place in places}
        for file in sorted(files):  # everybody in the same order: no two wait for one another
            held.enter_context(_folder(file.parent))
            if not os.access(file.parent, os.W_OK | os.X_OK):
                continue
            require_lock_file(file)
            lock = _acquired(file, files[file], wait, say)
            held.callback(lock.release)
            # while it is held: who waits for it sees that it is gone, and locks a new one
            held.callback(file.unlink, missing_ok=True)
        yield


def _acquired(file: Path, place: str, wait: bool, say: Callable[[str], None]) -> FileLock:
    lock, waited = FileLock(file), False
    while True:
        # who held the lock took the folder away: make it again
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
    """Beside a local place; of a remote one, in this folder's .bigfs."""
    if "://" in place:
        return (
            Path(".bigfs").absolute()
            / f".{hashlib.sha256(place.encode()).hexdigest()[:16]}.run.lock"
        )
    path = Path(os.path.realpath(place))
    return path.with_name(f".{path.name}.run.lock")


@contextlib.contextmanager
def _folder(folder: Path) -> Iterator[None]:
    """Make a folder, and take it away again if nothing was put there."""
    missing = [parent for parent in (folder, *folder.parents) if not os.path.lexists(parent)]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # not empty, or gone
            for parent in missing:
                parent.rmdir()
