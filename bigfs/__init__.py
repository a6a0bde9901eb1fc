"""Feature selection for data that does not fit in memory."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bigfs.selectors.registry import MODULES as _SELECTORS

if TYPE_CHECKING:
    from bigfs import plot as plot  # a module, which `__getattr__` imports
    from bigfs.engine import cluster as cluster
    from bigfs.engine.display import progress as progress
    from bigfs.matrix import Matrix as Matrix
    from bigfs.selectors import *  # noqa: F403, the names that type checkers see
    from bigfs.selectors.selector_cv import SelectorCV as SelectorCV
    from bigfs.selectors.sparge.audit import audit as audit
    from bigfs.selectors.stability import stability as stability

__version__ = "1.0.0rc1.dev0"

logging.getLogger("bigfs").addHandler(logging.NullHandler())  # silent until the user listens

_MODULES = {
    "cluster": "engine",
    "Matrix": "matrix",
    "SelectorCV": "selectors.selector_cv",
    "audit": "selectors.sparge.audit",
    "progress": "engine.display",
    "run": "flows.main_job",  # above this package, so it is named as text
    "stability": "selectors.stability",
    **{name: f"selectors.{module}" for name, module in _SELECTORS.items()},
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the command's help loads no library."""
    if name == "plot":
        return import_module("bigfs.plot")
    if name not in _MODULES:
        raise AttributeError(f"module 'bigfs' has no attribute {name!r}")
    return getattr(import_module(f"bigfs.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names: tab completion shows them before they are imported."""
    return sorted({*__all__, "plot", "__version__", "__doc__"})
