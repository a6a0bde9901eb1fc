"""Corpora in Zarr: formats in, chunks out."""
