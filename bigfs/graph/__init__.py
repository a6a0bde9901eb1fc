"""Graphs of the samples: k nearest neighbours by tile, affinities, Laplacians."""

from bigfs.graph.affinities import (
    Components,
    Weights,
    affinity,
    components,
    laplacian,
    laplacian_operator,
)
from bigfs.graph.neighbors import Metric, Neighbours, knn, stream_knn

__all__ = [
    "Components",
    "Metric",
    "Neighbours",
    "Weights",
    "affinity",
    "components",
    "knn",
    "laplacian",
    "laplacian_operator",
    "stream_knn",
]
