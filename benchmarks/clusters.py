"""How well k-means finds the classes in the features that the methods on a neighbor graph choose.

Each method chooses from subsamples of 90 % of the samples, by the graph of their five nearest
neighbors by cosine. It is given the numbers of features alone. A table has the mean NMI of k-means
with the classes, and its standard error over the subsamples.

python benchmarks/clusters.py ../shared/data
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import scipy.io
import typer
from shared import table
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from threadpoolctl import threadpool_limits

from bigfs import JELSR, MCFS, SPEC, SparGE
from bigfs.result import NotConverged

SIZES = (50, 100, 200)
SHARE = 0.9
STARTS = 2  # of k-means, each the best of three

Choice = dict[int, np.ndarray]


def by_path(X: np.ndarray) -> Choice:
    paths = SparGE(embedding="lpp").fit_path(X, None, SIZES)
    return {m: s.selected_ for m, s in paths.items()}


def by_size(X: np.ndarray) -> Choice:
    return {m: MCFS(n_features_to_select=m).fit(X).selected_ for m in SIZES}


def by_order(make: Callable[..., SPEC | JELSR]) -> Callable[[np.ndarray], Choice]:
    def choose(X: np.ndarray) -> Choice:
        order = make(n_features_to_select=max(SIZES)).fit(X).selected_
        return {m: order[:m] for m in SIZES}

    return choose


METHODS = {
    "SparGE lpp": by_path,
    "MCFS": by_size,
    "SPEC": by_order(SPEC),
    "JELSR": by_order(JELSR),
}


def nmi(X: np.ndarray, y: np.ndarray, columns: np.ndarray) -> float:
    k = len(np.unique(y))
    fits = [
        KMeans(k, n_init=3, random_state=seed).fit_predict(X[:, columns]) for seed in range(STARTS)
    ]
    return float(np.mean([normalized_mutual_info_score(y, labels) for labels in fits]))


def main(
    data: Annotated[Path, typer.Argument(help="Folder of the MATLAB files.")],
    names: Annotated[list[str] | None, typer.Option("--only", help="Data sets.")] = None,
    subsamples: Annotated[int, typer.Option(help="Subsamples per data set.")] = 3,
) -> None:
    """Print a table per data set."""
    warnings.simplefilter("ignore", NotConverged)
    for name in names or ("COIL20", "ORL", "Isolet"):
        file = scipy.io.loadmat(data / f"{name}.mat")
        X, y = file["X"].astype(np.float64), file["Y"].ravel()
        rows = []
        with threadpool_limits(1):
            for method, choose in METHODS.items():
                values = np.empty((subsamples, len(SIZES)))
                for seed in range(subsamples):
                    rng = np.random.default_rng(seed)
                    part = np.sort(rng.permutation(len(X))[: int(SHARE * len(X))])
                    chosen = choose(X[part])
                    values[seed] = [nmi(X[part], y[part], chosen[m]) for m in SIZES]
                error = values.std(axis=0, ddof=1) / np.sqrt(subsamples)
                cells = [
                    f"{v:.3f} ± {e:.3f}" for v, e in zip(values.mean(axis=0), error, strict=True)
                ]
                rows.append([method, *cells, f"{values.mean():.3f}"])
        title = f"{name}: NMI of k-means, {subsamples} subsamples"
        table(title, ["method", *map(str, SIZES), "mean"], rows)


if __name__ == "__main__":
    typer.run(main)
