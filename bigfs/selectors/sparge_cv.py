"""SparGE with γ chosen by cross-validation.

    loss(γ) = mean over folds of  min_γ' ‖T_out − 1b − (X_out − 1μᵀ) W‖² / ‖T_out − 1b‖²

With the squared hinge loss, that loss takes the place of the squared norms.

SparGE chooses m features at γ without the fold's samples. W is a ridge on them, with whichever
penalty γ' of the grid serves it best, so that the choice of features is judged and not the
shrinkage. μ and b are the means of X and T over the training samples.

A fold is a weight of 0 or 1 per sample (ω of `cutting_plane.columns`). The whole grid is solved
jointly: a pass over X serves every γ and every fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.linalg import solve
from sklearn.model_selection import KFold, StratifiedKFold

from bigfs.cutting_plane.columns import Columns, GatheredColumns
from bigfs.cutting_plane.hinge import HingeRelaxation
from bigfs.cutting_plane.loop import solve_jointly
from bigfs.cutting_plane.relaxation import CuttingPlaneState, Relaxation
from bigfs.selectors.base import Cost
from bigfs.selectors.sparge import SparGE, relaxation, total_variance
from bigfs.types import FloatArray, IntArray


class SparGECV(SparGE):
    """Choose the features of `SparGE`, with its penalty γ chosen by cross-validation.

    The loss of a γ is the share of the held-out embedding that a ridge on the m features chosen
    without the held-out samples leaves unexplained. The ridge has the best penalty of the grid, so
    the choice of features is judged and not the shrinkage. All γ and folds share the passes over X.

    Parameters
    ----------
    embedding : {"lda", "cca", "hsl", "sda", "lpp", "pca"}, default="lda"
        What the features have to explain (Table 1 of [1]_). "lda" stands for the classes, "cca" for
        real or multi-label targets, "hsl" for the hypergraph of the labels (of the neighborhoods
        where y is None), "sda" for the classes and the kNN graph together, "lpp" for the kNN graph,
        and "pca" for the variance. "lpp" and "pca" ignore y.
    class_weight : "balanced", None or dict, default="balanced"
        Weights of the classes for "lda". "balanced" gives every class the same weight whatever its
        size, as [1]_ does. None gives every sample the same weight. A dict gives each class its
        weight by its label, or by its number where X is a `Matrix`. A class that is not in the
        dict has weight 1.
    loss : {"squared", "squared_hinge"}, default="squared"
        Loss of the regression. "squared" is that of [1]_. "squared_hinge", for "lda", is that of
        `sklearn.svm.LinearSVC`, one class against the rest, with an intercept that is not
        penalized and C = 1/2γ. Its class weights are weights of the samples, as there.
    n_features_to_select : int, float or None, default=None
        The number m of features in each set and in the support. A float in (0, 1] is a share of the
        features, and None keeps half of them.
    gammas : array-like of float, default=(0.25, 0.5, 1.0, 2.0, 4.0)
        Penalties to try, in the units of the gamma of `SparGE`.
    cv : int, cross-validation generator or iterable, default=3
        Number of folds, shuffled with a fixed seed and stratified where y holds classes, or an
        object with scikit-learn's `split`.
    n_components : int or None, default=None
        Width r of the embedding. None takes the number of classes minus 1 for "sda", and 10 for
        "pca", "lpp", and "hsl" without y, or fewer where X is small. Class labels and targets fix
        the width of "lda", "cca" and "hsl".
    n_neighbors : int, default=5
        Number of neighbors of each sample in the kNN graph of "lpp", "sda", and "hsl" without y.
    metric : {"cosine", "euclidean"}, default="cosine"
        Distance of the kNN graph. The edges have cosine weights for "cosine" and heat weights for
        "euclidean".
    graph : sparse matrix of shape (n_samples, n_samples), Neighbors or None, default=None
        Affinity, or neighbors, to use for "lpp" and "sda" instead of a new kNN graph.
    weighting : {"uniform", "degree"}, default="uniform"
        Weights of the samples in the regression for "lpp" and "sda". "uniform" is Table 1 of [1]_.
        "degree" weighs sample i by √D_ii ("lpp") or √(1 + βD_ii) ("sda"), as their generalized
        eigenproblems do. "uniform" did as well or better on COIL20.
    beta : float, default=1.0
        Weight of the graph against the classes, for "sda".
    ranking : {"elimination", "weights", "svm"}, default="elimination"
        How the union of the sets becomes exactly m features. "elimination" removes the feature of
        least exact cost to the objective, one by one. "weights" takes the largest row norms of the
        relaxation, as [1]_ does, which counts twice what two features share. "svm", for "lda",
        makes sets of 4m features, eliminates to 4m, and then removes a tenth of them per round by
        their weights in a linear SVM with C = 1/2γ, as `SVMRFE` does on all features.
    solver : {"auto", "newton", "simplex", "apg"}, default="auto"
        Solver of the restricted master. "apg" is the one of [1]_. All give the same answer to
        within the tolerance.
    tol : float, default=0.01
        Relative gap between the bounds of the relaxation at which the cuts stop.
    max_iter : int, default=50
        Maximum number of cuts.

    Attributes
    ----------
    gamma_ : float
        The chosen γ: the largest whose mean loss is within one standard error of the least, because
        a larger γ is cheaper.
    losses_ : ndarray of shape (n_gammas, n_folds)
        Share of the held-out embedding that the chosen features leave unexplained.
    scores_ : ndarray of shape (n_features,)
        What the objective lost when the feature was removed (`ranking="elimination"`), the norm of
        its row in `coef_` ("weights"), or the share of the SVM's features that it is better than or
        equal to ("svm"). Zero outside the union of the sets. With "elimination" and "svm" the best
        k < m features are the choice of k, because the sets are nested.
    selected_ : ndarray of shape (n_selected,)
        Indices of the chosen features, best first. Equal scores are ordered by index.
    support_ : ndarray of shape (n_features,)
        Mask of the chosen features.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X is a data frame whose column names are strings.
    coef_ : ndarray of shape (n_union, n_components)
        Weights W of the relaxation on the features `union_`.
    union_ : ndarray of shape (n_union,)
        Indices of the features in any set.
    sets_ : sequence of ndarray of shape (n_selected,)
        The sets of m features in the order of the cuts, each best first.
    eta_ : ndarray of shape (n_sets,)
        Weights of the sets, on the simplex.
    n_iter_ : int
        Number of cuts.
    result_ : bigfs.result.Result
        Status and history. Each record of the history has the bounds "upper" and "lower" of the
        relaxation, and "gap". With `ranking="elimination"` the stats have "objective", the value of
        the chosen features, and "objective_gap", how far above the best m features it is at most.

    See Also
    --------
    SparGE : The same method with a fixed gamma.

    Notes
    -----
    The embedding T is that of all samples of `fit`. The grid costs the passes of its slowest
    member, and the fit at the chosen γ costs its own.

    References
    ----------
    .. [1] M. Chen, I. W. Tsang, M. Tan and T.-J. Cham, "A unified feature selection framework for
       graph embedding on high dimensional data", IEEE Transactions on Knowledge and Data
       Engineering, 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import SparGECV
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = SparGECV(n_features_to_select=2, gammas=[0.1, 1.0]).fit(X, y)
    >>> selector.gamma_
    1.0
    >>> selector.selected_
    array([2, 1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{
            name: allowed
            for name, allowed in SparGE._parameter_constraints.items()
            if name != "gamma"
        },
        "gammas": ["array-like"],
        "cv": ["cv_object"],
    }

    @property
    def _cost(self) -> Cost:  # type: ignore[override]
        return Cost("1 per cut, twice", "folds (n + d) r + columns")

    def __init__(
        self,
        *,
        embedding: str = "lda",
        class_weight: Any = "balanced",
        loss: str = "squared",
        n_features_to_select: int | float | None = None,
        gammas: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0),
        cv: Any = 3,
        n_components: int | None = None,
        n_neighbors: int = 5,
        metric: Literal["cosine", "euclidean"] = "cosine",
        graph: Any = None,
        weighting: str = "uniform",
        beta: float = 1.0,
        ranking: str = "elimination",
        solver: str = "auto",
        tol: float = 0.01,
        max_iter: int = 50,
    ) -> None:
        self.embedding = embedding
        self.class_weight = class_weight
        self.loss = loss
        self.n_features_to_select = n_features_to_select
        self.gammas = gammas
        self.cv = cv
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.graph = graph
        self.weighting = weighting
        self.beta = beta
        self.ranking = ranking
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter

    _in_tiles = False  # the folds weigh the samples of one response

    def _validate_params(self) -> None:
        super()._validate_params()
        gammas = np.asarray(self.gammas).ravel()
        if not len(gammas) or not np.issubdtype(gammas.dtype, np.number) or not gammas.min() > 0:
            raise ValueError(f"gammas must hold one or more positive numbers; got {self.gammas}")

    def _gamma(self, data: Columns, y: Any) -> float:
        assert isinstance(data, GatheredColumns)
        m = self._set_size(data.X.shape[1])
        gammas = np.asarray(self.gammas, dtype=np.float64).ravel()
        unit = total_variance(data.X)
        is_hinge = self.loss == "squared_hinge"
        folds = [_training_data(data, train, is_hinge) for train, _ in self._folds(data.T, y)]
        problems = [
            relaxation(self.loss, fold, m, gamma * unit) for gamma in gammas for fold in folds
        ]
        results = solve_jointly(
            problems,
            solver=self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            name=f"SparGE folds of {m}",
        )
        losses = [
            _loss(problem, result.value, data, gammas * unit)
            for problem, result in zip(problems, results, strict=True)
        ]
        self.losses_ = np.reshape(losses, (len(gammas), len(folds)))
        means = self.losses_.mean(axis=1)
        deviations = self.losses_.std(axis=1, ddof=min(1, len(folds) - 1))
        least = np.argmin(means)
        threshold = means[least] + deviations[least] / np.sqrt(len(folds))
        self.gamma_ = float(gammas[means <= threshold].max())
        return self.gamma_ * unit

    def _folds(self, T: FloatArray, y: Any) -> Any:
        """Return the pairs of training and test samples, stratified where there are classes."""
        classes = None
        if self.embedding == "lda":
            classes = y.codes[y.is_labeled]
        elif self.embedding == "sda":
            classes = y.codes
        if not isinstance(self.cv, int):
            return self.cv.split(T, classes)
        splitter = KFold if classes is None else StratifiedKFold
        return splitter(self.cv, shuffle=True, random_state=0).split(T, classes)


