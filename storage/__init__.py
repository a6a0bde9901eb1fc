"""Corpora in Zarr: formats in, chunks out."""

from storage.append import append
from storage.corpus import Corpus, open
from storage.errors import Damaged, SourceError, StoreError
from storage.graphs import Graph, graph, open_graph
from storage.integrity import Report, check, info
from storage.staging import stage, staged

__all__ = [
    "Corpus",
    "Damaged",
    "Graph",
    "Report",
    "SourceError",
    "StoreError",
    "append",
    "check",
    "graph",
    "info",
    "open",
    "open_graph",
    "stage",
    "staged",
]
