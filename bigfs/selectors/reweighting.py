"""What the methods by reweighted ridge solves share: their options, and the working set by θ.

A feature whose θ is negligible leaves the working set. One pass then looks at those that left, and
the ones that violate optimality return.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from bigfs.linalg.ridge import SOLVERS
from bigfs.result import Record
from bigfs.types import FloatArray

NEGLIGIBLE = 1e-6  # a feature whose θ is below this share of the largest leaves the working set
RETURN_SHARE = 1e-3  # of the largest θ: what a feature that returns to the working set gets
RIDGE_CONSTRAINTS: dict[str, list[Any]] = {
    "solver": [StrOptions({*SOLVERS, "auto"})],
    "solver_tol": [Interval(Real, 0, 1, closed="neither")],
    "solver_max_iter": [Interval(Integral, 1, None, closed="left")],
    "tol": [Interval(Real, 0, None, closed="left")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
}


class RidgeMethod(Protocol):
    """An estimator with the parameters of the ridge solve."""

    solver: str
    solver_tol: float
    solver_max_iter: int


class Reweighted(Protocol):
    """A state with θ and its certificate."""

    @property
    def theta(self) -> FloatArray: ...

    @property
    def objective(self) -> float: ...

    @property
    def violation(self) -> float: ...

    @property
    def residual(self) -> float: ...


def ridge_options(method: RidgeMethod) -> dict[str, Any]:
    """Return the options of a `WorkingSet` from the parameters of an estimator."""
    return {
        "solver": method.solver,
        "tol": method.solver_tol,
        "max_iter": method.solver_max_iter,
    }


def without_negligible(theta: FloatArray) -> FloatArray:
    """Return θ with 0 where it is negligible."""
    return np.where(theta < NEGLIGIBLE * theta.max(), 0.0, theta)


def return_violators(
    theta: FloatArray, violation: float, excess: FloatArray, tol: float
) -> tuple[FloatArray, float]:
    """Return θ and the violation over all features, once those that left were looked at.

    Parameters
    ----------
    theta : ndarray of shape (d,)
        θ, 0 where a feature is inactive.
    violation : float
        Violation over the working set.
    excess : ndarray of shape (d,)
        By how much each feature exceeds what an inactive one may have, relative.
    tol : float
        Excess at which an inactive feature returns.
    """
    returning = (theta == 0) & (excess > tol)
    if not returning.any():
        return theta, violation
    return theta + RETURN_SHARE * theta.max() * returning, float(excess[returning].max())


def measure(state: Reweighted) -> Record:
    """Return the record of a state in the history."""
    return {
        "objective": state.objective,
        "features": float(np.count_nonzero(state.theta)),
        "violation": state.violation,
        "residual": state.residual,
    }
