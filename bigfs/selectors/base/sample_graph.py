"""The graph of the samples that a selector takes from the user or makes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
import scipy.sparse as sp

from bigfs.embedding.spectral import (
    Components,
    Embedding,
    default_width,
    graph_embedding,
    graph_parts,
    require_width,
)
from bigfs.graph.affinities import (
    Weights,
    affinity,
    components,
    without_negligible_edges,
)
from bigfs.graph.edges import Metric, Neighbors
from bigfs.graph.neighbors import knn
from bigfs.graph.spanning_tree import with_bridges
from bigfs.matrix import Matrix
from bigfs.result import Result, Status
from bigfs.types import AnyArray

SYMMETRIC = 1e-12  # largest difference of A and Aᵀ that is rounding, as a share of the largest edge


@dataclass(frozen=True)
class SampleGraph:
    """An affinity of the samples, and what a result says about it."""

    A: sp.csr_array  # n × n
    n_neighbors: int  # a component of fewer samples than this and one is set aside
    stats: dict[str, Any]  # for the result

    @property
    def status(self) -> Status:
        """The status of a closed form on this graph."""
        return Status.FINISHED if self.stats["graph_method"] == "approx" else Status.EXACT

    @cached_property
    def parts(self) -> Components:
        """The components that are not set aside."""
        return graph_parts(self.A, self.n_neighbors)

    def default_width(self, d: int) -> int:
        """Return how many eigenvectors are taken for d features without a choice."""
        return default_width(self.A.shape[0], d, self.parts.n_set_aside)

    def embedding(self, r: int, *, positive: bool = True) -> Result[Embedding]:
        """Return the r leading non-trivial eigenvectors, fewer where fewer have a positive value.

        `stats` gets what they say.
        """
        result = graph_embedding(self.A, r, self.parts, positive=positive)
        self.stats.update(embedding_stats(result))
        return result

    def targets(self, n_components: int | None, d: int, is_exact: bool = True) -> AnyArray:
        """Return T (n × r) for d features, of the width that is asked for or the default one.

        If `is_exact`, a width that the graph does not have is refused.
        """
        result = self.embedding(n_components or self.default_width(d))
        return require_width(result, n_components if is_exact else None).value.vectors


def embedding_stats(result: Result[Embedding]) -> dict[str, Any]:
    """Return what the result of a method says about its embedding."""
    known = ("n_set_aside", "contrasts", "degenerate")
    return {
        "embedding_status": result.status.name,
        "embedding_residual": result.stats["residual"],
        **{name: result.stats[name] for name in known if name in result.stats},
    }


def neighbors_of(X: Matrix, n_neighbors: int, metric: Metric) -> tuple[Neighbors, dict[str, Any]]:
    """Return the nearest samples of each one, at most all others, and what the result says of them.

    The graph is approximate where the exact one is predicted to take more than ten minutes of one
    core (`knn` with `method="auto"`).
    """
    graph = knn(X, min(n_neighbors, X.shape[0] - 1), metric=metric, method="auto")
    return graph, neighbor_stats(graph)


def neighbor_stats(graph: Neighbors) -> dict[str, Any]:
    """Return how the neighbors were found, and the measured recall of approximate ones."""
    stats: dict[str, Any] = {"graph_method": graph.info.get("method", "given")}
    if "recall" in graph.info:
        stats["graph_recall"] = graph.info["recall"]
    return stats


def joined_neighbors(
    X: Matrix, graph: Any, n_neighbors: int, metric: Metric
) -> tuple[Neighbors, dict[str, Any]]:
    """Return the neighbors of each sample with bridges, and what the result says about them.

    `graph` is `Neighbors` or None. Neighbors of a metric that `knn` does not have are left as they
    are.
    """
    if graph is None:
        graph, _ = neighbors_of(X, n_neighbors, metric)
    if len(graph.index) != X.shape[0]:
        raise ValueError(
            f"graph has {len(graph.index)} samples, but X has {X.shape[0]}: "
            f"give the graph of the samples of X"
        )
    if graph.metric in get_args(Metric):
        graph = with_bridges(X, graph)
    stats = neighbor_stats(graph)
    if graph.bridges is not None:
        stats["n_components"] = graph.bridges.n_components
        stats["n_joined"] = len(graph.bridges.distance)
    return graph, stats


def sample_graph(
    X: Matrix, graph: Any, n_neighbors: int, metric: Metric, weights: Weights | None = None
) -> SampleGraph:
    """Return the affinity of the samples, from the given affinity or neighbors, or a new kNN graph.

    Without `weights` the edges have cosine weights for the metric "cosine", and heat weights for
    "euclidean". The components of a kNN graph are joined by bridges, not those of an affinity. An
    affinity is refused where an edge is negative or not finite.
    """
    n = X.shape[0]
    if graph is None or isinstance(graph, Neighbors):
        neighbors, stats = joined_neighbors(X, graph, n_neighbors, metric)
        n_neighbors = neighbors.index.shape[1]
        A = affinity(neighbors, weights or ("cosine" if neighbors.metric == "cosine" else "heat"))
    elif graph.shape == (n, n):
        A, stats = _checked(graph), {"graph_method": "given"}
    else:
        raise ValueError(
            f"graph has shape {graph.shape}, but X has {n} samples: give their n × n affinity"
        )
    stats = {"n_components": components(A).count, "n_joined": 0} | stats
    return SampleGraph(A, n_neighbors, stats)


def _checked(graph: Any) -> sp.csr_array:
    """Return an affinity of the user without its diagonal, and symmetric."""
    A = sp.csr_array(graph, dtype=np.float64)
    if not A.data.all():
        A = A.copy()
        A.eliminate_zeros()
    if not np.isfinite(A.data).all() or A.data.min(initial=0) < 0:
        raise ValueError(
            "graph has edges that are negative or not finite: give weights ≥ 0, such as "
            "exp(−distance²) or 1 − cosine distance"
        )
    if A.diagonal().any():
        A = sp.csr_array(A - sp.diags_array(A.diagonal()))
        A.eliminate_zeros()
    asymmetry = float(abs(A - A.T).max()) if A.nnz else 0.0
    if asymmetry > 0:
        if asymmetry > SYMMETRIC * A.data.max():
            warnings.warn(
                "graph is not symmetric, so the larger weight of A and Aᵀ is taken: give "
                "A.maximum(A.T) to choose it yourself",
                stacklevel=2,
            )
        A = sp.csr_array(A.maximum(A.T))
    return without_negligible_edges(A)
