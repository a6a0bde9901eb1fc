"""Exact and approximate neighbors: time, memory, recall, scaling; what screened hyperedges lose.

python benchmarks/knn.py exact          # against sparse_dot_topn and scikit-learn, Real-Sim scale
python benchmarks/knn.py approx         # against the exact graph, RCV1 of 200,000 rows
python benchmarks/knn.py large          # all of RCV1 scale, approximate
python benchmarks/knn.py scaling        # 1 and 2 workers
python benchmarks/knn.py hyperedges 20news-bydate.tar.xz
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import typer
from shared import STORES, Timed, peaks, show_turns, table, timed
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

from bigfs import engine, storage
from bigfs.graph import Neighbors, knn, stream_knn
from bigfs.graph.hypergraph.lasso import PENALTIES, lasso_supports
from bigfs.matrix import Matrix

app = typer.Typer(help=__doc__)
K = 10
LIMIT = typer.Option("512MB", help="Memory limit of each worker.")
KEPT = typer.Option(STORES, help="Where the generated corpora are kept.")


def opened(corpus: str, stores: Path) -> Any:
    name = Path(corpus).name.removeprefix("synthetic:").replace("?", "-").replace("=", "-")
    return storage.open(storage.stage(corpus, stores / f"{name}.zarr", memory_limit="1GB")).X


def whole(X: Any) -> sp.csr_matrix:
    return sp.csr_matrix(sp.vstack([tile.load() for tile in X.row_tiles]))


def reached_recall(found: Any, true: Neighbors) -> float:
    """Share of the true neighbors that are found."""
    pairs = zip(found, true.index, strict=True)
    both = sum(len(np.intersect1d(a[a >= 0], b[b >= 0])) for a, b in pairs)
    return both / np.count_nonzero(true.index >= 0)


def by_sparse_dot_topn(rows: sp.csr_matrix) -> Any:
    from sparse_dot_topn import sp_matmul_topn

    best = sp_matmul_topn(rows, rows.T.tocsr(), top_n=K + 1, n_threads=2, sort=True)
    return [row[row != i][:K] for i, row in enumerate(np.split(best.indices, best.indptr[1:-1]))]


def by_scikit_learn(rows: sp.csr_matrix) -> Any:
    model = NearestNeighbors(n_neighbors=K, metric="cosine", algorithm="brute", n_jobs=2)
    return model.fit(rows).kneighbors(return_distance=False)


@app.command()
def exact(
    corpus: str = "synthetic:real-sim", stores: Path = KEPT, limit: str = LIMIT, peers: bool = True
) -> None:
    """The exact graph on two workers, then the peers on the whole matrix in memory."""
    X = opened(corpus, stores)
    with engine.cluster(workers=2, memory_limit=limit):
        runs = [timed(lambda: knn(X, K)) for _ in range(2)]
        print(peaks())
    found: dict[str, list[Timed]] = {"bigfs, first and second run": runs}
    true, rows = runs[0].value, normalize(whole(X))
    for name, call in (("sparse_dot_topn", by_sparse_dot_topn), ("scikit-learn", by_scikit_learn)):
        if peers:
            engine.reset_peak_memory()
            run = timed(call, rows)
            print(f"{name}: {reached_recall(run.value, true):.3f} of the neighbors, {peaks()}")
            found[name] = [run]
    show_turns(f"exact, {corpus}: {X.shape[0]:,} × {X.shape[1]:,}", found)


@app.command()
def approx(
    corpus: str = "synthetic:rcv1?rows=200000",
    stores: Path = KEPT,
    limit: str = LIMIT,
    recall: float = 0.95,
    turns: int = 3,
) -> None:
    """The approximate graph and the exact one, by turns."""
    X = opened(corpus, stores)
    calls: dict[str, Callable[[], Neighbors]] = {
        "approximate": lambda: knn(X, K, method="approx", recall=recall),
        "exact": lambda: knn(X, K),
    }
    found: dict[str, list[Timed]] = {name: [] for name in calls}
    most = dict.fromkeys(calls, "")
    with engine.cluster(workers=2, memory_limit=limit):
        knn(X.take_rows(np.arange(min(5000, X.shape[0]))), K, method="approx", recall=0.5)
        for _ in range(turns):
            for name, call in calls.items():
                engine.reset_peak_memory()
                found[name].append(timed(call))
                most[name] = peaks()
    near, true = (runs[0].value for runs in found.values())
    show_turns(f"{corpus}: recall {reached_recall(near.index, true):.3f}, {near.info}", found)
    print(most)


@app.command()
def large(
    corpus: str = "synthetic:rcv1", stores: Path = KEPT, limit: str = LIMIT, recall: float = 0.95
) -> None:
    """The approximate graph of all rows. It measures its recall itself."""
    X = opened(corpus, stores)
    with engine.cluster(workers=2, memory_limit=limit):
        run = timed(lambda: stream_knn(X, K, lambda *_: None, method="approx", recall=recall))
        print(peaks())
    info = run.value[1]
    predicted = info["predicted"]["seconds"]
    show_turns(
        f"{corpus}: recall {info['recall']}, exact predicted {predicted:,.0f} s of one core",
        {"approximate": [run]},
    )


@app.command()
def scaling(corpus: str = "synthetic:real-sim", stores: Path = KEPT, limit: str = LIMIT) -> None:
    """The same exact graph on one and on two workers."""
    X, found = opened(corpus, stores), {}
    for workers in (1, 2):
        with engine.cluster(workers=workers, memory_limit=limit):
            knn(X, K)  # compile, and keep what fits
            found[f"{workers} workers"] = [timed(lambda: knn(X, K)) for _ in range(3)]
    one, two = found.values()
    assert np.array_equal(one[0].value.index, two[0].value.index)
    assert np.array_equal(one[0].value.distance, two[0].value.distance)
    ratio = min(run.seconds for run in one) / min(run.seconds for run in two)
    show_turns(f"scaling, {corpus}: {ratio:.2f} ×, the same bits", found)


@app.command()
def hyperedges(source: str, stores: Path = KEPT, documents: int = 2000, samples: int = 100) -> None:
    """The share of the members of a lasso on all others that the nearest neighbors hold."""
    rng = np.random.default_rng(0)
    X = sp.csr_array(whole(opened(source, stores)), dtype=np.float64)
    X = X[np.sort(rng.permutation(X.shape[0])[:documents])]
    G = (X @ X.T).toarray()
    near = knn(Matrix.from_array(X), documents // 4).index
    counts, penalties = (10, 25, 50, 100, 200, documents // 4), sorted(PENALTIES, reverse=True)
    held, members = np.zeros((len(counts), len(penalties))), np.zeros(len(penalties))
    for i in rng.permutation(documents)[:samples]:
        others = np.delete(np.arange(documents), i)
        samples = np.append(others, i)
        supports = lasso_supports(G[np.ix_(samples, samples)], penalties)
        for p, support in enumerate(supports):
            members[p] += len(support)
            for c, count in enumerate(counts):
                held[c, p] += len(np.intersect1d(others[support], near[i, :count]))
    shares = np.column_stack([held / np.maximum(members, 1), held.sum(axis=1) / members.sum()])
    rows = [["members per sample", *(f"{m / samples:.1f}" for m in (*members, members.sum()))]]
    rows += [[str(c), *(f"{v:.3f}" for v in row)] for c, row in zip(counts, shares, strict=True)]
    head = ["candidates", *(f"{rho:.1f}" for rho in penalties), "all"]
    table(f"{documents} documents, {samples} samples", head, rows)


if __name__ == "__main__":
    app()
