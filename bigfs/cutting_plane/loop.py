"""The cutting plane: the convex relaxation of choosing m features, solved by a few sets of m at a
time.

    max_V min_p  tr(VᵀT) − ½‖V‖² − 1/(2γ) ‖diag(p) Xcᵀ V‖²,    p ∈ {0,1}^d, 1ᵀp = m

This is SparGE's eq. 7 with the minimum and the maximum exchanged, as in eq. 8. It starts at V = T.
Each cut

(a) scores every feature by s_j = ‖(XcᵀV)_j‖², in one pass over X,
(b) takes the m largest as the next set (eq. 10; Alg. 1 step 2b corrected: the most violated
    constraint is the arg min of f),
(c) gathers their columns, and the columns of the next best sets and likely features where a pass is
    dear (`sets_per_pass`, `likely_features`),
(d) solves the restricted master, whose residual T − XcW is the next V (eq. 9 and 11),
(e) repeats (a), (b) and (d) on the gathered columns alone, where XcᵀV = B − GW needs no pass.

Any V bounds the relaxation from below: with a = tr(VᵀT) and b = ‖V‖² + (Σ of the m largest s_j)/γ,
the best scaling of V gives a²/(2b). The value of the master bounds it from above. The cuts stop at
their relative gap.

Problems that differ in m, in γ or in the weights of the samples are solved jointly: one pass scores
the features for all their V.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bigfs.cutting_plane.relaxation import CuttingPlaneState, Relaxation, relative_gap
from bigfs.cutting_plane.scores import largest_scores
from bigfs.engine import MemoryLimitError
from bigfs.result import Record, Result, Status, iterate
from bigfs.types import IntArray

# The master is solved to half the current gap. Compared with 0.05 this halves the factorizations
# and costs one more cut.
MASTER_GAP_SHARE = 0.5
MASTER_TOL_SHARE = 1e-2  # of the cutting plane's own tolerance: no master is solved further
# Below this share of the tolerance there is nothing to gain before the next pass.
INNER_TOL_SHARE = 0.5


RECORDED = ("upper", "lower", "gap", "sets", "features")  # of each problem, by `measure`


# --- the step -------------------------------------------------------------------------------------


def contains(sets: Sequence[IntArray], features: IntArray) -> bool:
    """Return whether one of the sets holds these features, in any order."""
    return any(np.array_equal(np.sort(features), np.sort(old)) for old in sets)


def add_sets(problem: Relaxation, state: CuttingPlaneState, tol: float) -> CuttingPlaneState:
    """Add the next set of the last pass, then sets of gathered features while that is cheap."""
    problem.data.add(state.gathered)
    target = max(problem.data.inner_gap_share * state.gap, INNER_TOL_SHARE * tol)
    gap, lower, next_set = state.gap, 0.0, state.next_set
    for _ in range(problem.data.max_inner_cuts + 1):
        master_tol = max(MASTER_TOL_SHARE * tol, MASTER_GAP_SHARE * gap)
        state = problem.add_set(state, next_set, master_tol)
        if not problem.is_cheap_inside(state):
            break
        next_set, bound = problem.inner_certificate(state)
        lower = max(lower, bound)
        gap = relative_gap(state.upper, lower)
        if gap <= target or contains(state.sets, next_set):
            break
    return state


def certify(
    problems: Sequence[Relaxation], states: Sequence[CuttingPlaneState]
) -> list[CuttingPlaneState]:
    """Bound each relaxation by its residual V, and find the next sets. One pass over X."""
    for problem in problems:
        problem.make_room()
    residuals = [problem.residual(state) for problem, state in zip(problems, states, strict=True)]
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


def with_next_sets(
    problems: Sequence[Relaxation], states: Sequence[CuttingPlaneState]
) -> list[CuttingPlaneState]:
    """Certify the first states, which no pass has seen. The states of a resumed run have a set."""
    is_first = any(not len(state.next_set) for state in states)
    return certify(problems, states) if is_first else list(states)


def measure(state: CuttingPlaneState) -> Record:
    return {
        "upper": state.upper,
        "lower": state.lower,
        "gap": state.gap,
        "sets": len(state.sets),
        "features": len(state.features),
    }


# --- the loop -------------------------------------------------------------------------------------


def cutting_plane(problem: Relaxation, *, tol: float, max_iter: int) -> Result[CuttingPlaneState]:
    """Cut until the relative gap is `tol`. κ cuts read X κ + 1 times."""
    (result,) = solve_jointly([problem], tol=tol, max_iter=max_iter, name="SparGE")
    return result


class JointState(NamedTuple):
    """The states of several problems. A checkpoint gives each back as the tuple of its fields."""

    states: tuple[Any, ...]


def solve_jointly(
    problems: Sequence[Relaxation], *, tol: float, max_iter: int, name: str
) -> list[Result[CuttingPlaneState]]:
    """Solve several problems by `cutting_plane`, in the passes of the slowest one."""

    def step(joint: JointState) -> JointState:
        states = [CuttingPlaneState(*state) for state in joint.states]
        states = with_next_sets(problems, states)
        active = [k for k, state in enumerate(states) if state.gap > tol or not state.sets]
        added = []
        for k in active:
            began = time.perf_counter()
            added.append(add_sets(problems[k], states[k], tol))
            problems[k].make_room()  # so that one factor is held at a time, not one per problem
            problems[k].seconds += time.perf_counter() - began
        began = time.perf_counter()
        certified = certify([problems[k] for k in active], added)
        for k, state in zip(active, certified, strict=True):
            states[k] = state
            problems[k].seconds += (time.perf_counter() - began) / len(active)
        return JointState(tuple(states))

    def status_at_limit(joint: JointState) -> Status:
        left = [
            problem
            for problem, state in zip(problems, joint.states, strict=True)
            if CuttingPlaneState(*state).gap > tol
        ]
        return Status.ROUNDED if any(p.is_rounded() for p in left) else Status.MAX_ITER

    def measure_jointly(joint: JointState) -> Record:
        records = [measure(CuttingPlaneState(*state)) for state in joint.states]
        if len(records) == 1:
            return records[0]
        numbered = {
            f"{key} {k}": value for k, record in enumerate(records) for key, value in record.items()
        }
        return {"gap": max(record["gap"] for record in records), **numbered}

    joint = iterate(
        step,
        JointState(tuple(problem.start() for problem in problems)),
        measure=measure_jointly,
        stop="gap",
        tol=tol,
        max_iter=max_iter,
        name=name,
        no_room=MemoryLimitError,
        at_limit=status_at_limit,
    )
    results = []
    for k, fields in enumerate(joint.value.states):
        state = problems[k].restore(CuttingPlaneState(*fields))
        history = joint.history
        if len(problems) > 1:
            history = [{key: record[f"{key} {k}"] for key in RECORDED} for record in history]
        converged_at = [number for number, record in enumerate(history, 1) if record["gap"] <= tol]
        length = converged_at[0] if converged_at else len(history)
        status = Status.CONVERGED if state.gap <= tol else joint.status
        results.append(Result(state, status, history[:length]))
    return results
