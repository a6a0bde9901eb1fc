"""JFS: features that reconstruct all features, by RFS on X itself, unsupervised.

    min  ‖XW + 1bᵀ − X‖₂,₁ + γ‖W‖₂,₁

It is the JFS that the paper of JGSC compares with (IEEE TNNLS 2016, section V), and the regularized
self-representation of Zhu, Zuo, Zhang, Hu and Shiu, Pattern Recognition 2015. `rfs` has the round
and the certificate. W is d × d and the targets are n × d, so that d must be small.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.selectors.row_sparse.rfs import RFS

SAMPLE_COPIES = 6  # n × d arrays alive at once in a round
FEATURE_COPIES = 8  # d × d arrays


class JFS(RFS):
    """Choose features by a row-sparse regression of all features on themselves, unsupervised.

    Regularized self-representation [1]_, also called joint feature selection, is for few features.
    Its weights take n_features × n_features numbers, and more than fit are refused.

    Parameters
    ----------
    %(select)s
    gamma : float, default=1.0
        Weight of the penalty. A larger value leaves fewer features with a weight. It has the unit
        of X, so that a scaled X has the same weights at an equally scaled gamma.
    %(ridge)s
    %(tol_gap)s
    %(rounds)s

    Attributes
    ----------
    %(row_scores)s
    %(selected)s
    coef_ : ndarray of shape (n_features, n_features)
        Weights W. Row j holds the part of feature j in each of the reconstructed features.
    intercept_ : ndarray of shape (n_features,)
        Intercept b.
    %(n_rounds)s
    result_ : bigfs.result.Result
        Status and history, as for `RFS`.

    See Also
    --------
    RFS : The same regression on the classes.
    SparGE : With `embedding="pca"`, the leading components in place of all features, for large X.

    Notes
    -----
    The problem has an intercept that is not penalized::

        min Σ_i ‖Wᵀx_i + b − x_i‖ + γ Σ_j ‖w_j‖

    The norm of a residual is smoothed below ε, which is 1e-4 of the mean norm after the first
    round. A forbidden feature is not reconstructed either.

    References
    ----------
    .. [1] P. Zhu, W. Zuo, L. Zhang, Q. Hu and S. C. K. Shiu, "Unsupervised feature selection by
       regularized self-representation", Pattern Recognition, 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import JFS
    >>> X, _ = load_iris(return_X_y=True)
    >>> selector = JFS(n_features_to_select=2, gamma=10.0).fit(X)
    >>> selector.selected_
    array([0, 1])
    >>> selector.result_.status.name
    'CONVERGED'
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {**RFS._parameter_constraints}
    _supervised = False
    _ignores_y = True

    def _fit(self, X: Matrix, y: Any) -> None:
        n, d = X.shape
        engine.require_memory(
            8 * (SAMPLE_COPIES * n * d + FEATURE_COPIES * d * d),
            f"the reconstruction of {d} features of {n} samples by themselves",
        )
        allowed = np.delete(np.arange(d), self._constraints.forbidden)
        Y = X.columns(allowed).toarray().astype(np.float64)
        if not np.ptp(Y, axis=0).any():
            raise ValueError(
                "every feature of X is constant, so every weight is zero: give other features"
            )
        self._solve(X, Y)
        coef, intercept = self.coef_, self.intercept_
        self.coef_, self.intercept_ = np.zeros((d, d)), np.zeros(d)
        self.coef_[:, allowed], self.intercept_[allowed] = coef, intercept
