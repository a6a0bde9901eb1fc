"""The cutting plane: the convex relaxation of choosing m features, solved by a few sets of m at a
time.

    max_V min_p  tr(VᵀT) − ½‖V‖² − 1/(2γ) ‖diag(p) Xcᵀ V‖²,    p ∈ {0,1}^d, 1ᵀp = m

This is SparGE's eq. 7 with the minimum and the maximum exchanged, as in eq. 8. V = T at first. Each
cut (a) scores every feature by s_j = ‖(XcᵀV)_j‖², one pass over X, (b) takes the m largest as the
next set (eq. 10; Alg. 1 step 2b corrected: the most violated constraint is the arg min of f), (c)
gathers their columns, (d) solves the restricted master, V = its residual T − XcW (eq. 9 and 11).

Any V bounds the relaxation from below: with a = tr(VᵀT) and b = ‖V‖² + (Σ of the m largest s_j)/γ,
the best scaling of V gives a²/(2b). The master's value bounds it from above. Their relative gap is
the stop.

Problems that differ in m, γ or the samples' weights run side by side: one pass scores all their V.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit

from bigfs.cutting_plane import restricted_master
from bigfs.cutting_plane.columns import Gathered
from bigfs.cutting_plane.elimination import Elimination, eliminate
from bigfs.linalg.prox import row_norms
from bigfs.result import Record, Result, Status, iterate
from bigfs.types import FloatArray, IntArray

Index = IntArray
CANDIDATES = 4  # times m: how many of the union's features, by weight, elimination starts from
# of the gap that is left: how well the next master is solved; half the factorizations of 0.05, a
# cut more
INEXACT = 0.5


# --- the problem ----------------------------------------------------------------------------------


class Problem:
    """The relaxation for sets of m at γ (absolute), on X, T and ω of the columns gathered, which
    problems may share.
    """

    def __init__(self, data: Gathered, m: int, gamma: float) -> None:
        self.data, self.m, self.gamma = data, m, gamma
        self.tt = float(np.vdot(data.T, data.T))
        self.last: tuple[Index, restricted_master.Factor] | None = None

    def restricted(self, sets: Sequence[Index]) -> tuple[restricted_master.Master, Index]:
        """The master over `sets`, and the features that its rows stand for."""
        features = np.unique(np.concatenate(sets))
        self.data.take(features)
        members = tuple(np.searchsorted(features, np.sort(s)) for s in sets)
        return restricted_master.Master(
            *self.data.gram(features), self.tt, self.gamma, members
        ), features

    def keep(self, features: Index, factor: restricted_master.Factor) -> None:
        """Remember the master's last factor, by the features it stands for."""
        self.last = (features[factor.alive], factor)

    def fitting(self, features: Index) -> restricted_master.Factor | None:
        """The remembered factor, for a master over `features`."""
        if self.last is None:
            return None
        own, factor = self.last
        return (
            factor._replace(alive=np.searchsorted(features, own))
            if np.isin(own, features).all()
            else None
        )

    def rounded(self, cuts: Cuts) -> tuple[Index, Elimination]:
        """The heaviest features of the union, and their order of elimination, paused at m."""
        heaviest = np.argsort(-row_norms(cuts.W), kind="stable")[: CANDIDATES * self.m]
        features = cuts.features[np.sort(heaviest)]
        self.data.take(features)  # a finished run that is resumed has gathered nothing yet
        return features, eliminate(*self.data.gram(features), self.tt, self.gamma, stops=(self.m,))

    def bound(self, V: FloatArray, s: FloatArray) -> float:
        """a²/(2b), a = tr(VᵀT), b = ‖V‖² + (Σ of the m largest s_j)/γ."""
        a, b = np.vdot(V, self.data.T), np.vdot(V, V) + s.sum() / self.gamma
        return float(a**2 / (2 * b)) if b > 0 else 0.0


# --- the scores -----------------------------------------------------------------------------------


