"""A sparse regression at decreasing penalties, until enough features have a weight.

    min  L(XcW + 1bᵀ) + λ Σ_g Σ_j ‖w_jg‖₂,      λ = ρ λ_max,  ρ = 1, 0.8, 0.64, …

over W and b. The groups g cut the r targets: all in one (row-sparse weights), or one each (a lasso
per target). λ_max is the least λ at which W = 0. L is a loss of `bigfs.lasso.losses`, whose
residual V = −∇L has 1ᵀV = 0 at the best b. W is optimal where ‖x_jᵀV_g‖ ≤ λ for all j, with
equality along w_jg at the features that have a weight. Any multiple of V that keeps the first
condition bounds the optimum from below (`bigfs.linalg.descent.duality_gap`).

A step solves the problem on a few gathered columns and reads X once, for x_jᵀV of all features.
They give the duality gap over all features, the features that are missing in the working set, and
those to expect at the next penalty by the strong rule [Tibshirani and others, JRSS B 2012]:
‖x_jᵀV‖ ≥ 2λ_next − λ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfs.lasso.losses import Loss
from bigfs.linalg.descent import duality_gap
from bigfs.linalg.prox import row_norms
from bigfs.result import Record, Status
from bigfs.types import FloatArray, IntArray
from bigfs.validation import require_weight

RATIO = 0.8  # of two neighboring penalties
MOST_PENALTIES = 30  # before a penalty that is given
LEAST = 1e-3  # of λ_max, at which the path ends even if too few features have a weight
FEWEST_NEW = 64  # features that a step may add at least, the most correlated ones first
INNER_SHARE = 0.3  # of the tolerance: the gap of the working set


class PathState(NamedTuple):
    """The solution on the working set, with its certificate."""

    features: IntArray  # the working set, increasing
    W: FloatArray  # u × r
    rho: float  # λ / λ_max
    largest: float  # λ_max
    correlations: FloatArray  # (d,): max_g ‖x_jᵀV_g‖ / λ_max
    objective: float
    gap: float  # over all features, relative
    missing: float  # features that lack at this solution; infinite away from one


class LassoPath:
    """The loss, its groups of targets, and the step.

    The path ends where m features have a weight, or at the penalty `lam` if that is given. `tol` is
    the relative duality gap of each solution, and `target` the name of the targets in errors.
    """

    def __init__(
        self,
        loss: Loss,
        groups: list[slice],
        *,
        tol: float,
        m: int,
        lam: float | None = None,
        target: str = "y",
    ) -> None:
        self.target = target
        self.loss, self.groups, self.tol, self.m, self.lam = loss, groups, tol, m, lam

    def start(self) -> PathState:
        """Return the state at W = 0, after one pass."""
        features, W = np.empty(0, dtype=np.int64), np.empty((0, self.loss.T.shape[1]))
        V = self.loss.residual(W, features).V
        correlations = np.max(self.group_norms(self.loss.X.T @ V), axis=0)
        largest = float(correlations.max(initial=0.0))
        require_weight(correlations, self.target)
        value = self.loss.value(V)
        state = PathState(features, W, 1.0, largest, correlations / largest, value, 0.0, np.inf)
        return state._replace(missing=self.missing(state))

    def step(self, state: PathState) -> PathState:
        """Solve at the next penalty, or continue with this one, and read X once."""
        rho = state.rho
        if state.gap <= self.tol:
            rho = max(rho * self.ratio(state.largest), self.least(state.largest))
        features, W = self.working_set(state, rho)
        lam = rho * state.largest
        W = self.loss.solve(W, features, self.groups, lam, INNER_SHARE * self.tol)
        V, a, norm2 = self.loss.residual(W, features)
        XtV = self.loss.X.T @ V
        norms = self.group_norms(XtV)
        gaps = [
            duality_gap(norm2[g].sum(), a[g].sum(), row_norms(W[:, g]).sum(), lam, norm.max())
            for g, norm in zip(self.groups, norms, strict=True)
        ]
        penalty = sum(row_norms(W[:, g]).sum() for g in self.groups)
        state = PathState(
            features,
            W,
            rho,
            state.largest,
            np.max(norms, axis=0) / state.largest,
            self.loss.value(V) + lam * float(penalty),
            max(gaps),
            np.inf,
        )
        return state._replace(missing=self.missing(state))

    def working_set(self, state: PathState, rho: float) -> tuple[IntArray, FloatArray]:
        """Return the features to solve for at ρ, and the weights that they have."""
        has_weight = state.W.any(axis=1)
        bound = 2 * rho - state.rho if rho < state.rho else rho
        outside = state.correlations > bound
        outside[state.features[has_weight]] = False
        new = np.flatnonzero(outside)
        room = max(FEWEST_NEW, 2 * int(has_weight.sum()))
        new = new[np.argsort(-state.correlations[new], kind="stable")[:room]]
        features = np.union1d(state.features[has_weight], new)
        W = np.zeros((len(features), state.W.shape[1]))
        W[np.searchsorted(features, state.features[has_weight])] = state.W[has_weight]
        self.loss.gather(features)
        return features, W

    def missing(self, state: PathState) -> float:
        """Return how many features lack at a solution, or infinity away from one."""
        if state.gap > self.tol:
            return np.inf
        if self.lam is not None:
            return 0.0 if self.is_last(state) else np.inf
        return max(self.m - float(np.count_nonzero(state.W.any(axis=1))), 0.0)

    def is_last(self, state: PathState) -> bool:
        """Return whether the path ends at the penalty of a state."""
        return state.rho <= self.least(state.largest)

    def ends(self, state: PathState) -> Status | None:
        """Return the status of a solution at the end of the grid with too few features."""
        return Status.GRID_END if np.isfinite(state.missing) and self.is_last(state) else None

    def least(self, largest: float) -> float:
        """Return the ρ at the end of the path."""
        return LEAST if self.lam is None else self.lam / largest

    def ratio(self, largest: float) -> float:
        """Return the ratio of two neighboring penalties."""
        return (
            RATIO if self.lam is None else min(RATIO, self.least(largest) ** (1 / MOST_PENALTIES))
        )

    def group_norms(self, XtV: FloatArray) -> list[FloatArray]:
        """Return the norms of the rows of each group, zero at constant columns."""
        return [np.where(self.loss.varies, row_norms(XtV[:, g]), 0.0) for g in self.groups]

    def scores(self, state: PathState, weights: FloatArray) -> FloatArray:
        """Return the weight of each feature of the working set that has one.

        Another feature has a score in [−1, 0], by how strongly the residual correlates with it.
        """
        scores = np.minimum(state.correlations / state.rho, 1.0) - 1
        has_weight = weights > 0
        scores[state.features[has_weight]] = weights[has_weight]
        return scores

    def measure(self, state: PathState) -> Record:
        return {
            "penalty": state.rho,
            "features": float(np.count_nonzero(state.W.any(axis=1))),
            "objective": state.objective,
            "gap": state.gap,
            "missing": state.missing,
        }
