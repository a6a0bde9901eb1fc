"""The exact choice, and all lists nearly as good, against the enumeration of all sets."""

import tracemalloc
import warnings
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

import bigfs
from bigfs import Matrix, SparGE, engine
from bigfs.cutting_plane import tree
from bigfs.cutting_plane.node import IN, OUT, no_rounds, node_bound
from bigfs.cutting_plane.tree import Search, fix
from bigfs.embedding.targets import lda_factor
from bigfs.result import NotConvergedWarning, Status
from bigfs.validation import UnequalScalesWarning
from tests.helpers.fitting import fit_and_resume

ROUNDING = 3e-9


def problem(seed):
    rng = np.random.default_rng(seed)
    n, d, c = int(rng.integers(10, 40)), int(rng.integers(6, 12)), int(rng.integers(2, 5))
    X = rng.normal(size=(n, d)) @ (np.eye(d) + rng.uniform(0, 1) * rng.normal(size=(d, d)))
    y = np.arange(n) % c
    X[:, :c] += rng.uniform(0, 2) * np.eye(c)[y]
    if seed % 5 == 0:
        X[:, 1] = X[:, 0]  # a copy
    m = int(rng.integers(1, min(d, 6)))
    return X, y, m, float(10 ** rng.uniform(-3, 1)), float(10 ** rng.uniform(-4, -1))


def objectives(X, y, gamma, m):
    """Return J of every set of m columns, by eq. 6."""
    X, sizes = X - X.mean(axis=0), np.bincount(y)
    T = lda_factor(y, len(sizes), sizes**-0.5 * (len(y) / np.sqrt(sizes).sum()))[y]
    found = {}
    for S in combinations(range(X.shape[1]), m):
        Z = X[:, S]
        W = np.linalg.solve(Z.T @ Z + gamma * np.eye(m), Z.T @ T)
        found[S] = 0.5 * np.sum((T - Z @ W) ** 2) + gamma / 2 * np.sum(W**2)
    return found


def require_exact(seed):
    X, y, m, gamma, share = problem(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnequalScalesWarning)
        one = SparGE(n_features_to_select=m, gamma=gamma, gap=0).fit(X, y)
        asked = SparGE(gamma=gamma)
        audited = bigfs.audit(X, y, {"own": one.selected_}, estimator=asked, alternatives=share)
    stats, found = one.result_.stats, audited.alternatives[m]
    every = objectives(X, y, stats["gamma"], m)
    least = min(every.values())
    assert one.result_.status is Status.CONVERGED
    assert stats["objective_gap"] == 0
    assert stats["objective"] <= least * (1 + ROUNDING)
    assert every[tuple(sorted(one.selected_))] == pytest.approx(stats["objective"], rel=1e-9)
    assert 0 <= stats["undecided"] <= X.shape[1]
    near = {S for S, J in every.items() if least * (1 + share * (1 - 1e-6)) >= J}
    edge = {S for S, J in every.items() if least * (1 + share * (1 + 1e-6)) >= J}
    lists = {tuple(one) for one in found.lists.tolist()}
    assert near <= lists <= edge
    assert found.is_complete
    np.testing.assert_allclose(found.objectives, sorted(every[S] for S in lists), rtol=1e-9)
    assert audited.lists["own"].most_better <= ROUNDING
    assert audited.lists["own"].least_worse == 0


@pytest.mark.parametrize("seeds", [range(10), range(10, 20), (*range(100, 105), 123)])
def test_the_choice_and_all_lists_as_good_are_those_of_the_enumeration(seeds):
    for seed in seeds:
        require_exact(seed)


@pytest.fixture
def single_rows(monkeypatch):
    """Hold the columns and only the rows of their products that a search needs."""
    monkeypatch.setattr(tree, "gathers", lambda data, features: False)


def test_the_choice_with_single_rows_is_that_of_the_enumeration(single_rows):
    for seed in (*range(10), 517):
        require_exact(seed)


@pytest.mark.nightly
def test_the_enumeration_of_500_problems_with_single_rows(single_rows):
    for seed in range(100, 600):
        require_exact(seed)


