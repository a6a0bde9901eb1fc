"""The number of features of a run, chosen by folds of its training samples (`--features auto`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bigfs.evaluation.curves import Rankings
from bigfs.evaluation.metrics import require_metrics
from bigfs.evaluation.size_choice import SizeChoice, choose_size, default_sizes
from bigfs.evaluation.splits import Split, stratified_folds, target_kind
from bigfs.result import Checkpoint, observed
from flows.evaluation import selection

FOLDS = 5


def choose_number(
    corpus: Any,
    X: Any,
    y: Any,
    method: str,
    parameters: dict[str, Any],
    checkpoint: Callable[..., Checkpoint],
    metric: str | None = None,
) -> SizeChoice:
    """Choose the number of features of a method by folds of some training samples."""
    kept, forbidden = selection.constraints_of(X, parameters)
    sizes = default_sizes(
        X.shape[1] - len(forbidden),
        selection.get_method(method).make()._largest_tried,
        max(len(kept), 1),
    )
    (metric, *_) = require_metrics(target_kind(y), [] if metric is None else [metric])

    def rank(number: int, split: Split) -> Rankings:
        with observed(checkpoint=checkpoint(number)):
            selector = selection.selector_for(corpus, method, sizes[-1], parameters)
            selector.fit(*selection.usable(selector, method, split.X_train, split.y_train))
        best = selection.ranking(selector, method, sizes[-1])
        return {method: {m: best[:m] for m in sizes}}

    return choose_size(stratified_folds(X, y, FOLDS), rank, metric, checkpoint())
