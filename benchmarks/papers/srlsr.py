"""SRLSR [Chen, Yuan, Nie, Ming, IEEE TKDE 2018].

Transductive: a share of all samples is labeled. The rest is unlabeled in the fit and is the test
set. An SVM is chosen by five folds of the labeled samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import bigfs
from benchmarks.data import load
from benchmarks.papers.experiments import Cell, Experiment
from benchmarks.papers.measures import chosen_svm, rank
from benchmarks.papers.results import Values

LARGE = ("Isolet 7797", "CS", "USPS")
DATA = ("BinAlpha", "CNAE-9", "colon", "Segment", *LARGE, "Srbct")
COUNTS = tuple(range(20, 201, 20))
FEW_COUNTS = (*range(2, 19, 2), 19)  # of Segment, which has 19 features
SHARES = (10, 20, 30, 50)  # per cent of all samples that are labeled, and 40 too
GAMMAS = (1e-3, 1e-2, 1e-1, 1.0, 1e2, 1e3)  # as printed: there is no 10
P = (1.0, 0.9, 0.7, 0.5)  # at all shares
OTHER_P = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8)  # at 40 % only
ROUNDS = 20
REPETITIONS, LARGE_REPETITIONS = 10, 3


def counts(name: str) -> tuple[int, ...]:
    """Return the numbers of features of a data set."""
    return FEW_COUNTS if name == "Segment" else COUNTS


@lru_cache(maxsize=2)
def split(folder: Path, name: str, share: int, repetition: int) -> tuple[Any, ...]:
    """Return X, the classes, the labeled samples, the others, and the labels of the fit."""
    X, y = load(folder, name)
    rng = np.random.default_rng([repetition, share])
    while True:  # until two classes have two labels each
        order = rng.permutation(len(y))
        labeled = np.sort(order[: round(len(y) * share / 100)])
        if np.sum(np.bincount(y[labeled]) > 1) > 1:
            break
    few = np.full(len(y), -1)
    few[labeled] = y[labeled] + 1  # classes from 1, so that −1 is unlabeled for two classes too
    return X, y, labeled, np.setdiff1d(order, labeled), few


def peers() -> Iterator[tuple[str, str, Callable[[], Any], str]]:
    """List the others: name, parameters, constructor, samples (few labels, labeled, no labels)."""
    yield "LSDF", "", bigfs.LSDF, "few"
    yield "RRPC", "", bigfs.RRPC, "few"
    for lam in (0.1, 0.3, 0.6):
        yield "sSelect", f"lam={lam:g}", partial(bigfs.SSelect, lam=lam), "few"
    yield "LS", "", bigfs.LaplacianScore, "none"
    yield "MCFS", "", bigfs.MCFS, "none"
    for gamma in (1e-2, 1.0, 1e2):
        yield "RFS", f"gamma={gamma:g}", partial(bigfs.RFS, gamma=gamma, max_iter=ROUNDS), "labeled"
    for gamma in (1e-2, 1.0, 1e2):
        yield "UDFS", f"gamma={gamma:g}", partial(bigfs.UDFS, gamma=gamma, max_iter=ROUNDS), "none"
    yield "ANOVA", "", bigfs.ANOVA, "labeled"


def srlsr(p: float, gamma: float, **settings: Any) -> Any:
    """Return the selector with the paper's rounds, none of them accelerated."""
    plain = {"accelerate": False, "solver_tol": 1e-6, "max_iter": ROUNDS}
    return bigfs.SRLSR(p=p, gamma=gamma, **plain, **settings)


def measure(order: Any, where: tuple[Path, str, int, int]) -> Values:
    X, y, labeled, others, _ = split(*where)
    sizes = counts(where[1])
    pairs = [chosen_svm(X[:, order[:m]], y, labeled, others, where[-1]) for m in sizes]
    accuracy, chosen = zip(*pairs, strict=True)
    return {"accuracy": accuracy, "cv": chosen}


def accuracy_cell(make: Callable[[], Any], learn: str, where: tuple[Path, str, int, int]) -> Values:
    X, y, labeled, _, few = split(*where)
    data = {"few": (X, few), "labeled": (X[labeled], y[labeled]), "none": (X[labeled], None)}
    ranking = rank(make(), *data[learn], max(counts(where[1])))
    return {"seconds": ranking.seconds, **measure(ranking.order, where)}


def random_cell(where: tuple[Path, str, int, int]) -> Values:
    X = split(*where)[0]
    return measure(np.random.default_rng(where[-1]).permutation(X.shape[1]), where)


def all_cell(where: tuple[Path, str, int, int]) -> Values:
    X, y, labeled, others, _ = split(*where)
    accuracy, chosen = chosen_svm(X, y, labeled, others, where[-1])
    return {"accuracy": accuracy, "cv": chosen}


def accuracy_cells(
    folder: Path, name: str, repetition: int, *, shares: tuple[int, ...]
) -> Iterator[Cell]:
    if name in LARGE and repetition >= LARGE_REPETITIONS:
        return
    for share in shares:
        where = (folder, name, share, repetition)
        for p in P:
            for gamma in GAMMAS:
                text = f"share={share} p={p:g} gamma={gamma:g}"
                make = partial(srlsr, p, gamma)
                yield Cell("SRLSR", text, partial(accuracy_cell, make, "few", where))
        for method, parameters, make, learn in peers():
            text = f"share={share} {parameters}".strip()
            yield Cell(method, text, partial(accuracy_cell, make, learn, where))
        yield Cell("random", f"share={share}", partial(random_cell, where))
        yield Cell("all features", f"share={share}", partial(all_cell, where))


def grid_cells(folder: Path, name: str, repetition: int) -> Iterator[Cell]:
    where = (folder, name, 40, repetition)
    for p in OTHER_P:
        for gamma in GAMMAS:
            text = f"share=40 p={p:g} gamma={gamma:g}"
            yield Cell(
                "SRLSR", text, partial(accuracy_cell, partial(srlsr, p, gamma), "few", where)
            )


def theta_cell(where: tuple[Path, str, int, int], p: float, gamma: float) -> Values:
    X, _, _, _, few = split(*where)
    model = rank(srlsr(p, gamma, tol=0), X, few, 70).model
    theta = np.sort(model.theta_)[::-1]
    mass = np.searchsorted(np.cumsum(theta), 0.9) + 1
    objective = [record["objective"] for record in model.result_.history]
    return {"theta": theta[:70], "mass": mass, "objective": objective}


def theta_cells(folder: Path, name: str, repetition: int) -> Iterator[Cell]:
    where = (folder, name, 40, repetition)
    for p in sorted((*P, *OTHER_P)):
        for gamma in (0.01, 0.1, 1.0, 10.0):  # four values, of which the paper prints three
            text = f"p={p:g} gamma={gamma:g}"
            yield Cell("SRLSR", text, partial(theta_cell, where, p, gamma))


FORTY = Experiment("srlsr-forty", DATA, REPETITIONS, partial(accuracy_cells, shares=(40,)))
SHARED = Experiment("srlsr-shares", DATA, REPETITIONS, partial(accuracy_cells, shares=SHARES))
GRID = Experiment("srlsr-grid", ("BinAlpha", "CNAE-9"), REPETITIONS, grid_cells)
THETA = Experiment("srlsr-theta", ("CS", "BinAlpha", "CNAE-9"), 1, theta_cells)
