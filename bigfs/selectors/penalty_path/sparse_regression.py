"""Selectors by the weights of a sparse regression, which differ in their loss and their targets.

    MultiTaskLasso    min  1/2n ‖Y − XW − 1bᵀ‖² + α Σ_j ‖w_j‖₂
    L1SVM             min  Σ_jk |w_jk| + C Σ_ik max(0, 1 − y_ik(w_k·x_i + b_k))²
    DLSR              min  ‖XW + 1bᵀ − Y − B ⊙ M‖² + γ Σ_j ‖w_j‖,  M ≥ 0   B = 1 where Y = 1, or −1
    SPFS              min  ½‖XcW − Φ‖² + λ Σ_j ‖w_j‖                        ΦΦᵀ: a similarity
    MCFS              min  1/2n ‖T − XW − 1bᵀ‖² + Σ_k α_k Σ_j |w_jk|        score max_k |w_jk|
    MRSF              min  1/2n ‖T − XW − 1bᵀ‖² + α Σ_j ‖w_j‖₂              score ‖w_j‖

Y (n × c) indicates the classes, and y_ik = 2Y_ik − 1. `bigfs.lasso.path` solves them at falling
penalties until m features have a weight, or at a given penalty.

In DLSR the targets Y ∈ {0, 1} are dragged apart: a sample beyond its target costs nothing. With
f = 2(xW + b) − 1 the loss of an entry is ¼ max(0, 1 − y f)², so it is the problem of
`bigfs.lasso.losses.SquaredHinge` with λ = γ and the weights 2W.

T is the spectral embedding of the samples' kNN graph, the leading non-trivial y_k of

    L y_k = λ_k D y_k,  y_kᵀD y_k = 1,  k = 1 … K

The vectors that separate components of the graph come first. The penalties of MCFS are the same
share ρ of those that empty the lassos: α_k = ρ α_max,k. So each eigenvector has its features. They
are found by scaling each eigenvector to the same α_max.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from bigfs.embedding.factors import gaussian_factor, same_class_factor
from bigfs.embedding.targets import one_hot
from bigfs.graph.edges import Metric
from bigfs.lasso.losses import LeastSquares, Loss, SquaredHinge
from bigfs.lasso.path import LassoPath, PathState
from bigfs.linalg.prox import row_norms
from bigfs.linalg.svm import positive_classes
from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import class_indicator
from bigfs.selectors.base.estimator import Cost, Selector
from bigfs.selectors.base.labels import Labels, labeled_part, matrix_target
from bigfs.selectors.base.parameters import POSITIVE, SHARE, Allowed
from bigfs.selectors.base.sample_graph import SampleGraph, sample_graph
from bigfs.types import AnyArray, FloatArray

PENALTY: list[Any] = [*POSITIVE, StrOptions({"auto"})]


class SparseRegression(Selector):
    """Base of the selectors by the weights of a sparse regression."""

    _cost = Cost("1 per penalty", "(8 n + 3 d) c + columns")
    _parameter_constraints: ClassVar[Allowed] = {"tol": SHARE}
    _needs_one_scale = True
    _nested = False  # the penalty follows from the number of features
    _target = "y"  # name of the targets, for errors
    if TYPE_CHECKING:  # each method lists them after its own parameters
        tol: float
        max_iter: int

    def _solve(
        self,
        loss: Loss,
        groups: list[slice],
        lam: float | None,
        scale: Any = 1.0,
        norms: Callable[[FloatArray], FloatArray] = row_norms,
    ) -> float:
        """Run the path to its end, set the results, and return its last λ.

        `scale` turns the weights of the loss into the weights of the method.
        """
        d = loss.X.shape[1]
        loss.varies[self._constraints.absent] = False  # they get no weight
        path = LassoPath(loss, groups, tol=self.tol, m=self._count(d), lam=lam, target=self._target)
        end: dict[str, Any] = {"stop": "missing", "tol": 0, "ends": path.ends}
        state: PathState = self._iterate(path, path.start(), **end)
        self.result_.stats["gathered"] = len(loss.columns.features)
        W = state.W * scale
        self.coef_: FloatArray = np.zeros((d, W.shape[1]))
        self.coef_[state.features] = W
        self.scores_ = path.scores(state, norms(W))
        return float(state.rho * state.largest)


class MultiTaskLasso(SparseRegression):
    """Rank features by their weights in a row-sparse regression on the classes or other targets.

    The targets are classes, several labels per sample, or one or more real numbers. Unlabeled
    samples are left out.

    Parameters
    ----------
    target : {"auto", "classes", "real"}, default="auto"
        Kind of a y of one column. "auto" takes fractions for real, and whole numbers or strings
        for classes. Say "real" for ages, counts and prices.
    %(path)s

    Attributes
    ----------
    %(row_scores)s
    classes_ : ndarray of shape (n_classes,) or None
        The class labels, or None where y holds several labels or real numbers.
    coef_ : ndarray of shape (n_features, n_targets)
        Weights. The targets are the classes, the labels or the real numbers.
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
    It is the problem of `sklearn.linear_model.MultiTaskLasso` on the targets Y, which are
    indicators of the classes or y itself, with an intercept::

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
    %(iris)s
    >>> from bigfs import MultiTaskLasso
    >>> selector = MultiTaskLasso(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 1])
    """

    alpha: float | str = "auto"
    target: str = "auto"
    tol: float = 1e-3
    max_iter: int = 200

    _parameter_constraints: ClassVar[Allowed] = {"alpha": PENALTY}
    _takes_real = True

    def _check_y(self, y: Any, has_unlabeled: bool) -> Any:
        return matrix_target(y, self.target, has_unlabeled)

    def _fit(self, X: Matrix, y: Any) -> None:
        self.classes_: AnyArray | None = None
        if isinstance(y, Labels):
            X, self.classes_, codes = labeled_part(X, y)
            y = one_hot(codes, len(self.classes_))
        n, r = y.shape
        lam = None if isinstance(self.alpha, str) else n * self.alpha
        self.alpha_ = self._solve(LeastSquares(X, y - y.mean(axis=0)), [slice(0, r)], lam) / n


class L1SVM(SparseRegression):
    """Rank features by their weights in a sparse linear SVM, one class or label against the rest.

    Unlabeled samples are left out. Several labels per sample are an indicator.

    Parameters
    ----------
    C : "auto" or float, default="auto"
        Weight of the losses against the penalty. "auto" takes the smallest of a grid at which
        `n_features_to_select` features have a weight.
    %(path)s

    Attributes
    ----------
    %(row_scores)s
    classes_ : ndarray of shape (n_classes,) or None
        The class labels, or None where y holds several labels per sample.
    coef_ : ndarray of shape (n_features, n_classifiers)
        Weights of the classifier of each class or label against the rest. Two classes have one.
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
    It is the problem of `sklearn.svm.LinearSVC` with `penalty="l1"`, but for the intercept, which
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
    %(iris)s
    >>> from bigfs import L1SVM
    >>> selector = L1SVM(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 1])
    """

    C: float | str = "auto"
    tol: float = 1e-2
    max_iter: int = 200

    _parameter_constraints: ClassVar[Allowed] = {"C": PENALTY}
    _takes_sets = True

    def _fit(self, X: Matrix, y: Any) -> None:
        self.classes_: AnyArray | None = None
        if isinstance(y, Labels):
            X, self.classes_, codes = labeled_part(X, y)
            c = len(self.classes_)
            y = class_indicator(codes, c)[:, positive_classes(c)]
        lam = None if isinstance(self.C, str) else 1 / (2 * self.C)
        each = [slice(k, k + 1) for k in range(y.shape[1])]
        self.C_ = 1 / (2 * self._solve(SquaredHinge(X, y), each, lam))


class DLSR(SparseRegression):
    """Rank features by a row-sparse regression whose class targets are dragged apart.

    It is discriminative least squares regression for feature selection [1]_. Unlabeled samples
    are left out.

    Parameters
    ----------
    gamma : "auto" or float, default="auto"
        Weight γ of the penalty. "auto" takes the largest of a grid at which `n_features_to_select`
        features have a weight.
    %(path)s

    Attributes
    ----------
    %(row_scores)s
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
    %(iris)s
    >>> from bigfs import DLSR
    >>> selector = DLSR(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 1])
    """

    gamma: float | str = "auto"
    tol: float = 1e-2
    max_iter: int = 200

    _parameter_constraints: ClassVar[Allowed] = {"gamma": PENALTY}

    def _fit(self, X: Matrix, y: Any) -> None:
        X, self.classes_, codes = labeled_part(X, y)
        c = len(self.classes_)
        lam = None if isinstance(self.gamma, str) else self.gamma
        loss = SquaredHinge(X, class_indicator(codes, c))
        self.gamma_ = self._solve(loss, [slice(0, c)], lam, scale=0.5)


class SPFS(SparseRegression):
    """Choose features that preserve the similarity of the samples, by a row-sparse regression.

    The similarity [1]_ is by classes, or a Gaussian kernel where y is None. Unlabeled
    samples are left out.

    Parameters
    ----------
    %(landmarks)s
    %(path)s

    Attributes
    ----------
    %(row_scores)s
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
    landmarks for its width, and its factor comes from Nyström's method.

    References
    ----------
    .. [1] Z. Zhao, L. Wang, H. Liu and J. Ye, "On similarity preserving feature selection", IEEE
       Transactions on Knowledge and Data Engineering, 2013.

    Examples
    --------
    %(iris)s
    >>> from bigfs import SPFS
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
    _parameter_constraints: ClassVar[Allowed] = {"alpha": PENALTY}
    _supervised = False  # y may be missing

    def _fit(self, X: Matrix, y: Any) -> None:
        if y is None:
            self._target = "the kernel of the samples"
            Phi = gaussian_factor(self._allowed(X), self.n_components, seed=self.random_state)
        else:
            self._target = "y"
            X, classes, codes = labeled_part(X, y)
            Phi = same_class_factor(codes, len(classes)).toarray()
        n, r = Phi.shape
        lam = None if isinstance(self.alpha, str) else n * self.alpha
        self.alpha_ = self._solve(LeastSquares(X, Phi - Phi.mean(axis=0)), [slice(0, r)], lam) / n


