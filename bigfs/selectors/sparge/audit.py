"""A certificate for any list of features, whoever chose it.

    J(P) = ½‖T‖² − ½ tr(B_Pᵀ (G_PP + γI)⁻¹ B_P)

is SparGE's objective of a list P of m features [eq. 6]. The lower bound L of the relaxation holds
for every set of m features, so none is better than P by more than (J(P) − L)/J(P). SparGE's
own m features have the objective U after exchanges. Where U < J(P), P is worse than the best by
(J(P) − U)/J(P) at least. Where all lists nearly as good as the best are asked for, both are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone

from bigfs import engine
from bigfs.cards import brief
from bigfs.constraints import NO_CONSTRAINTS, indices_of
from bigfs.cutting_plane.exchanges import Exchanges
from bigfs.cutting_plane.relaxation import Relaxation
from bigfs.cutting_plane.tree import search_exactly
from bigfs.evaluation.quality import redundancy_rate
from bigfs.matrix import Matrix
from bigfs.result import Status
from bigfs.selectors.sparge.sparge import ROOT_TOL, SparGE
from bigfs.types import FloatArray, IntArray

EXCHANGES = 5  # that are named
ROUNDING = 1e-9  # a share below it is not claimed


@dataclass(frozen=True)
class NamedExchange:
    """One feature of a list for one that is not in it."""

    leaves: int
    enters: int
    gain: float  # share of the list's objective that it saves


@dataclass(frozen=True)
class AuditedList:
    """The certificate of a list of features."""

    __repr__ = brief

    features: IntArray  # (m,), in increasing order
    objective: float  # J
    most_better: float  # no set of m features has an objective lower by more than this share
    least_worse: float  # some set of m features has an objective lower by this share
    redundancy: float  # mean |correlation| of two of its features
    exchanges: tuple[NamedExchange, ...]  # those that help most, each of other features


@dataclass(frozen=True)
class Alternatives:
    """The lists of m features whose objective is near the best one, best first."""

    __repr__ = brief

    lists: IntArray  # L × m: each in increasing order
    objectives: FloatArray  # (L,)
    n_undecided: int  # features that the bound of the relaxation leaves undecided
    is_complete: bool  # whether these are all of them

    @property
    def always(self) -> IntArray:
        """The features that are in every list, increasing."""
        features, counts = np.unique(self.lists, return_counts=True)
        return features[counts == len(self.lists)]

    @property
    def exchanges(self) -> tuple[NamedExchange, ...]:
        """The features of the best list that another may stand for, the cheapest exchange first.

        The gain of each is what it adds to the objective, as a negative share.
        """
        best, result = self.lists[0], []
        for one, J in zip(self.lists, self.objectives, strict=True):
            leaves, enters = np.setdiff1d(best, one), np.setdiff1d(one, best)
            if len(leaves) == 1:
                gain = 1 - float(J) / float(self.objectives[0])
                result.append(NamedExchange(int(leaves[0]), int(enters[0]), gain))
        return tuple(result)

    def __str__(self) -> str:
        """The counts of the lists and of the features that are in all."""
        n, m = self.lists.shape
        some = "" if self.is_complete else " or more"
        lists = "1 list is" if n == 1 else f"{n:,}{some} lists are"
        return f"{lists} as good; {len(self.always):,} of {m:,} features are in all of these"


@dataclass(frozen=True)
class Audit:
    """The audited lists, and SparGE's own choices of the same sizes."""

    __repr__ = brief

    lists: dict[str, AuditedList]
    best: dict[int, SparGE]  # by the number of features
    alternatives: dict[int, Alternatives] = field(default_factory=dict)  # by that number

    def __str__(self) -> str:
        """A table of the lists."""
        width = max(len("list"), *map(len, self.lists))
        lines = [f"{'list':{width}}  features  at most better  at least worse  redundancy"]
        lines += [
            f"{name:{width}}  {len(one.features):8,}  {one.most_better:14.2%}  "
            f"{one.least_worse:14.2%}  {one.redundancy:10.3f}"
            for name, one in self.lists.items()
        ]
        lines += [f"{m:,} features: {found}" for m, found in self.alternatives.items()]
        return "\n".join(lines)