def score(
    problems: Sequence[Problem], residuals: Sequence[FloatArray]
) -> list[tuple[Index, FloatArray]]:
    """For each problem the m largest s_j = ‖(XcᵀV)_j‖² and their features, best first.

    One pass for all of them.
    """
    X, sizes = problems[0].data.X, [problem.m for problem in problems]
    V = np.hstack([problem.data.centre(V) for problem, V in zip(problems, residuals, strict=True)])
    ends = np.cumsum([V.shape[1] for V in residuals])
    if X.column_tiles:
        found = X.map_columns(_best_of_block, V, ends, sizes, label="scores")
    else:
        found = [_best(_squares(X.T @ V, ends), 0, sizes)]
    best = []
    for k, m in enumerate(sizes):
        index, s = (np.concatenate(part) for part in zip(*(of[k] for of in found), strict=True))
        first = np.lexsort((index, -s))[:m]
        best.append((index[first], s[first]))
    return best


def _best_of_block(
    block: Any, start: int, stop: int, V: FloatArray, ends: Index, sizes: list[int]
) -> list[tuple[Index, FloatArray]]:
    if sp.issparse(block):
        columns = sp.csc_array(block)
        s = np.empty((block.shape[1], len(ends)))
        _column_scores(columns.indptr, columns.indices, columns.data, V, ends, s)
    else:
        s = _squares(block.T @ V, ends)
    return _best(s, start, sizes)


def _squares(P: FloatArray, ends: Index) -> FloatArray:
    """‖·‖² of each row's parts that end at `ends`."""
    return np.stack(
        [np.einsum("jr,jr->j", part, part) for part in np.split(P, ends[:-1], axis=1)], axis=1
    )


@njit(nogil=True, cache=True)
def _column_scores(
    indptr: FloatArray,
    rows: FloatArray,
    values: FloatArray,
    V: FloatArray,
    ends: Index,
    s: FloatArray,
) -> None:
    """The same of XᵀV, a column at a time: nothing d × r exists."""
    product = np.empty(V.shape[1])
    for j in range(len(indptr) - 1):
        product[:] = 0
        for p in range(indptr[j], indptr[j + 1]):
            x = np.float64(values[p])
            for c in range(len(product)):
                product[c] += x * V[rows[p], c]
        c = 0
        for k in range(len(ends)):
            s[j, k] = 0
            while c < ends[k]:
                s[j, k] += product[c] ** 2
                c += 1


def _best(scores: FloatArray, start: int, sizes: list[int]) -> list[tuple[Index, FloatArray]]:
    """The m largest of each column of `scores`, equal ones by lower index."""
    best = []
    for s, m in zip(scores.T, sizes, strict=True):
        least = np.partition(s, len(s) - m)[len(s) - m] if len(s) > m else -np.inf
        candidates = np.flatnonzero(s >= least)
        first = candidates[np.argsort(-s[candidates], kind="stable")][:m]
        best.append((first + start, s[first]))
    return best


# --- the step -------------------------------------------------------------------------------------


class Cuts(NamedTuple):
    """The cutting plane after some cuts, with its certificate.

    sets : the feature sets pᵗ that carry weight, each sorted by score.
    eta : (κ,) their weights on the simplex.
    features, W : the u features in those sets, and Σ_t Ωᵗ (u × r).
    following : the next set, found by the last pass.
    upper, lower : bounds of the relaxation's optimum; `lower` is the best so far.
    """

    sets: tuple[Index, ...]
    eta: FloatArray
    features: Index
    W: FloatArray
    following: Index
    upper: float
    lower: float

    @property
    def gap(self) -> float:
        return max(self.upper - self.lower, 0.0) / self.upper if self.upper > 0 else 0.0


def start(problem: Problem) -> Cuts:
    """V = T: no set yet; its following one comes by the first pass."""
    none = np.empty(0, dtype=np.int64)
    return Cuts(
        (), np.empty(0), none, np.empty((0, problem.data.T.shape[1])), none, problem.tt / 2, 0.0
    )


