"""The rounds of the methods with a ridge solve each: what a round without enough digits is told."""

import numpy as np
import pytest

from bigfs import JFS, RFS, RLSR, SRLSR
from bigfs.linalg.ridge import Prepared
from bigfs.result import NotConverged, Status


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
    with pytest.warns(NotConverged, match=expected.value):
        selector.fit(X, y)
    assert selector.result_.status is expected


@pytest.mark.parametrize("method", [SRLSR, RLSR, RFS, JFS])
def test_a_loop_whose_solves_are_exact_ends_at_its_limit(rng, method):
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 12)) + y[:, None] * (np.arange(12) < 3)
    with pytest.warns(NotConverged, match=Status.MAX_ITER.value):
        method(n_features_to_select=3, max_iter=2, tol=1e-12).fit(X, y)
