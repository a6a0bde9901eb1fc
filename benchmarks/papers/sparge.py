"""SparGE's experiments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from benchmarks.data import Dataset, load, newsgroups
from benchmarks.papers.choice import ARCHIVE
from benchmarks.papers.experiments import Cell, Experiment
from bigfs import MCFS, MRMR, SVMRFE, Fisher, LaplacianScore, Matrix, ReliefF, SparGE, TraceRatio
from bigfs.graph import affinity, knn
from bigfs.selectors.base.sample_graph import sample_graph
from bigfs.selectors.penalty_path.sparse_regression import spectral_targets
from bigfs.storage.sources import find
from bigfs.storage.sources.synthetic.source import CORPORA

INFORMATIVE, TOY_D, TOY_N, COMPONENTS = 50, 550, 5000, 25
LEFT = 0.002  # share of the toy's variance that 25 components leave, as the paper's Fig. 2 says
TOY_SIZES = (10, 20, 30, 40, 50, 60, 80, 100)
CLUSTER_SIZES = (20, 50, 70, 100, 150, 200, 250)
FACE_SIZES, FACE_PIXELS = (5, 10, 20, 40), 20
CLASS_SIZES = (10, 20, 50, 100, 150, 200)
FEW_SIZES = (100, 200, 300)
LABELS = (1, 2, 3)
FPS_REPETITIONS = 3  # an iteration of it takes the eigenvectors of a d × d matrix
NEWS_SIZES = (50, 100, 200, 500, 1000, 2000)
TIMED = 500  # features of Table 6
STARTS = 3  # of k-means, in each repetition


def order_of(selector: Any, X: Any, y: Any = None) -> np.ndarray:
    """Return the chosen features, best first."""
    return selector.fit(X, y).selected_


# --- Fig. 2 ---------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def toy(seed: int) -> np.ndarray:
    """Return 50 features that mix 25 factors, and 500 of noise, which is on all of them."""
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=(TOY_N, COMPONENTS)) @ rng.normal(size=(COMPONENTS, INFORMATIVE))
    noise = np.sqrt(LEFT * signal.var(axis=0).sum() / TOY_D)
    X = noise * rng.normal(size=(TOY_N, TOY_D))
    X[:, :INFORMATIVE] += signal
    return X


def spca(C: np.ndarray, r: int, m: int, max_iter: int = 200, tol: float = 1e-6) -> np.ndarray:
    """Return sparse PCA's weights, m each, with the infinite ridge penalty [Zou et al. 2006, 4]."""
    A = np.linalg.eigh(C)[1][:, ::-1][:, :r]
    for _ in range(max_iter):
        B = C @ A
        threshold = np.sort(np.abs(B), axis=0)[-m - 1]
        B = np.sign(B) * np.maximum(np.abs(B) - threshold, 0)
        U, _, Vt = np.linalg.svd(C @ B, full_matrices=False)
        change = np.linalg.norm(U @ Vt - A)
        A = U @ Vt
        if change <= tol * np.sqrt(r):
            break
    return B


def fantope(C: np.ndarray, r: int, penalty: float, max_iter: int = 50) -> np.ndarray:
    """Return the diagonal of Fantope projection and selection [Vu et al. 2013], by ADMM."""
    d, step = len(C), np.abs(C).max()
    Z = U = np.zeros((d, d))
    for _ in range(max_iter):
        values, vectors = np.linalg.eigh(Z - U + C / step)
        low, high = values.min() - 1, values.max()
        for _ in range(60):  # the shift for which the clipped eigenvalues sum to r
            middle = (low + high) / 2
            total = np.clip(values - middle, 0, 1).sum()
            low, high = (middle, high) if total > r else (low, middle)
        H = (vectors * np.clip(values - middle, 0, 1)) @ vectors.T
        Z_new = np.sign(H + U) * np.maximum(np.abs(H + U) - penalty / step, 0)
        U, Z = U + H - Z_new, Z_new
    return np.diag(Z)