def solve(problem: Problem, cuts: Cuts, solver: str, tol: float) -> Cuts:
    """Add the violated set and solve the master; sets without weight go."""
    sets = (*cuts.sets, cuts.following)
    restricted, features = problem.restricted(sets)
    eta, W = np.append(cuts.eta, 0.0 if cuts.sets else 1.0), np.zeros_like(restricted.B)
    W[np.searchsorted(features, cuts.features)] = cuts.W
    solution = restricted_master.solve(
        restricted, eta, solver, max(tol, INEXACT * cuts.gap), problem.fitting(features), W
    )
    problem.keep(features, solution.factor)
    kept = np.flatnonzero(solution.eta > 0)
    used = np.unique(np.concatenate([restricted.sets[t] for t in kept]))
    return cuts._replace(
        sets=tuple(sets[t] for t in kept),
        eta=solution.eta[kept],
        features=features[used],
        W=solution.W[used],
        upper=solution.value,
    )


def certify(problems: Sequence[Problem], runs: Sequence[Cuts]) -> list[Cuts]:
    """One pass: the bound that each residual V gives, and the set that violates it most."""
    residuals = [
        problem.data.residual(cuts.W, cuts.features)
        for problem, cuts in zip(problems, runs, strict=True)
    ]
    return [
        cuts._replace(following=following, lower=max(cuts.lower, problem.bound(V, s)))
        for problem, cuts, V, (following, s) in zip(
            problems, runs, residuals, score(problems, residuals), strict=True
        )
    ]


def record(cuts: Cuts) -> Record:
    return {
        "upper": cuts.upper,
        "lower": cuts.lower,
        "gap": cuts.gap,
        "sets": len(cuts.sets),
        "features": len(cuts.features),
    }


# --- the loop -------------------------------------------------------------------------------------


def cutting_plane(problem: Problem, *, solver: str, tol: float, max_iter: int) -> Result[Cuts]:
    """Cut until the relative gap is `tol`: κ cuts are κ + 1 passes."""
    return iterate(
        lambda cuts: certify([problem], [solve(problem, cuts, solver, 1e-2 * tol)])[0],
        *certify([problem], [start(problem)]),
        measure=record,
        stop="gap",
        tol=tol,
        max_iter=max_iter,
        name="SparGE",
    )


class SideBySide(NamedTuple):
    """The cuts of several problems (`Cuts`, or their fields as a checkpoint gives them back)."""

    runs: tuple[Any, ...]


def side_by_side(
    problems: Sequence[Problem], *, solver: str, tol: float, max_iter: int, name: str
) -> list[Result[Cuts]]:
    """`cutting_plane` of each problem, in the passes of the longest: a pass serves all that have
    not ended.
    """

    def step(state: SideBySide) -> SideBySide:
        runs = [Cuts(*run) for run in state.runs]
        open_ = [k for k, cuts in enumerate(runs) if cuts.gap > tol or not cuts.sets]
        moved = certify(
            [problems[k] for k in open_],
            [solve(problems[k], runs[k], solver, 1e-2 * tol) for k in open_],
        )
        for k, cuts in zip(open_, moved, strict=True):
            runs[k] = cuts
        return SideBySide(tuple(runs))

    def measure(state: SideBySide) -> Record:
        records = [record(cuts) for cuts in state.runs]
        each = {f"{key} {k}": value for k, one in enumerate(records) for key, value in one.items()}
        return {"gap": max(one["gap"] for one in records), **each}

    first = SideBySide(tuple(certify(problems, [start(problem) for problem in problems])))
    found = iterate(step, first, measure=measure, stop="gap", tol=tol, max_iter=max_iter, name=name)
    results = []
    for k, run in enumerate(found.value.runs):
        history = [
            {key: joint[f"{key} {k}"] for key in ("upper", "lower", "gap", "sets", "features")}
            for joint in found.history
        ]
        ended = next((i + 1 for i, one in enumerate(history) if one["gap"] <= tol), len(history))
        status = Status.CONVERGED if Cuts(*run).gap <= tol else found.status
        results.append(Result(Cuts(*run), status, history[:ended]))
    return results
