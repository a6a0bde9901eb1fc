"""SRLSR: rescaled least squares, semi-supervised (Chen, Yuan, Nie, Ming, IEEE TKDE 2018); RLSR is p
= 1.

    min ‖XW + 1bᵀ − Y‖² + γ‖W‖²₂,ₚ     over W (d × c), b (c), and the unlabelled rows of Y on the
        probability simplex (eq. 50, corrected)

A round, with φ_j = θ_j^(2/p − 1) and φ = 1 at first:
    W = (XcᵀXc + γ diag(1/φ))⁻¹ XcᵀY          one weighted ridge solve
    b = mean(Y − XW)
    Y_i = the projection of W ᵀx_i + b on the simplex, for each unlabelled i
    θ_j = ‖w_j‖ᵖ / Σ‖w‖ᵖ
The objective falls in every round after the first.

Certificate, at (W, b, Y) with the centred residual V = Y − XW − 1bᵀ: how far the rows in play are
from stationary, relative to the penalty,
    Σ_j ‖w_j‖ ‖x_jᵀV − γ w_j/φ_j‖ / γ‖W‖²₂,ₚ        (a row at zero is stationary for p < 1: the
        penalty's slope there is infinite).
For p = 1 the problem is convex and a duality gap replaces it: any V with 1ᵀV = 0 bounds the optimum
from below by
    a² / 4q,   a = 2 Σ_labelled ⟨v_i, y_i⟩ + 2 Σ_unlabelled min_k v_ik,   q = ‖V‖² + max_j ‖x_jᵀV‖²
        / γ,
over all features, those that left the working set included: one whose ‖x_jᵀV‖ is too large returns.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from bigfs.linalg.prox import norm_2p, project_simplex, row_norms
from bigfs.linalg.ridge import WAYS, centring
from bigfs.linalg.ridge.working_set import WorkingSet
from bigfs.matrix import Matrix
from bigfs.result import Record, iterate
from bigfs.selectors.base import Selector, at_least_two, is_dask
from bigfs.types import AnyArray, FloatArray, IntArray

NEGLIGIBLE = 1e-10  # θ below this share of the largest leaves the working set
RETURN = 1e-3  # of θ's mass goes to the features that return to it


class State(NamedTuple):
    theta: FloatArray  # (d,): on the simplex after the first round; 0 where the feature is left out
    W: FloatArray  # (d, c)
    b: FloatArray  # (c,)
    Y: FloatArray  # (n, c)
    objective: float
    violation: float  # the certificate over the working set
    gap: float  # the same with the left-out features looked at; inf until that was done
    residual: float  # of the ridge solve, relative


class Problem:
    """The data, the step, the certificate, and the working set of features."""

    def __init__(
        self,
        X: Matrix,
        code: IntArray,
        c: int,
        p: float,
        gamma: float,
        tol: float,
        ridge: dict[str, Any],
    ) -> None:
        self.X, self.code, self.c, self.p, self.gamma, self.tol = X, code, c, p, gamma, tol
        self.known = code >= 0
        self.middle = centring(X.shape[0])
        self.working = WorkingSet(X, targets=c, **ridge)

    def start(self, theta: FloatArray | None) -> State:
        """θ as given, or 1; unlabelled rows of Y at 1/c."""
        n, d = self.X.shape
        Y = np.full((n, self.c), 1 / self.c)
        Y[self.known] = np.eye(self.c)[self.code[self.known]]
        # an empty column can't get weight
        theta = np.where(self.X.stats.counts > 0, 1.0 if theta is None else theta, 0.0)
        return State(theta, np.zeros((d, self.c)), np.zeros(self.c), Y, np.inf, np.inf, np.inf, 0.0)

    def step(self, state: State) -> State:
        solved = self.working.solve(
            self.middle, self.u(state.theta), state.Y - state.Y.mean(axis=0), state.W
        )
        W = solved.W
        XW = self.working.times(W)
        b = (state.Y - XW).mean(axis=0)
        Y = state.Y.copy()
        Y[~self.known] = project_simplex((XW + b)[~self.known])
        V = Y - XW - b
        objective = float(np.sum(V**2) + self.gamma * norm_2p(W, self.p) ** 2)
        V -= V.mean(axis=0)
        theta = self.theta(W)
        violation = self.violation(W, theta, Y, V, objective)
        theta, gap = self.with_left_out(theta, violation, Y, V, objective)
        return State(theta, W, b, Y, objective, violation, gap, solved.residual)

    def u(self, theta: FloatArray) -> FloatArray:
        """γ/φ with φ = θ^(2/p − 1); infinite where the feature is left out."""
        with np.errstate(divide="ignore"):
            return self.gamma / theta ** (2 / self.p - 1)

    def theta(self, W: FloatArray) -> FloatArray:
        """‖w_j‖ᵖ / Σ‖w‖ᵖ, without those that became negligible."""
        weight = row_norms(W) ** self.p
        if not weight.any():
            raise ValueError(
                "no feature of X is correlated with y, so every weight is zero: "
                "check X and y, or give other features"
            )
        weight[weight < NEGLIGIBLE * weight.max()] = 0
        return weight / weight.sum()

    def violation(
        self, W: FloatArray, theta: FloatArray, Y: FloatArray, V: FloatArray, objective: float
    ) -> float:
        """How far from stationary (p < 1), or the duality gap (p = 1), on the working set."""
        G = self.working.transposed_times(V)
        if self.p == 1:
            return self.duality_gap(row_norms(G).max(), Y, V, objective)
        on = theta > 0
        pull = row_norms(G[on] - self.u(theta)[on, None] * W[on])
        return float(row_norms(W)[on] @ pull / (self.gamma * norm_2p(W, self.p) ** 2))

    def duality_gap(self, largest: float, Y: FloatArray, V: FloatArray, objective: float) -> float:
        a = 2 * np.sum(V[self.known] * Y[self.known]) + 2 * np.sum(V[~self.known].min(axis=1))
        q = np.sum(V**2) + largest**2 / self.gamma
        lower = max(a, 0.0) ** 2 / (4 * q) if q > 0 else 0.0  # V = 0 bounds the objective by 0
        return float((objective - lower) / objective) if objective > 0 else 0.0

    def with_left_out(
        self, theta: FloatArray, violation: float, Y: FloatArray, V: FloatArray, objective: float
    ) -> tuple[FloatArray, float]:
        """θ and the gap once the working set is done: every feature is looked at, and those that
        should not be at zero return.
        """
        if self.p < 1:
            return theta, violation
        if violation > self.tol:
            return theta, np.inf
        asks = row_norms(self.X.T @ V)
        gap = self.duality_gap(asks.max(), Y, V, objective)
        back = (theta == 0) & (asks > asks[theta > 0].max())
        if gap > self.tol and back.any():
            theta = (1 - RETURN) * theta + RETURN * back / back.sum()
        return theta, gap

    def scores(self, state: State) -> FloatArray:
        """θ, larger than 0; a feature left out comes behind, at −1 … 0, by how strongly the
        residual asks for it.
        """
        V = state.Y - self.working.times(state.W) - state.b
        asks = row_norms(self.X.T @ (V - V.mean(axis=0)))
        return np.where(
            state.theta > 0, state.theta, asks / max(asks.max(), np.finfo(float).tiny) - 1
        )


def measure(state: State) -> Record:
    return {
        "objective": state.objective,
        "features": float(np.count_nonzero(state.theta)),
        "violation": state.violation,
        "gap": state.gap,
        "residual": state.residual,
    }


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
    p : float, default=0.5
        Exponent of the penalty ‖W‖²₂,ₚ, in (0, 1]. A smaller p leaves fewer features with a weight.
        Below 1 the answer is a local optimum.
    gamma : float, default=1e-6
        Weight of the penalty. About γ^(−1/4) features keep a weight at p = 0.5 and γ^(−1/2) at p =
        1, up to a factor that depends on the data. For 500 features of a text corpus, start at 1e-8
        and 1e-3.
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
    ----- The problem is eq. 50 of [1]_, corrected: the penalty is squared. The minimum is over W,
    b, and the rows of Y of the unlabeled samples on the simplex::

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
    0.85
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Selector._parameter_constraints,
        "p": [Interval(Real, 0, 1, closed="right")],
        "gamma": [Interval(Real, 0, None, closed="neither")],
        "start": ["array-like", None],
        "solver": [StrOptions({*WAYS, "auto"})],
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
        p: float = 0.5,
        gamma: float = 1e-6,
        start: Any = None,
        solver: str = "auto",
        solver_tol: float = 1e-6,
        solver_max_iter: int = 100,
        tol: float = 1e-2,
        max_iter: int = 200,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.p = p
        self.gamma = gamma
        self.start = start
        self.solver = solver
        self.solver_tol = solver_tol
        self.solver_max_iter = solver_max_iter
        self.tol = tol
        self.max_iter = max_iter

    def _fit(self, X: Matrix, y: Any) -> None:
        self.classes_, code = at_least_two(y)
        ridge = {"solver": self.solver, "tol": self.solver_tol, "max_iter": self.solver_max_iter}
        problem = Problem(X, code, len(self.classes_), self.p, self.gamma, self.tol, ridge)
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
        self.result_.stats.update(plans=problem.working.plans, passes=X.passes)
        self.theta_, self.coef_, self.intercept_, self.label_distributions_ = (
            state.theta,
            state.W,
            state.b,
            state.Y,
        )

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
        on = np.flatnonzero(self.theta_)
        if isinstance(X, Matrix) or is_dask(X):
            X = (X if isinstance(X, Matrix) else Matrix.from_dask(X)).columns(on)
        else:
            X = validate_data(
                self, X, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32], reset=False
            )[:, on]
        return np.asarray(self.classes_[np.argmax(X @ self.coef_[on] + self.intercept_, axis=1)])


class RLSR(SRLSR):
    """Choose features by the convex case p = 1 of `SRLSR`.

    The optimum does not depend on the start, and a duality gap certifies it. In an array y, −1
    means unlabeled unless y holds nothing but −1 and 1.

    Parameters
    ----------
    n_features_to_select : int, float or None, default=None
        Number of features to keep. A float in (0, 1] is a share of the features, and None keeps
        half of them.
    gamma : float, default=1e-3
        Weight of the penalty. About γ^(−1/2) features keep a weight, up to a factor that depends on
        the data.
    start : array-like of shape (n_features,) or None, default=None
        Positive first θ. None takes 1 for every feature. It does not change the answer.
    solver : {"auto", "woodbury", "primal", "cg"}, default="auto"
        Solver of the ridge problem of each round. "auto" takes the one of least projected time
        among those that fit in memory.
    solver_tol : float, default=1e-6
        Relative residual at which the solver "cg" stops in each round.
    solver_max_iter : int, default=100
        Maximum number of iterations of "cg" in each round. A round that stops there still lowers
        the objective, and the history holds its residual.
    tol : float, default=1e-2
        Relative duality gap at which to stop.
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        k: v for k, v in SRLSR._parameter_constraints.items() if k != "p"
    }
    p = 1.0

    def __init__(
        self,
        *,
        n_features_to_select: int | float | None = None,
        gamma: float = 1e-3,
        start: Any = None,
        solver: str = "auto",
        solver_tol: float = 1e-6,
        solver_max_iter: int = 100,
        tol: float = 1e-2,
        max_iter: int = 200,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.gamma = gamma
        self.start = start
        self.solver = solver
        self.solver_tol = solver_tol
        self.solver_max_iter = solver_max_iter
        self.tol = tol
        self.max_iter = max_iter
