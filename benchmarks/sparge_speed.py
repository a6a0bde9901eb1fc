"""SparGE-LDA's time for 500 features at three corpora's scale, beside bare passes over the same
store and peers on the same data.

pip install skglm                                 # for the multi-task lasso
python benchmarks/sparge_speed.py speed           # staged data, a cluster that is already up
python benchmarks/sparge_speed.py webspam 5%      # passes, bytes and memory where d is 16.6 million
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import typer
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import f_classif
from sklearn.svm import LinearSVC

import storage
from bigfs import SparGE, engine

app = typer.Typer(add_completion=False)
CORPORA = {"news20": 10, "rcv1.binary": 3, "real-sim": 3}  # name → the seconds asked for
FEATURES = 500
STORES = typer.Option(Path("/tmp/bigfs-benchmarks"), help="Where the stores are kept between runs.")


def touched(block, start, stop):
    """What a bare pass does with a tile: read it and look at every value."""
    return float(block.data.sum())


def seconds(call, *args, repeat: int = 1):
    """The best of `repeat` runs, and the last result."""
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        result = call(*args)
        times.append(time.perf_counter() - began)
    return min(times), result


def multitask_lasso(X: sp.csr_array, y: np.ndarray, m: int) -> tuple[float, int]:
    """Seconds of one fit of skglm's, on the indicators with an intercept, at the penalty that keeps
    about m features; and how many.
    """
    from skglm.datafits import QuadraticMultiTask
    from skglm.estimators import GeneralizedLinearEstimator
    from skglm.penalties import L2_1
    from skglm.solvers import MultiTaskBCD

    classes, codes = np.unique(y, return_inverse=True)
    Y = np.eye(len(classes))[codes] - np.bincount(codes) / len(y)
    columns = sp.csc_matrix(X)
    largest = np.linalg.norm(columns.T @ Y, axis=1).max() / len(Y)

    def fit(strength: float) -> int:
        solver = MultiTaskBCD(tol=1e-3 * strength * largest, fit_intercept=True)
        model = GeneralizedLinearEstimator(
            QuadraticMultiTask(), L2_1(alpha=strength * largest), solver
        ).fit(columns, Y)
        return int(np.count_nonzero(np.linalg.norm(model.coef_, axis=1)))

    few, many = 1.0, 1e-3
    for _ in range(12):
        middle = (few * many) ** 0.5
        kept = fit(middle)
        if abs(kept - m) <= 0.05 * m:
            break
        few, many = (middle, many) if kept < m else (few, middle)
    return seconds(fit, middle)


@app.command()
def speed(stores: Path = STORES, repeat: int = 2, workers: int = 2) -> None:
    """The three corpora, one table."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    names = (
        "corpus",
        "asked",
        "SparGE",
        "cuts",
        "gap %",
        "bare κ+1 passes",
        "ratio",
        "ℓ1 LinearSVC",
        "multi-task lasso",
        "f_classif",
        "driver MB",
        "worker MB",
    )
    table = Table(*names, box=None, pad_edge=False)
    for name, asked in CORPORA.items():
        corpus = storage.open(storage.stage(f"synthetic:{name}", stores / f"{name}.zarr"))
        with engine.cluster(workers=workers, memory_limit="1GB"):
            # the workers import what they need
            SparGE(n_features_to_select=10).fit(corpus.X, corpus.y)
            took, selector = seconds(
                lambda X=corpus.X, y=corpus.y: SparGE(n_features_to_select=FEATURES).fit(X, y),
                repeat=repeat,
            )
            cuts, last = selector.n_iter_, selector.result_.history[-1]
            bare = seconds(lambda X=corpus.X: X.map(touched, 1), repeat=3)[0] * (cuts + 1)
            peaks = engine.peak_memory()
            X = corpus.X.columns(np.arange(corpus.X.shape[1])).tocsr().astype(np.float64)
        svm = seconds(LinearSVC(penalty="l1", dual=False, C=1.0).fit, X, corpus.y)[0]
        lasso, kept = multitask_lasso(X, corpus.y, FEATURES)
        anova = seconds(f_classif, X, corpus.y)[0]
        worker = max(v for k, v in peaks.items() if k != "driver")
        cells = [
            f"{took:.2f}",
            str(cuts),
            f"{100 * last['gap']:.2f}",
            f"{bare:.2f}",
            f"{took / bare:.1f}",
        ]
        cells += [f"{svm:.2f}", f"{lasso:.2f} ({kept})", f"{anova:.2f}"]
        table.add_row(name, f"≤ {asked}", *cells, f"{peaks['driver'] >> 20}", f"{worker >> 20}")
        Console(width=140).print(table)


def read_so_far(client: Any) -> int:
    """Bytes that the workers have read (Linux)."""
    return sum(client.run(lambda: int(open("/proc/self/io").readline().split()[1])).values())


@app.command()
def webspam(
    rows: str = typer.Argument("1%"),
    stores: Path = STORES,
    features: int = FEATURES,
    workers: int = 2,
) -> None:
    """`synthetic:webspam` at a share of its rows: time, passes, bytes read and peak memory."""
    source = f"synthetic:webspam?rows={rows}"
    staging, uri = seconds(storage.stage, source, stores / f"webspam-{rows.strip('%')}.zarr")
    corpus = storage.open(uri)
    with engine.cluster(workers=workers, memory_limit="1GB") as client:
        # compiled once
        SparGE(n_features_to_select=10).fit(sp.eye_array(20, format="csr"), np.arange(20) % 2)
        one, _ = seconds(lambda: corpus.X.map(touched, 1))
        before = read_so_far(client)
        took, selector = seconds(
            lambda: SparGE(n_features_to_select=features).fit(corpus.X, corpus.y)
        )
        read, peaks = read_so_far(client) - before, engine.peak_memory()
    table = Table("what", "figure", box=None, pad_edge=False)
    stats, last = selector.result_.stats, selector.result_.history[-1]
    found = len(set(corpus.spec["planted"]) & set(selector.selected_.tolist()))
    nnz = corpus.X.nnz
    figures = {
        "shape": f"{corpus.X.shape[0]:,} × {corpus.X.shape[1]:,}, {nnz:,} non-zeros, "
        f"{len(corpus.X.column_tiles)} column tiles",
        "staging": f"{staging:.1f} s (0: it was there)",
        "fit": f"{took:.1f} s, {selector.n_iter_} cuts, gap {100 * last['gap']:.2f} "
        f"%, {selector.result_.status.name}",
        "passes": f"{stats['passes']}; fit / passes {took / stats['passes']:.2f} s, "
        f"{1e9 * took / stats['passes'] / nnz:.1f} ns a non-zero",
        "a bare pass": f"{one:.2f} s; fit / bare passes {took / (one * stats['passes']):.2f}",
        "bytes read": f"{read:,}; by columns the store has "
        f"{storage.info(uri)['bytes']['by columns']:,}",
        "features": f"{stats['gathered']:,} gathered; {found} planted ones among {features}",
        "peak memory": ", ".join(f"{k} {v >> 20} MB" for k, v in peaks.items()),
    }
    for what, figure in figures.items():
        table.add_row(what, figure)
    Console(width=140).print(table)


if __name__ == "__main__":
    app()