@pytest.mark.nightly
def test_the_enumeration_of_500_problems():
    for seed in range(100, 600):
        require_exact(seed)


def test_a_feature_is_fixed_where_the_bound_with_it_or_without_it_reaches_the_cutoff(rng):
    u, r, m, T_norm2 = 9, 2, 4, 5.0
    Z = rng.normal(size=(30, u))
    G, B = Z.T @ Z, rng.normal(size=(r, u))
    B *= np.sqrt(T_norm2 / 2 / np.vdot(B, np.linalg.solve(G, B.T).T))
    for k in (0, 3):  # none or all
        np.testing.assert_array_equal(fix(np.ones(3), k, 0.0), [[k > 0] * 3, [k == 0] * 3])
    d = np.full(u, m / u)
    d[2], d[5] = IN, OUT
    held = G, np.arange(u)
    (*_, a, b, s), _ = node_bound(held, B, T_norm2, d, m, np.inf, 30, no_rounds(d))
    free = np.delete(np.arange(u), [2, 5])
    for share in (1.001, 1.01, 1.05):
        cutoff = share * a**2 / (2 * b)
        found = fix(s[free], m - 1, b - a**2 / (2 * cutoff))
        for is_forced_in, fixed in zip((False, True), found, strict=True):
            expected = []
            for j in range(len(free)):
                others = np.sort(np.delete(s[free], j))[::-1]
                most = s[free][j] + others[: m - 2].sum() if is_forced_in else others[: m - 1].sum()
                rest = b - np.sort(s[free])[::-1][: m - 1].sum()
                expected.append(a**2 / (2 * (rest + most)) > cutoff)
            np.testing.assert_array_equal(fixed, expected)
        node = d.copy()
        Search.fix_free(SimpleNamespace(m=m), node, a, b, s, cutoff)
        for value, had, fixed in zip((IN, OUT), (2, 5), found, strict=True):
            assert set(np.flatnonzero(node == value)) == {had, *free[fixed]}


@pytest.mark.parametrize("m", [2, 6])
def test_the_bound_of_a_node_comes_near_its_best_in_40_rounds(m):
    """Without extrapolations it is further than the tolerance."""
    rng, u, T_norm2 = np.random.default_rng(2), 30, 5.0
    Z = rng.normal(size=(40, u)) + rng.normal(size=(40, 1))
    G, B = Z.T @ Z, rng.normal(size=(2, u))
    B *= np.sqrt(T_norm2 / 2 / np.vdot(B, np.linalg.solve(G + np.eye(u), B.T).T))

    def bound(d, cutoff, most):
        held = G, np.arange(u)
        (*_, a, b, _), _ = node_bound(held, B, T_norm2, d, m, cutoff, most, no_rounds(d))
        return a**2 / (2 * b)

    start = np.full(u, (m - 1) / (u - 1))
    start[3] = IN
    d = start.copy()
    best = max(bound(d, np.inf, 9) for _ in range(60))
    assert bound(start.copy(), best, 1) < 0.9 * best
    assert bound(start.copy(), best, 40) > best * (1 - 1e-5)


