"""Libraries that are loaded when they are first used, as a worker that reads tiles uses none."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import requests
    from pyarrow import compute, types
else:

    class LazyModule:
        """A module that is imported when one of its names is asked for."""

        def __init__(self, name: str) -> None:
            self.name = name

        def __getattr__(self, attribute: str) -> Any:
            self.__dict__[attribute] = value = getattr(import_module(self.name), attribute)
            return value  # and from then on without this call

    pa, pd, requests = map(LazyModule, ("pyarrow", "pandas", "requests"))
    compute, types = map(LazyModule, ("pyarrow.compute", "pyarrow.types"))

__all__ = ["compute", "pa", "pd", "requests", "types"]
