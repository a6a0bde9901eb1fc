"""The quality of a selection, measured on samples that the method never saw.

The models are linear: by scikit-learn where the columns fit in memory, else by tiles.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigfs.evaluation.curves import Evaluation, Point, measure

__all__ = ["Evaluation", "Point", "measure"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the names of metrics load no model."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("bigfs.evaluation.curves"), name)
