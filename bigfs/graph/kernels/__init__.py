"""The compiled kernels of the kNN graph."""
