"""Shifted systems against dense solves."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs.linalg.shifted_cg import GROUP_WIDTH, solve_shifted


@pytest.fixture
def graph(rng):
    """The Laplacian of a sparse random graph with hubs and an isolated vertex, n = 80."""
    A = sp.random_array((80, 80), density=0.05, rng=rng).toarray()
    A[:, 0] += rng.random(80)
    A = np.triu(A, 1)
    A = A + A.T
    A[5] = A[:, 5] = 0
    return sp.csr_array(np.diag(A.sum(axis=1)) - A)


@pytest.mark.parametrize("m", [1, GROUP_WIDTH, GROUP_WIDTH + 7])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 50.0])
def test_each_column_is_a_dense_solve(graph, rng, m, alpha):
    sigmas, E = 10.0 ** rng.uniform(-3, 3, m), rng.standard_normal((80, m))
    solved = solve_shifted(graph, alpha, sigmas, E, tol=1e-12)
    exact = np.column_stack(
        [
            np.linalg.solve(s * np.eye(80) + alpha * graph.toarray(), e)
            for s, e in zip(sigmas, E.T, strict=True)
        ]
    )
    np.testing.assert_allclose(solved.T, exact, rtol=0, atol=1e-7 * np.abs(exact).max())
    residual = np.linalg.norm(solved.T * sigmas + alpha * (graph @ solved.T) - E) / np.linalg.norm(
        E
    )
    # the recurrence that stops it drifts from the true residual by rounding
    assert residual <= 2e-12
    assert solved.residual == pytest.approx(residual)


def test_a_start_at_the_solution_takes_no_iterations(graph, rng):
    sigmas, E = rng.uniform(0.1, 1, 5), rng.standard_normal((80, 5))
    cold = solve_shifted(graph, 1.0, sigmas, E)
    warm = solve_shifted(graph, 1.0, sigmas, E, start=cold.T)
    assert cold.iterations > 5
    assert warm.iterations == 0
    np.testing.assert_array_equal(warm.T, cold.T)


def test_the_limit_is_reported_by_the_residual(graph, rng):
    sigmas, E = np.full(3, 1e-3), rng.standard_normal((80, 3))
    solved = solve_shifted(graph, 10.0, sigmas, E, max_iter=2)
    assert solved.iterations == 2
    assert solved.residual > 1e-9


def test_zero_right_hand_sides(graph):
    solved = solve_shifted(graph, 1.0, np.ones(4), np.zeros((80, 4)))
    assert not solved.T.any()
    E = np.zeros((80, 4))
    E[3, 2] = 1.0
    assert not solve_shifted(graph, 1.0, np.ones(4), E).T[:, [0, 1, 3]].any()
