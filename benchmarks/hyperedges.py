"""What screening loses: the share of the full lasso's members that the nearest neighbours hold.

python benchmarks/hyperedges.py PATH/20news-bydate.tar.xz
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
import typer
from rich.console import Console
from rich.table import Table

import storage
from bigfs.graph import knn
from bigfs.graph.hypergraph.lasso import PENALTIES, lasso_supports
from bigfs.matrix import Matrix


def main(
    source: str, stores: Path = Path(".bigfs/benchmarks"), documents: int = 2000, samples: int = 100
) -> None:
    """The full model of some samples on all the documents of a random subset."""
    corpus = storage.open(
        storage.stage(source, stores / f"{Path(source).name}.zarr", memory_limit="1GB")
    )
    rng = np.random.default_rng(0)
    X = sp.csr_array(sp.vstack([t.load() for t in corpus.X.row_tiles]), dtype=np.float64)
    X = X[np.sort(rng.permutation(X.shape[0])[:documents])]
    G = (X @ X.T).toarray()
    near = knn(Matrix.from_array(X), documents // 4).index
    counts = (10, 25, 50, 100, 200, documents // 4)
    kept = np.zeros((len(counts), len(PENALTIES)))
    members = np.zeros(len(PENALTIES))
    for i in rng.permutation(documents)[:samples]:
        others = np.delete(np.arange(documents), i)
        for p, support in enumerate(
            lasso_supports(G[np.ix_(others, others)], G[others, i], sorted(PENALTIES, reverse=True))
        ):
            members[p] += len(support)
            for c, count in enumerate(counts):
                kept[c, p] += len(np.intersect1d(others[support], near[i, :count]))
    table = Table(
        "candidates",
        *(f"{rho:.1f}" for rho in sorted(PENALTIES, reverse=True)),
        "all",
        title=f"{documents} documents, {samples} samples",
    )
    table.add_row(
        "members a sample",
        *(f"{m / samples:.1f}" for m in members),
        f"{members.sum() / samples:.1f}",
    )
    for count, row in zip(counts, kept, strict=True):
        table.add_row(
            str(count),
            *(f"{k / max(m, 1):.3f}" for k, m in zip(row, members, strict=True)),
            f"{row.sum() / members.sum():.3f}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    typer.run(main)
