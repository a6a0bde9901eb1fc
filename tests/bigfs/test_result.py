from typing import NamedTuple

import numpy as np
import pytest

from bigfs.engine import NotEnoughMemory
from bigfs.result import NotConverged, Status, iterate, observed
from tests.helpers.fitting import MemoryCheckpoint


class Halving(NamedTuple):
    x: np.ndarray
    steps: int


def step(state):
    return Halving(state.x / 2, state.steps + 1)


def run(step=step, **options):
    settings = {
        "measure": lambda s: {"change": float(abs(s.x).max())},
        "stop": "change",
        "tol": 1e-2,
        "max_iter": 50,
        "name": "halving",
    }
    return iterate(step, Halving(np.ones(2), 0), **settings | options)


def test_stops_at_the_tolerance():
    result = run()
    assert result.status is Status.CONVERGED
    assert result.converged
    assert result.value.steps == 7
    assert [r["change"] for r in result.history] == [2.0**-k for k in range(1, 8)]


def test_the_iteration_limit_is_a_status_and_a_warning_with_the_gap():
    with pytest.warns(
        NotConverged, match=r"halving stopped at the iteration " r"limit.*change 1\.25e-01"
    ):
        result = run(max_iter=3)
    assert result.status is Status.MAX_ITER
    assert not result.converged


def test_nan_ends_the_run():
    with pytest.warns(NotConverged, match="NaN or infinity"):
        assert run(step=lambda s: s._replace(x=s.x * np.nan)).status is Status.NOT_FINITE


def test_a_step_that_does_not_fit_in_memory_ends_the_run_at_the_state_before():
    def hungry(state):
        if state.steps == 2:
            raise NotEnoughMemory("the third step needs 2 GB")
        return step(state)

    with pytest.warns(NotConverged, match=r"does not fit in memory.*change 2\.50e-01"):
        result = run(step=hungry, no_room=NotEnoughMemory)
    assert result.status is Status.MEMORY
    assert result.value.steps == len(result.history) == 2
    with pytest.raises(NotEnoughMemory, match="third step"):  # there is no state to return
        run(step=lambda state: hungry(state._replace(steps=2)), no_room=NotEnoughMemory)
    with pytest.raises(NotEnoughMemory, match="third step"):
        run(step=hungry)


def test_a_killed_run_goes_on_from_its_checkpoint():
    memory, seen = MemoryCheckpoint(), []

    def dies(state):
        if state.steps == 4:
            raise KeyboardInterrupt
        return step(state)

    with pytest.raises(KeyboardInterrupt), observed(checkpoint=memory):
        run(step=dies)
    with observed(lambda name, record: seen.append((name, record)), memory):
        resumed = run()
    assert len(seen) == 3  # only the steps that were left
    assert resumed.value.steps == 7
    assert resumed.history == run().history
    with observed(checkpoint=memory):  # a finished run is not repeated
        assert run(step=dies).value.steps == 7


def test_inner_loops_are_not_observed():
    memory = MemoryCheckpoint()

    def outer(state):
        run(name="inner")
        return step(state)

    with observed(checkpoint=memory):
        run(step=outer)
    assert set(memory.saved) == {"halving"}
