"""Corpora in Zarr: read many formats, and store them in chunks by rows and by columns."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigfs.storage.appending import append as append
    from bigfs.storage.corpus import Corpus as Corpus
    from bigfs.storage.errors import CorruptStoreError as CorruptStoreError
    from bigfs.storage.errors import SourceError as SourceError
    from bigfs.storage.errors import StoreError as StoreError
    from bigfs.storage.graphs import Graph as Graph
    from bigfs.storage.graphs import graph as graph
    from bigfs.storage.graphs import open_graph as open_graph
    from bigfs.storage.integrity import CheckResult as CheckResult
    from bigfs.storage.integrity import check as check
    from bigfs.storage.integrity import info as info
    from bigfs.storage.looking import look as look
    from bigfs.storage.opening import open as open
    from bigfs.storage.prune import delete_unused as delete_unused
    from bigfs.storage.prune import find_unused as find_unused
    from bigfs.storage.staging.stage import find_store as find_store
    from bigfs.storage.staging.stage import stage as stage

_MODULES = {
    "appending": ("append",),
    "corpus": ("Corpus",),
    "opening": ("open",),
    "prune": ("delete_unused", "find_unused"),
    "errors": ("CorruptStoreError", "SourceError", "StoreError"),
    "graphs": ("Graph", "graph", "open_graph"),
    "integrity": ("CheckResult", "check", "info"),
    "looking": ("look",),
    "staging.stage": ("find_store", "stage"),
}

__all__ = sorted(name for names in _MODULES.values() for name in names)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a worker that reads tiles loads no format."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"bigfs.storage.{module}"), name)
    raise AttributeError(f"module 'bigfs.storage' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, so that tab completion shows them before they are imported."""
    return sorted({*__all__, "__doc__"})
