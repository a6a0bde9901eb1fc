"""SparGE: its speed compared with peers, and its passes at 10⁹ non-zeros.

pip install skglm                                 # for the multi-task lasso
python benchmarks/sparge.py speed                 # 500 features at three corpora's scale
python benchmarks/sparge.py webspam 5%            # passes, bytes and memory of 16.6 million columns
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import typer
from shared import STORES, peaks, row, table, timed
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import f_classif
from sklearn.svm import LinearSVC

from bigfs import SparGE, engine, storage

app = typer.Typer(add_completion=False)
CORPORA = ("news20", "rcv1.binary", "real-sim")
FEATURES = 500
KEPT = typer.Option(STORES, help="Where the stores are kept between runs.")


# --- the multi-task lasso -------------------------------------------------------------------------


def lasso(X: Any, y: np.ndarray) -> Callable[[float], np.ndarray]:
    """Return what fits skglm's at a share of the largest penalty, to the features' norms."""
    from skglm.datafits import QuadraticMultiTask
    from skglm.estimators import GeneralizedLinearEstimator
    from skglm.penalties import L2_1
    from skglm.solvers import MultiTaskBCD

    classes, codes = np.unique(y, return_inverse=True)
    Y = np.eye(len(classes))[codes] - np.bincount(codes) / len(y)
    columns = sp.csc_matrix(X)
    largest = np.linalg.norm(columns.T @ Y, axis=1).max() / len(Y)

    def fit(strength: float) -> np.ndarray:
        solver = MultiTaskBCD(tol=1e-3 * strength * largest, fit_intercept=True)
        penalty = L2_1(alpha=strength * largest)
        model = GeneralizedLinearEstimator(QuadraticMultiTask(), penalty, solver)
        return np.linalg.norm(model.fit(columns, Y).coef_, axis=1)

    return fit


def one_lasso(X: Any, y: np.ndarray, m: int) -> tuple[float, int]:
    """Seconds of one fit at the penalty that keeps about m features, and how many it keeps."""
    fit, few, many = lasso(X, y), 1.0, 1e-3
    for _ in range(12):
        middle = (few * many) ** 0.5
        kept = np.count_nonzero(fit(middle))
        if abs(kept - m) <= 0.05 * m:
            break
        few, many = (middle, many) if kept < m else (few, middle)
    return timed(fit, middle).seconds, kept


# --- speed ----------------------------------------------------------------------------------------


def touched(block: Any, start: int, stop: int) -> float:
    """What a bare pass does with a tile: read it and look at every value."""
    return float(block.data.sum())


@app.command()
def speed(stores: Path = KEPT, repeat: int = 2, workers: int = 2) -> None:
    """A fit from a staged store on workers that are up, with bare passes and peers in memory."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in CORPORA:
        corpus = storage.open(storage.stage(f"synthetic:{name}", stores / f"{name}.zarr"))
        X, y = corpus.X, corpus.y
        with engine.cluster(workers=workers, memory_limit="1GB"):
            SparGE(n_features_to_select=10).fit(X, y)  # the workers import what they need
            run = timed(SparGE(n_features_to_select=FEATURES).fit, X, y, repeat=repeat)
            stats, last = run.value.result_.stats, run.value.result_.history[-1]
            bare = timed(X.map, touched, 1, repeat=3).seconds * (run.value.n_iter_ + 1)
            most, whole = peaks(), X.columns(np.arange(X.shape[1])).tocsr().astype(np.float64)
        svm = timed(LinearSVC(penalty="l1", dual=False, C=1.0).fit, whole, y).seconds
        anova = timed(f_classif, whole, y).seconds
        seconds, kept = one_lasso(whole, y, FEATURES)
        limit = (
            f"multi-task lasso {seconds:.2f} s, {kept} features ({run.seconds / seconds:.2f} ×); "
            f"ℓ1 SVM {svm:.2f} s, f_classif {anova:.2f} s, κ + 1 bare passes {bare:.2f} s"
        )
        figure = (
            f"{run.seconds:.2f} s, {stats['passes']} passes, gap {100 * last['gap']:.2f} %; {most}"
        )
        row("a fit", f"synthetic:{name}", figure, limit)


def bytes_read(client: Any) -> int:
    """Bytes that the workers have read (Linux)."""
    return sum(client.run(lambda: int(open("/proc/self/io").readline().split()[1])).values())


@app.command()
def webspam(rows: str = "1%", stores: Path = KEPT, workers: int = 2) -> None:
    """`synthetic:webspam` at a share of its rows: time, passes, bytes read and peak memory."""
    staging = timed(
        lambda: storage.stage(
            f"synthetic:webspam?rows={rows}", stores / f"webspam-{rows.strip('%')}.zarr"
        )
    )
    corpus = storage.open(staging.value)
    with engine.cluster(workers=workers, memory_limit="1GB") as client:
        SparGE(n_features_to_select=10).fit(sp.eye_array(20, format="csr"), np.arange(20) % 2)
        one = timed(corpus.X.map, touched, 1).seconds
        before = bytes_read(client)
        run = timed(SparGE(n_features_to_select=FEATURES).fit, corpus.X, corpus.y)
        read, most = bytes_read(client) - before, peaks()
    stats, last = run.value.result_.stats, run.value.result_.history[-1]
    planted = len(set(corpus.spec["planted"]) & set(run.value.selected_.tolist()))
    table(
        f"webspam, {rows}: {corpus.X.shape}, {corpus.X.nnz:,} non-zeros",
        ["what", "figure"],
        [
            ["staging", f"{staging.seconds:.1f} s (0: it was there)"],
            [
                "fit",
                f"{run.seconds:.1f} s, {run.value.n_iter_} cuts, gap {100 * last['gap']:.2f} %",
            ],
            ["status", run.value.result_.status.name],
            ["passes", f"{stats['passes']}, a bare one {one:.2f} s"],
            ["fit / bare passes", f"{run.seconds / (one * stats['passes']):.2f}"],
            ["bytes read", f"{read:,} of {storage.info(staging.value)['bytes']['by columns']:,}"],
            ["features", f"{stats['gathered']:,} gathered, {planted} planted among {FEATURES}"],
            ["peak memory", most],
        ],
    )


if __name__ == "__main__":
    app()
