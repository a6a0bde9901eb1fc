"""Sparse coding: features that explain the codes of the samples."""
