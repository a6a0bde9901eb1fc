"""A limit of time ends a block, and nothing after it."""

import signal
import time

import pytest

from bigfs.flows.comparison.time_limit import time_limit

LONG = 30.0  # seconds


def test_a_late_block_ends_with_an_error():
    with pytest.raises(TimeoutError, match=r"it took longer than 0.05 s"), time_limit(0.05):
        time.sleep(LONG)


def test_a_block_in_time_leaves_nothing_behind():
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(LONG):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_error_of_the_block_comes_through():
    with pytest.raises(KeyError), time_limit(LONG):
        raise KeyError("own")
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