class SpectralRegression(SparseRegression):
    """Base of the regressions on a spectral embedding."""

    alpha: float | str = "auto"
    n_components: int | None = None
    n_neighbors: int = 5
    metric: Metric = "cosine"
    graph: Any = None
    tol: float = 1e-3
    max_iter: int = 200

    _cost = Cost("graph + 1 per penalty", "(8 n + 3 d) r + columns")
    _parameter_constraints: ClassVar[Allowed] = {"alpha": PENALTY}
    _ignores_y = True
    _target = "the graph's embedding"
    _shares_support: ClassVar[bool]  # whether a feature's weights are zero in all targets together

    def _fit(self, X: Matrix, y: Any) -> None:
        n, allowed = X.shape[0], self._allowed(X)
        graph = sample_graph(allowed, self.graph, self.n_neighbors, self.metric)
        T = spectral_targets(graph, self.n_components, allowed.shape[1])
        r = T.shape[1]
        lam = None if isinstance(self.alpha, str) else n * self.alpha
        if self._shares_support:
            self.alpha_: Any = self._solve(LeastSquares(X, T), [slice(0, r)], lam) / n
        else:
            scale = self._largest_penalties(X, T) if lam is None else np.ones(r)
            each = [slice(k, k + 1) for k in range(r)]
            loss = LeastSquares(X, T / scale)
            lam = self._solve(loss, each, lam, scale, lambda W: np.abs(W).max(axis=1))
            self.alpha_ = lam / n * scale
        self.result_.stats.update(graph.stats)

    def _largest_penalties(self, X: Matrix, T: FloatArray) -> FloatArray:
        """Return λ_max,k, at which the lasso of each eigenvector is empty. Reads X once."""
        correlations = np.abs(X.T @ T)
        correlations[self._constraints.absent] = 0
        largest = correlations.max(axis=0)
        return np.where(largest > 0, largest, 1.0)


