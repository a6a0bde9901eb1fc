"""The core of the methods with one row of weights per feature, by reweighted ridge solves.

A feature whose θ is negligible leaves the working set. One pass then looks at those that left, and
the ones that violate optimality return. An empty feature and a forbidden one take no part: their θ
is 0 from the start, and they do not return.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from bigfs.linalg.prox import row_norms
from bigfs.matrix import Matrix
from bigfs.result import Record
from bigfs.types import AnyArray, FloatArray, IntArray
from bigfs.validation import require_weight

NEGLIGIBLE = 1e-6  # a feature whose θ is below this share of the largest leaves the working set
RETURN_SHARE = 1e-3  # of the largest θ: what a feature that returns to the working set gets


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


class RowSparseProblem:
    """The features that may get a weight, and the rules for those that have none.

    Parameters
    ----------
    X : Matrix of shape (n, d)
        The samples.
    forbidden : ndarray of int
        Features that take no part.
    target : str, default="y"
        Name of the target of the regression, for errors.
    """

    def __init__(self, X: Matrix, forbidden: IntArray, target: str = "y") -> None:
        self.X, self.target_name = X, target
        self.candidates = X.stats.nnz > 0  # an empty column can't get weight
        self.candidates[forbidden] = False

    def require_weight(self, weights: FloatArray) -> None:
        """Refuse weights that are all zero."""
        require_weight(weights, self.target_name)

    def pulls(self, XtV: AnyArray) -> FloatArray:
        """Return ‖x_jᵀV‖ of each feature that may get a weight, from XᵀV (d × r), and 0 else."""
        return np.where(self.candidates, row_norms(XtV), 0.0)


def inactive_scores(theta: FloatArray, pulls: FloatArray) -> FloatArray:
    """Return θ where it is positive.

    An inactive feature has a score in [−1, 0], by how strongly it correlates with the residual. It
    is −1 for a feature that may not get a weight.
    """
    largest = max(pulls.max(), np.finfo(float).tiny)
    return np.where(theta > 0, theta, pulls / largest - 1)


def without_negligible(theta: FloatArray, share: float = NEGLIGIBLE) -> FloatArray:
    """Return θ with 0 where it is below this share of the largest."""
    return np.where(theta < share * theta.max(), 0.0, theta)


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
