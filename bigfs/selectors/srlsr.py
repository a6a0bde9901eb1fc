"""SRLSR: rescaled least squares, semi-supervised [Chen, Yuan, Nie, Ming, IEEE TKDE 2018].

    min ‖XW + 1bᵀ − Y‖² + γ‖W‖²₂,ₚ                                        [eq. 50, corrected]

over W (d × c), b (c), and the rows of Y (n × c) of the unlabeled samples on the probability
simplex. The penalty is squared, unlike in the print. RLSR is p = 1.

A round, with φ_j = θ_j^(2/p − 1), and φ = 1 at first:

    W = (XcᵀXc + γ diag(1/φ))⁻¹ XcᵀY          one weighted ridge solve
    b = mean(Y − XW)
    Y_i = the projection of Wᵀx_i + b on the simplex, for each unlabeled i      [`label_sums`]
    θ_j = ‖w_j‖ᵖ / Σ‖w‖ᵖ

The objective falls in every round after the first.

The certificate for p < 1, at (W, b, Y) with the centered residual V = Y − XW − 1bᵀ, is how far the
rows of active features are from stationary, relative to the penalty:

    Σ_j ‖w_j‖ ‖x_jᵀV − γ w_j/φ_j‖ / γ‖W‖²₂,ₚ

A row at zero is stationary, because the slope of the penalty is infinite there.

For p = 1 the problem is convex, and a duality gap replaces it. Any V with 1ᵀV = 0 bounds the
optimum from below by a²/4q with

    a = 2 Σ_labeled ⟨v_i, y_i⟩ + 2 Σ_unlabeled min_k v_ik,    q = ‖V‖² + max_j ‖x_jᵀV‖² / γ

V is the residual whose mean is taken from its labeled rows alone, so that min_k v_ik of the others
is known in the pass that makes V. The maximum is over all features, also those that left the
working set. A feature that left and whose ‖x_jᵀV‖ is too large returns.
"""

from __future__ import annotations

from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from bigfs import engine
from bigfs.linalg.prox import norm_2p, row_norms
from bigfs.linalg.ridge import SOLVERS, centering
from bigfs.linalg.ridge.working_set import WorkingSet
from bigfs.matrix import Matrix
from bigfs.result import Record, iterate
from bigfs.selectors.base import Cost, Selector, at_least_two, is_dask
from bigfs.selectors.label_sums import LabelSums, complete_labels, sum_samples
from bigfs.types import AnyArray, FloatArray, IntArray

NEGLIGIBLE = 1e-10  # a feature whose θ is below this share of the largest leaves the working set
RETURN_SHARE = 1e-3  # of θ's mass: what the features that return to the working set get
# With solver_tol=None: the share of its first residual at which CG stops, and the relative residual
# that is small enough.
REDUCTION = 0.1
LEAST_TOL = 1e-6
LABELS_SHARE = 0.25  # of the memory limit: what the labels of all samples may take in the end


# --- problem and step -----------------------------------------------------------------------------


