"""SRLSR: rescaled least squares, semi-supervised [Chen, Yuan, Nie, Ming, IEEE TKDE 2018].

    min ‖XW + 1bᵀ − Y‖² + γ‖W‖²₂,ₚ                                        [eq. 50, corrected]

over W (d × c), b (c), and the rows of Y (n × c) of the unlabeled samples on the probability
simplex. The penalty is squared, unlike in the print. RLSR is p = 1.

A round, with φ_j = θ_j^(2/p − 1), and φ = 1 at first:

    W = (XcᵀXc + γ diag(1/φ))⁻¹ XcᵀY          one weighted ridge solve
    b = mean(Y − XW)
    Y_i = the projection of Wᵀx_i + b on the simplex, for each unlabeled i      [`label_sums`]
    θ_j = ‖w_j‖ᵖ / Σ‖w‖ᵖ

The objective falls in every round after the first. `accelerate` has a faster round.

The certificate for p < 1, at (W, b, Y) with the centered residual V = Y − XW − 1bᵀ, is how far the
rows of active features are from stationary, relative to the penalty:

    Σ_j ‖w_j‖ ‖x_jᵀV − γ w_j/φ_j‖ / γ‖W‖²₂,ₚ

A row at zero is stationary, because the slope of the penalty is infinite there. A run that this
certificate would end computes it once more, from a product of X with W.

For p = 1 the problem is convex, and a duality gap replaces it. Any V with 1ᵀV = 0 bounds the
optimum from below by a²/4q with

    a = 2 Σ_labeled ⟨v_i, y_i⟩ + 2 Σ_unlabeled min_k v_ik,    q = ‖V‖² + max_j ‖x_jᵀV‖² / γ

V is the residual whose mean is taken from its labeled rows alone, so that min_k v_ik of the others
is known in the pass that makes V. The maximum is over all features, also those that left the
working set. A feature that left and whose ‖x_jᵀV‖ is too large returns.
"""

from __future__ import annotations

from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from bigfs import engine
from bigfs.linalg.prox import norm_2p, row_norms
from bigfs.linalg.ridge import centering
from bigfs.linalg.ridge.cg import STRIP, subtract_product
from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import class_sizes
from bigfs.matrix.construction import readable
from bigfs.matrix.kernels import gram_times
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.labels import at_least_two
from bigfs.selectors.base.parameters import POSITIVE, SHARE
from bigfs.selectors.row_sparse.label_sums import LabelSums, complete_labels, sum_samples
from bigfs.selectors.row_sparse.rows import (
    RowSparseProblem,
    RowSparseSelector,
    inactive_scores,
    without_negligible,
)
from bigfs.types import AnyArray, FloatArray, IntArray

NEGLIGIBLE = 1e-10  # a feature whose θ is below this share of the largest leaves the working set
RETURN_SHARE = 1e-3  # of θ's mass: what the features that return to the working set get
# With solver_tol=None: the share of its first residual at which CG stops, and the relative residual
# that is small enough.
REDUCTION = 0.1
LEAST_TOL = 1e-6
LARGEST = 140  # exponent of 10 of γ d^(2/p), beyond which the squares of weights underflow
LABELS_SHARE = 0.25  # of the memory limit: what the labels of all samples may take in the end


# --- problem and step ----------------------------------------------------------------------------


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
    # Only of accelerated rounds. (d,): θ with which a feature left early, −1 if it returned, else 0
    left: FloatArray = np.empty(0)
    # 2 × (u + 1) × c: where the last round without extrapolation ended, (W, b) and (XcᵀXcW, 0) of
    # the u active features
    ended: FloatArray | None = None
    age: float = 1.0  # of the momentum


class Point(NamedTuple):
    """Where a round ends, before its labels are completed."""

    W: FloatArray  # d × c
    b: FloatArray  # (c,)
    XtXW: FloatArray  # d × c
    residual: float


