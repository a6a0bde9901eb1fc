"""SparGE with its loss and ranking, or its γ, chosen by cross-validation.

    loss(γ) = mean over folds of  min_γ' ‖T_out − 1b − (X_out − 1μᵀ) W‖² / ‖T_out − 1b‖²

With the squared hinge loss, that loss takes the place of the squared norms.

SparGE chooses m features at γ without the fold's samples. W is a ridge on them, with whichever
penalty γ' of the grid serves it best, so that the choice of features is judged and not the
shrinkage. μ and b are the means of X and T over the training samples.

A fold is a weight of 0 or 1 per sample (ω of `cutting_plane.columns`). The whole grid is solved
jointly: a pass over X serves every γ and every fold. Where the products of the gathered columns of
all folds are large, each γ and fold is solved by itself, from the largest γ on.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import field
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import StrOptions

from bigfs import engine
from bigfs.cutting_plane.columns import Columns, GatheredColumns
from bigfs.evaluation.size_choice import first_within_one_error
from bigfs.evaluation.splits import NOTHING_KNOWN, forward_folds, samples_of, split_rows
from bigfs.matrix import Matrix
from bigfs.matrix.gathering import hold_if_small
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.labels import Labels
from bigfs.selectors.sparge.fold_scores import (
    Fold,
    auc_scorer,
    held_out_loss,
    held_out_score,
    log_loss_scorer,
    measure_folds,
)
from bigfs.selectors.sparge.sparge import SparGE
from bigfs.types import AnyArray, FloatArray

FOLD_SETS = 10  # sets of m features that the penalties of a fold are taken to gather
LARGE_FOLDS = 256 << 20  # bytes of the products of all folds from which one is solved at a time
GRIDS = ("class_weight", "loss", "ranking")  # parameters that may be lists of values
# What is tried for classes where nothing is asked for. Of the first it is known that no other is
# better on most data, so another is chosen only where the folds say so by a standard error.
SHORT_LIST = (
    {"loss": "squared", "ranking": "elimination"},
    {"loss": "squared_hinge", "ranking": "elimination"},
    {"loss": "squared", "ranking": "svm"},
)
GAMMAS = (0.1, 0.3, 1.0, 3.0)  # that are tried for other embeddings
SCORERS = {"micro_f1": "f1_micro", "macro_f1": "f1_macro"}  # our names and scikit-learn's
OWN_SCORERS = {"auc": auc_scorer, "neg_log_loss": log_loss_scorer}


class EndOfGrid(UserWarning):
    """Warning that the best penalty is at an end of the grid, so that one outside may be better."""


class SparGECV(SparGE):
    """Choose the features of `SparGE`, with loss and ranking, or γ, chosen by cross-validation.

    For classes, and unless something else is asked for, three candidates are tried at γ = 1: the
    squared loss, the squared hinge loss, and the squared loss with the ranking of a linear SVM. The
    first is taken that is within one standard error of the best, by the score of a linear SVM on
    the features chosen without the held-out samples. The error is that of the difference of the
    two.

    With `gammas`, and for other embeddings, γ is chosen by the held-out loss. The loss of a γ is
    the share of the held-out embedding that a ridge on the m features chosen without the held-out
    samples leaves unexplained. The ridge has the best penalty of the grid, so the choice of
    features is judged and not the shrinkage.

    All γ and folds share the passes over X, until about 300 features. From there on each is solved
    by itself, so that the products of one are held. A small γ then takes most of the time, so the
    search goes from the largest γ to the smallest. It ends with the first γ that is worse than a
    larger one by more than a standard error.

    Parameters
    ----------
    %(n_features_to_select)s
    %(sparge_keep)s
    %(forbid)s
    %(sparge_response)s
    %(sparge_graph)s
    %(sparge_cuts)s
    gammas : array-like of float or None, default=None
        Penalties to try, in the units of the gamma of `SparGE`. None takes 1 for "lda", and the
        three candidates where `loss`, `ranking` and `class_weight` are not set. For other
        embeddings it takes 0.1, 0.3, 1 and 3.
    cv : int, cross-validation generator or iterable, default=3
        Number of folds, shuffled with a fixed seed and stratified where y holds classes, or what
        else `sklearn.model_selection.check_cv` takes.
    scoring : str, callable or None, default=None
        What decides, for "lda": a score of scikit-learn, such as "accuracy" or "f1_macro", or
        "micro_f1", "macro_f1" or "auc", of a linear SVM on the chosen columns, or "neg_log_loss",
        of a logistic regression. `class_weight`, `loss` and `ranking` may then be lists of values,
        which are tried in every combination with `gammas`. None takes the held-out loss where
        `gammas` are given and nothing is a list, and "accuracy" otherwise.

    Attributes
    ----------
    gamma_ : float
        The chosen γ: the largest whose mean loss is within one standard error of the least, because
        a larger γ is cheaper. With a score it is that of the best mean, the largest of equal ones.
        Of the three candidates it is 1.
    losses_ : ndarray of shape (n_gammas, n_folds)
        Share of the held-out embedding that the chosen features leave unexplained. NaN where a γ
        was not tried, and absent where a score decides.
    best_params_ : dict
        The chosen "class_weight", "loss", "ranking" and "gamma".
    best_score_ : float
        Their mean score over the folds. Without `scoring` a score is minus the loss.
    cv_results_ : dict
        The combinations ("params") with "mean_test_score", "std_test_score" and
        "split0_test_score", …, as in `sklearn.model_selection.GridSearchCV`. Where a score decides,
        "seconds" are those that each combination took to choose in all folds.
    %(sparge_scores)s
    %(selected)s
    %(sparge_fitted)s

    See Also
    --------
    SparGE : The same method with a fixed loss, ranking and gamma.

    Notes
    -----
    A warning (`EndOfGrid`) says when the best of three or more γ is the least or the largest. The
    unit of γ is the variance of all features together, so standardized data with few samples ask
    for a grid that reaches down to about 1/d, such as ``10.0 ** np.arange(-4, 2)``.

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

    gamma: ClassVar[float]  # type: ignore[misc]  # `gammas` take its place
    gammas: Any = None
    cv: Any = 3
    scoring: Any = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{
            name: allowed
            for name, allowed in SparGE._parameter_constraints.items()
            if name != "gamma"
        },
        **{name: [*SparGE._parameter_constraints[name], list] for name in GRIDS},
        "gammas": ["array-like", None],
        "scoring": [StrOptions({*get_scorer_names(), *SCORERS, *OWN_SCORERS}), callable, None],
        "cv": ["cv_object"],
    }

    @property
    def _cost(self) -> Cost:  # type: ignore[override]
        return Cost("1 per cut, twice", "folds (n + d) r + columns")

    _known: Any = field(init=False, default=NOTHING_KNOWN)  # what is known of those of `fit`
    _in_tiles = False  # the folds weigh the samples of one response

    def _validate_params(self) -> None:
        super()._validate_params()
        if self.scoring is not None and self.embedding != "lda":
            raise ValueError(f"scoring needs embedding='lda'; got embedding={self.embedding!r}")
        for name in GRIDS:
            if getattr(self, name) == []:
                raise ValueError(f"{name} must hold one or more values; got []")
        gammas = self._gammas()
        if not len(gammas) or not np.issubdtype(gammas.dtype, np.number) or not gammas.min() > 0:
            raise ValueError(f"gammas must hold one or more positive numbers; got {self.gammas}")

    @engine.session()
    def fit(self, X: Any, y: Any = None, groups: Any = None, times: Any = None) -> Self:
        """Choose the penalty and the features.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples, as in the `fit` of `SparGE`.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
            Labels or targets, as in the `fit` of `SparGE`.
        groups : array-like of shape (n_samples,), default=None
            Group of each sample, such as a donor, a user or a site. No group is in both parts of a
            fold. None lets all samples be apart.
        times : array-like of shape (n_samples,), default=None
            Time of each sample, as numbers or dates. The training samples of a fold are then
            earlier than those that it tests.

        Returns
        -------
        Self
            The fitted selector.

        Raises
        ------
        ValueError
            As in the `fit` of `SparGE`. Also, `groups` or `times` has another length than X, or
            fewer values than there are folds.
        NotEnoughMemory
            The projected memory of the run is above the limit.
        """
        return self._run(X, y, samples=(groups, times))

    def _fit(self, X: Matrix, y: Any, samples: tuple[Any, Any] = (None, None)) -> None:
        self._known = samples_of(X.shape[0], *samples)
        try:
            super()._fit(X, y)
        finally:
            self._known = NOTHING_KNOWN

    @engine.session()
    def fit_path(
        self, X: Any, y: Any, sizes: Sequence[int], groups: Any = None, times: Any = None
    ) -> dict[int, Self]:
        """Fit several numbers of features in one run, as `SparGE.fit_path` does.

        Of the three candidates one is chosen for all numbers, by the mean of its scores.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples, as in `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), or None
            Labels or targets, as in `fit`.
        sizes : sequence of int or float
            Numbers of features, each in place of `n_features_to_select`.
        groups : array-like of shape (n_samples,), default=None
            Group of each sample, as in `fit`.
        times : array-like of shape (n_samples,), default=None
            Time of each sample, as in `fit`.

        Returns
        -------
        dict of {int or float: SparGECV}
            A fitted copy of this selector for each size.

        Raises
        ------
        ValueError
            As in `fit`.
        """
        self._known = groups, times  # of which the number is known with X
        try:
            return super().fit_path(X, y, sizes)
        finally:
            self._known = NOTHING_KNOWN

    @property
    def _has_short_list(self) -> bool:
        """Whether nothing is asked for but the embedding of the classes."""
        is_default = self.loss == "squared" and self.ranking == "elimination"
        is_list = isinstance(self.class_weight, list)
        return self.embedding == "lda" and self.gammas is None and is_default and not is_list

    def _gammas(self) -> AnyArray:
        """Return the penalties to try."""
        if self.gammas is None:
            return np.array([1.0] if self.embedding == "lda" else GAMMAS)
        return np.asarray(self.gammas).ravel()

    def _scorer(self) -> Any:
        """Return the scorer of scikit-learn, or ours."""
        if self.scoring in OWN_SCORERS:
            return OWN_SCORERS[self.scoring]
        return get_scorer(SCORERS.get(self.scoring, self.scoring or "accuracy"))

    def _resolve_path(
        self, path: dict[int, Self], X: Matrix, y: Any, shared: dict[str, Columns]
    ) -> dict[int, SparGE]:
        """Return the selector of each size: one choice for all where it is of the short list."""
        for one in path.values():
            one._known = samples_of(X.shape[0], *self._known[:2])
        try:
            return self._resolve_sizes(path, X, y, shared)
        finally:
            for one in path.values():
                one._known = NOTHING_KNOWN

    def _resolve_sizes(
        self, path: dict[int, Self], X: Matrix, y: Any, shared: dict[str, Columns]
    ) -> dict[int, SparGE]:
        """Return the selector of each size, which know their samples."""
        if not self._has_short_list:
            return super()._resolve_path(path, X, y, shared)
        sizes = {m: one._count(X.shape[1]) for m, one in path.items()}
        largest = path[max(sizes, key=lambda m: sizes[m])]
        chosen = largest._resolve(X, y, shared, tuple(sizes.values()))
        resolved = {}
        for m, one in path.items():
            one._adopt(largest)
            resolved[m] = copy(chosen).set_params(n_features_to_select=m)
        return resolved

    def _resolve(
        self, X: Matrix, y: Any, shared: dict[str, Columns], sizes: Sequence[int] = ()
    ) -> SparGE:
        """Return the SparGE of the best score, or of the largest γ whose loss is near the least.

        Of the short list it is the first that is near the best, in the mean over `sizes`.
        """
        values = [getattr(self, name) for name in GRIDS]
        gammas = self._gammas().astype(np.float64)
        by_score = self.scoring is not None or any(isinstance(v, list) for v in values)
        by_score |= self._has_short_list
        if by_score:
            gammas = np.sort(gammas)[::-1]  # the largest of those with equal scores is chosen
        values = [v if isinstance(v, list) else [v] for v in values]
        grid: list[dict[str, Any]] = [
            {**dict(zip(GRIDS, one, strict=True)), "gamma": float(gamma)}
            for *one, gamma in itertools.product(*values, gammas)
        ]
        if self._has_short_list:
            grid = [{**grid[0], **one} for one in SHORT_LIST]
        candidates = [self._candidate(parameters) for parameters in grid]
        if self.embedding == "lda":  # the passes need one matrix for all candidates
            X = hold_if_small(X if y.all_labeled else X.take_rows(y.is_labeled))
            labeled = Labels(y.classes, y.codes[y.is_labeled])
        else:
            labeled = y
        data: list[Any] = [candidate._shared_data(X, labeled, shared) for candidate in candidates]
        folds = list(self._folds(data[0].T, y))
        name = f"SparGE folds of {self._count(X.shape[1])}"
        more: dict[str, Any] = {}
        if by_score:
            sizes = sizes or (self._count(X.shape[1]),)
            measure = partial(held_out_score, self._scorer(), y.codes[y.is_labeled], sizes)
            scores, more["seconds"] = measure_folds(candidates, data, y, folds, measure, name)
            best = at_least = int(np.argmax(scores.mean(axis=1)))
            if self._has_short_list:
                best = first_within_one_error(scores)
        else:
            self.losses_ = self._losses(candidates, data, y, folds, gammas, name)
            at_least, threshold = _least_loss(self.losses_)
            near = self.losses_.mean(axis=1) <= threshold
            best, scores = int(np.argmax(np.where(near, gammas, 0))), -self.losses_
        means = scores.mean(axis=1)
        self.cv_results_ = {
            "params": grid,
            "mean_test_score": means,
            "std_test_score": scores.std(axis=1),
            **{f"split{k}_test_score": column for k, column in enumerate(scores.T)},
            **more,
        }
        self.best_params_, self.best_score_ = grid[best], float(means[best])
        self.gamma_ = candidates[best].gamma
        self._warn_at_an_end(candidates[at_least].gamma, gammas)
        return candidates[best]

    def _candidate(self, parameters: dict[str, Any]) -> SparGE:
        """Return a SparGE with these parameters, and the others of this selector."""
        own = self.get_params(deep=False).items()
        shared = {k: v for k, v in own if k in SparGE._parameter_constraints and k != "solver"}
        candidate = SparGE(**{**shared, **parameters})
        candidate._validate_params()
        candidate._in_tiles, candidate._constraints = False, self._constraints
        return candidate

    def _losses(
        self,
        candidates: Sequence[SparGE],
        data: Sequence[GatheredColumns],
        y: Any,
        folds: Sequence[Fold],
        gammas: FloatArray,
        name: str,
    ) -> FloatArray:
        """Return the held-out loss of each γ on each fold.

        Where the folds are large, one γ and fold is solved after the other, from the largest γ on.
        The search ends with the first γ that is worse than a larger one by more than a standard
        error. The losses of the γ after it are NaN.
        """
        measure = partial(held_out_loss, gammas)
        m, d = self._count(data[0].X.shape[1]), data[0].X.shape[1]
        if 8 * len(folds) * min(FOLD_SETS * m, d) ** 2 <= LARGE_FOLDS:
            return measure_folds(candidates, data, y, folds, measure, name)[0]
        losses = np.full((len(gammas), len(folds)), np.nan)
        for i in np.argsort(-gammas, kind="stable").tolist():
            one = candidates[i : i + 1], data[i : i + 1], y
            for k, fold in enumerate(folds):
                of_fold = f"SparGE fold {k + 1} of {m}, gamma {candidates[i].gamma}"
                losses[i, k] = measure_folds(*one, [fold], measure, of_fold)[0].item()
            if losses[i].mean() > _least_loss(losses)[1]:
                break
        return losses

    def _warn_at_an_end(self, gamma: float, gammas: FloatArray) -> None:
        """Warn if the best of three penalties or more is the least or the largest."""
        if len(gammas) > 2 and gamma in (gammas.min(), gammas.max()):
            end = "least" if gamma == gammas.min() else "largest"
            warnings.warn(
                f"gamma={gamma:g} is the {end} of gammas={sorted(gammas.tolist())} and the best: "
                f"add {'smaller' if end == 'least' else 'larger'} ones",
                EndOfGrid,
                stacklevel=2,
            )

    def _folds(self, T: FloatArray, y: Any) -> Any:
        """Return the pairs of training and test samples, stratified where there are classes."""
        classes, samples = None, self._known
        if self.embedding == "lda":
            classes, samples = y.codes[y.is_labeled], samples.take(y.is_labeled)
        elif self.embedding == "sda":
            classes = y.codes
        if isinstance(self.cv, Integral):
            if samples.times is not None:
                target = np.arange(len(T), dtype=np.float64) if classes is None else classes
                return forward_folds(target, int(self.cv), samples)
            return split_rows(int(self.cv), len(T), classes, samples.groups)
        is_class = classes is not None
        return check_cv(self.cv, classes, classifier=is_class).split(T, classes, samples.groups)


def _least_loss(losses: FloatArray) -> tuple[int, float]:
    """Return the position of the γ of least mean loss, and that loss plus its standard error.

    The losses are n_gammas × n_folds, and NaN where a γ was not tried.
    """
    n_folds = losses.shape[1]
    means = losses.mean(axis=1)
    least = int(np.nanargmin(means))
    error = losses[least].std(ddof=min(1, n_folds - 1)) / np.sqrt(n_folds)
    return least, float(means[least] + error)
