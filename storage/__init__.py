"""Corpora in Zarr: formats in, chunks out."""

from storage.append import append
from storage.corpus import Corpus, open
from storage.errors import Damaged, SourceError, StoreError
from storage.integrity import Report, check, info
from storage.staging import stage, staged

__all__ = ["Corpus", "Damaged", "Report", "SourceError", "StoreError", "append", "check", "info", "open", "stage", "staged"]
