"""The quality of a selection, measured on samples that the method never saw.

A linear model (`bigfs.models`) is trained on the chosen columns of the training rows and predicts
the test rows. Its right answers are counted per split (a `FoldTally`) and summed over the splits.
So folds are pooled and a killed evaluation can resume. `bigfs.metrics` makes scores of the sums.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from bigfs import engine, metrics, models, streamed
from bigfs.matrix import Block, Matrix
from bigfs.models import LinearModel, fits_in_memory
from bigfs.result import ALL, Checkpoint, NotConverged
from bigfs.splits import Split, labeled_rows, target_kind, training_sample
from bigfs.types import AnyArray, FloatArray, IntArray

Rankings = Mapping[str, Mapping[int, IntArray]]


class Point(NamedTuple):
    """A point of a curve: the scores with the best features of a method."""

    method: str  # "all features" stands for no selection
    n_features: int
    scores: dict[str, float]  # by metric


class FoldTally(NamedTuple):
    """The counts of one split, with one entry per point of the curves.

    Its fields are plain, so that a checkpoint can keep it.
    """

    methods: tuple[str, ...]
    counts: tuple[int, ...]  # numbers of features
    tallies: tuple[FloatArray, ...]
    not_converged: int  # selections that ended before their tolerance


class Judgment(NamedTuple):
    """What a model on one set of features answers on the test rows of one split."""

    tally: FloatArray  # adds up over splits; with the AUC, its two sums follow the counts
    losses: AnyArray  # of each test row with a target, as in `metrics.losses_of`


class KnownTallies(Protocol):
    """Tallies of sets of features that earlier evaluations on the same split have left, by name."""

    def load(self) -> dict[str, FloatArray]: ...

    def save(self, tallies: Mapping[str, FloatArray]) -> None: ...


class Evaluation(NamedTuple):
    """The points of the curves."""

    points: list[Point]
    not_converged: int  # selections behind them that ended before their tolerance


# --- measuring ------------------------------------------------------------------------------------


def measure(
    splits: Sequence[Split],
    rank: Callable[[int, Split], Rankings],
    *,
    with_all: bool | str = True,
    with_auc: bool = False,
    checkpoint: Checkpoint | None = None,
    known: Callable[[int], KnownTallies | None] = lambda number: None,
) -> Evaluation:
    """Score the features that `rank` chooses from each split's training rows on the split's test
    rows.

    Parameters
    ----------
    splits : sequence of Split
        Folds, or one split with a test half.
    rank : callable
        ``rank(number, split)`` returns, for each method, the indices of its best m features for
        several m. It must look at the split's training rows only.
    with_all : bool or {"svm", "ridge", "sgd"}, default=True
        Also score all features. A word says how their model is trained where they do not fit in
        memory, see `bigfs.streamed`.
    with_auc : bool, default=False
        Also measure the AUC, for classes.
    checkpoint : Checkpoint, optional
        Keeps the tally of each finished split. A split that is there already is not measured again.
    known : callable, optional
        ``known(number)`` returns the tallies that earlier evaluations have left on a split, or
        None. No model is trained for them again, and the new ones are added.

    Returns
    -------
    Evaluation
        The splits pooled: right answers are added up before they become a score.
    """
    tallies = tally_folds(
        splits, rank, with_all=with_all, with_auc=with_auc, checkpoint=checkpoint, known=known
    )
    return Evaluation(
        pool(tallies, target_kind(splits[0].y_test), with_auc),
        sum(tally.not_converged for tally in tallies),
    )


def tally_folds(
    splits: Sequence[Split],
    rank: Callable[[int, Split], Rankings],
    *,
    with_all: bool | str = True,
    with_auc: bool = False,
    checkpoint: Checkpoint | None = None,
    known: Callable[[int], KnownTallies | None] = lambda number: None,
    label: str = "evaluation folds",
) -> list[FoldTally]:
    """Return the tally of each split. The parameters are those of `measure`.

    `label` names the step of the progress.
    """
    tallies = []
    for number, split in enumerate(splits, 1):
        name = f"evaluate fold {number} of {len(splits)}"
        saved = checkpoint.load(name) if checkpoint is not None else None
        if saved is not None:
            tally = FoldTally(*saved[0])
        else:
            tally = _tally_with_warnings(number, split, rank, with_all, with_auc, known(number))
            if checkpoint is not None:
                checkpoint.save(name, tally, [])
        tallies.append(tally)
        if len(splits) > 1:
            engine.show_progress(label, number, len(splits))
    return tallies


def _tally_with_warnings(
    number: int,
    split: Split,
    rank: Callable[[int, Split], Rankings],
    with_all: bool | str,
    with_auc: bool,
    known: KnownTallies | None,
) -> FoldTally:
    """Return the tally of one split, with the number of selections that did not converge."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NotConverged)
        rankings = rank(number, split)
    for other in (w for w in caught if not issubclass(w.category, NotConverged)):
        warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    tally = tally_split(split, rankings, with_all=with_all, with_auc=with_auc, known=known)
    return tally._replace(not_converged=sum(issubclass(w.category, NotConverged) for w in caught))


