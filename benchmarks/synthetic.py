"""Generated corpora: how fast one core makes them, and how like the real ones they are.

python benchmarks/synthetic.py --nonzeros 5e6
"""

from __future__ import annotations

import time
from typing import Annotated

import numpy as np
import typer

from storage.sources import find
from storage.sources.synthetic.source import CORPORA
from storage.sources.synthetic.text import TextSpec


def main(
    nonzeros: Annotated[float, typer.Option(help="to generate of each corpus, at most")] = 5e6,
) -> None:
    """One line a corpus: rows generated, non-zeros a row (and the real corpus's), speed, the
    largest document frequency.
    """
    print(
        f"{'corpus':12} {'rows':>8} {'nnz/row':>9} {'real':>9} {'Mnnz/s':>7} "
        f"{'max df':>7} {'df at 1 %':>9}"
    )
    for name, spec in CORPORA.items():
        real = spec.nnz if isinstance(spec, TextSpec) else float(np.prod(spec.shape))
        source = find(f"synthetic:{name}")
        rows = min(spec.n, int(nonzeros / real))
        source.read((0, 1))  # the tables that all blocks share are made once
        nnz, counts = 0, np.zeros(source.n_features or 0, dtype=np.int64)
        spent = 0.0
        for start in range(0, rows, spec.block):
            began = time.perf_counter()
            X = source.read((start, min(start + spec.block, rows))).X
            spent += time.perf_counter() - began
            nnz += X.nnz
            counts += np.bincount(X.indices, minlength=len(counts))
        df = np.sort(counts)[::-1] / rows
        speed = nnz / spent / 1e6
        print(
            f"{name:12} {rows:8,} {nnz / rows:9.1f} {real:9.1f} {speed:7.1f} "
            f"{df[0]:7.2f} {df[len(df) // 100]:9.4f}"
        )


if __name__ == "__main__":
    typer.run(main)
