"""A selector whose number of features is chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions

from bigfs import engine
from bigfs.constraints import resolve
from bigfs.evaluation import large_model
from bigfs.evaluation.choosing import choose_size, default_sizes, record
from bigfs.evaluation.linear_model import map_rows
from bigfs.evaluation.metrics import (
    METRIC_NAMES,
    mean_of,
    require_metrics,
    sum_auc,
    sum_log_loss,
)
from bigfs.evaluation.scoring import score_predictions
from bigfs.evaluation.splits import (
    Split,
    labeled_rows,
    samples_of,
    stratified_folds,
    target_kind,
)
from bigfs.matrix import Matrix
from bigfs.result import scope
from bigfs.selectors.base.chooser import FoldedSelector, Target
from bigfs.selectors.base.estimator import Selector, require_no_graph
from bigfs.selectors.base.labels import (
    Labels,
    any_target,
    is_minus_one,
    with_minus_one,
)
from bigfs.selectors.base.parameters import Allowed
from bigfs.selectors.sparge.sparge import SparGE
from bigfs.types import FloatArray, IntArray


class SelectorCV(FoldedSelector):
    """Choose the features of a selector, and their number by cross-validation.

    In each fold the selector ranks the features by the fold's training samples. A linear model on
    the best m of them predicts the other samples, for each m of `sizes`. The number is the smallest
    whose mean score is within one standard error of the best [1]_. The selector then chooses so
    many features from all samples, and a linear model is fitted to them.

    Parameters
    ----------
    selector : Selector or None, default=None
        Any selector of this package that keeps features. Its `n_features_to_select` is set here.
        None takes `SparGE()`.
    sizes : array-like of int or None, default=None
        Numbers of features to try. None takes 1, 2, 5, 10, 20, 50, … up to all features. Of more
        it ends at 50,000 for scores of one feature at a time, at 2,000 for `SparGE`, and at 500
        for the other methods, whose work grows with the number.
    cv : int, default=5
        Number of folds, shuffled with a fixed seed and stratified where y holds classes. With the
        `groups` of `fit`, no group is in both parts of a fold.
    metric : str or None, default=None
        Score to choose by and to return from `score`: "accuracy", "balanced_accuracy", "micro_f1",
        "macro_f1", "auc" or "neg_log_loss" for classes, "micro_f1" or "macro_f1" for label sets,
        "r2" for real targets. None takes the first of these. "neg_log_loss" comes from a logistic
        regression, which then takes the place of the SVM.

    Attributes
    ----------
    n_features_ : int
        The chosen number of features.
    cv_results_ : dict of {str: ndarray}
        For each size, its "n_features", "mean_test_score", "std_test_score" (as in
        `sklearn.model_selection.GridSearchCV`) and "split0_test_score", "split1_test_score", ….
    selector_ : Selector
        The selector, fitted on all samples with the chosen number.
    model_ : bigfs.evaluation.linear_model.LinearModel
        The linear model on the chosen features, in their original order.
    classes_ : ndarray of shape (n_classes,) or None
        The classes, or None where y holds real targets or label sets.
    scores_ : ndarray of shape (n_features,)
        Scores of the fitted selector.
    result_ : bigfs.result.Result
        Status and history of the fitted selector.

    See Also
    --------
    SparGECV : SparGE with its penalty chosen by cross-validation.

    Notes
    -----
    The scores in `cv_results_` choose the number, so the best of them is a little optimistic. The
    score on samples that `fit` did not see is honest. So is `cross_val_score`, which chooses the
    number again inside each fold.

    A fold fits the selector once, at the largest size: its best m features count as a choice of m.
    The folds cost as much as `cv` fits.

    References
    ----------
    .. [1] L. Breiman, J. H. Friedman, R. A. Olshen and C. J. Stone, "Classification and Regression
       Trees", Wadsworth, 1984, section 3.4.3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import ANOVA, SelectorCV
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = SelectorCV(ANOVA()).fit(X[::2], y[::2])
    >>> selector.n_features_, selector.selected_
    (2, array([2, 3]))
    >>> round(selector.score(X[1::2], y[1::2]), 2)
    0.89
    """

    _parameter_constraints: ClassVar[Allowed] = {
        "selector": [Selector, None],
        "sizes": ["array-like", None],
        "cv": [Interval(Integral, 2, None, closed="left")],
        "metric": [StrOptions(set(METRIC_NAMES)), None],
    }

    def __init__(
        self,
        selector: Selector | None = None,
        *,
        sizes: Sequence[int] | None = None,
        cv: int = 5,
        metric: str | None = None,
    ) -> None:
        self.selector = selector
        self.sizes = sizes
        self.cv = cv
        self.metric = metric

    def _validate_params(self) -> None:
        if not isinstance(self.selector, Selector | None):
            raise InvalidParameterError(
                "The 'selector' parameter of SelectorCV must be a selector of bigfs that chooses "
                f"columns, such as bigfs.SparGE(), or None. Got {self.selector!r} instead."
            )
        super()._validate_params()

    def _fit_target(self, X: Matrix, target: Target) -> None:
        y, codes, template = target.y, target.values, self._template()
        sizes = self._sizes(X)
        wanted = [] if self.metric is None else [self.metric]
        self._metric = require_metrics(target_kind(codes), wanted)[0]

        def fitted(m: int, X: Matrix, part: Target) -> Selector:
            selector: Selector = part.fit(clone(template).set_params(n_features_to_select=m), X)
            return selector

        def rank(number: int, split: Split) -> IntArray:
            with scope(f"fold {number}"):
                return fitted(sizes[-1], split.X_train, target.take(split.train)).selected_

        folds = stratified_folds(X, codes, self.cv, samples=target.samples)
        choice = choose_size(folds, sizes, rank, self._metric)
        self.n_features_ = choice.n_features
        self.cv_results_ = record(choice.scores, {"n_features": np.array(choice.sizes)})
        self.selector_ = fitted(choice.n_features, X, target)
        self.classes_ = y.classes if isinstance(y, Labels) else None
        for name in ("scores_", "selected_", "support_", "result_"):
            setattr(self, name, getattr(self.selector_, name))
        logistic = self._metric == "neg_log_loss"
        index = np.flatnonzero(self.support_)
        self.model_ = large_model.fit_columns(X, codes, index, logistic=logistic)

    def predict(self, X: Any) -> Any:
        """Predict samples by the linear model on the chosen features.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples with the features seen during `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) or csr_array of shape (n_samples, n_labels)
            The classes or real values, or an indicator of label sets.

        Raises
        ------
        ValueError
            X does not have the features seen during `fit`.
        """
        matrix, index = self._samples(X), np.flatnonzero(self.support_)
        predicted = map_rows(self.model_.predict, matrix, index)
        return predicted if self.classes_ is None else self.classes_[predicted]

    def score(self, X: Any, y: Any) -> float:
        """Return the score of the predictions: the `metric`, or its default.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples, which `fit` should not have seen.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Their targets. Unlabeled samples do not count. A class that `fit` did not see counts as
            predicted wrongly.

        Returns
        -------
        float
            The score.

        Raises
        ------
        ValueError
            X does not have the features seen during `fit`, or y is not of the kind of its targets.
        """
        matrix, index = self._samples(X), np.flatnonzero(self.support_)
        codes = self._codes(y, self._has_unlabeled(X))
        sums = {"auc": sum_auc, "neg_log_loss": sum_log_loss}.get(self._metric)
        if sums is None:
            predicted = map_rows(self.model_.predict, matrix, index)
            return score_predictions(self.model_, predicted, codes)[self._metric]
        known = labeled_rows(codes)
        decision = map_rows(self.model_.decision, matrix, index)
        return mean_of(sums(decision[known], codes[known], self.model_.classes))

    @engine.session()
    def cross_val_score(
        self, X: Any, y: Any, *, cv: int = 5, groups: Any = None, times: Any = None
    ) -> FloatArray:
        """Score the whole choice by folds: number and features are chosen again in each.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples, as in `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Targets, as in `fit`.
        cv : int, default=5
            Number of folds, shuffled with a fixed seed and stratified where y holds classes.
        groups : array-like of shape (n_samples,), default=None
            Group of each sample. Every fold tests whole groups, here and inside of `fit`.
        times : array-like of shape (n_samples,), default=None
            Time of each sample, as in `fit`.

        Returns
        -------
        ndarray of shape (cv,)
            The score of each fold, by a fit that did not see its samples. This selector itself is
            not changed.

        Raises
        ------
        ValueError
            As in `fit`.
        """
        self._validate_params()
        matrix, y = clone(self)._as_matrix(X, y)
        target = Target(y, samples_of(matrix.shape[0], groups, times))
        folds = stratified_folds(matrix, target.values, cv, samples=target.samples)
        scores = []
        for number, fold in enumerate(folds, 1):
            with scope(f"evaluation fold {number}"):
                fitted = target.take(fold.train).fit(clone(self), fold.X_train)
            scores.append(fitted.score(fold.X_test, target.take(fold.test).y))
            engine.show_progress("evaluation folds", number, len(folds))
        return np.array(scores)

    def _choose(self) -> Self:
        """Leave the features to the chosen selector."""
        return self

    def _facts(self) -> dict[str, Any]:
        tried = self.cv_results_["n_features"]
        score = self.cv_results_["mean_test_score"][list(tried).index(self.n_features_)]
        is_largest = self.n_features_ == tried[-1] < self.n_features_in_
        choice = {
            "numbers of features tried": ", ".join(f"{m:,}" for m in tried),
            "note": "the chosen number is the largest that was tried" if is_largest else None,
            f"{self._metric.replace('_', ' ')} in the folds that chose it": f"{score:.4f}",
        }
        return choice | super()._facts()

    def _template(self) -> Selector:
        """Return an unfitted copy of the selector."""
        selector = SparGE() if self.selector is None else clone(self.selector)
        selector._validate_params()
        require_no_graph(selector, "SelectorCV")
        return selector

    def _sizes(self, X: Matrix) -> list[int]:
        """Return the sizes in increasing order, or refuse them."""
        template, d = self._template(), X.shape[1]
        kept, forbidden, _ = resolve(template.keep, template.forbid, d, X.feature_names)
        least, largest = max(len(kept), 1), d - len(forbidden)
        if self.sizes is None:
            return default_sizes(largest, template._largest_tried, least)
        sizes = np.unique(np.asarray(self.sizes).ravel())
        is_whole = np.issubdtype(sizes.dtype, np.integer)
        if not len(sizes) or not is_whole or sizes[0] < least or sizes[-1] > largest:
            raise ValueError(
                f"sizes must be whole numbers from {least} to {largest}, the number of features; "
                f"got {self.sizes}"
            )
        return [int(m) for m in sizes]

    @property
    def _semi_supervised(self) -> bool:  # type: ignore[override]  # elsewhere a constant of the class
        return self.selector is not None and self.selector._semi_supervised

    def _check_y(self, y: Any, has_unlabeled: bool) -> Any:
        selector = self._template()
        found = any_target(y, getattr(selector, "target", "auto"), has_unlabeled)
        is_learned = selector._supervised and not selector._ignores_y
        if isinstance(found, Labels) and is_learned:  # whole numbers may be real for it
            checked = selector._check_y(y, has_unlabeled)
            if isinstance(checked, Labels) or np.ndim(checked) == 1:
                return checked
        return found

    def _codes(self, y: Any, has_unlabeled: bool) -> Any:
        """Return targets in the codes of the model. Classes that it does not know come after."""
        is_known = isinstance(y, Labels)
        if not is_known:
            y = self._check_y(y if sp.issparse(y) else np.asarray(y), has_unlabeled)
        target = y
        if isinstance(target, Labels) is (self.classes_ is None):
            raise ValueError("y must be of the kind of the targets that fit has seen")
        if not isinstance(target, Labels) or self.classes_ is None:
            return target
        if not is_known and has_unlabeled:
            is_class = bool(is_minus_one(np.asarray(self.classes_)).any())
            target = with_minus_one(target, is_class)  # as it was in `fit`
        unknown = np.setdiff1d(target.classes, self.classes_)
        numbers = {c: i for i, c in enumerate([*self.classes_, *unknown])}
        codes = np.array([numbers[c] for c in target.classes], dtype=np.int64)
        return np.where(target.is_labeled, codes[target.codes], target.codes)
