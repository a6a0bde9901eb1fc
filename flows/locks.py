"""One run at a time on one corpus and in one directory, between processes and between flows."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout


class Busy(RuntimeError):
    """Another run works on the same corpus or directory, and we were told not to wait."""


@contextlib.contextmanager
def alone(places: Iterable[str], *, wait: bool, say: Callable[[str], None] = print) -> Iterator[None]:
    """Hold `places` (stores, run directories) for the block; the locks of a killed process fall open by themselves.

    Raises `Busy` at once if one is held and `wait` is False; else `say`s what it waits for.
    """
    with contextlib.ExitStack() as held:
        for place in sorted(set(places)):  # everybody in the same order: no two wait for one another
            lock = FileLock(_file(place))
            try:
                lock.acquire(timeout=0)
            except Timeout:
                if not wait:
                    raise Busy(f"another run works on {place}") from None
                say(f"another run works on {place}: waiting for it to end")
                lock.acquire()
            held.callback(lock.release)
        yield


def _file(place: str) -> Path:
    """Beside a local place; of a remote one, in this folder's .bigfs."""
    if "://" in place:
        file = Path(".bigfs") / f".{hashlib.sha256(place.encode()).hexdigest()[:16]}.run.lock"
    else:
        path = Path(place).absolute()
        file = path.with_name(f".{path.name}.run.lock")
    file.parent.mkdir(parents=True, exist_ok=True)
    return file
