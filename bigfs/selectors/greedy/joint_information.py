"""Information that a feature adds to each of those chosen: JMI and CMIM.

    JMI    choose argmax_j  (1/s) Σ_{i∈S} I(x_j; y | x_i)              [Yang, Moody 1999]
    CMIM   choose argmax_j  min( I(x_j; y), min_{i∈S} I(x_j; y | x_i) )    [Fleuret 2004]

S holds the s features chosen so far. The first one has the largest I(x_j; y). The joint mutual
information Σ_i I(x_j, x_i; y) of Yang and Moody differs from JMI's sum by Σ_i I(x_i; y), which is
the same for every j. I(x_j; y | x_i) is at most the entropy of x_j, which bounds JMI from above.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import Cost, Labels, Selector
from bigfs.selectors.greedy.mrmr import information_problem
from bigfs.selectors.greedy.search import GreedySelector, Problem
from bigfs.selectors.scores.bins import count_bins
from bigfs.types import FloatArray

SLACK = 1 + 1e-9  # of an upper bound, for rounding


class _JointInformation(GreedySelector):
    """Base of the criteria of I(x_j; y | x_i)."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Selector._parameter_constraints,
        "n_bins": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    }

    def __init__(
        self,
        *,
        n_features_to_select: int | float | None = None,
        keep: Any = None,
        forbid: Any = None,
        n_bins: int | str = "auto",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.keep = keep
        self.forbid = forbid
        self.n_bins = n_bins

    def _prepare(self, X: Matrix, y: Labels) -> Problem:
        n_bins = count_bins(self._allowed(X), self.n_bins)
        problem, entropy = information_problem(X, y, n_bins, conditional=True)
        return problem._replace(largest=entropy)


class JMI(_JointInformation):
    """Choose features one by one, each of the largest joint mutual information with the others.

    Joint mutual information [1]_ asks how much a feature and each of those chosen before say about
    the class together. Unlike `MRMR` it sees features that help only together. Unlabeled samples of
    a store are left out.

    Parameters
    ----------
    n_features_to_select : int, float or None, default=None
        Number of features to keep. A float in (0, 1] is a share of the features, and None keeps
        half of them.
    keep : array-like of int or str, default=None
        Features that must be chosen, as indices or names.
    forbid : array-like of int or str, default=None
        Features that must not be chosen, as indices or names.
    n_bins : "auto" or int, default="auto"
        Number of bins of a feature's non-zero values. "auto" takes one where fewer than half of the
        values of X are non-zero, and 10 elsewhere.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        1 − k/m for the feature that was chosen after k others out of m, and 0 for the others.
    criterion_ : ndarray of shape (n_selected,)
        Value of the criterion of each chosen feature when it was chosen. The first one is its
        mutual information with the class.
    selected_ : ndarray of shape (n_selected,)
        Indices of the chosen features, in the order of the choices. Of equal ones the first is
        chosen.
    support_ : ndarray of shape (n_features,)
        Mask of the chosen features.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X is a data frame whose column names are strings.
    result_ : bigfs.result.Result
        Status and history. `stats` has the numbers of passes over X and of gathered columns.

    See Also
    --------
    CMIM : The least information that a feature adds to another, in place of the mean.
    MRMR : Relevance against redundancy.

    Notes
    -----
    With s features i chosen before, the next one maximizes::

        (1/s) Σ_i I(x_j; y | x_i)

    This differs from the mean of I(x_j, x_i; y) by a number that is the same for every feature. The
    bins are those of `MutualInformation`.

    References
    ----------
    .. [1] Yang and Moody, "Data visualization and feature selection: new algorithms for nongaussian
       data", NIPS 1999.
    .. [2] Brown, Pocock, Zhao and Luján, "Conditional likelihood maximisation: a unifying framework
       for information theoretic feature selection", Journal of Machine Learning Research 13, 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import JMI
    >>> X, y = load_iris(return_X_y=True)
    >>> JMI(n_features_to_select=3).fit(X, y).selected_
    array([3, 0, 2])
    """

    _cost = Cost("1 to m", "d + columns")

    def _criterion(self, problem: Problem, totals: FloatArray, pending: Any, s: int) -> FloatArray:
        return (totals + np.where(pending > 0, pending * problem.largest * SLACK, 0)) / s


class CMIM(_JointInformation):
    """Choose features one by one, each of which adds information to every one before.

    Conditional mutual information maximization [1]_ scores a feature by the least information that
    it adds to one of those chosen before. Unlabeled samples are left out.

    Parameters
    ----------
    n_features_to_select : int, float or None, default=None
        Number of features to keep. A float in (0, 1] is a share of the features, and None keeps
        half of them.
    keep : array-like of int or str, default=None
        Features that must be chosen, as indices or names.
    forbid : array-like of int or str, default=None
        Features that must not be chosen, as indices or names.
    n_bins : "auto" or int, default="auto"
        Number of bins of a feature's non-zero values. "auto" takes one where fewer than half of the
        values of X are non-zero, and 10 elsewhere.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        1 − k/m for the feature that was chosen after k others out of m, and 0 for the others.
    criterion_ : ndarray of shape (n_selected,)
        Value of the criterion of each chosen feature when it was chosen. The first one is its
        mutual information with the class.
    selected_ : ndarray of shape (n_selected,)
        Indices of the chosen features, in the order of the choices. Of equal ones the first is
        chosen.
    support_ : ndarray of shape (n_features,)
        Mask of the chosen features.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X is a data frame whose column names are strings.
    result_ : bigfs.result.Result
        Status and history. `stats` has the numbers of passes over X and of gathered columns.

    See Also
    --------
    JMI : The mean of what a feature adds, in place of the least.
    MRMR : Relevance against redundancy.

    Notes
    -----
    With features i chosen before, the next one maximizes::

        min( I(x_j; y), min_i I(x_j; y | x_i) )

    The value of a feature can only fall, so only features near the best are compared. The bins are
    those of `MutualInformation`. Fleuret's features are binary, as those of sparse data are here.

    References
    ----------
    .. [1] Fleuret, "Fast binary feature selection with conditional mutual information", Journal of
       Machine Learning Research 5, 2004.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import CMIM
    >>> X, y = load_iris(return_X_y=True)
    >>> CMIM(n_features_to_select=3).fit(X, y).selected_
    array([3, 0, 2])
    """

    _cost = Cost("1 to m", "d + columns")
    _least = True

    def _first_totals(self, relevance: FloatArray) -> FloatArray:
        return relevance.copy()

    def _criterion(self, problem: Problem, totals: FloatArray, pending: Any, s: int) -> FloatArray:
        return totals.copy()