def spectral_targets(graph: SampleGraph, n_components: int | None, d: int) -> FloatArray:
    """Return T (n × r), the centered generalized eigenvectors of the graph.

    A sample that is set aside has zero before the centering.
    """
    root = np.sqrt(graph.parts.degree)[:, None]
    U = graph.targets(n_components, d)
    T: FloatArray = np.divide(U, root, out=np.zeros_like(U), where=root > 0)
    return T - T.mean(axis=0)


class MCFS(SpectralRegression):
    """Choose features that explain the clusters of the samples, by one lasso per eigenvector.

    Multi-cluster feature selection [1]_ is unsupervised.

    Parameters
    ----------
    alpha : "auto" or float, default="auto"
        Penalty of all lassos, as in `sklearn.linear_model.Lasso`. "auto" takes the same share of
        the penalty that empties each lasso, the largest of a grid at which `n_features_to_select`
        features have a weight.
    %(spectral)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Largest absolute weight of each feature, where it is positive. A feature of zero weight has
        a score in [−1, 0], by how strongly a residual correlates with it.
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
    %(iris)s
    >>> from bigfs import MCFS
    >>> selector = MCFS(n_features_to_select=2, n_components=2, metric="euclidean").fit(X)
    >>> selector.selected_
    array([2, 0])
    """

    _shares_support = False


class MRSF(SpectralRegression):
    """Choose features that explain the clusters of the samples, by a row-sparse regression.

    Minimum-redundancy spectral feature selection [1]_ is unsupervised.

    Parameters
    ----------
    %(spectral)s

    Attributes
    ----------
    %(row_scores)s
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
    The targets are the same as in `MCFS`. The weights minimize::

        1/2n ‖T − XW − 1bᵀ‖² + α Σ_j ‖w_j‖₂

    References
    ----------
    .. [1] Z. Zhao, L. Wang and H. Liu, "Efficient spectral feature selection with minimum
       redundancy", AAAI 2010.

    Examples
    --------
    %(iris)s
    >>> from bigfs import MRSF
    >>> selector = MRSF(n_features_to_select=2, n_components=2, metric="euclidean").fit(X)
    >>> selector.selected_
    array([2, 0])
    """

    _shares_support = True
