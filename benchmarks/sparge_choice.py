"""SparGE's defaults, chosen by nested folds, and the choice against five peers.

python benchmarks/sparge_choice.py run DATA RESULTS [--repetitions 10] [--only NAME]
python benchmarks/sparge_choice.py show RESULTS
python benchmarks/sparge_choice.py table RESULTS
python benchmarks/sparge_choice.py unit DATA [--repetitions 3]

DATA holds the files that `load` names. RESULTS is a file of JSON lines, one per fold and method, so
a run that was cut off goes on. A repetition splits the samples in two thirds, to choose and train
on, and one third, to test on (20 Newsgroups: by date). Two folds of the two thirds are the inner
folds. Every choice of features is judged by `LinearSVC()` on the first 20, 50 and 100 features of
its order. Text is tf-idf. Dense data is standardized by the training samples.

Peers choose their C, and SparGE what a rule leaves open, by the mean accuracy of the inner folds.
The default of SparGE is chosen by the inner folds as well, of all data sets together. Test samples
are in the tables alone.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import scipy.io
import scipy.sparse as sp
import typer
from shared import newsgroups, table
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.feature_selection import chi2, f_classif
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bigfs import Matrix, SparGE
from bigfs.selectors.sparge import column_scale

TEXT = ("PCMAC", "BASEHOCK", "20 Newsgroups", "20 Newsgroups, thinned")
DENSE = ("COIL20", "ORL", "Isolet", "TOX-171", "warpAR10P", "warpPIE10P", "colon")
DEAR = ("Isolet", "COIL20", "ORL", "20 Newsgroups", "20 Newsgroups, thinned")  # fewer candidates
UNBALANCED = ("20 Newsgroups, thinned", "colon", "TOX-171")
UNCHANGED = ("PCMAC", "20 Newsgroups", "COIL20", "Isolet")  # where the former unit is the smaller
SIZES = (10, 20, 50)
FOLDS = 2
THINNED = 40  # the largest class of the thinned groups has this many times the smallest one's size
SHARES = (0.03, 0.1, 0.3, 1.0)  # of Σs²/Σs, s the centered columns' sums of squares
PENALTIES = {"text": (1.0, 10.0), "dense": (0.001, 0.01)}  # C of the SVMs
SPARSE_PENALTIES = (0.1, 0.3, 1.0, 3.0)  # those of the ℓ1 norm
TWO_SHARES = (0.1, 1.0)  # for the other losses and rankings
STEP = 0.2  # share of the features that a round of the recursive elimination removes

# The unit of γ: the candidates, and where they are tried. None is the former unit.
UNITS = (0.3, 1.0, 2.0, 4.0, 8.0, None)
SMALL = ("PCMAC", "BASEHOCK", "20 Newsgroups", "colon", "warpPIE10P", "warpAR10P", "TOX-171")
FEW = {"PCMAC": (200, 600), "BASEHOCK": (200, 600), "20 Newsgroups": (1000,)}  # training samples

app = typer.Typer()


class Split(NamedTuple):
    X: sp.csr_array | np.ndarray
    y: np.ndarray
    X_test: sp.csr_array | np.ndarray
    y_test: np.ndarray


Order = np.ndarray  # features, best first
Cells = dict[tuple[str, int, int, str], list[float]]  # data, repetition, fold and method


# --- data -----------------------------------------------------------------------------------------


def thinned(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The samples that are left when class sizes fall geometrically, 40 to 1."""
    sizes = np.bincount(y)
    shares = np.geomspace(1, 1 / THINNED, len(sizes))[rng.permutation(len(sizes))]
    left = [
        rng.permutation(np.flatnonzero(y == c))[: max(4, round(share * sizes[c]))]
        for c, share in enumerate(shares)
    ]
    return np.sort(np.concatenate(left))


