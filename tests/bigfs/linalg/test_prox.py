import numpy as np
import pytest
from scipy.optimize import minimize

from bigfs.linalg.prox import norm_2p, project_simplex, row_norms
from tests.helpers.master_solvers import shrink_squared_sum


@pytest.mark.parametrize("seed", range(5))
def test_simplex_projection_meets_its_optimality_condition(seed):
    V = np.random.default_rng(seed).normal(size=(7, 4)) * 3
    P = project_simplex(V)
    assert np.all(P >= 0)
    np.testing.assert_allclose(P.sum(axis=1), 1, atol=1e-12)
    for v, p in zip(V, P, strict=True):  # v − p is constant on the support and no larger off it
        slack = v - p
        assert np.ptp(slack[p > 0]) < 1e-12
        assert np.all(slack[p == 0] <= slack[p > 0].min() + 1e-12)
    np.testing.assert_array_equal(project_simplex(V[0]), P[0])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("s", [0.01, 0.5, 10.0])
def test_moreau_projection_minimizes_its_objective(seed, s):
    u = np.abs(np.random.default_rng(seed).normal(size=5))
    factor = shrink_squared_sum(u, s)

    def objective(x):
        return 0.5 * s * np.sum(np.abs(x)) ** 2 + 0.5 * np.sum((x - u) ** 2)

    best = minimize(
        objective,
        u / 2,
        bounds=[(0, None)] * 5,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10},
    )
    assert objective(factor * u) <= best.fun + 1e-9
    np.testing.assert_allclose(factor * u, best.x, atol=1e-4)


def test_moreau_projection_of_zero_is_zero():
    np.testing.assert_array_equal(shrink_squared_sum(np.zeros(3), 1.0), np.zeros(3))


def test_row_norms_and_their_power_sums():
    W = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])
    np.testing.assert_allclose(row_norms(W), [5, 0, 2])
    assert norm_2p(W) == pytest.approx(7)
    assert norm_2p(W, 0.5) == pytest.approx((5**0.5 + 2**0.5) ** 2)