def tally_split(
    split: Split,
    rankings: Rankings,
    *,
    with_all: bool | str = True,
    with_auc: bool = False,
    known: KnownTallies | None = None,
) -> FoldTally:
    """Count the right answers of a linear model on each set of features, one task per set.

    It is trained on `training_sample` of the training rows.

    Parameters
    ----------
    split : Split
        Where to train and to test.
    rankings : mapping
        For each method, for several m, the indices of its m features. A set that occurs twice is
        fitted once. Where a method chooses the number by itself in each split, m only names the
        point.
    with_all : bool or {"svm", "ridge", "sgd"}, default=True
        Also fit on all features, in memory or by `bigfs.streamed`.
    with_auc : bool, default=False
        Also sum the AUC, for classes.
    known : KnownTallies or None, default=None
        Tallies of earlier evaluations on this split, with the same `with_auc`. New ones are added.

    Returns
    -------
    FoldTally
        The counts. No warning is counted yet.
    """
    requested = [
        (name, m, np.sort(index)) for name, sets in rankings.items() for m, index in sets.items()
    ]
    split, d = with_training_sample(split), split.X_train.shape[1]
    if with_all is True:
        requested.append((ALL, d, np.arange(d)))
    names, sizes, sets = zip(*requested, strict=True)
    tallies = {} if known is None else known.load()
    keys = [_name_of(split, index) for index in sets]
    new = {key: index for key, index in zip(keys, sets, strict=True) if key not in tallies}
    judgments = judge(split, list(new.values()), with_auc=with_auc)
    added = {key: judgment.tally for key, judgment in zip(new, judgments, strict=True)}
    if isinstance(with_all, str):
        names, sizes, keys = (*names, ALL), (*sizes, d), [*keys, f"{ALL} by {with_all}"]
        if keys[-1] not in tallies:
            added[keys[-1]] = judge_streamed(split, with_all, with_auc=with_auc).tally
    if known is not None and added:
        known.save(added)
    tallies |= added
    return FoldTally(names, sizes, tuple(tallies[key] for key in keys), 0)


def _name_of(split: Split, index: IntArray) -> str:
    """Return the name of a set of features: a hash of them, and how their model is trained."""
    way = streamed.way_of_columns(split.X_train, split.y_train, index) or "in memory"
    return f"{hashlib.sha256(index.astype('<i8').tobytes()).hexdigest()} {way}"


def with_training_sample(split: Split) -> Split:
    """Return a split whose training rows are those that train a model."""
    X, y = training_sample(split.X_train, split.y_train)
    return split._replace(X_train=X, y_train=y)


def judge(split: Split, sets: Sequence[IntArray], *, with_auc: bool = False) -> list[Judgment]:
    """Judge a linear model on each set of features, one task per set.

    Parameters
    ----------
    split : Split
        Where to train and to test.
    sets : sequence of ndarray
        Indices of the features of each set, in increasing order. A set that occurs twice is fitted
        once.
    with_auc : bool, default=False
        Also sum the AUC, for classes.

    Returns
    -------
    list of Judgment
        The judgment of each set.

    Raises
    ------
    NotEnoughMemory
        A model on one of the sets fits neither in one task nor by tiles.
    """
    distinct = {index.tobytes(): index for index in sets}
    by_set = {
        key: judge_streamed(split, way, index, with_auc=with_auc)
        for key, index in distinct.items()
        if (way := streamed.way_of_columns(split.X_train, split.y_train, index)) is not None
    }
    distinct = {key: index for key, index in distinct.items() if key not in by_set}
    if distinct:
        local, needed = split.X_train.local, np.unique(np.concatenate(list(distinct.values())))
        split = split._replace(
            X_train=split.X_train.holding(needed), X_test=split.X_test.holding(needed)
        )
        largest_first = dict(sorted(distinct.items(), key=lambda item: -len(item[1])))
        train = split.X_train, split.y_train
        machines = [models.lazy_machines(*train, index) for index in largest_first.values()]
        judgments = engine.map_tiles(
            _judge,
            list(largest_first.values()),
            split,
            with_auc,
            each=[machines],
            local=local,
            label="evaluate",
            progress_tasks=[task for tasks in machines for task in tasks],
        )
        by_set |= dict(zip(largest_first, judgments, strict=True))
    return [by_set[index.tobytes()] for index in sets]