class SRLSRProblem(RowSparseProblem):
    """The data, the step, and the certificate."""

    def __init__(
        self, X: Matrix, codes: IntArray, c: int, p: float, gamma: float, **options: Any
    ) -> None:
        super().__init__(X, c, **options)
        self.codes, self.c, self.p, self.gamma = codes, c, p, gamma
        self.class_sizes = class_sizes(codes, c)  # of the labeled samples
        self.n_labeled = int(self.class_sizes.sum())
        self.centering = centering(X.shape[0])

    def start(self, theta: FloatArray | None) -> SRLSRState:
        """Return the state at the given θ, or 1, with W = 0: the unlabeled rows of Y are at 1/c."""
        n, d = self.X.shape
        theta = np.where(self.candidates, 1.0 if theta is None else theta, 0.0)
        W, XtXW, b = np.zeros((d, self.c)), np.zeros((d, self.c)), np.zeros(self.c)
        sums = sum_samples(self.X, self.codes, W, b)
        return SRLSRState(theta, W, b, XtXW, sums.product, sums.Y / n, np.inf, np.inf, np.inf, 0.0)

    def step(self, state: SRLSRState) -> SRLSRState:
        """Run one round."""
        next_state, sums = self.complete(self.solve(state))
        return self.check_inactive(next_state, sums)

    def solve(self, state: SRLSRState, knows_product: bool = True) -> Point:
        """Return the W and b that are best for the θ and the labels of the state."""
        solution = self.working_set.solve_rhs(
            self.centering,
            self.penalties(state.theta),
            lambda rows: self.centered(state.XtY, state.mean_Y, rows),
            state.W,
            state.XtXW if knows_product else None,
        )
        b = state.mean_Y - self.X.means @ solution.W
        return Point(solution.W, b, solution.product, solution.residual)

    def complete(self, point: Point) -> tuple[SRLSRState, LabelSums]:
        """Return the state at a point, with the sums over the samples, whose labels it completes.

        It takes one pass over the matrix of the working set.
        """
        sums = self.sums(point.W, point.b)
        state = SRLSRState(
            self.theta(point.W),
            point.W,
            point.b,
            point.XtXW,
            sums.product,
            sums.Y / self.X.shape[0],
            sums.V_norm2 + self.gamma * norm_2p(point.W, self.p) ** 2,
            np.inf,
            np.inf,
            point.residual,
        )
        state = state._replace(violation=self.violation(state, sums))
        if self.p < 1 and state.violation <= self.tol:  # so far by the product the solver claims
            state = state._replace(XtXW=self.gram_times(point.W))
            state = state._replace(violation=self.violation(state, sums))
        return state, sums

    def gram_times(self, W: FloatArray) -> FloatArray:
        """Return XcᵀXcW, in a pass over the matrix of the working set."""
        X, W = self.working_set.X, self.working_set.own_rows(W)
        product, means = np.asarray(gram_times(X, W)), X.means[:, None]
        subtract_product(product, means, X.shape[0] * (means.T @ W))
        return self.working_set.all_rows(product)

    def sums(self, W: FloatArray, b: FloatArray) -> LabelSums:
        """Return the sums at (W, b) with XᵀY, whose rows of inactive features may be zero."""
        active = self.working_set
        sums = sum_samples(active.X, self.codes, active.own_rows(W), b)
        return sums._replace(product=active.all_rows(sums.product))

    def centered(self, XtY: FloatArray, mean_Y: FloatArray, rows: Any = ...) -> FloatArray:
        """Return rows of XcᵀY = XᵀY − n μ mean(Y)ᵀ."""
        centered = np.array(XtY[rows])
        sums = self.X.shape[0] * self.X.means[rows]
        subtract_product(centered, sums[:, None], mean_Y[None])
        return centered

    def penalties(self, theta: FloatArray) -> FloatArray:
        """Return γ/φ with φ = θ^(2/p − 1). It is infinite where a feature is inactive."""
        with np.errstate(divide="ignore"):
            return self.gamma / theta ** (2 / self.p - 1)

    def theta(self, W: FloatArray) -> FloatArray:
        """Return ‖w_j‖ᵖ / Σ‖w‖ᵖ, and 0 for the features that became negligible."""
        weights = row_norms(W) ** self.p
        self.require_weight(weights)
        weights = without_negligible(weights, NEGLIGIBLE)
        return weights / weights.sum()

    def violation(self, state: SRLSRState, sums: LabelSums) -> float:
        """Return the violation of stationarity (p < 1) or the duality gap (p = 1).

        Only the features of the working set count.
        """
        active, penalties = np.flatnonzero(state.theta), self.penalties(state.theta)[:, None]

        def residual(rows: IntArray) -> FloatArray:
            XtV = self.centered(state.XtY, state.mean_Y, rows) - state.XtXW[rows]
            if self.p == 1:
                return self.correlations(XtV, sums, rows)
            return XtV - penalties[rows] * state.W[rows]

        strips = [active[first : first + STRIP] for first in range(0, len(active), STRIP)]
        residuals = np.concatenate([row_norms(residual(rows)) for rows in strips])
        if self.p == 1:
            return self.duality_gap(residuals.max(), sums, state.objective)
        norms = row_norms(state.W)[active]
        return float(norms @ residuals / (self.gamma * norm_2p(norms[:, None], self.p) ** 2))

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
        correlations = self.pulls(self.correlations(XtV, sums))
        gap = self.duality_gap(correlations.max(), sums, state.objective)
        active = state.theta > 0
        violators = ~active & (correlations > correlations[active].max())
        if gap <= self.tol or not violators.any():
            return state._replace(gap=gap)
        theta = (1 - RETURN_SHARE) * state.theta + RETURN_SHARE * violators / violators.sum()
        return self.with_returned(state._replace(theta=theta, gap=gap), XtV)

    def with_returned(self, state: SRLSRState, XtV: FloatArray) -> SRLSRState:
        """Return the state with all rows of its products, from XcᵀV (d × c). Reads X once."""
        XtY = sum_samples(self.X, self.codes, state.W, state.b).product
        return state._replace(XtY=XtY, XtXW=self.centered(XtY, state.mean_Y) - XtV)

    def consistent(self, state: SRLSRState) -> SRLSRState:
        """Return the state whose θ has the features of its W. Here it is the state itself."""
        return state

    def centered_residuals(self, state: SRLSRState) -> FloatArray:
        """Return XcᵀV of all features. Reads X once."""
        sums = sum_samples(self.X, self.codes, state.W, state.b, "V")
        subtract_product(sums.product, self.X.means[:, None], sums.V[None])
        return sums.product

    def scores(self, state: SRLSRState) -> FloatArray:
        """Return the score of each feature."""
        state = self.consistent(state)
        return inactive_scores(state.theta, self.pulls(self.centered_residuals(state)))


