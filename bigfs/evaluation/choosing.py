"""Candidates that folds of the training samples decide between.

    f* = min { f : mean_k δ(f, k) ≥ −std_k δ(f, k) / √K },  δ(f, k) = s(f, k) − s(f°, k)

s(f, k) is the score in fold k of a linear model on what candidate f chooses without the samples of
the fold, and f° = argmax mean_k s. This is the rule of one standard error of Breiman et al.,
"Classification and Regression Trees", 1984, section 3.4.3, but with the error of the difference:
all candidates are scored on the same folds, some of which are harder than others. The candidates
come in their order of preference, the cheapest first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigfs.evaluation.curves import Rankings, measure
from bigfs.evaluation.metrics import Scorer
from bigfs.evaluation.splits import Split
from bigfs.result import Checkpoint
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray

# The features that a candidate chooses by the training samples of a fold, best first. It gets the
# number of the fold, from 1 on, and its samples.
Order = Callable[[int, Split], IntArray]


class Scores(NamedTuple):
    """The scores of candidates in folds."""

    values: FloatArray  # n_candidates × n_sizes × n_folds, NaN for a candidate that failed
    seconds: FloatArray  # (n_candidates,) that each one took to choose in all folds
    failures: dict[int, str]  # why a candidate failed, by its position
    not_converged: int  # selections that ended before their tolerance


class CandidateError(Exception):
    """A candidate cannot choose from the training samples of a fold."""


def score_orders(
    orders: Sequence[Order],
    folds: Sequence[Split],
    sizes: Sequence[int],
    metric: str,
    checkpoint: Checkpoint | None = None,
    label: str = "folds",
) -> Scores:
    """Score the best features of each candidate in each fold, for each number of features.

    A candidate that raises a ValueError in a fold is out. If there is no other, the fold is out,
    unless no other fold can be scored. A checkpoint is for one candidate alone.
    """
    known: dict[tuple[int, int], IntArray] = {}
    seconds, failures = np.zeros(len(orders)), dict[int, str]()

    def order_of(k: int, number: int, split: Split) -> IntArray:
        if (k, number) not in known:
            began = time.perf_counter()
            try:
                known[k, number] = orders[k](number, split)
            except ValueError as error:
                if len(orders) - len(failures) == 1:
                    raise
                failures[k] = str(error)
                raise CandidateError from None
            seconds[k] += time.perf_counter() - began
        return known[k, number]

    def rank(number: int, split: Split) -> Rankings:
        left = [k for k in range(len(orders)) if k not in failures]
        chosen = {k: order_of(k, number, split) for k in left}
        return {str(k): {m: order[:m] for m in sizes} for k, order in chosen.items()}

    scorer = Scorer("logistic" if metric == "neg_log_loss" else "svm", metric == "auc")
    found = None
    while found is None:
        try:
            found = measure(
                folds, rank, with_all=False, scorer=scorer, checkpoint=checkpoint, label=label
            )
        except CandidateError:
            continue
    values = np.full((len(orders), len(sizes), len(folds)), np.nan)
    for number, points in enumerate(found.by_split):
        for point in points:
            at = int(point.method), list(sizes).index(point.n_features), number
            values[at] = point.scores[metric]
    return Scores(values, seconds, failures, found.not_converged)


def first_within_one_error(scores: AnyArray) -> int:
    """Return the first row of scores (n_candidates × n_folds) that is as good as the best mean.

    It may be worse by one standard error of the difference of the two. A row of NaN is out, and
    folds with NaN do not count.
    """
    differences, errors = differences_to_best(scores)
    return int(np.flatnonzero(differences >= -errors)[0])


def differences_to_best(scores: AnyArray) -> tuple[FloatArray, FloatArray]:
    """Return how far each row's mean score is from the best, and the standard error of that."""
    scores = scores[:, scored_folds(scores)]
    if not scores.shape[1]:
        raise ValueError("no fold could be scored: choose another metric, or give more samples")
    differences = scores - scores[int(np.nanargmax(scores.mean(axis=1)))]
    return differences.mean(axis=1), standard_errors(differences)


def scored_folds(scores: AnyArray) -> BoolArray:
    """Return the mask of the folds in which every candidate that is not out has a score."""
    is_out = np.isnan(scores).all(axis=1)
    return np.asarray(~np.isnan(scores[~is_out]).any(axis=0) & bool((~is_out).any()))


def standard_errors(scores: AnyArray) -> FloatArray:
    """Return the standard error of the mean of each row over the folds."""
    n_folds = scores.shape[1]
    return np.asarray(scores.std(axis=1, ddof=min(1, n_folds - 1)) / np.sqrt(n_folds))


def record(scores: FloatArray, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores (n_candidates × n_folds) as `cv_results_`, with more about the candidates.

    Means and standard deviations are as in `sklearn.model_selection.GridSearchCV`, over
    the folds that could be scored.
    """
    if not scores.shape[1]:
        return dict(more)
    counted = scores[:, scored_folds(scores)]
    none = np.full(len(scores), np.nan)
    return {
        **more,
        "mean_test_score": counted.mean(axis=1) if counted.shape[1] else none,
        "std_test_score": counted.std(axis=1) if counted.shape[1] else none,
        **{f"split{k}_test_score": fold for k, fold in enumerate(scores.T)},
    }


def recorded_scores(results: Mapping[str, Any]) -> FloatArray:
    """Return the scores of some `cv_results_` (n_candidates × n_folds)."""
    folds = [values for name, values in results.items() if name.startswith("split")]
    return np.stack(folds, axis=1) if folds else np.empty((len(results["params"]), 0))


# --- the number of features ---

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
    order: Order,
    metric: str,
    checkpoint: Checkpoint | None = None,
) -> SizeChoice:
    """Return the smallest number of features within one standard error of the best.

    ``order(number, split)`` returns the features of the largest size, best first.
    """
    label = "folds for the number of features"
    found = score_orders([order], splits, sizes, metric, checkpoint, label)
    (scores,) = found.values
    best = sizes[first_within_one_error(scores)]
    return SizeChoice(int(best), list(sizes), scores, found.not_converged)
