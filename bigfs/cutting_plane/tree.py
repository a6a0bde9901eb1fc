"""The exact choice: a tree of decisions on the features that the bound of a pass leaves undecided.

For any V the bound a²/(2b) of `bigfs.cutting_plane.loop` has b = ‖V‖² + (Σ of the m largest s_j)/γ.
Forcing feature j into the set takes (s₍ₘ₎ − s_j)/γ from b, and forcing it out of the set takes
(s_j − s₍ₘ₊₁₎)/γ. With the cutoff u of the objective and δ = γ(b − a²/(2u)), no set of an objective
below u holds a feature with s_j < s₍ₘ₎ − δ, and each one holds those with s_j > s₍ₘ₊₁₎ + δ.

The undecided columns are gathered. A node of the tree has features that are in and that are out. It
is bounded by the relaxation, and its features are fixed by the rule above. The last two features of
a set are enumerated. Where the columns are independent, part of their own products goes into the
penalty, which changes no objective and raises the bounds: G + γI = (G − Δ) + (γI + Δ), with
Δ = c · diag(G) and c the least eigenvalue of the columns' correlations.

A bound needs the rows of G of the features with weight alone. Where G does not fit, the columns are
held instead, and the rows that were needed. No answer depends on which rows are held.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import eigh

from bigfs import engine
from bigfs.cutting_plane.columns import LARGE_SIZE, Columns, GatheredColumns
from bigfs.cutting_plane.elimination import inverse
from bigfs.cutting_plane.exchanges import Exchanges
from bigfs.cutting_plane.node import IN, LEAST, OUT, no_rounds, node_bound
from bigfs.cutting_plane.relaxation import CuttingPlaneState, Relaxation
from bigfs.cutting_plane.scores import largest_scores
from bigfs.engine import MemoryLimitError
from bigfs.linalg.sparse_gram import sparse_gram
from bigfs.matrix.gathering import PEAK_ENTRY_BYTES
from bigfs.result import Record, Result, Status, iterate, warn_early_end
from bigfs.rounding import unless_rounding
from bigfs.types import BoolArray, FloatArray, IntArray

ROUNDING = 1e-9  # share of an objective or a bound below which nothing is claimed
BATCH_NUMBERS = 20_000  # features of the nodes of a step, about
ARRAYS = 5  # u × u, that the search holds
ROW_ARRAYS = 4  # of the size of the held rows, while all are made
ROUNDS = 60  # of the search for the bound of a node
ROOT_ROUNDS = 2000
PAIR_ARRAYS = 7  # of the size of the products of features of which all pairs are enumerated
MOST_PAIRS = 1000  # free features of which all pairs are enumerated
MOST_LISTS = 10_000  # that are kept
LEFT = 0.95  # share of the features above which the root is not bounded again without the others


class Tree(NamedTuple):
    """The open nodes, by bound, and the best lists. Positions are those among the candidates."""

    d: FloatArray  # nodes × u: IN, OUT, or the weight of a free feature where its bound ended
    bounds: FloatArray  # (nodes,)
    lists: IntArray  # L × m: increasing positions, best first
    objectives: FloatArray  # (L,)
    n_nodes: int = 0

    @property
    def best(self) -> float:
        """The least objective."""
        return float(self.objectives[0])


class Candidates(NamedTuple):
    """The features that sets below a cutoff may hold."""

    features: IntArray  # (u,), increasing
    is_in: BoolArray  # (u,): those that every such set holds

    @property
    def n_undecided(self) -> int:
        """Number of the features that only some may hold."""
        return int(np.count_nonzero(~self.is_in))


def fix(s: FloatArray, k: int, slack: float) -> tuple[BoolArray, BoolArray]:
    """Return the masks of the features that are in and out for good, by their scores.

    A set takes k of them, and `slack` is δ.
    """
    if not 0 < k < len(s):
        return np.full(len(s), k > 0), np.full(len(s), k == 0)
    after, last = np.partition(s, (len(s) - k - 1, len(s) - k))[[len(s) - k - 1, len(s) - k]]
    return s > after + slack, s < last - slack


def candidates(problem: Relaxation, state: CuttingPlaneState, cutoff: float) -> Candidates:
    """Return the features that sets of an objective below `cutoff` may hold. One pass over X."""
    residual, d = problem.residual(state), problem.data.X.shape[1]
    ((features, s),) = largest_scores([problem], [state], [residual], [d])
    order = np.argsort(features)
    features, s = features[order], s[order]
    is_in = np.isin(features, problem.constraints.kept)
    k = problem.m - int(np.count_nonzero(is_in))
    b = residual.norm2 + float(s[is_in].sum() + np.sort(s[~is_in])[::-1][:k].sum()) / problem.gamma
    slack = problem.gamma * (b * (1 + ROUNDING) - residual.a**2 / (2 * cutoff))
    free = np.flatnonzero(~is_in)
    fixed_in, fixed_out = fix(s[free], k, slack)
    is_in[free[fixed_in]] = True
    stays = np.ones(len(features), dtype=bool)
    stays[free[fixed_out]] = False
    return Candidates(features[stays], is_in[stays])


class Search:
    """The search for the best sets of m candidates.

    With `slack` above zero, all sets whose objective is above the best by that share at most are
    kept. Below zero, the search may miss a set that is better by that share. It `is_whole` where it
    holds all rows of G, of gathered features.
    """

    def __init__(
        self, problem: Relaxation, features: IntArray, slack: float, is_whole: bool = True
    ) -> None:
        self.problem, self.features, self.slack = problem, features, slack
        self.T_norm2, self.m, self.is_whole = problem.data.T_norm2, problem.m, is_whole
        self.held_bytes = 0  # beside the open nodes
        self.precision: Any = np.float64 if is_whole else np.float16  # of these
        if not is_whole:
            self.hold_columns()
            return
        data, gamma = problem.data, problem.gamma
        G, B = data.gram(features)
        self.rows, self.B = G / gamma, B / np.sqrt(gamma)  # with the penalty one
        self.position = np.arange(len(G))  # of the row of each feature, −1 where it is not held
        diagonal, c = self.rows.diagonal().copy(), 0.0
        if len(G) < data.X.shape[0]:
            root = np.sqrt(np.where(diagonal > 0, diagonal, 1))
            spectrum = eigh(self.rows / np.outer(root, root), eigvals_only=True)
            c = max(float(spectrum[0]) - ROUNDING * float(spectrum[-1]), 0.0)
        scale = 1 / np.sqrt(1 + c * diagonal)
        self.tight_rows = (self.rows - np.diag(c * diagonal)) * np.outer(scale, scale)
        self.tight_B = np.ascontiguousarray((self.B * scale[:, None]).T)

    def hold_columns(self) -> None:
        """Hold the columns, and room for rows of G. What `Columns.add` computes has its bits."""
        data, u = self.problem.data, len(self.features)
        if not isinstance(data, GatheredColumns):
            raise MemoryLimitError("the columns lie in the tiles")
        n_rows = min(u, int(engine.task_memory()) // (8 * ROW_ARRAYS * u))
        gathered = PEAK_ENTRY_BYTES * int(data.X.stats.nnz[self.features].sum())
        pairs = 8 * PAIR_ARRAYS * min(u, MOST_PAIRS) ** 2
        self.held_bytes = gathered + pairs + 8 * ROW_ARRAYS * u * (n_rows + data.r)
        engine.require_memory(self.held_bytes, "columns of the candidates")
        Z = data.X.columns(self.features)
        self.mu = Z.T @ data.omega**2 / data.omega_norm2
        self.B = Z.T @ data.center(data.T) / np.sqrt(self.problem.gamma)
        self.Z = data.weighted(Z)
        squares = sp.csc_array((np.square(self.Z.data, dtype=float), Z.indices, Z.indptr), Z.shape)
        uncentered = squares.T @ np.ones(len(data.T))
        diagonal = uncentered - data.omega_norm2 * self.mu**2
        self.is_constant = unless_rounding(diagonal, uncentered) == 0
        self.B[self.is_constant] = 0
        self.diagonal = np.where(self.is_constant, 0, diagonal) / self.problem.gamma
        self.rows, self.position = np.empty((n_rows, u)), np.full(u, -1)
        self.tight_rows, self.tight_B = self.rows, np.ascontiguousarray(self.B.T)

    def part(self, of: IntArray, others: IntArray) -> FloatArray:
        """Return G of features and others (of × others), from the rows if they are held."""
        if (self.position[of] >= 0).all():
            return self.rows[np.ix_(self.position[of], others)]
        G = sparse_gram(self.Z[:, others], self.Z[:, of]).T
        G -= self.problem.data.omega_norm2 * np.outer(self.mu[of], self.mu[others])
        G[self.is_constant[of]] = G[:, self.is_constant[others]] = 0
        return np.asarray(G / self.problem.gamma)

    def hold_rows(self, features: IntArray) -> None:
        """Hold the rows of these features, without all earlier ones where these leave no room."""
        missing, count = features[self.position[features] < 0], int(self.position.max()) + 1
        if count + len(missing) > len(self.rows):
            self.position[:], missing, count = -1, features, 0
        if len(missing) > len(self.rows):
            raise MemoryLimitError(f"the rows of {len(missing):,} features do not fit")
        some = slice(count, count + len(missing))
        self.rows[some] = self.part(missing, np.arange(len(self.features)))
        self.position[missing] = np.arange(some.start, some.stop)

    def cutoff(self, best: float) -> float:
        """Return the objective from which a node is of no interest."""
        return best * (1 + self.slack)

    def objective(self, inside: IntArray) -> float:
        """Return J of a set."""
        K = self.part(inside, inside) + np.eye(len(inside))
        return 0.5 * (
            self.T_norm2 - float(np.vdot(self.B[inside], np.linalg.solve(K, self.B[inside])))
        )

    def bound(self, d: FloatArray, cutoff: float, rounds: int) -> tuple[float, float, FloatArray]:
        """Return a and b of the best bound of a node, and its scores. `d` is improved."""
        given, done = (self.tight_B, self.T_norm2, d, self.m, cutoff, rounds), no_rounds(d)
        while True:
            done, missing = node_bound((self.tight_rows, self.position), *given, done)
            if not len(missing):
                return done[-3:]
            self.hold_rows(missing)

    def fix_free(self, d: FloatArray, a: float, b: float, s: FloatArray, cutoff: float) -> None:
        """Fix the free features of a node, whose bound is a²/(2b)."""
        free = np.flatnonzero((d != IN) & (d != OUT))
        k = self.m - int(np.count_nonzero(d == IN))
        is_in, is_out = fix(s[free], k, b * (1 + ROUNDING) - a**2 / (2 * cutoff))
        d[free[is_in]], d[free[is_out]] = IN, OUT

    def branch(
        self, d: FloatArray, a: float, b: float, s: FloatArray
    ) -> list[tuple[float, FloatArray]]:
        """Return the two nodes with the least decided feature in and out, with their bounds."""
        free = np.flatnonzero((d != IN) & (d != OUT))
        k = self.m - int(np.count_nonzero(d == IN))
        undecided = d[free] * (1 - d[free])
        # where all are whole, the chosen one that the others replace worst
        j = free[np.argmax(undecided if undecided.max() > LEAST else d[free] * s[free])]
        after, last = np.sort(s[free])[[len(free) - k - 1, len(free) - k]]
        result = []
        for decided, less in ((IN, last - s[j]), (OUT, s[j] - after)):
            child = d.copy()
            child[j] = decided
            result.append((a**2 / (2 * (b - max(less, 0.0))), child))
        return result

    def enumerate_last(self, d: FloatArray, limit: float) -> tuple[IntArray, FloatArray]:
        """Return the sets of a node with one or two features left, up to the limit, with J."""
        inside, free = np.flatnonzero(d == IN), np.flatnonzero((d != IN) & (d != OUT))
        k = self.m - len(inside)
        if len(free) <= k or k == 0:
            J, chosen = np.array([self.objective(np.append(inside, free[:k]))]), np.arange(k)[None]
        else:
            H = np.ascontiguousarray(self.part(inside, free).T)
            P = inverse(self.part(inside, inside), 1.0) if len(inside) else np.empty((0, 0))
            W = P @ self.B[inside]
            C = self.B[free] - H @ W
            base = 0.5 * (self.T_norm2 - float(np.vdot(self.B[inside], W)))
            if k == 1 and not self.is_whole:
                sigma = self.diagonal[free] + 1 - np.einsum("ji,ji->j", H @ P, H)
                norms2 = np.einsum("jr,jr->j", C, C)
            else:
                S = self.part(free, free) + np.eye(len(free)) - H @ P @ H.T
                sigma, products = S.diagonal(), C @ C.T
                norms2 = products.diagonal()
            if k == 1:
                J, chosen = base - norms2 / (2 * sigma), np.arange(len(free))[:, None]
            else:
                explained = np.outer(norms2, sigma)
                explained = explained + explained.T - 2 * S * products
                i, j = np.triu_indices(len(free), 1)
                explained = explained[i, j] / (sigma[i] * sigma[j] - S[i, j] ** 2)
                J, chosen = base - explained / 2, np.stack([i, j], axis=1)
        is_near = limit >= J
        J, chosen = J[is_near], free[chosen[is_near]]
        return np.sort(np.hstack([np.tile(inside, (len(J), 1)), chosen]), axis=1), J

    def is_last(self, d: FloatArray) -> bool:
        """Return whether the sets of a node are enumerated."""
        n_in, n_out = np.count_nonzero(d == IN), np.count_nonzero(d == OUT)
        n_free, k = len(d) - n_in - n_out, self.m - n_in
        return bool(n_free <= k or k <= 1 or (k == 2 and n_free <= MOST_PAIRS))

    def rounded(self, d: FloatArray, best: float) -> tuple[IntArray, FloatArray]:
        """Return the set of the largest d after exchanges, if it is better than the best one."""
        inside = np.sort(np.lexsort((np.arange(len(d)), -d))[: self.m])
        if not best * (1 - ROUNDING) > self.objective(inside):
            return np.empty((0, self.m), dtype=np.int64), np.empty(0)
        inside, J = self.exchanged(inside, d)
        return inside[None, :], np.array([J])

    def exchanged(self, inside: IntArray, d: FloatArray) -> tuple[IntArray, float]:
        """Return a set after exchanges of its features, but for those that are in, and its J.

        Where not all rows are held, the features without weight take no part.
        """
        near, G = np.arange(len(d)), self.rows
        if not self.is_whole:
            near = np.union1d(np.flatnonzero(d > 0), inside)
            G = self.part(near, near)
        if len(inside) < len(near):
            chosen, fixed = np.searchsorted(near, inside), np.flatnonzero(d[near] == IN)
            exchanges = Exchanges(G, self.B[near], 1.0, chosen, fixed)
            exchanges.improve(self.T_norm2)
            inside = np.sort(near[exchanges.inside])
        return inside, self.objective(inside)

    def batch(self, tree: Tree) -> int:
        """Return how many nodes a step takes: more where more are open, because it sorts them."""
        n_open = len(tree.bounds)
        return min(n_open, max(BATCH_NUMBERS // len(self.features), 20, n_open // 8))

    def step(self, tree: Tree) -> Tree:
        """Take the nodes of the least bounds: enumerate, bound, fix or branch each."""
        count = self.batch(tree)
        open_bytes = 3 * tree.d.itemsize * len(self.features) * (len(tree.bounds) + 2 * count)
        what = f"{len(tree.bounds):,} open nodes of the exact choice"
        engine.require_memory(self.held_bytes + open_bytes, what)
        lists, J, best = [tree.lists], [tree.objectives], tree.best
        nodes, bounds = [tree.d[count:]], [tree.bounds[count:]]
        for node, inherited in zip(tree.d[:count], tree.bounds, strict=False):
            d, cutoff = node.astype(np.float64), self.cutoff(best)
            if inherited >= cutoff:
                continue
            if self.is_last(d):
                found = self.enumerate_last(d, max(cutoff, best))
            else:
                a, b, s = self.bound(d, cutoff, ROUNDS)
                if a**2 >= 2 * b * cutoff:
                    continue
                found = self.rounded(d, best)
                self.fix_free(d, a, b, s, cutoff)
                children = [(a**2 / (2 * b), d)] if self.is_last(d) else self.branch(d, a, b, s)
                nodes += [child[None, :].astype(self.precision) for _, child in children]
                bounds += [np.array([max(bound, inherited)]) for bound, _ in children]
            lists.append(found[0])
            J.append(found[1])
            best = min([best, *found[1]])
        return self.sorted(
            Tree(
                np.concatenate(nodes),
                np.concatenate(bounds),
                np.concatenate(lists),
                np.concatenate(J),
                tree.n_nodes + count,
            )
        )

    def sorted(self, tree: Tree) -> Tree:
        """Return the tree with the nodes below the cutoff by bound, and the lists by objective."""
        lists, first = np.unique(tree.lists, axis=0, return_index=True)
        order = np.lexsort((np.arange(len(first)), tree.objectives[first]))
        lists, J = lists[order], tree.objectives[first][order]
        n_near = int(np.count_nonzero(J[0] * (1 + max(self.slack, 0.0)) >= J))
        order = np.lexsort((np.arange(len(tree.bounds)), tree.bounds))
        order = order[tree.bounds[order] < self.cutoff(float(J[0]))]
        d, bounds = tree.d[order].astype(self.precision, copy=False), tree.bounds[order]
        return tree._replace(d=d, bounds=bounds, lists=lists[:n_near], objectives=J[:n_near])

    def gap(self, tree: Tree) -> float:
        """Return the share of the best objective by which an open node may be below the cutoff.

        For the best set alone it is the share by which a set may be better.
        """
        upper = self.cutoff(tree.best) if self.slack > 0 else tree.best
        lower = tree.bounds[0] if len(tree.bounds) else self.cutoff(tree.best)
        gap = (upper - float(lower)) / tree.best
        return gap if gap > 2 * ROUNDING else 0.0


def gathers(data: Columns, features: IntArray) -> bool:
    """Return whether all products of the features are held, after gathering them if they fit."""
    if len(features) < LARGE_SIZE.value or not data.in_single:
        with contextlib.suppress(MemoryLimitError):
            engine.require_memory(ARRAYS * 8 * len(features) ** 2, "products of the candidates")
            data.add(features)
    return bool(np.isin(features, data.features).all()) and data.G.dtype == np.float64


def begin(
    problem: Relaxation, state: CuttingPlaneState, found: Candidates, best: IntArray, slack: float
) -> tuple[Search, Tree]:
    """Return the search and its root, narrowed as long as that leaves fewer candidates."""
    features = np.union1d(found.features, best)
    d = np.zeros(problem.data.X.shape[1])
    for features_of_set, weight in zip(state.sets, state.eta, strict=True):
        d[features_of_set] += weight
    d = d[features]
    d[~np.isin(features, found.features)] = OUT
    d[np.isin(features, found.features[found.is_in])] = IN
    while True:
        search = Search(problem, features, slack, gathers(problem.data, features))
        best, J = search.exchanged(np.searchsorted(features, best), d)
        tree = Tree(d[None, :], np.zeros(1), best[None, :], np.array([J]))
        if search.is_last(d):
            return search, tree
        a, b, s = search.bound(d, search.cutoff(J), ROOT_ROUNDS)
        search.fix_free(d, a, b, s, search.cutoff(J))
        tree = search.sorted(tree._replace(bounds=np.array([a**2 / (2 * b)])))
        best, stays = features[best], d != OUT
        stays |= np.isin(features, best)
        if not len(tree.bounds) or np.count_nonzero(stays) > LEFT * len(features):
            return search, tree
        features, d = features[stays], d[stays]
        del search  # before the next one holds its own


class ExactChoice(NamedTuple):
    """The best set of m features, or all that are nearly as good, best first."""

    lists: IntArray  # L × m
    objectives: FloatArray  # (L,)
    gap: float  # as `Search.gap` says
    n_undecided: int  # features, after the passes over X
    n_nodes: int
    status: Status


def search_exactly(
    problem: Relaxation,
    state: CuttingPlaneState,
    best: IntArray,
    slack: float,
    max_nodes: int,
    max_seconds: float | None,
    name: str,
) -> ExactChoice:
    """Search for the best set from the list `best`, with the `slack` of `Search`.

    The nodes are taken in an order that depends on the data alone. A limit of seconds ends at
    another node on another machine.
    """
    best = np.sort(best)
    problem.data.add(best)
    first = Search(problem, best, slack)
    J = first.objective(np.arange(problem.m))
    found = candidates(problem, state, first.cutoff(J))
    began = time.perf_counter()
    try:
        search, root = begin(problem, state, found, best, slack)
    except MemoryLimitError:
        text = f"{len(found.features):,} features may be in the best set, too many to search"
        warn_early_end(f"{name} {Status.MEMORY} ({text})")
        gap = max(J - state.lower, 0.0) / J
        return ExactChoice(best[None, :], np.array([J]), gap, found.n_undecided, 0, Status.MEMORY)

    def ends(tree: Tree) -> Status | None:
        late = max_seconds is not None and time.perf_counter() - began > max_seconds
        many = tree.n_nodes >= max_nodes or len(tree.lists) > MOST_LISTS
        return Status.LIMIT if late or many else None

    def measure(tree: Tree) -> Record:
        return {
            "gap": search.gap(tree),
            "objective": tree.best,
            "nodes": tree.n_nodes,
            "open": len(tree.bounds),
        }

    result: Result[Tree] = iterate(
        search.step,
        root,
        measure=measure,
        stop="gap",
        tol=max(-slack, 0.0) * (1 + ROUNDING),
        max_iter=max_nodes,
        name=name,
        no_room=MemoryLimitError,
        ends=ends,
    )
    tree = result.value
    lists = search.features[tree.lists]
    problem.data.add(lists[0])
    return ExactChoice(
        lists,
        tree.objectives,
        float(search.gap(tree)),
        found.n_undecided,
        tree.n_nodes,
        result.status,
    )
