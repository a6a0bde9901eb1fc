"""Scores that are sums over the samples: weights of the samples, and samples that come in parts."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import field
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import NEGATIVE, ClassWeights, column_sums, near_sums
from bigfs.matrix.construction import readable
from bigfs.result import Result, Status
from bigfs.rounding import unless_rounding, variance_or_zero
from bigfs.selectors.base.estimator import MANY, Selector
from bigfs.selectors.base.labels import UNLABELED, Labels, is_minus_one, with_minus_one
from bigfs.types import AnyArray, FloatArray
from bigfs.validation import require_magnitude

FITTED = ("scores_", "pvalues_", "selected_", "support_", "result_")


class Totals(NamedTuple):
    """The sums of each column over the samples of each class, or over all samples as one class."""

    classes: AnyArray  # (c,), sorted
    sums: FloatArray  # (d, c): Σ w (x − s)
    squares: FloatArray  # (d, c), or (d, 1) over all classes: Σ w (x − s)²
    sizes: FloatArray  # (c,): Σ w
    shift: FloatArray  # (d,): s, the mean of a column far from zero, and 0 of another
    by_class: bool = False  # whether the squares are

    @property
    def deviations(self) -> FloatArray:
        """Σ w (x − x̄)² over all samples as one class, and 0 of a constant column."""
        n, sums = self.sizes.sum(), self.sums[:, 0]
        deviations, means = self.squares[:, 0] - sums**2 / n, self.shift + sums / n
        return np.where(variance_or_zero(deviations / n, means, max(n, 1)) > 0, deviations, 0)

    def moved(self, shift: FloatArray) -> Totals:
        """Return the sums with another shift."""
        by = (self.shift - shift)[:, None]  # x − s' = (x − s) + (s − s')
        if not by.any():
            return self
        more = 2 * by * self.sums + self.sizes * by**2
        more = more if self.by_class else more.sum(axis=1, keepdims=True)
        sums = self.sums + self.sizes * by
        return self._replace(sums=sums, squares=self.squares + more, shift=shift)

    def plus(self, other: Totals) -> Totals:
        """Return the sums of these samples and others."""
        classes = np.union1d(self.classes, other.classes)
        shift = np.where(self.shift == 0, other.shift, self.shift)
        width = len(classes) if self.by_class else 1
        sums, squares = np.zeros((len(self.sums), len(classes))), np.zeros((len(self.sums), width))
        sizes = np.zeros(len(classes))
        for part in (self.moved(shift), other.moved(shift)):
            index = np.searchsorted(classes, part.classes)
            sums[:, index] += part.sums
            squares[:, index if self.by_class else [0]] += part.squares
            sizes[index] += part.sizes
        return Totals(classes, sums, squares, sizes, shift, self.by_class)


class WeightedSelector(Selector):
    """Scores each column from sums, in which a sample may have a weight."""

    _largest_tried = MANY
    _scores_alone = True
    _totals: Any = field(init=False, default=None)  # of the samples of `partial_fit`

    @engine.session()
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Score the features of X and keep the best.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples, also as a data frame of pandas or Dask. The matrix of a store is
            `bigfs.storage.open(uri).X`. X is never changed.
        y : array-like of shape (n_samples,) or (n_samples, n_labels), default=None
            Target, as the method takes it. With a `Matrix`, class labels are class numbers, and
            −1 is unlabeled. With arrays it is a class.
        sample_weight : array-like of shape (n_samples,), default=None
            Frequency weights: a sample of weight w counts as w equal samples, and one of weight 0
            as none. None weighs each by 1.

        Returns
        -------
        Self
            The fitted selector.

        Raises
        ------
        ValueError
            X holds NaN or infinity, X and y have different lengths, y has fewer than two classes,
            more features are asked for than X has, or a weight is negative.
        MemoryLimitError
            The projected memory of the run is above the limit.
        """
        self._totals = None  # of `partial_fit`, which starts anew
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return self._run(X, y, **weights)

    def _fit(self, X: Matrix, y: Any, sample_weight: Any = None) -> None:
        weights = None
        if sample_weight is not None:
            y, weights = _weighed(X, y, sample_weight)
            n_groups = len(y.classes) if isinstance(y, Labels) else 2
            if weights.sum() <= n_groups and hasattr(self, "_p_values"):
                warnings.warn(
                    f"sample_weight sums to {weights.sum():g}, so it counts as so few samples, and "
                    "there is no p-value: multiply it until it sums to the number of samples",
                    stacklevel=2,
                )
        self._score_samples(X, y, weights)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add samples to the samples of earlier calls, and choose by all of them.

        The scores are sums over the samples, so they equal the scores of one `fit` on all samples.
        `fit` itself forgets earlier samples and leaves none for later calls. Nothing is chosen
        while the samples so far have no score: they have a single class or a constant target.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Two samples or more, as in `fit`.
        y : array-like of shape (n_samples,), default=None
            Their target, as in `fit`. Further classes may come with each call.
        sample_weight : array-like of shape (n_samples,), default=None
            Frequency weights. None weighs each by 1.

        Returns
        -------
        Self
            The selector, fitted to all samples so far.

        Raises
        ------
        ValueError
            As in `fit`. Also, X has other features than those before, or y several labels per
            sample.
        """
        self._validate_params()
        earlier = self._totals
        X = readable(X)
        if earlier is not None:
            if isinstance(X, Matrix) or engine.is_lazy(X):
                self._check_width(X)
            else:
                validate_data(self, X, reset=False, skip_check_array=True)
        has_unlabeled = self._has_unlabeled(X)
        matrix, y = self._as_matrix(X, y)
        if isinstance(y, Labels) and has_unlabeled:
            y = _as_before(y, () if earlier is None else earlier.classes)
        self._required_count(matrix.shape[1])
        ones = np.ones(matrix.shape[0])
        totals = self._sum(
            matrix, *_weighed(matrix, y, ones if sample_weight is None else sample_weight)
        )
        self._totals = totals if earlier is None else earlier.plus(totals)
        has_scores = self._has_scores(self._totals)
        if has_scores:
            self._score_totals(self._totals)
            has_scores = len(self._informative_scores(self.scores_)) > 0
        if not has_scores:
            for name in FITTED:  # of an earlier fit
                self.__dict__.pop(name, None)
            return self
        self.result_ = Result(self.scores_, Status.EXACT)
        return self._choose()

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether features are chosen.

        `partial_fit` may still wait for a second class, or for samples that tell one feature from
        another.
        """
        return hasattr(self, "support_")

    def _score_samples(self, X: Matrix, y: Any, weights: FloatArray | None) -> None:
        """Set `scores_`. None in place of the weights means that all are one."""
        self._score_totals(self._sum(X, y, weights))

    @abstractmethod
    def _sum(self, X: Matrix, y: Any, weights: FloatArray | None) -> Any:
        """Return the sums of some samples."""

    def _has_scores(self, totals: Any) -> bool:
        """Return whether scores follow from the sums."""
        return True

    @abstractmethod
    def _score_totals(self, totals: Any) -> None:
        """Set `scores_` from the sums."""


