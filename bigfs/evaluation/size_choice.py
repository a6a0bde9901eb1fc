"""The number of features, chosen by folds of the training samples.

    m* = min { m : mean_k δ(m, k) ≥ −std_k δ(m, k) / √K },  δ(m, k) = s(m, k) − s(m°, k)

s(m, k) is the score of a linear model on the best m features that a method chooses from the
training rows of fold k, measured on the fold's other rows, and m° = argmax mean_k s. This is the
rule of one standard error of Breiman et al., "Classification and Regression Trees", 1984, section
3.4.3, but with the error of the difference: all sizes are scored on the same folds, some of which
are harder than others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bigfs.evaluation.curves import Rankings, measure
from bigfs.evaluation.metrics import Judge
from bigfs.evaluation.splits import Split
from bigfs.result import Checkpoint
from bigfs.types import AnyArray, FloatArray, IntArray

STEPS = (1, 2, 5)


class SizeChoice(NamedTuple):
    """The number of features, and the scores behind it."""

    n_features: int
    sizes: list[int]
    scores: FloatArray  # (n_sizes, n_folds)
    not_converged: int  # selections that ended before their tolerance


def default_sizes(d: int, largest: int, least: int = 1) -> list[int]:
    """Return 1, 2, 5, 10, 20, 50, … from `least` up to all d features, or `largest` of more."""
    largest = max(min(d, largest), least)
    series = [step * 10**power for power in range(len(str(largest))) for step in STEPS]
    return sorted({least, *(m for m in series if least < m < largest), largest})


def choose_size(
    splits: Sequence[Split],
    sizes: Sequence[int],
    rank: Callable[[int, Split], IntArray],
    metric: str,
    checkpoint: Checkpoint | None = None,
) -> SizeChoice:
    """Return the smallest number of features within one standard error of the best.

    ``rank(number, split)`` returns the features of the largest size, best first.
    """

    def sets(number: int, split: Split) -> Rankings:
        best = rank(number, split)
        return {"": {m: best[:m] for m in sizes}}

    label = "folds for the number of features"
    scores, not_converged = score_folds(splits, sets, metric, checkpoint, label)
    best = smallest_within_one_error(sizes, scores)
    return SizeChoice(best, list(sizes), scores, not_converged)


def score_folds(
    splits: Sequence[Split],
    rank: Callable[[int, Split], Rankings],
    metric: str,
    checkpoint: Checkpoint | None = None,
    label: str = "folds",
) -> tuple[FloatArray, int]:
    """Return the scores (n_sets × n_folds) of the sets that `rank` chooses from each split, in
    their order, and the number of selections that ended before their tolerance."""
    found = measure(
        splits,
        rank,
        with_all=False,
        judge=Judge("logistic" if metric == "neg_log_loss" else "svm", metric == "auc"),
        checkpoint=checkpoint,
        label=label,
    )
    scores = np.transpose([[point.scores[metric] for point in fold] for fold in found.by_split])
    return scores, found.not_converged


def smallest_within_one_error(sizes: Sequence[int] | AnyArray, scores: AnyArray) -> int:
    """Return the smallest size whose mean score is within one standard error of the best mean."""
    return int(sizes[first_within_one_error(scores)])


def first_within_one_error(scores: AnyArray) -> int:
    """Return the first row of scores (n_candidates × n_folds) that is as good as the best mean.

    It may be worse by one standard error of the difference of the two. Folds with NaN do not count.
    """
    differences, errors = differences_to_best(scores)
    return int(np.flatnonzero(differences >= -errors)[0])


def differences_to_best(scores: AnyArray) -> tuple[FloatArray, FloatArray]:
    """Return how far the mean score of each row is from the best one, and the standard error of
    that difference over the folds."""
    scores = scores[:, ~np.isnan(scores).any(axis=0)]
    if not scores.shape[1]:
        raise ValueError("no fold could be scored: choose another metric, or give more samples")
    differences = scores - scores[int(np.argmax(scores.mean(axis=1)))]
    return differences.mean(axis=1), standard_errors(differences)


def standard_errors(scores: AnyArray) -> FloatArray:
    """Return the standard error of the mean of each row over the folds."""
    n_folds = scores.shape[1]
    return np.asarray(scores.std(axis=1, ddof=min(1, n_folds - 1)) / np.sqrt(n_folds))
