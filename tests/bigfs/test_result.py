from typing import NamedTuple

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine

from bigfs import Matrix, SelectorCV, SparGE, stability
from bigfs.engine import MemoryLimitError
from bigfs.evaluation import large_model
from bigfs.result import NotConvergedWarning, Status, iterate, observe
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
        NotConvergedWarning, match=r"halving stopped at the iteration " r"limit.*change 1\.25e-01"
    ):
        result = run(max_iter=3)
    assert result.status is Status.MAX_ITER
    assert not result.converged


def test_nan_ends_the_run():
    with pytest.warns(NotConvergedWarning, match="NaN or infinity"):
        assert run(step=lambda s: s._replace(x=s.x * np.nan)).status is Status.NOT_FINITE


def test_a_step_that_does_not_fit_in_memory_ends_the_run_at_the_state_before():
    def hungry(state):
        if state.steps == 2:
            raise MemoryLimitError("the third step needs 2 GB")
        return step(state)

    with pytest.warns(NotConvergedWarning, match=r"does not fit in memory.*change 2\.50e-01"):
        result = run(step=hungry, no_room=MemoryLimitError)
    assert result.status is Status.MEMORY
    assert result.value.steps == len(result.history) == 2
    with pytest.raises(MemoryLimitError, match="third step"):  # there is no state to return
        run(step=lambda state: hungry(state._replace(steps=2)), no_room=MemoryLimitError)
    with pytest.raises(MemoryLimitError, match="third step"):
        run(step=hungry)


def test_a_killed_run_goes_on_from_its_checkpoint():
    memory, seen = MemoryCheckpoint(), []

    def dies(state):
        if state.steps == 4:
            raise KeyboardInterrupt
        return step(state)

    with pytest.raises(KeyboardInterrupt), observe(checkpoint=memory):
        run(step=dies)
    with observe(lambda name, record: seen.append((name, record)), memory):
        resumed = run()
    assert len(seen) == 3  # only the steps that were left
    assert resumed.value.steps == 7
    assert resumed.history == run().history
    with observe(checkpoint=memory):  # a finished run is not repeated
        assert run(step=dies).value.steps == 7


def test_inner_loops_are_not_observed():
    memory = MemoryCheckpoint()

    def outer(state):
        run(name="inner")
        return step(state)

    with observe(checkpoint=memory):
        run(step=outer)
    assert set(memory.saved) == {"halving"}


# --- checkpoints of several fits ------------------------------------------------------------------


def fits_of(function, *args, die_after=None, **options):
    """Return what a function gives, and its checkpoint; killed and resumed if `die_after`."""
    checkpoint = MemoryCheckpoint(die_after)
    if die_after:
        with pytest.raises(KeyboardInterrupt), observe(checkpoint=checkpoint):
            function(*args, **options)
        checkpoint.saves_left = None
    with observe(checkpoint=checkpoint):
        return function(*args, **options), checkpoint


def wine():
    X, y = load_wine(return_X_y=True)
    return X / X.std(axis=0), y


@pytest.mark.parametrize("die_after", [None, 4])
def test_a_subsample_never_takes_over_the_state_of_another(die_after):
    X, y = wine()
    selector = SparGE(n_features_to_select=3)
    expected = stability(selector, X, y, n_subsamples=10)
    computed, checkpoint = fits_of(stability, selector, X, y, n_subsamples=10, die_after=die_after)
    np.testing.assert_array_equal(computed.frequencies, expected.frequencies)
    assert set(checkpoint.saved) == {f"subsample {k} SparGE" for k in range(1, 11)}


@pytest.mark.parametrize("die_after", [None, 4])
def test_a_fold_never_takes_over_the_state_of_another(die_after):
    X, y = wine()
    selector = SelectorCV(SparGE(), sizes=[2, 4], cv=3)
    expected = clone(selector).fit(X, y)
    computed, checkpoint = fits_of(clone(selector).fit, X, y, die_after=die_after)
    for name, column in expected.cv_results_.items():
        np.testing.assert_array_equal(computed.cv_results_[name], column)
    assert set(checkpoint.saved) == {"SparGE", *(f"fold {k} SparGE" for k in range(1, 4))}
    scores, checkpoint = fits_of(selector.cross_val_score, X, y, cv=2, die_after=die_after)
    np.testing.assert_array_equal(scores, selector.cross_val_score(X, y, cv=2))
    assert len(checkpoint.saved) == 2 * 4
    assert "evaluation fold 2 fold 3 SparGE" in checkpoint.saved


def test_the_classifiers_of_classes_that_are_trained_in_turn_have_states_of_their_own(monkeypatch):
    X, y = wine()
    matrix = Matrix.from_array(X)
    room = large_model._bytes_of_classifiers(*X.shape, 2)
    monkeypatch.setattr(large_model.engine, "task_memory", lambda: room)
    expected = large_model.fit(matrix, y, "svm")
    computed, checkpoint = fits_of(large_model.fit, matrix, y, "svm")
    np.testing.assert_array_equal(computed.coef, expected.coef)
    assert set(checkpoint.saved) == {f"classes {k} SVM by tiles" for k in ("1 to 2", "3 to 3")}


def test_loops_of_one_name_are_numbered_and_resume_in_their_order():
    def both():
        return [run(step=step_by(divisor)).value.x[0] for divisor in (2, 4)]

    expected = both()
    for die_after in (None, 3, 9):
        computed, checkpoint = fits_of(both, die_after=die_after)
        assert computed == expected
        assert set(checkpoint.saved) == {"halving", "halving 2"}
        with observe(checkpoint=checkpoint), observe(lambda *_: pytest.fail("both had ended")):
            assert both() == expected


def step_by(divisor):
    return lambda state: Halving(state.x / divisor, state.steps + 1)


def test_a_resumed_cutting_plane_makes_no_pass_before_it_finds_its_state():
    X, y = wine()
    matrix, selector = Matrix.from_array(X), SparGE(n_features_to_select=3, tol=1e-6)
    _, checkpoint = fits_of(clone(selector).fit, matrix, y)
    before = matrix.passes
    with observe(checkpoint=checkpoint):
        clone(selector).fit(matrix, y)
    assert matrix.passes == before  # it had converged