def _as_before(labels: Labels, seen: Any) -> Labels:
    """Return the labels of some more samples, in which −1 means what it means in all of them."""
    names, before = ({str(c).removesuffix(".0") for c in cs} for cs in (labels.classes, seen))
    is_class, was_class = (names | before) <= {"-1", "1", "+1"}, "-1" in before
    if was_class and not is_class:
        raise ValueError(
            "y holds other classes than -1 and 1, which were those of the samples before, so -1 "
            "would be unlabeled: give the class -1 another name"
        )
    has_minus_one = "-1" in names | before or not labels.all_labeled
    return with_minus_one(labels, is_class) if has_minus_one else labels


def _weighed(X: Matrix, y: Any, sample_weight: Any) -> tuple[Any, FloatArray]:
    """Return y, with the labels and classes of the samples that have a weight, and the weights."""
    about = {"ensure_non_negative": True, "ensure_2d": False, "input_name": "sample_weight"}
    weights: FloatArray = check_array(sample_weight, dtype=np.float64, **about)
    if weights.shape != X.shape[:1]:
        raise ValueError(
            f"sample_weight must hold a number for each of {X.shape[0]} samples; got the shape "
            f"{weights.shape}"
        )
    if not weights.any():
        raise ValueError("sample_weight must hold at least one non-zero number")
    if not isinstance(y, Labels):
        return y, weights
    is_used = y.is_labeled & (weights > 0)
    present, numbers = np.unique(y.codes[is_used], return_inverse=True)
    codes = np.full(len(weights), UNLABELED, dtype=np.int64)
    codes[is_used] = numbers
    return Labels(y.classes[present], codes), weights


def class_totals(
    X: Matrix,
    y: Labels,
    weights: FloatArray | None = None,
    *,
    by_class: bool = False,
    non_negative: bool = False,
) -> Totals:
    """Return the sums per class, of a store without a pass. Negative values may be refused."""
    classes, codes = y
    Y = ClassWeights(codes, len(classes), weights, by_class=by_class)  # n × c
    stored = sums = None  # the sums of a store weigh each sample by 1
    if weights is None and not is_minus_one(classes).any():
        is_numbered = np.array_equal(classes, np.arange(len(classes)))
        given = codes if is_numbered else np.where(codes >= 0, classes[codes], codes)
        stored = X.class_stats(given)
    if non_negative and stored is not None:
        if stored.minima is None:
            stored = None  # a sum does not tell whether a value is negative
        elif stored.minima.min(initial=0) < 0:
            raise ValueError(NEGATIVE)
    if stored is not None:
        numbers = classes.astype(np.int64)  # they may be whole floats or truth values
        squares = stored.sums_of_squares[:, numbers]
        squares = squares if by_class else squares.sum(axis=1, keepdims=True)
        sums = np.column_stack([stored.sums[:, numbers], squares])
    c, sizes = len(classes), Y.sizes
    if non_negative:  # χ² needs no squares
        sums = column_sums(X, Y, non_negative=True) if sums is None else sums
        require_magnitude(sums[:, c:].sum(axis=1), sums.any(axis=1))
        shift = np.zeros(len(sums))
    else:
        sums, shift = near_sums(X, Y, None, slice(None), sums)
    return Totals(classes, sums[:, :c], sums[:, c:], sizes, shift, by_class)


def between_and_within(
    sums: FloatArray, squares: FloatArray, sizes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return SSB and SSW, with 0 where a value is only rounding."""
    explained = (sums**2 / sizes).sum(axis=1)
    between = explained - sums.sum(axis=1) ** 2 / sizes.sum()
    return unless_rounding(between, squares), unless_rounding(squares - explained, squares)


def ratio(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a/b, with 0/0 = 0 and a/0 = ∞."""
    return np.divide(a, b, out=np.where(a > 0, np.inf, 0.0), where=b > 0)