@engine.session()
def audit(
    X: Any,
    y: Any,
    lists: Mapping[str, Sequence[int] | Sequence[str] | IntArray],
    *,
    estimator: SparGE | None = None,
    alternatives: float | None = None,
) -> Audit:
    """Certify lists of features that anybody chose, by SparGE's objective.

    Parameters
    ----------
    X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
        Samples, as in `SparGE.fit`.
    y : array-like of shape (n_samples,) or (n_samples, n_targets), or None
        Labels or targets, as in `SparGE.fit`.
    lists : mapping of str to array-like of int or str
        Lists of features by the name of each, as indices or as names. They may differ in length.
    estimator : SparGE, default=None
        What the objective is: the embedding and `gamma`, with `loss="squared"`. It is not fitted
        itself. None takes `SparGE()`.
    alternatives : float or None, default=None
        Share of the best objective up to which a list counts as nearly as good as the best. All
        such lists are searched for, 10,000 at most, in the `max_nodes` and `max_seconds` of the
        estimator. None searches for none.

    Returns
    -------
    Audit
        For each list its objective, how much better a list of its length can be at most, how much
        better one is that SparGE found, its redundancy, and the exchanges that would help most. Its
        `alternatives` hold, by the number of features, the lists nearly as good as the best.

    Raises
    ------
    ValueError
        A list is empty, names a feature twice or one that is not there, or the estimator has
        another loss, ``ranking="svm"``, or kept or forbidden features.
    MemoryLimitError
        The products of the lists' columns do not fit in this process.

    See Also
    --------
    SparGE : Choose features by this objective.
    stability : How often each feature is chosen from subsamples.

    Notes
    -----
    It costs as many passes over X as `SparGE.fit_path` with the lists' lengths, and the columns of
    the lists. The certificate says how well the features explain the embedding together, on these
    samples. It does not say how well a model predicts others.

    Examples
    --------
    >>> import bigfs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> found = bigfs.audit(X, y, {"petals": [2, 3], "sepals": [0, 1]})
    >>> found.lists["petals"].most_better < found.lists["sepals"].least_worse
    True
    """
    selector = SparGE() if estimator is None else clone(estimator)
    if not isinstance(selector, SparGE):
        raise ValueError(f"estimator must be a SparGE; got {selector!r}: give what it chose")
    constrained = selector.keep is not None or selector.forbid is not None
    if selector.loss != "squared" or selector.ranking == "svm" or constrained:
        raise ValueError(
            "an audit needs a SparGE with loss='squared', another ranking than 'svm', and without "
            "keep and forbid, because its bound has to hold for every set of the list's length; "
            f"got {selector!r}"
        )
    if not isinstance(lists, Mapping) or not lists:
        raise ValueError("lists holds no list: give a dict such as {'mine': [3, 14, 15]}")
    matrix = X if isinstance(X, Matrix) else selector._as_matrix(X, y)[0]
    features = {name: _features(name, given, matrix) for name, given in lists.items()}
    sizes = [len(index) for index in features.values()]
    if alternatives is not None:
        if not 0 < alternatives < 1:
            raise ValueError(f"alternatives must be a share between 0 and 1; got {alternatives}")
        selector.set_params(tol=min(selector.tol, ROOT_TOL))
    best, problems = selector._solve_path(X, y, sizes)
    least = {m: _least_found(best[m], problem) for m, problem in problems.items()}
    lower = {m: max(one.result_.value.lower, _proven(one)) for m, one in best.items()}
    near = {}
    for m, problem in problems.items():
        if alternatives is None:
            break
        exact = search_exactly(
            problem,
            best[m].result_.value,
            best[m].selected_,
            alternatives,
            selector.max_nodes,
            selector.max_seconds,
            f"the search for lists of {m} features",
        )
        is_complete = exact.status is Status.CONVERGED
        near[m] = Alternatives(exact.lists, exact.objectives, exact.n_undecided, is_complete)
        least[m] = min(least[m], float(exact.objectives[0]))
        lower[m] = least[m] if is_complete else lower[m]
    audited = {}
    for name, index in features.items():
        m = len(index)
        audited[name] = _audited(index, best[m], problems[m], least[m], lower[m])
    return Audit(audited, best, near)


def _features(name: str, given: Any, X: Matrix) -> IntArray:
    """Return the indices of a list, increasing."""
    index = indices_of(given, f"the list {name!r}", X.shape[1], X.feature_names)
    if not len(index):
        raise ValueError(f"the list {name!r} is empty")
    if len(index) < len(given):
        raise ValueError(f"the list {name!r} names a feature twice")
    return index


def _least_found(best: SparGE, problem: Relaxation) -> float:
    """Return the objective of SparGE's m features after exchanges."""
    found = best.result_.stats.get("objective")  # with ranking="elimination"
    if found is None:
        found = problem.eliminate_to_m(best.result_.value)[1].objectives[problem.m]
    return float(found)


def _proven(best: SparGE) -> float:
    """Return the bound that the search for the best set has proven."""
    stats = best.result_.stats
    return float(stats["objective"] * (1 - stats["objective_gap"])) if "nodes" in stats else 0.0


def _audited(
    features: IntArray, best: SparGE, problem: Relaxation, least: float, lower: float
) -> AuditedList:
    """Return what a lower bound and the least objective of its size say about a list."""
    data = problem.data
    data.add(features)
    union = np.union1d(np.flatnonzero(best.scores_), features)  # SparGE's candidates
    G, B = data.gram(union)
    inside = np.searchsorted(union, features)
    exchanges = Exchanges(G, B, problem.gamma, inside, NO_CONSTRAINTS.kept)
    objective = exchanges.objective(data.T_norm2)
    worse = (objective - least) / objective
    return AuditedList(
        features=features,
        objective=objective,
        most_better=max(objective - lower, 0.0) / objective,
        least_worse=worse if worse > ROUNDING else 0.0,
        redundancy=redundancy_rate(data.X, features),
        exchanges=tuple(_most_helpful(exchanges, union, objective)),
    )


def _most_helpful(
    exchanges: Exchanges, union: IntArray, objective: float
) -> Iterator[NamedExchange]:
    """Yield the exchanges that lower the objective most, each of other features."""
    if not len(exchanges.outside):
        return
    changes = exchanges.changes()
    for _ in range(EXCHANGES):
        j, i = np.unravel_index(np.argmin(changes), changes.shape)
        gain = -float(changes[j, i]) / objective
        if gain <= ROUNDING:
            return
        leaves, enters = exchanges.inside[i], exchanges.outside[j]
        yield NamedExchange(int(union[leaves]), int(union[enters]), gain)
        changes[j], changes[:, i] = np.inf, np.inf
