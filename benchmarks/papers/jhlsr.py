"""JHLSR [Zhang, Bai, Liang, Hancock, Pattern Recognition 2017].

A selector sees a part of the samples. Its features are measured by ten folds of an SVM within the
other part, as in the paper, so the SVM does not learn from the few labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import normalize

import bigfs
from benchmarks.data import load
from benchmarks.papers.experiments import Cell, Experiment
from benchmarks.papers.measures import cross_validated_svm, rank
from benchmarks.papers.results import Values
from bigfs.graph import knn
from bigfs.graph.hypergraph.lasso import PENALTIES, lasso_hyperedges
from bigfs.graph.hypergraph.smoothness import Smoothness
from bigfs.selectors.row_sparse.jhlsr_operator import HypergraphOperator

STANDINS = {"Scene-15": "Scene15", "SURF": "Caltech256"}  # other features than the paper's
DATA = ("Prostate-GE", "GLIOMA", "ALLAML", "COIL20", "ORL", "MNIST 4000", *STANDINS)
LARGE, LARGE_REPETITIONS = ("MNIST 4000", "Scene-15"), 3
MOST = 2000  # samples of a draw
COUNTS = (10, *range(20, 201, 20))
GRID = [(mu, lam) for mu in (1.0, 10.0) for lam in (0.1, 1.0)]
GAMMA = 0.01
NEIGHBORS = 20
ROUNDS = 20
VARIANTS = {"JHLSR": "joint", "HYPER": "hyper", "GRAPH": "graph"}
MODES = ("semi", "unsupervised", "supervised")

Where = tuple[Path, str, str, int]  # folder, data, mode, repetition


@lru_cache(maxsize=2)
def split(folder: Path, name: str, mode: str, repetition: int) -> tuple[Any, ...]:
    """Return the samples that a selector sees, its labels, and the test's. max |X| is 1."""
    X, y = load(folder, name)
    X = normalize(X) if name == "SURF" else X  # counts of words
    X = X / np.abs(X).max()
    rng = np.random.default_rng([repetition, MODES.index(mode)])
    while True:
        order = rng.permutation(len(y))[:MOST]
        seen, test = np.split(order, [round(len(order) * (0.45 if mode == "semi" else 0.5))])
        labels = y[seen] + 1  # classes from 1, so that −1 is unlabeled for two classes too
        if mode == "semi":
            labels[max(2, round(0.05 * len(order))) :] = -1
        if len(np.unique(labels[labels > 0])) > 1:
            break
    return X[seen], None if mode == "unsupervised" else labels, X[test], y[test]


@lru_cache(maxsize=2)
def hypergraph(where: Where, penalties: tuple[float, ...] = PENALTIES) -> Any:
    """Return the hypergraph of the samples that a selector sees."""
    X = bigfs.Matrix.from_array(split(*where)[0])
    return lasso_hyperedges(X, knn(X, min(NEIGHBORS, X.shape[0] - 1)), penalties)


def jhlsr(variant: str, mu: float, lam: float, where: Where, **settings: Any) -> Any:
    """Return the selector. All selectors of a split share its hypergraph."""
    settings = {"gamma": GAMMA, "max_iter": ROUNDS, "n_neighbors": NEIGHBORS, **settings}
    if variant != "graph" and "hyperedges" not in settings:
        settings["hyperedges"] = hypergraph(where)
    return bigfs.JHLSR(mu=mu, lam=lam, variant=variant, mode=where[2], **settings)


