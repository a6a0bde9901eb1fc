"""Relevance against redundancy, feature by feature: mRMR and RRPC.

    choose argmax_j  R_j − (1/s) Σ_{i∈S} t_ji        difference   [Peng, Long, Ding 2005]
    choose argmax_j  R_j / ((1/s) Σ_{i∈S} t_ji)      quotient     [Ding, Peng 2005, Table 1]

S holds the s features chosen so far. R_j is the relevance of feature j, and t_ji its redundancy
with feature i:

    mutual information   R_j = I(x_j; y),  t_ji = I(x_j; x_i)    on binned values
    F                    R_j = F statistic of the target,  t_ji = |ρ(x_j, x_i)|
    RRPC                 R_j = correlation with the labels,  t_ji = |ρ(x_j, x_i)| over all samples
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import StrOptions

from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import Cost, map_all_columns
from bigfs.selectors.base.labels import TARGETS, Labels, at_least_two, is_real, real_target
from bigfs.selectors.base.parameters import COUNT
from bigfs.selectors.greedy.pair_terms import Correlations, Information
from bigfs.selectors.greedy.search import GreedySelector, Problem
from bigfs.selectors.scores.bins import count_bins
from bigfs.selectors.scores.classes import ANOVA, Fisher
from bigfs.selectors.scores.targets import regression_f
from bigfs.types import FloatArray

LARGEST = 1e12  # of F, so that redundancy decides among features that explain the target wholly
SMALLEST = 1e-12  # a mean redundancy below this one counts as this one in a quotient


class MRMR(GreedySelector):
    """Choose features one by one, each relevant to the target and not redundant with the others.

    Minimum redundancy, maximum relevance [1]_ chooses the most relevant feature first. Each next
    one has the largest difference, or quotient, of its relevance and its mean redundancy with those
    chosen before. Unlabeled samples are left out.

    Parameters
    ----------
    %(select)s
    relevance : {"mutual-info", "f"}, default="mutual-info"
        "mutual-info" takes the mutual information with the class, and that of two features as their
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
    %(greedy_scores)s
    criterion_ : ndarray of shape (n_selected,)
        Value of the criterion of each chosen feature when it was chosen. The first one is its
        relevance.
    %(greedy_selected)s
    %(greedy_result)s

    See Also
    --------
    JMI : Joint information of pairs of features in place of redundancy.
    RRPC : Correlations for few labels.
    SparGE : Choose features together, with a certificate.

    Notes
    -----
    The bins are those of `MutualInformation`. A feature's terms with those chosen before are
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
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import MRMR
    >>> X, y = load_iris(return_X_y=True)
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

    _cost = Cost("1 to m", "d + columns")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "relevance": [StrOptions({"mutual-info", "f"})],
        "scheme": [StrOptions({"auto", "difference", "quotient"})],
        "target": [StrOptions(TARGETS)],
        "n_bins": [*COUNT, StrOptions({"auto"})],
    }

    @property
    def _takes_real(self) -> bool:  # type: ignore[override]
        return self.relevance == "f"

    def _validate_params(self) -> None:
        super()._validate_params()
        if self.target != "auto" and not self._takes_real:
            raise ValueError(
                f"target={self.target!r} needs relevance='f'; got relevance={self.relevance!r}"
            )

    def _check_y(self, y: Any) -> Any:
        """Return `Labels`, or a real target where "f" gets one."""
        values = np.asarray(y.toarray() if sp.issparse(y) else y)
        if self._takes_real and is_real(values, self.target):
            return real_target(values)
        return super()._check_y(y)

    def _prepare(self, X: Matrix, y: Any) -> Problem:
        if not isinstance(y, Labels):
            everyone = np.zeros(X.shape[0], dtype=np.int64)
            return Problem(np.minimum(regression_f(X, y), LARGEST), Correlations(everyone))
        if self.relevance == "f":
            anova = ANOVA()
            anova._fit(X, y)
            return Problem(np.minimum(anova.scores_, LARGEST), Correlations(y.codes))
        n_bins = count_bins(self._allowed(X), self.n_bins)
        problem, _ = information_problem(X, y, n_bins, conditional=False)
        return problem

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

    Parameters
    ----------
    %(select)s

    Attributes
    ----------
    %(greedy_scores)s
    criterion_ : ndarray of shape (n_selected,)
        Value of the criterion of each chosen feature when it was chosen. The first one is its
        relevance.
    %(greedy_selected)s
    %(greedy_result)s

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
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import RRPC
    >>> X, y = load_iris(return_X_y=True)
    >>> few = np.where(np.arange(150) % 10, -1, y)
    >>> RRPC(n_features_to_select=2).fit(X, few).selected_
    array([2, 1])
    """

    _cost = Cost("1 to m", "d + columns")
    _semi_supervised = True

    def _prepare(self, X: Matrix, y: Labels) -> Problem:
        fisher = Fisher()  # SSB / SSW
        fisher._fit(X, y)
        with np.errstate(divide="ignore"):
            eta = 1 / np.sqrt(1 + 1 / fisher.scores_)
        return Problem(eta, Correlations(np.zeros(X.shape[0], dtype=np.int64)))

    def _criterion(self, problem: Problem, totals: FloatArray, pending: Any, s: int) -> FloatArray:
        return problem.relevance - totals / s


def information_problem(
    X: Matrix, y: Labels, n_bins: int, *, conditional: bool
) -> tuple[Problem, FloatArray]:
    """Return the problem of a criterion of information, and the entropy of each binned feature."""
    classes, codes = at_least_two(y)
    pairs = Information(codes, len(classes), n_bins, conditional)
    parts = map_all_columns(X, _relevance, pairs, label="mutual information")
    information, entropy = np.concatenate(parts).T
    return Problem(information, pairs), entropy


def _relevance(block: Any, start: int, stop: int, pairs: Information) -> FloatArray:
    return pairs.relevance(pairs.prepare(block))
