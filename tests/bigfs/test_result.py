from typing import NamedTuple

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine

from bigfs import Matrix, SelectorCV, SparGE, cards, stability
from bigfs.engine import MemoryLimitError
from bigfs.evaluation import large_model
from bigfs.result import (
    NotConvergedWarning,
    Result,
    Status,
    early_ends,
    iterate,
    observe,
    warn_early_end,
)
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


def test_a_number_at_the_tolerance_is_enough():
    assert run(tol=2.0**-7).value.steps == 7
    assert run(tol=2.0**-7, max_iter=7).converged  # the last step is looked at before the limit


def test_the_number_that_decides_may_be_infinite_and_no_other():
    values = iter([np.inf, np.inf, 1e-3])
    assert run(measure=lambda s: {"change": next(values), "loss": 1.0}).value.steps == 3
    for record in ({"change": 1.0, "loss": np.inf}, {"change": -np.inf}, {"change": np.nan}):
        with pytest.warns(NotConvergedWarning, match="NaN or infinity"):
            assert run(measure=lambda s, record=record: record).status is Status.NOT_FINITE
    with pytest.warns(
        NotConvergedWarning, match=r"limit.*\(change not yet known, tolerance 1e-02\)$"
    ):
        run(measure=lambda s: {"change": np.inf}, max_iter=2)


def test_a_certificate_below_zero_stalls_but_for_rounding():
    assert run(measure=lambda s: {"change": -1e-12}).converged
    with pytest.warns(NotConvergedWarning, match="limit of floating point"):
        assert run(measure=lambda s: {"change": -0.5}).status is Status.STALLED


def test_a_loop_may_end_by_its_own_rules():
    assert run(reached=Status.FINISHED).status is Status.FINISHED
    with pytest.warns(
        NotConvergedWarning, match=r"halving .*, tolerance 1e-02\): too few columns$"
    ):
        result = run(
            ends=lambda s: Status.GRID_END if s.steps == 3 else None,
            why=lambda: "too few columns",
        )
    assert (result.status, result.value.steps) == (Status.GRID_END, 3)
    assert result.stats == {"why": "too few columns"}
    with pytest.warns(NotConvergedWarning):
        result = run(max_iter=2, at_limit=lambda s: Status.ROUNDED if s.steps == 2 else None)
    assert (result.status, result.stats) == (Status.ROUNDED, {})
    with pytest.warns(NotConvergedWarning, match=r"\(violation 5\.00e-01"):
        run(measure=lambda s: {"change": np.inf, "violation": 0.5}, max_iter=1)


def test_early_ends_are_collected_by_the_innermost_block():
    with early_ends() as outer:
        with early_ends() as inner:
            run(max_iter=1)
        run(max_iter=2)
    assert [message.count("halving stopped") for message in (*inner, *outer)] == [1, 1]
    assert "5.00e-01" in inner[0]
    assert "2.50e-01" in outer[0]
    with pytest.warns(NotConvergedWarning, match="it ended early") as said:
        warn_early_end("it ended early", stacklevel=1)
    assert [warning.filename for warning in said] == [__file__]


def test_facts_are_the_status_the_gaps_by_their_names_and_the_last_record():
    history = [{"gap": 0.5, "sets": 1}, {"gap": 0.4, "sets": 1}, {"gap": 0.25, "sets": 2}]
    stats = {"objective_gap": 0.125, "passes": 3, "sizes": [1, 2]}
    assert Result(None, Status.CONVERGED, history, stats).facts() == {
        "status": "converged to the requested tolerance",
        "steps": 3,
        "gap of the features": "12.50 %",
        "gap of the relaxation": "25.00 %",
        "sets": 2,
        "passes": 3,
    }
    assert "12.50 %" in Result(None, Status.CONVERGED, history, stats)._repr_html_()
    one = Result(None, Status.EXACT, [], {"objective_gap": 0.5}).facts()
    assert one == {"status": str(Status.EXACT), "steps": None, "objective_gap": 0.5}
    assert Result(None, Status.MAX_ITER, history).facts()["gap"] == 0.25
    assert Result(None, Status.EXACT).converged
    assert not Result(None, Status.STALLED).converged


def test_the_curve_is_that_of_the_number_that_decides():
    history = [{"loss": 9.0, "gap": 0.5}, {"loss": 8.0}, {"loss": 7.0, "gap": 0.25}]
    assert Result(None, Status.CONVERGED, history).curve() == cards.curve("gap", [0.5, 0.25])
    assert Result(None, Status.EXACT).curve() == ""
    assert Result(None, Status.CONVERGED, [{"loss": 1.0}]).curve() == ""


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


def test_a_state_that_is_not_finite_is_not_kept():
    memory = MemoryCheckpoint()
    with pytest.warns(NotConvergedWarning), observe(checkpoint=memory):
        run(step=lambda s: step(s)._replace(x=s.x * (np.nan if s.steps == 2 else 0.5)))
    assert memory.saved["halving"][0][1] == 2


def test_a_block_keeps_what_it_does_not_change_of_the_block_around():
    seen, memory = [], MemoryCheckpoint()
    with observe(lambda name, record: seen.append(name), memory):
        with observe(checkpoint=MemoryCheckpoint()):
            run()
        assert (len(seen), memory.saved) == (7, {})
        with observe(lambda name, record: None):
            run()
            run()
        assert len(seen) == 7
        assert set(memory.saved) == {"halving", "halving 2"}


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
