"""RLSR: rescaled least squares, the convex case p = 1 of `SRLSR`.

min ‖XW + 1bᵀ − Y‖² + γ‖W‖²₂,₁                        [Chen, Yuan, Nie, Ming, IEEE TKDE 2018]
"""

from __future__ import annotations

from typing import Any

from bigfs.selectors.row_sparse.srlsr import SRLSR


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

    p = 1.0

    def __init__(
        self,
        *,
        n_features_to_select: int | float | None = None,
        keep: Any = None,
        forbid: Any = None,
        gamma: float = 1e-3,
        start: Any = None,
        solver: str = "auto",
        solver_tol: float | None = 1e-6,
        solver_max_iter: int = 100,
        accelerate: bool = False,
        tol: float = 1e-2,
        max_iter: int = 200,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.keep = keep
        self.forbid = forbid
        self.gamma = gamma
        self.start = start
        self.solver = solver
        self.solver_tol = solver_tol
        self.solver_max_iter = solver_max_iter
        self.accelerate = accelerate
        self.tol = tol
        self.max_iter = max_iter
