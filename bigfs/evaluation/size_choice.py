"""The number of features, the smallest within one standard error of the best (`choosing`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bigfs.evaluation.choosing import Order, first_within_one_error, score_orders
from bigfs.evaluation.splits import Split
from bigfs.result import Checkpoint
from bigfs.types import FloatArray

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
