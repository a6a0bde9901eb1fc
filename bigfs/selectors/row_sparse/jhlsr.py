"""JHLSR: hypergraph learning and sparse regression, jointly.

[Zhang, Bai, Liang, Hancock, Pattern Recognition 2017]

    min ‖A X S − Φ‖² + μ tr(Sᵀ Xᵀ L_H(w) X S) + λ Σ_j √(‖s_j‖² + ε) + γ‖w‖²      [eq. 14, corrected]

over S (d × r) and w on the simplex. A picks the labeled rows. ΦΦᵀ is the kernel to explain: 1/n_c
between samples of one class, or a Gaussian kernel by a low-rank factor where there are no labels.
L_H(w) = I − F diag(w/δ) Fᵀ with F = D_v^-½ H. The degrees D_v are weighted by w, or the row sums of
H (`bigfs.graph.hypergraph.smoothness`).

A round, with u = λ at first:

    S = (Xᵀ(AᵀA + μL_H(w))X + diag u)⁻¹ XᵀAᵀΦ      one weighted ridge solve    [eq. 21, corrected]
    w = `choose_weights` for P = XS:  lowers μ tr(Pᵀ L_H(w) P) + γ‖w‖²
    u_j = λ / 2√(‖s_j‖² + ε)

With incidence degrees this w is the exact optimum of what the paper descends by coordinates. With
weighted degrees it is the end of a line search. The objective falls in every round after the first.
The variant "hyper" keeps w fixed. The variant "graph" has one hyperedge of weight one per edge of
the kNN graph, for which L_H is half of the graph's normalized Laplacian, but for isolated samples.
The row of L_H of a sample in no hyperedge is a row of the identity: it adds μ‖x_iᵀS‖².

The problem is convex in S and in w, but not in both, so that the run ends at a stationary point.

`jhlsr_problem` has the step and the certificate.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import StrOptions

from bigfs import engine
from bigfs.embedding import factors
from bigfs.graph import Metric
from bigfs.graph.hypergraph.hypergraph import (
    Hypergraph,
    edge_hyperedges,
    label_hyperedges,
    neighbor_hyperedges,
)
from bigfs.graph.hypergraph.lasso import lasso_hyperedges
from bigfs.graph.hypergraph.smoothness import Degrees, Smoothness
from bigfs.linalg.ridge.plan import project_costs
from bigfs.matrix import Matrix
from bigfs.matrix.panels import strip_width
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.labels import Labels, at_least_two
from bigfs.selectors.base.parameters import Allowed
from bigfs.selectors.base.sample_graph import neighbors_of
from bigfs.selectors.row_sparse.jhlsr_problem import JHLSRProblem
from bigfs.selectors.row_sparse.rows import RowSparseSelector
from bigfs.types import AnyArray

# Bytes per member of a hyperedge (measured): the incidence, the samples of each hyperedge and what
# has one number per hyperedge, and what making a hypergraph takes at its peak.
HYPEREDGE_BYTES = 20
MAKING_BYTES = 32


class JHLSR(RowSparseSelector):
    """Choose features by sparse regression that is smooth over a learned hypergraph.

    Joint hypergraph learning and sparse regression [1]_ works with all labels, few labels, or none.
    In an array y, −1 means unlabeled unless y holds nothing but −1 and 1.

    Parameters
    ----------
    mu : float, default=0.1
        Weight μ of the smoothness over the hypergraph.
    lam : float, default=0.1
        Weight λ of the row sparsity. A feature j gets a weight only if 2‖x_jᵀV‖ can exceed λ, where
        V is the residual. The loss at S = 0 is the number of classes.
    gamma : float, default=0.01
        Weight γ of ‖w‖². A larger value leaves more hyperedges with a weight.
    mode : {"auto", "supervised", "semi", "unsupervised"}, default="auto"
        "supervised" needs a label for every sample, "semi" takes −1 as unlabeled, "unsupervised"
        ignores y, and "auto" decides by what y holds.
    variant : {"joint", "hyper", "graph"}, default="joint"
        "joint" learns w. "hyper" keeps the first weights of the hypergraph, scaled to sum 1.
        "graph" uses the edges of the kNN graph, fixed.
    hyperedges : {"lasso", "knn", "labels"}, array-like or Hypergraph, default="lasso"
        "lasso" is eq. 13 of [1]_: each sample is regressed on its neighbors. "knn" takes each
        sample with its neighbors, and "labels" takes the classes. An incidence matrix, dense or
        sparse, has the shape (n_samples, n_hyperedges). The variant "graph" does not use it.
    degrees : {"weighted", "incidence"}, default="weighted"
        How the degree of a sample counts its hyperedges. "weighted" adds up their weights, as the
        hypergraph Laplacian of [2]_ does. "incidence" counts them, the other reading of [1]_: with
        many hyperedges L_H is then nearly the identity, whatever w is.
    n_neighbors : int, default=20
        Number of neighbors of each sample in the kNN graph behind the hyperedges. The graph is
        approximate where the exact one is predicted to take more than ten minutes of one core.
    %(landmarks)s
    %(hypergraph_ridge)s
    accelerate : bool, default=False
        Whether rounds go beyond their ends, and features leave at once that are best at zero with
        all else fixed. Those that left too early return in the end, and stay. It takes fewer
        rounds, half as many on all of RCV1. It pays where a round reads X, and not where the active
        columns fit in memory. It may end at another stationary point.
    tol : float, default=1e-2
        Violation of stationarity at which to stop, relative to the slope of the penalty.

    Attributes
    ----------
    %(row_scores)s
    coef_ : ndarray of shape (n_features, n_components)
        Weights S.
    mode_ : str
        The mode that was used.
    classes_ : ndarray of shape (n_classes,)
        The class labels. Absent in the mode "unsupervised".
    hypergraph_ : Hypergraph
        The hypergraph that was used.
    hyperedge_weights_ : ndarray of shape (n_hyperedges,)
        The learned w. `result_.stats["zero_hyperedges"]` counts the zeros, which are many with
        incidence degrees.
    intercept_ : ndarray of shape (n_components,)
        The best intercept for these weights. Zeros without `fit_intercept`.
    %(n_rounds)s
    result_ : bigfs.result.Result
        Status and history. The stats have the plans of the ridge solves, the passes over X, and
        `n_without_hyperedge`, the number of samples in no hyperedge.

    See Also
    --------
    SRLSR : Learn a sparse classifier from few labels, without a hypergraph.
    SparGE : With `embedding="hsl"`, choose features of a fixed hypergraph.

    Notes
    -----
    The problem is eq. 14 of [1]_, corrected. A picks the labeled samples, and ΦΦᵀ is a kernel of
    the labels, or of the samples where there are no labels::

        min_{S, w}  ‖AXS − Φ‖² + μ tr(SᵀXᵀ L_H(w) XS) + λ‖S‖₂,₁ + γ‖w‖²,    w ≥ 0, 1ᵀw = 1

    There is no intercept in print. A constant feature, if X has one, takes its place. With
    `fit_intercept`, XS + 1bᵀ takes the place of XS, and b is free. The problem is convex in S but
    not jointly, so the run ends at a stationary point.

    References
    ----------
    .. [1] Z. Zhang, L. Bai, Y. Liang and E. Hancock, "Joint hypergraph learning and sparse
       regression for feature selection", Pattern Recognition, 2017, eq. 13 to 21.
    .. [2] D. Zhou, J. Huang and B. Schölkopf, "Learning with hypergraphs: clustering,
       classification, and embedding", Advances in Neural Information Processing Systems, 2006.

    Examples
    --------
    %(iris)s
    >>> from bigfs import JHLSR
    >>> selector = JHLSR(n_features_to_select=2, hyperedges="knn", n_neighbors=5).fit(X, y)
    >>> selector.selected_
    array([3, 1])
    >>> selector.mode_
    'supervised'
    """

    mu: float = 0.1
    lam: float = 0.1
    gamma: float = 0.01
    mode: Literal["auto", "supervised", "semi", "unsupervised"] = "auto"
    variant: Literal["joint", "hyper", "graph"] = "joint"
    hyperedges: Any = "lasso"
    degrees: Degrees = "weighted"
    n_neighbors: int = 20
    metric: Metric = "cosine"
    n_components: int = 100
    random_state: int = 0
    fit_intercept: bool = False
    solver: str = "auto"
    solver_tol: float = 1e-6
    solver_max_iter: int = 100
    accelerate: bool = False
    tol: float = 1e-2
    max_iter: int = 200

    _cost = Cost("pairs + 2 per CG step", "n k + (n + d) c + columns")
    _parameter_constraints: ClassVar[Allowed] = {
        "hyperedges": [
            StrOptions({"lasso", "knn", "labels"}),
            "array-like",
            "sparse matrix",
            Hypergraph,
        ],
        "degrees": [StrOptions({"weighted", "incidence"})],
    }
    _supervised = False
    _needs_one_scale = True
    _semi_supervised = True

    def _fit(self, X: Matrix, y: Any) -> None:
        allowed = self._allowed(X)
        self.mode_ = self._mode(y)
        T, labeled = self._targets(allowed, y)
        self.hypergraph_ = self._hypergraph(allowed, y, T.shape[1])
        room = self._room(X, T.shape[1], self.hypergraph_.H.nnz, self.hypergraph_.shape[1])
        with JHLSRProblem(
            X.near_zero() if self.fit_intercept else X,
            T,
            labeled,
            Smoothness(self.hypergraph_, self.degrees),
            (float(self.mu), float(self.lam), float(self.gamma)),
            learn_w=self.variant == "joint",
            fit_intercept=self.fit_intercept,
            accelerate=self.accelerate,
            target="y" if self.mode_ != "unsupervised" else "the kernel of the samples",
            **self._options(room=room, reduction=np.sqrt(self.tol)),
        ) as problem:
            state = self._solve(problem, problem.start())
        self.coef_, self.hyperedge_weights_ = state.S, state.w
        self.intercept_ = np.zeros(T.shape[1])
        if self.fit_intercept:
            self.intercept_ = state.intercept - X.near_numbers @ state.S
        self.result_.stats.update(
            zero_hyperedges=int(np.sum(state.w == 0)),
            n_without_hyperedge=int(np.sum(self.hypergraph_.vertex_degrees == 0)),
            **self._graph_stats,
        )

    @property
    def _ignores_y(self) -> bool:  # type: ignore[override]  # elsewhere a constant of the class
        return self.mode == "unsupervised"

    def _mode(self, y: Labels | None) -> str:
        """Return the mode that is asked for, or that the labels allow."""
        share = 0.0 if y is None else float(y.is_labeled.mean())
        modes = ["unsupervised", "semi", "supervised"]  # each needs more labels
        allowed = modes[: 1 if share == 0 else 3 if share == 1 else 2]
        if self.mode == "auto":
            return allowed[-1]
        if self.mode in allowed:
            return self.mode
        raise ValueError(
            f"mode={self.mode!r} needs more labels than y has ({share:.0%} of the samples are "
            f"labeled): add labels, or use mode='auto'"
        )

    def _targets(self, X: Matrix, y: Any) -> tuple[Any, AnyArray]:
        """Return AᵀΦ (n × r) and the diagonal of AᵀA (n,)."""
        if self.mode_ == "unsupervised":
            Phi = factors.gaussian_factor(X, self.n_components, seed=self.random_state)
            return Phi, np.ones(X.shape[0])
        self.classes_, codes = at_least_two(y)
        Phi = factors.same_class_factor(codes, len(self.classes_))
        return Phi, (codes >= 0).astype(float)

    def _hypergraph(self, X: Matrix, y: Any, r: int) -> Hypergraph:
        """Return the hypergraph. Its weights are on the simplex, unless it is a plain graph."""
        n, given = X.shape[0], "graph" if self.variant == "graph" else self.hyperedges
        self._graph_stats: dict[str, Any] = {}
        if not isinstance(given, str):
            hypergraph = given if isinstance(given, Hypergraph) else Hypergraph.of(given)
            if hypergraph.shape[0] != n:
                raise ValueError(
                    f"hyperedges has {hypergraph.shape[0]} rows, but X has {n} samples: give one "
                    f"row per sample"
                )
        elif given == "labels":
            if self.mode_ == "unsupervised":
                raise ValueError(
                    "hyperedges='labels' needs labeled samples in y; use 'lasso' or 'knn'"
                )
            hypergraph = label_hyperedges(y.codes)
        else:
            if given == "knn":
                self._require_memory(X, r, n * min(self.n_neighbors + 1, n), n)
            neighbors, self._graph_stats = neighbors_of(X, self.n_neighbors, self.metric)
            if given == "lasso":
                hypergraph = lasso_hyperedges(X, neighbors)
            else:
                make = edge_hyperedges if given == "graph" else neighbor_hyperedges
                hypergraph = make(neighbors)
        if not X.local:
            engine.trim_memory()  # what the graph has left
        self._require_memory(X, r, hypergraph.H.nnz, hypergraph.shape[1])
        if self.variant == "graph":
            return hypergraph
        total = float(hypergraph.w.sum())
        if not total > 0:
            raise ValueError(
                f"the weights of the hyperedges must have a positive sum; got {total:g}: give "
                f"weights, or None for equal ones"
            )
        return Hypergraph(hypergraph.H, hypergraph.w / total)

    def _require_memory(self, X: Matrix, r: int, entries: int, n_hyperedges: int) -> None:
        """Refuse a hypergraph that does not fit together with the ridge solve.

        `entries` counts the samples of all hyperedges.
        """
        n, d = X.shape
        width = strip_width(max(n, n_hyperedges), r)
        costs = project_costs(n, d, X.stats.nnz, r, width=width)
        ridge = min(cost.bytes for cost in costs.values()) + 8 * max(n_hyperedges - n, 0) * width
        engine.require_memory(
            max(ridge + HYPEREDGE_BYTES * entries, MAKING_BYTES * entries),
            f"JHLSR on {n:,} samples, whose hyperedges have {entries:,} members,",
        )

    def _room(self, X: Matrix, r: int, entries: int, n_hyperedges: int) -> float:
        """Return the bytes for gathered columns and the solver of their features."""
        n = X.shape[0]
        strips = 8 * (n + max(n, n_hyperedges)) * strip_width(max(n, n_hyperedges), r)
        # where this process drives others, its libraries are a large part of what it plans with
        libraries = 0 if X.local else engine.IDLE
        return engine.planned_memory() - libraries - strips - HYPEREDGE_BYTES * entries
