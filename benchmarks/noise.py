"""Results where there is nothing to find: accuracy on pure noise, and false discoveries.

python benchmarks/noise.py runs --draws 50 --processes 2
python benchmarks/noise.py methods RESULTS.jsonl --methods chi2,grid:anova
python benchmarks/noise.py fdr --draws 20
python benchmarks/noise.py pairs --draws 200

Two random classes, so that 0.5 is the truth. "grid:anova" is a pipeline of ANOVA and a linear SVM
in dask-ml's GridSearchCV, in each of five folds.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import tempfile
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import scipy.io
import typer
from shared import mean_error, row, table
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

from bigfs import ANOVA, Matrix, SparGE, stability, storage
from bigfs.evaluation.curves import Rankings, measure
from bigfs.evaluation.splits import Split, stratified_folds
from bigfs.flows import steps
from bigfs.flows.evaluation.selection import AUTO
from bigfs.flows.job import Job
from bigfs.flows.plan import Plan
from bigfs.selectors.registry import METHODS

app = typer.Typer(add_completion=False)
SUPERVISED = ",".join(name for name, method in METHODS.items() if "class" in method.targets)
WIDTH = 200  # pixels of the images that SMR takes
SIZE = {"n": 200, "d": 20_000}


def noise(seed: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Non-negative values and balanced random classes."""
    rng = np.random.default_rng(seed)
    return np.abs(rng.normal(size=(n, d))), rng.permutation(np.arange(n) % 2)


def run_of_noise(methods: list[str], seed: int) -> list[tuple[float, float]]:
    """What a run with --features auto reports by each method, and features of all samples."""
    found = []
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        X, y = noise(seed, **SIZE)
        scipy.io.savemat("noise.mat", {"X": X, "Y": y[:, None].astype(float)})
        store = storage.stage("noise.mat", f"{name}/noise.zarr")
        corpus = storage.open(store)
        for method in methods:
            job = Job(source=store, store=store, out=method, method=method, features=AUTO)
            run = steps.select(Plan.of(job))
            m = len(run.selected)
            points = steps.score(run, {"baselines": [], "sizes": [m], "folds": 5})
            [accuracy] = [p.scores["accuracy"] for p in points if p.method == method]
            columns = corpus.X.columns(np.sort(run.selected)).tocsr()
            leaky = cross_val_score(LinearSVC(random_state=0), columns, corpus.y)
            found.append((accuracy, float(leaky.mean())))
    return found


@app.command()
def runs(
    draws: int = 50, methods: str = "anova,chi2,sparge-lda", bound: float = 0.02, processes: int = 1
) -> None:
    """Runs that choose their number. Fails if a mean is further than `bound` from 0.5."""
    names = methods.split(",")
    with ProcessPoolExecutor(processes) as pool:
        reached = np.array(list(pool.map(partial(run_of_noise, names), range(draws))))
    for method, values in zip(names, np.moveaxis(reached, 1, 0), strict=True):
        own, leaky = mean_error(values[:, 0]), f"chosen on all samples {values[:, 1].mean():.3f}"
        row(f"noise, {method}, auto", f"{draws} draws", own, leaky)
    if np.any(np.abs(reached[:, :, 0].mean(axis=0) - 0.5) > bound):
        raise SystemExit(f"a mean is not 0.5 ± {bound}")


