"""Sparse linear classifiers as selectors: the multi-task lasso and the ℓ1 SVM.

    MultiTaskLasso    min  1/2n ‖Y − XW − 1bᵀ‖² + α Σ_j ‖w_j‖₂
    L1SVM             min  Σ_jk |w_jk| + C Σ_ik max(0, 1 − y_ik(w_k·x_i + b_k))²

Y (n × c) indicates the classes, and y_ik = 2Y_ik − 1. `bigfs.lasso.path` solves them at falling
penalties until m features have a weight, or at a given penalty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions
from threadpoolctl import threadpool_limits

from bigfs.embedding.responses import one_hot
from bigfs.lasso.losses import LeastSquares, Loss, SquaredHinge
from bigfs.lasso.path import LassoPath, PathState, measure
from bigfs.linalg.prox import row_norms
from bigfs.matrix import Matrix
from bigfs.result import Result, iterate
from bigfs.selectors.base.estimator import Cost, Selector
from bigfs.selectors.base.labels import at_least_two, labeled_part
from bigfs.selectors.base.parameters import POSITIVE, SHARE
from bigfs.types import FloatArray


class SparseRegression(Selector):
    """Base of the selectors by the weights of a sparse regression."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"tol": SHARE}
    _needs_one_scale = True
    _nested = False  # the penalty follows from the number of features
    _target = "y"  # name of the targets, for errors
    if TYPE_CHECKING:  # each method lists them after its own parameters
        tol: float
        max_iter: int

    def _solve(
        self, loss: Loss, groups: list[slice], lam: float | None
    ) -> tuple[LassoPath, PathState]:
        """Run the path to its end. Set `coef_`, `n_iter_` and `result_`."""
        X = loss.X
        loss.varies[self._constraints.forbidden] = False  # they get no weight
        path = LassoPath(
            loss,
            groups,
            tol=self.tol,
            m=self._count(X.shape[1]),
            lam=lam,
            target=self._target,
        )
        # BLAS rounds by its number of threads; the answer must not
        with threadpool_limits(1, user_api="blas"):
            result: Result[PathState] = iterate(
                path.step,
                path.start(),
                measure=measure,
                stop="missing",
                tol=0,
                max_iter=self.max_iter,
                name=type(self).__name__,
                ends=path.ends,
            )
        state = result.value
        result.stats["gathered"] = len(loss.columns.features)
        self.result_, self.n_iter_ = result, len(result.history)
        self.coef_: FloatArray = np.zeros((X.shape[1], state.W.shape[1]))
        self.coef_[state.features] = state.W
        return path, state


class MultiTaskLasso(SparseRegression):
    """Rank features by their weights in a row-sparse regression on the classes.

    Unlabeled samples are left out.

    Parameters
    ----------
    %(select)s
    %(alpha_auto)s
    %(path)s

    Attributes
    ----------
    %(row_scores)s
    %(selected)s
    %(classes)s
    %(class_coef)s
    alpha_ : float
        Penalty of the weights.
    %(n_steps)s
    %(path_result)s

    See Also
    --------
    L1SVM : A weight of its own for each class, with the squared hinge loss.
    RLSR : The square of the same penalty, with unlabeled samples.

    Notes
    -----
    The problem is that of `sklearn.linear_model.MultiTaskLasso` on the indicators Y of the classes,
    with an intercept::

        min 1/2n ‖Y − XW − 1bᵀ‖² + α Σ_j ‖w_j‖₂

    The grid falls by a factor of 0.8 from the penalty that empties the model to its 1000th part.
    Each step solves the problem on gathered columns and checks all features in one pass. With
    fewer than `n_features_to_select` features at the end of the grid, the features without a weight
    follow by their scores, and the status is GRID_END.

    References
    ----------
    .. [1] G. Obozinski, B. Taskar and M. I. Jordan, "Joint covariate selection and joint subspace
       selection for multiple classification problems", Statistics and Computing, 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import MultiTaskLasso
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = MultiTaskLasso(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 1])
    >>> selector.result_.status.name
    'CONVERGED'
    """

    alpha: float | str = "auto"
    tol: float = 1e-3
    max_iter: int = 200

    _cost = Cost("1 per penalty", "(8 n + 3 d) c + columns")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [*POSITIVE, StrOptions({"auto"})],
    }

    def _fit(self, X: Matrix, y: Any) -> None:
        self.classes_, codes = at_least_two(y)
        X, codes = labeled_part(X, codes)
        n, c = X.shape[0], len(self.classes_)
        Y = one_hot(codes, c)
        lam = None if isinstance(self.alpha, str) else n * self.alpha
        path, state = self._solve(LeastSquares(X, Y - Y.mean(axis=0)), [slice(0, c)], lam)
        self.alpha_ = state.rho * state.largest / n
        self.scores_ = path.scores(state, row_norms(state.W))


class L1SVM(SparseRegression):
    """Rank features by their weights in a sparse linear SVM, one class against the rest.

    Unlabeled samples are left out.

    Parameters
    ----------
    %(select)s
    C : "auto" or float, default="auto"
        Weight of the losses against the penalty. "auto" takes the smallest of a grid at which
        `n_features_to_select` features have a weight.
    %(path)s

    Attributes
    ----------
    %(row_scores)s
    %(selected)s
    %(classes)s
    coef_ : ndarray of shape (n_features, n_machines)
        Weights of the machine of each class against the rest. Two classes have one machine.
    C_ : float
        Weight of the losses.
    %(n_steps)s
    %(path_result)s

    See Also
    --------
    L2SVM : All features keep a weight.
    MultiTaskLasso : Weights of a feature that are zero in all classes together.

    Notes
    -----
    The problem is that of `sklearn.svm.LinearSVC` with `penalty="l1"`, but for the intercept, which
    is not penalized here::

        min Σ_jk |w_jk| + C Σ_ik max(0, 1 − y_ik(w_k·x_i + b_k))²

    The grid of 1/C falls by a factor of 0.8 from the value that empties the model to its 1000th
    part. Each step solves the problem on gathered columns and checks all features in one pass.

    References
    ----------
    .. [1] R.-E. Fan, K.-W. Chang, C.-J. Hsieh, X.-R. Wang and C.-J. Lin, "LIBLINEAR: a library for
       large linear classification", Journal of Machine Learning Research, 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import L1SVM
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = L1SVM(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 1])
    >>> selector.result_.status.name
    'CONVERGED'
    """

    C: float | str = "auto"
    tol: float = 1e-2
    max_iter: int = 200

    _cost = Cost("1 per penalty", "(8 n + 3 d) c + columns")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "C": [*POSITIVE, StrOptions({"auto"})],
    }

    def _fit(self, X: Matrix, y: Any) -> None:
        self.classes_, codes = at_least_two(y)
        X, codes = labeled_part(X, codes)
        Y = 2 * one_hot(codes, len(self.classes_)) - 1
        if len(self.classes_) == 2:
            Y = Y[:, 1:]
        lam = None if isinstance(self.C, str) else 1 / (2 * self.C)
        each = [slice(k, k + 1) for k in range(Y.shape[1])]
        path, state = self._solve(SquaredHinge(X, Y), each, lam)
        self.C_ = 1 / (2 * state.rho * state.largest)
        self.scores_ = path.scores(state, row_norms(state.W))
