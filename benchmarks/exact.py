"""The exact choice on the sets of the race: what is closed within a limit of seconds.

python -m benchmarks.exact FOLDER --seconds 600     # resumes when cut off; then prints the table
python -m benchmarks.exact FOLDER --peer            # with HiGHS on the sets of few features

HiGHS (`scipy.optimize.milp`) chooses by the outer approximation of Bertsimas and Van Parys (2020):
J is convex in the indicators d of the features, so J(d) + ∇J(d)ᵀ(z − d) bounds it from below. Each
round adds that cut at HiGHS's last choice, until the bound of the cuts meets the best choice.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from scipy.optimize import LinearConstraint, milp

from benchmarks.choosing import SOURCES, split
from benchmarks.papers.experiments import Cell, Experiment
from benchmarks.papers.experiments import run as run_experiments
from benchmarks.papers.results import Values
from benchmarks.shared import row
from bigfs import SparGE, engine

SIZES = (5, 10, 20, 50)
LARGE = {"20news": (100, 500)}  # further sizes
CLOSED = 1e-3  # share of the objective below which a gap counts as nearly closed
LIMIT = "2GB"
MOST_PEER = 5000  # features of a set on which HiGHS runs


def ours(seconds: float, folder: Path, name: str, m: int) -> Values:
    """Return the gap before and after the search, and what it left undecided."""
    samples, began = split(folder, name, 0), time.perf_counter()
    before = SparGE(n_features_to_select=m).fit(samples.X, samples.y).result_.stats
    after = SparGE(n_features_to_select=m, gap=0, max_nodes=10**9, max_seconds=seconds)
    stats = after.fit(samples.X, samples.y).result_.stats
    counts = {key: stats[key] for key in ("objective", "undecided", "nodes")}
    gaps = {"before": before["objective_gap"], "gap": stats["objective_gap"]}
    return {**gaps, **counts, "seconds": time.perf_counter() - began}


def highs(seconds: float, folder: Path, name: str, m: int) -> Values:
    """Return the gap of the outer approximation."""
    samples, began = split(folder, name, 0), time.perf_counter()
    one = SparGE(n_features_to_select=m)
    path, problems = one._solve_path(samples.X, samples.y, [m])
    data, d, gamma = problems[m].data, samples.X.shape[1], problems[m].gamma
    data.add(np.arange(d))
    G, B = data.gram(np.arange(d))
    inside, best, rows, ends = path[m].selected_, np.inf, [], []
    bound = 0.0
    for _ in range(100_000):
        K = G[np.ix_(inside, inside)] + gamma * np.eye(m)
        W = np.linalg.solve(K, B[inside])
        J = 0.5 * (data.T_norm2 - np.vdot(B[inside], W))
        gradient = -np.sum((B - G[:, inside] @ W) ** 2, axis=1) / (2 * gamma)
        best = min(best, J)
        left = seconds - (time.perf_counter() - began)
        if best - bound <= 1e-9 * best or left <= 0:
            break
        rows.append(np.append(-gradient, 1.0))  # t − gradient · z ≥ J − gradient · d
        ends.append(J - gradient[inside].sum())
        found = milp(
            np.append(np.zeros(d), 1.0),
            integrality=np.append(np.ones(d), 0.0),
            bounds=(np.zeros(d + 1), np.append(np.ones(d), np.inf)),
            constraints=[
                LinearConstraint(np.append(np.ones(d), 0.0), m, m),
                LinearConstraint(np.array(rows), ends, np.inf),
            ],
            options={"time_limit": left},
        )
        bound = max(bound, float(getattr(found, "mip_dual_bound", None) or 0.0))
        if found.x is None:
            break
        inside = np.sort(np.argsort(-found.x[:-1], kind="stable")[:m])
    gap = max(best - bound, 0.0) / best
    return {"gap": gap, "objective": best, "seconds": time.perf_counter() - began}


def cells(seconds: float, peer: bool, folder: Path, name: str, _: int) -> Iterator[Cell]:
    """List the cells of a set: one per number of features, and one for HiGHS."""
    d = split(folder, name, 0).X.shape[1]
    for m in (*SIZES, *LARGE.get(name, ())):
        yield Cell("sparge", f"m={m} seconds={seconds:g}", partial(ours, seconds, folder, name, m))
        if peer and d <= MOST_PEER:
            compute = partial(highs, seconds, folder, name, m)
            yield Cell("highs", f"m={m} seconds={seconds:g}", compute)


def run(
    folder: Path,
    seconds: Annotated[float, typer.Option(help="Limit of the search of a choice.")] = 600,
    sets: Annotated[str, typer.Option(help="With commas; none: all.")] = "",
    peer: Annotated[bool, typer.Option("--peer", help="Also run HiGHS.")] = False,
) -> None:
    """Search for the best choices that are not finished, and print the gaps."""
    names = tuple(sets.split(",")) if sets else tuple(SOURCES)
    exact = Experiment("exact", names, 1, partial(cells, seconds, peer), files=())
    limit = engine.cluster(workers=0, memory_limit=LIMIT)
    with limit, engine.one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        run_experiments([exact], folder, say=partial(print, flush=True))
    finished = {
        key: {k: float(v[0]) for k, v in values.items()}
        for key, values in exact.results().cells.items()
    }
    for key, one in finished.items():
        facts = ", ".join(f"{name} {value:.4g}" for name, value in one.items())
        print(f"{key.data}, {key.method}, {key.parameters}: {facts}")
    for kind, m, method in product(("text", "dense"), SIZES, ("sparge", "highs")):
        ends = f"m={m} seconds={seconds:g}"
        cells_of = [
            one
            for key, one in finished.items()
            if (key.method, key.parameters, SOURCES[key.data].kind) == (method, ends, kind)
        ]
        if cells_of:
            summarize(cells_of, f"{len(cells_of)} {kind} sets, {m} features, {seconds:g} s", method)


def summarize(found: list[dict[str, float]], on_what: str, method: str) -> None:
    """Print the row of the sets of a kind."""
    gaps = np.array([one["gap"] for one in found])
    closed = f"{np.mean(gaps <= 2e-9):.0%} closed, {np.mean(gaps <= CLOSED):.0%} to {CLOSED:.1%}"
    figure = f"{closed}; gap {np.median(gaps):.2%} in the median"
    if method == "highs":
        row("the exact choice by HiGHS", on_what, figure)
        return
    before, undecided = (
        np.median([one[name] for one in found]) for name in ("before", "undecided")
    )
    limit = f"before the search {before:.2%}; {undecided:,.0f} features undecided in the median"
    row("the exact choice", on_what, figure, limit)


if __name__ == "__main__":
    typer.run(run)
