"""The method that suits the target, chosen by folds of the training samples where several do.

The rule is in `evaluation.choosing`. The first candidate is the cheapest, and no other is
known to be better on most data. They are few: of many candidates the folds choose worse.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from bigfs import engine
from bigfs.evaluation.choosing import (
    Order,
    Scores,
    first_within_one_error,
    record,
    score_orders,
)
from bigfs.evaluation.metrics import METRIC_NAMES, require_metrics
from bigfs.evaluation.splits import (
    Samples,
    Split,
    most_folds,
    stratified_folds,
    target_kind,
    testable_rows,
    varies,
)
from bigfs.matrix import Matrix
from bigfs.matrix.statistics import standardize
from bigfs.result import scope
from bigfs.selectors.base.chooser import Chooser, Target
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.labels import Labels, any_target, at_least_two
from bigfs.selectors.base.parameters import Allowed
from bigfs.selectors.registry import METHODS
from bigfs.selectors.sparge.targets import LARGE_GATHERED, LARGE_TARGETS, gathered_bytes
from bigfs.selectors.trials import trials
from bigfs.settings import Setting
from bigfs.types import AnyArray, BoolArray, IntArray

FEW = 0.5  # share of labeled samples below which the unlabeled ones are asked too
# multiplications of an exact neighbor graph from which none is made: a minute or two on two cores
LARGE_GRAPH = Setting(5e10)


class Candidate(NamedTuple):
    """A method with the parameters that tell it apart."""

    method: str  # of the registry
    parameters: Mapping[str, Any]

    def make(self, **shared: Any) -> Any:
        """Return the estimator, with the parameters that all candidates share if it has them."""
        selector = METHODS[self.method].make(**self.parameters)
        known = selector.get_params()
        return selector.set_params(**{k: v for k, v in shared.items() if k in known})


SCALES = {
    "standard": "on standardized columns, because their units differ",
    "none": "on the columns as they are, although their units differ",
}

# By the target, in the order in which they are preferred. On 33 sets folds chose no better among
# losses and rankings for classes (docs/measured/choosing.md).
CANDIDATES = {
    "class": (Candidate("sparge-lda", {}),),
    "few": (Candidate("sparge-lda", {}), Candidate("sparge-sda", {})),
    "multilabel": (Candidate("sparge-cca", {}), Candidate("sparge-hsl", {})),
    "real": (Candidate("sparge-cca", {}), Candidate("mrmr-f", {})),
    "multioutput": (Candidate("sparge-cca", {}),),
    "none": (Candidate("sparge-lpp", {}),),
}


class AutoSelector(Chooser):
    """Choose features by the method that suits the target, decided by folds where several do.

    A short list of methods belongs to each kind of target. Where it has several, a linear model on
    what each of them chooses without a fold's samples predicts these. The method is the first whose
    mean score is within one standard error of the best. It is the error of the difference of the
    two on the same folds.

    ==================================  =====================================================
    target                              candidates, in their order
    ==================================  =====================================================
    a class for every sample, or most   `SparGE`
    a class for fewer than half         `SparGE` on the labeled samples, and with the embedding
                                        "sda" on all and their neighbor graph
    several labels per sample           `SparGE` with the embeddings "cca" and "hsl"
    real values                         `SparGE` with the embedding "cca", `MRMR` with "f"
    none                                `SparGE` with the embedding "lpp"
    ==================================  =====================================================

    Where the columns of a table differ in scale, each candidate is tried on standardized columns
    first, and on the columns as they are. `best_params_` then has the "scale" as well.

    The first is taken without folds where the embedding of the samples takes more than 32 MB (8
    bytes per sample and class), the columns that it gathers more than 256 MB, or an exact neighbor
    graph more than 5·10¹⁰ multiplications (samples times non-zeros), and where no folds can be
    made.

    Parameters
    ----------
    target : {"auto", "classes", "real"}, default="auto"
        Kind of a y with one value per sample. "auto" takes fractions for real, and whole numbers or
        strings for classes. Say "real" for ages, counts and prices.
    scoring : str or None, default=None
        Score that decides: "accuracy", "balanced_accuracy", "micro_f1", "macro_f1", "auc" or
        "neg_log_loss" for classes, "micro_f1" or "macro_f1" for label sets, "r2" for real targets.
        None takes the first of these.
    cv : int, default=3
        Number of folds, shuffled with a fixed seed and stratified where y holds classes. Fewer are
        made where fewer have test samples.

    Attributes
    ----------
    method_ : str
        The chosen method, by its name on the command line.
    scoring_ : str or None
        The score that decided, None without a target.
    best_params_ : dict
        Its parameters that tell it apart from the other candidates.
    selector_ : Selector
        The chosen selector, fitted on all samples.
    reason_ : str
        Why it was chosen, in a sentence.
    cv_results_ : dict
        The candidates, "method" and "params", with "mean_test_score", "std_test_score" and
        "split0_test_score", …, as in `sklearn.model_selection.GridSearchCV`, and the "seconds" that
        each one took to choose in all folds. "failures" says why a candidate could not choose in a
        fold, "" where it could. Such a candidate is out. Without folds it holds the method alone.
    best_index_ : int
        Position of the chosen candidate.
    scores_ : ndarray of shape (n_features,)
        Scores of the chosen selector.
    result_ : bigfs.result.Result
        Status and history of the chosen selector.

    See Also
    --------
    SparGECV : SparGE alone, with loss and ranking, or its penalty, chosen by cross-validation.
    SelectorCV : Choose the number of features.

    Notes
    -----
    The scores in `cv_results_` choose the method, so the best of them is a little optimistic. The
    score on samples that `fit` did not see is honest. The candidates are fitted in each of the
    folds, and the chosen one once more.

    For classes in one unit nothing is decided. On 33 sets folds that chose among losses and
    rankings, which `SparGECV` tries, were level with the default at 20 to 200 features, for 7 to 40
    of its fits. On 31 sets γ and scores of one feature at a time were no better either.

    References
    ----------
    .. [1] L. Breiman, J. H. Friedman, R. A. Olshen and C. J. Stone, "Classification and Regression
       Trees", Wadsworth, 1984, section 3.4.3.

    Examples
    --------
    %(iris)s
    >>> from bigfs import AutoSelector
    >>> selector = AutoSelector(n_features_to_select=2).fit(X, y)
    >>> selector.method_, selector.best_params_
    ('sparge-lda', {})
    >>> selector.selected_
    array([2, 1])
    >>> selector.reason_
    'the only candidate for classes, because folds choose no better one'
    """

    target: str = "auto"
    scoring: str | None = None
    cv: int = 3

    _parameter_constraints: ClassVar[Allowed] = {
        "scoring": [StrOptions(set(METRIC_NAMES))],
        "cv": [Interval(Integral, 2, None, closed="left")],
    }
    _supervised = False
    _semi_supervised = True
    _takes_real = True
    _needs_one_scale = True
    _cost = Cost("as its candidates, in folds and once", "folds (n + d) r + columns")

    def _fit_sizes(self, X: Matrix, target: Target, sizes: Sequence[int]) -> dict[int, Any]:
        """Choose the method and the scale of the columns, and fit each number of features."""
        case, codes = _case_of(target.y)
        shared = {"keep": self.keep, "forbid": self.forbid, "n_features_to_select": max(sizes)}
        if case == "real":
            shared["target"] = "real"
        metric = None
        if codes is not None:
            wanted = [] if self.scoring is None else [self.scoring]
            (metric, *_) = require_metrics(target_kind(codes), wanted)
        self.scoring_ = metric
        first, candidates = standardize(X), CANDIDATES[case]
        forms = {"none": X} if first is None else {"standard": first, "none": X}
        tried = [(scale, one) for scale in forms for one in candidates]
        why = self._why_first(X, case, codes, max(sizes), target.samples, len(tried))
        tried = tried if why is None else tried[:1]
        scores, best = np.empty((len(tried), 0)), 0
        results: dict[str, Any] = {
            "method": [one.method for _, one in tried],
            "params": [
                {**one.parameters, **({} if first is None else {"scale": scale})}
                for scale, one in tried
            ],
            "seconds": np.zeros(len(tried)),
            "failures": [""] * len(tried),
        }
        if why is None:
            assert metric is not None
            selectors = [one.make(**shared) for one in candidates]
            found = [
                self._score(form, target, selectors, sizes, metric, scale)
                for scale, form in forms.items()
            ]
            scores = np.concatenate([one.values.mean(axis=1) for one in found])
            best = first_within_one_error(scores)
            results["seconds"] = np.concatenate([one.seconds for one in found])
            results["failures"] = [
                one.failures.get(k, "") for one in found for k in range(len(candidates))
            ]
            why = (
                f"the first of {len(tried)} candidates within one standard error of the best "
                f"{METRIC_NAMES[metric]} in {scores.shape[1]} folds of the training samples"
            )
        scale, chosen = tried[best]
        self.reason_ = why if first is None else f"{why}, {SCALES[scale]}"
        self.method_, self.best_index_ = chosen.method, best
        self.best_params_ = dict(results["params"][best])
        self.cv_results_: dict[str, Any] = record(scores, results)
        of_all = target._replace(y=None) if codes is None else target
        with scope(chosen.method):
            return of_all.fit_sizes(chosen.make(**shared), forms[scale], sizes)

    def _why_first(
        self, X: Matrix, case: str, codes: Any, m: int, samples: Samples, n_candidates: int
    ) -> str | None:
        """Return why the first candidate is taken without folds, or None where folds decide.

        It follows from the shapes alone, so that memory does not change the choice.
        """
        if case == "none":
            return "the only candidate, because no sample has a label to decide by"
        if n_candidates == 1 and case == "multioutput":
            return "the only candidate for several real targets"
        if n_candidates == 1:
            return "the only candidate for classes, because folds choose no better one"
        n, r = X.shape[0], _width(codes)
        gathered = gathered_bytes(X, m)
        costs = {
            f"the embedding of the samples takes {engine.format_bytes(8 * n * r)}": (
                8 * n * r > LARGE_TARGETS.value
            ),
            f"the columns of each fold take {engine.format_bytes(gathered)}": (
                gathered > LARGE_GATHERED.value
            ),
            f"the neighbor graph of {n:,} samples takes long": (
                case == "few" and n * X.nnz > LARGE_GRAPH.value
            ),
        }
        if costly := next((why for why, holds in costs.items() if holds), None):
            return f"the first candidate, without folds, because {costly}"
        is_testable = varies(codes, testable_rows(codes, samples.groups))
        if not is_testable or most_folds(codes, samples) < 2:
            return "the first candidate, because too few samples have a label for two folds"
        return None

    def _score(
        self,
        X: Matrix,
        target: Target,
        selectors: Sequence[Any],
        sizes: Sequence[int],
        metric: str,
        scale: str,
    ) -> Scores:
        """Return the scores of the candidates in folds of the columns at a scale."""

        def order_by(k: int) -> Order:
            def order(number: int, split: Split) -> IntArray:
                with scope(f"fold {number} of candidate {k}, scale {scale}"):
                    one = target.take(split.train).fit(clone(selectors[k]), split.X_train)
                best_first: IntArray = one.selected_
                return best_first

            return order

        n_folds = min(self.cv, most_folds(target.values, target.samples))
        folds = stratified_folds(X, target.values, n_folds, samples=target.samples)
        orders = [order_by(k) for k in range(len(selectors))]
        return score_orders(orders, folds, sizes, metric, label="folds for the method")

    def _adopt(self, chosen: Any) -> None:
        self.selector_, self.scores_, self.result_ = chosen, chosen.scores_, chosen.result_

    def _choose(self) -> Self:
        """Take the features of the chosen selector."""
        self.selected_ = self.selector_.selected_[: self._required_count(len(self.scores_))]
        self.support_: BoolArray = np.zeros(len(self.scores_), dtype=bool)
        self.support_[self.selected_] = True
        return self

    def _facts(self) -> dict[str, Any]:
        tried = trials(self)
        choice = {"method": tried[self.best_index_].candidate, "why": self.reason_}
        if len(tried) > 1:
            choice["tried"] = "; ".join(map(str, tried))
        return choice | super()._facts()

    def _as_matrix(self, X: Any, y: Any) -> tuple[Matrix, Any]:
        """Return the input, and warn where −1 of an array may be a class that is lost."""
        matrix, target = super()._as_matrix(X, y)
        is_given = not isinstance(X, Matrix) and not isinstance(y, Labels)
        if is_given and isinstance(target, Labels) and not target.all_labeled:
            warnings.warn(
                f"{int(np.sum(~target.is_labeled)):,} of {matrix.shape[0]:,} samples have the "
                "label -1 and are taken as unlabeled: if -1 is a class, give it another name",
                stacklevel=2,
            )
        return matrix, target

    def _check_y(self, y: Any, has_unlabeled: bool) -> Any:
        return any_target(y, self.target, has_unlabeled)


# --- the target -----------------------------------------------------------------------------------


def _case_of(y: Any) -> tuple[str, Any]:
    """Return the key of the candidates for a target, and the target as arrays."""
    if y is None:
        return "none", None
    if not isinstance(y, Labels):
        return target_kind(y), y
    share = float(np.mean(y.is_labeled))
    if not share:
        return "none", None
    return ("few" if share < FEW else "class"), at_least_two(y).codes


def _width(codes: AnyArray) -> int:
    """Return the number of columns of a target."""
    if codes.ndim == 2:
        return int(codes.shape[1])
    return 1 if target_kind(codes) == "real" else int(codes.max())
