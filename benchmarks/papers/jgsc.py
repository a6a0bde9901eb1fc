"""JGSC's experiments."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.data import Dataset, load, texts
from benchmarks.extraction import lpp
from benchmarks.papers.experiments import Cell, Experiment
from bigfs import GSC, JFS, JGSC, MCFS, MRSF, RJGSC, UDFS, LaplacianScore, Matrix
from bigfs.coding import dictionary

PERCENT = (10, 20, 30, 40, 50, 60, 70, 80)
HALF = PERCENT.index(50)
ALPHAS = (0.01, 0.1, 1.0, 10.0)
LAMBDAS = (0.02, 0.05, 0.1, 0.3)  # shares of the λ from which every code is zero
LARGE = ("Reuters", "News")
TEXT = ("PCMAC", "BASEHOCK", *LARGE)
TEXT_ALPHAS, TEXT_LAMBDAS = (0.1, 10.0), (0.02, 0.1)
ATOMS = 256  # at most; the paper has as many as features
NEIGHBORS, FOLDS, INNER = 5, 10, 5
SHARE = 0.1  # of the features that the peers are fitted for; all are ranked
ROUNDS = 40  # of the convergence
# class sizes, features, informative features, noise
TOYS = {
    "Toy1": ((50, 40, 50), 200, 80, 1e-3),
    "Toy2": ((50, 50, 50), 300, 100, 1e1),
    "Toy3": ((50, 40, 110), 300, 80, 1e3),
}
CODED = {"JGSC": JGSC, "RJGSC": RJGSC, "GSC": GSC}
SELECTORS = {
    "Laplacian score": LaplacianScore,
    "MCFS": MCFS,
    "MRSF": MRSF,
    "JFS": JFS,
    "UDFS": UDFS,
}


# --- data -----------------------------------------------------------------------------------------


def toy(name: str, seed: int) -> Dataset:
    """Return X = BS + E, centered and standardized. The first rows of S differ by class."""
    sizes, d, informative, noise = TOYS[name]
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    S = np.zeros((d, len(y)))
    means = rng.normal(size=(informative, len(sizes)))
    S[:informative] = means[:, y] + rng.normal(size=(informative, len(y)))
    B = rng.normal(size=(d, d)) / np.sqrt(d)
    common = rng.normal(size=len(y))  # of all features: correlation 0.1
    E = np.sqrt(0.9) * rng.normal(size=(d, len(y))) + np.sqrt(0.1) * common
    return Dataset(standardized((B @ S + np.sqrt(noise) * E).T), y)


def standardized(X: np.ndarray) -> np.ndarray:
    """Return X with centered columns of one norm, and rows of norm 1 in the mean."""
    scale = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1) / np.sqrt(X.shape[1])


@lru_cache(maxsize=1)
def prepared(folder: Path, name: str, repetition: int) -> Dataset:
    """Return the data as all methods get it. A toy is another one in each repetition."""
    if name in TOYS:
        return toy(name, repetition)
    if name in LARGE:
        counts, y, *_ = texts(folder, name)
        return Dataset(TfidfTransformer(sublinear_tf=True).fit_transform(counts), y)
    X, y = load(folder, name)
    if name in TEXT:
        X = TfidfTransformer(sublinear_tf=True).fit_transform(sp.csr_array(X)).toarray()
        return Dataset(X, y)
    return Dataset(standardized(X), y)


# --- features and codes ---------------------------------------------------------------------------


@lru_cache(maxsize=1)
def atoms_of(folder: Path, name: str, draw: int) -> np.ndarray:
    """Return the atoms, rows."""
    X = Matrix.from_array(prepared(folder, name, draw).X)
    count = min(*X.shape, ATOMS)
    return dictionary.learn_atoms(X, count, epochs=4, batch_rows=256, seed=0).value.D.T


def grid(name: str) -> list[tuple[float, float]]:
    """Return the pairs of α and λ, λ as a share."""
    alphas, shares = (TEXT_ALPHAS, TEXT_LAMBDAS) if name in TEXT else (ALPHAS, LAMBDAS)
    return list(itertools.product(alphas, shares))


def fitted(folder: Path, name: str, draw: int, method: str, pair: tuple[float, float]) -> Any:
    """Return the fitted model of one pair of parameters, with codes of all atoms."""
    X, atoms = prepared(folder, name, draw).X, atoms_of(folder, name, draw)
    loss = CODED[method]._loss(Matrix.from_array(X), np.ascontiguousarray(atoms.T))
    top = float(2 * np.linalg.norm(loss.terms(None).R, axis=0).max())
    alpha, lam = pair
    model = CODED[method](
        dictionary=atoms,
        alpha=alpha,
        lam=lam * top,
        n_features_to_select=len(atoms),
        tol=1e-3,
        max_iter=ROUNDS,
    )
    return model.fit(X)


Representation = tuple[np.ndarray, np.ndarray]  # n × columns, and their order


@lru_cache(maxsize=4)
def representations(
    folder: Path, name: str, draw: int, method: str
) -> Mapping[str, Representation]:
    """Return what 5-NN gets: the columns and their order, by parameters."""
    X = prepared(folder, name, draw).X
    if method == "Original":
        return {"": (X, np.arange(X.shape[1]))}
    if method == "LPP":
        Z = lpp(Matrix.from_array(X), min(X.shape[0] // 2, X.shape[1], ATOMS)).embed(X)
        return {"": (Z, np.arange(Z.shape[1]))}
    if method in SELECTORS:
        scores = SELECTORS[method](n_features_to_select=SHARE).fit(X).scores_
        return {"": (X, np.argsort(-scores, kind="stable"))}
    models = {pair: fitted(folder, name, draw, method, pair) for pair in grid(name)}
    return {repr(pair): (model.codes_, model.selected_) for pair, model in models.items()}


# --- accuracy -------------------------------------------------------------------------------------


def metric_of(name: str) -> str:
    """Return the distance of 5-NN. The rows of chosen words no longer have the norm 1."""
    return "cosine" if name in TEXT else "euclidean"


def predict(D: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """Return the accuracy of 5-NN from distances. The least class wins a draw."""
    near = np.argpartition(D[np.ix_(test, train)], NEIGHBORS - 1, axis=1)[:, :NEIGHBORS]
    votes = np.apply_along_axis(np.bincount, 1, y[train][near], minlength=y.max() + 1)
    return float(np.mean(votes.argmax(axis=1) == y[test]))


def nested(
    shown: Mapping[str, Representation],
    y: np.ndarray,
    method: str,
    repetition: int,
    metric: str,
) -> Sequence[float]:
    """Return the accuracy over ten folds at each share, the parameters chosen by inner folds."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=repetition).split(y, y)
    folds = [(train, test) for train, test in folds]
    curves = []
    for percent in PERCENT:
        distances = []
        for Z, order in shown.values():
            count = Z.shape[1] if method == "Original" else max(1, percent * Z.shape[1] // 100)
            distances.append(pairwise_distances(Z[:, order[:count]], metric=metric))
        scores = []
        for train, test in folds:
            best = 0
            if len(distances) > 1:
                splitter = StratifiedKFold(INNER, shuffle=True, random_state=0)
                inner = [(train[a], train[b]) for a, b in splitter.split(y[train], y[train])]
                means = [np.mean([predict(D, y, a, b) for a, b in inner]) for D in distances]
                best = int(np.argmax(means))
            scores.append(predict(distances[best], y, train, test))
        curves.append(float(np.mean(scores)))
    return curves


def accuracy_cells(folder: Path, data: str, repetition: int) -> Iterator[Cell]:
    """Accuracy of 5-NN over ten folds, at each share of the dimensions."""
    draw = repetition if data in TOYS else 0

    def accuracy(method: str) -> dict[str, Any]:
        y, shown = prepared(folder, data, draw).y, representations(folder, data, draw, method)
        return {"accuracy": nested(shown, y, method, repetition, metric_of(data))}

    for method in ("Original", "LPP", *SELECTORS, *CODED):
        yield Cell(method, "", lambda method=method: accuracy(method))


def parameter_cells(folder: Path, data: str, repetition: int) -> Iterator[Cell]:
    """The objective by rounds, and the accuracy at half of the dimensions, for each α and λ."""

    def measured(method: str, pair: tuple[float, float]) -> dict[str, Any]:
        y = prepared(folder, data, 0).y
        model = fitted(folder, data, 0, method, pair)
        half = model.codes_[:, model.selected_[: model.codes_.shape[1] // 2]]
        D = pairwise_distances(half, metric=metric_of(data))
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=repetition).split(y, y)
        objective = [record["objective"] for record in model.result_.history]
        return {
            "objective": objective,
            "accuracy": np.mean([predict(D, y, train, test) for train, test in folds]),
        }

    for method, pair in itertools.product(("JGSC", "RJGSC"), grid(data)):
        parameters = f"alpha={pair[0]:g} lambda={pair[1]:g}"
        yield Cell(method, parameters, lambda a=method, b=pair: measured(a, b))


# --- the large corpora, by their own split --------------------------------------------------------


def scored(columns: Any, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return which samples of the test 5-NN tells well."""
    model = KNeighborsClassifier(NEIGHBORS, algorithm="brute", metric="cosine")
    model.fit(columns[train], y[train])
    return np.asarray(model.predict(columns[test]) == y[test])


@cache
def large_correct(folder: Path, name: str, method: str) -> np.ndarray:
    """Return which test documents are told well, shares × documents.

    The parameters are chosen on a fifth of the training documents, at each share.
    """
    y, test = prepared(folder, name, 0).y, texts(folder, name).test
    train = np.flatnonzero(~test)
    inner, held = train_test_split(train, test_size=0.2, random_state=0, shuffle=True)
    rows = []
    for percent in PERCENT:
        found = []
        for Z, order in representations(folder, name, 0, method).values():
            whole = method == "Original"
            count = Z.shape[1] if whole else max(1, percent * Z.shape[1] // 100)
            found.append(Z[:, np.sort(order[:count])])
        inside = [scored(Z, y, inner, held).mean() for Z in found] if len(found) > 1 else [0]
        rows.append(scored(found[int(np.argmax(inside))], y, train, np.flatnonzero(test)))
        if method == "Original":
            return np.array(rows * len(PERCENT))
    return np.array(rows)


def large_cells(folder: Path, data: str, repetition: int) -> Iterator[Cell]:
    """Accuracy of 5-NN on a tenth of the test documents. All of them have the same fits."""
    for method in ("Original", *SELECTORS, *CODED):
        if method == "JFS":
            continue  # it regresses all features on all features: 28 GiB for Reuters
        yield Cell(
            method,
            "",
            lambda method=method: {
                "accuracy": large_correct(folder, data, method)[:, repetition::10].mean(axis=1)
            },
        )


def large_parameter_cells(folder: Path, data: str, repetition: int) -> Iterator[Cell]:
    """The objective by rounds, and the accuracy at half of the dimensions, for each α and λ."""
    y, test = prepared(folder, data, 0).y, texts(folder, data).test

    def measured(method: str, pair: tuple[float, float]) -> dict[str, Any]:
        model = fitted(folder, data, 0, method, pair)
        half = model.codes_[:, model.selected_[: model.codes_.shape[1] // 2]]
        objective = [record["objective"] for record in model.result_.history]
        correct = scored(half, y, np.flatnonzero(~test), np.flatnonzero(test))
        return {"objective": objective, "accuracy": correct.mean()}

    for method, pair in itertools.product(("JGSC", "RJGSC"), grid(data)):
        parameters = f"alpha={pair[0]:g} lambda={pair[1]:g}"
        yield Cell(method, parameters, lambda a=method, b=pair: measured(a, b))


REAL = ("warpPIE10P", "warpAR10P", "TOX-171", "PCMAC", "BASEHOCK")
ON_TOYS = Experiment("jgsc-toys", tuple(TOYS), 10, accuracy_cells, files=())
ON_DATA = Experiment("jgsc-data", REAL, 10, accuracy_cells)
PARAMETERS = Experiment("jgsc-parameters", REAL, 1, parameter_cells)
ON_LARGE = Experiment("jgsc-large", LARGE, 10, large_cells)
LARGE_PARAMETERS = Experiment("jgsc-large-parameters", LARGE, 1, large_parameter_cells)
