"""How well k-means finds the classes in the features that the methods on a neighbor graph choose.

python benchmarks/clusters.py ../shared/data

Each method chooses from subsamples of 90 % of the samples, by the graph of their five nearest
neighbors by cosine. A table has the mean NMI of k-means with the classes over the subsamples.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from shared import matlab, mean_error, table
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from threadpoolctl import threadpool_limits

from bigfs import JELSR, MCFS, SPEC, SparGE
from bigfs.result import NotConverged

SIZES = (50, 100, 200)
SHARE = 0.9
STARTS = 2  # of k-means, each the best of three

Choice = dict[int, np.ndarray]


def by_order(make: Callable[..., SPEC | JELSR]) -> Callable[[np.ndarray], Choice]:
    def choose(X: np.ndarray) -> Choice:
        order = make(n_features_to_select=max(SIZES)).fit(X).selected_
        return {m: order[:m] for m in SIZES}

    return choose


def by_path(X: np.ndarray) -> Choice:
    paths = SparGE(embedding="lpp").fit_path(X, None, SIZES)
    return {m: s.selected_ for m, s in paths.items()}


METHODS: dict[str, Callable[[np.ndarray], Choice]] = {
    "SparGE lpp": by_path,
    "MCFS": lambda X: {m: MCFS(n_features_to_select=m).fit(X).selected_ for m in SIZES},
    "SPEC": by_order(SPEC),
    "JELSR": by_order(JELSR),
}


def nmi(X: np.ndarray, y: np.ndarray) -> float:
    models = [KMeans(len(np.unique(y)), n_init=3, random_state=seed) for seed in range(STARTS)]
    return float(np.mean([normalized_mutual_info_score(y, m.fit_predict(X)) for m in models]))


def main(
    data: Annotated[Path, typer.Argument(help="Folder of the MATLAB files.")],
    names: Annotated[list[str] | None, typer.Option("--only", help="Data sets.")] = None,
    subsamples: Annotated[int, typer.Option(help="Subsamples per data set.")] = 3,
) -> None:
    """Print a table per data set."""
    warnings.simplefilter("ignore", NotConverged)
    for name in names or ("COIL20", "ORL", "Isolet"):
        X, y = matlab(data, name)
        rows = []
        with threadpool_limits(1):
            for method, choose in METHODS.items():
                values = np.empty((subsamples, len(SIZES)))
                for seed in range(subsamples):
                    order = np.random.default_rng(seed).permutation(len(X))
                    part = np.sort(order[: int(SHARE * len(X))])
                    chosen = choose(X[part])
                    values[seed] = [nmi(X[part][:, chosen[m]], y[part]) for m in SIZES]
                rows.append([method, *map(mean_error, values.T), f"{values.mean():.3f}"])
        title = f"{name}: NMI of k-means, {subsamples} subsamples"
        table(title, ["method", *map(str, SIZES), "mean"], rows)


if __name__ == "__main__":
    typer.run(main)
