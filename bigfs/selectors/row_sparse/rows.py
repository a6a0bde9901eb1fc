"""The core of the methods with one row of weights per feature, by reweighted ridge solves.

A round solves a ridge problem whose penalty of feature j is γ/2θ_j, and chooses θ by the new rows.
A feature whose θ is negligible leaves the working set. One pass then looks at those that left, and
the ones that violate optimality return. A constant feature and a forbidden one take no part: θ is 0
there from the start, and they do not return.

A method adds its formula, its step, and the XᵀV that its certificate and its scores need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bigfs import engine
from bigfs.constraints import NONE
from bigfs.linalg.prox import row_norms
from bigfs.linalg.ridge.working_set import WorkingSet
from bigfs.matrix import Matrix
from bigfs.result import Record, Status
from bigfs.selectors.base.estimator import Selector
from bigfs.settings import Setting
from bigfs.types import AnyArray, FloatArray, IntArray
from bigfs.validation import require_weight

COLUMN_BYTES = 192  # of each feature: its statistics, θ, pull and score (measured)
NEGLIGIBLE = 1e-6  # a feature whose θ is below this share of the largest leaves the working set
RETURN_SHARE = 1e-3  # of the largest θ: what a feature that returns to the working set gets
LENGTH_STEPS = 30  # for the best length of a row
RETREAT = 0.1  # factor of the θ of features whose return raises the objective
MAX_MOMENTUM = Setting(0.95)
MAX_GROWTH = 100.0  # factor by which θ goes beyond the end of a round


class RowSparseProblem(ABC):
    """The data, the working set, the step, and the rules for features without a weight.

    The states of a method have at least `theta`, `objective`, `violation` (over the working set),
    `gap` (over all features, infinite until the inactive ones were checked) and `residual`.
    """

    moving: ClassVar[tuple[str, ...]] = ("theta",)
    weight_arrays: ClassVar[int] = 11  # d × r, that a round holds at once (measured)
    round: Callable[[Any], Any]  # of the methods whose step is `go_beyond`

    def __init__(
        self,
        X: Matrix,
        targets: int,  # columns of the weights
        tol: float,  # of the certificate
        ridge: dict[str, Any],  # options of the `WorkingSet`
        absent: IntArray = NONE,  # features that take no part
        m: int = 1,  # features to choose
        target: str = "y",  # name of the target of the regression, for errors
    ) -> None:
        engine.require_memory(
            X.shape[1] * (COLUMN_BYTES + 8 * self.weight_arrays * targets),
            f"weights of {X.shape[1]:,} features for {targets} columns of {target}",
        )
        self.X, self.tol, self.target_name = X, tol, target
        self.candidates = X.deviations > 0  # a constant column can't get weight
        self.candidates[absent] = False
        self.working_set = WorkingSet(X, targets=targets, **ridge)
        self.m, self.best, self.unchanged = min(m, X.shape[1]), NONE, 0
        self.last_theta, self.moved = np.zeros(0), np.zeros(0)

    @abstractmethod
    def step(self, state: Any) -> Any:
        """Run one round."""

    def go_beyond(self, state: Any) -> Any:
        """Run a round from beyond the end of the last one, or from it if the objective rises so.

        The weights in `moving` have momentum. A state has each also with "_before" in its name, and
        an `age`.
        """
        age, momentum = next_momentum(state.age)
        here = {name: getattr(state, name) for name in self.moving}
        last = {f"{name}_before": weights for name, weights in here.items()}
        beyond = {
            name: extrapolate(weights, getattr(state, f"{name}_before"), momentum)
            for name, weights in here.items()
        }
        end = self.round(state._replace(**beyond))
        if momentum and not end.objective <= state.objective:
            del end  # its weights, while a solve runs
            end, age = self.round(state), 1.0
        return end._replace(age=age, **last)

    @abstractmethod
    def scores(self, state: Any) -> FloatArray:
        """Return the score of each feature."""

    def measure(self, state: Any) -> Record:
        """Return the record of a state in the history, and note how it moved."""
        best = np.sort(np.argpartition(-state.theta, self.m - 1)[: self.m])
        self.unchanged = self.unchanged + 1 if np.array_equal(best, self.best) else 0
        if len(self.last_theta):
            largest = np.maximum(np.maximum(state.theta, self.last_theta), np.finfo(float).tiny)
            self.moved = np.abs(state.theta - self.last_theta) / largest
        self.best, self.last_theta = best, state.theta
        return {
            "objective": state.objective,
            "features": float(np.count_nonzero(state.theta)),
            "violation": state.violation,
            "gap": state.gap,
            "residual": state.residual,
        }

    def status_at_limit(self, state: Any) -> Status:
        """Return the status of a run that makes all its rounds: STALLED where the last ridge solve
        did not come near enough for the certificate, and more rounds would not help."""
        stalled = self.working_set.status is Status.STALLED and state.residual > self.tol
        return Status.STALLED if stalled else Status.MAX_ITER

    def why(self) -> str:
        """Return how θ moved in the last round, and for how long the choice is the same."""
        if not len(self.moved):
            return ""
        moved = self.moved[self.last_theta > 0]
        count, most = int(np.count_nonzero(moved > self.tol)), moved.max()
        moves = f"of {count:,} of {len(moved):,} features still moves by up to {most:.0%}"
        same = f"have not changed for {self.unchanged:,} rounds"
        return (
            f"θ {moves if count else f'moves by at most {most:.2%}'} per round, and the "
            f"{self.m:,} best {same if self.unchanged else 'changed in the last round'}"
        )

    def require_weight(self, weights: FloatArray) -> None:
        """Refuse weights that are all zero."""
        require_weight(weights, self.target_name)

    def pulls(self, XtV: AnyArray) -> FloatArray:
        """Return ‖x_jᵀV‖ of each feature that may get a weight, from XᵀV (d × r), and 0 else."""
        return np.where(self.candidates, row_norms(XtV), 0.0)

    def with_violators(
        self, theta: FloatArray, violation: float, excess: Callable[[], FloatArray]
    ) -> tuple[FloatArray, float]:
        """Return θ and the violation over all features, once that over the working set is small.

        `excess` gives by how much each feature exceeds what an inactive one may have, relative. An
        inactive feature returns if that is above the tolerance.
        """
        if violation > self.tol:
            return theta, np.inf
        beyond = np.where(theta == 0, excess(), 0.0)
        if beyond.max() <= self.tol:
            return theta, violation
        return theta + RETURN_SHARE * theta.max() * (beyond > self.tol), float(beyond.max())


def ridge_weights(gamma: float, theta: FloatArray) -> FloatArray:
    """Return the weights γ/2θ of the ridge problem. An inactive feature has an infinite one."""
    with np.errstate(divide="ignore"):
        return gamma / (2 * theta)


def next_momentum(age: float) -> tuple[float, float]:
    """Return the next age and the β of Nesterov's momentum, which is 0 at the age 1."""
    older = float((1 + np.sqrt(1 + 4 * age**2)) / 2)
    return older, min((age - 1) / older, MAX_MOMENTUM.value)


