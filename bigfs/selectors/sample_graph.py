"""The affinity of the samples that a selector takes from the user or makes."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from bigfs.graph import Metric, Neighbors, Weights, affinity, knn
from bigfs.matrix import Matrix

GRAPH_CONSTRAINTS: dict[str, list[Any]] = {
    "n_neighbors": [Interval(Integral, 1, None, closed="left")],
    "metric": [StrOptions({"cosine", "euclidean"})],
    "graph": [HasMethods("tocsr"), Neighbors, None],
}


def sample_affinity(
    X: Matrix, graph: Any, n_neighbors: int, metric: Metric, weights: Weights | None = None
) -> sp.csr_array:
    """Return the affinity of the samples, from the given graph or a new one.

    Parameters
    ----------
    X : Matrix of shape (n, d)
        The samples.
    graph : sparse matrix of shape (n, n), Neighbors or None
        Affinity, or neighbors. None makes a kNN graph, an approximate one where the exact one is
        predicted to take more than ten minutes of one core (`knn` with `method="auto"`).
    n_neighbors : int
        Number of neighbors of each sample in a new graph.
    metric : {"cosine", "euclidean"}
        Distance of a new graph.
    weights : {"cosine", "heat", "binary"} or None, default=None
        Weights of neighbors. None means "cosine" for the metric "cosine", and "heat" for
        "euclidean".

    Returns
    -------
    csr_array of shape (n, n)
        The affinity.

    Raises
    ------
    ValueError
        The graph has another number of samples.
    """
    n = X.shape[0]
    if graph is None:
        graph = knn(X, n_neighbors, metric=metric, method="auto")
    if isinstance(graph, Neighbors):
        if len(graph.index) != n:
            raise ValueError(
                f"graph has {len(graph.index)} samples, but X has {n}: "
                f"give the graph of the samples of X"
            )
        return affinity(graph, weights or ("cosine" if graph.metric == "cosine" else "heat"))
    if graph.shape != (n, n):
        raise ValueError(
            f"graph has shape {graph.shape}, but X has {n} samples: give their n × n affinity"
        )
    return sp.csr_array(graph, dtype=np.float64)
