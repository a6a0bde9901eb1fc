"""Embeddings of the samples: spectral decompositions, and the responses T that SparGE explains."""
