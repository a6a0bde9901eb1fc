"""SMR [Hou, Jiao, Nie, Luo, Zhou, IEEE TIP 2017].

Some images of each class are for training, the others for the test by the nearest neighbor. SMR and
its parameters see the training images only, but for the choice "on the test", which is the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import bigfs
from benchmarks.data import load
from benchmarks.extraction import lda2d
from benchmarks.papers.experiments import Cell, Experiment
from benchmarks.papers.measures import nearest, rank
from benchmarks.papers.results import Values
from bigfs.evaluation.quality import redundancy_rate
from bigfs.selectors.base.labels import Labels

SHAPES = {"ORL": (32, 32), "PIE": (32, 32), "Umist": (28, 23), "USPS 2007": (16, 16)}
TRAINING = {"ORL": 5, "PIE": 6, "Umist": 4, "USPS 2007": 4}  # images per class
COUNTS = tuple(range(50, 601, 50))
FEW_COUNTS = tuple(range(10, 121, 10))  # of USPS, which has 256 pixels
ALPHAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1e3)
EYES = (slice(8, 14), slice(4, 28))  # rows and columns that are covered
EYE_COUNTS = (100, 150, 200)


def counts(name: str) -> tuple[int, ...]:
    """Return the numbers of pixels of a data set."""
    return FEW_COUNTS if name == "USPS 2007" else COUNTS


def images(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the images as rows of pixels from 0 to 1, in column-major order, and the classes."""
    X, y = load(folder, name)
    return X / (255 if X.max() > 1 else 1), y


@lru_cache(maxsize=2)
def split(folder: Path, name: str, repetition: int) -> tuple[Any, ...]:
    """Return X, the classes, the training samples and the test samples."""
    X, y = images(folder, name)
    rng = np.random.default_rng(repetition)
    classes = (np.flatnonzero(y == c) for c in np.unique(y))
    train = np.sort(np.concatenate([rng.permutation(c)[: TRAINING[name]] for c in classes]))
    return X, y, train, np.setdiff1d(np.arange(len(y)), train)


def smr(shape: tuple[int, int], alpha: float, k: int) -> Any:
    """Return the selector with p = 1 and the paper's 30 rounds."""
    return bigfs.SMR(sample_shape=shape, order="F", alpha=alpha, k=k)


def peers() -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """List the other methods: name, parameters, constructor."""
    yield "IG", "", bigfs.MutualInformation
    for k in (3, 10):
        yield "ReliefF", f"k={k}", partial(bigfs.ReliefF, n_neighbors=k)
    yield "Fisher", "", bigfs.Fisher
    for gamma in (1e-2, 1e-1, 1.0):  # 4 images of each digit leave no pixel a weight at 10
        yield "RFS", f"gamma={gamma:g}", partial(bigfs.RFS, gamma=gamma, max_iter=30)
    for lam in (1e-3, 1e-2, 1e-1):
        yield "GLSPFS", f"lam={lam:g}", partial(bigfs.GLSPFS, lam=lam, max_iter=30)


# --- accuracy, redundancy, time -------------------------------------------------------------------


def left_out(X: np.ndarray, y: np.ndarray) -> float:
    """Return the accuracy of the nearest other sample."""
    squares = np.einsum("ij,ij->i", X, X)
    distances = squares[:, None] + squares - 2 * (X @ X.T)
    np.fill_diagonal(distances, np.inf)
    return float(np.mean(y[distances.argmin(axis=1)] == y))


def measure(order: Any, where: tuple[Path, str, int]) -> Values:
    X, y, a, b = split(*where)
    chosen = [order[:m] for m in counts(where[1])]
    return {
        "accuracy": [nearest(X[:, f], y, a, b) for f in chosen],
        "cv": [left_out(X[np.ix_(a, f)], y[a]) for f in chosen],
        "redundancy": [redundancy_rate(X[:, f]) for f in chosen],
    }


def selector_cell(make: Callable[[], Any], where: tuple[Path, str, int]) -> Values:
    X, y, a, _ = split(*where)
    ranking = rank(make(), X[a], y[a] if ranking_needs(make) else None, max(counts(where[1])))
    values = {"seconds": ranking.seconds, **measure(ranking.order, where)}
    if isinstance(ranking.model, bigfs.SMR):
        values["objective"] = [r["objective"] for r in ranking.model.result_.history]
    return values


def ranking_needs(make: Callable[[], Any]) -> bool:
    """Return whether a method learns from the classes. GLSPFS does not."""
    return getattr(make, "func", make) is not bigfs.GLSPFS


