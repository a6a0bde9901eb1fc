"""Exact and approximate neighbours: time, memory, recall, scaling.

python benchmarks/knn.py exact          # against sparse_dot_topn and scikit-learn, Real-Sim scale
python benchmarks/knn.py approx         # against the exact graph, RCV1 of 200,000 rows
python benchmarks/knn.py large          # all of RCV1 scale, approximate
python benchmarks/knn.py scaling        # 1 and 2 workers
"""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import typer
from rich.console import Console
from rich.table import Table

import storage
from bigfs import engine
from bigfs.graph import Neighbors, knn, stream_knn

app = typer.Typer(help=__doc__)
K = 10
STORES = typer.Option(Path(".bigfs/benchmarks"), help="Where the generated corpora are kept.")
LIMIT = typer.Option("512MB", help="Memory limit of each worker.")
BASELINES = typer.Option(True, help="Also run sparse_dot_topn and scikit-learn.")


@app.command()
def exact(
    corpus: str = "synthetic:real-sim",
    stores: Path = STORES,
    limit: str = LIMIT,
    baselines: bool = BASELINES,
) -> None:
    """The exact graph on two workers; then sparse_dot_topn and scikit-learn on the whole matrix in
    memory.
    """
    X = opened(corpus, stores)
    rows: list[tuple[Any, ...]] = []
    with engine.cluster(workers=2, memory_limit=limit) as client:
        for run in ("first", "second"):
            found, *seconds = on_workers(client, lambda: knn(X, K))
            rows.append((f"bigfs, 2 workers, {run} run", *seconds, worker_peak(client), ""))
    cost = found.info["predicted"]
    if baselines:
        whole = normalized(X)
        rows.append(("sparse_dot_topn, 2 threads", *measured(topn, whole, found)))
        rows.append(("scikit-learn, brute force", *measured(brute, whole, found)))
    table(
        f"exact, {corpus}: {X.shape[0]:,} × {X.shape[1]:,}, Σ df² = "
        f"{2 * cost['multiply_adds']:.3g}",
        rows,
    )


@app.command()
def approx(
    corpus: str = "synthetic:rcv1?rows=200000",
    stores: Path = STORES,
    limit: str = LIMIT,
    recall: float = 0.95,
) -> None:
    """The approximate graph beside the exact one."""
    X = opened(corpus, stores)
    with engine.cluster(workers=2, memory_limit=limit) as client:
        knn(X.take_rows(np.arange(5000)), K, method="approx", recall=0.5)  # compile
        rows: list[tuple[Any, ...]] = []
        for run in ("first", "second", "third"):
            near, *quick = on_workers(client, lambda: knn(X, K, method="approx", recall=recall))
            most = worker_peak(client)
            true, *full = on_workers(client, lambda: knn(X, K))
            rows += [
                (f"approximate, {run} run", *quick, most, kept(near, true)),
                (f"exact, {run} run", *full, worker_peak(client), 1.0),
            ]
    table(
        f"approximate, {corpus}: "
        f"{min(r[1] for r in rows[::2]) / min(r[1] for r in rows[1::2]):.2f} ×; info "
        f"{near.info}",
        rows,
    )


@app.command()
def large(
    corpus: str = "synthetic:rcv1", stores: Path = STORES, limit: str = LIMIT, recall: float = 0.95
) -> None:
    """The approximate graph of all rows; recall measured by the graph itself."""
    X = opened(corpus, stores)
    with engine.cluster(workers=2, memory_limit=limit) as client:
        (_, info), *seconds = on_workers(
            client, lambda: stream_knn(X, K, discard, method="approx", recall=recall)
        )
        most = worker_peak(client)
    predicted = info["predicted"]["seconds"]
    table(
        f"{corpus}: exact predicted {predicted:,.0f} s of one core; info {info}",
        [("approximate", *seconds, most, info["recall"])],
    )


