"""Embeddings of the samples: spectral decompositions, kernels, and the responses of SparGE."""
