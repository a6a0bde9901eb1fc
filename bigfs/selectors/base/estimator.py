"""The base of the selectors: X becomes a `Matrix`, and the m best scores become the support."""

from __future__ import annotations

import itertools
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple, Self, dataclass_transform

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_array, column_or_1d
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from bigfs import engine
from bigfs.cards import card, table
from bigfs.constraints import NO_CONSTRAINTS, Constraints, resolve
from bigfs.evaluation.splits import Samples
from bigfs.matrix import Matrix
from bigfs.matrix.construction import readable
from bigfs.matrix.statistics import scale_hint
from bigfs.result import Result, Status, iterate
from bigfs.selectors.base.labels import (
    Labels,
    is_several,
    label_sets,
    labels_of,
    require_no_missing,
    require_one_column,
)
from bigfs.selectors.base.parameters import fill_in
from bigfs.selectors.registry import who_takes
from bigfs.settings import Setting
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray
from bigfs.validation import UnequalScalesWarning

MANY = 50_000  # features that "auto" tries of scores of one feature at a time
TOP = 20  # features in the card of a fitted selector
MEMORY_SHARE = Setting(0.05)  # for columns gathered from a matrix by rows
# of each feature in a fit: its statistics, deviation, score and place, and the arrays made of them
FEATURE_BYTES = 96  # (measured)
BYTES_PER_ENTRY = 12  # a float64 value and an int32 index
ARRAY_CHECKS: dict[str, Any] = {  # of scikit-learn; `Matrix` looks for NaN and infinity
    "accept_sparse": ["csr", "csc"],
    "dtype": [np.float64, np.float32],
    "ensure_min_samples": 2,
    "ensure_all_finite": False,
}


