"""SparGE's defaults by nested folds, and SparGE against five peers: the experiments.

A repetition splits the samples in two thirds, to choose and train on, and one third, to test on (20
Newsgroups: by date). Two folds of the two thirds are the inner folds. Every choice of features is
scored by `LinearSVC()` on the first 10, 20 and 50 features of its order. Text is tf-idf. Dense data
is standardized by the training samples.

Peers choose their C, and SparGE what a rule leaves open, by the mean accuracy of the inner folds.
The default of SparGE is chosen by the inner folds as well, of all data sets together. Test samples
are in the tables alone.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.feature_selection import chi2, f_classif
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks.data import Corpus, load, newsgroups
from benchmarks.papers.experiments import Cell, Experiment
from benchmarks.papers.results import Values
from bigfs import Matrix, SparGE
from bigfs.result import NotConvergedWarning
from bigfs.selectors.sparge.sparge import column_scale

ARCHIVE = "20news-bydate.tar.xz"
GROUPS, THIN = "20 Newsgroups", "20 Newsgroups, thinned"
TEXT = ("PCMAC", "BASEHOCK")
DENSE = ("colon", "TOX-171", "warpPIE10P", "warpAR10P", "ORL", "COIL20", "Isolet")
DEAR = ("COIL20", "Isolet", GROUPS, THIN)  # fewer candidates of the squared hinge
UNBALANCED = (THIN, "colon", "TOX-171")
SIZES = (10, 20, 50)
FOLDS = 2
RATIO = 40  # the largest class of the thinned groups has this many times the smallest one's size
PENALTIES = {"text": (1.0, 10.0), "dense": (0.001, 0.01, 0.1)}  # C of the SVMs
SPARSE_PENALTIES = (0.1, 0.3, 1.0, 3.0)  # of the ℓ1 norm
STEP = 0.2  # share of the features that a round of the recursive elimination removes
GAMMAS = (0.1, 0.3, 1.0)
TWO_GAMMAS = (0.1, 1.0)  # for the other ranking and other weights

# The unit of γ: the candidates in Σs²/Σs, s the centered columns' sums of squares. None is Σv, v
# the variances. They are tried on so many training samples.
UNITS = (0.3, 1.0, 2.0, 4.0, 8.0, None)
FEW = {
    "PCMAC, 200 samples": ("PCMAC", 200),
    "PCMAC, 600 samples": ("PCMAC", 600),
    "BASEHOCK, 200 samples": ("BASEHOCK", 200),
    "BASEHOCK, 600 samples": ("BASEHOCK", 600),
    "20 Newsgroups, 1000 samples": (GROUPS, 1000),
    "colon": ("colon", None),
    "warpPIE10P": ("warpPIE10P", None),
    "warpAR10P": ("warpAR10P", None),
    "TOX-171": ("TOX-171", None),
    "ORL": ("ORL", None),
    "COIL20": ("COIL20", None),
    "Isolet": ("Isolet", None),
}

Rows = sp.csr_array | np.ndarray
Order = np.ndarray  # features, best first


class Split(NamedTuple):
    """Training and test samples."""

    X: Rows
    y: np.ndarray
    X_test: Rows
    y_test: np.ndarray


# --- data -----------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def corpus(folder: Path) -> Corpus:
    """Return 20 Newsgroups by date, tf-idf."""
    return newsgroups(folder / ARCHIVE)


def thinned(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the samples that are left when class sizes fall geometrically, 40 to 1."""
    sizes = np.bincount(y)
    shares = np.geomspace(1, 1 / RATIO, len(sizes))[rng.permutation(len(sizes))]
    left = [
        rng.permutation(np.flatnonzero(y == c))[: max(4, round(share * sizes[c]))]
        for c, share in enumerate(shares)
    ]
    return np.sort(np.concatenate(left))