@app.command()
def scaling(corpus: str = "synthetic:real-sim", stores: Path = STORES, limit: str = LIMIT) -> None:
    """The same exact graph on one and on two workers."""
    X = opened(corpus, stores)
    rows, graphs = [], []
    for workers in (1, 2):
        with engine.cluster(workers=workers, memory_limit=limit) as client:
            knn(X, K)  # compile, and keep what fits
            runs = [on_workers(client, lambda: knn(X, K)) for _ in range(3)]
            graphs.append(runs[0][0])
            rows.append(
                (
                    f"{workers} workers",
                    *min(seconds for _, *seconds in runs),
                    worker_peak(client),
                    "",
                )
            )
    assert np.array_equal(graphs[0].index, graphs[1].index)
    assert np.array_equal(graphs[0].distance, graphs[1].distance)
    table(f"scaling, {corpus}: {rows[0][1] / rows[1][1]:.2f} ×, the same bits", rows)


# --- measuring ----------------------------------------------------------------------------------


def opened(corpus: str, stores: Path) -> Any:
    name = Path(corpus).name.removeprefix("synthetic:").replace("?", "-").replace("=", "-")
    return storage.open(storage.stage(corpus, stores / f"{name}.zarr", memory_limit="1GB")).X


def timed(run: Any, cpu: Any = time.process_time) -> tuple[Any, float, float]:
    """(what came back, seconds, CPU seconds): the latter say more on a machine that others use."""
    start, used = time.perf_counter(), cpu()
    value = run()
    return value, time.perf_counter() - start, cpu() - used


def on_workers(client: Any, run: Any) -> tuple[Any, float, float]:
    return timed(run, lambda: sum(client.run(time.process_time).values()))


def measured(run: Any, whole: sp.csr_matrix, found: Neighbors) -> tuple[float, float, float, float]:
    index, seconds, used = timed(lambda: run(whole))
    return (
        seconds,
        used,
        peak(),
        float(
            np.mean([len(np.intersect1d(a, b)) for a, b in zip(index, found.index, strict=True)])
            / K
        ),
    )


def topn(whole: sp.csr_matrix) -> Any:
    from sparse_dot_topn import sp_matmul_topn

    best = sp_matmul_topn(whole, whole.T.tocsr(), top_n=K + 1, n_threads=2, sort=True)
    return [row[row != i][:K] for i, row in enumerate(np.split(best.indices, best.indptr[1:-1]))]


def brute(whole: sp.csr_matrix) -> Any:
    from sklearn.neighbors import NearestNeighbors

    return (
        NearestNeighbors(n_neighbors=K, metric="cosine", algorithm="brute", n_jobs=2)
        .fit(whole)
        .kneighbors(return_distance=False)
    )


def normalized(X: Any) -> sp.csr_matrix:
    from sklearn.preprocessing import normalize

    return normalize(sp.csr_matrix(sp.vstack([tile.load() for tile in X.row_tiles])))


def kept(found: Neighbors, true: Neighbors) -> float:
    both = [
        len(np.intersect1d(a[a >= 0], b[b >= 0]))
        for a, b in zip(found.index, true.index, strict=True)
    ]
    return float(np.sum(both) / np.sum(true.index >= 0))


def discard(start: int, stop: int, index: Any, distance: Any) -> None:
    """A sink for timing."""


def peak() -> float:
    """The largest memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def worker_peak(client: Any) -> float:
    return float(max(client.run(peak).values()))


def table(title: str, rows: list[tuple[Any, ...]]) -> None:
    shown = Table("", "seconds", "CPU seconds", "peak MB a process", "recall", title=title)
    for name, *numbers in rows:
        shown.add_row(
            name,
            *(
                f"{n:,.3f}"
                if isinstance(n, float) and n <= 1
                else f"{n:,.1f}"
                if isinstance(n, float)
                else n
                for n in numbers
            ),
        )
    Console(width=160).print(shown)


if __name__ == "__main__":
    app()
