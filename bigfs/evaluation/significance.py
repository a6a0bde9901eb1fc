"""Statistics of a comparison of methods: overlap and stability, paired tests, Holm's adjustment.

Two methods are tested on the same samples. Each has a loss per sample (`metrics.losses_of`).
A sample on which the losses differ is discordant, and the method with the smaller loss wins it. If
neither is better, a win is as likely as a defeat, so the wins are binomial with p = ½. For classes,
where a loss is 0 or 1, this sign test is McNemar's exact test.

Over folds the scores of the two methods are paired fold by fold. Training sets of different folds
share samples, so the variance of the differences d is too small. Nadeau and Bengio (2003) correct
it:

    t = mean(d) / √( (1/J + n_test / n_train) · var(d) ),      J − 1 degrees of freedom

Fewer than five folds say nothing of that variance, so there is no p-value. Right answers of small
folds are equally many by chance, so the variance is at least the binomial one of the discordant
answers. The best of K methods is picked on the same samples, so its tests against the others are
K − 1 of the K(K − 1)/2 of all pairs, and Holm's adjustment is for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest, t

from bigfs.types import AnyArray, FloatArray

MIN_FOLDS = 5  # of which a variance is estimated
ROUNDING = 1e-12  # of differences of scores


class PairedTest(NamedTuple):
    """Two methods on the same samples."""

    wins: int  # samples on which the first method has the smaller loss
    defeats: int  # samples on which it has the larger loss
    p_value: float  # two-sided p-value of the sign test, 1 without a discordant sample

    @property
    def discordant(self) -> int:
        """The number of samples on which the losses differ."""
        return self.wins + self.defeats


def paired_test(losses: Any, others: Any) -> PairedTest:
    """Test whether two methods have the same losses, by the exact sign test."""
    losses, others = np.asarray(losses), np.asarray(others)
    if losses.shape != others.shape:
        raise ValueError(
            f"paired methods must have the same samples; got {len(losses)} and {len(others)}"
        )
    wins, defeats = (int(np.count_nonzero(c)) for c in (losses < others, losses > others))
    p_value = float(binomtest(wins, wins + defeats).pvalue) if wins + defeats else 1.0
    return PairedTest(wins, defeats, p_value)


def corrected_t_test(differences: Any, test_ratio: float, least_variance: float = 0.0) -> float:
    """Test whether two methods have the same mean score, by the corrected resampled t-test.

    The p-value is NaN for fewer than five folds, and where the differences do not vary at all.
    """
    d = np.asarray(differences, dtype=np.float64)
    if not d.any():
        return 1.0
    mean, variance = d.mean(), max(d.var(ddof=1) if len(d) > 1 else 0.0, least_variance)
    if len(d) < MIN_FOLDS or (np.ptp(d) <= ROUNDING and not least_variance):
        return float("nan")
    statistic = mean / np.sqrt((1 / len(d) + test_ratio) * variance)
    return float(2 * t.sf(abs(statistic), len(d) - 1))


def holm(p_values: Sequence[float], n_tests: int = 0) -> FloatArray:
    """Adjust the p-values of one family of tests by Holm's method. NaN stays.

    The family has `n_tests`, of which these are the ones with the smallest p-values, or these.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")  # NaN comes last
    adjusted = np.empty(len(p))
    factors = max(n_tests, len(p)) - np.arange(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted


def jaccard(chosen: AnyArray, others: AnyArray) -> float:
    """Return the overlap of two sets of features: |A ∩ B| / |A ∪ B|, 1 for two empty sets."""
    first, second = set(np.asarray(chosen).tolist()), set(np.asarray(others).tolist())
    return len(first & second) / len(first | second) if first | second else 1.0


class ChoiceStability(NamedTuple):
    """How alike the choices of one method from several samples are."""

    phi: float
    overlap: float  # mean Jaccard index of all pairs


def choice_stability(choices: Sequence[AnyArray], d: int) -> ChoiceStability:
    """Measure how alike several choices among d features are."""
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