@lru_cache(maxsize=1)
def outer(folder: Path, name: str, repetition: int) -> Split:
    """Return the split of a repetition."""
    if name == GROUPS:
        return Split(*corpus(folder))
    if name == THIN:
        X, y, X_test, y_test = corpus(folder)
        # the same permutation of the classes in both
        train, test = (thinned(part, np.random.default_rng(repetition)) for part in (y, y_test))
        return Split(X[train], y[train], X_test[test], y_test[test])
    X, y = load(folder, name)
    splitter = StratifiedShuffleSplit(1, test_size=1 / 3, random_state=repetition)
    train, test = next(splitter.split(X, y))
    if name in TEXT:
        model = TfidfTransformer(sublinear_tf=True).fit(sp.csr_array(X[train]))
        both = [sp.csr_array(model.transform(sp.csr_array(X[part]))) for part in (train, test)]
    else:
        scaler = StandardScaler().fit(X[train])
        both = [scaler.transform(X[part]) for part in (train, test)]
    return Split(both[0], y[train], both[1], y[test])


def inner(split: Split) -> list[Split]:
    """Return the folds of the training samples."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(split.y, split.y)
    return [Split(split.X[a], split.y[a], split.X[b], split.y[b]) for a, b in folds]


# --- orders of the features -----------------------------------------------------------------------


def descending(scores: np.ndarray) -> Order:
    return np.argsort(-np.nan_to_num(scores), kind="stable")[: max(SIZES)]


def sparge(split: Split, **settings: object) -> Order:
    m = min(max(SIZES), split.X.shape[1])
    paper = {"class_weight": "balanced"}  # where nothing else is said
    return SparGE(n_features_to_select=m, **paper | settings).fit(split.X, split.y).selected_


def sparge_by_unit(split: Split, share: float | None) -> Order:
    """Return SparGE's order where γ is a share of Σs²/Σs, or Σv."""
    X = Matrix.from_array(split.X)
    s = X.stats.sums_of_squares - X.shape[0] * X.means**2
    gamma = float(s.sum() / X.shape[0] if share is None else share * (s @ s) / s.sum())
    m = min(max(SIZES), X.shape[1])
    unit = {"gamma": gamma / column_scale(X), "class_weight": "balanced"}
    return SparGE(n_features_to_select=m, **unit).fit(X, split.y).selected_


def norms(X: Rows, y: np.ndarray, C: float) -> np.ndarray:
    """Return the norms of the features' weights in a LinearSVC."""
    if sp.issparse(X):
        return np.linalg.norm(LinearSVC(C=C, random_state=0).fit(X, y).coef_, axis=0)
    rows, basis = X, np.eye(1)
    if len(X) < X.shape[1]:  # the weights lie in the span of the samples
        Q, R = np.linalg.qr(X.T)
        rows, basis = R.T, Q.T
    weights = LinearSVC(C=C, dual=False, tol=1e-3, random_state=0).fit(rows, y).coef_
    return np.linalg.norm(weights if rows is X else weights @ basis, axis=0)


def sparse_norms(split: Split, C: float) -> np.ndarray:
    model = LinearSVC(penalty="l1", dual=False, C=C, tol=1e-2, random_state=0)
    return np.linalg.norm(model.fit(split.X, split.y).coef_, axis=0)


def rfe(split: Split, C: float) -> Order:
    """Return the largest choice, then the order of elimination inside it."""
    left, removed = np.arange(split.X.shape[1]), []
    while len(left) > 1:
        scores = norms(split.X[:, left], split.y, C)
        order = left[np.argsort(-scores, kind="stable")]
        goal = max(max(m for m in (1, *SIZES) if m < len(left)), int((1 - STEP) * len(left)))
        removed.append(order[goal:])
        left = np.sort(order[:goal])
    return np.concatenate([left, *removed[::-1]])[: max(SIZES)]


def non_negative(X: Rows) -> Rows:
    """Return the features less their minima, as χ² needs them."""
    return X if sp.issparse(X) else X - X.min(axis=0)


