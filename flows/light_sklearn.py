"""Importing this module imports scikit-learn without scipy.stats and pandas.

scikit-learn imports both for functions that no run calls, and they take longer than scikit-learn
itself. The process of the command and the one that its workers are forked from import this module
first. A name that scikit-learn takes from scipy.stats is looked up when it is used, and pandas
counts as not installed while scikit-learn is imported. Later imports of both find the real ones.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

SKLEARN = (
    "cluster",
    "feature_selection",
    "linear_model",
    "metrics",
    "model_selection",
    "multiclass",
    "pipeline",
    "preprocessing",
    "svm",
)


class LateName:
    """A name of a module that is imported when the name is called, or an attribute is taken."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._look_up()(*arguments, **options)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._look_up(), attribute)

    def _look_up(self) -> Any:
        if isinstance(sys.modules.get(self._module), LateModule):
            del sys.modules[self._module]
        return getattr(import_module(self._module), self._name)


class LateModule(ModuleType):
    """A package that is not imported, whose names are `LateName`s."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        spec = find_spec(name)
        if spec is not None:  # its submodules can be imported
            self.__path__ = list(spec.submodule_search_locations or ())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return LateName(self.__name__, name)


@contextlib.contextmanager
def late_imports() -> Iterator[None]:
    """Put the import of scipy.stats off, and hide pandas, while the block imports scikit-learn.

    What is imported already stays as it is.
    """
    hidden: dict[str, Any] = {"pandas": None, "scipy.stats": LateModule("scipy.stats")}
    hidden = {name: module for name, module in hidden.items() if name not in sys.modules}
    sys.modules.update(hidden)
    try:
        yield
    finally:
        for name, module in hidden.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


with late_imports():
    for part in SKLEARN:
        import_module(f"sklearn.{part}")
