"""Graphs of the samples: k nearest neighbors by tile, affinities, Laplacians."""

from bigfs.graph.affinities import (
    Components,
    Weights,
    affinity,
    components,
    laplacian,
)
from bigfs.graph.edges import Bridges, Metric, Neighbors
from bigfs.graph.neighbors import knn, stream_knn
from bigfs.graph.spanning_tree import find_bridges, with_bridges

__all__ = [
    "Bridges",
    "Components",
    "Metric",
    "Neighbors",
    "Weights",
    "affinity",
    "components",
    "find_bridges",
    "knn",
    "laplacian",
    "stream_knn",
    "with_bridges",
]
