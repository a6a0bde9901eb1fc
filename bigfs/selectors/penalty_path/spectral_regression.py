"""Spectral regression: features that explain the clusters of a kNN graph, unsupervised.

    L y_k = λ_k D y_k,  y_kᵀD y_k = 1,  k = 1 … K                     the spectral embedding T = [y]

    MCFS    min  1/2n ‖T − XW − 1bᵀ‖² + Σ_k α_k Σ_j |w_jk|       score max_k |w_jk|
    MRSF    min  1/2n ‖T − XW − 1bᵀ‖² + α Σ_j ‖w_j‖₂             score ‖w_j‖

The penalties of MCFS are the same share ρ of those that empty the lassos: α_k = ρ α_max,k. So each
eigenvector has its features. They are found by scaling each eigenvector to the same α_max.

T leaves out the trivial eigenvector. The vectors that separate components of the graph come first.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from bigfs.graph import Metric
from bigfs.lasso.losses import LeastSquares
from bigfs.linalg.prox import row_norms
from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.parameters import COUNT, POSITIVE
from bigfs.selectors.base.sample_graph import SampleGraph, sample_graph
from bigfs.selectors.penalty_path.lasso import SparseRegression
from bigfs.types import FloatArray


class SpectralRegression(SparseRegression):
    """Base of the regressions on a spectral embedding."""

    alpha: float | str = "auto"
    n_components: int | None = None
    n_neighbors: int = 5
    metric: Metric = "cosine"
    graph: Any = None
    tol: float = 1e-3
    max_iter: int = 200

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [*POSITIVE, StrOptions({"auto"})],
        "n_components": [*COUNT, None],
    }
    _supervised = False
    _ignores_y = True
    _target = "the graph's embedding"
    _shares_support: ClassVar[bool]  # whether a feature's weights are zero in all targets together

    def _fit(self, X: Matrix, y: Any) -> None:
        n, allowed = X.shape[0], self._allowed(X)
        graph = sample_graph(allowed, self.graph, self.n_neighbors, self.metric)
        T = spectral_targets(graph, self.n_components or graph.default_width(allowed.shape[1]))
        r = T.shape[1]
        groups = [slice(0, r)] if self._shares_support else [slice(k, k + 1) for k in range(r)]
        scale = np.ones(r)
        lam = None if isinstance(self.alpha, str) else n * self.alpha
        if lam is None and not self._shares_support:
            scale = self._largest_penalties(X, T)
        path, state = self._solve(LeastSquares(X, T / scale), groups, lam)
        self.result_.stats.update(graph.stats)
        self.coef_ *= scale
        W = state.W * scale
        alphas = state.rho * state.largest / n * scale
        self.alpha_ = float(alphas[0]) if self._shares_support else alphas
        weights = row_norms(W) if self._shares_support else np.abs(W).max(axis=1)
        self.scores_ = path.scores(state, weights)

    def _largest_penalties(self, X: Matrix, T: FloatArray) -> FloatArray:
        """Return λ_max,k, at which the lasso of each eigenvector is empty. Reads X once."""
        correlations = np.abs(X.T @ T)
        correlations[self._constraints.forbidden] = 0
        largest = correlations.max(axis=0)
        return np.where(largest > 0, largest, 1.0)


def spectral_targets(graph: SampleGraph, r: int) -> FloatArray:
    """Return T (n × r), the centered generalized eigenvectors of the graph.

    A sample that is set aside has zero before the centering.
    """
    root = np.sqrt(graph.parts.degree)[:, None]
    U = graph.embedding(r).value.vectors
    T: FloatArray = np.divide(U, root, out=np.zeros_like(U), where=root > 0)
    return T - T.mean(axis=0)


class MCFS(SpectralRegression):
    """Choose features that explain the clusters of the samples, by one lasso per eigenvector.

    Multi-cluster feature selection [1]_ is unsupervised.

    Parameters
    ----------
    %(select)s
    alpha : "auto" or float, default="auto"
        Penalty of all lassos, as in `sklearn.linear_model.Lasso`. "auto" takes the same share of
        the penalty that empties each lasso, the largest of a grid at which `n_features_to_select`
        features have a weight.
    n_components : int or None, default=None
        Number of eigenvectors. The number of clusters is a good one. None takes 10, or fewer where
        X has few samples.
    %(n_neighbors)s
    %(weighted_metric)s
    %(graph)s
    %(path)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Largest absolute weight of each feature, where it is positive. A feature of zero weight has
        a score in [−1, 0], by how strongly a residual correlates with it.
    %(selected)s
    %(component_coef)s
    alpha_ : ndarray of shape (n_components,)
        Penalty of each lasso.
    %(n_steps)s
    %(spectral_result)s

    See Also
    --------
    MRSF : Weights of a feature that are zero for all eigenvectors together.
    SparGE : With `embedding="lpp"`, exactly m features together.

    Notes
    -----
    With the affinity A of the graph, its degrees D and L = D − A, the targets are the leading
    non-trivial solutions of L y = λ D y, and the weights solve a lasso for each of
    them, with an intercept. The paper gives each lasso the same number of features. Here each has
    the same share of the penalty that empties it.

    A new kNN graph, or one of `Neighbors`, is joined where it falls apart: the nearest samples of
    its components get an edge. Components of a given affinity are left as they are. Those of at
    most `n_neighbors` samples are set aside, and the vectors that separate the others come first.

    References
    ----------
    .. [1] D. Cai, C. Zhang and X. He, "Unsupervised feature selection for multi-cluster data", KDD
       2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import MCFS
    >>> X, _ = load_iris(return_X_y=True)
    >>> selector = MCFS(n_features_to_select=2, n_components=2, metric="euclidean").fit(X)
    >>> selector.selected_
    array([2, 0])
    >>> selector.result_.status.name
    'CONVERGED'
    """

    _cost = Cost("graph + 1 per penalty", "(8 n + 3 d) r + columns")
    _shares_support = False


class MRSF(SpectralRegression):
    """Choose features that explain the clusters of the samples, by a row-sparse regression.

    Minimum-redundancy spectral feature selection [1]_ is unsupervised.

    Parameters
    ----------
    %(select)s
    %(alpha_auto)s
    n_components : int or None, default=None
        Number of eigenvectors. The number of clusters is a good one. None takes 10, or fewer where
        X has few samples.
    %(n_neighbors)s
    %(weighted_metric)s
    %(graph)s
    %(path)s

    Attributes
    ----------
    %(row_scores)s
    %(selected)s
    %(component_coef)s
    alpha_ : float
        Penalty of the weights.
    %(n_steps)s
    %(spectral_result)s

    See Also
    --------
    MCFS : A lasso per eigenvector.
    MultiTaskLasso : The same regression on the classes.

    Notes
    -----
    The targets are those of `MCFS`. The weights minimize::

        1/2n ‖T − XW − 1bᵀ‖² + α Σ_j ‖w_j‖₂

    References
    ----------
    .. [1] Z. Zhao, L. Wang and H. Liu, "Efficient spectral feature selection with minimum
       redundancy", AAAI 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import MRSF
    >>> X, _ = load_iris(return_X_y=True)
    >>> selector = MRSF(n_features_to_select=2, n_components=2, metric="euclidean").fit(X)
    >>> selector.selected_
    array([2, 0])
    >>> selector.result_.status.name
    'CONVERGED'
    """

    _cost = Cost("graph + 1 per penalty", "(8 n + 3 d) r + columns")
    _shares_support = True
