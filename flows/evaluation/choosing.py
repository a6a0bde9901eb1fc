"""Choices of several sizes by one method: one fit where it serves all sizes, or a fit per size."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

from bigfs.matrix import Matrix
from bigfs.result import NotConverged, observed
from bigfs.types import IntArray
from flows.evaluation import selection
from storage.runs.checkpoints import Checkpoint

Sets = dict[int, IntArray]  # the chosen features by their number, best first


class Chosen(NamedTuple):
    """The sets of a method, with how its runs ended."""

    sets: Sets
    statuses: list[str]  # of the runs that ended before their tolerance
    fits: int
    passes: int


def choose(
    selector: Any,
    method: str,
    X: Matrix,
    y: Any,
    sizes: Sequence[int],
    keep: Callable[[int], Checkpoint],
) -> Chosen:
    """Choose each number of features by a method.

    One fit serves all sizes where the method has `fit_path` or its choices are nested, which they
    are not with features to keep. Otherwise each size is fitted.
    """
    before, fitted = X.passes, {}
    with warnings.catch_warnings():
        # the status of each run says so
        warnings.simplefilter("ignore", NotConverged)
        if hasattr(selector, "fit_path"):
            with observed(checkpoint=keep(0)):
                fitted = selector.fit_path(X, y, list(sizes))
            passes = max(_own_passes(s) for s in fitted.values())  # each counts those of all
        elif selector._nested and selector.get_params().get("keep") is None:
            with observed(checkpoint=keep(0)):
                fitted = dict.fromkeys(sizes, selector.fit(X, y))
            passes = _own_passes(selector)
        else:
            for i, m in enumerate(sizes):
                with observed(checkpoint=keep(i)):
                    fitted[m] = copy(selector).set_params(n_features_to_select=m).fit(X, y)
            passes = sum(map(_own_passes, fitted.values()))
    runs = list({id(run): run for run in fitted.values()}.values())
    return Chosen(
        {m: selection.ranking(run, method, m) for m, run in fitted.items()},
        [str(run.result_.status) for run in runs if not run.result_.converged],
        1 if hasattr(selector, "fit_path") else len(runs),
        max(X.passes - before, passes),  # a method may read a part of X that counts by itself
    )


def _own_passes(selector: Any) -> int:
    return int(selector.result_.stats.get("passes", 0))
