"""The quality of a selection, measured on samples that the method never saw.

A linear model is trained on the chosen columns of the training rows and predicts the test rows.
Its right answers are counted per split (its `FoldCounts`) and summed over the splits.
So folds are pooled and a killed evaluation can resume. `metrics` makes scores of the sums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.evaluation import large_model, metrics
from bigfs.evaluation.metrics import Scorer
from bigfs.evaluation.scoring import (
    SVM,
    FittedModel,
    SetScore,
    score_sets,
    scoring_all,
    with_training_sample,
)
from bigfs.evaluation.splits import Split, target_kind, training_sample
from bigfs.matrix import Block, Matrix
from bigfs.result import ALL, Checkpoint, early_ends
from bigfs.types import AnyArray, FloatArray, IntArray

Rankings = Mapping[str, Mapping[int, IntArray]]


class Point(NamedTuple):
    """A point of a curve: the scores with the best features of a method."""

    method: str  # "all features" stands for no selection
    n_features: int
    scores: dict[str, float]  # by metric


class FoldCounts(NamedTuple):
    """The counts of one split, with one entry per point of the curves. Its fields are plain, so
    that a checkpoint can keep it."""

    methods: tuple[str, ...]
    sizes: tuple[int, ...]  # numbers of features
    counts: tuple[FloatArray, ...]
    losses: tuple[AnyArray, ...]  # of the test rows, empty where the counts were known
    not_converged: int  # selections that ended before their tolerance


class KnownCounts(Protocol):
    """Counts of sets of features that earlier evaluations on the same split have left, by name."""

    def load(self) -> dict[str, FloatArray]: ...

    def save(self, counts: Mapping[str, FloatArray]) -> None: ...


class Evaluation(NamedTuple):
    """The points of the curves."""

    points: list[Point]
    not_converged: int  # selections behind them that ended before their tolerance
    by_split: list[list[Point]]  # the points of each split by itself, none of one that is left out
    losses: list[AnyArray]  # of each point, of the test rows of all splits
    left_out: list[str]  # why each split is left out from whose training rows no choice can be made


class ChoiceError(ValueError):
    """A method cannot choose from the training rows of a split."""


# --- measuring ------------------------------------------------------------------------------------


@engine.session()
def measure(
    splits: Sequence[Split],
    rank: Callable[[int, Split], Rankings],
    *,
    with_all: bool | str = True,
    scorer: Scorer = SVM,
    checkpoint: Checkpoint | None = None,
    known: Callable[[int], KnownCounts | None] = lambda number: None,
    fitted: FittedModel | None = None,
    label: str = "evaluation folds",
) -> Evaluation:
    """Score the features that `rank` chooses from each split's training rows on its test rows.

    ``rank(number, split)`` returns, for each method, the indices of its best m features for several
    m. It must look at the split's training rows only. A split in which it raises a ValueError is
    left out, unless no other can be scored. `with_all` also scores all features, and a word says
    how their model is trained where they do not fit in memory (`bigfs.evaluation.large_model`).

    `checkpoint` keeps the counts of each finished split, which is not measured again.
    ``known(number)`` returns the counts that earlier evaluations have left on a split, or None: no
    model is trained for them again. `fitted` is a model of the training rows of the only split. The
    right answers of all splits are added up before they become a score.
    """
    folds: list[FoldCounts | None] = []
    left_out: list[str] = []
    for number, split in enumerate(splits, 1):
        name = f"evaluate fold {number} of {len(splits)}"
        saved = checkpoint.load(name) if checkpoint is not None else None
        if saved is not None:
            fold = FoldCounts(*saved[0])
        else:
            try:
                fold = count_split(
                    split,
                    partial(rank, number, split),
                    with_all=with_all,
                    scorer=scorer,
                    known=known(number),
                    fitted=fitted,
                )
            except ChoiceError as error:
                left_out.append(str(error))
                folds.append(None)
                if len(left_out) == len(splits):
                    raise
                continue
            if checkpoint is not None:
                checkpoint.save(name, fold, [])
        folds.append(fold)
        if len(splits) > 1:
            engine.show_progress(label, number, len(splits))
    kind, scored = target_kind(splits[0].y_test), [fold for fold in folds if fold is not None]
    return Evaluation(
        pool(scored, kind, scorer),
        sum(fold.not_converged for fold in scored),
        [[] if fold is None else pool([fold], kind, scorer) for fold in folds],
        [np.concatenate(parts) for parts in zip(*(fold.losses for fold in scored), strict=True)],
        left_out,
    )


def count_split(
    split: Split,
    rank: Callable[[], Rankings],
    *,
    with_all: bool | str = True,
    scorer: Scorer = SVM,
    known: KnownCounts | None = None,
    fitted: FittedModel | None = None,
) -> FoldCounts:
    """Count the right answers of a linear model on each set of features, one task per set.

    It is trained on `training_sample` of the training rows.
    """
    split, d = with_training_sample(split), split.X_train.shape[1]
    earlier = {} if known is None else known.load()
    scored = {name: SetScore(counts, np.empty(0)) for name, counts in earlier.items()}
    name_of_all = (
        _name_of(split, np.arange(d), scorer) if with_all is True else f"{ALL} by {with_all}"
    )
    is_new = with_all is not False and name_of_all not in scored
    with scoring_all(split, with_all, scorer) if is_new else nullcontext() as score_all:
        rankings, not_converged = _rank(rank)
        sets = {(name, m): np.sort(i) for name, best in rankings.items() for m, i in best.items()}
        names = {point: _name_of(split, index, scorer) for point, index in sets.items()}
        new = {
            names[point]: index
            for point, index in sets.items()
            if names[point] not in {*scored, name_of_all}
        }
        added = score_sets(split, new, scorer=scorer, fitted=fitted)
        if score_all is not None:
            added[name_of_all] = score_all()
    if known is not None and added:
        known.save({name: set_score.counts for name, set_score in added.items()})
    scored |= added
    if with_all:
        names[ALL, d] = name_of_all
    methods, sizes = zip(*names, strict=True)
    counts, losses = zip(*(scored[name] for name in names.values()), strict=True)
    return FoldCounts(methods, sizes, counts, losses, not_converged)


def _rank(rank: Callable[[], Rankings]) -> tuple[Rankings, int]:
    """Return the rankings, and the number of selections behind them that did not converge."""
    with early_ends() as messages:
        try:
            return rank(), len(messages)
        except ValueError as error:
            raise ChoiceError(str(error)) from error


def _name_of(split: Split, index: IntArray, scorer: Scorer) -> str:
    """Return the name of a set of features: a hash of them, and how their model is trained."""
    way = large_model.choose_strategy(
        split.X_train, split.y_train, index, logistic=scorer.is_logistic
    )
    return f"{hashlib.sha256(index.astype('<i8').tobytes()).hexdigest()} {way}"


def pool(folds: Sequence[FoldCounts], kind: str, scorer: Scorer = SVM) -> list[Point]:
    """Return the curves' points from the sums of the splits' counts."""
    points = []
    for i, (name, m) in enumerate(zip(folds[0].methods, folds[0].sizes, strict=True)):
        total = np.sum([fold.counts[i] for fold in folds], axis=0)
        total, further = total.ravel(), {}
        for metric, measured in (("neg_log_loss", scorer.is_logistic), ("auc", scorer.with_auc)):
            if measured and kind == "class":
                total, sums = np.split(total, [-2])
                further[metric] = metrics.mean_of(sums)
        counts = total if kind in metrics.REAL else total.reshape(3, -1)
        points.append(Point(name, int(m), metrics.scores_of(counts, kind) | further))
    return points


def choose_full_strategy(X: Matrix, y: Any, scorer: Scorer = SVM) -> bool | str:
    """Return how all features can be scored, as `with_all` of `measure`.

    A logistic regression is fitted in memory only.
    """
    X, y = training_sample(X, y)
    way = large_model.choose_strategy(X, y, logistic=scorer.is_logistic)
    return way == large_model.IN_MEMORY or way or False


def is_non_negative(X: Matrix) -> bool:
    """Return whether no value is below zero. It takes one pass over X at most."""
    if X.stats.sums.min(initial=0) < 0:
        return False
    return all(X.map(_non_negative, 1 if X.column_tiles else 0))


def _non_negative(block: Block, start: int, stop: int) -> bool:
    return bool((block.data if sp.issparse(block) else block).min(initial=0) >= 0)
