"""SparGE and the Laplacian score at the size of all of RCV1: 804,414 × 47,236, 60 M non-zeros.

python benchmarks/rcv1.py                       # classes: sparge-lda
python benchmarks/rcv1.py --embedding cca       # several labels per sample
python benchmarks/rcv1.py --embedding lpp       # with its graph
python benchmarks/rcv1.py --embedding laplacian # the Laplacian score, with its graph
python benchmarks/rcv1.py --source "synthetic:rcv1?rows=8044140" --stores FOLDER   # ten times
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import scipy.sparse as sp
import typer
from shared import table

import storage
from bigfs import LaplacianScore, SparGE, engine


def several_labels(codes: np.ndarray, n_classes: int) -> sp.csr_array:
    """Indicators of each sample's class, and of a second one for every other sample."""
    n = len(codes)
    twice = np.arange(0, n, 2)
    rows = np.concatenate([np.arange(n), twice])
    columns = np.concatenate([codes, (codes[twice] * 7 + 3) % n_classes])
    Y = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n_classes))
    Y.data[:] = 1  # where both are the same
    return Y


def main(
    embedding: Annotated[str, typer.Option(help="lda, cca, lpp or laplacian")] = "lda",
    features: int = 500,
    workers: int = 2,
    memory: str = "1GB",
    source: str = "synthetic:rcv1",
    stores: Annotated[Path, typer.Option(help="where the store is kept")] = Path(
        "/tmp/bigfs-benchmarks"
    ),
) -> None:
    began = time.perf_counter()
    corpus = storage.open(storage.stage(source, stores / "rcv1.zarr"))
    staging = time.perf_counter() - began
    y = corpus.y
    if embedding == "cca":
        y = several_labels(np.asarray(y), len(corpus.class_names))
    with engine.cluster(workers=workers, memory_limit=memory):
        # the workers import and compile what they need
        SparGE(n_features_to_select=10).fit(sp.eye_array(40, format="csr"), np.arange(40) % 2)
        began = time.perf_counter()
        if embedding == "laplacian":
            selector = LaplacianScore(n_features_to_select=features).fit(corpus.X)
        else:
            selector = SparGE(embedding=embedding, n_features_to_select=features).fit(corpus.X, y)
        took, peaks = time.perf_counter() - began, engine.peak_memory()
    rows = [
        ["shape", f"{corpus.X.shape[0]:,} × {corpus.X.shape[1]:,}, {corpus.X.nnz:,} non-zeros"],
        ["staging", f"{staging:.1f} s (about 0: it was there)"],
        ["fit", f"{took:.1f} s"],
        *([] if embedding == "laplacian" else steps(selector, corpus.X.nnz, took)),
        ["peak memory", ", ".join(f"{name} {size >> 20} MB" for name, size in peaks.items())],
    ]
    table(f"{embedding}, {features} features", ["what", "figure"], rows)


def steps(selector: SparGE, nnz: int, took: float) -> list[list[str]]:
    """Return the rows on the cutting plane."""
    stats = selector.result_.stats
    products = 2 * nnz * selector.coef_.shape[1] * stats["cuts"]
    return [
        [
            "cutting plane",
            f"{stats['passes']} passes, {stats['cuts']} steps, "
            f"{stats['gathered']:,} columns gathered",
        ],
        ["gap", f"{100 * selector.result_.history[-1]['gap']:.2f} %"],
        ["products of the scores", f"{products / 1e9:.0f} · 10⁹, {products / took / 1e9:.2f} a ns"],
    ]


if __name__ == "__main__":
    typer.run(main)
