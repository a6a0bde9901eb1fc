"""Hypergraphs of the samples: their incidence, their smoothness, hyperedges by the lasso."""

from bigfs.graph.hypergraph.hypergraph import (
    Hypergraph,
    edge_hyperedges,
    label_hyperedges,
    neighbor_hyperedges,
)

__all__ = ["Hypergraph", "edge_hyperedges", "label_hyperedges", "neighbor_hyperedges"]
