"""The rank-sum test of each class against the rest, one feature at a time [Mann and Whitney 1947].

    U_c   = R_c − n_c(n_c + 1)/2               R_c: the sum of the ranks of class c
    AUC_c = U_c / n_c(n − n_c)
    p_c   = 2 Φ( −(max(U_c, n_c(n − n_c) − U_c) − μ_c − ½) / σ_c ),    μ_c = n_c(n − n_c)/2
    σ_c²  = n_c(n − n_c)/12 · (n + 1 − Σ (t³ − t) / n(n − 1))          t: samples of one value

Samples of one value share the mean of their ranks. Only the non-zero entries are sorted: all zeros
of a column are samples of one value.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
from numba import njit
from scipy.special import ndtr

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import class_sizes
from bigfs.selectors.base.estimator import MANY, Cost, Selector, map_all_columns
from bigfs.selectors.base.labels import Labels, at_least_two
from bigfs.selectors.scores.bins import labeled_columns
from bigfs.types import FloatArray, IntArray

CLASS_BYTES = 66  # of each feature and class: its AUC and p-value, and what makes them


class RankSum(Selector):
    """Score each feature by the area under the ROC curve of the class that it tells best.

    Every class is compared with all other samples by the rank-sum test of Wilcoxon, Mann and
    Whitney [1]_. Unlabeled samples are left out.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Largest distance of the AUC from ½, over the classes. Larger is better.
    auc_ : ndarray of shape (n_classes, n_features)
        Share of the pairs of a sample of the class and one of the rest in which the first has the
        larger value. Equal values count half.
    pvalues_ : ndarray of shape (n_classes, n_features)
        Two-sided p-value of each class and feature.
    %(classes)s
    %(passes)s

    See Also
    --------
    ANOVA : The F statistic, which a few large values may decide.
    HighlyVariable : Genes that vary, without classes.

    Notes
    -----
    The p-values equal ``scipy.stats.mannwhitneyu(..., method="asymptotic")``: the normal
    approximation with the corrections for ties and for continuity. They are not corrected for the
    number of tests. It needs one pass over X. A matrix by rows alone is gathered in batches of
    columns, with a pass for each. Zeros of sparse columns are never made dense.

    References
    ----------
    .. [1] H. B. Mann and D. R. Whitney, "On a test of whether one of two random variables is
       stochastically larger than the other", Annals of Mathematical Statistics 18, 1947,
       doi:10.1214/aoms/1177730491.

    Examples
    --------
    %(iris)s
    >>> from bigfs import RankSum
    >>> selector = RankSum(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 3])
    >>> selector.auc_.round(2)
    array([[0.04, 0.88, 0.  , 0.  ],
           [0.57, 0.21, 0.51, 0.51],
           [0.89, 0.41, 0.99, 0.99]])
    """

    auc_: FloatArray = field(init=False)
    pvalues_: FloatArray = field(init=False)

    _largest_tried = MANY
    _scores_alone = True
    _cost = Cost("1", "8 d c", by_rows="1, then 1 per batch of columns")

    def _fit(self, X: Matrix, y: Labels) -> None:
        self.classes_, codes = at_least_two(y)
        d, c = X.shape[1], len(self.classes_)
        engine.require_memory(CLASS_BYTES * d * c, f"the AUC of {d:,} features and {c:,} classes")
        sizes = class_sizes(codes, c)
        parts = map_all_columns(X, _test, codes, sizes, label="ranks")
        tests = np.concatenate(parts, axis=1)
        self.auc_, self.pvalues_, constant = tests[:c], tests[c:-1], np.flatnonzero(tests[-1])
        self.scores_ = np.abs(self.auc_ - 0.5).max(axis=0)
        self._constraints = self._constraints.with_constant(constant)


def _test(block: Any, start: int, stop: int, codes: IntArray, sizes: IntArray) -> FloatArray:
    """Return the AUC and the p-value of each class, and whether a column is constant.

    They lie one below the other (2c + 1 × width).
    """
    Z = labeled_columns(block, codes)
    ranks, ties = np.zeros((len(sizes), Z.shape[1])), np.empty(Z.shape[1])
    _add_ranks(Z.indptr, Z.indices, Z.data, codes, sizes, ranks, ties)
    n, own = float(sizes.sum()), sizes[:, None].astype(np.float64)
    pairs = own * (n - own)
    U = ranks - own * (own + 1) / 2
    with np.errstate(divide="ignore"):  # σ of a constant column is zero
        sigma = np.sqrt(pairs / 12 * np.maximum((n + 1) - ties / (n * (n - 1)), 0))
        p = 2 * ndtr(-(np.maximum(U, pairs - U) - pairs / 2 - 0.5) / sigma)
    return np.concatenate([U / pairs, np.minimum(p, 1), sigma[:1] == 0])


@njit(nogil=True, cache=True)
def _add_ranks(
    indptr: IntArray,
    rows: IntArray,
    values: FloatArray,
    codes: IntArray,
    sizes: IntArray,
    ranks: FloatArray,
    ties: FloatArray,
) -> None:
    """Add up the ranks of each class (c × width), and fill in Σ (t³ − t) of each column, which is
    infinite for a constant one."""
    n = sizes.sum()
    for j in range(len(indptr) - 1):
        first, last = indptr[j], indptr[j + 1]
        order = np.argsort(values[first:last]) + first
        n_zeros = n - len(order)
        zeros_ranked, k, below, tied = n_zeros == 0, 0, 0, 0.0
        while below < n:
            if not zeros_ranked and (k == len(order) or values[order[k]] > 0):
                zeros_ranked, size = True, n_zeros
                rank = below + (size + 1) / 2
                zeros = sizes.copy()
                for p in range(first, last):
                    zeros[codes[rows[p]]] -= 1
                for c in range(len(sizes)):
                    ranks[c, j] += zeros[c] * rank
            else:
                begin = k
                while k < len(order) and values[order[k]] == values[order[begin]]:
                    k += 1
                size = k - begin
                rank = below + (size + 1) / 2
                for p in order[begin:k]:
                    ranks[codes[rows[p]], j] += rank
            tied += float(size) ** 3 - size
            below += size
        ties[j] = np.inf if size == n else tied