def candidates(name: str) -> Iterator[dict[str, object]]:
    """List the settings of SparGE that are tried on a data set."""
    for loss, ranking in itertools.product(("squared", "squared_hinge"), ("elimination", "svm")):
        gammas = GAMMAS if ranking == "elimination" else TWO_GAMMAS
        if name in DEAR and loss == "squared_hinge":
            gammas = gammas[1:]
        for gamma in gammas:
            yield {"gamma": gamma, "loss": loss, "ranking": ranking}
    if name in UNBALANCED:
        for gamma in TWO_GAMMAS:
            yield {"gamma": gamma, "class_weight": None}


def settings_text(settings: dict[str, object]) -> str:
    """Return settings as the parameters of a cell."""
    return " ".join(f"{name}={value}" for name, value in settings.items())


def methods(name: str) -> Iterator[tuple[str, str, Callable[[Split], Order]]]:
    """List every method: the family, its parameters, and what orders the features."""
    yield "χ²", "", lambda split: descending(chi2(non_negative(split.X), split.y)[0])
    yield "ANOVA", "", lambda split: descending(f_classif(split.X, split.y)[0])
    for C in PENALTIES["dense" if name in DENSE else "text"]:
        yield "ℓ2", f"C={C:g}", lambda split, C=C: descending(norms(split.X, split.y, C))
        yield "SVM-RFE", f"C={C:g}", partial(rfe, C=C)
    for C in SPARSE_PENALTIES:
        yield "ℓ1", f"C={C:g}", lambda split, C=C: descending(sparse_norms(split, C))
    for one in candidates(name):
        yield "SparGE", settings_text(one), partial(sparge, **one)


def accuracies(split: Split, order: Order) -> list[float]:
    """Return the accuracies of a linear SVM on the first features of the order."""
    values = []
    for m in SIZES:
        columns = np.sort(order[:m])
        model = LinearSVC(dual="auto", tol=1e-2, random_state=0)
        model.fit(split.X[:, columns], split.y)
        values.append(float(model.score(split.X_test[:, columns], split.y_test)))
    return values


# --- cells ----------------------------------------------------------------------------------------


def both(order: Callable[[Split], Order], where: tuple[Path, str, int]) -> Values:
    """Return the accuracies on the test samples, and the means of the inner folds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", NotConvergedWarning)
        split = outer(*where)
        found = [accuracies(one, order(one)) for one in (split, *inner(split))]
    return {"test": found[0], "inner": np.mean(found[1:], axis=0)}


def choice_cells(folder: Path, name: str, repetition: int) -> Iterator[Cell]:
    """The accuracy of every method. 20 Newsgroups has one split, by date."""
    if name == GROUPS and repetition:
        return
    for method, parameters, order in methods(name):
        yield Cell(method, parameters, partial(both, order, (folder, name, repetition)))


def unit_cell(share: float | None, where: tuple[Path, str, int]) -> Values:
    """Return the accuracy of the inner folds, on few training samples."""
    folder, data, repetition = where
    name, size = FEW[data]
    split = outer(folder, name, 0 if name == GROUPS else repetition)
    if size:
        few = StratifiedShuffleSplit(1, train_size=size, random_state=repetition)
        train = next(few.split(split.X, split.y))[0]
        split = split._replace(X=split.X[train], y=split.y[train])
    found = [accuracies(one, sparge_by_unit(one, share)) for one in inner(split)]
    return {"inner": np.mean(found, axis=0)}


def unit_cells(folder: Path, data: str, repetition: int) -> Iterator[Cell]:
    """The accuracy of SparGE's default by the unit of γ."""
    for share in UNITS:
        text = "Σv" if share is None else f"{share:g}"
        yield Cell("SparGE", f"unit={text}", partial(unit_cell, share, (folder, data, repetition)))


CHOICE = Experiment("sparge-choice", (*TEXT, *DENSE), 10, choice_cells)
NEWS = Experiment("sparge-choice-news", (THIN, GROUPS), 10, choice_cells, files=(ARCHIVE,))
UNIT = Experiment(
    "sparge-unit",
    tuple(FEW),
    10,
    unit_cells,
    files=(
        ARCHIVE,
        *(f"{n}.mat" for n in dict.fromkeys(n for n, _ in FEW.values()) if n != GROUPS),
    ),
)
