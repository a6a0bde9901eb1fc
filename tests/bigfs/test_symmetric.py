"""Large symmetric matrices in panels, against square arrays."""

import numpy as np
import pytest

from bigfs.cutting_plane.elimination import eliminate
from bigfs.cutting_plane.master_solvers import apg, newton
from bigfs.cutting_plane.restricted_master import RestrictedMaster
from bigfs.linalg import symmetric
from bigfs.linalg.symmetric import SymmetricPanels, dense

SINGLE = 1e-6  # of numbers around one


@pytest.fixture(autouse=True)
def small_panels(monkeypatch):
    monkeypatch.setattr(symmetric, "PANEL_ROWS", 8)
    monkeypatch.setattr(symmetric, "LARGE_SIZE", 20)


def gram(rng, u, n=50):
    Z = rng.normal(size=(n, u))
    return Z.T @ Z / n


@pytest.mark.parametrize("u", [0, 1, 7, 8, 9, 30])
def test_panels_hold_half_of_the_square_in_single_precision(rng, u):
    G = gram(rng, u)
    panels = SymmetricPanels.of(G)
    assert len(panels) == u
    np.testing.assert_array_equal(dense(panels), G.astype(np.float32))
    n_numbers = sum(panel.size for _, panel in panels)
    assert n_numbers <= u * (u + 1) / 2 + 8 * u / 2
    assert all(panel.dtype == np.float32 for _, panel in panels)


@pytest.mark.parametrize("u", [5, 8, 30])
def test_products_are_those_of_the_square(rng, u):
    G = dense(SymmetricPanels.of(gram(rng, u)))
    panels, W = SymmetricPanels.of(G), rng.normal(size=(u, 3))
    np.testing.assert_allclose(panels @ W, G @ W, rtol=0, atol=1e-12)
    np.testing.assert_allclose(panels @ W[:, 0], G @ W[:, 0], rtol=0, atol=1e-12)
    for size in (0, 1, u // 2, u):
        members = np.sort(rng.choice(u, size, replace=False))
        product = panels.times_rows(members, W[members])
        np.testing.assert_allclose(product, G[:, members] @ W[members], rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [0, 1, 12, 25])
def test_a_part_is_in_panels_only_where_it_is_large(rng, size):
    G = dense(SymmetricPanels.of(gram(rng, 30)))
    positions = np.sort(rng.choice(30, size, replace=False))
    part = SymmetricPanels.of(G).take(positions)
    assert isinstance(part, np.ndarray) == (size < 20)
    np.testing.assert_array_equal(dense(part), G[np.ix_(positions, positions)])


def test_a_wider_matrix_keeps_the_numbers_and_takes_new_rows(rng):
    G = dense(SymmetricPanels.of(gram(rng, 40)))
    panels, old = SymmetricPanels([]), np.empty(0, dtype=np.int64)
    for size in (1, 7, 3, 20, 9):
        left = np.setdiff1d(np.arange(40), old)
        new = np.sort(rng.choice(left, size, replace=False))
        union = np.union1d(old, new)
        smaller = panels
        panels = smaller.widened(np.searchsorted(union, old), len(union))
        assert len(smaller) == 0
        panels.set_rows(np.searchsorted(union, new), G[np.ix_(new, union)])
        np.testing.assert_array_equal(dense(panels), G[np.ix_(union, union)])
        old = union


@pytest.mark.parametrize("solve", [newton, apg])
def test_the_master_is_the_same_in_panels(rng, solve):
    X, T = rng.normal(size=(60, 30)), rng.normal(size=(60, 10))
    G = dense(SymmetricPanels.of(X.T @ X))
    sets = tuple(np.sort(rng.choice(30, 7, replace=False)) for _ in range(4))
    eta = np.full(4, 0.25)
    masters = [
        RestrictedMaster(matrix, X.T @ T, float(np.vdot(T, T)), 3.0, sets)
        for matrix in (G, SymmetricPanels.of(G))
    ]
    of_square, of_panels = (solve(master, eta, 1e-9) for master in masters)
    assert of_panels.value == pytest.approx(of_square.value, rel=1e-9)
    np.testing.assert_allclose(of_panels.W, of_square.W, atol=1e-5)
    np.testing.assert_allclose(of_panels.eta, of_square.eta, atol=1e-5)


def test_elimination_is_the_same_in_panels(rng):
    X, T = rng.normal(size=(60, 30)), rng.normal(size=(60, 3))
    G = dense(SymmetricPanels.of(X.T @ X))
    of_square = eliminate(G, X.T @ T, float(np.vdot(T, T)), 0.5)
    of_panels = eliminate(SymmetricPanels.of(G), X.T @ T, float(np.vdot(T, T)), 0.5)
    np.testing.assert_array_equal(of_panels.order, of_square.order)
