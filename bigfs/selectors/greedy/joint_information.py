"""Information that a feature adds to each of those chosen: JMI and CMIM.

    JMI    choose argmax_j  (1/s) Σ_{i∈S} I(x_j; y | x_i)              [Yang, Moody 1999]
    CMIM   choose argmax_j  min( I(x_j; y), min_{i∈S} I(x_j; y | x_i) )    [Fleuret 2004]

S holds the s features chosen so far. The first one has the largest I(x_j; y). The joint mutual
information Σ_i I(x_j, x_i; y) of Yang and Moody differs from JMI's sum by Σ_i I(x_i; y), which is
the same for every j. I(x_j; y | x_i) is at most the entropy of x_j, which bounds JMI from above.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.labels import Labels
from bigfs.selectors.base.parameters import COUNT
from bigfs.selectors.greedy.mrmr import information_problem
from bigfs.selectors.greedy.search import GreedySelector, Problem
from bigfs.selectors.scores.bins import count_bins
from bigfs.types import FloatArray

SLACK = 1 + 1e-9  # of an upper bound, for rounding


class _JointInformation(GreedySelector):
    """Base of the criteria of I(x_j; y | x_i)."""

    n_bins: int | str = "auto"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_bins": [*COUNT, StrOptions({"auto"})],
    }

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
    %(select)s
    %(n_bins)s

    Attributes
    ----------
    %(greedy_scores)s
    criterion_ : ndarray of shape (n_selected,)
        Value of the criterion of each chosen feature when it was chosen. The first one is its
        mutual information with the class.
    %(greedy_selected)s
    %(greedy_result)s

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
    %(select)s
    %(n_bins)s

    Attributes
    ----------
    %(greedy_scores)s
    criterion_ : ndarray of shape (n_selected,)
        Value of the criterion of each chosen feature when it was chosen. The first one is its
        mutual information with the class.
    %(greedy_selected)s
    %(greedy_result)s

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