def toy_cells(folder: Path, data: str, repetition: int) -> Iterator[Cell]:
    """Explained variance of the chosen features (eq. 18), and the time at 50."""

    def measured(choose: Callable[[np.ndarray, int], np.ndarray]) -> dict[str, Any]:
        X = toy(repetition)
        v = X.var(axis=0)
        explained = [v[choose(X, m)[:m]].sum() / v.sum() for m in TOY_SIZES]
        begin = time.process_time()
        chosen = choose(X, INFORMATIVE)[:INFORMATIVE]
        seconds = time.process_time() - begin
        return {"explained": explained, "seconds": seconds, "true": np.mean(chosen < INFORMATIVE)}

    def by_spca(X: np.ndarray, m: int) -> np.ndarray:
        return np.argsort(-np.abs(spca(np.cov(X.T), COMPONENTS, m)).max(axis=1), kind="stable")

    def by_fantope(X: np.ndarray, m: int) -> np.ndarray:
        C = np.cov(X.T)
        penalty = 0.01 * np.abs(C - np.diag(np.diag(C))).max()
        return np.argsort(-fantope(C, COMPONENTS, penalty), kind="stable")

    def by_sparge(X: np.ndarray, m: int) -> np.ndarray:
        model = SparGE(embedding="pca", n_components=COMPONENTS, n_features_to_select=m)
        return order_of(model, X)

    def by_variance(X: np.ndarray, m: int) -> np.ndarray:
        return np.argsort(-X.var(axis=0), kind="stable")

    yield Cell("SparGE-PCA", "", lambda: measured(by_sparge))
    yield Cell("SPCA", "", lambda: measured(by_spca))
    yield Cell("largest variance", "", lambda: measured(by_variance))
    if repetition < FPS_REPETITIONS:
        cached: list[np.ndarray] = []  # one order serves all sizes

        def once(X: np.ndarray, m: int) -> np.ndarray:
            if m == INFORMATIVE or not cached:
                cached[:] = [by_fantope(X, m)]
            return cached[0]

        yield Cell("FPS", "", lambda: measured(once))


# --- Fig. 4 ---------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def clustering_choice(folder: Path, data: str, method: str) -> Mapping[int, np.ndarray]:
    """Return the features of each size."""
    X = load(folder, data).X
    n_classes = len(np.unique(load(folder, data).y))
    A = affinity(knn(Matrix.from_array(X), 5), weights="cosine")
    if method == "all features":
        return {m: np.arange(X.shape[1]) for m in CLUSTER_SIZES}
    if method == "SparGE-LPP":
        model = SparGE(embedding="lpp", graph=A, n_components=n_classes)
        return {m: s.selected_ for m, s in model.fit_path(X, None, CLUSTER_SIZES).items()}
    largest = max(CLUSTER_SIZES)
    if method == "Laplacian score":
        order = order_of(LaplacianScore(n_features_to_select=largest, graph=A), X)
        return {m: order[:m] for m in CLUSTER_SIZES}
    return {
        m: order_of(MCFS(n_features_to_select=m, n_components=n_classes, graph=A), X)
        for m in CLUSTER_SIZES
    }


def clustering_cells(folder: Path, data: str, repetition: int) -> Iterator[Cell]:
    """Mutual information of k-means clusters with the classes. A repetition is a few starts."""

    def nmi(method: str) -> dict[str, Any]:
        X, y = load(folder, data)
        values = []
        for m, columns in clustering_choice(folder, data, method).items():
            if method == "all features" and m > min(CLUSTER_SIZES):
                values.append(values[0])
                continue
            model = KMeans(len(np.unique(y)), n_init=1, random_state=0)
            runs = [
                normalized_mutual_info_score(
                    y,
                    model.set_params(random_state=STARTS * repetition + k).fit_predict(
                        X[:, columns]
                    ),
                )
                for k in range(STARTS)
            ]
            values.append(float(np.mean(runs)))
        return {"nmi": values}

    for method in ("SparGE-LPP", "MCFS", "Laplacian score", "all features"):
        yield Cell(method, "", lambda method=method: nmi(method))


# --- Figs. 1 and 6 --------------------------------------------------------------------------------


