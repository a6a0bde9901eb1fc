"""Graphs of the samples: k nearest neighbours by tile, affinities, Laplacians."""

from bigfs.graph.neighbours import Metric, Neighbours, knn, stream_knn
from bigfs.graph.weights import Components, Weights, affinity, components, laplacian, laplacian_operator

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
