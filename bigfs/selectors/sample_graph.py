"""The affinity of the samples that a selector takes from the user or makes."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from bigfs.graph import Metric, Neighbors, affinity, knn
from bigfs.matrix import Matrix


def sample_affinity(X: Matrix, graph: Any, n_neighbors: int, metric: Metric) -> sp.csr_array:
    """Return the affinity of the samples, from the given graph or a new one.

    Parameters
    ----------
    X : Matrix of shape (n, d)
        The samples.
    graph : sparse matrix of shape (n, n), Neighbors or None
        Affinity, or neighbors. None makes a kNN graph.
    n_neighbors : int
        Number of neighbors of each sample in a new graph.
    metric : {"cosine", "euclidean"}
        Distance of a new graph. Neighbors get cosine weights for "cosine" and heat weights for
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
    if graph is None:
        graph = knn(X, n_neighbors, metric=metric)
    if isinstance(graph, Neighbors):
        return affinity(graph, weights="cosine" if graph.metric == "cosine" else "heat")
    if graph.shape != (X.shape[0], X.shape[0]):
        raise ValueError(
            f"graph has shape {graph.shape}, but X has {X.shape[0]} "
            f"samples: give their n × n affinity"
        )
    return sp.csr_array(graph)