def by_grid(method: str, seed: int, n: int, d: int, features: int) -> float:
    from dask_ml.model_selection import GridSearchCV

    X, y = noise(seed, n, d)
    steps = [("select", METHODS[method].make()), ("classify", LinearSVC(random_state=0))]
    grid = {
        "select__n_features_to_select": [features // 2, features],
        "classify__C": [0.01, 0.1, 1.0, 10.0],
    }
    search = GridSearchCV(Pipeline(steps), grid, cv=3, scheduler="synchronous")
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    return float(cross_val_score(search, X, y, cv=folds, error_score="raise").mean())


def nested(method: str, seed: int, n: int, d: int, features: int) -> float:
    """The accuracy of the features of a method, chosen again in each of five folds."""
    X, y = noise(seed, n, d)
    of_images = {"sample_shape": (d // WIDTH, WIDTH)} if method == "smr" else {}

    def rank(number: int, split: Split) -> Rankings:
        selector = METHODS[method].make(n_features_to_select=features, **of_images)
        selector.fit(split.X_train, split.y_train)
        return {method: {features: selector.selected_[:features]}}

    folds = stratified_folds(Matrix.from_array(X), y, 5)
    (point,) = measure(folds, rank, with_all=False).points
    return point.scores["accuracy"]


@app.command()
def methods(
    file: Path,
    methods: Annotated[str, typer.Option(help="separated by commas")] = SUPERVISED,
    draws: int = 50,
    features: int = 50,
) -> None:
    """Every method on arrays in memory. Goes on after the draws that the file has."""
    done: dict[str, dict[int, float]] = defaultdict(dict)
    for line in file.read_text().splitlines() if file.exists() else []:
        method, seed, accuracy = json.loads(line)
        done[method][seed] = accuracy
    for seed in range(draws):
        for method in methods.split(","):
            if seed not in done[method]:
                accuracy_of = by_grid if method.startswith("grid:") else nested
                name = method.removeprefix("grid:")
                done[method][seed] = accuracy_of(name, seed, **SIZE, features=features)
                with file.open("a") as out:
                    out.write(json.dumps([method, seed, done[method][seed]]) + "\n")
    shown = [[m, len(v), mean_error(list(v.values()))] for m, v in sorted(done.items())]
    table(f"noise, {SIZE}", ["method", "draws", "reported"], shown)


@app.command()
def fdr(draws: int = 20, n: int = 200, d: int = 100_000, informative: int = 1000) -> None:
    """The rate of ANOVA(mode="fdr"), 0.99 of the level. Fails if it is above by two errors."""
    levels, y, shift = (0.01, 0.05, 0.1, 0.2), np.arange(n) % 2, 0.6  # standard deviations
    rates, powers = (np.zeros((draws, len(levels))) for _ in range(2))
    for seed in range(draws):
        X = np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)
        X[:, :informative] += np.float32(shift) * y[:, None]
        for k, level in enumerate(levels):
            is_false = ANOVA(mode="fdr", param=level).fit(X, y).selected_ >= informative
            rates[seed, k] = is_false.mean() if len(is_false) else 0.0
            powers[seed, k] = np.count_nonzero(~is_false) / informative
    shown = [
        (level, mean_error(rates[:, k], 4), f"{powers[:, k].mean():.3f}")
        for k, level in enumerate(levels)
    ]
    head = ["level", "false discovery rate", "informative found"]
    table(f"{draws} draws of {n} × {d:,}, {informative:,} informative", head, shown)
    errors = rates.std(axis=0, ddof=1) / np.sqrt(draws)
    if np.any(rates.mean(axis=0) - 2 * errors > levels):
        raise SystemExit("a rate is above its level")


@app.command()
def pairs(draws: int = 200, n: int = 100, d: int = 100, planted: int = 5) -> None:
    """False choices of `stability(pairs=True)` and its bound, beside knockpy where it is installed.

    Knockoffs bound a rate: they have the levels .1 and .2. Fails if a bound is exceeded.
    """
    shares, levels, exceeded = (0.6, 0.7, 0.8, 0.9), (0.1, 0.2), False
    for correlation in (0.0, 0.5, 0.9):
        ours, peers = np.zeros((draws, len(shares), 3)), np.zeros((draws, len(levels), 2))
        for seed in range(draws):
            rng = np.random.default_rng(seed)
            own, common = rng.normal(size=(n, d)), rng.normal(size=(n, 1))
            X = np.sqrt(1 - correlation) * own + np.sqrt(correlation) * common
            y = X[:, :planted].sum(axis=1) + rng.normal(size=n)
            selector = SparGE(n_features_to_select=8, embedding="cca", target="real")
            found = stability(selector, X, y, n_subsamples=50, pairs=True, random_state=seed)
            for k, share in enumerate(shares):
                counts = counts_of(found.chosen(share), planted)
                ours[seed, k] = *counts, found.false_choices(share)
            peers[seed] = by_knockoffs(X, y, levels, planted, seed)
        for k, share in enumerate(shares):
            false, power, bound = ours[:, k].mean(axis=0)
            exceeded |= bool(false > bound)
            figure = f"{false:.2f} false of at most {bound:.2f}, power {power:.2f}"
            row(
                f"pairs, chosen in {share:.0%}", f"{draws} draws, correlation {correlation}", figure
            )
        for (false, power), level in zip(peers.mean(axis=0), levels, strict=True):
            where = f"{draws} draws, correlation {correlation}"
            row(f"knockpy, level {level}", where, f"{false:.2f} false, power {power:.2f}")
    if exceeded:
        raise SystemExit("a bound is exceeded")


def counts_of(chosen: np.ndarray, planted: int) -> tuple[int, float]:
    """Return the number of false choices, and the share of the planted ones that are chosen."""
    true = int(np.count_nonzero(chosen < planted))
    return len(chosen) - true, true / planted


def by_knockoffs(
    X: np.ndarray, y: np.ndarray, levels: tuple[float, ...], planted: int, seed: int
) -> list[tuple[int, float]]:
    """Return the counts of Gaussian knockoffs with the lasso at each level."""
    if importlib.util.find_spec("knockpy") is None:
        return [(0, np.nan)] * len(levels)
    from knockpy import KnockoffFilter

    np.random.seed(seed)  # noqa: NPY002, which knockpy draws from
    knockoffs = KnockoffFilter(ksampler="gaussian", fstat="lasso")
    knockoffs.forward(X=X, y=y, fdr=levels[0])
    chosen = [np.flatnonzero(knockoffs.make_selections(knockoffs.W, level)) for level in levels]
    return [counts_of(one, planted) for one in chosen]


if __name__ == "__main__":
    app()
