"""How the papers measure a choice of features."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from bigfs.result import NotConvergedWarning

PENALTIES = (0.1, 1.0, 10.0)  # C of the SVM: the papers don't print theirs
CHOOSING = 1000  # samples at most that choose C
COMPILED: set[type] = set()  # the classes whose kernels this process has compiled


class Ranking(NamedTuple):
    """Features, best first, and the processor time that they took."""

    order: np.ndarray
    seconds: float
    model: Any


def rank(model: Any, X: Any, y: Any, m: int) -> Ranking:
    """Fit a selector that keeps m features, twice where the first fit of its class compiles."""
    model.set_params(n_features_to_select=m)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        if type(model) not in COMPILED:
            clone(model).fit(X, y)
            COMPILED.add(type(model))
        begin = time.process_time()
        model.fit(X, y)
    return Ranking(model.selected_, time.process_time() - begin, model)


def svm_fit_score(G: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, C: float) -> float:
    """Return the accuracy on the samples b of a linear SVM of the samples a, from the products."""
    if len(np.unique(y[a])) < 2:
        return float(np.mean(y[b] == y[a][0]))
    model = SVC(kernel="precomputed", C=C).fit(G[np.ix_(a, a)], y[a])
    return float(np.mean(model.predict(G[np.ix_(b, a)]) == y[b]))


def folds(y: np.ndarray, k: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return k folds, or as many as the largest class has samples."""
    k = max(2, min(k, int(np.bincount(y).max())))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class may have fewer samples than folds
        return list(StratifiedKFold(k, shuffle=True, random_state=seed).split(y, y))


def chosen_svm(
    X: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, seed: int
) -> tuple[float, float]:
    """Return the accuracy on b of the SVM of a, and of the five folds of a that chose its C."""
    few = a if len(a) <= CHOOSING else np.random.default_rng(seed).choice(a, CHOOSING, False)
    G = X[few] @ X[few].T
    scores = [
        np.mean([svm_fit_score(G, y[few], i, j, C) for i, j in folds(y[few], 5, seed)])
        for C in PENALTIES
    ]
    best = int(np.argmax(scores))
    samples = np.concatenate([a, b])
    G = X[samples] @ X[a].T
    model = SVC(kernel="precomputed", C=PENALTIES[best]).fit(G[: len(a)], y[a])
    return float(np.mean(model.predict(G[len(a) :]) == y[b])), float(scores[best])


def cross_validated_svm(X: np.ndarray, y: np.ndarray, k: int, seed: int, C: float = 1.0) -> float:
    """Return the accuracy of k folds of an SVM."""
    G = X @ X.T
    return float(np.mean([svm_fit_score(G, y, i, j, C) for i, j in folds(y, k, seed)]))


def nearest(X: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """Return the accuracy on b of the nearest neighbor in a."""
    return float(KNeighborsClassifier(1).fit(X[a], y[a]).score(X[b], y[b]))


Runs = Mapping[str, Mapping[int, np.ndarray]]  # parameters → repetition → curve


def best(accuracy: Runs, by: Runs | None = None) -> dict[int, float]:
    """Return the mean of the curve at the best parameters, for each repetition."""
    by = accuracy if by is None else by
    chosen: dict[int, tuple[float, float]] = {}
    for parameters in sorted(accuracy):
        for repetition, curve in accuracy[parameters].items():
            score = float(by[parameters][repetition].mean())
            if repetition not in chosen or score > chosen[repetition][0]:
                chosen[repetition] = score, float(curve.mean())
    return {repetition: mean for repetition, (_, mean) in sorted(chosen.items())}


def average(accuracy: Runs) -> dict[int, float]:
    """Return the mean over the curves and the parameters, for each repetition that all have."""
    return mean_over(
        [{r: float(curve.mean()) for r, curve in by_run.items()} for by_run in accuracy.values()]
    )


def best_curves(accuracy: Runs, by: Runs | None = None) -> list[np.ndarray]:
    """Return the curve at the best parameters of each repetition, as `best` chooses them."""
    by = accuracy if by is None else by
    repetitions = sorted({r for curves in accuracy.values() for r in curves})
    return [
        max(
            ((by[p][r].mean(), p, curves[r]) for p, curves in accuracy.items() if r in curves),
            key=lambda found: found[:2],
        )[2]
        for r in repetitions
    ]


def mean_over(parts: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the mean over the parts, for the repetitions that all parts have."""
    if not parts:
        return {}
    common = set.intersection(*(set(part) for part in parts))
    return {r: float(np.mean([part[r] for part in parts])) for r in sorted(common)}
