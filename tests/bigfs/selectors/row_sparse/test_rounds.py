"""The rounds of the methods with a ridge solve each: what a round without enough digits is told."""

import re
from typing import NamedTuple

import numpy as np
import pytest

from bigfs import JFS, RFS, RLSR, SRLSR, Matrix
from bigfs.engine import MemoryLimitError, limit_memory
from bigfs.linalg.ridge import Prepared
from bigfs.result import NotConvergedWarning, Status
from bigfs.selectors.row_sparse.rows import RowSparseProblem, next_momentum
from tests.helpers.fitting import fit_few_steps


@pytest.mark.parametrize("method", [SRLSR, RLSR, RFS, JFS])
@pytest.mark.parametrize("residual", [0.07, 1e-14])
def test_a_loop_is_stalled_where_its_last_solve_is_too_far_from_exact(
    rng, monkeypatch, method, residual
):
    """More rounds were advised, of which none could help."""

    def stalled(solve):
        def solve_short(*operands, **options):
            solution = solve(*operands, **options)
            residuals = np.full_like(solution.residuals, residual)
            return solution._replace(status=Status.STALLED, residuals=residuals)

        return solve_short

    for name in ("solve", "solve_rhs"):
        monkeypatch.setattr(Prepared, name, stalled(getattr(Prepared, name)))
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 12))
    X[:, :3] += y[:, None] == np.arange(3)
    selector = method(n_features_to_select=3, max_iter=2, tol=1e-12)
    expected = Status.STALLED if residual > 1e-12 else Status.MAX_ITER
    with pytest.warns(NotConvergedWarning, match=expected.value):
        selector.fit(X, y)
    assert selector.result_.status is expected


@pytest.mark.parametrize("method", [SRLSR, RLSR, RFS, JFS])
def test_a_loop_whose_solves_are_exact_ends_at_its_limit(rng, method):
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 12)) + y[:, None] * (np.arange(12) < 3)
    with pytest.warns(NotConvergedWarning, match=Status.MAX_ITER.value):
        method(n_features_to_select=3, max_iter=2, tol=1e-12).fit(X, y)


def test_a_run_without_convergence_says_what_still_moves(rng):
    """Three of sixty labeled take thousands of rounds, and the choice is known before."""
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 20))
    X[:, :6] += 1.2 * (np.arange(6) // 2 == y[:, None])
    few = np.where(np.arange(60) < 3, y, -1)
    with pytest.warns(
        NotConvergedWarning, match=r"θ of \d+ of \d+ features still moves by up to"
    ) as said:
        model = RLSR(n_features_to_select=3, max_iter=60).fit(X, few)
    why = model.result_.stats["why"]
    assert why in str(said[0].message)
    thetas = []
    for rounds in (59, 60):
        run = fit_few_steps(RLSR(n_features_to_select=3, max_iter=rounds), X, few)
        thetas.append(run.theta_)
    moved = np.abs(np.diff(thetas, axis=0)[0]) / np.maximum(np.max(thetas, axis=0), 1e-300)
    moved = moved[thetas[1] > 0]
    count = np.count_nonzero(moved > 1e-2)
    assert why.startswith(f"θ of {count} of {np.count_nonzero(thetas[1])} features")
    assert f"by up to {moved.max():.0%} per round" in why
    unchanged = int(re.search(r"the 3 best have not changed for (\d+) rounds", why)[1])
    for rounds, same in ((60 - unchanged, True), (59 - unchanged, False)):
        if unchanged < 59:
            run = fit_few_steps(RLSR(n_features_to_select=3, max_iter=rounds), X, few)
            assert (set(run.selected_) == set(model.selected_)) is same


class State(NamedTuple):
    theta: np.ndarray
    theta_before: np.ndarray = np.ones(2)
    age: float = 3.0
    objective: float = 1.0
    violation: float = 0.0
    gap: float = 0.0
    residual: float = 0.0


class Rounds(RowSparseProblem):
    """Rounds that leave θ as it is."""

    step = scores = None

    def __init__(self, n_features, objective=0.5, m=2):
        X = np.random.default_rng(0).random((6, n_features))
        super().__init__(Matrix.from_array(X), targets=3, tol=0.25, ridge={}, m=m)
        self.begun, self.objective_of = [], objective

    def round(self, state):
        self.begun.append(state.theta)
        return state._replace(objective=self.objective_of)


def test_a_problem_says_how_far_its_features_moved_and_which_are_the_best():
    problem = Rounds(4)
    problem.measure(State(np.array([4.0, 3, 2, 1])))
    assert problem.why() == ""
    problem.measure(State(np.array([4.0, 3, 1.5, 2])))  # the third one by the tolerance itself
    moves = "θ of {} of 4 features still moves by up to {}% per round, and the 2 best {}"
    assert problem.why() == moves.format(1, 50, "have not changed for 1 rounds")
    problem.measure(State(np.array([4.0, 1.5, 3, 2])))
    assert problem.why() == moves.format(2, 50, "changed in the last round")
    problem.measure(State(np.array([4.0, 1.5, 3, 2.2])))
    still = "θ moves by at most 9.09% per round, and the 2 best have not changed for 1 rounds"
    assert problem.why() == still
    problem, theta = Rounds(2000, m=1), np.random.default_rng(0).random(2000)
    problem.measure(State(theta))
    assert problem.best == [theta.argmax()]


def test_features_that_violate_optimality_return_once_the_others_are_solved():
    problem, theta = Rounds(4), np.array([4.0, 0, 0, 0])
    excess = np.array([9, 0.25, 0.3, 0.5])
    assert problem.with_violators(theta, 0.3, lambda: excess)[1] == np.inf
    more, gap = problem.with_violators(theta, 0.25, lambda: excess)
    np.testing.assert_allclose(more, [4, 0, 4e-3, 4e-3])
    assert gap == 0.5
    same, gap = problem.with_violators(theta, 0.2, lambda: np.minimum(excess, 0.25))
    assert same is theta
    assert gap == 0.2


@pytest.mark.parametrize("objective", [0.5, 1.0, 2.0])
def test_a_round_from_beyond_is_made_again_where_the_objective_rises(objective):
    problem, state = Rounds(2, objective), State(np.array([2.0, 1.0]))
    end, (older, momentum) = problem.go_beyond(state), next_momentum(3.0)
    assert 0 < momentum < 1
    np.testing.assert_allclose(problem.begun[0], [2 * 2**momentum, 1.0])
    if objective > state.objective:
        np.testing.assert_array_equal(problem.begun[1:], [state.theta])
        assert end.age == 1.0
    else:
        assert len(problem.begun) == 1
        assert end.age == older
    np.testing.assert_array_equal(end.theta_before, state.theta)
    assert next_momentum(1.0)[1] == 0.0


def test_a_problem_refuses_what_it_cannot_weigh():
    with pytest.raises(ValueError, match="no feature of X is correlated with y"):
        Rounds(4).require_weight(np.zeros((4, 3)))
    with (
        limit_memory(4 * (192 + 8 * 11 * 3) - 1),
        pytest.raises(MemoryLimitError, match="weights of 4 features for 3 columns of y"),
    ):
        Rounds(4)