def face_cells(folder: Path, data: str, repetition: int) -> Iterator[Cell]:
    """Share of the graph's first two eigenvectors that pixels explain. A repetition is a person."""
    X, y = load(folder, data)
    X = X[y == repetition] / 255
    M = Matrix.from_array(X)
    A = affinity(knn(M, 5), weights="cosine")
    T = spectral_targets(sample_graph(M, A, 5, "cosine"), 2, M.shape[1])
    shared = {"n_features_to_select": max(FACE_SIZES), "graph": A}

    def explained(order: np.ndarray) -> dict[str, Any]:
        shares = []
        for m in FACE_SIZES:
            B = X[:, order[:m]] - X[:, order[:m]].mean(axis=0)
            left = T - B @ np.linalg.lstsq(B, T, rcond=None)[0]
            shares.append(1 - np.sum(left**2) / np.sum(T**2))
        return {"explained": shares, "pixels": order[:FACE_PIXELS]}

    selectors = {
        "SparGE-LPP": SparGE(embedding="lpp", n_components=2, **shared),
        "MCFS": MCFS(n_components=2, **shared),
        "Laplacian score": LaplacianScore(**shared),
    }
    for name, selector in selectors.items():
        yield Cell(name, "", lambda selector=selector: explained(order_of(selector, X)))
    lot = np.random.default_rng(repetition).permutation(X.shape[1])
    yield Cell("random", "", lambda: explained(lot))


# --- Fig. 5 ---------------------------------------------------------------------------------------


def classifiers(m: int) -> dict[str, Any]:
    """Return the selectors of Fig. 5."""
    return {
        "Fisher score": Fisher(n_features_to_select=m),
        "ReliefF": ReliefF(n_features_to_select=m),
        "mRMR": MRMR(n_features_to_select=m),
        "SVM-RFE": SVMRFE(n_features_to_select=m, step=0.2, tol=1e-3),
        "trace ratio": TraceRatio(n_features_to_select=m),
        "SparGE-LDA": SparGE(n_features_to_select=m, class_weight="balanced"),
    }


def large_selectors(m: int) -> dict[str, Any]:
    """Return those of the paper's large data sets."""
    return {
        name: selector
        for name, selector in classifiers(m).items()
        if name in ("SparGE-LDA", "Fisher score", "SVM-RFE")
    }


def classification_cells(folder: Path, data: str, repetition: int) -> Iterator[Cell]:
    """Accuracy of a linear SVM on one of ten folds."""
    X, y = load(folder, data)
    X = X / X.max()  # counts and gray values, to at most 1
    folds = StratifiedKFold(10, shuffle=True, random_state=0).split(X, y)
    train, test = list(folds)[repetition]

    def score(A: np.ndarray, B: np.ndarray) -> float:
        return float(LinearSVC(random_state=0).fit(A, y[train]).score(B, y[test]))

    def accuracy(selector: Any) -> dict[str, Any]:
        order = order_of(selector, X[train], y[train])
        return {
            "accuracy": [
                score(X[np.ix_(train, np.sort(order[:m]))], X[np.ix_(test, np.sort(order[:m]))])
                for m in CLASS_SIZES
            ]
        }

    def by_pca() -> dict[str, Any]:
        r = min(max(CLASS_SIZES), len(train) - 1)
        model = PCA(r, random_state=0).fit(X[train])
        A, B = model.transform(X[train]), model.transform(X[test])
        return {"accuracy": [score(A[:, : min(m, r)], B[:, : min(m, r)]) for m in CLASS_SIZES]}

    for name, selector in classifiers(max(CLASS_SIZES)).items():
        yield Cell(name, "", lambda selector=selector: accuracy(selector))
    yield Cell("PCA", "", by_pca)


@lru_cache(maxsize=3)
def news_correct(folder: Path, method: str) -> np.ndarray:
    """Return which test documents are classified well, sizes × documents."""
    X, y, X_test, y_test = newsgroups(folder / ARCHIVE)
    m = max(NEWS_SIZES)
    order = order_of(large_selectors(m)[method], X, y)
    rows = []
    for size in NEWS_SIZES:
        columns = np.sort(order[:size])
        model = LinearSVC(random_state=0).fit(X[:, columns], y)
        rows.append(model.predict(X_test[:, columns]) == y_test)
    return np.array(rows)


def news_cells(folder: Path, data: str, repetition: int) -> Iterator[Cell]:
    """Accuracy of a linear SVM on a tenth of the test documents. All of them have one fit."""

    def accuracy(method: str) -> dict[str, Any]:
        return {"accuracy": news_correct(folder, method)[:, repetition::10].mean(axis=1)}

    for name in large_selectors(max(NEWS_SIZES)):
        yield Cell(name, "", lambda name=name: accuracy(name))


