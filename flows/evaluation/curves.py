"""The points of a run's accuracy curves: the choice inside each split, and its scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from bigfs.evaluation.curves import Point, Rankings, choose_full_strategy, measure
from bigfs.evaluation.scoring import FittedModel
from bigfs.evaluation.splits import Split
from bigfs.flows.evaluation import controls, selection
from bigfs.flows.evaluation import plan as evaluation
from bigfs.flows.evaluation.choosing import Chooser, Keep, choose_number
from bigfs.flows.reuse import content_key
from bigfs.storage.runs.counts import counts_of
from bigfs.storage.runs.models import Model
from bigfs.storage.runs.runs import Run
from bigfs.types import IntArray

SHARES = (0.1, 0.2, 0.5, 1.0)  # of the number of features: the points of an accuracy curve


class Choices(NamedTuple):
    """The choices of the method of a run and its rivals by the training rows of a split."""

    run: Run
    corpus: Any
    names: Sequence[str]
    counts: Sequence[int]
    keep: Keep
    is_chosen: bool  # whether the run itself has chosen from these rows

    def rank(self, number: int, split: Split) -> Rankings:
        """Return the features of each method by their number."""
        m, request = len(self.run.selected), self.run.metadata["parameters"]
        own, asked = request["method"], request["features"]
        best = partial(self.best, number, split)
        ranked, chosen = {own: self.run.selected} if self.is_chosen else {}, None
        if asked == selection.AUTO and not self.is_chosen:
            k = choose_number(
                self.corpus,
                split.X_train,
                split.y_train,
                own,
                request["parameters"],
                partial(self.keep, number, "number"),
                request.get("metric"),
                split.samples,
            ).n_features
            chosen = best(own, k)
            if k == m:
                ranked[own] = chosen
        elif asked in selection.SIGNIFICANCE and not self.is_chosen:
            chosen = best(own, asked)
            if not len(chosen):
                chosen = best(own, 1)  # a model needs one
        for name in dict.fromkeys([own, *self.names]):
            if name not in ranked:
                ranked[name] = best(name, m)
        sets = {name: {k: index[:k] for k in self.counts} for name, index in ranked.items()}
        if chosen is not None:
            sets[own][m] = chosen
        return sets

    def best(self, number: int, split: Split, name: str, features: selection.Features) -> IntArray:
        """Return the best features of a method. The parameters asked for are the own one's."""
        asked = self.run.metadata["parameters"]
        method, parameters, y = name, asked["parameters"], split.y_train
        control = controls.control_of(name)
        if control == controls.RANDOM:
            return controls.draw_list(name, split.X_train, parameters)[:features]
        if control is not None:
            method, y = asked["method"], controls.shuffle_labels(y, name, parameters)
        elif name != asked["method"]:
            parameters = selection.constraints_for(name, parameters)
        if isinstance(features, int):  # the level belongs to a mode
            parameters = {key: value for key, value in parameters.items() if key != "param"}
        request = self.corpus, method, features, parameters
        chooser = Chooser(*request, split.X_train, y, split.samples)
        return chooser.best(self.keep(number, name, features))


def points(
    run: Run,
    corpus: Any,
    train: Any,
    plan: evaluation.Plan,
    names: Sequence[str],
    choices: Mapping[str, Any],
    model: Callable[[], Model],
) -> list[Point]:
    """Return the points of the curves, by some choices of the scoring.

    `plan.measured` gets the number of selections that did not converge, and the controls.
    """
    m, draws = len(run.selected), controls.draws_of(choices)
    plan.measured.update(controls.protocol_of(draws))
    names = [*names, *chain.from_iterable(draws.values())]
    counts = sorted({m, *(choices.get("sizes") or (max(1, round(share * m)) for share in SHARES))})
    counts = [k for k in counts if k <= m]
    scorer = evaluation.scorer_of(plan.measured)
    with_all = choose_full_strategy(train.X, train.y, scorer)
    if with_all is not True:
        plan.measured["all_features"] = with_all or "left out"
    content = corpus.spec["content"]
    keep = partial(run.checkpoint, content, plan.measured, list(names), counts, with_all)
    # what a model depends on in addition to its features
    of_splits = [
        content,
        {key: value for key, value in plan.measured.items() if key in evaluation.OF_SPLITS},
        (choices.get("folds"), choices.get("test_size")),
        scorer.with_auc,
    ]
    fitted = None
    if plan.measured["how"] == "test half":  # the run has selected on the same training samples
        fitted = FittedModel(np.sort(run.selected), lambda: model().linear)
    found = measure(
        plan.splits,
        Choices(run, corpus, names, counts, keep, is_chosen=fitted is not None).rank,
        with_all=with_all,
        scorer=scorer,
        checkpoint=keep(),
        known=lambda number: counts_of(corpus.uri, content_key(*of_splits, number)),
        fitted=fitted,
    )
    plan.measured["not_converged"] = found.not_converged
    evaluation.leave_out(plan, found.left_out)
    return found.points