def _training_data(
    data: GatheredColumns, train: IntArray, is_hinge: bool = False
) -> GatheredColumns:
    """Return the data with the weight 0 outside `train`.

    T is centered by the samples inside, unless it holds the signs of the squared hinge loss.
    """
    omega = np.zeros_like(data.omega)
    omega[train] = data.omega[train]
    T = np.where(omega[:, None] > 0, data.T, 0)
    if not is_hinge:
        T = T - np.outer(omega, _intercept(data.T, omega))
    return GatheredColumns(data.X, T, omega)


def _intercept(T: FloatArray, omega: FloatArray) -> FloatArray:
    """Return b, the intercept of T among samples of weights ω."""
    return omega @ T / (omega @ omega)


def _loss(
    problem: Relaxation, state: CuttingPlaneState, data: GatheredColumns, penalties: FloatArray
) -> float:
    """Return the share of the held-out T that a ridge on the m chosen features leaves unexplained.

    The ridge has the best of the penalties.
    """
    training, is_test = problem.data, problem.data.omega == 0
    assert isinstance(training, GatheredColumns)
    features, elimination = problem.eliminate_to_m(state)
    chosen = np.sort(features[elimination.order[: problem.m]])
    if isinstance(problem, HingeRelaxation):
        return _hinge_loss(problem, chosen, data, penalties)
    positions, (G, B) = training.positions(chosen), training.gram(chosen)
    W = [solve(G + penalty * np.eye(len(G)), B, assume_a="pos") for penalty in penalties]
    stacked = np.hstack(W)  # one ridge beside the other
    fitted = (training.Z[:, positions] @ stacked - training.mu[positions] @ stacked)[is_test]
    target = (data.T - np.outer(data.omega, _intercept(data.T, training.omega)))[is_test]
    residuals = [
        target - data.omega[is_test, None] * part for part in np.split(fitted, len(W), axis=1)
    ]
    return min(float(np.sum(residual**2)) for residual in residuals) / float(np.sum(target**2))


def _hinge_loss(
    problem: HingeRelaxation, chosen: IntArray, data: GatheredColumns, penalties: FloatArray
) -> float:
    """Return the held-out squared hinge loss as a share of that of an intercept alone."""
    is_test = problem.data.omega == 0
    omega = data.omega[is_test, None]
    Y, Z = data.T[is_test] / omega, problem.columns(chosen)

    def loss(F: FloatArray) -> float:
        return float(np.sum((omega * np.maximum(1 - Y * F, 0)) ** 2))

    losses = []
    for penalty in penalties:
        W, b = problem.refit(chosen, penalty)
        losses.append(loss((Z @ W)[is_test] + b))
    alone = problem.intercept(np.zeros(problem.Y.shape)) + np.zeros(Y.shape)
    return min(losses) / loss(alone)
