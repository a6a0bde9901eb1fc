"""The folds of SparGE: training without some samples, and what these say about the choice."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve

from bigfs import engine
from bigfs.cutting_plane.columns import GatheredColumns
from bigfs.cutting_plane.hinge import SquaredHinge
from bigfs.cutting_plane.loop import solve_jointly
from bigfs.cutting_plane.relaxation import Relaxation
from bigfs.result import scope
from bigfs.selectors.sparge.sparge import SparGE, unit_of_gamma
from bigfs.types import FloatArray, IntArray

FOLD_COPIES = 4  # n × r arrays of a fold: the targets, their residual and the arrays of a step
Fold = tuple[IntArray, IntArray]  # the numbers of the training and the test samples


def training_data(
    data: GatheredColumns, train: IntArray, is_hinge: bool = False
) -> GatheredColumns:
    """Return the data with the weight 0 outside `train`.

    T is centered by the samples inside, unless it holds the signs of the squared hinge loss.
    """
    omega = np.zeros_like(data.omega)
    omega[train] = data.omega[train]
    T = np.where(omega[:, None] > 0, data.T, 0)
    if not is_hinge:
        T = T - np.outer(omega, intercept_of(data.T, omega))
    fold = GatheredColumns(data.X, T, omega)
    fold.keeps_factor = False  # each penalty has one on each fold
    return fold


def intercept_of(T: FloatArray, omega: FloatArray) -> FloatArray:
    """Return b, the intercept of T among samples of weights ω."""
    return omega @ T / (omega @ omega)


class FoldChoice(NamedTuple):
    """The choice of a candidate without the test samples of a fold."""

    candidate: int
    fold: int
    problem: Relaxation  # on the training samples
    chosen: IntArray  # the features, best first
    seconds: float  # to choose; what candidates share counts for each of them


def choose_in_folds(
    candidates: Sequence[SparGE],
    data: Sequence[GatheredColumns],
    y: Any,
    folds: Sequence[Fold],
    name: str,
) -> Iterator[FoldChoice]:
    """Yield the features that each candidate chooses without a fold's test samples.

    All relaxations are solved jointly, and candidates that differ in their ranking alone share one.
    `data` has the regression of each candidate on all samples, and some may be the same.
    """
    widths = {id(whole): whole.T.size for whole in data}
    engine.require_memory(
        8 * (1 + FOLD_COPIES * len(folds)) * sum(widths.values()),
        f"{len(widths)} targets of {len(data[0].T)} samples in {len(folds)} folds",
    )
    training: dict[tuple[int, int], GatheredColumns] = {}
    problems: dict[tuple[int, int, float], Relaxation] = {}
    keys = []
    for candidate, whole in zip(candidates, data, strict=True):
        for k, (train, _) in enumerate(folds):
            of_fold = (id(whole), k)
            if of_fold not in training:
                is_hinge = candidate.loss == "squared_hinge"
                training[of_fold] = training_data(whole, train, is_hinge)
            keys.append((*of_fold, candidate.gamma))
            if keys[-1] not in problems:
                problems[keys[-1]] = candidate._problem(training[of_fold])
    results = solve_jointly(
        list(problems.values()), tol=candidates[0].tol, max_iter=candidates[0].max_iter, name=name
    )
    result_of = dict(zip(problems, results, strict=True))
    for number, key in enumerate(keys):
        index, k = divmod(number, len(folds))
        fitted, problem = copy(candidates[index]), problems[key]
        began = time.perf_counter()
        with scope(f"{name}, candidate {index}, fold {k}"):  # a checkpoint of its own
            fitted._select(problem, result_of[key], y)
        chosen = fitted._choose().selected_
        seconds = problem.seconds + time.perf_counter() - began
        yield FoldChoice(index, k, problem, chosen, seconds)


def held_out_loss(
    gammas: FloatArray, problem: Relaxation, chosen: IntArray, whole: GatheredColumns
) -> float:
    """Return the share of the held-out T that a ridge on the chosen features leaves unexplained, at
    the best of the penalties, in the units of the gamma of `SparGE`."""
    problem.data.add(np.sort(chosen))
    training, is_test = problem.data, problem.data.omega == 0
    assert isinstance(training, GatheredColumns)
    penalties = gammas * unit_of_gamma(training, problem.constraints.absent)
    if isinstance(problem.loss, SquaredHinge):
        return _hinge_loss(problem.loss, np.sort(chosen), whole, penalties)
    chosen = np.sort(chosen)
    positions, (G, B) = training.positions(chosen), training.gram(chosen)
    W = [solve(G + penalty * np.eye(len(G)), B, assume_a="pos") for penalty in penalties]
    stacked = np.hstack(W)  # the ridges side by side
    fitted = (training.Z[:, positions] @ stacked - training.mu[positions] @ stacked)[is_test]
    target = (whole.T - np.outer(whole.omega, intercept_of(whole.T, training.omega)))[is_test]
    residuals = [
        target - whole.omega[is_test, None] * part for part in np.split(fitted, len(W), axis=1)
    ]
    return min(float(np.sum(residual**2)) for residual in residuals) / float(np.sum(target**2))


def _hinge_loss(
    hinge: SquaredHinge, chosen: IntArray, whole: GatheredColumns, penalties: FloatArray
) -> float:
    """Return the held-out squared hinge loss as a share of the loss of an intercept alone."""
    is_test = hinge.data.omega == 0
    omega = whole.omega[is_test, None]
    Y, Z = whole.T[is_test] / omega, hinge.columns(chosen)

    def loss(F: FloatArray) -> float:
        return float(np.sum((omega * np.maximum(1 - Y * F, 0)) ** 2))

    losses = []
    for penalty in penalties:
        W, b = hinge.refit(chosen, penalty)
        losses.append(loss((Z @ W)[is_test] + b))
    _, alone = hinge.slack(np.zeros(hinge.Y.shape))
    return min(losses) / loss(np.tile(alone, (len(Y), 1)))
