"""The race of the choosers: SparGE's default and SparGECV's against six peers.

python -m benchmarks.choosing FOLDER    # the folder of the data; resumes when cut off
python -m benchmarks.choosing_page      # docs/measured/choosing.md from the finished cells

A split has 70 % of the samples, or the set's own training part, to choose and train on. The others
only test. A method chooses once, as many features as the largest size, and a linear SVM with C = 1
scores the first m of its order. Only ℓ1 chooses anew for every m, because its penalty follows from
m.

SparGECV chooses by the metric that scores it, so it runs once per metric. `auto` takes the default
for classes. The others have nothing to choose by: C is 1 in ℓ2 and SVM-RFE, as in scikit-learn, and
in ℓ1 it is the smallest that gives m features a weight.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from gzip import decompress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import typer
from sklearn.datasets import load_svmlight_files
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from benchmarks.data import load, texts
from benchmarks.papers.choice import Split, thinned
from benchmarks.papers.experiments import Cell, Experiment
from benchmarks.papers.experiments import run as run_experiments
from benchmarks.papers.results import Values
from benchmarks.shared import timed
from bigfs import engine
from bigfs.evaluation import linear_model
from bigfs.evaluation.metrics import count_classes, scores_of
from bigfs.evaluation.splits import draw_subsamples
from bigfs.result import NotConvergedWarning
from bigfs.selectors.registry import METHODS

SIZES = (20, 50, 100, 200)
METRICS = ("accuracy", "balanced_accuracy")
FIXED = {"svm-rfe": {"step": 0.2}}  # a fifth of the features per round
CHOOSERS = ("sparge-lda-cv",)  # decide by a metric
OURS = ("sparge-lda", *CHOOSERS)
PEERS = ("chi2", "anova", "l1-svm", "l2-svm", "svm-rfe", "cmim")
ANEW = ("l1-svm",)  # chooses anew for every size
TEST = 0.3
MOST = {"text": 5000, "dense": 400}  # samples of a set
WORDS = ("PCMAC", "BASEHOCK", "CNAE-9")
GROUPS = {  # newsgroups whose names begin so
    "religion": ("alt.atheism", "talk.religion"),
    "politics": ("talk.politics",),
    **{name: (f"{name}.",) for name in ("sci", "rec", "comp")},
}
DENSE = (
    *("colon", "TOX-171", "ALLAML", "GLIOMA", "Prostate-GE", "Srbct", "PBMC", "cell lines"),
    *("orlraws10P", "warpAR10P", "warpPIE10P", "ORL", "COIL20", "Umist", "SURF", "Scene-15"),
    *("MNIST 4000", "USPS", "BinAlpha", "Isolet"),
)


# --- data -----------------------------------------------------------------------------------------


class Samples(NamedTuple):
    X: Any  # n × d: dense values, or counts of words
    y: np.ndarray  # (n,): 0 … c − 1
    trains: np.ndarray | None = None  # the set's own training part


class Source(NamedTuple):
    kind: str  # "text" or "dense"
    splits: int
    read: Callable[[Path], Samples]
    is_weighted: bool = False  # whether the words are tf-idf already


def dense(name: str, folder: Path) -> Samples:
    return Samples(*load(folder, name))


def word_counts(name: str, folder: Path) -> Samples:
    X, y = load(folder, name)
    return Samples(sp.csr_array(X), y)


def codes(labels: np.ndarray) -> np.ndarray:
    return np.unique(labels, return_inverse=True)[1]


def groups_of(starts: tuple[str, ...], folder: Path) -> Samples:
    """Read the newsgroups whose names begin so, without their halves."""
    X, y, _, names = texts(folder, "News, all words")
    rows = np.char.startswith(names[:, None], np.array(starts)).any(axis=1)[y]
    return Samples(X[rows], codes(y[rows]))


def all_groups(folder: Path) -> Samples:
    X, y, test, _ = texts(folder, "News, all words")
    return Samples(X, y, ~test)


def thinned_groups(folder: Path) -> Samples:
    """Read 20 Newsgroups with class sizes that fall to a fortieth."""
    X, y, trains = all_groups(folder)
    halves = [np.flatnonzero(part) for part in (trains, ~trains)]
    # the same permutation of the classes in both
    rows = np.concatenate([half[thinned(y[half], np.random.default_rng(0))] for half in halves])
    return Samples(X[rows], y[rows], trains[rows])


def reuters(most: int, folder: Path) -> Samples:
    """Read the largest categories of Reuters-21578, with its own training part."""
    X, y, test, _ = texts(folder, "Reuters")
    rows = np.isin(y, np.argsort(-np.bincount(y), kind="stable")[:most])
    return Samples(X[rows], codes(y[rows]), ~test[rows])


def rcv1(folder: Path) -> Samples:
    files = [folder / "formats" / f"rcv1_small{end}.gz" for end in (".dat", "_test.data")]
    parts = [io.BytesIO(decompress(f.read_bytes()).replace(b"|f ", b"")) for f in files]
    X, y, X_test, y_test = load_svmlight_files(parts)
    trains = np.arange(len(y) + len(y_test)) < len(y)
    return Samples(sp.vstack([X, X_test], format="csr"), codes(np.append(y, y_test)), trains)


SOURCES: dict[str, Source] = {
    **{name: Source("text", 2, partial(word_counts, name)) for name in WORDS},
    **{name: Source("text", 1, partial(groups_of, starts)) for name, starts in GROUPS.items()},
    "20news": Source("text", 1, all_groups),
    "20news thinned": Source("text", 1, thinned_groups),
    "Reuters 10": Source("text", 1, partial(reuters, 10)),
    "Reuters 65": Source("text", 1, partial(reuters, 65)),
    "RCV1 small": Source("text", 1, rcv1, is_weighted=True),
    **{name: Source("dense", 3, partial(dense, name)) for name in DENSE},
}


@lru_cache(maxsize=1)
def read(folder: Path, name: str) -> Samples:
    """Return the samples of a set, at most `MOST`, drawn from each class by its share."""
    samples = SOURCES[name].read(folder)
    share = MOST[SOURCES[name].kind] / len(samples.y)
    if share >= 1:
        return samples
    X, y, trains = samples
    strata = y if trains is None else 2 * y + trains
    rows = next(draw_subsamples(strata, 1, share, seed=0))
    return Samples(X[rows], y[rows], None if trains is None else trains[rows])


@lru_cache(maxsize=1)
def split(folder: Path, name: str, repetition: int) -> Split:
    """Return a split, with words weighted and other values standardized by the training part."""
    X, y, trains = read(folder, name)
    if trains is None:
        draw = StratifiedShuffleSplit(1, test_size=TEST, random_state=repetition)
        train, test = (np.sort(rows) for rows in next(draw.split(y, y)))
    else:
        train, test = np.flatnonzero(trains), np.flatnonzero(~trains)
    parts = [X[train], X[test]]
    if SOURCES[name].kind == "dense":
        scaler = StandardScaler().fit(parts[0])
        parts = [scaler.transform(part) for part in parts]
    else:
        in_two = np.bincount(parts[0].indices, minlength=X.shape[1]) >= 2
        parts = [part[:, np.flatnonzero(in_two)] for part in parts]
        if not SOURCES[name].is_weighted:
            model = TfidfTransformer(sublinear_tf=True).fit(parts[0])
            parts = [sp.csr_array(model.transform(part)) for part in parts]
    return Split(parts[0], y[train], parts[1], y[test])


# --- cells ----------------------------------------------------------------------------------------


def fit(method: str, metric: str, X: Any, y: np.ndarray, m: int) -> np.ndarray:
    """Return the m features that a method chooses, best first."""
    parameters = {"scoring": metric} if method in CHOOSERS else FIXED.get(method, {})
    if method == "chi2" and not sp.issparse(X):
        X = MinMaxScaler().fit_transform(X)
    selector = METHODS[method].make(n_features_to_select=m, **parameters)
    selected: np.ndarray = selector.fit(X, y).selected_
    return selected


def score(where: Split, features: np.ndarray) -> dict[str, float]:
    """Return the scores of a linear SVM on these features."""
    index = np.sort(features)
    model = linear_model.fit(where.X[:, index], where.y)
    predicted = model.predict(where.X_test[:, index])
    counts = count_classes(predicted, where.y_test, int(max(where.y.max(), where.y_test.max())) + 1)
    return scores_of(counts, "class")


def measure(method: str, metric: str, where: tuple[Path, str, int]) -> Values:
    """Return both scores for each size, and the processor seconds of the fit at the largest."""
    samples = split(*where)
    sizes = [m for m in SIZES if m < samples.X.shape[1] / 2]
    with warnings.catch_warnings():
        for harmless in (ConvergenceWarning, NotConvergedWarning, UserWarning):
            warnings.simplefilter("ignore", harmless)
        run = timed(fit, method, metric, samples.X, samples.y, sizes[-1])
        scores = []
        for m in sizes:
            chosen = run.value[:m]
            if method in ANEW and m < sizes[-1]:
                chosen = fit(method, metric, samples.X, samples.y, m)
            scores.append(score(samples, chosen))
    curves = {metric: [score[metric] for score in scores] for metric in METRICS}
    return {**curves, "seconds": run.processor}


def cells(methods: tuple[str, ...], folder: Path, name: str, repetition: int) -> Iterator[Cell]:
    """List the cells of a split: one per method, and one per metric for those that decide by it."""
    if repetition >= SOURCES[name].splits:
        return
    for method in methods:
        for metric in METRICS if method in CHOOSERS else METRICS[:1]:
            by = f"by={metric}" if method in CHOOSERS else ""
            yield Cell(method, by, partial(measure, method, metric, (folder, name, repetition)))


RACE = Experiment(
    "choosing",
    tuple(SOURCES),
    max(source.splits for source in SOURCES.values()),
    partial(cells, (*OURS, *PEERS)),
    files=(),
)


def warm_up(methods: Iterable[str]) -> None:
    """Let every method load its compiled kernels before it is timed."""
    X, y = np.random.default_rng(0).random((60, 50)), np.arange(60) % 3
    for rows in (X, sp.csr_array(X)):
        for method in methods:
            fit(method, METRICS[0], rows, y, 5)


def run(
    folder: Path,
    sets: Annotated[str, typer.Option(help="With commas; none: all.")] = "",
    methods: Annotated[str, typer.Option(help="With commas; none: all.")] = "",
    splits: Annotated[int | None, typer.Option(help="Number per set at most.")] = None,
) -> None:
    """Measure the cells that are not finished, the first split of every set first."""
    asked = tuple(methods.split(",")) if methods else (*OURS, *PEERS)
    race = RACE._replace(cells=partial(cells, asked))
    if sets:
        race = race._replace(data=tuple(sets.split(",")))
    with engine.one_blas_thread():
        warm_up(asked)
        run_experiments([race], folder, repetitions=splits, say=partial(print, flush=True))


if __name__ == "__main__":
    typer.run(run)