def random_cell(where: tuple[Path, str, int]) -> Values:
    d = split(*where)[0].shape[1]
    return measure(np.random.default_rng(where[-1]).permutation(d), where)


def all_cell(where: tuple[Path, str, int]) -> Values:
    X, y, a, b = split(*where)
    value = nearest(X, y, a, b)
    return {"accuracy": np.full(len(counts(where[1])), value), "cv": left_out(X[a], y[a])}


def lda_cell(where: tuple[Path, str, int]) -> Values:
    X, y, a, b = split(*where)
    M, N = SHAPES[where[1]]
    rows = X.reshape(-1, N, M).transpose(0, 2, 1).reshape(len(X), -1)  # pixels row by row
    labels = Labels(np.unique(y), y[a])
    found = lda2d(bigfs.Matrix.from_array(rows[a]), labels, (M, N), N)
    Z = found.embed(bigfs.Matrix.from_array(rows)).reshape(len(X), M, N)
    numbers = [max(1, round(m / M)) for m in counts(where[1])]
    accuracy = [nearest(Z[:, :, :r].reshape(len(X), -1), y, a, b) for r in numbers]
    return {"accuracy": accuracy}


def accuracy_cells(folder: Path, name: str, repetition: int) -> Iterator[Cell]:
    where = (folder, name, repetition)
    for method, parameters, make in peers():
        yield Cell(method, parameters, partial(selector_cell, make, where))
    yield Cell("random", "", partial(random_cell, where))
    yield Cell("all pixels", "", partial(all_cell, where))
    yield Cell("2DLDA", "", partial(lda_cell, where))
    yield from smr_cells(where, 4)


def smr_cells(where: tuple[Path, str, int], k: int) -> Iterator[Cell]:
    for alpha in ALPHAS:
        make = partial(smr, SHAPES[where[1]], alpha, k)
        yield Cell("SMR", f"k={k} alpha={alpha:g}", partial(selector_cell, make, where))


def grid_cells(folder: Path, name: str, repetition: int) -> Iterator[Cell]:
    for k in (2, 6, 8, 10, 1):  # k = 1 is GBR
        yield from smr_cells((folder, name, repetition), k)


# --- covered eyes ---------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def covered(folder: Path, classes: str, repetition: int) -> tuple[Any, Any]:
    """Return images of "two" or "all" classes, the first two with noise on their eyes."""
    X, y = images(folder, "ORL")
    first = y < 2
    pictures = X.reshape(-1, 32, 32).transpose(0, 2, 1).copy()  # row by row
    noise = np.random.default_rng(repetition).uniform(0, 0.6, (int(first.sum()), 6, 24))
    pictures[(first, *EYES)] = noise
    Z = pictures.transpose(0, 2, 1).reshape(len(X), -1)
    return (Z[first], y[first]) if classes == "two" else (Z, y)


def inside(order: Any) -> Values:
    """Return how many of the first pixels are covered."""
    mask = np.zeros((32, 32), dtype=bool)
    mask[EYES] = True
    flat = mask.T.ravel()
    return {"covered": [float(flat[order[:m]].sum()) for m in EYE_COUNTS]}


def eyes_cell(make: Callable[[], Any], where: tuple[Path, str, int]) -> Values:
    return inside(rank(make(), *covered(*where), max(EYE_COUNTS)).order)


def eyes_cells(folder: Path, name: str, repetition: int) -> Iterator[Cell]:
    where = (folder, name.removeprefix("ORL-"), repetition)
    for method, parameters, make in peers():
        if method != "GLSPFS":  # not in the paper's figure
            yield Cell(method, parameters, partial(eyes_cell, make, where))
    rng = np.random.default_rng(repetition)
    yield Cell("random", "", lambda: inside(rng.permutation(1024)))
    grid = [(k, alpha) for k in (2, 4, 10) for alpha in ALPHAS]
    for k, alpha in grid if name == "ORL-two" else [(4, 0.1), (4, 1.0), (4, 10.0)]:
        make = partial(smr, (32, 32), alpha, k)
        yield Cell("SMR", f"k={k} alpha={alpha:g}", partial(eyes_cell, make, where))


ACCURACY = Experiment("smr-accuracy", tuple(SHAPES), 20, accuracy_cells)
GRID = Experiment("smr-grid", ("Umist", "USPS 2007"), 20, grid_cells)
EYES_TWO = Experiment("smr-eyes", ("ORL-two", "ORL-all"), 20, eyes_cells, files=("ORL.mat",))
