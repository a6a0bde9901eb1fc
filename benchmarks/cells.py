"""Cells: reading AnnData and highly variable genes, compared with anndata and scanpy.

python benchmarks/cells.py FOLDER    # in an environment with bigfs, scanpy and scikit-misc

20,000 generated cells of 20,000 genes, as .h5ad and .zarr. Each line is the best of three in a
process of its own, and the largest memory of that process. Scanpy holds the matrix in memory and
bigfs reads its staged store.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
import typer

from bigfs import HighlyVariable, engine, storage
from bigfs.storage import sources
from bigfs.storage.staging import build

N, D, DRAWS = 20_000, 20_000, 1_800
FLAVORS = [(flavor, donor) for flavor in ("seurat", "seurat_v3") for donor in ("", "donor")]


def write_cells(folder: Path) -> None:
    """Write the cells with anndata, and stage them as counts and as logarithms."""
    import anndata
    import pandas as pd

    rng = np.random.default_rng(0)
    shares = np.cumsum(rng.gamma(0.3, 1, D))
    drawn = [np.searchsorted(shares / shares[-1], rng.random(DRAWS)) for _ in range(N)]
    X = sp.vstack([sp.csr_matrix(np.bincount(genes, minlength=D)) for genes in drawn], "csr")
    obs = pd.DataFrame({"donor": pd.Categorical(rng.integers(0, 4, N).astype(str))})
    data = anndata.AnnData(X.astype(np.float32), obs=obs.set_index(obs.index.astype(str)))
    data.write_h5ad(folder / "cells.h5ad")
    data.write_zarr(folder / "cells.zarr")
    for weight in (None, "lognorm"):
        source = f"{folder}/cells.h5ad?batch=donor"
        storage.stage(source, folder / f"{weight}.store", weight=weight)


def reading(folder: Path, reader: str, suffix: str) -> Callable[[], Any]:
    """Return a function that reads all rows."""
    path = str(folder / f"cells.{suffix}")
    if reader == "anndata":
        import anndata

        read = anndata.read_h5ad if suffix == "h5ad" else anndata.io.read_zarr
        return lambda: read(path)
    source: Any = sources.find(path).prepare(folder)
    return lambda: [source.read(piece) for piece in build.pieces_of(source, 280_000_000)]


def choosing(folder: Path, by: str, flavor: str, donor: str) -> Callable[[], Any]:
    """Return a function that finds 2,000 genes."""
    if by == "bigfs":
        weight = None if flavor == "seurat_v3" else "lognorm"
        X = storage.open(folder / f"{weight}.store").X
        X.batches = X.batches if donor else None
        return lambda: HighlyVariable(n_features_to_select=2000, flavor=flavor).fit(X)
    import anndata
    import scanpy

    data = anndata.read_h5ad(folder / "cells.h5ad")
    if flavor != "seurat_v3":
        scanpy.pp.normalize_total(data)
        scanpy.pp.log1p(data)
    options = {"flavor": flavor, "n_top_genes": 2000, "batch_key": donor or None}
    return lambda: scanpy.pp.highly_variable_genes(data, **options)


def main(
    folder: Path, what: Annotated[list[str] | None, typer.Argument(hidden=True)] = None
) -> None:
    """Print a line for each reader and each way to find the genes."""
    warnings.simplefilter("ignore")
    if what:
        task = reading(folder, *what[1:]) if what[0] == "read" else choosing(folder, *what[1:])
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            task()
            seconds.append(time.perf_counter() - start)
        peak = engine.peak_memory()["driver"] >> 20
        print(f"{' '.join(what)}: {min(seconds):.2f} s, {peak} MB")
        return
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "lognorm.store").exists():
        write_cells(folder)
    reads = [["read", by, suffix] for suffix in ("h5ad", "zarr") for by in ("anndata", "bigfs")]
    genes = [["genes", by, *flavor] for flavor in FLAVORS for by in ("scanpy", "bigfs")]
    for words in [*reads, *genes]:
        subprocess.run([sys.executable, __file__, str(folder), *words], check=True)


if __name__ == "__main__":
    typer.run(main)
