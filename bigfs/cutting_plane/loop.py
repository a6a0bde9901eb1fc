"""The cutting plane: the convex relaxation of choosing m features, solved by a few sets of m at a
time.

    max_V min_p  tr(VᵀT) − ½‖V‖² − 1/(2γ) ‖diag(p) Xcᵀ V‖²,    p ∈ {0,1}^d, 1ᵀp = m

This is SparGE's eq. 7 with the minimum and the maximum exchanged, as in eq. 8. It starts at V = T.
Each cut

(a) scores every feature by s_j = ‖(XcᵀV)_j‖², in one pass over X,
(b) takes the m largest as the next set (eq. 10; Alg. 1 step 2b corrected: the most violated
    constraint is the arg min of f),
(c) gathers their columns, and those of the next best sets where a pass is dear
    (`sets_per_pass`),
(d) solves the restricted master, whose residual T − XcW is the next V (eq. 9 and 11),
(e) repeats (a), (b) and (d) on the gathered columns alone, where XcᵀV = B − GW needs no pass.

Any V bounds the relaxation from below: with a = tr(VᵀT) and b = ‖V‖² + (Σ of the m largest s_j)/γ,
the best scaling of V gives a²/(2b). The value of the master bounds it from above. The cuts stop at
their relative gap.

Problems that differ in m, in γ or in the weights of the samples are solved jointly: one pass scores
the features for all their V.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit

from bigfs.cutting_plane import master_solvers
from bigfs.cutting_plane.columns import Columns, Residual
from bigfs.cutting_plane.elimination import Elimination, eliminate
from bigfs.cutting_plane.restricted_master import Factor, RestrictedMaster
from bigfs.cutting_plane.tiled_columns import TiledColumns
from bigfs.linalg.prox import row_norms
from bigfs.result import Record, Result, Status, iterate
from bigfs.types import FloatArray, IntArray

CANDIDATES = 4  # times m: how many of the union's features, by weight, elimination starts from
# The master is solved to half the current gap. Compared with 0.05 this halves the factorizations
# and costs one more cut.
MASTER_GAP_SHARE = 0.5
MASTER_TOL_SHARE = 1e-2  # of the cutting plane's own tolerance: no master is solved further
# Cuts on the gathered columns end at this share of the gap that the last pass left.
INNER_GAP_SHARE = 1 / 3
# Below this share of the tolerance there is nothing to gain before the next pass.
INNER_TOL_SHARE = 0.5
MAX_INNER_CUTS = 3  # between two passes, so that `max_iter` bounds the work
ALL_GATHERED_SHARE = 0.75  # a master whose sets hold this share takes all gathered features
MIN_PASS_NNZ = 100_000  # a pass over fewer entries is not worth saving
# Seconds (measured), to weigh a cut on the gathered columns against a pass: per u³, per u²(r + 3);
# for a pass with its gather: in all, and per entry · (r + 4).
FACTOR_SECONDS, PRODUCT_SECONDS = 1e-11, 1.5e-9
PASS_SECONDS, ENTRY_SECONDS = 0.1, 2.5e-9


# --- the problem ----------------------------------------------------------------------------------


class Relaxation:
    """The convex relaxation for m features and penalty γ (unscaled).

    Several relaxations may share `data`.
    """

    def __init__(self, data: Columns, m: int, gamma: float) -> None:
        self.data, self.m, self.gamma = data, m, gamma
        self.T_norm2 = data.T_norm2
        self.last_factor: tuple[IntArray, Factor] | None = None  # and the features it stands for

    def master(
        self, sets: Sequence[IntArray], gathered: IntArray
    ) -> tuple[RestrictedMaster, IntArray]:
        """Return the master over `sets`, and the features that its rows stand for.

        These are all gathered ones if the sets hold most of them, because G is not copied then.
        """
        features = np.unique(np.concatenate(sets))
        self.data.add(features)
        if len(features) >= ALL_GATHERED_SHARE * len(gathered):
            features = gathered
        positions = tuple(np.searchsorted(features, np.sort(s)) for s in sets)
        G, B = self.data.gram(features)
        return RestrictedMaster(G, B, self.T_norm2, self.gamma, positions), features

    def keep_factor(self, features: IntArray, factor: Factor) -> None:
        """Keep the last factor of a master over `features`."""
        self.last_factor = (features[factor.active], factor)

    def factor_for(self, features: IntArray) -> Factor | None:
        """Return the kept factor, for a master over `features`, if they include all of its own."""
        if self.last_factor is None:
            return None
        factor_features, factor = self.last_factor
        if not np.isin(factor_features, features).all():
            return None
        return factor._replace(active=np.searchsorted(features, factor_features))

    def eliminate_to_m(self, state: CuttingPlaneState) -> tuple[IntArray, Elimination]:
        """Return the features of largest weight in the union, and their order of elimination."""
        heaviest = np.argsort(-row_norms(state.W), kind="stable")[: CANDIDATES * self.m]
        features = state.features[np.sort(heaviest)]
        self.data.add(features)  # a finished run that is resumed has gathered nothing yet
        G, B = self.data.gram(features)
        return features, eliminate(G, B, self.T_norm2, self.gamma, pauses=(self.m,))

    def lower_bound(self, residual: Residual, s: FloatArray) -> float:
        """Return a²/(2b), a = tr(VᵀT), b = ‖V‖² + (Σ of the m largest s_j)/γ."""
        b = residual.norm2 + float(s.sum()) / self.gamma
        return residual.a**2 / (2 * b) if b > 0 else 0.0

    def inner_certificate(self, state: CuttingPlaneState) -> tuple[IntArray, float]:
        """Return the next set among the gathered features, and a bound of the relaxation on them.

        It needs no pass, because XcᵀV = B − GW, a = ‖T‖² − tr(BᵀW) and ‖V‖² = a − tr(Wᵀ(B − GW)).
        """
        self.data.add(state.gathered)  # a resumed run has gathered nothing yet
        G, B = self.data.gram(state.gathered)
        positions = np.searchsorted(state.gathered, state.features)
        W = np.zeros_like(B)
        W[positions] = state.W
        C = B - G @ W
        s = row_norms(C) ** 2
        best = np.argsort(-s, kind="stable")[: self.m]
        residual = Residual.from_products(self.T_norm2, B[positions], C[positions], state.W)
        return state.gathered[best], self.lower_bound(residual, s[best])

    def is_cheap_inside(self, state: CuttingPlaneState) -> bool:
        """Return whether a cut on the gathered columns takes less than twice the time of a pass.

        Both are predicted from counts alone, so the answer does not depend on a clock.
        """
        nnz = self.data.X.nnz
        if nnz < MIN_PASS_NNZ:
            return False
        u, r = len(state.gathered), self.data.r
        cut = FACTOR_SECONDS * u**3 + PRODUCT_SECONDS * u**2 * (r + 3)
        one_pass = PASS_SECONDS + ENTRY_SECONDS * nnz * (r + 4)
        return cut < 2 * one_pass


# --- the scores -----------------------------------------------------------------------------------


def largest_scores(
    problems: Sequence[Relaxation],
    states: Sequence[CuttingPlaneState],
    residuals: Sequence[Residual],
) -> list[tuple[IntArray, FloatArray]]:
    """Return, for each problem, the features of the largest s_j = ‖(XcᵀV)_j‖², and these s_j.

    They come best first, m for each set that a pass gathers. One pass over X serves all problems.
    """
    data = problems[0].data
    sizes = [problem.m * data.sets_per_pass for problem in problems]
    ends = np.cumsum([problem.data.r for problem in problems])
    if isinstance(data, TiledColumns):
        weights, step = [(state.features, state.W) for state in states], data.weights_per_pass
        norms2 = [
            _group_norms2(data.residual_products(weights[k : k + step]), ends[:step])
            for k in range(0, len(weights), step)
        ]
        tiles = [_largest(np.hstack(norms2), 0, sizes)]
    else:
        V = np.hstack([residual.V for residual in residuals if residual.V is not None])
        if data.X.column_tiles:
            tiles = data.X.map_columns(_largest_of_tile, V, ends, sizes, label="scores")
        else:
            tiles = [_largest(_group_norms2(data.X.T @ V, ends), 0, sizes)]
    result = []
    for k, size in enumerate(sizes):
        features = np.concatenate([tile[k][0] for tile in tiles])
        s = np.concatenate([tile[k][1] for tile in tiles])
        best = np.lexsort((features, -s))[:size]
        result.append((features[best], s[best]))
    return result


def _largest_of_tile(
    block: Any, start: int, stop: int, V: FloatArray, ends: IntArray, sizes: list[int]
) -> list[tuple[IntArray, FloatArray]]:
    if sp.issparse(block):
        columns = sp.csc_array(block)
        s = np.empty((block.shape[1], len(ends)))
        _column_scores(columns.indptr, columns.indices, columns.data, V, ends, s)
    else:
        s = _group_norms2(block.T @ V, ends)
    return _largest(s, start, sizes)


def _group_norms2(P: FloatArray, ends: IntArray) -> FloatArray:
    """Return the squared norm, per row, of each group of columns; group k ends before ends[k]."""
    groups = np.split(P, ends[:-1], axis=1)
    return np.stack([np.einsum("jr,jr->j", group, group) for group in groups], axis=1)


@njit(nogil=True, cache=True)
def _column_scores(
    indptr: IntArray,
    rows: IntArray,
    values: FloatArray,
    V: FloatArray,
    ends: IntArray,
    s: FloatArray,
) -> None:
    """Fill s with `_group_norms2` of XᵀV, one column of X at a time: no d × r array is made."""
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


def _largest(scores: FloatArray, start: int, sizes: list[int]) -> list[tuple[IntArray, FloatArray]]:
    """Return the m largest of each column of `scores`, equal ones by lower index."""
    result = []
    for s, m in zip(scores.T, sizes, strict=True):
        threshold = np.partition(s, len(s) - m)[len(s) - m] if len(s) > m else -np.inf
        candidates = np.flatnonzero(s >= threshold)
        best = candidates[np.argsort(-s[candidates], kind="stable")][:m]
        result.append((best + start, s[best]))
    return result


# --- the step -------------------------------------------------------------------------------------


class CuttingPlaneState(NamedTuple):
    """The cutting plane after some cuts, with its certificate."""

    sets: tuple[IntArray, ...]  # the feature sets pᵗ that carry weight, each best first
    eta: FloatArray  # (κ,): their weights on the simplex
    features: IntArray  # (u,): the features in those sets
    W: FloatArray  # u × r: Σ_t Ωᵗ
    next_set: IntArray  # from the last pass
    gathered: IntArray  # the features that the passes have found
    upper: float  # bounds of the relaxation's optimum
    lower: float  # the best so far

    @property
    def gap(self) -> float:
        """The relative gap between the bounds."""
        return relative_gap(self.upper, self.lower)


def relative_gap(upper: float, lower: float) -> float:
    return max(upper - lower, 0.0) / upper if upper > 0 else 0.0


def contains(sets: Sequence[IntArray], features: IntArray) -> bool:
    """Return whether one of the sets holds these features, in any order."""
    return any(np.array_equal(np.sort(features), np.sort(old)) for old in sets)


def initial_state(problem: Relaxation) -> CuttingPlaneState:
    """Return the state at V = T, without any set. The first pass gives the first one."""
    empty = np.empty(0, dtype=np.int64)
    W = np.empty((0, problem.data.r))
    return CuttingPlaneState((), np.empty(0), empty, W, empty, empty, problem.T_norm2 / 2, 0.0)


def add_sets(
    problem: Relaxation, state: CuttingPlaneState, solver: str, tol: float
) -> CuttingPlaneState:
    """Add the next set of the last pass, then sets of gathered features while that is cheap.

    It is not with the solvers other than newton, which are slow where sets overlap.
    """
    problem.data.add(state.gathered)
    target = max(INNER_GAP_SHARE * state.gap, INNER_TOL_SHARE * tol)
    gap, lower, next_set = state.gap, 0.0, state.next_set
    for _ in range(MAX_INNER_CUTS + 1):
        master_tol = max(MASTER_TOL_SHARE * tol, MASTER_GAP_SHARE * gap)
        state = add_set(problem, state, next_set, solver, master_tol)
        if solver not in ("auto", "newton") or not problem.is_cheap_inside(state):
            break
        next_set, bound = problem.inner_certificate(state)
        lower = max(lower, bound)
        gap = relative_gap(state.upper, lower)
        if gap <= target or contains(state.sets, next_set):
            break
    return state


def add_set(
    problem: Relaxation, state: CuttingPlaneState, new_set: IntArray, solver: str, tol: float
) -> CuttingPlaneState:
    """Add a set, solve the master to `tol`, and drop the sets without weight."""
    sets = (*state.sets, new_set)
    master, features = problem.master(sets, state.gathered)
    eta = np.append(state.eta, 0.0 if state.sets else 1.0)
    W = np.zeros_like(master.B)
    W[np.searchsorted(features, state.features)] = state.W
    solution = master_solvers.solve(
        master,
        eta,
        solver,
        tol,
        problem.factor_for(features),
        W,
    )
    problem.keep_factor(features, solution.factor)
    kept_sets = np.flatnonzero(solution.eta > 0)
    kept_rows = np.unique(np.concatenate([master.sets[t] for t in kept_sets]))
    return state._replace(
        sets=tuple(sets[t] for t in kept_sets),
        eta=solution.eta[kept_sets],
        features=features[kept_rows],
        W=solution.W[kept_rows],
        upper=solution.value,
    )


def certify(
    problems: Sequence[Relaxation], states: Sequence[CuttingPlaneState]
) -> list[CuttingPlaneState]:
    """Bound each relaxation by its residual V, and find the next sets. One pass over X."""
    residuals = [
        problem.data.residual(state.W, state.features)
        for problem, state in zip(problems, states, strict=True)
    ]
    scores = largest_scores(problems, states, residuals)
    return [
        state._replace(
            next_set=found[: problem.m],
            gathered=np.union1d(state.gathered, found),
            lower=max(state.lower, problem.lower_bound(residual, s[: problem.m])),
        )
        for problem, state, residual, (found, s) in zip(
            problems, states, residuals, scores, strict=True
        )
    ]


def measure(state: CuttingPlaneState) -> Record:
    """Return the record of a state in the history."""
    return {
        "upper": state.upper,
        "lower": state.lower,
        "gap": state.gap,
        "sets": len(state.sets),
        "features": len(state.features),
    }


# --- the loop -------------------------------------------------------------------------------------


def cutting_plane(
    problem: Relaxation, *, solver: str, tol: float, max_iter: int
) -> Result[CuttingPlaneState]:
    """Cut until the relative gap is `tol`. κ cuts read X κ + 1 times."""
    [first] = certify([problem], [initial_state(problem)])
    return iterate(
        lambda state: certify([problem], [add_sets(problem, state, solver, tol)])[0],
        first,
        measure=measure,
        stop="gap",
        tol=tol,
        max_iter=max_iter,
        name="SparGE",
    )


class JointState(NamedTuple):
    """The states of several problems. A checkpoint gives each back as the tuple of its fields."""

    states: tuple[Any, ...]


def solve_jointly(
    problems: Sequence[Relaxation], *, solver: str, tol: float, max_iter: int, name: str
) -> list[Result[CuttingPlaneState]]:
    """Solve several problems by `cutting_plane`, in the passes of the slowest one.

    A pass over X serves all problems that have not converged.
    """

    def step(joint: JointState) -> JointState:
        states = [CuttingPlaneState(*state) for state in joint.states]
        active = [k for k, state in enumerate(states) if state.gap > tol or not state.sets]
        certified = certify(
            [problems[k] for k in active],
            [add_sets(problems[k], states[k], solver, tol) for k in active],
        )
        for k, state in zip(active, certified, strict=True):
            states[k] = state
        return JointState(tuple(states))

    def measure_jointly(joint: JointState) -> Record:
        records = [measure(state) for state in joint.states]
        numbered = {
            f"{key} {k}": value for k, record in enumerate(records) for key, value in record.items()
        }
        return {"gap": max(record["gap"] for record in records), **numbered}

    first = JointState(tuple(certify(problems, [initial_state(problem) for problem in problems])))
    joint = iterate(
        step, first, measure=measure_jointly, stop="gap", tol=tol, max_iter=max_iter, name=name
    )
    results = []
    for k, fields in enumerate(joint.value.states):
        state = CuttingPlaneState(*fields)
        history = [
            {key: record[f"{key} {k}"] for key in ("upper", "lower", "gap", "sets", "features")}
            for record in joint.history
        ]
        converged_at = [number for number, record in enumerate(history, 1) if record["gap"] <= tol]
        length = converged_at[0] if converged_at else len(history)
        status = Status.CONVERGED if state.gap <= tol else joint.status
        results.append(Result(state, status, history[:length]))
    return results
