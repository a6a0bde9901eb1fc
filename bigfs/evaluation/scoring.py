"""How well a linear model on some features predicts the test rows of a split.

The models are made by `linear_model`. One task fits a model and scores it. Columns that do not fit
in one task are trained on by `large_model`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bigfs import engine
from bigfs.evaluation import large_model, linear_model, metrics
from bigfs.evaluation.linear_model import LinearModel
from bigfs.evaluation.metrics import Scorer
from bigfs.evaluation.splits import Split, labeled_rows, target_kind, training_sample
from bigfs.matrix.gathering import hold_columns
from bigfs.types import AnyArray, FloatArray, IntArray

SVM = Scorer()


class SetScore(NamedTuple):
    """The answers of a model on one set of features to the test rows of one split."""

    counts: FloatArray  # adds up over splits; two sums of each further metric follow the counts
    losses: AnyArray  # of each test row with a target, as in `metrics.losses_of`


Waiting = Callable[[], SetScore]


class FittedModel(NamedTuple):
    """The model of some features that is fitted during the evaluation."""

    features: IntArray  # in increasing order
    get: Callable[[], LinearModel]  # waits for it


def with_training_sample(split: Split) -> Split:
    """Return a split whose training rows are those that train a model."""
    X, y = training_sample(split.X_train, split.y_train)
    return split._replace(X_train=X, y_train=y)


def score_sets(
    split: Split,
    sets: Mapping[str, IntArray],
    *,
    scorer: Scorer = SVM,
    fitted: FittedModel | None = None,
) -> dict[str, SetScore]:
    """Score a linear model on each set of features, by the names of the sets, one task per set."""
    scored = {
        name: score_streamed(split, way, index, scorer=scorer)
        for name, index in sets.items()
        if (
            way := large_model.choose_strategy(
                split.X_train, split.y_train, index, logistic=scorer.is_logistic
            )
        )
        not in (None, large_model.IN_MEMORY)
    }
    tasks = sorted((name for name in sets if name not in scored), key=lambda name: -len(sets[name]))
    given = None
    if fitted is not None:
        given = next((n for n in tasks if np.array_equal(sets[n], fitted.features)), None)
    tasks = [name for name in tasks if name != given]
    with _scoring(split, [sets[name] for name in tasks], scorer, "evaluate") as results:
        if fitted is not None and given is not None:
            held, sets_held = _holding(split, [fitted.features])
            (scored[given],) = engine.map_tiles(
                _score_set, sets_held, held, scorer, fitted.get(), local=split.X_train.local
            )
        scored |= zip(tasks, results(), strict=True)
    return scored


@contextlib.contextmanager
def _scoring(
    split: Split, sets: Sequence[IntArray], scorer: Scorer, label: str
) -> Iterator[Callable[[], list[SetScore]]]:
    """Score models, one task per set, during the block. Yields a function that waits for them."""
    if not sets:
        yield list
        return
    _require_decisions(split, scorer)
    local, (split, sets) = split.X_train.local, _holding(split, sets)
    shared = engine.Shared(split), scorer  # its targets have a row per sample
    with engine.started_tiles(_score_set, sets, *shared, local=local, label=label) as scored:
        yield scored


def _holding(split: Split, sets: Sequence[IntArray]) -> tuple[Split, list[IntArray]]:
    """Return a split of the columns in these sets, and their numbers in it."""
    needed = np.unique(np.concatenate(sets))
    X_train, X_test = (
        hold_columns(X, needed).take_columns(needed) for X in (split.X_train, split.X_test)
    )
    own = [np.searchsorted(needed, index) for index in sets]
    return split._replace(X_train=X_train, X_test=X_test), own


@contextlib.contextmanager
def scoring_all(split: Split, way: bool | str, scorer: Scorer) -> Iterator[Waiting]:
    """Score a linear model on all features during the block, where it fits in memory."""
    if isinstance(way, str):
        yield partial(score_streamed, split, way, scorer=scorer)
        return
    every = np.arange(split.X_train.shape[1])
    with _scoring(split, [every], scorer, "evaluate all") as scored:
        yield lambda: scored()[0]


def score_streamed(
    split: Split, way: str, index: IntArray | None = None, *, scorer: Scorer = SVM
) -> SetScore:
    """Score a linear model on all features, or on some of them, that do not fit in memory."""
    _require_decisions(split, scorer)
    model = large_model.fit(split.X_train, split.y_train, way, index)
    X = split.X_test if index is None else split.X_test.take_columns(index)
    is_labeled = labeled_rows(split.y_test)
    answer = large_model.decide if _needs_decisions(split, scorer) else large_model.predict
    return _score_of(model, answer(X, model)[is_labeled], split, split.y_test[is_labeled], scorer)


def _score_set(
    index: IntArray, split: Split, scorer: Scorer, model: LinearModel | None = None
) -> SetScore:
    """Fit a model on these training columns, if none is given, and predict the test rows."""
    if model is None:
        Z = split.X_train.columns(index).tocsr()
        model = linear_model.fit(Z, split.y_train, logistic=scorer.is_logistic)
    is_labeled = labeled_rows(split.y_test)
    Z, y = split.X_test.columns(index).tocsr()[is_labeled], split.y_test[is_labeled]
    if _needs_decisions(split, scorer):
        return _score_of(model, model.decision(Z), split, y, scorer)
    return _score_of(model, linear_model.by_rows(model.predict, Z), split, y, scorer)


def _needs_decisions(split: Split, scorer: Scorer) -> bool:
    """Return whether a scorer compares decision values, and not just predictions."""
    return target_kind(split.y_train) == "class" and (scorer.with_auc or scorer.is_logistic)


def _require_decisions(split: Split, scorer: Scorer) -> None:
    """Refuse more decision values of the test rows than fit in a process, twice."""
    if _needs_decisions(split, scorer):
        n, r = split.X_test.shape[0], linear_model.n_classifiers(split.y_train)
        what = f"scoring {n} test samples of {max(r, 2)} classes by all their decision values"
        engine.require_memory(2 * 8 * n * max(r, 2), what, int(engine.task_memory()))


def _score_of(model: LinearModel, answers: Any, split: Split, y: Any, scorer: Scorer) -> SetScore:
    """Return the score of a model by its predictions, or its decision values where needed."""
    decision, n_classes = answers, 0
    predicted = model.answer(decision) if _needs_decisions(split, scorer) else answers
    if model.kind == "class":
        in_split = 1 + int(max(split.y_train.max(), split.y_test.max()))
        n_classes = max(split.n_classes, in_split)
    counts = _count(model, predicted, y, n_classes)
    if model.kind == "class" and scorer.with_auc:
        areas = metrics.sum_auc(decision, y, model.classes, model.is_logistic)
        counts = np.concatenate([counts.ravel(), areas])
    if model.kind == "class" and scorer.is_logistic:
        counts = np.concatenate([counts.ravel(), metrics.sum_log_loss(decision, y, model.classes)])
    return SetScore(counts, metrics.losses_of(predicted, y, model.kind))


def score_predictions(model: LinearModel, predicted: Any, y: Any) -> dict[str, float]:
    """Return the scores of a model's predictions, by metric. Rows without a target do not count."""
    is_labeled = labeled_rows(y)
    predicted, y = predicted[is_labeled], y[is_labeled]
    n_classes = 0
    if model.kind == "class":
        n_classes = 1 + int(max(predicted.max(initial=-1), y.max(initial=-1)))
    return metrics.scores_of(_count(model, predicted, y, n_classes), model.kind)


def _count(model: LinearModel, predicted: Any, y: Any, n_classes: int) -> FloatArray:
    """Return the counts of a model's predictions, as numbers that add up over splits."""
    if model.kind == "multilabel":
        return metrics.count_labels(predicted, y)
    if model.kind in metrics.REAL:
        return metrics.sum_residuals(predicted, y, model.target_mean)
    return metrics.count_classes(predicted, y, n_classes)