def judge_streamed(
    split: Split, way: str, index: IntArray | None = None, *, with_auc: bool = False
) -> Judgment:
    """Judge a linear model on all features, or on some of them, that do not fit in memory.

    Parameters
    ----------
    split : Split
        Where to train and to test.
    way : {"svm", "ridge", "sgd"}
        How to train, see `bigfs.streamed`.
    index : ndarray of int or None, default=None
        The features, with an exact way. None takes all.
    with_auc : bool, default=False
        Also sum the AUC.

    Returns
    -------
    Judgment
        As of a set of features.
    """
    model = streamed.fit(split.X_train, split.y_train, way, index)
    is_labeled = labeled_rows(split.y_test)
    decision = streamed.decide(split.X_test, model)[is_labeled]
    return _judgment(model, decision, split, split.y_test[is_labeled], with_auc)


def pool(tallies: Sequence[FoldTally], kind: str, with_auc: bool = False) -> list[Point]:
    """Return the curves' points from the sums of the splits' tallies."""
    first = tallies[0]
    totals = [
        np.sum([tally.tallies[i] for tally in tallies], axis=0) for i in range(len(first.methods))
    ]
    return [
        Point(name, int(m), scores_of_tally(total, kind, with_auc))
        for name, m, total in zip(first.methods, first.counts, totals, strict=True)
    ]


def scores_of_tally(total: FloatArray, kind: str, with_auc: bool = False) -> dict[str, float]:
    """Return the scores of one tally, or of a sum of tallies, by metric."""
    if not with_auc:
        return metrics.scores_of(total, kind)
    scores = metrics.scores_of(total[:-2].reshape(3, -1), kind)
    return scores | {"auc": metrics.auc_of(total[-2:])}


def way_of_all(X: Matrix, y: Any) -> bool | str:
    """Return how all features can be scored, as `with_all` of `measure`.

    Parameters
    ----------
    X : Matrix of shape (n, d)
        The training rows.
    y : ndarray or sparse array
        Their targets.

    Returns
    -------
    bool or str
        True where a model fits in memory, a word of `bigfs.streamed` where it is trained by tiles,
        and False where all features are left out.
    """
    X, y = training_sample(X, y)
    if fits_in_memory(X):
        return True
    return streamed.way_of(X, y) or False


def is_non_negative(X: Matrix) -> bool:
    """Return whether no value is below zero. It takes one pass over X at most."""
    if X.stats.sums.min(initial=0) < 0:
        return False
    return all(X.map_columns(_non_negative) if X.column_tiles else X.map_rows(_non_negative))


def _non_negative(block: Block, start: int, stop: int) -> bool:
    return bool((block.data if sp.issparse(block) else block).min(initial=0) >= 0)


def _judge(
    index: IntArray, machines: Sequence[list[models.Machine]], split: Split, with_auc: bool
) -> Judgment:
    """Fit a model on these columns of the training rows, and predict the test rows.

    `machines` are those of the classes, in groups, where other tasks have fitted them.
    """
    if machines:
        model = models.join_machines(split.y_train, machines)
    else:
        model = models.fit(split.X_train.columns(index).tocsr(), split.y_train)
    is_labeled = labeled_rows(split.y_test)
    Z, y = split.X_test.columns(index).tocsr()[is_labeled], split.y_test[is_labeled]
    return _judgment(model, model.decision(Z), split, y, with_auc)


def _judgment(
    model: LinearModel, decision: FloatArray, split: Split, y: Any, with_auc: bool
) -> Judgment:
    """Return the judgment of a model by its decision values of the test rows with a target."""
    predicted, n_classes = model.answer(decision), 0
    if model.kind == "class":
        n_classes = 1 + int(max(split.y_train.max(), split.y_test.max()))
    tally = _count(model, predicted, y, n_classes)
    if with_auc:
        tally = np.concatenate([tally.ravel(), metrics.sum_auc(decision, y, model.classes)])
    return Judgment(tally, metrics.losses_of(predicted, y, model.kind))


def score_predictions(model: LinearModel, predicted: Any, y: Any) -> dict[str, float]:
    """Return the scores of a model's predictions, by metric. Rows without a target do not count.

    Parameters
    ----------
    model : LinearModel
        The model.
    predicted : ndarray or sparse array
        Its predictions.
    y : ndarray or sparse array
        The targets, in the same codes.

    Returns
    -------
    dict of {str: float}
        The scores that follow from the predictions alone, so without the AUC.
    """
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
    if model.kind == "real":
        return metrics.sum_residuals(predicted, y, float(model.target_mean[0]))
    return metrics.count_classes(predicted, y, n_classes)
