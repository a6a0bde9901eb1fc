"""Exchanges after the elimination, against dense objectives and enumeration."""

import itertools

import numpy as np
import pytest

from bigfs import SparGE
from bigfs.cutting_plane import exchanges
from bigfs.cutting_plane.elimination import eliminate
from bigfs.cutting_plane.exchanges import LEAST_FALL, Exchanges, exchange
from tests.helpers.master_solvers import dense_objective

GAMMA = 0.3
NONE = np.empty(0, dtype=np.int64)


def problem(seed, n=40, u=12, r=2):
    """Columns that repeat one another, so that elimination goes astray."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, u // 3)) @ rng.normal(size=(u // 3, u)) + 0.5 * rng.normal(size=(n, u))
    T = X @ rng.normal(size=(u, r)) * (rng.random(u) < 0.5).sum() + rng.normal(size=(n, r))
    X, T = X - X.mean(axis=0), T - T.mean(axis=0)
    return X, T, X.T @ X, X.T @ T, float(np.vdot(T, T))


@pytest.mark.parametrize("seed", range(4))
def test_every_change_is_the_difference_of_two_dense_objectives(seed):
    X, T, G, B, _ = problem(seed)
    chosen = np.random.default_rng(seed).choice(12, 5, replace=False)
    before = dense_objective(X, T, GAMMA, chosen)
    changes = {
        (i, j): dense_objective(X, T, GAMMA, [*np.delete(chosen, i), j]) - before
        for i in range(5)
        for j in np.setdiff1d(np.arange(12), chosen)
    }
    change, i, j = (one := Exchanges(G, B, GAMMA, chosen, NONE)).best()
    assert change == pytest.approx(min(changes.values()), rel=1e-9)
    assert changes[i, one.outside[j]] == pytest.approx(change, rel=1e-9)


@pytest.mark.parametrize(("in_a_round", "weighed"), [(1, 24), (100, 24), (2, 3)])
@pytest.mark.parametrize("seed", range(6))
def test_the_objective_falls_with_each_exchange_until_none_gains(
    seed, in_a_round, weighed, monkeypatch, change
):
    X, T, G, B, T_norm2 = problem(seed, n=90, u=30)
    change(exchanges.ROUND, in_a_round)
    change(exchanges.ROUNDS_PER_FEATURE, 100)
    change(exchanges.MOST_GAINING, weighed)
    worst = eliminate(G, B, T_norm2, GAMMA, pauses=(6,), rate=0.9)
    values, swap = [dense_objective(X, T, GAMMA, worst.order[:6])], Exchanges.swap

    def watch(one, i, j):
        expected = values[-1] + one.best()[0]
        swap(one, i, j)
        values.append(dense_objective(X, T, GAMMA, one.inside))
        assert values[-1] == pytest.approx(expected, rel=1e-9)
        P = np.linalg.inv(G[np.ix_(one.inside, one.inside)] + GAMMA * np.eye(6))
        W, G_NS = P @ B[one.inside], G[np.ix_(one.outside, one.inside)]
        sigma = GAMMA + np.diag(G)[one.outside] - np.einsum("ji,ji->j", G_NS @ P, G_NS)
        dense = {"P": P, "W": W, "H": G_NS @ P, "C": B[one.outside] - G_NS @ W, "sigma": sigma}
        for name, exact in dense.items():
            atol = 1e-9 * np.abs(exact).max()
            np.testing.assert_allclose(getattr(one, name), exact, atol=atol, err_msg=name)

    monkeypatch.setattr(Exchanges, "swap", watch)
    found = exchange(G, B, T_norm2, GAMMA, worst, 6, NONE)
    assert all(b < a for a, b in itertools.pairwise(values))
    assert found.objectives[6] == pytest.approx(values[-1], rel=1e-9)
    S = found.order[:6]
    others = np.setdiff1d(np.arange(30), S)
    least = min(
        dense_objective(X, T, GAMMA, [*np.delete(S, i), j]) for i in range(6) for j in others
    )
    if weighed == 24:  # all that are outside
        assert least >= values[-1] * (1 - LEAST_FALL.value) - 1e-9
    assert sorted(found.order) == list(range(30))


def test_exchanges_come_closer_to_the_best_of_all_sets():
    """Over 200 problems of 12 columns, whose 495 sets of four are all tried."""
    shares, sets = [], np.array(list(itertools.combinations(range(12), 4)))
    for seed in range(200):
        X, T, G, B, T_norm2 = problem(seed)
        first = eliminate(G, B, T_norm2, GAMMA, pauses=(4,), rate=0.9)
        found = exchange(G, B, T_norm2, GAMMA, first, 4, NONE)
        K = G[sets[:, :, None], sets[:, None, :]] + GAMMA * np.eye(4)
        explained = np.einsum("sir,sir->s", B[sets], np.linalg.solve(K, B[sets]))
        best = (T_norm2 - explained.max()) / 2
        assert best == pytest.approx(
            dense_objective(X, T, GAMMA, sets[explained.argmax()]), rel=1e-9
        )
        assert best * (1 - 1e-9) <= found.objectives[4] <= first.objectives[4]
        shares.append([first.objectives[4] / best - 1, found.objectives[4] / best - 1])
    before, after = np.mean(shares, axis=0)
    assert after < before / 2
    reached = np.mean(np.array(shares) < 1e-9, axis=0)
    assert reached[1] > max(reached[0], 0.5)  # most of them reach it


def test_the_choices_below_m_are_those_of_an_elimination_of_the_m():
    X, T, G, B, T_norm2 = problem(3, n=90, u=30)
    first = eliminate(G, B, T_norm2, GAMMA, pauses=(8,), rate=0.9)
    found = exchange(G, B, T_norm2, GAMMA, first, 8, NONE)
    S = np.sort(found.order[:8])
    assert set(S) != set(first.order[:8])  # else nothing is shown
    alone = eliminate(G[np.ix_(S, S)], B[S], T_norm2, GAMMA)
    np.testing.assert_array_equal(found.order[:8], S[alone.order])
    for k in range(1, 9):
        expected = dense_objective(X, T, GAMMA, found.order[:k])
        assert found.objectives[k] == pytest.approx(expected, rel=1e-9)
    rest = first.order[~np.isin(first.order, S)]
    np.testing.assert_array_equal(found.order[8:], rest)


def test_what_is_kept_stays_and_the_order_of_the_columns_does_not_matter():
    _, _, G, B, T_norm2 = problem(5, n=90, u=30)
    kept = np.array([2, 17])
    first = eliminate(G, B, T_norm2, GAMMA, pauses=(6,), rate=0.9, removed_last=kept)
    found = exchange(G, B, T_norm2, GAMMA, first, 6, kept)
    assert set(found.order[:2]) == {2, 17}
    mirrored = first._replace(order=29 - first.order)
    other = exchange(G[::-1, ::-1], B[::-1], T_norm2, GAMMA, mirrored, 6, np.sort(29 - kept))
    assert set(29 - other.order[:6]) == set(found.order[:6])
    assert other.objectives[6] == pytest.approx(found.objectives[6], rel=1e-12)


@pytest.mark.parametrize(("dtype", "gamma"), [(np.float32, GAMMA), (np.float64, 1e-10)])
def test_rounding_makes_no_exchange_that_raises_the_objective(dtype, gamma):
    for seed in range(10):
        _, _, G, B, T_norm2 = problem(seed, n=90, u=30)
        G[:, 15:], G[15:] = G[:, :15], G[:15]  # each column twice
        G[15:, 15:], B[15:] = G[:15, :15], B[:15]
        G = G.astype(dtype)
        first = eliminate(G, B, T_norm2, gamma, pauses=(6,))
        found = exchange(G, B, T_norm2, gamma, first, 6, NONE)
        values = []
        for S in (first.order[:6], found.order[:6]):
            K = G[np.ix_(S, S)].astype(np.float64) + gamma * np.eye(6)
            values.append(0.5 * (T_norm2 - np.vdot(B[S], np.linalg.solve(K, B[S]))))
        assert values[1] <= values[0] * (1 + 1e-12)
        if set(first.order[:6]) != set(found.order[:6]):
            assert found.objectives[6] == pytest.approx(values[1], rel=1e-9)


def test_sparge_exchanges_at_m_and_stays_above_the_bound(rng, change):
    base = rng.normal(size=(200, 10))
    X = base @ rng.normal(size=(10, 60)) + 0.5 * rng.normal(size=(200, 60))
    y = np.argmax(base[:, :4] + rng.normal(size=(200, 4)), axis=1)
    selector = SparGE(n_features_to_select=8, gamma=0.01, tol=1e-3, max_iter=200)
    found = selector.fit(X, y)
    scores, stats = found.scores_.copy(), dict(found.result_.stats)
    assert (np.diff(scores[found.selected_]) <= 0).all()
    change(exchanges.LEAST_FALL, np.inf)
    without = selector.fit(X, y).result_.stats
    assert stats["objective"] < without["objective"]
    assert 0 <= stats["objective_gap"] < without["objective_gap"]
