"""Trace ratio criterion [Nie, Xiang, Jia, Zhang, Yan, AAAI 2008].

    maximize over sets S of m features   Σ_{j∈S} b_j / Σ_{j∈S} w_j

    fisher       b_j = SSB_j,            w_j = SSW_j
    laplacian    b_j = f̃ᵀDf̃,             w_j = fᵀ(D − A)f

For λ the ratio of the current set, the m largest b_j − λw_j are the next one. Each round raises λ,
and the set that stays the same is a global optimum.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from sklearn.utils._param_validation import StrOptions

from bigfs.constraints import NO_CONSTRAINTS, Constraints
from bigfs.graph import Weights
from bigfs.matrix import Matrix
from bigfs.result import Record, Result, Status, iterate
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.labels import at_least_two
from bigfs.selectors.scores.graph_forms import GraphSelector, graph_forms
from bigfs.selectors.scores.sums import between_and_within, class_totals, ratio
from bigfs.types import FloatArray, IntArray

MAX_ROUNDS = 100  # a handful is usual
TOLERANCE = 1e-12  # largest relative change of λ at the end


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
    %(select)s
    n_neighbors : int, default=5
        Number of neighbors of each sample in the kNN graph, for "laplacian".
    %(metric)s
    %(graph)s
    form : {"fisher", "laplacian"}, default="fisher"
        "fisher" takes the spread between and within the classes. "laplacian" is unsupervised, and
        takes the variance over the kNN graph and the differences of neighbors.
    %(weights)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        b − λw of each feature, with λ the ratio of the chosen set. Larger is better. They depend on
        m.
    ratio_ : float
        The ratio λ of the chosen set. It is infinite where m features have no spread within.
    %(selected)s
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
    set has the largest b/w. b and w need one pass over X, and the rounds none. The criterion favors
    features of small scale where their ratio is low, so standardize dense measurements.

    References
    ----------
    .. [1] Nie, Xiang, Jia, Zhang and Yan, "Trace ratio criterion for feature selection", AAAI 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import TraceRatio
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = TraceRatio(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 3])
    >>> round(selector.ratio_, 2)
    15.5
    """

    form: Literal["fisher", "laplacian"] = "fisher"
    weights: Weights = "heat"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "form": [StrOptions({"fisher", "laplacian"})],
    }

    _nested = False  # the ratio of a set weighs the scores

    @property
    def _cost(self) -> Cost:  # type: ignore[override]  # a constant of the other methods
        return Cost("0", "d c") if self.form == "fisher" else Cost("graph + 1", "n k + d")

    @property
    def _supervised(self) -> bool:  # type: ignore[override]  # a constant of the other methods
        return self.form == "fisher"

    @property
    def _ignores_y(self) -> bool:  # type: ignore[override]
        return self.form == "laplacian"

    def _fit(self, X: Matrix, y: Any) -> None:
        stats: dict[str, Any] = {}
        if self.form == "fisher":
            totals = class_totals(X, at_least_two(y))
            b, w = between_and_within(totals.sums, totals.squares[:, 0], totals.sizes)
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


def best_set(
    b: FloatArray, w: FloatArray, m: int, constraints: Constraints = NO_CONSTRAINTS
) -> Result[Set]:
    """Return the set of m features of largest Σb/Σw."""
    by_b = constraints.order(b)
    free = by_b[w[by_b] == 0]
    if len(free) >= m and b[free].any() and not w[constraints.kept].any():
        return Result(Set(free[:m], np.inf, 0.0), Status.EXACT)
    first = constraints.order(ratio(b, w))[:m]
    if not w[first].any():  # no feature has any spread between
        return Result(Set(first, 0.0, 0.0), Status.EXACT)

    def step(state: Set) -> Set:
        features = constraints.order(b - state.lam * w)[:m]
        if not w[features].any():  # constant features, as good as the set before
            return state._replace(change=0.0)
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
