"""The result of a method in a comparison, kept as arrays and JSON without pickles."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigfs.flows.evaluation.choosing import Sets
from bigfs.flows.evaluation.controls import average_draws
from bigfs.storage import atomic
from bigfs.storage.runs.checkpoints import reading_cache, to_json_types
from bigfs.types import AnyArray, FloatArray


class Outcome(NamedTuple):
    """The outcome of a method on a bench."""

    method: str
    sets: Sets  # chosen on all training samples
    points: list[dict[str, Any]]  # per size: n_features, the scores by metric, redundancy
    losses: AnyArray  # (sizes, tested samples), as in `bigfs.evaluation.metrics.losses_of`
    figures: dict[str, Any]  # time, memory, passes, status
    split_scores: FloatArray  # (splits, sizes) of the first metric
    again: list[Sets]  # chosen from parts of the training samples: folds or subsamples


SUMS = ("seconds", "processor_seconds", "scoring_seconds", "passes", "fits")


def mean_outcome(name: str, draws: Sequence[Outcome], metrics: Sequence[str]) -> Outcome:
    """Return the outcome of a control: the mean scores and losses of its draws, the figures of all
    of them, and the sets of the first one.
    """
    rows = [{**point, "method": draw.method} for draw in draws for point in draw.points]
    figures = draws[0].figures | {
        figure: sum(draw.figures[figure] for draw in draws) for figure in SUMS
    }
    figures["not_converged"] = [s for draw in draws for s in draw.figures["not_converged"]]
    return draws[0]._replace(
        method=name,
        points=average_draws(rows, metrics),
        losses=np.mean([draw.losses for draw in draws], axis=0),
        figures=figures,
        split_scores=np.mean([draw.split_scores for draw in draws], axis=0),
        again=[],
    )


def write_outcome(file: Path, outcome: Outcome, key: str) -> None:
    """Write the result of a method, with the key of what it follows from, whole or not at all."""
    about = {
        "key": key,
        "method": outcome.method,
        "points": to_json_types(outcome.points),
        "figures": outcome.figures,
        "sizes": list(outcome.sets),
        "parts": len(outcome.again),
    }
    sets = {f"set {m}": index.astype(np.int64) for m, index in outcome.sets.items()}
    for number, choice in enumerate(outcome.again):
        sets |= {f"set {m} of {number}": index.astype(np.int64) for m, index in choice.items()}
    arrays = {"losses": outcome.losses, "split scores": outcome.split_scores, **sets}
    with atomic.write(file) as part, part.open("wb") as opened:
        np.savez_compressed(opened, allow_pickle=False, about=json.dumps(about), **arrays)


def read_outcome(file: Path) -> tuple[Outcome, str] | None:
    """Read the result of a method, and its key. One that is damaged is deleted."""
    with reading_cache(file):
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            about = json.loads(str(arrays["about"]))
            sets = {m: arrays[f"set {m}"] for m in about["sizes"]}
            again = [
                {m: arrays[f"set {m} of {number}"] for m in about["sizes"]}
                for number in range(about.get("parts", 0))
            ]
            losses = arrays["losses"]
            scores = arrays["split scores"]
        method, points, figures = about["method"], about["points"], about["figures"]
        return Outcome(method, sets, points, losses, figures, scores, again), about["key"]
    return None
