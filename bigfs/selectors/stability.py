"""Stability: how often each feature is chosen from random subsamples.

    p_j = share of the M subsamples whose m_s chosen features hold j
    Φ   = 1 − mean_j [ M/(M−1) · p_j (1 − p_j) ] / [ k̄/d · (1 − k̄/d) ],      k̄ = mean of m_s

p is the selection probability of Meinshausen and Bühlmann (2010), and Φ the stability of Nogueira,
Sechidis and Brown (2018, Definition 4). Of complementary pairs of halves, with τ > ½,

    E |{j: p_j ≥ τ, j is chosen from a half with probability θ at most}|  ≤  θ/(2τ − 1) · k̄

holds for every method and any law of the samples [Shah and Samworth 2013, Theorem 1]. With θ = k̄/d,
the probability of a random choice, the right side is k̄²/(d (2τ − 1)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, validate_params

from bigfs import engine
from bigfs.cards import brief
from bigfs.evaluation.quality import absolute_correlations
from bigfs.evaluation.significance import stability_index
from bigfs.evaluation.splits import draw_halves, draw_subsamples
from bigfs.matrix import Matrix
from bigfs.result import scope
from bigfs.selectors.base.chooser import Target
from bigfs.selectors.base.estimator import Selector, require_no_graph
from bigfs.selectors.base.labels import Labels
from bigfs.types import FloatArray, IntArray

COPIES = 0.9  # |correlation| of two features from which each may stand for the other
MOST_COMPARED = 500  # features, those most often chosen, that are compared


@dataclass(frozen=True)
class CopyGroup:
    """Features that are near copies of each other, of which a half may choose any."""

    features: IntArray  # increasing
    frequency: float  # share of the subsamples that chose at least one of them


@dataclass(frozen=True)
class Stability:
    """How often each feature was chosen."""

    __repr__ = brief

    frequencies: FloatArray  # (d,)
    index: float  # Φ: 1 for the same choice each time, 0 in the mean for a random one
    n_subsamples: int
    is_paired: bool = False  # whether the subsamples are complementary pairs of halves
    groups: tuple[CopyGroup, ...] = ()  # of the features that were chosen; for pairs alone

    @property
    def mean_size(self) -> float:
        """The mean number k̄ of chosen features."""
        return float(self.frequencies.sum())

    def false_choices(self, threshold: float) -> float:
        """Return a bound of the expected number of false choices among the `chosen`.

        A false choice is a feature that a half chooses no more often than at random: with a
        probability of `mean_size` in the number of features.

        Parameters
        ----------
        threshold : float
            Least frequency, above 1/2.

        Returns
        -------
        float
            The bound, for complementary pairs and any method.

        Raises
        ------
        ValueError
            The threshold is 1/2 or less, or the subsamples are no pairs.
        """
        if not self.is_paired:
            raise ValueError("the bound on false choices needs pairs=True in stability")
        if not 0.5 < threshold <= 1:
            raise ValueError(f"threshold must be above 0.5 and at most 1; got {threshold}")
        return self.mean_size**2 / (len(self.frequencies) * (2 * threshold - 1))

    def chosen(self, threshold: float) -> IntArray:
        """Return the features of at least this frequency, the most frequent first.

        Parameters
        ----------
        threshold : float
            Least frequency.

        Returns
        -------
        ndarray of shape (n_chosen,)
            Their indices.
        """
        order = np.argsort(-self.frequencies, kind="stable")
        return order[: np.count_nonzero(self.frequencies >= threshold)]


@validate_params(
    {
        "selector": [Selector],
        "n_subsamples": [Interval(Integral, 2, None, closed="left")],
        "train_size": [Interval(Real, 0, 1, closed="neither")],
        "random_state": [Interval(Integral, 0, None, closed="left")],
        "pairs": ["boolean"],
    },
    prefer_skip_nested_validation=False,
)
@engine.session()
def stability(
    selector: Selector,
    X: Any,
    y: Any = None,
    *,
    n_subsamples: int = 50,
    train_size: float = 0.5,
    random_state: int = 0,
    pairs: bool = False,
) -> Stability:
    """Count how often each feature is chosen from random subsamples.

    Parameters
    ----------
    selector : Selector
        The selector. It is not fitted itself.
    X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
        Samples, as in its `fit`.
    y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
        Labels or targets, as in its `fit`.
    n_subsamples : int, default=50
        Number of subsamples.
    train_size : float, default=0.5
        Share of the samples in each, drawn without replacement. Each class gives its share, and one
        sample at least.
    random_state : int, default=0
        Seed of the draws.
    pairs : bool, default=False
        Whether the subsamples are complementary pairs of halves, which bound the expected number of
        false choices [3]_. `n_subsamples` must be even then, and `train_size` 0.5.

    Returns
    -------
    Stability
        The `frequencies` of the d features, between 0 and 1, and the `index` Φ of [2]_: 1 where the
        choice is always the same, 0 in the mean where it is random. It is 1 where every feature or
        none is chosen each time. With `pairs`, ``false_choices(threshold)`` is the bound for the
        features that ``chosen(threshold)`` returns, and `groups` holds near copies, by an absolute
        correlation of 0.9 and more: one of two copies cannot be sure, though the two together are.

    Raises
    ------
    ValueError
        As in the `fit` of the selector, or the subsamples cannot be pairs.

    References
    ----------
    .. [1] N. Meinshausen and P. Bühlmann, "Stability selection", Journal of the Royal Statistical
       Society B 72, 2010.
    .. [2] S. Nogueira, K. Sechidis and G. Brown, "On the stability of feature selection
       algorithms", Journal of Machine Learning Research 18, 2018.
    .. [3] R. D. Shah and R. J. Samworth, "Variable selection with error control: another look at
       stability selection", Journal of the Royal Statistical Society B 75, 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import ANOVA, stability
    >>> X, y = load_iris(return_X_y=True)
    >>> found = stability(ANOVA(n_features_to_select=2), X, y, n_subsamples=10)
    >>> found.frequencies
    array([0., 0., 1., 1.])
    >>> found.index
    1.0
    """
    require_no_graph(selector, "stability")
    if pairs and (n_subsamples % 2 or train_size != 0.5):
        raise ValueError(
            f"pairs=True needs an even n_subsamples and train_size=0.5; got {n_subsamples} and "
            f"{train_size}"
        )
    template = clone(selector)
    matrix, y = template._as_matrix(X, y)
    counts, chosen = np.zeros(matrix.shape[1]), list[IntArray]()
    groups = y.codes if isinstance(y, Labels) else np.zeros(matrix.shape[0], dtype=np.int64)
    if pairs:
        draws = draw_halves(groups, n_subsamples // 2, random_state)
    else:
        draws = draw_subsamples(groups, n_subsamples, train_size, random_state)
    for number, rows in enumerate(draws, 1):
        with scope(f"subsample {number}"):
            part = Target(y).take(rows).fit(clone(selector), matrix[rows])
        counts[part.selected_] += 1
        chosen.append(part.selected_)
        engine.show_progress("subsamples", number, n_subsamples)
    frequencies = counts / n_subsamples
    mean_size = float(np.mean([len(one) for one in chosen]))
    index = stability_index(frequencies, mean_size, n_subsamples)
    copies = copy_groups(matrix, frequencies, chosen) if pairs else ()
    return Stability(frequencies, index, n_subsamples, pairs, copies)


def copy_groups(
    X: Matrix, frequencies: FloatArray, chosen: Sequence[IntArray]
) -> tuple[CopyGroup, ...]:
    """Return the groups of near copies among the features most often chosen, most frequent first.

    Two copies of a third feature are in its group.
    """
    most = np.sort(np.argsort(-frequencies, kind="stable")[:MOST_COMPARED])
    most = most[frequencies[most] > 0]
    n_groups, labels = connected_components(absolute_correlations(X, most) >= COPIES, False)
    groups = [most[labels == k] for k in range(n_groups)]
    found = [
        CopyGroup(group, float(np.mean([np.isin(one, group).any() for one in chosen])))
        for group in groups
        if len(group) > 1
    ]
    return tuple(sorted(found, key=lambda group: -group.frequency))