class Cost(NamedTuple):
    """The cost of a fit on a store, in the words of `bigfs methods`."""

    passes: str  # times that the whole matrix is read
    memory: str  # numbers of 8 bytes in the driving process, without the tiles of the workers
    by_rows: str = ""  # the passes over a matrix by rows without statistics, if more than one

    @property
    def in_place(self) -> str:
        """The passes over a store that anndata wrote: by rows, and without statistics."""
        return self.by_rows or self.passes.replace("0", "1")


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class MatrixInput:
    """Turns any input into a `Matrix` and counts the features to keep.

    The annotated fields of a subclass are its parameters. Its `__init__` is made from them, unless
    it writes one.
    """

    _supervised = True  # y is required, unless it is ignored
    _semi_supervised = False  # unlabeled samples take part: −1 in y marks them
    _cost: Cost  # a method has it, or a property where its parameters decide
    _nested = True  # the best k of m chosen features are the choice of k
    _ignores_y = False  # y is not even looked at
    _needs_one_scale = False  # the choice depends on the units of the features
    _scores_alone = False  # a constant feature has the least score, and changes no other one
    _feature_bytes = FEATURE_BYTES
    _takes_real = False  # y holds classes or real numbers, as `target` says
    _takes_sets = False  # y may hold several labels per sample
    _non_negative = False  # negative values are refused
    # numbers of features that "auto" tries; more where a larger number is no more work
    _largest_tried = 500

    n_features_to_select: int | float | None
    scores_: FloatArray
    result_: Result[Any]
    n_iter_: int
    keep: Any = None
    forbid: Any = None
    if TYPE_CHECKING:  # of the methods that `_iterate`
        tol: float
        max_iter: int
    _lazy_names: Any = None  # of the features of a `Matrix`
    _constraints: Constraints = NO_CONSTRAINTS  # keep and forbid as indices, once X is known

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        written = next(base for base in cls.__mro__ if "__init__" in vars(base))
        if written is object or "__dataclass_fields__" in vars(written):
            dataclass(kw_only=True, eq=False, repr=False)(cls)
        fill_in(cls)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # of BaseEstimator, which comes after this mixin
        tags.input_tags.sparse, tags.input_tags.positive_only = True, self._non_negative
        tags.target_tags.required = self._supervised and not self._ignores_y
        return tags

    def _count(self, d: int, available: str = "X has only {} features") -> int:
        """Return m, the number of features to keep out of d. More than d are d, with a warning."""
        m = self.n_features_to_select
        if m is None:
            return max(d // 2, 1)
        if isinstance(m, Real) and not isinstance(m, Integral):
            return max(int(m * d), 1)
        if m > d and engine.first_time("features"):
            text = f"n_features_to_select={m} but {available.format(d)}: all of them are chosen"
            warnings.warn(text, stacklevel=4)
        return min(int(m), d)

    def _as_matrix(self, X: Any, y: Any) -> tuple[Matrix, Any]:
        """Return X as a `Matrix` and the checked y, or None where the method ignores y."""
        y = None if self._ignores_y else y
        y = engine.compute(y) if engine.is_lazy(y) else y
        is_labels = isinstance(y, Labels)  # of a part of samples whose classes are known
        has_unlabeled = self._has_unlabeled(X)
        if not is_labels:
            require_no_missing(y, has_unlabeled)
        X = readable(X)
        if isinstance(X, Matrix) or engine.is_lazy(X):
            matrix = X if isinstance(X, Matrix) else Matrix.from_dask(X)
            self.n_features_in_ = matrix.shape[1]
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit on a data frame
            if hasattr(X, "columns") and not isinstance(X, Matrix):
                self.feature_names_in_ = matrix.feature_names
            if min(matrix.shape) < 1 or matrix.shape[0] < 2:
                raise ValueError(
                    f"X must have at least two samples and one feature; got "
                    f"{matrix.shape[0]} × {matrix.shape[1]}"
                )
            if y is not None and not is_labels:
                y = y if sp.issparse(y) else check_array(np.asarray(y), ensure_2d=False, dtype=None)
                y = self._check_y(y, has_unlabeled)
        elif y is None or is_labels:
            X = validate_data(self, X, **ARRAY_CHECKS)
            matrix = self._from_array(X)
        else:
            X, y = validate_data(self, X, y, multi_output=True, **ARRAY_CHECKS)
            matrix, y = self._from_array(X), self._check_y(y, has_unlabeled)
        self._lazy_names = matrix.feature_names
        self._constraints = resolve(self.keep, self.forbid, matrix.shape[1], self._lazy_names)
        if y is None and self._supervised and not self._ignores_y:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        if y is not None and y.shape[0] != matrix.shape[0]:
            raise ValueError(
                f"X has {matrix.shape[0]} samples but y has {y.shape[0]}: give one label per sample"
            )
        return matrix, y

    def _iterate(self, problem: Any, start: Any, **options: Any) -> Any:
        """Run the steps of a problem, set the result and `n_iter_`, and return the last state.

        The `options` are those of `iterate`.
        """
        options = {"measure": problem.measure, "tol": self.tol, "max_iter": self.max_iter} | options
        self.result_ = iterate(problem.step, start, name=type(self).__name__, **options)
        self.n_iter_ = len(self.result_.history)
        return self.result_.value

    def _has_unlabeled(self, X: Any) -> bool:
        """Return whether −1 in y is unlabeled: it is among the class numbers of a `Matrix`."""
        return self._semi_supervised or isinstance(X, Matrix)

    def _allowed(self, X: Matrix) -> Matrix:
        """Return X without the absent features, for graphs, kernels and distances."""
        index = self._allowed_columns(X)
        return X if len(index) == X.shape[1] else X.take_columns(index)

    def _allowed_columns(self, X: Matrix) -> IntArray:
        """Return the features that are not absent, and the empty ones, which change nothing."""
        absent = self._constraints.absent
        absent = absent[X.stats.nnz[absent] > 0] if len(absent) else absent
        return np.delete(np.arange(X.shape[1]), absent)

    def _leave_out_constants(self, X: Matrix) -> None:
        """Take the constant features out of the fit.

        X is refused where no others are left, and where a few numbers per feature do not fit.
        """
        d = X.shape[1]
        engine.require_memory(self._feature_bytes * d, f"a fit of {d:,} features")
        if self._scores_alone:
            return
        constant = np.flatnonzero(X.deviations == 0)
        self._constraints = self._constraints.with_constant(constant)
        if len(self._constraints.absent) == d:
            raise ValueError(
                "every feature of X that may be chosen is constant, so that none says anything: "
                "give other features"
            )

    def _check_width(self, X: Any) -> None:
        """Refuse X with other features than those seen during `fit`."""
        seen, given = getattr(self, "feature_names_in_", None), getattr(X, "columns", None)
        if (
            seen is not None
            and engine.is_lazy(X)
            and given is not None
            and list(seen) != list(given)
        ):
            raise ValueError(
                f"the columns of X should match those that {type(self).__name__} was fitted on, "
                "in the same order"
            )
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )

    def _samples(self, X: Any) -> Matrix:
        """Return samples to code or to predict."""
        check_is_fitted(self)
        X = readable(X)
        if isinstance(X, Matrix) or engine.is_lazy(X):
            self._check_width(X)
            return X if isinstance(X, Matrix) else Matrix.from_dask(X)
        checks = ARRAY_CHECKS | {"ensure_min_samples": 1}
        return self._from_array(validate_data(self, X, reset=False, **checks))

    def _from_array(self, X: Any) -> Matrix:
        """Return a checked array as a `Matrix` with the names seen during `fit`."""
        return Matrix.from_array(X, feature_names=getattr(self, "feature_names_in_", None))

    def _check_y(self, y: Any, has_unlabeled: bool) -> Any:
        """Return the class labels, one per sample, or an indicator of several (csr, n × q) where
        the method takes it. A method for real targets overrides this."""
        if self._takes_sets and is_several(y):
            return label_sets(y)
        require_one_column(y)
        y = column_or_1d(y.toarray() if sp.issparse(y) else y, warn=True)
        # Whole numbers of few values are classes. scikit-learn would sort a copy to find that out,
        # and it warns where the values are many.
        if y.dtype.kind in "iu" and int(y.max()) - int(y.min()) < len(y) // 2:
            return labels_of(y, has_unlabeled)
        try:
            check_classification_targets(y)
        except ValueError as error:
            if type_of_target(y) != "continuous":
                raise
            raise ValueError(f"{error} Here {who_takes('real')}") from None
        return labels_of(y, has_unlabeled)


