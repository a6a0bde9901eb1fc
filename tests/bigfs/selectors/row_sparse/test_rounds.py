"""The rounds of the methods with a ridge solve each: what a round without enough digits is told."""

import re

import numpy as np
import pytest

from bigfs import JFS, RFS, RLSR, SRLSR
from bigfs.linalg.ridge import Prepared
from bigfs.result import NotConvergedWarning, Status
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
        model = RLSR(n_features_to_select=3).fit(X, few)
    why = model.result_.stats["why"]
    assert why in str(said[0].message)
    thetas = []
    for rounds in (199, 200):
        run = fit_few_steps(RLSR(n_features_to_select=3, max_iter=rounds), X, few)
        thetas.append(run.theta_)
    moved = np.abs(np.diff(thetas, axis=0)[0]) / np.maximum(np.max(thetas, axis=0), 1e-300)
    moved = moved[thetas[1] > 0]
    count = np.count_nonzero(moved > 1e-2)
    assert why.startswith(f"θ of {count} of {np.count_nonzero(thetas[1])} features")
    assert f"by up to {moved.max():.0%} per round" in why
    unchanged = int(re.search(r"the 3 best have not changed for (\d+) rounds", why)[1])
    for rounds, same in ((200 - unchanged, True), (199 - unchanged, False)):
        if unchanged < 199:
            run = fit_few_steps(RLSR(n_features_to_select=3, max_iter=rounds), X, few)
            assert (set(run.selected_) == set(model.selected_)) is same
