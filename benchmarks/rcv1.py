"""Methods at the size of all of RCV1: 804,414 × 47,236, 103 classes, 60 million non-zeros.

python benchmarks/rcv1.py                       # sparge-lda
python benchmarks/rcv1.py --method sparge-cca   # several labels per sample
python benchmarks/rcv1.py --method sparge-lpp   # with its graph; also laplacian
python benchmarks/rcv1.py --method srlsr        # a tenth of the samples labeled; also rlsr
python benchmarks/rcv1.py --method srlsr-default --labeled 1    # as it comes, with all labels
python benchmarks/rcv1.py --method jhlsr --neighbors 10     # the same labels; with its graph
python benchmarks/rcv1.py --source "synthetic:rcv1?rows=8044140" --name rcv1-10    # ten times
python benchmarks/rcv1.py --source … --gamma 10     # with the same penalty per sample
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
import typer
from shared import STORES, peaks, row, timed

from bigfs import JHLSR, RLSR, SRLSR, LaplacianScore, SparGE, engine, storage
from bigfs.result import observe

METHODS: dict[str, Any] = {
    "sparge-lda": SparGE(),
    "sparge-cca": SparGE(embedding="cca"),
    "sparge-lpp": SparGE(embedding="lpp"),
    "laplacian": LaplacianScore(),
    "srlsr": SRLSR(p=0.5, gamma=1e-8),
    "srlsr-default": SRLSR(),
    "rlsr": RLSR(),
    "jhlsr": JHLSR(hyperedges="knn", accelerate=True),
}


def several_labels(codes: np.ndarray, n_classes: int) -> sp.csr_array:
    """Indicators of each sample's class, and of a second one for every other sample."""
    n = len(codes)
    twice = np.arange(0, n, 2)
    rows = np.concatenate([np.arange(n), twice])
    columns = np.concatenate([codes, (codes[twice] * 7 + 3) % n_classes])
    Y = sp.csr_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(n, n_classes))
    Y.data[:] = 1  # where both are the same
    return Y


def show_round(name: str, record: dict[str, float]) -> None:
    numbers = ", ".join(f"{key} {value:.4g}" for key, value in record.items())
    print(f"{time.strftime('%H:%M:%S')} {name}: {numbers}", file=sys.stderr, flush=True)


def main(
    method: Annotated[str, typer.Option(help=", ".join(METHODS))] = "sparge-lda",
    features: int = 500,
    workers: int = 2,
    memory: str = "1GB",
    source: str = "synthetic:rcv1",
    stores: Annotated[Path, typer.Option(help="where the store is kept")] = STORES,
    name: Annotated[str, typer.Option(help="of the store")] = "rcv1",
    labeled: Annotated[float, typer.Option(help="share, for srlsr, rlsr and jhlsr")] = 0.1,
    max_iter: Annotated[int, typer.Option(help="rounds of srlsr, rlsr and jhlsr")] = 200,
    neighbors: Annotated[int, typer.Option(help="per sample, of jhlsr")] = 10,
    gamma: Annotated[float | None, typer.Option(help="of sparge (default: 1)")] = None,
) -> None:
    corpus = storage.open(storage.stage(source, stores / f"{name}.zarr"))
    y: Any = np.asarray(corpus.y)
    selector = METHODS[method].set_params(n_features_to_select=features)
    if gamma is not None:
        selector.set_params(gamma=gamma)
    if isinstance(selector, SRLSR | JHLSR):
        y = np.where(np.random.default_rng(0).random(len(y)) < labeled, y, -1)
        selector.set_params(max_iter=max_iter)
    if method == "jhlsr":
        selector.set_params(n_neighbors=neighbors)
    if method == "sparge-cca":
        y = several_labels(y, len(corpus.class_names))
    with engine.cluster(workers=workers, memory_limit=memory), observe(show_round):
        # the workers import and compile what they need
        pairs = sp.kron(sp.eye_array(20), np.ones((2, 2)), format="csr")
        type(selector)().fit(pairs, np.arange(40) // 2 % 2)
        run = timed(selector.fit, corpus.X, y)
        most = peaks()
    result = selector.result_
    figure = f"{run.seconds:.1f} s, {result.status.name}; {most}"
    if result.history:
        stats, last = result.stats, result.history[-1]
        gathered = f", {stats['gathered']:,} columns gathered" if "gathered" in stats else ""
        numbers = ", ".join(f"{k} {v:.4g}" for k, v in last.items())
        figure += f"; {stats['passes']} passes{gathered}; step {len(result.history)}: {numbers}"
    about = f"{corpus.X.shape[0]:,} × {corpus.X.shape[1]:,}, {corpus.X.nnz:,} non-zeros"
    row(f"{method}, {features} features", about, figure)


if __name__ == "__main__":
    typer.run(main)
