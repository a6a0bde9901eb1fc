"""JGSC and RJGSC: accuracy on toys and PCMAC, atoms from batches against one call, time at News20
scale.

python benchmarks/coding.py toys
python benchmarks/coding.py pcmac --data FOLDER
python benchmarks/coding.py atoms --data FOLDER
python benchmarks/coding.py time [--workers 2]
"""

from __future__ import annotations

import itertools
import resource
import tempfile
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp
import typer
from sklearn.decomposition import sparse_encode
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

import bigfs
import storage
from bigfs.coding import dictionary
from bigfs.matrix import Matrix
from bigfs.result import NotConverged, observed
from bigfs.selectors.scores.laplacian_score import LaplacianScore

PERCENT = (10, 20, 30, 40, 50, 60, 70, 80)
ALPHAS = (0.01, 0.1, 1.0, 10.0)
LAMBDAS = (0.02, 0.1, 0.3)  # shares of the λ from which every code is zero
PASSES = (1, 2, 4, 8)
Data = Annotated[Path, typer.Option(help="folder with PCMAC.mat")]
app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)


# --- data ---------------------------------------------------------------------------------------


def toy(
    n: int, relevant: int, noise_features: int, sigma: float, outliers: float, seed: int = 0
) -> tuple[Any, Any]:
    """Four classes on curved sheets in `relevant` features, then noise features, then noise on all.

    Ours: the paper's sizes and noise levels could not be found. A class is a Gaussian blob, pushed
    through a random 3-d sheet, so neighbours matter; a share of rows is replaced by large noise.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    latent = rng.standard_normal((4, 3))[y] * 1.5 + 0.5 * rng.standard_normal((n, 3))
    sheet = np.tanh(latent @ rng.standard_normal((3, relevant)))
    X = np.hstack([sheet, rng.standard_normal((n, noise_features)) * 0.5])
    X += sigma * rng.standard_normal(X.shape)
    spoiled = rng.random(n) < outliers
    X[spoiled] += 5 * sigma * rng.standard_normal((spoiled.sum(), X.shape[1]))
    return X, y


TOYS = {
    "Toy1 (400 × 100, σ 0.1)": {
        "n": 400,
        "relevant": 50,
        "noise_features": 50,
        "sigma": 0.1,
        "outliers": 0.0,
    },
    "Toy2 (400 × 200, σ 0.5)": {
        "n": 400,
        "relevant": 50,
        "noise_features": 150,
        "sigma": 0.5,
        "outliers": 0.0,
    },
    "Toy3 (400 × 200, σ 0.5, 10 % outliers)": {
        "n": 400,
        "relevant": 50,
        "noise_features": 150,
        "sigma": 0.5,
        "outliers": 0.1,
    },
}


def pcmac(data: Path) -> tuple[sp.csr_array, Any]:
    """Counts to tf-idf rows of unit length."""
    file = scipy.io.loadmat(data / "PCMAC.mat")
    X = TfidfTransformer(sublinear_tf=True).fit_transform(
        sp.csr_array(file["X"].astype(np.float64))
    )
    return sp.csr_array(X), file["Y"].ravel()


# --- accuracy -----------------------------------------------------------------------------------


def accuracies(Z: Any, order: Any, y: Any, metric: str) -> tuple[Any, Any]:
    """5-NN on the best 10 … 80 % of the columns of Z, percents × ten folds: on the fold, and
    leave-one-out within its training rows.
    """
    folds = list(StratifiedKFold(10, shuffle=True, random_state=0).split(np.zeros(len(y)), y))
    test, inner = np.zeros((2, len(PERCENT), len(folds)))
    for i, percent in enumerate(PERCENT):
        distances = pairwise_distances(
            Z[:, order[: max(1, percent * len(order) // 100)]], metric=metric
        )
        for f, (a, b) in enumerate(folds):
            model = KNeighborsClassifier(5, metric="precomputed").fit(distances[np.ix_(a, a)], y[a])
            test[i, f], inner[i, f] = (
                model.score(distances[np.ix_(b, a)], y[b]),
                model.score(None, y[a]),
            )
    return test, inner


def chosen(table: list[tuple[Any, Any]]) -> list[float]:
    """Mean accuracy over the folds, each with the setting that was best on its own training rows
    over all percents.
    """
    test, inner = (np.array(part) for part in zip(*table, strict=True))
    best = inner.mean(axis=1).argmax(axis=0)
    return [
        float(v)
        for v in np.mean([test[setting, :, fold] for fold, setting in enumerate(best)], axis=0)
    ]


def largest_lambda(method: Any, X: Any, atoms: Any) -> float:
    first = method._loss(Matrix.from_array(X), np.ascontiguousarray(atoms.T)).terms(None)
    return float(2 * np.linalg.norm(first.R, axis=0).max())


def coded(method: Any, X: Any, y: Any, atoms: Any, metric: str) -> tuple[list[float], list[float]]:
    """With the codes of the training samples, which have the graph, and with `transform`, which has
    not.
    """
    top = largest_lambda(method, X, atoms)
    graph, plain = [], []
    for alpha, share in itertools.product(ALPHAS, LAMBDAS):
        model = method(
            dictionary=atoms,
            alpha=alpha,
            lam=share * top,
            metric=metric,
            n_features_to_select=len(atoms),
        ).fit(X)
        graph.append(accuracies(model.codes_, model.selected_, y, metric))
        plain.append(accuracies(model.transform(X), model.selected_, y, metric))
    return chosen(graph), chosen(plain)


def compare(X: Any, y: Any, n_atoms: int, metric: str) -> pd.DataFrame:
    atoms = dictionary.learn_atoms(
        Matrix.from_array(X), n_atoms, epochs=4, batch_rows=256, seed=0
    ).value.D.T
    everything = KNeighborsClassifier(5, metric=metric, algorithm="brute")
    folds = StratifiedKFold(10, shuffle=True, random_state=0)
    rows = {
        "all features": [float(cross_val_score(everything, X, y, cv=folds).mean())] * len(PERCENT)
    }
    order = LaplacianScore(metric=metric, n_features_to_select=1.0).fit(X).selected_
    rows["Laplacian score"] = chosen([accuracies(X, order, y, metric)])
    for method in (bigfs.JGSC, bigfs.RJGSC):
        rows[f"{method.__name__}, graph codes"], rows[f"{method.__name__}, transform"] = coded(
            method, X, y, atoms, metric
        )
    return pd.DataFrame.from_dict(rows, orient="index", columns=[f"{p}%" for p in PERCENT])


@app.command()
def toys() -> None:
    """Toy1–3, 5-NN, ten folds."""
    for name, sizes in TOYS.items():
        X, y = toy(**sizes)
        show(f"{name}, {X.shape[1]} atoms", compare(X, y, X.shape[1], "euclidean"))


@app.command(name="pcmac")
def pcmac_command(data: Data, n_atoms: int = 256) -> None:
    """PCMAC, 5-NN with cosine distance, ten folds."""
    X, y = pcmac(data)
    show(f"PCMAC {X.shape}, {n_atoms} atoms", compare(X, y, n_atoms, "cosine"))


def planted(seed: int) -> sp.csr_array:
    """1,200 × 60 sparse rows: some 3 of 20 sparse bases each, and some noise."""
    rng = np.random.default_rng(seed)
    bases = rng.random((20, 60)) * (rng.random((20, 60)) < 0.3)
    codes = rng.random((1200, 20)) * (rng.random((1200, 20)) < 0.15)
    X = codes @ bases + 0.01 * rng.random((1200, 60))
    return sp.csr_array(np.where(X > 0.02, X, 0))


@app.command()
def atoms(data: Data, starts: int = 3) -> None:
    """Atoms from batches against one call of SPAMS on everything: ‖x − Da‖², same starts and
    updates.
    """
    spams = dictionary._spams()
    X, _ = pcmac(data)
    cases = {"PCMAC, 32 atoms": (X, 32, 0.05, 256), "PCMAC, 128 atoms": (X, 128, 0.05, 256)}
    cases |= {f"planted, seed {seed}": (planted(seed), 20, 0.1, 100) for seed in range(3)}
    found: dict[str, list[str]] = {}
    for name, (Z, m, share, rows) in cases.items():
        Z_matrix, dense = Matrix.from_array(Z), Z.toarray()
        lam = share * dictionary._rms_row_norm(Z_matrix)
        for start, epochs in itertools.product(range(starts), PASSES):
            ours = dictionary.learn_atoms(
                Z_matrix, m, lam=share, epochs=epochs, batch_rows=rows, seed=start
            ).value.D
            first = dictionary._data_rows(Z_matrix, m, np.random.RandomState(start))
            updates = epochs * len(dictionary.spread_batches(len(dense), rows))
            whole = spams.trainDL(
                sp.csc_matrix(Z.T),
                D=first,
                lambda1=lam,
                iter=updates,
                batchsize=rows,
                numThreads=1,
                verbose=False,
            )
            fitted = [
                sparse_encode(dense, D.T, algorithm="lasso_lars", alpha=lam) @ D.T
                for D in (ours, whole)
            ]
            errors = [np.sum((dense - f) ** 2) for f in fitted]
            found.setdefault(f"{name}, start {start}", []).append(
                f"{100 * (errors[0] / errors[1] - 1):+.1f} %"
            )
    print(
        pd.DataFrame.from_dict(
            found, orient="index", columns=[f"{p} passes" for p in PASSES]
        ).to_string()
    )


# --- time ---------------------------------------------------------------------------------------


@app.command(name="time")
def time_command(
    n_atoms: int = 256,
    workers: int = 2,
    memory_limit: str = "1GB",
    robust: bool = False,
    max_iter: int = 100,
) -> None:
    """JGSC on the generated corpus of News20's size, staged in a store and read by a local
    cluster.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        bigfs.cluster(workers=workers, memory_limit=memory_limit),
    ):
        uri = str(Path(folder) / "news20.zarr")
        storage.stage("synthetic:news20", uri)
        X = storage.open(uri).X
        seen, begin, cpu = [], time.perf_counter(), _cpu()
        with observed(
            lambda name, record: seen.append(
                (name, time.perf_counter() - begin, _cpu() - cpu, record)
            )
        ):
            method = bigfs.RJGSC if robust else bigfs.JGSC
            model = method(n_atoms=n_atoms, max_iter=max_iter).fit(X)
        learned = [s for s in seen if s[0] == "dictionary learning"][-1]
        print(
            f"{method.__name__}, {X.shape[0]} × {X.shape[1]}, {n_atoms} atoms, "
            f"{workers} workers of {memory_limit}"
        )
        print(f"dictionary      {learned[1]:7.1f} s ({learned[2]:.0f} s of processor time)")
        print(
            f"graph and codes {seen[-1][1] - learned[1]:7.1f} s, {model.n_iter_} "
            f"Sylvester equations: {model.result_.status}"
        )
        print(
            f"last record     {seen[-1][3]}, scores "
            f"{np.sort(model.scores_)[[0, n_atoms // 2, -1]].round(3)}"
        )
        print(f"in all          {time.perf_counter() - begin:7.1f} s")
    peak = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6,
    )
    print(f"peak memory     {peak[0]:.2f} GB this process, {peak[1]:.2f} GB the largest worker")


def _cpu() -> float:
    return float(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))


def show(title: str, table: pd.DataFrame) -> None:
    print(f"\n{title}\n{table.to_string(float_format=lambda v: f'{v:.3f}')}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore", NotConverged)
    app()
