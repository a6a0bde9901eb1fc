"""The choice of a method from some samples: the best features, several sizes, or the number itself.

A run, a comparison and `--features auto` choose by these functions, from all training samples and
again from the samples of each split.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from bigfs import engine
from bigfs.evaluation.choosing import SizeChoice, choose_size, default_sizes
from bigfs.evaluation.metrics import require_metrics
from bigfs.evaluation.splits import NOTHING_KNOWN, Samples, stratified_folds, target_kind
from bigfs.flows.evaluation import selection
from bigfs.matrix import Matrix
from bigfs.result import NotConvergedWarning, observe
from bigfs.selectors.auto import AutoSelector
from bigfs.selectors.base.estimator import fit_sizes
from bigfs.selectors.trials import trials
from bigfs.storage.runs.checkpoints import Checkpoint
from bigfs.types import IntArray

FOLDS = 5  # that choose the number of features
Sets = dict[int, IntArray]  # the chosen features by their number, best first
Keep = Callable[..., Checkpoint]  # the checkpoint of a part of the work, by its names


class ChosenSets(NamedTuple):
    """The sets of a method, with how its runs ended."""

    sets: Sets
    statuses: list[str]  # of the runs that ended before their tolerance
    fits: int
    passes: int
    # what another process has measured, and what was tried
    used: Mapping[str, Any] = MappingProxyType({})


class Chooser:
    """The selector of a method for a corpus, with some samples as it can learn from them."""

    def __init__(
        self,
        corpus: Any,
        method: str,
        features: selection.Features,
        parameters: dict[str, Any],
        X: Matrix,
        y: Any,
        samples: Samples,
    ) -> None:
        self.method, self.features = method, features
        self.selector = selection.selector_for(corpus, method, features, parameters)
        self.X, self.y = selection.usable(self.selector, method, X, y)
        self.options = selection.fit_options(self.selector, self.X, y, samples)

    def best(self, checkpoint: Checkpoint) -> IntArray:
        """Return the features that the method chooses, best first."""
        with observe(checkpoint=checkpoint), engine.leave_unsaid("scales"):
            self.selector.fit(self.X, self.y, **self.options)
        return selection.ranking(self.selector, self.method, self.features)

    def sets(self, sizes: Sequence[int], keep: Keep) -> ChosenSets:
        """Choose each number of features, in as few fits as the method allows."""
        before, has_path = self.X.passes, hasattr(self.selector, "fit_path")
        said = engine.leave_unsaid("scales")
        with warnings.catch_warnings(), observe(checkpoint=keep(0)), said:
            # the status of each run says so
            warnings.simplefilter("ignore", NotConvergedWarning)
            fitted = fit_sizes(self.selector, self.X, self.y, sizes, **self.options)
        runs = list({id(run): run for run in fitted.values()}.values())
        passes = [int(run.result_.stats.get("passes", 0)) for run in runs]
        return ChosenSets(
            {m: selection.ranking(run, self.method, m) for m, run in fitted.items()},
            [str(run.result_.status) for run in runs if not run.result_.converged],
            1 if has_path else len(runs),
            # a method may read a part of X that counts by itself, and each run of a path counts all
            max(self.X.passes - before, max(passes) if has_path else sum(passes)),
            choice_of(runs[-1]),
        )


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
        lambda number, split: Chooser(
            *(corpus, method, sizes[-1], parameters), *split[:2], split.samples
        ).best(keep(number)),
        metric,
        keep(),
    )


def choice_of(selector: Any) -> dict[str, Any]:
    """Return what a selector that chooses a method has tried, and why it took one, for run.json."""
    if not isinstance(selector, AutoSelector):
        return {}
    tried = [trial._asdict() for trial in trials(selector)]
    return {"choice": {"metric": selector.scoring_, "why": selector.reason_, "tried": tried}}