class Selector(MatrixInput, SelectorMixin, BaseEstimator):
    """Keep the `n_features_to_select` features of largest score.

    A subclass lists its parameters as annotated fields and writes `_fit(X, y)`, which gets a
    `Matrix` and `Labels`, and sets `scores_` (one number per feature) and, where it is not a closed
    form, `result_`.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Score of each feature. Larger is better.
    result_ : bigfs.result.Result
        Status, history and counts of the run.
    """

    n_features_to_select: int | float | None = None
    keep: Any = None
    forbid: Any = None

    @engine.session()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Score the features of X and keep the best.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples, also as a data frame of pandas, polars, Arrow or Dask, or as a matrix in a
            file, which is read by tiles: an array of Zarr or HDF5, or `adata.X` of a backed
            AnnData object. The matrix of a store is `bigfs.storage.open(uri).X`. X is never
            changed.
        y : array-like of shape (n_samples,), default=None
            Class labels, as numbers or strings. Semi-supervised methods take −1 (or "-1") as
            unlabeled, unless y holds −1 and 1 and nothing else. It is a class for other methods.
            With a `Matrix`, whose y holds class numbers, it is unlabeled for all, and supervised
            methods leave it out. `result_.stats["unlabeled"]` counts these samples. Unsupervised
            methods ignore y.

        Returns
        -------
        Self
            The fitted selector.

        Raises
        ------
        ValueError
            X holds NaN or infinity, X and y have different lengths, y has fewer than two classes,
            or more features are asked for than X has.
        MemoryLimitError
            The projected memory of the run is above the limit.
        """
        return self._run(X, y)

    def _run(self, X: Any, y: Any, **extra: Any) -> Self:
        """Check the input, score, and choose. The stats of every result have the passes over X."""
        self._validate_params()
        self._forget()
        matrix, y = self._as_matrix(X, y)
        self._required_count(matrix.shape[1])
        before = matrix.passes
        self._leave_out_constants(matrix)
        if self._needs_one_scale and (hint := scale_hint(matrix)) and engine.first_time("scales"):
            warnings.warn(hint, UnequalScalesWarning, stacklevel=4)
        self._fit(matrix, y, **extra)
        if not hasattr(self, "result_"):
            self.result_ = Result(self.scores_, Status.EXACT)
        self.result_.stats.setdefault("passes", matrix.passes - before)
        if (planned := engine.current_session().planned) != engine.PLANNED:
            self.result_.stats["planned_memory"] = planned
        self._describe_target(y)
        return self._choose()

    def _forget(self) -> None:
        """Drop what an earlier fit has left."""
        for name in [name for name in vars(self) if name.endswith("_") and name[0] != "_"]:
            delattr(self, name)

    def _take_fitted(self, other: Selector) -> None:
        """Take over what another selector has fitted."""
        fitted = {k: v for k, v in vars(other).items() if k.endswith("_") and k[0] != "_"}
        self.__dict__.update(fitted)

    def _describe_target(self, y: Any) -> None:
        """Say in the result how y was taken, and how many samples had no label."""
        stats = self.result_.stats
        is_class = isinstance(y, Labels)
        if is_class and not y.all_labeled:
            stats["unlabeled"] = int(np.sum(~y.is_labeled))
        if self._takes_real and (is_class or (y is not None and y.shape[1:] in ((), (1,)))):
            stats["target"] = "classes" if is_class else "real"

    def _required_count(self, d: int) -> int:
        """Return m, or refuse it where the constraints leave fewer features."""
        return self._constraints.require(super()._count(d), d)

    def _count(self, d: int, available: str = "X has only {} features") -> int:
        """Return how many features a fit chooses: m, or all where fewer take part."""
        return min(super()._count(d, available), d - len(self._constraints.absent))

    def _informative_scores(self, scores: FloatArray) -> FloatArray:
        """Return the scores of the features that take part, or none if they say nothing."""
        scores = np.delete(scores, self._constraints.absent)
        scores = scores[~np.isnan(scores)]
        tells = len(scores) == 1 or (scores.any() and not np.isinf(scores).all())
        return scores if tells else scores[:0]

    def _require_information(self, scores: FloatArray) -> FloatArray:
        """Return the scores of `_informative_scores`. Refuse those that say nothing at all."""
        informative = self._informative_scores(scores)
        if not len(informative):
            is_zero = not np.delete(scores, self._constraints.absent).any()
            size = "zero" if is_zero and len(scores) else "infinite or undefined"
            raise ValueError(
                f"{type(self).__name__} tells no feature from another, because every score is "
                f"{size}: give more labeled samples than classes, or another penalty"
            )
        return informative

    def _rank_uninformed_last(self) -> None:
        """Give the constant features, and those whose score is NaN, the least score."""
        scores = self._require_information(self.scores_)
        unsaid = np.isnan(self.scores_)
        unsaid[self._constraints.constant] = True
        if unsaid.any():
            self.scores_ = np.where(unsaid, np.fmin(self.scores_, scores.min()), self.scores_)
            self._constraints = self._constraints.with_constant(np.flatnonzero(unsaid))

    def _choose(self) -> Self:
        """Make the best scores the support.

        The kept features come first, constant ones last, and no forbidden ones.
        """
        d = len(self.scores_)
        self._rank_uninformed_last()
        self.selected_ = self._constraints.best(self.scores_, self._required_count(d))
        if uninformed := int(np.isin(self.selected_, self._constraints.constant).sum()):
            self.result_.stats["uninformative_selected"] = uninformed
        self.support_ = np.zeros(len(self.scores_), dtype=bool)
        self.support_[self.selected_] = True
        return self

    def _choose_all(self, chosen: BoolArray) -> Self:
        """Make these features the support, best first, with the kept and without forbidden ones."""
        self.support_ = chosen.copy()
        self.support_[self._constraints.forbidden] = False
        self.support_[self._constraints.kept] = True
        best_first = self._constraints.order(self.scores_)
        self.selected_ = best_first[self.support_[best_first]]
        return self

    @abstractmethod
    def _fit(self, X: Matrix, y: Any) -> None:
        """Compute the scores. A forbidden feature takes no part in the scores of others."""

    def transform(self, X: Any) -> Any:
        """Reduce X to the chosen features, in their original order.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples with the features seen during `fit`.

        Returns
        -------
        ndarray, csr_matrix, csr_array, csc_array or Dask array of shape (n_samples, n_selected)
            The chosen columns. An array gives what scikit-learn's selectors give. A Dask array or
            data frame stays lazy, and a matrix in a file gives a lazy Dask array. A `Matrix` gives
            a csc array in memory, or after ``set_output(transform="pandas")`` a data frame of
            sparse columns.

        Raises
        ------
        ValueError
            X does not have the number of features seen during `fit`, or `set_output` asks for a
            data frame of what stays sparse or lazy.
        """
        check_is_fitted(self)
        X = readable(X)
        if isinstance(X, Matrix) or engine.is_lazy(X):
            self._check_width(X)
            index = np.flatnonzero(self.support_)
            if isinstance(X, Matrix):
                return self._with_container(X.columns(index))
            if (frame := _get_output_config("transform", self)["dense"]) != "default":
                raise ValueError(
                    f"X stays lazy and is no data frame of {frame}: set "
                    'set_output(transform="default"), or give X.compute()'
                )
            return X.iloc[:, index.tolist()] if hasattr(X, "iloc") else X[:, index]
        return super().transform(X)

    def _with_container(self, Z: Any) -> Any:
        """Return gathered columns as `set_output` asks for. pandas gets sparse columns."""
        if _get_output_config("transform", self)["dense"] != "pandas":
            return Z
        import pandas as pd

        return pd.DataFrame.sparse.from_spmatrix(Z)  # type: ignore[attr-defined]  # missing in pandas' stubs

    def get_feature_names_out(self, input_features: Any = None) -> AnyArray:
        """Return the names of the chosen features, in their original order.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Names of all features. None takes the names seen during `fit`: the columns of a data
            frame, or the names of a store, of which only the chosen ones are read. Features
            without names are x0, x1, ….

        Returns
        -------
        ndarray of str of shape (n_selected,)
            The names.

        Raises
        ------
        ValueError
            `input_features` has another length than the features, or contradicts the names seen
            during `fit`.
        """
        check_is_fitted(self)
        if input_features is not None or hasattr(self, "feature_names_in_"):
            return super().get_feature_names_out(input_features)
        return self._names(np.flatnonzero(self.support_))

    def _html_repr(self) -> str:
        """Return scikit-learn's diagram, and a card of the choice once it is fitted."""
        diagram = str(super()._html_repr())
        return diagram + self._card() if hasattr(self, "selected_") else diagram

    def _card(self) -> str:
        """Return a card with the best features. Their names are read, and no others."""
        result, best = getattr(self, "result_", None), self.selected_[:TOP]
        rows = zip(range(1, len(best) + 1), self._names(best), self.scores_[best], strict=True)
        m, d = len(self.selected_), len(self.scores_)
        return card(
            f"{m:,} of {d:,} features",
            self._facts(),
            "" if result is None else result.curve(),
            table(["rank", "feature", "score"], list(rows)),
        )

    def _facts(self) -> dict[str, Any]:
        """Return the facts on the card."""
        result = getattr(self, "result_", None)
        kept, forbidden = len(self._constraints.kept), len(self._constraints.forbidden)
        facts = {"must be chosen": kept or None, "must not be chosen": forbidden or None}
        return facts if result is None else facts | result.facts()

    def _names(self, index: IntArray) -> AnyArray:
        """Return the names of some features seen during `fit`: x0, x1, … without names."""
        names = getattr(self, "feature_names_in_", self._lazy_names)
        if names is None:
            return np.array([f"x{j}" for j in index], dtype=object)
        return np.asarray(names[index], dtype=object)

    def _get_support_mask(self) -> BoolArray:
        check_is_fitted(self)
        return self.support_


