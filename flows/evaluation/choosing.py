"""What a method chooses from some samples: the best features, several sizes, or the number itself.

A run, a comparison and `--features auto` choose by these functions, from all training samples and
again from those of each split.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from bigfs import engine
from bigfs.evaluation.choosing import SizeChoice, choose_size, default_sizes
from bigfs.evaluation.metrics import require_metrics
from bigfs.evaluation.splits import NOTHING_KNOWN, Samples, Split, stratified_folds, target_kind
from bigfs.flows.evaluation import selection
from bigfs.matrix import Matrix
from bigfs.result import NotConverged, observed
from bigfs.selectors.auto import AutoSelector
from bigfs.selectors.base.estimator import fit_sizes
from bigfs.selectors.trials import trials
from bigfs.storage.runs.checkpoints import Checkpoint
from bigfs.types import IntArray

FOLDS = 5  # that choose the number of features
Sets = dict[int, IntArray]  # the chosen features by their number, best first
Keep = Callable[..., Checkpoint]  # the checkpoint of a part of the work, by its names


def choose_best(
    corpus: Any,
    method: str,
    features: selection.Features,
    parameters: dict[str, Any],
    split: Split,
    checkpoint: Checkpoint,
) -> IntArray:
    """Return the features that a method chooses from the training rows of a split, best first."""
    selector = selection.selector_for(corpus, method, features, parameters)
    X, y = selection.usable(selector, method, split.X_train, split.y_train)
    options = selection.fit_options(selector, X, split.y_train, split.samples)
    with observed(checkpoint=checkpoint), engine.leave_unsaid("scales"):
        selector.fit(X, y, **options)
    return selection.ranking(selector, method, features)


def choose_number(
    corpus: Any,
    X: Matrix,
    y: Any,
    method: str,
    parameters: dict[str, Any],
    keep: Keep,
    metric: str | None = None,
    samples: Samples = NOTHING_KNOWN,
) -> SizeChoice:
    """Choose the number of features of a method by folds of some training samples."""
    kept, forbidden, _ = selection.constraints_of(X, parameters)
    largest_tried = selection.get_method(method).make()._largest_tried
    sizes = default_sizes(X.shape[1] - len(forbidden), largest_tried, max(len(kept), 1))
    (metric, *_) = require_metrics(target_kind(y), [] if metric is None else [metric])
    return choose_size(
        stratified_folds(X, y, FOLDS, samples=samples),
        sizes,
        lambda number, split: choose_best(
            corpus, method, sizes[-1], parameters, split, keep(number)
        ),
        metric,
        keep(),
    )


def choice_of(selector: Any) -> dict[str, Any]:
    """Return what a selector that chooses a method has tried, and why it took one, for run.json."""
    if not isinstance(selector, AutoSelector):
        return {}
    tried = [trial._asdict() for trial in trials(selector)]
    return {"choice": {"metric": selector.scoring_, "why": selector.reason_, "tried": tried}}


class Chosen(NamedTuple):
    """The sets of a method, with how its runs ended."""

    sets: Sets
    statuses: list[str]  # of the runs that ended before their tolerance
    fits: int
    passes: int
    # what another process has measured, and what was tried
    used: Mapping[str, Any] = MappingProxyType({})


def choose(
    selector: Any,
    method: str,
    X: Matrix,
    y: Any,
    sizes: Sequence[int],
    keep: Keep,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Chosen:
    """Choose each number of features by a method, in as few fits as it allows.

    `options` are those of `fit`.
    """
    before, has_path = X.passes, hasattr(selector, "fit_path")
    said = engine.leave_unsaid("scales")
    with warnings.catch_warnings(), observed(checkpoint=keep(0)), said:
        # the status of each run says so
        warnings.simplefilter("ignore", NotConverged)
        fitted = fit_sizes(selector, X, y, sizes, **options)
    runs = list({id(run): run for run in fitted.values()}.values())
    passes = [int(run.result_.stats.get("passes", 0)) for run in runs]
    return Chosen(
        {m: selection.ranking(run, method, m) for m, run in fitted.items()},
        [str(run.result_.status) for run in runs if not run.result_.converged],
        1 if has_path else len(runs),
        # a method may read a part of X that counts by itself, and each run of a path counts all
        max(X.passes - before, max(passes) if has_path else sum(passes)),
        choice_of(runs[-1]),
    )
