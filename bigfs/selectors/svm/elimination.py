"""Recursive feature elimination by linear SVMs [Guyon, Weston, Barnhill, Vapnik, Machine Learning
2002].

A round removes the features of least ‖w_j‖² in the classifiers of `l2svm`, and trains on the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bigfs.constraints import NO_CONSTRAINTS
from bigfs.linalg.active_columns import ActiveColumns
from bigfs.linalg.prox import row_norms
from bigfs.linalg.svm import fit_svm
from bigfs.matrix import Matrix
from bigfs.result import Result, Status, iterate
from bigfs.selectors.base.estimator import Cost, Selector
from bigfs.selectors.base.labels import labeled_part
from bigfs.selectors.base.parameters import COUNT, POSITIVE, SHARE, Allowed
from bigfs.types import FloatArray, IntArray

TIE = 1e-9  # share of the largest weight below which the difference of two weights is rounding


class RFEState(NamedTuple):
    """The features that are left after some rounds, with their classifiers."""

    kept: IntArray  # increasing
    removed: IntArray  # worst first
    W: FloatArray  # kept × r
    b: FloatArray  # (r,)
    objective: float
    gap: float


@dataclass
class RFEProblem:
    """The samples, and one round of the elimination."""

    columns: ActiveColumns
    codes: IntArray
    n_classes: int
    sizes: list[int]  # numbers of features that are left
    svm: dict[str, Any]  # C, tol, max_iter, name and sample_weight of the classifiers
    removed_last: IntArray

    def start(self, features: IntArray) -> RFEState:
        """Train on the features that the elimination starts from, in increasing order."""
        r = 1 if self.n_classes == 2 else self.n_classes
        return self.train(features, features[:0], np.zeros((len(features), r)), np.zeros(r))

    def step(self, state: RFEState) -> RFEState:
        """Remove the features of least weight and train on the others."""
        weights = row_norms(state.W) ** 2
        # a later feature leaves first where weights are equal but for rounding
        weights = np.round(weights / max(weights.max(), np.finfo(float).tiny) / TIE)
        order = np.lexsort((-state.kept, weights, np.isin(state.kept, self.removed_last)))
        n_left = next((size for size in self.sizes if size < len(order)), 1)
        left = np.sort(order[len(order) - n_left :])
        removed = np.append(state.removed, state.kept[order[: len(order) - n_left]])
        return self.train(state.kept[left], removed, state.W[left], state.b)

    def train(self, kept: IntArray, removed: IntArray, W: FloatArray, b: FloatArray) -> RFEState:
        """Return the classifiers on the features `kept`, from the weights W of them."""
        self.columns.select(kept)
        gathered = self.columns.index is not None
        features = None
        if not gathered:
            d = self.columns.X.shape[1]
            features, all_W = np.isin(np.arange(d), kept), np.zeros((d, W.shape[1]))
            all_W[kept], W = W, all_W
        state = fit_svm(
            self.columns.X,
            self.codes,
            self.n_classes,
            start=(W, b),
            features=features,
            **self.svm,
        ).value
        W = state.W if gathered else state.W[kept]
        return RFEState(
            kept, removed, W, state.b, float(state.objective.sum()), float(state.gap.max())
        )


class SVMRFE(Selector):
    """Remove the features of least weight in a linear SVM, train on the others, and repeat.

    It is recursive feature elimination [1]_. Unlabeled samples are left out.

    Parameters
    ----------
    step : int or float, default=0.1
        Number of features to remove per round. A float in (0, 1) is a share of the features that
        are left.
    tol : float, default=1e-4
        Relative duality gap at which the training of a round stops.
    max_iter : int, default=100
        Maximum number of Newton steps per round.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Share of the features that a feature is better than or equal to, in (0, 1]. The last feature
        to be left has 1. A forbidden feature has 0 and does not count.
    %(classes)s
    ranking_ : ndarray of shape (n_features,)
        Rank of each feature, from 1 for the best.
    %(n_rounds)s
    result_ : bigfs.result.Result
        Status and history. Each record of the history has the number of features that are left,
        the objective of their classifiers, and the largest relative duality gap among those. The
        stats have the passes over X.

    See Also
    --------
    L2SVM : The weights of one classifier.
    SparGE : Choose features together, with a bound on what the choice loses.

    Notes
    -----
    A feature's criterion is Σ_k w_jk² over the classifiers of the classes, as in
    `sklearn.feature_selection.RFE` with `LinearSVC`. A round starts from the weights of the last
    one. While the columns that are left do not fit in a quarter of the memory limit, it trains by
    passes over X; then they are gathered, and X is not read again. The rounds continue to one
    feature and do not depend on `n_features_to_select`, so that the best k features are the
    choice of k.

    References
    ----------
    .. [1] I. Guyon, J. Weston, S. Barnhill and V. Vapnik, "Gene selection for cancer classification
       using support vector machines", Machine Learning, 2002.

    Examples
    --------
    %(iris)s
    >>> from bigfs import SVMRFE
    >>> selector = SVMRFE(n_features_to_select=2, step=1).fit(X, y)
    >>> selector.selected_
    array([3, 1])
    >>> selector.ranking_
    array([4, 2, 3, 1])
    """

    step: int | float = 0.1
    C: float = 1.0
    tol: float = 1e-4
    max_iter: int = 100

    _needs_one_scale = True
    _cost = Cost("as l2-svm, then 0", "(12 n + 9 d) c + columns")
    _parameter_constraints: ClassVar[Allowed] = {
        "step": [*COUNT, *SHARE],
        "tol": POSITIVE,
    }

    def _fit(self, X: Matrix, y: Any) -> None:
        X, self.classes_, codes = labeled_part(X, y)
        d = X.shape[1]
        forbidden = self._constraints.forbidden
        informed = X.deviations > 0  # a constant one would take the place of the intercept
        informed[self._constraints.absent] = False
        silent = np.setdiff1d(np.flatnonzero(~informed), forbidden)  # they leave first
        allowed = d - len(forbidden)
        self.result_ = eliminate_by_svm(
            X,
            codes,
            len(self.classes_),
            np.flatnonzero(informed),
            elimination_sizes(allowed, self.step),
            svm={"C": self.C, "tol": self.tol, "max_iter": self.max_iter},
            name=type(self).__name__,
            removed_last=self._constraints.kept,
        )
        state = self.result_.value
        self.n_iter_ = len(self.result_.history)
        order = np.concatenate([forbidden[::-1], silent[::-1], state.removed, state.kept])
        self.ranking_ = np.empty(d, dtype=np.int64)
        self.ranking_[order] = np.arange(d, 0, -1)
        self.scores_ = np.maximum(allowed + 1 - self.ranking_, 0) / allowed


def eliminate_by_svm(
    X: Matrix,
    codes: IntArray,
    n_classes: int,
    features: IntArray,
    sizes: list[int],
    *,
    svm: dict[str, Any],
    name: str,
    removed_last: IntArray = NO_CONSTRAINTS.kept,
) -> Result[RFEState]:
    """Remove features round after round, from those given (increasing) to the last of `sizes`.

    `sizes` are the numbers of features that are left, from all of `features` on. `svm` has the C,
    tol, max_iter and sample_weight of the classifiers. The features `removed_last` stay until no
    others are left.
    """
    first_svm = {**svm, "name": f"{name}, first classifiers"}
    columns = ActiveColumns(X)
    problem = RFEProblem(columns, codes, n_classes, sizes, first_svm, removed_last)
    start = problem.start(features)  # a loop of its own, with checkpoints
    if len(features) > 1 and not start.W.any():
        raise ValueError(
            f"{name} tells no feature from another, because every weight is zero at "
            f"C={svm['C']:g}: weaken the penalty"
        )
    problem.svm["name"] = name
    return iterate(
        problem.step,
        start,
        measure=lambda state: {
            "features": float(len(state.kept)),
            "objective": state.objective,
            "gap": state.gap,
        },
        stop="features",
        tol=sizes[-1],
        max_iter=len(sizes),
        name=name,
        reached=Status.FINISHED,
    )


def elimination_sizes(d: int, step: int | float) -> list[int]:
    """Return the numbers of features that are left after each round, from d to 1.

    They do not depend on the number to choose, which therefore is a prefix of one order.
    """
    sizes = [d]
    while sizes[-1] > 1:
        size = sizes[-1]
        removed = step if isinstance(step, Integral) else max(int(step * size), 1)
        sizes.append(max(size - int(removed), 1))
    return sizes
