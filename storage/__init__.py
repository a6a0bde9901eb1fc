"""Corpora in Zarr: formats in, chunks out."""

from storage.corpus import Corpus, open
from storage.errors import Damaged, SourceError, StoreError
from storage.staging import stage, staged

__all__ = ["Corpus", "Damaged", "SourceError", "StoreError", "open", "stage", "staged"]
