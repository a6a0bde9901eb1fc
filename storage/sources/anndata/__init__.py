"""The matrix, labels and names of a file that anndata wrote."""