def peers(mode: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """List the other methods of a mode, with their default parameters."""
    if mode == "supervised":
        yield "Fscore", bigfs.Fisher
        yield "SPFS", bigfs.SPFS
        yield "mRMR", bigfs.MRMR
        yield "LLFS", partial(bigfs.LLFS, max_iter=ROUNDS)
        yield "L21RFS", partial(bigfs.RFS, max_iter=ROUNDS)
        yield "Trace ratio", bigfs.TraceRatio
    elif mode == "unsupervised":
        yield "LapScore", bigfs.LaplacianScore
        yield "SPEC", bigfs.SPEC
        yield "MCFS", bigfs.MCFS
        yield "JELSR", partial(bigfs.JELSR, max_iter=ROUNDS)
    else:
        yield "LSDF", bigfs.LSDF
        yield "TRCFS", bigfs.TRCFS


def measure(order: Any, where: Where) -> Values:
    _, _, X, y = split(*where)
    return {"accuracy": [cross_validated_svm(X[:, order[:m]], y, 10, where[-1]) for m in COUNTS]}


def selector_cell(make: Callable[[], Any], where: Where) -> Values:
    X, y, _, _ = split(*where)
    ranking = rank(make(), X, y, min(max(COUNTS), X.shape[1]))
    values = {"seconds": ranking.seconds, **measure(ranking.order, where)}
    if isinstance(ranking.model, bigfs.JHLSR):
        history = ranking.model.result_.history
        values["nonzero"] = [record["hyperedges"] for record in history]
        values["objective"] = [record["objective"] for record in history]
    return values


def random_cell(where: Where) -> Values:
    d = split(*where)[0].shape[1]
    return measure(np.random.default_rng(where[-1]).permutation(d), where)


def all_cell(where: Where) -> Values:
    _, _, X, y = split(*where)
    return {"accuracy": np.full(len(COUNTS), cross_validated_svm(X, y, 10, where[-1]))}


def accuracy_cells(folder: Path, name: str, repetition: int, *, mode: str) -> Iterator[Cell]:
    if name in LARGE and repetition >= LARGE_REPETITIONS:
        return
    where = (folder, name, mode, repetition)
    for mu, lam in GRID:
        for method, variant in VARIANTS.items():
            make = partial(jhlsr, variant, mu, lam, where)
            yield Cell(method, f"mu={mu:g} lam={lam:g}", partial(selector_cell, make, where))
    for method, make in peers(mode):
        yield Cell(method, "", partial(selector_cell, make, where))
    yield Cell("random", "", partial(random_cell, where))
    yield Cell("all features", "", partial(all_cell, where))


# --- the hypergraph -------------------------------------------------------------------------------


def penalties_cell(where: Where, count: int) -> Values:
    edges = hypergraph(where, tuple(round(0.1 * (i + 1), 1) for i in range(count)))
    return selector_cell(partial(jhlsr, "joint", 1.0, 0.1, where, hyperedges=edges), where)


def distance_to_identity(where: Where, degrees: str) -> float:
    """Return ‖I − L_H(w)‖ for equal weights."""
    edges = hypergraph(where)
    smoothness = Smoothness(edges, degrees)
    w = np.full(edges.shape[1], 1 / edges.shape[1])
    F = HypergraphOperator.of(smoothness, np.zeros(edges.shape[0]), 1.0, w).factor()
    return float(np.linalg.norm((F @ F.T).toarray(), 2))


def learned_cell(where: Where, degrees: str) -> Values:
    """Return the weights, their zeros, the changes of S, and the common choice with HYPER."""
    X, y, _, _ = split(*where)
    models = [
        rank(jhlsr(v, 1.0, 0.1, where, degrees=degrees, tol=1e-12), X, y, 100).model
        for v in ("joint", "hyper")
    ]
    S = [np.zeros_like(models[0].coef_)]
    for rounds in range(1, 11):
        settings = {"degrees": degrees, "tol": 1e-12, "max_iter": rounds}
        S.append(rank(jhlsr("joint", 1.0, 0.1, where, **settings), X, y, 100).model.coef_)
    changes = [np.sum((after - before) ** 2) for before, after in zip(S, S[1:], strict=False)]
    w = np.sort(models[0].hyperedge_weights_)[::-1]
    history = models[0].result_.history
    return {
        "change": changes,
        "weights": w[np.linspace(0, len(w) - 1, 50).astype(int)] * len(w),
        "nonzero": [len(w), *(record["hyperedges"] for record in history)],
        "common": len(np.intersect1d(models[0].selected_, models[1].selected_)),
        "identity": distance_to_identity(where, degrees),
    }


def weights_cells(folder: Path, name: str, repetition: int) -> Iterator[Cell]:
    where = (folder, name, "semi", repetition)
    for degrees in ("weighted", "incidence"):
        yield Cell("JHLSR", f"degrees={degrees}", partial(learned_cell, where, degrees))


def penalties_cells(folder: Path, name: str, repetition: int) -> Iterator[Cell]:
    where = (folder, name, "semi", repetition)
    for count in range(1, len(PENALTIES) + 1):
        yield Cell("JHLSR", f"penalties={count}", partial(penalties_cell, where, count))


SEMI, UNSUPERVISED, SUPERVISED = (
    Experiment(f"jhlsr-{mode}", DATA, 10, partial(accuracy_cells, mode=mode)) for mode in MODES
)
SMALL = tuple(name for name in DATA if name not in LARGE)
WEIGHTS = Experiment("jhlsr-weights", SMALL, 10, weights_cells)
NUMBER = Experiment("jhlsr-penalties", SMALL, 10, penalties_cells)
