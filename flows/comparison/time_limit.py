"""A limit of time for a part of the work."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any, NoReturn


class TimeLimitError(TimeoutError):
    """The block of `time_limit` took too long. A socket's `TimeoutError` is another class."""


@contextlib.contextmanager
def time_limit(seconds: float, timer: int = signal.ITIMER_REAL) -> Iterator[None]:
    """Raise `TimeLimitError` in the block once it has taken so long, also in a call that waits.

    It is for the main thread, which alone gets signals. With `signal.ITIMER_PROF` it is the
    processor time of this process.
    """

    def end(*_: Any) -> NoReturn:
        raise TimeLimitError(f"it took longer than {seconds:g} s")

    number = signal.SIGPROF if timer == signal.ITIMER_PROF else signal.SIGALRM
    previous = signal.signal(number, end)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, previous)
