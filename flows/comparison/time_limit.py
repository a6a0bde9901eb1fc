"""A limit of time for a part of the work."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any, NoReturn


class TimeLimitError(TimeoutError):
    """The block of `time_limit` took too long. A socket's `TimeoutError` is none."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeLimitError` in the block once it has taken so long, also in a call that waits.

    It is for the main thread, which alone gets signals.
    """

    def end(*_: Any) -> NoReturn:
        raise TimeLimitError(f"it took longer than {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
