"""SRLSR, RLSR and JHLSR on the weighted ridge solve: time, memory, quality.

python benchmarks/ridge.py times            10 % labeled, scale of News20, RCV1.binary, Real-Sim
python benchmarks/ridge.py text DATA        20 Newsgroups by date, 10 % labeled, mean of 5 draws
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import typer
from data import newsgroups
from shared import STORES, peaks, row, table, timed
from sklearn.feature_selection import f_classif
from sklearn.svm import LinearSVC

from bigfs import JHLSR, RLSR, SRLSR, engine, storage
from bigfs.graph import knn
from bigfs.graph.hypergraph.hypergraph import neighbor_hyperedges
from bigfs.graph.hypergraph.lasso import lasso_hyperedges
from bigfs.result import NotConvergedWarning

app = typer.Typer(add_completion=False)
CORPORA = ("news20", "rcv1.binary", "real-sim")
SIZES = (50, 100, 250, 500, 1000)
warnings.simplefilter("ignore", NotConvergedWarning)  # the tables show the gap


def some_labels(y: np.ndarray, share: float, seed: int) -> np.ndarray:
    """y with all but `share` of each class, and at least one sample, set to −1."""
    rng, kept = np.random.default_rng(seed), np.full(len(y), -1)
    for c in np.unique(y):
        own = rng.permutation(np.flatnonzero(y == c))
        kept[own[: max(1, round(share * len(own)))]] = c
    return kept


@app.command()
def times(hyperedges: str = "knn") -> None:
    """Each corpus and method in a process of its own, with two workers of 1 GB."""
    for corpus in CORPORA:
        for method in ("srlsr", "jhlsr"):
            command = [sys.executable, __file__, "one", corpus, method, "--hyperedges", hyperedges]
            subprocess.run(command, check=True)


@app.command()
def one(corpus: str, method: str, hyperedges: str = "knn", gamma: float = 1e-8) -> None:
    """One corpus and method."""
    uri = storage.stage(f"synthetic:{corpus}", STORES / f"{corpus}.zarr")
    with engine.cluster(workers=2, memory_limit="1GB"):
        data = storage.open(uri)
        y = some_labels(np.asarray(data.y), 0.1, 0)
        model: Any = SRLSR(p=0.5, gamma=gamma)
        if method == "jhlsr":
            near = knn(data.X, 10)
            by_lasso = hyperedges == "lasso"
            graph = lasso_hyperedges(data.X, near) if by_lasso else neighbor_hyperedges(near)
            model = JHLSR(hyperedges=graph, lam=0.1)
        model.set_params(n_features_to_select=1000)
        run = timed(model.fit, data.X, y)
        figure = f"{run.seconds:.1f} s, {run.processor:.1f} s of processor; {peaks()}"
    print(model.n_iter_, "rounds:", model.result_.history[-1])
    print({plan["plan"].solver for plan in model.result_.stats["plans"]})
    row(f"{method}, {model.n_iter_} rounds", f"synthetic:{corpus}", figure, "", "ridge.py times")


def anova(X: Any, y: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        F = f_classif(X[y != -1], y[y != -1])[0]
    return np.argsort(-np.nan_to_num(F), kind="stable")


def fitted(model: Any, labeled_only: bool = False) -> Callable[[Any, np.ndarray], np.ndarray]:
    def rank(X: Any, y: np.ndarray) -> np.ndarray:
        keep = y != -1 if labeled_only else np.ones(len(y), dtype=bool)
        return model.set_params(n_features_to_select=1.0).fit(X[keep], y[keep]).selected_

    return rank


@app.command()
def text(data: Path, draws: int = 5, share: float = 0.1) -> None:
    """Rankings with 10 % of the labels; accuracy of a LinearSVC that learns from these."""
    X, truth, X_test, y_test = newsgroups(data / "20news-bydate.tar.xz")
    hyperedges = {"hyperedges": "knn", "n_neighbors": 10, "mu": 0.01, "lam": 0.1}
    methods = {
        "ANOVA (labeled)": anova,
        "RLSR γ=1e-3 (labeled)": fitted(RLSR(gamma=1e-3, max_iter=25), labeled_only=True),
        "RLSR γ=1e-3": fitted(RLSR(gamma=1e-3, max_iter=25)),
        "SRLSR p=.5 γ=1e-8": fitted(SRLSR(p=0.5, gamma=1e-8, max_iter=40, tol=0.1)),
        "JHLSR μ=.01 λ=.1": fitted(JHLSR(**hyperedges, max_iter=25, tol=0.05)),
    }
    found = np.zeros((len(methods), draws, len(SIZES)))
    for seed in range(draws):
        y = some_labels(truth, share, seed)
        known = y != -1
        for i, rank in enumerate(methods.values()):
            order = rank(X, y)
            for k, m in enumerate(SIZES):
                model = LinearSVC(random_state=0, max_iter=5000)
                model.fit(X[known][:, order[:m]], y[known])
                found[i, seed, k] = model.score(X_test[:, order[:m]], y_test)
    rows = [
        [name, *(f"{v:.3f}" for v in values.mean(axis=0)), f"{values.mean():.3f}"]
        for name, values in zip(methods, found, strict=True)
    ]
    table(f"20 Newsgroups, {share:.0%} labeled", ["", *map(str, SIZES), "mean"], rows)


if __name__ == "__main__":
    app()
