"""The unsupervised methods of all papers, by the clusters of their features.

Each method ranks the features of a draw of the samples, k-means clusters the samples by the first
of them, and the clusters are compared with the classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.model_selection import train_test_split

from benchmarks.data import load, texts
from benchmarks.papers.experiments import Cell, Experiment
from benchmarks.papers.measures import rank
from benchmarks.papers.results import Values
from bigfs.selectors.registry import METHODS

DATA = ("COIL20", "ORL", "Isolet 7797", "PIE", "USPS", "Umist", "Reuters")
COUNTS = (20, 50, 100, 200)
LARGEST, SHARE = 2000, 0.8  # samples of a draw: so many at most, and of those that there are
STARTS = 5  # of k-means
ATOMS = ("jgsc", "rjgsc", "gsc")  # they choose atoms of a dictionary, not features
CELLS = ("hvg",)  # for counts of genes
NAMES = tuple(
    name for name, method in METHODS.items() if not method.targets and name not in ATOMS + CELLS
)


@lru_cache(maxsize=2)
def draw(folder: Path, name: str, repetition: int) -> tuple[Any, np.ndarray]:
    """Return a stratified draw of the samples, and their classes."""
    if name == "Reuters":
        counts, y, *_ = texts(folder, name)
        X = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
        common = np.flatnonzero(np.bincount(y)[y] >= 20)  # 65 classes, many of a few documents
        X, y = X[common], np.unique(y[common], return_inverse=True)[1]
    else:
        X, y = load(folder, name)
        X = X / np.abs(X).max()
    size = min(LARGEST, round(SHARE * len(y)))
    chosen, _ = train_test_split(
        np.arange(len(y)), train_size=size, stratify=y, random_state=repetition
    )
    return X[np.sort(chosen)], y[np.sort(chosen)]


def matched(y: np.ndarray, clusters: np.ndarray) -> float:
    """Return the share of the samples in the class that their cluster is matched with."""
    counts = contingency_matrix(y, clusters)
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / len(y))


def clustered(views: Iterable[Any], y: np.ndarray, repetition: int) -> Values:
    """Return the mutual information and the accuracy of k-means, per view of the samples."""
    found = []
    for X in views:
        model = KMeans(len(np.unique(y)), n_init=1)
        seeds = range(STARTS * repetition, STARTS * (repetition + 1))
        runs = [model.set_params(random_state=seed).fit_predict(X) for seed in seeds]
        found.append([[normalized_mutual_info_score(y, run), matched(y, run)] for run in runs])
    nmi, accuracy = np.mean(found, axis=1).T
    return {"nmi": nmi, "accuracy": accuracy}


def method_cell(name: str, where: tuple[Path, str, int]) -> Values:
    X, y = draw(*where)
    model = METHODS[name].make()
    if "n_components" in model.get_params():
        model.set_params(n_components=len(np.unique(y)))
    ranking = rank(model, X, None, max(COUNTS))
    views = (X[:, ranking.order[:m]] for m in COUNTS)
    return {"seconds": ranking.seconds, **clustered(views, y, where[-1])}


def random_cell(where: tuple[Path, str, int]) -> Values:
    X, y = draw(*where)
    lot = np.random.default_rng(where[-1]).permutation(X.shape[1])
    return clustered((X[:, lot[:m]] for m in COUNTS), y, where[-1])


def all_cell(where: tuple[Path, str, int]) -> Values:
    X, y = draw(*where)
    return clustered([X], y, where[-1])


def cells(folder: Path, data: str, repetition: int) -> Iterator[Cell]:
    where = (folder, data, repetition)
    for name in NAMES:
        yield Cell(name, "", partial(method_cell, name, where))
    yield Cell("random", "", partial(random_cell, where))
    yield Cell("all features", "", partial(all_cell, where))


NOW = Experiment("unsupervised", DATA, 5, cells)
