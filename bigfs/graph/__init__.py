"""Graphs of the samples: k nearest neighbours by tile, affinities, Laplacians."""

from bigfs.graph.neighbours import Neighbours, knn, stream_knn
from bigfs.graph.weights import Components, affinity, components, laplacian, laplacian_operator

__all__ = ["Components", "Neighbours", "affinity", "components", "knn", "laplacian", "laplacian_operator", "stream_knn"]
