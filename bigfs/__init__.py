"""Feature selection for data that does not fit in memory."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigfs import plot as plot  # a module, which `__getattr__` imports
    from bigfs.engine import cluster
    from bigfs.engine.display import progress
    from bigfs.matrix import Matrix
    from bigfs.selectors import (
        ANOVA,
        CMIM,
        DLSR,
        GLSPFS,
        GSC,
        JELSR,
        JFS,
        JGSC,
        JHLSR,
        JMI,
        L1SVM,
        L2SVM,
        LLFS,
        LSDF,
        MCFS,
        MRMR,
        MRSF,
        NDFS,
        RFS,
        RJGSC,
        RLSR,
        RRPC,
        SMR,
        SPEC,
        SPFS,
        SRLSR,
        SVMRFE,
        TRCFS,
        UDFS,
        Chi2,
        Fisher,
        FRegression,
        Gini,
        LaplacianScore,
        MultiTaskLasso,
        MutualInformation,
        ReliefF,
        SparGE,
        SparGECV,
        SSelect,
        TraceRatio,
        TScore,
        Variance,
    )
    from bigfs.selectors.selector_cv import SelectorCV
    from bigfs.selectors.stability import stability

__version__ = "0.1.0"

logging.getLogger("bigfs").addHandler(logging.NullHandler())  # silent until the user listens

_MODULES = {
    "cluster": "engine",
    "Matrix": "matrix",
    "SelectorCV": "selectors.selector_cv",
    "progress": "engine.display",
    "stability": "selectors.stability",
}

__all__ = [
    "ANOVA",
    "CMIM",
    "DLSR",
    "GLSPFS",
    "GSC",
    "JELSR",
    "JFS",
    "JGSC",
    "JHLSR",
    "JMI",
    "L1SVM",
    "L2SVM",
    "LLFS",
    "LSDF",
    "MCFS",
    "MRMR",
    "MRSF",
    "NDFS",
    "RFS",
    "RJGSC",
    "RLSR",
    "RRPC",
    "SMR",
    "SPEC",
    "SPFS",
    "SRLSR",
    "SVMRFE",
    "TRCFS",
    "UDFS",
    "Chi2",
    "FRegression",
    "Fisher",
    "Gini",
    "LaplacianScore",
    "Matrix",
    "MultiTaskLasso",
    "MutualInformation",
    "ReliefF",
    "SSelect",
    "SelectorCV",
    "SparGE",
    "SparGECV",
    "TScore",
    "TraceRatio",
    "Variance",
    "cluster",
    "progress",
    "stability",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the command's help loads no library."""
    if name == "plot":
        return import_module("bigfs.plot")
    if name not in __all__:
        raise AttributeError(f"module 'bigfs' has no attribute {name!r}")
    return getattr(import_module(f"bigfs.{_MODULES.get(name, 'selectors')}"), name)


def __dir__() -> list[str]:
    """Return the public names: tab completion shows them before they are imported."""
    return sorted({*__all__, "plot", "__version__", "__doc__"})
