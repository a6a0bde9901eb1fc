"""SparGE: sparse graph embedding by a cutting plane [Chen, Tsang, Tan, Cham, IEEE TKDE 2015].

    min_p min_W  ½‖Xc diag(p) W − T‖² + γ/2 ‖W‖²,    p ∈ {0,1}^d, 1ᵀp = m              [eq. 9]

T comes from the graph embedding (`response`), the relaxation's optimum from `cutting_plane`, and
exactly m features from its union by backward elimination on eq. 9 itself (`elimination`; beyond the
paper).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from threadpoolctl import threadpool_limits

from bigfs.cutting_plane.columns import ROUNDING, Gathered
from bigfs.cutting_plane.loop import Cuts, Problem, cutting_plane, side_by_side
from bigfs.embedding import responses
from bigfs.graph import Neighbours, affinity, knn
from bigfs.graph.hypergraph import neighbour_hyperedges
from bigfs.linalg.prox import row_norms
from bigfs.matrix import Matrix
from bigfs.result import Result
from bigfs.selectors.base import N_FEATURES, Selector, at_least_two, labels_of
from bigfs.types import FloatArray


class SparGE(Selector):
    """Sparse graph embedding: the m features that regress best, together, on a graph embedding.

    Parameters
    ----------
    embedding : what the features are to explain (Table 1): "lda" the classes (default), "cca" real
        or
        multi-label targets, "hsl" the hypergraph of the labels (of the neighbourhoods where y is
        None), "sda" classes and the kNN graph together, for few labels, "lpp" the kNN graph, "pca"
        the variance; the last two ignore y.
    n_features_to_select : m, the size of each set and of the support. int, or a share of d; None
        keeps half.
    gamma : ridge penalty γ, in units of the samples' mean squared distance to their mean, so that
        the same value
        means the same whatever the data's scale (for rows of unit length the unit is about 1).
    n_components : width r of the embedding; None takes classes − 1 for sda and 10 for pca, lpp and
        hsl without y.
    n_neighbors, metric : of the kNN graph, for lpp, sda and hsl; cosine or heat weights by the
        metric.
    graph : (n, n) sparse affinity, or `Neighbours`, to use instead, for lpp and sda.
    weighting : for lpp and sda. Their generalized eigenproblems weigh sample i by √D_ii
        (√(1+βD_ii)): "degree" does
        as they do; "uniform" (default) regresses as the paper's Table 1 does. On COIL20 uniform was
        better at 50 and 100 pixels of a cosine graph, about equal elsewhere
        (docs/methods/sparge.md).
    beta : weight of the graph against the classes, for sda.
    ranking : how the union of the sets becomes exactly m features. "elimination" (default) takes
        away the
        cheapest one by one, at the exact cost to the objective, which is what m features together
        are worth; "weights" is the paper's, ‖w_j‖ of the relaxation.
    solver : of the master: "auto", "newton", "simplex", "apg".
    tol : the relative gap to stop at; max_iter : cuts at most.

    Attributes
    ----------
    scores_ : (d,) what the objective lost when the feature was taken away
        (`ranking="elimination"`), or ‖w_j‖;
        zero outside the union of the sets. The best k < m of them are a good choice of k: the sets
        are nested.
    coef_ : (u, r) W = Σ_t Ωᵗ on the features `union_`.
    union_ : (u,) the union of the sets, the features with weight.
    sets_ : the sets Π in the order found, each best first; `eta_` their weights.
    n_iter_ : cuts made.
    result_ : status and history; each record has the bounds "upper" and "lower", and "gap". Its
        stats have
        "objective", the chosen features' value of eq. 9, and "objective_gap", how far at most from
        the best m.

    Raises
    ------
    ValueError : fewer than two classes for lda, and as `Selector.fit`.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "embedding": [StrOptions({"lda", "cca", "hsl", "sda", "lpp", "pca"})],
        "n_features_to_select": N_FEATURES,
        "gamma": [Interval(Real, 0, None, closed="neither")],
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "metric": [StrOptions({"cosine", "euclidean"})],
        "graph": [HasMethods("tocsr"), Neighbours, None],
        "weighting": [StrOptions({"uniform", "degree"})],
        "beta": [Interval(Real, 0, None, closed="neither")],
        "ranking": [StrOptions({"elimination", "weights"})],
        "solver": [StrOptions({"auto", "newton", "simplex", "apg"})],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        embedding: str = "lda",
        n_features_to_select: int | float | None = None,
        gamma: float = 1.0,
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
        self.n_features_to_select = n_features_to_select
        self.gamma = gamma
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

    @property
    def _supervised(self) -> bool:  # type: ignore[override]  # elsewhere a constant of the class
        return self.embedding in ("lda", "cca", "sda")

    @property
    def _semi_supervised(self) -> bool:  # type: ignore[override]
        return self.embedding == "sda"

    def _fit(self, X: Matrix, y: Any) -> None:
        # BLAS rounds by its number of threads; the answer must not
        with threadpool_limits(1, user_api="blas"):
            problem = self._problem(self._data(X, y), y)
            self._round(
                problem,
                cutting_plane(problem, solver=self.solver, tol=self.tol, max_iter=self.max_iter),
            )

    def fit_path(self, X: Any, y: Any, sizes: Sequence[int]) -> dict[int, Self]:
        """`fit` for several numbers of features in one run: the same answers, in the passes of the
        longest.

        The embedding, the gathered columns and their products are shared. (Cheaper still, one fit
        at the largest size is nested: its `selected_[:k]` is a good choice of k.)

        Parameters
        ----------
        X, y : as in `fit`.
        sizes : the numbers of features, in place of n_features_to_select.

        Returns
        -------
        A fitted copy of this selector for each size; each one's stats count the passes of them all.

        Raises
        ------
        ValueError : as `fit`.
        """
        first = clone(self)
        matrix, y = first._as_matrix(X, y)
        with threadpool_limits(1, user_api="blas"):
            path = {m: first._sized(m) for m in sizes}
            data = first._data(matrix, y)
            problems = [path[m]._problem(data, y) for m in sizes]
            results = side_by_side(
                problems,
                solver=self.solver,
                tol=self.tol,
                max_iter=self.max_iter,
                name="SparGE path",
            )
            for m, problem, result in zip(sizes, problems, results, strict=True):
                path[m]._round(problem, result)
                path[m]._choose()
        return path

    def _sized(self, m: int) -> Self:
        selector = copy(self).set_params(n_features_to_select=m)
        selector._validate_params()
        return selector

    def _data(self, X: Matrix, y: Any) -> Gathered:
        X, T, omega = self._response(X, y)
        if not T.any():
            raise ValueError(
                f"the embedding {self.embedding!r} of these samples is empty: nothing "
                f"tells them apart, check X and y"
            )
        return Gathered(X, T, omega)

    def _problem(self, data: Gathered, y: Any) -> Problem:
        """The relaxation for this selector's size, on columns that problems share."""
        m = self._count(data.X.shape[1])
        return Problem(data, m, self._gamma(data, y, m) * spread(data.X))

    def _gamma(self, data: Gathered, y: Any, m: int) -> float:
        """γ in units of the samples' mean squared distance to their mean."""
        return self.gamma

    def _round(self, problem: Problem, result: Result[Cuts]) -> None:
        """From the relaxation's weighted union to a nested order of features, scored."""
        cuts = result.value
        self.sets_, self.eta_, self.union_, self.coef_ = cuts.sets, cuts.eta, cuts.features, cuts.W
        self.scores_ = np.zeros(problem.data.X.shape[1])
        self.result_, self.n_iter_ = result, len(result.history)
        result.stats.update(
            passes=problem.data.passes,
            cuts=self.n_iter_,
            gathered=len(problem.data.features),
            gamma=problem.gamma,
        )
        if self.ranking == "weights":
            self.scores_[cuts.features] = row_norms(cuts.W)
            return
        features, rounded = problem.rounded(cuts)
        falling = np.minimum.accumulate(rounded.cost) * (1 - 1e-12 * np.arange(len(rounded.cost)))
        self.scores_[features[rounded.order]] = falling
        value = rounded.values[problem.m]
        result.stats.update(objective=value, objective_gap=(value - cuts.lower) / value)

    # --- T, and what comes with it ---

    def _response(self, X: Matrix, y: Any) -> tuple[Matrix, FloatArray, FloatArray | None]:
        """The samples that take part, T, and the weights ω of their residuals (None: all one)."""
        if self.embedding == "lda":
            classes, codes = at_least_two(y)
            known = y.known
            return (
                X if known.all() else X.take_rows(known),
                responses.lda(codes[known], len(classes)),
                None,
            )
        if self.embedding == "cca":
            return X, responses.cca(y), None
        if self.embedding == "hsl" and y is not None:
            return X, responses.hsl_labels(y), None
        if self.embedding == "pca":
            return X, responses.pca(X, self._width(X), tol=self.tol / 4), None
        if self.embedding == "hsl":
            hypergraph = neighbour_hyperedges(knn(X, self.n_neighbors, metric=self.metric))
            return X, responses.hsl_neighbours(hypergraph, self._width(X)), None
        A = self._affinity(X)
        degree = np.asarray(A.sum(axis=1)).ravel()
        if self.embedding == "lpp":
            return (
                X,
                responses.lpp(A, self._width(X)),
                np.sqrt(degree) if self.weighting == "degree" else None,
            )
        classes, codes = at_least_two(y)
        T = responses.sda(A, codes, len(classes), self.n_components or len(classes) - 1, self.beta)
        return X, T, np.sqrt(1 + self.beta * degree) if self.weighting == "degree" else None

    def _affinity(self, X: Matrix) -> Any:
        if isinstance(self.graph, Neighbours):
            return self._weighted(self.graph)
        if self.graph is not None:
            if self.graph.shape != (X.shape[0], X.shape[0]):
                raise ValueError(
                    f"graph has shape {self.graph.shape} and X has {X.shape[0]} "
                    f"samples: give their n × n affinity"
                )
            return sp.csr_array(self.graph)
        return self._weighted(knn(X, self.n_neighbors, metric=self.metric))

    def _weighted(self, neighbours: Neighbours) -> Any:
        return affinity(neighbours, weights="cosine" if neighbours.metric == "cosine" else "heat")

    def _width(self, X: Matrix) -> int:
        """r of an embedding without classes: 10, or what few samples and features allow."""
        return self.n_components or max(1, min(10, X.shape[0] - 2, X.shape[1]))

    def _check_y(self, y: Any, coded: bool = False) -> Any:
        """`Labels`; for cca and hsl Y (n × q): real targets and indicators as they are, class
        labels one-hot.
        """
        if self.embedding not in ("cca", "hsl"):
            return super()._check_y(y, coded)
        y = y.toarray() if sp.issparse(y) else np.asarray(y)
        y = y if y.ndim == 2 and y.shape[1] > 1 else y.ravel()
        if y.ndim == 2 or (np.issubdtype(y.dtype, np.floating) and np.any(y != np.round(y))):
            return np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        classes, codes = at_least_two(labels_of(y, unlabelled=coded))
        return responses.one_hot(codes, len(classes))


def spread(X: Matrix) -> float:
    """tr(XcᵀXc)/n, the samples' mean squared distance to their mean; their mean squared norm, or 1,
    where all are the same.
    """
    stats, n = X.stats, X.shape[0]
    centred = stats.squares - stats.sums**2 / n
    varying = centred > ROUNDING * stats.squares
    return float(centred[varying].sum() if varying.any() else stats.squares.sum()) / n or 1.0
