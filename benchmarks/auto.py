"""The number of features chosen by itself, its accuracy, and that of all features.

python benchmarks/auto.py DATA OUT [CORPUS…]

DATA holds 20news-bydate.tar.xz, PCMAC.mat, COIL20.mat and colon.mat. Stores and runs are written to
OUT. 20 Newsgroups is scored on its test half, the others by five folds in which the number is
chosen again.
"""

import sys
import time
from pathlib import Path

from flows import stages

CORPORA = {
    "colon": "colon.mat",
    "20news": "20news-bydate.tar.xz",
    "pcmac": "PCMAC.mat",
    "coil20": "COIL20.mat",
}


def measure(data: Path, out: Path, corpus: str, method: str) -> str:
    """Return a row of the table: corpus, method, number, accuracy, all features, seconds."""
    began = time.perf_counter()
    store = stages.stage(str(data / CORPORA[corpus]), str(out / f"{corpus}.zarr"))["store"]
    run = stages.select(store, out / f"{corpus}-{method}", method=method, features="auto")
    folds = None if corpus == "20news" else 5
    points = {
        (p.method, p.n_features): p.scores["accuracy"]
        for p in stages.evaluate(run, baselines=(), folds=folds)
    }
    m = len(run.selected)
    tried = run.metadata["size_choice"]["sizes"][-1]
    stages.finish(run)
    (every,) = [f"{v:.4f} ({k:,})" for (name, k), v in points.items() if name == "all features"]
    seconds = time.perf_counter() - began
    cells = [corpus, method, f"{m:,} of {tried:,}", f"{points[method, m]:.4f}", every]
    return f"| {' | '.join(cells)} | {seconds:.0f} |"


if __name__ == "__main__":
    folder, results, *names = sys.argv[1:]
    for name in names or CORPORA:
        for method in ("sparge-lda", "anova"):
            print(measure(Path(folder), Path(results), name, method), flush=True)
