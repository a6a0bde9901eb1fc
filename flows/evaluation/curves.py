"""The points of a run's accuracy curves: what is chosen inside each split, and how it is scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from bigfs.evaluation.curves import Point, measure, way_of_all
from bigfs.evaluation.scoring import FittedModel
from bigfs.evaluation.splits import Split
from bigfs.result import observed
from flows.evaluation import auto, selection
from flows.evaluation import plan as evaluation
from flows.reuse import content_key, source_hash
from storage.runs.models import Model
from storage.runs.runs import Run
from storage.runs.tallies import tallies_of

SHARES = (0.1, 0.2, 0.5, 1.0)  # of the number of features: the points of an accuracy curve


class Choices:
    """What the method of a run and its rivals choose by the training rows of a split."""

    def __init__(
        self, run: Run, corpus: Any, names: Sequence[str], counts: list[int], identity: list[Any]
    ) -> None:
        self.run, self.corpus, self.names, self.counts = run, corpus, names, counts
        self.identity = identity
        self.request, self.m = run.metadata["parameters"], len(run.selected)
        self.own, self.parameters = self.request["method"], self.request["parameters"]

    def rank(self, number: int, split: Split, best: dict[str, Any]) -> dict[str, dict[int, Any]]:
        """Return the features of each method by their number, where `best` has what is known."""
        chosen = {}
        if self.request["features"] == selection.AUTO and self.own not in best:
            k = self.choose_number(number, split)
            chosen[self.m] = self.select(number, split, self.own, k)
            if k == self.m:
                best[self.own] = chosen[self.m]
        if self.request["features"] in selection.SIGNIFICANCE and self.own not in best:
            chosen[self.m] = self.accept(number, split)
        for name in dict.fromkeys([self.own, *self.names]):
            if name not in best:
                best[name] = self.select(number, split, name, self.m)
        sets = {name: {k: index[:k] for k in self.counts} for name, index in best.items()}
        sets[self.own] |= chosen
        return sets

    def select(self, number: int, split: Split, name: str, k: int) -> Any:
        """Return the best k features of a method."""
        with observed(checkpoint=self.run.checkpoint(*self.identity, number, name, k)):
            selector = selection.selector_for(self.corpus, name, k, self.parameters_of(name))
            selector.fit(*selection.usable(selector, name, split.X_train, split.y_train))
        return selection.ranking(selector, name, k)

    def parameters_of(self, name: str) -> dict[str, Any]:
        """Return the parameters of a method: those asked for are the own one's."""
        if name == self.own:
            return selection.without_level(self.parameters)
        return selection.constraints_for(name, self.parameters)

    def choose_number(self, number: int, split: Split) -> int:
        """Return the number of features that the folds of the training rows choose."""
        return auto.choose_number(
            self.corpus,
            split.X_train,
            split.y_train,
            self.own,
            self.parameters,
            lambda *fold: self.run.checkpoint(*self.identity, number, "number", *fold),
            self.request.get("metric"),
        ).n_features

    def accept(self, number: int, split: Split) -> Any:
        """Return the features that the mode accepts, or else the best: a model needs one."""
        selector = selection.selector_for(
            self.corpus, self.own, self.request["features"], self.parameters
        )
        selector.fit(*selection.usable(selector, self.own, split.X_train, split.y_train))
        if len(selector.selected_):
            return selector.selected_
        return self.select(number, split, self.own, 1)


def points(
    run: Run,
    corpus: Any,
    train: Any,
    plan: evaluation.Plan,
    names: Sequence[str],
    sizes: Sequence[int] | None,
    of_plan: tuple[int | None, float | None],
    model: Callable[[], Model],
) -> list[Point]:
    """Return the points of the curves.

    `plan.measured` gets the number of selections that did not converge.
    """
    m = len(run.selected)
    counts = sorted({m, *(sizes or (max(1, round(share * m)) for share in SHARES))})
    counts = [k for k in counts if k <= m]
    with_all = way_of_all(train.X, train.y)
    if with_all is not True:
        plan.measured["all_features"] = with_all or "left out"
    content = corpus.spec["content"]
    identity = [
        run.metadata["parameters"],
        content,
        plan.measured,
        list(names),
        counts,
        with_all,
        source_hash(),
    ]
    with_auc = "auc" in plan.measured["metrics"]
    # what a model depends on beside its features
    of_splits = [
        content,
        {key: value for key, value in plan.measured.items() if key in evaluation.OF_SPLITS},
        of_plan,
        with_auc,
        [version(name) for name in ("numpy", "scipy", "scikit-learn")],
    ]
    choices = Choices(run, corpus, names, counts, identity)
    known, fitted = {}, None
    if plan.measured["how"] == "test half":  # the run has selected on the same training samples
        known = {choices.own: run.selected}
        fitted = FittedModel(np.sort(run.selected), lambda: model().linear)
    found, plan.measured["not_converged"] = measure(
        plan.splits,
        lambda number, split: choices.rank(number, split, dict(known)),
        with_all=with_all,
        with_auc=with_auc,
        checkpoint=run.checkpoint(*identity),
        known=lambda number: tallies_of(corpus.uri, content_key(*of_splits, number)),
        fitted=fitted,
    )
    return found
