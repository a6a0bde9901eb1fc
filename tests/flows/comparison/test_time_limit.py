"""A limit of time ends a block in the main thread and in another one, and nothing after it."""

import signal
import threading
import time

import pytest
from bigfs.flows.comparison.time_limit import time_limit

LONG = 30.0  # seconds


def wait():
    """Wait in small steps, as a thread that computes."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        time.sleep(0.01)


def in_thread(call):
    """The error that a call raises in a thread of its own, or None."""
    errors = []

    def run():
        try:
            call()
        except TimeoutError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(LONG)
    assert not thread.is_alive()
    return errors[0] if errors else None


def late():
    with time_limit(0.05):
        wait()
    pytest.fail("the block ended by itself")


def in_time():
    with time_limit(0.05):
        pass
    time.sleep(0.1)


def test_a_late_block_ends_with_an_error():
    with pytest.raises(TimeoutError, match=r"it took longer than 0.05 s"), time_limit(0.05):
        time.sleep(LONG)
    assert isinstance(in_thread(late), TimeoutError)


def test_a_block_in_time_leaves_nothing_behind():
    before = signal.getsignal(signal.SIGALRM)
    in_time()
    assert signal.getsignal(signal.SIGALRM) is before
    assert in_thread(in_time) is None


def test_an_error_of_the_block_comes_through():
    with pytest.raises(KeyError), time_limit(LONG):
        raise KeyError("own")
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
