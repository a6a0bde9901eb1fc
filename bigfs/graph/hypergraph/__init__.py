"""Hypergraphs of the samples: their incidence, their smoothness, hyperedges by the lasso."""
