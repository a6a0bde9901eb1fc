"""Rank-sum tests of counts: every gene and group, compared with SciPy in a loop and illico.

python benchmarks/rank_sum.py FOLDER
python benchmarks/rank_sum.py FOLDER --cells 20000 --genes 500 --groups 20

The counts are generated, staged once, and tested from the store in a process of its own. SciPy
tests some genes and groups of the same counts, and illico all genes of the slice where it is
installed. A line for each has its seconds, and how far its p-values are from those of bigfs.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import scipy.sparse as sp
import typer
from scipy.stats import mannwhitneyu
from shared import row, timed

from bigfs import RankSum, engine, storage
from bigfs.types import FloatArray

BLOCK = 5_000  # cells that are generated at a time
SHARE = 0.06  # of the counts that are not zero, about
SLICE, SLICE_GROUPS = 20, 5  # genes and groups that SciPy tests


def blocks(cells: int, genes: int, groups: int) -> Iterator[tuple[sp.csr_array, np.ndarray]]:
    """Yield counts with the groups of their cells. A gene in ten tells a group."""
    level = np.random.default_rng(0).gamma(0.4, SHARE / 0.4, genes)
    for first in range(0, cells, BLOCK):
        n, rng = min(BLOCK, cells - first), np.random.default_rng(first)
        group = rng.integers(0, groups, n)
        marked = np.arange(genes) % (10 * groups) == 10 * group[:, None]
        yield sp.csr_array(rng.poisson(level * (1 + 3 * marked)).astype(np.float32)), group


def fit_all(store: Path, memory_limit: str) -> None:
    """Test every gene and group from the store, and print what it took."""
    with engine.cluster(workers=0, memory_limit=memory_limit):
        corpus = storage.open(store)
        run = timed(lambda: RankSum().fit(corpus.X, corpus.y))
    peak = engine.peak_memory()["driver"] >> 20
    np.save(store.with_suffix(".npy"), run.value.pvalues_[:, :SLICE])
    print(json.dumps({"seconds": run.seconds, "peak": peak, "passes": corpus.X.passes}))


def distance(found: FloatArray, expected: FloatArray) -> str:
    """Return the largest difference of p-values, absolute and relative."""
    relative = np.abs(found - expected) / np.maximum(expected, np.finfo(float).tiny)
    return f"p-values within {np.abs(found - expected).max():.1e}, {relative.max():.1e} relative"


def main(
    folder: Path,
    cells: int = 300_000,
    genes: int = 8_000,
    groups: int = 200,
    memory_limit: str = "1GB",
    only: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Print a line for bigfs, for SciPy and for illico."""
    store = folder / f"counts-{cells}-{genes}-{groups}.zarr"
    if only:
        fit_all(store, memory_limit)
        return
    folder.mkdir(parents=True, exist_ok=True)
    if not store.exists():
        storage.stage(blocks(cells, genes, groups), store, memory_limit=memory_limit)
    options = {"cells": cells, "genes": genes, "groups": groups, "memory-limit": memory_limit}
    words = [f"--{name}={value}" for name, value in options.items()]
    command = [sys.executable, __file__, str(folder), *words, "--only"]
    took = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    about = f"{cells:,} cells, {genes:,} genes, {groups} groups"
    corpus, p = storage.open(store), np.load(store.with_suffix(".npy"))
    genes_of = np.arange(min(SLICE, genes))
    X, y = corpus.X.columns(genes_of).toarray().astype(float), corpus.y  # SciPy ranks in this type
    some = np.arange(min(SLICE_GROUPS, groups))
    run = timed(
        lambda: np.array(
            [mannwhitneyu(X[y == c], X[y != c], method="asymptotic").pvalue for c in some]
        )
    )
    n_tests = len(some) * X.shape[1]
    peer = (
        f"SciPy: {n_tests} tests in {run.seconds:.1f} s, as many as all need "
        f"{run.seconds * groups * genes / n_tests:,.0f} s; {distance(p[some], run.value)}"
    )
    figure = f"{took['seconds']:.1f} s, {took['passes']} pass, {took['peak']} MiB"
    row("rank-sum tests of all genes and groups", about, figure, peer)
    if importlib.util.find_spec("illico") is None:
        print("illico: not installed")
        return
    import anndata
    from illico import asymptotic_wilcoxon

    cells_of = anndata.AnnData(sp.csc_matrix(X), obs={"group": y.astype(str)})
    run = timed(
        lambda: asymptotic_wilcoxon(
            cells_of, is_log1p=False, group_keys="group", reference=None, use_continuity=True
        )
    )
    found = run.value["p_value"].unstack()
    found = found.loc[[str(c) for c in range(groups)], cells_of.var_names].to_numpy()
    n_tests = groups * X.shape[1]
    figure = f"{n_tests} tests in {run.seconds:.1f} s; {distance(p, found)}"
    row(f"the same of {SLICE} genes, illico", about, figure)


if __name__ == "__main__":
    typer.run(main)
