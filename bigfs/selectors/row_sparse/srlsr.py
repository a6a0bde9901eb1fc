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

`srlsr_problem` has the step and the certificate, and `srlsr_accelerated` a faster step.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from bigfs import engine
from bigfs.linalg.ridge import SOLVERS
from bigfs.matrix import Matrix
from bigfs.result import iterate
from bigfs.selectors.base.estimator import Cost, Selector, is_dask
from bigfs.selectors.base.labels import at_least_two
from bigfs.selectors.base.parameters import NOT_NEGATIVE, POSITIVE, SHARE
from bigfs.selectors.row_sparse.label_sums import complete_labels
from bigfs.selectors.row_sparse.srlsr_accelerated import AcceleratedSRLSR
from bigfs.selectors.row_sparse.srlsr_problem import SRLSRProblem, measure
from bigfs.types import AnyArray, FloatArray
from bigfs.validation import require_readable

# With solver_tol=None: the share of its first residual at which CG stops, and the relative residual
# that is small enough.
REDUCTION = 0.1
LEAST_TOL = 1e-6
LABELS_SHARE = 0.25  # of the memory limit: what the labels of all samples may take in the end


# --- estimator ------------------------------------------------------------------------------------


class SRLSR(Selector):
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
        Positive first θ. None takes 1 for every feature. For p = 1 it does not change the answer.
    %(solver)s
    solver_tol : float or None, default=1e-6
        Relative residual at which the solver "cg" stops in each round. None stops a round at a
        tenth of the residual that it begins with, or at 1e-6. That takes fewer passes, and for p
        below 1 it may end at another local optimum.
    %(solver_max_iter)s
    accelerate : bool, default=False
        Whether features leave the working set as soon as their weights shrink fast, and rounds go
        beyond their ends. That takes fewer rounds and far fewer passes. For p below 1 it may end at
        another local optimum.
    tol : float, default=1e-2
        Relative duality gap (p = 1) or violation of stationarity (p < 1) at which to stop.
    %(rounds)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        θ of each feature where it is positive. A feature of zero weight has a score in [−1, 0], by
        how strongly the residual correlates with it.
    %(selected)s
    theta_ : ndarray of shape (n_features,)
        Share of each feature in the classifier, on the simplex.
    %(class_coef)s
    intercept_ : ndarray of shape (n_classes,)
        Intercept b.
    %(classes)s
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        The completed Y: one-hot for a labeled sample, a point of the simplex for an unlabeled one.
        Absent where it would take more than a quarter of the memory limit.
    %(n_rounds)s
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

    n_features_to_select: int | float | None = None
    keep: Any = None
    forbid: Any = None
    p: float = 0.7
    gamma: float = 1e-6
    start: Any = None
    solver: str = "auto"
    solver_tol: float | None = 1e-6
    solver_max_iter: int = 100
    accelerate: bool = False
    tol: float = 1e-2
    max_iter: int = 200

    _cost = Cost("1 per round and CG step, then 0", "15 d c + columns")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "p": [Interval(Real, 0, 1, closed="right")],
        "gamma": POSITIVE,
        "start": ["array-like", None],
        "solver": [StrOptions({*SOLVERS, "auto"})],
        "solver_tol": [*SHARE, None],
        "accelerate": ["boolean"],
        "tol": NOT_NEGATIVE,
    }
    _needs_one_scale = True
    _semi_supervised = True

    def _fit(self, X: Matrix, y: Any) -> None:
        before = X.passes
        self.classes_, codes = at_least_two(y)
        until_nearer = self.solver_tol is None
        ridge = {
            "solver": self.solver,
            "tol": LEAST_TOL if until_nearer else self.solver_tol,
            "reduction": REDUCTION if until_nearer else 0.0,
            "max_iter": self.solver_max_iter,
        }
        kind = AcceleratedSRLSR if self.accelerate else SRLSRProblem
        forbidden = self._constraints.forbidden
        c = len(self.classes_)
        problem = kind(X, codes, c, self.p, self.gamma, self.tol, ridge, forbidden)
        self.result_ = iterate(
            problem.step,
            problem.start(self._checked_start(X.shape[1])),
            measure=measure,
            stop="gap",
            tol=self.tol,
            max_iter=self.max_iter,
            name=type(self).__name__,
        )
        state = problem.consistent(self.result_.value)
        self.n_iter_ = len(self.result_.history)
        self.scores_ = problem.scores(state)
        self.theta_, self.coef_, self.intercept_ = state.theta, state.W, state.b
        if 8 * X.shape[0] * c <= LABELS_SHARE * engine.memory_limit():
            self.label_distributions_ = complete_labels(X, codes, state.W, state.b)
        self.result_.stats.update(plans=problem.working_set.plans, passes=X.passes - before)

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
        require_readable(X)
        active = np.flatnonzero(self.theta_)
        if isinstance(X, Matrix) or is_dask(X):
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
        Positive first θ. None takes 1 for every feature. It does not change the answer.
    %(solver)s
    solver_tol : float or None, default=1e-6
        Relative residual at which the solver "cg" stops in each round. None stops a round at a
        tenth of the residual that it begins with, or at 1e-6, which takes fewer passes.
    %(solver_max_iter)s
    accelerate : bool, default=False
        Whether features leave the working set as soon as their weights shrink fast, and rounds go
        beyond their ends. That takes fewer rounds and far fewer passes. The answer is
        within `tol` of the same optimum.
    %(tol_gap)s
    %(rounds)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        θ of each feature where it is positive. A feature of zero weight has a score in [−1, 0], by
        how strongly the residual correlates with it.
    %(selected)s
    theta_ : ndarray of shape (n_features,)
        Share of each feature in the classifier, on the simplex.
    %(class_coef)s
    intercept_ : ndarray of shape (n_classes,)
        Intercept b.
    %(classes)s
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        The completed Y: one-hot for a labeled sample, a point of the simplex for an unlabeled one.
        Absent where it would take more than a quarter of the memory limit.
    %(n_rounds)s
    result_ : bigfs.result.Result
        Status and history. Each record of the history has the objective, the number of features,
        the violation, the gap and the residual of the ridge solve. The stats have the plans of the
        ridge solves and the passes over X.

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
