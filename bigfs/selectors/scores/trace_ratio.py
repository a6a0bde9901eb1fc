"""Trace ratio criterion [Nie, Xiang, Jia, Zhang, Yan, AAAI 2008], and TRCFS for few labels.

    maximize over sets S of m features   Σ_{j∈S} b_j / Σ_{j∈S} w_j

    fisher       b_j = SSB_j,            w_j = SSW_j
    laplacian    b_j = f̃ᵀDf̃,             w_j = fᵀ(D − A)f

For λ the ratio of the current set, the m largest b_j − λw_j are the next one. Each round raises λ,
and the set that stays the same is a global optimum.

TRCFS [Liu, Nie, Wu, Chen 2013]: the ratio of features that are rescaled to the same total scatter
t_j is largest for the m largest b_j/t_j. Unlabeled samples take their classes from a propagation of
the labels:

    F_u = α D_u⁻¹ (A_uu F_u + A_ul Y_l),    F_l = Y_l
    b_j = Σ_c p_c (m_cj − m_j)²,   t_j = Σ_i q_i (x_ij − m_j)²,   p_c = Σ_i F_ic,  q_i = Σ_c F_ic

m_cj and m_j are the means with the weights F_ic and q_i. 1 − Σ_c F_ic is the share of no
known class.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import cg
from sklearn.utils._param_validation import Interval

from bigfs.constraints import NO_CONSTRAINTS, Constraints
from bigfs.embedding.targets import one_hot
from bigfs.graph.affinities import Weights
from bigfs.linalg.prox import inverse_root
from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import column_blocks, near_sums
from bigfs.result import Record, Result, Status, iterate, warn_early_end
from bigfs.rounding import unless_rounding
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.labels import Labels, at_least_two
from bigfs.selectors.base.parameters import Allowed
from bigfs.selectors.scores.graph import GraphSelector, graph_forms
from bigfs.selectors.scores.sums import between_and_within, class_totals, ratio
from bigfs.types import FloatArray, IntArray

MAX_ROUNDS = 100  # a handful is usual
TOLERANCE = 1e-12  # largest relative change of λ at the end
PROPAGATION_TOLERANCE = 1e-10  # relative residual of the propagated labels


class Set(NamedTuple):
    """A set of features and its trace ratio."""

    features: IntArray  # (m,)
    lam: float  # λ
    change: float  # relative, by the last round


class TraceRatio(GraphSelector):
    """Choose the set of features of the largest ratio of spread between and within.

    The trace ratio criterion [1]_ scores a set of features as a whole, and its optimum is exact.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of neighbors of each sample in the kNN graph, for "laplacian".
    form : {"fisher", "laplacian"}, default="fisher"
        "fisher" takes the spread between and within the classes. "laplacian" is unsupervised, and
        takes the variance over the kNN graph and the differences of neighbors.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        b − λw of each feature, with λ the ratio of the chosen set. Larger is better. They depend on
        m.
    ratio_ : float
        The ratio λ of the chosen set. It is infinite where m features have no spread within.
    result_ : bigfs.result.Result
        Status and history of λ.

    See Also
    --------
    Fisher : The ratio of each feature alone.
    LaplacianScore : The ratio of each feature alone, without classes.
    TRCFS : The criterion for few labels, on features of the same scatter.

    Notes
    -----
    With b and w of each feature, a set S has the ratio::

        λ(S) = Σ_{j∈S} b_j / Σ_{j∈S} w_j

    The m largest b − λw form the next set, until it stays the same. The first
    set has the largest b/w. b and w need one pass over X, and the rounds none. A matrix by
    rows without statistics is read once more for the deviations. The criterion favors
    features of small scale where their ratio is low, so standardize dense measurements.

    References
    ----------
    .. [1] Nie, Xiang, Jia, Zhang and Yan, "Trace ratio criterion for feature selection", AAAI 2008.

    Examples
    --------
    %(iris)s
    >>> from bigfs import TraceRatio
    >>> selector = TraceRatio(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 3])
    >>> round(selector.ratio_, 2)
    15.5
    """

    form: Literal["fisher", "laplacian"] = "fisher"
    weights: Weights = "heat"

    _nested = False  # the ratio of a set weighs the scores

    @property
    def _cost(self) -> Cost:  # type: ignore[override]  # a constant of the other methods
        by_rows = "2"  # the deviations, to see whether the units differ, and the sums by class
        if self.form == "fisher":
            return Cost("0", "d c", by_rows)
        return Cost("graph + 1", "n k + d")

    @property
    def _scores_alone(self) -> bool:  # type: ignore[override]
        return self.form == "fisher"  # a graph would see the constant features

    @property
    def _ignores_y(self) -> bool:  # type: ignore[override]
        return self.form == "laplacian"

    def _fit(self, X: Matrix, y: Any) -> None:
        stats: dict[str, Any] = {}
        if self.form == "fisher":
            y = at_least_two(y)
            parts = [
                between_and_within(totals.sums, totals.squares[:, 0], totals.sizes)
                for block in column_blocks(X, len(y.classes))
                for totals in [class_totals(block, y)]
            ]
            b, w = (np.concatenate(part) for part in zip(*parts, strict=True))
        else:
            graph = self._graph(X, self.weights)
            stats = graph.stats
            forms = graph_forms(X, graph.A, label="trace ratio")
            b, w = forms.spread, forms.fLf
        self.result_ = best_set(b, w, self._count(len(b)), self._constraints)
        self.result_.stats.update(stats)
        self.ratio_ = float(self.result_.value.lam)
        if np.isinf(self.ratio_):
            self.scores_ = np.where(w > 0, -w, b)
        else:
            self.scores_ = b - self.ratio_ * w
        self.scores_[(b == 0) & (w == 0)] = np.nan


def best_set(
    b: FloatArray, w: FloatArray, m: int, constraints: Constraints = NO_CONSTRAINTS
) -> Result[Set]:
    """Return the set of m features of largest Σb/Σw. Features without any spread come last."""
    no_spread = np.flatnonzero((b == 0) & (w == 0))
    constraints = constraints.with_constant(np.union1d(no_spread, constraints.constant))
    by_b = constraints.order(b)[: len(b) - len(constraints.absent)]
    free = by_b[w[by_b] == 0]
    if len(free) >= m and b[free].any() and not w[constraints.kept].any():
        return Result(Set(free[:m], np.inf, 0.0), Status.EXACT)
    first = constraints.order(ratio(b, w))[:m]
    if not w[first].any():  # no feature has any spread between
        return Result(Set(first, 0.0, 0.0), Status.EXACT)

    def step(state: Set) -> Set:
        features = constraints.order(b - state.lam * w)[:m]
        lam = float(b[features].sum() / w[features].sum())
        return Set(features, lam, abs(lam - state.lam) / (abs(lam) or 1.0))

    def measure(state: Set) -> Record:
        return {"ratio": float(state.lam), "change": float(state.change)}

    return iterate(
        step,
        Set(first, float(b[first].sum() / w[first].sum()), np.inf),
        measure=measure,
        stop="change",
        tol=TOLERANCE,
        max_iter=MAX_ROUNDS,
        name="TraceRatio",
    )


class TRCFS(GraphSelector):
    """Score each feature by the share of its scatter that propagated labels explain.

    The noise insensitive trace ratio criterion [1]_ is semi-supervised. Labels spread over the kNN
    graph, so that the unlabeled samples count with a share of each class. An unlabeled sample has
    the class −1.

    Parameters
    ----------
    alpha : float, default=0.99
        Share α of an unlabeled sample's label that comes from its neighbors, between 0 and 1. The
        rest belongs to no known class.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Share of each feature's scatter that the labels explain, between 0 and 1. Larger is better.
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        Share of each class in each sample. A row sums to less than 1 where a share belongs to no
        known class.
    %(classes)s
    result_ : bigfs.result.Result
        Status, and the relative residual of the propagated labels in `stats`.

    See Also
    --------
    TraceRatio : The criterion for labeled or unlabeled samples, without rescaling.
    LSDF : Differences between and within classes and neighborhoods.
    RLSR : Labels of unlabeled samples and features together.

    Notes
    -----
    With the affinity A of the graph, its degrees D, and the labels Y of the labeled samples l, the
    unlabeled samples u take the labels::

        F_u = α D_u⁻¹ (A_uu F_u + A_ul Y_l)

    b and t are the scatter between the classes and the total one with the weights F. Features that
    are rescaled to the same t have the trace ratio Σ b/t up to a monotone function, so the best set
    holds the largest b/t. If all samples are labeled this ranks as `Fisher` does. After the graph,
    one pass over X is made. The labels are solved for by conjugate gradients. The formulas follow a
    description of [1]_ and the propagation of [2]_. A labeled sample keeps its label here.

    References
    ----------
    .. [1] Liu, Nie, Wu and Chen, "Efficient semi-supervised feature selection with noise
       insensitive trace ratio criterion", Neurocomputing 105, 2013.
    .. [2] Nie, Xiang, Liu and Zhang, "A general graph-based semi-supervised learning with novel
       class discovery", Neural Computing and Applications 19, 2010.

    Examples
    --------
    >>> import numpy as np
    %(iris)s
    >>> from bigfs import TRCFS
    >>> few = np.where(np.arange(150) % 10, -1, y)
    >>> TRCFS(n_features_to_select=2, metric="euclidean").fit(X, few).selected_
    array([2, 3])
    """

    alpha: float = 0.99
    weights: Weights = "heat"

    _cost = Cost("graph + 1", "n (k + c) + d c")
    _parameter_constraints: ClassVar[Allowed] = {"alpha": [Interval(Real, 0, 1, closed="left")]}
    _semi_supervised = True

    def _fit(self, X: Matrix, y: Labels) -> None:
        self.classes_, codes = at_least_two(y)
        F, status, stats = one_hot(codes, len(self.classes_)), Status.EXACT, {"residual": 0.0}
        if not y.all_labeled:
            graph = self._graph(X, self.weights)
            F, residual = propagate(graph.A, F, y, self.alpha)
            too_large = residual > 10 * PROPAGATION_TOLERANCE
            status = Status.MAX_ITER if too_large else graph.status
            stats = {"residual": residual} | graph.stats
        blocks = column_blocks(X, len(self.classes_))
        self.scores_ = np.concatenate([_explained(block, F) for block in blocks])
        self.label_distributions_ = F
        self.result_ = Result(self.scores_, status, stats=stats)


def _explained(X: Matrix, F: FloatArray) -> FloatArray:
    """Return the share of the variance of each column that its means in the classes explain."""
    sums, _ = near_sums(X, F, F.sum(axis=1)[:, None], slice(None))
    sums, squares, sizes = sums[:, :-1], sums[:, -1], F.sum(axis=0)
    between, _ = between_and_within(sums, squares, sizes)
    total = unless_rounding(squares - sums.sum(axis=1) ** 2 / sizes.sum(), squares)
    return np.minimum(ratio(between, total), 1)


def propagate(A: sp.csr_array, Y: FloatArray, y: Labels, alpha: float) -> tuple[FloatArray, float]:
    """Return the label distributions F (n × c), and the largest relative residual.

    F_u = D_u^-½ Z with (I − α D_u^-½ A_uu D_u^-½) Z = α D_u^-½ A_ul Y_l, which is symmetric and
    positive definite.
    """
    degree = np.asarray(A.sum(axis=1)).ravel()
    root = inverse_root(degree)
    u = ~y.is_labeled
    S = sp.csr_array(sp.diags_array(root[u]) @ A[u][:, u] @ sp.diags_array(root[u]))
    system = sp.csr_array(sp.eye_array(S.shape[0]) - alpha * S)
    right = alpha * root[u][:, None] * (A[u][:, ~u] @ Y[~u])  # |u| × c
    F, largest = Y.copy(), 0.0
    for c in range(Y.shape[1]):
        z, _ = cg(system, right[:, c], rtol=PROPAGATION_TOLERANCE)
        norm = float(np.linalg.norm(right[:, c])) or 1.0
        largest = max(largest, float(np.linalg.norm(system @ z - right[:, c])) / norm)
        F[u, c] = root[u] * z
    if largest > 10 * PROPAGATION_TOLERANCE:
        warn_early_end(
            f"the propagated labels have a relative residual of {largest:.1e}: lower alpha"
        )
    return np.maximum(F, 0), largest
