"""Statistics of a comparison of methods: overlap and stability, paired tests, Holm's adjustment.

Two methods are tested on the same samples. Each has a loss per sample (`metrics.losses_of`).
A sample on which the losses differ is discordant, and the method with the smaller loss wins it. If
neither is better, a win is as likely as a defeat, so the wins are binomial with p = ½. For classes,
where a loss is 0 or 1, this sign test is McNemar's exact test.

Over folds the scores of the two methods are paired fold by fold. Training sets of different folds
share samples, so the variance of the differences d is too small. Nadeau and Bengio (2003) correct
it:

    t = mean(d) / √( (1/J + n_test / n_train) · var(d) ),      J − 1 degrees of freedom
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest, t

from bigfs.types import AnyArray, FloatArray


class PairedTest(NamedTuple):
    """Two methods on the same samples.

    Attributes
    ----------
    wins : int
        Samples on which the first method has the smaller loss.
    defeats : int
        Samples on which it has the larger loss.
    p_value : float
        Two-sided p-value of the sign test, 1 without a discordant sample.
    """

    wins: int
    defeats: int
    p_value: float

    @property
    def discordant(self) -> int:
        """The number of samples on which the losses differ."""
        return self.wins + self.defeats


def paired_test(losses: Any, others: Any) -> PairedTest:
    """Test whether two methods have the same losses, by the exact sign test.

    Parameters
    ----------
    losses, others : array-like of shape (n,)
        Loss of each sample with the first and with the second method.

    Returns
    -------
    PairedTest
        The wins and defeats of the first method, and the p-value.

    Raises
    ------
    ValueError
        The methods have different numbers of samples.
    """
    losses, others = np.asarray(losses), np.asarray(others)
    if losses.shape != others.shape:
        raise ValueError(
            f"paired methods must have the same samples; got {len(losses)} and {len(others)}"
        )
    wins, defeats = (int(np.count_nonzero(c)) for c in (losses < others, losses > others))
    p_value = float(binomtest(wins, wins + defeats).pvalue) if wins + defeats else 1.0
    return PairedTest(wins, defeats, p_value)


def corrected_t_test(differences: Any, test_ratio: float) -> float:
    """Test whether two methods have the same mean score, by the corrected resampled t-test.

    Parameters
    ----------
    differences : array-like of shape (J,)
        Difference of the two methods' scores in each of J ≥ 2 folds.
    test_ratio : float
        Number of test samples by the number of training samples of a fold.

    Returns
    -------
    float
        Two-sided p-value. Where all differences are equal it is 1 if they are 0, and 0 otherwise.

    References
    ----------
    C. Nadeau and Y. Bengio, "Inference for the generalization error", Machine Learning 52, 2003.
    """
    d = np.asarray(differences, dtype=np.float64)
    mean, variance = d.mean(), d.var(ddof=1)
    if np.ptp(d) == 0:
        return float(mean == 0)
    statistic = mean / np.sqrt((1 / len(d) + test_ratio) * variance)
    return float(2 * t.sf(abs(statistic), len(d) - 1))


def holm(p_values: Sequence[float]) -> FloatArray:
    """Adjust the p-values of one family of tests by Holm's method.

    The adjusted value of the k-th smallest of K is the largest of (K − i + 1) p_i over i ≤ k, at
    most 1. Rejecting below α keeps the chance of any false rejection at α or less.

    Parameters
    ----------
    p_values : sequence of float
        The p-values.

    Returns
    -------
    ndarray of shape (len(p_values),)
        The adjusted p-values in the same order.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    factors = len(p) - np.arange(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted


def jaccard(chosen: AnyArray, others: AnyArray) -> float:
    """Return the overlap of two sets of features: |A ∩ B| / |A ∪ B|, 1 for two empty sets."""
    first, second = set(np.asarray(chosen).tolist()), set(np.asarray(others).tolist())
    return len(first & second) / len(first | second) if first | second else 1.0


class ChoiceStability(NamedTuple):
    """How alike the choices of one method from several samples are.

    Attributes
    ----------
    phi : float
        Φ of Nogueira, Sechidis and Brown (2018), which for choices of one size is the mean of
        Kuncheva's index (2007) over all pairs. It is 1 for the same choice each time and 0 in the
        mean for random choices.
    overlap : float
        Mean Jaccard index of all pairs.
    """

    phi: float
    overlap: float


def choice_stability(choices: Sequence[AnyArray], d: int) -> ChoiceStability:
    """Measure how alike several choices among d features are.

    Parameters
    ----------
    choices : sequence of ndarray
        The indices of the chosen features, two choices at least.
    d : int
        Number of features.

    Returns
    -------
    ChoiceStability
        Φ and the mean overlap.

    References
    ----------
    S. Nogueira, K. Sechidis and G. Brown, "On the stability of feature selection algorithms",
    Journal of Machine Learning Research 18, 2018.
    """
    counts = np.bincount(np.concatenate(choices), minlength=d)
    mean_size = float(np.mean([len(choice) for choice in choices]))
    phi = stability_index(counts / len(choices), mean_size, len(choices))
    overlaps = [jaccard(a, b) for a, b in combinations(choices, 2)]
    return ChoiceStability(phi, float(np.mean(overlaps)))


def stability_index(frequencies: FloatArray, mean_size: float, n_subsamples: int) -> float:
    """Return Φ, of the frequencies and the mean number of chosen features."""
    share = mean_size / len(frequencies)
    if share in (0.0, 1.0):
        return 1.0
    variances = frequencies * (1 - frequencies) * n_subsamples / (n_subsamples - 1)
    return float(1 - variances.mean() / (share * (1 - share)))
