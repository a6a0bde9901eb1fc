"""RFS: robust row-sparse regression on the classes [Nie, Huang, Cai, Ding, NIPS 2010].

    min  ‖XW + 1bᵀ − Y‖₂,₁ + γ‖W‖₂,₁ = Σ_i ‖r_i‖ + γ Σ_j ‖w_j‖

Y (n × c) indicates the classes. The loss is a norm of each sample's residual and not its square, so
that few bad samples do not count much. A round of iteratively reweighted least squares, with θ = 1
and a = 1 over the mean norm of the centered targets at first:

    W = (XᵀMX + γ diag(1/2θ))⁻¹ XᵀMY          M = diag(a) − aaᵀ/1ᵀa: b is at its best
    b = (Y − XW)ᵀa / 1ᵀa,    R = Y − XW − 1bᵀ
    a_i = 1/(2√(‖r_i‖² + ε²)),    θ_j = ‖w_j‖

√(‖r_i‖² + ε²) takes the place of ‖r_i‖, so that a is finite, with ε in units of the mean residual
of the first round. With it the objective falls in every round after the first.

The problem is convex. Any V with 1ᵀV = 0 bounds the optimum from below by s⟨V, Y⟩, with
s = min(1 / max_i ‖v_i‖, γ / max_j ‖x_jᵀV‖). The maximum is over all features, also those that left
the working set. A feature that left and whose ‖x_jᵀV‖ is too large returns.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigfs.constraints import NO_CONSTRAINTS
from bigfs.embedding.responses import one_hot
from bigfs.linalg.prox import row_norms
from bigfs.linalg.ridge import SampleOperator
from bigfs.linalg.ridge.working_set import WorkingSet
from bigfs.matrix import Matrix
from bigfs.result import Record, iterate
from bigfs.selectors.base.estimator import Cost, Selector, at_least_two
from bigfs.selectors.base.parameters import NOT_NEGATIVE, POSITIVE
from bigfs.selectors.row_sparse.rows import (
    RETURN_SHARE,
    RowSparseProblem,
    inactive_scores,
    ridge_options,
    without_negligible,
)
from bigfs.selectors.svm.svm import labeled_part
from bigfs.types import FloatArray, IntArray

# Residual norms below this share of their mean after the first round count less than the others.
EPSILON = 1e-4
LEAST_EPSILON = 1e-8  # share of the mean norm of the centered targets, where they are met at once


class RFSState(NamedTuple):
    """The solution after some rounds, with its certificate."""

    theta: FloatArray  # (d,): 0 where a feature is inactive
    a: FloatArray  # (n,)
    W: FloatArray  # d × c
    b: FloatArray  # (c,)
    objective: float  # with the smoothed norms
    violation: float  # the duality gap over the working set, relative
    gap: float  # the duality gap over all features; infinite until the inactive ones were checked
    residual: float  # of the ridge solve, relative
    epsilon: float = 0.0  # ε, from the first round on


class RFSProblem(RowSparseProblem):
    """The data, the step, the certificate, and the working set of features."""

    def __init__(
        self,
        X: Matrix,
        Y: FloatArray,
        gamma: float,
        tol: float,
        ridge: dict[str, Any],
        forbidden: IntArray = NO_CONSTRAINTS.forbidden,
    ) -> None:
        super().__init__(X, forbidden)
        self.Y, self.gamma, self.tol = Y, gamma, tol
        self.unit = float(row_norms(Y - Y.mean(axis=0)).mean())  # of the residuals
        self.working_set = WorkingSet(X, targets=Y.shape[1], **ridge)

    def start(self) -> RFSState:
        """Return the state at W = 0, where all samples have the same weight."""
        (n, d), c = self.X.shape, self.Y.shape[1]
        theta = np.where(self.candidates, 1.0, 0.0)
        W, b = np.zeros((d, c)), np.zeros(c)
        return RFSState(theta, np.full(n, 1 / self.unit), W, b, np.inf, np.inf, np.inf, 0.0)

    def step(self, state: RFSState) -> RFSState:
        """Run one round."""
        a = state.a
        M = SampleOperator(m=a, F=(a / np.sqrt(a.sum()))[:, None])
        with np.errstate(divide="ignore"):
            u = self.gamma / (2 * state.theta)
        solution = self.working_set.solve(M, u, M.apply(self.Y), state.W)
        W = solution.W
        XW = self.working_set.times(W)
        b = a @ (self.Y - XW) / a.sum()
        R = self.Y - XW - b
        epsilon = state.epsilon or self.first_epsilon(R)
        lengths = np.sqrt(row_norms(R) ** 2 + epsilon**2)
        theta = row_norms(W)
        self.require_weight(theta)
        objective = float(lengths.sum() + self.gamma * theta.sum())
        theta = without_negligible(theta)
        V = R / lengths[:, None]
        V -= V.mean(axis=0)
        correlations = row_norms(self.working_set.transposed_times(V))
        violation = self.duality_gap(V, correlations.max(), objective)
        theta, gap = self.check_inactive(theta, violation, V, objective)
        a = 1 / (2 * lengths)
        return RFSState(theta, a, W, b, objective, violation, gap, solution.residual, epsilon)

    def first_epsilon(self, R: FloatArray) -> float:
        """Return ε, from the residuals R (n × c) of the first round."""
        return max(EPSILON * float(row_norms(R).mean()), LEAST_EPSILON * self.unit)

    def duality_gap(self, V: FloatArray, largest_correlation: float, objective: float) -> float:
        """Return the relative gap to the bound that V gives, from max_j ‖x_jᵀV‖."""
        tiny = np.finfo(float).tiny  # V = 0 bounds the objective by 0
        s = min(1 / max(row_norms(V).max(), tiny), self.gamma / max(largest_correlation, tiny))
        lower = max(s * float(np.vdot(V, self.Y)), 0.0)
        return float((objective - lower) / objective)

    def check_inactive(
        self, theta: FloatArray, violation: float, V: FloatArray, objective: float
    ) -> tuple[FloatArray, float]:
        """Return θ and the gap over all features, once the working set is solved.

        Inactive features that violate optimality return to θ. It takes one pass over X.
        """
        if violation > self.tol:
            return theta, np.inf
        correlations = self.pulls(self.X.T @ V)
        gap = self.duality_gap(V, correlations.max(), objective)
        violators = (theta == 0) & (correlations > max(correlations[theta > 0].max(), self.gamma))
        if gap > self.tol and violators.any():
            theta = theta + RETURN_SHARE * theta.max() * violators
        return theta, gap

    def scores(self, state: RFSState) -> FloatArray:
        """Return the score of each feature."""
        R = self.Y - self.working_set.times(state.W) - state.b
        V = R / np.sqrt(row_norms(R) ** 2 + state.epsilon**2)[:, None]
        return inactive_scores(state.theta, self.pulls(self.X.T @ (V - V.mean(axis=0))))


def measure(state: RFSState) -> Record:
    """Return the record of a state in the history."""
    return {
        "objective": state.objective,
        "features": float(np.count_nonzero(state.theta)),
        "violation": state.violation,
        "gap": state.gap,
        "residual": state.residual,
    }


class RFS(Selector):
    """Choose features by a row-sparse regression on the classes that few bad samples do not change.

    It is efficient and robust feature selection by joint ℓ2,1 norms [1]_. Unlabeled samples
    store are left out.

    Parameters
    ----------
    %(select)s
    gamma : float, default=1.0
        Weight of the penalty. A larger value leaves fewer features with a weight. It has the unit
        of X.
    %(ridge)s
    %(tol_gap)s
    %(rounds)s

    Attributes
    ----------
    %(row_scores)s
    %(selected)s
    %(classes)s
    %(class_coef)s
    intercept_ : ndarray of shape (n_classes,)
        Intercept b.
    %(n_rounds)s
    result_ : bigfs.result.Result
        Status and history. Each record of the history has the objective, the number of features,
        the duality gap over the working set ("violation") and over all features ("gap"), and the
        residual of the ridge solve. The stats have the plans of the ridge solves and the passes
        over X.

    See Also
    --------
    MultiTaskLasso : The same penalty with squared residuals.
    RLSR : Squared residuals, the square of the penalty, and unlabeled samples.

    Notes
    -----
    The problem is that of [1]_ with an intercept that is not penalized::

        min Σ_i ‖Wᵀx_i + b − y_i‖ + γ Σ_j ‖w_j‖

    The norm of a residual is smoothed below ε, which is 1e-4 of the mean norm after the first
    round. It moves the objective by less than n ε.

    References
    ----------
    .. [1] F. Nie, H. Huang, X. Cai and C. Ding, "Efficient and robust feature selection via joint
       ℓ2,1-norms minimization", NIPS 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import RFS
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = RFS(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([3, 1])
    >>> selector.result_.status.name
    'CONVERGED'
    """

    _needs_one_scale = True
    _cost = Cost("2 per CG step, then 0", "(n + d) c + columns")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "gamma": POSITIVE,
        "tol": NOT_NEGATIVE,
    }

    def __init__(
        self,
        *,
        n_features_to_select: int | float | None = None,
        keep: Any = None,
        forbid: Any = None,
        gamma: float = 1.0,
        solver: str = "auto",
        solver_tol: float = 1e-6,
        solver_max_iter: int = 100,
        tol: float = 0.05,
        max_iter: int = 200,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.keep = keep
        self.forbid = forbid
        self.gamma = gamma
        self.solver = solver
        self.solver_tol = solver_tol
        self.solver_max_iter = solver_max_iter
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, X: Matrix, y: Any) -> None:
        self.classes_, codes = at_least_two(y)
        X, codes = labeled_part(X, codes)
        self._solve(X, one_hot(codes, len(self.classes_)))

    def _solve(self, X: Matrix, Y: FloatArray) -> None:
        """Regress Y on X. Set the scores, the weights and the result."""
        before, forbidden = X.passes, self._constraints.forbidden
        problem = RFSProblem(X, Y, self.gamma, self.tol, ridge_options(self), forbidden)
        self.result_ = iterate(
            problem.step,
            problem.start(),
            measure=measure,
            stop="gap",
            tol=self.tol,
            max_iter=self.max_iter,
            name=type(self).__name__,
        )
        state = self.result_.value
        self.n_iter_ = len(self.result_.history)
        self.scores_ = problem.scores(state)
        self.coef_, self.intercept_ = state.W, state.b
        self.result_.stats.update(plans=problem.working_set.plans, passes=X.passes - before)
