"""A limit of time for a part of the work, in the main thread or in another one."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
from collections.abc import Iterator
from typing import Any, NoReturn


class TooLate(TimeoutError):
    """The block of `time_limit` took too long. A socket's `TimeoutError` is none."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TooLate` in the block once it has taken so long.

    In the main thread a signal ends even a call that waits. In another thread the error comes when
    the call that runs at that moment returns.
    """
    is_main = threading.current_thread() is threading.main_thread()
    with _alarm(seconds) if is_main else _timer(seconds):
        yield


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def end(*_: Any) -> NoReturn:
        raise TooLate(f"it took longer than {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@contextlib.contextmanager
def _timer(seconds: float) -> Iterator[None]:
    thread, lock, is_over = threading.get_ident(), threading.Lock(), False

    def end() -> None:
        with lock:
            if not is_over:
                interrupt(thread, TooLate)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            is_over = True
        timer.cancel()


def interrupt(thread: int, error: type[BaseException]) -> None:
    """Raise an error in another thread, when the call that it runs returns."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
