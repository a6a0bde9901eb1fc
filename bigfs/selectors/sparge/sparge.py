"""SparGE: sparse graph embedding by a cutting plane [Chen, Tsang, Tan, Cham, IEEE TKDE 2015].

    min_p min_W  ½‖Xc diag(p) W − T‖² + γ/2 ‖W‖²,    p ∈ {0,1}^d, 1ᵀp = m              [eq. 6]

T are the targets of the graph embedding (`embedding.targets`). `cutting_plane.loop` solves the
convex relaxation. Backward elimination on eq. 6 itself (`cutting_plane.elimination`), which is not
in the paper, reduces the union of its sets to exactly m features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval

from bigfs import engine
from bigfs.constraints import NO_CONSTRAINTS
from bigfs.cutting_plane.columns import Columns, GatheredColumns
from bigfs.cutting_plane.hinge import SquaredHinge
from bigfs.cutting_plane.loop import solve_jointly
from bigfs.cutting_plane.relaxation import CuttingPlaneState, Relaxation
from bigfs.cutting_plane.tree import search_exactly
from bigfs.linalg.prox import row_norms
from bigfs.matrix import Matrix
from bigfs.result import Result, Status
from bigfs.selectors.base.chooser import copies
from bigfs.selectors.base.estimator import Cost, Selector
from bigfs.selectors.base.labels import Labels
from bigfs.selectors.base.parameters import COUNT, POSITIVE, Allowed
from bigfs.selectors.sparge.targets import EmbeddingTarget, regression, sample_weights
from bigfs.selectors.svm.elimination import eliminate_by_svm, elimination_sizes
from bigfs.settings import Setting
from bigfs.types import IntArray

# The embeddings that take a parameter, and the values that the others may have. Those not named
# here, such as gamma, belong to all.
TAKEN_BY: dict[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    "target": (("cca", "hsl"), ("auto",)),
    "class_weight": (("lda",), ("root", "balanced")),
    "loss": (("lda",), ("squared",)),
    "ranking": (("lda",), ("elimination", "weights")),
    "graph": (("sda", "lpp"), (None,)),
    "weighting": (("sda", "lpp"), ("uniform",)),
    "beta": (("sda",), (1,)),
}
# The unit of gamma in Σs²/Σs: of 0.3, 1, 2, 4 and 8 it has the best mean accuracy in inner folds
# (benchmarks/papers/choice.py).
WEIGHTED_MEANS = 2.0
SVM_STEP = 0.2  # share of the features that a round of the SVM removes
SVM_TOL = Setting(1e-3)  # of the classifiers of a round
SVM_MAX_ITER = 100
ROOT_TOL = 1e-3  # relative gap of the relaxation from which features are fixed
TIE_BREAK = 1e-12  # by which equal costs of elimination are set apart, relative and per rank


class SparGE(EmbeddingTarget, Selector):
    """Choose the features that together explain a graph embedding of the samples best.

    Sparse graph embedding [1]_ regresses an embedding T of the samples on exactly m features. A
    cutting plane solves its convex relaxation, and each cut reads the data once.

    Parameters
    ----------
    %(sparge_keep)s
    %(sparge_targets)s
    %(sparge_graph)s
    %(sparge_cuts)s
    gamma : float, default=1.0
        Ridge penalty γ, in units of the samples' mean squared distance to their mean, or of
        2Σs²/Σs with s the centered columns' sums of squares, whichever is less. The second is less
        where the features are many and the samples few. The same value means the same at any scale
        of the data. A larger value needs fewer cuts.
    gap : float or None, default=None
        Share of the objective by which another set of the m features may be better. 0 asks for the
        best set. The features that the bound leaves undecided are searched by branch and bound, and
        ``result_.stats["objective_gap"]`` says how far it came. None takes the gap that there is.
        It needs ``loss="squared"`` and ``ranking="elimination"``.
    max_nodes : int, default=100000
        Maximum number of nodes of that search. The same number gives the same features anywhere.
    max_seconds : float or None, default=None
        Maximum seconds of that search. It ends with the gap that is left.

    Attributes
    ----------
    %(sparge_scores)s
    %(sparge_fitted)s

    See Also
    --------
    SparGECV : Choose gamma by cross-validation.
    SRLSR : Choose features by a sparse classifier, with few labels.
    LaplacianScore : Score features of a kNN graph one at a time.

    Notes
    -----
    The problem is eq. 6 of [1]_, with Xc the centered data and p the choice of features::

        min_p min_W  ½‖Xc diag(p) W − T‖² + γ/2 ‖W‖²,    p ∈ {0, 1}^d, 1ᵀp = m

    A new kNN graph is made by `bigfs.graph.knn` with `method="auto"`: it is approximate where the
    exact one is predicted to take more than ten minutes of one core.

    X is never centered in place. κ cuts need κ + 1 passes over X, and the columns of at most m κ
    features are held in memory.

    References
    ----------
    .. [1] M. Chen, I. W. Tsang, M. Tan and T.-J. Cham, "A unified feature selection framework for
       graph embedding on high dimensional data", IEEE Transactions on Knowledge and Data
       Engineering, 2015.

    Examples
    --------
    %(iris)s
    >>> from bigfs import SparGE
    >>> selector = SparGE(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 1])
    >>> selector.transform(X).shape
    (150, 2)
    >>> selector.result_.converged
    True
    """

    gamma: float = 1.0
    gap: float | None = None
    max_nodes: int = 100_000
    max_seconds: float | None = None

    _parameter_constraints: ClassVar[Allowed] = {
        **EmbeddingTarget._parameter_constraints,
        "gap": [Interval(Real, 0, 1, closed="left")],
        "max_nodes": COUNT,
        "max_seconds": POSITIVE,
    }
    _nested = False  # `fit_path` chooses each number
    _in_tiles = True  # large targets are made tile by tile

    @property
    def _cost(self) -> Cost:  # type: ignore[override]
        first = {"lpp": "graph + ", "sda": "graph + ", "pca": "1 or 2 per subspace step + "}
        return Cost(first.get(self.embedding, "") + "1 per cut", "(n + d) r + columns")

    def _fit(self, X: Matrix, y: Any) -> None:
        self._fit_path_data({self._count(X.shape[1]): self}, regression(self, X, y), y)

    @engine.session()
    def fit_path(self, X: Any, y: Any, sizes: Sequence[int]) -> dict[int, Self]:
        """Fit several numbers of features in one run.

        Each one chooses what `fit` chooses, and X is read as often as the slowest one needs. The
        embedding, the gathered columns and their products are shared. One fit at the largest size
        is cheaper still: its sets are nested, so `selected_[:k]` is a good choice of k features.
        With ``ranking="svm"`` all sizes are the best of one such fit.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples, as in `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), or None
            Labels or targets, as in `fit`.
        sizes : sequence of int or float
            Numbers of features, each in place of `n_features_to_select`.

        Returns
        -------
        dict of {int or float: SparGE}
            A fitted copy of this selector for each size. The stats of each one count the passes of
            all.

        Raises
        ------
        ValueError
            As in `fit`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from bigfs import SparGE
        >>> X, y = load_iris(return_X_y=True)
        >>> path = SparGE().fit_path(X, y, sizes=[1, 2])
        >>> path[2].selected_
        array([2, 1])
        """
        return self._solve_path(X, y, sizes)[0]

    def _solve_path(
        self, X: Any, y: Any, sizes: Sequence[int]
    ) -> tuple[dict[int, Self], dict[int, Relaxation]]:
        """Return what `fit_path` does, and the relaxations with their gathered columns."""
        template = clone(self)
        matrix, y = template._as_matrix(X, y)
        template._leave_out_constants(matrix)
        path = copies(template, sizes)
        return path, template._fit_path_data(path, regression(template, matrix, y), y)

    def _fit_path_data(self, path: dict[int, Self], data: Columns, y: Any) -> dict[int, Relaxation]:
        """Fit the copies of a path by the data of the regression, and return their relaxations."""
        leaders = {m: m for m in path}
        if self.ranking == "svm":  # one run serves all
            largest = max(path, key=lambda m: path[m]._count(data.X.shape[1]))
            leaders = dict.fromkeys(path, largest)
        problems = {m: path[m]._problem(data) for m in dict.fromkeys(leaders.values())}
        data.X.release_stats()
        name = "SparGE" if len(problems) == 1 else "SparGE path"
        results = solve_jointly(
            list(problems.values()),
            tol=self.tol if self.gap is None else min(self.tol, ROOT_TOL),
            max_iter=self.max_iter,
            name=name,
        )
        for (m, problem), result in zip(problems.items(), results, strict=True):
            path[m]._select(problem, result, y)
            path[m]._describe_target(y)
        for m, one in path.items():
            one._take_fitted(path[leaders[m]])
            one._choose()
        return {m: problems[leaders[m]] for m in path}

    def _validate_params(self) -> None:
        super()._validate_params()
        for name, (embeddings, general) in TAKEN_BY.items():
            value = getattr(self, name)  # a graph compares by entries
            is_general = value is None if name == "graph" else value in general
            if self.embedding not in embeddings and not is_general:
                given = name if name == "graph" else f"{name}={value!r}"
                wanted = " or ".join(map(repr, embeddings))
                raise ValueError(
                    f"{given} needs embedding={wanted}; got embedding={self.embedding!r}"
                )

        if self.gap is not None and (self.loss, self.ranking) != ("squared", "elimination"):
            raise ValueError(
                "gap needs loss='squared' and ranking='elimination', because its search is for the "
                f"least squared loss; got loss={self.loss!r} and ranking={self.ranking!r}"
            )

    # --- the problem ---

    def _problem(self, data: Columns) -> Relaxation:
        """Return the relaxation, whose sets have m features."""
        loss = None
        if self.loss == "squared_hinge":
            assert isinstance(data, GatheredColumns)
            loss = SquaredHinge(data)
        gamma = self.gamma * unit_of_gamma(data, self._constraints.absent)
        # an empty column has no score, and a task is not told of it
        constant = self._constraints.constant
        constraints = self._constraints.with_constant(constant[data.X.stats.nnz[constant] > 0])
        return Relaxation(data, self._count(data.X.shape[1]), gamma, constraints, loss)

    def _select(self, problem: Relaxation, result: Result[CuttingPlaneState], y: Any) -> None:
        """Score the features by a nested order, from the weighted union of the relaxation."""
        state = result.value
        self.sets_, self.eta_ = state.sets, state.eta
        self.union_, self.coef_ = state.features, state.W
        self.scores_ = np.zeros(problem.data.X.shape[1])
        self.result_, self.n_iter_ = result, len(result.history)
        result.stats.update(
            passes=problem.data.passes,
            cuts=self.n_iter_,
            gathered=len(problem.data.features),
            gamma=problem.gamma,
            **problem.data.target_stats,
        )
        if self.ranking == "weights":
            self.scores_[state.features] = row_norms(state.W)
            return
        if self.ranking == "svm":
            self._rank_by_svm(problem, state.features[problem.heaviest(state)], y)
            return
        features, elimination = problem.eliminate_to_m(state)
        objective = elimination.objectives[problem.m]
        gap = max((objective - state.lower) / objective, 0.0)  # below zero by rounding
        if self.gap is not None:
            best = features[elimination.order[: problem.m]]
            limits = (self.max_nodes, self.max_seconds)
            exact = search_exactly(problem, state, best, -self.gap, *limits, "SparGE tree")
            features, elimination = problem.with_choice(features, elimination, exact.lists[0])
            objective, gap = elimination.objectives[problem.m], min(gap, exact.gap)
            result.stats.update(undecided=exact.n_undecided, nodes=exact.n_nodes)
            result.stats.update(passes=problem.data.passes)
            if exact.status is not Status.CONVERGED:
                self.result_ = replace(result, status=exact.status)
        # A feature may have cost more than one removed after it, but must not score more. The kept
        # ones were removed last, whatever they cost.
        parts = np.split(elimination.costs, [len(self._constraints.kept)])
        costs = np.concatenate([np.minimum.accumulate(part) for part in parts])
        self.scores_[features[elimination.order]] = costs * (1 - TIE_BREAK * np.arange(len(costs)))
        result.stats.update(objective=objective, objective_gap=gap)

    def _rank_by_svm(self, problem: Relaxation, candidates: IntArray, y: Labels) -> None:
        """Score the candidates by recursive elimination with linear SVMs on their columns alone.

        On a fold of `SparGECV` the order comes from the training samples.
        """
        data, candidates = problem.data, np.sort(candidates)
        X, features, kept = data.X, candidates, self._constraints.kept
        codes, weights = y.codes[y.is_labeled], sample_weights(self, y)
        trains = data.omega > 0
        if isinstance(data, GatheredColumns) and not trains.all():
            X = Matrix.from_array(data.Z[:, data.positions(candidates)][trains])
            features, kept = np.arange(X.shape[1]), self._constraints.within(candidates).kept
            codes, weights = codes[trains], None if weights is None else weights[trains]
        m = self._count(data.X.shape[1])
        svm = {"C": 1 / (2 * problem.gamma), "tol": SVM_TOL.value, "max_iter": SVM_MAX_ITER}
        state = eliminate_by_svm(
            X,
            codes,
            int(codes.max()) + 1,
            features,
            elimination_sizes(len(features), SVM_STEP),
            svm={**svm, "sample_weight": weights},
            name=f"{type(self).__name__} classifiers of {m}",
            removed_last=kept,
        ).value
        order = candidates[np.searchsorted(features, np.append(state.removed, state.kept))]
        self.scores_[order] = np.arange(1, len(order) + 1) / len(order)
        self.result_.stats.update(passes=data.passes)


def unit_of_gamma(data: Columns, forbidden: IntArray) -> float:
    """Return the `column_scale` of the samples whose weight is not zero."""
    return column_scale(data.X, np.count_nonzero(data.omega) / len(data.omega), forbidden)


def column_scale(
    X: Matrix, share: float = 1.0, forbidden: IntArray = NO_CONSTRAINTS.forbidden
) -> float:
    """Return the smaller of Σs/n and 2Σs²/Σs, of the centered columns' sums of squares s.

    The first is the samples' mean squared distance to their mean. The second is twice the mean of s
    weighted by s, which does not grow with the number of features. A share of the samples has that
    share of the sums. Where all samples are the same, s are the sums of squares before centering,
    and the unit is 1 if those are zero. The forbidden features do not count.
    """
    counted = np.ones(X.shape[1], dtype=bool)
    counted[forbidden] = False
    for squares in (X.deviations[counted], X.stats.sums_of_squares[counted]):
        if total := float(squares.sum()):
            weighted = float(squares @ (squares / total))
            return min(total / X.shape[0], WEIGHTED_MEANS * share * weighted)
    return 1.0