def fit_options(selector: Any, samples: Samples) -> dict[str, Any]:
    """Return the facts of the samples, as far as the `fit` of a selector takes them."""
    known = {"groups": samples.groups, "times": samples.times, "sample_weight": samples.weights}
    return {
        name: values
        for name, values in known.items()
        if values is not None and has_fit_parameter(selector, name)
    }


def require_no_graph(selector: Any, what: str) -> None:
    """Refuse a graph of all samples where a selector is fitted on parts of them."""
    if getattr(selector, "graph", None) is not None:
        raise ValueError(
            f"graph is that of all samples, but {what} fits parts of them: give None, so that "
            "each part has a graph of its own"
        )


def fit_sizes(
    selector: Any, X: Matrix, y: Any, sizes: Sequence[int], **options: Any
) -> dict[int, Any]:
    """Return fitted selectors, whose best m features are the choice of m, by the number m.

    One fit serves all sizes where the selector has `fit_path` or its choices are nested, which they
    are not with features to keep. Otherwise each size is fitted.
    """
    if hasattr(selector, "fit_path"):
        path: dict[int, Any] = selector.fit_path(X, y, list(sizes), **options)
        return path
    if selector._nested and selector.get_params().get("keep") is None:
        return dict.fromkeys(sizes, selector.fit(X, y, **options))
    copies = {m: copy(selector).set_params(n_features_to_select=m) for m in sizes}
    return {m: one.fit(X, y, **options) for m, one in copies.items()}


def map_all_columns(X: Matrix, fn: Callable[..., Any], *shared: Any, label: str) -> list[Any]:
    """Call `fn(block, start, stop, *shared)` on all columns, whatever the layout of X.

    A matrix by rows alone has no tiles of columns. Its columns are gathered, as many at a time as
    fit in memory, with a pass for each batch.
    """
    if X.column_tiles:
        return X.map(fn, 1, *shared, label=label)
    entries_at_once = MEMORY_SHARE.value * engine.planned_memory() / BYTES_PER_ENTRY
    batch_numbers = np.cumsum(X.stats.nnz) // entries_at_once
    bounds = [0, *(np.flatnonzero(np.diff(batch_numbers)) + 1).tolist(), X.shape[1]]
    X.passes += len(bounds) - 1
    return [
        fn(X.columns(np.arange(start, stop)), start, stop, *shared)
        for start, stop in itertools.pairwise(bounds)
    ]
