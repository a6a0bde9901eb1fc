"""The verdict of a run's own table: its choice compared with other methods and all features."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bigfs.evaluation.curves import Point
from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.flows.evaluation.controls import control_of, draws_text
from bigfs.result import ALL

STANDARD_ERRORS = 2.0  # by which one is ahead of another


def verdict(
    points: Sequence[Point],
    method: str,
    m: int,
    metric: str,
    tested: int,
    advise: Callable[[str | None], str],
) -> str:
    """Compare the run's own method with the best other one and with all features.

    One is ahead of the other by two standard errors of the difference, as if each had been scored
    on `tested` samples of its own. Methods that are scored on the same samples differ by less.
    `advise` says what to type where a method is ahead, or all features, of which it gets None.
    Of a control it is how many draws score as high. It is "" where nothing is compared.
    """
    found = {p.method: p.scores[metric] for p in points if p.n_features == m and p.method != ALL}
    own = found.pop(method, np.nan)
    if np.isnan(own):
        return ""
    scores: dict[str, float] = {}
    draws: dict[str, list[float]] = {}
    for name, score in found.items():
        if (control := control_of(name)) is not None:
            draws.setdefault(control, []).append(score)
        elif not np.isnan(score):
            scores[name] = score
    rivals: dict[str | None, tuple[str, float]] = {}
    if scores:
        best = max(scores, key=lambda name: scores[name])
        rivals[best] = best, scores[best]
    for p in points:
        if p.method == ALL and p.n_features > m and not np.isnan(p.scores[metric]):
            rivals[None] = f"all {p.n_features:,} features", p.scores[metric]
    parts, advice = [], ""
    for rival, (name, score) in rivals.items():
        difference = own - score
        error = np.sqrt((_variance(own) + _variance(score)) / tested)
        size = f"{abs(difference):.3f} ± {error:.3f}"
        if abs(difference) <= STANDARD_ERRORS * error:
            parts.append(f"level with {name} ({size} apart)")
        else:
            parts.append(f"{size} {'behind' if difference < 0 else 'ahead of'} {name}")
            advice = advice or (advise(rival) if difference < 0 else "")
    sentences = [f"{' and '.join(parts)} in {METRIC_NAMES[metric]}"] if parts else []
    sentences += [draws_text(control, own, values) for control, values in draws.items()]
    return "; ".join(sentences) + (advice and f": {advice}")


def _variance(score: float) -> float:
    """Return the variance of an answer that is right with this probability, or the largest one
    where the score is no share."""
    return score * (1 - score) if 0 <= score <= 1 else 0.25
