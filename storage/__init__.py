"""Corpora in Zarr: read many formats, and store them in chunks by rows and by columns."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storage.appending import append
    from storage.corpus import Corpus
    from storage.errors import Damaged, SourceError, StoreError
    from storage.graphs import Graph, graph, open_graph
    from storage.integrity import Report, check, info
    from storage.opening import open
    from storage.prune import delete_leftovers, leftovers
    from storage.staging.stage import stage, staged

_MODULES = {
    "appending": ("append",),
    "corpus": ("Corpus",),
    "opening": ("open",),
    "prune": ("delete_leftovers", "leftovers"),
    "errors": ("Damaged", "SourceError", "StoreError"),
    "graphs": ("Graph", "graph", "open_graph"),
    "integrity": ("Report", "check", "info"),
    "staging.stage": ("stage", "staged"),
}

__all__ = [
    "Corpus",
    "Damaged",
    "Graph",
    "Report",
    "SourceError",
    "StoreError",
    "append",
    "check",
    "delete_leftovers",
    "graph",
    "info",
    "leftovers",
    "open",
    "open_graph",
    "stage",
    "staged",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a worker that reads tiles loads no format."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"storage.{module}"), name)
    raise AttributeError(f"module 'storage' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, so that tab completion shows them before they are imported."""
    return sorted({*__all__, "__doc__"})
