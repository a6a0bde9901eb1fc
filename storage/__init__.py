"""Corpora in Zarr: read many formats, and store them in chunks by rows and by columns."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storage.appending import append as append
    from storage.corpus import Corpus as Corpus
    from storage.errors import Damaged as Damaged
    from storage.errors import SourceError as SourceError
    from storage.errors import StoreError as StoreError
    from storage.graphs import Graph as Graph
    from storage.graphs import graph as graph
    from storage.graphs import open_graph as open_graph
    from storage.integrity import Report as Report
    from storage.integrity import check as check
    from storage.integrity import info as info
    from storage.opening import open as open
    from storage.prune import delete_leftovers as delete_leftovers
    from storage.prune import leftovers as leftovers
    from storage.staging.stage import stage as stage
    from storage.staging.stage import staged as staged

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

__all__ = sorted(name for names in _MODULES.values() for name in names)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a worker that reads tiles loads no format."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"storage.{module}"), name)
    raise AttributeError(f"module 'storage' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, so that tab completion shows them before they are imported."""
    return sorted({*__all__, "__doc__"})
