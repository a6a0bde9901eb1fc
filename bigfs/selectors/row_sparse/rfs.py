"""RFS: robust row-sparse regression on the classes [Nie, Huang, Cai, Ding, NIPS 2010].

    min  ‖XW + 1bᵀ − Y‖₂,₁ + γ‖W‖₂,₁ = Σ_i ‖r_i‖ + γ Σ_j ‖w_j‖

Y (n × c) indicates the classes. The loss is a norm of each sample's residual and not its square, so
that few bad samples do not count much. A round of iteratively reweighted least squares, with θ = 1
and a = 1 over the mean norm of the centered targets at first:

    W = (XᵀMX + γ diag(1/2θ))⁻¹ XᵀMY          M = diag(a) − aaᵀ/1ᵀa: b is at its best
    b = (Y − XW)ᵀa / 1ᵀa,    R = Y − XW − 1bᵀ
    a_i = 1/(2√(‖r_i‖² + ε²)),    θ_j = √(‖w_j‖² + δ_j²)

The smoothing by ε and δ is what keeps the rounds few: without it a weight that fell too far grows
back by a factor per round. Each adds at most half of the tolerance to the objective. θ and a have
momentum, which a round that raises the smoothed objective takes back.

The problem is convex. Any V with 1ᵀV = 0 bounds the optimum from below by s⟨V, Y⟩, with
s = min(1 / max_i ‖v_i‖, γ / max_j ‖x_jᵀV‖). V is 2 diag(a) R, whose rows are cut to length one. The
maximum is over all features, also those that left the working set. A feature that left and whose
‖x_jᵀV‖ is too large returns. JFS is the same regression on X itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigfs import engine
from bigfs.embedding.targets import one_hot
from bigfs.linalg.prox import row_norms
from bigfs.linalg.ridge.operator import WeightedCentering
from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.labels import labeled_part
from bigfs.selectors.row_sparse.rows import (
    NEGLIGIBLE,
    RETURN_SHARE,
    RowSparseProblem,
    RowSparseSelector,
    inactive_scores,
    ridge_weights,
)
from bigfs.types import BoolArray, FloatArray

SAMPLE_COPIES = 6  # n × d arrays of JFS alive at once in a round
FEATURE_COPIES = 8  # and d × d arrays
SMOOTHING_SHARE = 0.5  # of the tolerance: what smoothing either norm may add to the objective
MIN_SMOOTHING = 1e-4  # of the mean residual after the first round, whatever the tolerance is
LEAST_EPSILON = 1e-8  # of the mean norm of the centered targets, where they are met at once
LEAVING = 0.5  # a feature leaves whose ‖w_j‖ is below δ_j and below this share of θ_j,
SETTLED = 0.5  # once the gap over the working set was this small


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
    epsilon: float  # from the first round on, as δ
    delta: FloatArray  # (d,)
    returned: BoolArray  # (d,): which features have returned, and do not leave early again
    theta_before: FloatArray  # (d,): θ and a of the round before
    a_before: FloatArray  # (n,)
    age: float = 1.0  # of the momentum


class RFSProblem(RowSparseProblem):
    """The data, the step, and the certificate."""

    def __init__(self, X: Matrix, Y: FloatArray, gamma: float, **options: Any) -> None:
        super().__init__(X, Y.shape[1], **options)
        self.Y, self.gamma = Y, gamma
        self.unit = float(row_norms(Y - Y.mean(axis=0)).mean())  # of the residuals

    def start(self) -> RFSState:
        """Return the state at W = 0, where all samples have the same weight."""
        (n, d), c = self.X.shape, self.Y.shape[1]
        theta, a = np.where(self.candidates, 1.0, 0.0), np.full(n, 1 / self.unit)
        W, b, none = np.zeros((d, c)), np.zeros(c), np.inf
        return RFSState(theta, a, W, b, none, none, none, 0.0, 0.0, 0 * theta, theta < 0, theta, a)

    moving = ("theta", "a")
    step = RowSparseProblem.go_beyond  # a round with momentum

    def round(self, state: RFSState) -> RFSState:
        """Return the end of a round."""
        a = state.a
        M = WeightedCentering(a)
        u = ridge_weights(self.gamma, state.theta)
        solution = self.working_set.solve(M, u, M.apply(self.Y), state.W)
        W = solution.W
        XW = self.working_set.times(W)
        b = a @ (self.Y - XW) / a.sum()
        R = self.Y - XW - b
        norms, residuals = row_norms(W), row_norms(R)
        epsilon, delta = state.epsilon, state.delta
        if not epsilon:
            self.require_weight(norms)  # later on, a large γ may leave no weight
            epsilon, delta = self.smoothing(residuals, norms)
        lengths, theta = np.sqrt(residuals**2 + epsilon**2), np.sqrt(norms**2 + delta**2)
        leaves = (norms <= np.minimum(delta, LEAVING * state.theta)) & ~state.returned
        leaves &= state.violation <= SETTLED
        theta[leaves | (norms < NEGLIGIBLE * norms.max())] = 0
        objective = float(lengths.sum() + self.gamma * (theta.sum() + norms[theta == 0].sum()))
        V = self.dual(2 * a[:, None] * R)
        correlations = row_norms(self.working_set.transposed_times(V))
        attained = float(residuals.sum() + self.gamma * norms.sum())
        violation = self.duality_gap(V, correlations.max(initial=0.0), attained)
        is_inactive = theta == 0
        theta, gap = self.check_inactive(theta, violation, V, attained, delta)
        return state._replace(
            theta=theta,
            a=1 / (2 * lengths),
            W=W,
            b=b,
            objective=objective,
            violation=violation,
            gap=gap,
            residual=solution.residual,
            epsilon=epsilon,
            delta=delta,
            returned=state.returned | is_inactive & (theta > 0),
        )

    def smoothing(self, residuals: FloatArray, norms: FloatArray) -> tuple[float, FloatArray]:
        """Return ε and δ, from the norms of the residuals and weights of the first round."""
        share = SMOOTHING_SHARE * self.tol * (residuals.sum() + self.gamma * norms.sum())
        least = max(MIN_SMOOTHING * residuals.mean(), LEAST_EPSILON * self.unit)
        sizes = np.sqrt(self.X.stats.sums_of_squares)  # the scale of ‖w_j‖ is 1/‖x_j‖
        per_unit = np.divide(1, sizes, out=np.zeros_like(sizes), where=self.candidates)
        delta = share / self.gamma * per_unit / per_unit.sum()
        return max(float(share / len(residuals)), float(least)), delta

    def dual(self, V: FloatArray) -> FloatArray:
        """Return V (n × c) with rows of length one at most, and centered."""
        V = V / np.maximum(row_norms(V), 1)[:, None]
        return np.asarray(V - V.mean(axis=0))

    def duality_gap(self, V: FloatArray, largest_correlation: float, objective: float) -> float:
        """Return the relative gap to the bound that V gives, from max_j ‖x_jᵀV‖."""
        tiny = np.finfo(float).tiny  # V = 0 bounds the objective by 0
        s = 1 / max(row_norms(V).max(), largest_correlation / self.gamma, tiny)
        lower = max(s * float(np.vdot(V, self.Y)), 0.0)
        return float((objective - lower) / objective)

    def check_inactive(
        self,
        theta: FloatArray,
        violation: float,
        V: FloatArray,
        objective: float,
        delta: FloatArray,
    ) -> tuple[FloatArray, float]:
        """Return θ and the gap over all features, once the working set is solved.

        Inactive features that violate optimality return to θ. It takes one pass over X.
        """
        if violation > self.tol:
            return theta, np.inf
        correlations = self.pulls(self.X.T @ V)
        gap = self.duality_gap(V, correlations.max(), objective)
        violators = (theta == 0) & (
            correlations > max(correlations[theta > 0].max(initial=0.0), self.gamma)
        )
        if gap > self.tol and violators.any():
            theta = theta + np.maximum(RETURN_SHARE * theta.max(), delta) * violators
        return theta, gap

    def scores(self, state: RFSState) -> FloatArray:
        R = self.Y - self.working_set.times(state.W) - state.b
        V = self.dual(2 * state.a[:, None] * R)
        norms = np.where(state.theta > 0, row_norms(state.W), 0.0)
        return inactive_scores(norms, self.pulls(self.X.T @ V))


class RFS(RowSparseSelector):
    """Select features by robust ℓ2,1 regression on the class indicators.

    It is efficient and robust feature selection by joint ℓ2,1 norms [1]_. Unlabeled samples are
    left out.

    Parameters
    ----------
    gamma : float, default=1.0
        Weight of the penalty. A larger value leaves fewer features with a weight. It has the unit
        of X.

    Attributes
    ----------
    %(row_scores)s
    %(classes)s
    %(class_coef)s
    intercept_ : ndarray of shape (n_classes,)
        Intercept b.
    %(n_rounds)s
    %(rounds_result)s

    See Also
    --------
    MultiTaskLasso : The same penalty with squared residuals.
    RLSR : Squared residuals, the square of the penalty, and unlabeled samples.

    Notes
    -----
    It is the problem of [1]_ with an intercept that is not penalized::

        min Σ_i ‖Wᵀx_i + b − y_i‖ + γ Σ_j ‖w_j‖

    Small norms are smoothed. That adds at most half of `tol` to either sum, and the duality gap is
    that of the norms themselves.

    References
    ----------
    .. [1] F. Nie, H. Huang, X. Cai and C. Ding, "Efficient and robust feature selection via joint
       ℓ2,1-norms minimization", NIPS 2010.

    Examples
    --------
    %(iris)s
    >>> from bigfs import RFS
    >>> selector = RFS(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([3, 1])
    >>> selector.result_.status.name
    'CONVERGED'
    """

    gamma: float = 1.0
    solver: str = "auto"
    solver_tol: float = 1e-6
    solver_max_iter: int = 500
    tol: float = 0.05
    max_iter: int = 200

    _needs_one_scale = True
    _cost = Cost("2 per CG step, then 0", "(n + d) c + columns")

    def _fit(self, X: Matrix, y: Any) -> None:
        X, self.classes_, codes = labeled_part(X, y)
        self._regress(X, one_hot(codes, len(self.classes_)))

    def _regress(self, X: Matrix, Y: FloatArray) -> None:
        """Regress Y on X. Set the scores, the weights and the result."""
        problem = RFSProblem(X.near_zero(), Y, self.gamma, **self._options())
        state = self._solve(problem, problem.start())
        self.coef_, self.intercept_ = state.W, state.b - X.near_numbers @ state.W


class JFS(RFS):
    """Select features by a row-sparse regression of all features on themselves, unsupervised.

    Regularized self-representation [1]_, also called joint feature selection, is for few features.
    Its weights take n_features × n_features numbers, and more than fit are refused.

    Parameters
    ----------
    gamma : float, default=1.0
        Weight of the penalty. A larger value leaves fewer features with a weight. It has the unit
        of X, so that a scaled X has the same weights at an equally scaled gamma.

    Attributes
    ----------
    %(row_scores)s
    coef_ : ndarray of shape (n_features, n_features)
        Weights W. Row j holds the part of feature j in each of the reconstructed features.
    intercept_ : ndarray of shape (n_features,)
        Intercept b.
    %(n_rounds)s
    %(rounds_result)s

    See Also
    --------
    RFS : The same regression on the classes.
    SparGE : With `embedding="pca"`, the leading components in place of all features, for large X.

    Notes
    -----
    The problem has an intercept that is not penalized::

        min Σ_i ‖Wᵀx_i + b − x_i‖ + γ Σ_j ‖w_j‖

    Small norms are smoothed as for `RFS`. A forbidden feature is not reconstructed either.

    References
    ----------
    .. [1] P. Zhu, W. Zuo, L. Zhang, Q. Hu and S. C. K. Shiu, "Unsupervised feature selection by
       regularized self-representation", Pattern Recognition, 2015.

    Examples
    --------
    %(iris)s
    >>> from bigfs import JFS
    >>> selector = JFS(n_features_to_select=2, gamma=10.0).fit(X)
    >>> selector.selected_
    array([0, 1])
    >>> selector.result_.status.name
    'CONVERGED'
    """

    _ignores_y = True

    def _fit(self, X: Matrix, y: Any) -> None:
        n, d = X.shape
        engine.require_memory(
            8 * (SAMPLE_COPIES * n * d + FEATURE_COPIES * d * d),
            f"the reconstruction of {d} features of {n} samples by themselves",
        )
        allowed = np.delete(np.arange(d), self._constraints.absent)
        Y = X.columns(allowed).toarray().astype(np.float64)
        self._regress(X, Y)
        coef, intercept = self.coef_, self.intercept_
        self.coef_, self.intercept_ = np.zeros((d, d)), np.zeros(d)
        self.coef_[:, allowed], self.intercept_[allowed] = coef, intercept
