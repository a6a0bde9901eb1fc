"""SparGE's published claims, one by one: tables on the terminal, pictures into a folder.

python benchmarks/sparge_claims.py DATA [--pictures docs/pictures]

DATA holds COIL20.mat. The claims on 20 Newsgroups are benchmarks/sparge_quality.py's.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import matplotlib
import numpy as np
import scipy.io
import typer
from sklearn.cluster import KMeans
from sklearn.decomposition import SparsePCA
from sklearn.metrics import normalized_mutual_info_score
from sklearn.neighbors import KNeighborsClassifier

from bigfs import Matrix, SparGE
from bigfs.evaluation.quality import explained_variance
from bigfs.graph import affinity, knn

matplotlib.use("svg")
from matplotlib import pyplot as plt
from shared import table

SIZES = (50, 100, 150, 200)
INFORMATIVE = 50
ALPHA = 4.0  # the penalty at which SparsePCA uses exactly 50 features of the toy; 1 is its default


# --- data -----------------------------------------------------------------------------------------


def of_covariance(C: np.ndarray, n: int = 100) -> np.ndarray:
    """n samples whose covariance is exactly C."""
    values, vectors = np.linalg.eigh(C)
    Z = np.random.default_rng(0).normal(size=(n, len(C)))
    Q = np.linalg.qr(Z - Z.mean(axis=0))[0] * np.sqrt(n)
    return Q @ (vectors * np.sqrt(np.maximum(values, 0))).T


def toy(n: int = 200, noise: float = 0.5, seed: int = 0) -> np.ndarray:
    """n × 550: 50 features that mix 50 standard normal factors with normal weights, 500 of noise
    alone; shuffled.
    """
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=(n, INFORMATIVE)) @ rng.normal(size=(INFORMATIVE, INFORMATIVE))
    X = np.hstack([signal, np.zeros((n, 500))]) + noise * rng.normal(size=(n, 550))
    return X[:, rng.permutation(550)]


def coil(data: Path) -> tuple[np.ndarray, np.ndarray]:
    file = scipy.io.loadmat(data / "COIL20.mat")
    return file["X"].astype(float), file["Y"].ravel().astype(int)


# --- baselines ------------------------------------------------------------------------------------


def laplacian_score(X: np.ndarray, A: Any) -> np.ndarray:
    """f̃ᵀAf̃ / f̃ᵀDf̃ [He, Cai, Niyogi 2005], larger is smoother."""
    degree = np.asarray(A.sum(axis=1)).ravel()
    F = X - degree @ X / degree.sum()
    spread = degree @ F**2
    return np.divide(
        np.sum(F * (A @ F), axis=0), spread, out=np.full(X.shape[1], -1.0), where=spread > 0
    )


def fisher_score(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Between over within classes.

    One label a class has no within: a tiny constant leaves the order of the between.
    """
    groups = [X[y == c] for c in np.unique(y)]
    between = sum(len(g) * (g.mean(axis=0) - X.mean(axis=0)) ** 2 for g in groups)
    within = sum(np.sum((g - g.mean(axis=0)) ** 2, axis=0) for g in groups)
    return between / (within + 1e-9)


# --- the claims -----------------------------------------------------------------------------------


def covariance() -> None:
    X = of_covariance(np.array([[3.2, 0, 0], [0, 3, 3], [0, 3, 3]]))
    rows = []
    for ranking in ("elimination", "weights"):
        for r in (None, 1):
            selector = SparGE(
                embedding="pca", n_features_to_select=1, n_components=r, ranking=ranking
            ).fit(X)
            first = int(selector.selected_[0])
            share = explained_variance(X, selector.selected_)
            rows.append(
                [
                    ranking,
                    "all (2)" if r is None else str(r),
                    str(first + 1),
                    f"{X[:, first].var():.1f}",
                    f"{share:.3f}",
                ]
            )
    table(
        "Covariance [3.2 0 0; 0 3 3; 0 3 3], m = 1",
        ["ranking", "components", "feature chosen", "its variance", "variance it explains"],
        rows,
    )


def plateau(pictures: Path) -> None:
    X = toy()
    sizes = (5, 10, 20, 30, 40, 45, 50, 55, 60, 80, 100)
    chosen = {m: SparGE(embedding="pca", n_features_to_select=m).fit(X).selected_ for m in sizes}
    informative = np.argsort(-X.var(axis=0))[:INFORMATIVE]
    explained = [explained_variance(X, chosen[m]) for m in sizes]
    table(
        "The toy of 550 features, 50 of them informative",
        ["m", *map(str, sizes)],
        [
            ["explained variance", *(f"{e:.3f}" for e in explained)],
            [
                "informative among them",
                *(str(len(np.intersect1d(chosen[m], informative))) for m in sizes),
            ],
        ],
    )
    rows = []
    for name, model in (
        ("SparGE(m=50)", SparGE(embedding="pca", n_features_to_select=INFORMATIVE)),
        (f"SparsePCA(alpha={ALPHA})", SparsePCA(10, alpha=ALPHA, random_state=0)),
    ):
        begin, cpu = time.perf_counter(), time.process_time()
        model.fit(X)
        spent, cpu = time.perf_counter() - begin, time.process_time() - cpu
        used = (
            model.selected_
            if isinstance(model, SparGE)
            else np.flatnonzero(np.any(model.components_ != 0, axis=0))
        )
        rows.append(
            [
                name,
                f"{spent:.2f}",
                f"{cpu:.2f}",
                str(len(used)),
                f"{explained_variance(X, used):.3f}",
            ]
        )
    table(
        "The same toy, 10 components",
        ["", "seconds", "of the processor", "features used", "explained variance"],
        rows,
    )
    draw(
        pictures / "toy-explained-variance.svg",
        "features",
        "explained variance",
        {"SparGE-PCA": (sizes, explained)},
        mark=INFORMATIVE,
    )