@pytest.fixture
def hard():
    """Return samples whose best set of six takes hundreds of nodes."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 30)) + rng.normal(size=(40, 1))
    return X, np.arange(40) % 3


def test_a_limit_of_nodes_ends_with_the_gap_that_is_left(hard):
    X, y = hard
    best = SparGE(n_features_to_select=6, gap=0).fit(X, y).result_.stats
    asked = SparGE(n_features_to_select=6, gap=0, max_nodes=20)
    with pytest.warns(NotConvergedWarning, match="limit of nodes"):
        early = asked.fit(X, y).result_
    assert early.status is Status.LIMIT
    assert early.stats["nodes"] < best["nodes"]
    lower = early.stats["objective"] * (1 - early.stats["objective_gap"])
    assert early.stats["objective_gap"] > 0
    assert lower <= best["objective"] * (1 + ROUNDING)
    some = SparGE(n_features_to_select=6, gap=0.02).fit(X, y).result_
    assert some.status is Status.CONVERGED
    assert some.stats["objective_gap"] <= 0.02 * (1 + ROUNDING)
    assert some.stats["nodes"] < best["nodes"]


@pytest.mark.parametrize(
    ("what", "times"), [("open nodes", 3), ("candidates", 1)], ids=["nodes", "columns"]
)
def test_no_room_ends_the_search_with_the_gap_that_is_left(hard, monkeypatch, what, times):
    X, y = hard
    best = SparGE(n_features_to_select=6, gap=0).fit(X, y).result_.stats
    asked = []

    def refuse(size, text, limit=None):
        if what in text:
            asked.append(size)
            if len(asked) >= times:
                raise engine.MemoryLimitError(f"{text} needs more")

    monkeypatch.setattr(engine, "require_memory", refuse)
    with pytest.warns(NotConvergedWarning, match="does not fit in memory"):
        early = SparGE(n_features_to_select=6, gap=0).fit(X, y).result_
    assert early.status is Status.MEMORY
    assert 0 < early.stats["objective_gap"] < 1
    lower = early.stats["objective"] * (1 - early.stats["objective_gap"])
    assert early.history[-1]["lower"] * (1 - 1e-9) <= lower <= best["objective"]


def test_the_choice_is_that_of_any_tiles_and_of_a_run_that_resumes(hard):
    X, y = hard
    selector = SparGE(n_features_to_select=6, gap=0)
    one = selector.fit(X, y)
    tiled = SparGE(n_features_to_select=6, gap=0)
    tiled.fit(Matrix.from_array(X, tile_rows=7, tile_columns=9), y)
    np.testing.assert_array_equal(tiled.selected_, one.selected_)
    assert tiled.result_.stats["nodes"] == one.result_.stats["nodes"]
    cuts = len(one.result_.history)
    expected, resumed = fit_and_resume(selector, X, y, die_after=cuts + 2)
    np.testing.assert_array_equal(resumed.selected_, expected.selected_)
    assert resumed.result_.stats["nodes"] == expected.result_.stats["nodes"]


def test_the_search_does_not_depend_on_the_rows_that_are_held(hard, single_rows, monkeypatch):
    found = []
    for rows in (30, 12):
        monkeypatch.setattr(
            engine, "task_memory", lambda rows=rows: rows * 30 * 8 * tree.ROW_ARRAYS
        )
        found.append(SparGE(n_features_to_select=6, gap=0).fit(*hard))
    assert found[0].result_.stats == found[1].result_.stats
    np.testing.assert_array_equal(found[0].scores_, found[1].scores_)


@pytest.mark.slow
def test_more_candidates_than_fit_with_their_products_are_searched_by_rows():
    rng, limit = np.random.default_rng(2), 130 << 20
    X, y = rng.normal(size=(60, 2600)), np.arange(60) % 12
    X[:, :12] += np.eye(12)[y]
    with engine.limit_memory(limit):
        tracemalloc.start()
        stats = SparGE(n_features_to_select=3, gap=0).fit(X, y).result_.stats
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert 8 * tree.ARRAYS * stats["undecided"] ** 2 > limit >= peak
    assert stats["nodes"] > 1
    assert stats["objective_gap"] == 0


def test_kept_and_forbidden_features_are_obeyed(hard):
    X, y = hard
    X = X[:, :10]
    one = SparGE(n_features_to_select=4, gap=0, keep=[3], forbid=[0, 7]).fit(X, y)
    every = objectives(X, y, one.result_.stats["gamma"], 4)
    obey = {S: J for S, J in every.items() if 3 in S and not {0, 7} & set(S)}
    assert tuple(sorted(one.selected_)) == min(obey, key=obey.get)


@pytest.mark.parametrize("given", [{"loss": "squared_hinge"}, {"ranking": "svm"}, {"gap": 1.0}])
def test_a_gap_that_no_search_can_reach_is_refused(hard, given):
    with pytest.raises(ValueError, match="gap"):
        SparGE(n_features_to_select=2, **{"gap": 0, **given}).fit(*hard)