def load(data: Path, name: str, repetition: int) -> Split:
    """One split of a data set."""
    rng = np.random.default_rng(repetition)
    if name.startswith("20 Newsgroups"):
        corpus = newsgroups(data / "20news-bydate.tar.xz")
        if name == "20 Newsgroups":
            return Split(*corpus)
        train = thinned(corpus.y, rng)
        X, y = corpus.X[train], corpus.y[train]
        test = thinned(corpus.y_test, np.random.default_rng(repetition))  # the same permutation
        return Split(X, y, corpus.X_test[test], corpus.y_test[test])
    file = scipy.io.loadmat(data / f"{name}.mat")
    y = np.unique(file["Y"].ravel(), return_inverse=True)[1]
    X = file["X"].astype(float)
    splitter = StratifiedShuffleSplit(1, test_size=1 / 3, random_state=repetition)
    train, test = next(splitter.split(X, y))
    if name in TEXT:
        model = TfidfTransformer(sublinear_tf=True).fit(sp.csr_array(X[train]))
        both = [sp.csr_array(model.transform(sp.csr_array(X[part]))) for part in (train, test)]
    else:
        scaler = StandardScaler().fit(X[train])
        both = [scaler.transform(X[part]) for part in (train, test)]
    return Split(both[0], y[train], both[1], y[test])


def inner(split: Split, fold: int) -> Split:
    """A fold of the training samples."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(split.y, split.y)
    train, test = list(folds)[fold]
    return Split(split.X[train], split.y[train], split.X[test], split.y[test])


# --- orders of the features -----------------------------------------------------------------------


def descending(scores: np.ndarray) -> Order:
    return np.argsort(-np.nan_to_num(scores), kind="stable")[: max(SIZES)]


def total_variance(X: Matrix) -> float:
    """Σv, v the variances."""
    return float((X.stats.sums_of_squares / X.shape[0] - X.means**2).sum())


def weighted_mean(X: Matrix) -> float:
    """Σs²/Σs, s the centered columns' sums of squares."""
    s = X.stats.sums_of_squares - X.shape[0] * X.means**2
    return float(s @ s / s.sum())


def sparge(split: Split, share: float | None, loss: str, ranking: str, weight: str | None) -> Order:
    """The former default has the share None: γ = Σv."""
    X = Matrix.from_array(split.X)
    gamma = (total_variance(X) if share is None else share * weighted_mean(X)) / column_scale(X)
    m = min(max(SIZES), X.shape[1])
    return (
        SparGE(n_features_to_select=m, gamma=gamma, loss=loss, ranking=ranking, class_weight=weight)
        .fit(X, split.y)
        .selected_
    )


def norms(X: sp.csr_array | np.ndarray, y: np.ndarray, C: float) -> np.ndarray:
    """The norms of the features' weights in a LinearSVC."""
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
    """The largest choice, then the order of elimination inside it."""
    left, removed = np.arange(split.X.shape[1]), []
    while len(left) > 1:
        scores = norms(split.X[:, left], split.y, C)
        order = left[np.argsort(-scores, kind="stable")]
        goal = max(max(m for m in (1, *SIZES) if m < len(left)), int((1 - STEP) * len(left)))
        removed.append(order[goal:])
        left = np.sort(order[:goal])
    return np.concatenate([left, *removed[::-1]])[: max(SIZES)]


def methods(name: str) -> Iterator[tuple[str, Callable[[Split], Order]]]:
    """Every method by its key, a JSON list: the family, then its parameters."""
    yield json.dumps(["χ²"]), lambda split: descending(chi2(split.X - _least(split.X), split.y)[0])
    yield json.dumps(["ANOVA"]), lambda split: descending(f_classif(split.X, split.y)[0])
    penalties = PENALTIES["text" if name in TEXT else "dense"]
    penalties = penalties[: 1 if name in DEAR else 2]
    for C in penalties:
        yield json.dumps(["ℓ2", C]), lambda split, C=C: descending(norms(split.X, split.y, C))
    for C in SPARSE_PENALTIES:
        yield json.dumps(["ℓ1", C]), lambda split, C=C: descending(sparse_norms(split, C))
    for C in penalties:
        yield json.dumps(["SVM-RFE", C]), lambda split, C=C: rfe(split, C)
    shares = SHARES if name not in DEAR else TWO_SHARES
    candidates = [
        (share, loss, ranking, "balanced")
        for loss, ranking in itertools.product(
            ("squared",) if name in DEAR else ("squared", "squared_hinge"), ("elimination", "svm")
        )
        for share in (shares if (loss, ranking) == ("squared", "elimination") else TWO_SHARES)
    ]
    candidates.append((None, "squared", "elimination", "balanced"))
    if name in UNBALANCED:
        candidates += [(share, "squared", "elimination", None) for share in shares]
    for one in candidates:
        yield json.dumps(["SparGE", *one]), lambda split, one=one: sparge(split, *one)


