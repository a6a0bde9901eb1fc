"""SRLSR: rescaled least squares, semi-supervised [Chen, Yuan, Nie, Ming, IEEE TKDE 2018].

    min ‖XW + 1bᵀ − Y‖² + γ‖W‖²₂,ₚ                                        [eq. 50, corrected]

over W (d × c), b (c), and the rows of Y (n × c) of the unlabeled samples on the probability
simplex. The penalty is squared, unlike in the print. RLSR is p = 1.

A round, with φ_j = θ_j^(2/p − 1), and φ = 1 at first:

    W = (XcᵀXc + γ diag(1/φ))⁻¹ XcᵀY          one weighted ridge solve
    b = mean(Y − XW)
    Y_i = the projection of Wᵀx_i + b on the simplex, for each unlabeled i
    θ_j = ‖w_j‖ᵖ / Σ‖w‖ᵖ

The objective falls in every round after the first.

The certificate for p < 1, at (W, b, Y) with the centered residual V = Y − XW − 1bᵀ, is how far the
rows of active features are from stationary, relative to the penalty:

    Σ_j ‖w_j‖ ‖x_jᵀV − γ w_j/φ_j‖ / γ‖W‖²₂,ₚ

A row at zero is stationary, because the slope of the penalty is infinite there.

For p = 1 the problem is convex, and a duality gap replaces it. Any V with 1ᵀV = 0 bounds the
optimum from below by a²/4q with

    a = 2 Σ_labeled ⟨v_i, y_i⟩ + 2 Σ_unlabeled min_k v_ik,    q = ‖V‖² + max_j ‖x_jᵀV‖² / γ

The maximum is over all features, also those that left the working set. A feature that left and
whose ‖x_jᵀV‖ is too large returns.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from bigfs.linalg.prox import norm_2p, project_simplex, row_norms
from bigfs.linalg.ridge import SOLVERS, centering
from bigfs.linalg.ridge.working_set import WorkingSet
from bigfs.matrix import Matrix
from bigfs.result import Record, iterate
from bigfs.selectors.base import Cost, Selector, at_least_two, is_dask
from bigfs.types import AnyArray, FloatArray, IntArray

NEGLIGIBLE = 1e-10  # a feature whose θ is below this share of the largest leaves the working set
RETURN_SHARE = 1e-3  # of θ's mass: what the features that return to the working set get


# --- problem and step -----------------------------------------------------------------------------


class SRLSRState(NamedTuple):
    """The solution after some rounds, with its certificate."""

    theta: FloatArray  # (d,): on the simplex after the first round; 0 where a feature is inactive
    W: FloatArray  # d × c
    b: FloatArray  # (c,)
    Y: FloatArray  # n × c
    objective: float
    violation: float  # the certificate over the working set
    gap: float  # the certificate over all features; infinite until the inactive ones were checked
    residual: float  # of the ridge solve, relative


class SRLSRProblem:
    """The data, the step, the certificate, and the working set of features."""

    def __init__(
        self,
        X: Matrix,
        codes: IntArray,
        c: int,
        p: float,
        gamma: float,
        tol: float,
        ridge: dict[str, Any],
    ) -> None:
        self.X, self.codes, self.c, self.p, self.gamma, self.tol = X, codes, c, p, gamma, tol
        self.is_labeled = codes >= 0
        self.centering = centering(X.shape[0])
        self.working_set = WorkingSet(X, targets=c, **ridge)

    def start(self, theta: FloatArray | None) -> SRLSRState:
        """Return the state at the given θ, or 1, with the unlabeled rows of Y at 1/c."""
        n, d = self.X.shape
        Y = np.full((n, self.c), 1 / self.c)
        Y[self.is_labeled] = np.eye(self.c)[self.codes[self.is_labeled]]
        # an empty column can't get weight
        theta = np.where(self.X.stats.nnz > 0, 1.0 if theta is None else theta, 0.0)
        W, b = np.zeros((d, self.c)), np.zeros(self.c)
        return SRLSRState(theta, W, b, Y, np.inf, np.inf, np.inf, 0.0)

    def step(self, state: SRLSRState) -> SRLSRState:
        """Run one round."""
        solution = self.working_set.solve(
            self.centering, self.penalties(state.theta), state.Y - state.Y.mean(axis=0), state.W
        )
        W = solution.W
        XW = self.working_set.times(W)
        b = (state.Y - XW).mean(axis=0)
        Y = state.Y.copy()
        Y[~self.is_labeled] = project_simplex((XW + b)[~self.is_labeled])
        V = Y - XW - b
        objective = float(np.sum(V**2) + self.gamma * norm_2p(W, self.p) ** 2)
        V -= V.mean(axis=0)
        theta = self.theta(W)
        violation = self.violation(W, theta, Y, V, objective)
        theta, gap = self.check_inactive(theta, violation, Y, V, objective)
        return SRLSRState(theta, W, b, Y, objective, violation, gap, solution.residual)

    def penalties(self, theta: FloatArray) -> FloatArray:
        """Return γ/φ with φ = θ^(2/p − 1). It is infinite where a feature is inactive."""
        with np.errstate(divide="ignore"):
            return self.gamma / theta ** (2 / self.p - 1)

    def theta(self, W: FloatArray) -> FloatArray:
        """Return ‖w_j‖ᵖ / Σ‖w‖ᵖ, and 0 for the features that became negligible."""
        weights = row_norms(W) ** self.p
        if not weights.any():
            raise ValueError(
                "no feature of X is correlated with y, so every weight is zero: "
                "check X and y, or give other features"
            )
        weights[weights < NEGLIGIBLE * weights.max()] = 0
        return weights / weights.sum()

    def violation(
        self, W: FloatArray, theta: FloatArray, Y: FloatArray, V: FloatArray, objective: float
    ) -> float:
        """Return the violation of stationarity (p < 1) or the duality gap (p = 1).

        Only the features of the working set count.
        """
        XtV = self.working_set.transposed_times(V)
        if self.p == 1:
            return self.duality_gap(row_norms(XtV).max(), Y, V, objective)
        active = theta > 0
        residual = row_norms(XtV[active] - self.penalties(theta)[active, None] * W[active])
        return float(row_norms(W)[active] @ residual / (self.gamma * norm_2p(W, self.p) ** 2))

    def duality_gap(
        self, largest_correlation: float, Y: FloatArray, V: FloatArray, objective: float
    ) -> float:
        """Return the relative gap to the bound that V gives, from max_j ‖x_jᵀV‖."""
        labeled = self.is_labeled
        a = 2 * np.sum(V[labeled] * Y[labeled]) + 2 * np.sum(V[~labeled].min(axis=1))
        q = np.sum(V**2) + largest_correlation**2 / self.gamma
        lower = max(a, 0.0) ** 2 / (4 * q) if q > 0 else 0.0  # V = 0 bounds the objective by 0
        return float((objective - lower) / objective) if objective > 0 else 0.0

    def check_inactive(
        self, theta: FloatArray, violation: float, Y: FloatArray, V: FloatArray, objective: float
    ) -> tuple[FloatArray, float]:
        """Return θ and the gap over all features, once the working set is solved.

        Inactive features that violate optimality return to θ. It takes one pass over X, for p = 1
        only: with p < 1 a feature at zero is stationary.
        """
        if self.p < 1:
            return theta, violation
        if violation > self.tol:
            return theta, np.inf
        correlations = row_norms(self.X.T @ V)
        gap = self.duality_gap(correlations.max(), Y, V, objective)
        violators = (theta == 0) & (correlations > correlations[theta > 0].max())
        if gap > self.tol and violators.any():
            theta = (1 - RETURN_SHARE) * theta + RETURN_SHARE * violators / violators.sum()
        return theta, gap

    def scores(self, state: SRLSRState) -> FloatArray:
        """Return θ where it is positive.

        An inactive feature has a score in [−1, 0], by how strongly it correlates with the residual.
        """
        V = state.Y - self.working_set.times(state.W) - state.b
        correlations = row_norms(self.X.T @ (V - V.mean(axis=0)))
        largest = max(correlations.max(), np.finfo(float).tiny)
        return np.where(state.theta > 0, state.theta, correlations / largest - 1)


def measure(state: SRLSRState) -> Record:
    """Return the record of a state in the history."""
    return {
        "objective": state.objective,
        "features": float(np.count_nonzero(state.theta)),
        "violation": state.violation,
        "gap": state.gap,
        "residual": state.residual,
    }


# --- estimator ------------------------------------------------------------------------------------


class SRLSR(Selector):
    """Choose features by their share of a row-sparse classifier, from few or all labels.

    Sparse rescaled linear square regression [1]_ learns the classifier and the labels of the
    unlabeled samples together. In an array y, −1 means unlabeled unless y holds nothing but −1 and
    1.

    Parameters
    ----------
    n_features_to_select : int, float or None, default=None
        Number of features to keep. A float in (0, 1] is a share of the features, and None keeps
        half of them.
    keep : array-like of int or str, default=None
        Features that must be chosen, as indices or names.
    forbid : array-like of int or str, default=None
        Features that must not be chosen, as indices or names.
    p : float, default=0.7
        Exponent of the penalty ‖W‖²₂,ₚ, in (0, 1]. A smaller p leaves fewer features with a weight.
        Below 1 the answer is a local optimum.
    gamma : float, default=1e-6
        Weight of the penalty. About γ^(−p/2) features keep a weight, up to a factor that depends on
        the data. For 500 features of a text corpus, start at 1e-8 with p = 0.5 and at 1e-3 with p =
        1.
    start : array-like of shape (n_features,) or None, default=None
        Positive first θ. None takes 1 for every feature. For p = 1 it does not change the answer.
    solver : {"auto", "woodbury", "primal", "cg"}, default="auto"
        Solver of the ridge problem of each round. "auto" takes the one of least projected time
        among those that fit in memory.
    solver_tol : float, default=1e-6
        Relative residual at which the solver "cg" stops in each round.
    solver_max_iter : int, default=100
        Maximum number of iterations of "cg" in each round. A round that stops there still lowers
        the objective, and the history holds its residual.
    tol : float, default=1e-2
        Relative duality gap (p = 1) or violation of stationarity (p < 1) at which to stop.
    max_iter : int, default=200
        Maximum number of rounds.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        θ of each feature where it is positive. A feature of zero weight has a score in [−1, 0], by
        how strongly the residual correlates with it.
    selected_ : ndarray of shape (n_selected,)
        Indices of the chosen features, best first. Equal scores are ordered by index.
    support_ : ndarray of shape (n_features,)
        Mask of the chosen features.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X is a data frame whose column names are strings.
    theta_ : ndarray of shape (n_features,)
        Share of each feature in the classifier, on the simplex.
    coef_ : ndarray of shape (n_features, n_classes)
        Weights W.
    intercept_ : ndarray of shape (n_classes,)
        Intercept b.
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        The completed Y: one-hot for a labeled sample, a point of the simplex for an unlabeled one.
    n_iter_ : int
        Number of rounds.
    result_ : bigfs.result.Result
        Status and history. Each record of the history has the objective, the number of features,
        the violation, the gap and the residual of the ridge solve. The stats have the plans of the
        ridge solves and the passes over X.

    See Also
    --------
    RLSR : The convex case p = 1.
    JHLSR : Learn a hypergraph of the samples too.
    SparGE : With `embedding="sda"`, choose features from few labels and a kNN graph.

    Notes
    -----
    The problem is eq. 50 of [1]_, corrected: the penalty is squared. The minimum is over W, b, and
    the rows of Y of the unlabeled samples on the simplex::

        min ‖XW + 1bᵀ − Y‖² + γ‖W‖²₂,ₚ

    Each round solves one ridge problem and never raises the objective after the first round.

    References
    ----------
    .. [1] X. Chen, G. Yuan, F. Nie and Z. Ming, "Semi-supervised feature selection via sparse
       rescaled linear square regression", IEEE Transactions on Knowledge and Data Engineering,
       2018, eq. 50 and Alg. 1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import SRLSR
    >>> X, y = load_iris(return_X_y=True)
    >>> few = y.copy()
    >>> few[::2] = -1
    >>> selector = SRLSR(n_features_to_select=2, gamma=1e-2).fit(X, few)
    >>> selector.selected_
    array([3, 1])
    >>> round(float((selector.predict(X) == y).mean()), 2)
    0.83
    """

    _cost = Cost("2 per CG step, then 0", "(n + d) c + columns")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Selector._parameter_constraints,
        "p": [Interval(Real, 0, 1, closed="right")],
        "gamma": [Interval(Real, 0, None, closed="neither")],
        "start": ["array-like", None],
        "solver": [StrOptions({*SOLVERS, "auto"})],
        "solver_tol": [Interval(Real, 0, 1, closed="neither")],
        "solver_max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }
    _semi_supervised = True

    def __init__(
        self,
        *,
        n_features_to_select: int | float | None = None,
        keep: Any = None,
        forbid: Any = None,
        p: float = 0.7,
        gamma: float = 1e-6,
        start: Any = None,
        solver: str = "auto",
        solver_tol: float = 1e-6,
        solver_max_iter: int = 100,
        tol: float = 1e-2,
        max_iter: int = 200,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.keep = keep
        self.forbid = forbid
        self.p = p
        self.gamma = gamma
        self.start = start
        self.solver = solver
        self.solver_tol = solver_tol
        self.solver_max_iter = solver_max_iter
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, X: Matrix, y: Any) -> None:
        self.classes_, codes = at_least_two(y)
        ridge = {"solver": self.solver, "tol": self.solver_tol, "max_iter": self.solver_max_iter}
        problem = SRLSRProblem(X, codes, len(self.classes_), self.p, self.gamma, self.tol, ridge)
        self.result_ = iterate(
            problem.step,
            problem.start(self._checked_start(X.shape[1])),
            measure=measure,
            stop="gap",
            tol=self.tol,
            max_iter=self.max_iter,
            name=type(self).__name__,
        )
        state = self.result_.value
        self.n_iter_ = len(self.result_.history)
        self.scores_ = problem.scores(state)
        self.result_.stats.update(plans=problem.working_set.plans, passes=X.passes)
        self.theta_, self.coef_, self.intercept_ = state.theta, state.W, state.b
        self.label_distributions_ = state.Y

    def _checked_start(self, d: int) -> FloatArray | None:
        if self.start is None:
            return None
        start = np.asarray(self.start, dtype=np.float64)
        if start.shape != (d,) or not np.all(start > 0):
            raise ValueError(
                f"start must hold {d} positive numbers, one per feature; got shape {start.shape}"
            )
        return start / start.max()

    def predict(self, X: Any) -> AnyArray:
        """Predict the class of each sample, that of the largest x W + b.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples with the features seen during `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
            The predicted class labels.
        """
        check_is_fitted(self)
        active = np.flatnonzero(self.theta_)
        if isinstance(X, Matrix) or is_dask(X):
            Z = (X if isinstance(X, Matrix) else Matrix.from_dask(X)).columns(active)
        else:
            X = validate_data(
                self, X, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32], reset=False
            )
            Z = X[:, active]
        decision = Z @ self.coef_[active] + self.intercept_
        return np.asarray(self.classes_[np.argmax(decision, axis=1)])