def clustering(X: np.ndarray, y: np.ndarray, pictures: Path, starts: int) -> None:
    def quality(columns: np.ndarray) -> float:
        fits = [
            KMeans(20, n_init=1, random_state=seed).fit_predict(X[:, columns])
            for seed in range(starts)
        ]
        return float(np.mean([normalized_mutual_info_score(y, labels) for labels in fits]))

    rows, curves = [], {}
    for metric, weights in (("cosine", "cosine"), ("euclidean", "heat")):
        A = affinity(knn(Matrix.from_array(X), 5, metric=metric), weights=weights)
        order = np.argsort(-laplacian_score(X, A), kind="stable")
        chosen = {f"Laplacian score, {metric}": {m: order[:m] for m in SIZES}}
        for weighting in ("uniform", "degree"):
            selectors = {
                m: SparGE(
                    embedding="lpp", n_features_to_select=m, graph=A, weighting=weighting
                ).fit(X)
                for m in SIZES
            }
            chosen[f"SparGE-LPP, {metric}, {weighting}"] = {
                m: s.selected_ for m, s in selectors.items()
            }
        for name, sets in chosen.items():
            values = [quality(sets[m]) for m in SIZES]
            rows.append([name, *(f"{v:.3f}" for v in values)])
            curves[name] = (SIZES, values)
    rows.append(["all 1,024 pixels", *[f"{quality(np.arange(X.shape[1])):.3f}"] * len(SIZES)])
    table(f"COIL20: NMI of k-means, mean of {starts} starts", ["method", *map(str, SIZES)], rows)
    draw(pictures / "coil20-lpp.svg", "pixels", "NMI of k-means", curves)


def few_labels(X: np.ndarray, y: np.ndarray, pictures: Path, draws: int) -> None:
    sizes = (20, *SIZES)
    A = affinity(knn(Matrix.from_array(X), 5), weights="cosine")
    rows, curves = [], {}
    for labels in (1, 2, 3):
        accuracy: dict[str, list[list[float]]] = {
            "SparGE-SDA": [],
            "Fisher score": [],
            "all pixels": [],
        }
        for seed in range(draws):
            rng = np.random.default_rng(seed)
            known = np.concatenate(
                [rng.choice(np.flatnonzero(y == c), labels, replace=False) for c in np.unique(y)]
            )
            part = np.full(len(y), -1)
            part[known] = y[known]
            orders = {
                "SparGE-SDA": SparGE(embedding="sda", n_features_to_select=max(SIZES), graph=A)
                .fit(X, part)
                .selected_,
                "Fisher score": np.argsort(-fisher_score(X[known], y[known]), kind="stable"),
            }
            for name, order in orders.items():
                accuracy[name].append([nearest(X, y, known, order[:m]) for m in sizes])
            accuracy["all pixels"].append(
                [nearest(X, y, known, np.arange(X.shape[1]))] * len(sizes)
            )
        for name, runs in accuracy.items():
            mean = np.mean(runs, axis=0)
            wins = np.sum(np.array(accuracy["SparGE-SDA"]) > np.array(runs), axis=0)
            beaten = ["" if name == "SparGE-SDA" else f" ({w}/{draws})" for w in wins]
            rows.append(
                [
                    f"{labels} a class: {name}",
                    *(f"{a:.3f}{w}" for a, w in zip(mean, beaten, strict=True)),
                ]
            )
            if name in ("SparGE-SDA", "Fisher score"):
                curves[f"{name}, {labels} a class"] = (sizes, mean)
    table(
        f"COIL20: 1-NN on the unlabelled, mean of {draws} draws (draws that SDA wins)",
        ["labels", *map(str, sizes)],
        rows,
    )
    draw(pictures / "coil20-sda.svg", "pixels", "accuracy of 1-NN", curves)


def nearest(X: np.ndarray, y: np.ndarray, known: np.ndarray, columns: np.ndarray) -> float:
    rest = np.setdiff1d(np.arange(len(y)), known)
    return (
        KNeighborsClassifier(1)
        .fit(X[np.ix_(known, columns)], y[known])
        .score(X[np.ix_(rest, columns)], y[rest])
    )


# --- what is shown --------------------------------------------------------------------------------


def draw(path: Path, across: str, up: str, curves: dict[str, Any], mark: int | None = None) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, (x, values) in curves.items():
        axes.plot(
            x,
            values,
            marker="o",
            markersize=3,
            linestyle="--" if "score" in name else "-",
            label=name,
        )
    if mark is not None:
        axes.axvline(mark, color="grey", linewidth=0.8)
    axes.set(xlabel=across, ylabel=up)
    axes.legend(fontsize="x-small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(
    data: Annotated[Path, typer.Argument(help="the folder with COIL20.mat")],
    pictures: Annotated[Path, typer.Option(help="where the pictures go")] = Path("docs/pictures"),
    starts: Annotated[int, typer.Option(help="of k-means, for each set of pixels")] = 5,
    draws: Annotated[int, typer.Option(help="of the labelled images")] = 10,
) -> None:
    covariance()
    plateau(pictures)
    X, y = coil(data)
    clustering(X, y, pictures, starts)
    few_labels(X, y, pictures, draws)


if __name__ == "__main__":
    typer.run(main)
