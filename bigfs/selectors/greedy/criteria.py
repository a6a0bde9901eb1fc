"""Features chosen one by one, by their relevance and their terms with those chosen before.

    mRMR   choose argmax_j  R_j − (1/s) Σ_{i∈S} t_ji        difference   [Peng, Long, Ding 2005]
           choose argmax_j  R_j / ((1/s) Σ_{i∈S} t_ji)      quotient     [Ding, Peng 2005, Table 1]
    RRPC   choose argmax_j  η_j − (1/s) Σ_{i∈S} |ρ(x_j, x_i)|            [Xu and others 2017]
    JMI    choose argmax_j  (1/s) Σ_{i∈S} I(x_j; y | x_i)                [Yang, Moody 1999]
    CMIM   choose argmax_j  min( I(x_j; y), min_{i∈S} I(x_j; y | x_i) )  [Fleuret 2004]

S holds the s features chosen so far, and the first one has the largest relevance. The relevance in
mRMR and its redundancy t_ji of two features are

    mutual information   R_j = I(x_j; y),  t_ji = I(x_j; x_i)    on binned values
    F                    R_j = F statistic of the target,  t_ji = |ρ(x_j, x_i)|

η_j is the correlation with the labels, and ρ is over all samples. The joint mutual information
Σ_i I(x_j, x_i; y) of Yang and Moody differs from JMI's sum by Σ_i I(x_i; y), which is the same for
every j. I(x_j; y | x_i) is at most the entropy of x_j, which bounds JMI from above.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import map_all_columns
from bigfs.selectors.base.labels import (
    Labels,
    at_least_two,
    is_real,
    labeled_part,
    real_target,
)
from bigfs.selectors.greedy.correlations import Correlations
from bigfs.selectors.greedy.search import GreedySelector, Problem
from bigfs.selectors.scores.bins import Information, count_bins
from bigfs.selectors.scores.classes import ANOVA, Fisher
from bigfs.selectors.scores.targets import regression_f
from bigfs.types import FloatArray

LARGEST = 1e12  # of F, so that redundancy decides among features that explain the target wholly
SMALLEST = 1e-12  # a mean redundancy below this one counts as this one in a quotient
SLACK = 1 + 1e-9  # of an upper bound, for rounding


class MRMR(GreedySelector):
    """Choose features one by one, each relevant to the target and not redundant with the others.

    Minimum redundancy, maximum relevance [1]_ chooses the most relevant feature first. Each next
    one has the largest difference, or quotient, of its relevance and its mean redundancy with those
    chosen before. Unlabeled samples are left out.

    Parameters
    ----------
    relevance : {"mutual-info", "f"}, default="mutual-info"
        "mutual-info" takes the mutual information with the class, and between two features as their
        redundancy. "f" takes the F statistic of the classes or of a real target, and the absolute
        correlation of two features.
    scheme : {"auto", "difference", "quotient"}, default="auto"
        How relevance and redundancy are weighed. "auto" takes the difference for "mutual-info",
        whose two terms have one unit, and the quotient for "f", as the package `mrmr-selection`
        does. An F statistic is often hundreds and a correlation at most 1, so that the redundancy
        would decide nothing in a difference.
    target : {"auto", "classes", "real"}, default="auto"
        Kind of y for "f". "auto" takes fractions for real, and whole numbers or
        strings for classes. Say "real" for ages, counts and prices.
        `result_.stats["target"]` says which kind was taken.
    n_bins : "auto" or int, default="auto"
        Number of bins of a feature's non-zero values, for "mutual-info". "auto" takes one where
        fewer than half of the values of X are non-zero, and 10 elsewhere.

    Attributes
    ----------
    %(greedy)s

    See Also
    --------
    JMI : Joint information of pairs of features in place of redundancy.
    RRPC : Correlations for few labels.
    SparGE : Choose features together, with a certificate.

    Notes
    -----
    `MutualInformation` defines the bins. A feature's terms with those chosen before are
    computed only once they can decide, and its column is gathered then. The quotient needs the
    terms of every feature once, in one pass. It counts a mean redundancy below 1e-12 as 1e-12.
    "f" with the quotient is the criterion of the package `mrmr-selection`, whose floor is 1e-3.

    References
    ----------
    .. [1] Peng, Long and Ding, "Feature selection based on mutual information: criteria of
       max-dependency, max-relevance, and min-redundancy", IEEE Transactions on Pattern Analysis and
       Machine Intelligence 27, 2005.
    .. [2] Ding and Peng, "Minimum redundancy feature selection from microarray gene expression
       data", Journal of Bioinformatics and Computational Biology 3, 2005, Table 1.

    Examples
    --------
    %(iris)s
    >>> from bigfs import MRMR
    >>> selector = MRMR(n_features_to_select=3).fit(X, y)
    >>> selector.selected_
    array([3, 2, 1])
    >>> selector.criterion_.round(2)
    array([ 0.98, -0.14, -0.22])
    """

    relevance: Literal["mutual-info", "f"] = "mutual-info"
    scheme: Literal["auto", "difference", "quotient"] = "auto"
    target: str = "auto"
    n_bins: int | str = "auto"

    @property
    def _takes_real(self) -> bool:  # type: ignore[override]
        return self.relevance == "f"

    def _validate_params(self) -> None:
        super()._validate_params()
        if self.target != "auto" and not self._takes_real:
            raise ValueError(
                f"target={self.target!r} needs relevance='f'; got relevance={self.relevance!r}"
            )

    def _check_y(self, y: Any, has_unlabeled: bool) -> Any:
        """Return `Labels`, or a real target where "f" gets one."""
        values = np.asarray(y.toarray() if sp.issparse(y) else y)
        if self._takes_real and is_real(values, self.target):
            return real_target(values)
        return super()._check_y(y, has_unlabeled)

    def _prepare(self, X: Matrix, y: Any) -> Problem:
        if not isinstance(y, Labels):
            everyone = np.zeros(X.shape[0], dtype=np.int64)
            relevance = np.minimum(regression_f(X, y), LARGEST)
            return Problem(relevance, Correlations(everyone), X.deviations > 0)
        if self.relevance == "f":
            anova = ANOVA()
            anova._fit(X, y)
            self._require_information(anova.scores_)
            relevance, part = np.minimum(anova.scores_, LARGEST), labeled_part(X, y)[0]
            return Problem(relevance, Correlations(y.codes), part.deviations > 0)
        return information_problem(X, y, count_bins(self._allowed(X), self.n_bins), False)

    def _criterion(self, problem: Problem, totals: FloatArray, pending: Any, s: int) -> FloatArray:
        of_one_unit = self.relevance == "mutual-info"
        if self.scheme == "difference" or (self.scheme == "auto" and of_one_unit):
            return problem.relevance - totals / s
        return problem.relevance / np.maximum(totals / s, SMALLEST)


class RRPC(GreedySelector):
    """Choose features one by one by correlations, with few labels.

    Relevance and redundancy criteria based on Pearson's correlation [1]_ take the relevance to the
    labels from the labeled samples, and the redundancy of two features from all samples. An
    unlabeled sample has the class −1.

    Attributes
    ----------
    %(greedy)s

    See Also
    --------
    MRMR : The same for samples that are all labeled, with other measures.
    SRLSR : Choose features together from few labels.

    Notes
    -----
    With ρ Pearson's correlation over all samples, η_j that with the labels over the labeled ones,
    and s features chosen before, the next one maximizes::

        η_j − (1/s) Σ_i |ρ(x_j, x_i)|

    With more than two classes the number of a class is no quantity. So η is the correlation ratio,
    the root of the share of a feature's variance that the classes explain. With two classes it is
    the absolute correlation.

    References
    ----------
    .. [1] Xu, Tang, He and Man, "Semisupervised feature selection based on relevance and redundancy
       criteria", IEEE Transactions on Neural Networks and Learning Systems 28, 2017.

    Examples
    --------
    >>> import numpy as np
    %(iris)s
    >>> from bigfs import RRPC
    >>> few = np.where(np.arange(150) % 10, -1, y)
    >>> RRPC(n_features_to_select=2).fit(X, few).selected_
    array([2, 1])
    """

    _semi_supervised = True

    def _prepare(self, X: Matrix, y: Labels) -> Problem:
        fisher = Fisher()  # SSB / SSW
        fisher._fit(X, y)
        self._require_information(fisher.scores_)
        with np.errstate(divide="ignore"):
            eta = 1 / np.sqrt(1 + 1 / fisher.scores_)
        everyone = np.zeros(X.shape[0], dtype=np.int64)
        return Problem(eta, Correlations(everyone), X.deviations > 0)

    def _criterion(self, problem: Problem, totals: FloatArray, pending: Any, s: int) -> FloatArray:
        return problem.relevance - totals / s


class _JointInformation(GreedySelector):
    """Base of the criteria of I(x_j; y | x_i)."""

    n_bins: int | str = "auto"

    def _prepare(self, X: Matrix, y: Labels) -> Problem:
        return information_problem(X, y, count_bins(self._allowed(X), self.n_bins), True)


class JMI(_JointInformation):
    """Choose features one by one, each of the largest joint mutual information with the others.

    Joint mutual information [1]_ asks how much a feature and each of those chosen before say about
    the class together. Unlike `MRMR` it sees features that help only together. Unlabeled samples
    are left out.

    Attributes
    ----------
    %(greedy)s

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
    %(iris)s
    >>> from bigfs import JMI
    >>> JMI(n_features_to_select=3).fit(X, y).selected_
    array([3, 0, 2])
    """

    def _criterion(self, problem: Problem, totals: FloatArray, pending: Any, s: int) -> FloatArray:
        return (totals + np.where(pending > 0, pending * problem.largest * SLACK, 0)) / s


class CMIM(_JointInformation):
    """Choose features one by one, each of which adds information to every one before.

    Conditional mutual information maximization [1]_ scores a feature by the least information that
    it adds to one of those chosen before. Unlabeled samples are left out.

    Attributes
    ----------
    %(greedy)s

    See Also
    --------
    JMI : The mean of what a feature adds, in place of the least.
    MRMR : Relevance against redundancy.

    Notes
    -----
    With features i chosen before, the next one maximizes::

        min( I(x_j; y), min_i I(x_j; y | x_i) )

    The value of a feature can only fall, so only features near the best are compared. The bins are
    those of `MutualInformation`. Fleuret's features are binary, as sparse features are here.

    References
    ----------
    .. [1] Fleuret, "Fast binary feature selection with conditional mutual information", Journal of
       Machine Learning Research 5, 2004.

    Examples
    --------
    %(iris)s
    >>> from bigfs import CMIM
    >>> CMIM(n_features_to_select=3).fit(X, y).selected_
    array([3, 0, 2])
    """

    _least = True

    def _criterion(self, problem: Problem, totals: FloatArray, pending: Any, s: int) -> FloatArray:
        return totals.copy()


def information_problem(X: Matrix, y: Labels, n_bins: int, conditional: bool) -> Problem:
    """Return the problem of a criterion of information. No term is above the entropy."""
    classes, codes = at_least_two(y)
    pairs = Information(codes, len(classes), n_bins, conditional)
    engine.require_memory(
        2 * 8 * (n_bins + 1) * int(np.prod(pairs.shape)),
        f"a table of {n_bins + 1} bins per feature",
    )
    parts = map_all_columns(X, _relevance, pairs, label="mutual information")
    information, entropy = np.concatenate(parts).T
    return Problem(information, pairs, entropy > 0, entropy)


def _relevance(block: Any, start: int, stop: int, pairs: Information) -> FloatArray:
    Z = pairs.prepare(block)
    return np.column_stack([pairs.with_class(Z), pairs.entropy(Z)])
