"""Graphs of the samples: k nearest neighbors by tile, affinities, Laplacians."""

import warnings
from typing import Any

from bigfs.graph.affinities import (
    Components,
    Weights,
    affinity,
    components,
    laplacian,
    laplacian_operator,
)
from bigfs.graph.neighbors import Bridges, Metric, Neighbors, knn, stream_knn
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
    "laplacian_operator",
    "stream_knn",
    "with_bridges",
]


def __getattr__(name: str) -> Any:
    """Return `Neighbors` under its name of version 0.1, with a warning."""
    if name == "Neighbours":
        warnings.warn(
            "bigfs.graph.Neighbours is now bigfs.graph.Neighbors; the old name goes in version 0.2",
            DeprecationWarning,
            stacklevel=2,
        )
        return Neighbors
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