class SRLSRState(NamedTuple):
    """The solution after some rounds, with its certificate. Y is a function of (W, b)."""

    theta: FloatArray  # (d,): on the simplex after the first round; 0 where a feature is inactive
    W: FloatArray  # d × c
    b: FloatArray  # (c,)
    XtXW: FloatArray  # d × c: XcᵀXcW
    XtY: FloatArray  # d × c: XᵀY
    mean_Y: FloatArray  # (c,)
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
        self.class_sizes = np.bincount(codes[codes >= 0], minlength=c)  # of the labeled samples
        self.n_labeled = int(self.class_sizes.sum())
        self.centering = centering(X.shape[0])
        self.working_set = WorkingSet(X, targets=c, **ridge)

    def start(self, theta: FloatArray | None) -> SRLSRState:
        """Return the state at the given θ, or 1, with W = 0: the unlabeled rows of Y are at 1/c."""
        n, d = self.X.shape
        # an empty column can't get weight
        theta = np.where(self.X.stats.nnz > 0, 1.0 if theta is None else theta, 0.0)
        W, XtXW, b = np.zeros((d, self.c)), np.zeros((d, self.c)), np.zeros(self.c)
        sums = sum_samples(self.X, self.codes, W, b)
        return SRLSRState(theta, W, b, XtXW, sums.product, sums.Y / n, np.inf, np.inf, np.inf, 0.0)

    def step(self, state: SRLSRState) -> SRLSRState:
        """Run one round."""
        solution = self.working_set.solve_rhs(
            self.centering,
            self.penalties(state.theta),
            self.centered(state.XtY, state.mean_Y),
            state.W,
            state.XtXW,
        )
        W = solution.W
        b = state.mean_Y - self.X.means @ W  # mean(Y − XW)
        sums = self.sums(W, b)
        objective = sums.V_norm2 + self.gamma * norm_2p(W, self.p) ** 2
        theta = self.theta(W)
        next_state = SRLSRState(
            theta,
            W,
            b,
            solution.product,
            sums.product,
            sums.Y / self.X.shape[0],
            objective,
            np.inf,
            np.inf,
            solution.residual,
        )
        next_state = next_state._replace(violation=self.violation(next_state, sums))
        return self.check_inactive(next_state, sums)

    def sums(self, W: FloatArray, b: FloatArray) -> LabelSums:
        """Return the sums over the samples with XᵀY, whose rows of inactive features may be zero.

        Y has the projections at (W, b) in its unlabeled rows.
        """
        index = self.working_set.index
        if index is None:
            return sum_samples(self.X, self.codes, W, b)
        sums = sum_samples(self.working_set.X, self.codes, W[index], b)
        product = np.zeros(W.shape)
        product[index] = sums.product
        return sums._replace(product=product)

    def centered(self, XtY: FloatArray, mean_Y: FloatArray, rows: Any = ...) -> FloatArray:
        """Return rows of XcᵀY = XᵀY − n μ mean(Y)ᵀ."""
        return XtY[rows] - np.outer(self.X.shape[0] * self.X.means[rows], mean_Y)

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

    def violation(self, state: SRLSRState, sums: LabelSums) -> float:
        """Return the violation of stationarity (p < 1) or the duality gap (p = 1).

        Only the features of the working set count.
        """
        active = state.theta > 0
        XtV = self.centered(state.XtY, state.mean_Y, active) - state.XtXW[active]
        if self.p == 1:
            largest = row_norms(self.correlations(XtV, sums, active)).max()
            return self.duality_gap(largest, sums, state.objective)
        W = state.W[active]
        residual = row_norms(XtV - self.penalties(state.theta)[active, None] * W)
        return float(row_norms(W) @ residual / (self.gamma * norm_2p(W, self.p) ** 2))

    def correlations(self, XtV: FloatArray, sums: LabelSums, rows: Any = ...) -> FloatArray:
        """Return rows of XᵀV of the V that bounds the optimum, from those of XcᵀV.

        The mean of this V is taken from its labeled rows alone, so that it is zero and min_k v_ik
        stays as it is in the others.
        """
        shift = sums.V / self.n_labeled
        return XtV + np.outer(self.X.means[rows], sums.V) - np.outer(self.labeled_X[rows], shift)

    @cached_property
    def labeled_X(self) -> FloatArray:
        """The sum of the labeled samples (d). Reads X once."""
        return np.asarray(self.X.T @ (self.codes >= 0).astype(np.float64))

    def duality_gap(self, largest_correlation: float, sums: LabelSums, objective: float) -> float:
        """Return the relative gap to the bound that V gives, from max_j ‖x_jᵀV‖."""
        shift = sums.V / self.n_labeled
        a = 2 * (sums.labeled_VY - shift @ self.class_sizes) + 2 * sums.least_V
        V_norm2 = sums.V_norm2 - 2 * shift @ sums.labeled_V + self.n_labeled * shift @ shift
        q = float(V_norm2) + largest_correlation**2 / self.gamma
        lower = max(float(a), 0.0) ** 2 / (4 * q) if q > 0 else 0.0  # V = 0 bounds it by 0
        return float((objective - lower) / objective) if objective > 0 else 0.0

    def check_inactive(self, state: SRLSRState, sums: LabelSums) -> SRLSRState:
        """Return the state with its gap over all features, once the working set is solved.

        Inactive features that violate optimality return to θ. It takes one pass over X, for p = 1
        only: with p < 1 a feature at zero is stationary.
        """
        if self.p < 1:
            return state._replace(gap=state.violation)
        if state.violation > self.tol:
            return state
        XtV = self.centered_residuals(state)
        correlations = row_norms(self.correlations(XtV, sums))
        gap = self.duality_gap(correlations.max(), sums, state.objective)
        active = state.theta > 0
        violators = ~active & (correlations > correlations[active].max())
        if gap <= self.tol or not violators.any():
            return state._replace(gap=gap)
        # what returns needs its rows of the products: one more pass
        XtY = sum_samples(self.X, self.codes, state.W, state.b).product
        return state._replace(
            theta=(1 - RETURN_SHARE) * state.theta + RETURN_SHARE * violators / violators.sum(),
            XtY=XtY,
            XtXW=self.centered(XtY, state.mean_Y) - XtV,
            gap=gap,
        )

    def centered_residuals(self, state: SRLSRState) -> FloatArray:
        """Return XcᵀV of all features. Reads X once."""
        sums = sum_samples(self.X, self.codes, state.W, state.b, "V")
        return sums.product - np.outer(self.X.means, sums.V)

    def scores(self, state: SRLSRState) -> FloatArray:
        """Return θ where it is positive.

        An inactive feature has a score in [−1, 0], by how strongly it correlates with the residual.
        """
        correlations = row_norms(self.centered_residuals(state))
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
    solver_tol : float or None, default=1e-6
        Relative residual at which the solver "cg" stops in each round. None stops a round at a
        tenth of the residual that it begins with, or at 1e-6. That takes fewer passes, and for p
        below 1 it may end at another local optimum.
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
        Absent where it would take more than a quarter of the memory limit.
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

    _cost = Cost("1 per round and CG step, then 0", "15 d c + columns")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Selector._parameter_constraints,
        "p": [Interval(Real, 0, 1, closed="right")],
        "gamma": [Interval(Real, 0, None, closed="neither")],
        "start": ["array-like", None],
        "solver": [StrOptions({*SOLVERS, "auto"})],
        "solver_tol": [Interval(Real, 0, 1, closed="neither"), None],
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
        solver_tol: float | None = 1e-6,
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
        until_nearer = self.solver_tol is None
        ridge = {
            "solver": self.solver,
            "tol": LEAST_TOL if until_nearer else self.solver_tol,
            "reduction": REDUCTION if until_nearer else 0.0,
            "max_iter": self.solver_max_iter,
        }
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
        self.theta_, self.coef_, self.intercept_ = state.theta, state.W, state.b
        n, c = X.shape[0], len(self.classes_)
        if 8 * n * c <= LABELS_SHARE * engine.memory_limit():
            self.label_distributions_ = complete_labels(X, codes, state.W, state.b)
        self.result_.stats.update(plans=problem.working_set.plans, passes=X.passes)

    def __getattr__(self, name: str) -> Any:
        """Say why the labels of the samples are not there."""
        if name == "label_distributions_" and "theta_" in vars(self):
            raise AttributeError(
                "label_distributions_ was not made, because the labels of all samples would take "
                f"more than {LABELS_SHARE:.0%} of the memory limit: raise the limit, or predict "
                "the samples that are needed"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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
