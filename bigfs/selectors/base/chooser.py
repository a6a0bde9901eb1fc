"""The parts that choosers share: the target of samples, and fits that folds decide about."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple, Self

from sklearn.base import clone

from bigfs import engine
from bigfs.evaluation.splits import NOTHING_KNOWN, Samples, samples_of
from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import Selector, fit_options, fit_sizes
from bigfs.selectors.base.labels import Labels
from bigfs.types import AnyArray


class Target(NamedTuple):
    """The facts of the samples of a fit. A part of them keeps the labels of the whole."""

    y: Any  # `Labels`, real values (n,), label sets (n × c), or None
    samples: Samples = NOTHING_KNOWN  # their groups and times

    @property
    def values(self) -> Any:
        """The class numbers, real values or label sets, of which folds are made."""
        return self.y.codes if isinstance(self.y, Labels) else self.y

    def take(self, rows: AnyArray) -> Target:
        """Return the facts of some of the samples."""
        if self.y is None:
            return Target(None, self.samples.take(rows))
        part = self.y.take(rows) if isinstance(self.y, Labels) else self.y[rows]
        return Target(part, self.samples.take(rows))

    def fit(self, selector: Any, X: Matrix) -> Any:
        """Fit a selector on these samples, with what it takes of them."""
        return selector.fit(X, self.y, **fit_options(selector, self.samples))

    def fit_sizes(self, selector: Any, X: Matrix, sizes: Sequence[int]) -> dict[int, Any]:
        """Fit a selector for each number of features."""
        return fit_sizes(selector, X, self.y, sizes, **fit_options(selector, self.samples))


def copies(selector: Any, sizes: Sequence[int]) -> dict[int, Any]:
    """Return a copy of a selector for each number of features, or refuse the number."""
    found = {m: copy(selector).set_params(n_features_to_select=m) for m in dict.fromkeys(sizes)}
    if not found:
        raise ValueError("sizes holds no number of features: give one or more")
    for one in found.values():
        one._validate_params()
    return found


class FoldedSelector(Selector):
    """Decide something by folds of the samples, which may have groups and times.

    A subclass writes `_fit_target(X, target)`.
    """

    @engine.session()
    def fit(self, X: Any, y: Any = None, groups: Any = None, times: Any = None) -> Self:
        """Choose by folds of the samples, and then from all of them.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples, as in the `fit` of the other selectors.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
            Labels or targets, as in the `fit` of the candidates.
        groups : array-like of shape (n_samples,), default=None
            Group of each sample, such as a donor, a user or a site. No group is in both parts of a
            fold.
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
            As in the `fit` of the candidates. Also, a parameter does not suit X or y, or
            `groups` or `times` has another length than X, or fewer values than there are folds.
        MemoryLimitError
            The projected memory of the run is above the limit.
        """
        return self._run(X, y, groups=groups, times=times)

    def _fit(self, X: Matrix, y: Any, groups: Any = None, times: Any = None) -> None:
        self._fit_target(X, Target(y, samples_of(X.shape[0], groups, times)))

    @abstractmethod
    def _fit_target(self, X: Matrix, target: Target) -> None:
        """Set what `Selector._fit` sets."""


class Chooser(FoldedSelector):
    """Choose between candidates by folds of the samples, for one number of features or several."""

    _nested = False  # `fit_path` makes one choice for all numbers

    def _fit_target(self, X: Matrix, target: Target) -> None:
        m = self._count(X.shape[1])
        self._adopt(self._fit_sizes(X, target, [m])[m])

    @engine.session()
    def fit_path(
        self, X: Any, y: Any, sizes: Sequence[int], groups: Any = None, times: Any = None
    ) -> dict[int, Self]:
        """Fit several numbers of features, with one choice for all of them.

        The mean over the numbers of the scores or losses decides.

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
        dict of {int or float: Selector}
            A fitted copy of this selector for each size.

        Raises
        ------
        ValueError
            As in `fit`.
        """
        template = clone(self)
        matrix, y = template._as_matrix(X, y)
        template._leave_out_constants(matrix)
        path = copies(template, sizes)
        counts = {m: one._required_count(matrix.shape[1]) for m, one in path.items()}
        largest = path[max(counts, key=lambda m: counts[m])]
        target = Target(y, samples_of(matrix.shape[0], groups, times))
        fitted = largest._fit_sizes(matrix, target, list(counts.values()))
        for m, one in path.items():
            one._take_fitted(largest)
            one._adopt(fitted[counts[m]])
            one._describe_target(y)
            one._choose()
        return path

    @abstractmethod
    def _fit_sizes(self, X: Matrix, target: Target, sizes: Sequence[int]) -> dict[int, Any]:
        """Choose a candidate, and return it fitted for each number of features."""

    def _adopt(self, chosen: Selector) -> None:
        """Take over what the chosen candidate has fitted."""
        self._take_fitted(chosen)