# --- estimator ------------------------------------------------------------------------------------


class SRLSR(RowSparseSelector):
    """Choose features by their share of a row-sparse classifier, from few or all labels.

    Sparse rescaled linear square regression [1]_ learns the classifier and the labels of the
    unlabeled samples together. In an array y, −1 means unlabeled unless y holds nothing but −1 and
    1.

    Parameters
    ----------
    %(select)s
    p : float, default=0.7
        Exponent of the penalty ‖W‖²₂,ₚ, in (0, 1]. A smaller p leaves fewer features with a weight.
        Below 1 the answer is a local optimum.
    gamma : float, default=1e-6
        Weight of the penalty. About γ^(−p/2) features keep a weight, up to a factor that depends on
        the data. For 500 features of a text corpus, start at 1e-8 with p = 0.5 and at 1e-3 with p =
        1.
    start : array-like of shape (n_features,) or None, default=None
        Positive first θ, of which the ratios count. None takes the same for every feature. For p =
        1 it does not change the answer.
    %(solver)s
    solver_tol : float or None, default=None
        Relative residual at which the solver "cg" stops in each round. None stops a round at a
        tenth of the residual that it begins with, or at 1e-6. A number such as 1e-6 takes more
        passes, and for p below 1 it may end at another local optimum.
    %(solver_max_iter)s
    accelerate : bool, default=True
        Whether the first θ is scaled to add up to 1, features leave the working set as soon as
        their weights shrink fast, and rounds go beyond their ends. That takes fewer rounds and far
        fewer passes. False is the paper's algorithm, which for p below 1 may end at another local
        optimum.
    tol : float, default=1e-2
        Relative duality gap (p = 1) or violation of stationarity (p < 1) at which to stop.
    %(rounds)s

    Attributes
    ----------
    %(rescaled_fitted)s

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

    n_features_to_select: int | float | None = None
    keep: Any = None
    forbid: Any = None
    p: float = 0.7
    gamma: float = 1e-6
    start: Any = None
    solver: str = "auto"
    solver_tol: float | None = None
    solver_max_iter: int = 100
    accelerate: bool = True
    tol: float = 1e-2
    max_iter: int = 200

    _cost = Cost("1 per round and CG step, then 0", "15 d c + columns")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "p": [Interval(Real, 0, 1, closed="right")],
        "gamma": POSITIVE,
        "start": ["array-like", None],
        "solver_tol": [*SHARE, None],
        "accelerate": ["boolean"],
    }
    _needs_one_scale = True
    _semi_supervised = True

    def _fit(self, X: Matrix, y: Any) -> None:
        self.classes_, codes = at_least_two(y)
        # it builds on the problem above
        from bigfs.selectors.row_sparse.accelerate import AcceleratedSRLSR

        until_nearer = {"tol": LEAST_TOL, "reduction": REDUCTION} if self.solver_tol is None else {}
        kind = AcceleratedSRLSR if self.accelerate else SRLSRProblem
        c = len(self.classes_)
        self._require_range(X.shape[1] - len(self._constraints.absent))
        near = X.near_zero()
        problem = kind(near, codes, c, self.p, self.gamma, **self._options(**until_nearer))
        start = problem.start(self._checked_start(X.shape[1]))
        state = problem.consistent(self._solve(problem, start))
        self.theta_, self.coef_ = state.theta, state.W
        self.intercept_ = state.b - X.near_numbers @ state.W
        if 8 * X.shape[0] * c <= LABELS_SHARE * engine.memory_limit():
            self.label_distributions_ = complete_labels(near, codes, state.W, state.b)

    def __getattr__(self, name: str) -> Any:
        """Say why the labels of the samples are not there."""
        if name == "label_distributions_" and "theta_" in vars(self):
            raise AttributeError(
                "label_distributions_ was not made, because the labels of all samples would take "
                f"more than {LABELS_SHARE:.0%} of the memory limit: raise the limit, or predict "
                "the samples that are needed"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _require_range(self, d: int) -> None:
        """Refuse a p and a γ with which γ d^(2/p) is beyond double precision for d features."""
        exponent = 2 * np.log10(d) / self.p  # of d^(2/p)
        if exponent > LARGEST:
            least = 2 * np.log10(d) / LARGEST
            raise ValueError(
                f"p must be at least {least:.4f} for the penalty of {d} features; got {self.p:g}"
            )
        if exponent + np.log10(self.gamma) > LARGEST:
            raise ValueError(
                f"gamma must be at most 1e{int(LARGEST - exponent):+} for {d} features and "
                f"p={self.p:g}; got {self.gamma:g}"
            )

    def _checked_start(self, d: int) -> FloatArray | None:
        if self.start is None:
            return None
        start = np.asarray(self.start, dtype=np.float64)
        if start.shape != (d,) or not np.all((start > 0) & np.isfinite(start)):
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
        X = readable(X)
        active = np.flatnonzero(self.theta_)
        if isinstance(X, Matrix) or engine.is_lazy(X):
            self._check_width(X)
            Z = (X if isinstance(X, Matrix) else Matrix.from_dask(X)).columns(active)
        else:
            X = validate_data(
                self, X, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32], reset=False
            )
            Z = X[:, active]
        decision = Z @ self.coef_[active] + self.intercept_
        return np.asarray(self.classes_[np.argmax(decision, axis=1)])


class RLSR(SRLSR):
    """Choose features by the convex case p = 1 of `SRLSR`.

    The optimum does not depend on the start, and a duality gap certifies it. In an array y, −1
    means unlabeled unless y holds nothing but −1 and 1.

    Parameters
    ----------
    %(select)s
    gamma : float, default=1e-3
        Weight of the penalty. About γ^(−1/2) features keep a weight, up to a factor that depends on
        the data.
    start : array-like of shape (n_features,) or None, default=None
        Positive first θ, of which the ratios count. None takes the same for every feature. It does
        not change the answer.
    %(solver)s
    solver_tol : float or None, default=None
        Relative residual at which the solver "cg" stops in each round. None stops a round at a
        tenth of the residual that it begins with, or at 1e-6. A number such as 1e-6 takes more
        passes.
    %(solver_max_iter)s
    accelerate : bool, default=True
        Whether the first θ is scaled to add up to 1, features leave the working set as soon as
        their weights shrink fast, and rounds go beyond their ends. That takes fewer rounds and far
        fewer passes. The answer is within `tol` of the same optimum.
    %(tol_gap)s
    %(rounds)s

    Attributes
    ----------
    %(rescaled_fitted)s

    See Also
    --------
    SRLSR : The same method with p up to 1, for fewer features.
    SparGE : Choose exactly m features together.

    Notes
    -----
    The minimum is over W, b, and the rows of Y of the unlabeled samples on the simplex (eq. 50 of
    [1]_ with p = 1, corrected)::

        min ‖XW + 1bᵀ − Y‖² + γ‖W‖²₂,₁

    References
    ----------
    .. [1] X. Chen, G. Yuan, F. Nie and Z. Ming, "Semi-supervised feature selection via sparse
       rescaled linear square regression", IEEE Transactions on Knowledge and Data Engineering,
       2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import RLSR
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = RLSR(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([3, 1])
    >>> selector.result_.status.name
    'CONVERGED'
    """

    p: ClassVar[float] = 1.0  # type: ignore[misc]  # no parameter here
    gamma: float = 1e-3
