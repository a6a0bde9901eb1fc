"""Controls: lists of features that know nothing of the labels, to compare a choice with.

    shuffled-labels   what a method chooses after the labels of its training samples were shuffled
    random-list       as many features, drawn at random

A linear model on such a list is trained and scored like that on the choice. A control has several
draws, and each is a method of the evaluation with a name of its own, such as "random-list 3".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from bigfs.evaluation.splits import labeled_rows
from bigfs.flows.evaluation.selection import constraints_of
from bigfs.matrix import Matrix
from bigfs.types import IntArray

SHUFFLED: Final = "shuffled-labels"
RANDOM: Final = "random-list"
DRAWS = 10


def draws_of(choices: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names of the draws of each control, by the choices of a scoring."""
    numbers = range(1, choices.get("draws", DRAWS) + 1)
    return {name: [f"{name} {k}" for k in numbers] for name in choices.get("controls", ())}


def protocol_of(draws: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the names of the controls and their number of draws, as `describe` takes them."""
    return {"controls": [[*draws], len(next(iter(draws.values())))]} if draws else {}


def control_of(name: str) -> str | None:
    """Return the control of a draw, None of another method."""
    control = name.partition(" ")[0]
    return control if control in (SHUFFLED, RANDOM) else None


def shuffle_labels(y: Any, draw: str, parameters: Mapping[str, Any]) -> Any:
    """Return a target in which the samples that have a label have one another's."""
    rows, order = np.flatnonzero(labeled_rows(y)), np.arange(y.shape[0])
    order[rows] = _generator(draw, parameters).permutation(rows)
    return y[order]


def draw_list(draw: str, X: Matrix, parameters: dict[str, Any]) -> IntArray:
    """Return the features of X that may be chosen in a random order, the kept ones first."""
    bound = constraints_of(X, parameters)
    return bound.order(_generator(draw, parameters).random(X.shape[1]))


def _generator(draw: str, parameters: Mapping[str, Any]) -> np.random.Generator:
    """Return the generator of a draw, by the seed of the method."""
    return np.random.default_rng([parameters.get("random_state") or 0, int(draw.split()[-1])])


def average_draws(rows: Sequence[dict[str, Any]], metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows of scores with one for all draws of a control: their mean, their standard
    deviation as the spread, and the draws themselves.
    """
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        key = control_of(row["method"]) or row["method"], row["n_features"]
        found.setdefault(key, []).append(row)
    return [
        _mean_of(name, draws, metrics) if control_of(name) else draws[0]
        for (name, _), draws in found.items()
    ]


def _mean_of(name: str, rows: Sequence[dict[str, Any]], metrics: Sequence[str]) -> dict[str, Any]:
    draws = {metric: [row[metric] for row in rows] for metric in metrics}
    means = {metric: float(np.mean(values)) for metric, values in draws.items()}
    spread = {metric: float(np.std(values, ddof=1)) for metric, values in draws.items()}
    return {**rows[0], "method": name, **means, "spread": spread, "draws": draws}


def p_value(score: float, draws: Sequence[float]) -> float:
    """Return how likely a draw, or the choice as one of them, scores as high."""
    return float(1 + np.sum(np.asarray(draws) >= score)) / (1 + len(draws))


def draws_text(control: str, score: float, draws: Sequence[float]) -> str:
    """Say how many draws of a control score as high as a choice."""
    n_high = sum(draw >= score for draw in draws)
    return (
        f"{n_high} of {len(draws)} draws of {control} score as high "
        f"(p = {p_value(score, draws):.3f})"
    )
