"""What a run's own table says of its choice: whether a simpler method is ahead of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigfs.evaluation.curves import Point
from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.matrix.statistics import UNEQUAL_SCALES
from bigfs.result import ALL

STANDARD_ERRORS = 2.0  # by which a method is ahead


def verdict(
    points: Sequence[Point], method: str, m: int, metric: str, tested: int, hints: Sequence[str]
) -> str:
    """Return how the run's own method compares with the best other one, "" where there is none.

    One is ahead of the other by two standard errors of the difference, as if each had been scored
    on `tested` samples of its own. Methods that are scored on the same samples differ by less.
    """
    scores = {p.method: p.scores[metric] for p in points if p.n_features == m and p.method != ALL}
    own = scores.pop(method, np.nan)
    scores = {name: score for name, score in scores.items() if not np.isnan(score)}
    if np.isnan(own) or not scores:
        return ""
    best = max(scores, key=lambda name: scores[name])
    ahead, name = scores[best] - own, METRIC_NAMES[metric]
    error = np.sqrt((_variance(own) + _variance(scores[best])) / tested)
    if abs(ahead) <= STANDARD_ERRORS * error:
        return f"level with {best} in {name}, which is {abs(ahead):.3f} apart"
    if ahead < 0:
        return f"{-ahead:.3f} ahead of {best} in {name}"
    why = "take it, or compare more methods by `bigfs compare`"
    if any(hint.startswith(UNEQUAL_SCALES) for hint in hints):
        why = "the units of the columns differ, so standardize them by --scale standard"
    return f"{best} is {ahead:.3f} ahead in {name}: {why}"


def _variance(score: float) -> float:
    """Return the variance of an answer that is right with this probability, or the largest one
    where the score is no share."""
    return score * (1 - score) if 0 <= score <= 1 else 0.25
