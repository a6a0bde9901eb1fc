"""The trials of an `AutoSelector`, for its card and for the report of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bigfs.evaluation.choosing import (
    differences_to_best,
    recorded_scores,
    scored_folds,
    standard_errors,
)
from bigfs.selectors.registry import METHODS


class Trial(NamedTuple):
    """A candidate, with its scores in the folds if there were any."""

    candidate: str  # the method, and its parameters that are not the default
    seconds: float  # to choose in all folds
    is_chosen: bool
    score: float | None = None
    error: float | None = None  # standard error of the score
    difference: float | None = None  # to the best score
    error_of_difference: float | None = None

    def __str__(self) -> str:
        """Return the trial in a few words."""
        if self.score is None:
            return self.candidate
        return f"{self.candidate}: {self.score:.4f} ± {self.error:.4f} in {self.seconds:.1f} s"


def trials(selector: Any) -> list[Trial]:
    """Return what a fitted selector has tried, by its `cv_results_`."""
    results = selector.cv_results_
    names = map(_name, results["method"], results["params"])
    plain = [
        (name, float(seconds), k == selector.best_index_)
        for k, (name, seconds) in enumerate(zip(names, results["seconds"], strict=True))
    ]
    scores = recorded_scores(results)
    scores = scores[:, scored_folds(scores)]
    if not scores.shape[1]:
        return [Trial(*one) for one in plain]
    columns = scores.mean(axis=1), standard_errors(scores), *differences_to_best(scores)
    figures = np.transpose(columns).tolist()
    return [Trial(*one, *of_folds) for one, of_folds in zip(plain, figures, strict=True)]


def _name(method: str, parameters: Mapping[str, Any]) -> str:
    """Return a method with its parameters that are not the default."""
    defaults = METHODS[method].make().get_params()
    given = [f"{name}={value}" for name, value in parameters.items() if value != defaults.get(name)]
    return " ".join([method, *given])
