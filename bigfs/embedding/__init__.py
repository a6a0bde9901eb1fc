"""Embeddings of the samples: spectral decompositions, kernels, and the targets of SparGE."""