def extrapolate(weights: FloatArray, before: FloatArray, momentum: float) -> FloatArray:
    """Return w (w / w_before)^β, and w where one of the two is zero.

    The logarithms have momentum, because a round multiplies its weights.
    """
    both = (weights > 0) & (before > 0)
    growth = np.divide(weights, before, out=np.ones_like(weights), where=both) ** momentum
    return np.asarray(weights * np.minimum(growth, MAX_GROWTH))


def norm_alone(pulls: FloatArray, squares: FloatArray, slope: Any, p: float = 1.0) -> FloatArray:
    """Return the length of each row that is best with all else fixed, and 0 where zero is best.

    It minimizes ‖x_j‖² t² − 2‖z_j‖ t + λtᵖ, where ‖z_j‖ is the pull at a feature without its own
    part, `squares` has ‖x_j‖², and λ is the `slope` of the penalty. The steps go down to the
    larger of the two lengths at which the derivative is zero. For p = 1 there is one step.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        t = pulls / squares
        for _ in range(1 if p == 1 else LENGTH_STEPS):
            t = np.maximum((pulls - slope * p / 2 * t ** (p - 1)) / squares, 0.0)
        lowers = (t > 0) & (squares * t - 2 * pulls + slope * t ** (p - 1) < 0)
    return np.where(lowers, t, 0.0)


def without_negligible(theta: FloatArray, share: float = NEGLIGIBLE) -> FloatArray:
    """Return θ with 0 where it is below this share of the largest."""
    return np.where(theta < share * theta.max(), 0.0, theta)


def inactive_scores(theta: FloatArray, pulls: FloatArray) -> FloatArray:
    """Return θ where it is positive.

    An inactive feature has a score in [−1, 0], by how strongly it correlates with the residual. It
    is −1 for a feature that may not get a weight.
    """
    largest = max(pulls.max(), np.finfo(float).tiny)
    return np.where(theta > 0, theta, pulls / largest - 1)


class RowSparseSelector(Selector):
    """Base of the selectors that solve a `RowSparseProblem`."""

    if TYPE_CHECKING:  # parameters of each subclass
        solver: str
        solver_tol: Any
        solver_max_iter: int

    def _options(self, **ridge: Any) -> dict[str, Any]:
        """Return the options of a problem, with more or other ones of its ridge solves."""
        own = {"solver": self.solver, "tol": self.solver_tol, "max_iter": self.solver_max_iter}
        return {
            "tol": self.tol,
            "ridge": own | ridge,
            "absent": self._constraints.absent,
            "m": self._count(self.n_features_in_),
        }

    def _solve(self, problem: RowSparseProblem, start: Any) -> Any:
        """Run the rounds and return the last state."""
        limit = {"at_limit": problem.status_at_limit, "why": problem.why}
        state = self._iterate(problem, start, stop="gap", **limit)
        self.scores_ = problem.scores(state)
        self.result_.stats["plans"] = problem.working_set.plans
        return state
