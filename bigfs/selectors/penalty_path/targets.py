"""Row-sparse regressions that differ in their targets.

    DLSR    min  ‖XW + 1bᵀ − Y − B ⊙ M‖² + γ Σ_j ‖w_j‖,  M ≥ 0       B = 1 where Y = 1, else −1
    SPFS    min  ½‖XcW − Φ‖² + λ Σ_j ‖w_j‖                            ΦΦᵀ: a similarity

In DLSR the targets Y ∈ {0, 1} are dragged apart: a sample beyond its target costs nothing. With
f = 2(xW + b) − 1 the loss of an entry is ¼ max(0, 1 − y f)², so the problem is that of
`bigfs.lasso.losses.SquaredHinge` with λ = γ and the weights 2W.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from bigfs.embedding.factors import gaussian_factor, same_class_factor
from bigfs.embedding.responses import one_hot
from bigfs.lasso.losses import LeastSquares, SquaredHinge
from bigfs.linalg.prox import row_norms
from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.labels import at_least_two, labeled_part
from bigfs.selectors.base.parameters import COUNT, SEED
from bigfs.selectors.penalty_path.lasso import SparseRegression

PENALTY: list[Any] = [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})]


class DLSR(SparseRegression):
    """Rank features by a row-sparse regression whose class targets are dragged apart.

    It is discriminative least squares regression for feature selection [1]_. Unlabeled samples
    store are left out.

    Parameters
    ----------
    %(select)s
    gamma : "auto" or float, default="auto"
        Weight γ of the penalty. "auto" takes the largest of a grid at which `n_features_to_select`
        features have a weight.
    %(path)s

    Attributes
    ----------
    %(row_scores)s
    %(selected)s
    %(classes)s
    %(class_coef)s
    gamma_ : float
        Weight γ of the penalty.
    %(n_steps)s
    %(path_result)s

    See Also
    --------
    L1SVM : The same loss, with a weight of its own for each class.
    MultiTaskLasso : The same penalty, with targets that stay.

    Notes
    -----
    The problem, with Y the indicators of the classes and B = 1 where Y = 1, else −1::

        min ‖XW + 1bᵀ − Y − B ⊙ M‖² + γ Σ_j ‖w_j‖,    M ≥ 0

    It is jointly convex, and its loss is a squared hinge. The grid falls by a factor of 0.8 from
    the penalty that empties the model to its 1000th part.

    References
    ----------
    .. [1] S. Xiang, F. Nie, G. Meng, C. Pan and C. Zhang, "Discriminative least squares regression
       for multiclass classification and feature selection", IEEE Transactions on Neural Networks
       and Learning Systems, 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import DLSR
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = DLSR(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 1])
    >>> selector.result_.status.name
    'CONVERGED'
    """

    gamma: float | str = "auto"
    tol: float = 1e-2
    max_iter: int = 200

    _cost = Cost("1 per penalty", "(8 n + 3 d) c + columns")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "gamma": PENALTY,
    }

    def _fit(self, X: Matrix, y: Any) -> None:
        self.classes_, codes = at_least_two(y)
        X, codes = labeled_part(X, codes)
        c = len(self.classes_)
        lam = None if isinstance(self.gamma, str) else self.gamma
        loss = SquaredHinge(X, 2 * one_hot(codes, c) - 1)
        path, state = self._solve(loss, [slice(0, c)], lam)
        self.coef_ /= 2
        self.gamma_ = state.rho * state.largest
        self.scores_ = path.scores(state, row_norms(state.W) / 2)


class SPFS(SparseRegression):
    """Choose features that preserve the similarity of the samples, by a row-sparse regression.

    The similarity [1]_ is that of the classes, or a Gaussian kernel where y is None. Unlabeled
    samples of a store are left out.

    Parameters
    ----------
    %(select)s
    %(alpha_auto)s
    %(landmarks)s
    %(path)s

    Attributes
    ----------
    %(row_scores)s
    %(selected)s
    coef_ : ndarray of shape (n_features, n_targets)
        Weights W. The targets are the classes, or the components of the kernel's factor.
    alpha_ : float
        Penalty of the weights.
    %(n_steps)s
    %(path_result)s

    See Also
    --------
    MultiTaskLasso : The same regression on classes whose weight grows with their size.
    JHLSR : The same regression, smooth over a hypergraph that it learns.

    Notes
    -----
    With Φ a factor of the similarity, ΦΦᵀ = K, and K = 1/n_c between samples of the same class c::

        min 1/2n ‖Φ − XW − 1bᵀ‖² + α Σ_j ‖w_j‖

    A rotation of Φ does not change the norms. The Gaussian kernel has the mean distance of two
    landmarks for its width, and its factor is that of Nyström's method.

    References
    ----------
    .. [1] Z. Zhao, L. Wang, H. Liu and J. Ye, "On similarity preserving feature selection", IEEE
       Transactions on Knowledge and Data Engineering, 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import SPFS
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = SPFS(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 1])
    >>> SPFS(n_features_to_select=2).fit(X).selected_
    array([2, 1])
    """

    alpha: float | str = "auto"
    n_components: int = 100
    random_state: int = 0
    tol: float = 1e-3
    max_iter: int = 200

    _cost = Cost("1 per penalty", "(8 n + 3 d) r + columns")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": PENALTY,
        "n_components": COUNT,
        "random_state": SEED,
    }
    _supervised = False  # y may be missing

    def _fit(self, X: Matrix, y: Any) -> None:
        if y is None:
            self._target = "the kernel of the samples"
            Phi = gaussian_factor(self._allowed(X), self.n_components, seed=self.random_state)
        else:
            self._target = "y"
            classes, codes = at_least_two(y)
            X, codes = labeled_part(X, codes)
            Phi = same_class_factor(codes, len(classes)).toarray()
        n, r = Phi.shape
        lam = None if isinstance(self.alpha, str) else n * self.alpha
        loss = LeastSquares(X, Phi - Phi.mean(axis=0))
        path, state = self._solve(loss, [slice(0, r)], lam)
        self.alpha_ = state.rho * state.largest / n
        self.scores_ = path.scores(state, np.asarray(row_norms(state.W)))
