"""SparGE with its loss and ranking, or its γ, chosen by cross-validation.

    loss(γ) = mean over folds of  min_γ' ‖T_out − 1b − (X_out − 1μᵀ) W‖² / ‖T_out − 1b‖²

With the squared hinge loss, that loss takes the place of the squared norms.

SparGE chooses m features at γ without the fold's samples. W is a ridge on them, with whichever
penalty γ' of the grid serves it best, so that the choice of features is scored and not the
shrinkage. μ and b are the means of X and T over the training samples.

A fold is a weight of 0 or 1 per sample (ω of `cutting_plane.columns`). The whole grid is solved
jointly: a pass over X serves every γ and every fold. Where the products of the gathered columns of
all folds are large, each γ and fold is solved by itself, from the largest γ on.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import StrOptions

from bigfs.cutting_plane.columns import Columns, GatheredColumns
from bigfs.evaluation.choosing import (
    Order,
    differences_to_best,
    first_within_one_error,
    record,
    score_orders,
)
from bigfs.evaluation.metrics import METRICS
from bigfs.evaluation.splits import fold_rows, split_at, varies
from bigfs.matrix import Matrix
from bigfs.matrix.gathering import hold_if_small
from bigfs.selectors.base.chooser import Chooser, Target, copies
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.labels import UNLABELED, Labels
from bigfs.selectors.base.parameters import Allowed
from bigfs.selectors.sparge.fold_scores import (
    Fold,
    FoldChoice,
    choose_in_folds,
    held_out_loss,
)
from bigfs.selectors.sparge.sparge import SparGE
from bigfs.selectors.sparge.targets import EmbeddingTarget, regression
from bigfs.settings import Setting
from bigfs.types import AnyArray, FloatArray, IntArray

FOLD_SETS = 10  # sets of m features that the penalties of a fold are taken to gather
# bytes of the products of all folds from which one is solved at a time
LARGE_FOLDS = Setting(256 << 20)
OWN = ("gammas", "cv", "scoring")  # parameters that SparGE does not have
# The candidates for classes where the caller names none. Of the first it is known that no other is
# better on most data, so another is chosen only where the folds say so by a standard error.
SHORT_LIST: tuple[dict[str, Any], ...] = (
    {"loss": "squared", "ranking": "elimination"},
    {"loss": "squared_hinge", "ranking": "elimination"},
    {"loss": "squared", "ranking": "svm"},
)
GAMMAS = (0.1, 0.3, 1.0, 3.0)  # that are tried for other embeddings


class EndOfGridWarning(UserWarning):
    """Warning that the best penalty is at an end of the grid, so that one outside may be better."""


class SparGECV(EmbeddingTarget, Chooser):
    """Choose the features of `SparGE`, with loss and ranking, or γ, chosen by cross-validation.

    For classes, and unless something else is asked for, three candidates are tried at γ = 1: the
    squared loss, the squared hinge loss, and the squared loss with the ranking of a linear SVM. The
    first is taken that is within one standard error of the best, by the score of a linear SVM on
    the features chosen without the held-out samples. It is the error of the difference of the
    two.

    With `gammas`, and for other embeddings, γ is chosen by the held-out loss. The loss of a γ is
    the share of the held-out embedding that a ridge on the m features chosen without the held-out
    samples leaves unexplained. The ridge has the best penalty of the grid, so the choice of
    features is scored and not the shrinkage.

    All γ and folds share the passes over X, until about 300 features. From there on each is solved
    by itself, so that the products of one are held. A small γ then takes most of the time, so the
    search goes from the largest γ to the smallest. It ends with the first γ that is worse than a
    larger one by more than a standard error.

    Parameters
    ----------
    %(sparge_keep)s
    %(sparge_targets)s
    %(sparge_graph)s
    %(sparge_cuts)s
    gammas : array-like of float or None, default=None
        Penalties to try, in the units of the gamma of `SparGE`. None takes 1 for "lda", and the
        three candidates where `loss` and `ranking` are not set. For other
        embeddings it takes 0.1, 0.3, 1 and 3.
    cv : int, cross-validation generator or iterable, default=3
        Number of folds, shuffled with a fixed seed and stratified where y holds classes, or what
        else `sklearn.model_selection.check_cv` takes.
    scoring : str or None, default=None
        What decides, for "lda": "accuracy", "balanced_accuracy", "micro_f1", "macro_f1" or "auc"
        of a linear SVM on the chosen columns, or "neg_log_loss" of a logistic regression. None
        takes the held-out loss where `gammas`, `loss` or `ranking` are given, and "accuracy"
        otherwise.

    Attributes
    ----------
    gamma_ : float
        The chosen γ: the largest that is within one standard error of the best, because a larger γ
        is cheaper. It is 1 among the three candidates.
    losses_ : ndarray of shape (n_gammas, n_folds)
        Share of the held-out embedding that the chosen features leave unexplained. NaN where a γ
        was not tried, and absent where a score decides.
    best_params_ : dict
        The chosen "loss", "ranking" and "gamma".
    best_score_ : float
        Their mean score over the folds. Without `scoring` a score is minus the loss.
    cv_results_ : dict
        The candidates ("params") with "mean_test_score", "std_test_score" and
        "split0_test_score", …, as in `sklearn.model_selection.GridSearchCV`. Where a score decides,
        "seconds" are those that each candidate took to choose in all folds.
    %(sparge_scores)s
    %(sparge_fitted)s

    See Also
    --------
    SparGE : The same method with a fixed loss, ranking and gamma.

    Notes
    -----
    A warning (`EndOfGridWarning`) says when the best of three or more γ is the least or the
    largest. The unit of γ is the variance of all features together, so standardized data with few
    samples ask for a grid that reaches down to about 1/d, such as ``10.0 ** np.arange(-4, 2)``.

    T embeds all samples of `fit`. The grid costs the passes of its slowest
    member, and the fit at the chosen γ costs its own.

    References
    ----------
    .. [1] M. Chen, I. W. Tsang, M. Tan and T.-J. Cham, "A unified feature selection framework for
       graph embedding on high dimensional data", IEEE Transactions on Knowledge and Data
       Engineering, 2015.

    Examples
    --------
    %(iris)s
    >>> from bigfs import SparGECV
    >>> selector = SparGECV(n_features_to_select=2, gammas=[1.0, 3.0]).fit(X, y)
    >>> selector.gamma_
    3.0
    >>> selector.selected_
    array([2, 1])
    """

    gammas: Any = None
    cv: Any = 3
    scoring: str | None = None

    _parameter_constraints: ClassVar[Allowed] = {
        "gammas": ["array-like"],
        "scoring": [StrOptions(set(METRICS["class"]))],
        "cv": ["cv_object"],
    }

    _cost = Cost("1 per cut, twice", "folds (n + d) r + columns")

    def _validate_params(self) -> None:
        super()._validate_params()
        self._candidate({})._validate_params()
        if self.scoring is not None and self.embedding != "lda":
            raise ValueError(f"scoring needs embedding='lda'; got embedding={self.embedding!r}")
        gammas = self._gammas()
        if not len(gammas) or not np.issubdtype(gammas.dtype, np.number) or not gammas.min() > 0:
            raise ValueError(f"gammas must hold one or more positive numbers; got {self.gammas}")

    def _fit_sizes(self, X: Matrix, target: Target, sizes: Sequence[int]) -> dict[int, Any]:
        """Decide between the candidates, and fit the best one for each number of features."""
        chosen, data = self._decide(X, target, sizes)
        path = copies(chosen, sizes)
        chosen._fit_path_data(path, data, target.y)
        return path

    @property
    def _has_short_list(self) -> bool:
        """Whether nothing is asked for but the embedding of the classes."""
        is_default = self.loss == "squared" and self.ranking == "elimination"
        return self.embedding == "lda" and self.gammas is None and is_default

    def _gammas(self) -> AnyArray:
        """Return the penalties to try."""
        if self.gammas is None:
            return np.array([1.0] if self.embedding == "lda" else GAMMAS)
        return np.asarray(self.gammas).ravel()

    def _candidate(self, parameters: dict[str, Any]) -> SparGE:
        """Return a SparGE with these parameters, and the others of this selector."""
        shared = {k: v for k, v in self.get_params(deep=False).items() if k not in OWN}
        candidate = SparGE(**{**shared, **parameters})
        candidate._in_tiles, candidate._constraints = False, self._constraints
        return candidate

    def _decide(self, X: Matrix, target: Target, sizes: Sequence[int]) -> tuple[SparGE, Columns]:
        """Return the best candidate in the mean over the sizes, and the data of its regression.

        It is the first within one standard error of the best, of γ the largest.
        """
        gammas = self._gammas().astype(np.float64)
        grid = [
            {"loss": self.loss, "ranking": self.ranking, "gamma": float(gamma)} for gamma in gammas
        ]
        if self._has_short_list:
            grid = [{**one, "gamma": 1.0} for one in SHORT_LIST]
        candidates = [self._candidate(parameters) for parameters in grid]
        folds = self._folds(X.shape[0], target)
        if self.embedding == "lda":  # the passes need one matrix for all candidates
            is_labeled = target.y.is_labeled
            X = hold_if_small(X if is_labeled.all() else X.take_rows(is_labeled))
            target = target.take(is_labeled)
        by_loss = {one.loss: regression(one, X, target.y) for one in candidates}
        data: list[Any] = [by_loss[one.loss] for one in candidates]
        in_order = np.argsort(-gammas, kind="stable")  # the cheapest first
        more: dict[str, Any] = {"params": grid}
        if self.scoring is not None or self._has_short_list:
            if self._has_short_list:
                in_order = np.arange(len(grid))
            scores, more["seconds"] = self._scores(candidates, data, target, folds, sizes)
            more["failures"] = [""] * len(grid)
        else:
            self.losses_ = self._losses(candidates, data, target, folds, sizes, gammas)
            scores = -self.losses_
        best = int(in_order[first_within_one_error(scores[in_order])])
        self.cv_results_ = record(scores, more)
        means = self.cv_results_["mean_test_score"]
        self.best_params_, self.best_score_ = grid[best], float(means[best])
        self.gamma_ = candidates[best].gamma
        self._warn_at_an_end(candidates[int(np.nanargmax(means))].gamma, gammas)
        return candidates[best], data[best]

    def _scores(
        self,
        candidates: Sequence[SparGE],
        data: Sequence[GatheredColumns],
        target: Target,
        folds: Sequence[Fold],
        sizes: Sequence[int],
    ) -> tuple[FloatArray, FloatArray]:
        """Return the scores of the candidates (n_candidates × n_folds), in the mean over the sizes,
        and the seconds that each one took to choose in all folds."""
        X = data[0].X
        seconds, chosen = np.zeros(len(candidates)), dict[tuple[int, int], IntArray]()
        for one in choose_in_folds(candidates, data, target.y, folds, self._name(X)):
            seconds[one.candidate] += one.seconds
            chosen[one.candidate, one.fold + 1] = one.chosen
        splits = [split_at(X, target.values, *fold) for fold in folds]
        orders: list[Order] = [
            lambda number, split, k=k: chosen[k, number]  # type: ignore[misc]
            for k in range(len(candidates))
        ]
        found = score_orders(orders, splits, sizes, self.scoring or "accuracy")
        return found.values.mean(axis=1), seconds

    def _losses(
        self,
        candidates: Sequence[SparGE],
        data: Sequence[GatheredColumns],
        target: Target,
        folds: Sequence[Fold],
        sizes: Sequence[int],
        gammas: FloatArray,
    ) -> FloatArray:
        """Return the held-out loss of each γ on each fold, in the mean over the sizes.

        Where the folds are large, one γ and fold is solved after the other, from the largest γ on.
        The search ends with the first γ that is worse than a larger one by more than a standard
        error. The losses of the γ after it are NaN.
        """
        X = data[0].X
        m, d, name = self._count(X.shape[1]), X.shape[1], self._name(X)
        losses = np.full((len(gammas), len(folds)), np.nan)

        def loss(one: FoldChoice) -> float:
            whole = data[one.candidate]
            parts = [held_out_loss(gammas, one.problem, one.chosen[:m], whole) for m in sizes]
            return float(np.mean(parts))

        if 8 * len(folds) * min(FOLD_SETS * m, d) ** 2 <= LARGE_FOLDS.value:
            for one in choose_in_folds(candidates, data, target.y, folds, name):
                losses[one.candidate, one.fold] = loss(one)
            return losses
        for i in np.argsort(-gammas, kind="stable").tolist():
            for k, fold in enumerate(folds):
                of_fold = f"SparGE fold {k + 1} of {m}, gamma {candidates[i].gamma}"
                alone = candidates[i : i + 1], data[i : i + 1], target.y, [fold], of_fold
                (losses[i, k],) = [
                    loss(one._replace(candidate=i)) for one in choose_in_folds(*alone)
                ]
            differences, errors = differences_to_best(-losses)
            if differences[i] < -errors[i]:
                break
        return losses

    def _name(self, X: Matrix) -> str:
        """Return the name of the joint run, for its display and its checkpoint."""
        return f"SparGE folds of {self._count(X.shape[1])}"

    def _warn_at_an_end(self, gamma: float, gammas: FloatArray) -> None:
        """Warn if the best of three penalties or more is the least or the largest."""
        if len(gammas) > 2 and gamma in (gammas.min(), gammas.max()):
            end = "least" if gamma == gammas.min() else "largest"
            warnings.warn(
                f"gamma={gamma:g} is the {end} of gammas={sorted(gammas.tolist())} and the best: "
                f"add {'smaller' if end == 'least' else 'larger'} ones",
                EndOfGridWarning,
                stacklevel=2,
            )

    def _folds(self, n: int, target: Target) -> list[Fold]:
        """Return the training and test samples of each fold, among those that take part.

        They are stratified where there are classes. `cv`, groups and times are for all n
        samples, of which the labeled ones take part.
        """
        is_class = isinstance(target.y, Labels)
        values = target.values if is_class else np.arange(n, dtype=np.float64)
        if self.embedding == "sda":
            values = values + 1  # unlabeled samples take part, as a class of their own
        if isinstance(self.cv, Integral):
            folds = fold_rows(values, int(self.cv), samples=target.samples)
        else:
            cv = check_cv(self.cv, values, classifier=is_class)
            folds = list(cv.split(np.zeros(n), values, target.samples.groups))
        if not is_class or self.embedding == "sda":
            return folds
        number = np.where(values >= 0, np.cumsum(values >= 0) - 1, UNLABELED)
        parts = [(number[train], number[test]) for train, test in folds]
        parts = [(train[train >= 0], test[test >= 0]) for train, test in parts]
        codes = values[values >= 0]
        parts = [(train, test) for train, test in parts if len(test) and varies(codes, train)]
        if not parts:
            raise ValueError(
                "no fold has test samples and two classes to train on: give other ones"
            )
        return parts