# --- Table 6 -------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def corpus(name: str) -> tuple[Matrix, np.ndarray]:
    """Return a generated corpus of the real one's size, in memory."""
    source = find(f"synthetic:{name}")
    n, block = CORPORA[name].n, CORPORA[name].block
    parts = [source.read((start, min(start + block, n))) for start in range(0, n, block)]
    X = Matrix.from_array(sp.csr_array(sp.vstack([part.X for part in parts])))
    X.stats  # noqa: B018, as a staged corpus has them
    return X, np.unique(np.concatenate([part.y for part in parts]), return_inverse=True)[1]


def time_cells(folder: Path, data: str, repetition: int) -> Iterator[Cell]:
    """Processor seconds of a fit."""

    def seconds(selector: Any) -> dict[str, Any]:
        X, y = corpus(data)
        begin = time.process_time()
        selector.fit(X, y)
        return {"seconds": time.process_time() - begin}

    for name, selector in large_selectors(TIMED).items():
        yield Cell(name, "", lambda selector=selector: seconds(selector))


# --- Table 7 --------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def few_graph(folder: Path, data: str) -> Any:
    """Return the kNN graph of all samples."""
    return affinity(knn(Matrix.from_array(load(folder, data).X), 5), weights="cosine")


def few_cells(folder: Path, data: str, repetition: int) -> Iterator[Cell]:
    """Accuracy of 1-NN on the unlabeled samples, with one, two or three labels per class."""
    X, y = load(folder, data)

    def accuracy(method: str, labels: int) -> dict[str, Any]:
        rng = np.random.default_rng(repetition)
        per_class = [rng.permutation(np.flatnonzero(y == c))[:labels] for c in np.unique(y)]
        known = np.concatenate(per_class)
        rest = np.setdiff1d(np.arange(len(y)), known)
        m = max(FEW_SIZES)
        if method == "SparGE-SDA":
            part = np.full(len(y), -1)
            part[known] = y[known]
            model = SparGE(embedding="sda", n_features_to_select=m, graph=few_graph(folder, data))
            order = order_of(model, X, part)
        elif method == "SVM-RFE":
            order = order_of(SVMRFE(n_features_to_select=m, tol=1e-3), X[known] / X.max(), y[known])
        else:
            order = np.argsort(-fisher(Dataset(X[known], y[known])), kind="stable")
        scores = []
        for size in FEW_SIZES:
            columns = order[:size]
            nearest = KNeighborsClassifier(1).fit(X[np.ix_(known, columns)], y[known])
            scores.append(nearest.score(X[np.ix_(rest, columns)], y[rest]))
        return {"accuracy": scores}

    for labels in LABELS:
        for method in ("SparGE-SDA", "SVM-RFE", "Fisher score"):
            yield Cell(method, f"labels={labels}", lambda a=method, b=labels: accuracy(a, b))


def fisher(data: Dataset) -> np.ndarray:
    """Return between over within. One label per class leaves the order of the between."""
    groups = [data.X[data.y == c] for c in np.unique(data.y)]
    between = sum(len(g) * (g.mean(axis=0) - data.X.mean(axis=0)) ** 2 for g in groups)
    within = sum(np.sum((g - g.mean(axis=0)) ** 2, axis=0) for g in groups)
    return np.asarray(between / (within + 1e-9))


TOY = Experiment("sparge-toy", ("toy",), 50, toy_cells, files=())
FACES = Experiment("sparge-faces", ("PIE",), 10, face_cells)
CLUSTERING = Experiment(
    "sparge-clustering", ("COIL20", "ORL", "MNIST 4000", "USPS"), 10, clustering_cells
)
CLASSES = Experiment("sparge-classes", ("PCMAC", "orlraws10P"), 10, classification_cells)
NEWS = Experiment("sparge-news", ("20 Newsgroups",), 10, news_cells, files=(ARCHIVE,))
TIMES = Experiment("sparge-times", ("news20", "rcv1.binary", "real-sim"), 2, time_cells, files=())
FEW = Experiment("sparge-few", ("COIL20", "ORL"), 10, few_cells)