def _least(X: np.ndarray | sp.csr_array) -> float | np.ndarray:
    """What makes the features non-negative, as χ² needs them."""
    return 0 if sp.issparse(X) else X.min(axis=0)


def accuracies(split: Split, order: Order) -> list[float]:
    """Of a linear SVM on the first features of the order."""
    values = []
    for m in SIZES:
        columns = np.sort(order[:m])
        model = LinearSVC(dual="auto", tol=1e-2, random_state=0)
        model.fit(split.X[:, columns], split.y)
        values.append(float(model.score(split.X_test[:, columns], split.y_test)))
    return values


# --- the run --------------------------------------------------------------------------------------


def read(results: Path) -> Cells:
    """The accuracies by data set, repetition, fold (−1: the test samples) and method."""
    lines = results.read_text().splitlines() if results.exists() else []
    rows = [json.loads(line) for line in lines]
    return {tuple(row[:4]): row[4] for row in rows}


@app.command()
def run(
    data: Annotated[Path, typer.Argument(help="the folder of the data")],
    results: Annotated[Path, typer.Argument(help="the file of the results")],
    repetitions: Annotated[int, typer.Option(help="splits of each data set")] = 10,
    only: Annotated[str | None, typer.Option(help="one data set")] = None,
) -> None:
    """Fit what is not in the file of the results yet."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    done = read(results)
    names = [only] if only else [*TEXT[:2], *DENSE[3:], *TEXT[2:], *DENSE[:3]]
    for repetition, name in itertools.product(range(repetitions), names):
        if name.startswith("20 Newsgroups") and repetition:
            continue  # the split by date
        outer = load(data, name, repetition)
        for fold in range(-1, FOLDS):
            split = outer if fold < 0 else inner(outer, fold)
            for key, order in methods(name):
                if (name, repetition, fold, key) in done:
                    continue
                row = [name, repetition, fold, key, accuracies(split, order(split))]
                with results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        print(name, repetition, flush=True)


@app.command()
def unit(
    data: Annotated[Path, typer.Argument(help="the folder of the data")],
    repetitions: Annotated[int, typer.Option(help="splits of each data set")] = 3,
) -> None:
    """Print the accuracy of the inner folds by the unit of γ, on few samples."""
    rows, means = [], []
    for name in SMALL:
        splits = [load(data, name, repetition) for repetition in range(repetitions)]
        for size in FEW.get(name, (None,)):
            found = np.zeros((repetitions, FOLDS, len(UNITS)))
            for repetition, fold in np.ndindex(*found.shape[:2]):
                split = splits[repetition]
                if size:
                    few = StratifiedShuffleSplit(1, train_size=size, random_state=repetition)
                    train = next(few.split(split.X, split.y))[0]
                    split = split._replace(X=split.X[train], y=split.y[train])
                split = inner(split, fold)
                for k, share in enumerate(UNITS):
                    order = sparge(split, share, "squared", "elimination", "balanced")
                    found[repetition, fold, k] = np.mean(accuracies(split, order))
            means.append(found.mean(axis=(0, 1)))
            label = name if size is None else f"{name}, {size} samples"
            rows.append([label, *(f"{value:.4f}" for value in means[-1])])
    rows.append(["mean", *(f"{value:.4f}" for value in np.mean(means, axis=0))])
    names = ["former" if share is None else f"{share:g}" for share in UNITS]
    table("Accuracy of the inner folds by the unit, in Σs²/Σs", ["", *names], rows)


# --- the tables -----------------------------------------------------------------------------------


def shares_of(cells: Cells, fold_of: Callable[[int], bool]) -> dict[tuple[str, int], dict]:
    """The mean accuracy by (data set, repetition) and method, over sizes and folds."""
    found: dict[tuple[str, int], dict[str, list[float]]] = {}
    for (name, repetition, fold, key), values in cells.items():
        if fold_of(fold):
            found.setdefault((name, repetition), {}).setdefault(key, []).append(np.mean(values))
    return {case: {k: float(np.mean(v)) for k, v in by.items()} for case, by in found.items()}


def best(inner_of: dict[str, float], keys: list[str]) -> str | None:
    """The method of the best inner accuracy."""
    present = [key for key in keys if key in inner_of]
    return max(present, key=inner_of.__getitem__) if present else None


def with_error(values: list[float], sign: str = "") -> str:
    if len(values) < 2:
        return f"{np.mean(values):{sign}.3f}"
    return f"{np.mean(values):{sign}.3f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}"


@app.command()
def show(results: Annotated[Path, typer.Argument(help="the file of the results")]) -> None:
    """Print the choice of the default, and SparGE against the peers."""
    cells = read(results)
    inner_all, test_all = (
        shares_of(cells, lambda fold: fold >= 0),
        shares_of(cells, lambda fold: fold < 0),
    )
    keys = list(dict.fromkeys(key for *_, key in cells))
    ours = [key for key in keys if json.loads(key)[0] == "SparGE"]
    names = list(dict.fromkeys(name for name, _ in inner_all))
    rows = []
    for key in ours:
        scores = [inner_all[case].get(key, np.nan) for case in inner_all]
        by_name = [
            np.mean([by[key] for (name, _), by in inner_all.items() if name == one and key in by])
            if any(key in by for (name, _), by in inner_all.items() if name == one)
            else np.nan
            for one in names
        ]
        whole = with_error(scores) if not np.isnan(scores).any() else ""
        label = ", ".join(str(v) for v in json.loads(key)[1:])
        rows.append([label, *(f"{v:.3f}" for v in by_name), whole])
    table("Accuracy of the inner folds (share, loss, ranking, weights)", ["", *names, "mean"], rows)

    def nested(family: str, case: tuple[str, int]) -> float | None:
        chosen = best(
            inner_all.get(case, {}),
            [
                key
                for key in keys
                if json.loads(key)[0] == family and None not in json.loads(key)[:2]
            ],
        )
        return test_all.get(case, {}).get(chosen) if chosen else None

    former = json.dumps(["SparGE", None, "squared", "elimination", "balanced"])
    whole = json.dumps(["SparGE", 1.0, "squared", "elimination", "balanced"])
    columns: dict[str, dict[tuple[str, int], float]] = {"chosen": {}}
    for case, by in test_all.items():
        for label, key in {
            "once Σs²/Σs": former if case[0] in UNCHANGED else whole,
            "former default": former,
        }.items():
            if key in by:
                columns.setdefault(label, {})[case] = by[key]
        if (value := nested("SparGE", case)) is not None:
            columns["chosen"][case] = value
    peers: dict[str, dict[tuple[str, int], float]] = {}
    for family in ("χ²", "ANOVA", "ℓ2", "ℓ1", "SVM-RFE"):
        values = {case: nested(family, case) for case in test_all}
        peers[family] = {case: v for case, v in values.items() if v is not None}
    everything = {**{f"SparGE, {k}": v for k, v in columns.items()}, **peers}
    table(
        "Test accuracy",
        ["", *names],
        [
            [
                label,
                *(
                    with_error([v for c, v in by.items() if c[0] == name] or [np.nan])
                    for name in names
                ),
            ]
            for label, by in everything.items()
        ],
    )
    rows = []
    for label, mine in columns.items():
        for family, theirs in {**peers, **columns}.items():
            both = [case for case in mine if case in theirs]
            if family == label or not both:
                continue
            gaps = [mine[case] - theirs[case] for case in both]
            won, lost = sum(g > 0 for g in gaps), sum(g < 0 for g in gaps)
            rows.append([f"SparGE, {label}", family, won, lost, with_error(gaps, "+")])
    table("Wins, losses and mean difference", ["", "against", "wins", "losses", "mean"], rows)


if __name__ == "__main__":
    app()
