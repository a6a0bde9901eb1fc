"""The folds of SparGE: training without some samples, and what these say about the choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve
from sklearn.svm import LinearSVC

from bigfs.cutting_plane.columns import GatheredColumns
from bigfs.cutting_plane.hinge import SquaredHinge
from bigfs.cutting_plane.loop import solve_jointly
from bigfs.cutting_plane.relaxation import CuttingPlaneState, Relaxation
from bigfs.linalg.prox import row_norms
from bigfs.matrix import Matrix
from bigfs.selectors.sparge.sparge import SparGE, svm_order
from bigfs.types import FloatArray, IntArray

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


def held_out_loss(
    problem: Relaxation, state: CuttingPlaneState, data: GatheredColumns, penalties: FloatArray
) -> float:
    """Return the share of the held-out T that a ridge on the m chosen features leaves unexplained.

    The ridge has the best of the penalties.
    """
    training, is_test = problem.data, problem.data.omega == 0
    assert isinstance(training, GatheredColumns)
    features, elimination = problem.eliminate_to_m(state)
    chosen = np.sort(features[elimination.order[: problem.m]])
    if isinstance(problem.loss, SquaredHinge):
        return _hinge_loss(problem.loss, chosen, data, penalties)
    positions, (G, B) = training.positions(chosen), training.gram(chosen)
    W = [solve(G + penalty * np.eye(len(G)), B, assume_a="pos") for penalty in penalties]
    stacked = np.hstack(W)  # one ridge beside the other
    fitted = (training.Z[:, positions] @ stacked - training.mu[positions] @ stacked)[is_test]
    target = (data.T - np.outer(data.omega, intercept_of(data.T, training.omega)))[is_test]
    residuals = [
        target - data.omega[is_test, None] * part for part in np.split(fitted, len(W), axis=1)
    ]
    return min(float(np.sum(residual**2)) for residual in residuals) / float(np.sum(target**2))


def _hinge_loss(
    hinge: SquaredHinge, chosen: IntArray, data: GatheredColumns, penalties: FloatArray
) -> float:
    """Return the held-out squared hinge loss as a share of that of an intercept alone."""
    is_test = hinge.data.omega == 0
    omega = data.omega[is_test, None]
    Y, Z = data.T[is_test] / omega, hinge.columns(chosen)

    def loss(F: FloatArray) -> float:
        return float(np.sum((omega * np.maximum(1 - Y * F, 0)) ** 2))

    losses = []
    for penalty in penalties:
        W, b = hinge.refit(chosen, penalty)
        losses.append(loss((Z @ W)[is_test] + b))
    _, alone = hinge.slack(np.zeros(hinge.Y.shape))
    return min(losses) / loss(np.tile(alone, (len(Y), 1)))


# --- a score of the chosen features ---------------------------------------------------------------


class FoldProblem(NamedTuple):
    """What decides about a relaxation of a fold."""

    class_weight: str  # its repr
    loss: str
    m: int  # size of the sets
    gamma: float
    fold: int


def score_candidates(
    candidates: Sequence[SparGE], X: Matrix, y: Any, folds: Sequence[Fold], scorer: Any
) -> FloatArray:
    """Score the features that each candidate chooses without a fold's test samples, on these.

    A linear SVM is trained on the chosen columns. All relaxations are solved jointly, and
    candidates that differ in their ranking alone share one.

    Parameters
    ----------
    candidates : sequence of SparGE
        The candidates, with embedding "lda".
    X : Matrix of shape (n, d)
        The samples.
    y : Labels
        The classes.
    folds : sequence of (train, test)
        Numbers of the labeled samples.
    scorer : callable
        Called as ``scorer(estimator, X, y)``.

    Returns
    -------
    ndarray of shape (n_candidates, n_folds)
        The scores.
    """
    data: dict[tuple[str, str, int], GatheredColumns] = {}
    problems: dict[FoldProblem, Relaxation] = {}
    keys = []
    for candidate in candidates:
        weight, loss = repr(candidate.class_weight), candidate.loss
        if (weight, loss, 0) not in data:
            whole = candidate._data(X, y)
            assert isinstance(whole, GatheredColumns)
            for k, (train, _) in enumerate(folds):
                data[weight, loss, k] = training_data(whole, train, loss == "squared_hinge")
        m = candidate._set_size(X.shape[1])
        gammas = [candidate._gamma(data[weight, loss, k], y) for k in range(len(folds))]
        keys.append([FoldProblem(weight, loss, m, gamma, k) for k, gamma in enumerate(gammas)])
        for key in keys[-1]:
            if key not in problems:
                fold = data[weight, loss, key.fold]
                problems[key] = candidate._relaxation(fold, m, key.gamma)
    model = candidates[0]
    name = f"SparGE grid of {model._count(X.shape[1])}"
    results = solve_jointly(
        list(problems.values()),
        tol=model.tol,
        max_iter=model.max_iter,
        name=name,
    )
    states = {key: result.value for key, result in zip(problems, results, strict=True)}
    codes = y.codes[y.is_labeled]
    return np.array(
        [
            [
                _score(
                    candidate,
                    problems[key],
                    states[key],
                    (codes, candidate._sample_weights(y)),
                    folds[key.fold],
                    scorer,
                    f"{name}, candidate {number}, fold {key.fold}",  # a checkpoint of its own
                )
                for key in row
            ]
            for number, (candidate, row) in enumerate(zip(candidates, keys, strict=True))
        ]
    )


def _score(
    candidate: SparGE,
    problem: Relaxation,
    state: CuttingPlaneState,
    labels: tuple[IntArray, FloatArray | None],
    samples: Fold,
    scorer: Any,
    name: str,
) -> float:
    """Return the score of one candidate on one fold, by the codes and weights of the samples."""
    (codes, weights), (train, test) = labels, samples
    fold = problem.data
    assert isinstance(fold, GatheredColumns)
    m = candidate._count(fold.X.shape[1])
    if candidate.ranking == "weights":
        order = problem.constraints.within(state.features).order(row_norms(state.W))
        chosen = state.features[order[:m]]
    else:
        features, elimination = problem.eliminate_to_m(state)
        chosen = np.sort(features[elimination.order[: problem.m]])
        if candidate.ranking == "svm":
            Z = fold.Z[:, fold.positions(chosen)][train]
            every, C = np.arange(len(chosen)), 1 / (2 * problem.gamma)
            kept = problem.constraints.within(chosen).kept
            s = None if weights is None else weights[train]
            order = svm_order(Matrix.from_array(Z), codes[train], every, m, C, name, kept, s)
            chosen = chosen[order[-m:]]
    Z = fold.Z[:, fold.positions(np.sort(chosen))]
    machine = LinearSVC(random_state=0, max_iter=10_000).fit(Z[train], codes[train])
    return float(scorer(machine, Z[test], codes[test]))
